"""An asyncio loop in its own thread that runs many trajectories: what goes in and comes out is queued.

submit ──▶ trajectories ──▶ tasks ──▶ calls, finished ──▶ collect
               answers ────────▲
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.agents import RunningAgent
from rlctl.planning import arithmetic
from rlctl.runtime.agents.conversation import Message
from rlctl.runtime.agents.kinds import Agent, Ask, Ended, Model
from rlctl.runtime.agents.random_model import random_answers
from rlctl.runtime.agents.record import Recorder
from rlctl.runtime.auxiliary import NO_AUXILIARIES, Auxiliaries, Clients
from rlctl.runtime.rollout.interface import Finished
from rlctl.runtime.types import FinishReason, Prompt, Request, Response
from rlctl.runtime.user_code import contained, last_lines

Key = tuple[int, int]
"""A trajectory: the ticket of its request, and its place in the group."""
Treatment = Literal["train", "mask", "zero_reward"]
"""What training makes of a trajectory."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A request for one response that an agent waits for."""

    number: int
    """Of the call."""
    trajectory: Key
    request: Request


@dataclass(slots=True)
class Progress:
    """What came out of a loop."""

    calls: list[ModelCall] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.calls or self.finished)


class AgentLoop:
    """Runs the trajectories of agents. All methods are safe for threads.

    Args:
        agents: by name.
        default: name of the agent of rows that name none.
        max_context_tokens: of a prompt with what is generated after it.
        retries: how often a trajectory that failed is made again, if its agent says so.
        models: auxiliary models.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent],
        default: str,
        *,
        max_context_tokens: int | None,
        retries: int = 0,
        models: Auxiliaries = NO_AUXILIARIES,
    ) -> None:
        self._clients = Clients(models)
        self._agents, self._default, self._retries = agents, default, retries
        self._max_context_tokens = max_context_tokens
        self._changed = threading.Condition()
        self._progress = Progress()
        self._failure: Exception | None = None
        self._numbers = count()
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._loop = asyncio.new_event_loop()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="agents", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Run the loop until it is closed. A task of the user's that raises SystemExit ends ``run_forever``."""
        while not self._closing:
            with suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()

    def submit(
        self, requests: Mapping[int, Request], answers: Mapping[int, Response], aborted: Collection[int] = ()
    ) -> None:
        """Give up some requests, start the trajectories of others, and hand over responses to calls; returns immediately."""
        self._loop.call_soon_threadsafe(self._take, dict(requests), dict(answers), set(aborted))

    def _take(self, requests: Mapping[int, Request], answers: Mapping[int, Response], aborted: set[int]) -> None:
        self._abort(aborted)
        for number, response in answers.items():
            future = self._waiting.pop(number, None)
            if future is not None and not future.done():
                future.set_result(response)
        for ticket, request in requests.items():
            for index in range(request.first, request.first + request.n):
                task = self._loop.create_task(self._run(ticket, index, request))
                self._tasks[ticket, index] = task

    def _abort(self, tickets: Collection[int]) -> None:
        for key in [key for key in self._tasks if key[0] in tickets]:
            self._tasks.pop(key).cancel()
        with self._changed:
            progress = self._progress
            progress.calls = [call for call in progress.calls if call.trajectory[0] not in tickets]
            progress.finished = [each for each in progress.finished if each.ticket not in tickets]

    def abort_all(self) -> None:
        """Give up every trajectory; waits until their tools are released."""
        asyncio.run_coroutine_threadsafe(self._end_all(), self._loop).result()

    async def _end_all(self) -> None:
        tasks = list(self._tasks.values())
        self._abort({ticket for ticket, _ in self._tasks})
        await asyncio.gather(*tasks, return_exceptions=True)
        with self._changed:
            self._failure = None

    def collect(self, seconds: float) -> Progress:
        """Return calls and finished trajectories as soon as there are any, and nothing after ``seconds``.

        Raises:
            Exception: what an agent raised.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._progress or self._failure is not None, seconds)
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            progress, self._progress = self._progress, Progress()
            return progress

    async def _run(self, ticket: int, index: int, request: Request) -> None:
        key = ticket, index

        async def ask(asked: Request) -> Response:
            number = next(self._numbers)
            future = self._waiting[number] = self._loop.create_future()
            with self._changed:
                self._progress.calls.append(ModelCall(number, key, asked))
                self._changed.notify_all()
            try:
                return await future
            finally:
                self._waiting.pop(number, None)

        try:
            response = await self._trajectory(index, request, ask)
        except Exception as error:  # noqa: BLE001 - it is raised where trajectories are collected
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()
            return
        finally:
            if self._tasks.get(key) is asyncio.current_task():
                del self._tasks[key]
        with self._changed:
            self._progress.finished.append(Finished(ticket, index, response))
            self._changed.notify_all()

    async def _trajectory(self, index: int, request: Request, ask: Ask) -> Response:
        """One trajectory, made again while it fails and its agent says so; then one that says why it failed.

        Raises:
            RunError: the config is at fault.
        """
        assert request.row is not None, "an agent is given the row"
        agent = self._agents[request.row.extra.get("agent", self._default)]
        attempts = 1 + (self._retries if agent.config.on_failure == "retry" else 0)
        model, failed = self._model(agent, index, request, ask), None
        for attempt in range(attempts):
            model = self._model(agent, index, request, ask)
            try:
                with contained():
                    ended = await agent.run(request.row, model)
                    model.recorder.check_kept()
            except Exception as error:
                if isinstance(error, RunError) and not hasattr(error, "cause"):
                    raise  # the config is at fault
                failed = error
                continue
            return _trajectory(agent, model, ended, {"retries": float(attempt)} if attempt else {})
        assert failed is not None, "it was tried at least once"
        return _failed(agent, model, failed, request.row)

    def _model(self, agent: Agent, index: int, request: Request, ask: Ask) -> Model:
        limits = agent.config
        deadline = None if limits.time_limit is None else time.monotonic() + limits.time_limit
        return Model(
            request,
            index,
            self._max_context_tokens,
            agent.chat_of,
            random_answers(agent) if limits.model == "random" else ask,
            Recorder(limits.samples),
            max_turns=limits.max_turns,
            max_turn_tokens=limits.max_turn_tokens,
            deadline=deadline,
            clients=self._clients,
        )

    def close(self) -> None:
        """End all trajectories and the thread."""
        self.abort_all()
        for agent in self._agents.values():
            asyncio.run_coroutine_threadsafe(agent.close(), self._loop).result()
        asyncio.run_coroutine_threadsafe(self._clients.close(), self._loop).result()
        self._closing = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _trajectory(agent: Agent, model: Model, ended: Ended, counts: Mapping[str, float]) -> Response:
    finish: FinishReason = "length" if model.truncated else "stop"
    stop = ended.stop or model.stopped or ("length" if model.truncated else "done")
    return model.recorder.trajectory(
        text=ended.text,
        finish_reason=finish,
        messages=[_plain(message) for message in ended.messages],
        counts={**ended.counts, **counts, f"stop_{stop}": 1.0},
        stop=stop,
        reward=own_reward(agent.config, model.recorder.rewards, ended.reward),
        info=dict(ended.info),
        treatment=treatment_of(agent.config, stop),
    )


def _failed(agent: Agent, model: Model, error: Exception, row: Prompt) -> Response:
    """A trajectory that failed: with the calls that it made if it is trained on with reward 0, else empty."""
    cause = getattr(error, "cause", type(error).__name__)
    what = said("{cause}: {error}", cause=cause, error=error if hasattr(error, "cause") else last_lines(error))
    counts = {f"failed_{cause}": 1.0, "stop_failed": 1.0}
    if agent.config.on_failure != "zero" or not model.recorder.calls:
        return Response((), (), "stop", 0, text="", counts=counts, stop="failed", failure=what)
    return model.recorder.trajectory(
        text=model.last_text,
        finish_reason="stop",
        counts=counts,
        stop="failed",
        failure=what,
        reward=0.0,
        treatment="zero_reward",
    )


def _plain(message: Message) -> Message:
    return dict(message)


def own_reward(agent: RunningAgent, turns: Sequence[float], said: float | None = None) -> float | None:
    """The reward of a trajectory by those of its turns, and what the agent itself says; None if ``rewards`` alone score it."""
    kind = arithmetic.credit_of(agent)
    if kind == "function":
        return said
    found = sum(turns) if kind == "sum" else (turns[-1] if turns else 0.0)
    return found + (said or 0.0)


def treatment_of(agent: RunningAgent, stop: str) -> Treatment:
    """What training makes of a trajectory that ended so."""
    if stop == "length":
        return agent.on_token_limit
    return agent.on_turn_limit if stop in ("turns", "time") else "train"
