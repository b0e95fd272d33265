"""Unknown keys that are near misses of known ones: errors, because a run would train without what they were meant to set."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from rlctl.common.errors import UsageError, nearest
from rlctl.common.messages.reasons import said
from rlctl.common.report import Finding, Level, finding

OPTION = "--allow-unknown"


def with_mistyped_keys(findings: Iterable[Finding], allowed: Collection[str] = ()) -> list[Finding]:
    """The findings, with an error for every near miss of a known key.

    Args:
        findings: those of reading a file.
        allowed: unknown keys that stay warnings, as the file spells them.
    """
    return [_mistyped(finding) if finding.meant and finding.key not in allowed else finding for finding in findings]


def _mistyped(unknown: Finding) -> Finding:
    told = finding(
        "mistyped-key",
        Level.ERROR,
        unknown.key,
        unknown.at,
        option=f"{OPTION} {unknown.key}",
        framework=unknown.params.get("framework", ""),
        meant=unknown.meant,
    )
    return replace(told, meant=unknown.meant, added=unknown.added)


def refuse_unused(findings: Iterable[Finding], allowed: Collection[str]) -> None:
    """Refuse an allowance that allows nothing.

    Raises:
        UsageError: no finding is of an unknown key of that name.
    """
    unknown = [finding.key for finding in findings if finding.code in ("unknown-key", "mistyped-key", "runner-refuses")]
    for key in allowed:
        if key not in unknown:
            listed = (
                said("the unknown keys are {keys}", keys=", ".join(unknown)) if unknown else "it has no unknown keys"
            )
            raise UsageError(
                said("{option} {key}: the config has no such unknown key", option=OPTION, key=key),
                hint=nearest(key, unknown) or listed,
            )
