"""How much of a model, its gradients and optimizer state one worker of Megatron holds: numbers, not bytes.

dense weights   over tensor; norms and the router of experts are whole on every worker
experts         over expert * expert_tensor
layers          over pipeline; the first stage has the embedding, the last the final norm and the head (a copy of the
                embedding where they are tied and there is more than one stage)
optimizer       over the replicas too where it is distributed: tensor * pipeline * context of them hold one copy
"""

from __future__ import annotations

from dataclasses import dataclass

from rlctl.config.sections.train import Megatron
from rlctl.planning.models import ModelShape


@dataclass(frozen=True, slots=True)
class Held:
    """Numbers that a worker holds."""

    dense: float
    """Of what replicas have in common but experts."""
    experts: float

    @property
    def all(self) -> float:
        """Both."""
        return self.dense + self.experts


def held(engine: Megatron, shape: ModelShape, *, value_head: bool = False) -> Held:
    """Parameters of the worker that has most of them."""
    stages = [_stage(engine, shape, stage, value_head=value_head) for stage in {0, engine.pipeline_parallel_size - 1}]
    return max(stages, key=lambda each: each.all)


def _stage(engine: Megatron, shape: ModelShape, stage: int, *, value_head: bool) -> Held:
    share = 1 / engine.pipeline_parallel_size
    experts = shape.expert_parameters / (
        engine.expert_parallel_size * (engine.expert_tensor_parallel_size or engine.tensor_parallel_size)
    )
    embedding = (
        padded_vocabulary(shape.vocabulary, engine.tensor_parallel_size) * shape.hidden / engine.tensor_parallel_size
    )
    tied = shape.tied and not value_head
    ends = embedding if stage == 0 else 0.0
    if stage == engine.pipeline_parallel_size - 1:
        head = shape.hidden + 1 if value_head else 0.0 if tied and engine.pipeline_parallel_size == 1 else embedding
        ends += shape.hidden + head
    return Held(share * _layers(engine, shape) + ends, share * experts)


def _layers(engine: Megatron, shape: ModelShape) -> float:
    """Of all layers but experts."""
    whole = shape.norm_parameters + shape.router_parameters
    blocks = shape.parameters - shape.embedding_parameters - shape.hidden - shape.expert_parameters
    return (blocks - whole) / engine.tensor_parallel_size + whole


def padded_vocabulary(size: int, tensor: int) -> int:
    """Rows of the embedding in Megatron: the next multiple of the tensor size."""
    return -(-size // tensor) * tensor


def optimizer_shares(engine: Megatron, devices: int) -> tuple[int, int]:
    """Workers that share the optimizer's state of dense weights, and of experts."""
    if not engine.distributed_optimizer:
        return 1, 1
    experts = (
        engine.expert_parallel_size
        * (engine.expert_tensor_parallel_size or engine.tensor_parallel_size)
        * engine.pipeline_parallel_size
    )
    return max(1, devices // (engine.tensor_parallel_size * engine.pipeline_parallel_size)), max(1, devices // experts)
