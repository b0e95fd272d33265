"""What worker processes of Megatron models really hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from rlctl.config.sections.model import Model
from rlctl.config.sections.train import Megatron, Optimizer, PrecisionSettings, Train
from rlctl.runtime.algorithms.aggregation import Totals
from rlctl.runtime.train.interface import LossTerms, Role
from rlctl.runtime.train.losses import totals_of
from rlctl.runtime.train.megatron.engine import MegatronEngine
from tests.runtime.train.jobs import ALL_AT_ONCE, make_samples


class Sum:
    """The sum of what the model says."""

    columns: tuple[str, ...] = ()

    def __call__(self, tensors: Mapping[str, Tensor], totals: Totals) -> LossTerms:
        said = tensors["values"] if "values" in tensors else tensors["log_probs"]
        return LossTerms(said.sum(), {})


def held(folder: Path, engine: Megatron, role: Role, compute: str) -> dict[str, int]:
    """Bytes of parameters, of gradient buffers and of the optimizer's own numbers after a step, without what buffers are padded by."""
    precision = PrecisionSettings(parameters="float32", compute=compute, reduce="float32")  # type: ignore[arg-type]
    train = Train(engine=engine, precision=precision, optimizer=Optimizer(lr=1e-3))
    here = MegatronEngine(Model(path=str(folder)), train, role=role, seed=1, scheduler_steps=10)
    parameters = [parameter for chunk in here.chunks for parameter in chunk.parameters()]
    found = {"parameters": sum(each.numel() * each.element_size() for each in parameters)}
    if here.optimizer is None:
        return found
    samples = make_samples(4)
    here.update(samples, Sum(), micro=ALL_AT_ONCE, temperature=1.0, totals=totals_of(samples))
    gradients = [parameter.main_grad for parameter in parameters]
    found["gradients"] = sum(each.numel() * each.element_size() for each in gradients)
    weights = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    tensors: dict[int, Tensor] = {}
    for part in here.optimizer.chained_optimizers:
        groups = [tensor for group in part.optimizer.param_groups for tensor in group["params"]]
        moments = [value for state in part.optimizer.state.values() for value in state.values()]
        for tensor in (*groups, *moments):
            if isinstance(tensor, Tensor) and tensor.dim() and tensor.untyped_storage().data_ptr() not in weights:
                tensors[tensor.data_ptr()] = tensor
    found["optimizer"] = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    return found
