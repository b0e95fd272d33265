"""Changes in a YAML text that leave every other byte as it was.

Each change replaces the characters of one value, found by a reading with positions. The result is read again and must
hold exactly the values asked for. If surgery cannot do that, as when a whole mapping is replaced, ruamel.yaml changes the
document, or it is written again with its comments: whichever leaves more lines as they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rlctl.common.errors import DocumentError
from rlctl.common.messages.reasons import said
from rlctl.documents.document import Document, holds_mapping
from rlctl.documents.paths import KeyPath, copied, dotted
from rlctl.documents.yaml_read import Reader, Span, read_yaml
from rlctl.documents.yaml_round_trip import GONE, round_trips
from rlctl.documents.yaml_write import Emitter, check_depth, inline_text, is_list, key_text, write_yaml


class _NotSurgicalError(Exception):
    """The change cannot be made by replacing characters."""


def edit_yaml(document: Document, changes: Mapping[KeyPath, Any], *, delete: Sequence[KeyPath] = ()) -> str:
    """Return the document's text with some values changed, added or deleted.

    A new key is put at the end of its mapping, with the mappings that lead to it; an item of a list can be replaced, or
    added at its end. Deleting a key takes its own comments along. Deletions come first.

    Raises:
        DocumentError: the text is not YAML, a path leads through something that is no mapping, or is not there to be
            deleted, or a value has no form in YAML.
    """
    text, name = document.text, document.name
    values = read_yaml(text, name, allow_empty=True).values
    for path in delete:
        text, values = _edit(text, name, _without(values, path, document), path, GONE)
    for path, value in changes.items():
        check_depth(value, path)
        text, values = _edit(text, name, _with(values, path, value, document), path, value)
    return text


def _edit(text: str, name: str, wanted: dict[Any, Any], path: KeyPath, value: Any) -> tuple[str, dict[Any, Any]]:
    """Return the text in which ``path`` is as in ``wanted``, and its values."""
    reader = Reader(text, name, with_spans=True)
    before = reader.read(allow_empty=True)
    try:
        edited = _Surgery(before, reader.spans or {}).edited(wanted, path, value)
        after = read_yaml(edited, name, allow_empty=True)
        if _same(after.values, wanted):
            return edited, after.values
    except (_NotSurgicalError, DocumentError):
        pass  # an edit that does not read back as wanted is not used
    moved = ((_moved(at, path) if value is GONE else at, comment) for at, comment in before.comments.items())
    kept = {at: comment for at, comment in moved if at is not None and _lookup(wanted, at)}
    rewritten = write_yaml(wanted, comments=kept)
    candidates = [each for each in round_trips(text, path, value) if _is_as_good(each, rewritten, wanted, name)]
    return min((*candidates, rewritten), key=lambda each: _lines_changed(text, each)), wanted


def _moved(at: KeyPath, gone: KeyPath) -> KeyPath | None:
    """The path of a key after another is deleted: later items of a list move up. None for a key inside the deleted one."""
    *above, last = gone
    size = len(above)
    if at[: size + 1] == gone:
        return None
    if at[:size] == (*above,) and len(at) > size and isinstance(last, int) and isinstance(index := at[size], int):
        return (*above, index - (index > last), *at[size + 1 :])
    return at


def _is_as_good(candidate: str, rewritten: str, wanted: dict[Any, Any], name: str) -> bool:
    """Whether a text holds the values that are wanted, and every comment of the one that rlctl would write itself."""
    try:
        found = read_yaml(candidate, name, allow_empty=True)
    except DocumentError:
        return False
    return _same(found.values, wanted) and _comments(read_yaml(rewritten, name, allow_empty=True)) <= _comments(found)


def _comments(document: Document) -> Counter[str]:
    lines = (line for each in document.comments.values() for line in (*each.above, each.beside, *each.below))
    return Counter(filter(None, (line.strip("# ") for line in lines)))


def _lines_changed(before: str, after: str) -> int:
    """Lines that are in one text and not in the other."""
    old, new = Counter(before.splitlines()), Counter(after.splitlines())
    return (old - new).total() + (new - old).total()


class _Surgery:
    """Replaces characters of one text."""

    def __init__(self, document: Document, spans: Mapping[KeyPath, Span]) -> None:
        self.text = document.text
        self.values = document.values
        self.spans = spans
        self.newline = "\r\n" if "\r\n" in self.text else "\n"

    def edited(self, wanted: dict[Any, Any], path: KeyPath, value: Any) -> str:
        """Return the text with ``path`` as in ``wanted``: deleted, replaced or added."""
        span = self.spans.get(path)
        if value is GONE:
            return self._deleted(path, span)
        if span is not None:
            return self._replaced(path, span, value)
        parent = next(path[:size] for size in range(len(path) - 1, -1, -1) if size == 0 or path[:size] in self.spans)
        return self._added(wanted, parent, path[len(parent)])

    def _cut(self, start: int, end: int, new: str) -> str:
        return self.text[:start] + new.replace("\n", self.newline) + self.text[end:]

    def _replaced(self, path: KeyPath, span: Span, value: Any) -> str:
        if span.collection == "block":
            raise _NotSurgicalError
        inline = span.in_flow or span.collection == "flow" or not _wants_lines(value)
        if not inline and isinstance(path[-1], int):
            raise _NotSurgicalError
        old = self.text[span.start : span.end]
        if old.startswith(("|", ">")):
            end = span.start + len(old.rstrip())
        else:
            end = span.end
        blank = " " if span.start == span.end and not self.text[span.start - 1].isspace() else ""
        if inline:
            return self._cut(span.start, end, blank + inline_text(value, path, in_flow=span.in_flow))
        after_key = self.text[: span.start].rstrip(" ")
        lines = self._block(value, path, self._column(span.key_start))
        return after_key + self.newline + self.newline.join(lines) + self.text[end:]

    def _block(self, value: Any, path: KeyPath, column: int) -> list[str]:
        lines: list[str] = []
        emitter = Emitter({}, lines)
        if isinstance(value, Mapping):
            emitter.mapping(value, path, column + 2)
        else:
            emitter.items(value, path, column + 2)
        return lines

    def _column(self, index: int) -> int:
        return index - (max(self.text.rfind("\n", 0, index), self.text.rfind("\r", 0, index)) + 1)

    def _added(self, wanted: dict[Any, Any], parent: KeyPath, key: Any) -> str:
        container, new = _get(wanted, parent), _get(wanted, (*parent, key))
        span = self.spans.get(parent)
        if span is not None and (span.collection != "block" or not _get(self.values, parent)):
            if not isinstance(container, dict | list) or span.collection == "block":
                raise _NotSurgicalError
            return self._replaced(parent, span, container)
        if not self.values:
            raise _NotSurgicalError
        first = self.spans[(*parent, next(iter(_keys(_get(self.values, parent)))))]
        place = (*parent, key)
        lines: list[str] = []
        if isinstance(container, dict):
            start = " " * self._column(first.key_start) + f"{key_text(key, place)}:"
            Emitter({}, lines).node(start, new, place, self._column(first.key_start))
        else:
            dash = self.text.rfind("-", 0, first.start)
            Emitter({}, lines).items([new], parent, self._column(dash))
        end = self._line_end(span.end if span is not None else max(span.end for span in self.spans.values()))
        joint = "" if self.text[:end].endswith(("\n", "\r")) or end == 0 else "\n"
        if joint and isinstance(container, dict) and (last := self._open_block(parent)) is not None:
            end, joint = last, ""
        return self._cut(end, end, joint + "\n".join(lines) + "\n")

    def _open_block(self, parent: KeyPath) -> int | None:
        """The start of a mapping's last key, if the file ends in a block scalar (``|``) without a line end.

        A line end more would be a part of that text.
        """
        ends = [span for span in self.spans.values() if span.end == len(self.text)]
        if not any(self.text.startswith(("|", ">"), span.start) for span in ends):
            return None
        *_, key = _keys(_get(self.values, parent))
        return self._comment_start(self.text.rfind("\n", 0, self.spans[(*parent, key)].key_start) + 1)

    def _deleted(self, path: KeyPath, span: Span | None) -> str:
        if span is None or span.in_flow or not _has_neighbours(self.values, path):
            raise _NotSurgicalError
        start = self.text.rfind("\n", 0, span.key_start) + 1
        if self.text[start : span.key_start].strip() != ("-" if isinstance(path[-1], int) else ""):
            raise _NotSurgicalError
        start = self._comment_start(start)
        return self._cut(start, self._line_end(span.end), "")

    def _comment_start(self, start: int) -> int:
        """Return where the comment lines directly above ``start`` begin; those that open the file stay."""
        while start > 0:
            above = self.text.rfind("\n", 0, start - 1) + 1
            if not self.text[above:start].lstrip().startswith("#"):
                return start
            start = above
        return start

    def _line_end(self, index: int) -> int:
        """Return the start of the line after the value that ends at ``index``; blank lines are not part of it."""
        found = self.text.find("\n", len(self.text[:index].rstrip()))
        return len(self.text) if found < 0 else found + 1


def _wants_lines(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value)
    return is_list(value) and holds_mapping(list(value))


def _has_neighbours(values: dict[Any, Any], path: KeyPath) -> bool:
    return len(_get(values, path[:-1])) > 1


def _keys(container: Any) -> Sequence[Any]:
    return list(container) if isinstance(container, dict) else range(len(container))


def _get(values: Any, path: KeyPath) -> Any:
    for part in path:
        values = values[part]
    return values


def _lookup(values: Any, path: KeyPath) -> bool:
    """Return whether there is something at ``path``."""
    for part in path:
        inside = isinstance(values, dict) and part in values
        if not inside and not (isinstance(values, list) and isinstance(part, int) and part < len(values)):
            return False
        values = values[part]
    return True


def _with(values: dict[Any, Any], path: KeyPath, value: Any, document: Document) -> dict[Any, Any]:
    result: dict[Any, Any] = copied(values)
    container: Any = result
    for size, part in enumerate(path, 1):
        last = size == len(path)
        if isinstance(container, list) and isinstance(part, int) and 0 <= part <= len(container):
            if part == len(container):
                container.append({})
        elif not isinstance(container, dict):
            raise _wrong_path(document, path, path[: size - 1])
        elif not last and container.get(part) is None:
            container[part] = {}
        if last:
            container[part] = copied(value)
        else:
            container = container[part]
    return result


def _without(values: dict[Any, Any], path: KeyPath, document: Document) -> dict[Any, Any]:
    if not path or not _lookup(values, path):
        raise DocumentError(said("there is no '{path}' to delete", path=dotted(path)), at=document.at(path))
    result: dict[Any, Any] = copied(values)
    del _get(result, path[:-1])[path[-1]]
    return result


def _wrong_path(document: Document, path: KeyPath, found: KeyPath) -> DocumentError:
    return DocumentError(
        said(
            "'{path}' cannot be set: '{found}' is neither a mapping nor a list that long",
            path=dotted(path),
            found=dotted(found),
        ),
        at=document.at(found),
    )


def _same(one: Any, other: Any) -> bool:
    """Return whether two trees are equal in values and types; a key's place among others is no value."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(item, other[key]) for key, item in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return repr(one) == repr(other)
