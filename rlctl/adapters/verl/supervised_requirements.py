"""What verl's SFT trainers refuse of batches and ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlctl.adapters.engine.requirements import IGNORES, NEAREST, Remedy, Requirement, Values
from rlctl.adapters.engine.values import files_of
from rlctl.adapters.verl import column_limits
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level
from rlctl.planning.parquet_footer import parquet_rows

VALIDATION = "data.val_files"
OFFLOAD, POLICY = "model.fsdp_config.cpu_offload", "engine.offload_policy"
BATCH, MICRO, GPUS = "data.train_batch_size", "data.micro_batch_size_per_gpu", "trainer.n_gpus_per_node"
OLD = "verl/trainer/fsdp_sft_trainer.py, FSDPSFTTrainer._normalize_config_bsz"


def _old_world(values: Values) -> int:
    """GPUs of the old trainer, which torchrun says; 1 if no command says them."""
    return values.number("trainer.nnodes") * values.number(GPUS) if values.written(GPUS) else 1


def _old_ranks(values: Values) -> int:
    """Data-parallel ranks of the old trainer."""
    return max(1, _old_world(values) // values.number("ulysses_sequence_parallel_size"))


def _ranks(values: Values) -> int:
    if not values.written(GPUS):
        return 1
    sizes = [
        values.number(f"engine.{name}")
        for name in ("ulysses_sequence_parallel_size", "tensor_model_parallel_size", "pipeline_model_parallel_size")
    ]
    shared = sizes[0] * sizes[1] * sizes[2] * values.number("engine.context_parallel_size")
    return max(1, values.number("trainer.nnodes") * values.number(GPUS) // shared)


def _validated(values: Values) -> int | None:
    """Rows of the validation files; None if a file is not on this machine."""
    paths = [expanded(str(name).removeprefix("file://")) for name in files_of(values[VALIDATION])]
    if not paths or not all(path.suffix == ".parquet" and path.is_file() for path in paths):
        return None
    return sum(parquet_rows(path) for path in paths)


def _too_few(values: Values, batch: int) -> bool:
    rows = _validated(values)
    return rows is not None and rows < batch and bool(values.written(GPUS))


def _unvalidated(kind: str, batch: Callable[[Values], int], message: str, source: str, **others: Any) -> Requirement:
    return Requirement(
        VALIDATION,
        lambda v: _too_few(v, batch(v)),
        message,
        source,
        said("give {key} more rows", key=VALIDATION),
        numbers={"rows": _validated, "batch": batch},
        kinds=(kind,),
        **others,
    )


ROWS: tuple[Requirement, ...] = (
    *column_limits.SUPERVISED_ROWS,
    _unvalidated(
        "sft",
        lambda v: _old_world(v) * v.number(MICRO, 4),
        "data.val_files have {rows} rows, fewer than the {batch} of one micro-batch on every GPU, and the last batch is dropped: "
        "none is left, and the trainer stops at its first validation",
        "verl/trainer/fsdp_sft_trainer.py, FSDPSFTTrainer.fit",
        since="0.3",
        until="0.7",
        when="validation",
    ),
    _unvalidated(
        "sft_engine",
        lambda v: v.number(BATCH, 256),
        "data.val_files have {rows} rows, fewer than data.train_batch_size ({batch}), and the last batch is dropped: none is "
        "left, and the loss of validation is NaN",
        "verl/trainer/sft_trainer.py, SFTTrainer.fit",
        since="0.6",
        level=Level.WARNING,
        code=IGNORES,
    ),
    Requirement(
        OFFLOAD,
        lambda v: v[OFFLOAD] is True and v["model.strategy"] == "fsdp2",
        said(
            "{key} is True, and model.strategy is fsdp2: the trainer moves the weights to the CPU without telling FSDP2, and the "
            "first backward pass stops",
            key=OFFLOAD,
        ),
        "verl/trainer/fsdp_sft_trainer.py, FSDPSFTTrainer._build_model_optimizer",
        said("set model.strategy to fsdp, or {key} to False", key=OFFLOAD),
        since="0.4",
        until="0.7",
        level=Level.WARNING,
        kinds=("sft",),
        when="update",
    ),
    Requirement(
        BATCH,
        lambda v: v.number(BATCH, 0) % _old_ranks(v),
        said(
            "{batch} ({{{batch}}}) is not divisible by the {{ranks}} data-parallel ranks that torchrun starts: the trainer stops "
            "when it starts",
            batch=BATCH,
        ),
        OLD,
        Remedy(BATCH, NEAREST),
        numbers={"ranks": _old_ranks},
        since="0.3",
        until="0.7",
        kinds=("sft",),
    ),
    Requirement(
        MICRO,
        lambda v: v.number(BATCH, 0) % _old_ranks(v) == 0 and v.number(BATCH, 0) // _old_ranks(v) % v.number(MICRO, 4),
        said(
            "a rank's share of {batch} ({{{batch}}} / {{ranks}} = {{share}}) is not divisible by {micro} ({{{micro}}}): the "
            "trainer stops when it starts",
            batch=BATCH,
            micro=MICRO,
        ),
        OLD,
        Remedy(MICRO, NEAREST),
        numbers={"ranks": _old_ranks, "share": lambda v: v.number(BATCH, 0) // _old_ranks(v)},
        since="0.3",
        until="0.7",
        kinds=("sft",),
    ),
    Requirement(
        BATCH,
        lambda v: v.number(BATCH, 0) % _ranks(v),
        said(
            "{batch} ({{{batch}}}) is not divisible by the {{ranks}} data-parallel ranks: each takes {{share}} rows, so a step "
            "trains on {{used}}",
            batch=BATCH,
        ),
        "verl/trainer/sft_trainer.py, SFTTrainer._build_dataloader",
        Remedy(BATCH, NEAREST),
        numbers={
            "ranks": _ranks,
            "share": lambda v: v.number(BATCH, 0) // _ranks(v),
            "used": lambda v: v.number(BATCH, 0) // _ranks(v) * _ranks(v),
        },
        since="0.6",
        level=Level.WARNING,
        code=IGNORES,
        kinds=("sft_engine",),
    ),
    Requirement(
        POLICY,
        lambda v: v[POLICY] is True and v["engine.strategy"] == "fsdp",
        said("{key} is True, but engine.strategy is fsdp: only fsdp2 reads it", key=POLICY),
        "verl/workers/engine/fsdp/transformer_impl.py, FSDPEngine._build_fsdp_module",
        "set engine.strategy to fsdp2, or engine.param_offload to True",
        since="0.6",
        level=Level.WARNING,
        code=IGNORES,
        kinds=("sft_engine",),
    ),
)
