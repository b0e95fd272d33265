"""The canonical dialect, ``rlctl``: every key is itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlctl.adapters.engine.dialect import Detection, Dialect, File, as_document
from rlctl.adapters.engine.reading import Read
from rlctl.adapters.engine.resolvers import IN_RLCTL, resolvable
from rlctl.adapters.engine.table import generic
from rlctl.adapters.engine.tree import find, gates, put
from rlctl.adapters.engine.writing import WriteOutcome, Written
from rlctl.common.errors import closest
from rlctl.common.records import record
from rlctl.common.report import Bucket, Entry, Finding, Level, Origin, OriginEntry, finding
from rlctl.config import Loaded, load, to_file, to_plain
from rlctl.documents import Document, KeyPath, dotted

_VARIABLE = re.compile(r"\$\{oc\.env:(\w+)\}")


@record
class Canonical(Dialect):
    """rlctl's own files."""

    def detect(self, document: Document, *, version: str = "", kind: str = "") -> Detection:
        """Known are the keys of the schema."""
        leaves = [path for path, _ in document.leaves()]
        unknown = sum(1 for path in leaves if gates(generic(path)) is None)
        return Detection("1", "config", 0 if "rlctl" in document.values else unknown, len(leaves))

    def has_section(self, name: str) -> bool:
        return gates((name,)) is not None

    def read(
        self,
        document: Document,
        taken: Detection,
        *,
        environment: Mapping[str, str] | None,
        options: Mapping[str, str],
        restored: Mapping[str, Mapping[str, Any]],
    ) -> Read:
        """Read strictly: an unknown key is an error here."""
        loaded, report = load(document, environment=environment)
        unknown = {finding.key for finding in report.findings if finding.code == "unknown-key"}
        for path, value in document.leaves():
            name = dotted(path)
            is_unknown = any(dotted(path[:length]) in unknown for length in range(len(path), 0, -1))
            bucket = Bucket.UNKNOWN if is_unknown else Bucket.MAPPED
            targets = () if is_unknown else ((name, value),)
            report.accounting.append(Entry(name, bucket, value, document.at(path), targets))
        report.extend(_of_no_dialect(document))
        return Read(loaded.config if loaded else None, loaded, report)

    def read_again(self, file: File, options: Mapping[str, str]) -> Read:
        """As any dialect; a variable that is not set here stands for itself, because the run sets it."""
        if file.again is None:
            document = as_document(file)
            texts = [value for _, value in document.leaves() if isinstance(value, str)]
            unset = {name: f"${{oc.env:{name}}}" for text in texts for name in _VARIABLE.findall(text)}
            file.again = self.read(document, self.detect(document), environment=unset, options=options, restored={})
        return file.again

    def write(self, loaded: Loaded, version: str, options: Mapping[str, str]) -> File:
        """Write what differs from the defaults, and what the source says itself."""
        values = to_file(loaded.config)
        plain = to_plain(loaded.config)
        said = {path: source for path, source in loaded.sources.items() if path[:1] != ("stages",)}
        for path, source in said.items():
            value = find(plain, path)
            if source.kind != "dialect_default" and _fits(path, value, plain):
                _add(values, path, plain)
        for path, text in loaded.expressions.items():
            if path[:1] != ("stages",) and isinstance(find(values, path), (str, int, float, bool)):
                put(values, path, text)
        for path, text in loaded.expressions.items():
            inner = find(values, path)
            if path[:1] == ("stages",) and isinstance(inner, (str, int, float, bool)):
                put(values, path, text)
        own = {name: part for name, part in values.items() if name != "extensions"}
        values |= resolvable(own, plain, IN_RLCTL)[0]
        written = Written(values=values, comments=dict(loaded.comments))
        written.resolved |= {
            path: find(plain, path) for path, text in loaded.expressions.items() if find(values, path) == text
        }
        for path, value in _leaves(values):
            explicit = path in said and said[path].kind != "dialect_default"
            origin = Origin.MAPPED if explicit or path[:1] == ("stages",) else Origin.DEFAULTED
            written.origins.append(OriginEntry(dotted(path), origin, value))
        for path in loaded.sources:
            value = find(values, path)
            written.fates[path] = WriteOutcome(
                [(dotted(path), value)]
                if not _absent(value)
                else [(dotted(_unstaged(path)), find(plain, _unstaged(path)))]
            )
        return File(values, written.comments, [(None, written)])


def _of_no_dialect(document: Document) -> list[Finding]:
    """A warning for each part of ``extensions`` that no installed dialect will ever take back."""
    from rlctl.adapters import names

    kept = document.values.get("extensions")
    found = []
    for name in kept if isinstance(kept, dict) else ():
        if name not in names():
            key, known = f"extensions.{name}", ", ".join(item for item in names() if item != "rlctl")
            found.append(
                finding(
                    "unknown-dialect",
                    Level.WARNING,
                    key,
                    document.at(("extensions", name)),
                    known=known,
                    near=closest(str(name), names()) or "none",
                )
            )
    return found


def _absent(value: Any) -> bool:
    from rlctl.adapters.engine.rules import Absent

    return isinstance(value, Absent)


def _unstaged(path: KeyPath) -> KeyPath:
    return path[2:] if path[:1] == ("stages",) else path


def _fits(path: KeyPath, value: Any, plain: Any) -> bool:
    return not _absent(value) and not isinstance(value, (dict, list))


def _add(values: dict[str, Any], path: KeyPath, plain: Any) -> None:
    """Put one value of the whole config into the sparse one, with the types of the choices and the list items above it."""
    for length in range(1, len(path)):
        if isinstance(path[length], int) and _absent(find(values, path[:length])):
            put(values, path[:length], find(plain, path[:length]))
            return
        section = find(plain, path[:length])
        place = (*path[:length], "type")
        if (
            isinstance(section, dict)
            and "type" in section
            and _is_choice(path[:length])
            and _absent(find(values, place))
        ):
            put(values, place, section["type"])
    if _absent(find(values, path)):
        put(values, path, find(plain, path))


_CHOICES = ("advantage", "policy_loss", "objective", "engine", "buffer")


def _is_choice(path: KeyPath) -> bool:
    return path[-1] in _CHOICES


def _leaves(values: Mapping[str, Any], path: KeyPath = ()) -> Any:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


RLCTL = Canonical("rlctl", ("1",), {})
