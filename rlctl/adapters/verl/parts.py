"""Rules that verl repeats for several roles: optimizer, schedule, training engine, micro-batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl import arithmetic
from rlctl.adapters.rules import (
    ABSENT,
    Absent,
    By,
    Code,
    Dropped,
    Flow,
    K,
    Key,
    Like,
    Out,
    Reading,
    Rule,
    Tree,
    When,
    Writing,
)
from rlctl.adapters.values import DTYPES, Listed, Names, Off, Partly, offload

MEGATRON_TYPED = (
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "recompute_modules",
    "moe_token_dispatcher_type",
    "moe_grouped_gemm",
    "moe_shared_expert_overlap",
    "moe_layer_recompute",
)
FSDP_SCHEDULES = Names(
    {"constant": "constant", "cosine": "cosine"}, "verl's FSDP schedules are constant and cosine, both with warm-up"
)
MEGATRON_SCHEDULES = Names(
    {
        "constant": "constant",
        "cosine": "cosine",
        "linear": "linear",
        "inverse-square-root": "inverse_sqrt",
        "WSD": "wsd",
    }
)


class OptimizerName(Partly):
    """AdamW of FSDP and adam of Megatron are one."""

    def write(self, value: Any, view: Writing) -> Any:
        if value == "adamw":
            return "adam" if view.config.train.engine.choice == "megatron" else "AdamW"
        return value


class Ticks(Off):
    """Warm-up ticks: verl moves its schedule once a step, so ticks of optimizer steps are divided by k."""

    def write(self, value: Any, view: Writing) -> Any:
        if value is None or view.get("train.learning_rate_schedule.tick") != "optimizer_step":
            return super().write(value, view)
        return -(-value // arithmetic.optimizer_steps_per_step(view.config))


def megatron_at(to: str, wanted: bool = True) -> Any:
    """Whether the engine at a canonical place is Megatron."""
    return lambda view: (view.get(f"{to}.engine.name") == "megatron") is wanted


def kind_of_engine(view: Reading, key: str, groups: tuple[str, ...]) -> str:
    """The engine a text asks for: a config group chosen beside, or ``strategy``."""
    group = next((name for name in groups if view.written(name)), "")
    kind = str(view.get(group) if group else view.get(key, "fsdp"))
    kind = {"dp": "fsdp"}.get(kind, kind)
    return str(view.get(key)) if kind == "fsdp" and group and view.written(key) else kind


def under(engine: str, key: str, groups: tuple[str, ...], to: str, rules: list[Rule]) -> When:
    """Rules of one engine: ``fsdp2`` or ``megatron``."""
    kinds = ("fsdp", "fsdp2") if engine == "fsdp2" else (engine,)
    return When(
        tuple(rules),
        lambda view: kind_of_engine(view, key, groups) in kinds,
        lambda view: bool(view.get(f"{to}.name") == engine),
        f"the engine is not {'FSDP' if engine == 'fsdp2' else 'Megatron'}",
    )


def optimizer(prefix: str, to: str, *, rate: Any, betas: Any, since: str, clip: tuple[K, ...] = ()) -> list[Rule]:
    """The keys of an ``optim`` block that set the optimizer."""
    o, c = f"{prefix}.", f"{to}.optimizer."
    return [
        Key(f"{o}lr", f"{c}learning_rate", rate, always=True),
        Key(f"{o}weight_decay", f"{c}weight_decay", 0.01),
        Key(f"{o}betas", f"{c}betas", betas, Listed(), since=since),
        Key(f"{o}clip_grad", f"{c}max_grad_norm", 1.0, Off(0.0), since=since, also=clip),
        Key(
            f"{o}optimizer",
            f"{c}name",
            "AdamW",
            OptimizerName({"AdamW": "adamw", "adam": "adamw"}),
            since="0.7",
        ),
        Key(f"{o}optimizer_impl", f"{c}module", "torch.optim", Partly({"torch.optim": None}), since="0.7"),
        Key(f"{o}weight_decay_incr_style", f"{c}weight_decay_style", "constant"),
        Key(f"{o}start_weight_decay", f"{c}start_weight_decay"),
        Key(f"{o}end_weight_decay", f"{c}end_weight_decay"),
        Tree(f"{o}override_optimizer_config", f"{c}args", default=None),
        Dropped(f"{c}epsilon", "verl has no key for Adam's epsilon but override_optimizer_config"),
    ]


def schedule(prefix: str, to: str, *, name: Any = "constant", ratio: Any = 0.0, old: str = "0.5") -> list[Rule]:
    """The keys of an ``optim`` block that move the learning rate."""
    o, c = f"{prefix}.", f"{to}.learning_rate_schedule."
    after = "0.6" if old else ""
    return [
        Key(
            f"{o}lr_scheduler_type",
            f"{c}name",
            name,
            FSDP_SCHEDULES,
            since=after,
            also=(K(f"{o}warmup_style", By({"0.3": "constant", "0.6": None})),),
            write_when=megatron_at(to, False),
        ),
        Key(f"{o}lr_decay_style", f"{c}name", ABSENT, MEGATRON_SCHEDULES, write_when=megatron_at(to)),
        Key(
            f"{o}lr_warmup_steps",
            f"{c}warmup.ticks",
            -1,
            Ticks(note="verl's schedule moves once a step"),
            since="" if to == "train" else "0.6",
        ),
        Key(f"{o}lr_warmup_steps_ratio", f"{c}warmup.ratio", ratio, Off(0.0)),
        Key(f"{o}lr_warmup_init", f"{c}warmup.start"),
        Key(f"{o}min_lr_ratio", f"{c}min_ratio", 0.0, Partly({None: 0.0}), write_when=megatron_at(to, False)),
        Key(f"{o}min_lr", f"{c}min_learning_rate", write_when=megatron_at(to)),
        Key(f"{o}num_cycles", f"{c}cycles", 0.5, since="0.4", write_when=megatron_at(to, False)),
        Key(f"{o}lr_decay_steps", f"{c}decay_ticks"),
        Key(f"{o}lr_wsd_decay_steps", f"{c}wsd_decay_ticks"),
        Key(f"{o}lr_wsd_decay_style", f"{c}wsd_decay", ABSENT, write_when=megatron_at(to)),
        Key(f"{o}total_training_steps", f"{c}total_ticks", -1, Off(-1)),
        Key(f"{o}use_checkpoint_opt_param_scheduler", f"{c}restore_from_checkpoint", write_when=megatron_at(to)),
        Dropped(f"{c}tick", "verl moves the schedule once a step; the ticks are divided", "step", matters=True),
    ]


def strategy(role: str, to: str, *, also: tuple[str, ...] = (), default: Any = "fsdp", claims: bool = True) -> Code:
    """Which engine trains: ``<role>.strategy``, or the config group that was chosen.

    A role that only follows the group does not claim it, so that the group is accounted for with the policy.
    """
    key = f"{role}.strategy" if role else "strategy"

    def read(view: Reading) -> Iterator[Flow]:
        kind = kind_of_engine(view, key, also)
        used = tuple(view.path(name) for name in (key, *(also if claims else ())))
        if kind in ("fsdp", "fsdp2"):
            yield Flow(view.to(f"{to}.name"), "fsdp2", used)
            yield Flow(view.to(f"{to}.source"), kind, used)
        elif kind == "megatron":
            yield Flow(view.to(f"{to}.name"), "megatron", used)
        else:
            yield Flow(view.to(f"{to}.name"), "other", used)
            yield Flow(view.to(f"{to}.kind"), kind, used)

    def write(view: Writing) -> Iterator[Out]:
        name = view.get(f"{to}.name")
        if isinstance(name, Absent):
            return
        used = (view.to(f"{to}.name"), view.to(f"{to}.source"))
        if name == "fsdp2":
            source = view.get(f"{to}.source")
            known = source in ("fsdp", "fsdp2")
            yield Flow(view.path(key), source if known else "fsdp2", used, "mapped" if known else "derived")
        elif name == "megatron":
            yield Flow(view.path(key), "megatron", used[:1])
        else:
            yield Flow(view.path(key), view.get(f"{to}.kind"), (used[0], view.to(f"{to}.kind")))

    groups = tuple(K(name, ABSENT) for name in also)
    return Code(
        f"engine of {role}", (K(key, default), *groups), (f"{to}.name", f"{to}.source", f"{to}.kind"), read, write
    )


def offloads(
    prefix: str, to: str, like: str = "", *, names: tuple[str, str] = ("param_offload", "optimizer_offload")
) -> Code:
    """``param_offload`` and ``optimizer_offload`` as one word."""
    keys = tuple(f"{prefix}.{name}" for name in names)

    def read(view: Reading) -> Iterator[Flow]:
        both = [view.get(key, False) for key in keys]
        yield Flow(view.to(f"{to}.offload"), offload(*both), tuple(view.path(key) for key in keys))

    def write(view: Writing) -> Iterator[Out]:
        word = view.get(f"{to}.offload")
        if isinstance(word, Absent):
            return
        used = (view.to(f"{to}.offload"),)
        yield Flow(view.path(keys[0]), word in ("parameters", "both"), used)
        yield Flow(view.path(keys[1]), word in ("optimizer", "both"), used)

    defaults = [Like(f"{like}.{name}") if like else False for name in names]
    own = tuple(K(key, default) for key, default in zip(keys, defaults, strict=True))
    return Code(f"offload of {prefix}", own, (f"{to}.offload",), read, write, "param_offload + optimizer_offload")


def offloads_since(prefix: str, to: str, since: str, until: str) -> Code:
    """The same, for a block that only some versions have."""
    rule = offloads(prefix, to)
    own = tuple(K(key.name, key.default, since, until) for key in rule.own)

    def read(view: Reading) -> Iterator[Flow]:
        if any(key.exists(view.version) or view.written(key.name) for key in own):
            yield from rule.reader(view)

    def write(view: Writing) -> Iterator[Out]:
        if own[0].exists(view.version):
            yield from rule.writer(view)

    return Code(rule.name, own, rule.fills, read, write, rule.formula)


def fsdp(prefix: str, to: str, *, since: str = "") -> list[Rule]:
    """The keys of an FSDP block."""
    f = f"{prefix}."
    return [
        Key(f"{f}fsdp_size", f"{to}.shard", -1, Partly({-1: "all"})),
        offloads(prefix, to),
        Key(f"{f}offload_policy", f"{to}.cpu_offload_policy", False, since="0.4"),
        Key(f"{f}reshard_after_forward", f"{to}.reshard_after_forward", True, since="0.4"),
        Key(f"{f}forward_prefetch", f"{to}.forward_prefetch", False, since="0.5"),
        Key(f"{f}wrap_policy.min_num_params", f"{to}.wrap_min_parameters", 0, also=(K(f"{f}min_num_params"),)),
        Key(f"{f}wrap_policy.transformer_layer_cls_to_wrap", f"{to}.wrap_layers", ABSENT, Listed()),
        Tree(f"{f}turbo_config", f"{to}.source_args"),
    ]


def precision(prefix: str, to: str) -> list[Rule]:
    """Number types of an FSDP block."""
    f, c = f"{prefix}.", f"{to}.precision."
    return [
        Key(f"{f}model_dtype", f"{c}parameters", "fp32", DTYPES, since="0.6"),
        Key(
            f"{f}dtype",
            f"{c}compute",
            "bfloat16",
            DTYPES_LONG,
            since="0.7",
            also=(K(f"{f}mixed_precision.param_dtype"),),
        ),
        Key(f"{f}mixed_precision.reduce_dtype", f"{c}reduce", "fp32", DTYPES),
    ]


DTYPES_LONG = Names(
    {
        "bfloat16": "bfloat16",
        "float16": "float16",
        "float32": "float32",
        "bf16": "bfloat16",
        "fp16": "float16",
        "fp32": "float32",
    }
)


class Bridge(Names):
    """How weights are converted: two switches."""


def megatron(prefix: str, to: str, like: str = "") -> list[Rule]:
    """The keys of a Megatron block."""
    m = f"{prefix}."

    def default(name: str, value: Any) -> Any:
        return Like(f"{like}.{name}") if like else value

    def key(name: str, field: str, value: Any, convert: Any = None) -> Key:
        extra = {} if convert is None else {"convert": convert}
        return Key(f"{m}{name}", f"{to}.{field}", default(name, value), **extra)

    t = "override_transformer_config."
    return [
        key("tensor_model_parallel_size", "tensor", 1),
        key("pipeline_model_parallel_size", "pipeline", 1),
        key("virtual_pipeline_model_parallel_size", "virtual_pipeline", None),
        key("context_parallel_size", "context", 1),
        key("expert_model_parallel_size", "expert", 1),
        key("expert_tensor_parallel_size", "expert_tensor", None, Partly({None: None, "None": None})),
        key("sequence_parallel", "sequence_parallel", True),
        offloads(prefix, to, like),
        key("grad_offload", "offload_gradients", False),
        key("use_distributed_optimizer", "distributed_optimizer", True),
        key("use_dist_checkpointing", "distributed_checkpointing", False),
        key("dist_checkpointing_path", "checkpoint_path", None, Partly({"": None})),
        key("override_ddp_config.overlap_grad_reduce", "overlap_gradient_reduce", False),
        key("override_ddp_config.overlap_param_gather", "overlap_parameter_gather", False),
        Tree(f"{m}override_ddp_config", f"{to}.ddp", but=("overlap_grad_reduce", "overlap_param_gather")),
        key(f"{t}recompute_granularity", "recompute_granularity", None, Partly({None: "none"})),
        key(f"{t}recompute_method", "recompute_method", None),
        key(f"{t}recompute_num_layers", "recompute_layers", None),
        key(f"{t}recompute_modules", "recompute_modules", ["core_attn"], Listed()),
        key(f"{t}moe_token_dispatcher_type", "moe.dispatcher", None),
        key(f"{t}moe_grouped_gemm", "moe.grouped_gemm", False),
        key(f"{t}moe_shared_expert_overlap", "moe.shared_expert_overlap", False),
        key(f"{t}moe_layer_recompute", "moe.layer_recompute", False),
        Tree(f"{m}override_transformer_config", f"{to}.transformer", but=MEGATRON_TYPED),
        bridge(prefix, to, like),
    ]


def bridge(prefix: str, to: str, like: str) -> Code:
    """How Hugging Face weights are converted: two switches as one word."""
    keys = (f"{prefix}.use_mbridge", f"{prefix}.vanilla_mbridge")

    def read(view: Reading) -> Iterator[Flow]:
        used = tuple(view.path(key) for key in keys)
        word = "builtin" if not view.get(keys[0]) else "mbridge" if view.get(keys[1]) else "megatron_bridge"
        yield Flow(view.to(f"{to}.bridge"), word, used)

    def write(view: Writing) -> Iterator[Out]:
        word = view.get(f"{to}.bridge")
        used = (view.to(f"{to}.bridge"),)
        if isinstance(word, Absent) or word == "auto":
            return
        yield Flow(view.path(keys[0]), word != "builtin", used)
        if word != "builtin":
            yield Flow(view.path(keys[1]), word == "mbridge", used)

    first = Like(f"{like}.use_mbridge") if like else By({"0.3": False, "0.8": True})
    second = Like(f"{like}.vanilla_mbridge") if like else By({"0.3": True, "0.9": False})
    own = (K(keys[0], first), K(keys[1], second))
    return Code(f"bridge of {prefix}", own, (f"{to}.bridge",), read, write, "use_mbridge, vanilla_mbridge")


def other_engine(prefix: str, to: str, *names: str) -> list[Rule]:
    """Blocks of engines that rlctl only translates."""
    return [Tree(f"{prefix}.{name}", f"{to}.args") for name in names]


def micro(
    to: str,
    *,
    dynamic: str,
    tokens: str,
    responses: str,
    total: str = "",
    like: Mapping[str, str] | None = None,
    default: Any = None,
    engine: str = "train.engine",
) -> Code:
    """A micro-batch: a switch, a number of tokens a GPU, a number of sequences a GPU."""
    follow = like or {}

    def read(view: Reading) -> Iterator[Flow]:
        used = tuple(view.path(key) for key in (dynamic, tokens, responses, total) if key)
        written = view.written(*(key for key in (dynamic, tokens, responses, total) if key))
        if follow and not written:
            yield Flow(view.to(to), None, ())
            return
        by_tokens = bool(view.get(dynamic, False))
        size = view.get(tokens) if by_tokens else view.get(responses)
        if not by_tokens and size is None and total and view.get(total) is not None:
            size = max(1, int(view.get(total)) // _devices(view))
            yield Flow((), None, (view.path(total),), "derived", "divided by the devices")
        if size is None:
            if follow:
                yield Flow(view.to(to), None, used)
            else:
                yield Flow((), None, used, "mapped", "verl asks for a size; rlctl takes its own")
            return
        factor = _share(view) if by_tokens else 1
        note = f"tokens of one GPU x {factor} GPUs of a replica" if factor > 1 else ""
        how: Any = "derived" if factor > 1 else "mapped"
        if follow:
            yield Flow(view.to(to), {}, used)
        yield Flow(view.to(f"{to}.by"), "tokens" if by_tokens else "responses", (used[0],))
        yield Flow(view.to(f"{to}.per_replica"), size * factor if isinstance(size, int) else size, used[1:], how, note)
        unread = responses if by_tokens else tokens
        yield Flow((), None, (view.path(unread),), "dead", f"{dynamic} is {str(by_tokens).lower()}")

    def write(view: Writing) -> Iterator[Out]:
        section = view.get(to)
        if not isinstance(section, Mapping):
            return
        by, size = section["by"], section["per_replica"]
        keys = (view.to(f"{to}.by"), view.to(f"{to}.per_replica"))
        yield Flow(view.path(dynamic), by == "tokens", keys[:1])
        if by == "tokens":
            factor = _share_written(view)
            yield Flow(view.path(tokens), max(1, size // factor), keys[1:], "derived" if factor > 1 else "mapped")
        else:
            yield Flow(view.path(responses), size, keys[1:], same=True)

    own = (
        K(dynamic, Like(follow["dynamic"]) if "dynamic" in follow else False),
        K(tokens, Like(follow["tokens"]) if "tokens" in follow else default),
        K(responses, None),
        *((K(total, None),) if total else ()),
    )
    return Code(
        f"micro-batch {to}", own, (to, f"{to}.by", f"{to}.per_replica"), read, write, "tokens a GPU x GPUs of a replica"
    )


SHARES = (
    "actor_rollout_ref.actor.megatron.context_parallel_size",
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size",
    "engine.context_parallel_size",
    "engine.ulysses_sequence_parallel_size",
)


def _share(view: Reading) -> int:
    """GPUs that share one sequence, whose tokens verl counts on each of them."""
    sizes = [view.get(key) for key in SHARES if view.written(key)]
    return next((size for size in sizes if isinstance(size, int) and size > 1), 1)


def _share_written(view: Writing) -> int:
    engine = view.get("train.engine")
    return int(engine.get("sequence_parallel", 1) if engine["name"] == "fsdp2" else engine.get("context", 1))


def _devices(view: Reading) -> int:
    return int(view.get("trainer.nnodes", 1)) * int(view.get("trainer.n_gpus_per_node", 8))
