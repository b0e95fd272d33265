"""Exploration beside training: a thread drives the scheduler, groups go through a buffer, training takes them from it.

    thread    ── begin, pump ──▶ Scheduler ──▶ Buffer ──▶ take ──▶ training
                      ▲                                               │
                      └──────────── new weights, and further room ────┘

Where rollout has dedicated devices the thread goes on while the policy is trained; where devices are shared it works only
while training waits for it. A failure in the thread ends the run at once, with its own cause.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rlctl.planning.rollout_schedule import Horizon, SyncSchedule
from rlctl.runtime.buffers.interface import Buffer
from rlctl.runtime.evaluation.response_files import Keeper
from rlctl.runtime.experience.explore import Phase, StepRollouts, keep_responses, mean_rewards, metrics_of
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.processes.calls import StopRequested
from rlctl.runtime.schedules.draws import Draws
from rlctl.runtime.schedules.scheduler import Scheduler

POLL_SECONDS = 0.1
"""How long engines work before what is finished is looked at."""
IDLE_SECONDS = 0.01
"""How often an idle thread looks whether there is something to do."""
CLOSE_SECONDS = 5.0
"""How long a thread that is to end is waited for."""
WAIT = "wait_for_rollout"
"""The phase in which training waits."""


class Exploration:
    """A source of groups (``explore.GroupSource``) that works ahead."""

    def __init__(
        self,
        schedule: SyncSchedule,
        scheduler: Scheduler,
        draws: Draws,
        buffer: Buffer,
        shaping: Shaping,
        tokenizer: Any,
        *,
        total_steps: int,
        keeper: Keeper | None = None,
        failed: Callable[[], None] = lambda: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Args:
            schedule: of the stage.
            scheduler: hands its groups on to the buffer.
            draws: the scheduler's.
            buffer: where groups wait.
            shaping: its filters of groups.
            tokenizer: of the responses.
            total_steps: of the stage.
            keeper: gets every response of a step.
            failed: called when the thread has failed, from it.
            stopped: whether the run is asked to end.
        """
        self._schedule, self._scheduler, self._draws = schedule, scheduler, draws
        self._buffer, self._shaping, self._total_steps = buffer, shaping, total_steps
        self._failed, self._stopped = failed, stopped
        self._keeper, self._tokenizer = keeper, tokenizer
        self._turns = not schedule.in_background
        self._horizon: Horizon | None = None
        """None until the engines have weights."""
        self._version = 0
        self._sent = 0
        """The version of rollout's weights."""
        self._taken = 0
        """Groups taken since the start of the stage."""
        self._pauses = 0
        self._draining = False
        self._wanted = not self._turns
        """Whether it is rollout's turn."""
        self._pumping = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._idle_seconds = 0.0
        self._saved: dict[str, Any] = {}
        """What the last ``state`` held of the buffer."""
        self.failure: Exception | None = None
        """What the thread failed of."""

    # what training asks for

    def more(self, step: int, phase: Phase) -> bool:
        """Whether there is anything to take: there always is."""
        return True

    def take(self, step: int, phase: Phase) -> StepRollouts:
        """The groups of a step, waited for.

        Raises:
            BufferTimeout: they did not come in time.
            StopRequested: the run is asked to end.
        """
        wanted, oldest = self._schedule.prompts_per_step, self._schedule.oldest_version(self._version)
        with phase(WAIT), self._turn():
            try:
                groups = self._buffer.take(wanted, oldest_version=oldest)
            except StopRequested:
                self.raise_failure()
                raise
        self._taken += len(groups)
        self.raise_failure()
        if self._turns:
            with self.paused():
                self._scheduler.sleep()
        with self._pumping:
            left_out, self._scheduler.left_out = self._scheduler.left_out, []
            drawn = [*groups, *left_out]
            kept = groups if self._shaping.refills else self._shaping.kept_groups(groups)
            operated = self._shaping.operators.metrics()
            self._draws.feedback(dict(self._shaping.operators.pass_rates(mean_rewards(drawn))))
        if self._keeper is not None:
            keep_responses(step, drawn, self._keeper, self._tokenizer)
        metrics = {"data/epoch": float(self._draws.epoch), **metrics_of(drawn), **self._buffer.statistics().metrics()}
        metrics |= {f"rollout/{name}_prompts": float(self._scheduler.counts[name]) for name in ("abandoned", "again")}
        metrics |= self._scheduler.failures.metrics()
        metrics["time/rollout_idle"], self._idle_seconds = self._idle_seconds, 0.0
        metrics |= operated
        if self._shaping.drops:
            metrics["filter/kept_groups_share"] = len(kept) / len(drawn)
        return StepRollouts(kept, drawn, metrics)

    def sync_due(self, step: int) -> bool:
        """Whether rollout gets new weights after a step."""
        if self._schedule.sync.style == "explorer_driven":
            horizon, next_step = self._horizon, self._taken + self._schedule.prompts_per_step
            if horizon is None or self._schedule.oldest_version(step) > self._sent:
                return True  # else all that rollout still makes would be dropped, and training would wait for ever
            return self._there() >= horizon.groups or next_step > horizon.groups
        return self._schedule.due(step)

    @contextmanager
    def new_weights(self, step: int, version: int, phase: Phase) -> Iterator[None]:
        """The engines can be given the weights of a step; what is under way is as ``weight_sync.in_flight_requests`` says."""
        how = self._schedule.in_flight
        if how == "wait" and self._horizon is not None:
            with phase(WAIT):
                self._drain()
        with self.paused():
            if how != "continue":
                self._scheduler.give_back()
            yield
            self._version = self._sent = version
            self._horizon = self._schedule.horizon(synced=step, total_steps=self._total_steps, explored=self._there())
        self._start()

    def trained(self, version: int) -> None:
        """The policy was trained for a step."""
        self._version = version

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within, no engine and no reward works for exploration."""
        self._pauses += 1
        try:
            with self._pumping:
                self._scheduler.finish_scoring()
                yield
        finally:
            self._pauses -= 1

    def state(self) -> dict[str, Any]:
        """What is drawn and not trained on: groups that wait, and the numbers of prompts that are under way."""
        with self.paused():
            self._saved = self._buffer.state()
            return {
                "draws": self._draws.state(),
                "buffer": self._saved,
                "there": self._scheduler.handed_on - self._dropped(),
                "taken": self._taken,
                "operators": self._shaping.operators.state(),
            }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on: what waited waits, what was under way is drawn again."""
        self._draws.restore(state["draws"])
        self._buffer.restore(state["buffer"])
        self._scheduler.start_from(state["there"] + self._dropped())
        self._taken = state["taken"]
        if "operators" in state:  # checkpoints before 0.2 have none
            self._shaping.operators.restore(state["operators"])

    def saved(self) -> None:
        """The checkpoint with the last state is on the disk."""
        self._buffer.acknowledge(self._saved)

    def finished(self) -> None:
        """The stage is over."""
        self._buffer.end_writing()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
        self._buffer.close()

    def raise_failure(self) -> None:
        """Raise what the thread failed of, where it did."""
        if self.failure is not None:
            raise self.failure

    # the thread

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="exploration", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                began = time.perf_counter()
                worked = False
                if self._wanted and not self._pauses:
                    with self._pumping:
                        worked = not self._pauses and self._pump()
                if not worked:
                    self._closing.wait(IDLE_SECONDS)
                    self._idle_seconds += 0.0 if self._pauses else time.perf_counter() - began
        except Exception as error:  # noqa: BLE001 - it is raised where training waits for groups
            self.failure = error
            self._failed()

    def _pump(self) -> bool:
        """Begin what may be begun and let the engines work; whether there was anything to do."""
        self._scheduler.begin(self._room(), extra=not self._draining, most=self._places())
        if not self._scheduler.busy:
            return False
        self._scheduler.pump(POLL_SECONDS)
        return True

    def _room(self) -> float:
        """How many groups may be under way."""
        horizon = self._horizon
        if horizon is None or (self._draining and self._schedule.sync.style != "fixed"):
            return 0
        return min(horizon.groups - self._there(), self._places())

    def _places(self) -> float:
        """How many groups may be under way so that each finds its place in the buffer: nobody waits for one while engines are
        at work, since training may need them before it takes further groups."""
        if self._horizon is None or self._horizon.waiting is None:
            return math.inf
        return self._horizon.waiting - (self._there() - self._taken)

    def _there(self) -> int:
        """Groups to train on that are there, or were and are trained on, since the start of the stage."""
        return self._scheduler.there - self._dropped()

    def _dropped(self) -> int:
        """Groups that were too old when they would have been taken."""
        return self._buffer.statistics().dropped

    def _drain(self) -> None:
        """Wait until everything is there that may be, and where that has no bound, until nothing is under way."""
        with self._turn():
            self._draining = True
            try:
                while not self._drained():
                    if self._stopped() or self.failure is not None:
                        self.raise_failure()
                        raise StopRequested
                    time.sleep(IDLE_SECONDS)
            finally:
                self._draining = False

    def _drained(self) -> bool:
        with self._pumping:
            return self._room() <= 0 and not (self._scheduler.under_way and self._schedule.sync.style != "fixed")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Within, it is rollout's turn."""
        if not self._turns:
            yield
            return
        self._wanted = True
        try:
            yield
        finally:
            self._wanted = False
