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
