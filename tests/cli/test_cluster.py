"""``cluster`` writes what a scheduler needs, once, and says what it cannot bring; what is in it is tested beside its writers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML


def test_the_command_writes_a_script_once(rlctl: Any, config_file: Path, tmp_path: Path) -> None:
    config_file.write_text(
        config_file.read_text().replace("train.jsonl", "some/data").replace("3}", "3}\nrewards: [{type: rule}]")
    )
    out = tmp_path / "job.sbatch"
    command = ("cluster", "slurm", str(config_file), "--set", "run.time_limit=7200", "-o", str(out))
    made = rlctl(*command)
    assert made.code == 0, made.err
    text = out.read_text()
    assert "#SBATCH --nodes=1" in text
    assert "#SBATCH --gpus-per-node=2" in text
    assert "#SBATCH --time=02:10:00" in text
    assert (
        shlex.join(["rlctl", "launch", str(config_file), "--set", "run.time_limit=7200", "--address", "auto"]) in text
    )
    assert rlctl(*command).code == 1
    assert rlctl(*command, "--force").code == 0
    assert "--time=01:00:00" in rlctl("cluster", "slurm", str(config_file), "--time", "60").out
    assert rlctl("cluster", "slurm", str(config_file), "--time", "5").code == 2
    assert rlctl("cluster", "slurm", "-").code == 2


def test_the_command_says_what_the_pods_need(rlctl: Any, config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "me")
    config_file.write_text(
        config_file.read_text().replace("train.jsonl", "/shared/train.jsonl").replace("name: small", "name: small, folder: /shared/runs")
        + "rewards: [{type: rule}]\ntracking: [{name: wandb, api_key: '${oc.env:MY_KEY,null}'}]\n"
        "environment: {variables: {TEAM: '${oc.env:USER}'}}\n"
    )  # fmt: skip
    command = ("cluster", "kuberay", str(config_file), "--image", "i")
    made = rlctl(*command, "--volume", "claim:/shared", "--secret", "keys")
    assert made.code == 0, made.err
    assert "data.train[0].path: /shared/train.jsonl" in made.err
    assert "the variables USER" in made.err
    config, job = YAML(typ="safe").load_all(made.out)
    assert (config["kind"], job["kind"]) == ("ConfigMap", "RayJob")
    assert rlctl(*command).code == 2
    assert rlctl(*command, "--volume", "claim").code == 2
