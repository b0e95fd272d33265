"""The comments between the nodes of a YAML text, which the parser skips, and the keys they belong to."""

from __future__ import annotations

import re
from dataclasses import replace

from rlctl.documents.document import Comment
from rlctl.documents.paths import KeyPath

_BREAKS = "\r\n\x85\u2028\u2029"
_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")


class CommentTaker:
    """Takes the comments along as a reader passes over a text, node by node.

    A comment on the line of a node belongs to that node; lines of comment belong to the next key or item; what stands
    before the last blank line above the first key is the document's head, and what follows the last node its tail.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.found: dict[KeyPath, Comment] = {}
        self.cursor = 0
        """The end of the last node."""
        self.last: KeyPath = ()
        """The last node."""
        self.pending: list[str] = []
        """The lines of comment that wait for their key."""
        self._taken = 0  # the end of what was searched
        self._hash = text.find("#")  # the next character that may start a comment

    def passed(self, end: int, path: KeyPath) -> None:
        """Note that the node ``path`` was read up to the character ``end``."""
        self.cursor = end
        self.last = path

    def up_to(self, index: int, *, first: bool = False) -> None:
        """Take the comments between the last node and the node that starts at ``index``, the document's ``first``."""
        start = max(self.cursor, self._taken)
        if 0 <= self._hash < start:
            self._hash = self.text.find("#", start)
        if 0 <= self._hash < index:
            self._take(self.text[start:index], inside_line=start == self.cursor and self._inside_line())
            self._taken = index
            if first:
                self._split_head()

    def claim(self, path: KeyPath) -> None:
        """Give the waiting lines to the key or item ``path``."""
        lines = tuple(line for line in self.pending if line)
        self.pending = []
        if lines:
            self.found[path] = Comment(above=lines)

    def take_block_header(self, start: int, end: int, path: KeyPath) -> None:
        """Take the comment on the first line of the block text that stands from ``start`` to ``end``."""
        header = _BREAK.split(self.text[start:end], maxsplit=1)[0]
        if "#" in header:
            self._beside(path, _clean(header.partition("#")[2]))

    def finish(self) -> None:
        """Take the comments after the last node."""
        self.up_to(len(self.text))
        if tail := _trimmed(self.pending):
            self.found[()] = replace(self.found.get((), Comment()), below=tail)

    def _take(self, gap: str, *, inside_line: bool) -> None:
        lines = _BREAK.split(gap)
        if inside_line:
            comment = lines.pop(0).partition("#")[2]
            if comment:
                self._beside(self.last, _clean(comment))
        for number, line in enumerate(lines, 1):
            before, found, comment = line.partition("#")
            if found or (not before.strip() and number < len(lines)):
                self.pending.append(_clean(comment) if found else "")

    def _inside_line(self) -> bool:
        """Return whether the last node ends on the line where reading goes on; a block text ends after its line."""
        end = self.cursor
        while end > 0 and self.text[end - 1] == " ":
            end -= 1
        return self.cursor > 0 and (end == 0 or self.text[end - 1] not in _BREAKS)

    def _split_head(self) -> None:
        lines = self.pending
        if "" in lines:
            split = len(lines) - lines[::-1].index("")
            self.pending = lines[split:]
            self.found[()] = Comment(above=_trimmed(lines[:split]))

    def _beside(self, path: KeyPath, text: str) -> None:
        old = self.found.get(path, Comment())
        self.found[path] = replace(old, beside=f"{old.beside} {text}".strip())


def _clean(comment: str) -> str:
    return comment.removeprefix(" ").rstrip()


def _trimmed(lines: list[str]) -> tuple[str, ...]:
    """Return the lines without the empty ones at both ends."""
    filled = [number for number, line in enumerate(lines) if line]
    return tuple(lines[filled[0] : filled[-1] + 1]) if filled else ()
