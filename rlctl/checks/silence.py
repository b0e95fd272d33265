"""Findings that the user does not want to see, by code: given as an option, or as a comment in the file that they are about.

    trainer.logger: [console]   # rlctl: ignore never-saved

A comment silences its codes on its own line; alone on a line, on the next one; above the first line of a file, in all of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rlctl.common.errors import UsageError, nearest
from rlctl.common.filenames import expanded
from rlctl.common.messages import catalogue, code_of
from rlctl.common.messages.reasons import said
from rlctl.common.report import Finding

OPTION = "--ignore"
LARGEST = 4 << 20
"""Bytes of a file whose comments are read."""
_COMMENT = re.compile(r"#\s*rlctl:\s*ignore\s+([\w-]+(?:\s*,\s*[\w-]+)*)")


@dataclass(frozen=True, slots=True)
class Silence:
    """The codes that the comments of a file silence."""

    everywhere: frozenset[str]
    lines: Mapping[int, frozenset[str]]

    def holds(self, finding: Finding) -> bool:
        line = finding.at.line if finding.at is not None else 0
        return finding.code in self.everywhere or finding.code in self.lines.get(line or 0, ())


def silence_of(text: str) -> Silence:
    """The comments of a file's text."""
    everywhere: set[str] = set()
    lines: dict[int, set[str]] = {}
    is_head = True
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        match = _COMMENT.search(line)
        codes = set(re.split(r"\s*,\s*", match[1])) if match else set()
        is_head = is_head and (not content or content.startswith("#"))
        if is_head:
            everywhere |= codes
        elif codes:
            lines.setdefault(number + content.startswith("#"), set()).update(codes)
    return Silence(frozenset(everywhere), {number: frozenset(codes) for number, codes in lines.items()})


def _of_file(path: str) -> Silence:
    file = expanded(path)
    try:
        text = file.read_text(encoding="utf-8", errors="replace") if file.stat().st_size <= LARGEST else ""
    except OSError:
        text = ""
    return silence_of(text)


def divided(
    findings: Sequence[Finding], codes: Collection[str], file: str, text: str | None = None
) -> tuple[list[Finding], list[Finding]]:
    """The findings that are shown, and those that an option or a comment silences.

    Args:
        findings: of one config.
        codes: given as options.
        file: the config, whose comments hold for findings without a place, too.
        text: what the file contains, if that is not what is on disk, as in an editor.
    """
    names = {file, *(finding.at.file for finding in findings if finding.at is not None)} - {""}
    silences = {name: _of_file(name) if text is None or name != file else silence_of(text) for name in names}
    whole = silences[file].everywhere if file else frozenset[str]()

    def is_silenced(finding: Finding) -> bool:
        own = silences.get(finding.at.file) if finding.at is not None else None
        return finding.code in codes or finding.code in whole or (own is not None and own.holds(finding))

    shown = [finding for finding in findings if not is_silenced(finding)]
    return shown, [finding for finding in findings if is_silenced(finding)]


def refuse_unknown(codes: Iterable[str]) -> None:
    """Refuse to ignore what no finding is called.

    Raises:
        UsageError: no message has the code.
    """
    known = {code_of(id_) for id_ in catalogue("en")}
    for code in codes:
        if code not in known:
            raise UsageError(
                said("{option} {code}: no finding has this code", option=OPTION, code=code),
                hint=nearest(code, known) or "the code is in brackets at the end of each finding",
            )
