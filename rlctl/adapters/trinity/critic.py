"""Trinity: the critic, which verl's own keys under ``trainer_config`` set."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.adapters.rules import (
    ABSENT,
    Absent,
    By,
    Code,
    Dropped,
    Flow,
    How,
    K,
    Key,
    Lost,
    Out,
    Reading,
    Rule,
    Tree,
    Writing,
)
from rlctl.adapters.trinity.algorithm import TYPES
from rlctl.adapters.trinity.keys import CRITIC_C
from rlctl.adapters.trinity.train import SCHEDULE, other_micro
from rlctl.adapters.values import (
    AGGREGATIONS,
    Listed,
    Off,
    Partly,
    offload,
)


def _read_critic(view: Reading) -> Iterator[Flow]:
    name = (
        view.get("algorithm.advantage_fn")
        or TYPES.get(str(view.get("algorithm.algorithm_type")), TYPES["grpo"]).advantage
    )
    yield Flow(view.to("critic"), {} if name == "ppo" else None, ())


def _write_critic(view: Writing) -> Iterator[Out]:
    there = view.get("critic") is not None
    gae = view.config.algorithm.advantage.choice == "gae" and view.config.algorithm.objective.choice == "rl"
    if there != gae:
        yield Lost((view.to("critic"),), "Trinity has a critic exactly where the advantage is gae")


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


def _read_critic_offload(view: Reading) -> Iterator[Flow]:
    keys = [f"{CRITIC_C}.model.fsdp_config.{name}" for name in ("param_offload", "optimizer_offload")]
    yield Flow(
        view.to("critic.engine.offload"),
        offload(*(view.get(key) for key in keys)),
        tuple(view.path(key) for key in keys),
    )


def _write_critic_offload(view: Writing) -> Iterator[Out]:
    word = view.get("critic.engine.offload")
    if not isinstance(word, Absent):
        for name, words in (("param_offload", ("parameters", "both")), ("optimizer_offload", ("optimizer", "both"))):
            yield Flow(
                view.path(f"{CRITIC_C}.model.fsdp_config.{name}"), word in words, (view.to("critic.engine.offload"),)
            )


def _read_critic_engine(view: Reading) -> Iterator[Flow]:
    kind = str(view.get(f"{CRITIC_C}.strategy") or view.get("trainer.trainer_strategy"))
    yield Flow(
        view.to("critic.engine.name"),
        "megatron" if kind == "megatron" else "fsdp2",
        (view.path(f"{CRITIC_C}.strategy"),),
    )
    if kind in ("fsdp", "fsdp2"):
        yield Flow(view.to("critic.engine.source"), kind, (view.path(f"{CRITIC_C}.strategy"),))


def _write_critic_engine(view: Writing) -> Iterator[Out]:
    name, source = view.get("critic.engine.name"), view.get("critic.engine.source")
    used = (view.to("critic.engine.name"), view.to("critic.engine.source"))
    if isinstance(name, Absent):
        return
    kind = "megatron" if name == "megatron" else source if source in ("fsdp", "fsdp2") else "fsdp2"
    policy = view.get("train.engine.name"), view.get("train.engine.source")
    how: How = "mapped" if name == "megatron" or source in ("fsdp", "fsdp2") else "derived"
    yield (
        Flow((), None, used, "mapped", "the policy's")
        if (name, source) == policy
        else Flow(view.path(f"{CRITIC_C}.strategy"), kind, used, how)
    )


CRITIC: list[Rule] = [
    Code("critic", (), ("critic",), _read_critic, _write_critic, "advantage ppo"),
    Code(
        "critic model",
        (K("model.critic_model_path", ""),),
        ("critic.model", "critic.model.path"),
        _read_critic_model,
        _write_critic_model,
    ),
    Key(f"{CRITIC_C}.optim.lr", "critic.optimizer.learning_rate", By({"0.5": 1e-6, "0.6": 1e-5}), always=True),
    Key(f"{CRITIC_C}.optim.weight_decay", "critic.optimizer.weight_decay", 0.01),
    Key(f"{CRITIC_C}.optim.betas", "critic.optimizer.betas", [0.9, 0.999], Listed()),
    Key(f"{CRITIC_C}.optim.optimizer", "critic.optimizer.name", "adam", Partly({"adam": "adamw"})),
    Key(
        f"{CRITIC_C}.optim.clip_grad",
        "critic.optimizer.max_grad_norm",
        1.0,
        Off(0.0),
        since="0.6",
        also=(K(f"{CRITIC_C}.grad_clip", 1.0),),
    ),
    Key(
        f"{CRITIC_C}.optim.lr_scheduler_type",
        "critic.learning_rate_schedule.name",
        "constant",
        SCHEDULE,
        also=(K(f"{CRITIC_C}.optim.warmup_style", None),),
    ),
    Key(f"{CRITIC_C}.optim.lr_warmup_steps", "critic.learning_rate_schedule.warmup.ticks", -1, Off(-1)),
    Key(f"{CRITIC_C}.optim.lr_warmup_steps_ratio", "critic.learning_rate_schedule.warmup.ratio", 0.0, Off(0.0)),
    Key(f"{CRITIC_C}.optim.min_lr_ratio", "critic.learning_rate_schedule.min_ratio", 0.0, Partly({None: 0.0})),
    Dropped("critic.learning_rate_schedule.tick", "Trinity moves the schedule once a train step", "optimizer_step"),
    Key(f"{CRITIC_C}.cliprange_value", "critic.value_loss.clip", By({"0.5": 0.0, "0.6": 0.5}), Off(0.0), always=True),
    Key(f"{CRITIC_C}.loss_agg_mode", "critic.value_loss.aggregation", "token-mean", AGGREGATIONS),
    Key(f"{CRITIC_C}.ppo_epochs", "critic.ppo_epochs", ABSENT),
    Key(f"{CRITIC_C}.shuffle", "critic.shuffle", False),
    Key(f"{CRITIC_C}.data_loader_seed", "critic.shuffle_seed", None),
    other_micro(
        "critic micro-batch",
        "critic.micro",
        f"{CRITIC_C}.use_dynamic_bsz",
        f"{CRITIC_C}.ppo_max_token_len_per_gpu",
        f"{CRITIC_C}.ppo_micro_batch_size_per_gpu",
    ),
    other_micro(
        "critic value micro-batch",
        "critic.forward_micro",
        f"{CRITIC_C}.forward_use_dynamic_bsz",
        f"{CRITIC_C}.forward_max_token_len_per_gpu",
        f"{CRITIC_C}.forward_micro_batch_size_per_gpu",
    ),
    Key(f"{CRITIC_C}.model.enable_gradient_checkpointing", "critic.memory.recompute_activations", True),
    Key(f"{CRITIC_C}.model.use_remove_padding", "critic.memory.remove_padding", By({"0.5": False, "0.6": True})),
    Key(f"{CRITIC_C}.model.external_lib", "critic.model.import_modules", ABSENT, Listed(single=True)),
    Tree(f"{CRITIC_C}.model.override_config", "critic.model.overrides"),
    Key(f"{CRITIC_C}.model.fsdp_config.fsdp_size", "critic.engine.shard", -1, Partly({-1: "all"})),
    Key(f"{CRITIC_C}.model.fsdp_config.reshard_after_forward", "critic.engine.reshard_after_forward", True),
    Key(f"{CRITIC_C}.model.fsdp_config.forward_prefetch", "critic.engine.forward_prefetch", False),
    Key(f"{CRITIC_C}.model.fsdp_config.offload_policy", "critic.engine.cpu_offload_policy", False),
    Key(f"{CRITIC_C}.model.fsdp_config.wrap_policy.min_num_params", "critic.engine.wrap_min_parameters", 0),
    Key(f"{CRITIC_C}.ulysses_sequence_parallel_size", "critic.engine.sequence_parallel", ABSENT),
    Code(
        "critic offload",
        (
            K(f"{CRITIC_C}.model.fsdp_config.param_offload", False),
            K(f"{CRITIC_C}.model.fsdp_config.optimizer_offload", False),
        ),
        ("critic.engine.offload",),
        lambda view: _read_critic_offload(view),
        lambda view: _write_critic_offload(view),
    ),
    Code(
        "critic engine",
        (K(f"{CRITIC_C}.strategy", None),),
        ("critic.engine.name", "critic.engine.source", "critic.engine.kind"),
        lambda view: _read_critic_engine(view),
        lambda view: _write_critic_engine(view),
    ),
    Dropped("critic.mini_batch_responses", "Trinity's critic takes the policy's mini-batch", None),
    Dropped("critic.**", "Trinity has no such key for the critic"),
]
