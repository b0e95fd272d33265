"""Statements that may run or not: only running the script decides their condition.

What they set is not known from there on. A trainer that such a statement starts, or a loop that it leaves, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn

from rlctl.common.errors import DocumentError, Location
from rlctl.common.messages.reasons import said
from rlctl.shell import builtins
from rlctl.shell.arithmetic import assigned
from rlctl.shell.assignments import ASSIGNMENT, HINT, odd_flags, refuse_reference
from rlctl.shell.state import State, given_with
from rlctl.shell.syntax import Script
from rlctl.shell.text import problem, unknown, unknown_items

_IS_HOOK = re.compile(r"""eval "?(\$\([^()]*\)|`[^`]*`)"?""")
"""What a program prints for the shell, as conda does."""
_ONLY_FLAGS = re.compile(r"set( [-+]([A-Za-np-z]+|[A-Za-z]*o [a-z]+))+")
_USED = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)")
_NAMES = re.compile(r"(?<![\w-])[A-Za-z_]\w*")
_LOOPS = ("for_statement", "while_statement", "c_style_for_statement")
_SETTERS = ("let", "read", "mapfile", "readarray", "printf", "getopts")
"""Commands that set the variables they name."""
_ENDS = frozenset(
    {"exit", "return", "echo", "printf", ":", "true", "false", "usage", "help", "cat", "sleep", "kill", "trap"}
)


class UndecidedLoopError(DocumentError):
    """Only running the script decides whether a loop goes on after this turn; what it sets is unknown then."""


class Undecided:
    """Notes in a state which variables and functions are unknown."""

    def __init__(self, state: State) -> None:
        self.state = state

    def branches(self, script: Script, condition: Any, branches: Sequence[Any]) -> None:
        """Branches that may run or not: what they set is unknown."""
        why = said(
            "it depends on '{shown}', which only running the script can decide", shown=first_line(script, condition)
        )
        for branch in branches:
            if (leaving := _leaving(branch, int(condition.type in _LOOPS))) is not None:
                raise UndecidedLoopError(
                    said("rlctl cannot tell whether the loop continues: {why}", why=why),
                    at=script.at(leaving),
                    hint=self.hint(script, condition),
                )
            self.assume_passed(script, condition, branch)
            self._taint(script, branch, why)

    def refuse(self, script: Script, condition: Any, launch: str) -> NoReturn:
        """End the reading: a condition that is not decided decides which trainer is started, or how often."""
        raise DocumentError(
            said(
                "whether '{launch}' is started depends on '{shown}', which only running the script can decide",
                launch=launch,
                shown=first_line(script, condition),
            ),
            at=script.at(condition),
            hint=self.hint(script, condition),
        )

    def assume(self, script: Script, condition: Any, *, holds: bool) -> None:
        """Note that a condition is decided so that the trainer is started."""
        shown = first_line(script, condition)
        told = (
            said("assumed that '{shown}' succeeds, because only then a trainer is started", shown=shown)
            if holds
            else said("assumed that '{shown}' fails, because only then a trainer is started", shown=shown)
        )
        self.state.assumed.setdefault(told, script.at(condition))
        if wanted := self._wanted(script, condition):
            self.state.decided_by[told] = " ".join(f"--env {name}=VALUE" for name in wanted)

    def hint(self, script: Script, condition: Any) -> str:
        """How a person decides a condition: by the variables in it that are not known."""
        if not (wanted := self._wanted(script, condition)):
            return HINT
        return said("{given}, or run the script in isolation with --trace", given=given_with(wanted))

    def _wanted(self, script: Script, condition: Any) -> list[str]:
        nowhere = Location("")
        values = {name: self.state.look_up(name, nowhere) for name in _USED.findall(script.text(condition))}
        items = {name: value if isinstance(value, list) else [value or ()] for name, value in values.items()}
        return [name for name in items if any(map(problem, items[name]))]

    def assume_passed(self, script: Script, condition: Any, branch: Any) -> None:
        """Note that a branch with ``return`` is not taken: one with ``exit`` starts nothing if it is."""
        if _returns(branch):
            shown = first_line(script, condition)
            self.state.assumed.setdefault(
                said("assumed that '{shown}' lets the function continue", shown=shown), script.at(condition)
            )

    def _taint(self, script: Script, node: Any, why: str, called: frozenset[str] = frozenset()) -> None:
        """Mark as unknown what a node sets, also in the functions that it calls."""
        bad = unknown(why, script.at(node))
        match node.type:
            case "variable_assignment":
                if (match := ASSIGNMENT.match(script.text(node))) is not None:
                    value = node.child_by_field_name("value")
                    is_array = (value is not None and value.type == "array") or match["index"] is not None
                    items = unknown_items(why, script.at(node))
                    self.state.assign(match["name"], items if is_array else bad, append=match["sign"] == "+=")
            case "declaration_command" if odd := odd_flags(script.text(node)):
                refuse_reference(script.text(node).split()[0], odd, script.at(node))
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
        elif name == "set" and _ONLY_FLAGS.fullmatch(" ".join(script.text(node).split())):
            pass  # what it changes of later statements is how they fail or what they export
        elif name in ("set", "shift"):
            self.state.arguments = unknown_items(why, script.at(node))
            self.state.arguments_set += 1
        elif name in ("source", "."):
            self.state.leave_unread(" ".join(script.text(node).split()), why, script.at(node))
        elif name == "eval" and _IS_HOOK.fullmatch(text := " ".join(script.text(node).split())):
            self.state.leave_unread(text, why, script.at(node))
        elif name == "eval" or name in builtins.UNREAD:
            raise DocumentError(
                said("rlctl does not evaluate '{name}' here", name=name), at=script.at(node), hint=builtins.TRACE
            )
        elif name in _SETTERS:
            for found in _NAMES.findall(script.text(node)[len(name) :]):
                self.state.assign(found, unknown(why, script.at(node)))


def _leaving(node: Any, inside: int = 0) -> Any:
    """The ``break`` or ``continue`` of a node that leaves a loop around it; ``inside``: loops in the node."""
    if node.type == "command" and node.text.split()[:1] in ([b"break"], [b"continue"]):
        loops = node.text.split()[1:2]
        return node if not inside or (loops and loops != [b"1"]) else None
    if node.type == "function_definition":
        return None
    inside += node.type in _LOOPS
    return next((found for child in node.children if (found := _leaving(child, inside)) is not None), None)


def first_line(script: Script, node: Any) -> str:
    """The beginning of a statement, for a message."""
    return " ".join(script.text(node).split("\n")[0].split())[:60]


def program_in(script: Script, node: Any) -> str | None:
    """The first command in a node that starts a trainer, as far as its source shows."""
    if node.type == "command":
        text = " ".join(script.text(node).split())
        if re.match(r"(echo|printf|cat|:)\b", text):
            return None
        if re.search(r"(^|\s)(python3?\s+(-u\s+)?(-m\s+\S|\S+\.py)|torchrun|trinity\s+run|ray\s+job)", text):
            return text[:60]
        return None
    return next((found for child in node.children if (found := program_in(script, child)) is not None), None)


def only_ends(script: Script, node: Any) -> bool:
    """Whether a statement only prints and ends the script, as a check does that has failed."""
    if node.type == "command":
        words = script.text(node).split()
        return words[0] in _ENDS and words[:2] != ["printf", "-v"]
    if node.type in ("compound_statement", "subshell", "list", "redirected_statement"):
        return all(
            only_ends(script, child) for child in node.children if child.is_named and "redirect" not in child.type
        )
    return bool(node.type == "comment")


def _returns(node: Any) -> bool:
    """Whether a node may leave the function that it is in."""
    if node.type == "command" and node.text.split()[:1] == [b"return"]:
        return True
    return node.type != "function_definition" and any(map(_returns, node.children))
