"""What a file in a dialect would say otherwise than the config that is saved to it, those first that change training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rlctl.common.ranks import Rank, rank_of
from rlctl.common.report import Bucket, Entry, Finding, Level, Report
from rlctl.config.inspect import settings
from rlctl.documents import KeyPath, dotted, parse_dotted
from rlctl.editing.session import Draft, Session, overlap
from rlctl.editing.values import text_of
from rlctl.planning.support import Status, status_of

SPEED_OR_NAMES = (Rank.RESOURCES, Rank.NAMES)
EVALUATION = ("schedule.evaluate", "data.eval", "data.shuffle_evaluation", "rollout.evaluation")
"""How the keys begin that change what is measured, but not the weights that a run ends with."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """A value that a saved file would hold otherwise, or not at all."""

    key: str
    """Canonical; of the file that was read if nothing here stands for it."""
    wanted: str
    said: str
    """What the file would say; empty if it says nothing."""
    reason: str
    changes_training: bool


@dataclass(frozen=True, slots=True)
class Outlook:
    """The result that saving under a name would have."""

    draft: Draft | None
    """None if the dialect cannot hold the config at all; ``refusal`` says why."""
    refusal: str
    deviations: tuple[Deviation, ...]
    shares: Mapping[str, int]
    """How many keys of the file that was read end in which bucket."""


def outlook(session: Session, path: Path, dialect: str | None, *, script: bool) -> Outlook:
    """Work out what saving a config under a name would write, and every value that the file would hold otherwise.

    Args:
        session: of the config.
        path: of the file.
        dialect: of the file; None for the session's own.
        script: whether the file is a launch script.

    Raises:
        RlctlError: the text cannot be read back.
    """
    found = session.preview(dialect or session.dialect, script=script)
    if found.text is None:
        refusal = "\n".join(f"{item.message}\n  {item.hint}" for item in found.report.errors)
        return Outlook(None, refusal, (), found.report.shares())
    draft = session.draft_for(path, dialect)
    in_place = dialect is None and script == session.is_script
    report = (
        Report() if in_place else found.report
    )  # of a file whose other lines stay, only the values that it cannot say
    told = sorted(_deviations(session, report, draft), key=lambda one: not one.changes_training)
    return Outlook(draft, "", tuple(told), found.report.shares())


def _deviations(session: Session, report: Report, draft: Draft) -> Iterator[Deviation]:
    read = {entry.key: [key for key, _ in entry.targets] for entry in session.report.accounting}
    lost = [entry for entry in report.accounting if entry.bucket in (Bucket.UNSUPPORTED, Bucket.UNKNOWN)]
    reasons = {key: entry.why for entry in lost for key in read.get(entry.key) or [entry.key]}
    told = set()
    for item in draft.lost:
        why = next((note for key, note in reasons.items() if overlap(key, item.key)), "")
        told.add(item.key)
        yield Deviation(
            item.key, text_of(item.first.value), text_of(item.second.value), why, changes_training(session, item.key)
        )
    for entry in lost:
        keys = read.get(entry.key) or [entry.key]
        if not any(overlap(key, one) for key in keys for one in told):
            yield _of_entry(session, entry, keys)
    known = {entry.key for entry in lost}
    for finding in report.findings:
        is_new = finding not in session.report.findings and finding.level is Level.WARNING
        if is_new and not (finding.code == "unsupported" and finding.key in known):
            yield _of_finding(finding)


def _of_entry(session: Session, entry: Entry, keys: list[str]) -> Deviation:
    trains = entry.bucket is Bucket.UNSUPPORTED and any(changes_training(session, key) for key in keys)
    return Deviation(entry.key, text_of(entry.value), "", entry.why, trains)


def _of_finding(finding: Finding) -> Deviation:
    """A deviation from a finding of the writer: an assumption, which may change training."""
    message = finding.message.removeprefix(f"'{finding.key}': ") if finding.key else finding.message
    return Deviation(finding.key, "", "", message, True)


def changes_training(session: Session, key: str) -> bool:
    """Whether another value of a key may give other weights; true for a key that is not known."""
    try:
        path = parse_dotted(key)
    except ValueError:
        return True
    own = path[2:] if path[:1] == ("stages",) and len(path) > 2 else path
    if dotted(own).startswith(EVALUATION) or rank_of(dotted(own)) in SPEED_OR_NAMES:
        return False
    pattern = _pattern(session, own)
    try:
        return pattern is None or status_of(pattern).status not in (Status.NOTED, Status.DESCRIPTIVE)
    except KeyError:
        return True


def _pattern(session: Session, path: KeyPath) -> str | None:
    found = (
        (one.pattern for one in settings(session.config, only=(str(path[0]),)) if one.path == path)
        if path
        else iter(())
    )
    return next(found, None)
