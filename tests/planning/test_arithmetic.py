"""Batch, schedule and topology arithmetic, against examples worked by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlctl.common.errors import PlanError
from rlctl.config import Config, config_from
from rlctl.planning import arithmetic

# verl's data.train_batch_size 1024, ppo_mini_batch_size 256 (prompts), rollout.n 8, on 8 GPUs.
VERL_EXAMPLE: dict[str, Any] = {
    "batch": {"prompts_per_step": 1024, "responses_per_prompt": 8, "mini_batch_responses": 2048},
    "schedule": {"total_epochs": 15, "evaluate_every": 5},
    "checkpoint": {"every": {"optimizer_steps": 40}},
}


def changed(**sections: Any) -> Config:
    return config_from({**VERL_EXAMPLE, **sections})


def test_a_step_of_1024_prompts_times_8_is_4_mini_batches_of_2048() -> None:
    config = changed()
    assert arithmetic.responses_per_step(config) == 8192
    assert arithmetic.mini_batches_per_epoch(config) == 4
    assert arithmetic.optimizer_steps_per_step(config) == 4


def test_the_last_mini_batch_may_be_smaller_and_epochs_multiply() -> None:
    config = changed(
        batch={"prompts_per_step": 10, "responses_per_prompt": 3, "mini_batch_responses": 8, "ppo_epochs": 2}
    )
    assert arithmetic.mini_batches_per_epoch(config) == 4  # 8 + 8 + 8 + 6
    assert arithmetic.optimizer_steps_per_step(config) == 8


def test_without_a_mini_batch_the_whole_step_is_one() -> None:
    config = changed(batch={"prompts_per_step": 32, "responses_per_prompt": 4})
    assert arithmetic.mini_batch_responses(config) == 128
    assert arithmetic.optimizer_steps_per_step(config) == 1


@pytest.mark.parametrize("objective", ["sft", "dpo"])
def test_responses_from_the_data_set_are_one_a_row(objective: str) -> None:
    config = changed(algorithm={"objective": objective})
    assert arithmetic.responses_per_step(config) == 1024


def test_epochs_need_the_length_of_the_data_and_drop_the_rest() -> None:
    config = changed()
    assert arithmetic.total_steps(config, None) is None
    # GSM8K has 7473 prompts: 7 whole steps of 1024 an epoch.
    assert arithmetic.total_steps(config, 7473) == 105


def test_carried_rows_add_up_over_epochs() -> None:
    config = changed(data={"last_batch": "carry"})
    assert arithmetic.total_steps(config, 7473) == 15 * 7473 // 1024 == 109


def test_the_first_limit_that_is_reached_ends_the_run() -> None:
    config = changed(schedule={"total_steps": 50, "total_epochs": 15, "total_optimizer_steps": 81})
    assert arithmetic.total_steps(config, 7473) == 21  # ceil(81 / 4)
    assert arithmetic.total_steps(changed(schedule={}), 7473) is None


def test_epochs_that_do_not_fill_one_step_are_refused_with_what_would() -> None:
    config = changed(data={"last_batch": "carry"})
    with pytest.raises(PlanError, match="total_epochs 15 gives no step") as caught:
        arithmetic.total_steps(config, 68)  # 15 * 68 = 1020 of 1024
    assert caught.value.hint == "set batch.prompts_per_step to 1020 or less, or schedule.total_epochs to 16"
    assert arithmetic.total_steps(config, 69) == 1


def test_less_data_than_a_step_is_refused_with_what_would_fit() -> None:
    with pytest.raises(PlanError, match="100 prompts and a step needs 1024") as raised:
        arithmetic.total_steps(changed(), 100)
    assert "100 or less" in raised.value.hint


def test_intervals_are_whole_steps() -> None:
    config = changed()
    assert arithmetic.interval_in_steps(config.schedule.evaluate_every, config, None) == 5
    assert arithmetic.interval_in_steps(config.checkpoint.every, config, None) == 10  # 40 optimizer steps, 4 a step
    epochs = changed(checkpoint={"every": {"epochs": 2}}).checkpoint.every
    assert arithmetic.interval_in_steps(epochs, config, 7473) == 14
    assert arithmetic.interval_in_steps(epochs, config, None) is None
    assert arithmetic.interval_in_steps(None, config, 7473) is None
    often = changed(checkpoint={"every": {"optimizer_steps": 1}}).checkpoint.every
    assert arithmetic.interval_in_steps(often, config, None) == 1


def test_replicas_of_each_engine() -> None:
    assert arithmetic.train_replicas(changed()) == 8
    ulysses = changed(train={"engine": {"type": "fsdp2", "ulysses_sequence_parallel_size": 2}})
    assert arithmetic.train_replicas(ulysses) == 4
    megatron = changed(
        train={
            "engine": {
                "type": "megatron",
                "tensor_parallel_size": 2,
                "pipeline_parallel_size": 2,
                "context_parallel_size": 2,
                "expert_parallel_size": 8,
            }
        },
        placement={"nodes": 4},
    )
    assert arithmetic.train_replicas(megatron) == 4
    assert arithmetic.devices_per_sequence(megatron.train.engine) == 2


def test_layouts_share_out_the_devices() -> None:
    half = changed(placement={"layout": "split"})
    assert (arithmetic.rollout_devices(half), arithmetic.train_devices(half)) == (4, 4)
    two = changed(placement={"layout": "split", "rollout_devices": 2})
    assert (arithmetic.rollout_devices(two), arithmetic.train_devices(two)) == (2, 6)
    explicit = changed(
        placement={"layout": "explicit", "roles": {"policy": {"devices": [0, 1, 2]}, "rollout": {"devices": [3]}}}
    )
    assert (arithmetic.rollout_devices(explicit), arithmetic.train_devices(explicit)) == (1, 3)


def test_what_does_not_divide_shows_the_arithmetic_and_the_neighbours() -> None:
    with pytest.raises(PlanError, match=r"8 training devices .* replicas of 3 devices \(8 / 3 = 2.66667\)") as raised:
        arithmetic.train_replicas(changed(train={"engine": {"type": "fsdp2", "ulysses_sequence_parallel_size": 3}}))
    assert "6 or 9" in raised.value.hint
    with pytest.raises(PlanError, match="8 rollout devices do not divide into engines of 3"):
        arithmetic.rollout_engines(changed(rollout={"parallel": {"tensor_parallel_size": 3}}))
    with pytest.raises(PlanError, match="3 rollout engines of 4 devices need 12"):
        arithmetic.rollout_engines(changed(rollout={"parallel": {"tensor_parallel_size": 4, "replicas": 3}}))


def test_training_without_devices_is_refused() -> None:
    with pytest.raises(PlanError, match="rollout takes 8 of 8 devices; training has none"):
        arithmetic.train_replicas(changed(placement={"layout": "split", "rollout_devices": 8}))


def test_rollout_engines_fill_the_devices_unless_said_otherwise() -> None:
    assert arithmetic.rollout_engines(changed(rollout={"parallel": {"tensor_parallel_size": 2}})) == 4
    assert arithmetic.rollout_engines(changed(rollout={"parallel": {"tensor_parallel_size": 2, "replicas": 3}})) == 3


@given(value=st.integers(0, 10**6), of=st.integers(1, 10**4))
def test_neighbours_enclose_the_value_and_divide(value: int, of: int) -> None:
    near = arithmetic.nearest_multiples(value, of)
    assert near.below <= value <= near.above
    assert near.below % of == near.above % of == 0
    assert near.above - near.below in (0, of)


def test_who_is_needed_follows_from_the_algorithm() -> None:
    kl = changed(algorithm={"kl_in_loss": {"coefficient": 0.01}})
    off = changed(algorithm={"kl_in_loss": {"coefficient": 0.0}})
    sft = changed(algorithm={"objective": "sft", "kl_in_loss": {"coefficient": 0.01}})
    assert [arithmetic.needs_reference(config) for config in (changed(), kl, off, sft)] == [False, True, False, False]
    assert arithmetic.needs_reference(changed(algorithm={"objective": "dpo"}))
    assert arithmetic.needs_critic(changed(algorithm={"advantage": "gae"}))
    assert arithmetic.needs_rollout(changed())
    assert not arithmetic.needs_rollout(sft)
    evaluated = changed(algorithm={"objective": "sft"}, data={"eval": [{"path": "test.parquet"}]})
    assert arithmetic.needs_rollout(evaluated)


def test_only_objectives_that_sample_compare_whole_distributions() -> None:
    """DPO and SFT measure no KL, so their workers need not hold the reference for one."""
    full = {"estimator": "full", "coefficient": 0.1}
    found = {
        objective: arithmetic.whole_divergences(
            config_from({"algorithm": {"objective": objective, "kl_in_loss": full, "kl_in_reward": full}})
        )
        for objective in ("rl", "mix", "dpo", "sft")
    }
    both = ("kl_in_loss", "kl_in_reward")
    assert found == {"rl": both, "mix": both, "dpo": (), "sft": ()}


def test_held_out_prompts_are_answered_regularly_or_once_where_responses_are_generated_anyway() -> None:
    def evaluates(objective: str = "rl", **schedule: Any) -> bool:
        return arithmetic.evaluates(
            config_from(
                {
                    "algorithm": {"objective": {"type": objective}},
                    "data": {"eval": [{"path": "test.parquet"}]},
                    "schedule": schedule,
                }
            )
        )

    assert evaluates(evaluate_every=5, evaluate_at_start=False)
    assert evaluates(evaluate_at_start=True)
    assert not evaluates(evaluate_at_start=False)
    assert not evaluates("sft", evaluate_at_start=True)


@pytest.mark.parametrize(
    ("mini", "share", "experts", "step", "count"),
    [
        (320, 0.2, 64, 320, 1),  # 256 rolled out and 64 of experts
        (160, 0.2, 32, 320, 2),  # 128 + 32 each
        (None, 0.2, 64, 320, 1),
        (None, 0.3, 110, 366, 1),  # ceil(0.3 x 366) = 110
        (10, 1.0, 9, 256 + 256 * 9, 256),  # one is always rolled out
        (320, 0.0, 0, 256, 1),
    ],
)
def test_experts_of_a_mix_are_a_share_of_each_mini_batch(
    mini: int | None, share: float, experts: int, step: int, count: int
) -> None:
    config = config_from(
        {
            "algorithm": {"objective": {"type": "mix", "expert_share": share}},
            "batch": {"prompts_per_step": 32, "responses_per_prompt": 8, "mini_batch_responses": mini},
        }
    )
    assert arithmetic.expert_responses(config) == experts
    assert arithmetic.responses_per_step(config) == step
    assert arithmetic.mini_batches_per_epoch(config) == count
    assert arithmetic.drawn_responses(config) == 256


def test_a_mix_of_experts_only_is_refused() -> None:
    with pytest.raises(PlanError, match="there would be no rollout"):
        arithmetic.expert_responses(config_from({"algorithm": {"objective": {"type": "mix", "expert_share": 1.0}}}))
