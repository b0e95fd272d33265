"""Blocks of verl's FSDP engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlctl.adapters.engine.combined_rows import Switches
from rlctl.adapters.engine.rules import ABSENT, FROM_SCHEMA, SAME, Converter, DialectKey, Key
from rlctl.adapters.engine.values import Partly

SHARDING: tuple[tuple[str, str, Converter], ...] = (
    ("fsdp_size", "fsdp_size", Partly({-1: "all"})),
    ("reshard_after_forward", "reshard_after_forward", SAME),
    ("forward_prefetch", "forward_prefetch", SAME),
    ("wrap_policy.min_num_params", "wrap_min_parameters", SAME),
)
"""How parameters are split: verl's key, the canonical one, and how the value changes."""
DATACLASS: Mapping[str, Any] = {
    "fsdp_size": -1,
    "reshard_after_forward": True,
    "forward_prefetch": False,
    "wrap_policy.min_num_params": 0,
}
"""What a block says that is handed on as a mapping: ``FSDPEngineConfig`` in ``verl/workers/config/engine.py``."""


def sharding(
    block: str, to: str, *, older: str = "", also: Mapping[str, str] | None = None, handed_on: bool = False
) -> list[Key]:
    """How the parameters of a block are split.

    Args:
        block: the place of the block.
        to: the canonical engine.
        older: the place that the block had before.
        also: other names in the block, by the usual one.
        handed_on: whether the framework takes any mapping there, so that its schema has no defaults.
    """
    names, defaults = also or {}, DATACLASS if handed_on else {}
    return [
        Key(
            f"{block}.{key}",
            f"{to}.{field}",
            defaults.get(key, FROM_SCHEMA),
            convert,
            also=(
                *((DialectKey(f"{older}.{key}", defaults.get(key, FROM_SCHEMA)),) if older else ()),
                *((DialectKey(f"{block}.{names[key]}", ABSENT),) if key in names else ()),
            ),
        )
        for key, field, convert in SHARDING
    ]


OFFLOAD = {
    "both": (True, True),
    "parameters": (True, False),
    "optimizer": (False, True),
    "none": (False, False),
}
"""What moves to CPU memory, as verl's two switches: parameters, and states of the optimizer."""


def offloads(prefix: str, to: str, *, names: Iterable[str] = ("param_offload", "optimizer_offload")) -> Switches:
    """The two switches of a block, which some releases have."""
    keys = (DialectKey(f"{prefix}.{name}") for name in names)
    return Switches(tuple(keys), f"{to}.offload", OFFLOAD, off=True, formula="param_offload + optimizer_offload")
