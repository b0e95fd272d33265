"""The machines that a config is planned for: a GPU, this machine, or a size that is typed."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from rlctl.common.errors import RlctlError
from rlctl.config import Config
from rlctl.editing.planning import LOCAL, machines_of
from rlctl.planning.memory import GPUS
from rlctl.tui.dialogs.dialog import Dialog
from rlctl.tui.language import say
from rlctl.tui.widgets.line import Line


class MachinesScreen(Dialog["str | None"]):
    """Gives what was chosen, as ``machines_of`` reads it; None where it was left."""

    DEAF_SECONDS = 0
    DEFAULT_CSS = """
    MachinesScreen { align: center middle; }
    MachinesScreen OptionList { height: auto; max-height: 50vh; margin-top: 1; }
    MachinesScreen .problem { color: $error; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", say("Cancel"), id="machines.cancel")]

    def __init__(self, config: Config, now: str) -> None:
        """``now``: what is chosen so far."""
        super().__init__()
        self.config, self.now = config, now

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(
                say(
                    "Plan for which GPUs? Their memory says whether the config fits. The config itself does not change."
                )
            )
            place = self.config.placement
            each = f"{place.nodes} × {place.devices_per_node}"
            yield OptionList(
                Option(Content(say("not known: fit is not computed")), id=" "),
                Option(Content(say("this machine")), id=LOCAL),
                *(Option(Content(f"{each} {name:<7} {gpu.gib:g} GiB"), id=name) for name, gpu in GPUS.items()),
                id="machines",
            )
            yield Line(
                "" if self.now in ("", LOCAL, *GPUS) else self.now,
                placeholder=say("or nodes x devices: 2x8:H100, 2x8:cuda:80GiB"),
                id="machines-typed",
                compact=True,
            )
            yield Static("", classes="problem", markup=False)

    def on_mount(self) -> None:
        listed = self.query_one(OptionList)
        known = [option.id for option in listed.options]
        listed.highlighted = known.index(self.now or " ") if (self.now or " ") in known else None
        (listed if listed.highlighted is not None else self.query_one(Line)).focus()

    @on(OptionList.OptionSelected)
    def _picked(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        self._take((message.option_id or "").strip())

    @on(Input.Submitted)
    def _typed(self, message: Input.Submitted) -> None:
        message.stop()
        self._take(message.value.strip())

    def _take(self, chosen: str) -> None:
        try:
            machines_of(chosen, self.config)
        except RlctlError as error:
            self.query_one(".problem", Static).update(error.shown.replace("--cluster ", ""))
        else:
            self.dismiss(chosen)

    def action_cancel(self) -> None:
        self.dismiss(None)
