"""Training passes here: laid end to end against padded rows, and log-probs without whole logits against with.

    python benchmarks/training.py                                  # a small model on CPU, float32
    python benchmarks/training.py --device cuda --size 0.5b        # on a GPU, bfloat16: tokens per second and MFU too
    python benchmarks/training.py --device cuda --gpus 8           # on 8 GPUs that share a model: tokens per second and MFU

Both sides of a comparison are the same engine with one key changed, on the same samples and weights, in turns. The model is
made from a config (Qwen2's shape) with random weights, so nothing is downloaded; arithmetic does not depend on values.
Lengths are drawn between an eighth of the longest and the longest, as responses are.

Memory is the peak above what the engine holds: on a GPU as PyTorch's allocator counts it, on CPU the growth of the process's
resident set, in a process of its own for each side.
"""

from __future__ import annotations

import argparse
import dataclasses
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

import psutil
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from rlctl.config.sections.algorithm import Algorithm
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.model import Model
from rlctl.config.sections.train import FusedKernels, MemorySettings, PrecisionSettings, Train
from rlctl.planning.memory import forward_flops, known_gpu
from rlctl.planning.models import read_shape
from rlctl.runtime.train.distributed import join, leave
from rlctl.runtime.train.fsdp import FsdpEngine
from rlctl.runtime.train.losses import PolicyLoss, totals_of
from rlctl.runtime.types import Sample

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 32_000, "tie_word_embeddings": True},
    "80m": {"hidden_size": 640, "intermediate_size": 2560, "num_hidden_layers": 10, "num_attention_heads": 10,
            "num_key_value_heads": 2, "vocab_size": 32_000, "tie_word_embeddings": True},
    "0.5b": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
             "num_key_value_heads": 2, "vocab_size": 151_936, "tie_word_embeddings": True},
    "1.5b": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
             "num_key_value_heads": 2, "vocab_size": 151_936, "tie_word_embeddings": True},
}  # fmt: skip
"""Shapes: the last two are Qwen2.5's."""

MIB = 2**20


@dataclasses.dataclass(frozen=True)
class Work:
    """What is computed."""

    folder: Path
    device: str
    samples: int
    longest: int
    micro: int
    rounds: int


def make_model(folder: Path, size: str) -> None:
    """Random weights in the shape of ``size``."""
    config = Qwen2Config(**SIZES[size], max_position_embeddings=32_768)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)


def make_samples(work: Work) -> list[Sample]:
    """Responses after short prompts, with the columns of the loss."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(work.longest // 8, work.longest + 1, (work.samples,), generator=generator)
    samples = []
    for length in lengths.tolist():
        columns = {name: torch.randn(length, generator=generator) for name in ("advantages", "rollout_log_probs")}
        mask = torch.arange(length) >= max(1, length // 8)
        samples.append(Sample(torch.randint(0, 30_000, (length,), generator=generator), mask, columns))
    return samples


def make_engine(work: Work, *, attention: str, fused: bool) -> FsdpEngine:
    """The engine as a run makes it."""
    compute: Any = "bfloat16" if work.device == "cuda" else "float32"
    train = Train(
        precision=PrecisionSettings(compute=compute),
        memory=MemorySettings(recompute_activations=work.device == "cuda"),
        fused_kernels=FusedKernels(enabled=fused),
    )
    model = Model(path=str(work.folder), attention=attention)  # type: ignore[arg-type]
    return FsdpEngine(model, train, role="policy", seed=1, scheduler_steps=100, device=work.device)


def step(engine: FsdpEngine, samples: Sequence[Sample], work: Work, everything: Sequence[Sample] = ()) -> float:
    """Seconds of one optimizer step: of the clock on a GPU, of the processor on CPU, whose cores may be busy otherwise.

    ``everything``: the samples of all workers, if there are several.
    """
    loss = PolicyLoss.of(Algorithm(), max_response_tokens=work.longest, old_is_current=True)
    clock = time.perf_counter if work.device == "cuda" else time.process_time
    began = clock()
    micro = MicroBatchSize(unit="tokens", size=work.micro)
    engine.update(samples, loss, micro=micro, temperature=1.0, totals=totals_of(everything or samples))
    if work.device == "cuda":
        torch.cuda.synchronize()
    return clock() - began


def compare_layouts(work: Work) -> dict[str, float]:
    """Median seconds of a step laid end to end, and in padded rows."""
    with alone_in_a_group(work.device):
        samples = make_samples(work)
        sides = {
            "end to end": make_engine(work, attention="auto", fused=False),
            "padded": make_engine(work, attention="sdpa", fused=False),
        }
        times: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(work.rounds + 1):
            for name, engine in sides.items():
                took = step(engine, samples, work)
                if number > 0:
                    times[name].append(took)
        return {name: median(found) for name, found in times.items()}


def measure_memory(work: Work, fused: bool) -> tuple[float, float]:
    """MiB that a step needs above what the engine holds, and its median seconds."""
    with alone_in_a_group(work.device):
        samples, engine = make_samples(work), make_engine(work, attention="auto", fused=fused)
        short = dataclasses.replace(work, samples=2, longest=32)
        step(engine, make_samples(short), short)  # gradients and optimizer state are there from now on
        watch = PeakOnGpu() if work.device == "cuda" else PeakOfProcess()
        times = [step(engine, samples, work) for _ in range(work.rounds)]
        return watch.stop() / MIB, median(times)


class PeakOnGpu:
    """What PyTorch's allocator gave out at most, above what it had given out before."""

    def __init__(self) -> None:
        torch.cuda.reset_peak_memory_stats()
        self._before = torch.cuda.memory_allocated()

    def stop(self) -> float:
        return torch.cuda.max_memory_allocated() - self._before


class PeakOfProcess:
    """The growth of this process's resident set, looked at every few milliseconds."""

    def __init__(self) -> None:
        self._process, self._over = psutil.Process(), Event()
        self._before = self._peak = self._process.memory_info().rss
        self._thread = Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.002):
            self._peak = max(self._peak, self._process.memory_info().rss)

    def stop(self) -> float:
        self._over.set()
        self._thread.join()
        return self._peak - self._before


def seconds_of_all(work: Work, rank: int, world: int, port: int) -> float:
    """Median seconds of a step of workers that share a model, each with as many samples as one alone."""
    with in_a_group(work.device, rank, world, port):
        samples = make_samples(work)
        engine, everything = make_engine(work, attention="auto", fused=False), samples * world
        times = [step(engine, samples, work, everything) for _ in range(work.rounds + 1)]
        return median(times[1:])


def together(work: Work, world: int) -> float:
    """``seconds_of_all`` of one process for each GPU."""
    port = free_port()
    with ProcessPoolExecutor(world, mp_context=get_context("spawn")) as pool:
        calls = [pool.submit(seconds_of_all, work, rank, world, port) for rank in range(world)]
        return max(call.result() for call in calls)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def in_a_group(device: str, rank: int, world: int, port: int) -> Iterator[None]:
    """A process group. A process that does not leave its NCCL group may never end."""
    threads = 1 if device == "cpu" else None  # several wait for each other where cores are busy with other things
    join(rank, world, "127.0.0.1", port, device=device, threads=threads)  # type: ignore[arg-type]
    try:
        yield
    finally:
        leave()


def alone_in_a_group(device: str) -> AbstractContextManager[None]:
    """One worker's process group."""
    return in_a_group(device, 0, 1, free_port())


def alone(function: Any, *args: Any) -> Any:
    """Call it in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def utilisation(work: Work, seconds: float) -> str:
    """Tokens per second of a step, and the share of the GPU's peak: forward and backward, without what is recomputed."""
    shape = read_shape(str(work.folder))
    assert shape is not None, "Qwen2 is a known family"
    lengths = [len(sample) for sample in make_samples(work)]
    flops = 3 * sum(forward_flops(shape, tokens=length, length=length // 2) for length in lengths)
    told = f"{sum(lengths) / seconds:,.0f} tokens per second on each device"
    gpu = known_gpu(torch.cuda.get_device_name()) if work.device == "cuda" else None
    return told if gpu is None else f"{told}, {flops / seconds / (gpu.tflops * 1e12):.1%} MFU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--size", choices=list(SIZES), default="tiny")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--longest", type=int, default=512, help="tokens of the longest sample")
    parser.add_argument("--micro", type=int, default=4096, help="tokens of a micro-batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gpus", type=int, default=1, help="that share the model; on CPU, processes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_model(folder, given.size)
        work = Work(folder, given.device, given.samples, given.longest, given.micro, given.rounds)
        if given.gpus > 1:
            seconds = together(work, given.gpus)
            print(f"{given.gpus:>3} share a model: {seconds:.3f} s a step, {utilisation(work, seconds)}")
            return
        layouts = alone(compare_layouts, work)
        for side, seconds in layouts.items():
            print(f"{side:>16}: {seconds:.3f} s a step, {utilisation(work, seconds)}")
        print(f"{'padded / end to end':>16}: {layouts['padded'] / layouts['end to end']:.2f} times the time")
        if given.device == "cuda":  # where logits are never whole
            mib, seconds = alone(measure_memory, work, False)
            print(f"{'chunks':>16}: {mib:,.0f} MiB a step, {seconds:.3f} s")
            return
        found = {fused: alone(measure_memory, work, fused) for fused in (False, True)}
        for fused, (mib, seconds) in found.items():
            print(f"{'chunks' if fused else 'whole logits':>16}: {mib:,.0f} MiB a step, {seconds:.3f} s")
        (whole, slow), (chunks, fast) = found[False], found[True]
        print(f"{'whole / chunks':>16}: {whole / chunks:.2f} times the memory, {slow / fast:.2f} times the time")


if __name__ == "__main__":
    main()
