"""A model that generates random tokens, to try an agent without an engine: most of its texts are such as the agent expects."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from rlctl.runtime.agents.kinds import Agent, Ask
from rlctl.runtime.types import Request, Response

EXPECTED_SHARE = 0.8
"""Share of the generations that are a text the agent expects, if it says which there are."""
LONGEST = 16
"""Tokens of another generation."""


def random_answers(agent: Agent) -> Ask:
    """What answers the calls of an agent; the same request gets the same answer."""
    tokenizer = agent.chat_of.tokenizer
    texts: list[str] = list(getattr(agent, "expected_texts", list)())

    async def answer(request: Request) -> Response:
        return _answer(request, tokenizer, texts)

    return answer


def _answer(request: Request, tokenizer: Any, texts: Sequence[str]) -> Response:
    chance, sampling = random.Random(f"{request.seed} {request.first}"), request.sampling
    if texts and chance.random() < EXPECTED_SHARE:
        ids = list(tokenizer(chance.choice(texts), add_special_tokens=False)["input_ids"])
    else:
        special = set(tokenizer.all_special_ids)
        plain = [token for token in range(len(tokenizer)) if token not in special]
        ids = [chance.choice(plain) for _ in range(chance.randint(1, LONGEST))]
    ids = [*ids, *sampling.stop_token_ids[:1]]
    ended = len(ids) <= sampling.max_tokens
    ids = ids[: sampling.max_tokens]
    log_prob = -math.log(len(tokenizer))
    return Response(tuple(ids), (log_prob,) * len(ids), "stop" if ended else "length", 0)
