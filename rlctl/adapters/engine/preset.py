"""An algorithm's preset, in formats that have none: its settings are written key by key, its name is kept for the way back."""

from __future__ import annotations

from rlctl.adapters.engine.one_sided_rows import WriteOnly
from rlctl.common.messages.reasons import said


def unfolded_preset(name: str) -> WriteOnly:
    """The rule of a format, by the framework's name."""
    to = "algorithm.preset"
    reason = said("{name} has no presets; its settings are written key by key", name=name)
    formula = "the settings that it stands for are written"
    return WriteOnly(
        to, lambda view: view.get(to) is not None, reason, lost=reason, idle=True, fills=True, formula=formula
    )
