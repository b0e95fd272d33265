"""What Trinity-RFT's engines refuse: tensor parallelism and Ulysses that do not fit a model, parsers that vLLM lacks."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.adapters.engine.model_limits import ULYSSES, VLLM, memory_share_row, split_row
from rlctl.adapters.engine.requirements import Requirement, Values
from rlctl.adapters.trinity.requirement_values import ENGINE, own_devices, rank_devices
from rlctl.adapters.trinity.train import strategy
from rlctl.common.errors import closest
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level

TENSOR, SEQUENCE = f"{ENGINE}.tensor_parallel_size", "trainer.ulysses_sequence_parallel_size"
PATCH = "trinity/trainer/verl/monkey_patch.py, apply_monkey_patch"


def _shares_sequences(values: Values) -> bool:
    trains = values["mode"] in ("both", "train", "colocate") and values["trainer.trainer_type"] == "verl"
    return trains and strategy(values.view) != "megatron"


def _starts_engines(values: Values) -> bool:
    return own_devices(values) and values["mode"] != "train"


PARSER, CHOICE, SERVED = (
    f"{ENGINE}.{name}" for name in ("tool_call_parser", "enable_auto_tool_choice", "enable_openai_api")
)
PARSERS = (
    *("apertus", "cohere_command3", "cohere_command4", "deepseek_v3", "deepseek_v31", "deepseek_v32"),
    *("deepseek_v4", "deepseek_v41", "dots", "ernie45", "functiongemma", "gemma4", "gigachat3", "glm45"),
    *("glm47", "granite", "granite-20b-fc", "granite4", "hermes", "hf", "hunyuan_a13b", "hy_v3", "hy_v4"),
    *("inkling", "internlm", "jamba", "k2_horizon", "kimi_k2", "kimi_k3", "lfm2", "ling3", "llama3_json"),
    *("llama4_json", "llama4_pythonic", "longcat", "mimo", "minicpm5", "minimax", "minimax_m2", "minimax_m3"),
    *("mistral", "muse_glimmer", "olmo3", "openai", "phi4_mini_json", "plamo3", "poolside_v1", "pythonic"),
    *("qwen3_coder", "qwen3_json", "qwen3_xml", "seed_oss", "step3", "step3p5", "xlam"),
)
"""Parsers of tool calls that vLLM 0.32 (``vllm/tool_parsers/__init__.py``) and older releases register."""
SERVER = "vllm/entrypoints/openai/serving_chat.py, OpenAIServingChat.__init__"


def _serves(values: Values) -> bool:
    is_vllm = values[f"{ENGINE}.engine_type"] in (None, "vllm", "vllm_async")
    return is_vllm and values[SERVED] is True and values[CHOICE] is True and values["mode"] != "train"


def _parsers() -> Iterator[Requirement]:
    yield Requirement(
        PARSER,
        lambda v: _serves(v) and not v[PARSER],
        said(
            "{switch} is true, and {parser} is not set: the engine's server does not start",
            switch=CHOICE,
            parser=PARSER,
        ),
        SERVER,
        said("set {parser}, such as hermes for Qwen models", parser=PARSER),
        since="0.4",
        when="engine",
    )
    yield Requirement(
        PARSER,
        lambda v: _serves(v) and v[PARSER] and v[PARSER] not in PARSERS and closest(str(v[PARSER]), PARSERS),
        said("{parser} is {{{parser}}}, which vLLM does not have: the engine's server does not start", parser=PARSER),
        SERVER,
        "did you mean {near}?",
        numbers={"near": lambda v: closest(str(v[PARSER]), PARSERS)},
        since="0.4",
        when="engine",
        level=Level.WARNING,
    )


ROWS: tuple[Requirement, ...] = (
    split_row(TENSOR, "model.model_path", lambda v: v.number(TENSOR), _starts_engines, VLLM, since="0.4"),
    split_row(
        SEQUENCE,
        "model.model_path",
        rank_devices,
        _shares_sequences,
        ULYSSES,
        "when the trainer loads the model",
        PATCH,
        since="0.5",
    ),
    *_parsers(),
    memory_share_row(f"{ENGINE}.gpu_memory_utilization", _starts_engines, since="0.4"),
)
