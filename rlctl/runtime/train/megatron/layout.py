"""How the workers of one model share it: Megatron-core's process groups, and which of them this process is in.

Ranks are counted as Megatron-core counts them, tensor first and pipeline last (``tp-cp-ep-dp-pp``): the workers that share a
layer are neighbours, and the pipeline stages of a replica are far from each other, on other machines where there are any.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.train import Megatron
from rlctl.runtime.train.megatron import cpu_shim


@dataclass(frozen=True, slots=True)
class Layout:
    """The sizes of a model's process groups."""

    tensor: int
    pipeline: int
    virtual_pipeline: int | None
    context: int
    expert: int
    expert_tensor: int
    world: int

    @classmethod
    def of(cls, engine: Megatron, world: int) -> Layout:
        """Read the sizes from ``train.engine``.

        Raises:
            PlanError: the workers do not divide into replicas, or into groups of experts.
        """
        tensor, pipeline, context = (
            engine.tensor_parallel_size,
            engine.pipeline_parallel_size,
            engine.context_parallel_size,
        )
        each = tensor * pipeline * context
        if world % each:
            raise PlanError(
                said(
                    "train.engine shares a model over {each} workers (tensor {tensor} * pipeline {pipeline} * context "
                    "{context}), and there are {world}; they do not divide into replicas",
                    each=each,
                    tensor=tensor,
                    pipeline=pipeline,
                    context=context,
                    world=world,
                ),
                hint="change the parallel sizes of train.engine, or the devices of the policy",
            )
        expert_tensor = engine.expert_tensor_parallel_size or tensor
        experts = engine.expert_parallel_size * expert_tensor * pipeline
        if world % experts:
            raise PlanError(
                said(
                    "train.engine shares experts over {experts} workers (expert {expert_parallel_size} * expert_tensor "
                    "{expert_tensor} * pipeline {pipeline}), and there are {world}; they do not divide",
                    experts=experts,
                    expert_parallel_size=engine.expert_parallel_size,
                    expert_tensor=expert_tensor,
                    pipeline=pipeline,
                    world=world,
                ),
                hint="change train.engine.expert_parallel_size or train.engine.expert_tensor_parallel_size",
            )
        chunks = engine.virtual_pipeline_parallel_size if engine.virtual_pipeline_parallel_size != 1 else None
        return cls(tensor, pipeline, chunks, context, engine.expert_parallel_size, expert_tensor, world)

    @property
    def chunks(self) -> int:
        """Chunks of layers that each worker holds."""
        return self.virtual_pipeline or 1

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return self.world // (self.tensor * self.pipeline * self.context)


_entered: tuple[Layout, dist.ProcessGroup] | None = None
"""What this process has entered, and in which group of workers: the next stage of a run has another."""


def enter_layout(engine: Megatron, *, seed: int = 1) -> Layout:
    """Meet the other workers in Megatron-core's process groups; the process must have joined its group.

    The same layout again changes nothing; another one ends the groups, and all models, of the one before.

    Args:
        engine: section ``train.engine``.
        seed: of dropout, which differs between the workers that share a layer.

    Raises:
        PlanError: the workers do not divide.
    """
    global _entered
    if not torch.cuda.is_available():
        cpu_shim.install()
    layout = Layout.of(engine, dist.get_world_size())
    everyone = dist.group.WORLD
    assert everyone is not None, "the process has joined its group"
    same = _entered is not None and _entered[0] == layout and _entered[1] is everyone
    if same and parallel_state.model_parallel_is_initialized():
        return layout
    _leave()
    before = set(_groups())
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        virtual_pipeline_model_parallel_size=layout.virtual_pipeline,
        context_parallel_size=layout.context,
        expert_model_parallel_size=layout.expert,
        expert_tensor_parallel_size=layout.expert_tensor,
        create_gloo_process_groups=False,
    )
    model_parallel_cuda_manual_seed(seed, force_reset_rng=True)
    _entered = layout, everyone
    _made.extend(group for group in _groups() if group not in before)
    return layout


_made: list[dist.ProcessGroup] = []
"""Of the layout that was entered; each has threads and sockets."""


def _groups() -> list[dist.ProcessGroup]:
    return list(dist.distributed_c10d._world.pg_map)


def _leave() -> None:
    """End the groups of the layout before; those of a process group that is over ended with it."""
    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    there = _groups()
    for group in _made:
        if group in there:
            dist.destroy_process_group(group)
    _made.clear()
