"""``rlctl eval`` evaluates what a config holds out, and nothing else; how it runs is in tests/runtime/test_offline.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlctl.checks import check
from rlctl.cli.evaluate import found, only_evaluating, table
from rlctl.common.errors import UsageError
from rlctl.config import config_from
from rlctl.planning.plan import make_plan
from rlctl.translation.translate import read

VERL = """
data: {path: resp.parquet, prompt_key: prompt, response_key: responses, data_source_key: data_source, reward_model_key: reward_model}
custom_reward_function: {path: null, name: compute_score}
ray_kwargs: {ray_init: {num_cpus: null}}
"""


def test_verls_evaluation_file_needs_rewards_alone(tmp_path: Path) -> None:
    (tmp_path / "evaluation.yaml").write_text(VERL)
    loaded, _ = read(tmp_path / "evaluation.yaml")
    assert loaded is not None
    config = only_evaluating(loaded.config, None)
    assert (config.run.mode, config.run.name) == ("evaluate_only", "run-eval")
    [source] = config.data.eval
    assert (source.response_key, source.source_key) == ("responses", "data_source")
    [stage] = make_plan(config).stages
    assert [role.role for role in stage.roles] == ["reward"]
    assert {finding.code for finding in check(config)} <= {"path-missing", "hub-name"}


def test_of_stages_the_last_is_evaluated_with_the_weights_that_are_named() -> None:
    held = {"data": {"eval": [{"path": "a.parquet"}]}}
    config = config_from({"stages": [{"name": "sft", "algorithm": {"objective": "sft"}}, {"name": "rl", **held}]})
    evaluated = only_evaluating(config, "weights/hf")
    assert not evaluated.stages
    assert (evaluated.model.path, evaluated.data.eval[0].path) == ("weights/hf", "a.parquet")
    with pytest.raises(UsageError, match="no evaluation dataset"):
        only_evaluating(config_from({}), None)


def test_rows_that_sft_measures_its_loss_on_are_not_scored_as_responses() -> None:
    rows = [{"path": "a.parquet", "response_key": "answer"}, {"path": "b.parquet"}]
    config = config_from({"algorithm": {"objective": "sft"}, "data": {"eval": rows}})
    assert [each.path for each in only_evaluating(config, None).data.eval] == ["b.parquet"]
    with pytest.raises(UsageError, match="the loss of sft"):
        only_evaluating(config_from({"algorithm": {"objective": "sft"}, "data": {"eval": rows[:1]}}), None)


def test_the_numbers_are_shown_by_source() -> None:
    summary: dict[str, Any] = {"evaluated": {"last": {"evaluation/gsm8k/pass@4": 0.5, "evaluation/a/reward": 1.0}}}
    assert table(found(summary)) == "gsm8k/pass@4  0.5000\na/reward      1.0000"


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"run": {"mode": "rollout_only"}}, "run.mode"),
        ({"data": {"eval": [{"path": "a.parquet", "response_key": "r"}]}}, "data.eval[0].response_key"),
    ],
)
def test_what_has_no_file_of_responses_is_refused(values: dict[str, Any], key: str) -> None:
    refused = [finding for finding in check(config_from(values)) if finding.code == "not-supported"]
    assert [finding.key for finding in refused] == [key]


def test_generation_is_not_judged_as_training() -> None:
    config = config_from(
        {
            "run": {"mode": "rollout_only"},
            "model": {"path": "owner/model"},
            "data": {"train": [{"path": "memory://a.parquet"}]},
            "batch": {"responses_per_prompt": 1},
            "rollout": {"responses_folder": "out.parquet", "sampling": {"temperature": 0.0}, "engine": "transformers"},
            "placement": {"device": "cpu"},
        }
    )
    assert {finding.code for finding in check(config)} <= {"hub-name"}
