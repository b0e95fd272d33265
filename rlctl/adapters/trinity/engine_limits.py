"""What Trinity-RFT's engines refuse of a model's shape: tensor parallelism of rollout engines, Ulysses of the trainer."""

from __future__ import annotations

from rlctl.adapters.engine.model_limits import (
    TENSOR_PARALLEL,
    memory_share_row,
    split_row,
    tensor_parallel_fault,
    ulysses_fault,
)
from rlctl.adapters.engine.requirements import Requirement, Values
from rlctl.adapters.trinity.requirement_values import ENGINE, own_devices, rank_devices
from rlctl.adapters.trinity.train import strategy
from rlctl.common.messages.reasons import said

TENSOR, SEQUENCE = f"{ENGINE}.tensor_parallel_size", "trainer.ulysses_sequence_parallel_size"
PATCH = "trinity/trainer/verl/monkey_patch.py, apply_monkey_patch"


def _shares_sequences(values: Values) -> bool:
    trains = values["mode"] in ("both", "train", "colocate") and values["trainer.trainer_type"] == "verl"
    return trains and strategy(values.view) != "megatron"


def _starts_engines(values: Values) -> bool:
    return own_devices(values) and values["mode"] != "train"


ROWS: tuple[Requirement, ...] = (
    split_row(
        TENSOR,
        "model.model_path",
        lambda v: v.number(TENSOR),
        _starts_engines,
        said(
            "{key} is {{size}}, which does not divide the model's {{part}}; vLLM splits them over the GPUs of an engine and stops "
            "when it starts",
            key=TENSOR,
        ),
        tensor_parallel_fault,
        TENSOR_PARALLEL,
        since="0.5",
    ),
    split_row(
        SEQUENCE,
        "model.model_path",
        rank_devices,
        _shares_sequences,
        said(
            "{key} is {{size}}, which does not divide the model's {{part}}; Ulysses shares them among so many GPUs, and the trainer "
            "stops when it loads the model",
            key=SEQUENCE,
        ),
        ulysses_fault,
        PATCH,
        since="0.5",
    ),
    memory_share_row(
        f"{ENGINE}.gpu_memory_utilization", _starts_engines, "trinity/common/models/vllm_model.py", since="0.5"
    ),
)
