"""ROLL's estimators are settings of one: a normalisation of rewards, and whitening; its losses are classes and variants."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from rlctl.common.report import Bucket
from rlctl.config import Loaded, config_from, to_file, to_plain
from rlctl.documents import read_yaml
from rlctl.runtime.algorithms.correction import Rejection
from rlctl.translation.translate import read_document, translate_loaded

from .texts import AGENTIC, RLVR, bucket, lost, read, written

PG = "roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker"


def _advantage(text: str, **keys: Any) -> dict[str, Any]:
    loaded, _ = read(text, **keys)
    return dict(to_plain(loaded.config.algorithm.advantage))


@pytest.mark.parametrize(
    ("keys", "name", "options"),
    [
        ({}, "grpo", {"normalize_by_std": True, "kl_order": "after_normalisation"}),
        (
            {"adv_estimator": "reinforce", "norm_mean_type": "group", "norm_std_type": "group"},
            "grpo",
            {"normalize_by_std": True},
        ),
        ({"adv_estimator": "reinforce", "norm_mean_type": "group"}, "grpo", {"normalize_by_std": False}),
        (
            {"adv_estimator": "reinforce", "norm_mean_type": "group", "whiten_advantages": True},
            "reinforce_plus_plus_baseline",
            {},
        ),
        ({"adv_estimator": "reinforce", "whiten_advantages": True}, "reinforce_plus_plus", {"gamma": 1.0}),
        ({"adv_estimator": "reinforce"}, "reinforce", {"gamma": 1.0, "whiten": False}),
        ({"adv_estimator": "gae"}, "gae", {"lambda": 0.95, "whiten": False}),
        ({"adv_estimator": "gigpo"}, "reinforce", {"gamma": 1.0}),
    ],
)
def test_settings_name_the_estimator_and_are_written_as_such(
    keys: dict[str, Any], name: str, options: dict[str, Any]
) -> None:
    found = _advantage(RLVR, **keys)
    assert found["type"] == name
    assert {key: found[key] for key in options} == options
    values, report = written(read(RLVR, **keys)[0])
    again, _ = read(
        RLVR,
        **{
            key: values.get(key)
            for key in ("adv_estimator", "norm_mean_type", "norm_std_type", "whiten_advantages")
            if key in values
        },
    )
    assert to_plain(again.config.algorithm.advantage) == found
    assert not [key for key in lost(report) if key.startswith("algorithm.advantage")]


@pytest.mark.parametrize(
    "between", [{"add_token_level_kl": True, "init_kl_coef": 0.1}, {"reward_clip": 1.0}, {"whiten_rewards": True}]
)
def test_what_comes_between_group_mean_and_advantage_stays_there(between: dict[str, Any]) -> None:
    keys = {"adv_estimator": "reinforce", "norm_mean_type": "group", "whiten_advantages": True}
    loaded, _ = read(RLVR, **keys, **between)
    algorithm = loaded.config.algorithm
    assert to_plain(algorithm.advantage) == {
        "type": "reinforce",
        "gamma": 1.0,
        "whiten": True,
        "clip": None,
    }
    assert (algorithm.reward_shaping.normalize.mean, algorithm.reward_shaping.normalize.std) == ("group", None)
    values, report = written(loaded)
    assert {key: values[key] for key in (*keys, *between)} == {**keys, **between}
    assert not [key for key in lost(report) if key.startswith("algorithm.advantage")]


@pytest.mark.parametrize(
    "more",
    [{"kl_in_reward": {"coefficient": 0.1}}, {"reward_shaping": {"clip": 1.0}}, {"reward_shaping": {"whiten": True}}],
)
def test_a_group_mean_taken_off_last_cannot_be_said(more: dict[str, Any]) -> None:
    baseline = {"advantage": {"type": "reinforce_plus_plus_baseline"}, "reward_shaping": {}}
    text = to_file(read(RLVR)[0].config)
    for values, expected in ((baseline, False), ({**baseline, **more}, True)):
        document = json.dumps({**text, "algorithm": {**text["algorithm"], **values}})
        loaded, _ = read_document(read_yaml(document, "run.yaml"), dialect="rlctl", environment={})
        assert loaded is not None
        _, report = written(loaded)
        assert ("algorithm.advantage.type" in lost(report)) is expected


def test_discounted_group_rewards_are_no_grpo() -> None:
    loaded, _ = read(RLVR, gamma=0.9)
    assert loaded.config.algorithm.advantage.choice == "reinforce"
    assert loaded.config.algorithm.reward_shaping.normalize.mean == "group"


@pytest.mark.parametrize(
    ("norm", "name", "std"),
    [
        ({}, "reinforce", None),
        ({"grouping": "traj_group_id", "method": "mean_std"}, "grpo", True),
        ({"grouping": "traj_group_id", "method": "mean"}, "grpo", False),
        ({"grouping": "batch", "method": "mean_std"}, "reinforce", None),
        ({"grouping": "tags", "method": "mean_std"}, "reinforce", None),
        ({"grouping": "traj_group_id", "norm_mean_type": "group", "norm_std_type": "batch"}, "reinforce", None),
    ],
)
def test_an_agentic_grpo_is_what_its_normalisation_says(norm: dict[str, Any], name: str, std: Any) -> None:
    found = _advantage(AGENTIC, reward_normalization=norm)
    assert found["type"] == name
    assert found.get("normalize_by_std") == std


def test_statistics_of_other_groups_come_back() -> None:
    loaded, _ = read(AGENTIC, reward_normalization={"grouping": "tags", "method": "mean_std"})
    shaping = loaded.config.algorithm.reward_shaping
    assert (shaping.group_by, shaping.normalize.mean, shaping.normalize.std) == ("tags", "group", "group")
    values, _ = written(loaded)
    assert values["reward_normalization"] == {"norm_mean_type": "group", "norm_std_type": "group", "grouping": "tags"}


@pytest.mark.parametrize(
    ("keys", "loss"),
    [
        ({}, {"type": "ppo_clip", "clip_low": 0.2, "clip_high": 0.2, "dual_clip": None}),
        ({"dual_clip_loss": True}, {"type": "ppo_clip", "dual_clip": 1.4}),
        ({"pg_clip": 0.1, "dual_clip_loss": True}, {"clip_low": 0.1, "dual_clip": 1.2}),
        ({"use_pg_clip_range": True, "pg_clip_high": 0.28}, {"clip_low": 0.2, "clip_high": 0.28}),
        ({"pg_clip_high": 0.28}, {"clip_low": 0.2, "clip_high": 0.2}),
        ({"importance_sampling": "seq"}, {"type": "gspo", "clip_low": 0.2, "dual_clip": None}),
        ({"importance_sampling": "seq", "dual_clip_loss": True}, {"type": "gspo", "dual_clip": 1.4}),
        (
            {
                "actor_train__worker_cls": PG,
                "actor_train__pg_variant": "topr",
                "actor_train__topr_positive_weight": 2.0,
            },
            {"type": "topr", "positive_weight": 2.0},
        ),
        ({"actor_train__worker_cls": PG, "actor_train__pg_variant": "cispo"}, {"type": "cispo", "clip_low": 0.1}),
        ({"actor_train__worker_cls": PG, "actor_train__pg_variant": "tis"}, {"importance_weight": "truncated_ratio"}),
        ({"actor_train__worker_cls": PG, "actor_train__pg_variant": "vanilla"}, {"importance_weight": "none"}),
        ({"actor_train__worker_cls": PG, "actor_train__pg_variant": "kimi15"}, {"type": "kimi15"}),
        ({"actor_train__pg_variant": "topr"}, {"type": "ppo_clip"}),
    ],
)
def test_a_loss_is_read_and_comes_back(keys: dict[str, Any], loss: dict[str, Any]) -> None:
    loaded, _ = read(RLVR, **keys)
    found = to_plain(loaded.config.algorithm.policy_loss)
    assert {key: found[key] for key in loss} == loss
    values, _ = written(loaded)
    names = ("pg_clip", "pg_clip_low", "pg_clip_high", "use_pg_clip_range", "dual_clip_loss", "importance_sampling")
    again = {key: values[key] for key in names if key in values}
    own = ("worker_cls", "pg_variant", "topr_positive_weight")
    again |= {f"actor_train__{key}": values["actor_train"][key] for key in own if key in values["actor_train"]}
    assert to_plain(read(RLVR, **again)[0].config.algorithm.policy_loss) == found


def test_verl_s_dual_clip_has_a_form_in_roll() -> None:
    """pg_clip says nothing but the dual clip's bound where the range has keys of its own."""
    loaded, _ = read(RLVR, use_pg_clip_range=True, pg_clip=1.0, dual_clip_loss=True)
    assert to_plain(loaded.config.algorithm.policy_loss)["dual_clip"] == 3.0
    values, _ = written(loaded)
    assert (values["pg_clip"], values["pg_clip_low"], values["use_pg_clip_range"]) == (1.0, 0.2, True)


def test_keys_behind_a_switch_that_is_off_are_dead() -> None:
    _, report = read(RLVR, kl_loss_coef=0.01, init_kl_coef=0.2, pg_clip_low=0.3, difficulty_low_threshold=0.1)
    for key in ("kl_loss_coef", "init_kl_coef", "pg_clip_low", "difficulty_low_threshold"):
        assert bucket(report, key) is Bucket.DEAD


def test_without_kl_in_the_reward_no_reference_is_asked_for() -> None:
    values, _ = written(read(RLVR)[0])
    assert values["init_kl_coef"] == 0.0


def test_kl_in_the_reward_and_an_adaptive_target_come_back() -> None:
    loaded, _ = read(RLVR, add_token_level_kl=True, kl_penalty="mse", init_kl_coef=0.05, target_kl=0.2, kl_horizon=500)
    penalty = loaded.config.algorithm.kl_in_reward
    assert penalty is not None
    assert (penalty.estimator, penalty.coefficient, penalty.adaptive, penalty.target, penalty.horizon) == (
        "k2",
        0.05,
        True,
        0.2,
        500,
    )
    values, _ = written(loaded)
    assert (values["kl_penalty"], values["init_kl_coef"], values["target_kl"], values["kl_horizon"]) == (
        "mse",
        0.05,
        0.2,
        500,
    )


def test_masks_and_filters_are_one_list() -> None:
    keys = {
        "max_len_mask": True,
        "difficulty_mask": True,
        "difficulty_low_threshold": 0.1,
        "difficulty_high_threshold": 0.95,
    }
    config = {"type": "mean_filter", "filter_args": {"threshold_up": 0.9, "threshold_down": 0.1}}
    loaded, _ = read(RLVR, **keys, rewards__math_rule__query_filter_config=config)
    assert [item.choice for item in loaded.config.algorithm.filters] == ["group_mean", "overlong", "difficulty_mask"]
    values, _ = written(loaded)
    assert {key: values[key] for key in keys} == keys
    assert values["rewards"]["math_rule"]["query_filter_config"] == config


def test_ratios_are_weighted_and_rejected_as_they_were() -> None:
    correction = {
        "is_weight": {"enabled": True, "weight_type": "sequence", "upper_bound": 2.0},
        "filters": [
            {"enabled": True, "agg_type": "geometric", "ratio_low": 0.9, "ratio_high": 1.1},
            {"agg_type": "token"},
        ],
    }
    loaded, _ = read(RLVR, train_infer_correction=correction)
    found = loaded.config.algorithm.rollout_correction
    assert found is not None
    assert (found.importance_sampling.level, found.importance_sampling.threshold) == ("sequence", 2.0)
    assert (found.rejection, found.rejection_bounds) == (("seq_mean_k1",), ((0.909090909091, 1.11111111111),))
    values, _ = written(loaded)
    assert values["train_infer_correction"]["filters"] == [correction["filters"][0]]  # type: ignore[index]


def test_a_filter_keeps_the_tokens_that_roll_keeps() -> None:
    """ROLL keeps low <= exp(training - rollout) <= high, the rule's own code has to keep the same tokens."""
    item = {"enabled": True, "agg_type": "token", "ratio_low": 0.5, "ratio_high": 1.2}
    found = read(RLVR, train_infer_correction={"filters": [item]})[0].config.algorithm.rollout_correction
    assert found is not None
    (rule,) = Rejection.parse(found.rejection, found.rejection_bounds)
    ratios = torch.tensor([0.4, 0.51, 0.8, 1.0, 1.19, 1.21, 1.9])
    assert rule.keeps(ratios.log(), torch.tensor([7])).tolist() == ((ratios >= 0.5) & (ratios <= 1.2)).tolist()


def test_a_filter_without_a_lower_bound_comes_back() -> None:
    item = {"enabled": True, "agg_type": "sequence", "ratio_low": 0, "ratio_high": 2.0}
    values, _ = written(read(RLVR, train_infer_correction={"filters": [item]})[0])
    assert values["train_infer_correction"]["filters"] == [item]


def test_one_bound_is_that_of_every_rule() -> None:
    correction = {"rejection": ["token_k1", "seq_sum_k1"], "rejection_bounds": [2.0]}
    text = to_file(read(RLVR)[0].config)
    config = config_from({**text, "algorithm": {**text["algorithm"], "rollout_correction": correction}})
    values, _ = written(Loaded(config))
    found = values["train_infer_correction"]["filters"]
    assert [(item["agg_type"], item["ratio_low"], item["ratio_high"]) for item in found] == [
        ("token", 0.5, 2.0),
        ("sequence", 0.5, 2.0),
    ]


def test_what_topr_calls_good_is_told() -> None:
    keys = {"actor_train__worker_cls": PG, "actor_train__pg_variant": "topr"}
    loaded, report = read(RLVR, **keys)
    notes = {entry.key: entry.note for entry in report.accounting}
    assert "raw score" in notes["actor_train.pg_variant"]
    _, report = written(loaded)
    assert any("raw score" in entry.note for entry in report.accounting)


@pytest.mark.parametrize("target", ["verl", "trinity"])
def test_a_dual_clip_of_sequences_is_lost_elsewhere_with_its_bound(target: str) -> None:
    loaded, report = read(RLVR, importance_sampling="seq", dual_clip_loss=True, pg_clip=0.2)
    notes = lost(translate_loaded(loaded, report, target).report)
    assert "1.4" in notes["dual_clip_loss"]


GROUPED = {"grouping": "traj_group_id", "method": "mean_std"}
STEPS = {"episode_reward_weight": 0.5, "step_reward_weight": 2.0, "step_reward_gamma": 0.9}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            {"adv_estimator": "gigpo", "reward_normalization": GROUPED, **STEPS},
            {
                "type": "gigpo",
                "episode_weight": 0.5,
                "step_weight": 2.0,
                "gamma": 0.9,
                "normalize_by_std": True,
                "anchor_scope": "batch",
            },
        ),
        (
            {"adv_estimator": "gigpo", "reward_normalization": {**GROUPED, "method": "mean"}},
            {"type": "gigpo", "normalize_by_std": False, "gamma": 0.95},
        ),
        # Whole trajectories are normalised by the two types, steps by the method alone.
        (
            {
                "adv_estimator": "gigpo",
                "reward_normalization": {"grouping": "traj_group_id", "norm_mean_type": "group"},
            },
            {"type": "roll.gigpo"},
        ),
        ({"adv_estimator": "step_reinforce", "step_reward_gamma": 0.9}, {"type": "step_reinforce", "gamma": 0.9}),
        ({"adv_estimator": "step_reinforce", "gamma": 0.9}, {"type": "roll.step_reinforce"}),
        ({"adv_estimator": "agentic_reinforce", "gamma": 0.9}, {"type": "segment_reinforce", "gamma": 0.9}),
    ],
)
def test_estimators_of_agents_are_written_as_they_were_read(keys: dict[str, Any], expected: dict[str, Any]) -> None:
    found = _advantage(AGENTIC, **keys)
    assert expected.items() <= found.items()
    loaded, _ = read(AGENTIC, **keys)
    values, report = written(loaded)
    assert not [key for key in lost(report) if key.startswith("algorithm.advantage")]
    own = ("adv_estimator", "gamma", "reward_normalization", *STEPS)
    again, _ = read(AGENTIC, **{key: values[key] for key in own if key in values})
    assert to_plain(again.config.algorithm.advantage) == found
    assert to_plain(again.config.algorithm.reward_shaping) == to_plain(loaded.config.algorithm.reward_shaping)


def test_states_of_one_group_are_no_states_of_the_batch() -> None:
    loaded, _ = read(AGENTIC, adv_estimator="gigpo", reward_normalization=GROUPED)
    data = to_file(loaded.config)
    data["algorithm"]["advantage"]["anchor_scope"] = "group"
    text = json.dumps({"rlctl": 1, **data})
    again, read_report = read_document(read_yaml(text, "run.yaml"), dialect="rlctl", environment={})
    report = translate_loaded(again, read_report, "roll").report
    assert "start from equal states, across all groups" in lost(report)["algorithm.advantage.anchor_scope"]
