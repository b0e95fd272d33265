"""Files of other tools are named, and refused without advice on the formats that rlctl has."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.common.errors import RlctlError, TranslationError
from rlctl.documents import read_yaml
from rlctl.translation.sources.other_tools import READ, TOOLS, _by_keys, _by_text
from rlctl.translation.translate import read
from tests.adapters.corpus import examples

FILES = [
    ("EasyR1", "config.yaml", "data: {rollout_batch_size: 512}\nworker:\n  actor: {global_batch_size: 128}\n"),
    ("EasyR1", "run.sh", "python3 -m verl.trainer.main \\\n    config=c.yaml \\\n    worker.rollout.n=5\n"),
    ("EasyR1", "own.sh", "python3 -m verl.trainer.main worker.rollout.n=5 data.rollout_batch_size=8\n"),
    ("rLLM", "run.sh", "python -m train rllm/backend=verl rllm.agent.name=a\n"),
    ("OpenRLHF", "run.sh", "set -x\npython3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 1\n"),
    ("OpenRLHF", "train.py", "from openrlhf.trainer import PPOTrainer\n"),
    (
        "slime",
        "run.sh",
        "A=(--hf-checkpoint m\n --rollout-batch-size 32)\npython3 train.py ${A[@]} --advantage-estimator grpo\n",
    ),
    ("NeMo-RL", "grpo.yaml", "defaults: ../base.yaml\ngrpo: {num_prompts_per_step: 32}\npolicy: {model_name: m}\n"),
    ("NeMo-RL", "dpo.yaml", "dpo: {max_num_epochs: 1}\npolicy: {model_name: m}\ncheckpointing: {enabled: true}\n"),
    (
        "SkyRL",
        "run.sh",
        "uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base trainer.strategy=fsdp\n",
    ),
    ("SkyRL", "c.yaml", "trainer:\n  policy: {model: {path: m}}\ngenerator: {n_samples_per_prompt: 5}\n"),
    ("AReaL", "c.yaml", "experiment_name: e\ntrial_name: t\nactor: {path: m}\ncluster: {n_nodes: 1}\n"),
    ("prime-rl", "rl.toml", "[trainer.model]\nep = 8\n[orchestrator]\nbatch_size = 8\n"),
    ("ms-swift", "run.sh", "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model m\n"),
    ("ms-swift", "c.yaml", "rlhf_type: grpo\nmodel: m\ndataset: d\n"),
    ("LLaMA-Factory", "c.yaml", "model_name_or_path: m\nstage: dpo\nfinetuning_type: lora\n"),
    ("TRL", "c.yaml", "model_name_or_path: m\nper_device_train_batch_size: 4\nbeta: 0.1\nlearning_rate: 1.0e-6\n"),
    ("TRL", "train.py", "import os\nfrom trl import GRPOTrainer\n"),
    ("TRL", "run.sh", "accelerate launch x.py && trl grpo --model_name_or_path m\n"),
]


@pytest.mark.parametrize(("tool", "name", "text"), FILES, ids=[f"{tool} {name}" for tool, name, _ in FILES])
def test_a_file_of_another_tool_is_named(tmp_path: Path, tool: str, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(TranslationError) as raised:
        read(file, environment={})
    assert f"a file of {tool}," in raised.value.message
    assert raised.value.hint == READ


@pytest.mark.parametrize("dialect", ["verl", "trinity", "roll"])
def test_it_is_named_whatever_it_is_read_as(tmp_path: Path, dialect: str) -> None:
    (file := tmp_path / "c.yaml").write_text(FILES[0][2])
    with pytest.raises(TranslationError, match="EasyR1"):
        read(file, dialect=dialect, environment={})


@pytest.mark.parametrize(("name", "what"), [("x.toml", "a TOML file"), ("x.py", "a Python file")])
def test_another_language_is_named(tmp_path: Path, name: str, what: str) -> None:
    (file := tmp_path / name).write_text("a = 1\n")
    with pytest.raises(RlctlError, match=what):
        read(file, environment={})


def test_every_tool_has_a_file_here() -> None:
    assert {tool.name for tool in TOOLS} == {tool for tool, _, _ in FILES}


@pytest.mark.parametrize("dialect", ["verl", "trinity", "roll"])
def test_no_example_of_a_framework_is_another_tools(dialect: str) -> None:
    for example in examples(dialect):
        text = example.path.read_text()
        assert _by_text(text) is None, example.name
        assert _by_keys(read_yaml(text, example.name, allow_empty=True).values) is None, example.name
