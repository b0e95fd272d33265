"""The joined ledger of a translation: what became of every source leaf, through the canonical keys it went to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlctl.adapters import dialect as dialect_called
from rlctl.adapters.engine.dialect import File
from rlctl.adapters.engine.lacking import lacking
from rlctl.adapters.engine.meanings import Meaning, meanings
from rlctl.adapters.engine.tree import find
from rlctl.adapters.engine.writing import WriteOutcome
from rlctl.common.messages.reasons import said, together
from rlctl.common.ranks import LOSS_TERMS, Rank, rank_of
from rlctl.common.report import ALWAYS, Bucket, Entry, Finding, Level, finding, option_for_fact
from rlctl.common.report_lines import framework
from rlctl.documents import parse_dotted


def unsupported(entries: Sequence[Entry]) -> list[Finding]:
    """One warning for each leaf that the target cannot say."""
    return [
        finding(
            "unsupported",
            Level.WARNING,
            entry.key,
            entry.at,
            option=option_for_fact(entry.note),
            ranked=entry.rank,
            reason=entry.note,
        )
        for entry in entries
        if entry.bucket is Bucket.UNSUPPORTED
    ]


def joined(entry: Entry, file: File, source: str, meant: str = "") -> Entry:
    """What became of one source leaf in the target, through the canonical keys it went to.

    Args:
        entry: of the leaf.
        file: of the target.
        source: its framework.
        meant: the known key that a mistyped one is a near miss of.
    """
    made = _joined(replace(entry, rank=rank_in(entry, source, meant)), file, source)
    if made.loses and entry.silent:
        return replace(made, bucket=Bucket.MAPPED, note="the default")
    return made


def _joined(entry: Entry, file: File, source: str) -> Entry:
    if entry.bucket is Bucket.UNSUPPORTED and file.name == source:
        place = parse_dotted(entry.key)
        if find(file.values, place) == entry.value:
            return replace(entry, bucket=Bucket.CARRIED, targets=((entry.key, entry.value),))
    if entry.bucket not in (Bucket.MAPPED, Bucket.DERIVED, Bucket.CARRIED) or not entry.targets:
        return entry
    fates = [found for key, _ in entry.targets if (found := fate_in(key, file)) is not None]
    if not fates and entry.bucket is not Bucket.CARRIED:
        return replace(
            entry, bucket=Bucket.UNSUPPORTED, targets=(), note=lacking(file.name, parse_dotted(entry.targets[0][0]))
        )
    made = resolve_bucket(entry, fates)
    leaf = parse_dotted(entry.key)[-1:]
    if made.bucket is Bucket.UNSUPPORTED and LOSS_TERMS.intersection(
        leaf
    ):  # the engine's other settings change no result
        return replace(made, note=lacking(file.name, leaf))
    if made.note == ALWAYS:
        return replace(made, note=said("{target} always does this", target=framework(file.name)))
    return made


def rank_in(entry: Entry, source: str, meant: str = "") -> Rank:
    """The gravest rank of the canonical keys that a leaf went to, or was meant for; without any, by the source's own table."""
    if entry.key.rpartition(".")[2] in LOSS_TERMS:
        return Rank.OBJECTIVE
    keys = [key for key, _ in entry.targets] or [key for found in _meanings(source, meant) for key in found.canonical]
    ranks = [rank for key in keys if (rank := rank_of(key)) is not None]
    own = rank_of(meant or entry.key, dialect_called(source).ranks) if source and not ranks else None
    unknown = Rank.OBJECTIVE if entry.bucket is Bucket.UNKNOWN else Rank.NAMES
    return min(ranks, key=lambda rank: rank.place) if ranks else own or unknown


def _meanings(source: str, meant: str) -> list[Meaning]:
    return meanings(f"{source}:{meant}") if source and meant else []


def fate_in(key: str, file: File) -> WriteOutcome | None:
    """What became of a canonical key, in the stage that holds it; of one that stages share, in the first that loses it."""
    path = parse_dotted(key)
    stage = path[1] if path[:1] == ("stages",) and len(path) > 2 else None
    own = path[2:] if stage is not None else path
    if stage is None and len(file.parts) > 1:
        found = [fate for _, written in file.parts if (fate := written.fate_of(path)) is not None]
        return next((fate for fate in found if fate.lost), found[0] if found else None)
    for index, written in file.parts:
        if index == stage or len(file.parts) == 1:
            return written.fate_of(path) if index is None and stage is not None else written.fate_of(own)
    return None


def resolve_bucket(entry: Entry, fates: Sequence[WriteOutcome]) -> Entry:
    """An entry with the targets, the bucket and the reasons that the fates of its canonical keys give it."""
    lost = together(fate.lost for fate in fates)
    targets = tuple(dict.fromkeys((key, _frozen(value)) for fate in fates for key, value in fate.targets))
    shown = tuple((key, _thawed(fates, key, value)) for key, value in targets)
    notes = [entry.note, *(note for fate in fates for note in fate.notes)]
    note = together([note for note in notes if note != ALWAYS] or notes)
    if lost:
        rounded = all(fate.rounded for fate in fates if fate.lost)
        return replace(entry, bucket=Bucket.APPROXIMATED if rounded else Bucket.UNSUPPORTED, targets=shown, note=lost)
    if entry.bucket is Bucket.CARRIED:
        return replace(entry, targets=shown)
    kept = together(fate.kept for fate in fates)
    computed = any(fate.derived for fate in fates)
    if kept and not shown and not computed:
        return replace(entry, bucket=Bucket.CARRIED, targets=(), note=kept)
    note = note or ("" if shown else ALWAYS)
    derived = entry.bucket is Bucket.DERIVED or computed
    return replace(entry, bucket=Bucket.DERIVED if derived else Bucket.MAPPED, targets=shown, note=note)


def _frozen(value: Any) -> str:
    return repr(value)


def _thawed(fates: Sequence[WriteOutcome], key: str, frozen: str) -> Any:
    return next(value for fate in fates for name, value in fate.targets if name == key and repr(value) == frozen)
