"""Rewards become advantages, weights and masks as the config says, in the order that it says; worked by hand."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from rlctl.common.errors import ConfigError, PlanError, RunError
from rlctl.config import Config, config_from
from rlctl.planning.support import Status, unhonoured
from rlctl.runtime.experience.samples import RolloutGroup, samples_of
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.specs.experience import shaping_spec
from rlctl.runtime.types import Prompt, Response, Sample, Turn

REINFORCE = {"type": "reinforce"}


def config(longest: int = 100, **algorithm: Any) -> Config:
    return config_from({"algorithm": algorithm, "rollout": {"max_response_tokens": longest}})


def response(length: int, *, cut: bool = False, log_probs: Sequence[float] = ()) -> Response:
    return Response((7,) * length, tuple(log_probs) or (-0.5,) * length, "length" if cut else "stop", 0)


def group(rewards: Sequence[float], lengths: Sequence[int] = (), **prompt: Any) -> RolloutGroup:
    sizes = lengths or [1] * len(rewards)
    scores = [Score(reward, correct=reward > 0) for reward in rewards]
    chosen = Prompt(index=0, source="s", token_ids=(1, 2), text="", **prompt)
    return RolloutGroup(chosen, [response(size) for size in sizes], list(rewards), scores)


def shape(chosen: Config, *answered: RolloutGroup, **columns: Sequence[float]) -> tuple[list[Sample], dict[str, float]]:
    """Samples and metrics; ``columns`` are of all counted tokens, one after the other."""
    return shape_with(Shaping.of(shaping_spec(chosen)), *answered, **columns)


def shape_with(
    shaping: Shaping, *answered: RolloutGroup, **columns: Sequence[float]
) -> tuple[list[Sample], dict[str, float]]:
    samples = samples_of(answered, train_on_cut_prompts=True)
    for name, values in columns.items():
        left = iter(values)
        for sample in samples:
            sample.columns[name] = torch.tensor([next(left) if counted else 0.0 for counted in sample.mask.tolist()])
    return samples, shaping.shape(samples, answered)


def of(samples: Sequence[Sample], column: str = "advantages") -> list[float]:
    """A column of all response tokens."""
    return [value for sample in samples for value in sample.columns[column][2:].tolist()]


def trained(samples: Sequence[Sample]) -> list[bool]:
    return [counted for sample in samples for counted in sample.mask[2:].tolist()]


def test_advantages_of_grpo() -> None:
    """Rewards 1, 0, 0, 1 of a group: mean 1/2, and standard deviation sqrt(1/3) with n - 1 (torch.std, as verl and TRL)."""
    answered = [group([1.0, 0.0, 0.0, 1.0], [2, 1, 1, 1]), group([1.0, 1.0])]
    samples, _ = shape(config(advantage={"type": "grpo", "epsilon": 1e-9}), *answered)
    each = 0.5 / (1 / 3) ** 0.5
    assert of(samples) == pytest.approx([each, each, -each, -each, each, 0, 0])
    assert samples[0].columns["advantages"][:2].tolist() == [0, 0]


GDPO = {"type": "gdpo", "args": {"gdpo_reward_keys": ["form", "right"], "gdpo_reward_weights": [1, 2]}}


def parted(*found: tuple[float, float], error: str | None = None) -> RolloutGroup:
    """Responses whose reward tells ``right``; another reward is named ``form``."""
    scores = [Score(form + right, {"form": form, "answer": 9.0, "answer/right": right}) for form, right in found]
    if error:
        scores[-1] = Score(0.0, {"answer": 0.0}, error=error)
    chosen = Prompt(index=0, source="s", token_ids=(1, 2), text="")
    return RolloutGroup(chosen, [response(1)] * len(scores), [score.total for score in scores], scores)


def test_gdpo_normalises_each_reward_on_its_own() -> None:
    """Two responses: each reward gives +-1/sqrt(2), by weight 1 and 2; then whitened over the four tokens of both groups."""
    samples, _ = shape(config(advantage=GDPO), parted((0.1, 100.0), (0.2, 50.0)), parted((1.0, 0.0), (0.0, -1.0)))
    plain = torch.tensor([1.0, -1.0, 3.0, -3.0]) / 2**0.5
    assert of(samples) == pytest.approx((plain / plain.std()).tolist(), rel=1e-4)


def test_gdpo_reads_what_rewards_tell() -> None:
    samples, _ = shape(config(advantage=GDPO), parted((1.0, 1.0), (0.0, 0.0), error="it failed"))
    assert of(samples)[0] == -of(samples)[1] > 0, "a reward that failed counts as 0"
    unknown = {**GDPO, "args": {"gdpo_reward_keys": ["forms"]}}
    with pytest.raises(RunError, match="no reward returns 'forms', which gdpo normalizes; rewards return form, answer"):
        shape(config(advantage=unknown), parted((1.0, 1.0), (0.0, 0.0)))
    with pytest.raises(PlanError, match="gdpo normalizes several rewards separately, but the config names none"):
        Shaping.of(shaping_spec(config(advantage={**GDPO, "args": {}})))
    with pytest.raises(ConfigError, match="gdpo has 1 reward and 2 weights"):
        shape(
            config(advantage={**GDPO, "args": {"gdpo_reward_keys": ["form"], "gdpo_reward_weights": [1, 2]}}),
            parted((1.0, 1.0), (0.0, 0.0)),
        )


def test_a_kl_in_the_reward_of_reinforce_is_taken_from_every_token_after_it() -> None:
    """With k1 and no discount, a token's return is the reward minus the coefficient times the log ratios from it on."""
    kl = {"estimator": "k1", "coefficient": 0.1}
    columns = {"old_log_probs": [-0.5, -1.0], "reference_log_probs": [-0.7, -0.6]}
    samples, metrics = shape(config(advantage=REINFORCE, kl_in_reward=kl), group([1.0], [2]), **columns)
    ratios = [-0.5 + 0.7, -1.0 + 0.6]
    assert of(samples) == pytest.approx([1.0 - 0.1 * sum(ratios), 1.0 - 0.1 * ratios[1]])
    assert metrics["reward/kl"] == pytest.approx(sum(ratios) / 2)
    assert metrics["reward/kl_coefficient"] == pytest.approx(0.1)


def test_the_kl_of_grpo_may_come_after_the_group() -> None:
    """ROLL: rewards 1 and 0 of a group without its std are 1/2 and -1/2; then each token pays the KL from it on."""
    advantage = {"type": "grpo", "normalize_by_std": False, "kl_order": "after_normalisation"}
    chosen = config(advantage=advantage, kl_in_reward={"estimator": "k1", "coefficient": 1.0})
    columns = {"old_log_probs": [-0.5, -0.5, -1.0], "reference_log_probs": [-0.75, -1.5, -1.0]}
    samples, _ = shape(chosen, group([1.0, 0.0], [2, 1]), **columns)
    assert of(samples) == pytest.approx([0.5 - 1.25, 0.5 - 1.0, -0.5])


def test_roll_cuts_what_the_group_has_normalised() -> None:
    """Advantages +-sqrt(1/2) of rewards 9 and 0 cut at 1/2; a KL of 1/4 each is then cut off, and the cut bites again."""
    advantage = {"type": "grpo", "epsilon": 1e-12, "kl_order": "after_normalisation"}
    kl = {"estimator": "k1", "coefficient": 1.0}
    columns = {"old_log_probs": [-0.5, -0.5], "reference_log_probs": [-0.75, -0.75]}
    chosen = config(advantage=advantage, kl_in_reward=kl, reward_shaping={"clip": 0.5})
    samples, _ = shape(chosen, group([9.0, 0.0]), **columns)
    assert of(samples) == pytest.approx([0.25, -0.5])


def test_an_adaptive_kl_moves_with_each_step_and_is_remembered() -> None:
    """KL 0.2 of a target of 0.1: the error is cut at 0.2, times 2 of 10 responses."""
    kl = {"estimator": "k1", "coefficient": 1.0, "adaptive": True, "target": 0.1, "horizon": 10}
    chosen = config(advantage=REINFORCE, kl_in_reward=kl)
    columns = {"old_log_probs": [-0.5, -0.5], "reference_log_probs": [-0.7, -0.7]}
    shaping = Shaping.of(shaping_spec(chosen))
    for expected in (1.0, 1.04, 1.04**2):
        _, metrics = shape_with(shaping, group([1.0, 0.0]), **columns)
        assert metrics["reward/kl_coefficient"] == pytest.approx(expected)
    resumed = Shaping.of(shaping_spec(chosen))
    resumed.restore(json.loads(json.dumps(shaping.state())))
    assert resumed == shaping
    assert resumed.controller.coefficient == pytest.approx(1.04**3)


@pytest.mark.parametrize("tags", ["ab", "ba"])
def test_the_kl_coefficient_moves_once_a_step_whatever_the_order_of_domains(tags: str) -> None:
    """KL 0.2 and 0.02, 0.11 on average, of a target of 0.1: an error of 0.1, times 2 responses of 10."""
    kl = {"estimator": "k1", "coefficient": 1.0, "adaptive": True, "target": 0.1, "horizon": 10}
    chosen = config(advantage=REINFORCE, kl_in_reward=kl, reward_shaping={"normalize_per_domain": True})
    shaping = Shaping.of(shaping_spec(chosen))
    reference = {"a": -0.7, "b": -0.52}
    columns = {"old_log_probs": [-0.5, -0.5], "reference_log_probs": [reference[tag] for tag in tags]}
    answered = [group([1.0], extra={"tag": tag}) for tag in tags]
    samples, metrics = shape_with(shaping, *answered, **columns)
    assert dict(zip(tags, of(samples), strict=True)) == pytest.approx({"a": 1.0 - 0.2, "b": 1.0 - 0.02})
    assert metrics["reward/kl"] == pytest.approx(0.11)
    assert metrics["reward/kl_coefficient"] == 1.0
    assert shaping.controller.coefficient == pytest.approx(1.02)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        # returns of turns with gamma 0.5: 0.5 and 1; 1.5 and 3
        ("trajectory", [-0.25, 0.25, -0.75, 0.75]),
        ("prompt", [-1.0, -0.5, 0.0, 1.5]),
    ],
)
def test_turns_are_compared_within_their_trajectory_or_their_group(by: str, expected: list[float]) -> None:
    turns = (Turn((1, 2), 1, starts_row=True), Turn((), 1, starts_row=False, number=1))
    two = dataclasses.replace(response(2), turns=turns)
    prompt = Prompt(index=0, source="s", token_ids=(1, 2), text="")
    answered = RolloutGroup(prompt, [two, two], [1.0, 3.0], [Score(1.0), Score(3.0)])
    shaping = {"normalize": {"mean": "group"}, "group_by": by}
    samples, _ = shape(config(advantage={"type": "step_reinforce", "gamma": 0.5}, reward_shaping=shaping), answered)
    assert of(samples) == pytest.approx(expected)


def test_a_trajectory_is_not_compared_with_itself_alone() -> None:
    with pytest.raises(PlanError, match="a trajectory has one reward"):
        Shaping.of(shaping_spec(config(reward_shaping={"normalize": {"mean": "group"}, "group_by": "trajectory"})))


@pytest.mark.parametrize(
    ("shaping", "expected"),
    [
        ({}, (1.0, 3.0, 5.0)),
        ({"shift": 1.0, "scale": 2.0}, (4.0, 8.0, 12.0)),
        ({"scale": 2.0, "clip": 4.0}, (2.0, 4.0, 4.0)),
        # ROLL cuts after it has normalised
        ({"normalize": {"mean": "batch"}, "clip": 1.5}, (-1.5, 0.0, 1.5)),
        ({"normalize": {"mean": "batch", "std": "batch"}}, (-1.0, 0.0, 1.0)),
        # two tags: a with 1 and 3, b with 5 alone
        ({"normalize": {"mean": "batch"}, "normalize_per_domain": True}, (-1.0, 1.0, 0.0)),
        ({"normalize": {"mean": "group"}}, (0.0, 0.0, 0.0)),
        ({"normalize": {"mean": "group"}, "group_by": "tags"}, (-1.0, 1.0, 0.0)),
        ({"normalize": {"mean": "group"}, "group_by": "batch"}, (-2.0, 0.0, 2.0)),
        ({"whiten": True}, (-1.0, 0.0, 1.0)),
        # lengths 1, 1 and 80 of 100
        ({"length_penalty": 0.5}, (0.995, 2.995, 4.6)),
        ({"overlong_penalty": {"buffer": 40, "factor": 2.0}}, (1.0, 3.0, 4.0)),
        ({"overlong_penalty": {"buffer": 40, "factor": 0.5, "limit": 50}}, (1.0, 3.0, 4.125)),
        ({"overlong_penalty": {"buffer": 40, "factor": 0.5, "limit": 50, "clamp": True}}, (1.0, 3.0, 4.5)),
    ],
)
def test_rewards_are_shaped(shaping: dict[str, Any], expected: tuple[float, ...]) -> None:
    """Three groups of one response; advantages are the shaped rewards."""
    answered = [
        group([1.0], extra={"tag": "a"}),
        group([3.0], extra={"tag": "a"}),
        group([5.0], [80], extra={"tag": "b"}),
    ]
    chosen = config(advantage=REINFORCE, reward_shaping=shaping)
    if "whiten" in shaping:
        answered[2] = group([5.0], extra={"tag": "b"})
    samples, _ = shape(chosen, *answered)
    found = [sample.columns["advantages"][2].item() for sample in samples]
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_advantages_are_whitened_and_then_clipped() -> None:
    """Rewards 1, 3 and 5: mean 3, standard deviation 2."""
    chosen = config(advantage={**REINFORCE, "whiten": True, "clip": 0.75})
    samples, _ = shape(chosen, group([1.0]), group([3.0]), group([5.0]))
    assert of(samples) == pytest.approx([-0.75, 0.0, 0.75], abs=1e-6)


def test_running_statistics_see_every_step() -> None:
    """0 and 4, then 4 and 8: mean 4, standard deviation sqrt(32 / 3)."""
    chosen = config(advantage=REINFORCE, reward_shaping={"normalize": {"mean": "running", "std": "running"}})
    shaping = Shaping.of(shaping_spec(chosen))
    shape_with(shaping, group([0.0, 4.0]))
    again = Shaping.of(shaping_spec(chosen))
    again.restore(json.loads(json.dumps(shaping.state())))
    samples, _ = shape_with(again, group([4.0, 8.0]))
    assert of(samples) == pytest.approx([0.0, 4 / math.sqrt(32 / 3)], rel=1e-5)


def test_the_greedy_response_is_the_baseline_of_remax() -> None:
    """It is shaped as the others are: reward 1/2, less a penalty of 50 of 100 tokens, doubled."""
    answered = [RolloutGroup(**{**vars_of(group([1.0, 0.0])), "greedy": (response(50), Score(0.5))})]
    chosen = config(advantage={"type": "remax"}, reward_shaping={"length_penalty": 1.0, "scale": 2.0})
    samples, _ = shape(chosen, *answered)
    assert of(samples) == pytest.approx([2 * 0.99, -0.02])


def vars_of(answered: RolloutGroup) -> dict[str, Any]:
    return {name: getattr(answered, name) for name in ("prompt", "responses", "rewards", "scores")}


def test_groups_are_left_out_before_they_are_trained_on() -> None:
    groups = [group([1.0, 1.0]), group([1.0, 0.0]), group([0.0, 0.0])]
    assert Shaping.of(shaping_spec(config(filters=["zero_variance_groups"]))).kept_groups(groups) == [groups[1]]
    half = Shaping.of(shaping_spec(config(filters=[{"type": "group_mean", "low": -1.0, "high": 1.0}])))
    assert half.kept_groups(groups) == groups[1:]
    both = Shaping.of(
        shaping_spec(
            config(filters=[{"type": "zero_variance_groups", "refill": False}, {"type": "group_mean", "high": 0.5}])
        )
    )
    assert both.kept_groups(groups) == []
    assert (half.refills, both.refills) == (False, False)
    assert Shaping.of(shaping_spec(config(filters=["zero_variance_groups"]))).refills


@pytest.mark.parametrize(
    ("metric", "kept"), [("reward", True), ("score", False), ("acc", False), ("format", True), ("seq_reward", True)]
)
def test_groups_are_compared_by_a_metric(metric: str, kept: bool) -> None:
    """Equal scores and answers, of different lengths that are punished, and of different format."""
    scores = [Score(1.0, {"format": 1.0}, True), Score(1.0, {"format": 0.0}, True)]
    answered = RolloutGroup(Prompt(0, "s", (1, 2), ""), [response(1), response(90)], [1.0, 1.0], scores)
    filters = [{"type": "zero_variance_groups", "metric": metric}]
    chosen = config(filters=filters, reward_shaping={"overlong_penalty": {"buffer": 20}})
    assert bool(Shaping.of(shaping_spec(chosen)).kept_groups([answered])) is kept


def test_a_metric_that_no_reward_gives_is_named_with_those_there_are() -> None:
    chosen = config(filters=[{"type": "zero_variance_groups", "metric": "lenght"}])
    with pytest.raises(RunError, match="'lenght'") as refused:
        Shaping.of(shaping_spec(chosen)).kept_groups([group([1.0, 0.0])])
    assert "acc, reward, score" in refused.value.hint


def test_a_group_of_a_buffer_that_tells_its_rewards_alone_has_no_other_metric() -> None:
    bare = dataclasses.replace(group([1.0, 0.0]), scores=())
    of_rewards = config(filters=["zero_variance_groups"])
    assert Shaping.of(shaping_spec(of_rewards)).kept_groups([bare]) == [bare]
    with pytest.raises(RunError, match="'acc', which no reward returns"):
        Shaping.of(shaping_spec(config(filters=[{"type": "zero_variance_groups", "metric": "acc"}]))).kept_groups(
            [bare]
        )


def test_responses_left_out_count_in_their_group_and_nowhere_else() -> None:
    """Reward 1 of the cut response is in the mean of 1/2; whitening is over what is trained on: -1/2 and 1/2."""
    whole = group([0.0, 1.0, 1.0, 0.0])
    answers = [response(1), response(3, cut=True), response(1), response(1, cut=True)]
    answered = RolloutGroup(whole.prompt, answers, whole.rewards, whole.scores)
    chosen = config(advantage="reinforce_plus_plus_baseline", filters=["overlong"])
    samples, metrics = shape(chosen, answered)
    assert trained(samples) == [True, False, False, False, True, False]
    assert [sample.counted for sample in samples] == [True, False, True, False]
    assert [of(samples)[i] for i in (0, 4)] == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5)], rel=1e-5)
    assert metrics["filter/trained_share"] == 0.5


def test_masks_of_roll() -> None:
    """A share of 1/4 is not above 1/4; wrong responses of three tokens are left out; one response alone is not compared."""
    answered = [group([1.0, 0.0, 0.0, 0.0]), group([1.0, 0.0], [3, 3]), group([0.0])]
    samples, _ = shape(config(filters=[{"type": "difficulty_mask", "low": 0.25, "high": 0.95}]), *answered)
    assert [sample.counted for sample in samples] == [False] * 4 + [True] * 3
    samples, _ = shape(config(filters=[{"type": "long_incorrect", "max_tokens": 3}]), *answered)
    assert [sample.counted for sample in samples] == [True] * 4 + [True, False, True]


def test_weights_and_rejection_by_the_old_policy() -> None:
    """Training over rollout is 2, 1/2 and 4; a weight is at most 1.5, and k2 of 4 (0.96) is rejected at 0.5."""
    correction = {
        "importance_sampling": {"level": "token", "threshold": 1.5},
        "rejection": ["token_k2"],
        "rejection_bounds": [0.5],
    }
    old = [-0.5 + math.log(ratio) for ratio in (2.0, 0.5, 4.0)]
    samples, metrics = shape(config(rollout_correction=correction), group([1.0, 0.0], [2, 1]), old_log_probs=old)
    assert of(samples, "policy_weights") == pytest.approx([1.5, 0.5, 1.5])
    assert trained(samples) == [True, True, False]
    assert all(sample.counted for sample in samples), (
        "as in verl, a response that is rejected is still one of the batch"
    )
    assert metrics["correction/rejected_share"] == pytest.approx(1 / 3)
    assert metrics["correction/weight_mean"] == pytest.approx(3.5 / 3)
    assert metrics["correction/cut_share"] == pytest.approx(2 / 3)


def test_a_segment_is_a_run_of_counted_tokens() -> None:
    """A response of four tokens whose second is a tool's: segments of one and of two tokens with the means 2 and 1."""
    answered = [group([1.0], [4])]
    shaping = Shaping.of(
        shaping_spec(config(rollout_correction={"importance_sampling": {"level": "segment", "threshold": 9.0}}))
    )
    samples = samples_of(answered, train_on_cut_prompts=True)
    samples[0].mask[3] = False
    ratios = torch.tensor([1.0, 1.0, 2.0, 1.0, 4.0, 0.25])
    samples[0].columns["old_log_probs"] = samples[0].columns["rollout_log_probs"] + ratios.log()
    shaping.shape(samples, answered)
    assert of(samples, "policy_weights") == pytest.approx([2.0, 0.0, 1.0, 1.0])


def test_responses_weigh_by_difficulty_and_length() -> None:
    hard, easy = ({"extra_info": {"difficulty": value}} for value in (1.0, 0.0))
    answered = [group([1.0], [1], extra=hard), group([1.0], [3], extra=easy)]
    samples, _ = shape(config(loss_weights={"difficulty": True}), *answered)
    assert of(samples, "policy_weights") == pytest.approx([1.6, 0.4, 0.4, 0.4])  # 2 and 1/2, scaled to a mean of 1
    samples, _ = shape(config(loss_weights={"length": True}), *answered)
    assert of(samples, "policy_weights") == pytest.approx([1.5, 0.5, 0.5, 0.5])
    with pytest.raises(RunError, match=r"extra_info\.difficulty"):
        shape(config(loss_weights={"difficulty": True}), group([1.0]))


def test_a_step_without_samples_is_nothing() -> None:
    assert Shaping.of(shaping_spec(config())).shape([], []) == {}


@pytest.mark.parametrize(
    ("algorithm", "error", "wrong"),
    [
        (
            {"advantage": {"type": "roll.gigpo"}},
            PlanError,
            "type 'roll.gigpo'; expected one of asymre, clipb, clipv, gdpo",
        ),
        ({"advantage": {"type": "gpg", "args": {"alpha": 1}}}, PlanError, "no argument alpha"),
        ({"rollout_correction": {"rejection": ["token_k9"]}}, ConfigError, "rules have 0 bounds"),
        (
            {"filters": [{"type": "zero_variance_groups", "metric": "seq_final_reward"}], "kl_in_reward": {}},
            PlanError,
            "seq_final_reward",
        ),
    ],
)
def test_what_is_not_computed_is_refused_at_once(algorithm: dict[str, Any], error: type[Exception], wrong: str) -> None:
    with pytest.raises(error, match=wrong):
        Shaping.of(shaping_spec(config(**algorithm)))


GAE = {"type": "gae", "gamma": 0.5, "lambda": 0.5, "whiten": False}


def test_gae_counts_what_the_critic_expected() -> None:
    """Reward 1 at the last of two tokens, values 1/4, 1/2: errors 0, 1/2; the first token gets a quarter of the last's."""
    samples, metrics = shape(config(advantage=GAE), group([1.0], [2]), old_values=[0.25, 0.5])
    assert of(samples) == pytest.approx([0.125, 0.5])
    assert of(samples, "returns") == pytest.approx([0.375, 1.0])
    assert metrics["critic/return_mean"] == pytest.approx(0.6875)
    # errors 1/8, 1/2 and returns 3/8, 1 of two tokens: unbiased variances 9/128, 25/128
    assert metrics["critic/explained_variance"] == pytest.approx(1 - 9 / 25, abs=1e-4)


def test_a_kl_in_the_reward_is_part_of_the_returns() -> None:
    """Penalties 0.2 and 0.4 at the tokens: rewards -0.2, 0.6; undiscounted returns 0.4, 0.6, less values 0.1, 0.1."""
    kl = {"estimator": "k1", "coefficient": 1.0}
    columns = {"old_log_probs": [-0.5, -0.5], "reference_log_probs": [-0.7, -0.9], "old_values": [0.1, 0.1]}
    chosen = config(advantage={"type": "gae", "whiten": False}, kl_in_reward=kl)
    samples, _ = shape(chosen, group([1.0], [2]), **columns)
    assert of(samples, "returns") == pytest.approx([0.4, 0.6])
    assert of(samples) == pytest.approx([0.3, 0.5])


def test_advantages_of_gae_are_whitened_and_cut_and_returns_are_not() -> None:
    """Returns 0 and 2, values 0: mean 1, unbiased standard deviation sqrt(2)."""
    chosen = config(advantage={"type": "gae", "clip": 0.5})
    samples, _ = shape(chosen, group([0.0, 2.0]), old_values=[0.0, 0.0])
    assert of(samples) == pytest.approx([-0.5, 0.5])
    assert of(samples, "returns") == pytest.approx([0.0, 2.0])
    whitened, _ = shape(config(advantage={"type": "gae"}), group([0.0, 2.0]), old_values=[0.0, 0.0])
    assert of(whitened) == pytest.approx([-(0.5**0.5), 0.5**0.5], rel=1e-6)


def test_the_critic_learns_from_responses_that_a_filter_leaves_out_and_not_from_rejected_ones() -> None:
    """The first response is a wrong one of the length that is left out, the second is rejected."""
    correction = {"rejection": ["seq_mean_k1"], "rejection_bounds": [[0.5, 2]]}
    chosen = config(advantage=GAE, filters=[{"type": "long_incorrect", "max_tokens": 1}], rollout_correction=correction)
    columns = {"old_log_probs": [-0.5, -9.0, -0.5], "old_values": [0.0, 0.0, 0.0]}
    samples, _ = shape(chosen, group([0.0, 1.0, 1.0]), **columns)
    assert trained(samples) == [False, False, True]
    assert of(samples, "critic_tokens") == [1.0, 0.0, 1.0]
    assert of(samples, "returns") == [0.0, 1.0, 1.0]


def test_preference_feedback_draws_the_responses_of_a_step_anew() -> None:
    """Only the best and the worst are drawn, alike in every run of the seed and anew in every step."""
    chosen = config(advantage=GAE, policy_filtration={"reweight": "max_min"})
    answered = [group([0.0, 0.5] * 5), group([0.5, 1.0] * 5)]
    shaping = Shaping.of(shaping_spec(chosen))
    samples, _ = shape_with(shaping, *answered, old_values=[0.0] * 20)
    drawn = shaping.redrawn(samples, answered, step=1)
    assert len(drawn) == 20
    rewards = [value for item in answered for value in item.rewards]
    found = [next(i for i, sample in enumerate(samples) if sample is each) for each in drawn]
    assert {rewards[index] for index in found} == {0.0, 1.0}
    again = Shaping.of(shaping_spec(chosen)).redrawn(samples, answered, step=1)
    assert all(one is other for one, other in zip(drawn, again, strict=True))
    assert any(one is not other for one, other in zip(drawn, shaping.redrawn(samples, answered, step=2), strict=True))


def test_preference_feedback_goes_with_gae_only() -> None:
    """verl resamples after gae and reads the key nowhere else; check says so."""
    answered = [group([0.0, 1.0])]
    shaping = Shaping.of(shaping_spec(chosen := config(policy_filtration={})))
    samples, _ = shape_with(shaping, *answered)
    assert shaping.redrawn(samples, answered, step=1) is samples
    assert [(each.key, each.status) for each in unhonoured(chosen)] == [
        (("algorithm", "policy_filtration"), Status.NOTED)
    ]


def test_a_response_without_counted_tokens_has_no_return() -> None:
    """The first prompt was cut and is not trained on: its response has no tokens, values or returns."""
    answered = [group([5.0], [2], extra={"truncated": True}), group([1.0], [2])]
    samples = samples_of(answered, train_on_cut_prompts=False)
    for sample in samples:
        sample.columns["old_values"] = torch.full((len(sample),), 0.25) * sample.mask
    metrics = Shaping.of(shaping_spec(config(advantage=GAE))).shape(samples, answered)
    assert [sample.columns["returns"].tolist() for sample in samples] == [[0.0] * 4, [0.0, 0.0, 0.3125, 1.0]]
    assert samples[0].columns["critic_tokens"].sum() == 0
    assert metrics["critic/return_mean"] == pytest.approx(0.65625)


def test_a_mix_trains_no_critic() -> None:
    with pytest.raises(PlanError, match="gae needs a critic"):
        Shaping.of(shaping_spec(config(objective="mix", advantage=GAE)))


def test_tokens_that_the_estimator_leaves_out_are_not_trained_on() -> None:
    """Of bad responses' tokens those below the mean signal go; a signal is p (H + log p), with the log-probs of the rollout."""
    chosen = {"type": "clipb", "args": {"mu": 0.0, "epsilon": 1e-9}}
    samples, metrics = shape(
        config(advantage=chosen), group([1.0, 0.0], [2, 2]), old_entropy=[0.1, 0.9, 0.2, 0.8], old_log_probs=[-9.0] * 4
    )
    assert of(samples) == pytest.approx([0.5**0.5] * 2 + [-(0.5**0.5)] * 2)
    assert trained(samples) == [True, True, False, True]
    assert metrics["advantage/left_out_share"] == 0.25
    assert metrics["advantage/mean"] == pytest.approx(0.5**0.5 / 3)


@pytest.mark.parametrize("kind", ["optimal_token_baseline", "tir_optimal_token_baseline"])
def test_token_baselines_weigh_by_the_correction(kind: str) -> None:
    """Energies 1 - 2 p + squares of 1/4 and 1/2; the second response weighs 2, and so 4 times as much in the baseline."""
    old = {"old_log_probs": [math.log(0.5), math.log(0.5)], "old_squared_probabilities": [0.25, 0.5]}
    answered = group([1.0, 0.0])
    answered.responses[:] = [response(1, log_probs=[math.log(0.5)]), response(1, log_probs=[math.log(0.25)])]
    advantage = {"type": kind}
    samples, _ = shape(config(advantage=advantage), answered, **old)
    assert of(samples) == pytest.approx([1 - 1 / 3, -1 / 3])
    correction = {"importance_sampling": {"level": "token", "threshold": 9.0}}
    samples, _ = shape(config(advantage=advantage, rollout_correction=correction), answered, **old)
    assert of(samples) == pytest.approx([1 - 1 / 9, -1 / 9])


@pytest.mark.parametrize("kind", ["clipb", "clipv", "optimal_token_baseline", "tir_optimal_token_baseline"])
def test_what_the_rollout_engine_does_not_tell_is_not_left_to_it(kind: str) -> None:
    chosen = config(advantage={"type": kind}, old_log_probs="rollout")
    with pytest.raises(PlanError, match=f"{kind} needs the pass for old log-probs") as refused:
        Shaping.of(shaping_spec(chosen))
    assert refused.value.hint == "set algorithm.old_log_probs to recompute"
