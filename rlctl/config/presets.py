"""Configs that come with rlctl: ``presets/NAME.yaml`` beside the package in a checkout, inside it in an installed wheel.

Starting points are in ``presets``: each sets what a user of that hardware wants to begin with. Published runs are in
``presets/published``: each is a paper's or a framework's own example with the result that it reports.

A preset starts with comment lines: what it is, ``needs``, ``run``, ``expect``, ``source`` (where its settings come from),
``plan`` (the command that plans it for its cluster), for a published run ``algorithm``, ``model``, ``data``, ``made`` and
``note`` lines, and the schema for editors. To add a starting point: a file of that form, at most 48 lines, and Chinese of its
first two in ``rlctl/common/messages/reasons.zh.tsv``. To add a published run: an entry in ``tests/upstream/recipes.yaml``, from
which ``tests/upstream/make_recipes.py`` makes the file. A test checks and plans every preset for the cluster that it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rlctl.common.errors import UsageError, nearest
from rlctl.common.messages.reasons import said

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Preset:
    """A preset, as the comment at the top of its file describes it."""

    name: str
    title: str
    """What it is for."""
    needs: str
    """The hardware it is written for."""
    expect: str
    """What it comes to, and for a published run where that is stated."""
    source: str
    """Where its settings come from."""
    plan: str
    """The command that plans it for its hardware."""
    algorithm: str = ""
    """Of a published run, as are the next three."""
    model: str = ""
    data: str = ""
    notes: tuple[str, ...] = ()
    """What differs from the source, and what to know before a start."""

    @property
    def paper(self) -> str:
        """The arXiv id of its paper; empty if the source names none."""
        return self.source.partition("; arXiv ")[2]

    @property
    def cited(self) -> str:
        """The citation: the paper, or the repository of the source."""
        return f"arXiv {self.paper}" if self.paper else self.repository

    @property
    def link(self) -> str:
        """The file that it is made from, at its commit."""
        return self.source.partition("; arXiv ")[0]

    @property
    def result(self) -> str:
        """The benchmark of a published run and the score that it reached."""
        return self.expect.rpartition(" (")[0]

    @property
    def stated(self) -> str:
        """The place where the result of a published run is stated."""
        return self.expect.rpartition(" (")[2].removesuffix(")")

    @property
    def hardware(self) -> str:
        """The cluster, as ``--cluster`` takes it."""
        return self.plan.rpartition("--cluster ")[2]

    @property
    def repository(self) -> str:
        """Owner and name of the repository of a published run's source."""
        return "/".join(self.link.removeprefix("https://github.com/").split("/")[:2])


def names() -> list[Preset]:
    """Every starting point, by name."""
    return [_preset(file) for file in sorted(folder().glob("*.yaml"), key=_stem)]


def published() -> list[Preset]:
    """Every published run, by name."""
    return [_preset(file) for file in sorted((folder() / "published").glob("*.yaml"), key=_stem)]


def matching(found: Iterable[Preset], words: Iterable[str]) -> list[Preset]:
    """The presets whose heads hold every word, in any case."""
    wanted = [word.lower() for word in words]
    return [preset for preset in found if all(word in _words(preset) for word in wanted)]


def text(name: str) -> str:
    """The file of a preset.

    Raises:
        UsageError: there is no such preset.
    """
    known = {
        file.stem: file
        for part in (folder(), folder() / "published")
        for file in sorted(part.glob("*.yaml"), key=_stem)
    }
    if name not in known:
        raise UsageError(
            said("there is no preset {name!r}; expected one of {known}", name=name, known=", ".join(known)),
            hint=nearest(name, known) or "rlctl presets list describes each",
        )
    return known[name].read_text(encoding="utf-8")


def folder() -> Path:
    """The folder of the presets: beside the package in a checkout, inside it in an installed wheel."""
    installed = _PACKAGE / "presets_data"
    return installed if installed.is_dir() else _PACKAGE.parent / "presets"


def _stem(file: Path) -> str:
    return file.stem


def _preset(file: Path) -> Preset:
    head = list(_head(file.read_text(encoding="utf-8")))
    said_of = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
    notes = tuple(line.removeprefix("note: ") for line in head if line.startswith("note: "))
    known = {key: said_of.get(key, "") for key in ("needs", "expect", "source", "plan", "algorithm", "model", "data")}
    return Preset(file.stem, head[0], **known, notes=notes)


def _head(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if not line.startswith("# "):
            return
        yield line.removeprefix("# ")


def _words(preset: Preset) -> str:
    return " ".join(
        (
            preset.name,
            preset.title,
            preset.needs,
            preset.expect,
            preset.source,
            preset.algorithm,
            preset.model,
            preset.data,
        )
    ).lower()
