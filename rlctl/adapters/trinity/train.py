"""Trinity: optimizer, schedule and engine of the policy, and the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    Like,
    Lost,
    Out,
    Reading,
    Rule,
    Section,
    Tree,
    When,
    Writing,
)
from rlctl.adapters.trinity.keys import ACTOR, MODEL, REF, TC
from rlctl.adapters.trinity.model import lengths
from rlctl.adapters.values import (
    DTYPES,
    LONG_DTYPES,
    Listed,
    Names,
    Off,
    Partly,
    offload,
)


def _read_engine(view: Reading) -> Iterator[Flow]:
    own = f"{ACTOR}.strategy"
    key = own if view.written(own) else "trainer.trainer_strategy"
    kind = str(view.get(key))
    yield Flow(view.to("train.engine.name"), "megatron" if kind == "megatron" else "fsdp2", (view.path(key),))
    if kind in ("fsdp", "fsdp2"):
        yield Flow(view.to("train.engine.source"), kind, (view.path(key),))


def _write_engine(view: Writing) -> Iterator[Out]:
    name, used = view.get("train.engine.name"), (view.to("train.engine.name"), view.to("train.engine.source"))
    if name == "fsdp2":
        source = view.get("train.engine.source")
        known = source in ("fsdp", "fsdp2")
        yield Flow(
            view.path("trainer.trainer_strategy"), source if known else "fsdp2", used, "mapped" if known else "derived"
        )
    elif name == "megatron":
        yield Flow(view.path("trainer.trainer_strategy"), "megatron", used[:1], always=True)
    else:
        yield Lost(
            (used[0], view.to("train.engine.kind")),
            f"Trinity has no {view.get('train.engine.kind')}; its own engine is used",
        )


def _read_offload(view: Reading) -> Iterator[Flow]:
    megatron = view.get("trainer.trainer_strategy") == "megatron"
    block = f"{ACTOR}.{'megatron' if megatron else 'fsdp_config'}"
    both, used = [], []
    for name in ("param_offload", "optimizer_offload"):
        key = next((key for key in (f"trainer.{name}", f"{block}.{name}") if view.written(key)), f"{block}.{name}")
        both.append(bool(view.get(key, False)))
        used.append(view.path(key))
    yield Flow(view.to("train.engine.offload"), offload(*both), tuple(used))


def _write_offload(view: Writing) -> Iterator[Out]:
    word = view.get("train.engine.offload")
    if isinstance(word, Absent):
        return
    block = "megatron" if view.get("train.engine.name") == "megatron" else "fsdp_config"
    root = "trainer" if view.version >= (0, 6) else f"{ACTOR}.{block}"
    used = (view.to("train.engine.offload"),)
    yield Flow(view.path(f"{root}.param_offload"), word in ("parameters", "both"), used)
    yield Flow(view.path(f"{root}.optimizer_offload"), word in ("optimizer", "both"), used)


def _read_micro(view: Reading) -> Iterator[Flow]:
    dynamic = bool(view.get("trainer.use_dynamic_bsz"))
    sequence = view.get("trainer.ulysses_sequence_parallel_size")
    share = sequence if isinstance(sequence, int) and sequence > 1 else 1
    switch, tokens = view.path("trainer.use_dynamic_bsz"), view.path("trainer.max_token_len_per_gpu")
    rows = (view.path(f"{ACTOR}.ppo_micro_batch_size_per_gpu"),)
    yield Flow(view.to("batch.micro.by"), "tokens" if dynamic else "responses", (switch,))
    if not dynamic:
        yield Flow(
            view.to("batch.micro.per_replica"), view.get(f"{ACTOR}.ppo_micro_batch_size_per_gpu"), rows, same=True
        )
        yield Flow((), None, (tokens,), "dead", "use_dynamic_bsz is false")
        return
    limit = view.get("trainer.max_token_len_per_gpu")
    total, prompt, response = lengths(view)
    longest = total or (prompt + response if isinstance(prompt, int) and isinstance(response, int) else None)
    how: How = "derived" if share > 1 or limit is None else "mapped"
    if isinstance(limit, int):
        value = limit * share
        note = f"{limit} tokens of a GPU x {share}" if share > 1 else ""
        yield Flow(view.to("batch.micro.per_replica"), value, (tokens,), how, note, same=share == 1)
    elif isinstance(longest, int):
        yield Flow(
            view.to("batch.micro.per_replica"),
            2 * longest,
            (tokens,),
            "derived",
            "twice the longest sequence, as Trinity sets it",
        )
    yield Flow((), None, rows, "dead", "use_dynamic_bsz is true")


def _write_micro(view: Writing) -> Iterator[Out]:
    micro = view.get("batch.micro")
    by, size = (view.to("batch.micro.by"),), (view.to("batch.micro.per_replica"),)
    yield Flow(view.path("trainer.use_dynamic_bsz"), micro["by"] == "tokens", by, always=True)
    if micro["by"] == "responses":
        yield Flow(
            view.path(f"{ACTOR}.ppo_micro_batch_size_per_gpu"), micro["per_replica"], size, same=True, always=True
        )
        return
    engine = view.get("train.engine")
    share = int(engine.get("sequence_parallel", 1)) if engine["name"] == "fsdp2" else 1
    note = f"{micro['per_replica']} tokens of a replica / {share} GPUs" if share > 1 else ""
    yield Flow(
        view.path("trainer.max_token_len_per_gpu"),
        max(1, micro["per_replica"] // share),
        size,
        "derived" if share > 1 else "mapped",
        note,
        same=share == 1,
        always=True,
    )


def other_micro(name: str, to: str, dynamic: str, tokens: str, responses: str) -> Code:
    def read(view: Reading) -> Iterator[Flow]:
        used = tuple(view.path(key) for key in (dynamic, tokens, responses))
        if not view.written(dynamic, tokens, responses):
            yield Flow(view.to(to), None, ())
            return
        on = view.get(dynamic)
        on = view.get("trainer.use_dynamic_bsz") if on is None else on
        size = view.get(tokens if on else responses)
        if not isinstance(size, int):
            yield Flow(view.to(to), None, used, "dead", f"use_dynamic_bsz is {str(bool(on)).lower()}")
            return
        yield Flow(view.to(to), {}, used)
        yield Flow(view.to(f"{to}.by"), "tokens" if on else "responses", used[:1])
        yield Flow(view.to(f"{to}.per_replica"), size, (used[1] if on else used[2],), same=True)
        yield Flow((), None, (used[2] if on else used[1],), "dead", f"use_dynamic_bsz is {str(bool(on)).lower()}")

    def write(view: Writing) -> Iterator[Out]:
        micro = view.get(to)
        if not isinstance(micro, Mapping):
            return
        by, size = (view.to(f"{to}.by"),), (view.to(f"{to}.per_replica"),)
        yield Flow(view.path(dynamic), micro["by"] == "tokens", by, always=True)
        key = tokens if micro["by"] == "tokens" else responses
        yield Flow(view.path(key), micro["per_replica"], size, same=True, always=True)

    own = (K(dynamic, None), K(tokens, None), K(responses, None))
    return Code(name, own, (to, f"{to}.by", f"{to}.per_replica"), read, write)


def _read_warmup(view: Reading) -> Iterator[Flow]:
    root = "algorithm.optimizer"
    ticks = view.get(f"{root}.lr_warmup_steps")
    used = (view.path(f"{root}.lr_warmup_steps"),)
    yield Flow(
        view.to("train.learning_rate_schedule.warmup.ticks"),
        ticks if isinstance(ticks, int) and ticks > 0 else None,
        used,
        same=isinstance(ticks, int) and ticks > 0,
    )
    yield Flow(view.to("train.learning_rate_schedule.tick"), "optimizer_step", ())


def _write_warmup(view: Writing) -> Iterator[Out]:
    from rlctl.adapters.trinity.batch import factor

    schedule = view.config.train.learning_rate_schedule
    used = (view.to("train.learning_rate_schedule.warmup.ticks"),)
    tick = (view.to("train.learning_rate_schedule.tick"),)
    each = factor(view) if schedule.tick == "step" else 1
    ticks = schedule.warmup.ticks
    epochs = view.config.batch.ppo_epochs if schedule.tick == "optimizer_step" else 1
    value = -1 if ticks is None else int(-(-ticks * each // epochs))
    note = f"{ticks} steps x {each}" if ticks and each > 1 else ""
    yield Flow(
        view.path("algorithm.optimizer.lr_warmup_steps"),
        value,
        used,
        "derived" if note else "mapped",
        note,
        same=value == ticks,
    )
    yield Flow((), None, tick, "mapped", "Trinity moves the schedule once a train step")
    relative = schedule.warmup.ratio or schedule.name == "cosine"
    if relative and view.config.schedule.total_steps is None and view.config.schedule.total_optimizer_steps is None:
        reason = "Trinity takes ratios and cosines of trainer.total_steps, which is not set: the learning rate would hardly move"
        yield Lost(
            (
                view.to("train.learning_rate_schedule.warmup.ratio")
                if schedule.warmup.ratio
                else view.to("train.learning_rate_schedule.name"),
            ),
            reason,
        )


MEGATRON = (
    ("tensor_model_parallel_size", "tensor", 1),
    ("pipeline_model_parallel_size", "pipeline", 1),
    ("virtual_pipeline_model_parallel_size", "virtual_pipeline", None),
    ("context_parallel_size", "context", 1),
    ("expert_model_parallel_size", "expert", 1),
    ("expert_tensor_parallel_size", "expert_tensor", None),
)


SCHEDULE = Names({"constant": "constant", "cosine": "cosine"}, "Trinity's schedules are constant and cosine")


def _read_ref_engine(view: Reading) -> Iterator[Flow]:
    kind = str(view.get(f"{REF}.strategy") or view.get("trainer.trainer_strategy"))
    yield Flow(
        view.to("reference.engine.name"), "megatron" if kind == "megatron" else "fsdp2", (view.path(f"{REF}.strategy"),)
    )
    if kind in ("fsdp", "fsdp2"):
        yield Flow(view.to("reference.engine.source"), kind, (view.path(f"{REF}.strategy"),))


def _write_ref_engine(view: Writing) -> Iterator[Out]:
    name, source = view.get("reference.engine.name"), view.get("reference.engine.source")
    used = (view.to("reference.engine.name"), view.to("reference.engine.source"))
    kind = "megatron" if name == "megatron" else source if source in ("fsdp", "fsdp2") else "fsdp2"
    policy = view.get("train.engine.name"), view.get("train.engine.source")
    how: How = "mapped" if name == "megatron" or source in ("fsdp", "fsdp2") else "derived"
    yield (
        Flow((), None, used, "mapped", "the policy's")
        if (name, source) == policy
        else Flow(view.path(f"{REF}.strategy"), kind, used, how)
    )


TRAINER: list[Rule] = [
    Key("algorithm.optimizer.lr", "train.optimizer.learning_rate", 1e-6, always=True),
    Key("algorithm.optimizer.weight_decay", "train.optimizer.weight_decay", 0.01),
    Key("algorithm.optimizer.betas", "train.optimizer.betas", [0.9, 0.999], Listed()),
    Key("algorithm.optimizer.optimizer_type", "train.optimizer.name", "adam", Partly({"adam": "adamw"})),
    Key("algorithm.optimizer.clip_grad", "train.optimizer.max_grad_norm", 1.0, Off(0.0), since="0.6"),
    Key("trainer.grad_clip", "train.optimizer.max_grad_norm", 1.0, Off(0.0)),
    Key(
        "algorithm.optimizer.lr_scheduler_type",
        "train.learning_rate_schedule.name",
        "constant",
        SCHEDULE,
        also=(K("algorithm.optimizer.warmup_style", None),),
    ),
    Code(
        "warm-up",
        (K("algorithm.optimizer.lr_warmup_steps", -1),),
        ("train.learning_rate_schedule.warmup.ticks", "train.learning_rate_schedule.tick"),
        _read_warmup,
        _write_warmup,
        "ticks x k",
    ),
    Key("algorithm.optimizer.lr_warmup_steps_ratio", "train.learning_rate_schedule.warmup.ratio", 0.0, Off(0.0)),
    Key("algorithm.optimizer.min_lr_ratio", "train.learning_rate_schedule.min_ratio", 0.01),
    *[
        Dropped(f"train.optimizer.{name}", "Trinity's optimizer has no such key")
        for name in ["module", "epsilon", "weight_decay_style", "start_weight_decay", "end_weight_decay", "args"]
    ],
    *[
        Dropped(f"train.learning_rate_schedule.{name}", "Trinity's schedule has no such key")
        for name in [
            "warmup.start",
            "min_learning_rate",
            "cycles",
            "decay_ticks",
            "wsd_decay_ticks",
            "wsd_decay",
            "total_ticks",
            "restore_from_checkpoint",
        ]
    ],
    Code(
        "train engine",
        (K("trainer.trainer_strategy", By({"0.5": "fsdp", "0.6": "fsdp2"})), K(f"{ACTOR}.strategy", None)),
        ("train.engine.name", "train.engine.source", "train.engine.kind"),
        _read_engine,
        _write_engine,
    ),
    Code(
        "offload",
        (
            K("trainer.param_offload", False, "0.6"),
            K("trainer.optimizer_offload", False, "0.6"),
            *(
                K(f"{ACTOR}.{block}.{name}", False)
                for block in ("fsdp_config", "megatron")
                for name in ("param_offload", "optimizer_offload")
            ),
        ),
        ("train.engine.offload",),
        _read_offload,
        _write_offload,
    ),
    Key(
        "trainer.grad_offload",
        "train.engine.offload_gradients",
        ABSENT,
        since="0.6",
        also=(K(f"{ACTOR}.megatron.grad_offload"),),
    ),
    Key(
        "trainer.offload_policy",
        "train.engine.cpu_offload_policy",
        False,
        since="0.6",
        also=(K(f"{ACTOR}.fsdp_config.offload_policy", False),),
    ),
    Key(f"{ACTOR}.fsdp_config.fsdp_size", "train.engine.shard", -1, Partly({-1: "all"})),
    Key(f"{ACTOR}.fsdp_config.reshard_after_forward", "train.engine.reshard_after_forward", True),
    Key(f"{ACTOR}.fsdp_config.forward_prefetch", "train.engine.forward_prefetch", False),
    Key(f"{ACTOR}.fsdp_config.wrap_policy.min_num_params", "train.engine.wrap_min_parameters", 0),
    Key(f"{ACTOR}.fsdp_config.model_dtype", "train.precision.parameters", ABSENT, DTYPES, quiet=True),
    Key(f"{ACTOR}.fsdp_config.dtype", "train.precision.compute", "bfloat16", LONG_DTYPES),
    When(
        (Key("trainer.ulysses_sequence_parallel_size", "train.engine.sequence_parallel", 1),),
        lambda view: view.get("trainer.trainer_strategy") != "megatron",
        lambda view: bool(view.get("train.engine.name") == "fsdp2"),
        "the trainer is Megatron",
    ),
    Key(
        "trainer.megatron.sequence_parallel",
        "train.engine.sequence_parallel",
        ABSENT,
        since="0.6",
        also=(K(f"{ACTOR}.megatron.sequence_parallel"),),
        write_when=lambda view: view.get("train.engine.name") == "megatron",
    ),
    *[
        Key(
            f"trainer.megatron.{key}",
            f"train.engine.{field}",
            ABSENT,
            since="0.6",
            also=(K(f"{ACTOR}.megatron.{key}"),),
            write_when=lambda view: view.get("train.engine.name") == "megatron",
        )
        for key, field, _ in MEGATRON
    ],
    Key(f"{ACTOR}.megatron.use_distributed_optimizer", "train.engine.distributed_optimizer"),
    Key(f"{ACTOR}.megatron.use_dist_checkpointing", "train.engine.distributed_checkpointing", ABSENT),
    Key(f"{ACTOR}.megatron.dist_checkpointing_path", "train.engine.checkpoint_path"),
    *[
        Key(
            f"{ACTOR}.megatron.override_transformer_config.{key}",
            f"train.engine.{field}",
            ABSENT,
            Partly({None: "none"}) if field.endswith("granularity") else Partly({}),
        )
        for key, field in (
            ("recompute_granularity", "recompute_granularity"),
            ("recompute_method", "recompute_method"),
            ("recompute_num_layers", "recompute_layers"),
            ("recompute_modules", "recompute_modules"),
        )
    ],
    Tree(f"{ACTOR}.megatron.override_ddp_config", "train.engine.ddp"),
    *[
        Dropped(f"train.engine.{name}", "Trinity has no such key")
        for name in [
            "wrap_layers",
            "expert_parallel",
            "source_args",
            "overlap_gradient_reduce",
            "overlap_parameter_gather",
            "moe.dispatcher",
            "moe.grouped_gemm",
            "moe.shared_expert_overlap",
            "moe.layer_recompute",
            "moe.freeze_router",
            "sequence_packing",
            "bridge",
            "transformer",
            "optimizer_overrides",
            "args",
        ]
    ],
    Dropped("train.precision.reduce", "Trinity reduces in float32"),
    Code(
        "micro-batch",
        (
            K("trainer.use_dynamic_bsz", True),
            K("trainer.max_token_len_per_gpu", None),
            K(f"{ACTOR}.ppo_micro_batch_size_per_gpu", 1),
        ),
        ("batch.micro.by", "batch.micro.per_replica"),
        _read_micro,
        _write_micro,
        "tokens a GPU x GPUs of a replica",
    ),
    other_micro(
        "log-prob micro-batch",
        "reference.micro",
        f"{REF}.log_prob_use_dynamic_bsz",
        f"{REF}.log_prob_max_token_len_per_gpu",
        f"{REF}.log_prob_micro_batch_size_per_gpu",
    ),
    other_micro(
        "rollout log-prob micro-batch",
        "batch.log_prob_micro",
        f"{TC}.actor_rollout_ref.rollout.log_prob_use_dynamic_bsz",
        f"{TC}.actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu",
        f"{TC}.actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
    ),
    Key(f"{MODEL}.enable_gradient_checkpointing", "train.memory.recompute_activations", True),
    Key(f"{MODEL}.enable_activation_offload", "train.memory.offload_activations", False),
    Key(
        "trainer.use_remove_padding",
        "train.memory.remove_padding",
        True,
        since="0.6",
        also=(K(f"{MODEL}.use_remove_padding", True),),
    ),
    Key(f"{MODEL}.use_fused_kernels", "train.fused_kernels.enabled", False),
    Key(f"{MODEL}.fused_kernel_options.impl_backend", "train.fused_kernels.backend", None, Partly({None: "torch"})),
    Key(f"{ACTOR}.entropy_from_logits_with_chunking", "train.memory.entropy_chunked", False),
    Key(f"{ACTOR}.entropy_checkpointing", "train.memory.entropy_recompute", False),
    *[
        Dropped(name, "Trinity decides it")
        for name in (
            "train.memory.recompute_reentrant",
            "train.memory.empty_cache",
            "train.fused_kernels.liger",
            "train.fused_kernels.prefix_grouping",
            "train.compile",
            "train.seed",
        )
    ],
    Section(
        "reference.engine",
        (
            Key(
                f"{REF}.fsdp_config.param_offload",
                "reference.engine.offload",
                False,
                Partly({True: "parameters", False: "none"}),
            ),
            Key(f"{REF}.fsdp_config.fsdp_size", "reference.engine.shard", -1, Partly({-1: "all"})),
            Key(f"{REF}.fsdp_config.reshard_after_forward", "reference.engine.reshard_after_forward", True),
            Key(f"{REF}.fsdp_config.forward_prefetch", "reference.engine.forward_prefetch", False),
            Key(f"{REF}.fsdp_config.wrap_policy.min_num_params", "reference.engine.wrap_min_parameters", 0),
            Key(
                f"{REF}.ulysses_sequence_parallel_size",
                "reference.engine.sequence_parallel",
                Like("trainer.ulysses_sequence_parallel_size"),
            ),
            Code(
                "reference engine",
                (K(f"{REF}.strategy", None),),
                ("reference.engine.name", "reference.engine.source", "reference.engine.kind"),
                lambda view: _read_ref_engine(view),
                lambda view: _write_ref_engine(view),
            ),
        ),
    ),
    Dropped("reference.engine.**", "Trinity has no such key for the reference"),
    Dropped("reference.precision", "Trinity's reference has the policy's types", None),
    Dropped("reference.precision.**", "Trinity's reference has the policy's types"),
    Dropped("reference.compile", "Trinity decides it", None),
    Dropped("reference.model", "Trinity's reference is the policy's start", None),
    Dropped("reference.model.**", "Trinity's reference is the policy's start"),
]
