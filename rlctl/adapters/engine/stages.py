"""Several configs as the stages of one: from several files, or from a dialect's own stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rlctl.adapters.engine.reading import Read
from rlctl.common.errors import Location
from rlctl.common.report import Entry, Report
from rlctl.config import Config, Loaded, combine
from rlctl.documents import Document, KeyPath, dotted
from rlctl.documents.paths import parse_dotted


def combined(parts: Sequence[tuple[str, Loaded]]) -> Loaded:
    """One config with a stage for each part, and what is known of every value of every stage."""
    if len(parts) == 1:
        return parts[0][1]
    config = combine([(name, part.config) for name, part in parts])
    config = replace(config, extensions=_merged_extensions([part.config for _, part in parts]))
    whole = [_moved(parts, field) for field in ("sources", "expressions", "comments")]
    files = tuple(dict.fromkeys(file for _, part in parts for file in part.files))
    return Loaded(config, whole[0], whole[1], whole[2], files)


def _merged_extensions(configs: Sequence[Config]) -> dict[str, dict[str, Any]]:
    """The carried keys of all stages; of one that several stages have, the last stage's value."""
    merged: dict[str, dict[str, Any]] = {}
    for config in configs:
        for dialect, keys in config.extensions.items():
            merged.setdefault(dialect, {}).update(keys)
    return merged


def _moved(parts: Sequence[tuple[str, Loaded]], field: str) -> dict[KeyPath, Any]:
    """The last part's items at the base, and those of every part under its stage."""
    found: dict[KeyPath, Any] = dict(getattr(parts[-1][1], field))
    for index, (_, part) in enumerate(parts):
        items = getattr(part, field)
        found.update({("stages", index, *path): item for path, item in items.items() if path})
    head = getattr(parts[0][1], field)
    if () in head:
        found[()] = head[()]
    return found


def joined_stages(
    document: Document, parts: Sequence[tuple[str, Read]], *, stage_key: Callable[[Document, int, KeyPath], KeyPath]
) -> Read:
    """What came of reading the stages of one document, as one: shared leaves are accounted for once."""
    report = Report(dialect=parts[0][1].report.dialect)
    seen: set[tuple[str, Location | None]] = set()
    for index, (_, part) in enumerate(parts):
        for entry in part.report.accounting:
            key = dotted(stage_key(document, index, parse_dotted(entry.key)))
            if (key, entry.at) in seen:
                continue
            seen.add((key, entry.at))
            targets = tuple((f"stages[{index}].{target}", value) for target, value in entry.targets)
            report.accounting.append(Entry(key, entry.bucket, entry.value, entry.at, targets, entry.note))
        for finding in part.report.findings:
            if finding not in report.findings:
                report.findings.append(finding)
    loaded = [(name, part.loaded) for name, part in parts]
    if any(item is None for _, item in loaded) or report.errors:
        return Read(None, None, report)
    whole = combined([(name, item) for name, item in loaded if item is not None])
    return Read(whole.config, whole, report)
