"""What a served policy generated for outside agents, with their feedback, on its way to a run that trains.

    chat, completion ──▶ record        feedback {msg_ids, reward} ──▶ trajectory        commit ──▶ group ──▶ buffer

The calls of one feedback are a trajectory, in the order in which they were answered; the trajectories of one task that are
committed together are a group. The protocol is that of Trinity-RFT's serve mode (trinity/explorer/proxy/app.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from rlctl.common.messages.reasons import said
from rlctl.runtime.agents.record import Recorder
from rlctl.runtime.buffers.interface import SharedBuffer
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.serving.protocol import ApiError, Asked, is_number
from rlctl.runtime.types import Prompt, Response

MOST_CALLS = 65536
"""Calls that wait for feedback; older ones are forgotten first."""
SOURCE = "served"
"""Of what is collected, where a dataset's name is expected."""


@dataclass(frozen=True, slots=True)
class _Call:
    prompt: tuple[int, ...]
    text: str
    """Of the prompt, if it was one."""
    messages: Sequence[Mapping[str, Any]]
    response: Response
    answer: str


@dataclass
class Collector:
    """Keeps calls, takes feedback, and writes groups into a buffer. Its methods belong to one asyncio loop."""

    buffer: SharedBuffer
    calls: dict[str, _Call] = field(default_factory=dict)
    """By the number of their answer, until feedback takes them."""
    ready: dict[str, list[tuple[Prompt, Response, float]]] = field(default_factory=dict)
    """Trajectories that wait for a commit, by task."""
    recorded: int = 0
    committed: int = 0
    """Trajectories."""
    _numbers: Any = field(default_factory=count)

    def record(self, asked: Asked, prompt: Sequence[int], response: Response, answer: str) -> None:
        """Keep a call.

        Raises:
            ApiError: it asks for several answers, of which feedback could not say which it means.
        """
        text = asked.prompt if isinstance(asked.prompt, str) else ""
        self.calls[asked.number] = _Call(tuple(prompt), text, asked.messages, response, answer)
        self.recorded += 1
        while len(self.calls) > MOST_CALLS:
            self.calls.pop(next(iter(self.calls)))

    def feedback(self, body: Any) -> dict[str, Any]:
        """Make a trajectory of calls: ``msg_ids``, ``reward`` and, for a group, ``task_id``.

        Calls that no feedback can mean any more are left out, as in Trinity-RFT.

        Raises:
            ApiError: it is no such object.
        """
        ids, reward = (body.get("msg_ids"), body.get("reward")) if isinstance(body, dict) else (None, None)
        if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids) or not ids:
            raise ApiError(400, "msg_ids must be a list of ids of answers", param="msg_ids")
        if not is_number(reward):
            raise ApiError(400, said("reward is {reward!r}; expected a finite number", reward=reward), param="reward")
        task = str(body.get("task_id") or secrets.token_hex(8))
        chosen = set(ids)
        found = [self.calls.pop(number) for number in list(self.calls) if number in chosen]
        if found:
            self.ready.setdefault(task, []).append((*_trajectory(found, next(self._numbers)), float(reward)))
        return {"status": "success", "calls": len(found), "task_id": task}

    def taken(self) -> list[RolloutGroup]:
        """The groups of all trajectories that wait, which no longer do."""
        ready, self.ready = self.ready, {}
        return [_group(each) for each in ready.values()]

    def commit(self, groups: Sequence[RolloutGroup]) -> dict[str, Any]:
        """Write groups into the buffer, waiting for room there. Call it in a thread."""
        self.buffer.put(groups)
        trajectories = sum(len(group.responses) for group in groups)
        self.committed += trajectories
        return {"status": "success", "groups": len(groups), "trajectories": trajectories}

    def metrics(self, version: int) -> dict[str, float]:
        """What has been collected."""
        waiting = sum(map(len, self.ready.values()))
        return {
            "serve/calls": float(self.recorded),
            "serve/calls_without_feedback": float(len(self.calls)),
            "serve/trajectories_not_committed": float(waiting),
            "serve/trajectories_committed": float(self.committed),
            "serve/weight_version": float(version),
        }


def _trajectory(calls: Sequence[_Call], number: int) -> tuple[Prompt, Response]:
    """The prompt of the first call, and all calls as one response."""
    first, recorder = calls[0], Recorder()
    for call in calls:
        recorder.add(call.prompt, call.response)
    last = calls[-1]
    before = len(first.messages)
    messages = [*last.messages[before:], {"role": "assistant", "content": last.answer}]
    response = recorder.trajectory(
        text=last.answer,
        finish_reason=last.response.finish_reason,
        messages=[dict(message) for message in messages],
        stop="length" if last.response.finish_reason == "length" else "done",
    )
    asked = tuple(dict(message) for message in first.messages)
    return Prompt(number, SOURCE, first.prompt, first.text, messages=asked), response


def _group(trajectories: Sequence[tuple[Prompt, Response, float]]) -> RolloutGroup:
    prompt = trajectories[0][0]
    rewards = [reward for *_, reward in trajectories]
    return RolloutGroup(
        prompt,
        [response for _, response, _ in trajectories],
        rewards,
        [Score(reward, {"feedback": reward}) for reward in rewards],
    )
