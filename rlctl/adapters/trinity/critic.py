"""Trinity: the critic, which verl's own keys under ``trainer_config`` set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlctl.adapters.engine.combined_rows import OneOf
from rlctl.adapters.engine.one_sided_rows import FollowsFrom
from rlctl.adapters.engine.rules import (
    NO_KEY,
    Absent,
    Calculation,
    Computed,
    CustomRule,
    DefaultFrom,
    DialectKey,
    Dropped,
    Flow,
    Key,
    Out,
    Provenance,
    Reading,
    Rule,
    Tree,
    Version,
    VersionedDefault,
    When,
    Writing,
    converted,
    in_releases,
)
from rlctl.adapters.engine.values import (
    AGGREGATIONS,
    Listed,
    NoClip,
    NullReads,
    Unclipped,
    offload,
)
from rlctl.adapters.engine.weight_decay import norms_and_biases
from rlctl.adapters.trinity.algorithm import type_of
from rlctl.adapters.trinity.keys import ACTOR, CRITIC_C
from rlctl.adapters.trinity.megatron import megatron
from rlctl.adapters.trinity.micro import other_micro
from rlctl.adapters.trinity.train import (
    ADAM,
    MEGATRON_SHAPES,
    WARMUP,
    read_warmup,
    role_engine,
    role_strategy,
    schedule,
    warmup_keys,
    write_warmup,
    writes_engine,
)
from rlctl.adapters.verl_trainer.fsdp import sharding
from rlctl.adapters.verl_trainer.megatron import SIZES
from rlctl.common.messages.reasons import said


def _on_megatron(view: Reading) -> bool:
    """Whether the critic's optimizer has Megatron's keys, which 0.5 translated itself."""
    return view.version >= (0, 6) and role_strategy(view, f"{CRITIC_C}.strategy") == "megatron"


def _there(view: Reading) -> dict[str, Any] | None:
    name = view.get("algorithm.advantage_fn") or type_of(view).advantage
    return {} if name == "ppo" and view.get("algorithm.algorithm_type") == "ppo" else None


def _written(view: Writing) -> dict[str, Any] | None:
    algorithm = view.config.algorithm
    return {} if algorithm.advantage.choice == "gae" and algorithm.objective.choice == "rl" else None


def _read_critic_model(view: Reading) -> Iterator[Flow]:
    path = view.get("model.critic_model_path")
    same = not path or path == view.get("model.model_path")
    yield Flow(view.to("critic.model"), None if same else {}, (view.path("model.critic_model_path"),))
    if not same:
        yield Flow(view.to("critic.model.path"), path, (view.path("model.critic_model_path"),), same=True)


def _write_critic_model(view: Writing) -> Iterator[Out]:
    path = view.get("critic.model.path")
    if isinstance(path, str):
        yield Flow(view.path("model.critic_model_path"), path, (view.to("critic.model.path"),), same=True)
    elif view.get("critic") is not None:
        yield Flow((), None, (view.to("critic.model"),), "mapped", "the policy's initial weights")


def _block(version: Version) -> str:
    """Where verl's FSDP settings of the critic are."""
    return f"{CRITIC_C}.fsdp" if version >= (0, 6) else f"{CRITIC_C}.model.fsdp_config"


def _read_offload(view: Reading) -> Iterator[Flow]:
    engine = "megatron" if role_strategy(view, f"{CRITIC_C}.strategy") == "megatron" else ""
    block = f"{CRITIC_C}.megatron" if engine else _block(view.version)
    both, used = [], []
    for name in ("param_offload", "optimizer_offload"):
        key = f"{block}.{name}"
        common = f"trainer.{name}" if view.version >= (0, 6) and not view.written(key) else key
        both.append(bool(view.get(common, False)))
        used.append(view.path(key))
    yield Flow(view.to("critic.engine.offload"), offload(*both), tuple(used))


def _write_offload(view: Writing) -> Iterator[Out]:
    word, used = view.get("critic.engine.offload"), (view.to("critic.engine.offload"),)
    if isinstance(word, Absent) or not writes_engine(view, "critic.engine", str(view.get("critic.engine.type"))):
        return
    block = f"{CRITIC_C}.megatron" if view.get("critic.engine.type") == "megatron" else _block(view.version)
    policy = view.get("train.engine.offload") if view.version >= (0, 6) else "none"
    for name, words in (("param_offload", ("parameters", "both")), ("optimizer_offload", ("optimizer", "both"))):
        yield Flow(view.path(f"{block}.{name}"), word in words, used, always=(word in words) != (policy in words))


def _clip_key(version: Version, engine: str) -> str:
    return f"{CRITIC_C}.grad_clip" if version < (0, 6) and engine != "megatron" else f"{CRITIC_C}.optim.clip_grad"


class OwnEpochs(Calculation):
    """Passes of the critic: 1 in Trinity if it says nothing, however many the policy has; null in rlctl is the policy's."""

    def read(self, value: Any, view: Reading) -> Any:
        return None if value == view.get(f"{ACTOR}.ppo_epochs") else value

    def write(self, value: Any, view: Writing) -> Any:
        passes = view.config.batch.ppo_epochs if value is None else value
        return Computed(passes, how="mapped", always=passes != 1, same=passes == value)


class CriticBound(Calculation):
    """The bound of the critic's gradients; in 0.5 that of the trainer, if the critic has none."""

    def read(self, value: Any, view: Reading) -> Any:
        common = value is None and view.version < (0, 6)
        key = "trainer.grad_clip"
        return converted(NoClip(), view.get(key), view, key) if common else NoClip().read(value, view)

    def write(self, value: Any, view: Writing) -> Any:
        note = "this bound is too large to have an effect" if value is None else ""
        other = view.version < (0, 6) and value != view.get("train.optimizer.max_grad_norm")
        how: Provenance = "derived" if note else "mapped"
        return Computed(NoClip().write(value, view), note, how, always=other, same=not note)


def _engine() -> list[Rule]:
    """The critic's FSDP settings, which 0.6 has in another place."""
    new, old = f"{CRITIC_C}.fsdp", f"{CRITIC_C}.model.fsdp_config"
    # 0.5.2 trainer/verl/verl_config.py, FSDPConfig
    policy = DialectKey(f"{old}.offload_policy", False)
    common = DefaultFrom("trainer.offload_policy")
    return [
        *sharding(new, "critic.engine", older=old, handed_on=True),
        # 0.6.0 trainer/verl/config.py, _build_fsdp_engine_config
        Key(f"{new}.offload_policy", "critic.engine.cpu_offload_policy", common, also=(policy,)),
    ]


def settled(key: str, to: str, policy: str = "") -> list[Rule]:
    """A switch of the critic's model, which since 0.6 is on, or as the policy's."""

    def own(view: Writing) -> Any:
        return view.get(policy) if policy else True

    def reason(view: Writing) -> str:
        if not policy:
            return "Trinity 0.6 always switches it on for the critic"
        return said("Trinity 0.6 uses {policy} for the critic too: {own}", policy=policy, own=str(own(view)).lower())

    follows = FollowsFrom(to, writes=own, note=reason, reason=reason)
    # 0.5.2 trainer/verl/verl_config.py, CriticModel; 0.6.0 trainer/verl/config.py, _build_model_config and FROZEN_KEYS
    return [in_releases(Key(key, to, True, until="0.5"), until="0.5"), in_releases(follows, since="0.6")]


CRITIC: list[Rule] = [
    FollowsFrom(
        "critic",
        reads=_there,
        writes=_written,
        reason="Trinity has a critic if, and only if, the advantage is gae",
        formula="advantage ppo",
    ),
    CustomRule(
        "critic model",
        (DialectKey("model.critic_model_path"),),
        ("critic.model", "critic.model.path"),
        _read_critic_model,
        _write_critic_model,
        why="A path that is the policy's is not a separate model.",
    ),
    # 0.5.2 trainer/verl/verl_config.py, Optim; 0.6.0 trainer/verl/config.py, _build_critic_optimizer_config
    Key(f"{CRITIC_C}.optim.lr", "critic.optimizer.lr", VersionedDefault({"0.5": 1e-6, "0.6": 1e-5})),
    # 0.5.2 trainer/verl/verl_config.py, Optim; 0.6.0 trainer/verl/config.py, _build_critic_optimizer_config
    Key(f"{CRITIC_C}.optim.weight_decay", "critic.optimizer.weight_decay", 0.01),
    norms_and_biases(
        "critic.optimizer",
        lambda view: role_strategy(view, f"{CRITIC_C}.strategy") == "megatron",
        lambda view: writes_engine(view, "critic.engine", "megatron"),
    ),
    # 0.5.2 trainer/verl/verl_config.py, Optim; 0.6.0 trainer/verl/config.py, _build_critic_optimizer_config
    Key(f"{CRITIC_C}.optim.betas", "critic.optimizer.betas", [0.9, 0.999], Listed()),
    # 0.5.2 trainer/verl/verl_config.py, Optim; 0.6.0 trainer/verl/config.py, _build_critic_optimizer_config
    Key(f"{CRITIC_C}.optim.optimizer", "critic.optimizer.type", "adam", ADAM),
    OneOf(
        (
            # 0.5.2 trainer/verl/verl_config.py, Optim; 0.6.0 trainer/verl/config.py, _build_critic_optimizer_config
            DialectKey(f"{CRITIC_C}.optim.clip_grad", 1.0),
            # 0.5.2 trainer/verl/verl_config.py, Critic, synchronize_config; 0.6.0 trainer/verl/config.py, FROZEN_KEYS
            DialectKey(f"{CRITIC_C}.grad_clip", DefaultFrom("trainer.grad_clip"), until="0.5"),
        ),
        "critic.optimizer.max_grad_norm",
        reads=lambda view: _clip_key(view.version, role_strategy(view, f"{CRITIC_C}.strategy")),
        writes=lambda view: _clip_key(view.version, str(view.get("train.engine.type"))),
        convert=CriticBound(),
    ),
    When(
        (
            schedule(f"{CRITIC_C}.optim.lr_scheduler_type", "critic", "constant"),
            # 0.5.2 trainer/verl/verl_config.py, synchronize_config;
            # 0.6.0 trainer/verl/config.py, _build_critic_optimizer_config
            Key(
                f"{CRITIC_C}.optim.min_lr_ratio",
                "critic.lr_scheduler.min_lr_ratio",
                VersionedDefault({"0.5": 0.0, "0.6": 0.01}),
                NullReads(0.0),
            ),
        ),
        lambda view: not _on_megatron(view),
        lambda view: not writes_engine(view, "critic.engine", "megatron") or view.version < (0, 6),
        "only for the FSDP trainer",
    ),
    When(
        # 0.5.2 trainer/verl/verl_config.py, synchronize_config, sets both;
        # 0.6.0 trainer/verl/config.py, _build_critic_optimizer_config
        (
            Key(
                f"{CRITIC_C}.optim.lr_decay_style",
                "critic.lr_scheduler.type",
                "constant",
                MEGATRON_SHAPES,
                since="0.6",
            ),
            # the same places: 0.5.2 trainer/verl/verl_config.py, 0.6.0 trainer/verl/config.py
            Key(f"{CRITIC_C}.optim.min_lr", "critic.lr_scheduler.min_lr", 0.0, since="0.6"),
        ),
        lambda view: _on_megatron(view),
        lambda view: writes_engine(view, "critic.engine", "megatron") and view.version >= (0, 6),
        "only for the Megatron trainer",
    ),
    CustomRule(
        "critic's warm-up",
        # 0.5.2 trainer/verl/verl_config.py, Optim; 0.6.0 trainer/verl/config.py, _build_critic_optimizer_config
        warmup_keys(f"{CRITIC_C}.optim", (-1, 0.0)),
        tuple(f"critic.lr_scheduler.{name}" for name in ("warmup_steps", "warmup_ratio", "step_unit")),
        lambda view: read_warmup(view, [f"{CRITIC_C}.optim.{name}" for name in WARMUP], "critic"),
        lambda view: write_warmup(view, f"{CRITIC_C}.optim", "critic"),
        "steps x k",
        by_key={
            "trainer.trainer_config.critic.optim.lr_warmup_steps": "critic.lr_scheduler.warmup_steps",
            "trainer.trainer_config.critic.optim.lr_warmup_steps_ratio": "critic.lr_scheduler.warmup_ratio",
        },
        why="It also says what moves the schedule, and what of it is lost without an end of the run.",
    ),
    # 0.5.2 trainer/verl/verl_config.py, Critic; 0.6.0 trainer/verl/config.py, _build_critic_config
    Key(
        f"{CRITIC_C}.cliprange_value", "critic.value_loss.clip", VersionedDefault({"0.5": 0.0, "0.6": 0.5}), Unclipped()
    ),
    # 0.5.2 trainer/verl/verl_config.py, Critic; 0.6.0 trainer/verl/config.py, _build_critic_config
    Key(f"{CRITIC_C}.loss_agg_mode", "critic.value_loss.aggregation", "token-mean", AGGREGATIONS),
    # 0.5.2 trainer/verl/verl_config.py, Critic; 0.6.0 trainer/verl/config.py, _build_critic_config
    Key(f"{CRITIC_C}.ppo_epochs", "critic.ppo_epochs", 1, OwnEpochs()),
    # 0.5.2 trainer/verl/verl_config.py, Critic; 0.6.0 trainer/verl/config.py, _build_critic_config
    Key(f"{CRITIC_C}.shuffle", "critic.shuffle", VersionedDefault({"0.5": False, "0.6": True})),
    # 0.5.2 trainer/verl/verl_config.py, Critic; 0.6.0 trainer/verl/config.py, _build_critic_config
    Key(f"{CRITIC_C}.data_loader_seed", "critic.shuffle_seed", VersionedDefault({"0.5": None, "0.6": 42})),
    other_micro(
        "critic micro-batch",
        "critic.micro_batch",
        f"{CRITIC_C}.use_dynamic_bsz",
        f"{CRITIC_C}.ppo_max_token_len_per_gpu",
        f"{CRITIC_C}.ppo_micro_batch_size_per_gpu",
    ),
    When(
        (
            other_micro(
                "critic value micro-batch",
                "critic.forward_micro_batch",
                f"{CRITIC_C}.forward_use_dynamic_bsz",
                f"{CRITIC_C}.forward_max_token_len_per_gpu",
                f"{CRITIC_C}.forward_micro_batch_size_per_gpu",
            ),
        ),
        lambda view: not _on_megatron(view),
        lambda view: not writes_engine(view, "critic.engine", "megatron") or view.version < (0, 6),
        "Megatron's critic has no separate batch size for values",
    ),
    role_engine("critic engine", f"{CRITIC_C}.strategy", "critic.engine"),
    *settled(f"{CRITIC_C}.model.enable_gradient_checkpointing", "critic.memory.recompute_activations"),
    *settled(f"{CRITIC_C}.model.use_remove_padding", "critic.packing", "train.packing"),
    # 0.5.2 trainer/verl/verl_config.py, CriticModel; 0.6.0 trainer/verl/config.py, build_verl_config: one model section
    Key(f"{CRITIC_C}.model.external_lib", "critic.model.import_modules", convert=Listed(single=True), until="0.5"),
    # the same places: 0.5.2 trainer/verl/verl_config.py, 0.6.0 trainer/verl/config.py
    Tree(f"{CRITIC_C}.model.override_config", "critic.model.overrides", until="0.5"),
    When(
        (
            *_engine(),
            # 0.5.2 trainer/verl/verl_config.py, synchronize_config; 0.6.0 trainer/verl/config.py, FROZEN_KEYS
            Key(
                f"{CRITIC_C}.ulysses_sequence_parallel_size",
                "critic.engine.ulysses_sequence_parallel_size",
                DefaultFrom("trainer.ulysses_sequence_parallel_size"),
                until="0.5",
            ),
        ),
        lambda view: role_strategy(view, f"{CRITIC_C}.strategy") != "megatron",
        lambda view: writes_engine(view, "critic.engine", "fsdp2"),
        "only for the FSDP trainer",
    ),
    When(
        (
            *[
                # 0.5.2 trainer/verl/verl_config.py, synchronize_config; 0.6.0 trainer/verl/config.py, _build_mcore_engine_config
                Key(f"{CRITIC_C}.megatron.{key}", f"critic.engine.{field}", DefaultFrom(f"trainer.megatron.{key}"))
                for key, field in SIZES
            ],
            *megatron(f"{CRITIC_C}.megatron", "critic.engine"),
            Key(f"{CRITIC_C}.megatron.grad_offload", "critic.engine.offload_gradients"),
        ),
        lambda view: role_strategy(view, f"{CRITIC_C}.strategy") == "megatron",
        lambda view: writes_engine(view, "critic.engine", "megatron"),
        "only for the Megatron trainer",
    ),
    CustomRule(
        "critic offload",
        (
            *(
                # 0.6.0 trainer/verl/config.py, _build_fsdp_engine_config
                DialectKey(f"{CRITIC_C}.fsdp.{name}", DefaultFrom(f"trainer.{name}"))
                for name in ("param_offload", "optimizer_offload")
            ),
            *(DialectKey(f"{CRITIC_C}.megatron.{name}") for name in ("param_offload", "optimizer_offload")),
            *(
                # 0.5.2 trainer/verl/verl_config.py, FSDPConfig
                DialectKey(f"{CRITIC_C}.model.fsdp_config.{name}", False)
                for name in ("param_offload", "optimizer_offload")
            ),
        ),
        ("critic.engine.offload",),
        _read_offload,
        _write_offload,
        why="Which of three blocks holds the switches depends on the engine and the release, and they follow the policy's.",
    ),
    Dropped("critic.mini_batch_responses", "Trinity's critic uses the policy's mini-batch", None),
    Dropped("critic.**", NO_KEY),
]
