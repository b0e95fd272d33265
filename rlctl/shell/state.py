"""What a shell script knows at one moment: variables, arguments, environment; and what reading it noticed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlctl.common.errors import DocumentError, Location
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.secrets import is_secret, is_secret_name
from rlctl.shell import pipes
from rlctl.shell.text import Piece, Text, from_environment, from_secret, literal, named, plain, problem, unknown

Value = Text | list[Text]
"""A variable's value: a text, or the items of an array."""

MAX_TEXT = 1 << 18
MAX_ITEMS = 10_000
_MAX_NAME = 4096
_PIECE = 16
"""What a piece counts for beside its characters."""
BLANKS = " \t\n"
"""The characters at which bash splits words, unless the script sets IFS."""
NEVER = frozenset({"RANDOM", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME", "SRANDOM", "BASHPID", "PPID", "LINENO"})
"""Variables that have another value each time."""
_NAMES_OF_BASH = (
    "BASH BASHOPTS BASH_ARGC BASH_ARGV BASH_COMMAND BASH_EXECUTION_STRING BASH_LINENO BASH_SUBSHELL BASH_VERSINFO BASH_VERSION "
    "COLUMNS DIRSTACK EUID FUNCNAME GROUPS HOSTNAME HOSTTYPE LINES MACHTYPE OLDPWD OPTARG OPTERR OPTIND OSTYPE "
    "PIPESTATUS SHELLOPTS SHLVL UID"
)
_OF_BASH = frozenset(_NAMES_OF_BASH.split())
"""Variables that bash sets."""


def given_with(names: Iterable[str]) -> str:
    """How a person gives a script the variables and arguments of these names."""
    wanted = list(names)
    numbers = [int(name) for name in wanted if name.isdecimal()]
    if numbers:  # the arguments before them too: the last needs all of them
        place = next(index for index, name in enumerate(wanted) if name.isdecimal())
        others = [name for name in wanted if not name.isdecimal()]
        wanted = [*others[:place], *map(str, range(1, max(numbers) + 1)), *others[place:]]
    options = " ".join(f"--env {name}=VALUE" for name in wanted)
    if numbers:
        return said("give {options}; a number is an argument of the script", options=options)
    return said("give {options}", options=options)


class MissingError(DocumentError):
    """The script ends where a variable or an argument is not given."""

    def __init__(self, message: str, *, at: Location | None = None, hint: str = "", wanted: Iterable[str] = ()) -> None:
        """``wanted``: the names of what is not given, arguments by number; the hint says how to give it."""
        self.wanted = tuple(wanted)
        super().__init__(message, at=at, hint=hint or given_with(self.wanted))


@dataclass
class State:
    """The variables of a script while it is read."""

    script: str
    """The script's name, as the user gave it."""
    arguments: list[Text]
    environment: Mapping[str, str]
    given: Mapping[str, str] = field(default_factory=dict)
    """Variables given for this reading; they are what they are, and no symbol stands for them."""
    variables: dict[str, Value] = field(default_factory=dict)
    functions: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """The body of each function, and the source it is in."""
    exported_functions: set[str] = field(default_factory=set)
    zero: str = ""
    """``$0``, if another than the script."""
    source: str = ""
    """The file that is read, as the script names it, if another than the script."""
    sources: dict[str, str] = field(default_factory=dict)
    """The file of each function, in the same words."""
    files: dict[Path, str | None] = field(default_factory=dict)
    """Files and folders that the script writes: their text, or None if only running the script would tell."""
    folder: str = "."
    """Where the script is, after ``cd``."""
    before: str = "."
    """Where it was before the last ``cd``."""
    folders: list[str] = field(default_factory=list)
    """What ``popd`` goes back to."""
    surveys: bool = False
    """Whether the script is read on where it would end, to learn of everything that it wants."""
    missing: dict[str, tuple[Location, str]] = field(default_factory=dict)
    """What it wants and is not given, where and why, in a survey."""
    strict: bool = False
    """Whether a variable that is not set ends the script (``set -u``)."""
    ends_on_failure: bool = False
    """Whether a command that fails ends the script (``set -e``)."""
    substitutions_end: bool = False
    """Whether it ends ``$( )`` too (``shopt -s inherit_errexit``)."""
    pipes_fail: bool = False
    """Whether a pipeline fails where any part of it does (``set -o pipefail``)."""
    expands_files: bool = True
    """Whether ``*`` stands for files; not after ``set -f``."""
    arguments_set: int = 0
    """How often ``set`` replaced them."""
    wants_arguments: bool = False
    """Whether the script looks at what follows it on the command line."""
    exported: dict[str, Location] = field(default_factory=dict)
    exports_all: bool = False
    """Whether what is assigned is exported (``set -a``)."""
    calls: int = 0
    """How many functions are being called, one in the other."""
    here: Location | None = None
    """The statement that is read."""
    frames: list[dict[str, tuple[Value | None, bool]]] = field(default_factory=list)
    """Of each command that has variables of its own, what these were before, and whether they were unset."""
    odd: dict[str, Text] = field(default_factory=dict)
    """Variables with a property that is not read here, as ``declare -i`` gives it, and what they expand to."""
    removed: set[str] = field(default_factory=set)
    """Variables that the script has unset, whatever the environment says."""
    status: bool | None = True
    """Whether the last statement succeeded; None if only running the script can tell."""
    fixed: set[str] = field(default_factory=set)
    """Variables that the script has made readonly."""
    unset: dict[str, Location] = field(default_factory=dict)
    """Variables that nobody set, and which the script used as empty."""
    unread: dict[str, Location] = field(default_factory=dict)
    """Statements that set variables in ways that are not read, such as ``source`` of a file that does not exist."""
    assumed: dict[str, Location] = field(default_factory=dict)
    """What was taken for granted, in words."""
    decided_by: dict[str, str] = field(default_factory=dict)
    """The options that decide what was taken for granted, where there are some."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Values of secrets that the script holds, by the name of the variable."""

    def path(self, name: str) -> Path:
        """The file that a name means where the script is now."""
        return (Path(self.folder) / expanded(name)).resolve()

    def writes(self, name: str, text: str | None = None) -> None:
        """A command may write a file: with this text, or with what only running it would tell."""
        if name and len(name) <= _MAX_NAME and "\0" not in name:
            self.files[self.path(name)] = text

    def written(self, path: Path) -> Path | None:
        """The file that the script writes, or the folder of it below the script's own, if it does."""
        around = Path(self.script).parent.resolve()
        places = (path, *(folder for folder in path.parents if around in folder.parents))
        return next((each for each in places if each in self.files), None)

    def look_up(self, name: str, at: Location) -> Value | None:
        """The value of a variable; None where it is not set. One that is given keeps its value, whatever the script assigns."""
        if name in self.given:
            place, value = Location(f"--env {name}"), self.given[name]
            return from_secret(name, None, place) if is_secret(name, value) else literal(value, place)
        if name in self.variables:
            return self.variables[name]
        if name in self.removed:
            return None
        if name in NEVER:
            return (
                Piece(
                    "",
                    at,
                    names=frozenset({name}),
                    problem=said("${name} has a different value in each run", name=name),
                ),
            )
        if name == "IFS":
            return literal(BLANKS, at)
        if name == "PWD":
            here = str(Path(self.folder).resolve())
            return from_environment("PWD", here, None, at) if self.folder == "." else literal(here, at)
        if name in self.environment:
            return from_environment(name, self.environment[name], None, at)
        if name in _OF_BASH:
            why = said("bash sets ${name}; its value can only be known by running the script", name=name)
            return (Piece("", at, names=frozenset({name}), problem=why),)
        return None

    def text(self, name: str, at: Location) -> Text:
        """The value of a variable as a text, an array's first item; empty where it is not set.

        Raises:
            DocumentError: it is not set, and the script says that this ends it.
        """
        value = self.look_up(name, at)
        if value is None:
            if name.startswith("SLURM_") and name not in self.removed:
                return unknown(said("Slurm sets ${name} where the script runs", name=name), at, name)
            if self.strict:
                return self.lacks(
                    name, at, "set -u", said("${name} is not set, which ends the script here (set -u)", name=name)
                )
            return self.not_set(name, at)
        if isinstance(value, list):
            return value[0] if value else ()
        return value

    def not_set(self, name: str, at: Location) -> Text:
        """The value of an unset variable or argument: empty, as in bash, and noted as unset."""
        if name in self.removed:
            return ()
        self.unset.setdefault(name, at)
        symbol = "" if name.isdecimal() else f"${{oc.env:{name}}}"
        return (Piece("", at, symbol, frozenset({name}), frozenset({name})),)

    def of_the_machine(self, shown: str, at: Location) -> Text | None:
        """The assumed output of a command that names the machine, noted as an assumption; None for other commands."""
        taken = pipes.of_the_machine(shown)
        if taken is None:
            return None
        self.assumed.setdefault(
            said(
                "assumed that '{shown}' prints {taken}; where the script runs, it prints another",
                shown=shown,
                taken=taken,
            ),
            at,
        )
        return literal(taken, at)

    def lacks(self, name: str, at: Location, why: str, message: str) -> Text:
        """A placeholder for a required variable or argument, in a survey of what a script needs.

        Raises:
            MissingError: this is none.
        """
        if not self.surveys:
            raise MissingError(message, at=at, wanted=[name])
        self.missing.setdefault(name, (at, why))
        return (Piece("", at, problem=message),)

    def items(self, name: str, at: Location) -> list[Text]:
        """The items of an array; a plain variable is an array of one."""
        value = self.look_up(name, at)
        if value is None:
            return []
        return list(value) if isinstance(value, list) else [value]

    def assign(self, name: str, value: Value, *, append: bool = False) -> None:
        """Set a variable, or add to it.

        Raises:
            DocumentError: it is readonly, or grows too large.
        """
        if name in self.fixed:
            raise DocumentError(
                said("the script sets {name}, which is readonly", name=name), at=self.here or Location(self.script)
            )
        if name in self.odd:
            value, append = self.odd[name], False
        value = [named(item, name) for item in value] if isinstance(value, list) else named(value, name)
        if append:
            old = self.look_up(name, Location(self.script)) or ()
            if isinstance(value, list):
                value = [*(old if isinstance(old, list) else [old] if old else []), *value]
            elif isinstance(old, list):
                value = [(*old[0], *value), *old[1:]] if old else [value]
            else:
                value = (*old, *value)
        elif not isinstance(value, list) and isinstance(items := self.variables.get(name), list):
            left = next((item for item in items if problem(item)), None)
            value = [value, *items[1:]] if left is None else [value, left]
        value = [self._hidden(name, item) for item in value] if isinstance(value, list) else self._hidden(name, value)
        self._check_size(name, value)
        self.removed.discard(name)
        self.variables[name] = value

    def unset_by_script(self, name: str) -> None:
        """``unset``, which a variable that is readonly survives."""
        if name not in self.fixed:
            self.remove(name)

    def leave_unread(self, shown: str, why: str, at: Location) -> None:
        """Note a statement that may set variables, and which is not read."""
        self.unread.setdefault(shown, at)
        self.assumed.setdefault(
            said(
                "assumed that '{shown}' changes no variable that the script itself sets ({why})", shown=shown, why=why
            ),
            at,
        )

    def remove(self, name: str) -> None:
        """Unset a variable."""
        self.variables.pop(name, None)
        self.removed.add(name)

    def become_process(self) -> None:
        """Be another bash that this one starts: only what is exported is there."""
        ours = self.exported.keys() | self.environment.keys() | self.given.keys() | self.frames[-1].keys()
        self.variables = {name: value for name, value in self.variables.items() if name in ours}
        self.functions = {name: body for name, body in self.functions.items() if name in self.exported_functions}
        self.fixed = set()
        self.strict = self.ends_on_failure = self.pipes_fail = self.exports_all = self.substitutions_end = False
        self.expands_files = True
        self.source = ""

    def keep(self, name: str) -> None:
        """Let a variable be what it is now once the command that is being called has ended."""
        self.frames[-1].setdefault(name, (self.variables.get(name), name in self.removed))

    def localize(self, name: str) -> None:
        """Let a function have a variable of its own, which is not set yet."""
        if name not in self.frames[-1]:
            self.keep(name)
            self.remove(name)

    def leave(self) -> None:
        """End a function: its local variables are what they were before."""
        for name, (value, was_removed) in self.frames.pop().items():
            self.remove(name)
            if not was_removed:
                self.removed.discard(name)
            if value is not None:
                self.variables[name] = value

    def _check_size(self, name: str, value: Value) -> None:
        items = value if isinstance(value, list) else [value]
        size = sum(len(piece.text) + len(piece.symbol) + _PIECE for item in items for piece in item)
        if len(items) > MAX_ITEMS or size > MAX_TEXT:
            limits = said(
                "rlctl reads at most {items} items and {characters} characters", items=MAX_ITEMS, characters=MAX_TEXT
            )
            raise DocumentError(
                said("the variable {name} grows too large", name=name), at=Location(self.script), hint=limits
            )

    def _hidden(self, name: str, value: Text) -> Text:
        """A literal secret as the variable that holds it."""
        if all(piece.symbol or piece.problem or not piece.text for piece in value):
            return value
        is_longer = is_secret_name(name) and any(piece.secret for piece in value)
        if not is_longer and not is_secret(name, plain(value)):
            return value
        self.secrets[name] = plain(value)
        return from_secret(name, None, value[0].at)
