"""The agent worker: an asyncio loop with the run's agent. Its methods are an engine worker's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from rlctl.planning.models import context_limit
from rlctl.runtime.agents.loop import AgentLoop, Progress
from rlctl.runtime.agents.making import AgentSpec, make_agents
from rlctl.runtime.auxiliary import NO_AUXILIARIES, Auxiliaries
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.data.images import reader_of
from rlctl.runtime.data.tokenizer import load_tokenizer
from rlctl.runtime.types import Request, Response

TOOL_THREADS = 128
"""Tools that are not coroutines run at the same time in one process, at most; one that hangs keeps its thread."""


class AgentWorker:
    """Runs the trajectories of a run's agents."""

    def __init__(self, spec: AgentSpec, models: Auxiliaries = NO_AUXILIARIES) -> None:
        """Load the agents; ``models`` are the auxiliary models that they may call.

        Raises:
            RunError: its code cannot be loaded, or the chat template does not fit it.
        """
        model = spec.model
        tokenizer = load_tokenizer(model, trust_remote_code=spec.trust_tokenizer_code)
        chat = Chat(tokenizer, template_args=model.chat_template_args, images=reader_of(model))
        self._threads = ThreadPoolExecutor(TOOL_THREADS, thread_name_prefix="tool")
        self._loop = AgentLoop(
            make_agents(spec, chat, self._threads),
            spec.default_agent,
            max_context_tokens=context_limit(model),
            retries=spec.retries,
            models=models,
        )
        self._session: int | None = None

    def submit(
        self,
        session: int,
        opens: bool,
        requests: Mapping[int, Request],
        answers: Mapping[int, Response],
        aborted: Sequence[int],
    ) -> bool:
        """Give up some requests, start others, and hand over responses to calls. See ``RolloutWorker.submit``."""
        if opens:
            self._loop.abort_all()
            self._session = session
        if session != self._session:
            return False
        self._loop.submit(requests, answers, aborted)
        return True

    def collect(self, session: int, seconds: float) -> Progress | None:
        """Return calls and finished trajectories. See ``RolloutWorker.collect``."""
        return self._loop.collect(seconds) if session == self._session else None

    def close(self) -> None:
        """End all trajectories."""
        self._loop.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
