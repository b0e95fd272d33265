"""ROLL's strategies that train or score: Megatron, FSDP2, DeepSpeed of older files, and Hugging Face without an engine.

A worker's ``strategy_config`` goes to the engine: Megatron takes it as arguments over ``training_args`` (and stops at one it
does not have), FSDP2 looks its own keys up and passes over all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.conditions import always
from rlctl.adapters.engine.one_sided_rows import FollowsFrom, OtherEntries
from rlctl.adapters.engine.rules import (
    ABSENT,
    Absent,
    BadValueError,
    Computed,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    InexpressibleError,
    Key,
    Out,
    Provenance,
    Reading,
    Rule,
    Same,
    When,
    Writing,
)
from rlctl.adapters.engine.values import Listed, Names, NullReads, Partly, offload
from rlctl.adapters.roll.workers import (
    DEEPSPEED,
    FSDP2,
    HUGGING_FACE,
    MEGATRON,
    engine_written,
    strategy,
    trained_devices,
)
from rlctl.common.messages.reasons import said
from rlctl.common.records import record

TRANSFORMER = (
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
    "pipeline_model_parallel_layout",
    "overlap_p2p_comm",
    "variable_seq_lengths",
    "bias_activation_fusion",
    "apply_rope_fusion",
    "cross_entropy_loss_fusion",
    "moe_aux_loss_coeff",
    "moe_expert_capacity_factor",
    "moe_pad_expert_input_to_capacity",
    "moe_token_drop_policy",
    "moe_enable_routing_replay",
    "moe_router_dtype",
    "mtp_num_layers",
    "calculate_per_token_loss",
    "transformer_impl",
    "cuda_graph_impl",
    "cuda_graph_scope",
    "fp8",
    "fp8_recipe",
    "fp8_param",
)
"""Keys of ``strategy_config`` that Megatron's TransformerConfig has by the same name; others go into ``additional_configs``."""
DDP = {"check_for_nan_in_loss_and_grad": "check_for_nan_in_grad", "ddp_bucket_size": "bucket_size"}
DEEPSPEED_KEYS = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "fp16.**",
    "bf16.**",
    "zero_optimization.**",
)


def is_strategy(names: tuple[str, ...], worker: str) -> Any:
    """Whether a worker's strategy is one of these, of a text."""
    return lambda view: strategy(view, worker) in names


def is_engine(name: str, to: str) -> Any:
    """Whether the engine at a canonical place is this one, and ROLL runs it there."""
    return lambda view: view.get(f"{to}.type") == name == engine_written(view, to) and not unsharded(view, to)


def unsharded(view: Writing, to: str) -> bool:
    """Whether each device holds the whole reference, which ROLL does without an engine."""
    return to.startswith("reference") and view.get(f"{to}.type") == "fsdp2" and view.get(f"{to}.fsdp_size") == 1


def under(names: tuple[str, ...], worker: str, to: str, engine: str, rules: list[Rule]) -> When:
    """Rules of one kind of strategy."""
    reason = said("the strategy is not {names}", names=" or ".join(names))
    return When(tuple(rules), is_strategy(names, worker), is_engine(engine, to), reason)


@record
class Only(Same):
    """A switch that ROLL has in one position."""

    value: bool = False
    reason: str = ""

    def write(self, value: Any, view: Writing) -> Any:
        if value != self.value:
            raise InexpressibleError(self.reason)
        return value


@record
class Some(Listed):
    """A list that is left out where it is empty."""

    def write(self, value: Any, view: Writing) -> Any:
        return list(value) if value else ABSENT


@record
class Joined(Listed):
    """A list that ROLL writes as one text with commas."""

    def read(self, value: Any, view: Reading) -> Any:
        return [item.strip() for item in value.split(",")] if isinstance(value, str) else super().read(value, view)

    def write(self, value: Any, view: Writing) -> Any:
        return ",".join(value) if value else ABSENT


@record
class Shards(Same):
    """FSDP2's size: 1 or less is all devices, because ROLL's FSDP2 always shards; with Ulysses the number is written.

    ROLL refuses a size below the devices that share a sequence; verl accepts it.
    """

    to: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        return value if isinstance(value, int) and value > 1 else "all"

    def write(self, value: Any, view: Writing) -> Any:
        shared = view.get(f"{self.to}.ulysses_sequence_parallel_size", 1)
        shared = shared if isinstance(shared, int) else 1
        if value == 1:
            raise InexpressibleError("ROLL's FSDP2 shards over all devices if fsdp_size is 1")
        if value == "all":
            return max(shared, trained_devices(view.config)) if shared > 1 else 1
        if value < shared:
            note = said("ROLL shards at least over the {shared} devices that share a sequence", shared=shared)
            return Computed(shared, note, always=True)
        return value


CHECKPOINTS = Names({"legacy": False, "torch_dist": True})


@record
class Checkpoints(Same):
    """The format of checkpoints, which ROLL itself sets to ``torch_dist`` where experts are split otherwise than all else.

    2026.8 mcore_adapter/training_args.py, MegatronArguments.__post_init__
    """

    section: str = ""
    to: str = ""

    def read(self, value: Any, view: Reading) -> Any:
        given = CHECKPOINTS.read(value, view)
        experts = view.get(f"{self.section}expert_tensor_parallel_size")
        if given or experts in (None, view.get(f"{self.section}tensor_model_parallel_size") or 1):
            return given
        note = "ROLL sets torch_dist, because expert_tensor_parallel_size is not tensor_model_parallel_size"
        return Computed(True, note)

    def write(self, value: Any, view: Writing) -> Any:
        experts = view.get(f"{self.to}.expert_tensor_parallel_size")
        differs = experts not in (None, ABSENT, view.get(f"{self.to}.tensor_parallel_size"))
        if value or not differs:
            return CHECKPOINTS.write(value, view)
        raise InexpressibleError(
            "ROLL saves in torch_dist where expert_tensor_parallel_size is not tensor_model_parallel_size"
        )


def named(worker: str, to: str, *, infers: bool = False, default: Any = "fsdp2_train") -> CustomRule:
    """Which engine a worker runs on: ``strategy_args.strategy_name``."""
    key, config = f"{worker}.strategy_args.strategy_name", f"{worker}.strategy_args.strategy_config"
    kind = "infer" if infers else "train"

    def read(view: Reading) -> Iterator[Flow]:
        name, used = strategy(view, worker), (view.path(key),)
        if view.written(config) and not view.get(config):
            yield Flow((), None, (view.path(config),), "mapped", "is empty")
        if name in MEGATRON:
            yield Flow(view.to(f"{to}.type"), "megatron", used)
        elif name in (*FSDP2, *DEEPSPEED):
            yield Flow(view.to(f"{to}.type"), "fsdp2", used)
            yield Flow(view.to(f"{to}.source"), "deepspeed" if name in DEEPSPEED else "fsdp2", used)
        elif name in HUGGING_FACE:
            yield Flow(view.to(f"{to}.type"), "fsdp2", used, "derived", "each device holds the whole model")
            yield Flow(view.to(f"{to}.fsdp_size"), 1, used, "derived")
        else:
            known = ", ".join((*MEGATRON, *FSDP2, *HUGGING_FACE))
            raise BadValueError(said("is {name!r}; expected one of {known}", name=name, known=known), key=used[0])

    def write(view: Writing) -> Iterator[Out]:
        name, used = view.get(f"{to}.type"), (view.to(f"{to}.type"), view.to(f"{to}.source"))
        if isinstance(name, Absent):
            return
        engine = engine_written(view, to)
        if name != engine:
            wanted = "Megatron critic" if name == "megatron" else name
            yield Inexpressible(used[:1], said("ROLL has no {wanted}. Wrote FSDP2", wanted=wanted))
        raw = f"{engine}_{kind}"
        how: Provenance = "mapped"
        note = ""
        if unsharded(view, to):
            raw = "hf_infer"
            yield Flow((), None, (view.to(f"{to}.fsdp_size"),), "mapped", "each device holds the whole model")
        elif name == "fsdp2" and view.get(f"{to}.source") != "fsdp2":
            how, note = "derived", said("ROLL has no {value}; FSDP2 is used", value=view.get(f"{to}.source"))
            yield Inexpressible(used[1:], note, idle=True)
        yield Flow(view.path(key), raw, used, how, note, always=True)

    fills = (f"{to}.type", f"{to}.source", f"{to}.fsdp_size")
    return CustomRule(
        f"engine of {worker}",
        # 2026.8 configs/worker_config.py, StrategyArguments
        (DialectKey(key, default), DialectKey(config, None)),
        fills,
        read,
        write,
        by_key={key: (f"{to}.type", f"{to}.source", f"{to}.fsdp_size")},
        why="A strategy names the engine, the variant of FSDP that it stood for and whether the model is sharded at all.",
    )


def sizes(worker: str, to: str) -> list[Rule]:
    """How a worker's model is spread: the part of its strategy that a reference has, too."""
    s = f"{worker}.strategy_args.strategy_config."
    return [
        under(
            MEGATRON,
            worker,
            to,
            "megatron",
            # 2026.8 mcore_adapter/training_args.py, DistributingParallelArguments; null leaves a size to Megatron, which is 1
            [
                Key(f"{s}tensor_model_parallel_size", f"{to}.tensor_parallel_size", 1, NullReads(1), always=True),
                Key(f"{s}pipeline_model_parallel_size", f"{to}.pipeline_parallel_size", 1, NullReads(1), always=True),
                Key(f"{s}virtual_pipeline_model_parallel_size", f"{to}.virtual_pipeline_parallel_size", None),
                Key(f"{s}context_parallel_size", f"{to}.context_parallel_size", 1, NullReads(1)),
                Key(f"{s}expert_model_parallel_size", f"{to}.expert_parallel_size", 1, NullReads(1)),
                Key(f"{s}expert_tensor_parallel_size", f"{to}.expert_tensor_parallel_size", None),
                Key(f"{s}sequence_parallel", f"{to}.sequence_parallel", False),
                # 2026.8 mcore_adapter/training_args.py, DistributingParallelArguments: allgather, which
                # verl's workers refuse; each framework has a dispatcher of its own where none is named
                Key(f"{s}moe_token_dispatcher_type", f"{to}.moe.dispatcher", None),
                Key(f"{s}moe_grouped_gemm", f"{to}.moe.grouped_gemm", False, NullReads(False)),
                Key(f"{s}moe_shared_expert_overlap", f"{to}.moe.shared_expert_overlap", False),
                _transformer(s, to),
            ],
        ),
        under(
            FSDP2,
            worker,
            to,
            "fsdp2",
            # 2026.8 distributed/strategy/fsdp2_strategy.py; reshard_after_forward is null, which reshards all but the root
            [
                Key(f"{s}fsdp_size", f"{to}.fsdp_size", 1, Shards(to=to)),
                Key(f"{s}offload_policy", f"{to}.cpu_offload_policy", False),
                Key(f"{s}reshard_after_forward", f"{to}.reshard_after_forward", True, NullReads(True)),
                Key(f"{s}wrap_policy.transformer_layer_cls_to_wrap", f"{to}.wrap_layers", convert=Some()),
                Key(f"{worker}.model_args.ulysses_size", f"{to}.ulysses_sequence_parallel_size", convert=NullReads(1)),
                Key(f"{s}ep_size", f"{to}.expert_parallel_size", 1),
            ],
        ),
    ]


def engine(worker: str, to: str, *, infers: bool = False, default: Any = "fsdp2_train") -> list[Rule]:
    """The strategy of a worker that trains, or of one that scores."""
    s = f"{worker}.strategy_args.strategy_config."

    def unasked(value: Any) -> Any:
        """What a training worker does unasked; of one that scores, silence says nothing."""
        return ABSENT if infers else value

    return [
        named(worker, to, infers=infers, default=default),
        *sizes(worker, to),
        under(
            MEGATRON,
            worker,
            to,
            "megatron",
            [
                # 2026.8 mcore_adapter/training_args.py, MegatronArguments
                Key(f"{s}use_distributed_optimizer", f"{to}.distributed_optimizer", unasked(False), quiet=infers),
                # 2026.8 mcore_adapter/training_args.py, MegatronArguments
                Key(f"{s}overlap_grad_reduce", f"{to}.overlap_gradient_reduce", unasked(False), quiet=infers),
                # 2026.8 mcore_adapter/training_args.py, MegatronArguments
                Key(
                    f"{s}overlap_param_gather",
                    f"{to}.overlap_parameter_gather",
                    unasked(False),
                    Only(
                        reason="ROLL offloads states to CPU memory, which Megatron cannot do with overlap_param_gather"
                    ),
                    quiet=infers,
                ),
                # 2026.8 mcore_adapter/training_args.py, DistributingParallelArguments
                Key(
                    f"{s}recompute_granularity",
                    f"{to}.recompute_granularity",
                    unasked(None),
                    Partly({None: "none"}),
                    quiet=infers,
                ),
                # 2026.8 mcore_adapter/training_args.py, DistributingParallelArguments
                Key(f"{s}recompute_method", f"{to}.recompute_method", None, Partly({"recompute": "block"})),
                # 2026.8 mcore_adapter/training_args.py, DistributingParallelArguments
                Key(f"{s}recompute_num_layers", f"{to}.recompute_layers", None),
                # 2026.8 mcore_adapter/training_args.py, DistributingParallelArguments
                Key(f"{s}recompute_modules", f"{to}.recompute_modules", None, Joined(), quiet=True),
                # 2026.8 mcore_adapter/training_args.py, DistributingParallelArguments
                Key(f"{s}moe_layer_recompute", f"{to}.moe.layer_recompute", unasked(False), quiet=infers),
                # 2026.8 mcore_adapter/training_args.py, MegatronArguments
                Key(
                    f"{s}ckpt_format",
                    f"{to}.distributed_checkpointing",
                    unasked("legacy"),
                    Checkpoints(section=s, to=to),
                    quiet=infers,
                ),
                *[Key(f"{s}{name}", f"{to}.ddp.{there}") for name, there in DDP.items()],
                OtherEntries(f"{to}.ddp", tuple(DDP.values()), "ROLL does not pass {name} to Megatron's DDP"),
            ],
        ),
        _deepspeed(worker, to),
        *[
            Dropped(f"{to}.{name}", reason, idle=True)
            for name, reason in (
                ("forward_prefetch", "ROLL's FSDP2 has no prefetch"),
                ("wrap_min_parameters", "ROLL wraps layers by their class"),
                ("bridge", "ROLL converts weights with its own adapter"),
            )
        ],
        *[
            Dropped(f"{to}.{name}", reason)
            for name, reason in (
                ("moe.freeze_router", "ROLL freezes modules by name, with freeze_module_prefix"),
                ("checkpoint_path", "ROLL starts from Hugging Face weights"),
                ("optimizer_overrides", "ROLL passes a fixed set of arguments to Megatron's optimizer"),
                ("args", "another engine's settings"),
            )
        ],
    ]


def _transformer(s: str, to: str) -> CustomRule:
    """Values over Megatron's TransformerConfig: those that ROLL has keys for, and all others in ``additional_configs``."""
    own = tuple(DialectKey(f"{s}{name}") for name in TRANSFORMER)
    more = f"{s}additional_configs"

    def read(view: Reading) -> Iterator[Flow]:
        for name, key in zip(TRANSFORMER, own, strict=True):
            if view.written(key.name):
                yield Flow(view.to(f"{to}.transformer.{name}"), view.get(key.name), (view.path(key.name),), same=True)
        extra = view.get(more)
        for name, value in extra.items() if isinstance(extra, Mapping) else ():
            yield Flow((*view.to(f"{to}.transformer"), name), value, ((*view.path(more), name),), same=True)

    def write(view: Writing) -> Iterator[Out]:
        values = view.get(f"{to}.transformer")
        for name, value in values.items() if isinstance(values, Mapping) else ():
            place = view.path(f"{s}{name}") if name in TRANSFORMER else (*view.path(more), name)
            yield Flow(place, value, ((*view.to(f"{to}.transformer"), name),), same=True)

    return CustomRule(
        f"transformer of {to}",
        (*own, DialectKey(f"{more}.**")),
        (f"{to}.transformer",),
        read,
        write,
        why="One free mapping is spread over separate keys and another mapping, in the order of the config.",
    )


def _deepspeed(worker: str, to: str) -> CustomRule:
    """ZeRO of older files: stage 3 drops gathered weights after the forward pass, as FSDP2 does; lower stages keep them."""
    config = f"{worker}.strategy_args.strategy_config"
    own = tuple(DialectKey(f"{config}.{name}") for name in DEEPSPEED_KEYS)

    def read(view: Reading) -> Iterator[Flow]:
        values = view.get(config)
        if strategy(view, worker) not in DEEPSPEED or not isinstance(values, Mapping):
            return
        zero = values.get("zero_optimization")
        zero = zero if isinstance(zero, Mapping) else {}
        at = (*view.path(config), "zero_optimization")
        if "stage" in zero:
            note = said("ZeRO stage {stage}", stage=zero["stage"])
            yield Flow(view.to(f"{to}.reshard_after_forward"), zero["stage"] == 3, ((*at, "stage"),), "derived", note)
        moved = [_on_cpu(zero.get(name)) for name in ("offload_param", "offload_optimizer")]
        used = tuple((*at, name) for name in ("offload_param", "offload_optimizer") if name in zero)
        if used:
            yield Flow(view.to(f"{to}.offload"), offload(*moved), used, "derived")
        for name, value in values.items():
            place = (*view.path(config), name)
            if name == "zero_optimization":
                for key in [key for key in zero if key not in ("stage", "offload_param", "offload_optimizer")]:
                    yield Flow((*view.to(f"{to}.source_args"), f"{name}.{key}"), zero[key], ((*at, key),))
            else:
                yield Flow((*view.to(f"{to}.source_args"), name), value, (place,))

    def write(view: Writing) -> Iterator[Out]:
        if view.get(f"{to}.source_args"):
            yield Inexpressible((view.to(f"{to}.source_args"),), "ROLL passes no such settings to FSDP2")

    return CustomRule(
        f"ZeRO of {worker}",
        own,
        (f"{to}.source_args", f"{to}.reshard_after_forward"),
        read,
        write,
        by_key={
            config: f"{to}.source_args",
            f"{config}.zero_optimization": (f"{to}.reshard_after_forward", f"{to}.offload", f"{to}.source_args"),
        },
        why="Older files pass a config of DeepSpeed's own, of which only the ZeRO stage and the offloading mean something.",
    )


def _on_cpu(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("device") == "cpu"


def always_offloads(worker: str, to: str, *, infers: bool = False) -> list[Rule]:
    """ROLL moves what is idle to CPU memory after each phase, unasked: with Megatron everything, with FSDP2 the parameters.

    DPO and distillation, which have no rollout, move states only if ``is_offload_states`` asks for it.
    """

    def does(view: Reading) -> Any:
        name = strategy(view, worker)
        if name in DEEPSPEED or (infers and view.get("actor_infer.strategy_args.strategy_name") is None):
            return ABSENT
        return "both" if name in MEGATRON and not infers else "parameters"

    def is_asked(view: Writing) -> bool:
        return infers and view.config.algorithm.objective.choice == "dpo"

    def moves_all(view: Writing) -> bool:
        return not infers and engine_written(view, to) == "megatron"

    def will_do(view: Writing) -> Any:
        return ABSENT if is_asked(view) else "both" if moves_all(view) else "parameters"

    stay = "a reference has no gradients" if infers else "ROLL's FSDP2 offloads only the parameters"
    moved, note = "ROLL always offloads an idle role to CPU memory", "ROLL offloads an idle role to CPU memory"
    asked = ((is_asked, "is_offload_states offloads all roles or none"),)
    return [
        FollowsFrom(f"{to}.offload", reads=does, writes=will_do, reason=moved, note=note, harmless=asked, idle=always),
        FollowsFrom(
            f"{to}.offload_gradients",
            reads=lambda view: does(view) == "both" or ABSENT,
            writes=lambda view: moves_all(view) or ABSENT,
            reason=lambda view: moved if moves_all(view) else stay,
            note=note,
            harmless=asked,
            idle=always,
        ),
    ]
