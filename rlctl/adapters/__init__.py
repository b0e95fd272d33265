"""The dialects and the engine that reads and writes them: a dialect is a table, one rule a concept, read in both directions.

    rules.py           what a table is made of, and rows for one key
    combined_rows.py   rows for one value that several keys say together
    one_sided_rows.py  rows for what only one side has a key for, or only one direction
    conditions.py      when a row is read or written
    values.py          how single values change
    table.py           a table with its index and defaults
    reading.py         text -> config, and what became of every leaf
    restoring.py       what a text keeps from an earlier conversion -> config
    writing.py         config -> text, and where every leaf came from
    dialect.py         a dialect: versions, tables by kind of file, detection
    canonical.py       the ``rlctl`` dialect; ``verl``, ``trinity``, ``roll``: one package each, which do not know each other

``verl_trainer`` has the blocks of verl's trainer, which verl's files and Trinity's contain.

To add a key, add a line to a table: ``Key("their.key", "our.key", their_default)``; for a key without a canonical
counterpart add it to ``notes.py`` with the reason. To add a dialect, write a package with a ``Dialect`` and name it in
``_BUILTIN``, or in another distribution under the entry-point group ``rlctl.dialects``. Tests enumerate the tables: every
canonical key must be in each of them, mapped or dropped with a reason, and every rule is exercised in both directions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlctl.adapters.engine.dialect import Dialect
from rlctl.common.errors import UsageError, nearest
from rlctl.common.messages.reasons import said

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from rlctl.common.report import Report
    from rlctl.planning.memory_terms import MemoryTerms

GROUP = "rlctl.dialects"
_BUILTIN = {
    "rlctl": ("rlctl.adapters.engine.canonical", "RLCTL"),
    "verl": ("rlctl.adapters.verl", "VERL"),
    "trinity": ("rlctl.adapters.trinity", "TRINITY"),
    "roll": ("rlctl.adapters.roll", "ROLL"),
}

SIGNS: Mapping[str, frozenset[str]] = {
    "rlctl": frozenset({"rlctl"}),
    "verl": frozenset({"actor_rollout_ref", "custom_reward_function", "ray_kwargs", "model_engine", "optim"}),
    "trinity": frozenset({"explorer", "synchronizer", "cluster", "monitor", "data_processor"}),
    "roll": frozenset({"actor_train", "actor_infer", "pretrain", "rollout_batch_size", "exp_name"}),
}
"""Top-level keys that no other built-in dialect has: a text with them is told apart without loading the others."""


@cache
def names() -> tuple[str, ...]:
    """The names of all dialects that are installed."""
    return (*_BUILTIN, *(point.name for point in _installed() if point.name not in _BUILTIN))


@cache
def _installed() -> tuple[EntryPoint, ...]:
    """The dialects of other distributions; Python's own reader, which is slow to import, looks only if a file names some."""
    if not any(map(_names_some, sys.path)):
        return ()
    from importlib.metadata import entry_points

    return tuple(entry_points(group=GROUP))


def _names_some(folder: str) -> bool:
    """Whether a distribution in a folder that Python imports from has dialects."""
    for file in Path(folder).glob("*-info/entry_points.txt"):
        with suppress(OSError):
            if f"[{GROUP}]".encode() in file.read_bytes():
                return True
    return False


def signed(tops: Iterable[Any]) -> str:
    """The dialect whose signs are among the keys of a text; empty where none's or several's are, or others are installed."""
    keys = set(tops)
    found = [name for name, signs in SIGNS.items() if signs & keys]
    return found[0] if len(found) == 1 and len(names()) == len(_BUILTIN) else ""


@cache
def dialect(name: str) -> Dialect:
    """A dialect by name.

    Raises:
        UsageError: there is none of this name.
    """
    if name in _BUILTIN:
        module, attribute = _BUILTIN[name]
        found: Dialect = getattr(import_module(module), attribute)
        return found
    for point in _installed():
        if point.name == name:
            loaded: Dialect = point.load()
            return loaded
    raise UsageError(
        said("unknown format {name!r}; known: {names}", name=name, names=", ".join(names())),
        hint=nearest(name, names()),
    )


def memory_terms(report: Report, runner: str = "") -> MemoryTerms:
    """What a framework holds in memory.

    Args:
        report: of a file that was read.
        runner: the framework; empty is that of the file. Its release is that of the file; another framework's is the newest.
    """
    own, _, release = report.dialect.partition("@")
    name = runner or own or "rlctl"
    values = {entry.key: entry.value for entry in report.accounting} if name == own else {}
    known = dialect(name)
    return known.memory(known.release(release if name == own else ""), values)
