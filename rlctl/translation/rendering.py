"""From a config to text in a dialect: what its writer made, its comments, and what is kept for the way back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlctl.adapters import dialect as dialect_called
from rlctl.adapters.engine.carried import AS_WRITTEN, block
from rlctl.adapters.engine.dialect import Dialect, File, is_of_series, stage_parts
from rlctl.adapters.engine.rules import Absent
from rlctl.adapters.engine.tree import find
from rlctl.adapters.engine.writing import without_defaults
from rlctl.common.errors import RlctlError, UsageError
from rlctl.common.messages.reasons import said
from rlctl.common.report import Finding, Level, Report, finding
from rlctl.config import Config, Loaded, stages_of
from rlctl.documents import Comment, KeyPath, dotted, parse_dotted, write_yaml
from rlctl.planning.arithmetic import optimizer_steps_per_step
from rlctl.translation.difference import TICKS

SCHEDULE: KeyPath = ("lr_scheduler",)
UNIT: KeyPath = (*SCHEDULE, "step_unit")
COMMENTED = ("yaml", "sh")
"""The formats that hold comments."""


@dataclass
class Outcome:
    """What a dialect's writer made of a config, ready to become text."""

    dialect: Dialect
    form: str
    file: File
    report: Report
    comments: Mapping[KeyPath, Comment]
    tail: Sequence[str]
    sidecar: str | None = None
    """What is kept for the way back, where it was asked for in a file of its own."""

    def text(self, comments: Mapping[KeyPath, Comment] | None = None, tail: Sequence[str] = ()) -> str:
        """The text, with other comments and further lines at the end where they are given.

        Raises:
            TranslationError: the format cannot say what is in the file.
        """
        told = self.comments if comments is None else comments
        return self.dialect.render(self.file, self.form, told, [*tail, *self.tail])


def write_out(loaded: Loaded, target: str, options: Mapping[str, str]) -> Outcome:
    """Write a config in a dialect, as ``trinity`` or ``verl@0.7``.

    Raises:
        TranslationError: the dialect cannot hold the config.
    """
    name, _, version = target.partition("@")
    found = dialect_called(name)
    release = found.release(version)
    form = format_of(found, options.get("format", ""))
    found.refuse_patch(version, loaded.config)
    file = found.write(loaded, release, options)
    file.name, file.release = name, release
    report = Report(target=f"{name}@{release}")
    report.findings += [*nearest_release(found, version, release), *file.findings]
    for _, written in file.parts:
        report.findings += [item for item in written.findings if item not in report.findings]
    report.origins += _origins(file)
    comments = dict(file.comments)
    tail: list[str] = []
    head = loaded.comments.get(())
    if head is not None and (head.above or head.below):
        comments[()] = Comment(head.above, "", ())
        tail = list(head.below)
    outcome = Outcome(found, form, file, report, comments, tail)
    _keep(_way_back(loaded, outcome, options), options, outcome)
    return outcome


def nearest_release(found: Dialect, asked: str, release: str) -> list[Finding]:
    """A note that another release stands for the one that was asked for, if rlctl does not have it."""
    if not asked or is_of_series(asked, release):
        return []
    return [finding("nearest-release", Level.NOTE, asked=f"{found.name} {asked}", release=release)]


def _keep(kept: Mapping[str, Mapping[str, Any]], options: Mapping[str, str], outcome: Outcome) -> None:
    """Put what is kept for the way back where it was asked for: a block of comments, a file of its own, or nowhere."""
    if not kept:
        return
    how = options.get("carried", "comment")
    count = sum(len(keys) for keys in kept.values())
    if how == "sidecar":
        outcome.sidecar = write_yaml({"rlctl_carried": {name: dict(keys) for name, keys in kept.items()}})
    elif how == "none":
        outcome.report.findings.append(finding("not-carried", Level.NOTE, count=count))
    else:
        outcome.tail = [*outcome.tail, *block({**kept, AS_WRITTEN: _overruled(kept, outcome, options)})]
        if outcome.form not in COMMENTED:
            outcome.report.findings.append(
                finding("not-carried_list", Level.NOTE, option="--sidecar FILE", count=count)
            )


def _overruled(kept: Mapping[str, Mapping[str, Any]], outcome: Outcome, options: Mapping[str, str]) -> dict[str, Any]:
    """Values of the text that a kept value overrules, by the text's keys: if somebody changes them, the text holds."""
    places = {parse_dotted(key): value for key, value in kept.get("rlctl", {}).items()}
    if not places:
        return {}
    try:
        again = outcome.dialect.read_again(outcome.file, options)
    except RlctlError:
        return {}
    keys = {key for place, value in places.items() for key in again.causes_of(place, value)}
    values = {dotted(key): find(outcome.file.values, key) for key in sorted(keys, key=dotted)}
    return {key: value for key, value in values.items() if not isinstance(value, Absent)}


def format_of(found: Dialect, asked: str) -> str:
    """The format asked for, or the dialect's usual one.

    Raises:
        UsageError: the dialect has no such format.
    """
    if asked and asked not in found.formats:
        known = ", ".join(found.formats)
        raise UsageError(
            said("{name} cannot be written as {asked}; it has: {known}", name=found.name, asked=asked, known=known),
            hint=f"--format {found.formats[0]}",
        )
    return asked or found.formats[0]


def _origins(file: File) -> list[Any]:
    if len(file.parts) == 1:
        return list(file.parts[0][1].origins)
    found = []
    last = len(file.parts) - 1
    for place, (_, written) in enumerate(file.parts):
        for entry in written.origins:
            top = parse_dotted(entry.key)[0]
            stage = file.values["stages"][place]
            if place == last and top not in stage:
                found.append(entry)
            elif top in stage:
                found.append(replace(entry, key=f"stages[{place}].{entry.key}"))
            elif not any(item.key == entry.key for item in found):
                found.append(entry)
    return list({entry.key: entry for entry in found}.values())


def _way_back(loaded: Loaded, outcome: Outcome, options: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """By dialect, what the target has no key for: keys carried from others, and under ``rlctl`` values it cannot say."""
    target = outcome.dialect.name
    if target == "rlctl":
        return {}
    kept = {name: dict(keys) for name, keys in loaded.config.extensions.items() if name != target}
    kept["rlctl"] = _unsaid(loaded, outcome, options)
    return {name: keys for name, keys in kept.items() if keys}


def _unsaid(loaded: Loaded, outcome: Outcome, options: Mapping[str, str]) -> dict[str, Any]:
    """Canonical values that the source says, or its framework's defaults mean, and the target cannot."""
    found: dict[str, Any] = {}
    file = outcome.file
    for place, (index, written) in enumerate(file.parts):
        given = next(part for number, _, part in stage_parts(loaded) if number == index or len(file.parts) == 1)
        values = {path: find(given.plain, path) for path in written.lost_paths(given.is_kept) if path}
        kept = {path: without_defaults(value, path) for path, value in values.items() if not isinstance(value, Absent)}
        if any(path[-2:-1] == SCHEDULE and path[-1:] in TICKS for path in kept):
            kept = _in_its_ticks(kept, given.config, _read_part(outcome, place, options))
        prefix = f"stages[{index}]." if index is not None and len(file.parts) > 1 else ""
        for path, value in kept.items():
            if path[-2:] == UNIT:
                continue  # ticks come back in the unit of the written file
            if not _held(values[path], path, kept):
                found[f"{prefix}{dotted(path)}"] = _symbolic(value, path, given.expressions)
    return found


def _read_part(outcome: Outcome, place: int, options: Mapping[str, str]) -> Config | None:
    """A stage of the written file as it is read again; None if it cannot be."""
    try:
        again = outcome.dialect.read_again(outcome.file, options).loaded
    except RlctlError:
        return None
    parts = [stage.config for stage in stages_of(again.config)] if again is not None else []
    return parts[place] if place < len(parts) else None


def _in_its_ticks(kept: dict[KeyPath, Any], given: Config, again: Config | None) -> dict[KeyPath, Any]:
    """Kept lengths of learning-rate schedules in the unit in which the written file counts them."""
    each, made = optimizer_steps_per_step(given), dict(kept)
    for path, value in kept.items():
        mine, theirs = (_step_unit(config, path) for config in (given, again))
        if path[-2:-1] != SCHEDULE or path[-1:] not in TICKS or not isinstance(value, int):
            continue
        if (mine, theirs) == ("step", "optimizer_step"):
            made[path] = value * each
        elif (mine, theirs) == ("optimizer_step", "step") and value % each == 0:
            made[path] = value // each
    return made


def _step_unit(config: Config | None, path: KeyPath) -> str | None:
    """What the schedule of a role counts."""
    schedule = getattr(getattr(config, str(path[0]), None), "lr_scheduler", None)
    return schedule.step_unit if schedule is not None else None


def _held(value: Any, path: KeyPath, kept: Mapping[KeyPath, Any]) -> bool:
    """Whether a section above the path is kept, and holds the value."""
    above = (path[:depth] for depth in range(1, len(path)))
    return any(find(kept[part], path[len(part) :]) == value for part in above if part in kept)


def _symbolic(value: Any, path: KeyPath, expressions: Mapping[KeyPath, str], *, inside: bool = False) -> Any:
    """A value with its expressions as they were written.

    Inside a kept list or section only variables of the environment stay expressions: nothing resolves canonical keys there.
    """
    if path in expressions and not (inside and _names_keys(expressions[path])):
        return expressions[path]
    if isinstance(value, dict):
        return {key: _symbolic(item, (*path, key), expressions, inside=True) for key, item in value.items()}
    if isinstance(value, list):
        return [_symbolic(item, (*path, index), expressions, inside=True) for index, item in enumerate(value)]
    return value


def _names_keys(text: str) -> bool:
    """Whether an expression refers to other keys, and not only to variables of the environment."""
    return any(not part.startswith("oc.env:") for part in text.split("${")[1:])
