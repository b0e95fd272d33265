"""What worker processes do with the weights of Megatron models."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoConfig

from rlctl.config.sections.train import Megatron, PrecisionSettings, Train
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.train.interface import Role
from rlctl.runtime.train.rows import Rows

from rlctl.runtime.train.megatron.layout import enter_layout  # isort: skip  # what imports Megatron-core comes after it
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region

from rlctl.runtime.train.megatron.arguments import transformer_config
from rlctl.runtime.train.megatron.model import Packed, build_chunks
from rlctl.runtime.train.megatron.weights import export_weights, load_weights
from tests.runtime.train.jobs import engine_of, gathered, settings

FLOAT32 = PrecisionSettings(parameters="float32", compute="float32", reduce="float32")


def chunks_of(engine: Megatron, hf_config: Any, role: Role = "policy") -> list[torch.nn.Module]:
    """A model in the layout of ``engine``, whose weights are not numbers yet."""
    enter_layout(engine)
    config = transformer_config(Train(engine=engine, precision=FLOAT32), hf_config)
    chunks: list[torch.nn.Module] = list(build_chunks(hf_config, config, engine, role=role))
    for chunk in chunks:
        for parameter in chunk.parameters():
            torch.nn.init.constant_(parameter, torch.nan)
    return chunks


def there_and_back(engine: Megatron, folders: Mapping[str, Path]) -> dict[str, dict[str, Tensor]]:
    """Load and export every family, to rank 0 and everywhere; what is everywhere."""
    found = {}
    for family, folder in folders.items():
        hf_config = AutoConfig.from_pretrained(folder)
        chunks = chunks_of(engine, hf_config)
        load_weights(chunks, folder, hf_config)
        assert all(bool(p.isfinite().all()) for chunk in chunks for p in chunk.parameters())
        first = dict(export_weights(chunks, hf_config))
        assert bool(first) is (dist.get_rank() == 0)
        found[family] = dict(export_weights(chunks, hf_config, everywhere=True))
        assert all(torch.equal(found[family][name], tensor) for name, tensor in first.items())
    return found


def logits(engine: Megatron, folders: Mapping[str, Path], tokens: Tensor) -> dict[str, Tensor]:
    """This worker's columns of the logits of a sequence, by family."""
    found = {}
    for family, folder in folders.items():
        hf_config = AutoConfig.from_pretrained(folder)
        [chunk] = chunks_of(engine, hf_config)
        load_weights([chunk], folder, hf_config)
        chunk.output_layer.forward = partial(_columns, chunk)
        packed = Packed(rows=Rows.of(torch.tensor([len(tokens)])), positions=torch.arange(len(tokens)))
        with torch.no_grad():
            found[family] = chunk(tokens[None], packed)
    return found


def _columns(chunk: Any, hidden: Tensor, read: None, shared: Tensor | None) -> Tensor:
    whole = gather_from_sequence_parallel_region(hidden) if chunk.config.sequence_parallel else hidden
    return F.linear(whole[:, 0], chunk.output_layer.weight if shared is None else shared)


def critic(engine: Megatron, folder: Path) -> dict[str, Tensor]:
    """A critic's weights, on rank 0."""
    hf_config = AutoConfig.from_pretrained(folder)
    chunks = chunks_of(engine, hf_config, "critic")
    torch.manual_seed(derive_seed(1, "weights", "critic"))
    load_weights(chunks, folder, hf_config)
    return dict(export_weights(chunks, hf_config))


def critic_of_fsdp(folder: Path) -> dict[str, Tensor]:
    return gathered(engine_of(folder, settings(), "critic"))


def told_of_critic(folder: Path) -> list[str]:
    """What is logged while a critic is loaded."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("rlctl.runtime.train.megatron.weights").addHandler(handler)
    critic(Megatron(), folder)
    return told
