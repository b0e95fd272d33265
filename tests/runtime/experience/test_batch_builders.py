"""A step draws until enough groups are left, answers greedily where that is compared with, and remembers where it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.planning.rollout_schedule import sync_schedule
from rlctl.runtime.data.stream import Ordering, Stream
from rlctl.runtime.experience.batch_builders import BuiltBatch, RolloutBatchBuilder
from rlctl.runtime.experience.explore import Explorer
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.specs.experience import generation_spec, rollout_batch_spec, shaping_spec
from rlctl.runtime.types import Prompt, Request, Response, Sample

PROMPTS = [Prompt(index=index, source="s", token_ids=(1, index), text="") for index in range(12)]


class Engine:
    """Answers with the number of the prompt; greedy responses are of one token."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def sleep(self) -> None:
        """There is no device to share."""

    def generate(self, requests: Sequence[Request]) -> list[list[Response]]:
        self.requests += requests
        return [
            [
                Response((each.token_ids[1],) * length, (-0.5,) * length, "stop", 0)
                for length in ([1] if each.sampling.temperature == 0 else range(2, 2 + each.n))
            ]
            for each in requests
        ]


class Tokenizer:
    """A text is the list of its tokens."""

    decode = staticmethod(str)

    def batch_decode(self, sequences: Sequence[Sequence[int]], *, skip_special_tokens: bool) -> list[str]:
        return [str(each) for each in sequences]


class Judge:
    """Responses to every third prompt score by their length, the others alike; greedy ones 1/4."""

    tokenizer = Tokenizer()

    def score(self, prompts: Sequence[Prompt], answers: Sequence[Sequence[Response]]) -> list[list[Score]]:
        return [
            [Score(self.of(prompt, len(response.token_ids))) for response in responses]
            for prompt, responses in zip(prompts, answers, strict=True)
        ]

    @staticmethod
    def of(prompt: Prompt, length: int) -> float:
        return 0.25 if length == 1 else float(length) if prompt.index % 3 == 0 else 1.0


class Trained:
    def add_old_log_probs(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            sample.columns["old_log_probs"] = sample.columns["rollout_log_probs"] + 0.1 * sample.mask


def gather_of(algorithm: dict[str, Any], **rollout: Any) -> tuple[RolloutBatchBuilder, Engine]:
    config = config_from(
        {
            "algorithm": algorithm,
            "batch": {"prompts_per_step": 2, "responses_per_prompt": 2},
            "rollout": {"max_response_tokens": 8, **rollout},
        }
    )
    engine: Any = Engine()
    judge: Any = Judge()
    policy: Any = Trained()
    shaping = Shaping.of(shaping_spec(config))
    explorer = Explorer(
        spec=generation_spec(config, "main", ()),
        schedule=sync_schedule(config),
        stream=Stream([PROMPTS], per_step=2, ordering=Ordering(order="sequential", last_batch="carry")),
        rollout=engine,
        rewards=judge,
        shaping=shaping,
    )
    gather = RolloutBatchBuilder(
        rollout_batch_spec(config, old_is_current=False),
        groups=explorer,
        tokenizer=judge.tokenizer,
        policy=policy,
        reference=None,
        shaping=shaping,
    )
    return gather, engine


def phase(name: str) -> Any:
    return nullcontext()


def gathered(builder: RolloutBatchBuilder, step: int) -> BuiltBatch:
    return builder.build(builder.take(step, phase), step, phase)


def owners(samples: Sequence[Sample]) -> list[int]:
    return [int(sample.token_ids[1]) for sample in samples]


def test_a_step_is_filled_up_with_further_prompts() -> None:
    """Of two prompts a round, 0, 3, 6 and 9 are kept: the second step begins where the first ended."""
    gather, engine = gather_of({"filters": ["zero_variance_groups"]})
    first = gathered(gather, 1)
    assert owners(first.samples) == [0, 0, 3, 3]
    assert (first.metrics["filter/rounds"], first.metrics["filter/kept_groups_share"]) == (2, 0.5)
    assert first.metrics["group/equal_share"] == 0.5, "metrics are of all that was drawn"
    assert len({request.seed for request in engine.requests}) == 4
    resumed, _ = gather_of({"filters": ["zero_variance_groups"]})
    resumed.restore(json.loads(json.dumps(gather.state())))
    for other in (gather, resumed):
        second = gathered(other, 2)
        assert owners(second.samples) == [6, 6, 9, 9]
        assert second.metrics["filter/rounds"] == 3


def test_rounds_may_be_larger_than_a_step_and_what_is_too_much_is_left_out() -> None:
    gather, engine = gather_of({"filters": ["zero_variance_groups"]}, oversampling={"generation_batch_prompts": 9})
    assert owners(gathered(gather, 1).samples) == [0, 0, 3, 3]
    assert len(engine.requests) == 9


def test_a_step_that_is_not_filled_in_time_ends_the_run() -> None:
    gather, _ = gather_of({"filters": ["zero_variance_groups"]}, oversampling={"max_generation_batches": 1})
    with pytest.raises(RunError, match=r"1 round of 2 prompts left 1 group after filtering; a step needs 2") as ended:
        gathered(gather, 1)
    assert "max_generation_batches" in ended.value.hint


def test_without_refilling_a_step_trains_on_what_is_left() -> None:
    gather, _ = gather_of({"filters": [{"type": "group_mean", "low": 1.5, "high": 9.0}]})
    found = [owners(gathered(gather, step).samples) for step in (1, 2, 3)]
    assert found == [[0, 0], [3, 3], []]


def test_each_prompt_is_answered_greedily_for_remax() -> None:
    """Rewards 2 and 3 of the first prompt, 1 and 1 of the second, less 1/4."""
    gather, engine = gather_of({"advantage": "remax"})
    samples = gathered(gather, 1).samples
    assert [sample.columns["advantages"][-1].item() for sample in samples] == [1.75, 2.75, 0.75, 0.75]
    assert [(request.n, request.sampling.temperature) for request in engine.requests] == [(2, 1.0)] * 2 + [(1, 0.0)] * 2
    assert len({request.seed for request in engine.requests}) == 4


def test_old_log_probs_are_computed_before_what_reads_them() -> None:
    gather, _ = gather_of({"rollout_correction": {"importance_sampling": {"level": "token", "threshold": 9.0}}})
    for sample in gathered(gather, 1).samples:
        torch.testing.assert_close(
            sample.columns["policy_weights"][sample.mask].log(), torch.full((int(sample.mask.sum()),), 0.1)
        )
