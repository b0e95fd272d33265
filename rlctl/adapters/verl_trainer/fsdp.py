"""Blocks of verl's FSDP engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlctl.adapters.engine.combined_rows import Switches
from rlctl.adapters.engine.rules import SAME, Converter, DefaultFrom, DialectKey, Key
from rlctl.adapters.engine.values import Partly

SHARDING: tuple[tuple[str, str, Any, Converter], ...] = (
    ("fsdp_size", "fsdp_size", -1, Partly({-1: "all"})),
    ("reshard_after_forward", "reshard_after_forward", True, SAME),
    ("forward_prefetch", "forward_prefetch", False, SAME),
    ("wrap_policy.min_num_params", "wrap_min_parameters", 0, SAME),
)
"""How parameters are split: verl's key, the canonical one, the default, and how the value changes."""


def sharding(
    block: str,
    to: str,
    *,
    since: Mapping[str, str] | str = "",
    older: str = "",
    until: str = "",
    also: Mapping[str, str] | None = None,
) -> list[Key]:
    """How the parameters of a block are split.

    Args:
        block: the place of the block.
        to: the canonical engine.
        since: the first release that has the keys, or some of them by name.
        older: the place that the block had before.
        until: the last release that has it there.
        also: other names in the block, by the usual one.
    """
    names = also or {}
    return [
        Key(
            f"{block}.{key}",
            f"{to}.{field}",
            default,
            convert,
            also=(
                *((DialectKey(f"{older}.{key}", default),) if older else ()),
                *((DialectKey(f"{block}.{names[key]}"),) if key in names else ()),
            ),
        )
        for key, field, default, convert in SHARDING
    ]


OFFLOAD = {
    "both": (True, True),
    "parameters": (True, False),
    "optimizer": (False, True),
    "none": (False, False),
}
"""What moves to CPU memory, as verl's two switches: parameters, and states of the optimizer."""


def offloads(
    prefix: str,
    to: str,
    like: str = "",
    *,
    names: Iterable[str] = ("param_offload", "optimizer_offload"),
    since: str = "",
    until: str = "",
) -> Switches:
    """The two switches of a block, which some releases have; ``like`` is the block whose switches they follow."""
    keys = (DialectKey(f"{prefix}.{name}", DefaultFrom(f"{like}.{name}") if like else False) for name in names)
    return Switches(tuple(keys), f"{to}.offload", OFFLOAD, formula="param_offload + optimizer_offload")
