"""What vLLM 0.32 and SGLang 0.5 refuse of the arguments and the sampling that verl hands to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlctl.adapters.engine.requirements import Requirement, Values
from rlctl.adapters.engine.sglang_arguments import sglang_rows
from rlctl.adapters.engine.vllm_arguments import argument_rows
from rlctl.adapters.verl.combination_limits import VLLM_ARGS, model_row, needed_row, pair_row
from rlctl.adapters.verl.requirement_values import MODEL, ROLLOUT, longest, uses_engine
from rlctl.adapters.verl.value_limits import ENGINE, GENERATED, Applies, count_rows, value_row
from rlctl.common.report import Level

SPECULATIVE = f"{VLLM_ARGS}.speculative_config"
NO_FLOAT16 = ("gemma2", "gemma3", "gemma3_text", "glm4")
"""Types of models that vLLM does not run in float16."""
SAMPLING = "vllm/sampling_params.py, SamplingParams._verify_args"
PARALLEL = "vllm/config/parallel.py, ParallelConfig._validate_parallel_config"
SCHEDULER = "vllm/config/scheduler.py, SchedulerConfig.verify_max_model_len"
ARGS = "vllm/engine/arg_utils.py, EngineArgs.create_engine_config"
SPECULATION = "vllm/config/speculative.py, SpeculativeConfig"


def _vllm(applies: Applies) -> Applies:
    return lambda values: uses_engine("vllm")(values) and applies(values)


def _arg(name: str) -> str:
    return f"{VLLM_ARGS}.{name}"


def _pair(name: str, other: str, excluded: Applies, source: str, fix: object = "null") -> Requirement:
    return pair_row(_arg(name), other, _vllm(lambda v: v[_arg(name)] and excluded(v)), source, fix, ENGINE)


def _sampling() -> Iterator[Requirement]:
    """Sampling of rollout and of validation."""
    for section in (ROLLOUT, f"{ROLLOUT}.val_kwargs"):
        for name, fits, expected, fix in (
            ("top_k", lambda value: isinstance(value, int) and value >= -1, "-1 or more", -1),
            ("min_p", lambda value: 0 <= float(value) <= 1, "a number from 0 to 1", 0),
            ("repetition_penalty", lambda value: float(value) > 0, "more than 0", 1.0),
        ):
            yield value_row(
                f"{section}.{name}",
                fits,
                expected,
                SAMPLING,
                fix,
                GENERATED,
                lambda v, key=f"{section}.{name}": uses_engine("vllm")(v) and v.written(key),  # type: ignore[misc]
            )
        yield value_row(
            f"{section}.temperature",
            lambda value: float(value) <= 2,
            "at most 2",
            SAMPLING,
            1.0,
            GENERATED,
            _vllm(lambda v: True),
            level=Level.WARNING,
        )


def _scheduling() -> Iterator[Requirement]:
    """The scheduler and data parallelism."""
    sequences, tensor = f"{ROLLOUT}.max_num_seqs", f"{ROLLOUT}.tensor_model_parallel_size"
    yield _pair(
        "max_num_active_seqs",
        sequences,
        lambda v: v.number(_arg("max_num_active_seqs"), 0) > v.number(sequences, 0),
        SCHEDULER,
    )
    yield _pair(
        "long_prefill_token_threshold",
        f"{ROLLOUT}.max_model_len",
        lambda v: (
            v.number(_arg("long_prefill_token_threshold"), 0)
            > v.number(f"{ROLLOUT}.max_model_len", 0)
            >= longest(v)
            > 0
        ),
        SCHEDULER,
    )
    yield _pair(
        "decode_context_parallel_size",
        tensor,
        lambda v: v.number(tensor) % v.number(_arg("decode_context_parallel_size")),
        PARALLEL,
        1,
    )
    yield _pair(
        "data_parallel_external_lb",
        _arg("data_parallel_hybrid_lb"),
        lambda v: v[_arg("data_parallel_hybrid_lb")],
        ARGS,
        "false",
    )
    yield _pair("numa_bind_nodes", _arg("numa_bind"), lambda v: not v[_arg("numa_bind")], PARALLEL)
    yield _pair(
        "max_cpu_loras", _arg("max_loras"), _more_loras, "vllm/config/lora.py, LoRAConfig._validate_lora_config"
    )
    for name, config in (
        ("attention_backend", "attention_config.backend"),
        ("cudagraph_capture_sizes", "compilation_config.cudagraph_capture_sizes"),
        ("max_cudagraph_capture_size", "compilation_config.max_cudagraph_capture_size"),
        ("enable_flashinfer_autotune", "kernel_config.enable_flashinfer_autotune"),
    ):
        yield _pair(name, _arg(config), lambda v, config=config: v[_arg(config)] is not None, ARGS)  # type: ignore[misc]
    for name in ("kv", "ec"):
        section = f"{name}_transfer_config"
        yield needed_row(
            _arg(f"{section}.{name}_role"),
            _arg(f"{section}.{name}_connector"),
            _vllm(lambda v, section=section, name=name: v[_arg(f"{section}.{name}_connector")]),  # type: ignore[misc]
            f"vllm/config/{name}_transfer.py",
            ENGINE,
        )


def _more_loras(values: Values) -> bool:
    return values.number(_arg("max_cpu_loras"), 0) < values.number(_arg("max_loras"))


def _experts() -> Iterator[Requirement]:
    """Experts, and types of models."""
    path, parallel = f"{MODEL}.path", f"{ROLLOUT}.expert_parallel_size"
    source = "vllm/config/model.py, ModelConfig._verify_with_expert_parallelism"
    for key, applies in (
        (parallel, _vllm(lambda v: v.number(parallel) > 1)),
        (_arg("enable_expert_parallel"), _vllm(lambda v: v[_arg("enable_expert_parallel")])),
    ):
        yield model_row(key, path, lambda shape: not shape.experts, "has no experts", source, applies, 1)
    yield _pair(
        "enable_eplb",
        parallel,
        lambda v: v.number(parallel) == 1 and not v[_arg("enable_expert_parallel")],
        PARALLEL,
        "false",
    )
    yield model_row(
        f"{ROLLOUT}.dtype",
        path,
        lambda shape: shape.family in NO_FLOAT16,
        "does not run in float16",
        "vllm/config/model.py, _check_valid_dtype",
        _vllm(lambda v: v[f"{ROLLOUT}.dtype"] in ("float16", "half")),
        "bfloat16",
    )


def _speculation() -> Iterator[Requirement]:
    """Speculative decoding."""

    def value(values: Values, name: str) -> Any:
        return values[f"{SPECULATIVE}.{name}"]

    yield from count_rows(
        (f"{SPECULATIVE}.num_speculative_tokens",), 1, f"{SPECULATION}._verify_args", applies=_vllm(lambda v: True)
    )
    yield pair_row(
        f"{SPECULATIVE}.prompt_lookup_min",
        f"{SPECULATIVE}.prompt_lookup_max",
        _vllm(
            lambda v: (
                value(v, "method") in ("ngram", "ngram_gpu")
                and value(v, "prompt_lookup_max")
                and value(v, "prompt_lookup_min")
                and value(v, "prompt_lookup_min") > value(v, "prompt_lookup_max")
            )
        ),
        f"{SPECULATION}.__post_init__",
        1,
        ENGINE,
    )
    yield value_row(
        f"{SPECULATIVE}.tensor_parallel_size",
        lambda given: False,
        "null",
        f"{SPECULATION}._verify_args",
        "null",
        ENGINE,
        _vllm(lambda v: True),
    )
    yield needed_row(
        f"{SPECULATIVE}.model",
        f"{SPECULATIVE}.method",
        _vllm(lambda v: value(v, "method") == "custom_class"),
        f"{SPECULATION}.__post_init__",
        ENGINE,
    )
    for name, low in (("suffix_decoding_max_tree_depth", 1), ("suffix_decoding_max_cached_requests", 0)):
        yield from count_rows(
            (f"{SPECULATIVE}.{name}",),
            low,
            f"{SPECULATION}._validate_suffix_decoding",
            applies=_vllm(lambda v: value(v, "method") == "suffix"),
        )


OWN = {
    "tensor_parallel_size": "tensor_model_parallel_size",
    "pipeline_parallel_size": "pipeline_model_parallel_size",
    **{
        name: name
        for name in (
            "data_parallel_size",
            "max_num_batched_tokens",
            "max_num_seqs",
            "max_model_len",
            "dtype",
            "enforce_eager",
            "enable_prefix_caching",
            "logprobs_mode",
        )
    },
}
"""Keys of verl's own for arguments of vLLM."""


def _key(name: str) -> str:
    return f"{ROLLOUT}.{OWN[name]}" if name in OWN else _arg(name)


def _sglang_key(name: str) -> str:
    return f"{ROLLOUT}.{SGLANG[name]}" if name in SGLANG else f"{ROLLOUT}.engine_kwargs.sglang.{name}"


SGLANG = {
    "tp_size": "tensor_model_parallel_size",
    "pp_size": "pipeline_model_parallel_size",
    "dp_size": "data_parallel_size",
    "ep_size": "expert_parallel_size",
}
"""Keys of verl's own for arguments of SGLang."""

ROWS: tuple[Requirement, ...] = (
    *sglang_rows(_sglang_key, f"{MODEL}.path", uses_engine("sglang"), ENGINE),
    *_sampling(),
    *_scheduling(),
    *_experts(),
    *_speculation(),
    *argument_rows(_key, f"{MODEL}.path", uses_engine("vllm"), ENGINE),
)
