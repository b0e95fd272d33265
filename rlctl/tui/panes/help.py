"""Help for the field that a person looks at: what it is, its type, default, origin, and what each dialect calls it."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from rlctl.config.chinese import in_words
from rlctl.documents import dotted
from rlctl.editing.fields import FieldView, meanings
from rlctl.editing.naming import dialects_inside, names_of
from rlctl.tui.language import padded, say


class HelpPane(VerticalScroll):
    """The meaning of one field."""

    DEFAULT_CSS = "HelpPane { padding: 0 1; }"

    def compose(self) -> ComposeResult:
        yield Static(say("Go to a field: what it means is told here."), id="help-text", markup=False)

    def show(self, view: FieldView) -> None:
        """Show all that is known of a field."""
        type_ = (
            in_words(view.type) + (f" [{view.unit}]" if view.unit else "") + (f", {view.range}" if view.range else "")
        )
        lines = [
            dotted(view.path),
            "",
            view.help,
            "",
            f"{padded(say('now'), 8)} {view.now if not view.info.secret else '...'}",
            *([f"{padded(say('follows'), 8)} {view.text}"] if view.is_linked else []),
            f"{padded(say('default'), 8)} {view.default or say('none: it must be set')}",
            f"{padded(say('type'), 8)} {type_}",
            f"{padded(say('from'), 8)} {view.origin}",
            "",
        ]
        names = names_of(view.pattern)
        for dialect in ("verl", "trinity", "roll"):
            called = names.get(dialect, ())
            inside = say("has keys for what is in it") if dialect in dialects_inside(view.pattern) else ""
            lines.append(dialect if called else f"{dialect:<8} {inside or say('has nothing for it')}")
            lines += [f"  {name}" for name in called]
        if options := meanings(view):
            lines += ["", *(f"{'>' if name == view.now else ' '} {name}: {text}" for name, text in options.items())]
        if not view.applies:
            lines += ["", say("This run does not use it.")]
        told, text = "\n".join(lines), self.query_one("#help-text", Static)
        if text.content != told:  # what is set is laid out anew
            text.update(told)


def hint(view: FieldView) -> str:
    """What is most worth knowing of a field, on a line or two."""
    origin = say("default {default}").format(default=view.default or say("none: it must be set"))
    return f"{dotted(view.path)}: {view.help}\n{origin} · {view.origin}"
