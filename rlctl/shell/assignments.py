"""What sets variables: assignments, ``declare`` and its kin, ``unset``, and arithmetic such as ``((n++))``.

Only what a node or a source text says is needed here; which statements are run is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from rlctl.common.errors import DocumentError, Location
from rlctl.common.messages.reasons import said
from rlctl.shell.conditions import Status
from rlctl.shell.state import State, Value
from rlctl.shell.syntax import Script
from rlctl.shell.text import Text, hidden, literal, plain, unknown, unknown_items
from rlctl.shell.words import Words

HINT = "set the variable that decides it with --env NAME=VALUE, or run the script in isolation with --trace"
ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\[(?P<index>[^\]]*)\])?(?P<sign>\+?=)")
_PREFIXED = re.compile(r"\s*(\+\+|--)\s*([A-Za-z_]\w*)\s*")
_COUNTED = re.compile(r"\s*([A-Za-z_]\w*)\s*(\+\+|--)\s*")
_ASSIGNED = re.compile(r"\s*([A-Za-z_]\w*)\s*(\*|/|%|\+|-|<<|>>|&|\^|\|)?=(?!=)\s*(.*?)\s*", re.DOTALL)
_OWN_ITEM = re.compile(r"\[[^\]]*\]\+?=")


@dataclass(frozen=True)
class Assignment:
    """A variable, or an item of an array, and its value."""

    name: str
    value: Value
    at: Location
    index: str | None = None
    append: bool = False


class Assignments:
    """Sets variables of a state."""

    def __init__(self, state: State, words: Words) -> None:
        self.state = state
        self.words = words

    def declaration(self, script: Script, node: Any) -> Status:
        """``export``, ``local``, ``declare``: flags, then names and assignments, some of which come out of expansions.

        All words are expanded before the first variable is set: ``local a=1 b=$a`` sets b to what a was.
        """
        kind, flags = script.text(node.children[0]), ""
        found: list[tuple[Assignment | Text, Location]] = []
        for child in node.children[1:]:
            source, at = script.text(child), script.at(child)
            if child.type == "variable_assignment":
                found.append((self.of(script, child), at))
            elif not child.is_named:
                continue
            elif source[:1] in "-+":
                flags += source
            else:
                found += [(word, at) for word in self.words.fields(source, at)]
        for each, at in found:
            if isinstance(each, Assignment):
                self.store(each, own=self._is_local(kind, flags))
                self._declared(kind, flags, each.name, at)
            else:
                self._declare(kind, flags, each, at)
        return True

    def _declare(self, kind: str, flags: str, word: Text, at: Location) -> None:
        name, sign, value = plain(word).partition("=")
        if hidden(word) is not None or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise DocumentError(said("rlctl cannot tell which variable '{kind}' sets", kind=kind), at=at, hint=HINT)
        if "f" in flags and (kind == "export" or "x" in flags):
            self.state.exported_functions.add(name)
        if "f" in flags or "F" in flags or "p" in flags:
            return
        if self._is_local(kind, flags):
            self.state.localize(name)
        if sign:
            self.state.assign(name, literal(value, at))
        elif "a" in flags or "A" in flags:
            self.state.variables.setdefault(name, [])
        self._declared(kind, flags, name, at)

    def _is_local(self, kind: str, flags: str) -> bool:
        return bool(self.state.calls) and "g" not in flags and kind in ("local", "declare", "typeset")

    def _declared(self, kind: str, flags: str, name: str, at: Location) -> None:
        """Apply the flags of a declaration to its variable."""
        if odd := odd_flags(f"{kind} {flags}"):
            refuse_reference(kind, odd, at)
            flag = "+" if "+" in odd else f"-{min(odd)}"
            self.state.odd[name] = unknown(said("rlctl does not evaluate '{kind} {flag}'", kind=kind, flag=flag), at)
            self.state.assign(name, ())
        if kind == "export" and "n" in flags:
            self.state.exported.pop(name, None)
        elif kind == "export" or "x" in flags:
            self.state.exported[name] = at
        if kind == "readonly" or "r" in flags:
            self.state.fixed.add(name)

    def unset(self, script: Script, node: Any) -> Status:
        flags = ""
        for child in node.children[1:]:
            at = script.at(child)
            for word in self.words.fields(script.text(child), at) if child.is_named else ():
                self._unset_one(flags, word, at)
                flags += plain(word) if plain(word).startswith("-") else ""
        return True

    def _unset_one(self, flags: str, word: Text, at: Location) -> None:
        name = plain(word)
        if hidden(word) is not None or "n" in flags:
            raise DocumentError("rlctl cannot tell which variable 'unset' removes", at=at, hint=HINT)
        if name.startswith("-"):
            return
        if "[" in name:
            owner = name.partition("[")[0]
            self.state.variables[owner] = unknown_items(
                said("'unset {name}' leaves a gap in the array, which rlctl does not evaluate", name=name), at
            )
        elif "f" in flags or (name not in self.state.variables and name in self.state.functions):
            self.state.functions.pop(name, None)
        else:
            self.state.unset_by_script(name)

    def of(self, script: Script, node: Any) -> Assignment:
        """Read an assignment from its node."""
        source, at = script.text(node), script.at(node)
        match = ASSIGNMENT.match(source)
        if match is None:
            raise DocumentError(
                said("rlctl does not evaluate the assignment {source!r}", source=source[:40]), at=at, hint=HINT
            )
        name, value, append = match["name"], node.child_by_field_name("value"), match["sign"] == "+="
        if value is not None and value.type == "array":
            return Assignment(name, self._array(script, value), at, append=append)
        text = self.words.text(source[match.end() :], script.at(value) if value is not None else at)
        return Assignment(name, text, at, match["index"], append)

    def _array(self, script: Script, value: Any) -> list[Text]:
        sources = word_sources(script, value.children[1:-1])
        if any(_OWN_ITEM.match(source) for source, _ in sources):
            why = said("rlctl does not evaluate an array whose items name their places")
            return unknown_items(why, script.at(value))
        return [item for source, at in sources for item in self.words.fields(source, at)]

    def store(self, assignment: Assignment, *, own: bool = False) -> None:
        """Assign; with ``own``, to a new local variable."""
        name, value = assignment.name, assignment.value
        if own:
            self.state.localize(name)
        if assignment.index is not None and not isinstance(value, list):
            self._assign_item(name, assignment.index, value, assignment.at, append=assignment.append)
        else:
            self.state.assign(name, value, append=assignment.append)
        if self.state.exports_all and not isinstance(value, list):
            self.state.exported[name] = assignment.at

    def _assign_item(self, name: str, index: str, text: Text, at: Location, *, append: bool) -> None:
        if name in self.state.odd or name in self.state.fixed:
            self.state.assign(name, text)
            return
        items = self.state.items(name, at)
        where = self.words.arithmetic(index, at)
        number = int(plain(where)) if hidden(where) is None and re.fullmatch(r"-?\d{1,18}", plain(where)) else -1
        if not 0 <= number <= len(items):
            why = said(
                "{item} is set at line {line} in a way that rlctl does not evaluate",
                item=f"{name}[{index}]",
                line=at.line,
            )
            self.state.variables[name] = unknown_items(why, at)
            return
        if number == len(items):
            items.append(())
        items[number] = (*items[number], *text) if append else text
        self.state.variables[name] = items

    def arithmetic(self, source: str, at: Location) -> Status:
        """``(( ))``, whose status is whether its value is another than 0."""
        if match := _PREFIXED.fullmatch(source):
            source = f"{match[2]} {match[1][0]}= 1"
        before: Text | None = None
        if match := _COUNTED.fullmatch(source):
            before = self.words.arithmetic(match[1], at)
            source = f"{match[1]} {match[2][0]}= 1"
        if match := _ASSIGNED.fullmatch(source):
            name, operator, rest = match.groups()
            value = self.words.arithmetic(f"{name} {operator} ({rest})" if operator else rest, at)
            self.state.assign(name, value)
        else:
            value = self.words.arithmetic(source, at)
        told = value if before is None else before
        return None if hidden(told) is not None else plain(told) != "0"


def odd_flags(source: str) -> set[str]:
    """Flags of ``declare`` and its kin that give a variable a property which is not read here."""
    kind, _, rest = source.partition(" ")
    flags = {flag for word in re.findall(r"(?:^|\s)([-+]\S+)", rest) for flag in word}
    return flags - set("-axrgfFp") - ({"n"} if kind == "export" else set())


def refuse_reference(kind: str, odd: Collection[str], at: Location) -> None:
    """Refuse a reference (``-n``): assigning to it changes another variable."""
    if "n" in odd:
        raise DocumentError(said("rlctl does not evaluate '{kind} {flag}'", kind=kind, flag="-n"), at=at, hint=HINT)


def word_sources(script: Script, nodes: Sequence[Any]) -> list[tuple[str, Location]]:
    """The source of each word; nodes without a blank between them are one word."""
    spans: list[tuple[int, int, Location]] = []
    for node in nodes:
        if node.type == "comment" or not node.end_byte > node.start_byte or node.type == "\n":
            continue
        if spans and spans[-1][1] == node.start_byte:
            spans[-1] = (spans[-1][0], node.end_byte, spans[-1][2])
        else:
            spans.append((node.start_byte, node.end_byte, script.at(node)))
    return [(script.between(start, end), at) for start, end, at in spans]
