"""What Trinity-RFT refuses of rows: messages that are no JSON, places of images, columns of one workflow; and of experts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlctl.adapters.engine.requirements import Remedy, Requirement, Values
from rlctl.adapters.trinity.input_limits import tasksets, workflows
from rlctl.adapters.trinity.requirement_values import ENGINE
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level
from rlctl.planning.column_types import column_types
from rlctl.planning.models import model_config
from rlctl.planning.row_sample import row_sample

MOST = 2000
"""Rows that are read."""
INPUT, TRAINER = "buffer.explorer_input", "buffer.trainer_input"
FORMATTER = "trinity/buffer/schema/formatter.py, SFTFormatter"
MEDIA = (("image_key", "<image>"), ("video_key", "<video>"))
ADAPTERS = ("agentscope_workflow_adapter", "agentscope_workflow_adapter_v1")
COLUMNS: Mapping[str, tuple[str, str]] = {
    "math_eval_workflow": ("question", "trinity/common/workflows/eval_workflow.py, MathEvalWorkflow.format_messages"),
    "async_math_eval_workflow": (
        "question",
        "trinity/common/workflows/eval_workflow.py, MathEvalWorkflow.format_messages",
    ),
}
"""Workflows that read a column of a fixed name, and where."""


def _files(path: Any) -> list[Path]:
    """Local data files of a path; none for a name of a hub."""
    place = expanded(str(path or ""))
    if not path:
        return []
    return [place] if place.is_file() else sorted(place.glob("*.*")) if place.is_dir() else []


def _rows(path: Any) -> tuple[Mapping[str, Any], ...]:
    """The first rows of the first data file of a path."""
    samples = (row_sample(file, most=MOST) for file in _files(path))
    return next((sample.rows for sample in samples if sample is not None and sample.rows), ())


def _columns(path: Any) -> set[str]:
    return set(next((types for file in _files(path) if (types := column_types(file))), {}))


def _expert_sources(values: Values) -> Iterator[Mapping[str, Any]]:
    """Data of responses to imitate: of sft, and of the mixed algorithms."""
    algorithm = values["algorithm.algorithm_type"]
    if algorithm == "sft":
        own = values[f"{TRAINER}.experience_buffer"]
        yield own if isinstance(own, Mapping) else {}
    elif algorithm in ("mix", "mix_chord"):
        buffers = values[f"{TRAINER}.auxiliary_buffers"] or {}
        name = str(values["algorithm.sample_strategy_args.sft_dataset_name"] or "sft_dataset")
        yield buffers.get(name) or {}


def _format(source: Mapping[str, Any]) -> Mapping[str, Any]:
    form = source.get("format")
    return form if isinstance(form, Mapping) else {}


def _is_plain(source: Mapping[str, Any]) -> bool:
    return str(_format(source).get("prompt_type") or "messages").lower() == "plaintext"


def _is_json(text: Any) -> bool:
    if not isinstance(text, str):
        return True
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _no_json(values: Values) -> tuple[str, int] | None:
    """A column of messages or tools whose text is no JSON, and the number of the row, from 1."""
    for source in _expert_sources(values):
        tools = str(_format(source).get("tools_key") or "tools")
        messages = [] if _is_plain(source) else [str(_format(source).get("messages_key") or "message")]
        for number, row in enumerate(_rows(source.get("path")), 1):
            for column in (*messages, tools):
                if row.get(column) and not _is_json(row[column]):
                    return column, number
    return None


def _empty(values: Values) -> str:
    """The first row without a message, where a conversation is masked as a whole."""
    for source in _expert_sources(values):
        form = _format(source)
        if _is_plain(source) or not form.get("enable_concatenated_multi_turn"):
            continue
        column = str(form.get("messages_key") or "message")
        rows = enumerate(_rows(source.get("path")), 1)
        if found := next((number for number, row in rows if row.get(column) == []), 0):
            return str(found)
    return ""


def _media_sources(values: Values) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Data whose prompts have places for images, and the column of the prompt."""
    for source in _expert_sources(values):
        if _is_plain(source):
            yield source, str(_format(source).get("prompt_key") or "prompt")
    for item in tasksets(values) if values["mode"] != "train" else ():
        if "simple_mm" in str(item.get("default_workflow_type")):
            yield item, str(_format(item).get("prompt_key") or "prompt")


def _too_few_media(values: Values) -> tuple[str, int] | None:
    """A mark of which a row has more than it has images or videos, and the number of the row."""
    for source, prompt in _media_sources(values):
        for number, row in enumerate(_rows(source.get("path")), 1):
            for key, mark in MEDIA:
                column = _format(source).get(key)
                given = row.get(column) if column else None
                count = len(given) if isinstance(given, list | tuple) else 0
                if (given is None or isinstance(given, list | tuple)) and str(row.get(prompt)).count(mark) > count:
                    return mark, number
    return None


def _part(found: Callable[[Values], tuple[object, object] | None], index: int) -> Callable[[Values], object]:
    def shown(values: Values) -> object:
        pair = found(values)
        return "" if pair is None else pair[index]

    return shown


def _lacking_column(values: Values) -> tuple[str, str] | None:
    """A workflow and a column that it reads and its rows lack."""
    for item in tasksets(values) if values["mode"] != "train" else ():
        workflow = str(item.get("default_workflow_type") or values[f"{INPUT}.default_workflow_type"])
        column = COLUMNS.get(workflow, ("", ""))[0]
        columns = _columns(item.get("path")) if column else set()
        if columns and column not in columns:
            return workflow, column
    return None


def _without_data_base(values: Values) -> bool:
    """Whether a task set of databases names none, in its arguments or its rows."""
    for item in tasksets(values) if values["mode"] != "train" else ():
        workflow = str(item.get("default_workflow_type") or values[f"{INPUT}.default_workflow_type"])
        given = item.get("workflow_args") or {}
        if workflow == "intercode_sql_workflow" and not given.get("data_path"):
            columns = _columns(item.get("path"))
            return bool(columns) and "data_path" not in columns
    return False


def _adapter(values: Values) -> str:
    return next(iter(sorted(workflows(values) & set(ADAPTERS))), "")


def _text_config(values: Values) -> Mapping[str, Any]:
    """The local ``config.json`` of the policy, or the part of it about the decoder; empty if it is not on this machine."""
    config = model_config(str(values["model.model_path"] or "")) or {}
    text = config.get("text_config")
    return text if isinstance(text, Mapping) else config


def _without_experts(values: Values) -> bool:
    config = _text_config(values)
    experts = config.get("num_experts") or config.get("n_routed_experts")
    return bool(config) and not (config.get("num_experts_per_tok") and config.get("num_hidden_layers") and experts)


REPLAY = "algorithm.enable_router_replay"

ROWS: tuple[Requirement, ...] = (
    Requirement(
        TRAINER,
        _no_json,
        "the column {column} of row {row} holds text that is not JSON",
        f"{FORMATTER}.format",
        "write the column as JSON, or set prompt_type of its format to plaintext",
        numbers={"column": _part(_no_json, 0), "row": _part(_no_json, 1)},
        when="update",
    ),
    Requirement(
        TRAINER,
        _empty,
        "row {row} of the data to imitate has no message",
        "trinity/common/models/utils.py, tokenize_and_mask_messages_default",
        "remove the row",
        numbers={"row": _empty},
        when="update",
    ),
    Requirement(
        INPUT,
        _too_few_media,
        "row {row} has more {mark} in its prompt than images or videos",
        "trinity/common/models/mm_utils.py, build_mm_message",
        "correct the row, or image_key and video_key of its format",
        numbers={"mark": _part(_too_few_media, 0), "row": _part(_too_few_media, 1)},
        when="generation",
    ),
    Requirement(
        INPUT,
        _lacking_column,
        "{workflow} reads the column {column}, and the rows of its task set lack it",
        COLUMNS["math_eval_workflow"][1],
        "rename the column of the question to {column}, or choose another workflow",
        numbers={"workflow": _part(_lacking_column, 0), "column": _part(_lacking_column, 1)},
        check_code="data-column",
        when="generation",
    ),
    Requirement(
        f"{INPUT}.taskset.workflow_args",
        _without_data_base,
        "intercode_sql_workflow finds no data_path, neither in workflow_args nor in the rows",
        "trinity/common/workflows/envs/intercode_sql/intercode_sql_workflow.py, InterCodeSQLWorkflow._resolve_data_path",
        "set workflow_args.data_path",
        when="generation",
    ),
    Requirement(
        f"{INPUT}.default_workflow_type",
        _adapter,
        "{workflow} calls a function workflow_func, which only a program can pass, no file",
        "trinity/common/workflows/agentscope_workflow.py, AgentScopeWorkflowAdapter.__init__",
        "start the run from AgentScope's tuner, or name another workflow",
        numbers={"workflow": _adapter},
        level=Level.WARNING,
        when="generation",
    ),
    Requirement(
        REPLAY,
        lambda v: v[REPLAY] and _without_experts(v),
        said("{replay} is true, but {{model.model_path}} has no experts to route to", replay=REPLAY),
        "trinity/common/models/model.py, BaseInferenceModel._get_routed_experts_layout",
        Remedy(REPLAY, False),
        when="generation",
    ),
    Requirement(
        REPLAY,
        lambda v: v[REPLAY] and v[f"{ENGINE}.engine_type"] not in ("vllm", "vllm_async", "sglang"),
        said(
            "{replay} is true, but {engine}.engine_type {{{engine}.engine_type}} returns no routes",
            replay=REPLAY,
            engine=ENGINE,
        ),
        "trinity/common/models/model.py, ModelWrapper._assert_openai_routed_experts_request_supported",
        Remedy(f"{ENGINE}.engine_type", "vllm"),
        when="generation",
    ),
    Requirement(
        "model.lora_configs",
        lambda v: v["model.lora_configs"] and (config := _text_config(v)) and "vocab_size" not in config,
        "the config.json of {model.model_path} has no vocab_size, of which Trinity makes the first adapter",
        "trinity/utils/lora_utils.py, create_dummy_lora",
        "correct the config.json",
    ),
)
