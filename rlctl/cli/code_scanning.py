"""Findings for other tools: a SARIF 2.1.0 log for code scanning, and annotations of GitHub Actions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rlctl.common.errors import Location
from rlctl.common.messages import text
from rlctl.common.ranks import Rank
from rlctl.common.report import Finding, Level
from rlctl.common.terminal import safe

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
DOCS = "https://github.com/rlctl/rlctl/blob/main/docs"
_SARIF = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "note"}
_GITHUB = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "notice"}
Found = Sequence[tuple[str, Sequence[Finding]]]
"""The findings of each file; an empty name for a config that is no file."""


def sarif(found: Found) -> dict[str, Any]:
    """The findings of all files as one run of a SARIF log."""
    from importlib import metadata

    codes = dict.fromkeys(finding.code for _, findings in found for finding in findings)
    driver = {
        "name": "rlctl",
        "version": metadata.version("rlctl"),
        "informationUri": f"{DOCS}/howto/check-a-config.md",
        "rules": [_rule(code) for code in codes],
    }
    place = {code: index for index, code in enumerate(codes)}
    results = [_result(finding, file, place[finding.code]) for file, findings in found for finding in ordered(findings)]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Findings by rank, the gravest first."""
    return sorted(findings, key=lambda finding: finding.rank.place)


def _rule(code: str) -> dict[str, Any]:
    from rlctl.checks import LEVELS

    if code not in LEVELS:
        return {"id": code, "helpUri": f"{DOCS}/troubleshooting.md"}
    return {
        "id": code,
        "shortDescription": {"text": text(f"{code}.about")},
        "helpUri": f"{DOCS}/reference/messages.md",
        "defaultConfiguration": {"level": _SARIF[LEVELS[code]]},
    }


def _result(finding: Finding, file: str, rule: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _SARIF[finding.level],
        "message": {"text": _text(finding)},
        "rank": 100.0 * (1 - finding.rank.place / len(Rank)),
        "properties": {"rank": str(finding.rank)},
    }
    where = _place(finding, file)
    if where is not None:
        artifact = {"uri": _uri(where.file)}
        region = {"startLine": max(1, where.line), **({"startColumn": where.column} if where.column else {})}
        result["locations"] = [{"physicalLocation": {"artifactLocation": artifact, "region": region}}]
    return result


def github(finding: Finding, file: str) -> str:
    """One finding as a workflow command, which GitHub shows next to the line."""
    where = _place(finding, file)
    properties = {"file": _relative(where.file), "line": str(max(1, where.line))} if where is not None else {}
    if where is not None and where.column:
        properties["col"] = str(where.column)
    properties["title"] = finding.code
    shown = ",".join(f"{name}={_escaped(value, ',:')}" for name, value in properties.items())
    return safe(f"::{_GITHUB[finding.level]} {shown}::{_escaped(_text(finding))}")


def _text(finding: Finding) -> str:
    return finding.message + (f" ({finding.advice})" if finding.advice else "")


def _place(finding: Finding, file: str) -> Location | None:
    """Where a finding is shown: at its line, or in the file's first one."""
    if finding.at is not None and Path(finding.at.file).is_file():
        return finding.at
    return Location(file, 1) if file else None


def _relative(file: str) -> str:
    """A path from the working folder, which is the repository's root where such tools run."""
    path = Path(file).absolute()
    return (path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path).as_posix()


def _uri(file: str) -> str:
    from urllib.parse import quote

    name = _relative(file)
    return Path(name).as_uri() if Path(name).is_absolute() else quote(name)


def _escaped(text: str, more: Iterable[str] = "") -> str:
    for character in ("%", "\r", "\n", *more):
        text = text.replace(character, f"%{ord(character):02X}")
    return text
