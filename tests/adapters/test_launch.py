"""verl's launch scripts: run with a stand-in for python, what they hand over is the config that they were made of."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlctl.adapters import dialect
from rlctl.adapters.engine.schema import Composition
from rlctl.adapters.verl.launch import prefix_of
from rlctl.config import Loaded
from rlctl.documents import Document, read_overrides, read_yaml
from rlctl.translation.translate import convert, read, read_document, translate_loaded

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "verl"
RUN = """
# a run of mine
data:
  train_files: ["${oc.env:DATA,/d/my data}/train.parquet", b.parquet]
  train_batch_size: 64  # prompts
  apply_chat_template_kwargs: {enable_thinking: false}
actor_rollout_ref:
  model: {path: "${oc.env:MODEL,org/model}"}
  actor: {ppo_mini_batch_size: 16, optim: {lr: 1e-6}, use_kl_loss: true}
  rollout: {name: vllm, n: "${oc.env:N,8}", engine_kwargs: {vllm: {swap_space: 4}}}
algorithm: {adv_estimator: grpo}
trainer: {n_gpus_per_node: 8, total_training_steps: 5, logger: [console, wandb], experiment_name: "it's me"}
"""
SFT = "data: {train_files: a.parquet}\nmodel: {path: org/model}\nengine: {strategy: fsdp}\ntrainer: {n_gpus_per_node: 4}\n"


def _loaded(text: str = "", overrides: tuple[str, ...] = (), **environment: str) -> Loaded:
    document = read_yaml(text, "run.yaml") if text else Document("command line", {})
    loaded, report = read_document(document, dialect="verl", overrides=overrides, environment=environment)
    assert loaded is not None, report.errors
    return loaded


def _script(loaded: Loaded, target: str = "verl") -> str:
    _, report = read_document(Document("x", {}), dialect="verl", overrides=["data.train_batch_size=1"], environment={})
    made = translate_loaded(loaded, report, target, options={"format": "sh"})
    assert made.text is not None, made.report.errors
    return made.text


def _handed(script: str, folder: Path, *arguments: str, **environment: str) -> list[str]:
    """What a script hands to python or torchrun, in a shell that has nothing else."""
    for name in ("python3", "torchrun"):
        stand_in = folder / name
        stand_in.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done\n')
        stand_in.chmod(0o755)
    path = folder / "run.sh"
    path.write_text(script)
    done = subprocess.run(
        ["bash", str(path), *arguments],
        capture_output=True, text=True, check=True, env={"PATH": f"{folder}:/usr/bin:/bin", **environment},
    )  # fmt: skip
    return done.stdout.split("\0")[:-1]


def test_a_script_runs_and_hands_over_the_same_config(tmp_path: Path) -> None:
    loaded = _loaded(RUN)
    handed = _handed(_script(loaded), tmp_path)
    assert handed[:2] == ["-m", "verl.trainer.main_ppo"]
    assert read_overrides(handed[2:], "argv")
    assert _loaded(overrides=tuple(handed[2:])).config == loaded.config
    assert "+data.apply_chat_template_kwargs.enable_thinking=False" in handed
    assert "++actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space=4.0" in handed


def test_a_script_follows_its_environment_and_takes_further_overrides(tmp_path: Path) -> None:
    script = _script(_loaded(RUN))
    handed = _handed(script, tmp_path, "trainer.nnodes=2", MODEL="/my/model", N="16", DATA="/x")
    config = _loaded(overrides=tuple(handed[2:])).config
    assert (config.model.path, config.batch.responses_per_prompt, config.placement.nodes) == ("/my/model", 16, 2)
    assert config.data.train[0].path == "/x/train.parquet"


def test_comments_and_what_is_carried_stand_in_a_script() -> None:
    script = _script(_loaded(RUN))
    assert script.startswith("#!/usr/bin/env bash\n")
    assert "# a run of mine" in script
    assert "data.train_batch_size=64  # prompts" in script
    kept = _script(_loaded(RUN, ("reward_model.style=rule",)), "verl")
    assert kept.rstrip().endswith('"$@"') or kept.rstrip().endswith("# rlctl: end")


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("0.5", ["-m", "verl.trainer.main_ppo", "--config-path=config", "--config-name=ppo_megatron_trainer.yaml"]),
        ("0.9", ["-m", "verl.trainer.main_ppo", "model_engine=megatron"]),
    ],
)
def test_megatron_is_chosen_as_the_release_chooses_it(release: str, expected: list[str], tmp_path: Path) -> None:
    loaded = _loaded(RUN, ("actor_rollout_ref.actor.strategy=megatron", "critic.strategy=megatron"))
    handed = _handed(_script(loaded, f"verl@{release}"), tmp_path)
    assert set(expected) <= set(handed)
    overrides = [word for word in handed[2:] if not word.startswith("--")]
    read = _loaded(overrides=tuple(overrides)).config
    bridge = "mbridge" if release == "0.5" else "megatron_bridge"  # 0.5 has no vanilla_mbridge, which tells them apart
    assert read.train.engine == replace(loaded.config.train.engine, bridge=bridge)


def test_supervised_training_starts_with_torchrun(tmp_path: Path) -> None:
    loaded, report = read_document(read_yaml(SFT, "sft.yaml"), dialect="verl", environment={})
    assert loaded is not None
    new = translate_loaded(loaded, report, "verl", options={"format": "sh"}).text
    handed = _handed(str(new), tmp_path)
    assert handed[:5] == ["--standalone", "--nnodes=1", "--nproc_per_node=4", "-m", "verl.trainer.sft_trainer"]
    old = translate_loaded(loaded, report, "verl@0.5", options={"format": "sh"}).text
    assert "-m verl.trainer.fsdp_sft_trainer" in str(old)


def test_a_list_of_overrides_is_one_a_line() -> None:
    loaded = _loaded(RUN)
    made = translate_loaded(
        loaded, read_document(read_yaml(RUN, "r"), environment={})[1], "verl", options={"format": "overrides"}
    )
    assert made.text is not None
    lines = made.text.splitlines()
    assert _loaded(overrides=tuple(lines)).config == loaded.config


def test_trinity_has_no_scripts() -> None:
    from rlctl.common.errors import UsageError

    with pytest.raises(UsageError, match="trinity cannot be written as sh; it has: yaml"):
        translate_loaded(
            _loaded(RUN), read_document(read_yaml(RUN, "r"), environment={})[1], "trinity", options={"format": "sh"}
        )


# Hydra's prefixes, against the composed configs of each release

NAMES = {
    "fsdp": ("_generated_ppo_trainer", "ppo_trainer"),
    "megatron": ("_generated_ppo_megatron_trainer", "ppo_megatron_trainer"),
}


@cache
def _composed(release: str, engine: str) -> frozenset[str]:
    folder = next(path for path in (CORPUS / "defaults").iterdir() if path.name.startswith(f"v{release}."))
    file = next(folder / f"{name}.yaml" for name in NAMES[engine] if (folder / f"{name}.yaml").exists())
    group = {"model_engine"} if release == "0.9" else set()  # which verl's generated files leave out
    return frozenset(_paths(yaml.safe_load(file.read_text()))) | group


def _paths(value: Any, path: str = "") -> Any:
    for key, item in value.items() if isinstance(value, dict) else ():
        name = f"{path}.{key}" if path else str(key)
        yield name
        yield from _paths(item, name)


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not here")
@pytest.mark.parametrize("engine", ["fsdp", "megatron"])
@pytest.mark.parametrize("release", ["0.3", "0.5", "0.7", "0.9"])
def test_a_prefix_is_what_hydra_needs(release: str, engine: str) -> None:
    """Without a prefix the key is in the composed config, with ``+`` it is not; ``++`` is always right."""
    table = dialect("verl").tables["ppo"].composed_for(Composition(engine))
    composed = _composed(release, engine)
    plain = added = 0
    for path in table.schema:
        key = ".".join(str(part) for part in path)
        prefix = prefix_of(release, table, path)
        assert prefix or key.removesuffix(".**") in composed, key
        assert (key not in composed) if prefix == "+" else True, key
        plain += not prefix
    for key in composed:
        prefix = prefix_of(release, table, tuple(f"{key}.mine".split(".")))
        added += prefix == "+"
    assert plain > 100
    assert added > 100


def test_the_generation_server_goes_by_the_rollouts_lengths_and_answers_each_prompt_once() -> None:
    command = (
        "python3 -m verl.trainer.main_generation_server data.train_files=in.parquet +data.output_path=out.parquet"
        " actor_rollout_ref.rollout.prompt_length=2048 actor_rollout_ref.rollout.response_length=1024"
    )
    values = yaml.safe_load(convert(f"#!/bin/bash\n{command}\n", to="trinity").text)
    assert (values["model"]["max_prompt_tokens"], values["model"]["max_response_tokens"]) == (2048, 1024)
    assert (values["buffer"].get("total_epochs", 1), values["mode"]) == (1, "explore")
    handed = convert(f"#!/bin/bash\n{command}\n", to="verl", options={"format": "overrides"}).text
    assert "actor_rollout_ref.rollout.response_length=1024" in handed


def test_a_script_reads_without_the_variables_that_it_leaves_open(tmp_path: Path) -> None:
    """Bash would end at one without a value (set -u), and an array named like a variable would hide it."""
    text = RUN.replace("${oc.env:DATA,/d/my data}", "${oc.env:DATA_DIR}").replace(
        "experiment_name", "default_local_dir"
    )
    made = translate_loaded(
        *read_document(read_yaml(text, "run.yaml"), dialect="verl", environment={}), "verl", options={"format": "sh"}
    )
    assert made.text is not None
    script = tmp_path / "run.sh"
    script.write_text(made.text)
    loaded, report = read(script, environment={})
    assert loaded is not None, report.errors
    assert report.errors == []
    assert [source.path for source in loaded.config.data.train] == ["${oc.env:DATA_DIR}/train.parquet", "b.parquet"]
    assert loaded.config.model.path == "org/model"


def test_no_array_hides_a_variable_that_hydra_reads(tmp_path: Path) -> None:
    """Bash exports no arrays: one named like a variable of the environment takes it from every program that the script starts."""
    script = tmp_path / "run.sh"
    script.write_text(_script(_loaded(RUN.replace("${oc.env:DATA,/d/my data}", "${oc.env:DATA}"))))
    (tmp_path / "python3").write_text('#!/bin/sh\necho "$DATA"\n')
    (tmp_path / "python3").chmod(0o755)
    around = {"PATH": f"{tmp_path}:/usr/bin:/bin", "DATA": "/x"}
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=True, env=around)
    assert done.stdout.strip() == "/x"
