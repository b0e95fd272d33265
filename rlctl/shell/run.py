"""Reading a shell script as bash would run it, without running anything: assignments, conditions, and the commands it starts.

Whatever only running could tell (what a program prints, whether a file is there) is not guessed: what depends on it is a
value that is not known, with the line. A check that only prints and exits is taken for passed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlctl.common.errors import DocumentError, Location
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import natural
from rlctl.documents.files import read_text
from rlctl.shell import builtins
from rlctl.shell.arithmetic import assigned
from rlctl.shell.conditions import Conditions, Status
from rlctl.shell.patterns import as_regex, is_costly, is_extended
from rlctl.shell.state import MissingError, State, Value
from rlctl.shell.syntax import Script, parse
from rlctl.shell.text import Text, hidden, joined, literal, plain, problem, unknown, unknown_items
from rlctl.shell.words import Words

_MAX_STEPS = 20_000
_MAX_TURNS = 1_000
_MAX_DEPTH = 30
_HINT = "set the variable that decides it with --env NAME=VALUE, or run the script in isolation with --trace"
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\[(?P<index>[^\]]*)\])?(?P<sign>\+?=)")
_NAMES = re.compile(r"(?<![\w-])[A-Za-z_]\w*")
_PREFIXED = re.compile(r"\s*(\+\+|--)\s*([A-Za-z_]\w*)\s*")
_COUNTED = re.compile(r"\s*([A-Za-z_]\w*)\s*(\+\+|--)\s*")
_ASSIGNED = re.compile(r"\s*([A-Za-z_]\w*)\s*(\*|/|%|\+|-|<<|>>|&|\^|\|)?=(?!=)\s*(.*?)\s*", re.DOTALL)
_LOOPS = ("for_statement", "while_statement", "c_style_for_statement")
_SETTERS = ("let", "read", "mapfile", "readarray", "printf", "getopts")
"""Commands that set the variables they name."""
_FALLIBLE = frozenset(
    {"command", "pipeline", "subshell", "test_command", "variable_assignment", "variable_assignments"}
)  # fmt: skip
"""Statements whose failure ends a script after ``set -e``; others end it by what is in them."""
_OUTPUT_SIGNS = frozenset({">", ">>", ">|", ">&", "&>", "&>>"})
_OWN_ITEM = re.compile(r"\[[^\]]*\]\+?=")
_ENDS = frozenset(
    {"exit", "return", "echo", "printf", ":", "true", "false", "usage", "help", "cat", "sleep", "kill", "trap"}
)


@dataclass(frozen=True)
class Command:
    """A program that the script starts."""

    words: tuple[Text, ...]
    at: Location
    folder: str


@dataclass(frozen=True)
class _Assignment:
    """A variable, or an item of an array, and its value."""

    name: str
    value: Value
    at: Location
    index: str | None = None
    append: bool = False


@dataclass
class ScriptReading:
    """What a script does."""

    state: State
    commands: list[Command] = field(default_factory=list)
    """The programs that are started, in order."""
    ended: Location | None = None
    """Where the script ends itself, if it does."""
    failed: str = ""
    """The command whose failure ends it (``set -e``), if one does."""
    said: list[Text] = field(default_factory=list)
    """What it prints until then."""


class _End(Exception):
    """``exit``, with its status."""

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status: Status = status


class _Return(Exception):
    """``return`` with its status; ``break`` and ``continue`` with how many loops they leave."""

    def __init__(self, kind: str, status: Status = None, loops: int = 1) -> None:
        super().__init__(kind)
        self.kind = kind
        self.status: Status = status
        self.loops = loops


def read_script(
    text: str,
    name: str,
    *,
    arguments: Sequence[Text] = (),
    environment: Mapping[str, str],
    given: Mapping[str, str] | None = None,
) -> ScriptReading:
    """Read a script to its end.

    Args:
        text: the script.
        name: its file name, for messages and ``$0``.
        arguments: what follows the script on the command line.
        environment: what a variable is that the script does not set.
        given: variables given for this reading, which win.

    Raises:
        DocumentError: it is no bash script, or says something that reading alone cannot decide.
    """
    state = State(name, list(arguments), environment, given or {})
    try:
        return _whole(text, state)
    except MissingError as error:
        wanted = survey(text, name, arguments=arguments, environment=environment, given=given)
        if len(wanted) < 2:
            raise
        message = said(
            "the script needs {count} values that are not given: {names}", count=len(wanted), names=listed(wanted, name)
        )
        raise MissingError(message, at=error.at, wanted=wanted) from None


def _whole(text: str, state: State) -> ScriptReading:
    reader = _Reader(state)
    script = parse(text, state.script)
    try:
        reader.block(script, script.root)
    except _End:
        pass
    except _Return:
        pass
    except RecursionError:
        raise DocumentError("is nested too deep", at=Location(state.script)) from None
    return ScriptReading(state, reader.commands, reader.ended, reader.failed if reader.ended else "", reader.said)


def survey(
    text: str,
    name: str,
    *,
    arguments: Sequence[Text] = (),
    environment: Mapping[str, str],
    given: Mapping[str, str] | None = None,
) -> dict[str, tuple[Location, str]]:
    """Every variable and argument that a script ends without, where and why: it is read on as far as that can be."""
    state = State(name, list(arguments), environment, given or {}, surveys=True)
    with suppress(DocumentError):
        _whole(text, state)
    return state.missing


def listed(wanted: Mapping[str, tuple[Location, str]], name: str) -> str:
    """What a script wants, with lines and reasons."""
    return ", ".join(
        f"${variable} ({f'line {at.line}' if at.file == name else at}{f': {why}' if why else ''})"
        for variable, (at, why) in wanted.items()
    )


OWN = (
    "variables",
    "functions",
    "exported",
    "removed",
    "odd",
    "fixed",
    "arguments",
    "arguments_set",
    "folder",
    "before",
    "strict",
    "exports_all",
    "ends_on_failure",
    "substitutions_end",
    "pipes_fail",
    "expands_files",
    "exported_functions",
    "zero",
    "source",
    "sources",
)
"""What of the state a process has of its own."""


def _told_status(words: Sequence[Text]) -> Status:
    """The status that ``exit`` and ``return`` give."""
    if len(words) < 2 or hidden(words[1]) is not None or not plain(words[1]).isdecimal():
        return None
    number = natural(plain(words[1]))
    return number is not None and number % 256 == 0


def _odd_flags(source: str) -> set[str]:
    """Flags of ``declare`` and its kin that give a variable a property which is not read here."""
    kind, _, rest = source.partition(" ")
    flags = {flag for word in re.findall(r"(?:^|\s)([-+]\S+)", rest) for flag in word}
    return flags - set("-axrgfFp") - ({"n"} if kind == "export" else set())


class _Reader:
    def __init__(self, state: State) -> None:
        self.state = state
        self.commands: list[Command] = []
        self.ended: Location | None = None
        self.failed = ""
        self.words = Words(state, self.substitute)
        self.conditions = Conditions(state, self.words)
        self.output: list[Text] | None = None
        """What commands print inside of ``$( )``; None outside."""
        self.said: list[Text] = []
        """What they print outside."""
        self._steps = 0
        self._depth = 0
        self._loops = 0
        """How many loops are being run, one in the other."""
        self._sourced = 0
        """How many files are being read by ``source``, one in the other."""
        self._tolerant = 0
        """In how many conditions a failure decides something, so that it ends nothing."""
        self._substituted: Status = True
        """The status of the last ``$( )``."""
        self._merged = 0
        """How many ``2>&1`` send errors where the output goes."""

    # Statements

    def block(self, script: Script, node: Any) -> Status:
        """The statements of a node, in order; the status of the last."""
        return self._statements(script, node.children)

    def _statements(self, script: Script, nodes: Sequence[Any]) -> Status:
        status: Status = True
        for child in nodes:
            if not child.is_named or child.type == "comment":
                continue
            following = child.next_sibling
            if following is not None and following.type == "&":
                with suppress(_End, _Return), self._apart():
                    self.statement(script, child)
                status = True
            else:
                status = self.statement(script, child)
        return status

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """A process of its own, which changes nothing in this one."""
        state, loops, ended = self.state, self._loops, self.ended
        kept = {name: copy(getattr(state, name)) for name in OWN}
        kept["frames"] = [dict(each) for each in state.frames]
        self._loops = 0
        try:
            yield
        finally:
            self._loops, self.ended = loops, ended
            for name, value in kept.items():
                setattr(state, name, value)

    def statement(self, script: Script, node: Any) -> Status:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise DocumentError(
                said("the script takes more than {most} steps", most=_MAX_STEPS), at=script.at(node), hint=_HINT
            )
        self.state.here = script.at(node)
        handler = getattr(self, f"_{node.type}", None)
        if handler is None:
            raise DocumentError(
                said(
                    "rlctl cannot read '{line}' ({text})",
                    line=script.text(node).splitlines()[0][:60],
                    text=node.type.replace("_", " "),
                ),
                at=script.at(node),
                hint=_HINT,
            )
        status: Status = handler(script, node)
        if status is False and node.type in _FALLIBLE and self.state.ends_on_failure and not self._tolerant:
            self._fail(script, node)
        return status

    def _fail(self, script: Script, node: Any) -> None:
        """End the script after a command that fails."""
        self.failed = " ".join(script.text(node).split("\n")[0].split())[:60]
        self._end(False, script.at(node))

    def _end(self, status: Status, at: Location) -> None:
        """End the script; a survey reads on."""
        self.ended = at
        if not self.state.surveys:
            raise _End(status)

    @contextmanager
    def _tolerating(self) -> Iterator[None]:
        """Where a failure ends nothing, whatever ``set -e`` says: in conditions, and before ``&&`` and ``||``."""
        self._tolerant += 1
        try:
            yield
        finally:
            self._tolerant -= 1

    def _condition(self, script: Script, nodes: Sequence[Any]) -> Status:
        """The status of the last of the statements that ``if`` or ``while`` asks."""
        status: Status = True
        with self._tolerating():
            for node in nodes:
                status = self.statement(script, node)
        return status

    def _program(self, script: Script, node: Any) -> Status:
        return self.block(script, node)

    _else_clause = _do_group = _program

    def _compound_statement(self, script: Script, node: Any) -> Status:
        if node.children and node.children[0].type == "((":
            inside = script.between(node.children[0].end_byte, node.children[-1].start_byte)
            status = self._arithmetic_statement(inside, script.at(node))
            if status is False and self.state.ends_on_failure and not self._tolerant:
                self._fail(script, node)
            return status
        return self.block(script, node)

    def _subshell(self, script: Script, node: Any) -> Status:
        if (inside := _arithmetic_in(script, node)) is not None:
            return self._arithmetic_statement(inside, script.at(node))
        try:
            with self._apart():
                return self.block(script, node)
        except (_End, _Return) as end:
            return end.status

    def _variable_assignment(self, script: Script, node: Any) -> Status:
        return self._assign_all(script, [node])

    def _variable_assignments(self, script: Script, node: Any) -> Status:
        return self._assign_all(script, node.named_children)

    def _assign_all(self, script: Script, nodes: Sequence[Any]) -> Status:
        """Assignments, whose status is that of the last ``$( )`` in them."""
        self._substituted = True
        for node in nodes:
            if node.type == "variable_assignment":
                self._store(self._assignment(script, node))
        return self._substituted

    def _declaration_command(self, script: Script, node: Any) -> Status:
        """``export``, ``local``, ``declare``: flags, then names and assignments, some of which come out of expansions.

        All words are expanded before the first variable is set: ``local a=1 b=$a`` sets b to what a was.
        """
        kind, flags = script.text(node.children[0]), ""
        found: list[tuple[_Assignment | Text, Location]] = []
        for child in node.children[1:]:
            source, at = script.text(child), script.at(child)
            if child.type == "variable_assignment":
                found.append((self._assignment(script, child), at))
            elif not child.is_named:
                continue
            elif source[:1] in "-+":
                flags += source
            else:
                found += [(word, at) for word in self.words.fields(source, at)]
        for each, at in found:
            if isinstance(each, _Assignment):
                self._store(each, own=self._is_local(kind, flags))
                self._declared(kind, flags, each.name, at)
            else:
                self._declare(kind, flags, each, at)
        return True

    def _declare(self, kind: str, flags: str, word: Text, at: Location) -> None:
        name, sign, value = plain(word).partition("=")
        if hidden(word) is not None or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise DocumentError(said("rlctl cannot tell which variable '{kind}' sets", kind=kind), at=at, hint=_HINT)
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
        """What becomes of a variable by its flags."""
        if odd := _odd_flags(f"{kind} {flags}"):
            self._refuse_reference(kind, odd, at)
            flag = "+" if "+" in odd else f"-{min(odd)}"
            self.state.odd[name] = unknown(said("rlctl does not evaluate '{kind} {flag}'", kind=kind, flag=flag), at)
            self.state.assign(name, ())
        if kind == "export" and "n" in flags:
            self.state.exported.pop(name, None)
        elif kind == "export" or "x" in flags:
            self.state.exported[name] = at
        if kind == "readonly" or "r" in flags:
            self.state.fixed.add(name)

    def _refuse_reference(self, kind: str, odd: Collection[str], at: Location) -> None:
        """What is assigned to a reference changes another variable."""
        if "n" in odd:
            raise DocumentError(
                said("rlctl does not evaluate '{kind} {flag}'", kind=kind, flag="-n"), at=at, hint=_HINT
            )

    def _unset_command(self, script: Script, node: Any) -> Status:
        flags = ""
        for child in node.children[1:]:
            at = script.at(child)
            for word in self.words.fields(script.text(child), at) if child.is_named else ():
                self._unset(flags, word, at)
                flags += plain(word) if plain(word).startswith("-") else ""
        return True

    def _unset(self, flags: str, word: Text, at: Location) -> None:
        name = plain(word)
        if hidden(word) is not None or "n" in flags:
            raise DocumentError("rlctl cannot tell which variable 'unset' removes", at=at, hint=_HINT)
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

    def _function_definition(self, script: Script, node: Any) -> Status:
        name = script.text(node.child_by_field_name("name"))
        self.state.functions[name] = (script, node.child_by_field_name("body"))
        self.state.sources[name] = self.state.source
        return True

    def _assignment(self, script: Script, node: Any) -> _Assignment:
        """What a node assigns to what."""
        source, at = script.text(node), script.at(node)
        match = _ASSIGNMENT.match(source)
        if match is None:
            raise DocumentError(
                said("rlctl does not evaluate the assignment {source!r}", source=source[:40]), at=at, hint=_HINT
            )
        name, value, append = match["name"], node.child_by_field_name("value"), match["sign"] == "+="
        if value is not None and value.type == "array":
            return _Assignment(name, self._array(script, value), at, append=append)
        text = self.words.text(source[match.end() :], script.at(value) if value is not None else at)
        return _Assignment(name, text, at, match["index"], append)

    def _array(self, script: Script, value: Any) -> list[Text]:
        sources = self._word_sources(script, value.children[1:-1])
        if any(_OWN_ITEM.match(source) for source, _ in sources):
            why = said("rlctl does not evaluate an array whose items name their places")
            return unknown_items(why, script.at(value))
        return [item for source, at in sources for item in self.words.fields(source, at)]

    def _store(self, assignment: _Assignment, *, own: bool = False) -> None:
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

    def _word_sources(self, script: Script, nodes: Sequence[Any]) -> list[tuple[str, Location]]:
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

    # Control flow

    def _if_statement(self, script: Script, node: Any) -> Status:
        clauses = [child for child in node.children if child.type == "elif_clause"]
        for part in (node, *clauses):
            is_taken, status = self._branch(script, part)
            if is_taken is not False:
                return status
        last = next((child for child in node.children if child.type == "else_clause"), None)
        return True if last is None else self.block(script, last)

    def _branch(self, script: Script, node: Any) -> tuple[Status, Status]:
        """Run a branch if its condition holds: whether it does, and the status. What is not decided taints what it changes."""
        split = next(index for index, child in enumerate(node.children) if child.type == "then")
        conditions = [child for child in node.children[1:split] if child.is_named and child.type != "comment"]
        holds = self._condition(script, conditions)
        if holds is None:
            whole = [child for child in node.children[split + 1 :] if child.is_named]
            self._undecided(script, conditions[-1], whole)
            is_alone = not any(child.type in ("elif_clause", "else_clause") for child in whole)
            return None, True if is_alone else None
        if not holds:
            return False, None
        body = [child for child in node.children[split + 1 :] if child.type not in ("elif_clause", "else_clause")]
        return True, self._statements(script, body)

    def _undecided(self, script: Script, condition: Any, branches: Sequence[Any]) -> None:
        """Nobody knows whether these are run: what they set is not known."""
        shown = " ".join(script.text(condition).split("\n")[0].split())[:60]
        why = said("it depends on '{shown}', which only running the script can decide", shown=shown)
        for branch in branches:
            if (launch := self._program_in(script, branch)) is not None:
                raise DocumentError(
                    said(
                        "whether '{launch}' is started depends on '{shown}', which only running the script can decide",
                        launch=launch,
                        shown=shown,
                    ),
                    at=script.at(branch),
                    hint=_HINT,
                )
            if (leaving := self._leaving(branch, int(condition.type in _LOOPS))) is not None:
                raise DocumentError(
                    said("rlctl cannot tell whether the loop continues: {why}", why=why),
                    at=script.at(leaving),
                    hint=_HINT,
                )
            self._assume_passed(script, condition, branch)
            self._taint(script, branch, why)

    def _taint(self, script: Script, node: Any, why: str, called: frozenset[str] = frozenset()) -> None:
        """What a node sets is not known; also in the functions that it calls."""
        bad = unknown(why, script.at(node))
        match node.type:
            case "variable_assignment":
                if (match := _ASSIGNMENT.match(script.text(node))) is not None:
                    value = node.child_by_field_name("value")
                    is_array = (value is not None and value.type == "array") or match["index"] is not None
                    items = unknown_items(why, script.at(node))
                    self.state.assign(match["name"], items if is_array else bad, append=match["sign"] == "+=")
            case "declaration_command" if odd := _odd_flags(script.text(node)):
                self._refuse_reference(script.text(node).split()[0], odd, script.at(node))
                for name in _NAMES.findall(script.text(node))[1:]:
                    self.state.odd[name] = bad
                    self.state.assign(name, bad)
            case "for_statement":
                self.state.assign(script.text(node.child_by_field_name("variable")), bad)
            case "unset_command":
                for name in _NAMES.findall(script.text(node)[len("unset") :]):
                    self.state.assign(name, bad)
            case "command" if (name := node.child_by_field_name("name")) is not None:
                words = script.between(name.start_byte, node.end_byte).split()
                place = 1 if words[0] in ("command", "builtin") and len(words) > 1 else 0
                self._taint_command(script, node, words[place], why, called)
            case "compound_statement" | "test_command" | "subshell" if script.text(node).startswith("(("):
                for name in assigned(script.text(node)):
                    self.state.assign(name, bad)
        is_command = node.type == "command" and node.child_by_field_name("name") is not None
        for child in node.children:
            if not (is_command and child.type == "variable_assignment"):  # those are the command's alone
                self._taint(script, child, why, called)

    def _taint_command(self, script: Script, node: Any, name: str, why: str, called: frozenset[str]) -> None:
        if name in self.state.functions and name not in called:
            self._taint(*self.state.functions[name], why, called | {name})
        elif name in ("set", "shift"):
            self.state.arguments = unknown_items(why, script.at(node))
            self.state.arguments_set += 1
        elif name in ("source", "."):
            shown = " ".join(script.text(node).split())
            self.state.assumed.setdefault(
                said("assumed that '{shown}' sets nothing that the command uses ({why})", shown=shown, why=why),
                script.at(node),
            )
        elif name in builtins.UNREAD:
            raise DocumentError(
                said("rlctl does not evaluate '{name}' here", name=name), at=script.at(node), hint=builtins.TRACE
            )
        elif name in _SETTERS:
            for found in _NAMES.findall(script.text(node)[len(name) :]):
                self.state.assign(found, unknown(why, script.at(node)))

    def _leaving(self, node: Any, inside: int = 0) -> Any:
        """The ``break`` or ``continue`` of a node that leaves a loop around it; ``inside``: loops in the node."""
        if node.type == "command" and node.text.split()[:1] in ([b"break"], [b"continue"]):
            loops = node.text.split()[1:2]
            return node if not inside or (loops and loops != [b"1"]) else None
        if node.type == "function_definition":
            return None
        inside += node.type in _LOOPS
        return next((found for child in node.children if (found := self._leaving(child, inside)) is not None), None)

    def _program_in(self, script: Script, node: Any) -> str | None:
        """The first command in a node that starts a trainer, as far as its source shows."""
        if node.type == "command":
            text = " ".join(script.text(node).split())
            if re.search(r"(^|\s)(python3?\s+(-u\s+)?(-m\s+\S|\S+\.py)|torchrun|trinity\s+run|ray\s+job)", text):
                return text[:60]
            return None
        return next((found for child in node.children if (found := self._program_in(script, child)) is not None), None)

    def _case_statement(self, script: Script, node: Any) -> Status:
        subject = self.words.text(script.text(node.child_by_field_name("value")), script.at(node))
        items = [child for child in node.children if child.type == "case_item"]
        if hidden(subject) is not None:
            self._undecided(script, node.child_by_field_name("value"), items)
            return None
        for item in items:
            end = next(index for index, child in enumerate(item.children) if child.type == ")")
            patterns = [child for child in item.children[:end] if child.type not in ("(", "|")]
            globs = [self.words.pattern(script.text(pattern), script.at(pattern)) for pattern in patterns]
            if any(hidden(glob) or is_extended(plain(glob)) for glob in globs):
                self._undecided(script, node.child_by_field_name("value"), items)
                return None
            if any(self._matches(plain(subject), plain(glob), script.at(item)) for glob in globs):
                if (odd := next((child for child in item.children if child.type in (";&", ";;&")), None)) is not None:
                    raise DocumentError(
                        said("rlctl does not evaluate {type!r} in 'case'", type=odd.type), at=script.at(odd), hint=_HINT
                    )
                return self._statements(script, item.children[end + 1 :])
        return True

    def _matches(self, subject: str, glob: str, at: Location) -> bool:
        if is_costly(subject, glob):
            raise DocumentError("the pattern is too costly to match", at=at, hint=_HINT)
        return re.fullmatch(as_regex(glob), subject, re.DOTALL) is not None

    def _for_statement(self, script: Script, node: Any) -> Status:
        if node.children[0].type == "select":
            raise DocumentError(
                said("rlctl does not evaluate '{name}' here", name="select"), at=script.at(node), hint=_HINT
            )
        variable = script.text(node.child_by_field_name("variable"))
        values = [child for child in node.children if node.field_name_for_child(node.children.index(child)) == "value"]
        items = [item for text, at in self._word_sources(script, values) for item in self.words.fields(text, at)]
        if not any(child.type == "in" for child in node.children):
            items = list(self.state.arguments)
        body = node.child_by_field_name("body")
        if any(problem(item) is not None for item in items):
            self._undecided(script, node, [node])
            return None
        if len(items) > _MAX_TURNS:
            raise DocumentError(
                said("the loop takes more than {most} turns", most=_MAX_TURNS), at=script.at(node), hint=_HINT
            )
        status: Status = True
        for item in items:
            self.state.assign(variable, item)
            goes_on, status = self._turn(script, body)
            if not goes_on:
                break
        return status

    def _turn(self, script: Script, body: Any) -> tuple[bool, Status]:
        """One turn of a loop: whether it goes on, and its status."""
        self._loops += 1
        try:
            return True, self.block(script, body)
        except _Return as end:
            if end.kind == "return":
                raise
            if end.loops > 1:
                raise _Return(end.kind, loops=end.loops - 1) from None
            return end.kind == "continue", True
        finally:
            self._loops -= 1

    def _while_statement(self, script: Script, node: Any) -> Status:
        until = script.text(node.children[0]) == "until"
        body = node.child_by_field_name("body")
        end = next(index for index, child in enumerate(node.children) if child.type == "do_group")
        conditions = [child for child in node.children[1:end] if child.is_named and child.type != "comment"]
        status: Status = True
        for _ in range(_MAX_TURNS):
            holds = self._condition(script, conditions)
            if holds is None:
                self._undecided(script, node, [node])
                return None
            if holds is until:
                return status
            goes_on, status = self._turn(script, body)
            if not goes_on:
                return status
        raise DocumentError(
            said("the loop takes more than {most} turns", most=_MAX_TURNS), at=script.at(node), hint=_HINT
        )

    def _c_style_for_statement(self, script: Script, node: Any) -> Status:
        opening, closing = (next(child for child in node.children if child.type == sign) for sign in ("((", "))"))
        header, at = script.between(opening.end_byte, closing.start_byte), script.at(node)
        parts = [part.strip() for part in header.split(";")]
        body = node.child_by_field_name("body")
        if len(parts) != 3:
            raise DocumentError("rlctl does not evaluate this loop", at=at, hint=_HINT)
        first, condition, update = parts
        if first:
            self._arithmetic_statement(first, at)
        status: Status = True
        for _ in range(_MAX_TURNS):
            holds = self._arithmetic_statement(condition, at) if condition else True
            if holds is None:
                for name in assigned(header):
                    self.state.assign(
                        name,
                        unknown(said("rlctl cannot tell how often the loop at line {line} runs", line=at.line), at),
                    )
                self._undecided(script, node, [body])
                return None
            if not holds:
                return status
            goes_on, status = self._turn(script, body)
            if not goes_on:
                return status
            if update:
                self._arithmetic_statement(update, at)
        raise DocumentError(said("the loop takes more than {most} turns", most=_MAX_TURNS), at=at, hint=_HINT)

    def _list(self, script: Script, node: Any) -> Status:
        left, sign, right = node.children[0], script.text(node.children[1]), node.children[-1]
        status = self._condition(script, [left])
        if status is None:
            if self._only_ends(script, right):
                self._assume_passed(script, left, right)
                return True if sign == "||" else None
            self._undecided(script, left, [right])
            return None
        if status is (sign == "||"):
            return status
        return self.statement(script, right)

    def _assume_passed(self, script: Script, condition: Any, branch: Any) -> None:
        """Note that a branch with ``return`` is not taken: one with ``exit`` starts nothing if it is."""
        if _returns(branch):
            shown = " ".join(script.text(condition).split("\n")[0].split())[:60]
            self.state.assumed.setdefault(
                said("assumed that '{shown}' lets the function continue", shown=shown), script.at(condition)
            )

    def _only_ends(self, script: Script, node: Any) -> bool:
        """Whether a statement only prints and ends the script, as a check does that has failed."""
        if node.type == "command":
            words = script.text(node).split()
            return words[0] in _ENDS and words[:2] != ["printf", "-v"]
        if node.type in ("compound_statement", "subshell", "list", "redirected_statement"):
            return all(
                self._only_ends(script, child)
                for child in node.children
                if child.is_named and "redirect" not in child.type
            )
        return bool(node.type == "comment")

    def _negated_command(self, script: Script, node: Any) -> Status:
        status = self._condition(script, [node.children[-1]])
        return None if status is None else not status

    def _pipeline(self, script: Script, node: Any) -> Status:
        stages = [child for child in node.children if child.is_named]
        if self.output is None:
            first, negations = stages[0], 0
            while first.type == "negated_command":  # '!' stands for the whole pipeline
                first, negations = first.children[-1], negations + 1
            with self._tolerating() if negations else nullcontext():
                status = self._status_of_pipe(script, [first, *stages[1:]])
            return None if status is None else status is (negations % 2 == 0)
        shown = " ".join(script.text(node).split())[:60]
        self.output.append(
            unknown(said("what '{shown}' prints can only be known by running it", shown=shown), script.at(node))
        )
        return None

    def _status_of_pipe(self, script: Script, stages: Sequence[Any]) -> Status:
        statuses = [self._stage(script, stage) for stage in stages]
        if not self.state.pipes_fail:
            return statuses[-1]
        return False if False in statuses else None if None in statuses else True

    def _stage(self, script: Script, stage: Any) -> Status:
        """One part of a pipeline, a process of its own."""
        try:
            with self._apart():
                return self.statement(script, stage)
        except (_End, _Return) as end:
            return end.status

    @contextmanager
    def _output_of(self, script: Script, node: Any) -> Iterator[None]:
        """Inside of ``$( )``, the output of a statement as its redirections send it."""
        signs = [_redirection(script, child) for child in node.children if child.type == "file_redirect"]
        kept, merged = self.output, self._merged
        is_away = any(sign in _OUTPUT_SIGNS and from_ in ("", "1") and to != "1" for from_, sign, to in signs)
        to_errors = any(to in ("2", "/dev/stderr") for _, _, to in signs)
        self._merged += any((from_, sign, to) == ("2", ">&", "1") for from_, sign, to in signs)
        if is_away and kept is not None:
            self.output = []
        try:
            yield
        finally:
            if is_away and kept is not None and self.output and to_errors and merged:
                kept.append(unknown("rlctl does not evaluate what is printed as an error here", script.at(node)))
            self.output, self._merged = kept, merged

    def _redirected_statement(self, script: Script, node: Any) -> Status:
        body = node.child_by_field_name("body")
        here = next((child for child in node.children if child.type == "heredoc_redirect"), None)
        to = next((child for child in node.children if child.type == "file_redirect"), None)
        if here is not None:
            to = to or next((child for child in here.children if child.type == "file_redirect"), None)
            if body.type == "command" and script.text(body.child_by_field_name("name")) == "cat" and to is not None:
                self._write_file(script, here, to)
                return self._after_document(script, here, True)
            self._note_written(script, here)
            self._note_written(script, node)
            with self._output_of(script, node):
                return self._after_document(script, here, self._condition(script, [body]))
        self._note_written(script, node)
        if body is None:
            return True
        with self._output_of(script, node):
            return self.statement(script, body)

    def _after_document(self, script: Script, here: Any, status: Status) -> Status:
        """What follows ``<<EOF`` on its line: the grammar counts it as a part of the redirection."""
        piped = next((child for child in here.children if child.type == "pipeline"), None)
        right, sign = here.child_by_field_name("right"), here.child_by_field_name("operator")
        if piped is not None:
            return self.statement(script, piped)
        if right is None or (status is not None and status is (sign.type == "||")):
            return status
        if status is None:
            self._undecided(script, here.parent, [right])
            return None
        return self.statement(script, right)

    def _note_written(self, script: Script, node: Any) -> None:
        """The files that the redirections of a statement write."""
        for child in node.children:
            if child.type == "file_redirect" and any(">" in part.type for part in child.children):
                to = child.child_by_field_name("destination")
                self.state.writes(plain(self.words.text(script.text(to), script.at(child))) if to is not None else "")

    def _file_in(self, script: Script) -> Any:
        """The name in ``$(<FILE)``. Bash reads the file only if there is nothing else; otherwise ``<FILE`` prints nothing."""
        parts = [child for child in script.root.children if child.type not in ("comment", ";", "\n")]
        alone = parts[0].children if len(parts) == 1 and parts[0].type == "redirected_statement" else []
        if len(alone) != 1 or alone[0].type != "file_redirect" or alone[0].children[0].type != "<":
            return None
        return alone[0].child_by_field_name("destination")

    def _contents(self, script: Script, name: Any) -> Text:
        """What ``$(<FILE)`` stands for."""
        text, at = self.words.text(script.text(name), script.at(name)), script.at(name)
        if self.commands and hidden(text) is None:
            shown = plain(text)
            self.state.assumed.setdefault(
                said("assumed that no command before this line changes '{shown}'", shown=shown), at
            )
        return builtins.contents(self.state, text, at)

    def _write_file(self, script: Script, here: Any, to: Any) -> None:
        """A file that the script writes with ``cat > FILE <<EOF``."""
        start = next(child for child in here.children if child.type == "heredoc_start")
        body = next((child for child in here.children if child.type == "heredoc_body"), None)
        source = script.text(body) if body is not None else ""
        if any(part.type == "<<-" for part in here.children):
            source = re.sub(r"(?m)^\t+", "", source)
        name = plain(self.words.text(script.text(to.child_by_field_name("destination")), script.at(to)))
        at = script.at(body) if body is not None else script.at(here)
        is_raw = script.text(start)[:1] in "\"'\\"
        text = literal(source, at) if is_raw else self.words.here_document(source, at)
        is_whole = problem(text) is None and ">>" not in (part.type for part in to.children)
        self.state.writes(name, plain(text) if is_whole else None)

    # Conditions

    def _test_command(self, script: Script, node: Any) -> Status:
        if script.text(node.children[0]) == "((":
            inside = script.between(node.children[0].end_byte, node.children[-1].start_byte)
            return self._arithmetic_statement(inside, script.at(node))
        return self.conditions.test(script, node)

    def _arithmetic_statement(self, source: str, at: Location) -> Status:
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

    # Commands

    def _command(self, script: Script, node: Any) -> Status:
        name = node.child_by_field_name("name")
        before = [
            child
            for child in node.children
            if child.type == "variable_assignment" and (name is None or child.start_byte < name.start_byte)
        ]
        if name is None:
            return self._assign_all(script, before)
        skipped = ("variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect")
        nodes = [child for child in node.children if child not in before and child.type not in skipped]
        self._note_written(script, node)
        self._substituted = True
        words = [word for text, at in self._word_sources(script, nodes) for word in self.words.fields(text, at)]
        substituted = self._substituted
        for child in node.children:
            if child.type == "herestring_redirect":  # it may set a variable, as $((n++)) does
                self.words.text(script.text(child).removeprefix("<<<").strip(), script.at(child))
        self.state.frames.append({})
        try:
            for child in before:
                if (match := _ASSIGNMENT.match(script.text(child))) is not None:
                    self.state.keep(match["name"])
                self._store(self._assignment(script, child))
            with self._output_of(script, node):
                return self._call(words, script.at(node)) if words else substituted
        finally:
            self.state.leave()

    def _call(self, words: list[Text], at: Location) -> Status:
        name = plain(words[0])
        if name in self.state.functions:
            return self._function(name, words[1:], at)
        if name in ("break", "continue"):
            raise _Return(name, loops=self._left_loops(words, at))
        if name == "return":
            if not self.state.calls and not self._sourced:
                return False
            raise _Return(name, _told_status(words))
        if name == "exit":
            self.failed = ""
            self._end(_told_status(words), at)
            return None
        if name == "time" and len(words) > 1:
            return self._timed(words[1:], at)
        if name == "let":
            return self._let(words[1:], at)
        if name == "trap":
            return self._trap(words[1:], at)
        if name in ("command", "builtin") and len(words) > 1 and not plain(words[1]).startswith("-"):
            return self._called(words[1:], at)
        return self._called(words, at)

    def _left_loops(self, words: list[Text], at: Location) -> int:
        """How many loops ``break`` or ``continue`` leaves."""
        if not self._loops:
            raise DocumentError(said("'{words}' is in no loop", words=plain(words[0])), at=at)
        if len(words) == 1:
            return 1
        if hidden(words[1]) is not None or not re.fullmatch(r"[1-9]\d{0,17}", plain(words[1])):
            raise DocumentError(
                said("rlctl cannot tell how many loops '{words}' leaves", words=plain(words[0])), at=at, hint=_HINT
            )
        return min(int(plain(words[1])), self._loops)

    def _let(self, expressions: list[Text], at: Location) -> Status:
        status: Status = False
        for text in expressions:
            if (piece := hidden(text)) is not None:
                raise DocumentError(
                    said("rlctl cannot tell what 'let' sets: {problem}", problem=piece.problem), at=at, hint=_HINT
                )
            status = self._arithmetic_statement(plain(text), at)
        return status

    def _timed(self, words: list[Text], at: Location) -> Status:
        """``time COMMAND``, which may be a function."""
        name = plain(words[0])
        if name in ("{", "!", "(") or name.startswith("-"):
            raise DocumentError(said("rlctl does not evaluate '{name}' here", name="time"), at=at, hint=_HINT)
        return self._call(words, at)

    def _trap(self, words: list[Text], at: Location) -> Status:
        """``trap``: what it runs later may start no trainer, and may set nothing while the script runs."""
        signals = {plain(word).upper().removeprefix("SIG") for word in words[1:]}
        if signals & {"DEBUG", "RETURN"}:
            raise DocumentError(said("rlctl does not evaluate '{name}' here", name="trap"), at=at, hint=_HINT)
        if signals & {"EXIT", "0", "ERR"} and hidden(words[0]) is None:
            script = parse(plain(words[0]), at.file, at.line)
            if self._program_in(script, script.root) or ("ERR" in signals and _assigns(script.root)):
                raise DocumentError(said("rlctl does not evaluate '{name}' here", name="trap"), at=at, hint=_HINT)
        return True

    def _shift(self, words: list[Text], at: Location) -> Status:
        """``shift``, of which the rest is unknown if the first arguments may be any number of words."""
        count = natural(plain(words[1])) if len(words) > 1 and plain(words[1]).isdecimal() else 1
        arguments = self.state.arguments
        for piece in (piece for item in arguments[:count] for piece in item if piece.problem and not piece.quoted):
            self.state.arguments = unknown_items(piece.problem, at)
            return None
        if count is None or count > len(arguments):
            return False
        del arguments[:count]
        return True

    def _called(self, words: list[Text], at: Location) -> Status:
        """A builtin, another script, or a program."""
        name = plain(words[0])
        if name in ("source", "."):
            return self._source(words, at)
        if name in ("bash", "sh") and len(words) > 1:
            return self._shell(words[1:], at)
        if name == "shift":
            return self._shift(words, at)
        if name == "test":
            return self.conditions.words(words[1:], at)
        known = builtins.call(self.state, words, at)
        if known is not None:
            if self.output is not None and known.output is None and name in builtins.PRINTING:
                self.output.append(self._only_when_run(words, at))
            elif known.output is not None:
                self._print(known.output)
            return known.status
        self.commands.append(Command(tuple(words), at, self.state.folder))
        builtins.touch(self.state, words)
        status = builtins.status_of(self.state, words, at)
        if self.output is not None and status is not False:
            self.output.append(self._only_when_run(words, at))
        if name == "exec" and len(words) > 1:
            raise _End(status)  # the program takes the place of the shell
        return status

    def _print(self, text: Text) -> None:
        if self.output is None:
            self.said.append(_without_line_end(text))
        else:
            self.output.append(text)

    def _only_when_run(self, words: list[Text], at: Location) -> Text:
        shown = " ".join(plain(word) for word in words)[:60]
        return unknown(said("what '{shown}' prints can only be known by running it", shown=shown), at)

    def _function(self, name: str, arguments: list[Text], at: Location) -> Status:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise DocumentError(said("the function {name} calls itself too often", name=name), at=at)
        script, body = self.state.functions[name]
        kept, self.state.arguments = self.state.arguments, arguments
        loops, self._loops = self._loops, 0
        source, self.state.source = self.state.source, self.state.sources.get(name, "")
        self.state.calls += 1
        self.state.frames.append({})
        try:
            return self.statement(script, body)
        except _Return as end:
            return end.status
        finally:
            self.state.leave()
            self.state.calls -= 1
            self._loops = loops
            self.state.arguments, self.state.source = kept, source
            self._depth -= 1

    def _source(self, words: list[Text], at: Location) -> Status:
        name = plain(words[1]) if len(words) > 1 else ""
        found = self._script_file(name)
        if found is None or hidden(words[1]) is not None:
            raise DocumentError(
                said("the script reads '{name}', which does not exist, so rlctl does not know what it sets", name=name),
                at=at,
                hint="put the file next to the script, or run the script in isolation with --trace",
            )
        self._sourced += 1
        before, times = self.state.arguments, self.state.arguments_set
        source, self.state.source = self.state.source, name
        if words[2:]:
            self.state.arguments = words[2:]
        try:
            return self._run_file(found)
        finally:
            self._sourced -= 1
            self.state.source = source
            if words[2:]:
                self.state.arguments = before
            if words[2:] and self.state.arguments_set != times:  # they stay, unless a function was called after that
                self.state.arguments = unknown_items(said("rlctl does not evaluate '{name}' here", name="set"), at)

    def _shell(self, arguments: list[Text], at: Location) -> Status:
        """``bash -c TEXT`` and ``bash FILE ARGUMENTS``, which change nothing in this script."""
        options = [plain(word) for word in arguments if plain(word).startswith("-")]
        rest = [word for word in arguments if not plain(word).startswith("-")]
        try:
            with self._apart(), self._intolerant():
                self.state.become_process()
                if any("c" in option for option in options) and rest:
                    script = parse(plain(rest[0]), at.file, at.line)
                    self.state.zero = plain(rest[1]) if rest[1:] else "bash"
                    self.state.arguments = rest[2:]
                    return self.block(script, script.root)
                found = self._script_file(plain(rest[0])) if rest else None
                if found is None:
                    self.commands.append(Command((literal("bash", at) or (), *arguments), at, self.state.folder))
                    return True
                self.state.zero = self.state.source = plain(rest[0])
                self.state.arguments = rest[1:]
                return self._run_file(found)
        except _End as end:
            return end.status

    @contextmanager
    def _intolerant(self) -> Iterator[None]:
        """In another process nothing is known of the condition that it is a part of."""
        kept, self._tolerant = self._tolerant, 0
        try:
            yield
        finally:
            self._tolerant = kept

    def _script_file(self, name: str) -> Path | None:
        beside = Path(self.state.script).parent
        places = (Path(self.state.folder) / name, beside / name, expanded(name))
        return next((place for place in places if name and place.is_file()), None)

    def _run_file(self, path: Path) -> Status:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise DocumentError("scripts read each other too often", at=Location(str(path)))
        script = parse(read_text(path), os.path.normpath(path))
        try:
            return self.block(script, script.root)
        except _Return as end:
            if end.kind != "return":
                raise
            return end.status
        finally:
            self._depth -= 1

    def substitute(self, source: str, at: Location) -> Text:
        """What ``$( )`` stands for."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise DocumentError("'$( )' is nested too deep", at=at)
        kept, count = self.output, len(self.commands)
        status: Status = True
        self.output = []
        try:
            with self._apart():
                self.state.ends_on_failure = self.state.ends_on_failure and self.state.substitutions_end
                script = parse(source, at.file, at.line)
                if (name := self._file_in(script)) is not None:
                    self.output.append(self._contents(script, name))
                else:
                    status = self.block(script, script.root)
        except (_End, _Return) as end:
            status = end.status
        finally:
            found = joined(self.output, "", at)
            self.output = kept
            del self.commands[count:]
            self._depth -= 1
        self._substituted = status
        return _without_line_end(found)


def _without_line_end(text: Text) -> Text:
    """A text without the line ends that it ends with."""
    found = [*text]
    while found and not found[-1].symbol and not found[-1].problem:
        rest = found[-1].text.rstrip("\n")
        if rest:
            return (*found[:-1], replace(found[-1], text=rest))
        found.pop()
    return tuple(found)


def _redirection(script: Script, node: Any) -> tuple[str, str, str]:
    """The descriptor that a redirection is for (empty: the usual one), its sign, and where it goes."""
    of = next((child for child in node.children if child.type == "file_descriptor"), None)
    sign = next((child.type for child in node.children if not child.is_named), "")
    to = node.child_by_field_name("destination")
    return ("" if of is None else script.text(of)), sign, ("" if to is None else script.text(to))


def _arithmetic_in(script: Script, node: Any) -> str | None:
    """What is in ``(( ))`` if the grammar takes it for two subshells, as after ``!``."""
    inner = [child for child in node.children if child.is_named]
    is_double = len(inner) == 1 and inner[0].type == "subshell" and inner[0].start_byte == node.start_byte + 1
    if not is_double or inner[0].end_byte != node.end_byte - 1:
        return None
    return script.between(node.start_byte + 2, node.end_byte - 2)


def _returns(node: Any) -> bool:
    """Whether a node may leave the function that it is in."""
    if node.type == "command" and node.text.split()[:1] == [b"return"]:
        return True
    return node.type != "function_definition" and any(map(_returns, node.children))


def _assigns(node: Any) -> bool:
    """Whether anything in a node sets a variable."""
    return node.type in ("variable_assignment", "declaration_command") or any(map(_assigns, node.children))
