"""Overrides to words of a bash script: quoted for Hydra and for bash, environment interpolations as ``${NAME:-default}``."""

from __future__ import annotations

import re

from rlctl.common.quoting import in_double, word
from rlctl.common.records import record
from rlctl.common.terminal import UNSEEN
from rlctl.documents.overrides_write import Change, hydra_escaped, hydra_string

_ENV = re.compile(r"\$\{oc\.env:\s*(?P<name>[A-Za-z_]\w*)\s*(?P<end>[,}])", re.ASCII)
_DECODED = re.compile(r"\$\{oc\.decode:\s*(\$\{oc\.env:.*\})\s*\}", re.DOTALL)
_QUOTED = re.compile(r"""\s*(?P<quote>['"])(?P<text>[^'"\\]*)(?P=quote)\s*""")


@record
class Env:
    """``${oc.env:NAME,default}``; the default is text and further ones, None where there is none."""

    name: str
    default: tuple[str | Env, ...] | None


Pieces = tuple[str | Env, ...]


def pieces(text: str) -> Pieces:
    """A text cut at its environment interpolations; one that bash has no form for stays text."""
    found: list[str | Env] = []
    position = start = 0
    while match := _ENV.search(text, position):
        end = match.end() if match["end"] == "}" else _end(text, match.end())
        if end == 0:
            position = match.end()
            continue
        if match.start() > start:
            found.append(text[start : match.start()])
        inner = None if match["end"] == "}" else _default(text[match.end() : end - 1])
        found.append(Env(match["name"], inner))
        position = start = end
    return (*found, text[start:]) if text[start:] else tuple(found)


def _end(text: str, start: int) -> int:
    """The place after the brace that closes an interpolation; 0 where none does."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return 0


def _default(text: str) -> Pieces:
    if match := _QUOTED.fullmatch(text):
        return (match["text"],) if match["text"] else ()
    return pieces(text.strip())


def bash_override(change: Change, *, number: float | None = None, keep: bool = False) -> str:
    """An override as one word of bash.

    Args:
        change: the override.
        number: the number or boolean that the value has now, if the value is one environment variable and no text. It is the
            default of a variable that has none, so that a script under ``set -u`` can be read without the variable.
        keep: leave interpolations to Hydra, so that bash never sees a value.

    A variable without a default in a text is left to Hydra: the script can then be read, and started for ``--cfg job``,
    without it. So are those of a text with characters that show nothing: bash has no escapes beside variables. So is one inside
    another resolver, which would receive what bash puts there instead of a text. Only a decoded variable is what bash gives
    Hydra: it parses the word.
    """
    decoded = _DECODED.fullmatch(change.value) if isinstance(change.value, str) and number is not None else None
    cut = pieces(decoded[1] if decoded else change.value) if isinstance(change.value, str) else ()
    inside = _is_inside(change.value) and not (decoded and len(cut) == 1)
    if (
        UNSEEN.search(change.text())
        or keep
        or inside
        or not _has_environment(change.value)
        or (number is None and _needs(change.value))
    ):
        return word(change.text(), lines=True)
    if number is not None and len(cut) == 1 and isinstance(cut[0], Env):
        given = cut[0] if cut[0].default is not None else Env(cut[0].name, (str(number),))
        return _word(f"{change.key}=", _expanded(given, ""))
    marks: list[str] = []

    def spell(text: str) -> str:
        if not _has_environment(text):
            return hydra_string(text)
        marks.append("'" + "".join(_piece(piece, "'") for piece in pieces(text)) + "'")
        return f"\0{len(marks) - 1}\0"

    parts = re.split("\0([0-9]+)\0", change.text(spell))
    whole = "".join(marks[int(part)] if place % 2 else in_double(part) for place, part in enumerate(parts))
    return f'"{whole}"'


def _word(key: str, value: str) -> str:
    return f"{key}{value}" if re.fullmatch(r"\$\{\w+(?::-[\w./+-]*)?\}", value, re.ASCII) else f'{key}"{value}"'


def _has_environment(value: object) -> bool:
    if isinstance(value, str):
        return any(isinstance(piece, Env) for piece in pieces(value))
    if isinstance(value, dict):
        return any(_has_environment(item) for item in value.values())
    return isinstance(value, list | tuple) and any(_has_environment(item) for item in value)


def _is_inside(value: object) -> bool:
    """Whether an environment interpolation is an argument of another one."""
    if isinstance(value, dict):
        return any(_is_inside(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_is_inside(item) for item in value)
    before = ""
    for piece in pieces(value) if isinstance(value, str) else ():
        if isinstance(piece, Env) and before.count("${") > before.count("}"):
            return True
        before += piece if isinstance(piece, str) else ""
    return False


def _needs(value: object) -> bool:
    """Whether a value names a variable without a default: bash would end under ``set -u``, and Hydra asks when it is read."""
    if isinstance(value, str):
        return any(isinstance(piece, Env) and _lacks(piece) for piece in pieces(value))
    if isinstance(value, dict):
        return any(_needs(item) for item in value.values())
    return isinstance(value, list | tuple) and any(_needs(item) for item in value)


def _lacks(env: Env) -> bool:
    inner = [piece for piece in env.default or () if isinstance(piece, Env)]
    return env.default is None or any(map(_lacks, inner))


def _piece(piece: str | Env, quote: str) -> str:
    return in_double(hydra_escaped(piece, quote)) if isinstance(piece, str) else _expanded(piece, quote)


def _expanded(env: Env, quote: str) -> str:
    """``${NAME:-default}`` as it stands between double quotes."""
    if env.default is None:
        return "${" + env.name + "}"
    text = "".join(
        _expanded(piece, quote)
        if isinstance(piece, Env)
        else re.sub(r"}", r"\\}", in_double(hydra_escaped(piece, quote) if quote else piece))
        for piece in env.default
    )
    return "${" + env.name + ":-" + text + "}"
