"""What scores in verl scores here: a function alone, a reward model alone, or the default by data source, sandbox included."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.common.report import Report
from rlctl.config import Loaded, to_plain
from rlctl.documents import read_yaml
from rlctl.planning.plan import make_plan
from rlctl.translation.translate import read_document, translate_loaded

BASE = ["data.train_files=a.parquet", "actor_rollout_ref.model.path=org/m", "trainer.total_training_steps=1"]
MODEL = ["reward.reward_model.enable=True", "reward.reward_model.model_path=org/rm"]
OLD_MODEL = ["reward_model.enable=True", "reward_model.model.path=org/rm", "reward_model.model.input_tokenizer=org/m"]
FUNCTION = ["reward.custom_reward_function.path=f.py", "reward.custom_reward_function.name=score"]
OLD_FUNCTION = ["custom_reward_function.path=f.py", "custom_reward_function.name=score"]
SANDBOX = ["reward.sandbox_fusion.url=http://host/run_code"]
CODE = ["codecontests", "apps", "codeforces", "taco"]


def read(overrides: list[str], version: str = "0.9") -> tuple[Loaded, Report]:
    nothing = read_yaml("", "overrides", allow_empty=True)
    loaded, report = read_document(nothing, dialect=f"verl@{version}", overrides=[*BASE, *overrides], environment={})
    assert loaded is not None, report.findings
    return loaded, report


def rewards(*overrides: str, version: str = "0.9") -> Any:
    loaded, _ = read([*overrides], version)
    roles = {role.role for role in make_plan(loaded.config).stages[0].roles}
    assert ("reward_model" in roles) == any(one.choice == "model" for one in loaded.config.rewards)
    return to_plain(loaded.config)["rewards"]


def test_the_default_goes_by_data_source() -> None:
    (rule,) = rewards()
    assert (rule["type"], rule["rule"], rule["applies_to"]) == ("rule", "auto", None)


def test_the_sandbox_scores_programs_and_rules_the_rest() -> None:
    sandbox, rule = rewards(*SANDBOX)
    assert (sandbox["type"], sandbox["applies_to"], sandbox["partial_credit"]) == ("sandbox", CODE, True)
    assert rule["rule"] == "auto"
    assert {"openai/gsm8k", "aime*", "searchR1_*"} < set(rule["applies_to"])
    assert not set(rule["applies_to"]) & set(CODE)


def test_the_memory_of_the_sandbox_is_read_and_written() -> None:
    overrides = [*SANDBOX, "reward.sandbox_fusion.memory_limit_mb=2048"]
    sandbox, _ = rewards(*overrides)
    assert sandbox["memory_limit_mib"] == 2048
    made = translate_loaded(*read(overrides), "verl")
    assert "memory_limit_mb: 2048" in made.text


def test_a_function_scores_alone() -> None:
    (function,) = rewards(*FUNCTION, *SANDBOX)
    assert (function["type"], function["signature"], function["weight"]) == ("function", "verl", 1.0)


def test_beside_a_function_a_model_scores_nothing_since_0_7() -> None:
    function, model = rewards(*FUNCTION, *MODEL)
    assert (function["type"], function["weight"], model["type"], model["weight"]) == ("function", 1.0, "model", 0.0)


def test_beside_a_model_a_function_scored_nothing_before() -> None:
    (model,) = rewards(*OLD_FUNCTION, *OLD_MODEL, version="0.6")
    assert (model["type"], model["path"], model["tokenizer"]) == ("model", "org/rm", None)


@pytest.mark.parametrize("overrides", [MODEL, FUNCTION, SANDBOX, [*FUNCTION, *MODEL], []], ids=" ".join)
def test_what_scores_comes_back(overrides: list[str]) -> None:
    first, report = read(overrides)
    made = translate_loaded(first, report, "verl", options={"carried": "none"})
    assert made.text is not None
    second, _ = read_document(read_yaml(made.text, "written"), dialect="verl@0.9", environment={})
    assert second is not None
    assert to_plain(second.config)["rewards"] == to_plain(first.config)["rewards"]


@pytest.mark.parametrize("target", ["verl@0.9", "verl@0.7"])
@pytest.mark.parametrize(
    "lines",
    [
        ("reward.custom_reward_function.path=/x/r.py",),
        ("reward.reward_model.enable=True", "reward.reward_model.model_path=/m"),
        ("reward.sandbox_fusion.url=http://sandbox",),
    ],
)
def test_what_scores_is_written_in_every_release_and_nothing_of_it_is_called_lost(
    lines: tuple[str, ...], target: str
) -> None:
    loaded, report = read_document(
        read_yaml("", "overrides", allow_empty=True), dialect="verl@0.9", overrides=list(lines), environment={}
    )
    done = translate_loaded(loaded, report, target)
    assert not done.report.loses
    assert done.text is not None
    assert "rlctl:" not in done.text
