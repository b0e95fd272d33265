"""What must hold of auxiliary models before a run starts."""

from __future__ import annotations

from rlctl.common.errors import PlanError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.rewards import JudgeReward
from rlctl.planning import arithmetic
from rlctl.planning.arithmetic import Device

MEMORY = "gpu_memory_utilization"


def check_auxiliaries(config: Config, device: Device | None) -> None:
    """Check names, devices and memory; ``device`` is None if it is not known yet.

    Raises:
        PlanError: one of them is wrong.
    """
    models = arithmetic.auxiliary_models(config)
    taken = next((name for name in models if name in arithmetic.AGENT_MODELS), None)
    if taken is not None:
        raise PlanError(
            said("one of rollout.auxiliary_models is called {name!r}, which means another model", name=taken),
            hint="give it another name",
        )
    for index, reward in enumerate(config.rewards):
        if isinstance(reward, JudgeReward) and reward.auxiliary_model is not None:
            _check_judge(reward, f"rewards[{index}]", list(models))
    served = arithmetic.served_auxiliaries(config)
    shared = arithmetic.auxiliaries_share(config)
    if not served or not shared or device != "cuda":
        return
    for name, model in served.items():
        if MEMORY not in model.settings:
            raise PlanError(
                said(
                    "the auxiliary model {name!r} shares GPUs with {roles} and doesn't say how much of their memory it takes",
                    name=name,
                    roles=", ".join(shared),
                ),
                hint="set placement.roles.auxiliary.devices to other GPUs, or settings.gpu_memory_utilization of the model",
            )


def _check_judge(reward: JudgeReward, key: str, names: list[str]) -> None:
    if reward.auxiliary_model not in names:
        raise PlanError(
            said(
                "{key}.auxiliary_model is {name!r}, but rollout.auxiliary_models has {known}",
                key=key,
                name=reward.auxiliary_model,
                known=", ".join(names) or "none",
            ),
            hint=nearest(str(reward.auxiliary_model), names) or "add a model of this name to rollout.auxiliary_models",
        )
    if reward.base_url is not None or reward.model:
        raise PlanError(
            said("{key} has auxiliary_model, and also base_url or model", key=key),
            hint="keep auxiliary_model, or the other two",
        )
