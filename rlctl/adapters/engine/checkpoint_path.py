"""What verl's Megatron starts from, and Trinity's, which is verl's: a Megatron checkpoint where ``use_dist_checkpointing`` is on.

That switch alone has them read ``dist_checkpointing_path``, and fail where there is none. So it is written where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlctl.adapters.engine.rules import (
    FROM_SCHEMA,
    Absent,
    CustomRule,
    DialectKey,
    Flow,
    Inexpressible,
    Out,
    Reading,
    Writing,
)
from rlctl.common.messages.reasons import said


def checkpoint(block: str, to: str, dialect: str, *, on: Any = FROM_SCHEMA, path: Any = FROM_SCHEMA) -> CustomRule:
    """Both keys of a Megatron block.

    Args:
        block: that has them.
        to: the canonical engine.
        dialect: that has the block, and keeps what goes nowhere else.
        on: the default of ``use_dist_checkpointing``.
        path: the default of ``dist_checkpointing_path``.
    """
    switch, place = f"{block}.use_dist_checkpointing", f"{block}.dist_checkpointing_path"
    own, start = f"{to}.distributed_checkpointing", f"{to}.checkpoint_path"

    def read(view: Reading) -> Iterator[Flow]:
        is_on, found, used = view.get(switch, False), view.get(place) or None, (view.path(place),)
        yield Flow(view.to(own), is_on, (view.path(switch),), same=True)
        if is_on:
            yield Flow(view.to(start), found, used, same=found is not None)
            if found is None:
                yield Flow(("extensions", dialect, _kept(view)), is_on, (view.path(switch),))
        else:
            yield Flow((), None, used, "dead" if found else "mapped", said("{switch} is off", switch=switch))

    def write(view: Writing) -> Iterator[Out]:
        is_on, found = view.get(own), view.get(start)
        if isinstance(is_on, Absent):
            return
        used = (view.to(own),)
        if found is None and is_on and _kept(view) in view.config.carried_for(dialect):
            yield Flow((), None, used, "mapped", "kept as written; the path of the checkpoint is not set yet")
        elif found is None and is_on and view.explicit(own):
            yield Inexpressible(used, "if on, verl would start from a checkpoint, but the config names none", idle=True)
        else:
            moved = is_on is not bool(found)
            note = "on if a run starts from a checkpoint" if moved else ""
            yield Flow(view.path(switch), bool(found), used, "derived" if moved else "mapped", note)
        yield Flow(view.path(place), found, (view.to(start),), same=True)

    def _kept(view: Reading | Writing) -> str:
        return ".".join(str(part) for part in view.path(switch))

    keys = (DialectKey(switch, on), DialectKey(place, path))
    return CustomRule(
        f"checkpoint of {block}",
        keys,
        (own, start),
        read,
        write,
        "read only if use_dist_checkpointing is on",
        by_key={switch: own, place: start},
        why="The switch is on if there is a path; without a path its value is kept apart.",
    )
