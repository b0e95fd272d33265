"""A launch script as an input: the one command of it that starts a trainer, with the file and line each override was written on.

A program that a dialect names decides the kind of file; another one that takes overrides is left to its keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from pathlib import Path

from rlctl.adapters import dialect as dialect_called
from rlctl.adapters import names as dialect_names
from rlctl.adapters.engine.dialect import TrainerProgram
from rlctl.common.errors import DocumentError, Location, RlctlError, UsageError
from rlctl.common.filenames import SCRIPT_ENDINGS, YAML_ENDINGS, is_file
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import natural
from rlctl.common.records import record
from rlctl.common.report import Finding, Level, finding
from rlctl.common.secrets import concealed, expression, redacted
from rlctl.documents import Document, read_overrides, read_text, read_yaml, resolve
from rlctl.documents.scalars import plain_value
from rlctl.shell.launch import (
    SWEEPS,
    LaunchProgram,
    ParsedCommand,
    is_override,
    key_place,
    place_of,
    program_of,
    refuse_unknown,
    symbolic_override,
    told,
)
from rlctl.shell.run import ScriptReading, listed, read_script, survey
from rlctl.shell.state import MissingError
from rlctl.shell.statements import Command
from rlctl.shell.text import Piece, Text, literal, plain, problem, unknown, unset
from rlctl.translation.sources.files import composed
from rlctl.translation.sources.inputs import Input, Script

COMMAND_LINE = "command line"
_NAME_OPTIONS = ("config-name", "cn", "config_name")
_PATH_OPTIONS = ("config-path", "cp", "config-dir", "cd", "config_path")
_FILE_OPTIONS = ("config", "c", "config_file", "config-file")
_ENDINGS = ("", *YAML_ENDINGS)
_PARENTS = 4
"""How far above the script a config is looked for that its command names by a relative path."""
_MIN_SECRET = 6
_CUT = re.compile(r"\$\{oc\.env:(\w+)(?!\w*[},])", re.ASCII)
"""An expression of which the script made something else."""
_DEFAULTED = re.compile(r"\$\{([A-Za-z_]\w*):?[-=?]")
_NAMING = frozenset(
    {
        *("run.name", "run.project", "checkpoint.folder", "checkpoint.remote", "profiling.folder"),
        *("rollout.responses_folder", "rollout.evaluation_folder"),
    }
)
"""Canonical keys that only name a run and what it writes: no result depends on them."""
_LISTED = 8
_COMMENTED = re.compile(r"(^|\s)#")
_SAID, _SAID_LENGTH = 3, 300
"""Lines, and characters, of what a script says last that are shown."""


@record
class ScriptLaunch:
    """The command that starts a trainer, and what is known of its program."""

    program: LaunchProgram
    dialect: str
    known: TrainerProgram
    vanished: Mapping[str, Location] = field(default_factory=dict)
    """Unset variables that are words of the command, so that these are none."""


def read_launch(text: str, name: str, how: Script) -> Input:
    """The trainer's command line in a launch script.

    Raises:
        DocumentError: the script starts no trainer, or several, or what it starts depends on what only running it could tell.
    """
    how = _with_arguments(how)
    arguments = [literal(word, Location(COMMAND_LINE, place)) for place, word in enumerate(how.arguments, 1)]
    reading = _traced(text, name, how, arguments) if how.traced else _read(text, name, how, arguments)
    started = [found for command in reading.commands if (found := _launch(command))]
    if not started and reading.ended is not None:
        raise _ended(text, name, how, arguments, reading)
    launch = _the_one(started, name, reading)
    words = told(launch.program)
    _refuse_sweeps(words, launch.program)
    words.overrides, names = _known(words.overrides, launch, how)
    given = _base(launch, words, reading, name)
    keeps = _Keeps({**how.environment, **how.variables})
    lines = [
        (keeps.text(word), place_of(word, at := launch.program.at), key_place(word, at)) for word in words.overrides
    ]
    overrides = read_overrides([*_of_launcher(launch, words), *lines], name)
    taken = frozenset(plain(word) for word in words.overrides if any(_is_given(piece) for piece in word))
    _refuse_unused(how.arguments, taken, reading, name)
    notes = [*given.findings, *_notes(reading, launch, words, keeps, how), *_notes_of_running(text, how)]
    notes += [*names, *_lost(reading, launch, text, name)]
    reason = said("line {line} starts {name}", line=launch.program.at.line, name=launch.program.name)
    document = replace(given.document, text=given.document.text or text)  # its comments keep values
    return replace(
        given,
        document=document,
        overrides=[*given.overrides, *overrides],
        dialect=launch.dialect or given.dialect,
        kind=given.kind or launch.known.kind,
        reason=reason,
        program=launch.program.name,
        since=launch.known.since,
        findings=[_started(launch, how), *notes],
        environment=how.variables,
        taken=taken | {word for word in how.arguments if not is_override(word)},
    )


def _with_arguments(how: Script) -> Script:
    """``--env 1=VALUE`` and so on are the first arguments; overrides that follow the script come after them.

    Raises:
        UsageError: one is left out, or stands after the script as well.
    """
    given = {natural(name) or 0: value for name, value in how.variables.items() if name.isdecimal()}
    if not given:
        return how
    if sorted(given) != list(range(1, len(given) + 1)):
        told = ", ".join(name for name in how.variables if name.isdecimal())
        raise UsageError(
            said("--env gives the arguments {told} of the script; expected 1, 2, ... without gaps", told=told)
        )
    after = next((word for word in how.arguments if not is_override(word)), None)
    if after is not None:
        raise UsageError(
            said(
                "both --env and {redacted!r} after the script give it arguments; use one of the two",
                redacted=redacted(after),
            )
        )
    others = {name: value for name, value in how.variables.items() if not name.isdecimal()}
    return replace(how, arguments=[*(given[place] for place in sorted(given)), *how.arguments], variables=others)


def _started(launch: ScriptLaunch, how: Script) -> Finding:
    return finding(
        "launch",
        Level.NOTE,
        at=launch.program.at,
        traced="yes" if how.traced else "no",
        program=launch.program.name,
        framework=launch.dialect or "not a framework that rlctl knows",
    )


def _read(text: str, name: str, how: Script, arguments: Sequence[Text]) -> ScriptReading:
    return read_script(
        text,
        name,
        arguments=arguments,
        environment=how.environment,
        given=how.variables,
        is_trainer=lambda command: _launch(command) is not None,
    )


def _is_given(piece: Piece) -> bool:
    return piece.at.file == COMMAND_LINE


# Running the script in the sandbox


def _traced(text: str, name: str, how: Script, arguments: Sequence[Text]) -> ScriptReading:
    """What the script started when it ran; what reading it tells of the places is added."""
    from rlctl.shell.tracing import trace

    if name.startswith("<"):
        raise UsageError(
            "--trace needs a file, but the script comes from standard input", hint="save it to a file and pass that"
        )
    seen = _seen_when_run(how)
    fixed = {variable: value for variable, value in seen.items() if variable in how.variables}
    ran = trace(name, [plain(word) for word in arguments], seen, fixed=fixed)
    try:
        reading = _read(text, name, how, arguments)
    except RlctlError:
        reading = read_script("", name, environment=how.environment, given=how.variables)
    known = {plain(word): word for command in reading.commands for word in command.words if word and not problem(word)}
    known |= {plain(word): word for word in arguments if word}
    reading.commands = [
        Command(
            tuple(_as_written(word, known, reading.state.secrets, name) for word in call),
            _place(call, reading, name),
            ".",
        )
        for call in ran.calls
    ]
    if not any(_launch(command) for command in reading.commands):
        printed = (ran.stderr.strip().splitlines() or ["it printed no error"])[-1]
        how_it_ended = (
            "it exceeded the time limit"
            if ran.status is None
            else said("it ended with status {status}", status=ran.status)
        )
        unseen = _unseen_when_run(text, how)
        wanted = f" {' '.join(f'--env {variable}=...' for variable in unseen)}," if unseen else ""
        raise DocumentError(
            said(
                "started no trainer when it was run in the sandbox: {how_it_ended}: {printed}",
                how_it_ended=how_it_ended,
                printed=printed[:200],
            ),
            at=Location(name),
            hint=said(
                "set the variables that it needs:{wanted} and its arguments, --env 1=VALUE; the sandbox shows "
                "only the folder of the script",
                wanted=wanted or " --env NAME=VALUE,",
            ),
        )
    return reading


def _seen_when_run(how: Script) -> dict[str, str]:
    """The variables of a script that is run: those it is given, who and where the user is, and secrets as their expressions."""
    around = {name: concealed(name, value) for name, value in how.environment.items()}
    seen = {name: value for name, value in around.items() if name in ("HOME", "USER") or value != how.environment[name]}
    return seen | {name: concealed(name, value) for name, value in how.variables.items()}


def _unseen_when_run(text: str, how: Script) -> list[str]:
    """Variables of the environment that the script has a default for, or requires, and doesn't see when it is run."""
    named = dict.fromkeys(_DEFAULTED.findall(text))
    return [name for name in named if name in how.environment and name not in _seen_when_run(how)]


def _as_written(word: str, known: dict[str, Text], written: dict[str, str], name: str) -> Text:
    """A word of a command line that was seen, at the place where it was written as far as reading the script tells.

    Secrets of the environment are their expressions, as the script was given them; those written in the script become theirs.
    """
    if word in known:
        return known[word]
    for variable, value in written.items():
        if len(value) >= _MIN_SECRET:
            word = word.replace(value, expression(variable))
    if (named := _CUT.search(word)) is not None:
        return unknown(said("it is computed from ${named}, which holds a secret", named=named[1]), Location(name))
    return (Piece(word, Location(name)),)


def _place(call: Sequence[str], reading: ScriptReading, name: str) -> Location:
    """Where a command line that was seen stands in the script."""
    wanted = set(call)
    best = max(
        reading.commands, key=lambda command: len(wanted & {plain(word) for word in command.words}), default=None
    )
    return best.at if best is not None else Location(name)


# Which command it is


def _launch(command: Command) -> ScriptLaunch | None:
    """The trainer that a command starts."""
    program = program_of(command.words, command.at, command.folder)
    if program is None or is_override(program.name):
        return None
    inner = (
        replace(program, name=plain(program.arguments[0]), arguments=program.arguments[1:])
        if program.arguments
        else program
    )
    for each in (program, inner):  # a launcher's own module may start the trainer that it names first
        if (found := _trainer(each.name)) is not None:
            return ScriptLaunch(each, *found, command.vanished)
    is_python = "." in program.name and not program.name.endswith(SCRIPT_ENDINGS)
    if is_python and any(is_override(plain(word)) and not plain(word).startswith("-") for word in program.arguments):
        return ScriptLaunch(program, "", TrainerProgram("hydra"))
    return None


def _trainer(name: str) -> tuple[str, TrainerProgram] | None:
    """The framework that has a program of this name, and the program."""
    for dialect in sorted(dialect_names(), key=lambda known: known not in name):  # loading another one takes a while
        if (known := dialect_called(dialect).program(name)) is not None:
            return dialect, known
    return None


def _ended(text: str, name: str, how: Script, arguments: Sequence[Text], reading: ScriptReading) -> DocumentError:
    """Why a script that ends itself starts no trainer: what it says, and all that it wants."""
    wanted = survey(text, name, arguments=arguments, environment=how.environment, given=how.variables)
    wanted = wanted or {variable: (at, "") for variable, at in reading.state.unset.items()}
    printed = " / ".join(plain(line) for line in reading.said[-_SAID:])
    message = "starts no trainer that rlctl knows: it exits on its own"
    message += said(" because '{failed}' fails (set -e)", failed=reading.failed) if reading.failed else ""
    message += said(", and says: {printed}", printed=printed[:_SAID_LENGTH]) if printed else ""
    message += said("; it needs {listed}", listed=listed(wanted, name)) if wanted else ""
    hint = "" if wanted else "set what it needs with --env NAME=VALUE, an argument with --env 1=VALUE"
    return MissingError(message, at=reading.ended, hint=hint, wanted=wanted)


def _the_one(found: Sequence[ScriptLaunch], name: str, reading: ScriptReading) -> ScriptLaunch:
    known = [launch for launch in found if launch.dialect] or list(found)
    if len(known) > 1 and not known[0].dialect:  # the settings of another program have no dots
        known = [launch for launch in known if any(map(_is_dotted, launch.program.arguments))] or known
    if not known and (missing := next(_scripts_not_found(reading), None)):
        raise DocumentError(
            said("starts no trainer that rlctl knows; it runs {script}, which is not found here", script=missing[0]),
            at=missing[1],
            hint="run rlctl where that script is, or give it that script",
        )
    if not known and reading.state.unset:
        wanted = {variable: (at, "") for variable, at in reading.state.unset.items()}
        raise MissingError(
            said("starts no trainer that rlctl knows; not set: {listed}", listed=listed(wanted, name)),
            at=next(iter(reading.state.unset.values())),
            wanted=wanted,
        )
    if not known:
        raise DocumentError(
            "starts no trainer that rlctl knows",
            at=Location(name),
            hint="it needs a line such as: python3 -m verl.trainer.main_ppo key=value ...",
        )
    if len(known) > 1:
        lines = ", ".join(
            said("line {line} ({name})", line=launch.program.at.line, name=launch.program.name) for launch in known[:5]
        )
        raise DocumentError(
            said("starts {count} trainers: {lines}", count=len(known), lines=lines),
            at=known[1].program.at,
            hint="a config is one run; put each command into a separate script",
        )
    return known[0]


def _scripts_not_found(reading: ScriptReading) -> Iterator[tuple[str, Location]]:
    """Other scripts that a script runs and that are not there; one that is there was read."""
    for command in reading.commands:
        program = program_of(command.words, command.at)
        if program is not None and program.name.rpartition("/")[2] in ("bash", "sh") and program.arguments:
            program = replace(program, name=plain(program.arguments[0]))
        if program is not None and program.name.endswith(SCRIPT_ENDINGS):
            yield program.name, command.at


def _refuse_sweeps(words: ParsedCommand, program: LaunchProgram) -> None:
    for sweep in SWEEPS:
        if sweep.lstrip("-") in words.options:
            raise DocumentError(
                said("{sweep} starts one run for each combination of values; rlctl reads one run", sweep=sweep),
                at=program.at,
                hint="remove it and give each key one value",
            )


def _refuse_unused(arguments: Sequence[str], taken: frozenset[str], reading: ScriptReading, name: str) -> None:
    """Words that the script was given and does not look at are a mistake; overrides are applied on top of it."""
    wanted = reading.state.wants_arguments
    unused = [word for word in arguments if word not in taken and not is_override(word)]
    if unused and not wanted:
        raise DocumentError(
            said("takes no arguments, but received {redacted!r}", redacted=redacted(" ".join(unused))),
            at=Location(name),
            hint="rlctl reads several files as stages only if each is a YAML file or a script",
        )


# What it runs


def _base(launch: ScriptLaunch, words: ParsedCommand, reading: ScriptReading, name: str) -> Input:
    """The config that the overrides change: a file that the command names, or the program's own."""
    options = {option: plain(word) for option, word in words.options.items()}
    config = next((options[key] for key in _NAME_OPTIONS if key in options), "")
    folder = next((options[key] for key in _PATH_OPTIONS if key in options), "")
    file = next((options[key] for key in _FILE_OPTIONS if options.get(key)), "")
    if launch.known.style == "file" and not (file or config):
        raise DocumentError(
            said("{name} is started without a config file", name=launch.program.name),
            at=launch.program.at,
            hint="expected --config FILE",
        )
    if not (config or file):
        return Input(Document(name, {}, {(): Location(name, 1)}), dialect=launch.dialect)
    wanted = file or f"{folder}/{config}".lstrip("/" if not folder else "")
    found = _find(wanted, launch.program, reading, name)
    if isinstance(found, Document):
        given = composed(found)
        note = finding("base-config", Level.NOTE, at=launch.program.at, file=found.name)
        return replace(given, findings=[*given.findings, note], dialect=launch.dialect or given.dialect)
    stem = config.removesuffix(".yaml").removesuffix(".yml")
    shipped = dialect_called(launch.dialect).configs.get(stem) if launch.dialect else None
    if shipped is None:
        raise DocumentError(
            said("the command starts from the config '{wanted}', but there is no such file", wanted=wanted),
            at=launch.program.at,
            hint=said("looked in {found}", found=", ".join(found)),
        )
    overrides = read_overrides([(text, launch.program.at) for text in shipped.overrides], name)
    note = finding("shipped-config", Level.NOTE, at=launch.program.at, config=stem, framework=launch.dialect)
    return Input(Document(name, {}, {(): Location(name, 1)}), overrides, launch.dialect, shipped.kind, findings=[note])


def _find(wanted: str, program: LaunchProgram, reading: ScriptReading, name: str) -> Document | list[str]:
    """The config file of a command; where it was looked for if there is none."""
    looked: list[str] = []
    around = [Path(program.folder).resolve(), Path.cwd()]
    here = next(
        (folder for folder in around if Path(wanted).is_absolute() and Path(wanted).is_relative_to(folder)), None
    )
    if here is not None and not any(is_file(f"{wanted}{ending}") for ending in _ENDINGS):
        wanted = str(
            Path(wanted).relative_to(here)
        )  # the script means the folder it is started in, and that is another
    for folder in dict.fromkeys(_folders(program, name)):
        for ending in _ENDINGS:
            path = folder / f"{wanted}{ending}"
            if (written := reading.state.written(path.resolve())) is not None:
                text = reading.state.files[written]
                if text is None or written != path.resolve():
                    message = said(
                        "the script itself changes '{wanted}', and only running the script tells what it holds",
                        wanted=wanted,
                    )
                    raise DocumentError(message, at=program.at, hint="run the script in isolation with --trace")
                return read_yaml(text, said("{name}: {wanted}", name=name, wanted=wanted))
            if is_file(path):
                return read_yaml(read_text(path), str(path))
        looked.append(str(folder))
    return looked


def _folders(program: LaunchProgram, name: str) -> Iterable[Path]:
    """Where a relative path of a command can lead: from where it runs, its program, and the folders above the script."""
    of_program = Path(program.name).parent if program.name.endswith(".py") else Path()
    here = Path(program.folder)
    script = Path(name).parent
    yield here
    yield here / of_program
    yield script
    for above in [script.resolve(), *script.resolve().parents][: _PARENTS + 1]:
        yield above
        yield above / of_program


def _of_launcher(launch: ScriptLaunch, words: ParsedCommand) -> list[tuple[str, Location]]:
    """What the launcher decides and the program's config also has a key for, where the command does not set that key."""
    found = []
    written = {plain(word).lstrip("+").partition("=")[0] for word in words.overrides}
    for option, key in launch.known.of_launcher.items():
        value = launch.program.launcher.get(option)
        if value is not None and plain(value).isdecimal() and key not in written:
            found.append((f"{key}={plain(value)}", launch.program.at))
    return found


# What is not known, and what is lost


def _known(words: Sequence[Text], launch: ScriptLaunch, how: Script) -> tuple[list[Text], list[Finding]]:
    """The overrides whose values are known, and notes on names of the run that are known only in part.

    Raises:
        MissingError: what is not known matters, and the command line does not give it.
    """
    given = {_key(word) for word in how.arguments if is_override(word)}
    naming = _naming(launch.dialect)
    found, notes, missing = [], [], []
    for word in words:
        piece = next((piece for piece in word if piece.problem or (piece.unset and not piece.symbol)), None)
        key = _key(plain(word))
        if piece is None or key not in given | naming:
            found.append(word)
            missing += [] if piece is None else [word]
        elif key in naming - given:
            kept = tuple(replace(each, text="", problem="") if each.problem else each for each in word)
            value = plain(kept).partition("=")[2]
            why = piece.problem or said("${name} is not set", name=", ".join(sorted(piece.unset)))
            at = place_of(word, launch.program.at)
            notes.append(finding("run-name", Level.WARNING, key, at, value=value, reason=why))
            found += [kept] if value else []
    refuse_unknown(missing, launch.program.at)
    return found, notes


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


@cache
def _naming(dialect: str) -> frozenset[str]:
    """The keys that only name a run and the folders that it writes: of a framework, or of any if it is not known."""
    known = [dialect] if dialect else dialect_names()
    tables = [table for name in known for table in dialect_called(name).tables.values()]
    return frozenset(own for table in tables for own, key in table.plain.items() if key in _NAMING)


def _lost(reading: ScriptReading, launch: ScriptLaunch, text: str, name: str) -> list[Finding]:
    """Overrides that follow the command but are no part of it: to bash each line of them is a command of its own."""
    at = launch.program.at
    after = [command for command in reading.commands if command.at.file == at.file and command.at.line > at.line]
    lost = [command for command in after if command.words and _is_told(plain(command.words[0]))]
    if not lost or at.file != name:
        return []
    lines = text.splitlines()
    first = lost[0].at.line
    ends = next((place for place in range(first - 1, 0, -1) if lines[place - 1].strip()), first - 1)
    why = "comment" if _COMMENTED.search(lines[ends - 1]) else "blank" if ends < first - 1 else "backslash"
    place = ends + 1 if why == "blank" else ends
    words = [plain(word) for command in lost for word in command.words if _is_told(plain(word))]
    shown = redacted(", ".join(words[:_LISTED])) + (", ..." if len(words) > _LISTED else "")
    where = Location(name, place)
    return [finding("lost-overrides", Level.WARNING, at=where, why=why, line=place, count=len(words), words=shown)]


def _is_dotted(word: Text) -> bool:
    """Whether a word sets a key inside a section, and is no option."""
    text = plain(word)
    return is_override(text) and not text.startswith("-") and "." in _key(text)


def _is_told(word: str) -> bool:
    """Whether a word is one that a trainer is told and no command: an override with a dotted key, or an option."""
    return (is_override(word) and ("." in _key(word) or word[0] in "+~")) or word.startswith("--")


# What stays symbolic, and what is told


class _Keeps:
    """Decides which overrides can say ``${oc.env:...}``: those that mean the same here, so texts, and no numbers."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.resolved: dict[str, set[str]] = {}
        """The keys that a variable decides and which are written as they are here."""

    def text(self, word: Text) -> str:
        """An override as it is read."""
        hides = any(piece.secret for piece in word)
        is_open = any(piece.unset for piece in word)
        keeps = (lambda first, second: True) if hides else self._is_readable if is_open else self._same
        text, whole = symbolic_override(word, keeps)
        if not whole:
            key = plain(word).lstrip("+").partition("=")[0]
            for variable in sorted({name for piece in word for name in piece.names}):
                self.resolved.setdefault(variable, set()).add(key)
        return text

    def _is_readable(self, symbolic: str, as_is: str) -> bool:
        try:
            read_overrides([symbolic], "")
        except RlctlError:
            return False
        return True

    def _same(self, symbolic: str, as_is: str) -> bool:
        if not _is_text(as_is.partition("=")[2]):
            return False
        try:
            first, second = (self._value(text) for text in (symbolic, as_is))
        except RlctlError:
            return False
        return first == second and type(first) is type(second)

    def _value(self, text: str) -> object:
        override = read_overrides([text], "")[0]
        resolved = resolve(Document("", {"value": override.value}), environment=self.environment)
        return override.value if not resolved.expressions else resolved.values["value"]


def _is_text(value: str) -> bool:
    """Whether a value is no number, boolean or null; what the environment holds always is a text."""
    try:
        return isinstance(plain_value(value), str)
    except ValueError:
        return True


def _notes_of_unset(reading: ScriptReading, launch: ScriptLaunch, words: ParsedCommand) -> Iterator[Finding]:
    """Unset variables: those that values of the command need, and those that add words to it."""
    needed: dict[str, list[str]] = {}
    for word in words.overrides:
        for variable in sorted(unset(word)):
            needed.setdefault(variable, []).append(_key(plain(word)))
    unread = next((shown for shown in reading.state.unread), "")
    for variable in [*needed, *(name for name in launch.vanished if name not in needed)]:
        keys = needed.get(variable, [])
        yield finding(
            "unset",
            Level.WARNING,
            at=reading.state.unset.get(variable) or launch.program.at,
            option=f"--env {variable}=VALUE",
            variable=variable,
            keys=", ".join(keys[:_LISTED]) + (", ..." if len(keys) > _LISTED else ""),
            case="value" if keys else "word",
            source=unread or "none",
        )


def _notes_of_running(text: str, how: Script) -> list[Finding]:
    unseen = _unseen_when_run(text, how) if how.traced else []
    if not unseen:
        return []
    return [finding("environment_sandbox", Level.NOTE, variables=", ".join(unseen), variable=unseen[0])]


def _notes(
    reading: ScriptReading, launch: ScriptLaunch, words: ParsedCommand, keeps: _Keeps, how: Script
) -> list[Finding]:
    """What a person should know of how the script was read."""
    found = []
    if keeps.resolved:
        shown = ", ".join(
            f"{name} ({', '.join(sorted(keys)[:2])}{', ...' if len(keys) > 2 else ''})"
            for name, keys in list(keeps.resolved.items())[:40]
        )
        found.append(finding("environment", Level.NOTE, option="--env NAME=VALUE", variables=shown))
    if reading.state.exported:
        shown = ", ".join(reading.state.exported)
        at = next(iter(reading.state.exported.values()))
        found.append(finding("exports", Level.NOTE, at=at, variables=shown))
    for variable in reading.state.secrets:
        expression = f"${{oc.env:{variable}}}"
        found.append(finding("secret_script", Level.WARNING, variable=variable, expression=expression))
    state = reading.state
    if not how.traced:
        found += [
            finding("assumed_script", Level.WARNING, at=at, option=state.decided_by.get(what, "--trace"), reason=what)
            for what, at in state.assumed.items()
        ]
        found += _notes_of_unset(reading, launch, words)
    read = (*_NAME_OPTIONS, *_PATH_OPTIONS, *_FILE_OPTIONS)
    for option in words.options:
        if option not in read:
            # the values of options may hold secrets: only their names are shown
            place = launch.program.at
            found.append(finding("option", Level.WARNING, at=place, program=launch.program.name, word=option))
    others = [plain(word) for word in words.others if not (launch.known.style == "file" and plain(word) == "run")]
    if others:
        shown = redacted(" ".join(others))[:80]
        note = finding("option_word", Level.WARNING, at=launch.program.at, program=launch.program.name, word=shown)
        if launch.known.style == "hydra":
            raise DocumentError(note.message, at=launch.program.at, hint="quote values with spaces: key='a b'")
        found.append(note)
    return found
