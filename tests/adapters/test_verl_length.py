"""How long a run is in verl, which drops the rest of each epoch and ends at the first of steps and epochs."""

from __future__ import annotations

from typing import Any

from rlctl.common.report import Report
from rlctl.documents import read_yaml
from rlctl.translation.translate import read_document, translate_loaded

from .test_verl import BASE, written

TRINITY = """
model: {model_path: org/model, max_prompt_tokens: 512, max_response_tokens: 512}
cluster: {node_num: 1, gpu_per_node: 8}
buffer:
  batch_size: 96
  total_epochs: 15
  explorer_input: {taskset: {path: a.jsonl, storage_type: file}}
algorithm: {algorithm_type: grpo, repeat_times: 8}
"""


def from_trinity(**options: str) -> tuple[dict[str, Any], Report]:
    text = read_yaml(TRINITY, "trinity.yaml")
    loaded, report = read_document(text, dialect="trinity", environment={}, options=options)
    assert loaded is not None
    made = translate_loaded(loaded, report, "verl", options={"carried": "none", **options})
    assert made.text is not None
    return read_yaml(made.text, "written").values, made.report


def test_epochs_that_go_on_with_their_rest_become_steps() -> None:
    """15 epochs of 4000 rows are 625 batches of 96; verl has 41 of them in an epoch, so 16 epochs are needed."""
    values, _ = from_trinity(dataset_rows="4000")
    assert (values["trainer"]["total_training_steps"], values["trainer"]["total_epochs"]) == (625, 16)


def test_epochs_without_a_rest_stay_epochs() -> None:
    values, _ = from_trinity(dataset_rows="9600")
    assert values["trainer"]["total_epochs"] == 15
    assert "total_training_steps" not in values["trainer"]


def test_it_is_told_that_an_epoch_may_have_a_rest() -> None:
    values, report = from_trinity()
    assert values["trainer"]["total_epochs"] == 15
    assert [item.key for item in report.findings if "state dataset_rows" in item.message] == ["data.last_batch"]


def test_a_run_of_steps_names_epochs_that_never_end_it() -> None:
    config = "rlctl: 1\nmodel: {path: org/model}\ndata: {train: [{path: a.parquet}]}\nschedule: {total_steps: 200}\n"
    loaded, report = read_document(read_yaml(config, "run.yaml"), dialect="rlctl", environment={})
    assert loaded is not None
    values, _ = written(loaded, report, "verl")
    assert (values["trainer"]["total_training_steps"], values["trainer"]["total_epochs"]) == (200, 200)
    back, _ = read_document(
        read_yaml("", "o", allow_empty=True),
        dialect="verl",
        overrides=[*BASE, "trainer.total_training_steps=200", "trainer.total_epochs=200"],
        environment={},
    )
    assert back is not None
    assert (back.config.schedule.total_steps, back.config.schedule.total_epochs) == (200, None)
