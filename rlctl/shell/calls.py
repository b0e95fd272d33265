"""Commands: functions, what bash itself does, other scripts, ``$( )``, and the programs that are started."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlctl.common.errors import DocumentError, Location
from rlctl.common.filenames import SCRIPT_ENDINGS, expanded
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import natural
from rlctl.documents.files import read_text
from rlctl.shell import builtins
from rlctl.shell.assignments import ASSIGNMENT, HINT, word_sources
from rlctl.shell.conditions import Status
from rlctl.shell.launch import after_equals, program_of
from rlctl.shell.redirections import Redirections
from rlctl.shell.statements import Command, End, Return
from rlctl.shell.syntax import Script, parse
from rlctl.shell.text import Text, hidden, joined, literal, plain, unknown, unknown_items
from rlctl.shell.undecided import program_in

_MAX_DEPTH = 30
_LAUNCHERS = frozenset({"srun", "mpirun", "mpiexec", "numactl"})
"""Programs that start another behind options of their own; it may be a shell with statements of its own."""
_WITH_VALUE = re.compile(r"[-+]\w*[oO]|--rcfile|--init-file")
"""Options of bash that take the next word."""


class Calls(Redirections):
    """Runs commands as far as reading can."""

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
        around, self.words.vanished = self.words.vanished, {}
        words = [word for text, at in word_sources(script, nodes) for word in self.words.fields(text, at)]
        self._vanished, self.words.vanished = self.words.vanished, around
        substituted = self._substituted
        for child in node.children:
            if child.type == "herestring_redirect":  # it may set a variable, as $((n++)) does
                self.words.text(script.text(child).removeprefix("<<<").strip(), script.at(child))
        self.state.frames.append({})
        try:
            for child in before:
                if (match := ASSIGNMENT.match(script.text(child))) is not None:
                    self.state.keep(match["name"])
                self.assignments.store(self.assignments.of(script, child))
            with self._output_of(script, node):
                return self._call(words, script.at(node)) if words else substituted
        finally:
            self.state.leave()

    def _call(self, words: list[Text], at: Location) -> Status:
        name = plain(words[0])
        if name in self.state.functions:
            return self._function(name, words[1:], at)
        if name in ("break", "continue"):
            raise Return(name, loops=self._left_loops(words, at))
        if name == "return":
            if not self.state.calls and not self._sourced:
                return False
            raise Return(name, _told_status(words))
        if name == "exit":
            self.failed = ""
            self._end(_told_status(words), at)
            return None
        if name == "time" and len(words) > 1:
            return self._timed(words[1:], at)
        if name == "let":
            return self._let(words[1:], at)
        if name == "eval":
            return self._eval(words[1:], at)
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
                said("rlctl cannot tell how many loops '{words}' leaves", words=plain(words[0])), at=at, hint=HINT
            )
        return min(int(plain(words[1])), self._loops)

    def _let(self, expressions: list[Text], at: Location) -> Status:
        status: Status = False
        for text in expressions:
            if (piece := hidden(text)) is not None:
                raise DocumentError(
                    said("rlctl cannot tell what 'let' sets: {problem}", problem=piece.problem), at=at, hint=HINT
                )
            status = self.assignments.arithmetic(plain(text), at)
        return status

    def _eval(self, words: list[Text], at: Location) -> Status:
        """``eval``: statements like any others, or what a program prints for it, as conda's hook does."""
        text = joined(words, " ", at)
        if (piece := hidden(text)) is not None:
            if piece.secret or len(words) > 1 or plain(text).strip():
                raise DocumentError(
                    said("rlctl does not evaluate '{name}' here", name="eval"), at=at, hint=builtins.TRACE
                )
            self.state.leave_unread("eval", piece.problem, at)
            return None
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise DocumentError(said("the function {name} calls itself too often", name="eval"), at=at)
        try:
            script = parse(plain(text), at.file, at.line)
            return self.block(script, script.root)
        finally:
            self._depth -= 1

    def _timed(self, words: list[Text], at: Location) -> Status:
        """``time COMMAND``, which may be a function."""
        name = plain(words[0])
        if name in ("{", "!", "(") or name.startswith("-"):
            raise DocumentError(said("rlctl does not evaluate '{name}' here", name="time"), at=at, hint=HINT)
        return self._call(words, at)

    def _trap(self, words: list[Text], at: Location) -> Status:
        """``trap``: what it runs later may start no trainer, and may set nothing while the script runs."""
        signals = {plain(word).upper().removeprefix("SIG") for word in words[1:]}
        if signals & {"DEBUG", "RETURN"}:
            raise DocumentError(said("rlctl does not evaluate '{name}' here", name="trap"), at=at, hint=HINT)
        if signals & {"EXIT", "0", "ERR"} and hidden(words[0]) is None:
            script = parse(plain(words[0]), at.file, at.line)
            goes_on = "ERR" in signals and not self.state.ends_on_failure
            if program_in(script, script.root) or (goes_on and _assigns(script.root)):
                raise DocumentError(said("rlctl does not evaluate '{name}' here", name="trap"), at=at, hint=HINT)
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
        if (inner := self._script_in(words, at)) is not None:
            status = self._shell(inner, words[: len(words) - len(inner)], at)
            if name == "exec":
                raise End(status)  # the script takes the place of this one
            return status
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
        self.commands.append(Command(tuple(words), at, self.state.folder, self._vanished))
        builtins.touch(self.state, words)
        status = builtins.status_of(self.state, words, at)
        if self.output is not None and status is not False:
            self.output.append(self._only_when_run(words, at))
        if name == "exec" and len(words) > 1:
            raise End(status)  # the program takes the place of the shell
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
        except Return as end:
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
            bad = hidden(words[1]) if len(words) > 1 else None
            why = said("'{shown}' does not exist", shown=name) if bad is None else bad.problem
            self.state.leave_unread(" ".join(map(plain, words)).strip(), why, at)
            return None
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

    def _script_in(self, words: list[Text], at: Location) -> list[Text] | None:
        """The words of a script that a command starts, by ``bash FILE`` or by its path, without wrappers such as
        ``nohup``; None if it starts none."""
        texts = [plain(word) for word in words]
        shells = [place for place, text in enumerate(texts[:-1]) if text.rpartition("/")[2] in ("bash", "sh")]
        files = [place for place, text in enumerate(texts) if text.endswith(SCRIPT_ENDINGS)]
        if not shells and not files:
            return None
        if texts[0].rpartition("/")[2] in _LAUNCHERS:
            place = min(*shells[:1], *(place for place in files if self._script_file(texts[place])), len(words))
            return words[place + (place in shells) :] or None
        program = program_of(words, at)
        if program is None:
            return None
        if program.name.rpartition("/")[2] in ("bash", "sh"):
            return list(program.arguments) or None
        place = len(words) - len(program.arguments) - 1
        is_file = place in files and hidden(words[place]) is None and self._script_file(program.name) is not None
        return words[place:] if is_file else None

    def _shell(self, arguments: list[Text], before: Sequence[Text], at: Location) -> Status:
        """``bash -c TEXT`` and ``bash FILE ARGUMENTS``, which change nothing in this script; ``env`` may set variables
        before."""
        options, rest = _options_of_shell(arguments)
        try:
            with self._apart(), self._intolerant():
                self.state.become_process()
                for word in before:
                    name, equals, _ = plain(word).partition("=")
                    if equals and re.fullmatch(r"[A-Za-z_]\w*", name):
                        self.state.assign(name, after_equals(word, len(name) + 1))
                        self.state.exported[name] = at
                flags = "".join(option for option in options if re.fullmatch(r"-\w+", option))
                self.state.ends_on_failure = "e" in flags or "errexit" in options
                self.state.strict = "u" in flags or "nounset" in options
                self.state.pipes_fail = "pipefail" in options
                if "c" in flags and rest:
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
        except End as end:
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
        except Return as end:
            if end.kind != "return":
                raise
            return end.status
        finally:
            self._depth -= 1

    def substitute(self, source: str, at: Location) -> Text:
        """Expand ``$( )``: the output of the commands in it."""
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
        except (End, Return) as end:
            status = end.status
        finally:
            found = joined(self.output, "", at)
            self.output = kept
            del self.commands[count:]
            self._depth -= 1
        self._substituted = status
        return _without_line_end(found)


def _options_of_shell(words: Sequence[Text]) -> tuple[list[str], list[Text]]:
    """The options of a shell, and what follows them: a file or a text, with its arguments."""
    options: list[str] = []
    rest = list(words)
    while rest and (option := plain(rest[0]))[:1] in ("-", "+") and len(option) > 1:
        count = 2 if _WITH_VALUE.fullmatch(option) else 1
        options += map(plain, rest[:count])
        del rest[:count]
        if option == "--":
            break
    return options, rest


def _told_status(words: Sequence[Text]) -> Status:
    """The status that ``exit`` and ``return`` give."""
    if len(words) < 2 or hidden(words[1]) is not None or not plain(words[1]).isdecimal():
        return None
    number = natural(plain(words[1]))
    return number is not None and number % 256 == 0


def _without_line_end(text: Text) -> Text:
    """A text without the line ends that it ends with."""
    found = [*text]
    while found and not found[-1].symbol and not found[-1].problem:
        rest = found[-1].text.rstrip("\n")
        if rest:
            return (*found[:-1], replace(found[-1], text=rest))
        found.pop()
    return tuple(found)


def _assigns(node: Any) -> bool:
    """Whether anything in a node sets a variable."""
    return node.type in ("variable_assignment", "declaration_command") or any(map(_assigns, node.children))
