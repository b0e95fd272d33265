"""Agents as the controller sees them: rollout engines whose responses are trajectories.

    requests ──▶ agent workers ──calls──▶ engines
                     ▲                       │
    trajectories ◀───┴────── responses ──────┘

Everything passes through the controller in batches, so what is lost is known in one place. A trajectory stays on the engine of
its first call, which had the least to do then.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.agents.loop import Key, ModelCall, Progress
from rlctl.runtime.processes.group import Group, RetryPolicy
from rlctl.runtime.processes.sessions import Sessions
from rlctl.runtime.roles import IDLE_SECONDS, RolloutEngines
from rlctl.runtime.rollout.interface import Finished
from rlctl.runtime.sync.machine import Source
from rlctl.runtime.types import Request, Response
from rlctl.runtime.workers.agent import AgentWorker

WAIT_SECONDS = 0.1
"""How long a round of ``generate`` waits for something to happen."""


@dataclass(slots=True)
class _Asked:
    """A call in an engine."""

    worker: int
    call: ModelCall
    engine: int


class AgentEngines(RolloutEngines):
    """All agent workers together, in front of the rollout engines. In its methods an engine is an agent worker."""

    def __init__(self, engines: RolloutEngines, workers: Group, again: RetryPolicy) -> None:
        """``again`` says how an agent worker that is lost is replaced."""
        self._engines, self._attempts = engines, again.times
        self._workers = Sessions(workers, AgentWorker.submit, AgentWorker.collect, again)
        self._tickets = count(1)
        self._asked: dict[int, _Asked] = {}
        """By the engine's ticket."""
        self._engine_of: dict[Key, int] = {}
        self._load = [0] * len(engines)
        """Calls in each engine."""
        everyone = range(len(workers))
        self._running: list[dict[int, int]] = [{} for _ in everyone]
        """Trajectories that each worker has still to give, by ticket."""
        self._starting: list[dict[int, Request]] = [{} for _ in everyone]
        self._answers: list[dict[int, Response]] = [{} for _ in everyone]
        self._aborting: list[list[int]] = [[] for _ in everyone]
        self._calls: list[dict[int, Request]] = [{} for _ in range(len(engines))]
        """Requests to be handed to engines."""
        self._given_up: list[int] = []
        """Tickets to be given up in engines."""
        self._finished: list[list[Finished]] = [[] for _ in everyone]

    def __len__(self) -> int:
        return len(self._workers)

    def generate(self, requests: Sequence[Request]) -> list[list[Response]]:
        """Make the trajectories of requests, in order.

        Raises:
            RunError: an agent worker was lost too often.
        """
        left = {-1 - place: request for place, request in enumerate(requests)}
        attempts = dict.fromkeys(left, 0)
        found: dict[int, dict[int, Response]] = {ticket: {} for ticket in left}
        self._start_all(left)
        while left:
            for worker in self._advance(WAIT_SECONDS):
                again = {ticket: left[ticket] for ticket in left if self._worker_of(ticket) == worker}
                for ticket in again:
                    attempts[ticket] += 1
                    found[ticket].clear()
                    if attempts[ticket] > self._attempts:
                        raise RunError(
                            said(
                                "an agent worker was lost {attempts} times with the same trajectories",
                                attempts=attempts[ticket],
                            ),
                            hint="read agent-*.log under logs/ in the run folder; a tool may end the process",
                        )
                self._start_all(again)
            for each in self._taken(lambda ticket: ticket < 0):
                if each.ticket in left:
                    found[each.ticket][each.index] = each.response
                    if len(found[each.ticket]) == left[each.ticket].n:
                        del left[each.ticket]
        return [[found[-1 - place][index] for index in sorted(found[-1 - place])] for place in range(len(requests))]

    def _worker_of(self, ticket: int) -> int:
        return (-1 - ticket) % len(self)

    def _start_all(self, requests: Mapping[int, Request]) -> None:
        for ticket, request in requests.items():
            self._starting[self._worker_of(ticket)][ticket] = request

    def _taken(self, wanted: Any) -> list[Finished]:
        """Finished trajectories with certain tickets, which are forgotten."""
        found: list[Finished] = []
        for worker, finished in enumerate(self._finished):
            found += [each for each in finished if wanted(each.ticket)]
            self._finished[worker] = [each for each in finished if not wanted(each.ticket)]
        return found

    def stream(
        self, requests: Sequence[Mapping[int, Request]], aborted: Sequence[int], seconds: float
    ) -> list[list[Finished] | None]:
        """As ``RolloutEngines.stream``, by agent worker."""
        for worker, own in enumerate(requests):
            self._starting[worker] |= own
        self._abort(set(aborted))
        lost = self._advance(seconds)
        streamed: list[list[Finished] | None] = []
        for worker, finished in enumerate(self._finished):
            self._finished[worker] = [each for each in finished if each.ticket < 0]
            streamed.append(None if worker in lost else [each for each in finished if each.ticket >= 0])
        return streamed

    def _abort(self, tickets: Collection[int]) -> None:
        if not tickets:
            return
        for worker, running in enumerate(self._running):
            for ticket in tickets:
                if running.pop(ticket, None) is not None:
                    self._aborting[worker].append(ticket)
        self._forget(lambda asked: asked.call.trajectory[0] in tickets)
        for key in [key for key in self._engine_of if key[0] in tickets]:
            del self._engine_of[key]

    def _forget(self, wanted: Any) -> None:
        """Give up calls in engines."""
        for ticket in [ticket for ticket, asked in self._asked.items() if wanted(asked)]:
            asked = self._asked.pop(ticket)
            self._load[asked.engine] -= 1
            if self._calls[asked.engine].pop(ticket, None) is None:
                self._given_up.append(ticket)

    def _advance(self, seconds: float) -> list[int]:
        """Hand everything over, and take what comes back within ``seconds``; the agent workers that have lost their work."""
        lost = self._hand_to_workers()
        self._hand_to_engines()
        busy, engines = [w for w, running in enumerate(self._running) if running], self._engines.working
        waiting = [*self._workers.collecting(busy), *self._engines.collecting()]
        if not waiting:
            time.sleep(min(seconds, IDLE_SECONDS))
            return lost
        for place in self._workers.first(waiting, 0.0 if lost else seconds):
            if place < len(busy):
                progress = self._workers.take(busy[place])
                if progress is None:
                    self._lose_worker(busy[place])
                    lost.append(busy[place])
                else:
                    self._take_progress(busy[place], progress)
            else:
                engine = engines[place - len(busy)]
                finished = self._engines.finished(engine)
                if finished is None:
                    self._lose_engine(engine)
                else:
                    self._take_responses(finished)
        return lost

    def _hand_to_workers(self) -> list[int]:
        work: dict[int, tuple[Any, ...]] = {}
        for worker in range(len(self)):
            own = self._starting[worker], self._answers[worker], tuple(self._aborting[worker])
            if any(own):
                work[worker] = own
                self._running[worker] |= {ticket: request.n for ticket, request in own[0].items()}
                self._starting[worker], self._answers[worker], self._aborting[worker] = {}, {}, []
        lost = self._workers.submit(work)
        for worker in lost:
            self._lose_worker(worker)
        return lost

    def _hand_to_engines(self) -> None:
        if not any(self._calls) and not self._given_up and not self._engines.resting:
            return
        calls, self._calls = self._calls, [{} for _ in self._calls]
        given_up, self._given_up = self._given_up, []
        for engine in self._engines.submit(calls, given_up):
            self._lose_engine(engine)

    def _take_progress(self, worker: int, progress: Progress) -> None:
        running = self._running[worker]
        for call in progress.calls:
            if call.trajectory[0] in running:
                self._ask(worker, call)
        for each in progress.finished:
            if each.ticket in running:
                self._engine_of.pop((each.ticket, each.index), None)
                running[each.ticket] -= 1
                if not running[each.ticket]:
                    del running[each.ticket]
                self._finished[worker].append(each)

    def _ask(self, worker: int, call: ModelCall) -> None:
        """Give a call to the engine of its trajectory; of a new one, to the engine with the least to do."""
        least = min(range(len(self._load)), key=self._load.__getitem__)
        engine = self._engine_of.setdefault(call.trajectory, least)
        ticket = next(self._tickets)
        self._asked[ticket] = _Asked(worker, call, engine)
        self._calls[engine][ticket] = call.request
        self._load[engine] += 1

    def _take_responses(self, finished: Sequence[Finished]) -> None:
        for each in finished:
            asked = self._asked.pop(each.ticket, None)
            if asked is not None:
                self._load[asked.engine] -= 1
                self._answers[asked.worker][asked.call.number] = each.response

    def _lose_engine(self, engine: int) -> None:
        """Its calls are made again, with the same seeds."""
        again = [self._asked.pop(ticket) for ticket in [t for t, each in self._asked.items() if each.engine == engine]]
        self._calls[engine].clear()
        self._load[engine] = 0
        for asked in again:
            self._engine_of.pop(asked.call.trajectory, None)
            self._ask(asked.worker, asked.call)

    def _lose_worker(self, worker: int) -> None:
        """Its trajectories are gone; who asked for them asks again."""
        tickets = set(self._running[worker])
        self._running[worker].clear()
        self._answers[worker].clear()
        self._aborting[worker].clear()
        self._finished[worker] = [each for each in self._finished[worker] if each.ticket not in tickets]
        self._forget(lambda asked: asked.worker == worker)
        for key in [key for key in self._engine_of if key[0] in tickets]:
            del self._engine_of[key]

    def load_weights(self, weights: Source, version: int, only: Collection[int] = ()) -> None:
        """Put new weights into the engines."""
        self._engines.load_weights(weights, version, only)

    def share(self, value: Any) -> Any:
        """A handle on a value for the engines."""
        return self._engines.share(value)

    def sleep(self) -> None:
        """Stop the engines; agents go on until their next call."""
        self._engines.sleep()
