"""verl: how the policy, the critic and the reference are trained and held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.combined_rows import OneOf
from rlctl.adapters.engine.conditions import negated
from rlctl.adapters.engine.rules import (
    ABSENT,
    FROM_SCHEMA,
    NO_KEY,
    Calculation,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    InexpressibleError,
    Key,
    Out,
    Reading,
    Rule,
    Section,
    Tree,
    When,
    Writing,
)
from rlctl.adapters.engine.values import AGGREGATIONS, DTYPES, Listed, Names, NullReads, Partly, Unclipped
from rlctl.adapters.verl.batch import Prompts
from rlctl.adapters.verl.optim import optimizer, schedule
from rlctl.adapters.verl.roles import ACTOR, SFT_OLD, Role, sequence_parallel, under
from rlctl.adapters.verl.roles import CRITIC as CRITIC_ROLE
from rlctl.adapters.verl.roles import REFERENCE as REFERENCE_ROLE
from rlctl.adapters.verl.training_engine import (
    DTYPES_LONG,
    fsdp,
    megatron,
    micro,
    micro_size,
    precision,
    strategy,
    unread_sizes,
)
from rlctl.adapters.verl_trainer.fsdp import offloads, sharding
from rlctl.common.messages.reasons import said

A = "actor_rollout_ref.actor"
M = "actor_rollout_ref.model"
REF = "actor_rollout_ref.ref"
ATTENTION = Names(
    {
        None: "auto",
        "eager": "eager",
        "sdpa": "sdpa",
        "flash_attention_2": "flash_attention_2",
        "flash_attention_3": "flash_attention_3",
        "flex_attention": "flex_attention",
    }
)


def lora(prefix: str, to: str, role: Role) -> list[Rule]:
    """The LoRA keys of a model block: flat ones, and since 0.7 a block that Megatron alone reads."""
    m, c = f"{prefix}.", f"{to}."
    old = role is SFT_OLD
    flat = (
        _rank(f"{m}lora_rank", f"{m}lora_adapter_path", to),
        Key(f"{m}lora_alpha", f"{c}alpha"),
        Key(f"{m}target_modules", f"{c}target_modules", convert=Listed(single=True, commas=True)),
        Key(f"{m}exclude_modules", f"{c}exclude_modules", convert=Listed()),
        # SFT's old config has none, and 0.6.1 trainer/fsdp_sft_trainer.py, FSDPSFTTrainer reads it
        Key(f"{m}lora_adapter_path", f"{c}adapter_path", ABSENT if old else FROM_SCHEMA, since="0.6" if old else ""),
    )
    block = (
        _rank(f"{m}lora.rank", f"{m}lora.adapter_path", to),
        Key(f"{m}lora.alpha", f"{c}alpha"),
        Key(f"{m}lora.target_modules", f"{c}target_modules", convert=MegatronTargets()),
        Key(f"{m}lora.exclude_modules", f"{c}exclude_modules", convert=Listed(empty=[])),
        Key(f"{m}lora.adapter_path", f"{c}adapter_path"),
    )

    def reads_block(view: Reading) -> bool:
        return view.version >= (0, 7) and role.kind(view) == "megatron"

    def writes_block(view: Writing) -> bool:
        engine = view.get(f"{role.to}.type") or view.get("train.engine.type")
        return view.version >= (0, 7) and engine == "megatron"

    return [
        When(flat, negated(reads_block), negated(writes_block), "Megatron reads the block model.lora"),
        When(block, reads_block, writes_block, "only Megatron reads this block"),
        Key(f"{m}lora.dropout", f"{c}dropout"),
        Key(f"{m}lora.merge", f"{c}merge_for_rollout"),
        Key(f"{m}lora.dtype", f"{c}dtype", convert=Partly({None: "auto"})),
        Dropped(f"{c}name", "verl has no adapter names"),
        Dropped(f"{c}base_model", "verl has no key for the base model's name"),
    ]


MEGATRON_LINEAR = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
"""Every linear layer of a Megatron model."""


class MegatronTargets(Listed):
    """Layers by Megatron's names, of which some hold several of Transformers'."""

    def read(self, value: Any, view: Reading) -> Any:
        return ["all-linear"] if value is None or set(value) == set(MEGATRON_LINEAR) else super().read(value, view)

    def write(self, value: Any, view: Writing) -> Any:
        if list(value) == ["all-linear"]:
            return list(MEGATRON_LINEAR)
        if any(name.endswith("_proj") for name in value):
            raise InexpressibleError(
                "Megatron names layers linear_qkv, linear_proj, linear_fc1 and linear_fc2; all get adapters"
            )
        return super().write(value, view)


def _rank(key: str, adapter: str, to: str) -> CustomRule:
    def read(view: Reading) -> Iterator[Flow]:
        rank, used = view.get(key) or 0, (view.path(key),)
        if view.get(adapter) and rank == 0:
            yield Flow(view.to(to), {}, ())
            return
        if not isinstance(rank, int) or rank <= 0:
            yield Flow(view.to(to), None, used)
            return
        yield Flow(view.to(to), {}, used)
        yield Flow(view.to(f"{to}.rank"), rank, used, same=True)

    def write(view: Writing) -> Iterator[Out]:
        rank = view.get(f"{to}.rank")
        used = (view.to(f"{to}.rank"),)
        if view.version < (0, 4):
            if isinstance(rank, int):
                yield Inexpressible(used, "verl has LoRA since 0.4")
        elif not isinstance(rank, int):
            yield Flow(view.path(key), 0, (view.to(to),))
        elif view.get(f"{to}.adapter_path") and not view.explicit(f"{to}.rank"):
            yield Flow((), None, used, "mapped", "the adapter's default")
        else:
            yield Flow(view.path(key), rank, used, same=True)

    return CustomRule(
        key,
        (DialectKey(key),),
        (to, f"{to}.rank"),
        read,
        write,
        why="The section is there if the rank is above 0, or an adapter is named.",
    )


def model(prefix: str, to: str, role: Role, *, path: str = "path", templates: bool = True) -> list[Rule]:
    """The keys of a model block that say what the model is, with or without ``templates`` of chats."""
    m, c = f"{prefix}.", f"{to}."
    return [
        Key(f"{m}{path}", f"{c}path", ABSENT, always=True),
        Key(f"{m}trust_remote_code", f"{c}trust_remote_code"),
        Key(
            f"{m}external_lib",
            f"{c}import_modules",
            convert=Listed(single=True),
            also=(DialectKey(f"{m}external_libs", ABSENT),),
        ),
        Key(f"{m}override_config.attn_implementation", f"{c}attention", convert=ATTENTION),
        *([Key(f"{m}custom_chat_template", f"{c}chat_template")] if templates else []),
        Key(f"{m}use_shm", f"{c}stage_in_shared_memory"),
        _overrides(f"{m}override_config", f"{c}overrides"),
        *lora(prefix, f"{to}.lora", role),
    ]


def _overrides(key: str, to: str) -> CustomRule:
    """What is put over ``config.json``: all of ``override_config``, or what is under its ``model_config``, where that is written.

    Megatron's workers read only the latter until 0.7.
    """
    apart, own = ("attn_implementation", "moe_config"), f"{key}.model_config"

    def read(view: Reading) -> Iterator[Flow]:
        whole = view.get(key) if view.written(key) else None
        if not isinstance(whole, Mapping):
            return
        rest = {name: item for name, item in whole.items() if name not in (*apart, "model_config")}
        places = tuple((*view.path(key), name) for name in rest)
        if "model_config" in whole:
            yield Flow((), None, places, "dead", "verl reads override_config.model_config instead")
            rest, places = view.get(own) or {}, (view.path(own),)
        if rest:
            yield Flow(view.to(to), dict(rest), places, same=True)
        else:
            yield Flow((), None, places, "mapped", "is empty")

    def write(view: Writing) -> Iterator[Out]:
        value, used = view.get(to), (view.to(to),)
        place = own if view.get("train.engine.type") == "megatron" else key
        for name, item in value.items() if isinstance(value, Mapping) else ():
            yield Flow((*view.path(place), name), item, used)

    return CustomRule(
        f"overrides of {to}",
        (DialectKey(key), DialectKey(f"{key}.**")),
        (to,),
        read,
        write,
        why="One of its entries, if it is written, replaces all the others.",
    )


def frozen_router(model: str, block: str, role: Role) -> When:
    """Whether Megatron leaves routers untrained: a key of the model block, since 0.8 one of the engine's."""
    old = f"{model}.override_config.moe_config.freeze_moe_router"
    new = f"{block}.override_mcore_model_config.moe_config.freeze_moe_router"
    router = OneOf(
        # 0.7.1 workers/megatron_workers.py; 0.7.1 and 0.8.0 workers/engine/megatron/transformer_impl.py
        (DialectKey(old, False, until="0.7"), DialectKey(new, False, since="0.6")),
        f"{role.to}.moe.freeze_router",
        reads=lambda view: old if view.get(old) or view.version < (0, 6) else new,
        writes=lambda view: new if view.version >= (0, 8) else old,
    )
    return under("megatron", role, router)


PACKS = True
"""What Megatron does without ``use_remove_padding``: ``pack_seqs=True`` in ``verl/models/mcore/model_forward.py``."""


def memory(prefix: str, to: str, *, packs: Any = FROM_SCHEMA) -> list[Rule]:
    """The keys of a model block that trade memory for time; ``packs`` is None where packing has a key elsewhere."""
    m, c = f"{prefix}.", f"{to}."
    return [
        Key(f"{m}enable_gradient_checkpointing", f"{c}memory.recompute_activations"),
        Key(f"{m}enable_activation_offload", f"{c}memory.offload_activations"),
        # 0.4.1 models/mcore/model_forward.py: Megatron packs without it
        *([] if packs is None else [Key(f"{m}use_remove_padding", f"{c}packing", packs)]),
        Key(f"{m}use_liger", f"{c}fused_kernels.liger"),
        Key(f"{m}use_fused_kernels", f"{c}fused_kernels.enabled"),
        Key(
            f"{m}fused_kernel_options.impl_backend",
            f"{c}fused_kernels.backend",
            convert=NullReads("torch"),
        ),
        Dropped(f"{c}memory.recompute_reentrant", "verl recomputes non-reentrantly"),
        Dropped(f"{c}memory.empty_cache", "verl decides itself when to empty the cache"),
    ]


class VisionTower(Calculation):
    """The switch that verl 0.6 and 0.7 have for the vision tower, as patterns of its parameters' names."""

    def read(self, value: Any, view: Reading) -> Any:
        return list(VISION) if value is True else []

    def write(self, value: Any, view: Writing) -> Any:
        if all(pattern in (*VISION, *VISION_ELSEWHERE) for pattern in value):
            return bool(value)
        raise InexpressibleError(
            said("verl freezes the vision tower as a whole, not {patterns}", patterns=", ".join(value))
        )


VISION = ("visual*", "model.visual*")
"""The two names under which verl looks for a vision tower."""
VISION_ELSEWHERE = ("vision_model*", "vision_tower*", "model.vision_tower*")
"""What other frameworks and models call it."""
BLOCKS = {"veomni": "veomni", "torchtitan": "torchtitan", "mindspeed": "mindspeed", "mlite": "engine"}
"""Blocks of engines that rlctl only translates."""


def engines(prefix: str, role: Role, sharded: list[Rule], *, like: str = "", megatron_block: str = "") -> list[Rule]:
    """The blocks of the engines; those of an engine that is not chosen are dead."""
    return [
        under("fsdp2", role, *sharded),
        under("megatron", role, *megatron(megatron_block or f"{prefix}.megatron", role.to, like)),
        *[under(name, role, Tree(f"{prefix}.{block}", f"{role.to}.args")) for name, block in BLOCKS.items()],
    ]


def _has_vision_switch(view: Writing) -> bool:
    return (0, 6) <= view.version < (0, 8)


GROUP = ("model_engine",)
POLICY: list[Rule] = [
    *model(M, "model", ACTOR),
    *memory(M, "train", packs=PACKS),
    *[
        Dropped(
            f"model.rope.{name}",
            "verl has no key for it: set it in override_config of the model, and in engine_kwargs.vllm.hf_overrides",
        )
        for name in ("theta", "scaling")
    ],
    # 0.7.1 workers/config/model.py, MtpConfig
    Tree(f"{M}.mtp", "model.multi_token_prediction", default=None, switch="enable"),
    Dropped("model.modality", "verl decides by the model"),
    # 0.7.1 workers/fsdp_workers.py, _build_model_optimizer; 0.8.0 workers/config/actor.py alone has it
    Key(
        f"{A}.freeze_vision_tower",
        "model.freeze",
        convert=VisionTower(),
        until="0.7",
        write_when=_has_vision_switch,
    ),
    Dropped("model.freeze", "verl trains every parameter: since 0.8 it never reads freeze_vision_tower"),
    strategy(A, "train.engine", also=ACTOR.groups),
    *engines(A, ACTOR, [*fsdp(f"{A}.fsdp_config", "train.engine"), sequence_parallel(ACTOR)]),
    under("fsdp2", ACTOR, *precision(f"{A}.fsdp_config", "train")),
    under("megatron", ACTOR, Key(f"{A}.megatron.dtype", "train.precision.compute", convert=DTYPES_LONG)),
    Dropped("train.engine.expert_parallel_size", "verl's FSDP splits no experts"),
    frozen_router(M, f"{A}.megatron", ACTOR),
    Dropped("train.engine.args", "another engine's settings"),
    *optimizer(f"{A}.optim", ACTOR, clip=f"{A}.grad_clip"),
    *schedule(f"{A}.optim", ACTOR),
    Key(
        f"{A}.use_torch_compile",
        "train.compile",
        also=(DialectKey(f"{A}.fsdp_config.use_torch_compile", ABSENT),),
    ),
    Key(f"{A}.fsdp_config.seed", "train.seed", ABSENT),
    Key(f"{A}.fsdp_config.full_determinism", "run.deterministic"),
    Key(
        f"{A}.entropy_from_logits_with_chunking",
        "train.memory.entropy_chunked",
        also=(DialectKey(f"{A}.fsdp_config.entropy_from_logits_with_chunking", ABSENT),),
    ),
    Key(
        f"{A}.entropy_checkpointing",
        "train.memory.entropy_recompute",
        also=(DialectKey(f"{A}.fsdp_config.entropy_checkpointing", ABSENT),),
    ),
    Key(f"{A}.use_prefix_grouper", "train.fused_kernels.prefix_grouping", ABSENT),
]

REFERENCE: list[Rule] = [
    Section(
        "reference.engine",
        (
            strategy(REF, "reference.engine", also=GROUP, claims=False),
            *engines(
                REF,
                REFERENCE_ROLE,
                [*fsdp(f"{REF}.fsdp_config", "reference.engine"), sequence_parallel(REFERENCE_ROLE)],
                like=f"{A}.megatron",
            ),
        ),
    ),
    Section("reference.precision", tuple(precision(f"{REF}.fsdp_config", "reference"))),
    Key(
        f"{REF}.use_torch_compile",
        "reference.compile",
        ABSENT,
        also=(DialectKey(f"{REF}.fsdp_config.use_torch_compile", ABSENT),),
    ),
    Section("reference.model", (Key(f"{REF}.model.path", "reference.model.path", ABSENT),)),
]


# The critic is there where the estimator is gae, or where it is switched on.


def _read_critic(view: Reading) -> Iterator[Flow]:
    enabled = view.get("critic.enable")
    wanted = view.get("algorithm.adv_estimator") == "gae" if enabled is None else bool(enabled)
    yield Flow(view.to("critic"), {} if wanted else None, (view.path("critic.enable"),))


def _write_critic(view: Writing) -> Iterator[Out]:
    there = view.get("critic") is not None
    derived = view.config.algorithm.advantage.choice == "gae"
    if there != derived:
        yield Flow(view.path("critic.enable"), there, (view.to("critic"),))


def _read_critic_model(view: Reading) -> Iterator[Flow]:
    key = "critic.model.path"
    own = view.written(key) and view.get(key) != view.get(f"{M}.path")
    yield Flow(
        view.to("critic.model"),
        {} if own else None,
        (view.path(key),),
        "mapped",
        "" if own else "the same as the policy's",
    )
    if own:
        yield Flow(view.to("critic.model.path"), view.get(key), (view.path(key),), same=True)


def _write_critic_model(view: Writing) -> Iterator[Out]:
    if view.get("critic") is None:
        return
    own = view.get("critic.model.path")
    path, to = (own, "critic.model.path") if own else (view.config.model.path, "model.path")
    yield Flow(
        view.path("critic.model.path"),
        path,
        (view.to(to),),
        "mapped",
        "" if own else "the same as the policy's",
        same=True,
        always=True,
    )


C = "critic"
NESTED_OLD = f"{C}.model.fsdp_config"
CRITIC_SIZE, *CRITIC_SHARDING = sharding(f"{C}.fsdp", f"{C}.engine", older=NESTED_OLD)
CRITIC_FSDP: list[Rule] = [
    CRITIC_SIZE,
    Key(
        f"{C}.fsdp.offload_policy",
        f"{C}.engine.cpu_offload_policy",
        also=(DialectKey(f"{NESTED_OLD}.offload_policy"),),
    ),
    *CRITIC_SHARDING,
    offloads(f"{C}.fsdp", f"{C}.engine"),
    offloads(NESTED_OLD, f"{C}.engine"),
    sequence_parallel(CRITIC_ROLE),
]
FORWARD = f"{C}.forward_micro_batch"
VALUES_PASS = (
    f"{C}.forward_max_token_len_per_gpu",
    f"{C}.forward_micro_batch_size_per_gpu",
    f"{C}.forward_micro_batch_size",
)
"""Tokens of a GPU, responses of a GPU, responses of all GPUs: keys of the workers that verl 0.8 no longer has."""


def _read_values_pass(view: Reading) -> Iterator[Flow]:
    if not view.written(*VALUES_PASS):
        yield Flow(view.to(FORWARD), None, ())
        return
    dynamic = f"{C}.use_dynamic_bsz"
    counts_tokens, deciding, size, note = micro_size(view, dynamic, VALUES_PASS, CRITIC_ROLE)
    yield unread_sizes(view, dynamic, VALUES_PASS, deciding)
    used = (view.path(deciding),)
    if size is None:
        yield Flow(view.to(FORWARD), None, used)
        return
    yield Flow(view.to(FORWARD), {}, used)
    yield Flow(view.to(f"{FORWARD}.unit"), "tokens" if counts_tokens else "responses", ())
    yield Flow(view.to(f"{FORWARD}.size"), size, used, "derived" if note else "mapped", note)


def _write_values_pass(view: Writing) -> Iterator[Out]:
    section, trained = view.get(FORWARD), view.get(f"{C}.micro_batch")
    if not isinstance(section, Mapping):
        return
    keys = (view.to(f"{FORWARD}.unit"), view.to(f"{FORWARD}.size"))
    if view.version >= (0, 8):
        yield Inexpressible(keys, "verl no longer has a separate batch size for values", idle=True)
    elif isinstance(trained, Mapping) and trained["unit"] != section["unit"]:
        yield Inexpressible(keys, "verl counts the pass for values as it counts the critic's training", idle=True)
    elif section["unit"] == "tokens":
        yield Flow(view.path(VALUES_PASS[0]), max(1, section["size"] // CRITIC_ROLE.sharers_written(view)), keys)
    else:
        yield Flow(view.path(VALUES_PASS[1]), section["size"], keys)


CRITIC: list[Rule] = [
    CustomRule(
        "critic",
        (DialectKey(f"{C}.enable", takes=bool),),
        (C,),
        _read_critic,
        _write_critic,
        "adv_estimator gae, or enable",
        why="Without its switch the estimator decides, and the switch is written only to say otherwise.",
    ),
    Key(
        f"{C}.ppo_mini_batch_size",
        f"{C}.mini_batch_responses",
        convert=Prompts(),
        unset=None,
    ),
    Key(f"{C}.ppo_epochs", f"{C}.ppo_epochs", ABSENT),
    Key(f"{C}.shuffle", f"{C}.shuffle"),
    Key(f"{C}.data_loader_seed", f"{C}.shuffle_seed", ABSENT),
    Key(f"{C}.cliprange_value", f"{C}.value_loss.clip", convert=Unclipped()),
    Key(
        f"{C}.loss_agg_mode",
        f"{C}.value_loss.aggregation",
        convert=AGGREGATIONS,
    ),
    Dropped(f"{C}.value_loss.coefficient", "verl's critic has its own optimizer, so its loss has no weight"),
    micro(
        f"{C}.micro_batch",
        dynamic=f"{C}.use_dynamic_bsz",
        tokens=f"{C}.ppo_max_token_len_per_gpu",
        responses=f"{C}.ppo_micro_batch_size_per_gpu",
        total=f"{C}.ppo_micro_batch_size",
        like={"dynamic": f"{A}.use_dynamic_bsz"},
        role=CRITIC_ROLE,
    ),
    CustomRule(
        "critic's pass for values",
        # 0.7.1 workers/fsdp_workers.py, CriticWorker; 0.8.0 workers/engine_workers.py does not read them
        tuple(DialectKey(key, ABSENT, until="0.7") for key in VALUES_PASS),
        (FORWARD, f"{FORWARD}.unit", f"{FORWARD}.size"),
        _read_values_pass,
        _write_values_pass,
        "counted in tokens or responses as the critic's training is",
        by_key=dict.fromkeys(VALUES_PASS, f"{FORWARD}.size"),
        why="The unit of another key says which of three numbers counts, and one of them is shared by all GPUs.",
    ),
    CustomRule(
        "critic model",
        (DialectKey(f"{C}.model.path", ABSENT),),
        (f"{C}.model", f"{C}.model.path"),
        _read_critic_model,
        _write_critic_model,
        why="A path that is the policy's is not a separate model, and is written although the config has none.",
    ),
    *model(f"{C}.model", f"{C}.model", CRITIC_ROLE)[1:],
    Key(f"{C}.model.tokenizer_path", f"{C}.model.tokenizer", ABSENT),
    *memory(f"{C}.model", C, packs=PACKS),
    strategy(
        C,
        f"{C}.engine",
        also=GROUP,
        claims=False,
    ),
    *engines(C, CRITIC_ROLE, CRITIC_FSDP),
    frozen_router(f"{C}.model", f"{C}.megatron", CRITIC_ROLE),
    under(
        "fsdp2",
        CRITIC_ROLE,
        Key(f"{C}.fsdp.model_dtype", f"{C}.precision.parameters", convert=DTYPES),
        Key(f"{C}.fsdp.dtype", f"{C}.precision.compute", convert=DTYPES_LONG),
    ),
    *optimizer(f"{C}.optim", CRITIC_ROLE, clip=f"{C}.grad_clip"),
    *schedule(
        f"{C}.optim",
        CRITIC_ROLE,
    ),
    Key(f"{C}.fsdp.use_torch_compile", f"{C}.compile"),
    Key(f"{C}.fsdp.seed", f"{C}.seed", ABSENT),
    *[
        Dropped(f"{C}.{name}", NO_KEY)
        for name in [
            "precision.reduce",
            "engine.wrap_layers",
            "engine.source_args",
            "engine.expert_parallel_size",
            "engine.args",
            "memory.entropy_chunked",
            "memory.entropy_recompute",
            "fused_kernels.prefix_grouping",
            "model.max_context_tokens",
            "model.rope.theta",
            "model.rope.scaling",
            "model.modality",
            "model.freeze",
            "model.multi_token_prediction",
            "model.chat_template_args",
        ]
    ],
    Dropped("reference.engine.**", NO_KEY),
    Dropped("reference.model.**", "verl uses the policy's model block for the reference"),
]

RULES: list[Rule] = [*POLICY, *REFERENCE, *CRITIC]
