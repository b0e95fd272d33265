"""A config together with where each of its values came from, and how it is changed by ``--set``.

``Loaded`` is what every reader returns and every writer takes: the typed config, and beside it, by canonical key, the
source, the symbolic text of values written as interpolations, and the comments that travel with their key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property
from typing import Any, Literal

from rlctl.common.errors import ConfigError, DocumentError, Location
from rlctl.common.filenames import SCRIPT_ENDINGS
from rlctl.common.messages.reasons import lines_of, said, with_values
from rlctl.common.numbers import natural
from rlctl.common.records import record
from rlctl.common.report import Finding, Level, Report, finding
from rlctl.config.build import build_config
from rlctl.config.dump import to_plain
from rlctl.config.fields import Choice
from rlctl.config.inspect import fields_of
from rlctl.config.root import Config
from rlctl.documents import Comment, Document, KeyPath, Resolved, apply_overrides, dotted, read_overrides, resolve
from rlctl.documents.overrides import Override
from rlctl.documents.paths import copied

EDITED = "edited"
"""Where a value was written that a person changed in an editor: instead of the name of a file."""
_SHORTEST_SHOWN = 6
"""Characters of an interpolated value that is looked for in messages; shorter ones are words that messages have anyway."""
_VARIABLE = re.compile(r"\$\{oc\.env:(\w+)(?:,[^{}]*(?:\$\{[^{}]*(?:\$?\{[^{}]*\}[^{}]*)*\}[^{}]*)*)?\}")
"""An environment variable, with or without a default that may name others."""
FOREIGN = frozenset({"extensions"})
"""Sections with values of a framework's file: their expressions name its keys, and it resolves them."""


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of a canonical value."""

    kind: Literal["file", "override", "environment", "dialect_default"]
    """Written in the file, on the command line, taken from the environment, or what the dialect's silence means."""
    key: str = ""
    """The key in the source's dialect."""
    at: Location | None = None


@record
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
        text = self.text_as_written
        return [
            replace(
                item,
                message=text(item.message),
                hint=text(item.hint),
                params={name: self._param_as_written(value) for name, value in item.params.items()},
            )
            for item in findings
        ]

    def reason_as_written(self, reason: str) -> str:
        """A reason that shows the expressions of paths that the environment gave, and is still translated."""
        shown = {value: text for value, text in self._written.items() if "oc.env" in text and "/" in value}

        def as_expressions(part: str) -> str:
            for value in sorted(shown, key=len, reverse=True):
                part = part.replace(value, shown[value])
            return part

        return with_values(reason, as_expressions) if any(value in reason for value in shown) else reason

    def _param_as_written(self, value: Any) -> Any:
        """A variable of a message, which stays what it is unless it shows a value."""
        if isinstance(value, str):
            return with_values(value, self.text_as_written)
        shown = self.text_as_written(str(value))
        return value if shown == str(value) else shown

    def text_as_written(self, text: str) -> str:
        """A text that shows the expressions of interpolated values in place of the values."""
        return self._interpolated.sub(lambda match: self._written[match[0]], text) if self._written else text

    @cached_property
    def _written(self) -> dict[str, str]:
        values = to_plain(self.config) if self.expressions else {}
        return {
            value: self._as_in_script(path, text)
            for path, text in self.expressions.items()
            if isinstance(value := _at(values, path), str)
            and len(value) >= _SHORTEST_SHOWN
            and value != text
            and not (text.startswith("${oc.env:") and text.endswith(f",{value}}}"))  # its default, which the file says
        }

    def _as_in_script(self, path: KeyPath, text: str) -> str:
        """An expression as its file writes it: a launch script says ``$NAME`` for ``${oc.env:NAME,...}``."""
        at = self.locate(path)
        in_script = at is not None and at.file.endswith(SCRIPT_ENDINGS)
        return _VARIABLE.sub(lambda match: f"${match[1]}", text) if in_script else text

    @cached_property
    def _interpolated(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(value) for value in sorted(self._written, key=len, reverse=True)))

    @property
    def silent(self) -> frozenset[KeyPath]:
        """Keys that nobody wrote: they hold what the dialect's silence means."""
        return frozenset(path for path, source in self.sources.items() if source.kind == "dialect_default")

    def locate(self, path: KeyPath) -> Location | None:
        """The place where the value at ``path``, or else the nearest value above it, was written."""
        for length in range(len(path), 0, -1):
            source = self.sources.get(path[:length])
            if source is not None and source.at is not None:
                return source.at
        return None

    def locate_any(self, path: KeyPath) -> Location | None:
        """``locate``, but for a section that is written nowhere itself: the place of its first value, or of the first
        value of its list item."""
        item = next((path[:length] for length in range(len(path), 0, -1) if isinstance(path[length - 1], int)), path)
        places = (
            source.at
            for part in (path, item)
            for at, source in self.sources.items()
            if at[: len(part)] == part and source.at is not None
        )
        return self.locate(path) or next(places, None)


def load(document: Document, *, environment: Mapping[str, str] | None = None) -> tuple[Loaded | None, Report]:
    """Read a canonical document, whose ``${...}`` may name a default too; None when a finding is an error."""
    base = to_plain(Config()) if "${" in document.text or not document.text else None
    environment = os.environ if environment is None else environment
    resolved = resolve(document, environment=environment, base=base, literal=FOREIGN)
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
        finding("unresolved", Level.ERROR, dotted(path), document.at(path), reason=reason)
        for path, reason in unresolved.items()
    ]
    findings += [finding("missing-value", Level.ERROR, dotted(path), document.at(path)) for path in missing]
    return findings


def set_keys(loaded: Loaded, assignments: Sequence[str], *, environment: Mapping[str, str] | None = None) -> Loaded:
    """Change canonical keys, each given as ``key=value`` in Hydra's grammar.

    As in a file, ``${...}`` in a value is resolved, and values linked to a changed key change with it.
    Where another option is chosen (``train.engine=megatron``, or ``train.engine.type=megatron``), it begins with its own
    defaults: of the option before stays what was written and what both have.

    Raises:
        ConfigError: an unknown key, or a value that does not fit, with every problem named.
        DocumentError: an assignment cannot be read.
    """
    if not assignments:
        return loaded
    overrides = read_overrides([(_with_dots(text), Location("--set " + text)) for text in assignments], "--set")
    overrides = [each for override in overrides for each in _by_its_tag(loaded.config, override)]
    plain = to_plain(loaded.config)
    values = _with_links(loaded, plain, _live(loaded, plain, environment))
    left: set[KeyPath] = set()
    for override in overrides:
        left |= _choose(loaded, override, values)
    paths = {
        path for override in overrides for path in _places(override.value, _indexed(override.path, values), values)
    }
    changed = apply_overrides(Document(name="--set", values=values, marks={}, comments={}, text=""), overrides)
    before = _unresolved_keys(loaded, plain, sorted(paths, key=str))
    resolved = _resolved(changed.values, environment, "--set: ", open_before=before)
    config, findings = build_config(
        resolved.values, locate=lambda path: changed.marks.get(path), expressions=resolved.expressions
    )
    if config is None:
        raise ConfigError("\n".join(f"--set: {finding.message}{_hint(finding)}" for finding in findings))
    return _changed(loaded, config, paths, "--set", resolved, left)


def _with_dots(assignment: str) -> str:
    """An assignment whose key has the numbers of items as Hydra's grammar takes them: ``data.train.0.path`` for
    ``data.train[0].path``, which is how rlctl prints it."""
    key, equals, value = assignment.partition("=")
    return re.sub(r"\[(\d+)\]", r".\1", key) + equals + value


def _indexed(path: KeyPath, values: Any) -> KeyPath:
    """The path of an override as all others are: the numbers of a list's items are numbers."""
    found: list[str | int] = []
    for part in path:
        number = natural(part) if isinstance(values, list) and isinstance(part, str) else None
        found.append(part if number is None else number)
        values = _at(values, (found[-1],))
    return tuple(found)


def _places(value: Any, path: KeyPath, values: Any) -> Iterator[KeyPath]:
    """The paths that an override sets: a mapping is merged into an existing one, key by key."""
    if isinstance(value, Mapping) and isinstance(_at(values, path), Mapping):
        for name, item in value.items():
            yield from _places(item, (*path, name), values)
    else:
        yield path


def _by_its_tag(config: Config, override: Override) -> list[Override]:
    """The option of a choice by its tag: of ``train.engine=megatron`` and ``train.engine={type: megatron, ...}`` alike."""
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
    found = old.option(str(override.value)) if old is not None and tag == old.tag else None
    if found is None or isinstance(old, found[1]):
        return set()
    new: type = found[1]
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


def put(
    loaded: Loaded,
    path: KeyPath,
    value: Any,
    *,
    by: str = EDITED,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Change one canonical value, as an editor or an option of a command does; lists and mappings are values too.

    Text in it as ``${batch.prompts_per_step}`` is a link; what is linked to the key follows. Sections above other keys stay the
    objects that they were.

    Args:
        loaded: is not changed.
        path: of the key.
        value: plain.
        by: who changes it, for messages.
        environment: that expressions read; the process's own if None.

    Raises:
        ConfigError: there is no such key, or the value does not fit, with every problem named.
    """
    if not loaded.expressions and not _links(value):
        return _changed(loaded, with_value(loaded.config, path, value), {path}, by)
    before = to_plain(loaded.config)
    tree = _with_links(loaded, before, _live(loaded, before, environment))
    _set(tree, path, copied(value))
    resolved = _resolved(tree, environment, open_before=_unresolved_keys(loaded, before, [path]))
    parts = {name: part for name, part in resolved.values.items() if name == path[0] or part != before.get(name)}
    config = _replaced(loaded.config, parts, resolved.expressions)
    return _changed(loaded, config, {path}, by, resolved)


_MOMENT = re.compile(r"\$\{now:")
"""What has another value each time that it is read."""


def live_expressions(loaded: Loaded, environment: Mapping[str, str] | None = None) -> dict[KeyPath, str]:
    """The expressions that give the values which their keys hold, so that they may be read again.

    The others are of keys whose values were changed since, or depend on the moment.
    """
    return _live(loaded, to_plain(loaded.config), environment)


def _live(loaded: Loaded, plain: dict[str, Any], environment: Mapping[str, str] | None) -> dict[KeyPath, str]:
    """The expressions that still give the config's values, by path; ``plain`` are these values."""
    there = {path: text for path, text in loaded.expressions.items() if _at(plain, path) is not _NOWHERE}
    candidates = {path: text for path, text in there.items() if not _MOMENT.search(text)}
    while candidates:
        resolved = _resolve(_with_links(loaded, plain, candidates), environment)
        parts = {str(path[0]): resolved.values[path[0]] for path in candidates}
        built, _ = build_config(parts, expressions=resolved.expressions)
        then = parts if built is None else {name: to_plain(_section_of(built, name)) for name in parts}
        wrong = [path for path in candidates if path in resolved.unresolved or _at(then, path) != _at(plain, path)]
        if not wrong:
            break
        candidates = {path: text for path, text in candidates.items() if path not in wrong}
    return candidates


def _section_of(config: Config, name: str) -> Any:
    """The value of a top-level key of a config."""
    return getattr(config, fields_of(Config)[name].attribute)


def _unresolved_keys(loaded: Loaded, plain: dict[str, Any], changed: Sequence[KeyPath]) -> set[KeyPath]:
    """The keys outside of those that are changed whose expressions have no value here."""
    held = {path for path, text in loaded.expressions.items() if _at(plain, path) == text}
    return {path for path in held if not _under_any(path, changed)}


def _with_links(loaded: Loaded, plain: dict[str, Any], links: Mapping[KeyPath, str]) -> dict[str, Any]:
    """The plain values with the text of links, and of what only an expression can say: a literal ``${``."""
    tree: dict[str, Any] = copied(plain)
    for path, text in loaded.expressions.items():
        value = _at(tree, path)
        if path in links or (isinstance(value, str) and "${" in value):
            _set(tree, path, text)
    return tree


_NOWHERE: Any = object()


def _at(tree: Any, path: KeyPath) -> Any:
    """The value at a path of plain values; ``_NOWHERE`` if there is none."""
    try:
        for part in path:
            tree = tree[part]
    except (LookupError, TypeError):
        return _NOWHERE
    return tree


def _links(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_links, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_links, value))
    return isinstance(value, str) and "${" in value


def _resolve(tree: dict[str, Any], environment: Mapping[str, str] | None) -> Resolved:
    try:
        document = Document(name=EDITED, values=tree, marks={}, comments={}, text="")
        return resolve(document, environment=os.environ if environment is None else environment, literal=FOREIGN)
    except DocumentError as error:
        raise ConfigError(error.message, hint=error.hint) from error


def _resolved(
    tree: dict[str, Any],
    environment: Mapping[str, str] | None = None,
    prefix: str = "",
    *,
    open_before: Container[KeyPath] = (),
) -> Resolved:
    """The values of a tree.

    Args:
        tree: plain values.
        environment: that expressions read.
        prefix: of messages.
        open_before: the keys that had no value before the change either, such as for a variable that is not set here.

    Raises:
        ConfigError: an expression in it has no value.
    """
    resolved = _resolve(tree, environment)
    unresolved = {at: why for at, why in resolved.unresolved.items() if at not in open_before}
    problems = [
        said("{prefix}'{key}' cannot be resolved: {why}", prefix=prefix, key=dotted(at), why=why)
        for at, why in unresolved.items()
    ]
    problems += [
        said("{prefix}'{key}' is ???, it must be given a value", prefix=prefix, key=dotted(at))
        for at in resolved.missing
    ]
    if problems:
        raise ConfigError(lines_of(problems))
    return resolved


def with_value(config: Config, path: KeyPath, value: Any) -> Config:
    """The config with another value in one of its sections; the others are not built anew."""
    top = fields_of(Config).get(str(path[0]))
    if top is None:
        raise ConfigError(said("there is no key {key!r}", key=dotted(path)))
    values = {top.name: to_plain(getattr(config, top.attribute))}
    _set(values, path, copied(value))
    return _replaced(config, values)


def _set(values: Any, path: KeyPath, value: Any) -> None:
    try:
        for part in path[:-1]:
            values = values[part]
        values[path[-1]] = value
    except (LookupError, TypeError) as error:
        raise ConfigError(said("there is no key {key!r}", key=dotted(path))) from error


def _replaced(config: Config, parts: Mapping[str, Any], expressions: Mapping[KeyPath, str] | None = None) -> Config:
    """The config with these sections, given as plain values."""
    built, findings = build_config(parts, expressions=expressions)
    if built is None:
        raise ConfigError("\n".join(f"{finding.message}{_hint(finding)}" for finding in findings))
    attributes = [fields_of(Config)[name].attribute for name in parts]
    return replace(config, **{attribute: getattr(built, attribute) for attribute in attributes})


def _changed(
    loaded: Loaded,
    config: Config,
    paths: Collection[KeyPath],
    by: str,
    resolved: Resolved | None = None,
    left: Collection[KeyPath] = (),
) -> Loaded:
    """Replace the config: ``by`` set the values at ``paths`` and removed those at ``left``."""
    gone = {*paths, *left}
    sources = {path: source for path, source in loaded.sources.items() if not _under_any(path, gone)}
    sources |= {path: Source("override", dotted(path), Location(by)) for path in paths}
    expressions = {path: text for path, text in loaded.expressions.items() if not _under_any(path, gone)}
    if resolved is not None:
        expressions |= {at: text for at, text in resolved.expressions.items() if _under_any(at, paths)}
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
