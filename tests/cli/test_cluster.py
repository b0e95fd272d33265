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
        + "rewards: [{type: rule}]\ntracking: [{type: wandb, api_key: '${oc.env:MY_KEY,null}'}]\n"
        "runtime: {env_vars: {TEAM: '${oc.env:USER}'}}\n"
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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("launch", "{config}", "--detach"), "--detach and --pass are for a job"),
        (("launch", "{config}", "--address", "nowhere"), "is not the address of a Ray cluster"),
        (("runs", "resume", "demo", "--pass", "HOME"), "--detach and --pass are for a job"),
        (("runs", "list", "--address", "auto"), "its runs are folders and need no address"),
        (("runs", "follow", "demo", "--json", "--address", "http://127.0.0.1:9"), "--json prints the events"),
        (("cluster", "slurm", "{ready}", "--memory", "lots"), "--memory 'lots' is not an amount of memory"),
        (
            ("launch", "{ready}", "--address", "http://127.0.0.1:9", "--pass", "NO_SUCH"),
            "--pass NO_SUCH: there is no such",
        ),
    ],
)
def test_what_makes_no_sense_of_a_job_is_a_usage_error(
    rlctl: Any, config_file: Path, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    ready = tmp_path / "ready.yaml"
    ready.write_text(
        config_file.read_text()
        .replace("train.jsonl", "/shared/train.jsonl")
        .replace("name: small", "name: s, folder: /shared")
        + "rewards: [{type: rule}]\n"
    )
    shown = rlctl(*(word.format(config=config_file, ready=ready) for word in words))
    assert (shown.code, told in shown.err) == (2, True), shown.err


def test_paths_of_this_machine_alone_are_refused_before_anything_is_submitted(rlctl: Any, config_file: Path) -> None:
    config_file.write_text(config_file.read_text() + "rewards: [{type: rule}]\n")
    shown = rlctl("launch", str(config_file), "--address", "http://127.0.0.1:9")
    assert shown.code == 1
    assert "run.folder is 'runs'; name a folder on a disk that all nodes share" in shown.err
    assert "data.train[0].path is 'train.jsonl'" in shown.err
