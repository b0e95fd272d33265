"""Reading, writing and translating configs: the only way a front end touches a dialect.

``read`` takes a text in any dialect to a canonical config, ``write`` takes one to any dialect, ``translate`` does both and
makes one ledger of the two: what became of every leaf of the source, and where every leaf of the target came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlctl.adapters import dialect as dialect_called
from rlctl.adapters import names
from rlctl.adapters.carried import HEAD, block, kept_in, without_block
from rlctl.adapters.dialect import Dialect, File, Taken, stage_parts
from rlctl.adapters.reading import Read
from rlctl.adapters.rules import Absent
from rlctl.adapters.secrets import without_literals
from rlctl.adapters.stages import combined
from rlctl.adapters.tree import find
from rlctl.adapters.writing import Fate, Written
from rlctl.config import Loaded, set_keys
from rlctl.documents import (
    Comment,
    Document,
    KeyPath,
    Override,
    dotted,
    parse_dotted,
    read_overrides,
    read_text,
    read_yaml,
    write_yaml,
)
from rlctl.errors import ConfigError, DocumentError, Location, TranslationError, UsageError, nearest
from rlctl.report import Bucket, Entry, Finding, Level, Report

_HOME = re.compile(r"(?<=[=\[,])\s*(~/[^,\]\[{}'\"]*|<[\w-]+>/[^,\]\[{}'\"]*)(?=$|[,\]])")


FACTS: Mapping[str, str] = {
    "dataset_rows": "rows of the training data, where epochs must become steps",
    "explorer_gpus": "devices that explore, where all roles share them in the source",
    "stage": "the stage to write, where the target has no stages",
}
"""What ``--assume`` may state: facts that a source does not hold."""
_NUMBERS = ("dataset_rows", "explorer_gpus")


def check_facts(facts: Mapping[str, str]) -> None:
    """Refuse a fact that nothing asks for, or a number that is none.

    Raises:
        UsageError: it would be ignored.
    """
    for name, value in facts.items():
        if name not in FACTS:
            known = "; ".join(f"{fact}: {meaning}" for fact, meaning in FACTS.items())
            raise UsageError(
                f"--assume {name}: nothing asks for it", hint=f"{nearest(name, FACTS)} there are {known}".strip()
            )
        if name in _NUMBERS and not (value.isdecimal() and int(value) > 0):
            raise UsageError(f"--assume {name}={value}: it must be a number of at least 1")


@dataclass(frozen=True)
class Translation:
    """A text in the target's language, with both ledgers. ``text`` is None where a finding is an error."""

    text: str | None
    report: Report
    sidecar: str | None = None
    """Carried keys as a file of their own, where they were asked for beside the text."""


@dataclass(frozen=True)
class Known:
    """A dialect as shown to a person."""

    name: str
    versions: tuple[str, ...]


def dialects() -> list[Known]:
    """Every dialect that is installed, with its versions, oldest first."""
    return [Known(name, dialect_called(name).versions) for name in names()]


def _asked(text: str | None) -> tuple[str, str]:
    name, _, version = (text or "").partition("@")
    return name, version


def detect(document: Document) -> tuple[str, str]:
    """The dialect and version a document is written in, and why.

    Raises:
        TranslationError: no dialect knows enough of its keys, or two know as many.
    """
    found, taken = _detected(document)
    known = taken.leaves - taken.unknown
    return (
        f"{found.name}@{taken.version}",
        f"{known} of {taken.leaves} keys are {found.name}'s, release {taken.version}",
    )


def _detected(document: Document) -> tuple[Dialect, Taken]:
    ranked = sorted(
        ((dialect_called(name), dialect_called(name).take(document)) for name in names()),
        key=lambda pair: pair[1].unknown,
    )
    best = ranked[0]
    if best[1].leaves == 0:
        raise TranslationError("the file holds no keys", at=Location(document.name))
    if best[1].unknown > best[1].leaves / 2:
        raise TranslationError(
            f"this is no config of {', '.join(names())}: the nearest is {best[0].name}, which does not have "
            f"{best[1].unknown} of its {best[1].leaves} keys",
            at=Location(document.name),
            hint="name the dialect with --from if it is one after all",
        )
    if len(ranked) > 1 and ranked[1][1].unknown == best[1].unknown:
        tied = [pair[0].name for pair in ranked if pair[1].unknown == best[1].unknown]
        raise TranslationError(
            f"this could be {' or '.join(tied)}: both know as many of its keys",
            at=Location(document.name),
            hint="name the dialect with --from",
        )
    return best


def read(
    source: str | Path,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    assignments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> tuple[Loaded | None, Report]:
    """Read a file (``-`` is standard input) in any dialect.

    Args:
        source: path of the file.
        dialect: what it is written in, as ``verl`` or ``verl@0.6``; found out where it is not said.
        overrides: changes in the file's own dialect, as its users write them.
        assignments: changes of canonical keys, as ``key=value``.
        environment: what ``${oc.env:...}`` reads; the process's own environment if None.
        options: facts that the source does not hold, such as ``dataset_rows``.

    Raises:
        RlctlError: the text cannot be read at all, or its dialect cannot be told.
    """
    return read_document(
        _document(source),
        dialect=dialect,
        overrides=overrides,
        assignments=assignments,
        environment=environment,
        options=options,
    )


def _document(source: str | Path) -> Document:
    return read_yaml(read_text(source), "<stdin>" if str(source) == "-" else str(source))


def read_document(
    document: Document,
    *,
    dialect: str | None = None,
    overrides: Sequence[str | tuple[str, Location]] = (),
    assignments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> tuple[Loaded | None, Report]:
    """As ``read``, for a document. An empty one with overrides is a list of overrides alone.

    Raises:
        UsageError: an override and an assignment meet at one canonical key.
    """
    changes = override_lines(overrides)
    kept = kept_in(document.text)
    document, secrets = without_literals(_prepared(document, changes, dialect))
    found, taken = _taken(document, dialect)
    outcome = found.read(
        _without_kept(document),
        taken,
        environment=environment,
        options=options or {},
        restored=kept,
    )
    report = outcome.report
    report.findings[:0] = [*secrets, *_other_release(found, taken, report)]
    loaded = outcome.loaded
    if loaded is not None and assignments:
        _refuse_meeting(loaded, assignments)
        loaded = _assigned(loaded, assignments, report)
    return loaded, report


def _refuse_meeting(loaded: Loaded, assignments: Sequence[str]) -> None:
    """Refuse an assignment to a key that an override in the file's dialect already sets: which one wins would be a guess."""
    overridden = {path: source for path, source in loaded.sources.items() if source.kind == "override"}
    for text in assignments:
        key = text.partition("=")[0].strip().lstrip("+~")
        for path, source in overridden.items():
            if dotted(path) == key or dotted(path).startswith(f"{key}."):
                raise UsageError(
                    f"--set {key} and the override of {source.key} set the same thing", hint="keep one of them"
                )


def _assigned(loaded: Loaded, assignments: Sequence[str], report: Report) -> Loaded | None:
    try:
        return set_keys(loaded, assignments)
    except (ConfigError, DocumentError) as error:
        report.add("set", Level.ERROR, error.message, at=error.at, hint=error.hint)
        return None


def _prepared(document: Document, changes: list[Override], dialect: str | None) -> Document:
    if not changes:
        return document
    name = _asked(dialect)[0]
    if not name and document.values:
        name = _detected(document)[0].name
    if name:
        return dialect_called(name).prepare(document, changes)
    candidates = [known.prepare(document, changes) for known in map(dialect_called, names()) if known.name != "rlctl"]
    return min(candidates, key=lambda item: _detected(item)[1].unknown)


def _taken(document: Document, dialect: str | None) -> tuple[Dialect, Taken]:
    name, version = _asked(dialect)
    if not name:
        return _detected(document)
    found = dialect_called(name)
    return found, found.take(document, version=found.release(version) if version else "")


def _without_kept(document: Document) -> Document:
    """The document without the block of carried keys among its comments."""
    if HEAD not in document.text:
        return document
    comments = {
        path: Comment(without_block(note.above), note.beside, without_block(note.below))
        for path, note in document.comments.items()
    }
    return replace(document, comments=comments)


def _other_release(found: Dialect, taken: Taken, report: Report) -> list[Finding]:
    """One note on keys that the release taken does not have, although another one does."""
    unknown = sum(1 for entry in report.accounting if entry.bucket is Bucket.UNKNOWN)
    others = taken.unknown - unknown
    if others <= 0 or found.name == "rlctl":
        return []
    release = f"{found.name}@{taken.version}"
    message = f"{others} keys belong to other releases than {release}; they are read as those releases mean them"
    return [Finding("other-release", Level.NOTE, message)]


def override_lines(lines: Iterable[str | tuple[str, Location]], name: str = "command line") -> list[Override]:
    """Overrides as their users write them; a path that starts with ``~/``, which a shell would expand, needs no quotes."""
    placed = [(line, Location(name, number)) if isinstance(line, str) else line for number, line in enumerate(lines, 1)]
    return read_overrides([(_quoted(text), at) for text, at in placed], name)


def _quoted(text: str) -> str:
    return _HOME.sub(lambda match: f"'{match[1]}'", text) if "~/" in text or "<" in text else text


def read_many(
    sources: Sequence[str | Path],
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    assignments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> tuple[Loaded | None, Report]:
    """Read several files, of any dialects, as the stages of one config, each named after its file.

    Overrides change one file; without a file they are read alone.

    Raises:
        UsageError: there are overrides, and several files that they could change.
    """
    if len(sources) > 1 and overrides:
        raise UsageError("overrides change one file; several are given", hint="use --set, which takes canonical keys")
    if len(sources) <= 1:
        return read_document(
            _document(sources[0]) if sources else read_yaml("", "command line", allow_empty=True),
            dialect=dialect,
            overrides=overrides,
            assignments=assignments,
            environment=environment,
            options=options,
        )
    parts: list[tuple[str, Loaded]] = []
    whole = Report()
    stems = _stems(sources)
    for index, (source, stem) in enumerate(zip(sources, stems, strict=True)):
        loaded, report = read(source, dialect=dialect, environment=environment, options=options)
        whole.merge(_staged(report, index))
        if loaded is not None:
            parts.append((stem, loaded))
    if len(parts) < len(sources):
        return None, whole
    result: Loaded | None = combined(parts)
    if result is not None and assignments:
        result = _assigned(result, assignments, whole)
    return result, whole


def _stems(sources: Sequence[str | Path]) -> list[str]:
    stems = [Path(source).stem if str(source) != "-" else "stdin" for source in sources]
    return [stem if stems.count(stem) == 1 else f"{stem}_{index + 1}" for index, stem in enumerate(stems)]


def _staged(report: Report, index: int) -> Report:
    """A report whose targets are those of a stage."""
    entries = [
        replace(entry, targets=tuple((f"stages[{index}].{key}", value) for key, value in entry.targets))
        for entry in report.accounting
    ]
    return replace(report, accounting=entries)


# Writing


def write(loaded: Loaded, target: str, *, options: Mapping[str, str] | None = None) -> tuple[str | None, Report]:
    """Write a config in a dialect, as ``trinity`` or ``verl@0.7``.

    The report accounts for what the config's sources say; ``translate`` accounts for every leaf of the source text.
    """
    try:
        outcome = _write(loaded, target, options or {})
    except (TranslationError, ConfigError) as error:
        report = Report(target=target)
        report.add("not-expressible", Level.ERROR, error.message, at=error.at, hint=error.hint)
        return None, report
    report = outcome.report
    for part, written in outcome.file.parts:
        prefix = f"stages[{part}]." if part is not None else ""
        for path, source in loaded.sources.items():
            if source.kind == "dialect_default" or (part is not None) is not (path[:2] == ("stages", part)):
                continue
            own = path[2:] if part is not None else path
            fate = written.fate_of(own)
            entry = Entry(source.key or f"{prefix}{dotted(own)}", Bucket.MAPPED, None, source.at)
            report.accounting.append(_judged(entry, [fate] if fate else []))
    return outcome.text, report


@dataclass
class _Outcome:
    text: str
    report: Report
    file: File
    sidecar: str | None = None
    kept: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def _write(loaded: Loaded, target: str, options: Mapping[str, str]) -> _Outcome:
    name, version = _asked(target)
    found = dialect_called(name)
    release = found.release(version)
    file = found.write(loaded, release, options)
    file.name = name
    report = Report(target=f"{name}@{release}")
    report.findings += file.findings
    for _, written in file.parts:
        report.findings += [item for item in written.findings if item not in report.findings]
    report.origins += _origins(file)
    kept = _kept(loaded, name)
    if unsaid := _unsaid(loaded, file, name):
        kept["rlctl"] = unsaid
    carry = options.get("carried", "comment")
    comments = dict(file.comments)
    head = loaded.comments.get(())
    tail = list(block(kept)) if carry == "comment" else []
    if head is not None and (head.above or head.below):
        comments[()] = Comment(head.above, "", ())
        tail = [*head.below, *tail]
    text = write_yaml(file.values, comments=comments, tail=tail)
    if kept and carry == "none":
        count = sum(len(keys) for keys in kept.values())
        report.add("not-carried", Level.NOTE, f"{count} keys for the way back were left out, as asked")
    sidecar = (
        write_yaml({"rlctl_carried": {k: dict(v) for k, v in kept.items()}}) if kept and carry == "sidecar" else None
    )
    return _Outcome(text, report, file, sidecar, kept)


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


def _kept(loaded: Loaded, target: str) -> dict[str, dict[str, Any]]:
    """The carried keys of every dialect but the target's."""
    if target == "rlctl":
        return {}
    extensions = loaded.config.extensions
    found = {name: dict(getattr(extensions, name)) for name in ("verl", "trinity", "roll") if name != target}
    return {name: keys for name, keys in found.items() if keys}


def _unsaid(loaded: Loaded, file: File, target: str) -> dict[str, Any]:
    """Canonical values that the source says and the target cannot, for the way back to rlctl."""
    if target == "rlctl":
        return {}
    found: dict[str, Any] = {}
    for index, written in file.parts:
        given = next(part for number, _, part in stage_parts(loaded) if number == index or len(file.parts) == 1)
        for path in written.lost_paths():
            if path and given.is_explicit(path) and not isinstance(value := find(given.plain, path), Absent):
                prefix = f"stages[{index}]." if index is not None and len(file.parts) > 1 else ""
                found[f"{prefix}{dotted(path)}"] = _symbolic(value, path, given.expressions)
    return found


def _symbolic(value: Any, path: KeyPath, expressions: Mapping[KeyPath, str]) -> Any:
    """A value with its expressions as they were written."""
    if path in expressions:
        return expressions[path]
    if isinstance(value, dict):
        return {key: _symbolic(item, (*path, key), expressions) for key, item in value.items()}
    if isinstance(value, list):
        return [_symbolic(item, (*path, index), expressions) for index, item in enumerate(value)]
    return value


# Both ways, with one ledger


def translate(
    sources: str | Path | Sequence[str | Path],
    target: str,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    assignments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> Translation:
    """Translate a file, or several as stages, to a dialect."""
    paths = [sources] if isinstance(sources, (str, Path)) else list(sources)
    loaded, report = read_many(
        paths, dialect=dialect, overrides=overrides, assignments=assignments, environment=environment, options=options
    )
    return translate_loaded(loaded, report, target, options=options)


def translate_loaded(
    loaded: Loaded | None, report: Report, target: str, *, options: Mapping[str, str] | None = None
) -> Translation:
    """Write what was read, and join the two ledgers."""
    if loaded is None:
        return Translation(None, replace(report, target=target))
    try:
        outcome = _write(loaded, target, options or {})
    except (TranslationError, ConfigError) as error:
        report.add("not-expressible", Level.ERROR, error.message, at=error.at, hint=error.hint)
        return Translation(None, replace(report, target=target))
    entries = [_joined(entry, outcome.file) for entry in report.accounting]
    findings = [*report.findings, *outcome.report.findings]
    whole = Report(report.dialect, outcome.report.target, findings, entries, outcome.report.origins)
    whole.findings += _unsupported(entries)
    return Translation(outcome.text, whole, outcome.sidecar)


def _unsupported(entries: Sequence[Entry]) -> list[Finding]:
    return [
        Finding(
            "unsupported",
            Level.WARNING,
            f"'{entry.key}' cannot be said in the target: {entry.note}",
            entry.key,
            entry.at,
        )
        for entry in entries
        if entry.bucket is Bucket.UNSUPPORTED
    ]


def _joined(entry: Entry, file: File) -> Entry:
    """What became of one source leaf in the target, through the canonical keys it went to."""
    if entry.bucket not in (Bucket.MAPPED, Bucket.DERIVED, Bucket.CARRIED) or not entry.targets:
        return entry
    fates = [fate for key, _ in entry.targets if (fate := _fate(key, file)) is not None]
    if not fates and entry.bucket is not Bucket.CARRIED:
        return replace(entry, bucket=Bucket.UNSUPPORTED, targets=(), note=f"{file.name} has nothing for it")
    return _judged(entry, fates)


def _fate(key: str, file: File) -> Fate | None:
    path = parse_dotted(key)
    stage = path[1] if path[:1] == ("stages",) and len(path) > 2 else None
    own = path[2:] if stage is not None else path
    for index, written in file.parts:
        if index == stage or len(file.parts) == 1:
            return written.fate_of(path) if index is None and stage is not None else written.fate_of(own)
    return None


def _judged(entry: Entry, fates: Sequence[Fate]) -> Entry:
    lost = "; ".join(dict.fromkeys(fate.lost for fate in fates if fate.lost))
    targets = tuple(dict.fromkeys((key, _frozen(value)) for fate in fates for key, value in fate.targets))
    shown = tuple((key, _thawed(fates, key, value)) for key, value in targets)
    notes = [entry.note, *(note for fate in fates for note in fate.notes)]
    note = "; ".join(dict.fromkeys(note for note in notes if note))
    if lost:
        return replace(entry, bucket=Bucket.UNSUPPORTED, targets=shown, note=lost)
    if entry.bucket is Bucket.CARRIED:
        return replace(entry, targets=shown)
    note = note or ("" if shown else "what the target does anyway")
    derived = entry.bucket is Bucket.DERIVED or any(fate.derived for fate in fates)
    return replace(entry, bucket=Bucket.DERIVED if derived else Bucket.MAPPED, targets=shown, note=note)


def _frozen(value: Any) -> str:
    return repr(value)


def _thawed(fates: Sequence[Fate], key: str, frozen: str) -> Any:
    return next(value for fate in fates for name, value in fate.targets if name == key and repr(value) == frozen)


__all__ = [
    "FACTS",
    "Known",
    "Read",
    "Translation",
    "Written",
    "check_facts",
    "detect",
    "dialects",
    "override_lines",
    "read",
    "read_document",
    "read_many",
    "translate",
    "translate_loaded",
    "write",
]
