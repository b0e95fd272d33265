"""``[ ]``, ``[[ ]]`` and ``test``: whether a condition holds, or that only running the script could tell."""

from __future__ import annotations

import re
from typing import Any

from rlctl.common.errors import DocumentError, Location
from rlctl.common.messages.reasons import said
from rlctl.shell.patterns import as_regex, from_extended, is_costly, is_extended
from rlctl.shell.state import State
from rlctl.shell.syntax import Script
from rlctl.shell.text import Text, hidden, literal, plain, problem, unknown_items
from rlctl.shell.words import Words

Status = bool | None
"""Whether a command succeeds; None where only running it could tell."""

_REPEATS = re.compile(r"[+*{]")
_NESTED = re.compile(r"\)[+*{]")
_MAX_REPEATS = 3
_MAX_SUBJECT = 400
_NUMBERS = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}


class Conditions:
    """Decides conditions in a state."""

    def __init__(self, state: State, words: Words) -> None:
        self.state = state
        self.expand = words

    def test(self, script: Script, node: Any) -> Status:
        """A condition in brackets."""
        inside = [child for child in node.children[1:-1] if child.is_named or child.type == "!"]
        double = script.text(node.children[0]) == "[["
        if not double:
            source = script.between(node.children[0].end_byte, node.children[-1].start_byte)
            return self.words(self._split(source, script.at(node)), script.at(node))
        status: Status = True
        for child in inside:
            status = self._expression(script, child)
        return status

    def _split(self, source: str, at: Location) -> list[Text]:
        """The words of a condition in single brackets."""
        found: list[Text] = []
        for word in _raw_words(source):
            found += self.expand.fields(word, at)
        return found

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

    def _expression(self, script: Script, node: Any) -> Status:
        at = script.at(node)
        if node.type == "parenthesized_expression":
            return self._expression(script, node.children[1])
        if node.type == "unary_expression":
            operator, operand = node.children[0], node.children[-1]
            if script.text(operator) == "!":
                status = self._expression(script, operand)
                return None if status is None else not status
            name = script.text(operand)
            value = self.expand.text(name, at)
            return None if problem(value) is not None else self._unary(script.text(operator), value)
        if node.type == "binary_expression":
            left, operator, right = node.children[0], script.text(node.children[1]), node.children[-1]
            if operator in ("&&", "||"):
                return self._joined(script, left, operator, right)
            subject = self.expand.text(script.text(left), at)
            is_pattern = operator in ("=", "==", "!=", "=~")
            value = (
                self.expand.pattern(script.text(right), at) if is_pattern else self.expand.text(script.text(right), at)
            )
            if problem(subject) or problem(value) or _tells_of_secret(subject, value):
                return None
            if operator == "=~":
                return self._search(plain(subject), plain(value), at)
            return self._compare(plain(subject), operator, plain(value), pattern=is_pattern, at=at)
        value = self.expand.text(script.text(node), at)
        return None if problem(value) is not None else bool(plain(value))

    def _joined(self, script: Script, left: Any, operator: str, right: Any) -> Status:
        first = self._expression(script, left)
        if first is (operator == "||"):
            return first
        return _both(first, self._expression(script, right), neutral=operator == "&&")

    def _unary(self, operator: str, value: Text) -> Status:
        if operator == "-n":
            return bool(plain(value))
        if operator in ("-z", "!"):
            return not plain(value)
        if operator == "-v" and hidden(value) is None:
            return self.state.look_up(plain(value), Location("")) is not None
        return None

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
        if pattern and (is_costly(left, right) or is_extended(right)):
            return None
        if operator in ("=", "==", "!="):
            same = re.fullmatch(as_regex(right), left, re.DOTALL) is not None if pattern else left == right
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
    """What a regular expression and its groups match; nothing if it matches nowhere, None if it is not read here."""
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


def _raw_words(source: str) -> list[str]:
    """Words as they are written, quotes and expansions whole."""
    found: list[str] = []
    current, depth, quote, position = "", 0, "", 0
    while position < len(source):
        character = source[position]
        if character == "\\":
            current += source[position : position + 2]
            position += 2
            continue
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "({":
            depth += 1
        elif character in ")}":
            depth -= 1
        if character.isspace() and not quote and not depth:
            found += [current] if current else []
            current = ""
        else:
            current += character
        position += 1
    return [*found, current] if current else found
