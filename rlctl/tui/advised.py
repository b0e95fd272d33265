"""The config of a next run with what an advice changes, which resumes from the last checkpoint. No widget is here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlctl import runs
from rlctl.common.errors import ConfigError, RlctlError
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import is_number
from rlctl.config import Config, stages_of, to_plain
from rlctl.documents import KeyPath, dotted
from rlctl.editing.session import Change, Session

MOST_NAMES = 1000
"""Names that are tried for the next run."""
Remedy = Callable[[Config], list[Change]]


def _halved_rate(section: str) -> Remedy:
    def change(config: Config) -> list[Change]:
        trained = getattr(config, section)
        return [] if trained is None else [Change((section, "optimizer", "lr"), trained.optimizer.lr / 2)]

    return change


def _longer(config: Config) -> list[Change]:
    return [Change(("rollout", "max_response_tokens"), 2 * config.rollout.max_response_tokens)]


def _without_equal_groups(config: Config) -> list[Change]:
    if any(found.choice == "zero_variance_groups" for found in config.algorithm.filters):
        return []
    kept = [*(to_plain(each, sparse=True) for each in config.algorithm.filters), {"type": "zero_variance_groups"}]
    return [Change(("algorithm", "filters"), kept)]


def _larger_micro_batches(config: Config) -> list[Change]:
    micro = config.batch.micro_batch
    return [] if micro is None or micro.size is None else [Change(("batch", "micro_batch", "size"), 2 * micro.size)]


REMEDIES: Mapping[str, Remedy] = {
    "truncation": _longer,
    "equal-groups": _without_equal_groups,
    "skipped-updates": _halved_rate("train"),
    "skipped-critic-updates": _halved_rate("critic"),
    "kl-runs-away": _halved_rate("train"),
    "entropy-collapse": _halved_rate("train"),
    "low-mfu": _larger_micro_batches,
}
"""The change of config that an advice leads to, by its code; others need a look at data, code or logs."""


@dataclass(frozen=True, slots=True)
class Next:
    """The run that would go on with another config."""

    session: Session
    changes: tuple[Change, ...]
    step: int | None
    """Of the checkpoint that it resumes from; None if it starts from scratch."""


def changes_of(config: Config, stage: str, code: str) -> list[Change]:
    """What an advice on a stage changes; nothing if it needs more than a change of config."""
    remedy = REMEDIES.get(code)
    if remedy is None:
        return []
    found = [known.config for known in stages_of(config) if known.name == stage]
    return remedy(found[0]) if found else []


def told(config: Config, changes: Sequence[Change]) -> str:
    """Changes in one line, each with the value before and after."""
    parts = []
    for change in changes:
        before: object = config
        for part in change.path:
            before = getattr(before, str(part), None)
        if isinstance(change.value, list) and isinstance(change.value[-1], dict) and "type" in change.value[-1]:
            parts.append(f"{dotted(change.path)} + {change.value[-1]['type']}")
            continue
        parts.append(f"{dotted(change.path)} {before:g} → {change.value:g}" if is_number(before) else change.label)
    return ", ".join(parts)


def offered(folder: Path, stage: str, codes: Iterable[str]) -> dict[str, str]:
    """By code, in one line, what the advices of a stage change; those that change no config are left out.

    Raises:
        RlctlError: the config of the run cannot be read.
        OSError: its folder cannot be read.
    """
    config = runs.read_config(folder)
    found = next((known.config for known in stages_of(config) if known.name == stage), config)
    changes = {code: changes_of(config, stage, code) for code in codes}
    return {code: told(found, listed) for code, listed in changes.items() if listed}


def next_run(folder: Path, stage: str, code: str) -> Next | None:
    """The config of a run with the change that an advice leads to, which goes on from the last checkpoint of the stage.

    Raises:
        RlctlError: the config of the run cannot be read, or does not take the change.
        OSError: its folder cannot be read.
    """
    text = (folder / "config.yaml").read_text(encoding="utf-8")
    session = Session.of_text(text, "config.yaml")
    changes = changes_of(session.config, stage, code)
    if not changes:
        return None
    standing = runs.standing(folder)
    kept = standing.kept[0] if standing.stage == stage and standing.kept else None
    stages = list(zip([known.name for known in stages_of(session.config)], session.config.stages, strict=False))
    if kept is not None and standing.finished:  # what is over is not trained again
        stages = [(name, each) for name, each in stages if name not in standing.finished]
        session.set(("stages",), [each for _, each in stages])
    place = next((number for number, (name, _) in enumerate(stages) if name == stage), None)
    for change in changes:
        session.set(_in_stage(session, place, change.path), change.value)
    if kept is not None:
        session.set(_in_stage(session, place, ("checkpoint", "resume")), "path")
        session.set(_in_stage(session, place, ("checkpoint", "resume_path")), str(kept.folder.resolve()))
    session.set(("run", "name"), _free_name(folder))
    return Next(session, tuple(changes), kept.step if kept is not None else None)


def _in_stage(session: Session, place: int | None, path: KeyPath) -> KeyPath:
    """Where a key is set: in the stage if that sets it itself, or the checkpoint that only it has; else for all."""
    if place is None:
        return path
    own: KeyPath = ("stages", place, *path)
    if path[0] == "checkpoint":
        return own
    try:
        session.written(own)
    except ConfigError:
        return path
    return own


def _free_name(folder: Path) -> str:
    """A name for the next run beside the folder of this one."""
    base, _, number = folder.name.rpartition("-")
    start = (base, int(number)) if base and number.isdigit() else (folder.name, 1)
    for following in range(start[1] + 1, start[1] + MOST_NAMES):
        name = f"{start[0]}-{following}"
        if not (folder.parent / name).exists():
            return name
    raise RlctlError(
        said("no free name next to {folder}", folder=folder), hint="start the app in another folder of runs"
    )
