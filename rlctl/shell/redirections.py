"""Where output goes and input comes from: redirections, here-documents, the files that a script writes, ``$(<FILE)``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlctl.common.messages.reasons import said
from rlctl.shell import builtins
from rlctl.shell.conditions import Status
from rlctl.shell.statements import Statements
from rlctl.shell.syntax import Script
from rlctl.shell.text import Text, hidden, literal, plain, problem, unknown

_OUTPUT_SIGNS = frozenset({">", ">>", ">|", ">&", "&>", "&>>"})


class Redirections(Statements):
    """Follows what statements write and read."""

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
            is_piped = any(child.type == "pipeline" for child in here.children)
            if self.output is not None and to is None and not is_piped and script.text(body) == "cat":
                self.output.append(self._document(script, here))
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
        """Run what follows ``<<EOF`` on its line, which the grammar counts as a part of the redirection."""
        piped = next((child for child in here.children if child.type == "pipeline"), None)
        right, sign = here.child_by_field_name("right"), here.child_by_field_name("operator")
        if piped is not None:
            return self.statement(script, piped)
        if right is None or (status is not None and status is (sign.type == "||")):
            return status
        if status is None:
            if text := self._trainer_in(script, [right]):
                self.undecided.refuse(script, here.parent, text)
            self.undecided.branches(script, here.parent, [right])
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
        """Expand ``$(<FILE)``."""
        text, at = self.words.text(script.text(name), script.at(name)), script.at(name)
        if self.commands and hidden(text) is None:
            shown = plain(text)
            self.state.assumed.setdefault(
                said("assumed that no command before this line changes '{shown}'", shown=shown), at
            )
        return builtins.contents(self.state, text, at)

    def _document(self, script: Script, here: Any) -> Text:
        """The text of a here-document."""
        start = next(child for child in here.children if child.type == "heredoc_start")
        body = next((child for child in here.children if child.type == "heredoc_body"), None)
        source = script.text(body) if body is not None else ""
        if any(part.type == "<<-" for part in here.children):
            source = re.sub(r"(?m)^\t+", "", source)
        at = script.at(body) if body is not None else script.at(here)
        is_raw = script.text(start)[:1] in "\"'\\"
        return literal(source, at) if is_raw else self.words.here_document(source, at)

    def _write_file(self, script: Script, here: Any, to: Any) -> None:
        """A file that the script writes with ``cat > FILE <<EOF``."""
        name = plain(self.words.text(script.text(to.child_by_field_name("destination")), script.at(to)))
        text = self._document(script, here)
        is_whole = problem(text) is None and ">>" not in (part.type for part in to.children)
        self.state.writes(name, plain(text) if is_whole else None)


def _redirection(script: Script, node: Any) -> tuple[str, str, str]:
    """The descriptor that a redirection is for (empty: the usual one), its sign, and where it goes."""
    of = next((child for child in node.children if child.type == "file_descriptor"), None)
    sign = next((child.type for child in node.children if not child.is_named), "")
    to = node.child_by_field_name("destination")
    return ("" if of is None else script.text(of)), sign, ("" if to is None else script.text(to))
