"""What a stage's throughput is measured by."""

from __future__ import annotations

from rlctl.config import Config
from rlctl.planning.models import read_shape
from rlctl.planning.plan import StagePlan
from rlctl.runtime.profiling.throughput import Speed


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
