"""What a name stands for that no key says: every name of the examples has a row, and what a framework lacks is reported with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlctl.adapters.engine.implied import ENVIRONMENTS, MANAGERS, SCORERS, WORKERS, WORKFLOWS, scored_as
from rlctl.adapters.roll.rewards import JUDGE, RULES_OF, SANDBOX
from rlctl.adapters.trinity.agents import PLAYED
from rlctl.adapters.trinity.workflows import ONE_TURN, REWARDS
from rlctl.adapters.verl.rewards import CODE, OTHERS
from rlctl.common.report import Bucket
from rlctl.runtime.rewards.rules import RULES, auto_rule
from rlctl.translation.translate import convert

from .corpus import ROOT

OF_USERS = {"rm_gallery_reward"}
"""Names of plug-ins that an example brings."""
NAMED = {
    "trinity": (
        r"default_(?:eval_)?workflow_type: *['\"]?(?:[\w.]+\.)?(\w+)",
        {*WORKFLOWS, *(name for row in ONE_TURN for name in row.names)},
    ),
    "trinity rewards": (r"default_reward_fn_type: *['\"]?(\w+)", set(REWARDS)),
    "roll": (
        r"rlvr\.rewards\.\w+\.(\w+)",
        {*WORKERS, *(name.rpartition(".")[2] for name in (*RULES_OF, JUDGE, SANDBOX))},
    ),
    "roll environments": (r"env_type: *['\"]?(\w+:?)", set(ENVIRONMENTS)),
    "verl": (r"reward_manager(?:\.name)?[=:] *['\"]?(\w+)", {*MANAGERS, "name", "null"}),
}


def named_in(folder: Path, pattern: str) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in (".yaml", ".sh"):
            yield from re.findall(pattern, path.read_text(encoding="utf-8"))


@pytest.mark.skipif(not ROOT.is_dir(), reason="needs the shared examples")
@pytest.mark.parametrize("kind", NAMED)
def test_every_name_of_the_examples_has_a_row(kind: str) -> None:
    pattern, known = NAMED[kind]
    found = set(named_in(ROOT / kind.split()[0], pattern))
    assert found
    assert found - known - OF_USERS == set()


def test_rows_name_their_source() -> None:
    for row in (*WORKFLOWS.values(), *ENVIRONMENTS.values(), *WORKERS.values()):
        assert row.reward or row.prompt
        assert row.source.startswith(("trinity/", "roll/", "examples/", "gem/"))


def test_scorers_are_those_of_the_runtime() -> None:
    for row in SCORERS:
        for source in row.sources if row.rule else ():
            assert auto_rule(source.replace("*", "nq")).rule == row.rule
        assert not row.rule or row.rule in RULES
    assert not set(CODE) & set(OTHERS)
    assert scored_as("dapo_math") == "math_dapo"


def test_workflows_that_play_are_found_by_the_environment() -> None:
    assert PLAYED["alfworld"] == "alfworld_workflow"
    assert PLAYED["frozen_lake"] == "frozen_lake_workflow"


@pytest.mark.parametrize("target", ["verl", "roll"])
def test_a_workflow_that_is_lost_says_what_it_implied(target: str) -> None:
    text = """
algorithm: {algorithm_type: grpo, repeat_times: 8}
model: {model_path: org/model, max_model_len: 1024}
cluster: {node_num: 1, gpu_per_node: 8}
buffer:
  batch_size: 32
  explorer_input: {default_workflow_type: sciworld_workflow, taskset: {name: t, path: data}}
"""
    report = convert(text, target, dialect="trinity", environment={}).report
    entry = next(entry for entry in report.accounting if entry.key.endswith("default_workflow_type"))
    assert entry.bucket is Bucket.UNSUPPORTED
    assert "the best sum of an episode / 100" in entry.note


@pytest.mark.parametrize(("manager", "lost"), [("dapo", False), ("prime", False), ("batch", True), ("remote", True)])
@pytest.mark.parametrize("target", ["trinity", "roll"])
def test_a_reward_manager_is_lost_if_it_calls_the_reward_otherwise(target: str, manager: str, lost: bool) -> None:
    overrides = f"data.train_files=a.parquet\nactor_rollout_ref.model.path=m\nreward.reward_manager.name={manager}\n"
    report = convert(overrides + "algorithm.adv_estimator=grpo", target, dialect="verl", environment={}).report
    entry = next(entry for entry in report.accounting if entry.key == "reward.reward_manager.name")
    assert (entry.bucket is Bucket.UNSUPPORTED) is lost
    assert not lost or MANAGERS[manager].does in entry.note
