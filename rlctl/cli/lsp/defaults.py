"""Where a key has its default: in a file that the text includes, or in a release's own config.

The config of a release is written as a read-only YAML file into the user's cache, because every editor can open a file, and few
ask a server for the text of a document that is none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from rlctl import __version__
from rlctl.adapters import dialect
from rlctl.adapters.engine.rules import Absent, DefaultFrom, version_of
from rlctl.adapters.engine.schema import Composition
from rlctl.adapters.engine.table import TO_BE_SET, Table
from rlctl.adapters.engine.tree import put
from rlctl.cli.lsp import keys
from rlctl.cli.lsp.analysis import Analysis
from rlctl.cli.lsp.texts import Span, Text
from rlctl.common.errors import TranslationError
from rlctl.common.filenames import YAML_ENDINGS
from rlctl.common.messages.reasons import spoken
from rlctl.common.report_lines import release as release_of
from rlctl.common.whole_files import write_whole
from rlctl.config import Config
from rlctl.config.inspect import walk
from rlctl.documents import Comment, KeyPath, write_yaml
from rlctl.documents.paths import PLAIN

FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlctl" / "defaults"
"""Of the files that are written here."""


def is_written_here(name: str) -> bool:
    """Whether a file is one of these, which has nothing to check."""
    return Path(name).parent == FOLDER


def place_of(analysis: Analysis, key: str, kind: str) -> tuple[str, Span] | None:
    """The file and the place with the default of a key; None if the release does not have the key.

    Args:
        analysis: of the text that has the key.
        key: with dots, without indices.
        kind: of the framework's files that the text is.
    """
    path = tuple(key.lstrip("+~").split("."))
    return _included(analysis, path) or _of_release(analysis, path, kind)


def _included(analysis: Analysis, path: tuple[str, ...]) -> tuple[str, Span] | None:
    """The key in a file that the text includes: there it may begin below the section that the file is for."""
    files = {entry.at.file for entry in analysis.report.accounting if entry.at is not None} - {analysis.name}
    texts = {name: _text(name) for name in sorted(files) if name.endswith(YAML_ENDINGS)}
    for first in range(len(path)):
        for name, text in texts.items():
            found = text.find(".".join(path[first:])) if text is not None else None
            if found is not None:
                return str(Path(name).resolve()), found.span
    return None


def _text(name: str) -> Text | None:
    with suppress(OSError, UnicodeDecodeError):
        return Text(Path(name).read_text(encoding="utf-8"), name)
    return None


def _of_release(analysis: Analysis, path: tuple[str, ...], kind: str) -> tuple[str, Span] | None:
    if analysis.loaded is None:
        return None
    framework, version = keys.split_name(analysis.dialect)
    composition = Composition()
    if framework != "rlctl":
        with suppress(TranslationError):
            composition = dialect(framework).composition_of(analysis.loaded.config)
    page = _page(framework, version, kind, composition)
    found = page.find(".".join(path))
    if found is None:
        return None
    parts = (framework, version, kind, composition.engine, composition.trainer, __version__)
    file = FOLDER / f"{'-'.join(part for part in parts if part)}.yaml"
    with suppress(OSError):
        if not file.exists() or file.read_text(encoding="utf-8") != page.content:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, page.content)
            file.chmod(0o444)
        return str(file), found.span
    return None


@cache
def _page(framework: str, version: str, kind: str, composition: Composition) -> Text:
    """The defaults of a release."""
    if framework == "rlctl":
        defaults, title = dict(_canonical()), "rlctl"
    else:
        table = keys.table(framework, kind).composed_for(composition)
        defaults, title = dict(_composed(table, version)), release_of(f"{framework}@{version}")
    values: dict[str, Any] = {}
    for path, (value, _) in defaults.items():
        put(values, path, value)
    comments: dict[KeyPath, Comment] = {path: Comment(beside=note) for path, (_, note) in defaults.items() if note}
    head = spoken("Defaults of {release}, as rlctl reads them; nothing reads this file.", release=title)
    return Text(write_yaml(values, comments=comments, head=[head]), "defaults.yaml")


def _composed(table: Table, version: str) -> Iterator[tuple[tuple[str, ...], tuple[Any, str]]]:
    """Keys of a framework without those inside them, their defaults, and what rlctl calls those that mean the same."""
    composed = (path for path in keys.paths_of(table, version) if table.takes(path, version_of(version)))
    for path in _leaves(composed):
        default = table.default_at(path, version_of(version))
        value = f"${{{default.key}}}" if isinstance(default, DefaultFrom) else default
        own = table.plain.get(".".join(path))
        yield path, (TO_BE_SET if isinstance(value, Absent) else value, f"rlctl: {own}" if own else "")


def _canonical() -> Iterator[tuple[tuple[str, ...], tuple[Any, str]]]:
    known = {keys.plain(key.path): key for key in walk(Config)}
    for path in _leaves(known):
        default = known[path].info.default
        yield path, (default if type(default) in PLAIN else TO_BE_SET, known[path].help.partition(". ")[0])


def _leaves(paths: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    found = list(dict.fromkeys(paths))
    sections = {path[:length] for path in found for length in range(1, len(path))}
    return [path for path in found if path not in sections]
