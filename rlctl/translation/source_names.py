"""Differences that no key of the source sets, in the source's own words: they are found by canonical keys, which a user of
verl, Trinity-RFT or ROLL has never seen.

A key that the source's framework has with the same value is called by its name there, and a value that was made of others by the
key that decided it. Any other is described by the words of its last part: rlctl's keys are of neither file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rlctl.adapters import dialect as dialect_called
from rlctl.adapters.engine.tree import gates
from rlctl.common.messages.reasons import said, with_values
from rlctl.common.report import Finding, finding
from rlctl.config import Loaded
from rlctl.documents import dotted, parse_dotted

_CODE = "silent-difference"
_KEY = re.compile(r"[a-z_]+(?:\[\d+\])?(?:\.[a-z_0-9]+(?:\[\d+\])?)+")


def in_source_names(findings: Iterable[Finding], source: str, loaded: Loaded) -> list[Finding]:
    """Findings of a conversion, with the keys of the framework that was read; rlctl's own files have canonical keys.

    Args:
        findings: of the writer, and of what was read back.
        source: what was read, as ``verl@0.9``.
        loaded: what was read.
    """
    name, _, release = source.partition("@")
    if name in ("", "rlctl"):
        return list(findings)
    framework = dialect_called(name)
    table = framework.tables[framework.kind_for(loaded.config, framework.release(release))]
    known = {dotted(path): said("what {key} sets", key=item.key) for path, item in loaded.sources.items() if item.key}
    known |= {canonical: own for own, canonical in reversed(table.plain.items())}
    return [_renamed(item, known) if item.code == _CODE else item for item in findings]


def _renamed(item: Finding, known: Mapping[str, str]) -> Finding:
    params = {
        name: with_values(value, lambda text: _own(text, known)) if isinstance(value, str) else value
        for name, value in item.params.items()
        if name != "key"
    }
    return finding(item.id, item.level, item.key, item.at, option=item.option, ranked=item.ranked, **params)


def _own(text: str, known: Mapping[str, str]) -> str:
    """The source's name of a text that is a canonical key; any other text as it is."""
    if not _KEY.fullmatch(text):
        return text
    parts = tuple("*" if isinstance(part, int) else part for part in parse_dotted(text))
    if gates(parts) is None:
        return text
    return known.get(text) or text.rpartition(".")[2].replace("_", " ")
