"""Trinity 0.6 takes verl's roles straight under ``trainer_config`` too: read as under ``actor_rollout_ref``, told as written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlctl.adapters.engine.reading import Read
from rlctl.config import Loaded
from rlctl.documents import Document, KeyPath, dotted
from rlctl.documents.paths import copied

ROOT: KeyPath = ("trainer", "trainer_config")
WRAPPER = "actor_rollout_ref"
ROLES = ("model", "actor", "ref", "rollout")


def wrapped(document: Document) -> tuple[Document, dict[KeyPath, KeyPath]]:
    """The document with flat roles where 0.5 has them, and where each is written; a role that is there twice stays."""
    moves = {new: old for root in _roots(document) for new, old in _moves(document, root)}
    if not moves:
        return document, {}
    values = copied(document.values)
    for new, old in moves.items():
        config = _at(values, old[:-1])
        config.setdefault(WRAPPER, {})[new[-1]] = config.pop(old[-1])
    back = {old: new for new, old in moves.items()}
    return (
        replace(
            document,
            values=values,
            marks={_moved(path, back): mark for path, mark in document.marks.items()},
            comments={_moved(path, back): note for path, note in document.comments.items()},
        ),
        moves,
    )


def _roots(document: Document) -> list[KeyPath]:
    stages = document.values.get("stages")
    return [ROOT, *(("stages", index, *ROOT) for index in range(len(stages) if isinstance(stages, list) else 0))]


def _moves(document: Document, root: KeyPath) -> list[tuple[KeyPath, KeyPath]]:
    config = _at(document.values, root)
    inside = config.get(WRAPPER) or {}
    return [((*root, WRAPPER, role), (*root, role)) for role in ROLES if role in config and role not in inside]


def _at(values: Any, path: KeyPath) -> Any:
    for part in path:
        there = isinstance(values, (dict, list)) and (part in values or isinstance(values, list))
        values = values[part] if there else {}
    return values if isinstance(values, dict) else {}


def _moved(path: KeyPath, moves: Mapping[KeyPath, KeyPath]) -> KeyPath:
    start = next((start for start in moves if path[: len(start)] == start), None)
    return path if start is None else moves[start] + path[len(start) :]


def as_written(read: Read, moves: Mapping[KeyPath, KeyPath]) -> Read:
    """What came of reading, with each key under the name that the text has for it."""
    names = [(f"{dotted(new)}.", f"{dotted(old)}.") for new, old in moves.items()]

    def renamed(text: str) -> str:
        for new, old in names:
            text = text.replace(new, old)
        return text

    report = replace(
        read.report,
        accounting=[replace(entry, key=renamed(entry.key)) for entry in read.report.accounting],
        findings=[replace(item, key=renamed(item.key), message=renamed(item.message)) for item in read.report.findings],
    )
    if read.loaded is None:
        return Read(read.config, None, report)
    sources = {path: replace(source, key=renamed(source.key)) for path, source in read.loaded.sources.items()}
    own: Loaded = replace(read.loaded, sources=sources)
    return Read(read.config, own, report)
