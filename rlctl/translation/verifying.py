"""Changes of a file that are suggested against refusals of its framework: applied, read and checked before they are offered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rlctl.adapters.engine.tree import put, remove
from rlctl.checks import new_problems
from rlctl.checks.hints import without_fix
from rlctl.common import numbers
from rlctl.common.errors import RlctlError
from rlctl.common.report import Finding, Level, Report
from rlctl.config import Loaded
from rlctl.documents import Document, KeyPath, parse_dotted
from rlctl.documents.paths import copied
from rlctl.translation.acceptance import findings_of
from rlctl.translation.advice import GRAVITY
from rlctl.translation.read_back import as_read
from rlctl.translation.remedies import worded_fix
from rlctl.translation.translate import read_document

ENOUGH = 2
"""Values of a key that are offered if all findings are asked for, else the first one: each takes a reading of the config."""
_Place = tuple[str, str]
"""The code and the key of a finding."""


def verified(findings: Sequence[Finding], report: Report, runner: str, *, most: int | None) -> list[Finding]:
    """The findings with those changes of the file that end them, and bring no error or warning that was not there.

    Args:
        findings: of checking the file; hints that suggest other values lose them.
        report: of reading the file.
        runner: the framework that is to run it.
        most: findings, gravest first, whose changes are tried; None for all.
    """
    given = [place for place, item in enumerate(findings) if item.own_fixes]
    given.sort(key=lambda place: GRAVITY.index(findings[place].level))
    tried, trial = set(given[:most]), _Trial(report, runner, ENOUGH if most is None else 1)
    return [
        trial.verified(item) if place in tried else _without(item) if item.own_fixes else item
        for place, item in enumerate(findings)
    ]


@dataclass
class _Trial:
    """One file, in which changes are tried."""

    report: Report
    runner: str
    enough: int
    """Values of a key after which no more are tried."""

    def verified(self, item: Finding) -> Finding:
        """A finding with the values that work; where none does, without any."""
        ((key, values),) = item.own_fixes
        path = parse_dotted(key)
        if not values:
            return item if self._works(item, path) else _without(item)
        working: list[Any] = []
        for value in values:
            if len(working) < self.enough and self._works(item, path, value):
                working.append(value)
        fix = key, tuple(working)
        return replace(item, own_fixes=(fix,), hint=worded_fix(item.template, fix)) if working else _without(item)

    def _works(self, item: Finding, path: KeyPath, *value: Any) -> bool:
        values = copied(self._values)
        try:
            put(values, path, value[0]) if value else remove(values, path)
            after, report = self._read(values)
            if after is None or self._spoils(after):  # which takes less time than the framework's requirements
                return False
            found = self._found(after, report)
        except (RlctlError, LookupError, TypeError, ValueError):
            return False
        return item.key not in {key for _, key in found} and found <= self._known

    def _spoils(self, after: Loaded) -> bool:
        """Whether the changed config has a problem that the file has not."""
        before, _ = self._before
        if before is None:
            return False
        return bool(new_problems(before.config, after.config, silent=before.silent, runner=self.runner))

    @cached_property
    def _values(self) -> dict[str, Any]:
        return as_read(self.report).values

    @cached_property
    def _before(self) -> tuple[Loaded | None, Report]:
        return self._read(copied(self._values))

    @cached_property
    def _known(self) -> set[_Place]:
        return self._found(*self._before)

    def _read(self, values: dict[str, Any]) -> tuple[Loaded | None, Report]:
        loaded, report = read_document(Document("config", values), dialect=self.report.dialect)
        report.findings += [item for item in self.report.findings if item.code == "launch"]  # which names the program
        return loaded, report

    def _found(self, loaded: Loaded | None, report: Report) -> set[_Place]:
        """What the file's own framework and the reading of it say."""
        found = [*report.findings, *findings_of(report.dialect.partition("@")[0], loaded, report)]
        return {(each.code, each.key) for each in found if each.level is not Level.NOTE}


def _without(item: Finding) -> Finding:
    ((key, values),) = item.own_fixes
    is_number = any(numbers.is_number(value) for value in values)
    return replace(item, own_fixes=(), hint=without_fix(item.template, key, is_number=is_number))
