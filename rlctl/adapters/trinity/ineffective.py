"""Settings that Trinity-RFT accepts and does not use as written: numbers that repeat others, coefficients without a switch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from rlctl.adapters.engine.requirements import IGNORES, Requirement, Values
from rlctl.adapters.trinity.algorithm import TYPES
from rlctl.adapters.trinity.requirement_values import WITH_CRITIC, train_batch, trainer_devices, trains
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level

ARGS = "algorithm.policy_loss_fn_args"
ROLLOUT = "buffer.explorer_input"
BUFFER = "buffer.trainer_input.experience_buffer"
MIXED = ("mix", "mix_chord")
MIXED_LOSS = "trinity/algorithm/policy_loss_fn/mix_policy_loss.py, MIXPolicyLossFn"
RATIO = "algorithm.sample_strategy_args.expert_data_ratio"


def _ignored(
    key: str, ignored: Callable[[Values], object], message: str, source: str, hint: str, **others: Any
) -> Requirement:
    return Requirement(key, ignored, message, source, hint, level=Level.WARNING, code=IGNORES, **others)


def _expert_rows(values: Values) -> int:
    """Rows of a train batch that come from the SFT data."""
    ratio = values[RATIO]
    return math.ceil(float(0.5 if ratio is None else ratio) * train_batch(values))


REPEATED: tuple[tuple[str, Callable[[Values], int], str], ...] = (
    ("ngpus_trainer", trainer_devices, "the GPUs that the explorer leaves for the trainer are {actual}"),
    ("ppo_mini_batch_size", train_batch, "buffer.train_batch_size is {actual}"),
    (
        "train_batch_size_expert",
        _expert_rows,
        "sample_strategy_args.expert_data_ratio takes {actual} rows of a train batch from the SFT data",
    ),
    (
        "train_batch_size_usual",
        lambda v: train_batch(v) - _expert_rows(v),
        "sample_strategy_args.expert_data_ratio leaves {actual} rows of a train batch for responses",
    ),
)
"""Arguments of the mixed losses that repeat another number of the file; it and what the file says of it."""


def _repeated(name: str, actual: Callable[[Values], int], told: str) -> Requirement:
    key = f"{ARGS}.{name}"
    own = said(
        "{key} is {{{key}}}, but {told}: the weights of the two losses are computed from the wrong number",
        key=key,
        told=told,
    )
    return _ignored(
        key,
        lambda v: (
            v["algorithm.algorithm_type"] in MIXED and v.written(key) and trains(v) and v.number(key) != actual(v)
        ),
        own,
        MIXED_LOSS,
        said("set {key} to {{actual}}", key=key),
        numbers={"actual": actual},
        since="0.4",
    )


def _switches() -> Iterator[Requirement]:
    for name, what in (("kl_loss_fn", "the loss has no KL term"), ("kl_penalty_fn", "rewards have no KL penalty")):
        key, switch = f"algorithm.{name}_args.kl_coef", f"algorithm.{name}"
        yield _ignored(
            key,
            lambda v, key=key, switch=switch: (  # type: ignore[misc]
                v.written(key) and float(v[key] or 0) != 0 and v.written(switch) and v[switch] == "none"
            ),
            said("{key} is {{{key}}}, but {switch} is 'none': {what}", key=key, switch=switch, what=what),
            "trinity/algorithm/kl_fn/kl_fn.py, DummyKLFn",
            said("set {switch} to k2, or remove {key}", switch=switch, key=key),
            since="0.4",
        )


CRITIC = "trainer.trainer_config.critic"
CLIP = f"{ARGS}.clip_range"
DRAWN = f"{ROLLOUT}.eval_tasksets"


def _unused_critic(values: Values) -> str:
    """A key of a critic that a file writes for an algorithm without one."""
    written = "model.critic_model_path" if values["model.critic_model_path"] else ""
    written = written or (CRITIC if values.written(CRITIC) and values[CRITIC] else "")
    named = str(values["algorithm.algorithm_type"])
    return written if named in TYPES and named not in WITH_CRITIC else ""


def _repeated_greedily(values: Values) -> str:
    """An evaluation set whose answers to a prompt are all the same."""
    for each in values[DRAWN] or ():
        drawn = (each.get("rollout_args") or {}).get("temperature")
        if drawn is not None and float(drawn) == 0 and int(each.get("repeat_times") or 1) > 1:
            return str(each.get("name") or "")
    return ""


def _critics() -> Iterator[Requirement]:
    for key in ("model.critic_model_path", CRITIC):
        yield _ignored(
            key,
            lambda v, key=key: _unused_critic(v) == key,  # type: ignore[misc]
            said(
                "{key} is set, but algorithm.algorithm_type {{algorithm.algorithm_type}} trains no critic: it has no effect",
                key=key,
            ),
            "trinity/algorithm/algorithm.py, AlgorithmType",
            said("remove {key}, or set algorithm.algorithm_type to ppo", key=key),
            since="0.4",
        )


SWITCHED = (
    ("explorer.dynamic_timeout", "ratio", "trinity/explorer/scheduler.py, Scheduler.dynamic_timeout"),
    (
        "model.external_model",
        "model_name",
        "trinity/common/config_validator.py, ModelConfigValidator._check_external_model",
    ),
)
"""A section, a key of it that is read only if the section is on, and where."""

ROWS: tuple[Requirement, ...] = (
    *(_repeated(*row) for row in REPEATED),
    *_switches(),
    *_critics(),
    _ignored(
        CLIP,
        lambda v: (
            v.written(CLIP)
            and None not in (v[f"{CLIP}_low"], v[f"{CLIP}_high"])
            and v[CLIP] not in (v[f"{CLIP}_low"], v[f"{CLIP}_high"])
        ),
        said(
            "{both} is {{{both}}}, but {both}_low ({{{both}_low}}) and {both}_high ({{{both}_high}}) override it",
            both=CLIP,
        ),
        "trinity/algorithm/policy_loss_fn/ppo_policy_loss.py, PPOPolicyLossFn.__init__",
        said("remove {both}, or the other two", both=CLIP),
        since="0.4",
    ),
    _ignored(
        DRAWN,
        _repeated_greedily,
        "the temperature of the evaluation set {name} is 0, so all repeat_times responses to a prompt are the same",
        "trinity/explorer/explorer.py, Explorer.eval",
        "set its repeat_times to 1, or its rollout_args.temperature to 0.6",
        numbers={"name": _repeated_greedily},
        since="0.4",
    ),
    _ignored(
        f"{BUFFER}.storage_type",
        lambda v: v["mode"] in ("both", "colocate") and v[f"{BUFFER}.storage_type"] == "file",
        said(
            "{buffer}.storage_type is file, but mode is {{mode}}: Trinity makes it a queue of responses, and never "
            "reads the rows of {buffer}.path",
            buffer=BUFFER,
        ),
        "trinity/common/config_validator.py, BufferConfigValidator",
        said("remove {buffer}, or set mode to train to train on these rows alone", buffer=BUFFER),
        since="0.4",
    ),
    _ignored(
        "explorer.eval_interval",
        lambda v: v["mode"] == "train" and bool(v["buffer.explorer_input.eval_tasksets"]),
        "mode is train, so no explorer runs, and buffer.explorer_input.eval_tasksets are never evaluated",
        "trinity/cli/launcher.py, run_stage",
        "set mode to both, or run a second process with mode bench",
        since="0.4",
    ),
    _ignored(
        "trainer.trainer_config_path",
        lambda v: bool(v["trainer.trainer_config_path"]),
        "trainer.trainer_config_path is no longer read: the trainer runs with trainer.trainer_config and Trinity's own settings",
        "trinity/common/config_validator.py, TrainerConfigValidator",
        "write its content below trainer.trainer_config",
    ),
    *(
        _ignored(
            f"{section}.{name}",
            lambda v, section=section, name=name: v.written(f"{section}.{name}") and not v[f"{section}.enable"],  # type: ignore[misc]
            said(
                "{section}.{name} is written, but {section}.enable is false: it has no effect",
                section=section,
                name=name,
            ),
            source,
            said("set {section}.enable to true, or remove {section}.{name}", section=section, name=name),
        )
        for section, name, source in SWITCHED
    ),
)
