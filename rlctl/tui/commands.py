"""What the command palette offers beside the system's commands: the keys of the screen, and every place one can go to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.fuzzy import Matcher
from textual.markup import escape

from rlctl.common.messages.reasons import translated
from rlctl.tui.language import say
from rlctl.tui.navigation import navigation

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
        matcher = self.matcher(query)
        ranked = self._ranked(query, matcher)
        for command in self._found:
            score = ranked.get(command.title) or matcher.match(command.title)
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

    def _ranked(self, query: str, matcher: Matcher) -> dict[str, float]:
        """How well fields fit, by their titles, in the order of the editor's own search; first those called as it was typed."""
        from rlctl.editing.fields import search
        from rlctl.editing.naming import all_names, inner_names
        from rlctl.tui.screens.editor import EditorScreen

        if not isinstance(self.screen, EditorScreen):
            return {}
        whole = "_".join(query.lower().split())
        found = search(self.screen.views, query, all_names, inner_names)
        titles = [".".join(map(str, view.path)) for view in found]
        best = max((matcher.match(title) for title in titles), default=0.0) or 1.0
        ranks = {title: best * (1 - place / len(titles)) for place, title in enumerate(titles)}
        for place, (view, title) in enumerate(zip(found, titles, strict=True)):
            if any(name.lower().rpartition(".")[2] == whole for name in (view.pattern, *all_names(view.pattern))):
                ranks[title] = CALLED - place
        return ranks

    def _openable(self) -> Iterator[Command]:
        from rlctl import runs
        from rlctl.common.filenames import configs_and_runs, is_folder
        from rlctl.config import presets
        from rlctl.tui.widgets.sample_texts import plain

        app = navigation(self.app)
        configs, folders = configs_and_runs(Path())
        listed = runs.list_runs(app.runs_folder) if is_folder(app.runs_folder) else []
        for info in runs.with_others(listed, folders):
            title = say("run {name}").format(name=plain(info.name))
            yield Command(title, info.status, partial(app.watch_run, info.folder))
        for preset in presets.names():
            title = say("preset {name}").format(name=preset.name)
            yield Command(title, translated(preset.title), partial(app.edit_preset, preset.name))
        for path in configs[:FILES]:
            yield Command(say("file {name}").format(name=plain(str(path))), "", partial(app.edit_file, path))
