"""The sections of a config as a tree: marks for changes and findings, and ``off`` for a section that the run does not use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.markup import escape
from textual.message import Message
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from rlctl.documents import KeyPath
from rlctl.editing.fields import FieldView
from rlctl.tui.language import say

ERROR, WARNING = "✗", "!"
SUMMARY: KeyPath = ("summary",)
"""The place of the first page, above the sections; no section of a config is called so."""


class SectionTree(Tree[KeyPath]):
    """Sections, to pick one; a section that a run does not use is dim and says so."""

    DEFAULT_CSS = """
    SectionTree { width: 22; max-width: 40%; padding: 0; overflow-x: hidden; }
    SectionTree > .sections--error { color: $error; text-style: bold; }
    SectionTree > .sections--warning { color: $warning; text-style: bold; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"sections--error", "sections--warning"}

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "right",
            "open",
            say("Open"),
            id="sections.open",
            show=False,
            tooltip=say("Open the section, or go to its fields"),
        ),
        Binding(
            "left",
            "close",
            say("Close"),
            id="sections.close",
            show=False,
            tooltip=say("Close the section, or go to the one around it"),
        ),
        Binding(
            "enter,tab",
            "enter",
            say("Fields"),
            id="sections.enter",
            key_display="enter",
            tooltip=say("Go to the fields of the section"),
        ),
    ]

    class Entered(Message):
        """A person goes to the fields of a section."""

        def __init__(self, path: KeyPath) -> None:
            self.path = path
            super().__init__()

    class Picked(Message):
        """A person picked a section."""

        def __init__(self, path: KeyPath) -> None:
            self.path = path
            super().__init__()

    def __init__(self) -> None:
        self._marks: Mapping[KeyPath, str] = {}
        super().__init__("config", id="sections", classes="panel")
        self.border_title = say("Sections")
        self.show_root = False
        self.guide_depth = 2
        self._by_path: dict[KeyPath, TreeNode[KeyPath]] = {}
        self._labels: dict[KeyPath, str] = {}
        self._fields: list[FieldView] = []

    def mark(self, marks: Mapping[KeyPath, str]) -> None:
        """Mark the sections that have findings: ``✗`` or ``!``."""
        if marks != self._marks:
            self._marks = dict(marks)
            self._invalidate()
            self.refresh()

    def show(self, fields: list[FieldView]) -> None:
        """Show the sections of these fields; the cursor stays where it is."""
        known, self._fields = self._fields, fields
        pairs = zip(fields, known, strict=False)
        if len(known) == len(fields) and all(new is old or _seen(new) == _seen(old) for new, old in pairs):
            return
        edited: dict[KeyPath, bool] = {SUMMARY: False}
        used: dict[KeyPath, bool] = {SUMMARY: True}
        names = {
            view.section: view.text for view in fields if view.section[:1] == ("stages",) and view.path[2:] == ("name",)
        }
        for view in fields:
            if view.path == ("rlctl",):  # the form's version: nothing to set
                continue
            for size in range(1, max(2, len(view.path))):  # a key of the top that holds nothing yet has its place too
                path = view.path[:size]
                edited[path] = edited.get(path, False) or view.edited
                used[path] = used.get(path, False) or view.applies
        for path in [path for path in self._by_path if path not in edited]:
            del self._labels[path]
            self._by_path.pop(path).remove()
        holding = {path[:-1] for path in edited}
        for path, is_edited in edited.items():
            if path not in self._by_path:
                parent = self._by_path[path[:-1]] if len(path) > 1 else self.root
                self._by_path[path] = parent.add(str(path[-1]), data=path, expand=False)
            name = f"{int(path[-1]) + 1} {escape(names[path])}" if path in names else path[-1]
            name = say("summary") if path == SUMMARY else name
            label = f"{name}{' ●' if is_edited else ''}"
            label = label if used[path] else f"[dim]{label} {say('(off)')}[/dim]"
            if self._labels.get(path) != label:
                self._labels[path] = label
                self._by_path[path].set_label(label)
            if self._by_path[path].allow_expand != (path in holding):
                self._by_path[path].allow_expand = path in holding
        if not self.root.is_expanded:
            self.root.expand()

    def render_label(self, node: TreeNode[KeyPath], base_style: Style, style: Style) -> Text:
        """Indent a section without children like its siblings; the line with the cursor is highlighted to its end."""
        ground = base_style + Style(bgcolor=style.bgcolor)
        label = super().render_label(node, ground, style)
        if not node.allow_expand:
            label = Text.assemble(("  ", ground), label)
        if mark := self._marks.get(node.data or (), ""):
            kind = "sections--error" if mark == ERROR else "sections--warning"
            label.append(f" {mark}", style + self.get_component_rich_style(kind, partial=True))
        if style.bgcolor is not None:
            label.append(" " * self.size.width, style)
        return label

    def action_open(self) -> None:
        node = self.cursor_node
        if node is not None and node.allow_expand and not node.is_expanded:
            node.expand()
        else:
            self.action_enter()

    def action_close(self) -> None:
        node = self.cursor_node
        if node is not None and node.allow_expand and node.is_expanded:
            node.collapse()
        else:
            self.action_cursor_parent()

    def action_enter(self) -> None:
        node = self.cursor_node
        if node is not None and node.data is not None:
            self.call_later(self.post_message, self.Entered(node.data))  # after the sections that were picked before

    def pick(self, path: KeyPath) -> None:
        """Put the cursor on a section, opening those above it."""
        node = self._by_path.get(path)
        if node is None:
            return
        above = node.parent
        while above is not None:
            above.expand()
            above = above.parent
        self.call_after_refresh(self.move_cursor, node)

    def on_tree_node_highlighted(self, message: Tree.NodeHighlighted[KeyPath]) -> None:
        message.stop()
        if message.node.data is not None:
            self.post_message(self.Picked(message.node.data))


def _seen(view: FieldView) -> tuple[object, ...]:
    """What of a field the tree shows: its place, its marks, and the name of a stage."""
    return view.path, view.edited, view.applies, view.text if view.path[2:] == ("name",) else ""
