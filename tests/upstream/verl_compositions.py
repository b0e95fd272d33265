"""Writes ``rlctl/adapters/verl/uneven.txt`` anew: which of verl's keys only some of a release's compositions have.

    python tests/upstream/verl_compositions.py PACKAGES > rlctl/adapters/verl/uneven.txt

PACKAGES is a folder with an unpacked package for each release, named by it: ``PACKAGES/0.9.1/verl/trainer/config``. Hydra composes
every config with every engine that it has a group for; nothing of verl is imported.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

HEAD = """\
# Keys that not every composition of a release has, so that Hydra may refuse them without a prefix: kind of file, releases
# (4-6,10 is 0.4, 0.5, 0.6 and 0.10), the engines whose compositions all have the key in every patch release ('-': none), key ('**': all below).
# Written from the config folders of {releases} by tests/upstream/verl_compositions.py.
"""
CONFIGS = {"ppo": ("ppo_trainer", "model_engine"), "sft_engine": ("sft_trainer_engine", "engine")}
"""The config of a kind of file, and the group that chooses its engine."""
ENGINES = ("fsdp", "megatron", "torchtitan", "veomni")
"""Those that rlctl writes."""


def keys(values: Any, path: str = "") -> Iterator[str]:
    """The leaves of a composed config."""
    if isinstance(values, dict) and values:
        for name, inner in values.items():
            yield from keys(inner, f"{path}.{name}" if path else str(name))
    else:
        yield path


def composed(folder: Path, config: str, overrides: list[str]) -> frozenset[str]:
    """The keys of a composition."""
    with warnings.catch_warnings(), initialize_config_dir(str(folder.resolve()), version_base=None):
        warnings.simplefilter("ignore")
        tree: DictConfig = compose(config, overrides=overrides)
    return frozenset(key for key in keys(OmegaConf.to_container(tree, resolve=False)) if not key.startswith("hydra"))


def compositions(folder: Path, kind: str) -> Mapping[str, frozenset[str]]:
    """The keys of a release's config of one kind, by engine."""
    config, group = CONFIGS[kind]
    if not (folder / f"{config}.yaml").is_file():
        return {}
    files = (folder / group).glob("*.yaml")
    options = {{"dp": "fsdp"}.get(file.stem, file.stem): _chosen(folder, kind, group, file.stem) for file in files}
    found = {engine: composed(folder, config, own) for engine, own in (options or {"fsdp": []}).items()}
    if kind == "ppo" and "megatron" not in found:
        found["megatron"] = composed(folder, "ppo_megatron_trainer", [])
    return found


def _chosen(folder: Path, kind: str, group: str, name: str) -> list[str]:
    own = [f"{group}={name}"]
    return [*own, f"optim={name}"] if kind == "sft_engine" and (folder / "optim" / f"{name}.yaml").is_file() else own


def rows(releases: Mapping[str, Path], kind: str) -> Iterator[tuple[str, str, str]]:
    """Releases, engines and key, for every key that some composition of them lacks."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    minors = sorted({int(release.split(".")[1]) for release in releases})
    for minor in minors:
        folders = [folder for release, folder in releases.items() if int(release.split(".")[1]) == minor]
        made = [(engine, own) for folder in folders for engine, own in compositions(folder, kind).items()]
        engines = {engine for engine, _ in made} & set(ENGINES)
        every = {key for _, own in made for key in own}
        having = {key: _having(key, made, engines) for key in every}
        for key, among in _together(having, engines).items():
            found[key, among].append(minor)
    for (key, among), own in found.items():
        yield ",".join(_ranges(own)), among, key


def _ranges(minors: Sequence[int]) -> Iterator[str]:
    """Ascending numbers with runs written as ``first-last``."""
    for _, group in groupby(enumerate(minors), lambda item: item[1] - item[0]):
        run = [minor for _, minor in group]
        yield str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"


def _having(key: str, made: Sequence[tuple[str, frozenset[str]]], engines: set[str]) -> frozenset[str]:
    """The engines whose compositions all have a key."""
    return frozenset(engine for engine in engines if all(key in own for name, own in made if name == engine))


def _together(having: Mapping[str, frozenset[str]], engines: set[str]) -> Mapping[str, str]:
    """The keys that some engine lacks, with those that have them; a mapping whose keys all agree is one entry."""
    below: dict[str, set[frozenset[str]]] = defaultdict(set)
    count: dict[str, int] = defaultdict(int)
    for key, names in having.items():
        parts = key.split(".")
        for length in range(1, len(parts)):
            below[".".join(parts[:length])].add(names)
            count[".".join(parts[:length])] += 1
    found: dict[str, str] = {}
    for key, names in having.items():
        if names != engines:
            parts = key.split(".")
            tops = (".".join(parts[:length]) for length in range(1, len(parts)))
            top = next((top for top in tops if len(below[top]) == 1 and count[top] > 2), "")
            found[f"{top}.**" if top else key] = ",".join(name for name in ENGINES if name in names) or "-"
    return found


def main(packages: Path) -> None:
    """Print the file."""
    folders = {path.name: path / "verl" / "trainer" / "config" for path in packages.iterdir() if path.name[0] == "0"}
    releases = dict(sorted(folders.items(), key=lambda item: [int(part) for part in re.findall(r"\d+", item[0])]))
    print(HEAD.format(releases=", ".join(releases)), end="")
    for kind in CONFIGS:
        for row in sorted(rows(releases, kind)):
            print(kind, *row)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
