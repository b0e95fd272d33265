"""``--set`` is read as a file is: links follow, expressions are resolved, and the config that is saved reads as the one that is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.cli import launch
from rlctl.common.errors import ConfigError
from rlctl.config import Loaded, live_expressions, put, set_keys, to_plain
from rlctl.documents import read_yaml, write_yaml
from rlctl.runs import symbolic
from rlctl.runs.starting import _renamed
from rlctl.translation.translate import read_document

FILE = """
rlctl: 1
run: {name: demo, project: "${run.name}", on_end: 'echo \\${RLCTL_STATUS}'}
model: {path: "${oc.env:MODELS}/small"}
data: {train: [{path: a.jsonl}, {path: "${data.train[0].path}"}]}
batch: {prompts_per_step: 8, responses_per_prompt: "${oc.env:N}", mini_batch_responses: "${batch.prompts_per_step}"}
schedule: {total_steps: 3, evaluate_every: "${schedule.total_steps}"}
rewards:
- {type: function, path: "${oc.env:REWARD}"}
- {type: judge, name: j, model: m, api_key: "${oc.env:KEY}"}
stages:
- {name: one}
- {name: two, batch: {mini_batch_responses: "${batch.prompts_per_step}"}}
"""
VERL = """
data: {train_files: a.parquet, val_files: b.parquet, train_batch_size: 8, max_prompt_length: 64, max_response_length: 64}
actor_rollout_ref:
  model: {path: "${oc.env:MODELS}/small"}
  actor: {ppo_mini_batch_size: "${data.train_batch_size}", kl_loss_coef: 0.25}
  rollout: {name: vllm, n: 4, temperature: 0.5}
algorithm: {adv_estimator: grpo, kl_ctrl: {kl_coef: "${actor_rollout_ref.actor.kl_loss_coef}"}}
trainer: {experiment_name: "${trainer.project_name}-x", project_name: demo, total_training_steps: 10, n_gpus_per_node: 4}
"""
TRINITY = """
project: demo
name: "${project}-${oc.env:N}"
mode: both
model: {model_path: "${oc.env:MODELS}/small", max_response_tokens: 64, max_model_len: 128}
cluster: {node_num: 1, gpu_per_node: 4}
buffer:
  batch_size: 8
  total_steps: 10
  explorer_input: {taskset: {path: a.jsonl}}
algorithm: {algorithm_type: grpo, repeat_times: 4}
explorer: {rollout_model: {engine_num: 2, tensor_parallel_size: 1}}
"""
ROLL = """
exp_name: "${project}-x"
project: demo
seed: 42
pretrain: "${oc.env:MODELS}/small"
rollout_batch_size: 8
prompt_length: 64
response_length: 64
max_steps: 10
num_return_sequences_in_group: 4
actor_train:
  model_args: {dtype: bf16}
  training_args: {learning_rate: 1.0e-6, per_device_train_batch_size: 1, gradient_accumulation_steps: 32}
  data_args: {file_name: a.jsonl}
  strategy_args: {strategy_name: fsdp2_train}
  device_mapping: list(range(0,4))
"""
ENVIRONMENT = {"MODELS": "/models", "N": "4", "REWARD": "reward.py", "KEY": "k", "USER": "ada"}


@pytest.fixture(autouse=True)
def around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def read(text: str, *assignments: str) -> Loaded:
    loaded, report = read_document(read_yaml(text, "run.yaml"), assignments=assignments)
    assert loaded is not None, [finding.message for finding in report.findings]
    return loaded


def saved(loaded: Loaded) -> Loaded:
    """What is read of the config in a run folder."""
    return read(write_yaml(symbolic(loaded)))


@pytest.mark.parametrize("text", [FILE, VERL, TRINITY, ROLL], ids=["rlctl", "verl", "trinity", "roll"])
@pytest.mark.parametrize(
    "assignments",
    [
        (),
        ("batch.prompts_per_step=16",),
        ("batch={prompts_per_step: 16}",),
        ("batch.mini_batch_responses=4", "batch.prompts_per_step=16"),
        ("run.name='${oc.env:USER}-${run.seed}'", "run.seed=7"),
        ("run.name=other", "model.path='${oc.env:MODELS}/large'"),
        ("run.on_end='echo \\${HOME}'",),
        ("data.train.0.path=b.jsonl", "schedule.total_steps='${run.seed}'"),
        ("train.engine=megatron", "train.engine.tensor_parallel_size='${run.seed}'", "run.seed=2"),
        ("run.name='x-${now:%f}'",),
    ],
    ids=str,
)
def test_what_is_used_is_what_is_saved(text: str, assignments: tuple[str, ...]) -> None:
    loaded = read(text, *assignments)
    assert to_plain(saved(loaded).config) == to_plain(loaded.config)


def test_links_follow_what_is_set() -> None:
    loaded = read(FILE, "batch.prompts_per_step=16", "run.name='${oc.env:USER}'", "data.train.0.path=b.jsonl")
    config = loaded.config
    assert (config.batch.mini_batch_responses, config.run.name, config.run.project) == (16, "ada", "ada")
    assert [source.path for source in config.data.train] == ["b.jsonl", "b.jsonl"]
    assert config.stages[1]["batch"]["mini_batch_responses"] == 16
    assert loaded.expressions["run", "name"] == "${oc.env:USER}"
    assert loaded.expressions["batch", "mini_batch_responses"] == "${batch.prompts_per_step}"
    assert config.run.on_end == "echo ${RLCTL_STATUS}"


def test_what_is_set_itself_is_no_link_any_more() -> None:
    loaded = read(FILE, "batch.mini_batch_responses=4", "rewards.0.path=other.py", "batch.responses_per_prompt=2")
    assert loaded.config.batch.mini_batch_responses == 4
    gone = [("batch", "mini_batch_responses"), ("rewards", 0, "path"), ("batch", "responses_per_prompt")]
    assert not set(gone) & set(loaded.expressions)
    assert saved(loaded).config.rewards[0].path == "other.py"  # type: ignore[attr-defined]


def test_the_option_that_is_left_leaves_no_link() -> None:
    text = FILE.replace("schedule:", "train: {engine: {type: fsdp2, fsdp_size: '${run.seed}'}}\nschedule:")
    loaded = read(text, "train.engine=megatron")
    assert ("train", "engine", "fsdp_size") not in loaded.expressions
    assert to_plain(saved(loaded).config) == to_plain(loaded.config)


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("run.name='${oc.env:RLCTL_NO_SUCH}'", "'run.name' cannot be resolved: the environment variable"),
        ("run.name='${run.nme}'", "'run.name' cannot be resolved: there is no key 'run.nme'"),
        ("run.name='${run.name}'", "'run.name' cannot be resolved: refers to itself"),
        ("run.seed='${run.project}'", "'run.seed' is ${run.project}; it must be an integer"),
        ("run.name='${oc.env'", "cannot be read"),
    ],
)
def test_what_cannot_be_resolved_is_an_error(assignment: str, told: str) -> None:
    loaded, report = read_document(read_yaml(FILE, "run.yaml"), assignments=[assignment])
    assert loaded is None
    [message] = [finding.message for finding in report.errors]
    assert told in message


def test_the_environment_of_the_file_is_that_of_assignments() -> None:
    loaded, _ = read_document(
        read_yaml(FILE, "run.yaml"), assignments=["run.name='${oc.env:WHO}'"], environment={**ENVIRONMENT, "WHO": "eve"}
    )
    assert loaded is not None
    assert loaded.config.run.name == "eve"
    assert saved(loaded).config.run.name == "eve", "the variable is not there when the run is resumed"


def test_options_of_commands_replace_links_too(tmp_path: Path) -> None:
    """``--name``, ``--address``, ``--trace-steps`` and ``--new``: each is saved as it is used."""
    text = FILE.replace("name: demo", f"name: '${{oc.env:USER}}', folder: {tmp_path}")
    (tmp_path / "ada").mkdir()
    new = _renamed(read(text))
    assert (new.config.run.name, new.config.run.project) == ("ada-2", "ada-2")
    for loaded in (new, launch._changed(read(text), "mine", "auto"), launch._traced(read(text), "1,2")):
        assert to_plain(saved(loaded).config) == to_plain(loaded.config)
    assert launch._changed(read(text), "mine", None).config.run.project == "mine"


def test_a_literal_dollar_elsewhere_is_left_alone() -> None:
    """Text of templates and shell commands may hold ``${``, which is no link."""
    loaded = set_keys(read(FILE), ["batch.prompts_per_step=16"])
    assert loaded.config.run.on_end == "echo ${RLCTL_STATUS}"
    loaded = put(loaded, ("batch", "prompts_per_step"), 32)
    assert (loaded.config.run.on_end, loaded.config.batch.mini_batch_responses) == ("echo ${RLCTL_STATUS}", 32)
    with pytest.raises(ConfigError, match="cannot be resolved"):
        put(loaded, ("run", "name"), "${nothing.there}")


def test_expressions_of_the_moment_are_not_read_again() -> None:
    loaded = read(FILE.replace("name: demo", "name: 'at-${now:%f}'"))
    assert ("run", "name") not in live_expressions(loaded)
    assert ("run", "project") in live_expressions(loaded)
