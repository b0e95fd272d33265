"""What Trinity-RFT's engine and data loader refuse or change: ranks of adapters, lengths of responses, splits of folders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.requirements import IGNORES, NEAREST, Remedy, Requirement, Values
from rlctl.adapters.trinity.input_limits import tasksets
from rlctl.adapters.trinity.requirement_values import ENGINE, own_devices
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level
from rlctl.planning.dataset_splits import splits_in

INPUT, BUFFER = "buffer.explorer_input.taskset", "buffer.trainer_input.experience_buffer"
READER = "trinity/buffer/reader/file_reader.py, _DatasetFileReader"
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM has kernels for."""
PRIORITIES = ("linear_decay", "decay_limit_randomization")
"""The priorities of a queue that Trinity registers."""


def _rank(values: Values) -> int:
    """The rank of an adapter that vLLM does not take; 0 for none."""
    configs = values["model.lora_configs"] or ()
    ranks = (int(item.get("lora_rank", 32)) for item in configs if isinstance(item, Mapping))
    return next((rank for rank in ranks if rank > 0 and rank not in LORA_RANKS), 0)


def _starts_vllm(values: Values) -> bool:
    engine = str(values[f"{ENGINE}.engine_type"] or "vllm")
    return own_devices(values) and engine.startswith("vllm") and values["mode"] != "train"


def _fills_the_context(values: Values) -> bool:
    """Whether responses take all of the context, so that one token is left for the prompt."""
    context, response = values["model.max_model_len"], values["model.max_response_tokens"]
    return None not in (context, response) and values["model.max_prompt_tokens"] is None and response >= context - 1


def _datasets(values: Values) -> Iterator[Mapping[str, Any]]:
    buffer = values[BUFFER]
    explored = tasksets(values) if values["mode"] != "train" else []
    yield from (item for item in (*explored, buffer) if isinstance(item, Mapping))


def _unknown_split(values: Values) -> tuple[str, str, str] | None:
    """A folder, the split that a file asks of it, and those that it has."""
    for item in _datasets(values):
        path, split = item.get("path"), str(item.get("split") or "train")
        folder = expanded(path) if isinstance(path, str) and "${" not in path else None
        if item.get("storage_type") not in (None, "file") or item.get("subset_name") or folder is None:
            continue
        known = splits_in(folder) if folder.is_dir() else frozenset()
        if known and re.fullmatch(r"\w+", split) and split != "all" and split not in known:
            return str(path), split, ", ".join(sorted(known))
    return None


def _of_split(index: int) -> Any:
    def value(values: Values) -> str:
        found = _unknown_split(values)
        return found[index] if found is not None else ""

    return value


ROWS: tuple[Requirement, ...] = (
    Requirement(
        "model.lora_configs",
        lambda v: _starts_vllm(v) and _rank(v),
        "lora_rank of model.lora_configs is {rank}; vLLM takes {ranks}, and the run stops when it starts vLLM",
        "vllm/config/lora.py, LoRAConfig",
        "set lora_rank to 32",
        numbers={"rank": _rank, "ranks": lambda v: ", ".join(map(str, LORA_RANKS))},
        since="0.4",
    ),
    Requirement(
        "model.max_response_tokens",
        _fills_the_context,
        "model.max_response_tokens ({model.max_response_tokens}) takes all of model.max_model_len ({model.max_model_len}): "
        "Trinity leaves one token for the prompt, so every prompt is cut and no response is trained on",
        "trinity/common/config_validator.py, ModelConfigValidator._check_model_len",
        Remedy("model.max_response_tokens", NEAREST),
        since="0.4",
        code=IGNORES,
        level=Level.ERROR,
    ),
    Requirement(
        f"{BUFFER}.replay_buffer.priority_fn",
        lambda v: (
            v[f"{BUFFER}.replay_buffer.enable"] is True
            and v[f"{BUFFER}.replay_buffer.priority_fn"] not in (None, *PRIORITIES)
        ),
        said(
            "{key} is {{{key}}}, which Trinity does not register; only a plug-in could",
            key=f"{BUFFER}.replay_buffer.priority_fn",
        ),
        "trinity/buffer/storage/queue.py, AsyncPriorityQueue.__init__",
        Remedy(f"{BUFFER}.replay_buffer.priority_fn", PRIORITIES[0]),
        level=Level.WARNING,
    ),
    Requirement(
        INPUT,
        _unknown_split,
        "{folder} has no split '{split}'; it has {splits}",
        READER,
        "change split, or name a file of the folder after the split",
        numbers={name: _of_split(index) for index, name in enumerate(("folder", "split", "splits"))},
        since="0.4",
    ),
)
