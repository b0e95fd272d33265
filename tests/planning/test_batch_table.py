"""The batch table: its numbers are those of the plan, and what does not divide says who refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.common.errors import Location
from rlctl.config import Source, config_from
from rlctl.planning.batch_table import Row, rows
from rlctl.planning.plan import make_plan


def _rows(config: Any) -> dict[str, Row]:
    return {row.name: row for row in rows(config, lambda path: None)}


def _config(**batch: Any) -> Any:
    micro = batch.pop("micro_batch", {"unit": "responses", "size": 2})
    engine = batch.pop("engine", {"type": "fsdp2"})
    return config_from(
        {
            "model": {"path": "m"},
            "data": {"max_prompt_tokens": 100},
            "rollout": {"max_response_tokens": 156},
            "train": {"engine": engine},
            "batch": {
                "prompts_per_step": 64,
                "responses_per_prompt": 8,
                "mini_batch_responses": 128,
                "micro_batch": micro,
            }
            | batch,
            "schedule": {"total_steps": 1},
            "placement": {"nodes": 2, "devices_per_node": 8},
        }
    )


def test_the_numbers_are_those_of_the_plan() -> None:
    config = _config(ppo_epochs=2)
    found, plan = _rows(config), make_plan(config).stages[0].batch
    assert found["responses of a step"].value == plan.responses_per_step == 512
    assert found["mini-batches of a pass"].value == plan.mini_batches_per_epoch == 4
    assert found["optimizer steps of a step"].value == plan.optimizer_steps_per_step == 8
    assert found["mini-batch on a replica"].value == plan.responses_per_replica == 8
    assert found["micro-batches of a mini-batch"].value == 4
    assert not any(row.note for row in found.values())


def test_tokens_give_an_upper_bound() -> None:
    found = _rows(_config(micro_batch={"unit": "tokens", "size": 1024}))
    assert found["micro-batches of a mini-batch"].value == "up to 2"
    assert "8 x 256 tokens" in found["micro-batches of a mini-batch"].formula
    short = _rows(_config(micro_batch={"unit": "tokens", "size": 128}))
    assert "a sequence may have 256 tokens" in short["micro-batches of a mini-batch"].note


@pytest.mark.parametrize(
    ("batch", "row", "said"),
    [
        ({"mini_batch_responses": 100}, "mini-batches of a pass", "512 = 5 x 100 + 12"),
        ({"mini_batch_responses": 100}, "mini-batches of a pass", "500 or 600 responses would be even"),
        ({"mini_batch_responses": 600}, "mini-batches of a pass", "verl refuses it"),
        ({"mini_batch_responses": 8}, "mini-batch on a replica", "(8 % 16 = 8)"),
        (
            {"prompts_per_step": 63, "responses_per_prompt": 1},
            "mini-batch on a replica",
            "verl refuses the step: 63 % 16",
        ),
        (
            {
                "engine": {"type": "megatron", "tensor_parallel_size": 2, "pipeline_parallel_size": 2},
                "prompts_per_step": 66,
            },
            "mini-batch on a replica",
            "ROLL's Megatron refuses the step: 66 prompts % 4 = 2",
        ),
        ({"engine": {"type": "megatron", "tensor_parallel_size": 3}}, "replicas", "16 / 3"),
    ],
)
def test_what_does_not_divide_says_who_refuses_it(batch: dict[str, Any], row: str, said: str) -> None:
    assert said in _rows(_config(**batch))[row].note


def test_a_row_shows_where_its_number_was_written() -> None:
    sources = {
        ("batch", "prompts_per_step"): Source("file", "data.train_batch_size", Location("verl.yaml", 3)),
        ("batch", "ppo_epochs"): Source("dialect_default", "actor.ppo_epochs"),
    }
    found = {
        row.name: row
        for row in rows(_config(), sources.get, lambda path: "256 x 8" if path[-1] == "mini_batch_responses" else "")
    }
    first = found["prompts of a step"]
    assert (first.key, first.file, first.line, first.default) == ("data.train_batch_size", "verl.yaml", 3, False)
    assert (found["passes over a step"].key, found["passes over a step"].default) == ("actor.ppo_epochs", True)
    assert found["mini-batch"].formula == "256 x 8"
    assert found["mini-batch"].key == "batch.mini_batch_responses"
