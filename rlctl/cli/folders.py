"""``rlctl convert`` on folders: every config in them of any dialect, names and sub-folders kept, with one row a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlctl.cli import diagnostics, output
from rlctl.common.errors import DocumentError, ExitCode, RlctlError, TranslationError, UsageError
from rlctl.common.filenames import SCRIPT_ENDINGS, YAML_ENDINGS, is_folder
from rlctl.common.messages import text
from rlctl.common.messages.reasons import said, translated
from rlctl.common.records import record
from rlctl.common.report import Report

if TYPE_CHECKING:
    from rlctl.translation.translate import Translation

ENDINGS = (*YAML_ENDINGS, *SCRIPT_ENDINGS)


@record
class Job:
    """What is to be done with every file."""

    to: str
    out: Path
    options: Mapping[str, str]
    dialect: str | None = None
    assignments: Sequence[str] = ()
    force: bool = False
    strict: bool = False
    """Whether a file that loses keys is not written."""


@dataclass
class Done:
    """What came of one file."""

    source: Path
    code: ExitCode | None
    """None where it is no config."""
    why: str = ""
    target: Path | None = None
    report: Report = field(default_factory=Report)
    hint: str = ""
    """What to do about a failure."""

    @property
    def state(self) -> str:
        """The id of its status in the catalogue."""
        return {"written, with losses": "losses"}.get(self.status, self.status)

    @property
    def status(self) -> str:
        if self.code is None:
            return "skipped"
        return {ExitCode.OK: "written", ExitCode.FINDINGS: "written, with losses"}.get(self.code, "failed")

    def as_data(self) -> dict[str, Any]:
        target = str(self.target) if self.target and self.code in (ExitCode.OK, ExitCode.FINDINGS) else None
        return {
            "source": str(self.source), "target": target, "status": self.status, "why": self.why, "hint": self.hint,
            **self.report.as_data(),
        }  # fmt: skip


def are_folders(inputs: Sequence[str]) -> bool:
    """Whether folders are to be converted rather than files; ``.hydra`` is the config that Hydra left.

    Raises:
        UsageError: there are folders, and something else.
    """
    folders = [name for name in inputs if is_folder(name) and Path(name).name != ".hydra"]
    if folders and len(folders) < len(inputs):
        other = next(name for name in inputs if name not in folders)
        raise UsageError(
            said("{folder} is a folder, but {other} is not", folder=folders[0], other=other),
            hint="convert folders alone; --set changes every file",
        )
    return bool(folders)


def run(folders: Sequence[str], job: Job, *, verbose: bool, json: bool, ignore: bool) -> ExitCode:
    """Convert folders, show what came of every file, and return the exit code; losses are none if ``ignore``."""
    found = convert_folders(folders, job)
    if json:
        output.data({"files": [item.as_data() for item in found]})
    show(found, verbose=verbose)
    return worst(found, ignore=ignore)


def convert_folders(folders: Sequence[str], job: Job) -> list[Done]:
    """Convert every config in the folders, in the order of their names."""
    pairs = []
    for folder in map(Path, folders):
        root = job.out if len(folders) == 1 else job.out / folder.name
        pairs += [(path, root / path.relative_to(folder)) for path in _files(folder, job.out)]
    taken = {target for _, target in pairs if _keeps_its_ending(target, job)}
    return [_convert(path, target, job, taken) for path, target in pairs]


def _files(folder: Path, out: Path) -> Iterator[Path]:
    """The files below a folder, but hidden ones and what is written."""
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden and not path.resolve().is_relative_to(out.resolve()):
            yield path


def _convert(path: Path, target: Path, job: Job, taken: set[Path]) -> Done:
    if path.suffix not in ENDINGS:
        return Done(path, None, f"not a config by its name; expected {', '.join(ENDINGS)}")
    target = _free(target, job, taken)
    try:
        made = _translated(path, job)
        if made.text is None:
            [first, *_] = made.report.errors
            return Done(path, ExitCode.FAILED, first.message, target, made.report, hint=first.advice)
        if made.report.loses and job.strict:
            hint = "pass --on-loss warn to convert it all the same"
            return Done(path, ExitCode.FAILED, "keys would be lost (--on-loss error)", target, made.report, hint=hint)
        target.parent.mkdir(parents=True, exist_ok=True)
        output.file(target, made.text, force=job.force, executable=job.options.get("format") == "sh")
    except TranslationError as error:
        return Done(path, None, error.message, hint=error.hint)
    except RlctlError as error:
        skipped = isinstance(error, DocumentError) and is_another_script(path)
        why = str(error).partition("\n")[0].removeprefix(f"{path}:").lstrip()
        why = "starts no supported framework" if skipped else why
        return Done(path, None if skipped else ExitCode.FAILED, why, hint="" if skipped else error.hint)
    return Done(path, ExitCode.FINDINGS if made.report.loses else ExitCode.OK, "", target, made.report)


def _translated(path: Path, job: Job) -> Translation:
    from rlctl.translation.translate import read, translate_loaded

    loaded, report = read(path, dialect=job.dialect, assignments=job.assignments, options=job.options)
    return translate_loaded(loaded, report, job.to, options=job.options)


def is_another_script(path: Path) -> bool:
    """Whether a file is a script that names no program of any framework."""
    from rlctl.adapters import dialect, names

    if path.suffix not in SCRIPT_ENDINGS:
        return False
    content = path.read_text(encoding="utf-8", errors="replace")
    return not any(program.strip("*") in content for name in names() for program in dialect(name).programs)


def _ending(job: Job) -> str:
    return {"sh": ".sh", "overrides": ".txt"}.get(job.options.get("format", ""), ".yaml")


def _keeps_its_ending(target: Path, job: Job) -> bool:
    ending = _ending(job)
    return target.suffix in (YAML_ENDINGS if ending == ".yaml" else SCRIPT_ENDINGS if ending == ".sh" else ())


def _free(target: Path, job: Job, taken: set[Path]) -> Path:
    """The source's name with the ending of the format; with its own ending before that where another file has the name."""
    if _keeps_its_ending(target, job):
        return target
    named = target.with_suffix(_ending(job))
    named = target.with_name(target.name + _ending(job)) if named in taken else named
    taken.add(named)
    return named


def worst(found: Sequence[Done], *, ignore: bool = False) -> ExitCode:
    """The exit code of all: failed before losses before clean."""
    codes = {item.code for item in found}
    if ExitCode.FAILED in codes or not codes - {None}:
        return ExitCode.FAILED
    return ExitCode.FINDINGS if ExitCode.FINDINGS in codes and not ignore else ExitCode.OK


def show(found: Sequence[Done], *, verbose: bool) -> None:
    """One line a file, the report of each if asked for, and the counts."""
    for item in found:
        done = item.code in (ExitCode.OK, ExitCode.FINDINGS)
        what = f" -> {item.target} ({diagnostics.shares(item.report)})" if done else ""
        diagnostics.note(f"{text(f'folder-{item.state}')}: {item.source}{what}{': ' + item.why if item.why else ''}")
        if item.hint:
            diagnostics.note(f"  {translated(item.hint)}")
        if verbose and what:
            diagnostics.accounting(item.report)
    counts = Counter(item.state for item in found)
    told = text("separator").join(f"{count} {text(f'folder-{state}')}" for state, count in counts.items())
    diagnostics.note(text("folder-files", count=len(found), counts=told) if found else text("folder-none"))
