"""Commands whose effect is known without running them: what they print, and whether they succeed."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlctl.common.errors import DocumentError, Location
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.secrets import has_password, is_secret_name, is_token
from rlctl.documents.files import read_text
from rlctl.shell import pipes
from rlctl.shell.clock import now
from rlctl.shell.conditions import Status
from rlctl.shell.state import State
from rlctl.shell.text import Piece, Text, changed, hidden, joined, literal, plain, problem, unknown, unknown_items


@dataclass(frozen=True)
class Known:
    """The effect of a builtin command."""

    status: Status = True
    output: Text | None = None


_QUIET_NAMES = (
    "trap ulimit mkdir rm cp mv ln touch chmod chown sleep wait kill pkill killall pip pip3 uv-pip conda mamba apt "
    "apt-get yum wget curl git tar unzip huggingface-cli hf modelscope tee clear sync umask alias "
    "nvidia-cuda-mps-control module modprobe sysctl rsync scp printf-log true : bind env-update"
)
_QUIET = frozenset(_QUIET_NAMES.split())
"""Commands that change no variable; that they succeed is taken for granted."""
_PRINTING_NAMES = (
    "ulimit pip pip3 uv-pip conda mamba apt apt-get yum wget curl git tar unzip huggingface-cli hf modelscope tee umask alias "
    "trap kill module sysctl rsync"
)
PRINTING = frozenset(_PRINTING_NAMES.split())
"""Those of them that may print something, which ``$( )`` would take."""
MAX_CONTENTS = 1 << 16
"""Characters of a file that ``$(<FILE)`` reads; a longer one is no setting."""
_WRITERS = frozenset({"curl", "dd", "hf", "huggingface-cli", "mv", "rm", "shred", "tee", "touch", "truncate", "wget"})
"""Programs that change the files they name."""
_COPIERS = frozenset({"cp", "ln", "rsync", "scp", "install"})
"""Programs that change the last file they name."""
_IN_PLACE = frozenset({"sed", "gsed", "perl", "awk", "gawk", "yq"})
"""Programs that change the files they name if an option begins with -i."""
UNREAD = frozenset({"!", "getopts", "coproc", "enable", "compgen", "complete", "caller", "fc", "suspend", "dirs"})
"""Commands of bash that change what follows in ways that are not read here."""
TRACE = "run the script in isolation with --trace"
_SET_FLAGS = frozenset("aeuxvfhmbBCEHTP")
"""Flags of ``set`` that are read, or change nothing that a script starts."""
_SET_ATTRIBUTES = {"a": "exports_all", "e": "ends_on_failure", "u": "strict", "pipefail": "pipes_fail"}
_SET_NAMES = {"allexport": "a", "errexit": "e", "noglob": "f", "nounset": "u", "pipefail": "pipefail"} | dict.fromkeys(
    ("xtrace", "verbose", "errtrace", "functrace", "hashall", "monitor", "noclobber",
     "braceexpand", "history", "histexpand", "notify", "physical", "emacs", "vi", "ignoreeof"), ""
)  # fmt: skip
_SHOPT_NAMES = frozenset(
    {
        "checkwinsize",
        "cmdhist",
        "histappend",
        "huponexit",
        "inherit_errexit",
        "interactive_comments",
        "progcomp",
        "sourcepath",
    }
)
_MAX_NUMBERS = 1000
_PROBES = frozenset({"torch_npu"})
"""Python modules whose import a script tries to find out where it is; they are taken for missing."""
_IMPORT = re.compile(r"\s*import (\w+)\s*;?\s*")


def call(state: State, words: list[Text], at: Location) -> Known | None:
    """Evaluate a builtin command; None for a program that would have to be run."""
    name = plain(words[0])
    arguments = words[1:]
    if name == "set":
        return _set(state, arguments, at)
    if name == "shopt":
        return _shopt(state, arguments, at)
    if name == "cd":
        return _cd(state, arguments, at)
    if name == "false":
        return Known(False)
    if name in ("pushd", "popd"):
        return _folders(state, name, arguments, at)
    if name in UNREAD:
        raise DocumentError(said("rlctl does not evaluate '{name}' here", name=name), at=at, hint=TRACE)
    if name == "printf" and arguments and plain(arguments[0]) == "-v":
        return _printf_into(state, arguments[1:], at)
    if name in ("read", "mapfile", "readarray"):
        given = [plain(word) for word in arguments if re.fullmatch(r"[A-Za-z_]\w*", plain(word))]
        for variable in given or ["REPLY", "MAPFILE"]:
            why = said("'{name}' reads it from outside the script", name=name)
            is_text = name == "read" and not _fills_array(arguments)
            state.assign(variable, unknown(why, at) if is_text else unknown_items(why, at))
        return Known(None if name == "read" else True)
    if name in _QUIET:
        touch(state, words)
        return Known()
    printer = _PRINTERS.get(name)
    if printer is None:
        return None
    for word in arguments:
        if (piece := problem(word)) is not None:
            return Known(True, (piece,))
    printed = printer(state, arguments, at)
    return Known(True, printed if name in ("echo", "printf") else (*printed, *literal("\n", at)))


def contents(state: State, name: Text, at: Location) -> Text:
    """Expand ``$(<FILE)``: the text of a small file beside the script, or of one that the script has written."""
    if (piece := hidden(name)) is not None:
        return (piece,)
    shown = plain(name)
    beside, path = Path(state.script).parent.resolve(), state.path(shown)
    if (written := state.written(path)) is not None:
        text = state.files[written]
        is_known = text is not None and written == path
        return (
            changed(name, text or "", at)
            if is_known
            else unknown(said("the script itself changes '{shown}'", shown=shown), at)
        )
    if not Path(state.script).is_file() or not path.is_relative_to(beside):
        return unknown(said("'{shown}' is outside the script's folder, so rlctl does not read it", shown=shown), at)
    if path.name.startswith(".") or any(is_secret_name(part) for part in path.name.split(".")):
        return unknown(said("'{shown}' may hold a secret, so rlctl does not read it", shown=shown), at)
    if not path.is_file():
        return unknown(
            said("'{shown}' is not a regular file", shown=shown)
            if path.exists()
            else said("'{shown}' does not exist", shown=shown),
            at,
        )
    try:
        held = read_text(path) if path.stat().st_size <= MAX_CONTENTS else None
    except (DocumentError, OSError):
        return unknown(said("'{shown}' cannot be read", shown=shown), at)
    if held is None:
        return unknown(
            said(
                "'{shown}' has more than {limit} characters, so rlctl does not read it", shown=shown, limit=MAX_CONTENTS
            ),
            at,
        )
    if has_password(held) or is_token(held):
        return unknown(said("'{shown}' holds a password, so rlctl does not read it", shown=shown), at)
    return changed(name, held, at)


def touch(state: State, words: list[Text]) -> None:
    """Note the files that a command changes, as far as its name tells."""
    name, *texts = (plain(word) for word in words)
    in_place = name in _IN_PLACE and any(text.startswith(("-i", "--in-place", "--inplace")) for text in texts)
    changed_files = texts if name in _WRITERS or in_place else texts[-1:] if name in _COPIERS else []
    for text in changed_files:
        state.writes(text.rpartition("=")[2])


def status_of(state: State, words: list[Text], at: Location) -> Status:
    """Whether a program that is not run succeeds: trainers do, questions about the machine cannot be answered."""
    texts = [plain(word) for word in words]
    if re.fullmatch(r"python[\d.]*", texts[0]) and texts[1:2] == ["-c"]:
        match = _IMPORT.fullmatch(texts[2]) if len(texts) == 3 else None
        if match is None or match[1] not in _PROBES:
            return None
        state.assumed.setdefault(
            said("assumed that the Python module {name} is not installed where this runs", name=match[1]), at
        )
        return False
    if re.fullmatch(
        r"python[\d.]*|torchrun|uv|ray|trinity|accelerate|deepspeed|bash|sh|nohup|exec|env|srun|time", texts[0]
    ):
        return True
    return None


def _set(state: State, arguments: list[Text], at: Location) -> Known:
    """``set``: its flags, and the arguments of the script."""
    words = list(arguments)
    while words and (text := plain(words[0]))[:1] in ("-", "+") and text not in ("-", "+"):
        words.pop(0)
        if text == "--":
            state.arguments = words
            state.arguments_set += 1
            return Known()
        flags = [*text[1:].replace("o", "")]
        if odd := set(flags) - _SET_FLAGS:
            raise DocumentError(
                said("rlctl does not evaluate 'set {text}{option}'", text=text[0], option=min(odd)), at=at, hint=TRACE
            )
        if "o" in text:
            name = plain(words.pop(0)) if words else ""
            if name and name not in _SET_NAMES:
                raise DocumentError(
                    said("rlctl does not evaluate 'set {text} {name}'", text=text, name=name), at=at, hint=TRACE
                )
            flags.append(_SET_NAMES.get(name, ""))
        for flag in flags:
            if flag in _SET_ATTRIBUTES:
                setattr(state, _SET_ATTRIBUTES[flag], text[0] == "-")
            elif flag == "f":
                state.expands_files = text[0] == "+"
    if words:
        state.arguments = words
        state.arguments_set += 1
    return Known()


def _shopt(state: State, arguments: list[Text], at: Location) -> Known:
    names = [plain(word) for word in arguments if not plain(word).startswith("-")]
    if "-q" in map(plain, arguments):
        return Known(None)
    if odd := [name for name in names if name not in _SHOPT_NAMES]:
        raise DocumentError(said("rlctl does not evaluate 'shopt {odd}'", odd=odd[0]), at=at, hint=TRACE)
    if "inherit_errexit" in names:
        state.substitutions_end = "-s" in map(plain, arguments)
    return Known()


def _folders(state: State, name: str, arguments: list[Text], at: Location) -> Known:
    if name == "popd" and state.folders and not arguments:
        state.folder = state.folders.pop()
        return Known()
    if name == "pushd" and len(arguments) == 1 and re.match(r"[^-+]", plain(arguments[0])):
        state.folders.append(state.folder)
        return _cd(state, arguments, at)
    raise DocumentError(said("rlctl does not evaluate '{name}' as it is used here", name=name), at=at, hint=TRACE)


def _fills_array(arguments: list[Text]) -> bool:
    return any(re.fullmatch(r"-\w*a\w*", plain(word)) for word in arguments)


def _printf_into(state: State, arguments: list[Text], at: Location) -> Known:
    """``printf -v NAME``."""
    if len(arguments) < 2 or not re.fullmatch(r"[A-Za-z_]\w*", plain(arguments[0])):
        raise DocumentError("rlctl does not work out what 'printf -v' sets", at=at, hint=TRACE)
    state.assign(plain(arguments[0]), _printf(state, arguments[1:], at))
    return Known()


def _cd(state: State, arguments: list[Text], at: Location) -> Known:
    words = [word for word in arguments if plain(word) != "--"]
    target = plain(words[0]) if words else plain(state.text("HOME", at))
    if target == "-":
        state.folder, state.before = state.before, state.folder
    elif not words or hidden(words[0]) is None:
        state.before = state.folder
        state.folder = os.path.normpath(Path(state.folder) / expanded(target))
    return Known()


def _echo(state: State, arguments: list[Text], at: Location) -> Text:
    escapes = is_last = False
    while arguments and re.fullmatch(r"-[neE]+", plain(arguments[0])):
        escapes = "e" in plain(arguments[0]) or escapes
        is_last = "n" in plain(arguments[0]) or is_last
        arguments = arguments[1:]
    if escapes and any("\\" in plain(word) for word in arguments):
        return unknown("rlctl does not work out what 'echo -e' prints here", at)
    return (*joined(arguments, " ", at), *(() if is_last else literal("\n", at)))


def _printf(state: State, arguments: list[Text], at: Location) -> Text:
    if arguments and plain(arguments[0]) == "--":
        arguments = arguments[1:]
    if not arguments:
        return ()
    pattern, values = plain(arguments[0]).replace("\\n", "\n"), arguments[1:]
    rest = pattern.replace("%s", "")
    if "\\" in rest or "%" in rest or hidden(arguments[0]) is not None:
        return unknown("rlctl does not work out what printf prints here", at)
    parts = pattern.split("%s")
    width = len(parts) - 1
    if not width:
        return changed(arguments[0], pattern, at)
    found: list[Piece] = []
    for start in range(0, max(len(values), 1), width):
        row = [*values[start : start + width], *[()] * width][:width]
        found += literal(parts[0], at)
        for value, part in zip(row, parts[1:], strict=True):
            found += (*value, *literal(part, at))
    return tuple(found)


def _date(state: State, arguments: list[Text], at: Location) -> Text:
    texts = [plain(word) for word in arguments]
    utc = "-u" in texts
    wanted = [text for text in texts if text.startswith("+")]
    if len(wanted) != 1 or set(texts) - {"-u", *wanted}:
        return unknown("rlctl does not work out what date prints here", at)
    pattern = wanted[0][1:].replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S").replace("%s", str(int(now())))
    return changed(arguments[-1], time.strftime(pattern, time.gmtime(now()) if utc else time.localtime(now())), at)


_PLAIN_OPTIONS = frozenset({"-f", "-e", "-m", "-q", "--"})
"""Options of realpath and readlink that ask for the same."""


def _one_path(change: Callable[[str], str]) -> Callable[[State, list[Text], Location], Text]:
    def printer(state: State, arguments: list[Text], at: Location) -> Text:
        words = [word for word in arguments if plain(word) not in _PLAIN_OPTIONS]
        if len(words) != 1 or plain(words[0]).startswith("-"):
            return unknown("rlctl does not work out a command with several paths", at)
        return changed(words[0], change(plain(words[0])), at)

    return printer


def _basename(state: State, arguments: list[Text], at: Location) -> Text:
    words = [word for word in arguments if plain(word) != "--"]
    if not words or len(words) > 2 or plain(words[0]).startswith("-"):
        return unknown("rlctl does not work out what basename prints here", at)
    name = plain(words[0]).rstrip("/").rpartition("/")[2]
    suffix = plain(words[1]) if len(words) > 1 else ""
    is_root = not name and plain(words[0]).startswith("/")
    kept = "/" if is_root else name.removesuffix(suffix) or name if suffix else name
    return changed(words[0], kept, at)


def _pwd(state: State, arguments: list[Text], at: Location) -> Text:
    return state.text("PWD", at)


def _seq(state: State, arguments: list[Text], at: Location) -> Text:
    texts = [plain(word) for word in arguments]
    if (piece := next((piece for word in arguments if (piece := hidden(word))), None)) is not None:
        return (piece,)
    if not 1 <= len(texts) <= 3 or not all(re.fullmatch(r"-?\d{1,18}", text) for text in texts):
        return unknown("rlctl does not work out what seq prints here", at)
    first, step, last = {1: (1, 1, 0), 2: (0, 1, 1), 3: (0, 1, 2)}[len(texts)]
    numbers = [int(text) for text in texts]
    begin = numbers[0] if len(texts) > 1 else first
    by = numbers[step] if len(texts) == 3 else 1
    if not by:
        return unknown("seq with a step of 0", at)
    found = range(begin, numbers[last] + (1 if by > 0 else -1), by)
    if len(found) > _MAX_NUMBERS:
        return unknown(said("seq of more than {limit} numbers", limit=_MAX_NUMBERS), at)
    return changed(arguments[0], "\n".join(map(str, found)), at)


def _expr(state: State, arguments: list[Text], at: Location) -> Text:
    found = pipes.expression([plain(word) for word in arguments])
    if found is None:
        return unknown("rlctl does not work out what expr prints here", at)
    return changed(tuple(piece for word in arguments for piece in word), found, at)


def _of_the_machine(name: str) -> Callable[[State, list[Text], Location], Text]:
    def printer(state: State, arguments: list[Text], at: Location) -> Text:
        shown = " ".join([name, *map(plain, arguments)])
        taken = state.of_the_machine(shown, at)
        why = said("what '{shown}' prints can only be known by running it", shown=shown[:60])
        return taken if taken is not None else unknown(why, at)

    return printer


_PRINTERS: dict[str, Callable[[State, list[Text], Location], Text]] = {
    "echo": _echo,
    "printf": _printf,
    "date": _date,
    "pwd": _pwd,
    "dirname": _one_path(lambda path: str(Path(path).parent)),
    "realpath": _one_path(lambda path: str(Path(path).resolve())),
    "readlink": _one_path(lambda path: str(Path(path).resolve())),
    "basename": _basename,
    "seq": _seq,
    "expr": _expr,
    "hostname": _of_the_machine("hostname"),
    "mktemp": _of_the_machine("mktemp"),
    "shuf": _of_the_machine("shuf"),
}
