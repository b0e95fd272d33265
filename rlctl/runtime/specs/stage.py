"""What a whole stage is made with: its evaluation, its measure of throughput, and the transport of its weights."""

from __future__ import annotations

from pathlib import Path

from rlctl.config import Config
from rlctl.planning import arithmetic
from rlctl.planning.models import read_shape
from rlctl.planning.plan import Device, StagePlan
from rlctl.planning.support import generating
from rlctl.planning.weight_transfer import way_of
from rlctl.runtime.evaluation.held_out import HeldOutSpec
from rlctl.runtime.profiling.throughput import Speed
from rlctl.runtime.specs.data import data_spec
from rlctl.runtime.sync.device import Ipc, Nccl
from rlctl.runtime.sync.transport import Folder, HostMemory, Transport


def held_out_spec(config: Config, plan: StagePlan) -> HeldOutSpec:
    """Of what is answered, scored or measured beside training."""
    return HeldOutSpec(
        data=data_spec(config),
        rollout=config.rollout,
        explores=arithmetic.writes_responses(config),
        scores_recorded=config.run.mode == "evaluate_only",
        generates=plan.role("rollout") is not None,
        evaluates=arithmetic.evaluates(config),
        responses_per_prompt=config.batch.responses_per_prompt,
        seed=config.run.seed,
    )


def speed_of(config: Config, plan: StagePlan) -> Speed:
    """Of the devices of all roles, and of the policy that is trained."""
    policy = plan.role("policy")
    return Speed(
        devices=len({device for role in plan.roles for device in role.devices}),
        train_devices=len(policy.devices) if policy is not None else 0,
        shape=read_shape(config.model.path),
        passes=(2 if config.model.lora is not None else 3) * config.batch.ppo_epochs,
        peak_tflops=config.profiling.peak_tflops,
        half_precision=config.train.precision.compute in ("bfloat16", "float16"),
    )


def transport_of(config: Config, device: Device, place: Path) -> Transport:
    """The transport of a stage; ``place`` is its folder."""
    parallel = config.rollout.parallel
    match way_of(config, generating(config, device), device).name:
        case "nccl":
            return Nccl(parallel.tensor_parallel_size * parallel.pipeline_parallel_size)
        case "ipc":
            return Ipc(_workers_of(config))
        case "checkpoint":
            return Folder(place / "sync")
    return HostMemory()


def _workers_of(config: Config) -> tuple[tuple[int, ...], ...]:
    """By engine, the policy's workers on its GPUs."""
    parallel = config.rollout.parallel
    each = parallel.tensor_parallel_size * parallel.pipeline_parallel_size
    policy, rollout = arithmetic.devices_of(config, "policy"), arithmetic.devices_of(config, "rollout")
    workers = [policy.index(device) for device in rollout]
    return tuple(tuple(workers[start : start + each]) for start in range(0, len(workers), each))
