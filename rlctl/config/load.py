"""A config together with where each of its values came from, and how it is changed by ``--set``.

``Loaded`` is what every reader returns and every writer takes: the typed config, and beside it, by canonical key, the
source, the symbolic text of values written as interpolations, and the comments that travel with their key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, Literal

from rlctl.config.build import build_config
from rlctl.config.dump import to_plain
from rlctl.config.fields import Choice
from rlctl.config.inspect import fields_of
from rlctl.config.root import Config
from rlctl.documents import Comment, Document, KeyPath, Resolved, apply_overrides, dotted, read_overrides, resolve
from rlctl.documents.overrides import Override
from rlctl.documents.paths import copied
from rlctl.errors import ConfigError, DocumentError, Location
from rlctl.report import Finding, Level, Report

EDITED = "edited"
"""Where a value was written that a person changed in an editor: instead of the name of a file."""
_SHORTEST_SHOWN = 6
"""Characters of an interpolated value that is looked for in messages; shorter ones are words that messages have anyway."""


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

    def as_written(self, findings: Iterable[Finding]) -> list[Finding]:
        """Findings that show the expressions of interpolated values in place of the values."""
        values = to_plain(self.config) if self.expressions else {}
        shown = {
            value: text
            for path, text in self.expressions.items()
            if isinstance(value := _at(values, path), str) and len(value) >= _SHORTEST_SHOWN and value != text
        }
        if not shown:
            return list(findings)
        found = re.compile("|".join(re.escape(value) for value in sorted(shown, key=len, reverse=True)))

        def written(text: str) -> str:
            return found.sub(lambda match: shown[match[0]], text)

        return [replace(item, message=written(item.message), hint=written(item.hint)) for item in findings]

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
    """Read a canonical document, whose ``${...}`` may name a default too; None when a finding is an error."""
    base = to_plain(Config()) if "${" in document.text or not document.text else None
    resolved = resolve(document, environment=os.environ if environment is None else environment, base=base)
    report = Report(dialect="rlctl@1")
    report.extend(_unresolved(document, resolved.unresolved, resolved.missing))
    config, findings = build_config(resolved.values, locate=document.at, expressions=resolved.expressions)
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

    Where another option is chosen (``train.engine=megatron``, or ``train.engine.name=megatron``), it begins with its own
    defaults: of the option before stays what was written and what both have.

    Raises:
        ConfigError: an unknown key, or a value that does not fit, with every problem named.
    """
    if not assignments:
        return loaded
    overrides = read_overrides([(text, Location("--set " + text)) for text in assignments], "--set")
    overrides = [each for override in overrides for each in _by_its_tag(loaded.config, override)]
    values = to_plain(loaded.config)
    left: set[KeyPath] = set()
    for override in overrides:
        left |= _choose(loaded, override, values)
    loaded = replace(
        loaded, sources={path: each for path, each in loaded.sources.items() if not _under_any(path, left)}
    )
    document = Document(name="--set", values=values, marks={}, comments={}, text="")
    changed = apply_overrides(document, overrides)
    config, findings = build_config(changed.values, locate=lambda path: changed.marks.get(path))
    if config is None:
        raise ConfigError("\n".join(f"--set: {finding.message}{_hint(finding)}" for finding in findings))
    return _changed(loaded, config, {override.path for override in overrides}, "--set")


def _by_its_tag(config: Config, override: Override) -> list[Override]:
    """The option of a choice by its tag: of ``train.engine=megatron`` and ``train.engine={name: megatron, ...}`` alike."""
    option, value = _option(config, override.path), override.value
    if option is None or override.kind == "delete":
        return [override]
    tagged = (*override.path, option.tag)
    if isinstance(value, str):
        return [replace(override, path=tagged)]
    if isinstance(value, Mapping) and option.tag in value:
        return [replace(override, path=tagged, value=value[option.tag]), override]
    return [override]


def _choose(loaded: Loaded, override: Override, values: dict[str, Any]) -> set[KeyPath]:
    """Leave a section to another option that an override chooses for it; return what of the option before is gone."""
    *above, tag = override.path
    section = tuple(above)
    old = _option(loaded.config, section)
    new: type | None = old.registry.get(str(override.value)) if old is not None and tag == old.tag else None
    if new is None or isinstance(old, new):
        return set()
    kind: type = type(old)
    mine, theirs = fields_of(kind), fields_of(new)
    both = {name for name, info in mine.items() if name in theirs and theirs[name].type == info.type}
    written = {path[: len(section) + 1] for path, source in loaded.sources.items() if source.kind != "dialect_default"}
    held = _at(values, section)
    gone = {name for name in held if name != tag and not (name in both and (*section, name) in written)}
    for name in gone:
        del held[name]
    return {(*section, name) for name in gone}


def _option(config: Config, path: Sequence[Any]) -> Choice | None:
    """The option that is chosen at a place; None where there is no choice."""
    value: Any = config
    for part in path:
        kind: type = type(value)
        info = fields_of(kind).get(part) if is_dataclass(kind) else None
        if info is None:
            return None
        value = getattr(value, info.attribute)
    return value if isinstance(value, Choice) else None


def put(loaded: Loaded, path: KeyPath, value: Any) -> Loaded:
    """Change one canonical value, as a person who edits does; lists and mappings are values too.

    Text in it as ``${batch.prompts_per_step}`` is a link; what is linked to the key follows. Sections above other keys stay the
    objects that they were.

    Raises:
        ConfigError: there is no such key, or the value does not fit, with every problem named.
    """
    following = _following(loaded, path)
    if not following and not _links(value):
        return _changed(loaded, _with(loaded.config, path, value), {path}, EDITED)
    tree = to_plain(loaded.config)
    for linked, text in following.items():
        _set(tree, linked, text)
    _set(tree, path, copied(value))
    resolved = _resolved(tree)
    if resolved.unresolved:
        raise ConfigError(
            "\n".join(f"'{dotted(at)}' cannot be resolved: {reason}" for at, reason in resolved.unresolved.items())
        )
    parts = {str(at[0]): resolved.values[at[0]] for at in (path, *following)}
    config = _replaced(loaded.config, parts, resolved.expressions)
    changed = _changed(loaded, config, {path}, EDITED)
    own = {at: text for at, text in resolved.expressions.items() if _under_any(at, [path])}
    return replace(changed, expressions={**changed.expressions, **own})


_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.\[\]]*)\}")


def links_of(text: str) -> list[KeyPath]:
    """The keys that a text with ``${...}`` names."""
    return [tuple(_part(part) for part in re.findall(r"[^.\[\]]+", name)) for name in _REFERENCE.findall(text)]


def _part(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _following(loaded: Loaded, path: KeyPath) -> dict[KeyPath, str]:
    """The expressions that name a key, or one that follows it, and stand for what their key holds now."""
    links = {
        at: text for at, text in loaded.expressions.items() if not _under_any(at, [path]) and _REFERENCE.search(text)
    }
    found: dict[KeyPath, str] = {}
    changed = [path]
    while changed:
        roots, changed = changed, []
        for at, text in links.items():
            if at not in found and any(_touch(name, root) for name in links_of(text) for root in roots):
                found[at] = text
                changed.append(at)
    if not found:
        return {}
    tree = to_plain(loaded.config)
    now = {at: _at(tree, at) for at in found}
    there = [at for at in found if now[at] is not _NOWHERE]
    for at in there:
        _set(tree, at, found[at])
    meant = _resolved(tree).values
    return {at: found[at] for at in there if _at(meant, at) == now[at]}


_NOWHERE: Any = object()


def _at(tree: Any, path: KeyPath) -> Any:
    """What is there in plain values; ``_NOWHERE`` where nothing is."""
    try:
        for part in path:
            tree = tree[part]
    except (LookupError, TypeError):
        return _NOWHERE
    return tree


def _touch(one: KeyPath, other: KeyPath) -> bool:
    size = min(len(one), len(other))
    return one[:size] == other[:size]


def _links(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_links, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_links, value))
    return isinstance(value, str) and "${" in value


def _resolved(tree: dict[str, Any]) -> Resolved:
    try:
        return resolve(Document(name=EDITED, values=tree, marks={}, comments={}, text=""), environment=os.environ)
    except DocumentError as error:
        raise ConfigError(error.message, hint=error.hint) from error


def _with(config: Config, path: KeyPath, value: Any) -> Config:
    """The config with another value in one of its sections; the others are not built anew."""
    top = fields_of(Config).get(str(path[0]))
    if top is None:
        raise ConfigError(f"there is no key {dotted(path)!r}")
    values = {top.name: to_plain(getattr(config, top.attribute))}
    _set(values, path, copied(value))
    return _replaced(config, values)


def _set(values: Any, path: KeyPath, value: Any) -> None:
    try:
        for part in path[:-1]:
            values = values[part]
        values[path[-1]] = value
    except (LookupError, TypeError) as error:
        raise ConfigError(f"there is no key {dotted(path)!r}") from error


def _replaced(config: Config, parts: Mapping[str, Any], expressions: Mapping[KeyPath, str] | None = None) -> Config:
    """The config with these sections, given as plain values."""
    built, findings = build_config(parts, expressions=expressions)
    if built is None:
        raise ConfigError("\n".join(f"{finding.message}{_hint(finding)}" for finding in findings))
    attributes = [fields_of(Config)[name].attribute for name in parts]
    return replace(config, **{attribute: getattr(built, attribute) for attribute in attributes})


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
