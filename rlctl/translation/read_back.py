"""What a written config means otherwise than its source: it is read back by the target's own table, and the two are compared.

So no rule of a dialect can change the objective, the schedule or the batch without a line in the report: what no rule reported
is found here, with both values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlctl.adapters import dialect as dialect_called
from rlctl.adapters.engine.dialect import File, as_document, stage_parts
from rlctl.adapters.engine.lacking import SHOWN
from rlctl.adapters.engine.requirements import refused, requirements_of
from rlctl.adapters.engine.tree import put
from rlctl.common.errors import Location, RlctlError
from rlctl.common.messages.reasons import said, together
from rlctl.common.ranks import BY_CODE, Rank, rank_of
from rlctl.common.report import Bucket, Entry, Finding, Level, Report, finding
from rlctl.config import Loaded
from rlctl.config.inspect import settings
from rlctl.documents import Document, KeyPath, dotted, parse_dotted
from rlctl.translation.difference import Difference, differences

CONSEQUENCES: Mapping[str, str] = {
    "algorithm.loss_aggregation.per_micro_batch": "If true, each micro-batch's loss is normalized separately, so that the "
    "gradient depends on the micro-batch size",
    "algorithm.reward_shaping.normalize_per_domain": "If true, each reward domain is normalized separately; otherwise the "
    "whole batch is",
    "algorithm.reward_shaping.group_by": "Rewards are normalized over other groups, so that advantages differ",
    "algorithm.reward_shaping.overlong_penalty.clamp": "If false, responses shorter than the buffer get a bonus",
    "algorithm.advantage.whiten": "If true, advantages are scaled to mean 0 and deviation 1 over the batch",
    "algorithm.train_temperature": "sampling divides training logits by rollout.sampling.temperature; one does not. "
    "Log-probs and the loss differ",
    "algorithm.kl_in_loss.estimator": "The gradient of the KL term differs",
    "algorithm.old_log_probs": "The loss ratio uses other old log-probs, so it clips other tokens",
    "batch.shuffle": "Mini-batches hold other responses",
    "critic.shuffle": "The critic's mini-batches contain other responses",
    "schedule.evaluate_at_end": "If true, the run evaluates once more after its last step",
    "schedule.evaluate_at_start": "If true, the run evaluates before its first step",
    "train.lr_scheduler.step_unit": "With step, all optimizer steps of a step share one learning rate",
    "critic.lr_scheduler.step_unit": "With step, all optimizer steps of a step share one learning rate",
    "train.optimizer.decay_norms_and_biases": "If true, weight decay also applies to norms and biases",
    "critic.optimizer.decay_norms_and_biases": "If true, weight decay also applies to norms and biases",
    "weight_sync.every_optimizer_steps": "Rollout gets new weights more or less often, so that responses are staler or fresher",
    "weight_sync.max_staleness_steps": "The run trains on responses of other staleness",
    "run.mode": "The run does something else than its source",
}
"""What follows if the two sides of a key differ, by canonical key."""
NOTED = frozenset({"silent-difference", "micro-batches-added"})
"""Findings of a writer on what its framework does otherwise; a conversion warns of them if training changes."""
LENGTHS = ("schedule.total_steps", "schedule.total_epochs", "schedule.total_optimizer_steps")
"""The length of a run, which one of them says: a line about one is about all."""
INTERVALS = ("checkpoint.every",)
"""Intervals that no training depends on, whose rounding is reported too."""
_PLACE = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True)
class Back:
    """What reading a written file back found."""

    found: tuple[Difference, ...] = ()
    problem: Finding | None = None
    """Set if the written file cannot be read."""
    compared: frozenset[str] = frozenset()
    """The canonical keys of the source, without the numbers of items."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why the target cannot say a canonical value, as far as its rules say."""


def read_back(loaded: Loaded, file: File, options: Mapping[str, str]) -> Back:
    """Read what was written and compare it with its source."""
    target = dialect_called(file.name)
    try:
        again = target.read_again(file, options)
    except RlctlError as error:
        return Back(problem=_unreadable(target.name, error.message))
    if again.loaded is None:
        return Back(problem=_unreadable(target.name, again.report.errors[0].message))
    mine, prefix = _of_part(loaded, file)
    rows = options.get("dataset_rows", "")
    found = differences(mine, again.loaded, rows=int(rows) if rows.isdecimal() else None)
    keys = frozenset(_PLACE.sub("", dotted(item.path)) for item in settings(mine.config))
    fates = [(path, fate.lost) for _, written in file.parts for path, fate in written.fates.items() if fate.lost]
    reasons = {prefix + dotted(path): reason for path, reason in fates}
    return Back(tuple(replace(item, key=prefix + item.key) for item in found), None, keys, reasons)


def refusals(report: Report, file: File, *, script: bool) -> list[Finding]:
    """What the target's own checks refuse of a written file: a note if the source's refuse the source, too.

    Args:
        report: of reading the source.
        file: as it is written.
        script: whether it is written as a launch script, which names the program.
    """
    requirements = requirements_of(file.name)
    if requirements is None or not f"{requirements.release}.".startswith(f"{file.release}."):
        return []
    target, document = dialect_called(file.name), as_document(file)
    kind = file.kind if script else ""
    found = refused(requirements, target, document, release=file.release, environment={}, kind=kind)
    if not found:
        return []
    level, name = Level.NOTE if _is_refused(report) else Level.WARNING, SHOWN.get(file.name, file.name)
    return [
        finding(
            "target-refuses",
            level,
            row.key,
            framework=name,
            reason=message,
            source=f"{requirements.release}: {row.source}",
            advice=row.hint,
        )
        for row, message in found
    ]


def _is_refused(report: Report) -> bool:
    """Whether a source is refused by its own framework: an example that is not whole, say."""
    name, _, release = report.dialect.partition("@")
    requirements = requirements_of(name)
    if requirements is None:
        return False
    return bool(refused(requirements, dialect_called(name), as_read(report), release=release, environment={}))


def as_read(report: Report) -> Document:
    """The leaves of a file that was read, with what overrides made of them."""
    values: dict[str, object] = {}
    marks: dict[KeyPath, Location] = {}
    for entry in report.accounting:
        path = parse_dotted(entry.key)
        put(values, path, entry.value)
        if entry.at is not None:
            marks[path] = entry.at
    return Document("config", values, marks)


def _unreadable(name: str, why: str) -> Finding:
    return finding("not-readable", Level.WARNING, framework=SHOWN.get(name, name), reason=why)


def _of_part(loaded: Loaded, file: File) -> tuple[Loaded, str]:
    """The stage that was written of several, and how its keys begin in the source's ledger."""
    index = file.parts[0][0] if len(file.parts) == 1 else None
    if index is None:
        return loaded, ""
    given = next(part for number, _, part in stage_parts(loaded) if number == index)
    return Loaded(given.config, given.sources), f"stages[{index}]."


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def accounted(
    entries: Sequence[Entry],
    before: Sequence[Entry],
    back: Back,
    findings: Sequence[tuple[Finding, str]],
    names: tuple[str, str],
) -> tuple[list[Entry], list[Finding]]:
    """The ledger and the findings of a writer, with every difference that was found.

    Args:
        entries: what became of each leaf of the source.
        before: the same leaves with the canonical keys that they were read as.
        back: what was found.
        findings: of the writer, each with its canonical key.
        names: of the source's and the target's dialect.
    """
    told = [key for finding, key in findings if key and finding.code in NOTED]
    lost = {key for entry, read in zip(entries, before, strict=True) if entry.loses for key, _ in read.targets}
    places: dict[str, list[int]] = {}
    for place, read in enumerate(before):
        for key, _ in read.targets:
            places.setdefault(key, []).append(place)
    made, more = list(entries), []
    for item in back.found:
        rank = rank_of(item.key) or Rank.NAMES
        if _overlaps(item.key, lost) or (item.key in LENGTHS and lost.intersection(LENGTHS)):
            continue
        own = places.get(item.key, [])
        rounded = (rank.changes_training or item.key.endswith(INTERVALS)) and _rounded(item, back.found)
        if own and (rounded or rank.changes_training) and not _overlaps(item.key, told):
            for place in own:
                made[place] = _changed(made[place], _both(item, names, back), rounded=rounded)
        elif rank.changes_training and not _overlaps(item.key, told):
            more.append(finding("silent-difference", Level.WARNING, item.key, reason=_both(item, names, back)))
    if back.problem is not None:
        more.append(back.problem)
    return made, [*(_raised(finding, key, back, names) for finding, key in findings), *more]


def _overlaps(key: str, others: Iterable[str]) -> bool:
    """Whether a key is one of others, above one or below one."""
    return any(
        key == one or one.startswith((f"{key}.", f"{key}[")) or key.startswith((f"{one}.", f"{one}[")) for one in others
    )


def _rounded(item: Difference, found: Collection[Difference]) -> bool:
    """Whether only a number differs, and not the unit beside it too."""
    if not all(_is_quantity(side.value) for side in (item.first, item.second)):
        return False
    section = item.key.rpartition(".")[0]
    return not any(other.key in (f"{section}.unit", f"{section}.type") for other in found)


def _is_quantity(value: Any) -> bool:
    """Whether a value is a number, or an interval: a number with its unit."""
    return _is_number(value) or (isinstance(value, dict) and len(value) == 1 and all(map(_is_number, value.values())))


def _changed(entry: Entry, note: str, *, rounded: bool) -> Entry:
    bucket = Bucket.APPROXIMATED if rounded else Bucket.UNSUPPORTED
    return replace(entry, bucket=bucket, note=together([note, entry.note]) if rounded else note)


def _both(item: Difference, names: tuple[str, str], back: Back) -> str:
    """Both values of a key, why they differ, and what follows from it."""
    same = names[0] == names[1]
    source, target = ("the source", "the output") if same else (SHOWN.get(name, name) for name in names)
    ours, theirs = (_quantity(side.value, item.key) for side in (item.first, item.second))
    key = _PLACE.sub("", item.key).removeprefix("stages.")
    why, follows = back.reasons.get(item.key, ""), CONSEQUENCES.get(key, "")
    both = said(
        "{key} is {ours} in {source}, {theirs} in {target}",
        key=item.key,
        ours=ours,
        source=source,
        theirs=theirs,
        target=target,
    )
    both = said("{both}: {why}", both=both, why=why) if why else both
    return said("{both}. {follows}", both=both, follows=follows) if follows else both


def _quantity(value: Any, key: str) -> str:
    """A value with its unit, if the key does not say it."""
    unit = (
        "optimizer step"
        if "lr_scheduler." in key and key.endswith("_steps")
        else "step"
        if key.endswith(INTERVALS)
        else ""
    )
    counts = unit and isinstance(value, int)
    return f"{value} {unit}{'s' * (value != 1)}" if counts else _told(value)


def _told(value: Any) -> str:
    if isinstance(value, dict) and len(value) == 1:
        ((unit, count),) = value.items()
        return f"{count} {str(unit).replace('_', ' ')}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _raised(finding: Finding, canonical: str, back: Back, names: tuple[str, str]) -> Finding:
    """A writer's note as a warning, if training changes by it."""
    if finding.code not in NOTED or finding.level is not Level.NOTE or not finding.rank.changes_training:
        return finding
    if finding.code != "silent-difference":
        return finding if names[0] == names[1] else replace(finding, level=Level.WARNING)
    same = _PLACE.sub("", canonical) in back.compared and not _overlaps(canonical, [item.key for item in back.found])
    return finding if same else replace(finding, level=Level.WARNING)


def ranked(findings: Iterable[Finding], file: File) -> list[tuple[Finding, str]]:
    """Findings of a writer with their rank, each with the canonical key that its key was written from."""
    sources: dict[str, KeyPath] = {}
    for _, written in file.parts:
        for path, fate in written.fates.items():
            for key, _ in fate.targets:
                sources.setdefault(key, path)
    found = []
    for item in findings:
        key = dotted(sources[item.key]) if item.key in sources else item.key
        rank = None if item.code in BY_CODE else rank_of(key)
        found.append((replace(item, ranked=item.ranked or rank), key))
    return found
