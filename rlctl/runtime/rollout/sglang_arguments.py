"""Config -> arguments of SGLang's server, and what SGLang there is. SGLang is not imported: it runs as a program of its own.

Names are those of SGLang's ``ServerArgs``; on the command line they have dashes.
"""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlctl.common.errors import MissingDependency, RunError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.rollout import EngineMemory
from rlctl.planning import arithmetic, rollout_schedule
from rlctl.planning.plan import Device
from rlctl.runtime.models.config import changes_of

FRACTION_COLOCATED, FRACTION_ALONE = 0.5, 0.85
RESERVED: Mapping[str, str] = {
    "model_path": "set model.path",
    "tokenizer_path": "set model.tokenizer",
    "dtype": "set rollout.precision",
    "random_seed": "set rollout.sampling.seed",
    "trust_remote_code": "set model.trust_remote_code",
    "context_length": "set model.max_context_tokens",
    "json_model_override_args": "set model.overrides or model.rope",
    "tp_size": "set rollout.parallel.tensor_parallel_size",
    "pp_size": "set rollout.parallel.pipeline_parallel_size",
    "ep_size": "set rollout.parallel.expert_parallel_size",
    "dp_size": "set rollout.parallel.replicas",
    "enable_memory_saver": "set rollout.memory.sleep",
    "weight_version": "rlctl sends it with every weight update",
    "host": "only rlctl's worker calls the server",
    "port": "only rlctl's worker calls the server",
    "api_key": "only rlctl's worker calls the server",
    "nnodes": "an engine runs on one machine",
    "speculative_algorithm": "speculated tokens would have log-probs at another temperature",
    "skip_tokenizer_init": "it follows from rollout.sampling.stop",
    "device": "set placement.device",
    "enable_return_routed_experts": "set algorithm.router_replay to rollout",
}
"""Arguments that ``rollout.engine.args`` cannot set, and why or where it is set."""


def check_sglang(config: Config) -> None:
    """Refuse a run whose engine is SGLang where there is none, or where it does not do what the config says.

    Raises:
        MissingDependency: ``sglang`` is not installed.
        RunError: an argument that SGLang does not have, or that is not the config's to set; what its server cannot do.
    """
    names = argument_names()
    if names is None:
        raise MissingDependency(
            "rollout.engine is sglang, but SGLang is not installed",
            hint="pip install sglang on a GPU machine without vLLM (they need different versions of torch); "
            "or set rollout.engine to vllm or transformers",
        )
    if config.model.modality != "text":
        raise RunError(
            said("model.modality is {modality}; rlctl sends SGLang only token ids", modality=config.model.modality),
            hint="set rollout.engine=transformers, which reads images",
        )
    _check_parallel(config)
    for name in _given(config):
        if name in RESERVED:
            raise RunError(
                said("rollout.engine.args sets {name}, which rlctl sets itself", name=name), hint=RESERVED[name]
            )
        if name not in names:
            raise RunError(
                said("rollout.engine.args: SGLang's server has no argument {name}", name=name),
                hint=nearest(name, names),
            )
    sampling = config.rollout.sampling
    shaped = sampling.repetition_penalty != 1.0 or sampling.min_response_tokens > 0
    if shaped and arithmetic.trains(config) and _uses_rollout_log_probs(config):
        raise RunError(
            "SGLang takes log-probs after the repetition penalty and min_response_tokens, and this run trains with them",
            hint="set algorithm.old_log_probs=recompute, set rollout.sampling.repetition_penalty to 1 and "
            "min_response_tokens to 0, or set rollout.engine=vllm",
        )
    if sampling.repetition_penalty > 2.0:
        raise RunError(
            said(
                "rollout.sampling.repetition_penalty is {repetition_penalty}; SGLang supports up to 2",
                repetition_penalty=sampling.repetition_penalty,
            ),
            hint="lower it, or set rollout.engine=vllm",
        )


def _check_parallel(config: Config) -> None:
    """Refuse sizes that SGLang's server, which is one program, does not do here.

    Raises:
        RunError: names the key.
    """
    parallel, each = config.rollout.parallel, arithmetic.devices_per_rollout_engine(config)
    if parallel.data_parallel_size > 1:
        raise RunError(
            said(
                "rollout.parallel.data_parallel_size is {data_parallel_size}; SGLang's replicas take no weights from "
                "tensors",
                data_parallel_size=parallel.data_parallel_size,
            ),
            hint="set it to 1, and rollout.parallel.replicas to as many engines as fit",
        )
    if each > config.placement.devices_per_node:
        raise RunError(
            said(
                "an SGLang engine of {each} GPUs (tensor {tensor_parallel_size} * pipeline {pipeline_parallel_size}) "
                "does not fit on a machine of {devices_per_node}",
                each=each,
                tensor_parallel_size=parallel.tensor_parallel_size,
                pipeline_parallel_size=parallel.pipeline_parallel_size,
                devices_per_node=config.placement.devices_per_node,
            ),
            hint="lower rollout.parallel.tensor_parallel_size, or set rollout.engine=vllm, whose engines span machines",
        )
    if parallel.tensor_parallel_size % parallel.expert_parallel_size:
        raise RunError(
            said(
                "rollout.parallel.expert_parallel_size is {expert_parallel_size}; SGLang spreads experts over the "
                "{tensor_parallel_size} tensor-parallel workers",
                expert_parallel_size=parallel.expert_parallel_size,
                tensor_parallel_size=parallel.tensor_parallel_size,
            ),
            hint="set it to a divisor of rollout.parallel.tensor_parallel_size",
        )


def _uses_rollout_log_probs(config: Config) -> bool:
    return config.algorithm.old_log_probs != "recompute" or config.algorithm.rollout_correction is not None


def argument_names() -> set[str] | None:
    """The names of SGLang's server arguments, read from the text of its modules; None where SGLang is not installed."""
    found = importlib.util.find_spec("sglang")
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(found.submodule_search_locations[0], "srt")
    names: set[str] = set()
    for path in (folder / "server_args.py", *sorted((folder / "arg_groups" / "fields").glob("*.py"))):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and (path.parent.name == "fields" or node.name == "ServerArgs"):
                fields = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
                names |= {target.id for target in fields if isinstance(target, ast.Name)}
    if "tp_size" not in names:
        raise RunError("cannot read the arguments of this SGLang release", hint="install sglang 0.5.23")
    return names


def server_arguments(config: Config, model_path: str, device: Device) -> dict[str, Any]:
    """The arguments of the server; those of ``rollout.engine.args`` go over what follows from other keys."""
    rollout, model = config.rollout, config.model
    precision = config.train.precision.compute if rollout.precision == "auto" else rollout.precision
    arguments: dict[str, Any] = {
        "model_path": model_path,
        "tokenizer_path": model.tokenizer or model.path,
        "dtype": precision,
        "device": device,
        "random_seed": config.run.seed if rollout.sampling.seed is None else rollout.sampling.seed,
        "trust_remote_code": model.trust_remote_code,
        "context_length": model.max_context_tokens,
        "json_model_override_args": json.dumps(changes) if (changes := changes_of(model, model_path)) else None,
        "weight_version": "0",
        "tp_size": rollout.parallel.tensor_parallel_size,
        "pp_size": rollout.parallel.pipeline_parallel_size,
        "ep_size": rollout.parallel.expert_parallel_size,
        "skip_tokenizer_init": not rollout.sampling.stop,
        "enable_deterministic_inference": True,  # without it no request has a seed of its own
        **_of_memory(config, rollout.memory),
    }
    if arithmetic.rollout_routes(config):
        arguments["enable_return_routed_experts"] = True
    if arithmetic.rollout_sleeps(config, device):
        arguments["enable_memory_saver"] = True
        arguments["enable_weights_cpu_backup"] = rollout_schedule.sleep_level(config) == 1
    return {name: value for name, value in arguments.items() if value is not None} | _given(config)


def _of_memory(config: Config, memory: EngineMemory) -> dict[str, Any]:
    shared = config.placement.layout == "colocated" and arithmetic.trains(config)
    usual = FRACTION_COLOCATED if shared else FRACTION_ALONE
    return {
        "mem_fraction_static": usual if memory.gpu_memory_utilization is None else memory.gpu_memory_utilization,
        "max_running_requests": memory.max_num_seqs,
        "max_prefill_tokens": memory.max_batched_tokens,
        "chunked_prefill_size": None if memory.chunked_prefill else -1,
        "page_size": memory.block_size,
        "kv_cache_dtype": memory.kv_cache_dtype,
        "disable_radix_cache": not memory.prefix_caching,
        "disable_cuda_graph": memory.enforce_eager,
        "load_format": memory.load_format,
        "quantization": memory.quantization,
        "log_level": "info" if memory.log_statistics else "warning",
    }


def _given(config: Config) -> dict[str, Any]:
    """Arguments of the config's own; a null is SGLang's default, as in the frameworks."""
    return {name: value for name, value in config.rollout.engine.args.items() if value is not None}


def command_line(arguments: Mapping[str, Any]) -> list[str]:
    """Arguments as ``python -m sglang.launch_server`` takes them; a switch is there or not."""
    line: list[str] = []
    for name, value in arguments.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            line += [flag] if value else []
        elif isinstance(value, (list, tuple)):
            line += [flag, *map(str, value)]
        elif isinstance(value, Mapping):
            line += [flag, json.dumps(value)]
        else:
            line += [flag, str(value)]
    return line
