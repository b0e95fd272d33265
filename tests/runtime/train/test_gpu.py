"""What the engine does on a GPU only: phases that move it to CPU memory and back, and compiled work on logits."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rlctl.config.sections.model import Lora, Model
from rlctl.config.sections.train import Fsdp2, FusedKernels, MemorySettings, Train
from rlctl.runtime.train import attention
from rlctl.runtime.train.distributed import join, leave
from rlctl.runtime.train.fsdp import FsdpEngine
from rlctl.runtime.train.losses import totals_of
from rlctl.runtime.train.rows import Rows
from tests.runtime.train.jobs import ALL_AT_ONCE, FLOAT32, RL_LOSS, make_samples
from tests.runtime.train.processes import free_port

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: PyTorch finds no CUDA device"),
]
SAMPLES = make_samples(6)
PLAIN = Train(precision=FLOAT32, memory=MemorySettings(recompute_activations=True), compile=False)


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    join(0, 1, "127.0.0.1", free_port(), device="cuda")
    yield
    leave()


def engine_of(folder: Path, train: Train, lora: Lora | None = None) -> FsdpEngine:
    model = Model(path=str(folder), lora=lora)
    return FsdpEngine(model, train, role="policy", seed=1, scheduler_steps=10, device="cuda")


def taken(engine: FsdpEngine, steps: int = 2) -> tuple[dict[str, Tensor], list[float]]:
    """Weights and losses of some optimizer steps, with a phase of rest after each."""
    losses = []
    for _ in range(steps):
        metrics = engine.update(SAMPLES, RL_LOSS, micro=ALL_AT_ONCE, temperature=1.0, totals=totals_of(SAMPLES))
        engine.offload()
        losses.append(metrics["loss"])
    return {name: tensor.cpu() for name, tensor in engine.export_weights()}, losses


@pytest.mark.parametrize("lora", [None, Lora(rank=4, alpha=8)], ids=["whole", "adapters"])
@pytest.mark.parametrize("what", ["parameters", "optimizer", "both"])
def test_what_rests_in_cpu_memory_trains_the_same(models: dict[str, Path], what: str, lora: Lora | None) -> None:
    moving = dataclasses.replace(PLAIN, engine=Fsdp2(offload=what))  # type: ignore[arg-type]
    expected, losses = taken(engine_of(models["qwen2"], PLAIN, lora))
    engine = engine_of(models["qwen2"], moving, lora)
    found, same = taken(engine)
    assert same == losses
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())
    devices = {p.device.type for p in engine.model.parameters()}
    assert devices == ({"cpu"} if what in ("parameters", "both") else {"cuda"})
    if devices == {"cpu"}:
        assert all(p.to_local().is_pinned() for p in engine.model.parameters())  # type: ignore[attr-defined]
    assert engine.optimizer is not None
    moments = {value.device.type for s in engine.optimizer.state.values() for n, value in s.items() if n != "step"}
    assert moments == ({"cpu"} if what in ("optimizer", "both") else {"cuda"})


def test_an_engine_at_rest_leaves_the_gpu(models: dict[str, Path]) -> None:
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    engine = engine_of(models["llama"], dataclasses.replace(PLAIN, engine=Fsdp2(offload="both")))
    taken(engine)
    rest = torch.cuda.memory_allocated() - before
    engine.reload()
    assert rest < (torch.cuda.memory_allocated() - before) / 2


def test_an_engine_leaves_the_gpu_to_another_process_and_trains_the_same(models: dict[str, Path]) -> None:
    expected, losses = taken(engine_of(models["llama"], PLAIN))
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    engine = engine_of(models["llama"], PLAIN)
    first = engine.update(SAMPLES, RL_LOSS, micro=ALL_AT_ONCE, temperature=1.0, totals=totals_of(SAMPLES))["loss"]
    held = torch.cuda.memory_allocated() - before
    engine.vacate()
    assert torch.cuda.memory_allocated() - before < held / 10
    found, rest = taken(engine, steps=1)
    assert [first, *rest] == losses
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


def test_a_checkpoint_is_taken_up_by_an_engine_at_rest(models: dict[str, Path], tmp_path: Path) -> None:
    resting = dataclasses.replace(PLAIN, engine=Fsdp2(offload="both"))
    engine = engine_of(models["qwen2"], resting)
    taken(engine)
    engine.save(tmp_path / "c")
    straight = taken(engine)
    again = engine_of(models["qwen2"], resting)
    again.load(tmp_path / "c")
    found = taken(again)
    assert found[1] == straight[1]
    assert all(torch.equal(tensor, straight[0][name]) for name, tensor in found[0].items())


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(PLAIN, compile=True),
        dataclasses.replace(PLAIN, fused_kernels=FusedKernels(enabled=True)),
        dataclasses.replace(PLAIN, memory=MemorySettings(recompute_activations=True, offload_activations=True)),
        dataclasses.replace(PLAIN, engine=Fsdp2(cpu_offload_policy=True)),
    ],
    ids=["compiled", "fused", "activations", "cpu_offload_policy"],
)
def test_speed_and_memory_do_not_change_a_step(models: dict[str, Path], other: Train) -> None:
    expected, losses = taken(engine_of(models["qwen2"], PLAIN), 1)
    found, same = taken(engine_of(models["qwen2"], other), 1)
    assert same == pytest.approx(losses, rel=1e-5)
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("window", [None, 64])
def test_flash_attention_is_that_of_padded_rows(monkeypatch: pytest.MonkeyPatch, window: int | None) -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([3, 0, 200, 1, 77])
    rows = Rows.of(lengths).to(torch.device("cuda"))
    q, k, v = (
        torch.randn(1, heads, int(lengths.sum()), 64, device="cuda", dtype=torch.bfloat16).requires_grad_()
        for heads in (4, 2, 2)
    )
    if not attention.runs_flash(q):
        pytest.skip("no GPU since Ampere")
    probe = torch.randn(1, int(lengths.sum()), 4, 64, device="cuda", dtype=torch.bfloat16)

    def taken() -> tuple[Tensor, ...]:
        output, _ = attention.packed_attention(torch.nn.Identity(), q, k, v, None, rows=rows, sliding_window=window)
        return output, *torch.autograd.grad((output * probe).sum(), (q, k, v))

    found = taken()
    monkeypatch.setattr(attention, "runs_flash", lambda query: False)
    for mine, rowwise in zip(found, taken(), strict=True):
        torch.testing.assert_close(mine, rowwise, rtol=2e-2, atol=2e-2)


def test_logits_are_never_whole_on_a_gpu(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(models["qwen2"], PLAIN)
    monkeypatch.setattr(engine._head, "logits", engine._head.logits)
    monkeypatch.setattr(engine._head, "_own", None)  # what would make whole logits
    assert taken(engine)[1]
