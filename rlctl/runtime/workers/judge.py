"""The judge worker: a language model on an engine of its own, that is asked about responses.

    question ──its own chat template──▶ tokens ──engine──▶ answer ──▶ score

Questions and how answers are read are those of a judge at an endpoint (``rewards/judge.py``); the engine is one that rolls out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlctl.common.errors import RunError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config.sections.model import Model
from rlctl.config.sections.rewards import JudgeReward
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.data.tokenizer import decode_all, load_tokenizer
from rlctl.runtime.rewards.interface import Call, Failure, Outcome
from rlctl.runtime.rewards.judge import READERS, TEMPLATES, fill, groups_of
from rlctl.runtime.rewards.outcome import failure_of
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.types import Request, Response, Sampling
from rlctl.runtime.workers.rollout import RolloutSpec, make_engine

ANSWER_TOKENS = 2048
"""Longest answer where ``sampling`` says nothing; less where the model has no room for it."""
NAMES: Mapping[str, str] = {
    **{name: name for name in ("max_tokens", "temperature", "top_p", "top_k", "min_p", "min_tokens")},
    **{name: name for name in ("repetition_penalty", "stop", "ignore_eos")},
    "max_completion_tokens": "max_tokens",
    "include_stop_str_in_output": "include_stop",
}
"""Names of an OpenAI-compatible endpoint, vLLM's among them, and those of ``Sampling``."""


def judge_sampling(reward: JudgeReward) -> dict[str, Any]:
    """The sampling of a judge that is served here, by the names of ``Sampling``; ``seed`` may be among them.

    Raises:
        RunError: a setting that the engines do not have.
    """
    found: dict[str, Any] = {}
    for name, value in reward.sampling.items():
        if name == "seed":
            found[name] = value
        elif name in NAMES:
            found[NAMES[name]] = value
        elif not (name == "n" and value == 1):
            raise RunError(
                said(
                    "the judge {name!r} has the sampling setting {setting}, which rlctl does not support for judges",
                    name=reward.name,
                    setting=name,
                ),
                hint=nearest(name, NAMES) or said("use {names} or seed", names=", ".join(NAMES)),
            )
    stop = found.get("stop")
    if stop is not None:
        found["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
    return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked about some responses."""

    reward: int
    places: Sequence[int]
    """Of the responses among the reward's calls."""
    request: Request


class JudgeWorker:
    """Serves the judge of a config, and scores with it.

    Several rewards may ask it, each in its own way.
    """

    def __init__(self, spec: RolloutSpec, rewards: Mapping[int, JudgeReward], seed: int) -> None:
        """Load the engine.

        Args:
            spec: of the engine.
            rewards: those that ask it, by their position in the config.
            seed: of the run.

        Raises:
            RunError: the engine cannot run here, or cannot load the judge.
        """
        self._rewards, self._seed = rewards, seed
        self._tokenizer = load_tokenizer(spec.model)
        self._chat = Chat(self._tokenizer)
        self._ends = _ending_tokens(self._tokenizer)
        self._longest = spec.model.max_context_tokens or _positions(spec.model)
        self._sleeps = spec.sleeps
        self._engine = make_engine(spec)

    def score(self, calls: Mapping[int, Sequence[Call]]) -> dict[int, list[Outcome | Failure]]:
        """The outcomes of each reward's calls, in order; the calls of a prompt that are compared come together."""
        found: dict[int, list[Outcome | Failure]] = {i: [Failure("not judged")] * len(own) for i, own in calls.items()}
        asked: list[_Asked] = []
        for i, own in calls.items():
            for places in groups_of(own, self._rewards[i].scoring):
                try:
                    asked.append(_Asked(i, places, self._request(self._rewards[i], [own[place] for place in places])))
                except (RunError, ValueError, KeyError, TypeError) as error:
                    self._settle(found[i], places, [failure_of(error)] * len(places))
        for each, text in zip(asked, self._answers([each.request for each in asked]), strict=True):
            self._settle(found[each.reward], each.places, self._read(each, text))
        return found

    @staticmethod
    def _settle(found: list[Outcome | Failure], places: Sequence[int], outcomes: Sequence[Outcome | Failure]) -> None:
        for place, outcome in zip(places, outcomes, strict=True):
            found[place] = outcome

    def _request(self, reward: JudgeReward, calls: Sequence[Call]) -> Request:
        question = fill(reward.prompt or TEMPLATES[reward.scoring], calls)
        text = self._chat.render([{"role": "user", "content": question}], generate=True, where="the judge's question")
        (ids,) = self._chat.encode([text])
        settings = judge_sampling(reward)
        seed = settings.pop("seed", None)
        room = (self._longest or len(ids) + ANSWER_TOKENS) - len(ids)
        settings.setdefault("max_tokens", max(1, min(ANSWER_TOKENS, room)))
        if settings["max_tokens"] > room:
            raise RunError(
                said(
                    "the judge's question has {count} tokens, its answer up to {settings}, but the judge's context is "
                    "{longest}",
                    count=len(ids),
                    settings=settings["max_tokens"],
                    longest=self._longest,
                ),
                hint="lower max_tokens of its sampling, or shorten responses",
            )
        # Of the question, so that a run that goes on, and any number of engines, hear the same answer.
        drawn = derive_seed(self._seed if seed is None else seed, "judge", question)
        return Request(tuple(ids), Sampling(stop_token_ids=self._ends, **settings), 1, drawn)

    def _answers(self, requests: Sequence[Request]) -> list[str]:
        if not requests:
            return []
        if self._sleeps:
            self._engine.wake()
        responses = [answer for (answer,) in self._engine.generate(requests)]
        if self._sleeps:
            self._engine.sleep()
        texts = decode_all(self._tokenizer, [response.token_ids for response in responses])
        return [_cut(text, response).strip() for text, response in zip(texts, responses, strict=True)]

    def _read(self, asked: _Asked, text: str) -> Sequence[Outcome | Failure]:
        try:
            return READERS[self._rewards[asked.reward].scoring](text, len(asked.places))
        except Exception as error:  # noqa: BLE001 - whatever a judge answers costs its own responses
            return [failure_of(error)] * len(asked.places)

    def close(self) -> None:
        """End the engine."""
        self._engine.close()


def _cut(text: str, response: Response) -> str:
    return text[: text.rfind(response.cut)] if response.cut and response.cut in text else text


def _ending_tokens(tokenizer: Any) -> tuple[int, ...]:
    return () if tokenizer.eos_token_id is None else (int(tokenizer.eos_token_id),)


def _positions(model: Model) -> int | None:
    """The longest sequence that a model reads; None where it does not say."""
    from transformers import AutoConfig

    found = AutoConfig.from_pretrained(model.path, trust_remote_code=model.trust_remote_code)
    return getattr(found, "max_position_embeddings", None)
