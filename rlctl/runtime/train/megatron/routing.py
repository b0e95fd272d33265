"""Which experts tokens go to (``TrainEngine.routed``), by Megatron-core's own ``RouterReplay``, one a layer with experts.

A worker has the rows of its part of the tokens and the layers of its stages:

    rows of a micro-batch ──filled up──▶ context worker's slice ──▶ tensor worker's slice under sequence parallelism

Its replay is told the rows before each forward pass of a chunk, and takes them again, first in first out, where a layer is
computed anew in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.moe.router_replay import RouterReplay, RouterReplayAction
from torch import Tensor

from rlctl.runtime.train import replay
from rlctl.runtime.train.interface import Routing
from rlctl.runtime.train.microbatch import MicroBatch
from rlctl.runtime.types import Sample


@dataclass(slots=True)
class Rows:
    """The experts of a micro-batch on this worker, int64 [its tokens, k], by the layer's place among those with experts."""

    tokens: int
    """Of the whole micro-batch, filled up."""
    given: Tensor | None = None
    """[its tokens, layers, k]."""
    found: dict[int, Tensor] = field(default_factory=dict)


class Replays:
    """The replays of this worker's chunks."""

    def __init__(self, chunks: Sequence[torch.nn.Module], config: TransformerConfig) -> None:
        assert isinstance(config.moe_layer_freq, list), "arguments.py says it"
        self._config = config
        with_experts = [number for number, has in enumerate(config.moe_layer_freq, 1) if has]
        place_of = {number: place for place, number in enumerate(with_experts)}
        routers = [[each for each in chunk.modules() if isinstance(each, TopKRouter)] for chunk in chunks]
        self._of_chunk = [{place_of[each.layer_number]: each.router_replay for each in own} for own in routers]
        self._layers = len(with_experts)
        self._context = parallel_state.get_context_parallel_rank(), parallel_state.get_context_parallel_world_size()
        tensor = parallel_state.get_tensor_model_parallel_rank(), parallel_state.get_tensor_model_parallel_world_size()
        self._tensor = tensor if config.sequence_parallel else (0, 1)
        RouterReplay.clear_global_router_replay_instances()  # these are held here, and no longer than the model

    def rows(self, samples: Sequence[Sample], batch: MicroBatch, tokens: int, routing: Routing) -> Rows:
        """What a micro-batch, filled up to so many tokens, is told or is to tell."""
        if routing != "given":
            return Rows(tokens)
        whole = replay.filler(tokens, self._layers, self._config.moe_router_topk).to(batch.select.device)
        if samples:
            rows = replay.rows_of(samples, batch)
            whole[: len(rows)] = rows
        return Rows(tokens, whole[self._own(tokens)])

    def _own(self, tokens: int) -> slice:
        """The rows of this worker."""
        start = 0
        for rank, size in (self._context, self._tensor):
            tokens //= size
            start += rank * tokens
        return slice(start, start + tokens)

    @contextmanager
    def forward(self, chunk: int, rows: Rows) -> Iterator[None]:
        """Around the forward pass of a micro-batch through a chunk."""
        own = self._of_chunk[chunk]
        for place, each in own.items():
            if rows.given is not None:
                each.set_target_indices(rows.given[:, place])
                each.set_router_replay_action(RouterReplayAction.REPLAY_FORWARD)
            else:
                each.set_router_replay_action(RouterReplayAction.RECORD)
        yield
        for place, each in own.items():
            if rows.given is not None:
                each.set_router_replay_action(RouterReplayAction.REPLAY_BACKWARD)
            else:
                found = each.get_recorded_indices()
                assert found is not None, "a chunk computes all of its layers"
                rows.found[place] = found

    def clear(self) -> None:
        """Be done with a pass."""
        for own in self._of_chunk:
            for each in own.values():
                each.clear_indices()
                each.clear_router_replay_action()

    def give(self, fed: Sequence[tuple[Sequence[Sample], MicroBatch, Rows]]) -> None:
        """Write down on the samples what was found on all workers that share their tokens and layers."""
        shape = self._layers, self._config.moe_router_topk
        wholes = [torch.zeros(rows.tokens, *shape, dtype=torch.int32, device=b.select.device) for _, b, rows in fed]
        for whole, (_, _, rows) in zip(wholes, fed, strict=True):
            for place, found in rows.found.items():
                whole[self._own(rows.tokens), place] = found.int()
        joined = torch.cat(wholes)
        for group in (parallel_state.get_model_parallel_group(), parallel_state.get_context_parallel_group()):
            dist.all_reduce(joined, dist.ReduceOp.MAX, group=group)  # who does not have a row says 0
        for whole, (samples, batch, _) in zip(joined.split([r.tokens for _, _, r in fed]), fed, strict=True):
            if samples:
                replay.give(samples, batch, whole)
