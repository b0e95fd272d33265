"""Statements in order, each with its status: blocks, processes of their own, and where a failure ends the script.

``Statements`` is the base of what reads a script. A statement of the grammar's type X is read by the method ``_X``: control flow
is in ``flow``, commands are in ``calls``, redirections in ``redirections``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from rlctl.common.errors import DocumentError, Location
from rlctl.common.messages.reasons import said
from rlctl.shell.assignments import HINT, Assignments
from rlctl.shell.conditions import Conditions, Status
from rlctl.shell.state import State
from rlctl.shell.syntax import Script
from rlctl.shell.text import Text, plain
from rlctl.shell.undecided import Undecided, program_in
from rlctl.shell.words import Words

_MAX_STEPS = 20_000
_FALLIBLE = frozenset(
    {"command", "pipeline", "subshell", "test_command", "variable_assignment", "variable_assignments"}
)  # fmt: skip
"""Statements whose failure ends a script after ``set -e``; others end it by what is in them."""
_OWN = (
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


@dataclass(frozen=True)
class Command:
    """A program that the script starts."""

    words: tuple[Text, ...]
    at: Location
    folder: str
    vanished: Mapping[str, Location] = field(default_factory=dict)
    """Unset variables that are words of it, so that these are none."""


class End(Exception):
    """``exit``, with its status."""

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status: Status = status


class Return(Exception):
    """``return`` with its status; ``break`` and ``continue`` with how many loops they leave."""

    def __init__(self, kind: str, status: Status = None, loops: int = 1) -> None:
        super().__init__(kind)
        self.kind = kind
        self.status: Status = status
        self.loops = loops


class Statements(ABC):
    """Reads statements in a state."""

    def __init__(self, state: State, is_trainer: Callable[[Command], bool]) -> None:
        self.state = state
        self.is_trainer = is_trainer
        self.commands: list[Command] = []
        self.ended: Location | None = None
        self.failed = ""
        self.words = Words(state, self.substitute)
        self.conditions = Conditions(state, self.words)
        self.assignments = Assignments(state, self.words)
        self.undecided = Undecided(state)
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
        self._vanished: Mapping[str, Location] = {}
        """Those of the command that is run."""
        self._merged = 0
        """How many ``2>&1`` send errors where the output goes."""

    @abstractmethod
    def substitute(self, source: str, at: Location) -> Text:
        """Expand ``$( )``: the output of the commands in it."""

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
                with suppress(End, Return), self._apart():
                    self.statement(script, child)
                status = self.state.status = True
            else:
                status = self.statement(script, child)
        return status

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """A process of its own, which changes nothing in this one."""
        state, loops, ended = self.state, self._loops, self.ended
        kept = {name: copy(getattr(state, name)) for name in _OWN}
        kept["frames"] = [dict(each) for each in state.frames]
        self._loops = 0
        try:
            yield
        finally:
            self._loops, self.ended = loops, ended
            for name, value in kept.items():
                setattr(state, name, value)

    def _trainer_in(self, script: Script, nodes: Sequence[Any]) -> str:
        """The trainer that statements would start, by running them on a copy of the state; empty if they start none."""
        state, count, ended, failed = self.state, len(self.commands), self.ended, self.failed
        kept = {name: copy(value) for name, value in vars(state).items()}
        kept["frames"] = [dict(each) for each in state.frames]
        output, self.output = self.output, []
        loops, self._loops = self._loops, 0
        is_whole = False
        try:
            self._statements(script, nodes)
            is_whole = True
        except (End, Return):
            is_whole = True
        except DocumentError:
            pass  # what was read until then counts, and of the rest what its text shows
        finally:
            self.output, self._loops, self.ended, self.failed = output, loops, ended, failed
            vars(state).update(kept)
            started, self.commands[count:] = self.commands[count:], []
        found = next((" ".join(map(plain, command.words)) for command in started if self.is_trainer(command)), "")
        shown = next((text for node in nodes if (text := program_in(script, node))), "") if not is_whole else ""
        return (found or shown)[:60]

    def statement(self, script: Script, node: Any) -> Status:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise DocumentError(
                said("the script takes more than {most} steps", most=_MAX_STEPS), at=script.at(node), hint=HINT
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
                hint=HINT,
            )
        status: Status = handler(script, node)
        self.state.status = status
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
            raise End(status)

    @contextmanager
    def _tolerating(self) -> Iterator[None]:
        """Within, a failure ends nothing whatever ``set -e`` says: for conditions, and before ``&&`` and ``||``."""
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
            status = self.assignments.arithmetic(inside, script.at(node))
            if status is False and self.state.ends_on_failure and not self._tolerant:
                self._fail(script, node)
            return status
        return self.block(script, node)

    def _subshell(self, script: Script, node: Any) -> Status:
        if (inside := _arithmetic_in(script, node)) is not None:
            return self.assignments.arithmetic(inside, script.at(node))
        try:
            with self._apart():
                return self.block(script, node)
        except (End, Return) as end:
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
                self.assignments.store(self.assignments.of(script, node))
        return self._substituted

    def _declaration_command(self, script: Script, node: Any) -> Status:
        return self.assignments.declaration(script, node)

    def _unset_command(self, script: Script, node: Any) -> Status:
        return self.assignments.unset(script, node)

    def _function_definition(self, script: Script, node: Any) -> Status:
        name = script.text(node.child_by_field_name("name"))
        self.state.functions[name] = (script, node.child_by_field_name("body"))
        self.state.sources[name] = self.state.source
        return True

    def _test_command(self, script: Script, node: Any) -> Status:
        if script.text(node.children[0]) == "((":
            inside = script.between(node.children[0].end_byte, node.children[-1].start_byte)
            return self.assignments.arithmetic(inside, script.at(node))
        return self.conditions.test(script, node)


def _arithmetic_in(script: Script, node: Any) -> str | None:
    """The inside of ``(( ))`` where the grammar takes it for two subshells, as after ``!``."""
    inner = [child for child in node.children if child.is_named]
    is_double = len(inner) == 1 and inner[0].type == "subshell" and inner[0].start_byte == node.start_byte + 1
    if not is_double or inner[0].end_byte != node.end_byte - 1:
        return None
    return script.between(node.start_byte + 2, node.end_byte - 2)
