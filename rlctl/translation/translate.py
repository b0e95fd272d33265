"""Reading, writing and translating configs: the only way a front end touches a dialect.

``read`` takes a text in any dialect to a canonical config, ``write`` takes one to any dialect, ``translate`` does both and
makes one ledger of the two: what became of every leaf of the source, and where every leaf of the target came from.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from rlctl.adapters import SIGNS, names, signed
from rlctl.adapters import dialect as dialect_called
from rlctl.adapters.engine.carried import HEAD, kept_in, without_block
from rlctl.adapters.engine.dialect import Detection, Dialect
from rlctl.adapters.engine.reading import Read
from rlctl.adapters.engine.secrets import without_literals
from rlctl.adapters.engine.stages import combined
from rlctl.adapters.engine.tree import find
from rlctl.adapters.engine.writing import Written
from rlctl.common.errors import ConfigError, DocumentError, Location, RlctlError, TranslationError, UsageError, nearest
from rlctl.common.filenames import is_file
from rlctl.common.messages.reasons import said, together
from rlctl.common.notebook import InNotebook
from rlctl.common.numbers import natural
from rlctl.common.ranks import BY_CODE
from rlctl.common.records import record
from rlctl.common.report import Bucket, Entry, Finding, Level, Report, finding, option_for_fact, option_stating
from rlctl.common.report_lines import framework
from rlctl.common.secrets import WITHHELD
from rlctl.config import EDITED, Loaded, set_keys, to_plain
from rlctl.documents import (
    Comment,
    Document,
    Override,
    dotted,
    read_overrides,
)
from rlctl.planning.dataset_rows import count_rows
from rlctl.shell.override_lists import with_quoted_home
from rlctl.translation.annotation import annotated, missing
from rlctl.translation.guides import with_guide
from rlctl.translation.ledger import joined, resolve_bucket, unsupported
from rlctl.translation.read_back import accounted, ranked, read_back, refusals
from rlctl.translation.releases import assumed, fitting, spoken
from rlctl.translation.rendering import nearest_release, write_out
from rlctl.translation.scoring import other_rewards
from rlctl.translation.source_names import in_source_names
from rlctl.translation.sources import Input, Script, gather, gather_text, is_script_file
from rlctl.translation.sources.other_tools import refuse_keys, refuse_text

FACTS: Mapping[str, str] = {
    "dataset_rows": "number of training rows, to turn epochs into steps",
    "explorer_gpus": "devices for the explorer, because all roles share devices in the source",
    "stage": "the stage to write, because the target has no stages",
}
"""What ``--assume`` may state: facts that a source does not hold."""
_NUMBERS = ("dataset_rows", "explorer_gpus")
TEXT = "<text>"
"""What messages call a text that is no file."""
OF_ITS_FRAMEWORK = ("micro-batches-added", "other-observations")
"""Notes of a reader on what its framework computes otherwise than all others."""


def check_facts(facts: Mapping[str, str]) -> None:
    """Refuse a fact that nothing asks for, or a number that is none.

    Raises:
        UsageError: it would be ignored.
    """
    for name, value in facts.items():
        if name not in FACTS:
            known = together(said("{fact}: {meaning}", fact=fact, meaning=meaning) for fact, meaning in FACTS.items())
            near = nearest(name, FACTS)
            raise UsageError(
                said("--assume {name}: this conversion does not need it", name=name),
                hint=said("{nearest}expected one of {known}", nearest=f"{near} " if near else "", known=known),
            )
        if name in _NUMBERS and not natural(value):
            raise UsageError(said("--assume {name}={value}: it must be a number of at least 1", name=name, value=value))


class ReadOptions(TypedDict, total=False):
    """How a text is read, as keyword arguments."""

    dialect: str | None
    """What it is written in, as ``verl`` or ``verl@0.6``; found out where it is not said."""
    overrides: Sequence[str]
    """Changes in the text's own dialect, as its users write them; a launch script is given them as its arguments."""
    assignments: Sequence[str]
    """Changes of canonical keys, as ``key=value``."""
    environment: Mapping[str, str] | None
    """What ``${oc.env:...}`` reads; the process's own environment if None."""
    options: Mapping[str, str] | None
    """Facts that the text does not hold, such as ``dataset_rows``, and wishes of the writer's."""
    without_kept: bool
    """Read the text as its own framework does, which knows nothing of the values that rlctl keeps in comments."""


@record
class Translation(InNotebook):
    """A text in the target's language, with both ledgers. ``text`` is None where a finding is an error."""

    text: str | None
    report: Report
    sidecar: str | None = None
    """Carried keys as a file of their own, where they were asked for beside the text."""

    def as_data(self) -> dict[str, Any]:
        """Both ledgers, the findings and the text as plain data: what ``rlctl convert --json`` prints."""
        return {**self.report.as_data(), "text": self.text}


@record
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
    return f"{found.name}@{taken.version}", _known_keys(found, taken)


def is_unlike_all(sections: Iterable[str]) -> bool:
    """Whether no dialect has half of these top-level keys: for a text that cannot be read, so that ``detect`` has no leaves."""
    wanted = set(sections)
    most = max(sum(map(dialect_called(name).has_section, wanted)) for name in names())
    return most < len(wanted) / 2 or not most


def _known_keys(found: Dialect, taken: Detection) -> str:
    return said(
        "{value} of {leaves} keys are {name}'s, release {version}",
        value=taken.leaves - taken.unknown,
        leaves=taken.leaves,
        name=found.name,
        version=taken.version,
    )


def _alone(name: str, document: Document) -> Detection | None:
    """What a dialect takes a text for, where no other can know as many leaves: more stand under its signs than it lacks."""
    taken = dialect_called(name).detect(document)
    own = sum(1 for path, _ in document.leaves() if path[0] in SIGNS[name])
    return taken if taken.unknown < own and taken.unknown <= taken.leaves / 2 else None


def _detected(document: Document) -> tuple[Dialect, Detection]:
    if (name := signed(document.values)) and (taken := _alone(name, document)):
        return dialect_called(name), taken
    ranked = sorted(
        ((dialect_called(name), dialect_called(name).detect(document)) for name in names()),
        key=lambda pair: pair[1].unknown,
    )
    best = ranked[0]
    if best[1].leaves == 0:
        raise TranslationError("the file contains no keys", at=Location(document.name))
    if best[1].unknown > best[1].leaves / 2:
        frameworks = ", ".join(map(framework, names()))
        raise TranslationError(
            said(
                "this is not a config of {names}: {name} is the nearest, but lacks {unknown} of its {leaves} keys",
                names=frameworks,
                name=framework(best[0].name),
                unknown=best[1].unknown,
                leaves=best[1].leaves,
            )
            if best[1].unknown < best[1].leaves
            else said("this is not a config of {names}: none of them has any of its keys", names=frameworks),
            at=Location(document.name),
            hint="if it is a config, name its framework with --from",
        )
    if len(ranked) > 1 and ranked[1][1].unknown == best[1].unknown:
        tied = [pair[0].name for pair in ranked if pair[1].unknown == best[1].unknown]
        raise TranslationError(
            said("this could be {tied}: both have equally many of its keys", tied=" or ".join(tied)),
            at=Location(document.name),
            hint="name its framework with --from",
        )
    return best


def read(
    source: str | Path, *, trace: bool = False, variables: Mapping[str, str] | None = None, **how: Unpack[ReadOptions]
) -> tuple[Loaded | None, Report]:
    """Read a file (``-`` is standard input) in any dialect: YAML, a launch script, a list of overrides.

    Args:
        source: path of the file.
        trace: run a launch script in isolation to see what it starts, instead of reading it.
        variables: variables that are set for a launch script.
        how: see ``ReadOptions``; a launch script may have arguments that are no overrides too.

    Raises:
        RlctlError: the text cannot be read at all, or its dialect cannot be told.
    """
    return _read_gathered(gather(source, _script(how, trace, variables)), how)


def _script(how: ReadOptions, trace: bool = False, variables: Mapping[str, str] | None = None) -> Script:
    """What a launch script is given, should the source be one."""
    around = how.get("environment")
    return Script(tuple(how.get("overrides", ())), variables or {}, os.environ if around is None else around, trace)


def _read_gathered(given: Input, how: ReadOptions) -> tuple[Loaded | None, Report]:
    """Read what was gathered, with the overrides that no script took as its arguments."""
    left: ReadOptions = {**how, "overrides": [line for line in how.get("overrides", ()) if line not in given.taken]}
    return read_input(given, **left)


def read_document(document: Document, **how: Unpack[ReadOptions]) -> tuple[Loaded | None, Report]:
    """As ``read``, for a document. An empty one with overrides is a list of overrides alone.

    Raises:
        UsageError: an override and an assignment meet at one canonical key.
    """
    return read_input(Input(document), **how)


def read_input(
    given: Input,
    *,
    dialect: str | None = None,
    overrides: Sequence[str | tuple[str, Location]] = (),
    assignments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    without_kept: bool = False,
) -> tuple[Loaded | None, Report]:
    """As ``read``, for what was gathered from a source.

    Raises:
        UsageError: an override and an assignment meet at one canonical key.
    """
    kept = {} if without_kept else kept_in(given.document.text)
    changes = [*given.overrides, *override_lines(overrides)]
    environment = {**(os.environ if environment is None else environment), **given.environment}
    try:
        document, secrets = without_literals(_prepared(given.document, changes, dialect or given.dialect))
        refuse_keys(document)
        kind = given.kind if _asked(dialect)[0] in ("", given.dialect) else ""
        found, taken = _taken(document, dialect or given.dialect, kind)
    except (DocumentError, TranslationError) as error:
        refuse_text(given.document.text, given.document.name, error)
        raise
    names = (each.params.get("variable") for each in (*secrets, *given.findings) if each.code == "secret")
    environment |= {str(name): WITHHELD for name in names if name}
    plain = _without_kept(document)

    def read_as(taken: Detection) -> Read:
        facts = {**(options or {}), "program": given.program}
        return found.read(plain, taken, environment=environment, options=facts, restored=kept)

    outcome = read_as(taken)
    report = outcome.report
    older = [] if _asked(dialect)[1] or outcome.loaded is None else fitting(found, document, taken, given.since)
    report.reason = _reason(dialect, given, found, taken, older)
    near = nearest_release(found, _asked(dialect)[1], taken.version)
    report.findings[:0] = [*given.findings, *secrets, *near, *_other_release(found, taken, report)]
    if outcome.loaded is not None:
        report.findings += (
            assumed(found, document, taken, outcome.loaded, older, read_as) if not _asked(dialect)[1] else []
        )
    loaded = outcome.loaded
    if not _asked(dialect)[1] and any(map(_shows_older, report.findings)):
        report.findings = [replace(item, level=Level.ERROR) if _shows_older(item) else item for item in report.findings]
        loaded = None
    if loaded is not None:
        report.findings = loaded.as_written(report.findings)
    if loaded is not None and assignments:
        _refuse_meeting(loaded, assignments)
        loaded = _assigned(loaded, assignments, environment, report)
    return loaded, report


def _shows_older(item: Finding) -> bool:
    """Whether a finding shows that a file is for an older release, whose defaults are others."""
    return item.code == "added-key" and item.params.get("without") != "none"


def _refuse_meeting(loaded: Loaded, assignments: Sequence[str]) -> None:
    """Refuse an assignment to a key that an override in the file's dialect already sets: which one wins would be a guess."""
    overridden = {path: source for path, source in loaded.sources.items() if source.kind == "override"}
    for text in assignments:
        key = text.partition("=")[0].strip().lstrip("+~")
        for path, source in overridden.items():
            if dotted(path) == key or dotted(path).startswith(f"{key}."):
                raise UsageError(
                    said("--set {key} and the override of {key2} set the same thing", key=key, key2=source.key),
                    hint="keep one of them",
                )


def _assigned(
    loaded: Loaded, assignments: Sequence[str], environment: Mapping[str, str], report: Report
) -> Loaded | None:
    try:
        changed = set_keys(loaded, assignments, environment=environment)
        _tell_of_options_left(loaded, changed, report)
        return changed
    except (ConfigError, DocumentError) as error:
        advice = error.hint or next(filter(None, map(_own_key, assignments)), "")
        report.findings.append(finding("set", Level.ERROR, at=error.at, reason=error.message, advice=advice))
        return None


def _own_key(assignment: str) -> str:
    """What to write for a key of a framework that was given to ``--set``; empty for any other."""
    from rlctl.adapters.engine.meanings import meanings  # only a mistake needs it

    key = assignment.partition("=")[0].strip()
    known = next((each for each in meanings(key) if each.canonical), None)
    if known is None:
        return ""
    return said(
        "{key} is a key of {name}: write --set {own}=VALUE, or {assignment} after the file, without --set",
        key=key,
        name=framework(known.dialect),
        own=known.canonical[0],
        assignment=assignment,
    )


def _tell_of_options_left(before: Loaded, after: Loaded, report: Report) -> None:
    """What the source wrote of an option and is gone, as ``--set`` chose another one."""
    for path, source in before.sources.items():
        if path in after.sources or source.kind == "dialect_default":
            continue
        chosen = next((at for at in after.sources if at[-1] == "type" and at[:-1] == path[: len(at) - 1]), None)
        if chosen is None or (before.sources.get(chosen) or source).key == source.key != "":
            continue  # the key that named the option says more than its name
        report.findings.append(
            finding(
                "option-left", Level.NOTE, source.key, source.at, canonical=dotted(path), choice=dotted(chosen[:-1])
            )
        )


def _prepared(document: Document, changes: list[Override], dialect: str | None) -> Document:
    if not changes:
        return document
    name = _asked(dialect)[0]
    if not name and document.values:
        name = _detected(document)[0].name
    if name:
        return dialect_called(name).prepare(document, changes)
    known = [dialect_called(name) for name in names() if name != "rlctl"]
    candidates = [(found, found.prepare(document, changes)) for found in known]
    return min(candidates, key=lambda pair: pair[0].detect(pair[1]).unknown)[1]


def _reason(asked: str | None, given: Input, found: Dialect, taken: Detection, older: Sequence[str]) -> str:
    """Why a text was taken for a dialect and release, and which older releases its keys also fit."""
    keys = _known_keys(found, taken) + (
        said("; {spoken} also fit", spoken=spoken(older, found.versions)) if older else ""
    )
    if asked:
        return said("as requested by --from {asked}; {keys}", asked=asked, keys=keys)
    return said("{reason}; {keys}", reason=given.reason, keys=keys) if given.dialect else keys


def _taken(document: Document, dialect: str | None, kind: str) -> tuple[Dialect, Detection]:
    name, version = _asked(dialect)
    if not name:
        return _detected(document)
    found = dialect_called(name)
    return found, found.detect(document, version=found.release(version) if version else "", kind=kind)


def _without_kept(document: Document) -> Document:
    """The document without the block of carried keys among its comments."""
    if HEAD not in document.text:
        return document
    comments = {
        path: Comment(without_block(note.above), note.beside, without_block(note.below))
        for path, note in document.comments.items()
    }
    return replace(document, comments=comments)


def _other_release(found: Dialect, taken: Detection, report: Report) -> list[Finding]:
    """One note on keys that the release taken does not have, although another one does."""
    unknown = sum(1 for entry in report.accounting if entry.bucket is Bucket.UNKNOWN)
    others = taken.unknown - unknown
    if others <= 0 or found.name == "rlctl":
        return []
    release = f"{found.name}@{taken.version}"
    return [finding("other-release", Level.NOTE, count=others, release=release)]


def override_lines(lines: Iterable[str | tuple[str, Location]], name: str = "command line") -> list[Override]:
    """Overrides as their users write them; a path that starts with ``~/``, which a shell would expand, needs no quotes."""
    placed = [(line, Location(name, number)) if isinstance(line, str) else line for number, line in enumerate(lines, 1)]
    return read_overrides([(with_quoted_home(text), at) for text, at in placed], name)


def read_many(
    sources: Sequence[str | Path],
    *,
    trace: bool = False,
    variables: Mapping[str, str] | None = None,
    **how: Unpack[ReadOptions],
) -> tuple[Loaded | None, Report]:
    """Read several files, of any dialects, as the stages of one config, each named after its file.

    Overrides change one file; without a file they are read alone.

    Raises:
        UsageError: there are overrides, and several files that they could change.
    """
    if len(sources) > 1 and how.get("overrides"):
        raise UsageError(
            "overrides apply to one file, but several are given", hint="use --set, which takes canonical keys"
        )
    if len(sources) == 1:
        return read(sources[0], trace=trace, variables=variables, **how)
    if not sources:
        return read_document(Document("command line", {}), **how)
    assignments = how.pop("assignments", ())
    parts: list[tuple[str, Loaded]] = []
    whole = Report()
    stems = _stems(sources)
    for index, (source, stem) in enumerate(zip(sources, stems, strict=True)):
        script = is_script_file(source)
        loaded, report = read(source, trace=trace and script, variables=variables if script else None, **how)
        whole.merge(_staged(report, index))
        if loaded is not None:
            parts.append((stem, loaded))
    if len(parts) < len(sources):
        return None, whole
    result: Loaded | None = combined(parts)
    if result is not None and assignments:
        around = how.get("environment")
        result = _assigned(result, assignments, os.environ if around is None else around, whole)
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
        outcome = write_out(loaded, target, options or {})
        text = outcome.text()
    except (TranslationError, ConfigError, DocumentError) as error:
        report = Report(target=target)
        report.findings.append(_not_expressible(error))
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
            report.accounting.append(resolve_bucket(entry, [fate] if fate else []))
    return text, report


# Both ways, with one ledger


def translate(sources: str | Path | Sequence[str | Path], target: str, **how: Unpack[ReadOptions]) -> Translation:
    """Translate a file, or several as stages, to a dialect."""
    paths = [sources] if isinstance(sources, (str, Path)) else list(sources)
    loaded, report = read_many(paths, **how)
    return translate_loaded(loaded, report, target, options=how.get("options"))


def convert(source: str | Path, to: str, **how: Unpack[ReadOptions]) -> Translation:
    """Translate a text or a file, as ``rlctl.convert`` says.

    Raises:
        RlctlError: it cannot be read at all, or its dialect cannot be told.
    """
    loaded, report = read_source(source, **how)
    return translate_loaded(loaded, report, to, options=how.get("options"))


def read_source(source: str | Path, **how: Unpack[ReadOptions]) -> tuple[Loaded | None, Report]:
    """As ``read``, for a path or a text, as ``rlctl.convert`` takes them."""
    script = _script(how)
    given = gather_text(str(source), TEXT, script) if _is_text(source) else gather(source, script)
    return _read_gathered(given, how)


def must_read(source: str | Path, **how: Unpack[ReadOptions]) -> tuple[Loaded, Report]:
    """As ``read_source``, for who needs the config.

    Raises:
        RlctlError: the source holds none; the first error of its report says why.
    """
    return with_config(*read_source(source, **how), TEXT if _is_text(source) else str(source))


def with_config(loaded: Loaded | None, report: Report, file: str) -> tuple[Loaded, Report]:
    """What was read of a file, for who needs the config.

    Raises:
        TranslationError: it holds none; the first error of the report says why.
    """
    if loaded is not None:
        return loaded, report
    first = next(iter(report.errors), None)
    if first is None:
        raise TranslationError("the file contains no keys", at=Location(file))
    raise TranslationError(first.message, at=first.at, hint=first.advice)


def _is_text(source: str | Path) -> bool:
    """Whether a source is a text: several lines, or one with a key in it that names no file."""
    if not isinstance(source, str) or "\n" in source:
        return isinstance(source, str)
    return (":" in source or "=" in source) and not is_file(source)


def _set(loaded: Loaded) -> Iterator[Entry]:
    """The values of ``--set`` and of an editor, as leaves of a source that says them in canonical words."""
    values = to_plain(loaded.config)
    for path, source in loaded.sources.items():
        if source.at in (Location("--set"), Location(EDITED)):
            key, value = dotted(path), find(values, path)
            yield Entry(key, Bucket.MAPPED, value, source.at, ((key, value),))


def translate_loaded(
    loaded: Loaded | None, report: Report, target: str, *, options: Mapping[str, str] | None = None
) -> Translation:
    """Write what was read, and join the two ledgers."""
    if loaded is None:
        return Translation(None, replace(report, target=target))
    options, counted = _with_rows(loaded, options or {})
    try:
        outcome = write_out(loaded, target, options or {})
        source = _asked(report.dialect)[0]
        before = [*report.accounting, *_set(loaded)]
        meant = {item.key: item.meant for item in report.findings if item.meant}
        entries = [joined(entry, outcome.file, source, meant.get(entry.key, "")) for entry in before]
        told = ranked(outcome.report.findings, outcome.file)
        back = read_back(loaded, outcome.file, options or {})
        entries, own = accounted(entries, before, back, told, (source, outcome.file.name))
        entries = [replace(entry, note=loaded.reason_as_written(entry.note)) for entry in entries]
        own += other_rewards(loaded, outcome.file, source)
        own = in_source_names(own, report.dialect, loaded)
        own = with_guide(own, source, outcome.file.name, loaded.config)
        written = loaded.as_written([*own, *unsupported(entries)])
        findings = [*_ranked(report.findings, entries, moves=source != outcome.file.name), *written]
        findings += [*_upgraded(report, outcome.report.target), *counted]
        findings += refusals(report, outcome.file, script=(options or {}).get("format") == "sh")
        findings.sort(key=lambda finding: finding.rank.place)
        whole = Report(report.dialect, outcome.report.target, findings, entries, outcome.report.origins, report.reason)
        if (options or {}).get("annotate"):
            text = outcome.text(annotated(outcome.comments, whole), missing(whole))
        else:
            text = outcome.text()
    except (TranslationError, ConfigError, DocumentError) as error:
        return Translation(None, replace(report, target=target, findings=[*report.findings, _not_expressible(error)]))
    return Translation(text, whole, outcome.sidecar)


def _with_rows(loaded: Loaded, options: Mapping[str, str]) -> tuple[Mapping[str, str], list[Finding]]:
    """The facts with the rows of the training data, if the schedule counts epochs and local files tell how many there are."""
    schedule = loaded.config.schedule
    in_epochs = [each.epochs for each in (schedule.evaluate_every, loaded.config.checkpoint.every) if each is not None]
    if "dataset_rows" in options or not any((schedule.total_epochs, *in_epochs)):
        return options, []
    count = count_rows(loaded.config)
    if count is None:
        return options, []
    told = finding("rows-counted", Level.NOTE, option=option_stating("dataset_rows"), count=count)
    return {**options, "dataset_rows": str(count)}, [told]


def _not_expressible(error: RlctlError) -> Finding:
    return finding(
        "not-expressible",
        Level.ERROR,
        at=error.at,
        option=option_for_fact(error.hint),
        reason=error.message,
        advice=error.hint,
    )


def _ranked(findings: Sequence[Finding], entries: Sequence[Entry], *, moves: bool) -> list[Finding]:
    """Findings of a reader with the rank of the leaf that they are about.

    What its framework computes otherwise than all others is a warning if the config moves to another one.
    """
    ranks = {entry.key: entry.rank for entry in entries}
    found = [item if item.code in BY_CODE else replace(item, ranked=ranks.get(item.key)) for item in findings]
    return [replace(item, level=Level.WARNING) if moves and item.code in OF_ITS_FRAMEWORK else item for item in found]


def _upgraded(report: Report, target: str) -> list[Finding]:
    """What another release of the source's own dialect would have made of the source as it is."""
    (name, source), (wanted, release) = _asked(report.dialect), _asked(target)
    return dialect_called(name).upgraded(report.accounting, source, release) if name == wanted else []


__all__ = [
    "FACTS",
    "Known",
    "Read",
    "Translation",
    "Written",
    "check_facts",
    "convert",
    "detect",
    "dialects",
    "is_script_file",
    "override_lines",
    "read",
    "read_document",
    "read_many",
    "translate",
    "translate_loaded",
    "write",
]
