"""The sections of a config as a tree, with a mark where something was set."""

from __future__ import annotations

from textual.message import Message
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from rlctl.documents import KeyPath
from rlctl.editing.fields import FieldView


class SectionTree(Tree[KeyPath]):
    """Sections, to pick one; a section that a run does not use is dim."""

    class Picked(Message):
        """A person picked a section."""

        def __init__(self, path: KeyPath) -> None:
            self.path = path
            super().__init__()

    def __init__(self) -> None:
        super().__init__("config", id="sections")
        self.show_root = False
        self.guide_depth = 2
        self._by_path: dict[KeyPath, TreeNode[KeyPath]] = {}

    def show(self, fields: list[FieldView]) -> None:
        """Show the sections of these fields; the cursor stays where it is."""
        wanted: dict[KeyPath, None] = {}
        for view in fields:
            for size in range(1, len(view.section) + 1):
                wanted.setdefault(view.section[:size])
        for path in [path for path in self._by_path if path not in wanted]:
            self._by_path.pop(path).remove()
        for path in wanted:
            if path not in self._by_path:
                parent = self._by_path[path[:-1]] if len(path) > 1 else self.root
                self._by_path[path] = parent.add(str(path[-1]), data=path, expand=False)
            inside = [view for view in fields if view.path[: len(path)] == path]
            edited = any(view.edited for view in inside)
            label = f"{path[-1]}{' *' if edited else ''}"
            dormant = not any(view.applies for view in inside)
            self._by_path[path].set_label(f"[dim]{label}[/dim]" if dormant else label)
            self._by_path[path].allow_expand = any(other[:-1] == path for other in wanted)
        self.root.expand()

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
