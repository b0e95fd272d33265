"""What ends a refusal of a framework, in words: the change that a row of its requirements states, or the row's own hint."""

from __future__ import annotations

from rlctl.adapters.engine.requirements import Requirement, Settled
from rlctl.checks.hints import Setting, ascending, count_shown, own_hint, without_fix, worded
from rlctl.common.report import OwnFix


def advice_of(row: Requirement) -> tuple[str, str, tuple[OwnFix, ...]]:
    """The hint of a row that a file breaks, the hint with ``{fix}`` for its values, and the change of a key that it states."""
    if not isinstance(row.hint, Settled):
        return str(row.hint), "", ()
    template, values = own_hint(row.hint.other), row.hint.values
    if values is None:
        return without_fix(template, row.hint.key, is_number=False), "", ()
    return worded_fix(template, (row.hint.key, values)), template, ((row.hint.key, values),)


def worded_fix(template: str, fix: OwnFix) -> str:
    """A hint with the first values of a change."""
    key, values = fix
    return worded(template, [Setting(key, tuple(ascending(values[: count_shown(template)])))])
