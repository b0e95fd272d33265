"""The text that a change of a config makes of its file: in the file's own dialect, with everything else left as it was.

What a dialect's writer makes of the config before and after says which of the dialect's keys change. Only these are changed
in the text, which is then read again: it must say no less of the config than a text written anew would, else it is not used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.config import Loaded
from rlctl.config.inspect import settings
from rlctl.documents import KeyPath, dotted, edit_yaml, read_yaml
from rlctl.documents.overrides_write import Change
from rlctl.documents.shell_write import bash_word
from rlctl.errors import RlctlError, UsageError
from rlctl.rendering import write_out
from rlctl.sources import Input, Script, gather_text, is_script
from rlctl.translate import read_input

ROUNDS = 3
"""A changed key may change what others say by ``${...}``, which are then changed too."""
GONE = object()
"""In place of a value: the key is no longer written."""


def edited_text(
    text: str,
    name: str,
    dialect: str,
    before: Loaded,
    after: Loaded,
    facts: Mapping[str, str] | None = None,
    given: Mapping[str, str] | None = None,
) -> str | None:
    """The text of a file in which ``before`` became ``after``; None where it cannot be done by changing single keys.

    Args:
        text: of the file.
        name: of the file; what it includes is found from there.
        dialect: that it was read as, as ``verl@0.9``.
        before: what the text holds.
        after: what it is to hold.
        facts: what a person said of the run that no config says.
        given: what a launch script is given, as after ``--env``.
    """
    edit = _in_script if is_script(text, name) else _in_yaml
    now, new = before, text
    try:
        today = reread(text, name, dialect, before, given)
        moved = {path for path, _ in changed_keys(before, today, dialect, facts)} if today is not before else set()
        for again in range(ROUNDS):
            changes = dict(changed_keys(now, after, dialect, facts))
            kept = {path: value for path, value in changes.items() if not again or path not in moved}
            edited = edit(new, name, kept, now, after, dialect, again > 0)
            found = _loaded(edited, name, dialect, given)
            if found is None:
                return None
            if edited == new:
                break
            now, new = found, edited
        return new if _says_no_less(now, dialect, after, facts, _unsaid(today, before)) else None
    except RlctlError:
        return None


def reread(text: str, name: str, dialect: str, loaded: Loaded, given: Mapping[str, str] | None = None) -> Loaded:
    """What a text that once held ``loaded`` holds now: a script may say another thing each time, as ``$(date)`` does."""
    found = _loaded(text, name, dialect, given) if is_script(text, name) else None
    return found if found is not None else loaded


def changed_keys(
    before: Loaded, after: Loaded, dialect: str, facts: Mapping[str, str] | None = None
) -> Iterator[tuple[KeyPath, Any]]:
    """The keys of the dialect that say something else, or nothing any more (``GONE``), with their new value.

    Raises:
        RlctlError: the dialect cannot say one of the two.
    """
    options = {**(facts or {}), "carried": "none"}
    yield from _changed((), *(write_out(loaded, dialect, options).file.values for loaded in (before, after)))


def _changed(path: KeyPath, before: Any, after: Any) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(after, Mapping) and after and before is GONE:
        before = {}
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in {**before, **after}:
            yield from _changed((*path, key), before.get(key, GONE), after.get(key, GONE))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _changed((*path, index), old, new)
    elif type(before) is not type(after) or before != after:
        yield path, after


def _in_yaml(
    text: str, name: str, changes: Mapping[KeyPath, Any], now: Loaded, after: Loaded, dialect: str, interpolated: bool
) -> str:
    """A YAML text with other values; those written as ``${...}`` are left to follow what they name, unless ``interpolated``."""
    document = read_yaml(text, name, allow_empty=True)
    written = dict(document.leaves())
    gone = [path for path, value in changes.items() if value is GONE]
    there = [path for path in gone if any(leaf[: len(path)] == path for leaf in written)]
    new = {path: value for path, value in changes.items() if value is not GONE and written.get(path, GONE) != value}
    if not interpolated:
        new = {path: value for path, value in new.items() if "${" not in str(written.get(path, ""))}
    return edit_yaml(document, new, delete=there)


def _loaded(text: str, name: str, dialect: str, given: Mapping[str, str] | None = None) -> Loaded | None:
    return read_input(gathered(text, name, given), dialect=dialect)[0]


def gathered(text: str, name: str, given: Mapping[str, str] | None) -> Input:
    """What a text is, read as it is here; a launch script with what it is given.

    Raises:
        RlctlError: it, or something that it includes, cannot be read.
    """
    variables = given or {} if is_script(text, name) else {}
    return gather_text(text, name, Script(variables=variables, environment=os.environ))


def _unsaid(loaded: Loaded, wanted: Loaded) -> set[KeyPath]:
    """The canonical keys that are not as wanted, but those that belong to one dialect."""
    said, meant = (
        {setting.path: setting.value for setting in settings(one.config) if setting.path[0] != "extensions"}
        for one in (loaded, wanted)
    )
    return {path for path in said.keys() | meant.keys() if said.get(path, GONE) != meant.get(path, GONE)}


def _says_no_less(
    found: Loaded, dialect: str, wanted: Loaded, facts: Mapping[str, str] | None, moved: set[KeyPath]
) -> bool:
    """Whether what a text says, but for what says another thing each time, leaves no more unsaid than one written anew."""
    if not (left := _unsaid(found, wanted) - moved):
        return True
    anew = _loaded(write_out(wanted, dialect, {**(facts or {}), "carried": "none"}).text(), "anew.yaml", dialect)
    return anew is not None and left <= _unsaid(anew, wanted)


_WORD = r"""(?:"[^"]*"|'[^']*'|\\.|[^\s"'\\])*"""


def _prefixes(loaded: Loaded, dialect: str) -> dict[str, str]:
    """What stands before each key of a script's overrides, as ``+`` for one that the framework's config does not have.

    Raises:
        RlctlError: the dialect has no scripts.
    """
    lines = write_out(loaded, dialect, {"carried": "none", "format": "sh"}).text().splitlines()
    keys = [line.strip(" '\"").partition("=")[0] for line in lines]
    return {key.lstrip("+"): key[: len(key) - len(key.lstrip("+"))] for key in keys}


def _in_script(
    text: str, name: str, changes: Mapping[KeyPath, Any], now: Loaded, after: Loaded, dialect: str, interpolated: bool
) -> str:
    """A launch script with other overrides: those that are there are replaced, others come after the last that is in use.

    Raises:
        UsageError: it has no override in a line of its own.
    """
    prefixes = _prefixes(after, dialect) if changes else {}
    lines, used, added = text.splitlines(keepends=True), _lines_in_use(now, name), []
    for path, value in changes.items():
        if value is GONE:
            continue
        key = dotted(path)
        word = bash_word(Change(path, value, prefixes.get(key, "")).text())
        if (found := _line_of(lines, key, used)) is not None:
            lines[found] = _override(key).sub(word.replace("\\", r"\\"), lines[found])
        else:
            added.append(word)
    if added:
        if (last := _last_override(lines, used)) is None:
            raise UsageError(f"{name} has no override in a line of its own, after which others could come")
        lines = _after(lines, last, added)
    for path in [path for path, value in changes.items() if value is GONE]:
        if (found := _line_of(lines, dotted(path), used)) is not None:
            lines = _without(lines, found, dotted(path))
    return "".join(lines)


def _lines_in_use(loaded: Loaded, name: str) -> frozenset[int]:
    """The lines of a script, counted from 0, in which a value stands that its command has."""
    places = [source.at for source in loaded.sources.values() if source.at is not None]
    return frozenset(at.line - 1 for at in places if at.file == name)


def _override(key: str) -> re.Pattern[str]:
    """An override of a key as a word of a command, quoted or not."""
    return re.compile(rf"(?<!\S)[\"']?\+{{0,2}}{re.escape(key)}={_WORD}")


_ANY_OVERRIDE = re.compile(rf"^\s+(?:--\S+\s+)?[\"']?\+{{0,2}}[A-Za-z_]\w*\.[\w.@/-]*={_WORD}\s*(?:\\\s*)?$")
"""A line that is an override; one of a key of the top looks as an assignment does, after which none could come."""


def _line_of(lines: list[str], key: str, used: frozenset[int]) -> int | None:
    """The last line with an override of the key, which is the one that holds; one in use before one of a branch not taken."""
    pattern = _override(key)
    found = [number for number, line in enumerate(lines) if pattern.search(line.split(" #")[0])]
    return max(found, key=lambda number: (number in used, number), default=None)


def _last_override(lines: list[str], used: frozenset[int]) -> int | None:
    """The last line that is an override; one in use before others, which may be of a branch not taken."""
    found = [number for number, line in enumerate(lines) if _ANY_OVERRIDE.match(line)]
    return max(found, key=lambda number: (number in used, number), default=None)


def _without(lines: list[str], number: int, key: str) -> list[str]:
    """The lines without an override; a line that holds nothing else goes, and the one before ends the command if it did."""
    rest = _override(key).sub("", lines[number])
    if rest.strip().rstrip("\\").strip():
        return [*lines[:number], rest, *lines[number + 1 :]]
    if number == 0:
        return lines[1:]
    ended = not rest.rstrip().endswith("\\")
    before = lines[number - 1]
    if ended and before.rstrip().endswith("\\"):
        before = before.rstrip().removesuffix("\\").rstrip() + "\n"
    return [*lines[: number - 1], before, *lines[number + 1 :]]


def _after(lines: list[str], number: int, words: list[str]) -> list[str]:
    """The lines with more overrides after one of them, in the same command or array."""
    line = lines[number].rstrip("\n")
    indent = line[: len(line) - len(line.lstrip())]
    goes_on = line.rstrip().endswith("\\")
    in_array = not goes_on and not (number and lines[number - 1].rstrip().endswith("\\"))
    added = [f"{indent}{word}" for word in words]
    if in_array:
        return [*lines[: number + 1], *(f"{one}\n" for one in added), *lines[number + 1 :]]
    *before, last = [line.rstrip().removesuffix("\\").rstrip(), *added]
    ending = " \\\n" if goes_on else "\n"
    return [*lines[:number], *(f"{one} \\\n" for one in before), f"{last}{ending}", *lines[number + 1 :]]
