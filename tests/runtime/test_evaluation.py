"""Held-out prompts are answered the same however many at once, with a real engine and a real reward in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rlctl.runtime.data.tokenizer import load_tokenizer
from rlctl.runtime.evaluation import Evaluator, HeldOut
from rlctl.runtime.group import LocalGroup
from rlctl.runtime.roles import Rewards, RolloutEngines
from rlctl.runtime.types import Prompt, Sampling
from rlctl.runtime.workers.reward import RewardWorker
from rlctl.runtime.workers.rollout import RolloutWorker


@pytest.fixture(scope="module")
def evaluator(task: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    config = task.config(tmp_path_factory.mktemp("runs"))
    tokenizer = load_tokenizer(config.model)
    texts = [f"<user>{number}+{number}=<assistant>" for number in range(10, 17)]
    prompts = [Prompt(row, "sums", tuple(tokenizer(text).input_ids), text, "1") for row, text in enumerate(texts)]
    sampled = HeldOut("sampled", prompts, Sampling(4, stop_token_ids=(tokenizer.eos_token_id,)), 3)
    greedy = replace(sampled, name="greedy", sampling=Sampling(4, temperature=0.0), responses_per_prompt=1)
    engine = LocalGroup("rollout-0", RolloutWorker(config, "transformers", config.model.path, "cpu"))
    scorer = LocalGroup("reward-0", RewardWorker(config.rewards, None))
    yield Evaluator([sampled, greedy], RolloutEngines(engine), Rewards(scorer, tokenizer), 7, None)
    engine.close()
    scorer.close()


def test_the_size_of_a_batch_changes_no_number(evaluator: Evaluator) -> None:
    whole = evaluator.run()
    assert whole == evaluator.run()
    for size in (1, 3, 7, 100):
        assert replace(evaluator, batch_prompts=size).run() == whole
    assert {name.split("/")[1] for name in whole} == {"sampled", "greedy"}
    assert 0 < whole["evaluation/sampled/length_mean"] <= 4


def test_another_seed_draws_other_responses_and_greedy_ones_stay(evaluator: Evaluator) -> None:
    def responses(seed: int) -> list[Any]:
        found = []
        engines = evaluator.rollout

        class Watched(RolloutEngines):
            def generate(self, requests: Any) -> Any:
                found.append([[each.token_ids for each in group] for group in engines.generate(requests)])
                return engines.generate(requests)

        replace(evaluator, seed=seed, rollout=Watched(LocalGroup("unused", None))).run()
        return found

    one, two = responses(7), responses(8)
    assert one[0] != two[0]
    assert one[1] == two[1]
