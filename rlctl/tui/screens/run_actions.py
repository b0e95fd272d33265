"""What a person does to a run from the monitor: each asks first, and nothing is done where it is only watched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.message import Message

from rlctl import runs
from rlctl.common.errors import RlctlError, shown
from rlctl.monitor.logs import readable
from rlctl.runtime.stopping import STOP_FILE
from rlctl.tui.dialogs.ask import AskScreen, ChooseScreen
from rlctl.tui.dialogs.opening import OpeningScreen
from rlctl.tui.language import say
from rlctl.tui.screens.page import Page

REFUSED_WITHIN = 20.0
"""Seconds in which a run that cannot go on says why."""
OFFERED = 9
"""Checkpoints that are offered to go on from, the newest ones."""


class RunActions(Page):
    """A screen that has a run, or has one under its cursor, and the keys that act on it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("S", "stop", say("Stop"), id="run.stop",
                tooltip=say("Stop the run after its step, with a checkpoint; press again to stop it now")),
        Binding("C", "checkpoint", say("Checkpoint"), id="run.checkpoint", tooltip=say("Save after this step, and continue")),
        Binding("R", "resume", say("Resume"), id="run.resume", tooltip=say("Resume a stopped run from a checkpoint")),
    ]  # fmt: skip

    class Resumable(Message):
        """What is kept of the run, or why that cannot be read."""

        def __init__(self, folder: Path, found: runs.Standing | RlctlError | OSError, waiting: OpeningScreen) -> None:
            self.folder, self.found, self.waiting = folder, found, waiting
            super().__init__()

    def __init__(self, *, readonly: bool) -> None:
        super().__init__()
        self.readonly = readonly
        self.info: runs.RunInfo | None = None
        """What run.json of the run said last; None where it could not be read, or there is no run."""
        self.asked: frozenset[str] = frozenset()
        """What it had been asked to do by then."""
        self.begins: Path | None = None
        """Where the process that goes on with it tells what it does, while it is not there yet."""

    def is_useless(self, action: str) -> bool:
        if self.readonly and action in ("stop", "checkpoint", "resume"):
            return True
        status = self.info.status if self.info is not None else ""
        if action in ("stop", "checkpoint"):
            return status != "running"
        return action == "resume" and status in ("", "running", "finished")

    def action_stop(self) -> None:
        """Ask it to end after its step; where that was asked before, to end now."""
        if STOP_FILE in self.asked:
            question = say(
                "{name} is stopping: it ends after its current step. Stop it now? Work since its last checkpoint is "
                "lost."
            )
            self._ask_run(question, say("End it now"), partial(runs.stop, now=True), say("{name} ends now"))
            return
        question = say("Stop {name} after its step, with a checkpoint to resume from?")
        told = say("{name} ends after its step; R resumes it")
        self._ask_run(question, say("Stop"), runs.stop, told)

    def action_checkpoint(self) -> None:
        question = say("Write a checkpoint of {name} after its step? The run continues.")
        told = say("{name} writes a checkpoint after its step")
        self._ask_run(question, say("Checkpoint"), runs.checkpoint, told)

    def _ask_run(self, question: str, yes: str, ask: Callable[[runs.RunInfo], None], told: str) -> None:
        """Ask a person, then the run."""
        info = self.info
        if self._only_watched():
            return
        if info is None or info.status != "running":
            self.notify(say("the run is not running"))
            return

        def answered(said: bool | None) -> None:
            if said:
                self._do(lambda: ask(info), told.format(name=info.name))

        self.app.push_screen(AskScreen(question.format(name=info.name), yes), answered)

    def _do(self, action: Callable[[], None], told: str) -> None:
        try:
            action()
            self.notify(told, markup=False)
        except (RlctlError, OSError) as error:
            self.notify(shown(error), severity="error", markup=False)

    def _only_watched(self) -> bool:
        if self.readonly:
            self.notify(say("opened read-only"), severity="warning")
        return self.readonly

    def action_resume(self) -> None:
        """Offer the checkpoints of a run that stands."""
        if self._only_watched():
            return
        if self.info is None or self.info.status == "running":
            self.notify(say("the run is running already") if self.info else say("there is no run here"))
        elif self.info.status == "finished":
            self.notify(say("the run is finished: there is nothing to resume"))
        else:
            waiting = OpeningScreen(say("reading the checkpoints of {name} ...").format(name=self.info.name))
            self.app.push_screen(waiting)
            self._find_checkpoints(self.info.folder, waiting)

    @work(thread=True, group="checkpoints")
    def _find_checkpoints(self, folder: Path, waiting: OpeningScreen) -> None:
        try:
            found: runs.Standing | RlctlError | OSError = runs.standing(folder)
        except (RlctlError, OSError) as error:
            found = error
        self.post_message(self.Resumable(folder, found, waiting))

    @on(Resumable)
    def _offer(self, message: Resumable) -> None:
        if self.app.screen is not message.waiting:  # nobody waits for it any more
            return
        message.waiting.dismiss()
        name, folder = message.folder.name, message.folder
        found = message.found
        if not isinstance(found, runs.Standing):
            self.notify(str(found), severity="error", markup=False)
            return
        if not found.kept:
            question = say("{name} has saved nothing yet: it starts from scratch. Continue?")
            if found.stage is None:
                question = say("All stages of {name} are finished: only the end of the run is done again. Continue?")
            elif found.finished:
                question = say(
                    "{name} has finished {stages} and saved no step of {stage} yet: it starts {stage}. Continue?"
                )
            question = question.format(name=name, stages=", ".join(found.finished), stage=found.stage)

            def begin_anew(said: bool | None) -> None:
                if said:
                    self._resume(folder, None)

            self.app.push_screen(AskScreen(question, say("Resume")), begin_anew)
            return
        offered = found.kept[:OFFERED]
        texts = [
            say("step {step}, saved {when}").format(step=kept.step, when=f"{kept.saved.astimezone():%m-%d %H:%M:%S}")
            for kept in offered
        ]
        texts[0] += f" — {say('the newest')}"
        question = say("Resume {name} from which checkpoint? Later ones are set aside, not deleted.").format(name=name)
        answers = [(str(place + 1), text) for place, text in enumerate(texts)]

        def answered(key: str | None) -> None:
            if key is not None:
                self._resume(folder, None if key == "1" else offered[int(key) - 1].step)

        self.app.push_screen(ChooseScreen(question, answers), answered)

    @work(thread=True, group="resume")
    def _resume(self, folder: Path, step: int | None) -> None:
        """Start the run's process, and tell why where it does not begin; it outlives this one."""

        def tell(text: str, severity: str = "information") -> None:
            self.app.call_from_thread(self.notify, text, severity=severity, markup=False)

        try:
            apart = runs.resume_apart(folder, step=step)
            self.begins = apart.output
            tell(say("the run continues in a separate process; its output is in {log}").format(log=apart.output))
            if why := apart.refused(REFUSED_WITHIN):
                self.begins = None
                tell(say("the run was not resumed:\n{why}").format(why=readable(why)), "error")
        except (RlctlError, OSError) as error:
            tell(shown(error), "error")
