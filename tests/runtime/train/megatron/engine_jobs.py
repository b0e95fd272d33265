"""What worker processes do with engines, of either kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor

from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.model import Lora, Model
from rlctl.config.sections.train import Megatron, PrecisionSettings, Train
from rlctl.runtime.algorithms import entropy
from rlctl.runtime.algorithms.distributions import LOG_PROBS, STATISTICS
from rlctl.runtime.train.engines import make_train_engine
from rlctl.runtime.train.interface import Comparison, LossFunction, Role, TrainEngine
from rlctl.runtime.train.losses import SftLoss, totals_of
from rlctl.runtime.types import Sample
from tests.runtime.train.jobs import save_sent_adapters, settings

STEPS = 2
PLAIN: Mapping[str, Any] = {}
"""Nothing further in section ``model``."""


def settings_of(engine: Any) -> Train:
    """Adam whose epsilon is not far below the gradients, else rounding decides the direction of a weight without one."""
    plain = settings(lr=1e-3, epsilon=1e-3, max_grad_norm=1.0, weight_decay=0.1)
    return dataclasses.replace(plain, engine=engine)


@dataclass
class EngineResult:
    """What a worker has of a pass, updates, and a pass."""

    replica: int
    before: list[Tensor]
    """Log-probs, and the statistics that a policy's pass tells; or values."""
    metrics: list[dict[str, float]]
    weights: dict[str, Tensor]
    after: list[Tensor]


def replica_of(engine: Any) -> tuple[int, int]:
    """The replica of this worker, and how many there are."""
    if not isinstance(engine, Megatron):
        return dist.get_rank(), dist.get_world_size()
    from megatron.core import parallel_state

    return parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()


def make(folder: Path, engine: Any, role: Role = "policy", model: Mapping[str, Any] = PLAIN) -> TrainEngine:
    section = Model(path=str(folder), **model)
    return make_train_engine(section, settings_of(engine), role=role, seed=1, scheduler_steps=10)


def train(
    folder: Path,
    engine: Any,
    role: Role,
    samples: Sequence[Sample],
    loss: LossFunction,
    micro: MicroBatchSize,
    model: Mapping[str, Any] = PLAIN,
) -> EngineResult:
    """Log-probs and statistics, or values, ``STEPS`` updates, weights, and log-probs or values again."""
    made = make(folder, engine, role, model)
    replica, replicas = replica_of(engine)
    mine = samples[replica::replicas]

    def say() -> list[Tensor]:
        if role == "critic":
            return made.values(mine, micro=micro)
        found = made.statistics(mine, names, temperature=0.7, micro=micro)
        return [each for name in names for each in found[name]]

    names: tuple[str, ...] = (LOG_PROBS, *STATISTICS)
    before, metrics, names = say(), [], (LOG_PROBS,)
    for _ in range(STEPS):
        metrics.append(made.update(mine, loss, micro=micro, temperature=0.7, totals=totals_of(samples)))
        made.step_schedule()
    weights = {name: tensor.clone() for name, tensor in made.export_weights()}
    return EngineResult(replica, before, metrics, weights, say())


def train_compiled(*job: Any) -> EngineResult:
    """As ``train``, with what a GPU compiles; the compiler itself is off, as ``cpu_shim`` has it."""
    from megatron.core.transformer import mlp

    from rlctl.runtime.train.megatron import engine, experts, model

    functions = (entropy, "_read"), (entropy, "_slope"), (model, "_norm"), (experts, "_gate")
    usual = [getattr(where, name) for where, name in functions]
    with ExitStack() as stack:
        for (where, name), as_it_was in zip(functions, usual, strict=True):
            stack.enter_context(mock.patch.object(where, name, as_it_was))
        stack.enter_context(mock.patch.object(engine, "compiles", return_value=True))
        swiglu = stack.enter_context(mock.patch.object(mlp, "bias_swiglu_impl", wraps=mlp.bias_swiglu_impl))
        found = train(*job)
        assert all(
            getattr(where, name) is not as_it_was for (where, name), as_it_was in zip(functions, usual, strict=True)
        )
        assert swiglu.called
        return found


def train_adapters(
    folder: Path, engine: Any, samples: Sequence[Sample], lora: Lora, micro: MicroBatchSize, target: Path
) -> tuple[int, list[Tensor], list[Tensor]]:
    """Steps, a checkpoint and an export; the replica, log-probs with adapters after them, and without."""
    made = make(folder, engine, model={"lora": lora})
    replica, replicas = replica_of(engine)
    mine = samples[replica::replicas]
    for _ in range(STEPS):
        made.update(mine, SftLoss(), micro=micro, temperature=1.0, totals=totals_of(samples))
        made.step_schedule()
    made.save(target / "engine" / "policy").result()
    made.export_hf(target / "hf", tokenizer=None).result()
    save_sent_adapters(made, target / "hf")
    plain = made.log_probs(mine, temperature=1.0, micro=micro, adapters=False)
    return replica, made.log_probs(mine, temperature=1.0, micro=micro), plain


def continue_adapters(
    folder: Path, engine: Any, samples: Sequence[Sample], lora: Lora, micro: MicroBatchSize, source: Path
) -> tuple[int, list[Tensor], list[Tensor], dict[str, float]]:
    """Log-probs from a checkpoint, with adapters and without, and the metrics of the next step."""
    made = make(folder, engine, model={"lora": lora})
    made.load(source / "engine" / "policy")
    replica, replicas = replica_of(engine)
    mine = samples[replica::replicas]
    found = made.log_probs(mine, temperature=1.0, micro=micro)
    plain = made.log_probs(mine, temperature=1.0, micro=micro, adapters=False)
    return (
        replica, found, plain,
        made.update(mine, SftLoss(), micro=micro, temperature=1.0, totals=totals_of(samples)),
    )  # fmt: skip


def new_adapters(folder: Path, engine: Any, lora: Lora, target: Path) -> None:
    """Write adapters that no step has changed."""
    make(folder, engine, model={"lora": lora}).save(target / "engine" / "policy").result()


def train_narrow(
    folder: Path, engine: Any, samples: Sequence[Sample], loss: LossFunction, micro: MicroBatchSize
) -> list[dict[str, float]]:
    """Metrics of updates in bfloat16."""
    narrow = PrecisionSettings(parameters="float32", compute="bfloat16", reduce="float32")
    train = dataclasses.replace(settings_of(engine), precision=narrow)
    made = make_train_engine(Model(path=str(folder)), train, role="policy", seed=1, scheduler_steps=10)
    replica, replicas = replica_of(engine)
    mine, totals = samples[replica::replicas], totals_of(samples)
    return [made.update(mine, loss, micro=micro, temperature=1.0, totals=totals) for _ in range(STEPS)]


def refused(
    folder: Path, engine: Any, samples: Sequence[Sample], loss: LossFunction, micro: MicroBatchSize
) -> EngineResult:
    """One update whose gradient is not finite."""
    made = make(folder, engine)
    before = {name: tensor.clone() for name, tensor in made.export_weights()}
    metrics = made.update(samples, loss, micro=micro, temperature=1.0, totals=totals_of(samples))
    after = {name: tensor.clone() for name, tensor in made.export_weights()}
    same = all(bool((before[name] == after[name]).all()) for name in before)
    return EngineResult(0, [], [metrics, {"same": float(same)}], {}, [])


def log_probs(folder: Path, engine: Any, samples: Sequence[Sample], micro: MicroBatchSize) -> list[Tensor]:
    """Of a reference."""
    replica, replicas = replica_of(engine) if dist.get_world_size() > 1 else (0, 1)
    return make(folder, engine, "reference").log_probs(samples[replica::replicas], temperature=1.0, micro=micro)


def exported(folder: Path, engine: Any, target: Path) -> None:
    make(folder, engine).export_hf(target, tokenizer=None).result()


def compared(folder: Path, engine: Any, samples: Sequence[Sample], loss: LossFunction, micro: MicroBatchSize) -> None:
    """An update that is to compare whole distributions."""
    made = make(folder, engine)
    compare = {"divergence": Comparison(made, lambda mine, theirs: mine)}
    made.update(samples, loss, micro=micro, temperature=1.0, totals=totals_of(samples), compare=compare)


def shared_head(
    hidden: Tensor, weight: Tensor, targets: Tensor, grads: tuple[Tensor, ...], temperature: float, rows: int
) -> tuple[Tensor, ...]:
    """Log-probs, entropy, the gradient of hidden states over all workers, and that of this worker's part of the head."""
    from rlctl.runtime.train.megatron import head
    from rlctl.runtime.train.megatron.layout import enter_layout

    enter_layout(Megatron(tensor_parallel_size=2))
    group, rank = dist.group.WORLD, dist.get_rank()
    padded = torch.cat((weight, weight.new_full((-len(weight) % 2, weight.shape[1]), 7.0)))
    part = padded.chunk(2)[rank].clone().requires_grad_()
    mine = hidden.clone().requires_grad_()
    read = head.Read(torch.arange(len(hidden)), targets, len(weight), temperature)
    with mock.patch.multiple(entropy, LEAST_ROWS=rows, CPU_PRODUCT_ELEMENTS=1):
        found = head._SharedLogProbs.apply(mine, part, read, rank * len(part), group)
        torch.autograd.backward(found, grads)
    assert mine.grad is not None
    dist.all_reduce(mine.grad)
    return found[0].detach(), found[1].detach(), mine.grad, part.grad


def shared_statistics(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float, rows: int) -> Tensor:
    """Every statistic, with log-probs, of this worker's part of the head and all others'; of so many rows at a time."""
    from rlctl.runtime.train.megatron import head
    from rlctl.runtime.train.megatron.layout import enter_layout

    enter_layout(Megatron(tensor_parallel_size=2))
    rank = dist.get_rank()
    padded = torch.cat((weight, weight.new_full((-len(weight) % 2, weight.shape[1]), 7.0)))
    part = padded.chunk(2)[rank]
    names = (LOG_PROBS, *STATISTICS)
    read = head.Read(torch.arange(len(hidden)), targets, len(weight), temperature, statistics=names)
    with mock.patch.multiple(entropy, LEAST_ROWS=rows, CPU_PRODUCT_ELEMENTS=1):
        return torch.stack(head.shared_statistics(hidden, part, read, rank * len(part), dist.group.WORLD))
