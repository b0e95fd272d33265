"""What every dialect is: its name, versions, tables by kind of file, and how a text is taken for one of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from rlctl.adapters.engine.reading import Read, read_document, unknown_keys
from rlctl.adapters.engine.rules import Version, version_of
from rlctl.adapters.engine.schema import Composition
from rlctl.adapters.engine.table import Table
from rlctl.adapters.engine.tree import find, put
from rlctl.adapters.engine.writing import ConfigWithOrigins, Written, write_by_table
from rlctl.common.errors import TranslationError, UsageError, nearest
from rlctl.common.messages.reasons import said
from rlctl.common.ranks import Rank
from rlctl.common.records import record
from rlctl.common.report import Entry, Finding
from rlctl.common.report_lines import framework
from rlctl.config import Config, Loaded, resolve_stages
from rlctl.documents import Comment, Document, KeyPath, Override, apply_overrides, escaped, write_yaml
from rlctl.documents.paths import copied
from rlctl.planning.memory_terms import OWN, MemoryTerms

_SERIES = re.compile(r"v?(\d+)\.(\d+)")


def _distance(known: Version, asked: re.Match[str]) -> tuple[bool, int]:
    return known[0] != int(asked[1]), abs(known[1] - int(asked[2]))


def is_of_series(asked: str, release: str) -> bool:
    """Whether a version is one of a release's: ``0.9.1`` is of 0.9, and ``0.10.dev`` is not."""
    number = _SERIES.match(asked)
    return number is not None and (int(number[1]), int(number[2])) == version_of(release)


@record
class Detection:
    """What a text was taken for."""

    version: str
    kind: str
    unknown: int
    """Leaves that this version and kind do not have."""
    leaves: int
    unread: int = 0
    """Leaves that set a reward, data or a loss, which this version accepts and does not read."""


@dataclass
class File:
    """A file to be written, and what became of each stage's values."""

    values: dict[str, Any]
    comments: dict[KeyPath, Comment] = field(default_factory=dict)
    parts: list[tuple[int | None, Written]] = field(default_factory=list)
    """The stage's number, None for a config without stages, and what came of it."""
    findings: list[Finding] = field(default_factory=list)
    name: str = ""
    """The dialect's name."""
    kind: str = ""
    """The kind of file; empty where the dialect has one only."""
    release: str = ""
    """The version it is written for."""
    again: Read | None = None
    """What reading it makes of it, once it was read."""

    @property
    def resolved(self) -> dict[KeyPath, Any]:
        """The value of each leaf that is written as an expression."""
        return {path: value for _, written in self.parts for path, value in written.resolved.items()}


def as_document(file: File) -> Document:
    """A written file with the values of its expressions, as a reader takes it."""
    values = copied(file.values)
    for path, value in file.resolved.items():
        put(values, path, escaped(value) if isinstance(value, str) and value != find(values, path) else value)
    return Document("the written file", values)


@record
class TrainerProgram:
    """A program that a launch script starts, and how its command line says what to run."""

    style: Literal["hydra", "file"]
    """Overrides of a config that the program has, or the name of a config file."""
    kind: str = ""
    """The kind of file it takes; empty where its keys have to tell."""
    of_launcher: Mapping[str, str] = field(default_factory=dict)
    """Keys that an option of torchrun decides instead, by the option, as ``nproc-per-node``."""
    since: str = ""
    """The first release that has it."""
    has_own_code: bool = False
    """Whether it is a recipe with a config and workers of its own, which may accept what the framework's trainer refuses."""


@record
class Shipped:
    """A config that comes with the framework, and which files and command lines name instead of a file."""

    kind: str = ""
    overrides: tuple[str, ...] = ()
    """What it sets differently from the framework's usual config."""


@record
class Dialect:
    """A config language. A package adds one by giving its tables; methods are replaced where a table cannot say it."""

    name: str
    versions: tuple[str, ...]
    """Oldest first; the last is written where none is asked for."""
    tables: Mapping[str, Table]
    """By kind of file, the usual one first."""
    order: tuple[str, ...] = ()
    """Top-level keys in the order that the dialect's own examples have."""
    formats: tuple[str, ...] = field(default=("yaml",), kw_only=True)
    """What a file can be written as, the usual one first."""
    programs: Mapping[str, TrainerProgram] = field(default_factory=dict)
    """By module (``verl.trainer.main_ppo``), command (``trinity``) or script (``start_*_pipeline.py``); ``*`` as in a shell."""
    configs: Mapping[str, Shipped] = field(default_factory=dict)
    """By name, as ``ppo_trainer``."""
    ranks: Mapping[str, Rank] = field(default_factory=dict)
    """How much the keys matter that no canonical key stands for, by their beginning; ``*`` is any first part."""
    memory: Callable[[str, Mapping[str, Any]], MemoryTerms] = field(default=lambda release, values: OWN)
    """What the framework holds in memory, by release and the keys that a file sets; rlctl's own terms if nothing says."""

    @property
    def newest(self) -> str:
        return self.versions[-1]

    def release(self, asked: str) -> str:
        """The version asked for, or the nearest one to it, as 0.9 for ``0.9.1``, ``0.10.dev`` and a fork's ``0.9.0+own``.

        Raises:
            UsageError: it is no version.
        """
        if not asked:
            return self.newest
        if asked in self.versions:
            return asked
        number = _SERIES.match(asked)
        if number and any(version_of(known)[0] == int(number[1]) for known in self.versions):
            return min(reversed(self.versions), key=lambda known: _distance(version_of(known), number))
        raise UsageError(
            said(
                "{name} has no version {asked!r}; known: {versions}",
                name=self.name,
                asked=asked,
                versions=", ".join(self.versions),
            ),
            hint=nearest(asked, self.versions),
        )

    def detect(self, document: Document, *, version: str = "", kind: str = "") -> Detection:
        """The version and kind that know most of the text's keys; the newest and most usual of those that know as many.

        Args:
            document: what was read.
            version: the only one that comes into question, where it is known.
            kind: the kind of file, where it is known and has a table in the version.
        """
        count = sum(1 for _ in document.leaves())
        releases = [version] if version else list(reversed(self.versions))
        best: Detection | None = None
        for name, table in self._tables_of(kind, releases).items():
            for release in [item for item in releases if not table.releases_with or item in table.releases_with]:
                missing, unread = map(len, self._lacking(document, release, name))
                if best is None or (missing, unread) < (best.unknown, best.unread):
                    best = Detection(release, name, missing, count, unread)
                if not missing and not unread:
                    return best
        if best is None:
            raise TranslationError(said("{name} has no tables", name=self.name))
        return best

    def as_taken(self, document: Document, release: str, kind: str) -> Document:
        """A document as the trainer of a release takes it, which may read keys of older releases as its own."""
        return document

    def _lacking(self, document: Document, release: str, kind: str) -> tuple[list[KeyPath], list[KeyPath]]:
        """The leaves that a release does not have, and those with a reward, data or a loss that it accepts and does not read."""
        table, version = self.tables[kind], version_of(release)
        leaves = dict(self.as_taken(document, release, kind).leaves())
        unread = []
        for path, value in leaves.items() if table.misleads else ():
            note = table.note_for(path, version) if value else None
            if note is not None and note.misleads and note.applies(version):
                unread.append(path)
        return list(unknown_keys(table, version, release, list(leaves))), unread

    def deciding(self, document: Document, taken: Detection) -> KeyPath | None:
        """The first leaf that the next newer release lacks or does not read; None if there is none, or no such release."""
        newer, table = self.versions[self.versions.index(taken.version) + 1 :], self.tables.get(taken.kind)
        if not newer or table is None or (table.releases_with and newer[0] not in table.releases_with):
            return None
        mine, more = (itertools.chain(*self._lacking(document, name, taken.kind)) for name in (taken.version, newer[0]))
        lacking = {*more} - {*mine}
        return next((path for path, _ in document.leaves() if path in lacking), None)

    def replaced(self, document: Document, taken: Detection) -> KeyPath | None:
        """The first leaf with a name or word that the next newer release replaced, and still takes; None if there is none."""
        return None

    def program(self, name: str) -> TrainerProgram | None:
        """The trainer of this name, by its module or file; None if it is none of the framework's."""
        names = {name, name.rpartition("/")[2]}
        return next((self.programs[each] for each in self.programs if any(fnmatchcase(n, each) for n in names)), None)

    def has_section(self, name: str) -> bool:
        """Whether any of its kinds of file has this top-level key."""
        return any(name in table.tops for table in self.tables.values())

    def _tables_of(self, kind: str, releases: Sequence[str]) -> Mapping[str, Table]:
        """The tables that come into question."""
        table = self.tables.get(kind)
        if table is None or (table.releases_with and not table.releases_with & set(releases)):
            return self.tables
        return {kind: table}

    def composition(self, values: Mapping[str, Any], kind: str) -> Composition:
        """What the framework composes its config for, for a file of a kind with these values."""
        return Composition()

    def composition_of(self, config: Config) -> Composition:
        """What a config is composed for that is written."""
        return Composition()

    def refuse_patch(self, asked: str, config: Config) -> None:
        """Refuse a config that a patch release cannot run although its series can; ``asked`` is a version as ``0.7.0``.

        Raises:
            TranslationError: it cannot.
        """

    def table_for(self, document: Document, kind: str) -> Table:
        """The table of a kind of file with the defaults of what a document is composed for."""
        return self.tables[kind].composed_for(self.composition(document.values, kind))

    def prepare(self, document: Document, overrides: Sequence[Override]) -> Document:
        """The document with its dialect's own overrides applied."""
        return apply_overrides(document, overrides) if overrides else document

    def is_composed(self, document: Document) -> bool:
        """Whether the text is a whole composed config rather than what a person wrote."""
        return False

    def read(
        self,
        document: Document,
        taken: Detection,
        *,
        environment: Mapping[str, str] | None,
        options: Mapping[str, str],
        restored: Mapping[str, Mapping[str, Any]],
    ) -> Read:
        """Read a prepared document."""
        return read_document(
            f"{self.name}@{taken.version}",
            self.table_for(document, taken.kind),
            version_of(taken.version),
            document,
            environment=environment,
            options=options,
            restored=restored,
            composed=self.is_composed(document),
        )

    def on_data(self, config: Config) -> list[Finding]:
        """What the framework cannot read of the data of a config, by canonical keys."""
        return []

    def read_again(self, file: File, options: Mapping[str, str]) -> Read:
        """Read a file as it is written, without the values kept for converting back; once.

        Raises:
            RlctlError: rlctl cannot read what it wrote.
        """
        if file.again is None:
            document = as_document(file)
            kind = file.kind if options.get("format") == "sh" else ""  # a script names the program, YAML does not
            taken = self.detect(document, version=file.release, kind=kind)
            file.again = self.read(document, taken, environment={}, options=options, restored={})
        return file.again

    def kind_for(self, config: Config, version: str) -> str:
        """The kind of file that holds a config."""
        return next(iter(self.tables))

    def write(self, loaded: Loaded, version: str, options: Mapping[str, str]) -> File:
        """Write a config; one with stages only where the dialect has them.

        Raises:
            TranslationError: the dialect cannot hold this config in one file.
        """
        stages = stage_parts(loaded)
        if len(stages) > 1:
            stages = [self._chosen(stages, options)]
        index, _, given = stages[0]
        written = self.write_one(given, version, options)
        kind = self.kind_for(given.config, version)
        return File(self.ordered(written.values), written.comments, [(index, written)], kind=kind)

    def upgraded(self, entries: Sequence[Entry], source: str, release: str) -> list[Finding]:
        """What a newer release would have made of the keys of an older one, had they been left as they are.

        Args:
            entries: the account of the source.
            source: its release.
            release: the one that is written.
        """
        return []

    def render(self, file: File, form: str, comments: Mapping[KeyPath, Comment], tail: Sequence[str]) -> str:
        """The text of a file in one of the dialect's formats.

        Raises:
            TranslationError: this format cannot say what is in the file.
        """
        return write_yaml(file.values, comments=comments, tail=tail)

    def _chosen(self, stages: list[tuple[int | None, str, ConfigWithOrigins]], options: Mapping[str, str]) -> Any:
        names = [name for _, name, _ in stages]
        wanted = options.get("stage", "")
        for stage in stages:
            if stage[1] == wanted:
                return stage
        raise TranslationError(
            said(
                "{name} has no stages, but this config has {count}: {names}",
                name=framework(self.name),
                count=len(names),
                names=", ".join(names),
            ),
            hint=said("write one file for each: state stage={names}", names=names[0])
            if not wanted
            else nearest(wanted, names),
        )

    def write_one(self, given: ConfigWithOrigins, version: str, options: Mapping[str, str]) -> Written:
        """Write a config without stages."""
        table = self.tables[self.kind_for(given.config, version)].composed_for(self.composition_of(given.config))
        return write_by_table(table, version_of(version), given, options, dialect=self.name)

    def ordered(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values with their top-level keys in the dialect's order."""
        rank = {key: place for place, key in enumerate(self.order)}
        return {key: values[key] for key in sorted(values, key=lambda key: rank.get(key, len(rank)))}


def stage_parts(loaded: Loaded) -> list[tuple[int | None, str, ConfigWithOrigins]]:
    """The stages of a config, each with what is known of its own values; one without a number where there are none."""
    if not loaded.config.stages:
        return [(None, "main", ConfigWithOrigins(loaded.config, loaded.sources, loaded.expressions, loaded.comments))]
    stages, problems = resolve_stages(loaded.config)
    if problems:
        raise TranslationError("\n".join(problem.message for problem in problems), at=problems[0].at)
    return [
        (
            index,
            stage.name,
            ConfigWithOrigins(replace_extensions(stage.config, loaded.config), *_of_stage(loaded, index)),
        )
        for index, stage in enumerate(stages)
    ]


def replace_extensions(stage: Config, whole: Config) -> Config:
    """The stage's config with the carried keys of the whole config where it has none of its own."""
    return stage if any(stage.extensions.values()) else replace(stage, extensions=whole.extensions)


def _of_stage(loaded: Loaded, index: int) -> list[Any]:
    own = [_below(items, ("stages", index)) for items in (loaded.sources, loaded.expressions, loaded.comments)]
    changed = loaded.config.stages[index]
    if any(path[0] not in changed for path in own[0]):
        return own  # sources of the whole stage, as when several files are read
    base = [
        {path: item for path, item in items.items() if path[:1] != ("stages",)}
        for items in (loaded.sources, loaded.expressions, loaded.comments)
    ]
    return [{**below, **above} for below, above in zip(base, own, strict=True)]


def _below(items: Mapping[KeyPath, Any], root: KeyPath) -> dict[KeyPath, Any]:
    return {
        path[len(root) :]: item for path, item in items.items() if path[: len(root)] == root and len(path) > len(root)
    }
