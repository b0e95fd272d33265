"""The schemas of verl: every key of each composition of each release, with the value that Hydra composes for it.

Hydra composes the config folders of the published packages; nothing of verl is imported.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from rlctl.adapters.engine.schema import Composition

RELEASES: Mapping[str, tuple[str, ...]] = {
    "0.3": ("0.3.0.post1",),
    "0.4": ("0.4.0", "0.4.1"),
    "0.5": ("0.5.0",),
    "0.6": ("0.6.0", "0.6.1"),
    "0.7": ("0.7.0", "0.7.1"),
    "0.8": ("0.8.0",),
    "0.9": ("0.9.0", "0.9.1"),
}
"""The published releases of each series, oldest first: what one of them has, the series has, with the default of the last."""
OWN_FILE = {"megatron": "ppo_megatron_trainer"}
"""Engines that a config file of its own chooses in the releases without a config group."""
PLAIN = {"sft": "sft_trainer", "evaluation": "evaluation", "generation": "generation"}
"""Kinds of file with one composition, and the config of each."""
EXPERIMENTAL = {
    "fully_async": "experimental/fully_async_policy/config/fully_async_ppo{engine}_trainer.yaml",
    "one_step_off": "experimental/one_step_off_policy/config/one_step_off_ppo{engine}_trainer.yaml",
}
"""Asynchronous entry points: configs that extend those of PPO."""


def package(release: str, cache: Path, project: str = "verl", folder: str = "verl") -> Path:
    """The unpacked folder of a published release, of verl or another project, downloaded once."""
    place = cache / f"{project}-{release}"
    if not (place / folder).is_dir():
        command = ["download", "--quiet", "--no-deps", "--disable-pip-version-check", "-d", str(place)]
        subprocess.run([sys.executable, "-m", "pip", *command, f"{project}=={release}"], check=True)
        for file in place.iterdir():
            data = io.BytesIO(file.read_bytes())
            if file.suffix == ".whl":
                zipfile.ZipFile(data).extractall(place)
            else:
                with tarfile.open(fileobj=data) as archive:
                    archive.extractall(place, filter="data")
    return place / folder


Defaults = dict[str, Any]
"""The default of each key of one composition."""


def facts(root: Path) -> Iterator[tuple[str, Composition, Defaults]]:
    """Each kind of file and composition of a release, with its keys and defaults."""
    folder = root / "trainer" / "config"
    for kind, name in PLAIN.items():
        if (folder / f"{name}.yaml").is_file():
            yield kind, Composition(), composed(folder, name, [])
    for engine, name, overrides in _engines(folder, "ppo_trainer", "model_engine"):
        yield "ppo", Composition(engine), composed(folder, name, overrides)
    for engine, name, overrides in _engines(folder, "sft_trainer_engine", "engine"):
        yield "sft_engine", Composition(engine), composed(folder, name, overrides)
    for trainer, pattern in EXPERIMENTAL.items():
        for engine in ("fsdp", "megatron"):
            file = root / pattern.format(engine="" if engine == "fsdp" else f"_{engine}")
            if file.is_file():
                path = [f"hydra.searchpath=[file://{folder.resolve()}]"]
                yield "ppo", Composition(engine, trainer), composed(file.parent, file.stem, path)


def _engines(folder: Path, name: str, group: str) -> Iterator[tuple[str, str, list[str]]]:
    """The engines of a release's trainer: the config that is composed for each, and the overrides."""
    if not (folder / f"{name}.yaml").is_file():
        return
    options = sorted(file.stem for file in (folder / group).glob("*.yaml"))
    for option in options:
        own = [f"{group}={option}"]
        if group == "engine" and (folder / "optim" / f"{option}.yaml").is_file():
            own.append(f"optim={option}")
        yield {"dp": "fsdp"}.get(option, option), name, own
    if not options:
        yield "fsdp", name, []
    for engine, file in OWN_FILE.items():
        if group == "model_engine" and engine not in options and (folder / f"{file}.yaml").is_file():
            yield engine, file, []


def composed(folder: Path, config: str, overrides: list[str]) -> Defaults:
    """The keys and defaults of a composition; references to other keys count from the top."""
    with warnings.catch_warnings(), initialize_config_dir(str(folder.resolve()), version_base=None):
        warnings.simplefilter("ignore")
        tree: DictConfig = compose(config, overrides=overrides)
    values = OmegaConf.to_container(tree, resolve=False)
    return dict(leaf for leaf in leaves(values) if leaf[0].partition(".")[0] != "hydra")


def leaves(values: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a tree by dotted key; an empty mapping is a leaf."""
    if isinstance(values, Mapping) and values:
        for name, inner in values.items():
            yield from leaves(inner, f"{path}.{name}" if path else str(name))
    else:
        yield path, from_top(values, path)


def from_top(value: Any, path: str) -> Any:
    """A value whose references ``${.a}`` and ``${..a}`` are spelled from the top."""
    if isinstance(value, list):
        return [from_top(item, path) for item in value]
    if not isinstance(value, str) or "${." not in value:
        return value
    parts, text = path.split("."), value
    for depth in range(len(parts), 0, -1):
        above = ".".join(parts[: len(parts) - depth])
        text = text.replace("${" + "." * depth, "${" + (f"{above}." if above else ""))
    return text
