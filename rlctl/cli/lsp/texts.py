"""Keys and values by their place in a text that may be half written: nothing here needs the text to be readable.

Lines and columns count from 0, columns in characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rlctl.translation.sources import is_script

_YAML_KEY = re.compile(r"""^(?P<indent>[ ]*(?:-[ ]+)*)(?P<quote>["']?)(?P<key>[\w.@/<>$-]+)(?P=quote)[ ]*:(?=\s|$)""")
_YAML_START = re.compile(r"^(?P<indent>[ ]*(?:-[ ]+)*)(?P<key>[\w.@/-]*)$")
_OVERRIDE = re.compile(r"""(?<![\w.$/@-])(?P<sign>[+~]{0,2})(?P<key>[A-Za-z_][\w.@/\[\]-]*)=""")
_OVERRIDE_START = re.compile(r"""(?:^|[\s"'(])(?P<sign>[+~]{0,2})(?P<key>[A-Za-z_][\w.]*)$""")
_VARIABLE = re.compile(r"\$\{?(?P<name>[A-Za-z_]\w*)")
_NODE = re.compile(r"\$\{(?P<name>[A-Za-z_][\w.]*)\}?")
_ALIAS = re.compile(r"\*(?P<name>[\w-]+)")


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a line."""

    line: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class KeyAt:
    """A key in a text."""

    path: tuple[str, ...]
    """``*`` is an item of a list."""
    span: Span
    """Of the key."""
    value: Span
    """Of what is after it on its line."""

    @property
    def name(self) -> str:
        """The key as an override has it, without indices."""
        return ".".join(part for part in self.path if part != "*")


@dataclass(frozen=True, slots=True)
class Typed:
    """What is being typed where a key or a value is expected."""

    parent: tuple[str, ...]
    """The sections around it; of an override those that are typed before its last dot."""
    start: str
    """What there is of it."""
    key: str = ""
    """The key, if a value is typed."""


class Text:
    """The lines of a file."""

    def __init__(self, content: str, name: str) -> None:
        self.content = content
        self.lines: Sequence[str] = content.splitlines()
        self.is_script = is_script(content, name)

    @cached_property
    def keys(self) -> list[KeyAt]:
        """Every key, in order; of a mapping in braces only the key before it."""
        return list(self._of_script() if self.is_script else self._of_yaml())

    def _of_script(self) -> Iterator[KeyAt]:
        for number, line in enumerate(self.lines):
            if line.lstrip().startswith("#"):
                continue
            for match in _OVERRIDE.finditer(line):
                end = _end_of_word(line, match.end())
                path = tuple(part for part in re.split(r"[.\[\]]+", match["key"]) if part)
                yield KeyAt(path, Span(number, match.start("key"), match.end("key")), Span(number, match.end(), end))

    def _of_yaml(self) -> Iterator[KeyAt]:
        around: list[tuple[int, str]] = []
        block = -1
        for number, line in enumerate(self.lines):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            indent = len(line) - len(line.lstrip(" "))
            if block >= 0 and indent > block:
                continue
            block = -1
            match = _YAML_KEY.match(line)
            start = _start_of_item(line) if line[indent] == "-" else 0
            dashes = [place for place in range(start) if line[place] == "-"]
            first = dashes[0] if dashes else indent
            while around and (
                around[-1][0] > first or (around[-1][0] == first and (not dashes or around[-1][1] == "*"))
            ):
                around.pop()
            around += [(dash, "*") for dash in dashes]
            if match is None:
                continue
            around.append((len(match["indent"]), match["key"]))
            rest = line[match.end() :]
            value = match.end() + len(rest) - len(rest.lstrip())
            end = len(_without_comment(line).rstrip())
            if re.match(r"[|>][+-]?\d*\s*$", line[value:end]):
                block = len(match["indent"])
            span = Span(number, match.start("key"), match.end("key"))
            yield KeyAt(tuple(part for _, part in around), span, Span(number, value, max(value, end)))

    def key_on(self, line: int, column: int) -> KeyAt | None:
        """The key at a place, or whose value is there."""
        found = [key for key in self._on_line.get(line, ()) if key.span.start <= column <= key.value.end]
        return found[-1] if found else None

    def find(self, name: str, near: int | None = None) -> KeyAt | None:
        """A key by its name in messages, such as ``data.train[0].path``; the one on a line, if that is known."""
        wanted = tuple(part for part in re.split(r"[.\[\]]+", name.lstrip("+~")) if part and not part.isdigit())
        if near is None:
            return next(iter(self._named.get(wanted, ())[-1:]), None)
        on_line = self._on_line.get(near, [])
        exact = [key for key in on_line if _names_of(key) == wanted]
        return next(iter(exact or [key for key in on_line if wanted and key.path[-1] == wanted[-1]]), None)

    @cached_property
    def paths(self) -> frozenset[tuple[str, ...]]:
        """The paths of all keys."""
        return frozenset(key.path for key in self.keys)

    @cached_property
    def _named(self) -> dict[tuple[str, ...], list[KeyAt]]:
        """The keys by their path without indices."""
        found: dict[tuple[str, ...], list[KeyAt]] = {}
        for key in self.keys:
            found.setdefault(_names_of(key), []).append(key)
        return found

    @cached_property
    def _on_line(self) -> dict[int, list[KeyAt]]:
        found: dict[int, list[KeyAt]] = {}
        for key in self.keys:
            found.setdefault(key.span.line, []).append(key)
        return found

    def typed(self, line: int, column: int) -> Typed | None:
        """What is typed at a place; None where neither a key nor a value is expected."""
        content = self.lines[line] if line < len(self.lines) else ""
        before = content[:column]
        if before.lstrip().startswith("#"):
            return None
        if self.is_script:
            key = next(
                (key for key in self.keys if key.span.line == line and key.value.start <= column <= key.value.end),
                None,
            )
            if key is not None:
                return Typed(key.path[:-1], content[key.value.start : column].strip("\"'"), ".".join(key.path))
            match = _OVERRIDE_START.search(before)
            if match is None:
                return None
            *parent, start = match["key"].split(".")
            return Typed(tuple(parent), start)
        if (match := _YAML_START.match(before)) is not None:
            return Typed(self._around(line, len(match["indent"])), match["key"])
        key = self.key_on(line, column)
        if key is not None and column >= key.value.start:
            return Typed(key.path[:-1], content[key.value.start : column].strip("\"'"), ".".join(key.path))
        return None

    def _around(self, line: int, indent: int) -> tuple[str, ...]:
        """The sections around a line that starts a key at an indentation."""
        for key in reversed([each for each in self.keys if each.span.line < line]):
            if key.span.start < indent and not self.lines[key.span.line][key.value.start : key.value.end]:
                return key.path
            if key.span.start == indent:
                return key.path[:-1]
        return ()

    def definition(self, line: int, column: int) -> Span | None:
        """Where the variable, the node or the anchor at a place is defined in the same text."""
        content = self.lines[line] if line < len(self.lines) else ""
        if self.is_script:
            name = _named(_VARIABLE, content, column)
            return self._assignment(name, line) if name else None
        if name := _named(_NODE, content, column):
            key = self.find(name)
            return key.span if key is not None else None
        if name := _named(_ALIAS, content, column):
            places = ((number, text.find(f"&{name}")) for number, text in enumerate(self.lines))
            return next((Span(number, at, at + len(name) + 1) for number, at in places if at >= 0), None)
        return None

    def _assignment(self, name: str, line: int) -> Span | None:
        """The last assignment of a variable before a line, else the first one."""
        pattern = re.compile(rf"(?:^|[;\s])(?P<name>{re.escape(name)})=")
        found = [
            Span(number, match.start("name"), match.end("name"))
            for number, text in enumerate(self.lines)
            if not text.lstrip().startswith("#") and (match := pattern.search(text))
        ]
        before = [span for span in found if span.line < line]
        return before[-1] if before else next(iter(found), None)

    def folds(self) -> Iterator[tuple[int, int, bool]]:
        """First and last line of what can be folded, and whether it is a comment: sections, commands, blocks of comments."""
        start: int | None = None
        for number, line in enumerate([*self.lines, ""]):
            is_comment = line.lstrip().startswith("#")
            if is_comment and start is None:
                start = number
            elif not is_comment and start is not None:
                if number - start > 2:
                    yield start, number - 1, True
                start = None
        yield from self._commands() if self.is_script else self._sections()

    def _commands(self) -> Iterator[tuple[int, int, bool]]:
        start: int | None = None
        for number, line in enumerate(self.lines):
            if line.rstrip().endswith("\\"):
                start = number if start is None else start
            elif start is not None:
                yield start, number, False
                start = None

    def _sections(self) -> Iterator[tuple[int, int, bool]]:
        keys = self.keys
        for place, key in enumerate(keys):
            size = len(key.path)
            after = (
                keys[other].span.line for other in range(place + 1, len(keys)) if keys[other].path[:size] != key.path
            )
            last = next(after, len(self.lines)) - 1
            while last > key.span.line and (not self.lines[last].strip() or self.lines[last].lstrip().startswith("#")):
                last -= 1
            if last > key.span.line:
                yield key.span.line, last, False


def _names_of(key: KeyAt) -> tuple[str, ...]:
    return tuple(part for part in key.path if part != "*")


def _named(pattern: re.Pattern[str], line: str, column: int) -> str:
    return next((match["name"] for match in pattern.finditer(line) if match.start() <= column <= match.end()), "")


def _start_of_item(line: str) -> int:
    """The column after the spaces and dashes that a line begins with."""
    found = re.match(r"[ ]*(?:-[ ]+)*", line)
    return found.end() if found is not None else 0


def _end_of_word(line: str, start: int) -> int:
    """The end of a word of a shell that begins at a place: quotes and brackets hold spaces."""
    quote, depth, place = "", 0, start
    while place < len(line):
        character = line[place]
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            if line[:start].count(character) % 2 == 1:  # it ends the quotes around the override
                return place
            quote = character
        elif character in "[{(":
            depth += 1
        elif character in ")}]":
            depth -= 1
        elif character.isspace() and depth <= 0:
            return place
        place += 1
    return place


def _without_comment(line: str) -> str:
    match = re.search(r"(?:^|\s)#", line)
    return line[: match.start()] if match else line
