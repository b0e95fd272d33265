"""Training with compiled layers, on a CPU: PyTorch's flash attention is stood in for by a kernel of its own operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

from rlctl.config.sections.batch import MicroBatchSize
from rlctl.runtime.train import attention, fsdp
from rlctl.runtime.train.losses import totals_of
from rlctl.runtime.types import Sample
from tests.runtime.train.jobs import ALL_AT_ONCE, RL_LOSS, engine_of, gathered, settings


def _weights(query: Tensor, key: Tensor, scale: float) -> Tensor:
    hidden = torch.ones(query.shape[1], query.shape[1]).triu(1).bool()
    return (query @ key.transpose(1, 2) * scale).masked_fill(hidden, -torch.inf).softmax(-1)


def _sequences(starts: Tensor) -> Iterator[slice]:
    yield from map(slice, starts.tolist(), starts[1:].tolist())


def _forward(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    *_, scale, _, _, _, _, _ = rest
    shared, output = query.shape[1] // key.shape[1], torch.empty_like(query)
    for each in _sequences(starts):
        k, v = (tensor[each].transpose(0, 1).repeat_interleave(shared, 0) for tensor in (key, value))
        output[each] = (_weights(query[each].transpose(0, 1), k, scale) @ v).transpose(0, 1)
    return output, torch.zeros(query.shape[1], len(query)), torch.zeros(2, dtype=torch.uint64)


def _backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, starts: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    scale, shared = rest[-2], query.shape[1] // key.shape[1]
    to_query, to_key, to_value = map(torch.empty_like, (query, key, value))
    for each in _sequences(starts):
        q, g = query[each].transpose(0, 1), grad[each].transpose(0, 1)
        k, v = (tensor[each].transpose(0, 1).repeat_interleave(shared, 0) for tensor in (key, value))
        weights = _weights(q, k, scale)
        slope = g @ v.transpose(1, 2)
        slope = weights * (slope - (slope * weights).sum(-1, keepdim=True)) * scale
        to_query[each] = (slope @ k).transpose(0, 1)
        to_key[each] = (slope.transpose(1, 2) @ q).unflatten(0, (-1, shared)).sum(1).transpose(0, 1)
        to_value[each] = (weights.transpose(1, 2) @ g).unflatten(0, (-1, shared)).sum(1).transpose(0, 1)
    return to_query, to_key, to_value


@contextmanager
def flash_attention() -> Iterator[None]:
    """Within, a CPU runs it."""
    library = torch.library.Library("torch_attn", "IMPL")
    torch.library.register_kernel("torch_attn::_varlen_attn", "cpu", _forward, lib=library)
    torch.library.register_kernel("torch_attn::_varlen_attn_backward", "cpu", _backward, lib=library)
    with patch.object(attention, "runs_flash", lambda query: True):
        yield
    library._destroy()


def trained(
    folder: Path, samples: Sequence[Sample], compiled: bool
) -> tuple[dict[str, Tensor], list[Tensor], int, int]:
    """Weights after an update in several micro-batches, log-probs, and how many codes were made with how many breaks."""
    torch._dynamo.reset()  # what this process compiled before would be counted, or not be made again
    counter, shard = CompileCounterWithBackend("eager"), fsdp.shard_model

    def compile_and_shard(model: Any, engine: Any, *rest: Any) -> Any:
        if compiled:
            fsdp.compile_layers(fsdp.layers_to_wrap(model, engine), counter)
        return shard(model, engine, *rest)

    micro = MicroBatchSize(unit="tokens", size=60)
    on = torch.compiler.set_stance("default")  # tests of Megatron in the same process switch compilation off
    with on, flash_attention(), patch.object(fsdp, "shard_model", compile_and_shard):
        engine = engine_of(folder, settings())
        engine.update(samples, RL_LOSS, micro=micro, temperature=1.0, totals=totals_of(samples))
        log_probs = engine.log_probs(samples, temperature=1.0, micro=ALL_AT_ONCE)
        return gathered(engine), log_probs, counter.frame_count, sum(counters["graph_break"].values())
