"""Help for the field that a person looks at: what it is, its type, default, origin, and what each dialect calls it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from rlctl.common.errors import ConfigError
from rlctl.config.chinese import in_words
from rlctl.config.explain import explain
from rlctl.documents import KeyPath, dotted
from rlctl.editing.fields import FieldView, meanings
from rlctl.editing.naming import dialects_inside, names_of
from rlctl.tui.language import padded, say

_VARIABLE = re.compile(r"\$\{oc\.env:(?P<name>\w+)(?:,(?P<default>[^{}]*))?\}")
"""A value that is one variable of the environment and nothing else."""
NAMES = 3
"""Most keys of a format that are listed: what means the field comes first."""


class HelpPane(VerticalScroll):
    """The meaning of one field."""

    DEFAULT_CSS = "HelpPane { padding: 0 1; }"

    def compose(self) -> ComposeResult:
        yield Static(say("Select a field to see its help here."), id="help-text", markup=False)

    def show(self, view: FieldView) -> None:
        """Show all that is known of a field."""
        self._tell(_told(view))

    def show_section(self, path: KeyPath, fields: Sequence[FieldView]) -> None:
        """Show what a section is for, and its fields in a line each."""
        self._tell(_of_section(path, fields))

    def show_summary(self) -> None:
        """Show what the first page is."""
        about = say("At a glance: what is trained on what, how and where. What the file sets is in color.")
        keys = say("Enter goes to the lines, and from a line to the field where it is edited.")
        self._tell(
            Content("\n\n").join([Content.styled(say("summary"), "$primary bold"), Content(about), Content(keys)])
        )

    def _tell(self, told: Content) -> None:
        text = self.query_one("#help-text", Static)
        if str(text.content) != str(told):  # what is set is laid out anew
            text.update(told)


def _told(view: FieldView) -> Content:
    type_ = in_words(view.type) + (f" [{view.unit}]" if view.unit else "") + (f", {view.range}" if view.range else "")
    facts = [(say("now"), view.now if not view.info.secret else "...")]
    facts += [(say("follows"), followed(view))] if view.is_linked else []
    facts += [(say("default"), view.default or say("none: it must be set"))]
    facts += [(say("type"), type_), (say("from"), view.origin)]
    parts: list[Content] = [
        Content.styled(dotted(view.path), "$primary bold"),
        Content(""),
        Content(view.help),
        Content(""),
    ]
    parts += [Content.assemble((f"{padded(name, 8)} ", "$text-muted"), value) for name, value in facts]
    if not view.applies:
        parts += [Content(""), Content.styled(say("This run does not use it."), "$text-muted")]
    if options := meanings(view):
        parts.append(Content(""))
        parts += [_option(name, text, is_now=name == view.now) for name, text in options.items()]
    names = names_of(view.pattern)
    for dialect in ("verl", "trinity", "roll"):
        called = names.get(dialect, ())
        inside = say("has keys for its items") if dialect in dialects_inside(view.pattern) else ""
        first = "" if called else inside or say("has no such key")
        parts += [Content(""), Content.assemble((f"{dialect:<8} ", "$text-muted"), first)]
        parts += [Content(f"  {name}") for name in called[:NAMES]]
        if len(called) > NAMES:
            parts.append(Content.styled(say("  and {count} more").format(count=len(called) - NAMES), "$text-muted"))
    return Content("\n").join(parts)


def followed(view: FieldView) -> str:
    """What a linked value follows: a variable in plain words, another key as it is written."""
    if (found := _VARIABLE.fullmatch(view.text)) is None:
        return view.text
    name, default = found["name"], found["default"]
    if default is None:
        return say("the environment's {name}").format(name=name)
    return say("the environment's {name}, else {default}").format(name=name, default=default or say("empty"))


def _of_section(path: KeyPath, fields: Sequence[FieldView]) -> Content:
    parts = [Content.styled(dotted(path), "$primary bold"), Content("")]
    with suppress(ConfigError):  # an item of a list, such as a stage: the fields tell what it is
        parts += [Content(explain(dotted(path)).help), Content("")]
    for view in fields:
        name = dotted(view.path[len(path) :] or view.path)
        parts += [Content.styled(name, "bold"), Content(f"  {first_sentence(view.help)}")]
    return Content("\n").join(parts)


def first_sentence(text: str) -> str:
    """The first sentence of a help text, in English or Chinese."""
    ends = [place + len(end) for end in (". ", "。") if (place := text.find(end)) >= 0]
    return text[: min(ends)].rstrip() if ends else text


def _option(name: str, text: str, *, is_now: bool) -> Content:
    return Content.assemble(("▶ " if is_now else "  ", "$primary"), (name, "bold"), f": {text}")


def hint(view: FieldView) -> str:
    """What is most worth knowing of a field, on two lines that are cut off where they are too long."""
    told = say("default {default}").format(default=view.default or say("none: it must be set"))
    if view.is_linked:
        found = _VARIABLE.fullmatch(view.text)
        told = say("follows {link}").format(link=found["name"] if found else view.text)
    return f"{view.help}\n{told} · {view.origin}"
