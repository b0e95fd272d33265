"""Which releases of a framework the keys of a file fit, and what their defaults change in training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rlctl.adapters.engine.dialect import Detection, Dialect
from rlctl.adapters.engine.reading import Read
from rlctl.adapters.engine.rules import version_of
from rlctl.common.errors import ConfigError, TranslationError
from rlctl.common.messages.reasons import COMMAS, said, together
from rlctl.common.ranks import Rank, rank_of
from rlctl.common.report import Finding, Level, finding
from rlctl.common.report_lines import framework
from rlctl.config import Loaded
from rlctl.documents import Document, dotted
from rlctl.translation.difference import Difference, differences

SHOWN = 4
"""Differences that are named; of more the number is shown."""


def fitting(found: Dialect, document: Document, taken: Detection, since: str) -> list[str]:
    """Older releases that know as many keys of a file as the one it is read as, oldest first.

    ``since`` is the first that has the program of the file's launch script, if there is one.
    """
    if len(found.versions) < 2:
        return []
    table = found.tables[taken.kind]
    older = [name for name in found.versions if version_of(name) < version_of(taken.version)]
    older = [name for name in older if not table.releases_with or name in table.releases_with]
    older = [name for name in older if not since or version_of(name) >= version_of(since)]
    return [name for name in older if found.detect(document, version=name, kind=taken.kind) == _as(taken, name)]


def _as(taken: Detection, release: str) -> Detection:
    return replace(taken, version=release)


def spoken(releases: Sequence[str], versions: Sequence[str]) -> str:
    """Releases as ``0.3 to 0.5 and 0.7``."""
    runs: list[list[str]] = []
    for name in releases:
        if runs and versions.index(name) == versions.index(runs[-1][-1]) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    names = [run[0] if len(run) == 1 else said("{run} to {run2}", run=run[0], run2=run[-1]) for run in runs]
    return together(names, {"en": " and ", "zh": "、"})


def assumed(
    found: Dialect,
    document: Document,
    taken: Detection,
    loaded: Loaded,
    older: Sequence[str],
    read: Callable[[Detection], Read],
) -> list[Finding]:
    """Which release was assumed and why, if another is known, and each older one whose defaults change training.

    The older ones are reported up to the first that changes nothing, and the newest of those that change the same.
    """
    changed: dict[tuple[tuple[str, str, str], ...], Finding] = {}
    for release in older:
        other = read(_as(taken, release)).loaded
        items = _training(other, loaded) if other is not None else []
        if not items:
            break
        same = tuple((item.key, repr(item.first.value), repr(item.second.value)) for item in items)
        changed.pop(same, None)
        changed[same] = _finding(found, taken, release, items)
    told = list(changed.values())
    lacked = found.deciding(document, taken)
    deciding = lacked or found.replaced(document, taken)
    if deciding is None and not told:
        return []
    name, release = framework(found.name), taken.version
    if deciding is None:
        return [finding("release-assumed", Level.NOTE, framework=name, release=release), *told]
    newer = found.versions[found.versions.index(release) + 1]
    why = finding(
        "release-assumed_key" if lacked else "release-assumed_word",
        Level.NOTE,
        dotted(deciding),
        document.at(deciding),
        option=_option(found, newer),
        framework=name,
        release=release,
        newer=newer,
    )
    return [why, *told]


def _option(found: Dialect, release: str) -> str:
    """What reads a file as a release."""
    return f"--from {found.name}@{release}"


def _training(older: Loaded, newer: Loaded) -> list[Difference]:
    try:
        found = differences(older, newer)
    except (ConfigError, TranslationError):
        return []
    return [item for item in found if (rank_of(item.key) or Rank.NAMES).changes_training]


def _finding(found: Dialect, taken: Detection, release: str, items: Sequence[Difference]) -> Finding:
    own = {canonical: name for name, canonical in reversed(list(found.tables[taken.kind].plain.items()))}
    items = [item for item in items if item.key in own or item.first.key or item.second.key] or items
    texts = [
        said(
            "{key} = {old} ({version}: {new})",
            key=own.get(item.key) or item.first.key or item.second.key or item.key,
            old=_shown(item, item.first.value),
            version=taken.version,
            new=_shown(item, item.second.value),
        )
        for item in items[:SHOWN]
    ]
    more = said(", and {value} more", value=len(items) - SHOWN) if len(items) > SHOWN else ""
    return finding(
        "releases-differ",
        Level.NOTE,
        option=_option(found, release),
        framework=framework(found.name),
        release=release,
        differences=together(texts, COMMAS) + more,
    )


def _shown(item: Difference, value: object) -> str:
    """A value as the framework's key has it: a section that is there or not is a switch."""
    if "set" in (item.first.value, item.second.value):
        value = value == "set"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
