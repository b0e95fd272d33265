"""Control flow: ``if``, ``case``, loops, ``&&`` and ``||``, pipelines.

What depends on a condition that is not decided is left to ``undecided``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from rlctl.common.errors import DocumentError, Location
from rlctl.common.messages.reasons import said
from rlctl.shell.arithmetic import assigned
from rlctl.shell.assignments import HINT, word_sources
from rlctl.shell.conditions import Status
from rlctl.shell.patterns import as_regex, is_costly
from rlctl.shell.pipes import filtered
from rlctl.shell.statements import End, Return, Statements
from rlctl.shell.syntax import Script
from rlctl.shell.text import Text, changed, hidden, plain, problem, unknown
from rlctl.shell.undecided import UndecidedLoopError, only_ends
from rlctl.shell.words import alternatives

_MAX_TURNS = 1_000


class Flow(Statements):
    """Decides which statements are run, and how often."""

    def _if_statement(self, script: Script, node: Any) -> Status:
        clauses = [child for child in node.children if child.type == "elif_clause"]
        last = next((child for child in node.children if child.type == "else_clause"), None)
        rest = [*clauses, *([] if last is None else [last])]
        for part in (node, *clauses):
            is_taken, status = self._branch(script, part, rest)
            if is_taken is not False:
                return status
            rest = rest[1:]
        return True if last is None else self.block(script, last)

    def _branch(self, script: Script, node: Any, rest: Sequence[Any]) -> tuple[Status, Status]:
        """Run a branch if its condition holds: whether it does, and the status. ``rest`` are the clauses after it.

        What is not decided taints what it changes, unless only one of the branches starts a trainer.
        """
        split = next(index for index, child in enumerate(node.children) if child.type == "then")
        conditions = [child for child in node.children[1:split] if child.is_named and child.type != "comment"]
        holds = self._condition(script, conditions)
        body = _body(node, "then")
        if holds is None:
            starts = self._starting(script, conditions[-1], [body, *(_body(clause, "then") for clause in rest)])
            if starts is None:
                self.undecided.branches(script, conditions[-1], [*body, *rest])
                return None, None if rest else True
            holds = starts == 0
            self.undecided.assume(script, conditions[-1], holds=holds)
        return (True, self._statements(script, body)) if holds else (False, None)

    def _starting(self, script: Script, condition: Any, branches: Sequence[Sequence[Any]]) -> int | None:
        """The branch of an undecided condition that starts a trainer, by its place; None if none does.

        Raises:
            DocumentError: several do.
        """
        started = {place: text for place, nodes in enumerate(branches) if (text := self._trainer_in(script, nodes))}
        if len(started) > 1:
            self.undecided.refuse(script, condition, next(iter(started.values())))
        return next(iter(started), None)

    def _repeats(self, script: Script, node: Any, body: Any) -> None:
        """A loop of which the turns are not known: what it sets is unknown, and it starts no trainer."""
        if text := self._trainer_in(script, [body]):
            self.undecided.refuse(script, node, text)
        self.undecided.branches(script, node, [node])
        if node.type == "c_style_for_statement":
            at = script.at(node)
            header = script.between(node.start_byte, body.start_byte)
            for name in assigned(header):
                why = said("rlctl cannot tell how often the loop at line {line} runs", line=at.line)
                self.state.assign(name, unknown(why, at))

    def _case_statement(self, script: Script, node: Any) -> Status:
        subject = self.words.text(script.text(node.child_by_field_name("value")), script.at(node))
        items = [child for child in node.children if child.type == "case_item"]
        if hidden(subject) is not None:
            return self._undecided_case(script, node, items)
        for item in items:
            end = next(index for index, child in enumerate(item.children) if child.type == ")")
            source = script.between(item.start_byte, item.children[end].start_byte)
            globs = [self.words.pattern(text, script.at(item)) for text in alternatives(source, script.at(item))]
            if any(hidden(glob) for glob in globs):
                return self._undecided_case(script, node, items)
            if any(_matches(plain(subject), plain(glob), script.at(item)) for glob in globs):
                if (odd := next((child for child in item.children if child.type in (";&", ";;&")), None)) is not None:
                    raise DocumentError(
                        said("rlctl does not evaluate {type!r} in 'case'", type=odd.type), at=script.at(odd), hint=HINT
                    )
                return self._statements(script, item.children[end + 1 :])
        return True

    def _undecided_case(self, script: Script, node: Any, items: Sequence[Any]) -> Status:
        value, bodies = node.child_by_field_name("value"), [_body(item, ")") for item in items]
        starts = self._starting(script, value, bodies)
        if starts is None:
            self.undecided.branches(script, value, items)
            return None
        pattern = script.between(items[starts].start_byte, bodies[starts][0].start_byte).strip()
        shown = f"{script.text(value)} in {pattern}"
        self.state.assumed.setdefault(
            said("assumed that '{shown}' succeeds, because only then a trainer is started", shown=shown),
            script.at(node),
        )
        return self._statements(script, bodies[starts])

    def _for_statement(self, script: Script, node: Any) -> Status:
        if node.children[0].type == "select":
            raise DocumentError(
                said("rlctl does not evaluate '{name}' here", name="select"), at=script.at(node), hint=HINT
            )
        variable = script.text(node.child_by_field_name("variable"))
        values = [child for child in node.children if node.field_name_for_child(node.children.index(child)) == "value"]
        items = [item for text, at in word_sources(script, values) for item in self.words.fields(text, at)]
        if not any(child.type == "in" for child in node.children):
            items = list(self.state.arguments)
        body = node.child_by_field_name("body")
        if any(problem(item) is not None for item in items):
            self._repeats(script, node, body)
            return None
        if len(items) > _MAX_TURNS:
            raise DocumentError(
                said("the loop takes more than {most} turns", most=_MAX_TURNS), at=script.at(node), hint=HINT
            )
        status: Status = True
        for item in items:
            self.state.assign(variable, item)
            goes_on, status = self._turn(script, node, body)
            if not goes_on:
                break
        return status

    def _turn(self, script: Script, node: Any, body: Any) -> tuple[bool, Status]:
        """Run one iteration of a loop: whether the loop goes on, and the status."""
        self._loops += 1
        try:
            return True, self.block(script, body)
        except UndecidedLoopError:
            self._repeats(script, node, body)
            return False, None
        except Return as end:
            if end.kind == "return":
                raise
            if end.loops > 1:
                raise Return(end.kind, loops=end.loops - 1) from None
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
                self._repeats(script, node, body)
                return None
            if holds is until:
                return status
            goes_on, status = self._turn(script, node, body)
            if not goes_on:
                return status
        raise DocumentError(
            said("the loop takes more than {most} turns", most=_MAX_TURNS), at=script.at(node), hint=HINT
        )

    def _c_style_for_statement(self, script: Script, node: Any) -> Status:
        opening, closing = (next(child for child in node.children if child.type == sign) for sign in ("((", "))"))
        header, at = script.between(opening.end_byte, closing.start_byte), script.at(node)
        parts = [part.strip() for part in header.split(";")]
        body = node.child_by_field_name("body")
        if len(parts) != 3:
            raise DocumentError("rlctl does not evaluate this loop", at=at, hint=HINT)
        first, condition, update = parts
        if first:
            self.assignments.arithmetic(first, at)
        status: Status = True
        for _ in range(_MAX_TURNS):
            holds = self.assignments.arithmetic(condition, at) if condition else True
            if holds is None:
                self._repeats(script, node, body)
                return None
            if not holds:
                return status
            goes_on, status = self._turn(script, node, body)
            if not goes_on:
                return status
            if update:
                self.assignments.arithmetic(update, at)
        raise DocumentError(said("the loop takes more than {most} turns", most=_MAX_TURNS), at=at, hint=HINT)

    def _list(self, script: Script, node: Any) -> Status:
        left, sign, right = node.children[0], script.text(node.children[1]), node.children[-1]
        status = self._condition(script, [left])
        if status is None:
            if only_ends(script, right):
                self.undecided.assume_passed(script, left, right)
                return True if sign == "||" else None
            if self._starting(script, left, [[right]]) is None:
                self.undecided.branches(script, left, [right])
                return None
            self.undecided.assume(script, left, holds=sign == "&&")
            return self.statement(script, right)
        if status is (sign == "||"):
            return status
        return self.statement(script, right)

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
        if (taken := self.state.of_the_machine(shown, script.at(node))) is not None:
            self.output.append(taken)
            return True
        if (text := self._filtered(script, stages)) is not None:
            self.output.append(text)
            return True
        self.output.append(
            unknown(said("what '{shown}' prints can only be known by running it", shown=shown), script.at(node))
        )
        return None

    def _filtered(self, script: Script, stages: Sequence[Any]) -> Text | None:
        """The output of a pipeline that passes a text through filters; None if it cannot be evaluated."""
        first = stages[0]
        if first.type != "command" or script.text(first).split()[0] not in ("echo", "printf"):
            return None
        kept, self.output = self.output, []
        try:
            self._stage(script, first)
            text = tuple(piece for part in self.output for piece in part)
        finally:
            self.output = kept
        shown: str | None = plain(text)[:-1] if plain(text).endswith("\n") else None
        for stage in stages[1:]:
            if stage.type != "command" or hidden(text) is not None or shown is None:
                return None
            words = [
                word for source, at in word_sources(script, stage.children) for word in self.words.fields(source, at)
            ]
            shown = None if any(hidden(word) for word in words) else filtered(shown, [plain(word) for word in words])
        return None if shown is None else changed(text, shown + "\n", script.at(first))

    def _status_of_pipe(self, script: Script, stages: Sequence[Any]) -> Status:
        statuses = [self._stage(script, stage) for stage in stages]
        if not self.state.pipes_fail:
            return statuses[-1]
        return False if False in statuses else None if None in statuses else True

    def _stage(self, script: Script, stage: Any) -> Status:
        """Run a part of a pipeline, which is a process of its own in bash."""
        try:
            with self._apart():
                return self.statement(script, stage)
        except (End, Return) as end:
            return end.status


def _body(node: Any, after: str) -> list[Any]:
    """The statements of a branch: what follows ``then`` or the ``)`` of a pattern, or all of ``else``, without other
    clauses."""
    place = next((index for index, child in enumerate(node.children) if child.type == after), -1)
    return [
        child
        for child in node.children[place + 1 :]
        if child.is_named and child.type not in ("comment", "elif_clause", "else_clause")
    ]


def _matches(subject: str, glob: str, at: Location) -> bool:
    if is_costly(subject, glob):
        raise DocumentError("the pattern is too costly to match", at=at, hint=HINT)
    return re.fullmatch(as_regex(glob), subject, re.DOTALL) is not None
