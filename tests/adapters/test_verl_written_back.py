"""verl -> rlctl -> verl: what a release and an engine make of a key, and what of it comes back."""

from __future__ import annotations

import pytest

from rlctl.report import Bucket

from .test_verl import A, bucket, read, written


@pytest.mark.parametrize(("version", "mode"), [("0.7", "seq_mean_token_mean"), ("0.9", "token_mean")])
def test_gspo_means_over_responses_until_verl_hands_it_its_mode(version: str, mode: str) -> None:
    loaded, _ = read(f"{A}.policy_loss.loss_mode=gspo", f"{A}.loss_agg_mode=token-mean", dialect=f"verl@{version}")
    assert loaded.config.algorithm.aggregation.mode == mode


@pytest.mark.parametrize(("switch", "on"), [("true", False), ("false", True)])
def test_verl_0_3_subtracts_kl_from_rewards_unless_it_is_in_the_loss(switch: str, on: bool) -> None:
    loaded, _ = read(f"{A}.use_kl_loss={switch}", dialect="verl@0.3")
    assert (loaded.config.algorithm.kl_in_reward is not None) is on


def test_verl_0_3_is_told_where_no_kl_is_wanted() -> None:
    values, _ = written(*read(), "verl@0.3")
    assert values["algorithm"]["kl_ctrl"]["kl_coef"] == 0.0


@pytest.mark.parametrize(
    ("overrides", "unread"),
    [
        ([f"{A}.ppo_micro_batch_size_per_gpu=4"], f"{A}.ppo_max_token_len_per_gpu"),
        ([f"{A}.use_dynamic_bsz=true", f"{A}.ppo_micro_batch_size_per_gpu=4"], f"{A}.ppo_micro_batch_size_per_gpu"),
        ([], f"{A}.ppo_max_token_len_per_gpu"),
    ],
)
def test_the_size_that_the_switch_leaves_unread_is_dead(overrides: list[str], unread: str) -> None:
    _, report = read(*overrides, f"{A}.ppo_max_token_len_per_gpu=9000")
    assert bucket(report, unread) is Bucket.DEAD


@pytest.mark.parametrize("engine", ["megatron", "veomni", "torchtitan"])
def test_an_engine_of_all_roles_is_chosen_by_its_group(engine: str) -> None:
    """Without the group, Hydra composes FSDP's blocks and refuses those of the engine."""
    values, _ = written(*read(f"model_engine={engine}"), "verl@0.9")
    assert values["model_engine"] == engine
    assert "strategy" not in values["actor_rollout_ref"]["actor"]


def test_npu_is_told_and_comes_back() -> None:
    loaded, report = read("trainer.device=npu")
    assert loaded.config.placement.device == "cuda"
    assert bucket(report, "trainer.device") is Bucket.DERIVED
    assert written(loaded, report, "verl")[0]["trainer"]["device"] == "npu"
