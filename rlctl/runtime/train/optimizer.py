"""The optimizer of an engine: one of PyTorch's, or a class of another package, with the arguments that the config has.

Weight decay pulls on every parameter, norms and biases included, as in verl's and TRL's peers of this engine
(verl/workers/config/optimizer.py builds its optimizers over ``model.parameters()``), unless ``decay_norms_and_biases`` is off.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from rlctl.common.errors import PlanError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config.sections.train import Optimizer

PACKAGES = {"torchao": "torchao", "bitsandbytes": "bitsandbytes"}
"""What to install for a module, by its first name."""
ADAM_FAMILY = ("adam", "ademamix")
"""Optimizers with one of these in their name go by ``betas`` and ``epsilon``; to others the words mean something else."""
FUSED = (torch.optim.AdamW, torch.optim.Adam)
"""Optimizers that PyTorch has as one kernel for parameters that are spread over workers."""
OWN = {"lr": "train.optimizer.lr", "weight_decay": "train.optimizer.weight_decay"}
"""Arguments that move with the schedule."""
CLOSURES = ("LBFGS",)
"""Optimizers that compute the loss anew inside a step."""


def make_optimizer(parameters: Iterable[torch.nn.Parameter], settings: Optimizer) -> torch.optim.Optimizer:
    """Return the optimizer of all parameters that are trained, in its fused form where there is one.

    Raises:
        PlanError: there is no such optimizer here, or it does not take the arguments.
    """
    kind = optimizer_class(settings)
    groups = _groups([parameter for parameter in parameters if parameter.requires_grad], settings)
    try:
        made: torch.optim.Optimizer = kind(groups, **arguments(settings))
    except (TypeError, ValueError, RuntimeError) as error:
        raise PlanError(
            said("train.optimizer: {kind} does not take its arguments: {error}", kind=kind.__name__, error=error),
            hint="correct or remove train.optimizer.args",
        ) from error
    return made


def _groups(trained: Sequence[torch.nn.Parameter], settings: Optimizer) -> list[dict[str, Any]]:
    """What is trained: all alike, or norms and biases by themselves, which have one dimension."""
    if settings.decay_norms_and_biases:
        return [{"params": trained}]
    pulled = {"params": [parameter for parameter in trained if parameter.ndim > 1]}
    left = {"params": [parameter for parameter in trained if parameter.ndim <= 1], "weight_decay": 0.0, "wd_mult": 0.0}
    return [group for group in (pulled, left) if group["params"]]


def optimizer_class(settings: Optimizer) -> type[torch.optim.Optimizer]:
    """Return the class that the config names: ``adamw`` is PyTorch's ``AdamW``.

    Raises:
        PlanError: its package is not installed, or has no such class.
    """
    name = settings.module or "torch.optim"
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        package = PACKAGES.get(name.partition(".")[0])
        raise PlanError(
            said("train.optimizer.module {name} cannot be imported: {error}", name=name, error=error),
            hint=said("pip install {package}", package=package)
            if package
            else "install its package on every machine of the run",
        ) from error
    classes = {key: value for key, value in vars(module).items() if _is_optimizer(value)}
    found = classes.get(settings.type) or {key.lower(): value for key, value in classes.items()}.get(
        settings.type.lower()
    )
    if found is None:
        raise PlanError(
            said(
                "train.optimizer.type is {type}, which {name} does not have; it has {names}",
                type=settings.type,
                name=name,
                names=", ".join(sorted(classes)),
            ),
            hint=nearest(settings.type, classes),
        )
    return found


def _is_optimizer(value: object) -> bool:
    kind = inspect.isclass(value) and issubclass(value, torch.optim.Optimizer) and value is not torch.optim.Optimizer
    return kind and value.__name__ not in CLOSURES  # type: ignore[attr-defined]


def arguments(settings: Optimizer) -> dict[str, Any]:
    """Return what the class is called with: what it takes of the section, and ``args`` over it.

    Raises:
        PlanError: ``args`` has a name that the class does not take, or that is a key of the config.
    """
    kind = optimizer_class(settings)
    accepted = inspect.signature(kind).parameters
    unknown = next((name for name in settings.args if name not in accepted), None)
    if unknown is not None and not any(each.kind is each.VAR_KEYWORD for each in accepted.values()):
        raise PlanError(
            said("train.optimizer.args has {unknown}, which {kind} does not take", unknown=unknown, kind=kind.__name__),
            hint=nearest(unknown, accepted) or said("it takes {names}", names=", ".join(accepted)),
        )
    twice = next((name for name in OWN if name in settings.args), None)
    if twice is not None:
        raise PlanError(
            said("train.optimizer.args has {twice}, which has its own key", twice=twice),
            hint=said("set {own}", own=OWN[twice]),
        )
    section: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if any(family in kind.__name__.lower() for family in ADAM_FAMILY):
        section |= {"betas": settings.betas, "eps": settings.epsilon}
    if kind in FUSED:
        section["fused"] = True  # one kernel, and the same bits every time
    elif kind.__module__.startswith("torch.optim") and settings.args.get("fused"):
        raise PlanError(
            said(
                "train.optimizer.args sets fused, which PyTorch's {kind} supports only for whole parameters",
                kind=kind.__name__,
            ),
            hint="omit fused",
        )
    return {name: value for name, value in section.items() if name in accepted} | settings.args
