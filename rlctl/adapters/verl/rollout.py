"""verl: the rollout engine, sampling, multi-turn, placement and weight synchronisation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rlctl.adapters.engine.combined_rows import OneOf
from rlctl.adapters.engine.conditions import negated
from rlctl.adapters.engine.one_sided_rows import FollowsFrom, WriteOnly
from rlctl.adapters.engine.rules import (
    ABSENT,
    NO_KEY,
    BadValueError,
    Chosen,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Key,
    Out,
    Provenance,
    Reading,
    Rule,
    Tree,
    Writing,
    is_further,
)
from rlctl.adapters.engine.values import ENGINE_DTYPES, Names, Not, Off
from rlctl.adapters.verl import agents, asynchronous, batch
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import is_number
from rlctl.planning import arithmetic

R = "actor_rollout_ref.rollout"
ENGINES = {"vllm": "vllm", "sglang": "sglang", "hf": "transformers"}
LOAD = Names(
    {
        "dummy": "dummy",
        "dummy_dtensor": "dummy",
        "dummy_hf": "dummy",
        "dummy_megatron": "dummy",
        "auto": "auto",
        "safetensors": "safetensors",
        "megatron": "auto",
        "dtensor": "auto",
        "hf": "auto",
    },
    carries=True,
)


def _read_args(view: Reading) -> Iterator[Flow]:
    name = str(view.get(f"{R}.name"))
    args = view.get(f"{R}.engine_kwargs") or {}
    for engine, items in args.items():
        place = (*view.path(f"{R}.engine_kwargs"), engine)
        if engine == name and isinstance(items, dict) and items:
            yield Flow(
                view.to("rollout.engine.args"),
                {k: v for k, v in items.items() if k != "swap_space"},
                tuple((*place, k) for k in items if k != "swap_space"),
            )
        elif items:
            yield Flow((), None, (place,), "dead", said("the engine is {name}", name=name))
        elif view.written(f"{R}.engine_kwargs"):
            yield Flow((), None, (place,), "mapped", "is empty")


def _is_foreign(engine: Any) -> bool:
    return engine == "external" or is_further("rollout.engine", engine)


def _write_args(view: Writing) -> Iterator[Out]:
    args = view.get("rollout.engine.args")
    name = next((raw for raw, option in ENGINES.items() if option == view.get("rollout.engine.type")), "vllm")
    used = (view.to("rollout.engine.args"),)
    if isinstance(args, dict) and args and _is_foreign(view.get("rollout.engine.type")):
        yield Inexpressible(used, "verl has no such engine")
    elif isinstance(args, dict) and args:
        for key, value in args.items():
            yield Flow((*view.path(f"{R}.engine_kwargs"), name, key), value, used)


# Which devices do what, and how far rollout may run ahead


DEFAULT_SPAN = 8
CONTINUED = "verl interrupts requests at a weight sync, and continues them with the new weights"
SPAN = "verl counts the steps that a response spans, including its own: one more than its staleness"


def _read_placement(view: Reading) -> Iterator[Flow]:
    if asynchronous.is_beside(view):
        yield from asynchronous.read_sync(view)
        return
    mode = view.get("trainer.v1.trainer_mode", "sync")
    used = (view.path("trainer.v1.trainer_mode"),)
    nodes, each = view.get(f"{R}.nnodes"), view.get(f"{R}.n_gpus_per_node")
    own = (view.path(f"{R}.nnodes"), view.path(f"{R}.n_gpus_per_node"))
    if mode == "separate_async" or (isinstance(nodes, int) and nodes > 0):
        yield Flow(view.to("placement.layout"), "split", used)
        devices = nodes * each if isinstance(nodes, int) and nodes > 0 and isinstance(each, int) else None
        yield Flow(
            view.to("placement.rollout_devices"),
            devices,
            own,
            "derived",
            "nodes x devices per node, in addition to the trainer's",
        )
    else:
        yield Flow(view.to("placement.layout"), "colocated", used)
        yield Flow(view.to("placement.rollout_devices"), None, own, "mapped", "rollout shares the trainer's devices")
    step = view.path("trainer.v1.separate_async.parameter_sync_step")
    every = view.get("trainer.v1.separate_async.parameter_sync_step") if mode == "separate_async" else None
    yield Flow(view.to("weight_sync.every_optimizer_steps"), every, (step,) if every else ())
    warm = {"separate_async": "separate_async", "colocate_async": "colocate_async"}.get(str(mode))
    ahead = view.get(f"trainer.v1.{warm}.num_warmup_batches", 1) if warm else 0.0
    yield Flow(
        view.to("weight_sync.max_steps_ahead"),
        float(ahead or 0),
        (view.path(f"trainer.v1.{warm}.num_warmup_batches"),) if warm else (),
    )
    if warm:
        yield Flow(view.to("weight_sync.in_flight_requests"), "continue", ())
    span = view.get("trainer.v1.sampler.max_off_policy_threshold", DEFAULT_SPAN) if warm else 1
    place = view.path("trainer.v1.sampler.max_off_policy_threshold")
    if isinstance(span, int) and span < 1:
        raise BadValueError(
            said("is {span}; expected at least 1 (a response of the newest weights)", span=span), key=place
        )
    kept = span - 1 if isinstance(span, int) else span
    yield Flow(
        view.to("weight_sync.max_staleness_steps"),
        kept,
        (place,) if warm else (),
        "derived" if warm else "mapped",
        SPAN,
    )


def _read_devices(view: Reading) -> Iterator[Flow]:
    if asynchronous.is_beside(view):
        yield from asynchronous.read_devices(view)
        return
    used = (view.path("trainer.nnodes"), view.path("trainer.n_gpus_per_node"))
    extra = view.get(f"{R}.nnodes")
    if isinstance(extra, int) and extra > 0 and isinstance(view.get(f"{R}.n_gpus_per_node"), int):
        yield from asynchronous.read_devices(view, (*asynchronous.OWN_POOLS[:2], f"{R}.nnodes", f"{R}.n_gpus_per_node"))
        return
    yield Flow(view.to("placement.nodes"), view.get("trainer.nnodes"), used[:1], same=True)
    yield Flow(view.to("placement.devices_per_node"), view.get("trainer.n_gpus_per_node"), used[1:], same=True)


def _write_devices(view: Writing) -> Iterator[Out]:
    placement = view.config.placement
    nodes, each = (view.to("placement.nodes"),), (view.to("placement.devices_per_node"),)
    if placement.layout == "colocated":
        yield Flow(view.path("trainer.nnodes"), placement.nodes, nodes, same=True)
        yield Flow(view.path("trainer.n_gpus_per_node"), placement.devices_per_node, each, same=True, always=True)
        yield Flow((), None, (view.to("placement.layout"),))
        return
    yield from _write_split(view)


def _write_split(view: Writing) -> Iterator[Out]:
    """Split devices become verl's hybrid engine over all of them, unless the split is by whole nodes and asynchronous."""
    placement = view.config.placement
    layout = (view.to("placement.layout"), view.to("placement.rollout_devices"))
    own, each = arithmetic.rollout_devices(view.config), placement.devices_per_node
    nodes = (view.to("placement.nodes"), view.to("placement.devices_per_node"))
    if asynchronous.is_separate(view) and (found := asynchronous.pools(view.config)) is not None:
        (mine, trains), (beside, rolls) = found
        how: Provenance = "mapped" if trains == each else "derived"
        yield Flow(view.path("trainer.v1.trainer_mode"), "separate_async", layout[:1], always=True)
        note = "nodes minus rollout's" if beside + mine == placement.nodes else ""
        yield Flow(view.path("trainer.nnodes"), mine, nodes[:1], "derived", note, always=True)
        note = "" if trains == each else "devices per node minus those of rollout"
        yield Flow(view.path("trainer.n_gpus_per_node"), trains, nodes[1:], how, note, always=True)
        yield Flow(view.path(f"{R}.nnodes"), beside, layout[1:], always=True)
        yield Flow(view.path(f"{R}.n_gpus_per_node"), rolls, layout[1:], always=True)
        yield from _write_sync_step(view)
        yield from _pace(view, "separate_async")
        return
    fitting, trains = batch.devices_that_divide(view.config), arithmetic.train_devices(view.config)
    total = placement.nodes * fitting
    note = said(
        "verl runs every role on all {total} devices in turn, instead of {own} for rollout and {trains} for training",
        total=total,
        own=own,
        trains=trains,
    )
    yield Flow(view.path("trainer.nnodes"), placement.nodes, nodes[:1], same=True)
    how = "mapped" if fitting == each else "derived"
    told = (
        ""
        if fitting == each
        else said(
            "{fitting} of {each} devices a node, because a mini-batch must divide by the replicas",
            fitting=fitting,
            each=each,
        )
    )
    key = view.path("trainer.n_gpus_per_node")
    yield Flow(key, fitting, nodes[1:], how, told, same=fitting == each, always=True)
    if fitting != each:
        yield Inexpressible(nodes[1:], told, idle=True)
    yield Inexpressible(layout, note)


def _write_sync_step(view: Writing) -> Iterator[Out]:
    """``separate_async`` sends weights once a step: it refuses a step that is not ``parameter_sync_step`` mini-batches."""
    config = view.config
    used = (view.to("weight_sync.every_optimizer_steps"), view.to("weight_sync.every"))
    wanted = view.get(
        "weight_sync.every_optimizer_steps"
    ) or config.weight_sync.every * arithmetic.optimizer_steps_per_step(config)
    step = max(1, arithmetic.responses_per_step(config) // arithmetic.mini_batch_responses(config))
    yield Flow(view.path("trainer.v1.separate_async.parameter_sync_step"), step, used, "derived", always=True)
    if step != wanted:
        yield Inexpressible(
            used,
            said("verl sends weights once a step, after {step} updates, not after {wanted}", step=step, wanted=wanted),
        )


def _pace(view: Writing, mode: str) -> Iterator[Out]:
    """How far rollout may run ahead."""
    sync, warm = view.config.weight_sync, f"trainer.v1.{mode}.num_warmup_batches"
    used, whole = (view.to("weight_sync.max_steps_ahead"),), max(1, math.floor(sync.max_steps_ahead + 0.5))
    yield Flow(view.path(warm), whole, used)
    if whole != sync.max_steps_ahead:
        yield Inexpressible(
            used,
            said(
                "verl runs ahead by whole steps, at least 1: {max_steps_ahead:g} became {whole}",
                max_steps_ahead=sync.max_steps_ahead,
                whole=whole,
            ),
        )
    threshold = view.path("trainer.v1.sampler.max_off_policy_threshold")
    kept = (view.to("weight_sync.max_staleness_steps"),)
    if sync.max_staleness_steps is not None:
        yield Flow(threshold, sync.max_staleness_steps + 1, kept, "derived", SPAN)
    else:
        note = "null means the limit that the schedule implies; this bound equals it"
        yield Flow(threshold, max(DEFAULT_SPAN, whole + 1), kept, "derived", note)
    going = (view.to("weight_sync.in_flight_requests"),)
    if sync.in_flight_requests == "continue":
        yield Flow((), None, going, "mapped", CONTINUED)
    else:
        yield Inexpressible(going, CONTINUED)


def _write_sync(view: Writing) -> Iterator[Out]:
    if view.config.weight_sync.max_steps_ahead and view.config.placement.layout == "colocated":
        if view.version >= (0, 9):
            yield Flow(
                view.path("trainer.v1.trainer_mode"),
                "colocate_async",
                (view.to("weight_sync.max_steps_ahead"),),
                always=True,
            )
            yield from _pace(view, "colocate_async")
        else:
            yield Inexpressible((view.to("weight_sync.max_steps_ahead"),), "this verl release is synchronous")


def _engines(view: Writing) -> Any:
    """Engines that fill all devices of rollout; ABSENT if they do not."""
    total, each = arithmetic.rollout_devices(view.config), arithmetic.devices_per_rollout_engine(view.config)
    return total // each if total % each == 0 else ABSENT


def _engines_differ(view: Writing) -> str:
    total, each = arithmetic.rollout_devices(view.config), arithmetic.devices_per_rollout_engine(view.config)
    return said("verl fills all devices with engines: {total} / {each}", total=total, each=each)


def _shares(view: Writing) -> bool:
    """Whether rollout has no devices of its own in the source."""
    placement = view.config.placement
    if placement.layout == "explicit" and {"rollout", "policy"} <= set(placement.roles):
        return bool(set(placement.roles["rollout"].devices) & set(placement.roles["policy"].devices))
    return placement.layout != "split" or arithmetic.devices(view.config) == 1


def _same_sharing(view: Writing) -> bool:
    """Whether rollout has dedicated devices in both configs, or in neither."""
    return _shares(view) or asynchronous.is_separate(view)


def _needs_transfer(view: Writing) -> bool:
    """Whether verl refuses its default transport of weights, which needs devices that all roles share."""
    return asynchronous.is_separate(view) and view.get("weight_sync.method") != "nccl"


def length(name: str, trainers: str, to: str, *, server: bool = False) -> OneOf:
    """A length that the rollout takes from its own key, which names the trainer's where it is not said; a server has no other."""
    own = f"{R}.{name}"

    def decides(view: Reading) -> bool:
        return view.written(own) and (not view.written(trainers) or view.get(own) != view.get(trainers))

    return OneOf(
        (DialectKey(own), DialectKey(trainers)),
        to,
        reads=lambda view: own if decides(view) else trainers,
        writes=lambda view: own if server else trainers,
        reason="rollout uses {name}",
    )


def _read_device(view: Reading) -> Iterator[Flow]:
    raw, used = view.get("trainer.device"), (view.path("trainer.device"),)
    if raw == "npu":
        note = "rlctl trains on CUDA devices and the CPU; npu is kept so that converting back restores it"
        yield Flow(view.to("placement.device"), "cuda", used, "derived", note)
        yield Flow(KEPT_DEVICE, raw, used)
    elif raw is not None:
        yield Flow(view.to("placement.device"), raw, used, same=True)


def _write_device(view: Writing) -> Iterator[Out]:
    device, used = view.get("placement.device"), (view.to("placement.device"),)
    if KEPT_DEVICE[-1] in view.config.carried_for("verl"):
        yield Flow((), None, used, "mapped", "the source file's device")
    elif device != "auto":
        yield Flow(view.path("trainer.device"), device, used, same=True)


KEPT_DEVICE = ("extensions", "verl", "trainer.device")
DEVICE = CustomRule(
    "device",
    (DialectKey("trainer.device", ABSENT),),
    ("placement.device",),
    _read_device,
    _write_device,
    "npu is kept",
    why="A device that rlctl does not have is read as another one, and kept so that converting back restores it.",
)
RULES: list[Rule] = [
    Chosen(
        f"{R}.name",
        "rollout.engine",
        ENGINES,
        unwritten=("auto",),
        missing="verl has no engine {name}",
        dialect="verl",
    ),
    WriteOnly(
        "rollout.engine.type",
        lambda view: view.get("rollout.engine.type") == "auto",
        "verl needs an engine name; rlctl wrote vllm, its choice on GPUs",
        key=f"{R}.name",
        value="vllm",
        always=True,
    ),
    CustomRule(
        "engine arguments",
        (
            DialectKey(f"{R}.engine_kwargs.vllm"),
            DialectKey(f"{R}.engine_kwargs.sglang"),
            DialectKey(f"{R}.engine_kwargs.trtllm"),
            DialectKey(f"{R}.engine_kwargs.**"),
        ),
        ("rollout.engine.args",),
        _read_args,
        _write_args,
        why="The engine's name is one part of the key, and the mapping also has blocks of other engines.",
    ),
    Dropped("rollout.engine.base_url", "verl cannot call an external endpoint"),
    Dropped("rollout.engine.model", "verl cannot call an external endpoint"),
    Dropped("rollout.engine.api_key", "verl cannot call an external endpoint"),
    length("response_length", "data.max_response_length", "rollout.max_response_tokens"),
    Key(f"{R}.temperature", "rollout.sampling.temperature"),
    Key(f"{R}.top_p", "rollout.sampling.top_p"),
    Key(f"{R}.top_k", "rollout.sampling.top_k", convert=Off(-1)),
    # 0.6.1 workers/rollout/vllm_rollout/vllm_rollout_spmd.py; 0.7.1 and 0.8.0 workers/config/rollout.py alone have it
    Key(f"{R}.ignore_eos", "rollout.sampling.ignore_eos", until="0.6"),
    # 0.9.1 workers/rollout/vllm_rollout/vllm_async_server.py
    Key(f"{R}.ignore_eos", "rollout.sampling.ignore_eos", since="0.9"),
    Dropped("rollout.sampling.ignore_eos", "verl 0.7 and 0.8 never read ignore_eos: a response ends at that token"),
    Key(f"{R}.seed", "rollout.sampling.seed"),
    Key(
        f"{R}.calculate_log_probs",
        "rollout.sampling.log_probs",
        convert=Names({False: None, True: 0}, "verl returns only the sampled token's log-prob"),
    ),
    *[
        Dropped(f"rollout.sampling.{name}", NO_KEY)
        for name in ["min_p", "repetition_penalty", "min_response_tokens", "stop", "num_beams"]
    ],
    Dropped("rollout.sampling.include_stop", NO_KEY, matters=True),
    Key(f"{R}.dtype", "rollout.precision", convert=ENGINE_DTYPES),
    Key(f"{R}.tensor_model_parallel_size", "rollout.parallel.tensor_parallel_size", always=True),
    Key(f"{R}.pipeline_model_parallel_size", "rollout.parallel.pipeline_parallel_size"),
    Key(f"{R}.data_parallel_size", "rollout.parallel.data_parallel_size"),
    Key(f"{R}.expert_parallel_size", "rollout.parallel.expert_parallel_size"),
    FollowsFrom(
        "rollout.parallel.replicas",
        writes=_engines,
        note="follows from the devices",
        reason=_engines_differ,
        open=("auto",),
        formula="devices / devices per engine",
    ),
    Key(
        f"{R}.gpu_memory_utilization",
        "rollout.memory.gpu_memory_utilization",
        write_when=lambda view: _same_sharing(view),
    ),
    WriteOnly(
        "rollout.memory.gpu_memory_utilization",
        lambda view: is_number(view.get("rollout.memory.gpu_memory_utilization")) and not _same_sharing(view),
        lost=lambda view: said(
            "{fraction:g} is for dedicated rollout devices; verl's roles share devices, so verl's 0.5 is kept",
            fraction=view.get("rollout.memory.gpu_memory_utilization"),
        ),
        idle=True,
        formula="0.5 if all roles share devices",
    ),
    Key(f"{R}.max_num_seqs", "rollout.memory.max_num_seqs"),
    Key(f"{R}.max_num_batched_tokens", "rollout.memory.max_batched_tokens"),
    Key(f"{R}.max_model_len", "model.max_context_tokens"),
    Key(f"{R}.enforce_eager", "rollout.memory.enforce_eager"),
    Key(f"{R}.enable_prefix_caching", "rollout.memory.prefix_caching"),
    Key(f"{R}.enable_chunked_prefill", "rollout.memory.chunked_prefill"),
    Key(f"{R}.free_cache_engine", "rollout.memory.sleep"),
    Key(
        f"{R}.load_format",
        "rollout.memory.load_format",
        convert=LOAD,
        write_when=lambda view: view.version >= (0, 6) or view.get("rollout.memory.load_format") != "dummy",
    ),
    Key(f"{R}.quantization", "rollout.memory.quantization"),
    Key(f"{R}.disable_log_stats", "rollout.memory.log_statistics", convert=Not()),
    # 0.4.1 trainer/config/ppo_trainer.yaml; other releases hand all of engine_kwargs.vllm on to the engine
    Key(f"{R}.engine_kwargs.vllm.swap_space", "rollout.memory.swap_gib", None),
    Dropped("rollout.memory.block_size", "verl leaves it to the engine; set it in engine_kwargs"),
    Dropped("rollout.memory.kv_cache_dtype", "verl leaves it to the engine; set it in engine_kwargs"),
    Dropped("rollout.memory.sleep_level", "verl decides the level itself"),
    Dropped("rollout.timeouts.**", "verl waits for all responses", idle=True),
    *[
        Dropped(f"rollout.oversampling.{name}", "verl starts exactly the prompts of a step")
        for name in ["ratio", "wait_after_minimum", "additional_prompts"]
    ],
    *[
        Dropped(f"rollout.{name}", NO_KEY)
        for name in [
            "max_running_prompts",
            "split_groups",
            "auxiliary_models.**",
            "openai_server.**",
            "env_vars",
        ]
    ],
    *[
        Dropped(f"rollout.{name}", "verl has no key for this; its own default applies", idle=True)
        for name in ["runners_per_engine", "report_every", "log_responses"]
    ],
    *agents.RULES,
    Key(
        "trainer.log_val_generations",
        "rollout.log_evaluation_responses",
        also=(DialectKey("trainer.val_generations_to_log_to_wandb"),),
    ),
    Key("trainer.rollout_data_dir", "rollout.responses_folder"),
    Key("trainer.validation_data_dir", "rollout.evaluation_folder"),
    CustomRule(
        "devices",
        (DialectKey("trainer.nnodes"), DialectKey("trainer.n_gpus_per_node"), *asynchronous.PLACES),
        ("placement.nodes", "placement.devices_per_node"),
        _read_devices,
        _write_devices,
        by_key={
            "trainer.nnodes": "placement.nodes",
            "trainer.n_gpus_per_node": "placement.devices_per_node",
            asynchronous.NODES: ("placement.layout", "placement.rollout_devices", "placement.nodes"),
            asynchronous.DEVICES: ("placement.layout", "placement.rollout_devices", "placement.devices_per_node"),
        },
        why="Devices of the trainer and of rollout are counted apart in verl, and together in a canonical config.",
    ),
    CustomRule(
        "placement",
        (
            DialectKey("trainer.v1.trainer_mode", takes=("sync", "colocate_async", "separate_async")),
            DialectKey(f"{R}.nnodes"),
            DialectKey(f"{R}.n_gpus_per_node", ABSENT),
            DialectKey("trainer.v1.separate_async.parameter_sync_step"),
            DialectKey("trainer.v1.separate_async.num_warmup_batches"),
            DialectKey("trainer.v1.colocate_async.num_warmup_batches"),
            DialectKey("trainer.v1.sampler.max_off_policy_threshold"),
            *asynchronous.PACE,
        ),
        (
            "placement.layout",
            "placement.rollout_devices",
            "weight_sync.every_optimizer_steps",
            "weight_sync.max_steps_ahead",
            "weight_sync.max_staleness_steps",
            "weight_sync.every",
            "weight_sync.in_flight_requests",
        ),
        _read_placement,
        _write_sync,
        by_key={
            "trainer.v1.trainer_mode": "placement.layout",
            f"{R}.nnodes": "placement.rollout_devices",
            f"{R}.n_gpus_per_node": "placement.rollout_devices",
            "trainer.v1.separate_async.parameter_sync_step": "weight_sync.every_optimizer_steps",
            "trainer.v1.separate_async.num_warmup_batches": "weight_sync.max_steps_ahead",
            "trainer.v1.colocate_async.num_warmup_batches": "weight_sync.max_steps_ahead",
            "trainer.v1.sampler.max_off_policy_threshold": "weight_sync.max_staleness_steps",
            "async_training.staleness_threshold": ("weight_sync.max_staleness_steps", "weight_sync.max_steps_ahead"),
            "async_training.partial_rollout": "weight_sync.in_flight_requests",
        },
        why="One word names the trainer, which decides the layout, how far rollout runs ahead and what is sent when.",
    ),
    DEVICE,
    Dropped("placement.roles{}.**", "verl places roles by its resource pools"),
    Dropped("placement.roles", "verl places roles by its resource pools", {}),
    Dropped("placement.cpus_per_worker", "verl has no key for this; its own default applies"),
    Key("trainer.v1.sampler.max_off_policy_strategy", "weight_sync.on_stale"),
    Key(
        f"{R}.checkpoint_engine.backend",
        "weight_sync.method",
        convert=Names({"naive": "auto", "nccl": "nccl"}, "verl has no such transport", carries=True),
        write_when=lambda view: _same_sharing(view) and not _needs_transfer(view),
    ),
    WriteOnly(
        "weight_sync.method",
        negated(_same_sharing),
        "weights stay on the shared devices",
        formula="naive if all roles share devices",
    ),
    WriteOnly(
        "weight_sync.method",
        lambda view: _same_sharing(view) and _needs_transfer(view),
        "separate_async refuses naive, verl's default",
        key=f"{R}.checkpoint_engine.backend",
        value="nccl",
        always=True,
    ),
    Key(
        f"{R}.checkpoint_engine.update_weights_bucket_megabytes",
        "weight_sync.bucket_mib",
        also=(DialectKey(f"{R}.update_weights_bucket_megabytes"),),
    ),
    Tree(f"{R}.checkpoint_engine.engine_kwargs", "weight_sync.args"),
    Dropped("weight_sync.style", "verl sends weights after each step"),
    Dropped(
        "weight_sync.in_flight_requests",
        "verl generates and trains in turns, so that no request is in flight at a weight sync",
    ),
    Dropped("weight_sync.timeout", "verl waits without a time limit", idle=True),
    *[Dropped(f"buffer.{name}", "verl has no buffer to name", idle=True) for name in ("label", "log_path")],
    Dropped("buffer.**", "verl has no buffer between rollout and training"),
    Dropped("service.**", "verl has no helper services"),
]
