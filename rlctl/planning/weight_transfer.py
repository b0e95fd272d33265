"""Which way weights take from training to rollout: what ``weight_sync.method`` comes to in a run, and why it is no other.

nccl         from GPU to GPU, by vLLM's weight transfer: the first training worker's, which no engine is on, to all engines'
ipc          on GPUs that training and vLLM share: each training worker gives the engine on its GPU a handle on memory there
checkpoint   files in a folder that all machines see
memory       the host's memory, from anything to anything
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.planning import adapter_sync, arithmetic

Name = Literal["nccl", "ipc", "checkpoint", "memory"]
HOST = "rlctl syncs weights through host memory"


@dataclass(frozen=True, slots=True)
class WeightTransfer:
    """How weights travel."""

    name: Name
    reason: str = ""
    """Why it is not the one that ``weight_sync.method`` names; empty where it is, or where it names none."""


def way_of(config: Config, engine: str, device: str | None) -> WeightTransfer:
    """The way of a run's weights.

    Args:
        config: the canonical config of one stage.
        engine: the engine that generates.
        device: what the run is for, ``cuda`` or ``cpu``; None where that is not known.
    """
    asked = config.weight_sync.method
    if asked == "checkpoint":
        return WeightTransfer(asked)
    if config.run.mode in ("rollout_only", "train_only"):
        return WeightTransfer("memory", "separate rollout and training runs sync weights through a folder")
    if asked == "memory":
        return WeightTransfer(asked)
    if asked == "in_place":
        return WeightTransfer("memory", said("training and rollout are separate processes: {host}", host=HOST))
    problems = _problems(config, engine, device)
    if asked != "auto":
        return (
            WeightTransfer("memory", said("{problem}: {host}", problem=problems[asked], host=HOST))
            if problems[asked]
            else WeightTransfer(asked)
        )
    return WeightTransfer(next((name for name, problem in problems.items() if not problem), "memory"))


def _problems(config: Config, engine: str, device: str | None) -> dict[Name, str]:
    """Why weights cannot go from GPU to GPU, by way; empty for one that they can take."""
    if "cpu" in (config.placement.device, device):
        return dict.fromkeys(("nccl", "ipc"), "there are no GPUs")
    if engine != "vllm":
        return dict.fromkeys(
            ("nccl", "ipc"), said("{engine} cannot receive weights from GPU to GPU; vLLM can", engine=engine)
        )
    if adapter_sync.sends_adapters(config, engine):
        return dict.fromkeys(("nccl", "ipc"), "vLLM reads adapters from host memory")
    policy, rollout = arithmetic.devices_of(config, "policy"), arithmetic.devices_of(config, "rollout")
    return {
        "nccl": "rollout shares the first training worker's GPU, but NCCL needs different GPUs"
        if not set(policy[:1]).isdisjoint(rollout)
        else "",
        "ipc": "" if set(rollout) <= set(policy) else "rollout has GPUs that no training worker is on",
    }
