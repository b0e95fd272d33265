"""Files, overrides, assignments and machines are told apart as users write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.cli.arguments import cluster_of, pairs, split_inputs
from rlctl.common.errors import UsageError
from rlctl.planning.arithmetic import Cluster


def test_overrides_follow_files() -> None:
    assert split_inputs(["a.yaml", "-", "x.y=1", "+z=2", "++z=2", "~w", "a='b c'"]) == (
        ["a.yaml", "-"],
        ["x.y=1", "+z=2", "++z=2", "~w", "a='b c'"],
    )


def test_a_file_with_an_equals_sign_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lr=1e-6.yaml"
    path.write_text("{}")
    assert split_inputs([str(path), "a=1"]) == ([str(path)], ["a=1"])


@pytest.mark.parametrize("argument", ["x=" + "y" * 5000, "x=\0"])
def test_what_no_file_can_be_called_is_an_override(argument: str) -> None:
    assert split_inputs([argument]) == ([], [argument])


def test_a_file_after_an_override_is_refused() -> None:
    with pytest.raises(UsageError, match="comes after the override"):
        split_inputs(["a=1", "a.yaml"])


def test_pairs_keep_what_follows_the_first_equals_sign() -> None:
    assert pairs(["a=b=c", "d="], "--assume") == {"a": "b=c", "d": ""}


@pytest.mark.parametrize("texts", [["a"], ["=b"], ["a=1", "a=2"]])
def test_what_is_no_pair_is_refused(texts: list[str]) -> None:
    with pytest.raises(UsageError, match="--assume"):
        pairs(texts, "--assume")


@pytest.mark.parametrize(
    ("text", "cluster"),
    [
        ("2x8", Cluster(2, 8, "cuda")),
        ("2x8:cuda:80GiB", Cluster(2, 8, "cuda", gib_per_device=80)),
        ("1x4:cpu", Cluster(1, 4, "cpu")),
        ("cpu:2", Cluster(1, 2, "cpu")),
        ("4x8:H100", Cluster(4, 8, "cuda", gib_per_device=80, gpu="H100")),
        ("4x8:A100:40GiB", Cluster(4, 8, "cuda", gib_per_device=40, gpu="A100")),
    ],
)
def test_machines(text: str, cluster: Cluster) -> None:
    assert cluster_of(text) == cluster


@pytest.mark.parametrize(
    "text", ["", "8", "0x8", "2x0", "2x8:tpu", "cpu:0", "cpu:2:cuda", "2x8:cpu:80GiB", "2x8:80", "x", "2x-1"]
)
def test_what_names_no_machines_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--cluster"):
        cluster_of(text)
