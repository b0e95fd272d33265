"""Keys of a file that its run would train without: near misses of known keys are errors, keys that rlctl lacks warnings."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from rlctl.common.errors import UsageError, nearest
from rlctl.common.messages.reasons import said
from rlctl.common.report import Bucket, Finding, Level, Report, finding

OPTION = "--allow-unknown"


def of_reading(report: Report, allowed: Collection[str] = ()) -> list[Finding]:
    """The findings of reading a file that rlctl is to run: those of reading, with errors and warnings for lost keys.

    Args:
        report: of reading it; its accounting holds every key of the file.
        allowed: as for ``with_mistyped_keys``.
    """
    return [*with_mistyped_keys(report.findings, allowed), *without_equivalent(report)]


def without_equivalent(report: Report) -> list[Finding]:
    """A warning for each key of the file that has no key of rlctl."""
    lost = [entry for entry in report.accounting if entry.bucket is Bucket.UNSUPPORTED]
    return [finding("no-equivalent", Level.WARNING, entry.key, entry.at, reason=entry.why) for entry in lost]


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
