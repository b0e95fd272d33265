"""YAML text to a Document, in one pass over the parser's events: values, positions and comments together.

Values are OmegaConf's (see ``scalars``), because that is what the three frameworks read. Nothing is constructed but
plain values, and every way to make a small text large or slow (aliases, nesting, tags, directives) has a limit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NoReturn

from rlctl.common.errors import DocumentError, Location
from rlctl.common.messages.reasons import said
from rlctl.documents.document import Document
from rlctl.documents.files import MAX_BYTES
from rlctl.documents.paths import KeyPath, copied, dotted
from rlctl.documents.scalars import plain_value
from rlctl.documents.yaml_comments import CommentTaker
from rlctl.documents.yaml_errors import parse_error
from rlctl.documents.yaml_flow import with_stand_ins, without_stand_ins

MAX_DEPTH = 100
MAX_NODES = 100_000
MAX_LINES = 500_000
MAX_DIRECTIVES = 8

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_DIRECTIVE = re.compile(r"^%", re.MULTILINE)
_NO_KEY: Any = object()
_MERGE: Any = object()


@dataclass(slots=True)
class Span:
    """The position of a node in the text, in characters: the part that an edit replaces."""

    start: int
    end: int
    key_start: int
    in_flow: bool
    collection: str = ""
    """``flow`` or ``block`` for a mapping or list, empty for a scalar or an alias."""
    column: int = 0
    """The column of the first key of a block mapping, or of the node itself."""


class _Frame:
    """A mapping or list that is being read."""

    __slots__ = ("anchor", "container", "first", "flow", "height", "key", "lines", "mark", "merges", "path", "silent")

    def __init__(self, container: Any, path: KeyPath, event: Any, nodes: int) -> None:
        self.container = container
        self.path = path
        self.mark = event.start_mark
        self.anchor: str | None = event.anchor
        self.flow: bool = event.flow_style
        self.first = nodes
        self.height = 1
        self.key: Any = _NO_KEY
        self.lines: dict[Any, int] = {}
        self.merges: list[Any] = []
        self.silent = False  # inside the value of '<<', whose keys have their place in another mapping


def read_yaml(text: str, name: str, *, allow_empty: bool = False) -> Document:
    """Read one YAML document whose top level is a mapping.

    Raises:
        DocumentError: the text is no such document, or asks for more than the limits; with file, line and column.
    """
    return Reader(text.removeprefix("\ufeff"), name).read(allow_empty=allow_empty)


class Reader:
    """Reads one YAML text, in one pass; see ``read_yaml``."""

    def __init__(self, text: str, name: str, *, with_spans: bool = False) -> None:
        self.text = text
        self.name = name
        self.with_spans = with_spans
        self._start()

    def _start(self) -> None:
        self.marks: dict[KeyPath, Location] = {}
        self.spans: dict[KeyPath, Span] | None = {} if self.with_spans else None
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        self._open_anchors: set[str] = set()
        self._nodes = 0
        self._root: Any = _NO_KEY
        self._comments = CommentTaker(self.text)

    def read(self, *, allow_empty: bool = False) -> Document:
        """Return the document; a reader reads once."""
        self._check_text()
        self._run()
        if self._root is None or self._root is _NO_KEY:
            if not allow_empty:
                raise DocumentError("holds no settings", at=Location(self.name), hint="expected lines 'key: value'")
            self._root = {}
        if not isinstance(self._root, dict):
            kind = "a list" if isinstance(self._root, list) else "a single value"
            at = self.marks.get((), Location(self.name, 1, 1))
            raise DocumentError(
                said("the top level is {kind}", kind=kind), at=at, hint="expected a mapping: lines 'key: value'"
            )
        return Document(self.name, self._root, self.marks, self._comments.found, self.text)

    def _check_text(self) -> None:
        text = self.text
        if len(text) > MAX_BYTES:
            self._fail(said("holds {count} characters; the limit is {limit}", count=len(text), limit=MAX_BYTES), 0)
        if match := _UNPRINTABLE.search(text):
            self._fail(
                said("holds the character U+{code:04X}, which YAML does not allow", code=ord(match[0])),
                match.start(),
                'delete it, or write it as an escape in double quotes, such as "\\x1b"',
            )
        if max(text.count("\n"), text.count("\r")) > MAX_LINES:
            self._fail(said("has more than {limit} lines", limit=MAX_LINES), 0, "is it the right file?")
        if len(_DIRECTIVE.findall(text)) > MAX_DIRECTIVES:
            self._fail("has too many lines that start with '%' (YAML directives)", 0, "delete them")

    def _run(self) -> None:
        from ruamel.yaml.error import YAMLError

        try:
            self._parse(self.text)
        except YAMLError as error:
            parsed = with_stand_ins(self.text)
            if parsed == self.text:
                raise parse_error(error, self.text, self.name) from None
            self._start()
            try:
                self._parse(parsed)
            except YAMLError as again:
                raise parse_error(again, self.text, self.name) from None

    def _parse(self, parsed: str) -> None:
        from ruamel.yaml import events
        from ruamel.yaml.cyaml import CBaseLoader

        handlers = {
            events.ScalarEvent: self._scalar if parsed is self.text else self._scalar_with_stand_ins,
            events.MappingStartEvent: self._open,
            events.SequenceStartEvent: self._open,
            events.MappingEndEvent: self._close,
            events.SequenceEndEvent: self._close,
            events.AliasEvent: self._alias,
            events.DocumentStartEvent: self._document_start,
        }
        parser = CBaseLoader(parsed)
        try:
            while not isinstance(event := parser.get_event(), events.StreamEndEvent):
                if (handler := handlers.get(type(event))) is not None:
                    handler(event)
            self._comments.finish()
        finally:
            parser.dispose()

    # Nodes

    def _scalar_with_stand_ins(self, event: Any) -> None:
        event.value = without_stand_ins(event.value)
        self._scalar(event)

    def _scalar(self, event: Any) -> None:
        frame = self._frames[-1] if self._frames else None
        is_key = frame is not None and type(frame.container) is dict and frame.key is _NO_KEY
        if frame is not None and is_key:
            self._key(frame, event)
            return
        path = self._enter(event)
        if event.style in ("|", ">"):
            self._comments.take_block_header(event.start_mark.index, event.end_mark.index, path)
        value = event.value if event.style else self._plain(event, dotted(path))
        if event.anchor:
            self._anchors[event.anchor] = (value, 1, 0)
        self._leave(event, value, path)

    def _plain(self, event: Any, what: str) -> Any:
        try:
            return plain_value(event.value)
        except ValueError as error:
            self._fail(
                said("'{what}' {error}", what=what, error=error),
                event.start_mark,
                "put it in quotes if it is meant as a string",
            )

    def _open(self, event: Any) -> None:
        if len(self._frames) >= MAX_DEPTH:
            self._fail(said("is nested deeper than {limit} levels", limit=MAX_DEPTH), event.start_mark)
        self._refuse_complex_key(event)
        path = self._enter(event)
        container: Any = {} if type(event).__name__ == "MappingStartEvent" else []
        if event.anchor:
            self._open_anchors.add(event.anchor)
        frame = _Frame(container, path, event, self._nodes)
        frame.silent = bool(self._frames) and (self._frames[-1].silent or self._frames[-1].key is _MERGE)
        self._frames.append(frame)
        if event.flow_style:
            self._comments.passed(event.end_mark.index, path)

    def _close(self, event: Any) -> None:
        frame = self._frames.pop()
        if frame.flow:
            self._comments.up_to(event.start_mark.index)
            self._comments.passed(event.end_mark.index, frame.path)
        if frame.merges:
            self._merge(frame)
        if frame.anchor:
            self._open_anchors.discard(frame.anchor)
            self._anchors[frame.anchor] = (frame.container, self._nodes - frame.first + 1, frame.height)
        if self.spans is not None and frame.path in self.spans:
            span = self.spans[frame.path]
            span.end, span.collection = self._comments.cursor, "flow" if frame.flow else "block"
        self._attach(frame.container, frame.height)

    def _alias(self, event: Any) -> None:
        self._refuse_complex_key(event)
        path = self._enter(event)
        if event.anchor in self._open_anchors:
            self._fail(
                said("'*{anchor}' refers to a value that contains it", anchor=event.anchor),
                event.start_mark,
                "write it out",
            )
        if event.anchor not in self._anchors:
            self._fail(
                said("'*{anchor}' refers to nothing: there is no '&{anchor}' above it", anchor=event.anchor),
                event.start_mark,
                "a string that starts with '*' needs quotes",
            )
        value, nodes, height = self._anchors[event.anchor]
        self._count(nodes - 1, event.start_mark)
        if len(self._frames) + height > MAX_DEPTH:
            self._fail(
                said(
                    "is nested deeper than {limit} levels through '*{anchor}'",
                    limit=MAX_DEPTH,
                    anchor=event.anchor,
                ),
                event.start_mark,
            )
        self._leave(event, copied(value), path, height)

    def _enter(self, event: Any) -> KeyPath:
        """Note the start of a value; return its path."""
        if getattr(event, "tag", None) is not None:
            self._fail(
                said("the tag '{tag}' is not allowed", tag=self._tag_text(event)),
                event.start_mark,
                "configs contain only plain values; delete the tag, or put a string that starts with '!' in quotes",
            )
        self._count(1, event.start_mark)
        start = event.start_mark
        self._comments.up_to(start.index, first=not self.marks)
        if not self._frames:
            self.marks[()] = Location(self.name, start.line + 1, start.column + 1)
            return ()
        frame = self._frames[-1]
        if type(frame.container) is list:
            path = (*frame.path, len(frame.container))
            self._mark(path, start)
        else:
            path = (*frame.path, "<<" if frame.key is _MERGE else frame.key)
        if self.spans is not None:
            key_start = self.spans[path].key_start if path in self.spans else start.index
            self.spans[path] = Span(start.index, start.index, key_start, frame.flow, "", start.column)
        return path

    def _leave(self, event: Any, value: Any, path: KeyPath, height: int = 0) -> None:
        """Note the end of a scalar or an alias."""
        self._comments.passed(event.end_mark.index, path)
        if self.spans is not None and path in self.spans:
            self.spans[path].end = event.end_mark.index
        self._attach(value, height)

    def _attach(self, value: Any, height: int) -> None:
        if not self._frames:
            self._root = value
            return
        frame = self._frames[-1]
        if height >= frame.height:
            frame.height = height + 1
        if type(frame.container) is list:
            frame.container.append(value)
        elif frame.key is _MERGE:
            frame.merges.append((value, frame.mark))
            frame.key = _NO_KEY
        else:
            frame.container[frame.key] = value
            frame.key = _NO_KEY

    # Keys

    def _key(self, frame: _Frame, event: Any) -> None:
        start = event.start_mark
        if event.tag is not None or event.anchor:
            self._fail(said("the key '{key}' has a tag or an anchor", key=event.value), start, "write the key alone")
        self._count(1, start)
        self._comments.up_to(start.index)
        key: Any = event.value if event.style else self._plain(event, f"the key {event.value}")
        path = (*frame.path, key)
        if event.value == "<<" and not event.style:
            frame.key = _MERGE
            path = (*frame.path, "<<")
        elif type(key) not in (str, int):
            shown = "an empty key" if not event.value else said("the key '{key}'", key=event.value)
            self._fail(
                said("{shown} means {key!r} to YAML, and is not a valid name", shown=shown, key=key),
                start,
                f'write it in quotes: "{event.value}":',
            )
        elif key in frame.lines:
            self._duplicate(frame, path, event)
        else:
            frame.key = key
            frame.lines[key] = start.line + 1
        self._mark(path, start)
        self._comments.passed(event.end_mark.index, path)
        if self.spans is not None:
            self.spans[path] = Span(event.end_mark.index, event.end_mark.index, start.index, frame.flow)

    def _duplicate(self, frame: _Frame, path: KeyPath, event: Any) -> NoReturn:
        self._fail(
            said("the key '{key}' is set here and on line {line}", key=dotted(path), line=frame.lines[path[-1]]),
            event.start_mark,
            "delete one of the two; which one wins depends on the YAML loader",
        )

    def _refuse_complex_key(self, event: Any) -> None:
        frame = self._frames[-1] if self._frames else None
        if frame is not None and type(frame.container) is dict and frame.key is _NO_KEY:
            self._fail(
                "expected a key, found a mapping, a list or an alias",
                event.start_mark,
                "a string that starts with '{', '[' or '*' needs quotes",
            )

    def _merge(self, frame: _Frame) -> None:
        """Fill in what ``<<`` brings: the mapping's own keys win, and of a list the earlier mapping."""
        inherited: dict[Any, Any] = {}
        for value, mark in frame.merges:
            sources = value if isinstance(value, list) else [value]
            for source in reversed(sources):
                if not isinstance(source, dict):
                    self._fail("'<<' takes a mapping or a list of mappings", mark, "write '<<: *name'")
                inherited.update(source)
        place = self.marks.pop((*frame.path, "<<"), None)
        own = dict(frame.container)
        frame.container.clear()
        frame.container.update(copied(inherited) | own)
        if place is not None:
            self.marks |= {(*frame.path, key): place for key in inherited if key not in own}

    # Places

    def _mark(self, path: KeyPath, mark: Any) -> None:
        if self._frames[-1].silent:
            return
        self.marks[path] = Location(self.name, mark.line + 1, mark.column + 1)
        if self._comments.pending:
            self._comments.claim(path)

    def _count(self, nodes: int, mark: Any) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            self._fail(
                said("holds more than {limit} values with aliases expanded", limit=MAX_NODES),
                mark,
                "is it the right file?",
            )

    def _document_start(self, event: Any) -> None:
        if self._root is not _NO_KEY:
            self._fail(
                "a second document starts here ('---')",
                event.start_mark,
                "a config is one document; put the second into a separate file",
            )

    def _tag_text(self, event: Any) -> str:
        written = self.text[event.start_mark.index : event.start_mark.index + 80].split()
        return next((word for word in written if word.startswith("!")), event.tag)

    def _fail(self, message: str, where: Any, hint: str = "") -> NoReturn:
        if isinstance(where, int):
            line = self.text.count("\n", 0, where)
            column = where - (self.text.rfind("\n", 0, where) + 1)
        else:
            line, column = where.line, where.column
        at = Location(self.name, line + 1, column + 1)
        raise DocumentError(
            said("column {value}: {message}", value=column + 1, message=message) if where else message, at=at, hint=hint
        )
