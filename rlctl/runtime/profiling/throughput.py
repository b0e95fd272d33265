"""Idle time, tokens a second, MFU and memory of a step, from its phases, its calls and its samples.

MFU (model FLOPs utilisation, Chowdhery et al. 2022, arXiv:2204.02311, appendix B) is the arithmetic that training needs over
what the devices could do in the time. Needed are, a token: 2 operations a parameter it is multiplied with and
2 x length x attention width a layer (causal) forward, twice that backward, or once where only adapters are trained
(``memory.forward_flops``). What is computed again to save memory does not count. Peaks are ``memory.GPUS``, of dense bfloat16.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from rlctl.planning.memory import GIB, forward_flops, known_gpu
from rlctl.planning.models import ModelShape
from rlctl.runtime.profiling.usage import SameCalls, resident_bytes


class Interval(NamedTuple):
    """A phase that is over."""

    name: str
    began: float
    """Seconds since the epoch."""
    seconds: float


def phase_times(phases: Sequence[Interval], began: float, seconds: float) -> dict[str, float]:
    """Time of each phase, of the step, and of what of the step no phase covers."""
    times: dict[str, float] = defaultdict(float)
    for phase in phases:
        times[f"time/{phase.name}"] += phase.seconds
    return {**times, "time/idle": max(0.0, seconds - covered(phases, began, began + seconds)), "time/step": seconds}


def covered(phases: Iterable[Interval], began: float, ended: float) -> float:
    """Seconds between two times in which there was a phase; phases may overlap."""
    total, reached = 0.0, began
    for phase in sorted(phases, key=lambda phase: phase.began):
        end = min(phase.began + phase.seconds, ended)
        total += max(0.0, end - max(phase.began, reached))
        reached = max(reached, end)
    return total


def worker_metrics(calls: Sequence[SameCalls], seconds: float) -> dict[str, float]:
    """How busy the workers of each role were, and the memory of the one that holds most.

    Args:
        calls: of one step.
        seconds: that the step took.
    """
    metrics = {"memory/controller/resident": resident_bytes() / GIB}
    roles: dict[str, list[SameCalls]] = defaultdict(list)
    for call in calls:
        if call.known("pid"):
            roles[call.role].append(call)
    for role, own in roles.items():
        workers = set(chain.from_iterable(call.workers for call in own))
        busy = math.fsum(chain.from_iterable(call.known("seconds") for call in own))
        metrics[f"worker/{role}/busy_share"] = busy / len(workers) / seconds
        metrics[f"memory/{role}/resident"] = max(max(call.known("resident")) for call in own) / GIB
        gpus = [gpu for call in own for gpu in call.known("gpu")]
        if gpus:
            metrics[f"memory/{role}/gpu_allocated"] = max(gpu.allocated for gpu in gpus) / GIB
            metrics[f"memory/{role}/gpu_reserved"] = max(gpu.reserved for gpu in gpus) / GIB
            metrics[f"memory/{role}/gpu_peak"] = max(gpu.peak for gpu in gpus) / GIB
    return metrics


@dataclass(frozen=True)
class Speed:
    """What a stage's numbers of tokens are divided by."""

    devices: int
    """Of all roles together."""
    train_devices: int
    shape: ModelShape | None
    """None where the model is of no known family; there is no MFU then."""
    passes: int
    """Training of a token in forward passes, over all epochs."""
    peak_tflops: float | None
    """As the config gives it."""
    half_precision: bool
    """Whether training computes in the type that peaks are known for."""

    def metrics(
        self, lengths: Sequence[int], trained: int, drawn: float, times: Mapping[str, float], calls: Sequence[SameCalls]
    ) -> dict[str, float]:
        """Tokens a second, and MFU where it can be told.

        Args:
            lengths: of the sequences that were trained on, in tokens.
            trained: tokens of them that the loss counts.
            drawn: tokens of all responses of the step; 0 where there are none.
            times: see ``phase_times``.
            calls: of the step; they say which GPU it is.
        """
        step, train, rollout = times["time/step"], times.get("time/train", 0.0), times.get("time/rollout", 0.0)
        metrics = {
            "throughput/tokens_per_second": trained / step,
            "throughput/responses_per_second": len(lengths) / step,
            "throughput/tokens_per_second_per_device": trained / step / max(1, self.devices),
        }
        if train:
            metrics["throughput/trained_tokens_per_second"] = sum(lengths) / train
        if rollout and drawn:
            metrics["throughput/drawn_tokens_per_second"] = drawn / rollout
        peak = self._peak(calls)
        if peak is not None and train:
            flops = self.flops(lengths)
            metrics["throughput/mfu"] = flops / (train * peak)
            metrics["throughput/step_mfu"] = flops / (step * peak)
        return metrics

    def flops(self, lengths: Sequence[int]) -> float:
        """Operations that training on sequences takes, without what is computed again."""
        assert self.shape is not None, "the model is of a known family"
        return self.passes * sum(forward_flops(self.shape, tokens=length, length=length) for length in lengths)

    def _peak(self, calls: Sequence[SameCalls]) -> float | None:
        """Operations a second of all training devices; None where it is not known."""
        if self.shape is None or not self.train_devices:
            return None
        name = next((gpu.name for call in calls for gpu in call.known("gpu")), None)
        gpu = known_gpu(name) if self.half_precision else None
        tflops = self.peak_tflops or (gpu.tflops if gpu is not None else None)
        return None if tflops is None else tflops * 1e12 * self.train_devices
