"""Settings that ROLL accepts and does not use as written: rewards that are zeros, coefficients without a switch, shared GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlctl.adapters.engine.requirements import IGNORES, Requirement, Values
from rlctl.adapters.roll.engine_limits import RATIO, shared_devices
from rlctl.adapters.roll.requirement_values import is_rlvr
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level

ZERO_REWARDS = ("MultipleChoiceBoxedRuleRewardWorker", "GeneralValRuleRewardWorker")
"""Workers that measure accuracy only: the rewards that they return are zeros."""
IS_WEIGHT = "train_infer_correction.is_weight"
WEIGHTS = "actor_train.data_args.domain_interleave_probs"


def _ignored(
    key: str, ignored: Callable[[Values], object], message: str, source: str, hint: str, **others: Any
) -> Requirement:
    return Requirement(key, ignored, message, source, hint, level=Level.WARNING, code=IGNORES, **others)


def _without_reward(values: Values) -> str:
    """The trained domains whose worker returns zeros, as text."""
    weights = values[WEIGHTS] or {}
    named = {name: str((reward or {}).get("worker_cls") or "") for name, reward in (values["rewards"] or {}).items()}
    zero = [name for name, worker in named.items() if worker.rpartition(".")[2] in ZERO_REWARDS]
    return ", ".join(name for name in zero if not weights or weights.get(name))


def _is_on(values: Values, key: str) -> bool:
    return values.written(key) and float(values[key] or 0) != 0


def _unswitched(key: str, switch: str, what: str, source: str) -> Requirement:
    return _ignored(
        key,
        lambda v: _is_on(v, key) and not v[switch],
        said("{key} is {{{key}}}, but {switch} is false: {what}", key=key, switch=switch, what=what),
        source,
        said("set {switch} to true, or remove {key}", switch=switch, key=key),
    )


REWRITTEN: tuple[tuple[str, Callable[[Values], int], str], ...] = (
    (
        "actor_infer.generating_args.num_return_sequences",
        lambda v: v.number("num_return_sequences_in_group"),
        "num_return_sequences_in_group",
    ),
    (
        "actor_infer.generating_args.max_new_tokens",
        lambda v: (
            v.number("sequence_length", 0) - v.number("prompt_length", 0)
            if v["sequence_length"]
            else v.number("response_length", 0)
        ),
        "sequence_length - prompt_length, or response_length",
    ),
)
"""Arguments of the rollout that the RLVR pipeline overwrites: with what, and the keys that say it."""


def _rewritten(key: str, actual: Callable[[Values], int], by: str) -> Requirement:
    return _ignored(
        key,
        lambda v: is_rlvr(v) and v.written(key) and 0 < actual(v) != v[key],
        said("{key} is {{{key}}}, but ROLL overwrites it with {{actual}} ({by})", key=key, by=by),
        "roll/pipeline/rlvr/rlvr_config.py, RLVRConfig.__post_init__",
        said("change {by}, or remove {key}", key=key, by=by),
        numbers={"actual": actual},
    )


DRAWN = "validation.generating_args"

ROWS: tuple[Requirement, ...] = (
    _ignored(
        "rewards",
        lambda v: is_rlvr(v) and _without_reward(v),
        "the worker_cls of rewards {domains} gives 0 to every response and only measures accuracy: nothing is learned from these "
        "prompts",
        "roll/pipeline/rlvr/rewards/multiple_choice_boxed_rule_reward_worker.py, compute_rewards",
        "set worker_cls to CrossThinkQARuleRewardWorker or MathRuleRewardWorker, or to a class of your own",
        numbers={"domains": _without_reward},
    ),
    *(_rewritten(*row) for row in REWRITTEN),
    _ignored(
        f"{DRAWN}.temperature",
        lambda v: (
            v.written(f"{DRAWN}.temperature")
            and float(v[f"{DRAWN}.temperature"]) == 0
            and v.number(f"{DRAWN}.num_return_sequences") > 1
        ),
        said(
            "{drawn}.temperature is 0, so all {drawn}.num_return_sequences ({{{drawn}.num_return_sequences}}) responses to a "
            "prompt are the same",
            drawn=DRAWN,
        ),
        "roll/pipeline/rlvr/rlvr_pipeline.py, RLVRPipeline.val",
        said("set {drawn}.temperature to 0.6, or num_return_sequences to 1", drawn=DRAWN),
    ),
    _ignored(
        "init_kl_coef",
        lambda v: _is_on(v, "init_kl_coef") and not v["add_token_level_kl"],
        "init_kl_coef is {init_kl_coef}, but add_token_level_kl is false: rewards have no KL penalty, and the reference runs for "
        "nothing unless use_kl_loss is true",
        "roll/utils/functionals.py, compute_token_reward",
        "set add_token_level_kl to true, or init_kl_coef to 0",
    ),
    *(
        _ignored(
            f"{role}.model_args.lora_rank",
            lambda v, role=role: (  # type: ignore[misc]
                v.written(f"{role}.model_args.lora_rank") and v[f"{role}.model_args.lora_target"] is None
            ),
            said(
                "{role}.model_args.lora_rank is {{{role}.model_args.lora_rank}}, but lora_target is not set: ROLL adds no "
                "adapter, and trains all weights",
                role=role,
            ),
            "roll/models/model_providers.py, default_actor_model_provider",
            said("set {role}.model_args.lora_target, such as all-linear, or remove lora_rank", role=role),
        )
        for role in ("actor_train", "sft_train", "student_train", "student")
    ),
    _unswitched(
        "kl_loss_coef", "use_kl_loss", "the loss has no KL term", "roll/pipeline/rlvr/actor_worker.py, loss_func"
    ),
    _ignored(
        RATIO,
        lambda v: is_rlvr(v) and float(v[RATIO]) >= 1 and shared_devices(v),
        "async_generation_ratio is {async_generation_ratio}, but actor_infer shares GPUs with a role that trains: ROLL does not "
        "unload the engine while it trains, so both hold the memory of these GPUs at the same time and slow each other down",
        "roll/pipeline/rlvr/rlvr_config.py, RLVRConfig.__post_init__",
        "give actor_infer.device_mapping other GPUs than actor_train.device_mapping, or set async_generation_ratio to 0",
    ),
    *(
        _ignored(
            f"{IS_WEIGHT}.{name}",
            lambda v, name=name: v.written(f"{IS_WEIGHT}.{name}") and not v[f"{IS_WEIGHT}.enabled"],  # type: ignore[misc]
            said(
                "{section}.{name} is written, but {section}.enabled is false: it has no effect",
                section=IS_WEIGHT,
                name=name,
            ),
            "roll/utils/train_infer_corrections.py, compute_train_infer_correction",
            said("set {section}.enabled to true, or remove {section}.{name}", section=IS_WEIGHT, name=name),
        )
        for name in ("weight_type", "upper_bound")
    ),
)
