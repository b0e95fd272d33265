"""Putting back what a text keeps: other dialects' keys, and canonical values that its own dialect could not say.

A kept value yields to the text if the user changed the keys that state, imply or approximate it since the file was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlctl.adapters.engine.carried import AS_WRITTEN
from rlctl.adapters.engine.rules import Absent
from rlctl.adapters.engine.tree import find, missing_section, put
from rlctl.common.errors import Location
from rlctl.common.report import Finding, Level, finding
from rlctl.config import Source
from rlctl.config.sections.agents import SINGLE_TURN
from rlctl.documents import Document, KeyPath, dotted, parse_dotted, resolve
from rlctl.documents.yaml_write import inline_text

AGENTS = ("rollout", "agents")
"""Agents are put back together: another framework plays several of them in its own way, as fewer."""
WHOLE = (("rewards",), ("algorithm", "filters"))
"""Lists that are put back together too, if the text has other items: another framework takes one reward, or one filter."""
DATA = "data"
"""The section whose lists are put back value by value: a file stays the user's, and its columns may have other names."""


@dataclass
class Restoring:
    """What a text keeps, and what was read of the text, which is changed in place."""

    document: Document
    kept: Mapping[str, Mapping[str, Any]]
    """By dialect, and under ``AS_WRITTEN`` what the text held when it was written."""
    tree: dict[str, Any]
    """The canonical values."""
    sources: dict[KeyPath, Source]
    expressions: dict[KeyPath, str]
    written_as: dict[KeyPath, str]
    implied: dict[KeyPath, tuple[Any, tuple[KeyPath, ...]]]
    stated: dict[KeyPath, tuple[KeyPath, ...]]
    findings: list[Finding]
    environment: Mapping[str, str] | None
    """What ``${oc.env:...}`` reads; the process's own environment if None."""

    def run(self) -> dict[KeyPath, str]:
        """Put all of it back.

        Returns:
            Canonical values that refer to other keys (``${batch.shuffle}``), which only a whole config can resolve.
        """
        at = Location(self.document.name)
        links: dict[KeyPath, str] = {}
        causes = {path: keys for path, (_, keys) in self.implied.items()} | self.stated
        self._forget_implied([parse_dotted(key) for key in self.kept.get("rlctl", {})])
        for dialect, keys in self.kept.items():
            for key, value in keys.items() if dialect not in ("rlctl", AS_WRITTEN) else ():
                put(self.tree, ("extensions", dialect, key), value)
                self.sources["extensions", dialect, key] = Source("file", key, at)
        own = {parse_dotted(key): value for key, value in self.kept.get("rlctl", {}).items()}
        lists = {path: value for path, value in own.items() if isinstance(value, list) and self._said(path)}
        whole = {path for path in lists if path in (AGENTS, *WHOLE) and self._is_approximated(path)}
        restored = [
            dotted(path) for path, value in lists.items() if path not in whole and self._restore_items(path, value, at)
        ]
        own = {
            path: value
            for path, value in self._apart(own)
            if not self._said(path) or path in whole or (path not in lists and self._is_approximated(path))
        }
        for path, value in sorted(own.items(), key=lambda item: sections_first(item[0], item[1])):
            if problem := missing_section(path, self.tree):
                self.findings.append(finding("not-restored", Level.NOTE, dotted(path), at, reason=problem))
                continue
            for known in (self.sources, self.expressions, self.written_as):
                for place in [place for place in known if place[: len(path)] == path]:
                    del known[place]  # of a section that the text only approximates
            if isinstance(value, str) and "${" in value:
                links[path] = value
            else:
                put(self.tree, path, self._resolved(path, value))
            self.sources[path] = Source("file", dotted(path), at)
            if len(path) == 1:  # a whole section, or all rewards, in which the text says only what is not empty
                items = enumerate(value) if isinstance(value, list) else ()
                parts: list[tuple[KeyPath, Any]] = [((*path, index), item) for index, item in items] or [(path, value)]
                leaves = [leaf for place, part in parts for leaf in leaves_of(part, place)]
                said = [place for place, inner in leaves if inner not in (None, {}, [])]
                self.sources |= {place: Source("file", dotted(place), at) for place in said}
            restored.append(dotted(path))
        self._forget_absent_agent()
        if restored:
            told: dict[str, Any] = {"count": len(restored), "keys": ", ".join(restored)}
            if replaced := self._replaced([parse_dotted(key) for key in restored], causes):
                told["replaced"] = ", ".join(replaced)
            id_ = "restored_replacing" if replaced else "restored"
            self.findings.append(finding(id_, Level.NOTE, restored[0], at, **told))
        return links

    def _resolved(self, path: KeyPath, kept: Any) -> Any:
        """A kept section or list with the values of the variables in it; what is not set here stays an expression."""
        if "${" not in str(kept):
            return kept
        found = resolve(Document(self.document.name, {"kept": kept}), environment=self.environment)
        for (_, *place), text in found.expressions.items():
            if "oc.env" not in text or ("kept", *place) in found.unresolved:
                put(found.values, ("kept", *place), text)
            else:
                self.expressions[(*path, *place)] = text
        return found.values["kept"]

    def _replaced(self, restored: Sequence[KeyPath], causes: Mapping[KeyPath, tuple[KeyPath, ...]]) -> list[str]:
        """The keys of the text, with their values, that say something else than the restored values that replace them."""
        within = [
            keys for at, keys in causes.items() for path in restored if path[: len(at)] == at or at[: len(path)] == path
        ]
        names = dict.fromkeys(dotted(key) for keys in within for key in keys)
        written = self.kept.get(AS_WRITTEN, {})
        return [f"{name} = {inline_text(written[name], (), in_flow=False)}" for name in names if name in written]

    def _apart(self, kept: Mapping[KeyPath, Any]) -> Iterator[tuple[KeyPath, Any]]:
        """Kept values; those of a mapping that users name the keys of one by one, if the text says some of them."""
        for path, value in kept.items():
            if path[-1] == "args" and isinstance(value, dict) and self._said(path):
                yield from (((*path, name), inner) for name, inner in value.items())
            else:
                yield path, value

    def _restore_items(self, path: KeyPath, kept: list[Any], at: Location) -> bool:
        """Put back what the text does not say of the items of a list, if the list has the same items still."""
        current = find(self.tree, path)
        if not isinstance(current, list):
            return False
        if len(current) != len(kept):
            if len(current) != 1 or not all(self._is_rowless((*path, 0), current[0], old) for old in kept):
                return False
            current = self._repeated(path, current[0], len(kept))
        for index, (item, old) in enumerate(zip(current, kept, strict=True)):
            if not isinstance(item, dict) or not isinstance(old, dict):
                return False
            if self._is_rowless((*path, index), item, old):
                continue
            key = "type" if path[-1] == "agents" else next((key for key in ("path", "name") if key in old), "type")
            if item.get("type", old.get("type")) != old.get("type", item.get("type")):
                return False
            if old.get(key) not in (item.get(key), self.expressions.get((*path, index, key))):
                return False
        found = [(place, value) for index, old in enumerate(kept) for place, value in leaves_of(old, (*path, index))]
        rowless = {index for index, old in enumerate(kept) if self._is_rowless((*path, index), current[index], old)}
        unsaid = [
            (place, value)
            for place, value in found
            if not self._said(place) or place[len(path)] in rowless or self._is_approximated(place)
        ]
        for index in rowless:
            self._forget_file((*path, index), current[index])
        for place, value in unsaid:
            put(self.tree, place, value)
            self.sources[place] = Source("file", dotted(place), at)
        return bool(unsaid)

    def _repeated(self, path: KeyPath, item: dict[str, Any], count: int) -> list[dict[str, Any]]:
        """A list of one item several times: one file stands for all sources without rows."""
        put(self.tree, path, [dict(item) for _ in range(count)])
        file = self.expressions.get((*path, 0, "path"))
        self.expressions |= {(*path, index, "path"): file for index in range(count) if file is not None}
        repeated: list[dict[str, Any]] = find(self.tree, path)
        return repeated

    def _forget_absent_agent(self) -> None:
        """Take back the default agent of the text, if the agents that were put back replace it."""
        default, agents = (*AGENTS[:1], "default_agent"), find(self.tree, AGENTS)
        names = {item.get("name") for item in agents} if isinstance(agents, list) and AGENTS in self.sources else None
        if names is not None and find(self.tree, default) not in {*names, SINGLE_TURN}:
            put(self.tree, default, None)
            self.sources.pop(default, None)

    def _forget_file(self, place: KeyPath, item: dict[str, Any]) -> None:
        """Remove what a source says of its file, and of how to read that: a source without rows has none."""
        for name in [name for name in item if name in ("path", "split", "subset") or name.endswith("_key")]:
            del item[name]
            for known in (self.sources, self.expressions, self.written_as):
                known.pop((*place, name), None)

    def _is_rowless(self, place: KeyPath, item: Mapping[str, Any], kept: Mapping[str, Any]) -> bool:
        """Whether a source without rows was kept for one whose file a variable still has to name."""
        if not isinstance(kept, dict) or not isinstance(item, dict):
            return False
        file = self.expressions.get((*place, "path"), str(item.get("path") or ""))
        return kept.get("format") == "episodes" and (not file or file.startswith("${oc.env:"))

    def _forget_implied(self, kept: Sequence[KeyPath]) -> None:
        """Take back what a key implies, a reward and the prompt that goes with it, if another value of one of them is kept."""
        replaced = [path for path in self.implied if any(path[: len(target)] == target for target in kept)]
        replaced = [path for path in replaced if not self._is_changed(path, self.implied[path][1])]
        causes = {key for path in replaced for key in self.implied[path][1]}
        for path, (before, keys) in self.implied.items():
            if not causes & set(keys):
                continue
            self.sources.pop(path, None)
            within = find(self.tree, path[:-1])
            if not isinstance(before, Absent):
                put(self.tree, path, before)
            elif isinstance(within, dict):
                within.pop(path[-1], None)
                self._remove_if_empty(path[:-1])
        self.implied.clear()

    def _is_approximated(self, path: KeyPath) -> bool:
        """Whether the text states only the nearest value that its framework has, as it was written together with the kept one."""
        keys, written = list(keys_below(path, self.stated)), self.kept.get(AS_WRITTEN, {})
        return bool(keys) and all(dotted(key) in written for key in keys) and not self._is_changed(path, keys)

    def _is_changed(self, path: KeyPath, keys: Sequence[KeyPath]) -> bool:
        """Whether one of the keys that imply or state a value was changed since the file was written; then the text holds."""
        written = self.kept.get(AS_WRITTEN, {})
        for key in keys:
            name, value = dotted(key), find(self.document.values, key)
            if name in written and (None if isinstance(value, Absent) else value) != written[name]:
                at = self.document.at(key) or Location(self.document.name)
                self.findings.append(finding("not-restored_changed", Level.NOTE, dotted(path), at, other=name))
                return True
        return False

    def _remove_if_empty(self, path: KeyPath) -> None:
        """Remove a section or list in which nothing is left, and those above it."""
        while path and not find(self.tree, path):
            above: Any = find(self.tree, path[:-1]) if path[:-1] else self.tree
            if isinstance(above, dict):
                above.pop(path[-1], None)
            elif isinstance(above, list) and not any(above):
                above.clear()
            path = path[:-1]

    def _said(self, target: KeyPath) -> bool:
        """Whether the text itself says something at, or below, a canonical place, or chooses what holds it."""
        explicit = [path for path, source in self.sources.items() if source.kind != "dialect_default"]
        return any(path[: len(target)] == target for path in explicit)


def is_same_item(item: Any, kept: Any) -> bool:
    """Whether an item of a list is the kept one, with settings that the text does not say."""
    if not isinstance(item, Mapping) or not isinstance(kept, Mapping):
        return bool(item == kept)
    return all(item.get(key) == kept[key] for key in ("type", "path", "name") if key in kept)


def changed_leaves(items: Sequence[Any], kept: Sequence[Any]) -> Iterator[KeyPath]:
    """The places in kept items with a value that the items of the text have not; an expression may have any value."""
    for index, old in enumerate(kept):
        for place, value in leaves_of(old, (index,)) if isinstance(old, dict) else ():
            if find(items, place) != value and "${" not in str(value):
                yield place


def leaves_of(value: Any, place: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """What is in a kept mapping, with its place; lists are whole."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from leaves_of(inner, (*place, name))
    else:
        yield place, value


def sections_first(path: KeyPath, value: Any) -> tuple[int, int]:
    """Null and empty sections and the types of choices come before what they hold."""
    sets_section = value is None or isinstance(value, Mapping)
    return (0 if sets_section or path[-1:] == ("type",) else 1, len(path))


def keys_below(place: KeyPath, stated: Mapping[KeyPath, Sequence[KeyPath]]) -> Iterator[KeyPath]:
    """The text's keys that state a canonical value, or something in it."""
    for path, keys in stated.items():
        if path[: len(place)] == place:
            yield from keys
