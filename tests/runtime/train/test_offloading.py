"""What waits in CPU memory comes back as it was, and its copies run beside the work that doesn't need them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlctl.runtime.train.offloading import HostCopies, OffloadedActivations
from tests.runtime.train import jobs
from tests.runtime.train.jobs import make_samples
from tests.runtime.train.processes import Workers


@pytest.mark.parametrize("kind", ["qwen2", "llama"], ids=["tied", "untied"])
def test_a_model_that_rests_in_cpu_memory_trains_the_same(two: Workers, models: dict[str, Path], kind: str) -> None:
    ((found, metrics), (expected, plain)), _ = two.run(jobs.resting, models[kind], make_samples(6))
    assert metrics == plain
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


def test_an_optimizer_comes_back_beside_the_last_backward_pass(two: Workers, models: dict[str, Path]) -> None:
    """Its copies wait for the forward pass, in whose freed memory they may lie, and the step waits for them."""
    log, other = two.run(jobs.order_of_the_optimizer, models["qwen2"], make_samples(8))
    assert log == other
    parts = log.count("copies bring a part beside")
    assert parts > 2
    assert log == [
        *("forward", "backward"),
        *("forward", "copies waits for work", *["copies bring a part beside"] * parts),
        *("backward", "work waits for copies", "step"),
    ]


@pytest.mark.parametrize("rows", [3, 4, 5])
def test_parts_of_different_sizes_rest_too(two: Workers, rows: int) -> None:
    for before, after in two.run(jobs.resting_uneven, rows):
        assert torch.equal(before, after)


@pytest.mark.parametrize("fused", [True, False])
def test_a_count_of_steps_is_where_its_kernel_reads_it(fused: bool) -> None:
    """On the device for fused kernels, even if a checkpoint was loaded at rest; on the CPU for others."""
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.AdamW([weight], fused=fused)
    optimizer.state[weight]["step"] = torch.tensor(3.0)
    host = HostCopies(torch.device("meta"))
    host.bring_optimizer(optimizer)
    there = optimizer.state[weight]["step"]
    assert there.device.type == ("meta" if fused else "cpu")
    host.take_optimizer(optimizer)
    assert optimizer.state[weight]["step"] is there


class Recorded:
    """A stream that notes what it waits for and what runs in it."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self._log = name, log

    def wait_stream(self, other: Recorded) -> None:
        self._log.append(f"{self.name} waits for {other.name}")


def test_an_activation_is_on_its_way_back_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies run in a side stream; while a layer goes back, the input of the layer before it is copied."""
    log: list[str] = []
    work = Recorded("work", log)

    @contextmanager
    def stream(entered: Recorded) -> Iterator[None]:
        log.append(f"in {entered.name}")
        yield

    streams = SimpleNamespace(Stream=lambda: Recorded("copies", log), stream=stream, current_stream=lambda: work)
    monkeypatch.setattr(torch, "get_device_module", lambda device: streams)

    class Layer(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, values: Tensor, number: int) -> Tensor:
            context.number = number
            context.save_for_backward(values)
            return values * 2

        @staticmethod
        def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
            (values,) = context.saved_tensors
            log.append(f"layer {context.number} goes back with {values[0].item():g}")
            return gradient * 2, None

    start = torch.ones(4, requires_grad=True)
    values = start * 1
    kept = OffloadedActivations(least_bytes=0)
    with kept:
        for number in range(3):
            values = Layer.apply(values, number)
    assert kept.moved == 3
    assert log == ["copies waits for work", "in copies"] * 3
    log.clear()
    values.sum().backward()
    assert log == [
        "in copies",
        "work waits for copies",
        "in copies",
        "layer 2 goes back with 4",
        "work waits for copies",
        "in copies",
        "layer 1 goes back with 2",
        "work waits for copies",
        "layer 0 goes back with 1",
    ]
    assert start.grad is not None
    assert start.grad.tolist() == [8.0] * 4
