"""What the command palette offers beside the system's commands: the keys of the screen, and every place one can go to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.fuzzy import Matcher
from textual.markup import escape

from rlctl.tui.language import say

if TYPE_CHECKING:
    from rlctl.tui.app import RlctlApp

CALLED = 1000.0
"""How well what is called as it was typed fits: better than what has the letters of that."""
FILES = 200
"""Most files of the folder that are offered."""


@dataclass(frozen=True, slots=True)
class Command:
    """A line of the palette."""

    title: str
    help: str
    run: Callable[[], Any]


def _marked(matcher: Matcher, title: str) -> Content:
    """A title with the letters that were found in it; the matcher's own way takes a name for markup."""
    content = Content(title)
    for place in matcher.fuzzy_search.match(matcher.query, title)[1]:
        content = content.stylize(matcher.match_style, place, place + 1)
    return content


class KeyCommands(Provider):
    """The commands that have a key where one is: the ones of the screen and of what is focused."""

    def _commands(self) -> Iterator[Command]:
        told = set()
        for key, active in self.screen.active_bindings.items():
            binding = active.binding
            if binding.id and binding.description and active.enabled and binding.action not in told:
                told.add(binding.action)
                title = f"{binding.description}  ({self.app.get_key_display(binding) or key})"
                yield Command(title, binding.tooltip, partial(self.app.run_action, binding.action, active.node))

    async def discover(self) -> Hits:
        for command in self._commands():
            yield DiscoveryHit(Content(command.title), command.run, help=escape(command.help))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in self._commands():
            score = max(matcher.match(command.title), 0.9 * matcher.match(command.help))
            if score:
                yield Hit(score, _marked(matcher, command.title), command.run, help=escape(command.help))


class Places(Provider):
    """Fields and sections of the config that is edited; runs, presets and files to open."""

    async def startup(self) -> None:
        self._found = await asyncio.to_thread(lambda: [*self._fields(), *self._openable()])

    async def search(self, query: str) -> Hits:
        matcher, called = self.matcher(query), self._called(query)
        for command in self._found:
            score = max(matcher.match(command.title), called.get(command.title, 0.0))
            if score:
                yield Hit(score, _marked(matcher, command.title), command.run, help=escape(command.help))

    def _fields(self) -> Iterator[Command]:
        from rlctl.tui.screens.editor import EditorScreen

        screen = self.screen
        if not isinstance(screen, EditorScreen):
            return
        for path in dict.fromkeys(view.section for view in screen.views):
            first = next(view for view in screen.views if view.section == path)
            title = say("section {name}").format(name=".".join(map(str, path)))
            yield Command(title, "", partial(screen.jump, first.path))
        for view in screen.views:
            help_ = view.help.partition("\n")[0]
            yield Command(".".join(map(str, view.path)), help_, partial(screen.jump, view.path))

    def _called(self, query: str) -> dict[str, float]:
        """How well the fields fit that they or a dialect call as it was typed, by their titles; what is meant most first."""
        from rlctl.editing.fields import search
        from rlctl.editing.naming import all_names, inner_names
        from rlctl.tui.screens.editor import EditorScreen

        if not isinstance(self.screen, EditorScreen):
            return {}
        whole = "_".join(query.lower().split())
        found = (
            view
            for view in search(self.screen.views, query, all_names, inner_names)
            if any(name.lower().rpartition(".")[2] == whole for name in (view.pattern, *all_names(view.pattern)))
        )
        return {".".join(map(str, view.path)): CALLED - place for place, view in enumerate(found)}

    def _openable(self) -> Iterator[Command]:
        from rlctl import presets, runs
        from rlctl.filenames import configs_here, is_folder
        from rlctl.tui.widgets.sample_texts import plain

        app = cast("RlctlApp", self.app)
        if is_folder(app.runs_folder):
            for info in runs.list_runs(app.runs_folder):
                title = say("run {name}").format(name=plain(info.name))
                yield Command(title, info.status, partial(app.watch_run, info.folder))
        for preset in presets.names():
            title = say("preset {name}").format(name=preset.name)
            yield Command(title, preset.title, partial(app.edit_preset, preset.name))
        for path in configs_here()[:FILES]:
            yield Command(say("file {name}").format(name=plain(path.name)), "", partial(app.edit_file, path))
