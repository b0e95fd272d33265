"""A training step or a log-prob pass of the FSDP2 engine, whose live storages are counted.

The parts are those of a run: the Transformers model with rlctl's packed attention, ``shard_model``, ``Head``, the log-probs
and the fused AdamW. Under FakeTensorMode and with a fake process group of any size nothing is computed, so models and
micro-batches have the sizes of real runs; chunks of logits are those of a GPU.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM

from rlctl.config import Config
from rlctl.config.sections.train import Fsdp2
from rlctl.planning.memory.roles import counted_share, micro_tokens
from rlctl.runtime.algorithms import entropy
from rlctl.runtime.train import attention, sharding
from rlctl.runtime.train.head import Head
from rlctl.runtime.train.rows import Rows
from tests.planning.memory.live_storages import LiveStorages


def peak_of_step(config: Config, monkeypatch: pytest.MonkeyPatch, *, trains: bool = True) -> int:
    """Bytes on rank 0 at the peak of the second micro-batch of a mini-batch, or of a pass without gradient."""
    monkeypatch.setattr(entropy, "CPU_CHUNK_ELEMENTS", entropy.CHUNK_ELEMENTS)
    monkeypatch.setattr(entropy, "CPU_PRODUCT_ELEMENTS", entropy.PRODUCT_ELEMENTS)
    monkeypatch.setattr(entropy, "rows_of_gradient", _rows_of_gradient)
    world = config.placement.nodes * config.placement.devices_per_node
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)  # type: ignore[no-untyped-call]
    try:
        mesh = init_device_mesh("cpu", (world,))  # its ranks are read, which fake tensors do not allow
        monkeypatch.setattr(sharding, "make_mesh", lambda shard, device: mesh)
        live = LiveStorages()
        with FakeTensorMode(allow_non_fake_inputs=True), live.resizes():
            return _measured(config, live, trains)
    finally:
        dist.destroy_process_group()


def _rows_of_gradient(head: torch.Tensor, chunk: int | None) -> int:
    """As on a GPU with enough memory."""
    return entropy.GRADIENT_ELEMENTS // len(head)


def _measured(config: Config, live: LiveStorages, trains: bool) -> int:
    train = config.train
    assert isinstance(train.engine, Fsdp2)
    attention.register()
    model = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(config.model.path), dtype=getattr(torch, train.precision.parameters)
    )
    model.set_attn_implementation(attention.PACKED)
    if train.memory.recompute_activations and trains:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    sharding.shard_model(model, train.engine, train.precision, torch.device("cpu"))
    head, optimizer = Head(model), torch.optim.AdamW(model.parameters(), fused=True)
    for parameter in model.parameters():
        live.count(parameter.data)
    with live:
        if not trains:
            model.eval()
            with torch.no_grad():
                _log_probs(config, head, fused=True)
            return live.peak
        model.train()
        for step in range(2):
            for _ in range(2):
                if step:
                    live.peak = live.bytes  # of the second step: its optimizer has its state
                log_probs, entropies = _log_probs(config, head, fused=train.fused_kernels.enabled)
                loss = -log_probs.sum()
                if config.algorithm.entropy_coefficient != 0:
                    loss = loss - config.algorithm.entropy_coefficient * entropies.sum()
                loss.backward()
                del loss, log_probs, entropies
            optimizer.step()
            if not step:
                optimizer.zero_grad()
        return live.peak


def _log_probs(config: Config, head: Head, *, fused: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Of one micro-batch of sequences that are as long as they may be."""
    tokens = micro_tokens(config, config.batch.micro_batch)
    width = config.data.max_prompt_tokens + config.rollout.max_response_tokens
    counted = round(tokens * counted_share(config))
    places = torch.zeros(tokens, dtype=torch.int64)
    starts = torch.zeros(tokens // width + 1, dtype=torch.int32)
    rows = Rows(tokens // width, width, places, places, starts)
    ids, positions = torch.zeros(1, tokens, dtype=torch.int64), torch.zeros(1, tokens, dtype=torch.int64)
    inputs = {"input_ids": ids, "position_ids": positions, "rows": rows}
    select, targets = torch.zeros(counted, dtype=torch.int64), torch.zeros(counted, dtype=torch.int64)
    if fused:
        found = head.log_probs(inputs, select, targets, temperature=1.0, with_entropy=True)
        assert found is not None
        return found
    logits = head.logits(inputs, select)
    return entropy.log_probs_and_entropy(logits, targets)
