"""The structure of a shell script, by tree-sitter's grammar of bash: statements with their lines. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from rlctl.common.errors import DocumentError, Location
from rlctl.common.messages.reasons import said
from rlctl.shell.words import end_of_part

_INSIDE_WORD = re.compile(rb"(?<=[^\s\\])\\\n(?=[^\s#])")
_CONTINUED_BY_NOTHING = re.compile(rb"(?<=\s)\\(?=\s*\Z)")
_BROKEN_LINE = re.compile(rb"(?<=\s)\\[ \t]+(?=(?:#[^\n]*)?\n[ \t]*\S)")
_SAME_LINE = re.compile(rb"(?:[ \t]|\\\n)*")
_COMMENT = re.compile(rb"(^|\s)#")
_COMMENT_IN_COMMAND = re.compile(rb"(?<=\s)`#[^`\n]*`(?=\s|\\\n|\Z)")
_TEST = re.compile(r"(?<![^\s;&|(!])\[\[\s+(?=\S)")
_TEST_END = re.compile(r"\s+\]\](?=[\s;&|)]|\Z)")
_CASE = re.compile(r"(?<=[\s;])(?:in|;;)\s+\(?(?!esac\b)(?=\S)")
_CASE_END = re.compile(r"\)")
_QUOTED = frozenset({"string", "raw_string", "ansi_c_string", "heredoc_body"})


@dataclass(frozen=True)
class Script:
    """A parsed script. Words are read from its text, not from the tree: the grammar takes some of them apart wrongly."""

    name: str
    data: bytes
    root: Any
    first_line: int = 1

    def text(self, node: Any) -> str:
        """The source of a node."""
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def at(self, node: Any) -> Location:
        """The place of a node: file and line."""
        return Location(self.name, self.first_line + self.data.count(b"\n", 0, node.start_byte))

    def between(self, start: int, end: int) -> str:
        """The source between two bytes."""
        return self.data[start:end].decode("utf-8", "replace")


def parse(text: str, name: str, first_line: int = 1) -> Script:
    """Parse a script, or the inside of ``$( )``.

    Raises:
        DocumentError: it is no bash, from which line on.
    """
    data = _without_comments_in_commands(text.replace("\r\n", "\n").encode("utf-8", "replace"))
    masked = _masked(data)
    tree = _parser().parse(masked)
    for simpler in (_without_tests, _without_defaults):
        if not tree.root_node.has_error:
            break
        bare = simpler(masked)
        if bare != masked and (simpler is _without_tests or not _parser().parse(bare).root_node.has_error):
            masked, tree = bare, _parser().parse(bare)
    while (whole := _with_torn_words(tree.root_node, masked)) != masked:
        masked = whole
        tree = _parser().parse(masked)
    _refuse_broken_line(tree.root_node, data, name, first_line)
    if ends := list(_line_ends(tree.root_node, data)):
        for position in ends:
            masked = masked[:position] + b";" + masked[position + 1 :]
        tree = _parser().parse(masked)
    script = Script(name, data, tree.root_node, first_line)
    if (node := _first_error(tree.root_node)) is not None:
        shown = script.text(node).strip().split("\n")[0][:60]
        raise DocumentError(
            said("cannot be read as a bash script from {shown!r} on", shown=shown)
            if shown
            else "ends before a statement is complete",
            at=script.at(node),
            hint="check it with bash -n; --trace runs it in isolation instead of reading it",
        )
    return script


def _refuse_broken_line(root: Any, data: bytes, name: str, first_line: int) -> None:
    """A backslash before blanks at the end of a line continues nothing: bash runs the command without its other lines."""
    for match in _BROKEN_LINE.finditer(data):
        node = root.descendant_for_byte_range(match.start(), match.start() + 1)
        if not _is_quoted(node) and node.type != "comment":
            raise DocumentError(
                "the backslash is followed by a blank, so that the command ends here",
                at=Location(name, first_line + data.count(b"\n", 0, match.start())),
                hint="remove the blanks at the end of the line",
            )


@cache
def _parser() -> Any:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _without_comments_in_commands(data: bytes) -> bytes:
    """Blanks for comments between the words of a command, as `` `# so many` ``: to bash, a command that prints nothing."""
    comments = list(_COMMENT_IN_COMMAND.finditer(data))
    if not comments:
        return data
    blank = _COMMENT_IN_COMMAND.sub(lambda match: b" " * len(match[0]), data)
    root = _parser().parse(_masked(blank)).root_node
    found = bytearray(blank)
    for match in comments:
        if _is_quoted(root.descendant_for_byte_range(match.start(), match.end())):
            found[match.start() : match.end()] = match[0]
    return bytes(found)


def _is_quoted(node: Any) -> bool:
    while node is not None and node.type not in _QUOTED:
        node = node.parent
    return node is not None


def _masked(data: bytes) -> bytes:
    """The script with what the grammar takes apart wrongly in plain letters of the same length.

    Those are ``$(( ))``, some of which it takes for subshells, line ends inside of a word (``'a'\\`` before ``'b'``),
    and a backslash at the end of the script.
    """
    found = bytearray(data)
    if (last := _CONTINUED_BY_NOTHING.search(data)) is not None:
        found[last.start()] = ord(" ")
    for match in _INSIDE_WORD.finditer(data):
        line = data[data.rfind(b"\n", 0, match.start()) + 1 : match.start()]
        if _COMMENT.search(line) is None:
            found[match.start() : match.end()] = b"xx"
    position = 0
    while (start := data.find(b"$((", position)) >= 0:
        depth, end = 0, start + 1
        while end < len(data) and data[end : end + 1] != b"\n":
            depth += {b"(": 1, b")": -1}.get(data[end : end + 1], 0)
            end += 1
            if not depth:
                break
        if not depth and data[end - 2 : end] == b"))":
            found[start + 1 : end] = b"x" * (end - start - 1)
        position = max(end, start + 3)
    return bytes(found)


def _without_tests(data: bytes) -> bytes:
    """The script with plain letters in each ``[[ ]]`` and before the ``)`` of ``case``: the grammar reads not every pattern."""
    found = bytearray(data)
    text = data.decode("latin-1")
    for pattern, end in ((_TEST, _TEST_END), (_CASE, _CASE_END)):
        for match in pattern.finditer(text):
            stop = _stop(text, match.end(), end)
            if stop is not None:
                found[match.end() : stop] = re.sub(rb"[^\n]", b"x", data[match.end() : stop])
    return bytes(found)


def _stop(text: str, position: int, end: re.Pattern[str]) -> int | None:
    """The position of an end that is outside of quotes and expansions; None if there is none on the line."""
    nowhere = Location("")
    with suppress(DocumentError):
        while position < len(text) and text[position] != "\n":
            if end.match(text, position):
                return position
            after = end_of_part(text, position, nowhere)
            position = after if after > position else position + 1
    return None


def _without_defaults(data: bytes) -> bytes:
    """The script with plain letters in each ``${...}``: the grammar reads not every default, as ``${X:-["a"]}``."""
    found = bytearray(data)
    position = 0
    while (start := data.find(b"${", position)) >= 0:
        depth, end = 1, start + 2
        while depth and end < len(data) and data[end : end + 1] != b"\n":
            depth += {b"{": 1, b"}": -1}.get(data[end : end + 1], 0)
            end += 1
        if not depth:
            found[start + 2 : end - 1] = b"x" * (end - start - 3)
        position = end
    return bytes(found)


def _parts_of_commands(root: Any) -> Iterator[tuple[Any, Any]]:
    """An assignment before a command, and the part that follows."""
    nodes = [root]
    while nodes:
        node = nodes.pop()
        nodes += node.children
        is_one = node.type in ("command", "declaration_command")
        parts = [child for child in node.children if child.type != "comment"] if is_one else []
        yield from ((one, other) for one, other in pairwise(parts) if one.type == "variable_assignment")


def _with_torn_words(root: Any, data: bytes) -> bytes:
    """Ends of values in plain letters if the grammar counts them as the name of a command, as ``/d`` in ``A=$B/$C/d``."""
    found = bytearray(data)
    for one, other in _parts_of_commands(root):
        if one.end_byte == other.start_byte:
            found[other.start_byte : other.end_byte] = b"x" * (other.end_byte - other.start_byte)
    return bytes(found)


def _line_ends(root: Any, data: bytes) -> Iterator[int]:
    """The ends of lines of several assignments (``A=1 B=2``): the grammar counts the next lines as part of the same command."""
    for one, other in _parts_of_commands(root):
        if _SAME_LINE.fullmatch(data[one.end_byte : other.start_byte]) is None:
            yield one.end_byte


def _first_error(node: Any) -> Any:
    if not node.has_error:
        return None
    if node.type == "ERROR" or node.is_missing:
        return node
    return next((found for child in node.children if (found := _first_error(child)) is not None), node)
