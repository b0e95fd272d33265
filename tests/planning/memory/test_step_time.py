"""The simulated step: lengths with the mean and percentiles that are asked for, and times that move as the parts of a run do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlctl.config import Config, config_from
from rlctl.planning.arithmetic import Cluster
from rlctl.planning.memory import GPUS, StepCost, cost_of
from rlctl.planning.memory.lengths import QUANTILES, of_counts, of_mean, of_pair
from rlctl.planning.memory.step_time import Generation, Pass, generation_seconds, pass_seconds, touched_parameters
from rlctl.planning.models import ModelShape, read_shape
from rlctl.planning.plan import make_plan, plan_from

NODE = Cluster(1, 8, "cuda", gpu="H100")


def shape(name: str = "Qwen/Qwen3-8B") -> ModelShape:
    found = read_shape(name)
    assert found is not None
    return found


def grpo(**sections: Any) -> Config:
    base: dict[str, Any] = {
        "model": {"path": "Qwen/Qwen3-8B"},
        "data": {"max_prompt_tokens": 1024},
        "rollout": {"max_response_tokens": 4096, "engine": {"type": "vllm"}},
        "batch": {"prompts_per_step": 64, "responses_per_prompt": 8, "micro_batch": {"unit": "tokens", "size": 16384}},
        "rewards": [{"type": "rule"}],
        "placement": {"devices_per_node": 8},
    }
    return config_from({**base, **sections})


def cost(config: Config, **how: Any) -> StepCost:
    found = cost_of(config, cluster=NODE, **how)
    assert found is not None
    return found


def seconds(found: float | None) -> float:
    assert found is not None
    return found


@pytest.mark.parametrize("mean", [100, 1000, 3800])
def test_lengths_have_the_mean_and_the_limit(mean: float) -> None:
    found = of_mean(200, mean, 4096)
    assert found.response == pytest.approx(mean, rel=0.01)
    assert found.longest <= 4096
    assert list(found.responses) == sorted(found.responses)


def test_lengths_go_through_two_percentiles() -> None:
    found = of_pair(0, (99, 8000), (50, 1200), 10000)
    middle = QUANTILES // 2
    assert found.responses[middle - 1] < 1200 < found.responses[middle]
    assert 5000 < found.longest <= 10000


def test_lengths_are_those_of_a_histogram() -> None:
    found = of_counts(0, [(100, 3), (900, 1)], 4096)
    assert found.response == pytest.approx(300, rel=0.02)
    assert set(found.responses) == {100.0, 900.0}
    assert of_counts(0, [(100, 99), (9000, 1)], 4096).longest == 4096


def test_a_long_tail_takes_longer_than_its_mean() -> None:
    what = Generation(shape(), 512, 8, 8, 1, 256, 2, 40 * 2**30)
    even, tailed = of_mean(500, 1000, 1000), of_pair(500, (50, 700), (99, 6000), 8000)
    assert generation_seconds(what, tailed, GPUS["H100"]) > 2 * generation_seconds(what, even, GPUS["H100"])


def test_responses_that_do_not_fit_the_cache_wait() -> None:
    what = Generation(shape(), 2048, 8, 8, 1, 256, 2, 40 * 2**30)
    lengths = of_mean(500, 2000, 4000)
    little = generation_seconds(replace(what, cache=what.cache / 8), lengths, GPUS["H100"])
    assert little > 1.5 * generation_seconds(what, lengths, GPUS["H100"])


def test_launches_outside_of_graphs_slow_decoding() -> None:
    what = Generation(shape(), 64, 8, 8, 1, 256, 2, 40 * 2**30)
    lengths = of_mean(500, 2000, 4000)
    graphs, eager, adapted = (
        generation_seconds(replace(what, **changes), lengths, GPUS["H200"])
        for changes in ({}, {"eager": True}, {"eager": True, "adapted": True})
    )
    assert graphs < eager < adapted


def test_responses_that_continue_fill_the_engines_while_the_longest_finish() -> None:
    split = {"layout": "split", "devices_per_node": 8, "rollout_devices": 4}
    waits = grpo(placement=split, weight_sync={"max_steps_ahead": 4})
    continues = grpo(placement=split, weight_sync={"max_steps_ahead": 4, "in_flight_requests": "continue"})
    first, second = cost(waits, ahead=True), cost(continues, ahead=True)
    assert seconds(second.generation_seconds) < seconds(first.generation_seconds)
    assert second.training_seconds == first.training_seconds
    assert seconds(second.step_seconds) < seconds(first.step_seconds)


def test_few_tokens_touch_few_experts() -> None:
    moe = shape("Qwen/Qwen3-30B-A3B")
    one, many = touched_parameters(moe, 1), touched_parameters(moe, 1000)
    embedding = moe.vocabulary * moe.hidden
    assert one == pytest.approx(moe.active_parameters, rel=0.02)
    assert many == pytest.approx(moe.parameters - embedding, rel=0.02)


def test_more_of_everything_takes_longer() -> None:
    base = cost(grpo())
    longer = cost(grpo(rollout={"max_response_tokens": 8192, "engine": {"type": "vllm"}}))
    assert seconds(longer.step_seconds) > 1.5 * seconds(base.step_seconds)
    offloaded = cost(grpo(train={"engine": {"type": "fsdp2", "offload": "both"}}))
    assert seconds(offloaded.moving_seconds) > seconds(base.moving_seconds)
    ahead = cost(grpo(), ahead=True)
    assert seconds(ahead.step_seconds) < seconds(base.step_seconds)


def test_weights_are_gathered_while_a_gpu_computes() -> None:
    """A slow GPU hides what a fast one waits for."""
    model = shape("Qwen/Qwen2.5-7B-Instruct")
    work = Pass(model, operations=1e14, forwards=3, devices=8, micro_batches=8, tokens=4096, sharded=True)
    fast = GPUS["H100"]
    slow = replace(fast, tflops=fast.tflops / 50)
    waits = [pass_seconds(work, gpu) - pass_seconds(replace(work, sharded=False), gpu) for gpu in (fast, slow)]
    assert waits[0] > 0
    assert waits[1] == 0


def test_a_pipeline_with_few_micro_batches_has_bubbles() -> None:
    few = {"prompts_per_step": 2, "responses_per_prompt": 4, "micro_batch": {"unit": "responses", "size": 1}}
    engines = ({"type": "megatron"}, {"type": "megatron", "pipeline_parallel_size": 8})
    alone, split = (cost(grpo(batch=few, train={"engine": engine})) for engine in engines)
    assert seconds(split.training_seconds) > 1.5 * seconds(alone.training_seconds)


def test_known_lengths_decide_the_time_and_the_packed_memory() -> None:
    config = grpo(
        batch={"prompts_per_step": 64, "responses_per_prompt": 8, "micro_batch": {"unit": "responses", "size": 8}}
    )
    short, long = (
        make_plan(config, cluster=NODE, lengths=lambda each, mean=mean: of_mean(100, mean, 4096)).stages[0]
        for mean in (200.0, 3000.0)
    )
    assert short.cost is not None
    assert long.cost is not None
    assert seconds(short.cost.step_seconds) < seconds(long.cost.step_seconds) / 2
    assert short.cost.longest_seconds == long.cost.longest_seconds
    assert short.fit is not None
    assert long.fit is not None
    train = [
        next(each.gib for each in stage.fit.phases if each.phase == "train") for stage in (short, long) if stage.fit
    ]
    assert train[0] < train[1]


def test_data_has_the_interval_of_each_estimate() -> None:
    plan = make_plan(grpo(), cluster=NODE)
    data = plan.as_data()
    told = data["stages"][0]["intervals"]
    low, expected, high = told["step_seconds"]
    assert low < expected < high
    assert [each["phase"] for each in told["memory"]] == [each["phase"] for each in data["stages"][0]["fit"]["phases"]]
    assert plan_from(data) == plan
