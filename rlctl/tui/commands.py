"""What the command palette offers beside the system's commands: the keys of the screen, and every place one can go to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from rlctl.tui.language import say

if TYPE_CHECKING:
    from rlctl.tui.app import RlctlApp

FILES = 200
"""Most files of the folder that are offered."""


@dataclass(frozen=True, slots=True)
class Command:
    """A line of the palette."""

    title: str
    help: str
    run: Callable[[], Any]


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
            yield DiscoveryHit(command.title, command.run, help=command.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in self._commands():
            score = max(matcher.match(command.title), 0.9 * matcher.match(command.help))
            if score:
                yield Hit(score, matcher.highlight(command.title), command.run, help=command.help)


class Places(Provider):
    """Fields and sections of the config that is edited; runs, presets and files to open."""

    async def startup(self) -> None:
        self._found = await asyncio.to_thread(lambda: [*self._fields(), *self._openable()])

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in self._found:
            score = matcher.match(command.title)
            if score:
                yield Hit(score, matcher.highlight(command.title), command.run, help=command.help)

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

    def _openable(self) -> Iterator[Command]:
        from rlctl import presets, runs
        from rlctl.filenames import SCRIPT_ENDINGS, YAML_ENDINGS

        app = cast("RlctlApp", self.app)
        if app.runs_folder.is_dir():
            for info in runs.list_runs(app.runs_folder):
                title = say("run {name}").format(name=info.name)
                yield Command(title, info.status, partial(app.watch_run, info.folder))
        for preset in presets.names():
            title = say("preset {name}").format(name=preset.name)
            yield Command(title, preset.title, partial(app.edit_preset, preset.name))
        files = (path for path in sorted(Path.cwd().iterdir()) if path.suffix in (*YAML_ENDINGS, *SCRIPT_ENDINGS))
        for path, _ in zip(files, range(FILES), strict=False):
            yield Command(say("file {name}").format(name=path.name), "", partial(app.edit_file, path))
