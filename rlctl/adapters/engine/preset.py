"""An algorithm's preset, in formats that have none: its settings are written key by key, its name is kept for the way back."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.adapters.engine.rules import CustomRule, Flow, Inexpressible, Out, Writing
from rlctl.common.messages.reasons import said


def unfolded_preset(name: str) -> CustomRule:
    """The rule of a format, by the framework's name."""
    reason = said("{name} has no presets; its settings are written key by key", name=name)

    def write(view: Writing) -> Iterator[Out]:
        used = (view.to("algorithm.preset"),)
        yield Flow((), None, used, "derived", reason)
        if view.get("algorithm.preset") is not None:
            yield Inexpressible(used, reason, idle=True)

    return CustomRule(
        "preset", (), ("algorithm.preset",), lambda view: iter(()), write, "the settings that it stands for are written"
    )
