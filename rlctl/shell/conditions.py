"""``[ ]``, ``[[ ]]`` and ``test``: whether a condition holds, or that only running the script could tell."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlctl.common.errors import DocumentError, Location
from rlctl.common.filenames import is_file, is_folder
from rlctl.common.messages.reasons import said
from rlctl.shell.patterns import as_regex, from_extended, is_costly, is_unread
from rlctl.shell.state import State
from rlctl.shell.syntax import Script
from rlctl.shell.text import Text, hidden, literal, plain, problem, unknown_items
from rlctl.shell.words import Words, end_of_part

Status = bool | None
"""Whether a command succeeds; None where only running it could tell."""

_REPEATS = re.compile(r"[+*{]")
_NESTED = re.compile(r"\)[+*{]")
_MAX_REPEATS = 3
_MAX_SUBJECT = 400
_OF_FILES = ("-a", "-d", "-e", "-f", "-r")
_UNARY = re.compile(r"-[a-zA-Z]")
_BLANK = re.compile(r"(?:\s|\\\n)+")
_PATTERNS = ("=", "==", "!=", "=~")
_ENDS = ("", "&&", "||", ")")
_NUMBERS = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}
_BINARY = frozenset({*_PATTERNS, *_NUMBERS, "<", ">", "-nt", "-ot", "-ef"})


class Conditions:
    """Decides conditions in a state."""

    def __init__(self, state: State, words: Words) -> None:
        self.state = state
        self.expand = words

    def test(self, script: Script, node: Any) -> Status:
        """A condition in brackets, read from its text: the grammar takes words such as ``*"a"*`` apart."""
        opening, at = node.children[0], script.at(node)
        source = script.between(opening.end_byte, node.children[-1].start_byte)
        if script.text(opening) == "[[":
            return self._expression(_Parser(source, at).whole())
        return self.words([word for text in _raw_words(source, at) for word in self.expand.fields(text, at)], at)

    def words(self, words: list[Text], at: Location) -> Status:
        """A condition as ``test`` takes it."""
        texts = [plain(word) for word in words]
        for sign, neutral in (("-o", False), ("-a", True)):
            if sign in texts[1:-1]:
                place = texts.index(sign, 1)
                left, right = self.words(words[:place], at), self.words(words[place + 1 :], at)
                return _both(left, right, neutral=neutral)
        if texts[:1] == ["!"]:
            status = self.words(words[1:], at)
            return None if status is None else not status
        if any(problem(word) is not None for word in words):
            return None
        if not texts:
            return False
        if len(texts) == 1:
            return bool(texts[0])
        if len(texts) == 2:
            return self._unary(texts[0], words[1])
        if len(texts) == 3:
            return (
                None
                if _tells_of_secret(words[0], words[2])
                else self._compare(texts[0], texts[1], texts[2], pattern=False, at=at)
            )
        raise DocumentError(said("rlctl does not evaluate the condition '{names}'", names=" ".join(texts)[:60]), at=at)

    def _expression(self, tree: _Tree) -> Status:
        if isinstance(tree, _Term):
            return self._term(tree)
        if tree.sign == "!":
            status = self._expression(tree.parts[0])
            return None if status is None else not status
        first = self._expression(tree.parts[0])
        if first is (tree.sign == "||"):
            return first
        return _both(first, self._expression(tree.parts[1]), neutral=tree.sign == "&&")

    def _term(self, term: _Term) -> Status:
        """``-n word``, ``word == pattern`` or a word alone, in ``[[ ]]``."""
        if not term.operator:
            value = self.expand.text(term.right, term.at)
            return None if problem(value) is not None else bool(plain(value))
        if not term.left:
            value = self.expand.text(term.right, term.at)
            return None if problem(value) is not None else self._unary(term.operator, value)
        subject = self.expand.text(term.left, term.at)
        is_pattern = term.operator in _PATTERNS
        value = self.expand.pattern(term.right, term.at) if is_pattern else self.expand.text(term.right, term.at)
        if problem(subject) or problem(value) or _tells_of_secret(subject, value):
            return None
        if term.operator == "=~":
            return self._search(plain(subject), plain(value), term.at)
        return self._compare(plain(subject), term.operator, plain(value), pattern=is_pattern, at=term.at)

    def _unary(self, operator: str, value: Text) -> Status:
        if operator == "-n":
            return bool(plain(value))
        if operator in ("-z", "!"):
            return not plain(value)
        if operator == "-v" and hidden(value) is None:
            return self.state.look_up(plain(value), Location("")) is not None
        if operator in _OF_FILES and hidden(value) is None and plain(value) and "\0" not in plain(value):
            return self._is_there(operator, plain(value))
        return None

    def _is_there(self, operator: str, name: str) -> Status:
        """Whether a file is there: known only of those next to the script and below, which the script does not change."""
        path, beside = self.state.path(name), Path(self.state.script).parent.resolve()
        if not is_file(self.state.script) or not path.is_relative_to(beside) or self.state.written(path):
            return None
        return True if (is_folder(path) if operator == "-d" else is_file(path)) else None

    def _search(self, subject: str, source: str, at: Location) -> Status:
        """``[[ =~ ]]``, which leaves what its groups matched in BASH_REMATCH."""
        found = None if self._is_costly_search(subject, source) else _searched(source, subject)
        if found is None or "|" in source:  # POSIX takes the longest alternative, Python the first
            self.state.assign(
                "BASH_REMATCH", unknown_items(said("rlctl does not evaluate this regular expression"), at)
            )
            return None if found is None else bool(found)
        self.state.assign("BASH_REMATCH", [literal(group or "", at) for group in found])
        return bool(found)

    def _is_costly_search(self, subject: str, source: str) -> bool:
        return (
            len(subject) > _MAX_SUBJECT or bool(_NESTED.search(source)) or len(_REPEATS.findall(source)) > _MAX_REPEATS
        )

    def _compare(self, left: str, operator: str, right: str, *, pattern: bool, at: Location) -> Status:
        if pattern and (is_costly(left, right) or is_unread(right)):
            return None
        if operator in ("=", "==", "!="):
            same = re.fullmatch(as_regex(right, groups=True), left, re.DOTALL) is not None if pattern else left == right
            return same is (operator != "!=")
        if operator in _NUMBERS:
            numbers = [self.expand.arithmetic(text, at) for text in (left, right)]
            if any(hidden(number) is not None for number in numbers):
                return None
            first, second = (int(plain(number)) for number in numbers)
            return {
                "-eq": first == second,
                "-ne": first != second,
                "-lt": first < second,
                "-le": first <= second,
                "-gt": first > second,
                "-ge": first >= second,
            }[operator]
        if operator in ("<", ">"):
            return left < right if operator == "<" else left > right
        return None


def _searched(source: str, subject: str) -> list[str | None] | None:
    """The texts that a regular expression and its groups match; empty if it matches nowhere, None if Python cannot read it."""
    regex = from_extended(source)
    if regex is None:
        return None
    try:
        match = re.search(regex, subject, re.DOTALL)
    except re.error:
        return None
    return [match[0], *match.groups()] if match else []


def _tells_of_secret(left: Text, right: Text) -> bool:
    """Whether comparing two texts would tell more of a secret than that there is one."""
    return any(plain(text) and hidden(other) for text, other in ((left, right), (right, left)))


def _both(left: Status, right: Status, *, neutral: bool) -> Status:
    """``&&`` where ``neutral`` is true, else ``||``: known where one side alone decides it."""
    if left is (not neutral) or right is (not neutral):
        return not neutral
    return None if left is None or right is None else neutral


def _raw_words(source: str, at: Location) -> list[str]:
    """Words as they are written, quotes and expansions whole."""
    found: list[str] = []
    position = 0
    while position < len(source):
        start = position
        while position < len(source) and not source[position].isspace():
            end = end_of_part(source, position, at)
            position = end if end > position else position + 1
        found += [source[start:position]] if position > start else []
        position += 1
    return found


@dataclass(frozen=True)
class _Term:
    """A test in ``[[ ]]``: a word alone, or an operator with one or two words."""

    left: str
    operator: str
    right: str
    at: Location


@dataclass(frozen=True)
class _Joined:
    """Tests under ``!``, ``&&`` or ``||``."""

    sign: str
    parts: tuple[_Tree, ...]


_Tree = _Term | _Joined


class _Parser:
    """Splits the inside of ``[[ ]]`` into words, at blanks and operators."""

    def __init__(self, source: str, at: Location) -> None:
        self.source = source
        self.at = at
        self.position = 0

    def whole(self) -> _Tree:
        tree = self._level("||", "&&")
        if self._sign():
            raise self._unreadable()
        return tree

    def _level(self, sign: str, tighter: str = "") -> _Tree:
        tree = self._level(tighter) if tighter else self._single()
        while self._sign() == sign:
            self.position += len(sign)
            tree = _Joined(sign, (tree, self._level(tighter) if tighter else self._single()))
        return tree

    def _single(self) -> _Tree:
        sign = self._sign()
        if sign == "(":
            self.position += 1
            tree = self._level("||", "&&")
            if self._sign() != ")":
                raise self._unreadable()
            self.position += 1
            return tree
        at = self._place()
        first = self._word()
        if first == "!":
            return _Joined("!", (self._single(),))
        if _UNARY.fullmatch(first) and self._sign() not in _ENDS:
            return _Term("", first, self._word(), at)
        if self._sign() in _ENDS:
            return _Term("", "", first, at)
        operator = self._sign() if self._sign() in ("<", ">") else self._word()
        self.position += len(operator) if operator in ("<", ">") else 0
        if operator not in _BINARY:
            raise self._unreadable()
        return _Term(first, operator, self._word(operator), at)

    def _place(self) -> Location:
        return Location(self.at.file, self.at.line + self.source.count("\n", 0, self.position))

    def _sign(self) -> str:
        """The sign that comes next: empty at the end, ``word`` before a word."""
        if (blank := _BLANK.match(self.source, self.position)) is not None:
            self.position = blank.end()
        rest = self.source[self.position : self.position + 2]
        return rest if rest in ("&&", "||") else "word" if rest[:1] not in ("", *"()<>") else rest[:1]

    def _word(self, operator: str = "") -> str:
        """The next word; what is in brackets belongs to a regular expression, and to a pattern after ``@`` and its like."""
        starts_in_brackets = operator == "=~" and self._sign() == "("
        if self._sign() != "word" and not starts_in_brackets:
            raise self._unreadable()
        start, depth = self.position, 0
        while self.position < len(self.source):
            character = self.source[self.position]
            end = end_of_part(self.source, self.position, self.at)
            before = self.source[self.position - 1] if self.position > start else ""
            if end > self.position:
                self.position = end
                continue
            if character == "(" and (depth or operator == "=~" or (operator in _PATTERNS and before in tuple("@?*+!"))):
                depth += 1
            elif character == ")" and depth:
                depth -= 1
            elif not depth and (character.isspace() or character in "()<>&" or self._is_or(operator)):
                break
            self.position += 1
        return self.source[start : self.position]

    def _is_or(self, operator: str) -> bool:
        return self.source[self.position] == "|" and operator != "=~"

    def _unreadable(self) -> DocumentError:
        shown = " ".join(self.source.split())[:60]
        return DocumentError(said("rlctl does not evaluate the condition '{names}'", names=shown), at=self.at)
