"""Writing the whole run as a folder for another framework, from the port view."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on, work

from rlctl.common.errors import RlctlError
from rlctl.common.messages.reasons import said, translated
from rlctl.common.report_lines import framework
from rlctl.tui.dialogs.facts import in_app
from rlctl.tui.dialogs.port_folder import Destination, PortFolderScreen
from rlctl.tui.language import say
from rlctl.tui.panes.preview import PreviewPane
from rlctl.tui.screens.editor_files import EditorFiles

if TYPE_CHECKING:
    from rlctl.porting.assemble import Result

PLUGINS = "plugins"
"""The folder next to a config of Trinity-RFT that has its plug-ins."""


class EditorPort(EditorFiles):
    """A screen with a session that can be ported."""

    @on(PreviewPane.Folder)
    def _ask_folder(self, message: PreviewPane.Folder) -> None:
        message.stop()
        target = message.dialect
        place = self.session.place
        folder = place.parent / f"{place.name.partition('.')[0]}-{target}"
        self.app.push_screen(
            PortFolderScreen(framework(target), folder, place.parent),
            lambda chosen: self._write_folder(target, chosen) if chosen is not None else None,
        )

    def _write_folder(self, target: str, chosen: Destination) -> None:
        self.notify(say("writing {folder}").format(folder=chosen.folder), markup=False)
        self._port(target, chosen)

    @work(thread=True, exclusive=True, group="port")
    def _port(self, target: str, chosen: Destination) -> None:
        """Port the run as it is now, unsaved changes included."""
        from rlctl.porting.assemble import port

        session, place = self.session, self.session.place
        report = replace(session.report, findings=[*session.report.findings])
        plugins = place.parent / PLUGINS
        try:
            made = port(
                session.loaded, report, target, chosen.folder, file=place.name, here=Path.cwd(),
                plugins=plugins.absolute() if plugins.is_dir() else None, options=session.facts,
                force=chosen.replaces,
            )  # fmt: skip
        except RlctlError as error:
            self.app.call_from_thread(self._not_ported, error)
        else:
            self.app.call_from_thread(self._ported, made)

    def _not_ported(self, error: RlctlError) -> None:
        self.notify(in_app(error.shown), title=say("not written"), severity="error", timeout=15, markup=False)

    def _ported(self, made: Result) -> None:
        """Tell what was written, and what is left to do."""
        from rlctl.porting.rewards import Stub

        rows = said(
            "{written} of {rows} rows written to {folder}; README.md says what to check",
            written=made.moved.written,
            rows=made.moved.rows,
            folder=made.folder,
        )
        told = [translated(rows)]
        if isinstance(made.reward, Stub):
            told.append(translated(said("the reward is not ported: {reason}", reason=made.reward.reason)))
        is_left = len(told) > 1 or made.moved.skipped > 0
        self.notify(
            "\n".join(told),
            title=say("ported"),
            severity="warning" if is_left else "information",
            timeout=15,
            markup=False,
        )
