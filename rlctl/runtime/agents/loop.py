"""An asyncio loop in its own thread that runs many trajectories: what goes in and comes out is queued.

submit ──▶ trajectories ──▶ tasks ──▶ calls, finished ──▶ collect
               answers ────────▲
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import count

from rlctl.common.errors import RunError
from rlctl.runtime.agents.conversation import Message
from rlctl.runtime.agents.kinds import Agent, Model
from rlctl.runtime.rollout.interface import Finished
from rlctl.runtime.types import FinishReason, Request, Response

Key = tuple[int, int]
"""A trajectory: the ticket of its request, and its place in the group."""


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
    """Runs the trajectories of one agent. All methods are safe for threads."""

    def __init__(self, agent: Agent, *, max_context_tokens: int | None) -> None:
        self._agent, self._max_context_tokens = agent, max_context_tokens
        self._changed = threading.Condition()
        self._progress = Progress()
        self._failure: Exception | None = None
        self._numbers = count()
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agents", daemon=True)
        self._thread.start()

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

    async def _trajectory(self, index: int, request: Request, ask: object) -> Response:
        assert request.row is not None, "an agent is given the row"
        agent = self._agent
        model = Model(request, index, self._max_context_tokens, agent.chat_of, ask)  # type: ignore[arg-type]
        ended = await agent.run(request.row, model)
        if ended.reward is not None:
            raise RunError(
                "the agent returned a reward, and rewards of agents are not supported yet",
                hint="return the text that rewards of the config score, or nothing",
            )
        finish: FinishReason = "length" if model.truncated else "stop"
        return model.recorder.trajectory(
            text=ended.text,
            finish_reason=finish,
            messages=[_plain(message) for message in ended.messages],
            counts=ended.counts,
        )

    def close(self) -> None:
        """End all trajectories and the thread."""
        self.abort_all()
        if hasattr(self._agent, "close"):
            asyncio.run_coroutine_threadsafe(self._agent.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _plain(message: Message) -> Message:
    return dict(message)
