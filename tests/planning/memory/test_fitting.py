"""Which phases fit a GPU, and which settings would make them fit."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.checks import check
from rlctl.config import Config, config_from
from rlctl.planning.arithmetic import Cluster
from rlctl.planning.memory import Fit, fit_of, memory_of, phases_of
from rlctl.planning.memory.fitted import USABLE
from rlctl.planning.memory.fitting import MOST_CHANGES, _with
from rlctl.planning.plan import make_plan, plan_from


def grpo(model: str = "Qwen/Qwen2.5-7B", **sections: Any) -> Config:
    base: dict[str, Any] = {
        "model": {"path": model},
        "data": {"max_prompt_tokens": 1024},
        "rollout": {"max_response_tokens": 7168},
        "batch": {"micro_batch": {"unit": "tokens", "size": 32768}},
        "algorithm": {"kl_in_loss": {"coefficient": 0.001}},
    }
    return config_from({**base, **sections})


def judged(config: Config, gib: float) -> Fit:
    fit = fit_of(config, gib=gib)
    assert fit is not None
    return fit


def changed(config: Config, fit: Fit) -> Config:
    for change in fit.changes:
        config = _with(config, change.key, change.after)
    return config


def phase(config: Config, name: str, gib: float = 80) -> dict[str, float]:
    [found] = (each for each in phases_of(config, gib=gib) if each.phase == name)
    return {part.name: part.gib for part in found.parts}


def test_each_phase_holds_its_own_role_and_what_the_others_leave() -> None:
    config = grpo()
    roles = {each.role: each for each in memory_of(config)}
    train, rollout = phase(config, "train"), phase(config, "rollout")
    assert train["policy optimizer"] == roles["policy"].part("optimizer")
    assert train["reference parameters"] == roles["reference"].part("parameters")
    assert not any(name.startswith("rollout") for name in train)  # it sleeps
    assert rollout["rollout weights"] + rollout["rollout KV cache"] == pytest.approx(0.5 * 80)
    assert rollout["policy optimizer"] == roles["policy"].part("optimizer")
    assert "policy gradients" not in rollout


def test_an_engine_that_does_not_sleep_keeps_its_share_while_training() -> None:
    awake = grpo(rollout={"max_response_tokens": 7168, "memory": {"sleep": False}})
    assert phase(awake, "train")["rollout KV cache"] > 20


def test_what_is_offloaded_is_not_on_the_device_of_other_phases() -> None:
    offloaded = grpo(train={"engine": {"type": "fsdp2", "offload": "both"}})
    assert not any(name.startswith("policy") for name in phase(offloaded, "rollout"))
    assert "policy optimizer" not in phase(offloaded, "log_probs")
    assert "policy optimizer" in phase(offloaded, "train")


def test_split_devices_are_judged_by_their_own_roles() -> None:
    config = grpo(placement={"layout": "split", "devices_per_node": 8, "rollout_devices": 2})
    found = {each.phase: each for each in phases_of(config, gib=80)}
    assert found["rollout"].devices == (0, 1)
    assert found["train"].devices == (2, 3, 4, 5, 6, 7)
    assert {part.name for part in found["rollout"].parts} == {"rollout weights", "rollout KV cache"}


def test_an_auxiliary_model_takes_its_share_while_responses_are_sampled() -> None:
    beside = {"path": "Qwen/Qwen3-8B", "replicas": 8, "settings": {"gpu_memory_utilization": 0.3}}
    config = grpo(rollout={"max_response_tokens": 7168, "auxiliary_models": [beside]})
    rollout = phase(config, "rollout")
    assert rollout["auxiliary weights"] + rollout["auxiliary KV cache"] == pytest.approx(0.3 * 80)
    assert not any(name.startswith("auxiliary") for name in phase(config, "train"))  # it sleeps
    beside["settings"] = {"gpu_memory_utilization": 0.1}
    small = next(each for each in phases_of(grpo(rollout={"auxiliary_models": [beside]}), gib=80) if each.lacking)
    assert small.phase == "rollout"
    assert small.lacking == pytest.approx(rollout["auxiliary weights"] - 8)


def test_an_auxiliary_model_on_devices_of_its_own_is_a_phase() -> None:
    placement = {"layout": "split", "devices_per_node": 8, "rollout_devices": 3}
    beside = {"path": "Qwen/Qwen3-8B", "settings": {"gpu_memory_utilization": 0.8}}
    config = grpo(rollout={"max_response_tokens": 7168, "auxiliary_models": [beside]}, placement=placement)
    found = {each.phase: each.devices for each in phases_of(config, gib=80)}
    assert (found["rollout"], found["auxiliary"], found["train"]) == ((0, 1), (2,), (3, 4, 5, 6, 7))


def test_what_fits_needs_no_change() -> None:
    fit = judged(grpo(), 80)
    assert fit.fits
    assert fit.changes == ()


@pytest.mark.parametrize(
    ("sections", "gib", "keys"),
    [
        ({}, 40, [("batch", "micro_batch", "size")]),
        (
            {"train": {"engine": {"type": "megatron", "tensor_parallel_size": 2}}},
            80,
            [("train", "engine", "recompute_granularity"), ("rollout", "memory", "gpu_memory_utilization")],
        ),
        (
            {"model": "Qwen/Qwen2.5-32B", "placement": {"nodes": 4, "devices_per_node": 8}},
            80,
            [("rollout", "parallel", "tensor_parallel_size")],
        ),
    ],
)
def test_the_nearest_change_is_the_cheapest_that_fits(
    sections: dict[str, Any], gib: float, keys: list[tuple[str, ...]]
) -> None:
    config = grpo(**sections)
    fit = judged(config, gib)
    assert not fit.fits
    assert [change.key for change in fit.changes] == keys
    assert judged(changed(config, fit), gib).fits


@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.1-70B-Instruct"])
@pytest.mark.parametrize("gib", [24, 48, 80])
def test_suggested_changes_fit_and_divide(model: str, gib: float) -> None:
    config = grpo(model)
    fit = judged(config, gib)
    if fit.changes:
        made = changed(config, fit)
        assert judged(made, gib).fits
        assert make_plan(made).stages[0].roles
        assert len(fit.changes) <= MOST_CHANGES


def test_an_engine_whose_share_has_no_room_for_its_weights_says_so() -> None:
    fit = judged(grpo("Qwen/Qwen2.5-32B", placement={"nodes": 4, "devices_per_node": 8}), 80)
    assert fit.worst.phase == "rollout"
    assert "lacks" in fit.problem


def test_the_problem_names_the_phase_and_the_largest_part() -> None:
    fit = judged(grpo(), 40)
    assert fit.worst.phase == "train"
    assert fit.worst.gib > USABLE * 40
    assert "train needs 38 GiB" in fit.problem
    assert "policy activations" in fit.problem


def test_a_plan_for_known_gpus_keeps_its_fit_as_plain_data() -> None:
    cluster = Cluster(1, 8, "cuda", gib_per_device=40)
    plan = make_plan(grpo(), cluster=cluster)
    [stage] = plan.stages
    assert stage.fit is not None
    assert not stage.fit.fits
    assert plan_from(plan.as_data()).stages[0].fit == stage.fit
    assert make_plan(grpo()).stages[0].fit is None


def test_check_warns_with_the_change_that_fits() -> None:
    [finding] = (
        each for each in check(grpo(), cluster=Cluster(1, 8, "cuda", gib_per_device=40)) if each.code == "memory"
    )
    assert "train needs 38 GiB" in finding.message
    assert finding.hint == "set batch.micro_batch.size to 16384"
