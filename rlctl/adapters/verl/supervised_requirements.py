"""What verl's SFT trainers refuse of batches and ranks."""

from __future__ import annotations

from rlctl.adapters.engine.requirements import IGNORES, Requirement, Values
from rlctl.adapters.verl import column_limits
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level

BATCH, MICRO, GPUS = "data.train_batch_size", "data.micro_batch_size_per_gpu", "trainer.n_gpus_per_node"
OLD = "verl/trainer/fsdp_sft_trainer.py, FSDPSFTTrainer._normalize_config_bsz"


def _old_ranks(values: Values) -> int:
    """Data-parallel ranks of the old trainer, which torchrun says; 1 if no command says them."""
    if not values.written(GPUS):
        return 1
    world = values.number("trainer.nnodes") * values.number(GPUS)
    return max(1, world // values.number("ulysses_sequence_parallel_size"))


def _ranks(values: Values) -> int:
    if not values.written(GPUS):
        return 1
    sizes = [
        values.number(f"engine.{name}")
        for name in ("ulysses_sequence_parallel_size", "tensor_model_parallel_size", "pipeline_model_parallel_size")
    ]
    shared = sizes[0] * sizes[1] * sizes[2] * values.number("engine.context_parallel_size")
    return max(1, values.number("trainer.nnodes") * values.number(GPUS) // shared)


ROWS: tuple[Requirement, ...] = (
    *column_limits.SUPERVISED_ROWS,
    Requirement(
        BATCH,
        lambda v: v.number(BATCH, 0) % _old_ranks(v),
        said(
            "{batch} ({{{batch}}}) is not divisible by the {{ranks}} data-parallel ranks that torchrun starts: the trainer stops "
            "when it starts",
            batch=BATCH,
        ),
        OLD,
        said("set {batch} to a multiple of {{ranks}}", batch=BATCH),
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
        said("set {micro} to a divisor of {{share}}", micro=MICRO),
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
        said("set {batch} to a multiple of {{ranks}}", batch=BATCH),
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
)
