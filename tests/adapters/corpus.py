"""Example configs: each as rlctl reads it, and as plain values for the oracle.

A few of our own, in ``examples``, are always there; the frameworks' own are in a folder next to the checkout, if at all.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlctl.common.report import Report
from rlctl.config import Loaded
from rlctl.documents import KeyPath, read_yaml
from rlctl.translation.translate import read, read_document

ROOT = Path(__file__).parents[3] / "shared" / "corpus"
OWN = Path(__file__).parent / "examples"
ROWS = 4000
"""Rows of the training data, where a number hangs on them."""
GROUPS = ("engine", "optim", "model")
"""Groups of verl's SFT trainer, each at a place of its own name."""
EMPTY = ("agentic_val_webshop.yaml",)
"""Every line of it is a comment."""


@dataclass(frozen=True)
class Example:
    """One example config."""

    dialect: str
    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(OWN if self.is_own else ROOT).with_suffix(""))

    @property
    def is_own(self) -> bool:
        return self.path.is_relative_to(OWN)

    @property
    def is_default(self) -> bool:
        """Whether it is a release's composed default rather than someone's run."""
        return "defaults" in self.path.parts

    @property
    def is_override_list(self) -> bool:
        return self.dialect == "verl" and "overrides" in self.path.parts

    @cache  # noqa: B019 - examples live as long as the process
    def read(self) -> tuple[Loaded | None, Report]:
        """As rlctl reads it, told its dialect and the length of its data."""
        facts = {"dataset_rows": str(ROWS)}
        if self.is_override_list:
            lines = _overrides(self.path)
            return read_document(
                read_yaml("", "overrides", allow_empty=True),
                dialect="verl",
                overrides=lines,
                environment={},
                options=facts,
            )
        return read(self.path, dialect=self.dialect, environment={}, options=facts)

    @cache  # noqa: B019
    def tree(self) -> Any:
        """Its values, by Hydra's and OmegaConf's own code."""
        if self.is_override_list:
            return of_overrides(_overrides(self.path))
        text = self.path.read_text()
        if self.dialect == "roll" and "\ndefaults:" in f"\n{text}":
            with initialize_config_dir(str(self.path.parent.resolve()), version_base=None), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of lists without _self_, which all of ROLL's are
                own = OmegaConf.create({"hydra": yaml.safe_load(text).get("hydra") or {}})
                tree = compose(self.path.stem)
                OmegaConf.set_struct(tree, False)
                return OmegaConf.merge(tree, own)
        return OmegaConf.create(text)

    def plain(self) -> dict[str, Any]:
        """Its plain values, resolved."""
        found: dict[str, Any] = plain(self.tree())
        return found


def _overrides(path: Path) -> list[str]:
    """The words of a command line that are overrides; ``--config-name`` and the like are the program's own options."""
    return [word for word in yaml.safe_load(path.read_text())["overrides"] if not word.startswith("--")]


def of_overrides(lines: list[str]) -> DictConfig:
    """As Hydra takes them from a command line, where the shell has put the home folder for ``~``."""
    tree = OmegaConf.create({})
    lines = [line.replace("=~/", "=/home/").replace("<verl>", "/verl") for line in lines]
    for override in OverridesParser.create().parse_overrides(lines):
        name = override.key_or_group
        if override.package or name in GROUPS:  # a choice from a group, which rlctl keeps by its whole name
            tree[f"{name}@{override.package or name}"] = override.value()
        else:
            OmegaConf.update(tree, name, override.value(), force_add=True)
    return tree


def plain(tree: Any) -> Any:
    """An OmegaConf tree as dicts and lists, without values that name keys which are not there."""
    if OmegaConf.is_dict(tree):
        pairs = [(key, _resolved(tree, key)) for key in tree]
        return {key: plain(value) for key, value in pairs if value is not ...}
    if OmegaConf.is_list(tree):
        items = [_resolved(tree, place) for place in range(len(tree))]
        return [plain(value) for value in items if value is not ...]
    return tree


def _resolved(tree: Any, key: Any) -> Any:
    try:
        return tree[key]
    except OmegaConfBaseException:
        raw = str(OmegaConf.to_container(tree, resolve=False)[key])  # type: ignore[index]
        return raw if "oc.env" in raw else ...


@cache
def examples(dialect: str) -> tuple[Example, ...]:
    """Every example of a dialect. ROLL's files for inclusion are no configs of their own, and one is all comments."""
    return tuple(_found(dialect))


def some(chosen: Iterable[Example], step: int) -> list[Example]:
    """Our own examples, and every so many-th of the frameworks'."""
    chosen = list(chosen)
    return [each for each in chosen if each.is_own] + [each for each in chosen if not each.is_own][::step]


def at_least(count: int) -> int:
    """How many examples a test has to have checked; our own are few."""
    return count if ROOT.is_dir() else 1


def _found(dialect: str) -> Iterator[Example]:
    for path in [path for root in (OWN, ROOT) for path in sorted((root / dialect).rglob("*.yaml"))]:
        included = dialect == "roll" and path.parent.name == "config"
        if not included and path.name not in EMPTY:
            yield Example(dialect, path)


def leaves(example: Example) -> list[KeyPath]:
    """The places of an example that hold a value, as OmegaConf has them; a list of plain values is one, an empty mapping too."""
    return list(_leaves(OmegaConf.to_container(example.tree(), resolve=False), ()))


def _leaves(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(value, dict) and (value or not path):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for place, inner in enumerate(value):
            yield from _leaves(inner, (*path, place))
    else:
        yield path
