"""The text that a change of a config makes of its file: in the file's own dialect, with everything else left as it was.

What a dialect's writer makes of the config before and after says which of the dialect's keys change. Only these are changed
in the text, which is then read again: it must say no less of the config than a text written anew would, else it is not used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlctl.adapters.engine.tree import GONE, changed_leaves
from rlctl.common.errors import RlctlError, UsageError
from rlctl.common.messages.reasons import said
from rlctl.common.quoting import word
from rlctl.config import Loaded, to_plain
from rlctl.config.inspect import settings
from rlctl.documents import KeyPath, dotted, edit_yaml, read_yaml
from rlctl.documents.overrides_write import Change
from rlctl.editing.variables import WORD, default_of, is_plain, uses_variable
from rlctl.translation.rendering import write_out
from rlctl.translation.sources import Input, Script, gather_text, is_script
from rlctl.translation.translate import read_input

ROUNDS = 3
"""A changed key may change what others say by ``${...}``, which are then changed too."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """An override that a script takes from a variable: with the value itself in its place, the variable no longer sets it."""

    key: str
    """Of the dialect."""
    word: str
    """The value as the script says it, as ``${max_response_length}``."""
    line: int
    """Counted from 1."""
    variable: str = ""
    """Whose default could be edited instead; empty if no edit of a default sets the key."""


@dataclass(frozen=True, slots=True)
class Edited:
    """A text with other values, and what it disconnects from variables."""

    text: str
    disconnected: tuple[Disconnected, ...] = ()
    also: tuple[tuple[KeyPath, Any, Any], ...] = ()
    """The canonical keys that would change too if the variables' defaults were edited instead: path, value before and after."""


def edited_text(
    text: str,
    name: str,
    dialect: str,
    before: Loaded,
    after: Loaded,
    facts: Mapping[str, str] | None = None,
    given: Mapping[str, str] | None = None,
) -> Edited | None:
    """The text of a file in which ``before`` became ``after``; None where it cannot be done by changing single keys.

    In a script the default of a variable is edited where the override uses one, unless that would change another key too.

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
    variables: _Variables | None = None
    try:
        if is_script(text, name):
            variables = _Variables(text, name, dialect, before, after, facts, given)
            now, new = variables.now, variables.text
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
            now, new = _as_wanted(found, after), edited
        told = _says_no_less(now, dialect, after, facts, _unsaid(today, before))
        if not told or variables is None:
            return Edited(new) if told else None
        return Edited(new, tuple(variables.disconnected), variables.also())
    except RlctlError:
        return None


def with_own_value(text: str, name: str, dialect: str, loaded: Loaded, path: KeyPath, value: Any) -> str | None:
    """The text of a file with another value of one of its own keys (``GONE`` removes it); None if it cannot be edited so.

    Args:
        text: of the file.
        name: of the file.
        dialect: that it was read as, as ``verl@0.9``.
        loaded: what the text holds.
        path: the key, as the file writes it.
        value: plain.
    """
    edit = _in_script if is_script(text, name) else _in_yaml
    try:
        edited = edit(text, name, {path: value}, loaded, loaded, dialect, True)
    except RlctlError:
        return None
    return edited if edited != text else None


def reread(text: str, name: str, dialect: str, loaded: Loaded, given: Mapping[str, str] | None = None) -> Loaded:
    """Read a text again that held ``loaded``: a script may give other values each time, as with ``$(date)``."""
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
    was, now = (write_out(loaded, dialect, options).file.values for loaded in (before, after))
    yield from changed_leaves(was, now)


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
    """Read a text; a launch script with the variables that it is given.

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


def _as_wanted(found: Loaded, wanted: Loaded) -> Loaded:
    """A config without the links of values that are as wanted: ``${oc.env:LR,2e-6}`` says ``2e-6`` now, which is no change."""
    values = {setting.path: setting.value for setting in settings(wanted.config)}
    ours = {setting.path: setting.value for setting in settings(found.config)}
    kept = {
        path: link
        for path, link in found.expressions.items()
        if path in wanted.expressions or path not in values or values[path] != ours.get(path)
    }
    return replace(found, expressions=kept)


class _Variables:
    """A script whose variables say what they can of a change, one override after the other."""

    def __init__(
        self,
        text: str,
        name: str,
        dialect: str,
        before: Loaded,
        after: Loaded,
        facts: Mapping[str, str] | None,
        given: Mapping[str, str] | None,
    ) -> None:
        self.text, self.now = text, before
        self.disconnected: list[Disconnected] = []
        self._all = text
        """With every default edited that sets its key, whatever else changes by it."""
        self._before = before
        self._name, self._dialect, self._after = name, dialect, after
        self._facts, self._given = facts, given
        changes = dict(changed_keys(before, after, dialect, facts))
        for path, value in [*changes.items()]:
            if path in changes:
                changes = self._changed(path, value, changes)

    def _changed(self, path: KeyPath, value: Any, changes: dict[KeyPath, Any]) -> dict[KeyPath, Any]:
        """The changes that are left once the default of an override's variable is edited, if that changes nothing else."""
        lines, key = self.text.splitlines(keepends=True), dotted(path)
        used = _lines_in_use(self.now, self._name)
        found = _line_of(lines, key, used)
        if found is None or (place := _value_of(lines[found], key)) is None:
            return changes
        word = lines[found][slice(*place)]
        if not uses_variable(word):
            return changes
        variable = ""
        new = "" if value is GONE else Change(path, value).text().partition("=")[2]
        default = default_of(lines, found, *place, used) if is_plain(new) else None
        if default is not None:
            text = "".join(default.with_value(lines, new))
            read = _loaded(text, self._name, self._dialect, self._given)
            if read is not None:
                read = _as_wanted(read, self._after)
                left = dict(changed_keys(read, self._after, self._dialect, self._facts))
                if path not in left:
                    variable = default.variable
                    self._edit_in_all(found, key, used, new)
                    if left.keys() <= changes.keys():
                        self.text, self.now = text, read
                        return left
        self.disconnected.append(Disconnected(key, word, found + 1, variable))
        return changes

    def _edit_in_all(self, line: int, key: str, used: frozenset[int], value: str) -> None:
        lines = self._all.splitlines(keepends=True)
        place = _value_of(lines[line], key)
        default = default_of(lines, line, *place, used) if place is not None else None
        if default is not None:
            self._all = "".join(default.with_value(lines, value))

    def also(self) -> tuple[tuple[KeyPath, Any, Any], ...]:
        """Other values that would change if the default of each disconnected key's variable were edited."""
        if not any(one.variable for one in self.disconnected):
            return ()
        read = _loaded(self._all, self._name, self._dialect, self._given)
        return tuple(_moved(self._before, read, self._after)) if read is not None else ()


def _moved(before: Loaded, now: Loaded, wanted: Loaded) -> Iterator[tuple[KeyPath, Any, Any]]:
    """Unwanted changes: the path and both values of what should have stayed, keys of one dialect alone included."""
    old, new, meant = (_plain_values(one) for one in (before, now, wanted))
    found = [
        path
        for path in dict.fromkeys([*old, *new])
        if old.get(path) != new.get(path) and old.get(path) == meant.get(path)
    ]
    for path in found:
        both = old.get(path), new.get(path)
        is_inside = any(len(one) > len(path) and one[: len(path)] == path for one in found)
        if not (is_inside and all(isinstance(value, Mapping) for value in both)):
            yield path, *both


def _plain_values(loaded: Loaded) -> dict[KeyPath, Any]:
    return {setting.path: to_plain(setting.value) for setting in settings(loaded.config)}


def _prefixes(loaded: Loaded, dialect: str) -> dict[str, str]:
    """The prefix of each key of a script's overrides, such as ``+`` for one that the framework's config does not have.

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
        found = _line_of(lines, key, used)
        own = _prefix_of(lines[found], key) if found is not None else ""
        prefix = own if own == "++" else prefixes.get(key, own)
        written = word(Change(path, value, prefix).text(), lines=True)
        if found is not None:
            lines[found] = _override(key).sub(written.replace("\\", r"\\"), lines[found])
        else:
            added.append(written)
    if added:
        if (last := _last_override(lines, used)) is None:
            raise UsageError(
                said("rlctl cannot add overrides to {name}: none of its overrides is on a separate line", name=name)
            )
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
    """An override of a key as a word of a command, quoted as a whole or not."""
    named = rf"\+{{0,2}}{re.escape(key)}="
    quoted = rf"""\"{named}(?P<in_double>(?:\\.|[^"\\])*)\"|'{named}(?P<in_single>[^']*)'"""
    return re.compile(rf"(?<!\S)(?:{quoted}|{named}(?P<bare>{WORD}))")


def _prefix_of(line: str, key: str) -> str:
    """Hydra's prefix of a key in a line: none, ``+`` or ``++``."""
    found = re.search(rf"(\+{{0,2}}){re.escape(key)}=", line)
    return found[1] if found is not None else ""


def _value_of(line: str, key: str) -> tuple[int, int] | None:
    """The position of an override's value in its line; None for one in single quotes, which bash takes as it is."""
    found = _override(key).search(line)
    if found is None or found["in_single"] is not None:
        return None
    return found.span("bare" if found["bare"] is not None else "in_double")


_ANY_OVERRIDE = re.compile(rf"^\s+(?:--\S+\s+)?[\"']?\+{{0,2}}[A-Za-z_]\w*\.[\w.@/-]*={WORD}\s*(?:\\\s*)?$")
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
