"""What rlctl thinks of a config: findings, and the accounting of a translation.

Reading, checking and writing all return a Report of this one type. Nothing here prints: the front end turns a
Report into a table, JSON and an exit code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rlctl.common.errors import Location
from rlctl.common.messages import code_of, optional, text
from rlctl.common.messages.reasons import translated
from rlctl.common.ranks import BY_CODE, Rank, rank_of
from rlctl.common.records import record
from rlctl.common.secrets import without_secrets


class Level(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """The config cannot be used as it is."""
    WARNING = "warning"
    """It can be used, and something in it deserves a second look."""
    NOTE = "note"
    """Worth knowing; nothing to do."""


class Bucket(StrEnum):
    """The fate of a source key in a conversion; each leaf has exactly one."""

    MAPPED = "mapped"
    """Same meaning in the target."""
    DERIVED = "derived"
    """The value was computed; the note shows the formula."""
    CARRIED = "carried"
    """No meaning for the target; kept for the way back."""
    APPROXIMATED = "approximated"
    """Written as another number, because the target counts in larger units; the note has both numbers."""
    UNSUPPORTED = "unsupported"
    """Has a meaning that the target cannot express; the note says what will differ."""
    DEAD = "dead"
    """The source framework itself ignores it."""
    UNKNOWN = "unknown"
    """The source framework has no such key."""


class Origin(StrEnum):
    """The origin of a target key's value."""

    MAPPED = "mapped"
    DERIVED = "derived"
    DEFAULTED = "defaulted"
    """Written only to say what the source's silence meant."""
    ASSUMED = "assumed"
    """A fact that the source does not hold; always a warning, set by an option."""
    CARRIED = "carried"


ALWAYS = "the target always does this"
"""The note on a value that the target needs no key for."""
UNWRITTEN = "the default, so nothing is written"
"""The note on a value that is the target's own default."""
FACTS = ("dataset_rows", "explorer_gpus", "stage")
"""What a user may state of a run that no config says. Texts ask for one as ``state dataset_rows``; a command line takes it with
``--assume``, the app in a window of its own."""
_REQUEST = rf"[:;,：；，]? *\bstate (?:{'|'.join(FACTS)})\b(?:=\w+)?"
ASKED = rf"\bstate ({'|'.join(FACTS)})\b(?:=(\w+))?"


def fact_in(text: str) -> str:
    """The fact that a text asks for; empty where it asks for none."""
    found = re.search(ASKED, text)
    return found[1] if found is not None else ""


def option_stating(fact: str) -> str:
    """The command-line option that states a fact."""
    return f"--assume {fact}=N"


def option_for_fact(text: str) -> str:
    """The command-line option that states the fact that a text asks for."""
    found = re.search(ASKED, text)
    return f"--assume {found[1]}={found[2] or 'N'}" if found is not None else ""


def without_requests(text: str) -> str:
    """A text without ``state FACT``, for readers who are shown the option that does it."""
    return re.sub(_REQUEST, "", text)


DIFFERENCES = frozenset(
    {
        "silent-difference",
        "micro-batches-added",
        "not-readable",
        "target-refuses",
        "uncallable-reward",
        "other-reward",
        "other-observations",
        "other-gradient",
        "other-trainer",
        "resume-latest",
        "unset",
        "lost-overrides",
    }
)
"""Findings on what the target does otherwise although no key of the source says it, and on what the source lacks."""

Fix = tuple[tuple[str | int, ...], Any]
"""A canonical key, and a plain value for it."""
OwnFix = tuple[str, tuple[Any, ...]]
"""A key as a file writes it, and the plain values any of which it may take; without one, the key is to be removed."""


@record
class Finding:
    """A finding of a check: a stable code, its level, the key, the place, the message, and what to do.

    ``finding`` makes one of a message of the catalogue; ``message`` and ``hint`` are its texts in the chosen language.
    """

    code: str
    level: Level
    message: str
    key: str = ""
    at: Location | None = None
    hint: str = ""
    fixes: tuple[Fix, ...] = field(default=(), compare=False)
    """What would mend it, each a canonical key and the value it would take; empty where a person has to think."""
    template: str = field(default="", compare=False)
    """The hint with ``{fix}`` or ``{first}`` for its values, from which front ends say it in the names of a file."""
    own_fixes: tuple[OwnFix, ...] = field(default=(), compare=False)
    """What would mend it in the words of the file that was read; empty where a person has to think."""
    candidates: tuple[Fix, ...] = field(default=(), compare=False)
    """The fixes and further values, nearest first, where a file cannot express those."""
    meant: str = field(default="", compare=False)
    """The known key that an unknown one is a near miss of."""
    added: bool = field(default=False, compare=False)
    """Of an unknown key: whether it is added on purpose, as Hydra's ``+key`` does."""
    option: str = ""
    """The command-line option that resolves it, with its value, as ``--assume dataset_rows=N``; other front ends have their own
    way."""
    ranked: Rank | None = field(default=None, compare=False)
    """Its rank, if its code and key do not say it."""
    id: str = field(default="", compare=False)
    """Its message in the catalogue: the code, or one of its variants."""
    params: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The variables of the message."""
    stage: str = field(default="", compare=False)
    """The name of the stage that has it; empty if every stage does, or there are none."""
    runners: tuple[str, ...] = field(default=(), compare=False)
    """The frameworks that it holds for; empty if it is about reading or converting, which none of them does."""
    when: str = field(default="", compare=False)
    """When an error would strike in the framework that runs the config, as ``rollout`` in the message ``when-rollout``."""

    @property
    def rank(self) -> Rank:
        """How much it matters for the run."""
        return self.ranked or BY_CODE.get(self.code) or rank_of(self.key) or Rank.NAMES

    @property
    def fact(self) -> str:
        """The fact that it asks the user to state; empty if it asks for none."""
        return fact_in(f"{self.message} {self.hint} state {self.params.get('fact', '')}")

    @property
    def advice(self) -> str:
        """The hint, with the command-line option that does it."""
        if not self.option:
            return self.hint
        if self.id and (own := optional(f"{self.id}.option", **self.params, option=self.option)):
            return own
        hint = without_requests(self.hint)
        return text("or-option" if hint else "pass-option", hint=hint, option=self.option)

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", without_secrets(self.message))
        object.__setattr__(self, "hint", without_secrets(self.hint))

    def as_data(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "level": str(self.level),
            "rank": str(self.rank),
            "key": self.key,
            "file": self.at.file if self.at else None,
            "line": self.at.line if self.at else None,
            "message": self.message,
            "hint": self.advice,
            "fixes": [{"key": key, "values": list(values)} for key, values in self.own_fixes],
            "runners": list(self.runners),
            "when": text(f"when-{self.when}") if self.when else "",
            "params": {name: value if isinstance(value, int) else str(value) for name, value in self.params.items()},
        }


def finding(
    id_: str,
    level: Level,
    /,
    key: str = "",
    at: Location | None = None,
    *,
    option: str = "",
    ranked: Rank | None = None,
    **params: Any,
) -> Finding:
    """A finding whose texts are a message of the catalogue, and its attribute ``hint``.

    Args:
        id_: of the message; its code is the part before an underscore.
        level: how bad it is.
        key: that it is about, dotted; the message may name it as ``$key``.
        at: where that was written.
        option: the command-line option that resolves it.
        ranked: its rank, if its code and key do not say it.
        params: the other variables of the message.
    """
    values = {"key": key, **params}
    message, hint = text(id_, **values), optional(f"{id_}.hint", **values)
    return Finding(code_of(id_), level, message, key, at, hint, option=option, ranked=ranked, id=id_, params=params)


@dataclass(frozen=True, slots=True)
class Entry:
    """The fate of one source leaf: its bucket, its value, the target leaves it became, and why."""

    key: str
    bucket: Bucket
    value: Any = None
    at: Location | None = None
    targets: tuple[tuple[str, Any], ...] = ()
    note: str = ""
    rank: Rank = Rank.NAMES
    """How much it matters for the run if the target says something else."""
    silent: bool = False
    """Whether it only repeats the default of its framework in a composed config: it is lost only if training changes."""

    @property
    def why(self) -> str:
        """The note in the reader's language."""
        return translated(self.note)

    @property
    def loses(self) -> bool:
        """Whether the target does not say it."""
        return self.bucket in (Bucket.UNSUPPORTED, Bucket.UNKNOWN)

    def as_data(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "bucket": str(self.bucket),
            "rank": str(self.rank),
            "file": self.at.file if self.at else None,
            "line": self.at.line if self.at else None,
            "value": self.value,
            "targets": [{"key": key, "value": value} for key, value in self.targets],
            "note": self.note,
        }


@record
class OriginEntry:
    """The origin of a target key's value, with the reason."""

    key: str
    origin: Origin
    value: Any = None
    note: str = ""

    @property
    def why(self) -> str:
        """The note in the reader's language."""
        return translated(self.note)

    def as_data(self) -> dict[str, Any]:
        return {"key": self.key, "origin": str(self.origin), "value": self.value, "note": self.note}


@dataclass
class Report:
    """Findings and the two ledgers of a translation; reports merge by concatenation."""

    dialect: str = ""
    """What the input was taken for, as ``verl@0.9``."""
    target: str = ""
    """What was written, as ``trinity@0.6``; empty when nothing was."""
    findings: list[Finding] = field(default_factory=list)
    accounting: list[Entry] = field(default_factory=list)
    origins: list[OriginEntry] = field(default_factory=list)
    reason: str = ""
    """Why the input was taken for that."""

    def extend(self, findings: Iterable[Finding]) -> Report:
        self.findings.extend(findings)
        return self

    def merge(self, other: Report) -> Report:
        """Append what ``other`` found; this report's dialect wins where both have one."""
        self.reason = self.reason if self.dialect else other.reason
        self.dialect = self.dialect or other.dialect
        self.target = other.target or self.target
        self.findings.extend(other.findings)
        self.accounting.extend(other.accounting)
        self.origins.extend(other.origins)
        return self

    def at_level(self, level: Level) -> list[Finding]:
        return [finding for finding in self.findings if finding.level is level]

    @property
    def errors(self) -> list[Finding]:
        return self.at_level(Level.ERROR)

    @property
    def warnings(self) -> list[Finding]:
        return self.at_level(Level.WARNING)

    @property
    def loses(self) -> bool:
        """Whether something of the source is not in the target, or the target trains otherwise."""
        return any(
            entry.loses or (entry.bucket is Bucket.APPROXIMATED and entry.rank.changes_training)
            for entry in self.accounting
        ) or any(finding.code in DIFFERENCES and finding.rank.changes_training for finding in self.warnings)

    def shares(self) -> dict[str, int]:
        """Count the source leaves in each bucket, in the order of ``Bucket``."""
        counts = Counter(entry.bucket for entry in self.accounting)
        return {str(bucket): counts[bucket] for bucket in Bucket}

    def as_data(self) -> dict[str, Any]:
        """The report as plain data, the shape that ``--json`` prints."""
        return {
            "dialect": self.dialect,
            "target": self.target,
            "accounting": [entry.as_data() for entry in self.accounting],
            "origins": [entry.as_data() for entry in self.origins],
            "findings": [finding.as_data() for finding in (*self._taken(), *self.findings)],
        }

    def _taken(self) -> list[Finding]:
        """Why the input was taken for its dialect, as a finding."""
        if not self.reason:
            return []
        return [finding("detected", Level.NOTE, framework=self.dialect, reason=self.reason)]
