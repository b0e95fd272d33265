"""A config together with where each of its values came from, and how it is changed by ``--set``.

``Loaded`` is what every reader returns and every writer takes: the typed config, and beside it, by canonical key, the
source, the symbolic text of values written as interpolations, and the comments that travel with their key.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rlctl.config.build import build_config
from rlctl.config.dump import to_plain
from rlctl.config.root import Config
from rlctl.documents import Comment, Document, KeyPath, apply_overrides, dotted, read_overrides, resolve
from rlctl.documents.paths import copied
from rlctl.errors import ConfigError, Location
from rlctl.report import Finding, Level, Report

EDITED = "edited"
"""Where a value was written that a person changed in an editor: instead of the name of a file."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where one canonical value came from."""

    kind: Literal["file", "override", "environment", "dialect_default"]
    """Written in the file, on the command line, taken from the environment, or what the dialect's silence means."""
    key: str = ""
    """The key in the source's dialect."""
    at: Location | None = None


@dataclass(frozen=True)
class Loaded:
    """A config and what is known of its origin, by canonical key path. Keys without an entry hold rlctl's default."""

    config: Config
    sources: Mapping[KeyPath, Source] = field(default_factory=dict)
    expressions: Mapping[KeyPath, str] = field(default_factory=dict)
    """The text of values written as ``${...}``; secrets exist only in this form outside of memory."""
    comments: Mapping[KeyPath, Comment] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    """Names of the files that were read."""

    @property
    def silent(self) -> frozenset[KeyPath]:
        """Keys that nobody wrote: they hold what the dialect's silence means."""
        return frozenset(path for path, source in self.sources.items() if source.kind == "dialect_default")

    def locate(self, path: KeyPath) -> Location | None:
        """Where the value at ``path``, or the nearest value above it, was written."""
        for length in range(len(path), 0, -1):
            source = self.sources.get(path[:length])
            if source is not None and source.at is not None:
                return source.at
        return None


def load(document: Document, *, environment: Mapping[str, str] | None = None) -> tuple[Loaded | None, Report]:
    """Read a canonical document; None when a finding is an error."""
    resolved = resolve(document, environment=os.environ if environment is None else environment)
    report = Report(dialect="rlctl@1")
    report.extend(_unresolved(document, resolved.unresolved, resolved.missing))
    config, findings = build_config(resolved.values, locate=document.at, textual=frozenset(resolved.expressions))
    report.extend(findings)
    if config is None or report.errors:
        return None, report
    sources = {
        path: Source("environment" if path in resolved.expressions else "file", dotted(path), document.at(path))
        for path, _ in document.leaves()
    }
    return Loaded(config, sources, resolved.expressions, document.comments, (document.name,)), report


def _unresolved(document: Document, unresolved: Mapping[KeyPath, str], missing: Iterable[KeyPath]) -> list[Finding]:
    findings = [
        Finding(
            "unresolved", Level.ERROR, f"'{dotted(path)}' cannot be resolved: {reason}", dotted(path), document.at(path)
        )
        for path, reason in unresolved.items()
    ]
    findings += [
        Finding(
            "missing-value",
            Level.ERROR,
            f"'{dotted(path)}' is ???, it must be given a value",
            dotted(path),
            document.at(path),
        )
        for path in missing
    ]
    return findings


def set_keys(loaded: Loaded, assignments: Sequence[str]) -> Loaded:
    """Change canonical keys, each given as ``key=value`` in Hydra's grammar.

    Raises:
        ConfigError: an unknown key, or a value that does not fit, with every problem named.
    """
    if not assignments:
        return loaded
    overrides = read_overrides([(text, Location("--set " + text)) for text in assignments], "--set")
    document = Document(name="--set", values=to_plain(loaded.config), marks={}, comments={}, text="")
    changed = apply_overrides(document, overrides)
    config, findings = build_config(changed.values, locate=lambda path: changed.marks.get(path))
    if config is None:
        raise ConfigError("\n".join(f"--set: {finding.message}{_hint(finding)}" for finding in findings))
    return _changed(loaded, config, {override.path for override in overrides}, "--set")


def put(loaded: Loaded, path: KeyPath, value: Any) -> Loaded:
    """Change one canonical value, as a person who edits does; lists and mappings are values too.

    Raises:
        ConfigError: there is no such key, or the value does not fit, with every problem named.
    """
    values = to_plain(loaded.config)
    at = values
    try:
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = copied(value)
    except (LookupError, TypeError) as error:
        raise ConfigError(f"there is no key {dotted(path)!r}") from error
    config, findings = build_config(values)
    if config is None:
        raise ConfigError("\n".join(f"{finding.message}{_hint(finding)}" for finding in findings))
    return _changed(loaded, config, {path}, EDITED)


def _changed(loaded: Loaded, config: Config, paths: set[KeyPath], by: str) -> Loaded:
    """The same with another config, in which the values at ``paths`` were set by ``by``."""
    sources = {path: source for path, source in loaded.sources.items() if not _under_any(path, paths)}
    sources |= {path: Source("override", dotted(path), Location(by)) for path in paths}
    expressions = {path: text for path, text in loaded.expressions.items() if not _under_any(path, paths)}
    return replace(loaded, config=config, sources=sources, expressions=expressions)


def _hint(finding: Finding) -> str:
    return f" ({finding.hint})" if finding.hint else ""


def _under_any(path: KeyPath, roots: Iterable[KeyPath]) -> bool:
    return any(path[: len(root)] == root for root in roots)


def value_at(config: Config, path: KeyPath) -> Any:
    """The plain value at a canonical key path; KeyError when there is none."""
    value: Any = to_plain(config)
    for part in path:
        value = value[part]
    return value
