"""The command line of a trainer: which program it starts, behind wrappers such as ``uv run``, ``torchrun`` or ``ray job submit``,
and what it is told: overrides, a config of the program's own, a config file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rlctl.common.errors import Location
from rlctl.common.messages.reasons import said
from rlctl.shell.state import MissingError, given_with
from rlctl.shell.text import Text, plain, problem, unset

_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[\d.]*")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_OVERRIDE = re.compile(r"(?:\+{1,2}|~)?[\w./@:-]+(?:\[\d+\])*=.*|~[\w./@-]+", re.DOTALL)
_PLAIN_WRAPPERS = frozenset({"exec", "nohup", "time", "command", "sudo", "setsid", "stdbuf", "nice", "ionice"})
_UV_OPTIONS = (
    "--extra --with --with-editable --with-requirements --python -p --project --group --only-group --no-group --env-file "
    "--package --directory --index --index-url --no-extra -m --module"
)
_UV_VALUES = frozenset(_UV_OPTIONS.split())
_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "srun", "mpirun", "mpiexec", "colossalai", "numactl"})
_DISTRIBUTED = ("torch.distributed.run", "torch.distributed.launch")
SWEEPS = ("--multirun", "-m")


@dataclass(frozen=True)
class LaunchProgram:
    """A program and its arguments."""

    name: str
    """A module (``verl.trainer.main_ppo``), a script's path, or a command."""
    arguments: tuple[Text, ...]
    at: Location
    folder: str = "."
    launcher: Mapping[str, Text] = field(default_factory=dict)
    """The options of torchrun and the like, by name with dashes, as ``nproc-per-node``."""


@dataclass
class ParsedCommand:
    """The arguments of a program, parsed."""

    overrides: list[Text] = field(default_factory=list)
    options: dict[str, Text] = field(default_factory=dict)
    """By name without dashes, as ``config-name``."""
    others: list[Text] = field(default_factory=list)


def program_of(words: Sequence[Text], at: Location, folder: str = ".") -> LaunchProgram | None:
    """The program a command line starts; None where it starts none that could take a config."""
    rest = list(words)
    while rest:
        name = plain(rest[0])
        if not name or _ASSIGNED.fullmatch(name):
            rest = rest[1:]
        elif name in _PLAIN_WRAPPERS:
            rest = _without_options(rest[1:], frozenset({"-n", "-u", "-o", "-e", "-i"}))
        elif name == "-m" and len(rest) > 1:  # behind a variable that is not set, or not known
            return _in_python(rest, at, folder)
        elif name in ("env", "/usr/bin/env"):
            rest = _without_options(rest[1:], frozenset({"-u", "--unset"}))
        elif name == "timeout":
            rest = _without_options(rest[1:], frozenset({"-s", "-k"}))[1:]
        elif name.rpartition("/")[2] in ("uv", "poetry", "pdm") and len(rest) > 1:
            rest = _after_run(rest[1:])
        elif name.rpartition("/")[2] == "ray":
            rest = _after_dashes(rest[1:]) if [plain(word) for word in rest[1:3]] == ["job", "submit"] else []
        elif name.rpartition("/")[2] in _LAUNCHERS:
            return _in_launcher(rest[1:], at, folder)
        elif _PYTHON.fullmatch(name):
            return _in_python(rest[1:], at, folder)
        else:
            return LaunchProgram(name, tuple(rest[1:]), at, folder)
    return None


def _without_options(words: list[Text], with_value: frozenset[str]) -> list[Text]:
    while words and plain(words[0]).startswith("-"):
        if plain(words[0]) == "--":
            return words[1:]
        words = words[2:] if plain(words[0]) in with_value else words[1:]
    return words


def _after_run(words: list[Text]) -> list[Text]:
    """The command behind ``uv run`` and its options."""
    texts = [plain(word) for word in words]
    if "run" not in texts:
        return []
    words = words[texts.index("run") + 1 :]
    while words and plain(words[0]).startswith("-"):
        name = plain(words[0])
        if name == "--":
            return words[1:]
        if name in ("-m", "--module"):
            return [_same("python", words[0]), *words]
        words = words[2:] if name in _UV_VALUES else words[1:]
    return words


def _same(text: str, word: Text) -> Text:
    return (replace(word[0], text=text, symbol=""),)


def _after_dashes(words: list[Text]) -> list[Text]:
    texts = [plain(word) for word in words]
    if "--" in texts:
        return words[texts.index("--") + 1 :]
    return next((words[index:] for index, text in enumerate(texts) if _PYTHON.fullmatch(text)), [])


def _in_launcher(words: list[Text], at: Location, folder: str) -> LaunchProgram | None:
    """The program that torchrun or a similar launcher starts: the first module, script or Python among its arguments."""
    options: dict[str, Text] = {}
    for index, word in enumerate(words):
        text = plain(word)
        if text in ("-m", "--module") and index + 1 < len(words):
            return LaunchProgram(plain(words[index + 1]), tuple(words[index + 2 :]), at, folder, options)
        if _PYTHON.fullmatch(text):
            inner = _in_python(words[index + 1 :], at, folder)
            return replace(inner, launcher=options) if inner is not None else None
        if text.endswith(".py"):
            return LaunchProgram(text, tuple(words[index + 1 :]), at, folder, options)
        if text.startswith("--"):
            name, equals, _ = text.partition("=")
            following = words[index + 1] if index + 1 < len(words) else ()
            options[name[2:].replace("_", "-")] = after_equals(word, len(name) + 1) if equals else following
    return None


def _in_python(words: list[Text], at: Location, folder: str) -> LaunchProgram | None:
    while words:
        text = plain(words[0])
        if text == "-m" and len(words) > 1:
            if plain(words[1]) in _DISTRIBUTED:
                return _in_launcher(words[2:], at, folder)
            return LaunchProgram(plain(words[1]), tuple(words[2:]), at, folder)
        if text in ("-c", "-"):
            return None
        if not text.startswith("-"):
            return LaunchProgram(text, tuple(words[1:]), at, folder)
        words = words[2:] if text in ("-W", "-X") else words[1:]
    return None


def told(program: LaunchProgram) -> ParsedCommand:
    """The overrides, options and other words on a program's command line.

    Raises:
        DocumentError: a word is not known, or what a variable is that is no part of an override and not set.
    """
    found = ParsedCommand()
    words = list(program.arguments)
    while words:
        word = words.pop(0)
        text = plain(word)
        if _OVERRIDE.fullmatch(text) and text[0] != "-":
            found.overrides.append(word)
            continue
        refuse_unknown([word], program.at)
        if text.startswith("-") and len(text) > 1:
            name, equals, _ = text.partition("=")
            if equals:
                found.options[name.lstrip("-")] = after_equals(word, len(name) + 1)
            elif name in SWEEPS or not words or _OVERRIDE.fullmatch(plain(words[0])) or plain(words[0]).startswith("-"):
                found.options[name.lstrip("-")] = ()
            else:
                refuse_unknown(words[:1], program.at)
                found.options[name.lstrip("-")] = words.pop(0)
        else:
            found.others.append(word)
    return found


def refuse_unknown(words: Sequence[Text], at: Location) -> None:
    """End the reading where a value is not known, or was computed from an unset variable.

    Raises:
        MissingError: one is, with all variables that are wanted.
    """
    for word in words:
        if (piece := problem(word)) is not None:
            shown = plain(word).partition("=")[0] or "a part of the command line"
            wanted = sorted(piece.names)
            hint = (
                said("{given}, or run the script in isolation with --trace", given=given_with(wanted))
                if wanted
                else "set the variable that decides it with --env NAME=VALUE, or run the script in isolation with --trace"
            )
            raise MissingError(
                said("rlctl cannot work out '{shown}': {problem}", shown=shown, problem=piece.problem),
                at=piece.at if piece.at.file else at,
                hint=hint,
                wanted=wanted,
            )
    used = {name: place_of(word, at) for word in words for name in sorted(unset(word))}
    if used:
        lines = ", ".join(said("${name} (line {line})", name=name, line=at.line) for name, at in used.items())
        raise MissingError(
            said("the command uses {count} variables that are not set: {lines}", count=len(used), lines=lines)
            if len(used) > 1
            else said("the command uses {lines}, which is not set", lines=lines),
            at=next(iter(used.values())),
            wanted=used,
        )


def is_override(text: str) -> bool:
    """Whether a word looks like ``key=value``, ``+key=value`` or ``~key``."""
    return _OVERRIDE.fullmatch(text) is not None


def after_equals(word: Text, length: int) -> Text:
    """A word without its first characters."""
    found = []
    for piece in word:
        if length >= len(piece.text) and not piece.symbol:
            length -= len(piece.text)
        elif length:
            found.append(replace(piece, text=piece.text[length:]))
            length = 0
        else:
            found.append(piece)
    return tuple(found)


def place_of(word: Text, at: Location) -> Location:
    """The place of an override's value: where its variable was set, or where the override stands."""
    texts = [piece for piece in word if piece.text or piece.symbol]
    before = next((index for index, piece in enumerate(texts) if "=" in piece.text and not piece.symbol), None)
    if before is None:
        return texts[0].at if texts else at
    values = {piece.at for piece in texts[before + 1 :]}
    if texts[before].text.partition("=")[2]:
        values.add(texts[before].at)
    return values.pop() if len(values) == 1 else texts[before].at


def key_place(word: Text, at: Location) -> Location:
    """The place of an override's key."""
    return next((piece.at for piece in word if piece.text), at)


_BUILT = re.compile(r",[^${},]*\$\{[^{}]*\}[^{},]|,[^${},]+\$\{")
"""A default that is made of a variable and text, which Hydra takes in quotes only."""


def symbolic_override(word: Text, keeps: Callable[[str, str], bool]) -> tuple[str, bool]:
    """An override in which the environment still decides what it can; and whether nothing had to be resolved.

    Args:
        word: the override.
        keeps: whether two overrides, one symbolic and one as it is here, mean the same.
    """
    as_is = plain(word)
    text = "".join(piece.symbol or piece.text for piece in word)
    resolved = any(piece.names and not piece.symbol for piece in word)
    if text == as_is:
        return as_is, not resolved
    key, _, value = text.partition("=")
    quoted = f"{key}='" + value.replace("'", "\\'") + "'"
    for attempt in (quoted,) if _BUILT.search(value) else (text, quoted):
        if keeps(attempt, as_is):
            return attempt, not resolved
    return as_is, False
