"""What verl refuses of estimators, losses, corrections and batches together. Read from the source of 0.9.1."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rlctl.adapters.engine.requirements import Requirement, Values
from rlctl.adapters.verl.combination_limits import CORRECTION, MEGATRON, SPLIT, needed_row, pair_row
from rlctl.adapters.verl.requirement_values import ACTOR, MODEL, ROLLOUT, in_turns, is_fully_async, replicas, strategy
from rlctl.adapters.verl.value_limits import ROLLED, TRAINED
from rlctl.common.messages.reasons import said

REJECTIONS = (
    *("token_k1", "token_k2", "token_k3", "seq_sum_k1", "seq_sum_k2", "seq_sum_k3"),
    *("seq_mean_k1", "seq_mean_k2", "seq_mean_k3", "seq_max_k2", "seq_max_k3"),
)
"""Rules of rejection that verl has."""


def _algorithms() -> Iterator[Requirement]:
    """Estimators, losses and corrections."""
    core, estimator = "verl/trainer/ppo/core_algos.py", "algorithm.adv_estimator"
    squared = f"{ACTOR}.calculate_sum_pi_squared"
    yield pair_row(
        estimator,
        squared,
        lambda v: v[estimator] in ("optimal_token_baseline", "tir_optimal_token_baseline") and not v[squared],
        "verl/trainer/ppo/ray_trainer.py, compute_advantage",
        "grpo",
        ROLLED,
    )
    yield pair_row(
        squared,
        f"{MODEL}.use_fused_kernels",
        lambda v: (
            v[squared] and v[f"{MODEL}.use_fused_kernels"] and strategy(v) in ("fsdp", "fsdp2", "megatron", "veomni")
        ),
        "verl/workers/engine/fsdp/transformer_impl.py, FSDPEngineWithLMHead.prepare_model_outputs",
        "false",
        ROLLED,
    )
    yield pair_row(
        f"{ROLLOUT}.n",
        estimator,
        lambda v: v[estimator] == "grpo_passk" and v.number(f"{ROLLOUT}.n") < 2,
        f"{core}, compute_grpo_passk_outcome_advantage",
        2,
        ROLLED,
    )
    yield needed_row(
        "algorithm.gdpo_reward_keys",
        estimator,
        lambda v: v[estimator] == "gdpo",
        f"{core}, compute_gdpo_outcome_advantage",
        ROLLED,
    )
    yield needed_row(
        f"{ACTOR}.policy_loss.dro_beta",
        f"{ACTOR}.policy_loss.loss_mode",
        lambda v: v[f"{ACTOR}.policy_loss.loss_mode"] == "dro",
        f"{core}, compute_policy_loss_dro",
        TRAINED,
    )
    yield pair_row(
        f"{ACTOR}.policy_loss.loss_mode",
        f"{CORRECTION}.bypass_mode",
        lambda v: v[f"{ACTOR}.policy_loss.loss_mode"] == "bypass_mode" and not v[f"{CORRECTION}.bypass_mode"],
        f"{core}, compute_policy_loss_bypass_mode",
        "vanilla",
        TRAINED,
    )
    yield pair_row(
        f"{ROLLOUT}.calculate_log_probs",
        f"{CORRECTION}.bypass_mode",
        lambda v: v[f"{ROLLOUT}.calculate_log_probs"] is False and v[f"{CORRECTION}.bypass_mode"],
        "verl/trainer/ppo/rollout_corr_helper.py, apply_bypass_mode",
        "true",
        ROLLED,
    )
    rules, bounds = f"{CORRECTION}.rollout_rs", f"{CORRECTION}.rollout_rs_threshold"
    source = "verl/trainer/ppo/rollout_corr_helper.py, compute_rollout_rejection_mask"
    unknown: Callable[[Values], str] = lambda v: ", ".join(name for name in _rules(v) if name not in REJECTIONS)  # noqa: E731
    yield Requirement(
        rules,
        unknown,
        said(
            "{key} names {{unknown}}, which verl does not have: it stops after the first rollout. It has {names}",
            key=rules,
            names=", ".join(REJECTIONS),
        ),
        source,
        "set it to one or several of these, separated by commas",
        numbers={"unknown": unknown},
        when=ROLLED,
    )
    truncation = f"{CORRECTION}.rollout_is_threshold"
    yield pair_row(
        truncation,
        f"{CORRECTION}.rollout_is",
        lambda v: v[f"{CORRECTION}.rollout_is"] and not _is_bound("k1", str(v[truncation])),
        "verl/trainer/ppo/rollout_corr_helper.py, _parse_rollout_is_threshold",
        "one number above 0, or a lower and an upper one, as 0.5_2.0",
        ROLLED,
    )
    yield needed_row(bounds, rules, lambda v: v[rules], source, ROLLED)
    yield pair_row(
        bounds,
        rules,
        lambda v: (
            v[rules]
            and not unknown(v)
            and v[bounds] is not None
            and (isinstance(v[bounds], list) or not _fits(_rules(v), str(v[bounds])))
        ),
        "verl/trainer/ppo/rollout_corr_helper.py, _parse_rollout_rs_thresholds",
        "one number above 0 for each rule; for rules that end in k1 also two, as 0.5_2.0",
        ROLLED,
    )
    yield pair_row(
        f"{ROLLOUT}.enable_rollout_routing_replay",
        f"{MEGATRON}.router_replay.mode",
        lambda v: v[f"{ROLLOUT}.enable_rollout_routing_replay"] and v[f"{MEGATRON}.router_replay.mode"] == "R2",
        "verl/trainer/ppo/ray_trainer.py, RayPPOTrainer.fit",
        "false",
        ROLLED,
    )
    yield pair_row(
        f"{ACTOR}.use_prefix_grouper",
        "data.train_batch_size",
        lambda v: (
            v[f"{ACTOR}.use_prefix_grouper"]
            and v["trainer.balance_batch"]
            and v["trainer.use_v1"] is False
            and v["data.train_batch_size"] % replicas(v)
        ),
        "verl/trainer/ppo/ray_trainer.py, RayPPOTrainer._balance_batch",
        "false",
        ROLLED,
    )
    yield pair_row(
        "data.gen_batch_size",
        "data.train_batch_size",
        lambda v: (
            v["trainer.use_v1"]
            and not is_fully_async(v)
            and not v["algorithm.filter_groups.enable"]
            and v.number("data.gen_batch_size", 0) > 0
            and v.number("data.train_batch_size", 0) % v.number("data.gen_batch_size", 1)
        ),
        "verl/trainer/ppo/v1/trainer_base.py, PPOTrainer._next_train_batch",
        "null",
    )
    yield pair_row(
        "trainer.v1.separate_async.hybrid_rollout.enable_switch",
        f"{SPLIT}.enabled",
        lambda v: (
            not in_turns(v) and v["trainer.v1.separate_async.hybrid_rollout.enable_switch"] and v[f"{SPLIT}.enabled"]
        ),
        "verl/trainer/ppo/v1/trainer_separate_async.py, PPOTrainerSeparateAsync.__init__",
        "false",
    )


def _rules(values: Values) -> list[str]:
    written = values[f"{CORRECTION}.rollout_rs"]
    return [name.strip() for name in str(written).split(",") if name.strip()] if written else []


def _fits(rules: list[str], written: str) -> bool:
    """Whether a text has one bound for all rules or one for each; pairs are for rules that end in k1."""
    bounds = [text.strip() for text in written.split(",") if text.strip()]
    if len(bounds) not in (1, len(rules)):
        return False
    each = bounds * len(rules) if len(bounds) == 1 else bounds
    return all(_is_bound(rule, text) for rule, text in zip(rules, each, strict=True))


def _is_bound(rule: str, text: str) -> bool:
    numbers = [float(part) for part in text.split("_")]
    if not rule.endswith("k1"):
        return len(numbers) == 1 and numbers[0] > 0
    return len(numbers) <= 2 and min(numbers) > 0 and numbers == sorted(numbers)


ROWS: tuple[Requirement, ...] = tuple(_algorithms())
