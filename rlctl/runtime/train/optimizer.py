"""The optimizer of an engine. Weight decay pulls on every parameter, norms and biases included, as in verl's and TRL's peers
of this engine (verl/workers/config/optimizer.py builds AdamW over ``model.parameters()``)."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from rlctl.config.sections.train import Optimizer
from rlctl.errors import PlanError


def make_optimizer(parameters: Iterable[torch.nn.Parameter], settings: Optimizer) -> torch.optim.Optimizer:
    """Return AdamW over all parameters that are trained, in its fused form: one kernel, and the same bits every time.

    Raises:
        PlanError: another optimizer is asked for.
    """
    if settings.name.lower() != "adamw" or settings.module is not None or settings.args:
        asked = ".".join(part for part in (settings.module, settings.name) if part)
        raise PlanError(
            f"train.optimizer asks for {asked} with args {dict(settings.args)}; expected plain adamw",
            hint="set train.optimizer.name to adamw, and leave module and args out",
        )
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    return torch.optim.AdamW(
        trained,
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
        fused=True,
    )
