"""What Trinity-RFT's engines refuse of a model's shape: tensor parallelism of rollout engines, Ulysses of the trainer."""

from __future__ import annotations

from rlctl.adapters.engine.model_limits import ULYSSES, VLLM, memory_share_row, split_row
from rlctl.adapters.engine.requirements import Requirement, Values
from rlctl.adapters.trinity.requirement_values import ENGINE, own_devices, rank_devices
from rlctl.adapters.trinity.train import strategy

TENSOR, SEQUENCE = f"{ENGINE}.tensor_parallel_size", "trainer.ulysses_sequence_parallel_size"
PATCH = "trinity/trainer/verl/monkey_patch.py, apply_monkey_patch"


def _shares_sequences(values: Values) -> bool:
    trains = values["mode"] in ("both", "train", "colocate") and values["trainer.trainer_type"] == "verl"
    return trains and strategy(values.view) != "megatron"


def _starts_engines(values: Values) -> bool:
    return own_devices(values) and values["mode"] != "train"


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
    memory_share_row(f"{ENGINE}.gpu_memory_utilization", _starts_engines, since="0.4"),
)
