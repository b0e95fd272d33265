"""A run of two stages ends with everything in its folder, and twice with the same numbers; stages and modes do what they say."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlctl import runs
from rlctl.config import config_from, to_plain
from rlctl.monitor.samples import EVALUATION, SampleIndex
from rlctl.planning.plan import make_plan, plan_from
from rlctl.runtime.launch import launch
from rlctl.runtime.reporting.metrics import describe

pytestmark = pytest.mark.ray


def test_it_finishes_and_its_folder_tells_all_of_it(whole: Any, task: Any) -> None:
    folder = whole.result.folder
    assert whole.result.status == "finished"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert to_plain(runs.read_config(folder)) == to_plain(task.two_stages(folder.parent))
    assert plan_from(json.loads((folder / "plan.json").read_text())).run == "demo"
    assert {path.name for path in (folder / "logs").iterdir()} >= {"policy-0.log", "rollout-0.log", "reward-0.log"}
    info = runs.inspect(folder)
    assert (info.status, info.stage, info.step, info.total_steps) == ("finished", "grpo", 3, 3)
    assert set(whole.result.stages) == {"sft", "grpo"}
    assert whole.result.stages["sft"]["steps"] == 3


def test_events_come_in_the_order_of_the_algorithm(whole: Any) -> None:
    lines = (whole.result.folder / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    in_file = [{name: event[name] for name in event if name != "said"} for event in events]  # for readers of Chinese
    told_here = [{name: event[name] for name in event if name != "samples"} for event in whole.events]
    assert in_file == json.loads(json.dumps(told_here)), "responses are in files of their own"
    told = [event["kind"] for event in events if event["kind"] not in ("phase", "phase_ended", "advisory", "sync")]
    step = ["samples", "step"]
    assert told == [
        *("run_started", "stage_started", *step, "checkpoint", *["step", "checkpoint"] * 2, "stage_ended"),
        *("stage_started", "evaluation", *step, "checkpoint", *step, "evaluation", "checkpoint"),
        *(*step, "evaluation", "checkpoint", "stage_ended", "run_ended"),
    ]
    second = [e["name"] for e in events if e.get("stage") == "grpo" and e["kind"] == "phase" and e.get("step") == 1]
    assert second == ["save", "rollout", "reward", "advantages", "train", "sync"]
    assert [e["version"] for e in events if e["kind"] == "sync"] == [0, 1, 2, 3]


def test_responses_are_kept_with_what_training_makes_of_them(whole: Any) -> None:
    samples = SampleIndex(whole.result.folder)
    assert samples.steps("sft") == [1]
    assert samples.steps("grpo") == [1, 2, 3]
    assert samples.steps("grpo", EVALUATION)[0] == 0
    for event in whole.kinds("samples")[-3:]:
        groups = samples.groups("grpo", event["step"])
        assert [group.prompt for group in groups] == [each["prompt"] for each in event["samples"]]
        for response in (response for group in groups for response in group.responses):
            assert len(response.tokens) == response.length
            assert "".join(token.text for token in response.tokens) == response.text
            assert response.advantage is not None
    assert all(group.responses for group in samples.groups("grpo", 0, EVALUATION))


def test_every_metric_has_a_unit_and_a_sentence(whole: Any) -> None:
    told = {name for event in whole.kinds("step", "evaluation") for name in event["metrics"]}
    assert len(told) > 30
    assert [name for name in sorted(told) if describe(name) is None] == []


def test_the_next_stage_and_transformers_load_what_a_stage_leaves(whole: Any) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    checkpoints = whole.result.folder / "checkpoints"
    for stage in ("sft", "grpo"):
        names = {path.name for path in (checkpoints / stage).iterdir()}
        assert names == {"step-000001", "step-000002", "step-000003", "hf", "finished.json"}
    after_sft = AutoModelForCausalLM.from_pretrained(checkpoints / "sft" / "hf").state_dict()
    after_grpo = AutoModelForCausalLM.from_pretrained(checkpoints / "grpo" / "hf").state_dict()
    assert after_sft.keys() == after_grpo.keys()
    moved = max(float((after_sft[name] - after_grpo[name]).abs().max()) for name in after_sft)
    assert 0 < moved < 0.02, "grpo goes on from the weights of sft, three steps of Adam at 1e-3"
    assert AutoTokenizer.from_pretrained(checkpoints / "grpo" / "hf").decode([4, 5]) == "01"


@pytest.mark.soak  # a run that is interrupted gives them too: see test_resume.py and test_killed.py
def test_the_same_seed_gives_the_same_numbers(whole: Any, task: Any, run: Callable[..., Any], tmp_path: Path) -> None:
    again = run(task.two_stages(tmp_path, run={"name": "demo", "folder": str(tmp_path), "seed": 7}))
    assert len(again.numbers) == 3 + 3 + 3
    assert again.numbers == whole.numbers


def test_the_first_event_lists_what_is_not_used(tmp_path: Path) -> None:
    """Also of a run that ends at once, as its data is not there."""
    settings = {
        "run": {"name": "demo", "folder": str(tmp_path)},
        "model": {"path": str(tmp_path)},
        "data": {"train": [{"path": str(tmp_path / "none.jsonl")}], "stage_in_shared_memory": True},
        "rollout": {"memory": {"enforce_eager": True}},
        "schedule": {"total_steps": 1},
        "placement": {"device": "cpu", "devices_per_node": 1},
    }
    config, events = config_from(settings), []
    assert launch(make_plan(config), config, tmp_path, observer=events.append).status == "failed"
    assert [line.partition(":")[0] for line in events[0]["not_used"]] == [
        "data.stage_in_shared_memory",
        "rollout.memory.enforce_eager",
    ]


def test_workers_that_never_start_end_the_run(task: Any, run: Callable[..., Any], tmp_path: Path) -> None:
    """Ray starts a process that ends at once again and again, and says nothing; here no Python finds its library."""
    ray = {"init_args": {"runtime_env": {"env_vars": {"PYTHONHOME": "/nowhere"}}}, "startup_timeout": 5}
    done = run(task.config(tmp_path, runtime={"ray": ray}))
    assert done.result.status == "failed"
    assert "its process has not started within 5 s (runtime.ray.startup_timeout)" in done.result.cause
    assert "raylet.out" in done.failure["hint"]
