"""Defaults lists: the values are Hydra's own, and every key knows the file and line it stands on."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import DocumentError, Location
from rlctl.documents import read_text, read_yaml
from rlctl.documents.composition import Composition, compose, has_defaults

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "roll" / "examples"
ENVS = "# the environments\ncustom_envs:\n  # easy\n  sokoban:\n    max_steps: 10\n    size: [6, 6]\n"


def composed(folder: Path, text: str, **files: str) -> Composition:
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    main = folder / "runs" / "main.yaml"
    main.parent.mkdir(exist_ok=True)
    main.write_text(text)
    return compose(read_yaml(read_text(main), str(main)))


def as_hydra(file: Path) -> dict[str, Any]:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with initialize_config_dir(str(file.parent.resolve()), version_base=None):
            return OmegaConf.to_container(hydra_compose(file.stem), resolve=False)  # type: ignore[return-value]


def test_an_included_file_comes_in_under_its_package_with_its_own_lines_and_comments(tmp_path: Path) -> None:
    made = composed(tmp_path, "defaults:\n  - ../config/envs@_here_\nseed: 1\n", config__envs=ENVS)
    document = made.document
    envs = str(tmp_path / "config" / "envs.yaml")
    assert document.values == {"custom_envs": {"sokoban": {"max_steps": 10, "size": [6, 6]}}, "seed": 1}
    assert document.at(("custom_envs", "sokoban", "max_steps")) == Location(envs, 5, 5)
    assert document.at(("seed",)).file.endswith("main.yaml")
    assert document.comments["custom_envs", "sokoban"].above == ("easy",)
    assert made.files == (envs,)


CASES = {
    "the file wins over what it includes, key by key": (
        "defaults:\n  - ../config/envs@_here_\n  - _self_\ncustom_envs: {sokoban: {max_steps: 3}}\n",
        {"config__envs": ENVS},
    ),
    "what is included wins where _self_ stands first": (
        "defaults:\n  - _self_\n  - ../config/envs@_here_\ncustom_envs: {sokoban: {max_steps: 3, more: 1}}\n",
        {"config__envs": ENVS},
    ),
    "a group is a package": ("defaults:\n  - model: small\nlr: 1e-6\n", {"runs__model__small": "layers: 2\n"}),
    "a package is chosen in the list": (
        "defaults:\n  - model@actor.model: small\n  - model@critic: small\n",
        {"runs__model__small": "layers: 2\n"},
    ),
    "a package is chosen in the file": (
        "defaults:\n  - model: small\n",
        {"runs__model__small": "# @package deep.down\nlayers: 2\n"},
    ),
    "an included file includes": (
        "defaults:\n  - model: small\n  - _self_\nmodel: {width: 9}\n",
        {
            "runs__model__small": "defaults:\n  - base\n  - _self_\nlayers: 2\n",
            "runs__model__base": "layers: 1\nwidth: 1\n",
        },
    ),
    "a list replaces, a mapping merges": (
        "defaults:\n  - base\n  - _self_\nitems: [3]\nmap: {b: 2}\n",
        {"runs__base": "items: [1, 2]\nmap: {a: 1}\n"},
    ),
    "a choice is overridden": (
        "defaults:\n  - base\n  - override model: large\n",
        {"runs__base": "defaults:\n  - model: small\n", "runs__model__small": "n: 1\n", "runs__model__large": "n: 2\n"},
    ),
    "an optional choice is missing": (
        "defaults:\n  - optional model: none\n  - _self_\na: 1\n",
        {"runs__model__small": "n: 1\n"},
    ),
    "no choice is made": ("defaults:\n  - model: null\n  - _self_\na: 1\n", {"runs__model__small": "n: 1\n"}),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_values_are_those_of_hydra(case: str, tmp_path: Path) -> None:
    text, files = CASES[case]
    document = composed(tmp_path, text, **files).document
    assert document.values == as_hydra(tmp_path / "runs" / "main.yaml")
    assert all(path in document.marks for path, _ in document.leaves())


def test_a_file_of_a_group_names_others_from_its_own_folder(tmp_path: Path) -> None:
    """As verl's ``critic/dp_critic.yaml``, which builds on ``critic/critic.yaml`` and takes an option of another group."""
    base = tmp_path / "runs"
    (base / "critic").mkdir(parents=True)
    (base / "optim").mkdir()
    (base / "critic" / "critic.yaml").write_text("enable: null\nstrategy: ???\n")
    (base / "critic" / "dp.yaml").write_text(
        "defaults:\n  - ../optim@optim: fsdp\n  - /optim@other: fsdp\n  - critic\n  - _self_\nstrategy: fsdp\n"
    )
    (base / "optim" / "fsdp.yaml").write_text("lr: 1.0\n")
    made = composed(tmp_path, "defaults:\n  - critic@critic: dp\n  - _self_\nseed: 1\n")
    assert made.choices == ()
    assert made.document.values == as_hydra(base / "main.yaml")


def test_a_search_path_is_looked_through(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    text = f"defaults:\n  - envs\nhydra:\n  searchpath:\n    - file://{tmp_path}/far\n"
    document = composed(tmp_path, text, far__envs=ENVS).document
    assert document.values["custom_envs"]["sokoban"]["max_steps"] == 10


def test_what_is_no_file_is_handed_back_with_its_place(tmp_path: Path) -> None:
    text = "defaults:\n  - ppo_trainer\n  - override model_engine: megatron\n  - _self_\na: 1\n"
    made = composed(tmp_path, text)
    assert [(choice.name, choice.group, choice.at.line) for choice in made.choices] == [
        ("ppo_trainer", "", 2),
        ("megatron", "model_engine", 3),
    ]
    assert made.document.values == {"a": 1}


@pytest.mark.parametrize(
    "entries", ["  - {a: 1, b: 2}\n", "  - [a]\n", "  - _self_\n  - _self_\n", "  - base: [{a: 1}]\n", "  - 3\n"]
)
def test_a_list_that_hydra_refuses_is_refused(tmp_path: Path, entries: str) -> None:
    with pytest.raises(DocumentError) as caught:
        composed(tmp_path, f"defaults:\n{entries}a: 1\n")
    assert "defaults list" in str(caught.value.message)
    assert caught.value.at is not None
    assert caught.value.at.line == 1


def test_a_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="defaults list"):
        composed(tmp_path, "defaults:\n  - base\na: 1\n", runs__base="defaults:\n  - base\nb: 1\n")


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the example configs are not here")
def test_rolls_examples_compose_to_what_hydra_makes_of_them() -> None:
    files = [path for path in sorted(CORPUS.rglob("*.yaml")) if path.parent.name != "config"]
    with_list = 0
    for file in files:
        document = read_yaml(read_text(file), str(file), allow_empty=True)
        if has_defaults(document):
            with_list += 1
            document = compose(document).document
            values = {key: value for key, value in document.values.items() if key != "hydra"}
            assert values == as_hydra(file), file
            assert all(path in document.marks for path, _ in document.leaves()), file
    assert with_list > 20
