"""``launch`` starts nothing that a check refuses, and its exit code, summary and JSON say how the run ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlctl import runs
from rlctl.cli import summary, try_out
from rlctl.planning.plan import Plan
from rlctl.runs import RunResult

STAGES = {
    "main": {
        "evaluated": {"first": {"evaluation/gsm8k/accuracy": 0.1}, "last": {"evaluation/gsm8k/accuracy": 0.6}},
        "seconds": {"rollout": 60.0, "train": 40.0},
        "tokens": 5000,
        "steps": 3,
    }
}


@pytest.fixture
def ready_file(config_file: Path) -> Path:
    """A config that passes every check on this machine."""
    folder = config_file.parent
    (folder / "train.jsonl").write_text('{"prompt": "1 + 1?", "answer": "2"}\n' * 16)
    config_file.write_text(
        config_file.read_text()
        .replace("train.jsonl", str(folder / "train.jsonl"))
        .replace("devices_per_node: 2", "devices_per_node: 1, device: cpu")
        + "\nrollout: {engine: {type: transformers}}\n"
    )
    return config_file


def ends(status: Any, seen: list[Plan]) -> Callable[..., RunResult]:
    """A run that ends at once: what is under test is what the command makes of its end."""

    def start(loaded: Any, *, plan: Plan, observer: Callable[[dict[str, Any]], None], **_: bool) -> RunResult:
        seen.append(plan)
        observer({"kind": "stage_started", "stage": "main", "step": 0, "total_steps": 3})
        cause = "out of memory" if status == "failed" else ""
        return RunResult(status, Path("runs") / loaded.config.run.name, cause, STAGES)

    return start


@pytest.mark.parametrize(("status", "code"), [("finished", 0), ("stopped", 3), ("failed", 1)])
def test_the_exit_code_says_how_it_ended(
    rlctl: Any, ready_file: Path, monkeypatch: pytest.MonkeyPatch, status: str, code: int
) -> None:
    seen: list[Plan] = []
    monkeypatch.setattr(runs, "start", ends(status, seen))
    shown = rlctl("launch", str(ready_file), "--name", "mine", "--json")
    assert shown.code == code, shown.err
    assert seen[0].run == "mine"
    found = json.loads(shown.out)
    assert (found["status"], found["folder"]) == (status, "runs/mine")
    assert found["stages"]["main"]["steps"] == 3
    assert "8 prompts x 4 responses = 32 responses ->" in shown.err
    assert "gsm8k accuracy 0.100 -> 0.600" in shown.err
    assert ("rlctl runs resume" in shown.err) is (status != "finished")
    assert ("out of memory" in shown.err) is (status == "failed")


def test_quiet_leaves_errors_and_the_end(rlctl: Any, ready_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "start", ends("finished", []))
    shown = rlctl("launch", str(ready_file), "--quiet")
    assert "= 32 responses" not in shown.err
    assert "main: 3 steps" not in shown.err
    assert "finished" in shown.err


def test_nothing_starts_where_a_check_fails(rlctl: Any, ready_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Plan] = []
    monkeypatch.setattr(runs, "start", ends("finished", seen))
    shown = rlctl("launch", str(ready_file), "--set", "data.train=[{path: no/such/file.jsonl}]")
    assert shown.code == 1
    assert "nothing was started" in shown.err
    assert seen == []


def test_files_are_looked_at_before_anything_starts_and_named_by_the_keys_of_the_file(
    rlctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Plan] = []
    monkeypatch.setattr(runs, "start", ends("finished", seen))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "train.jsonl").write_text('{"question": "1 + 1?"}\n')
    (tmp_path / "grpo.yaml").write_text(
        f"algorithm: {{adv_estimator: grpo}}\n"
        f"data: {{train_files: {tmp_path}/train.jsonl, prompt_key: prompt, train_batch_size: 1}}\n"
        f"actor_rollout_ref:\n  model:\n    path: {tmp_path}/model\n"
        "trainer: {n_gpus_per_node: 1, nnodes: 1, device: cpu}\n"
    )
    shown = rlctl("launch", str(tmp_path / "grpo.yaml"))
    assert (shown.code, seen) == (1, [])
    assert f"{tmp_path}/grpo.yaml:5" in shown.err
    assert "it has no weights" in shown.err
    assert "set actor_rollout_ref.model.path to a complete folder" in shown.err
    assert "data.prompt_key" in shown.err
    assert "has no column 'prompt'" in shown.err


@pytest.mark.parametrize(("flags", "code", "started"), [((), 0, 1), (("--strict",), 1, 0)])
def test_a_key_that_is_not_used_is_told_and_starts_nothing_where_strict(
    rlctl: Any, ready_file: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], code: int, started: int
) -> None:
    seen: list[Plan] = []
    monkeypatch.setattr(runs, "start", ends("finished", seen))
    shown = rlctl("launch", str(ready_file), "--set", "rollout.memory.enforce_eager=true", *flags)
    assert (shown.code, len(seen)) == (code, started), shown.err
    assert "warning: 'rollout.memory.enforce_eager': only vLLM and SGLang have this setting" in shown.err
    assert all(
        plan.stages[0].not_used == ("rollout.memory.enforce_eager: only vLLM and SGLang have this setting",)
        for plan in seen
    )


def test_a_saved_plan_is_executed_where_it_fits(rlctl: Any, ready_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Plan] = []
    monkeypatch.setattr(runs, "start", ends("finished", seen))
    plan = str(ready_file.with_name("plan.json"))
    assert rlctl("plan", str(ready_file), "--cluster", "local", "-o", plan, "--rows", "16").code == 0
    assert rlctl("launch", str(ready_file), "--plan", plan).code == 0
    assert len(seen) == 1
    refused = rlctl("launch", str(ready_file), "--plan", plan, "--set", "batch.prompts_per_step=4")
    assert refused.code == 1
    assert "stages[0].batch.prompts_per_step: planned 8, is 4" in refused.err
    assert len(seen) == 1


@pytest.mark.parametrize("name", ["", "..", "a/b"])
def test_a_name_that_is_no_folder_is_a_usage_error(rlctl: Any, ready_file: Path, name: str) -> None:
    assert rlctl("launch", str(ready_file), "--name", name).code == 2


def test_the_summary_has_shares_and_pace() -> None:
    assert summary.times(STAGES["main"]) == ("1m 40s", "50", "rollout 60%\ntrain 40%")
    assert summary.times({}) == ("-", "-", "-")


def test_trajectories_are_shown_with_what_is_trained_on_and_two_are_enough() -> None:
    detail = {"segments": [(False, "1+1=\n"), (True, "2")], "turn_rewards": [0.5], "stop": "done"}
    sample = {"prompt": "", "answer": None, "responses": ["2"] * 3, "rewards": [0.5] * 3, "details": [detail] * 3}
    found = try_out.sample_text(1, sample).splitlines()
    first = "response 1, reward 0.5, ended by done; > generated, trained on; | inserted, not trained on"
    assert found[:6] == ["--- 1 ---", first, "  | 1+1=", "  | ", "  > 2", "    reward 0.5"]
    assert found[-1] == "1 more: --json shows them"
