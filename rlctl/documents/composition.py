"""Hydra's ``defaults:`` lists: a file and those that it includes, as one document whose every key knows its own file.

Hydra's own code puts the list in order and gives each file its package; files are read here, so that positions and comments
stay. A list can also name configs that a framework ships (verl's ``ppo_trainer``), and choices from its groups: they are no
files, and are handed back as such.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlctl.common.errors import DocumentError, Location
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.documents.document import Comment, Document
from rlctl.documents.files import STDIN, read_text
from rlctl.documents.paths import KeyPath, copied
from rlctl.documents.yaml_read import read_yaml

KEY = "defaults"
_SEARCH = ("hydra", "searchpath")
_FILE, _PACKAGE = "file://", "pkg://"
_MAX_FILES = 200


@record
class Choice:
    """An entry of a defaults list that no file here stands for."""

    name: str
    """What is chosen: the config's name, or the option of a group."""
    at: Location
    group: str = ""
    """As ``actor@actor_rollout_ref.actor``; empty for a config that is named alone."""


@record
class Composition:
    """A document with everything that its defaults list includes."""

    document: Document
    files: tuple[str, ...]
    """The included files, in the order in which they were merged."""
    choices: tuple[Choice, ...]
    """Entries for which there is no file."""
    searched: tuple[str, ...]
    """The folders that were looked into, and packages that were not."""


def has_defaults(document: Document) -> bool:
    """Whether a document begins with a defaults list."""
    return isinstance(document.values.get(KEY), list)


def compose(document: Document) -> Composition:
    """Return a document together with what its defaults list includes.

    Raises:
        DocumentError: the list cannot be read, or an included file cannot.
    """
    from hydra._internal.defaults_list import create_defaults_list
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    folder = Path() if document.name.startswith("<") or document.name == STDIN else Path(document.name).parent
    sources = _Sources(document, folder)
    repository = _repository(sources)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a list without _self_, which Hydra reads as _self_ at its end
            ordered = create_defaults_list(repository, _PRIMARY, [], prepend_hydra=False, skip_missing=False).defaults
    except (HydraException, OmegaConfBaseException, ValueError, AssertionError) as error:
        reason = " ".join(str(error).split()) or "an entry is not a string"  # Hydra asserts that one is
        raise DocumentError(
            said("the defaults list cannot be read: {reason}", reason=reason), at=document.at((KEY,))
        ) from None
    except RecursionError:
        raise DocumentError("the defaults list includes itself", at=document.at((KEY,))) from None
    whole = replace(document, values={}, marks={(): document.at(())}, comments=_head(document))
    for entry in ordered:
        part = sources.read.get(entry.config_path or "")
        if part is not None:
            _merge_into(whole, part, tuple(entry.package.split(".")) if entry.package else ())
    files = tuple(part.name for path, part in sources.read.items() if path != _PRIMARY)
    return Composition(whole, files, tuple(sources.choices), sources.searched)


_PRIMARY = "<the file itself>"


@dataclass
class _Sources:
    """The files a list can name: those beside the file, then those of ``hydra.searchpath``."""

    document: Document
    folder: Path
    read: dict[str, Document] = field(default_factory=dict)
    """Documents without their own defaults list, by the path Hydra calls them."""
    choices: list[Choice] = field(default_factory=list)

    @property
    def searched(self) -> tuple[str, ...]:
        return (str(self.folder), *(path.removeprefix(_FILE) for path in self._written))

    @property
    def _written(self) -> list[str]:
        hydra = self.document.values.get(_SEARCH[0])
        paths = hydra.get(_SEARCH[1]) if isinstance(hydra, dict) else None
        return [str(path) for path in paths] if isinstance(paths, list) else []

    @property
    def _folders(self) -> Iterator[Path]:
        yield self.folder
        for path in self._written:
            if not path.startswith(_PACKAGE):
                yield expanded(path.removeprefix(_FILE))

    def find(self, config: str) -> Path | None:
        """The file of a config, as ``../config/envs``."""
        name = config if config.endswith((".yaml", ".yml")) else f"{config}.yaml"
        return next((found for folder in self._folders if os.path.isfile(found := folder / name)), None)  # noqa: PTH113

    def is_group(self, group: str) -> bool:
        """Whether it is a folder; no folder has a name that is too long, which ``Path.is_dir`` raises."""
        return any(os.path.isdir(folder / group) for folder in self._folders)  # noqa: PTH112

    def load(self, config: str) -> Document | None:
        """A document with its defaults list still in it."""
        if config == _PRIMARY:
            return self.document
        if len(self.read) >= _MAX_FILES:
            raise DocumentError(said("includes more than {most} files", most=_MAX_FILES), at=self.document.at((KEY,)))
        found = self.find(config)
        if found is None:
            return None
        return read_yaml(read_text(found), os.path.normpath(found), allow_empty=True)


def _from(inside: str, name: str) -> str:
    """A name in a defaults list as a path from the top: relative to the folder of its file, unless it begins with a slash."""
    return name[1:] if name.startswith("/") else os.path.normpath(f"{inside}/{name}" if inside else name)


def _repository(sources: _Sources) -> Any:
    """A config repository for Hydra that holds these sources only: no plugins, packages or registered schemas."""
    from hydra._internal.config_repository import ConfigRepository, IConfigRepository
    from hydra.plugins.config_source import ConfigResult, ConfigSource
    from omegaconf import OmegaConf

    class Repository(ConfigRepository):
        def __init__(self) -> None:
            self.loaded: dict[str, ConfigResult | None] = {}

        def load_config(self, config_path: str) -> ConfigResult | None:
            if config_path not in self.loaded:
                self.loaded[config_path] = self._load(config_path)
            return self.loaded[config_path]

        def _load(self, config_path: str) -> ConfigResult | None:
            document = sources.load(config_path)
            if document is None:
                return None
            entries = document.values.get(KEY, [])
            if not isinstance(entries, list):
                raise DocumentError(
                    "the defaults list is not a list", at=document.at((KEY,)), hint="write '- name' lines"
                )
            group = "" if config_path == _PRIMARY else config_path.rpartition("/")[0]
            here = [item for index, item in enumerate(entries) if self._is_here(document, index, group)]
            listed = OmegaConf.create(here)
            sources.read[config_path] = _without_list(document)
            content = OmegaConf.create({"_": 1} if len(document.values) > 1 else {})
            found = ConfigResult("file", document.name, content, ConfigSource._get_header_dict(document.text))
            found.header.setdefault("package", None)
            found.defaults_list = self._create_defaults_list(config_path, listed)
            return found

        def _is_here(self, document: Document, index: int, inside: str) -> bool:
            """Whether an entry is for Hydra; one without a file is noted as a choice.

            A file of a group names others from its own folder, ``inside``.
            """
            entry, at = document.values[KEY][index], document.at((KEY, index))
            if isinstance(entry, str):
                name = entry.partition("@")[0]
                if name == "_self_" or sources.find(_from(inside, name)) is not None or "${" in name:
                    return True
                sources.choices.append(Choice(name, at))
                return False
            if isinstance(entry, dict) and len(entry) == 1:
                ((key, value),) = entry.items()
                words = str(key).split()
                group = words[-1].partition("@")[0] if words else ""
                if group.startswith("hydra/"):
                    return False  # how Hydra logs and where it runs; no part of the config
                if isinstance(value, str) and value != "???" and "${" not in value and "optional" not in words[:-1]:
                    if sources.find(_from(inside, f"{group}/{value}")) is not None:
                        return True
                    sources.choices.append(Choice(value, at, words[-1]))
                    return False
            return True

        def group_exists(self, config_path: str) -> bool:
            return sources.is_group(config_path)

        def config_exists(self, config_path: str) -> bool:
            return config_path == _PRIMARY or sources.find(config_path) is not None

        def get_group_options(self, group_name: str, results_filter: Any = None) -> list[str]:
            return []

        def get_sources(self) -> list[Any]:
            return []

    assert issubclass(Repository, IConfigRepository)
    return Repository()


def _without_list(document: Document) -> Document:
    values = {key: value for key, value in document.values.items() if key != KEY}
    return replace(document, values=values)


def _head(document: Document) -> dict[KeyPath, Comment]:
    return {(): document.comments[()]} if () in document.comments else {}


def _merge_into(whole: Document, part: Document, package: KeyPath) -> None:
    """Merge as OmegaConf does: mappings key by key, everything else replaced; positions and comments go along."""
    values: dict[Any, Any] = part.values
    marks = {package + path: mark for path, mark in part.marks.items() if path or package}
    comments = {package + path: comment for path, comment in part.comments.items() if path}
    for length in range(len(package), 0, -1):
        values = {package[length - 1]: values}
        marks.setdefault(package[:length], part.at(()))
    _merge(whole, replace(part, values=values, marks=marks, comments=comments), whole.values, values, ())


def _merge(whole: Document, part: Document, old: dict[Any, Any], new: dict[Any, Any], path: KeyPath) -> None:
    for key, value in new.items():
        here: KeyPath = (*path, key)
        merges = isinstance(value, dict) and isinstance(old.get(key), dict)
        if merges:
            _merge(whole, part, old[key], value, here)
        else:
            old[key] = copied(value)
        for target, source in ((whole.marks, part.marks), (whole.comments, part.comments)):
            _take_over(target, source, here, deep=not merges)


def _take_over(target: dict[KeyPath, Any], source: Mapping[KeyPath, Any], here: KeyPath, *, deep: bool) -> None:
    """Notes of a key, and with ``deep`` of everything below it, in place of those that were there."""
    if deep:
        for gone in [place for place in target if place[: len(here)] == here]:
            del target[gone]
    for place, note in source.items():
        if place == here or (deep and place[: len(here)] == here):
            target[place] = note


__all__ = ["Choice", "Composition", "compose", "has_defaults"]
