"""Whether another framework would accept a config: its requirements, applied to the file as it is or as rlctl would write it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from rlctl.adapters import dialect as dialect_called
from rlctl.adapters.engine.requirements import IGNORES, REFUSES, Requirements, refused, requirements_of, series_of
from rlctl.adapters.engine.rules import split
from rlctl.adapters.engine.tree import put
from rlctl.common.errors import Location
from rlctl.common.messages.reasons import said, translated
from rlctl.common.report import Finding, Level, Report, finding
from rlctl.common.report_lines import framework
from rlctl.common.report_lines import release as release_of
from rlctl.config import Loaded
from rlctl.documents import Document, KeyPath, parse_dotted
from rlctl.translation.read_back import as_read
from rlctl.translation.remedies import advice_of
from rlctl.translation.translate import translate_loaded

OF_HYDRA = ("added-key", "other-engines-key", "no-release-key")
"""Overrides that Hydra refuses."""
REFUSED = ("unknown-key", "fork", *OF_HYDRA)
"""Findings of reading on keys that a framework's loader refuses."""
WHEN = {"code-signature": "rollout", "memory": "rollout"}
"""When errors of rlctl's own checks would strike in a framework, if not before the first step."""
FORKED = 2
"""Unknown keys without a similar one, from which on a file is more likely for a fork than wrong."""
_SHOWN = 3
"""Keys that a finding on many of them names."""
STOPPING = ("data-files", "uncallable-reward")
"""Warnings of a framework's writer that are errors here, because the framework stops at them."""


def findings_of(
    runner: str, loaded: Loaded | None, report: Report, *, changed: bool = False, checked: Collection[str] = ()
) -> list[Finding]:
    """What a framework would refuse of a config.

    Args:
        runner: the framework's name.
        loaded: the config; None if rlctl cannot read it, so that only a file of the framework's own is checked.
        report: of reading it; its accounting holds every leaf of the file.
        changed: whether canonical keys were changed after reading, which the file does not say.
        checked: codes of what rlctl's own checks found, so that nothing is said twice.
    """
    if loaded is None and any(item.code == "fork" for item in report.findings):
        return []  # the fork's keys change what the others count
    name, _, release = report.dialect.partition("@")
    own = name == runner and not changed
    known = _known(runner)
    requirements = (known.of(release) if own else None) or known.newest
    if not own and loaded is None:
        return []
    document, found = (as_read(report), []) if own or loaded is None else _as_written(runner, loaded, report)
    if document is None:
        return found
    dialect = dialect_called(runner)
    version = release if own else dialect.newest
    reported = {stopping.code for stopping in found}
    program = _program(report.findings) if own else ""
    is_certain = not own or _is_certain(runner, report.findings)
    unread = [item.key for item in report.findings if item.code == "key-unread"]
    broken = refused(requirements, dialect, document, release=version, environment=os.environ, program=program)
    for row, message in broken:
        told_before = row.code == IGNORES and any(f"{row.key}.".startswith(f"{key}.") for key in unread)
        if told_before or row.writer_code in reported or row.check_code in checked:
            continue
        source = f"{framework(runner)} {requirements.release} ({row.source})"
        place = _place(document, split(row.key))
        level = Level.WARNING if row.level is Level.ERROR and not is_certain else row.level
        hint, template, fixes = advice_of(row)
        told = finding(row.code, level, row.key, place, reason=message, source=source, advice=hint)
        fixes = fixes if own else ()
        found.append(replace(told, runners=(runner,), when=row.when, template=template, own_fixes=fixes))
    if loaded is not None:
        on_data = loaded.as_written(dialect.on_data(loaded.config))
        found += [replace(item, at=loaded.locate_any(parse_dotted(item.key))) for item in on_data]
    if own and series_of(requirements.release) != release:
        against = f"{framework(runner)} {requirements.release}"
        found.append(finding("runner-release", Level.NOTE, read=release_of(report.dialect), checked=against))
    return found


def of_its_own_framework(report: Report, *, checked: Collection[str] = ()) -> list[Finding]:
    """What the framework of a file would refuse of it beyond rlctl's checks, as warnings: rlctl may still run the file.

    Only where the file is for the release whose requirements are known; a note on another release would say nothing of the file.
    """
    name, _, release = report.dialect.partition("@")
    requirements = requirements_of(name)
    if requirements is None or requirements.of(release) is None:
        return []
    found = findings_of(name, None, report, checked=checked)
    return [
        replace(item, level=Level.WARNING, when="") if item.level is Level.ERROR else replace(item, when="")
        for item in found
    ]


def with_unknown_keys(runner: str, findings: Iterable[Finding], allowed: Collection[str] = ()) -> list[Finding]:
    """Findings of reading, with an error for each unknown key that the framework refuses, as Hydra's struct mode does.

    Args:
        runner: the framework's name.
        findings: of reading the file.
        allowed: unknown keys that stay warnings: those of a fork of the framework.
    """
    strict, listed = _known(runner).strict, list(findings)
    broken = [
        item
        for item in listed
        if item.code in REFUSED and not item.added and item.key not in allowed and strict(item.key)
    ]
    other = _of_another_trainer(runner, listed, [item.key for item in broken])
    if other is not None:
        return [other, *(item for item in listed if not any(item is each for each in broken))]
    is_certain = _is_certain(runner, listed)
    of_fork = sum(item.code == "unknown-key" for item in broken) >= FORKED or not is_certain
    return [
        _refused_key(item, of_fork, is_certain) if any(item is each for each in broken) else item for item in listed
    ]


def _of_another_trainer(runner: str, findings: Iterable[Finding], keys: list[str]) -> Finding | None:
    """An error if a script starts a trainer that lacks these keys, and another trainer of the framework has them all."""
    launch = next((item for item in findings if item.code == "launch"), None)
    programs = dialect_called(runner).programs
    started = str(launch.params["program"]) if launch is not None else ""
    if launch is None or started not in programs or len(keys) < FORKED:
        return None
    paths, kinds = [split(key) for key in keys], {"", programs[started].kind}
    for name, trainer in programs.items():
        if "*" in name or trainer.kind in kinds:
            continue
        known = dialect_called(runner).tables[trainer.kind].schema
        if all(known.releases(path) is not None for path in paths):
            message = said(
                "the script starts {started}, which has none of these {count} keys, and refuses them: {keys}",
                started=started,
                count=len(keys),
                keys=", ".join(keys[:_SHOWN]) + (", ..." if len(keys) > _SHOWN else ""),
            )
            hint = said("start {name}, which has them all, or remove the keys", name=name)
            return replace(launch, code=REFUSES, level=Level.ERROR, message=translated(message), hint=translated(hint))
    return None


def _refused_key(item: Finding, of_fork: bool, is_certain: bool) -> Finding:
    """A finding on a key that the framework refuses; a fork of it, or another release, may have the key."""
    if item.code == "fork":  # which one finding reports as a whole
        return replace(item, level=Level.WARNING)
    if item.code in OF_HYDRA:  # which name what refuses it
        return replace(item, code=REFUSES, level=Level.ERROR if is_certain else Level.WARNING)
    if of_fork:
        message = said("{message}, and refuses it unless yours is a fork that has it", message=item.message)
        return replace(item, code=REFUSES, level=Level.WARNING, message=translated(message))
    message = said("{message}, and refuses it", message=item.message)
    return replace(item, code=REFUSES, level=Level.ERROR, message=translated(message))


def _is_certain(runner: str, findings: Sequence[Finding]) -> bool:
    """Whether the release and the program of a file are those whose refusals are known.

    They are not if the release is the nearest one to the file's, or the program is a recipe with workers of its own.
    """
    program = dialect_called(runner).program(_program(findings))
    has_own_code = program is not None and program.has_own_code
    return not has_own_code and all(item.code != "nearest-release" for item in findings)


def once(findings: Iterable[Finding]) -> list[Finding]:
    """Findings without values that cannot be read, where the framework's own refusal of the same key says more."""
    listed = list(findings)
    refused_keys = {item.key for item in listed if item.code == REFUSES and item.level is Level.ERROR}
    return [item for item in listed if item.code != "bad-value" or item.key not in refused_keys]


def with_moments(findings: Iterable[Finding]) -> list[Finding]:
    """Findings for a framework, each error with when it would strike: before the first step if nothing else is known."""
    return [
        replace(item, when=item.when or WHEN.get(item.code, "start") if item.level is Level.ERROR else "")
        for item in findings
    ]


def _program(findings: Iterable[Finding]) -> str:
    """The program that a launch script starts; empty for a file that is no script."""
    return next((str(item.params["program"]) for item in findings if item.code == "launch"), "")


def _known(runner: str) -> Requirements:
    found = requirements_of(runner)
    assert found is not None, said("{runner} is a framework whose requirements rlctl has", runner=runner)
    return found


def _as_written(runner: str, loaded: Loaded, report: Report) -> tuple[Document | None, list[Finding]]:
    """What rlctl writes for the framework, at the places that the values come from."""
    made = translate_loaded(loaded, replace(report, findings=[], accounting=[*report.accounting]), runner)
    if made.text is None:
        return None, made.report.errors
    values: dict[str, object] = {}
    for origin in made.report.origins:
        put(values, parse_dotted(origin.key), origin.value)
    marks = {parse_dotted(key): entry.at for entry in made.report.accounting if entry.at for key, _ in entry.targets}
    document = Document("config", values, marks)
    return document, [
        replace(found, level=Level.ERROR, at=_place(document, split(found.key)))
        for found in made.report.findings
        if found.code in STOPPING
    ]


def _place(document: Document, path: KeyPath) -> Location | None:
    """Where a key, or the section that it would be in, was written."""
    for length in range(len(path), 0, -1):
        if (at := document.marks.get(path[:length])) is not None:
            return at
        inside = [at for mark, at in document.marks.items() if mark[:length] == path[:length]]
        if length > 1 and inside:
            return inside[0]
    return None
