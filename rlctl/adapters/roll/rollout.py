"""ROLL: the engine that generates, its memory and sizes, and how responses are drawn, in training and in validation.

``actor_infer.strategy_args.strategy_config`` goes to vLLM or SGLang as it is; the keys that rlctl has by name are taken out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlctl.adapters.engine.conditions import always, negated
from rlctl.adapters.engine.one_sided_rows import FollowsFrom, ReadOnly, WriteOnly
from rlctl.adapters.engine.rules import (
    ABSENT,
    NO_KEY,
    BadValueError,
    Calculation,
    Computed,
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
    Same,
    Tree,
    When,
    Writing,
)
from rlctl.adapters.engine.values import DTYPES, Listed, Names, Not, NullReads, Off
from rlctl.adapters.roll.workers import ENGINES, devices_of, strategy
from rlctl.common.messages.reasons import said
from rlctl.planning import arithmetic

W = "actor_infer"
S = f"{W}.strategy_args.strategy_config"
G = f"{W}.generating_args"
M, P = "rollout.memory.", "rollout.parallel."
LOAD = Names({"auto": "auto", "dummy": "dummy", "safetensors": "safetensors"}, carries=True)
VLLM_NAMED = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "enable_expert_parallel",
    "gpu_memory_utilization",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "block_size",
    "swap_space",
    "kv_cache_dtype",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "enforce_eager",
    "sleep_level",
    "load_format",
    "quantization",
    "disable_log_stats",
)
SGLANG_NAMED = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "dp_size",
    "ep_size",
    "mem_fraction_static",
    "max_running_requests",
    "context_length",
    "page_size",
    "kv_cache_dtype",
    "disable_radix_cache",
    "disable_cuda_graph",
    "load_format",
    "quantization",
)
OVERWRITTEN = {
    "vllm": ("model", "dtype", "trust_remote_code", "seed", "enable_sleep_mode", "VLLM_USE_V1"),
    "sglang": (
        "model_path",
        "dtype",
        "random_seed",
        "skip_tokenizer_init",
        "trust_remote_code",
        "tp_size",
        "port",
        "nnodes",
    ),
}
"""Arguments that ROLL sets itself over what ``strategy_config`` says."""


def _is(name: str) -> tuple[Any, Any, str]:
    """When rules of one engine hold, on both sides; an engine that ROLL has not is written as vLLM."""
    return (
        lambda view: strategy(view, W) == name,
        lambda view: (view.get("rollout.engine.type") == "sglang") is (name == "sglang"),
        said("only for the engine {name}", name=name),
    )


class EngineName(Calculation):
    """The strategy's name, which is the engine's; an engine that ROLL has not is written as vLLM."""

    def read(self, value: Any, view: Reading) -> Any:
        if value not in ENGINES:
            raise BadValueError(said("is {name!r}; ROLL generates with vllm or sglang", name=str(value)))
        return value

    def write(self, value: Any, view: Writing) -> Any:
        if value in ENGINES:
            return value
        if value == "auto":
            return Computed("vllm", "ROLL needs an engine name; rlctl wrote vllm, its choice on GPUs")
        lost = said("ROLL generates with vLLM or SGLang, not with {kind}", kind=value)
        return Computed("vllm", how="mapped", lost=lost)


def _sets_itself(engine: str) -> list[Rule]:
    """Arguments of an engine that ROLL sets over those of the file."""
    is_used = _is(engine)[0]
    return [ReadOnly(f"{S}.{name}", "ROLL sets it itself", when=is_used, dead=always) for name in OVERWRITTEN[engine]]


def _args(name: str, named: tuple[str, ...]) -> Tree:
    return Tree(S, "rollout.engine.args", but=(*named, *OVERWRITTEN[name]))


# Sizes: tensor x pipeline devices a worker, and a worker for each


class Experts(Calculation):
    """vLLM splits experts over all devices of an engine, or not at all."""

    def read(self, value: Any, view: Reading) -> Any:
        return Computed(_wide(view) * _count(view, "data_parallel_size") if value else 1, how="mapped")

    def write(self, value: Any, view: Writing) -> Any:
        width, lost = arithmetic.devices_per_rollout_engine(view.config), ""
        if value not in (1, width):
            lost = said(
                "vLLM splits experts over all {width} devices of an engine, or does not split them; {wanted} is "
                "impossible",
                width=width,
                wanted=value,
            )
        return Computed(value > 1, how="mapped", lost=lost)


def _count(view: Reading, name: str) -> int:
    value = view.get(f"{S}.{name}")
    return value if isinstance(value, int) and value > 0 else 1


def _wide(view: Reading) -> int:
    """The devices of one worker that generates."""
    if strategy(view, W) == "sglang":
        own = view.get(f"{W}.num_gpus_per_worker")
        return own if isinstance(own, int) and own > 0 else 1
    return _count(view, "tensor_parallel_size") * _count(view, "pipeline_parallel_size")


def _read_width(view: Reading) -> Iterator[Flow]:
    """SGLang's engine is as wide as its worker, unless its config says; vLLM's worker is as wide as the config says."""
    worker, tensor = f"{W}.num_gpus_per_worker", f"{S}.tensor_parallel_size"
    own = view.written(tensor)
    if strategy(view, W) == "vllm":
        note = "ROLL uses tensor_parallel_size x pipeline_parallel_size of vLLM instead"
        yield Flow(
            view.to("rollout.parallel.tensor_parallel_size"),
            _count(view, "tensor_parallel_size"),
            (view.path(tensor),),
            same=own,
        )
        yield Flow((), None, (view.path(worker),), "dead", note)
    else:
        value, key = (view.get(tensor), tensor) if own else (_wide(view), worker)
        yield Flow(view.to("rollout.parallel.tensor_parallel_size"), value, (view.path(key),), same=True)
        yield Flow((), None, (view.path(worker),), "mapped", "devices of one engine")
    yield from _read_replicas(view)


def _read_replicas(view: Reading) -> Iterator[Flow]:
    devices, wide = devices_of(view, W), _wide(view)
    used = (view.path(f"{W}.device_mapping"),)
    if strategy(view, W) == "vllm" and _count(view, "data_parallel_size") > 1:
        note = "all workers are data-parallel ranks of one engine"
        yield Flow(view.to("rollout.parallel.replicas"), 1, used, "derived", note)
    elif devices and len(devices) % wide == 0:
        note = said("{count} devices / {wide} per engine", count=len(devices), wide=wide)
        yield Flow(view.to("rollout.parallel.replicas"), len(devices) // wide, used, "derived", note)


def _write_width(view: Writing) -> Iterator[Out]:
    parallel = view.config.rollout.parallel
    wide = parallel.tensor_parallel_size * parallel.pipeline_parallel_size
    used = (view.to("rollout.parallel.tensor_parallel_size"), view.to("rollout.parallel.pipeline_parallel_size"))
    if view.get("rollout.engine.type") == "sglang":
        yield Flow(
            view.path(f"{W}.num_gpus_per_worker"),
            wide,
            used,
            "derived" if parallel.pipeline_parallel_size > 1 else "mapped",
            always=True,
        )
    yield Flow(view.path(f"{S}.tensor_parallel_size"), parallel.tensor_parallel_size, used[:1], same=True, always=True)
    total, each = arithmetic.rollout_devices(view.config), arithmetic.devices_per_rollout_engine(view.config)
    replicas, place = parallel.replicas, (view.to("rollout.parallel.replicas"),)
    if total % wide:
        near = arithmetic.nearest_multiples(total, wide)
        yield Inexpressible(
            used[:1],
            said(
                "{total} devices do not divide into workers of {wide} devices ({total} / {wide} = {value:g}); use {near} devices",
                total=total,
                wide=wide,
                value=total / wide,
                near=near,
            ),
        )
    elif replicas == "auto" or replicas * each == total:
        yield Flow((), None, place, "mapped", "follows from device_mapping")
    else:
        yield Inexpressible(
            place,
            said(
                "ROLL fills all {total} devices with engines of {each}: {value} of them",
                total=total,
                each=each,
                value=total // each,
            ),
        )


def _workers(view: Writing) -> int:
    parallel = view.config.rollout.parallel
    return arithmetic.rollout_devices(view.config) // (parallel.tensor_parallel_size * parallel.pipeline_parallel_size)


def _not_of_one_engine(view: Writing) -> str:
    """Why the data-parallel ranks cannot be ROLL's; empty if they can."""
    size, workers = view.config.rollout.parallel.data_parallel_size, _workers(view)
    if size in (1, workers):
        return ""
    return said(
        "in ROLL, data_parallel_size of an engine is 1 or the number of workers, {workers}; {data_parallel_size} is "
        "impossible",
        workers=workers,
        data_parallel_size=size,
    )


class DataParallel(NullReads):
    """vLLM's data-parallel ranks are ROLL's workers, so they make one engine of all of them."""

    def write(self, value: Any, view: Writing) -> Any:
        if reason := _not_of_one_engine(view):
            raise InexpressibleError(reason)
        return value


class MemoryFraction(Same):
    """SGLang's share of the memory, without which ROLL stops."""

    def write(self, value: Any, view: Writing) -> Any:
        if value is not None:
            return value
        share = 0.9 if view.config.placement.layout != "colocated" else 0.5
        return Computed(share, "ROLL requires a memory fraction; wrote rlctl's default", always=True)


# 2026.8 configs/worker_config.py, WorkerConfig.__post_init__: 1 for vLLM;
# 2026.8 distributed/strategy/sglang_strategy.py, initialize: num_gpus_per_worker for SGLang
WIDTH = CustomRule(
    "devices of an engine",
    (DialectKey(f"{S}.tensor_parallel_size", 1), DialectKey(f"{W}.num_gpus_per_worker", 1)),
    ("rollout.parallel.tensor_parallel_size", "rollout.parallel.replicas"),
    _read_width,
    _write_width,
    "engines = devices / (tensor x pipeline)",
    by_key={
        **dict.fromkeys(
            (f"{S}.tensor_parallel_size", f"{W}.num_gpus_per_worker"), "rollout.parallel.tensor_parallel_size"
        ),
        f"{W}.device_mapping": "rollout.parallel.replicas",
    },
    why="An engine is as wide as its worker or as its own config says, by engine, and the engines fill all devices.",
)
# 2026.8 distributed/strategy/vllm_strategy.py, initialize, which leaves the rest to vLLM: 0.10.2 engine/arg_utils.py, EngineArgs
VLLM: list[Rule] = [
    Key(f"{S}.pipeline_parallel_size", "rollout.parallel.pipeline_parallel_size", 1),
    Key(f"{S}.data_parallel_size", f"{P}data_parallel_size", 1, DataParallel(1)),
    WriteOnly(
        f"{P}expert_parallel_size",
        lambda view: bool(_not_of_one_engine(view)),
        lost=_not_of_one_engine,
        idle=True,
    ),
    Key(f"{S}.enable_expert_parallel", f"{P}expert_parallel_size", False, Experts(), implied=True),
    # written even if it is this default, which is 0.92 in newer releases of vLLM: 0.32.0 config/cache.py, CacheConfig
    Key(f"{S}.gpu_memory_utilization", f"{M}gpu_memory_utilization", 0.9, always=True),
    Key(f"{S}.max_num_seqs", f"{M}max_num_seqs", None),
    Key(f"{S}.max_num_batched_tokens", f"{M}max_batched_tokens", 8192),
    Key(f"{S}.max_model_len", "model.max_context_tokens", None),
    Key(f"{S}.block_size", f"{M}block_size", None),
    Key(f"{S}.swap_space", f"{M}swap_gib", None),
    Key(f"{S}.kv_cache_dtype", f"{M}kv_cache_dtype", "auto"),
    Key(f"{S}.enable_prefix_caching", f"{M}prefix_caching", True),
    Key(f"{S}.enable_chunked_prefill", f"{M}chunked_prefill", True),
    Key(f"{S}.enforce_eager", f"{M}enforce_eager", False),
    Key(f"{S}.sleep_level", f"{M}sleep_level"),
    Key(f"{S}.load_format", f"{M}load_format", "dummy", LOAD),
    Key(f"{S}.quantization", f"{M}quantization", None),
    Key(f"{S}.disable_log_stats", f"{M}log_statistics", convert=Not(), quiet=True),
    _args("vllm", VLLM_NAMED),
]
# 2026.8 distributed/strategy/sglang_strategy.py, initialize, which leaves the rest to SGLang: 0.5.2 server_args.py
SGLANG: list[Rule] = [
    Key(f"{S}.pipeline_parallel_size", "rollout.parallel.pipeline_parallel_size", 1),
    Key(f"{S}.dp_size", "rollout.parallel.data_parallel_size", 1),
    Key(f"{S}.ep_size", "rollout.parallel.expert_parallel_size", 1),
    Key(f"{S}.mem_fraction_static", f"{M}gpu_memory_utilization", convert=MemoryFraction()),
    Key(f"{S}.max_running_requests", f"{M}max_num_seqs", None),
    Key(f"{S}.context_length", "model.max_context_tokens", None),
    Key(f"{S}.page_size", f"{M}block_size", None),
    Key(f"{S}.kv_cache_dtype", f"{M}kv_cache_dtype", "auto"),
    Key(f"{S}.disable_radix_cache", f"{M}prefix_caching", False, Not()),
    Key(f"{S}.disable_cuda_graph", f"{M}enforce_eager", False),
    Key(f"{S}.load_format", f"{M}load_format", "auto", LOAD, always=True),
    Key(f"{S}.quantization", f"{M}quantization", None),
    _args("sglang", SGLANG_NAMED),
]


# Sampling


class KeepsStop(Calculation):
    """Ending texts are kept unless the file says otherwise; without such texts it says nothing."""

    def read(self, value: Any, view: Reading) -> Any:
        if value is None:
            return True if view.written(KEEPS) or view.get(f"{G}.stop_strings") else ABSENT
        return bool(value)

    def write(self, value: Any, view: Writing) -> Any:
        return Computed(value, how="mapped", always=True) if view.get("rollout.sampling.stop") else value


KEEPS = f"{G}.include_stop_str_in_output"


def _seed(view: Writing) -> Any:
    """The seed of ROLL's engines; any value fits if the source sets none."""
    asked = view.get("rollout.sampling.seed")
    return view.get("run.seed") if view.explicit("rollout.sampling.seed") and asked is not None else asked


# 2026.8 configs/generating_args.py, GeneratingArguments
SAMPLING: list[Rule] = [
    Key(f"{G}.temperature", "rollout.sampling.temperature", 0.95, always=True),
    Key(f"{G}.top_p", "rollout.sampling.top_p", 0.7, always=True),
    Key(f"{G}.top_k", "rollout.sampling.top_k", 50, Off(-1), always=True),
    Key(f"{G}.repetition_penalty", "rollout.sampling.repetition_penalty", 1.0),
    Key(f"{G}.stop_strings", "rollout.sampling.stop", None, Listed()),
    Key(KEEPS, "rollout.sampling.include_stop", None, KeepsStop(), quiet=True, takes=bool),
    Key(f"{G}.num_beams", "rollout.sampling.num_beams", 1),
    Key(f"{G}.logprobs", "rollout.sampling.log_probs", 0),
    FollowsFrom(
        "rollout.sampling.seed",
        reads=lambda view: None,
        writes=_seed,
        reason=lambda view: said("ROLL gives its engines the run's seed, {run}", run=view.get("run.seed")),
        note="the run's seed, which ROLL also gives its engines",
    ),
    *[
        Dropped(f"rollout.sampling.{name}", "ROLL passes no such setting to the engine")
        for name in ("min_p", "min_response_tokens", "ignore_eos")
    ],
]


def _names_precision(view: Writing) -> bool:
    return bool(view.get(ROLLOUT_TYPE) != "auto")


ROLLOUT_TYPE, TRAINING_TYPE = "rollout.precision", "train.precision.compute"
PRECISION: list[Rule] = [
    Key(f"{W}.model_args.dtype", ROLLOUT_TYPE, convert=DTYPES, always=True, write_when=_names_precision),
    WriteOnly(
        ROLLOUT_TYPE,
        negated(_names_precision),
        "the same as in training",
        f"{W}.model_args.dtype",
        lambda view: DTYPES.write(view.get(TRAINING_TYPE), view),
        always=True,
        others=(TRAINING_TYPE,),
    ),
]
"""ROLL has no word for ``auto``, which is the type of training."""
RULES: list[Rule] = [
    # 2026.8 configs/worker_config.py, StrategyArguments: fsdp2_train, which configs/base_config.py, PPOConfig, refuses here
    Key(f"{W}.strategy_args.strategy_name", "rollout.engine.type", "vllm", EngineName(), always=True),
    *_sets_itself("vllm"),
    *_sets_itself("sglang"),
    WIDTH,
    When(tuple(VLLM), *_is("vllm")),
    When(tuple(SGLANG), *_is("sglang")),
    *PRECISION,
    *SAMPLING,
    *[
        Dropped(f"rollout.engine.{name}", "ROLL cannot call an external endpoint")
        for name in ("base_url", "model", "api_key")
    ],
    Dropped(f"{M}sleep", "ROLL's engines always sleep while other roles compute", idle=True),
    Dropped("rollout.timeouts.**", "ROLL waits for its responses up to rpc_timeout", idle=True),
    *[
        Dropped(f"rollout.{name}", reason, idle=True)
        for name, reason in (
            ("runners_per_engine", "ROLL's workers are asynchronous"),
            ("report_every", "ROLL logs it with its metrics"),
            ("log_responses", "ROLL saves responses if rollout_dump_dir is set"),
            ("log_evaluation_responses", "ROLL does not send responses to trackers"),
        )
    ],
    *[
        Dropped(f"rollout.{name}", reason)
        for name, reason in (
            ("auxiliary_models.**", "ROLL serves models only for its rewards"),
            ("openai_server.**", NO_KEY),
        )
    ],
    Key("rollout_dump_dir", "rollout.responses_folder", takes_null=False),
    Dropped("rollout.evaluation_folder", "ROLL saves only training responses"),
    Dropped("rollout.env_vars", "ROLL sets environment variables per role, in the role's system_envs"),
    *[
        Dropped(f"buffer.{name}", "ROLL's scheduler holds responses until they are trained on", idle=True)
        for name in ("type", "label", "capacity", "read_timeout", "log_path")
    ],
    Dropped("buffer.**", "ROLL has no buffer between rollout and training, except its scheduler's queue"),
    Dropped("service.**", "ROLL has no helper services"),
]
