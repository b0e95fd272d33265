"""``--set`` chooses another option: it begins with its own defaults, and what is left of the one before is told."""

from __future__ import annotations

import pytest

from rlctl.common.report import Report
from rlctl.config import Loaded
from rlctl.config.sections.train import Fsdp2, Megatron
from rlctl.documents import read_yaml
from rlctl.translation.translate import read_document

VERL = """
data: {train_files: a.parquet, val_files: b.parquet}
actor_rollout_ref:
  model: {path: org/m}
  actor:
    strategy: fsdp2
    fsdp_config: {offload_policy: true, ulysses_sequence_parallel_size: 2}
  rollout: {name: vllm, gpu_memory_utilization: 0.3}
algorithm: {adv_estimator: grpo}
trainer: {total_training_steps: 10, n_gpus_per_node: 4}
"""
RLCTL = "rlctl: 1\nmodel: {path: m}\ndata: {train: [{path: a.jsonl}]}\nschedule: {total_steps: 3}\n"


def read(text: str, *assignments: str) -> tuple[Loaded | None, Report]:
    return read_document(read_yaml(text, "run.yaml"), assignments=assignments, environment={})


def chosen(text: str, *assignments: str) -> tuple[Loaded, list[str]]:
    loaded, report = read(text, *assignments)
    assert loaded is not None, report.findings
    return loaded, [f"{each.at}: {each.message}" for each in report.findings if each.code == "option-left"]


@pytest.mark.parametrize("text", [VERL, RLCTL], ids=["verl", "rlctl"])
@pytest.mark.parametrize("key", ["train.engine", "train.engine.type"])
def test_another_engine_is_chosen_with_its_sizes(text: str, key: str) -> None:
    loaded, _ = chosen(text, f"{key}=megatron", "train.engine.tensor_parallel_size=2")
    assert loaded.config.train.engine == Megatron(tensor_parallel_size=2)
    assert not [path for path in loaded.sources if path[:2] == ("train", "engine") and path[2:] == ("fsdp_size",)]


@pytest.mark.parametrize("text", [VERL, RLCTL], ids=["verl", "rlctl"])
def test_an_option_is_chosen_as_a_mapping_too(text: str) -> None:
    """It was told of keys of the option before, which nobody had written."""
    loaded, _ = chosen(
        text, "train.engine={type: megatron, tensor_parallel_size: 2}", "algorithm.advantage={type: gae}"
    )
    assert loaded.config.train.engine == Megatron(tensor_parallel_size=2)
    assert loaded.config.algorithm.advantage.choice == "gae"
    assert not [path for path in loaded.sources if path[:2] == ("train", "engine") and path[2:] == ("fsdp_size",)]


def test_what_was_written_for_the_other_option_is_told_with_its_line() -> None:
    _, told = chosen(VERL, "train.engine=megatron")
    assert [each.split(" is not used")[0] for each in told] == [
        "run.yaml:7: train.engine.cpu_offload_policy",
        "run.yaml:7: train.engine.ulysses_sequence_parallel_size",
    ]


def test_what_both_options_have_stays_where_it_was_written() -> None:
    loaded, told = chosen(VERL, "rollout.engine=sglang")
    assert loaded.config.rollout.engine.choice == "sglang"
    assert loaded.config.rollout.memory.gpu_memory_utilization == 0.3
    assert told == []


def test_the_same_option_again_changes_nothing() -> None:
    loaded, told = chosen(VERL, "train.engine.type=fsdp2")
    assert isinstance(loaded.config.train.engine, Fsdp2)
    assert loaded.config.train.engine.ulysses_sequence_parallel_size == 2
    assert told == []


def test_an_option_that_is_not_there_is_refused() -> None:
    loaded, report = read(VERL, "train.engine=megatrom")
    assert loaded is None
    assert "did you mean 'megatron'" in report.errors[0].message
