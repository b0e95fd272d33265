"""Which class computes what ``train.engine`` names. Nothing else knows that there is more than one engine."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.model import Model
from rlctl.config.sections.train import Fsdp2, Megatron, Train
from rlctl.planning.megatron.layout import in_one_piece
from rlctl.runtime.train.interface import Role, TrainEngine

ENGINES: Mapping[str, tuple[str, str]] = {
    "fsdp2": ("rlctl.runtime.train.fsdp", "FsdpEngine"),
    "megatron": ("rlctl.runtime.train.megatron.engine", "MegatronEngine"),
}
"""Module and class by the name of the engine. A module is imported where its engine is made: Megatron-core takes long to load."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """A model on a train engine: what an engine is made from."""

    model: Model
    """Its path is that of the first weights."""
    train: Train
    seed: int


def make_train_engine(model: Model, train: Train, *, role: Role, **options: Any) -> TrainEngine:
    """The engine of a role; arguments as of ``FsdpEngine``.

    Raises:
        PlanError: there is no such engine here, or it cannot be set up as the config asks.
        RunError: the model cannot be loaded.
    """
    if train.engine.choice not in ENGINES:
        raise PlanError(
            said(
                "train.engine {type_name} is not a training engine; expected one of {names}",
                type_name=train.engine.type_name,
                names=", ".join(ENGINES),
            ),
            hint="set train.engine.type to fsdp2",
        )
    module, name = ENGINES[train.engine.choice]
    made: TrainEngine = getattr(importlib.import_module(module), name)(model, train, role=role, **options)
    return made


def alone(train: Train) -> Train:
    """The section for one worker that reads weights in full precision: a checkpoint is read by any layout."""
    if isinstance(train.engine, Fsdp2):
        return replace(train, engine=replace(train.engine, fsdp_size="all", ulysses_sequence_parallel_size=1))
    if isinstance(train.engine, Megatron):
        wide = replace(train.precision, compute="float32")
        return replace(train, engine=in_one_piece(train.engine), precision=wide)
    return train
