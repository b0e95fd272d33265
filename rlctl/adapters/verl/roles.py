"""verl: the roles that train, which engine each names, and how many GPUs share a sequence in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlctl.adapters.engine.combined_rows import OneOf
from rlctl.adapters.engine.rules import (
    ABSENT,
    DialectKey,
    Reading,
    Rule,
    Same,
    When,
    Writing,
    own_name,
)
from rlctl.common.messages.reasons import said
from rlctl.common.records import record

FSDP_KINDS = ("fsdp", "fsdp2", "fsdp_turbo")
"""Strategies of verl's FSDP engine, which share its block of keys."""


@record
class Role:
    """Where a role names its training engine and says how many GPUs share a sequence, there and here."""

    key: str
    """The key that names the engine."""
    to: str
    """The canonical engine."""
    context: str
    """Megatron's context size."""
    ulysses: tuple[str, ...]
    """The Ulysses size, in every place that it stands; the first above 1 holds."""
    groups: tuple[str, ...] = ("model_engine",)
    """Config groups that choose an engine for all roles."""

    def kind(self, view: Reading) -> str:
        """The engine that a text asks for."""
        return kind_of_engine(view, self.key, self.groups)

    def sharers(self, view: Reading) -> int:
        """GPUs that share one sequence, whose tokens verl counts on each of them."""
        kind = self.kind(view)
        if kind == "megatron":
            return _size(view.get(self.context))
        if kind in SHARED_BY:
            block = self.key.removesuffix("strategy")
            return _size(view.get(f"{block}{kind}.{SHARED_BY[kind]}", view.get(f"{block}{SHARED_BY[kind]}")))
        return self.ulysses_size(view) if kind in FSDP_KINDS else 1

    def replica(self, view: Reading) -> int:
        """GPUs of one data-parallel rank: verl divides sizes of all GPUs by the ranks."""
        if self.kind(view) != "megatron":
            return self.sharers(view)
        block = self.context.removesuffix("context_parallel_size")
        sizes = (_size(view.get(f"{block}{way}_model_parallel_size")) for way in ("tensor", "pipeline"))
        return self.sharers(view) * math.prod(sizes)

    def ulysses_size(self, view: Reading) -> int:
        """The Ulysses size; engines take that of the FSDP block only since 0.8."""
        places = self.ulysses if view.version >= (0, 8) else self.ulysses[:1]
        return next((size for key in places if (size := _size(view.get(key))) > 1), 1)

    def sharers_written(self, view: Writing) -> int:
        """The same, of a config that is written."""
        engine = view.get(self.to)
        if not isinstance(engine, Mapping):
            engine = view.get("train.engine")
        kind = own_name(str(engine["type"]), "verl")
        if kind in SHARED_BY:
            return _size((engine.get("args") or {}).get(SHARED_BY[kind]))
        return _size(engine.get("ulysses_sequence_parallel_size" if kind == "fsdp2" else "context_parallel_size"))


def _size(value: Any) -> int:
    return value if isinstance(value, int) and value > 1 else 1


class AtLeastOne(Same):
    """A size; anything that is none is 1."""

    def read(self, value: Any, view: Reading) -> Any:
        return _size(value)


def sequence_parallel(role: Role) -> OneOf:
    """The Ulysses size, which stands in the role and, since 0.6, in its FSDP block."""

    def deciding(view: Reading) -> str:
        size = role.ulysses_size(view)
        return next((key for key in role.ulysses if _size(view.get(key)) == size), role.ulysses[0])

    return OneOf(
        (
            DialectKey(role.ulysses[0]),
            *(DialectKey(key, ABSENT) for key in role.ulysses[1:]),
        ),
        f"{role.to}.ulysses_sequence_parallel_size",
        reads=deciding,
        writes=lambda view: role.ulysses[0],
        convert=AtLeastOne(),
    )


def kind_of_engine(view: Reading, key: str, groups: tuple[str, ...]) -> str:
    """The engine a text asks for: a config group chosen beside, or ``strategy``."""
    group = next((name for name in groups if view.written(name)), "")
    kind = str(view.get(group) if group else view.get(key, "fsdp")).removesuffix("_actor")
    kind = {"dp": "fsdp"}.get(kind, kind)
    return str(view.get(key)) if kind == "fsdp" and group and view.written(key) else kind


SHARED_BY = {"veomni": "ulysses_parallel_size", "torchtitan": "tensor_parallel_size"}
"""How engines that rlctl only translates name the GPUs by which verl multiplies a micro-batch's tokens."""
ENGINE_NAMES = {
    "fsdp2": "FSDP",
    "megatron": "Megatron",
    "veomni": "VeOmni",
    "torchtitan": "TorchTitan",
    "mindspeed": "MindSpeed",
    "mlite": "Megatron Lite",
}


def under(engine: str, role: Role, *rules: Rule) -> When:
    """Rules of one engine: ``fsdp2``, ``megatron``, or one that rlctl only translates."""
    kinds = FSDP_KINDS if engine == "fsdp2" else (engine,)

    def writes(view: Writing) -> bool:
        return own_name(str(view.get(f"{role.to}.type")), "verl") == engine

    return When(
        rules,
        lambda view: role.kind(view) in kinds,
        writes,
        said("the engine is not {engine}", engine=ENGINE_NAMES.get(engine, engine)),
    )


def is_old_fsdp(view: Any, is_fsdp: bool) -> bool:
    """Whether FSDP's workers of before 0.8 train, which read some keys in another way; of a text, or of what is written."""
    chosen = view.get("trainer.use_legacy_worker_impl", "auto") if hasattr(view, "written") else "auto"
    return is_fsdp and view.version < (0, 8) and chosen != "disable"


_ACTOR, _REF = "actor_rollout_ref.actor", "actor_rollout_ref.ref"
ACTOR = Role(
    f"{_ACTOR}.strategy",
    "train.engine",
    f"{_ACTOR}.megatron.context_parallel_size",
    (f"{_ACTOR}.ulysses_sequence_parallel_size", f"{_ACTOR}.fsdp_config.ulysses_sequence_parallel_size"),
    ("actor@actor", "model_engine"),
)
REFERENCE = Role(
    f"{_REF}.strategy",
    "reference.engine",
    f"{_REF}.megatron.context_parallel_size",
    (f"{_REF}.ulysses_sequence_parallel_size", f"{_REF}.fsdp_config.ulysses_sequence_parallel_size"),
)
CRITIC = Role(
    "critic.strategy",
    "critic.engine",
    "critic.megatron.context_parallel_size",
    ("critic.ulysses_sequence_parallel_size", "critic.fsdp.ulysses_sequence_parallel_size"),
)
SFT = Role(
    "engine.strategy",
    "train.engine",
    "engine.context_parallel_size",
    ("engine.ulysses_sequence_parallel_size",),
    ("engine@engine", "model_engine"),
)
SFT_OLD = Role("model.strategy", "train.engine", "", ("ulysses_sequence_parallel_size",), ())
