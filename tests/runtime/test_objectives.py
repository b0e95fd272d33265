"""Preference pairs, expert responses and teachers in the real loop: what a run of a few steps does and tells."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoConfig, AutoModelForCausalLM

from rlctl.config import config_from, stages_of, to_plain
from rlctl.config.fields import Interval
from rlctl.planning.plan import make_plan
from tests.runtime.local import Seen, run_here
from tests.runtime.told import OF_THE_MACHINE

MIX = {"type": "mix", "mu": 0.5, "expert_share": 0.25}


@pytest.fixture(scope="module")
def rows(task: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs and expert responses of the tiny task, to begin a response with 1, as files."""
    folder = tmp_path_factory.mktemp("rows")
    prompts = Dataset.from_parquet(str(task.folder / "train.parquet"), cache_dir=str(folder))["prompt"]
    answers = [
        [{"role": "assistant", "content": text} for text in (f"1{i % 10}", f"{2 + i % 8}{i % 7}")] for i in range(64)
    ]
    pairs = [{"prompt": p, "chosen": [a[0]], "rejected": [a[1]]} for p, a in zip(prompts, answers, strict=True)]
    experts = [{"messages": [*p, a[0]]} for p, a in zip(prompts, answers, strict=True)]
    Dataset.from_list(pairs).to_parquet(folder / "pairs.parquet")
    Dataset.from_list(experts).to_parquet(folder / "experts.parquet")
    return folder


def dpo(task: Any, rows: Path, folder: Path, *, steps: int, **algorithm: Any) -> Any:
    return task.config(
        folder,
        objective="sft",
        data={
            "train": [{"path": str(rows / "pairs.parquet")}],
            "eval": [{"path": str(task.folder / "test.parquet"), "name": "addition"}],
            "max_sequence_tokens": 32,
        },
        rollout={"max_response_tokens": 4, "precision": "float32"},
        rewards=[task.reward()],
        algorithm={"objective": {"type": "dpo", "beta": 0.3}, **algorithm},
        batch={"prompts_per_step": 16, "mini_batch_responses": 8},
        schedule={"total_steps": steps, "evaluate_every": 100},
        checkpoint={"every": None, "export": "never", "at_end": False},
    )


def mix(task: Any, rows: Path, folder: Path, *, steps: int, **algorithm: Any) -> Any:
    return task.config(
        folder,
        algorithm={"objective": MIX, **algorithm},
        buffer={
            "type": "memory",
            "auxiliary": {"sft_dataset": {"path": str(rows / "experts.parquet"), "messages_key": "messages"}},
        },
        batch={"prompts_per_step": 6, "responses_per_prompt": 4, "mini_batch_responses": 16},
        schedule={"total_steps": steps, "evaluate_every": 100},
        checkpoint={"every": None, "export": "never", "at_end": False},
    )


@pytest.fixture(scope="module")
def teacher(task: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of the same kind with other weights, larger ones, so that it is a little surer of what it says."""
    folder = tmp_path_factory.mktemp("teacher")
    config = AutoConfig.from_pretrained(task.folder / "model")
    config.initializer_range = 0.1
    torch.manual_seed(5)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return str(folder)


def steps_of(seen: Seen) -> list[dict[str, float]]:
    return [event["metrics"] for event in seen if event["kind"] == "step"]


def accuracies(seen: Seen) -> tuple[float, float]:
    """Before and after training, of greedy answers to held-out prompts."""
    found = [event["metrics"]["evaluation/addition/accuracy"] for event in seen if event["kind"] == "evaluation"]
    return found[0], found[-1]


def test_dpo_learns_which_of_two_responses_is_better(task: Any, rows: Path, tmp_path: Path) -> None:
    seen = run_here(dpo(task, rows, tmp_path, steps=6), tmp_path / "run")
    steps = steps_of(seen)
    assert steps[-1]["policy/accuracy"] > 0.9
    assert steps[-1]["policy/dpo_loss"] < steps[0]["policy/dpo_loss"] < 0.7
    assert steps[-1]["policy/margin"] == pytest.approx(
        steps[-1]["policy/chosen_reward"] - steps[-1]["policy/rejected_reward"]
    )
    before, after = accuracies(seen)
    assert before < 0.2
    assert after > 0.8
    (shown,) = [event["samples"] for event in seen if event["kind"] == "samples"]
    assert shown[0]["chosen"].startswith("1")


def test_mix_learns_from_experts_while_it_rolls_out(task: Any, rows: Path, tmp_path: Path) -> None:
    seen = run_here(mix(task, rows, tmp_path, steps=5, kl_in_loss={"estimator": "k2"}), tmp_path / "run")
    steps = steps_of(seen)
    assert all(step["policy/mu"] == pytest.approx(0.5) for step in steps)
    assert steps[-1]["policy/expert_loss"] < steps[0]["policy/expert_loss"]
    assert steps[-1]["policy/kl_loss"] > 0
    before, after = accuracies(seen)
    assert before < 0.2
    assert after > 0.8


def on_policy(task: Any, teacher: str, folder: Path, *, steps: int, rate: float = 1e-3, **distillation: Any) -> Any:
    return task.config(
        folder,
        train={"precision": {"compute": "float32"}, "optimizer": {"lr": rate}},
        algorithm={"distillation": {"teacher": teacher, **distillation}},
        batch={"prompts_per_step": 16, "responses_per_prompt": 2},
        schedule={"total_steps": steps, "evaluate_every": None, "evaluate_at_start": False},
        checkpoint={"every": None, "export": "never", "at_end": False},
    )


def test_a_teachers_distributions_are_learnt_on_the_policys_own_responses(
    task: Any, teacher: str, tmp_path: Path
) -> None:
    wanted = on_policy(task, teacher, tmp_path, steps=5, loss="forward_kl", top_k=8, args={"with_rewards": False})
    told = [step["policy/divergence"] for step in steps_of(run_here(wanted, tmp_path / "run"))]
    assert told[-1] < 0.95 * told[0]


@pytest.mark.soak
def test_a_teacher_in_the_advantages_is_learnt_from(task: Any, teacher: str, tmp_path: Path) -> None:
    """A drawn token says little: many steps, and means over them."""
    args = {"policy_gradient": True, "with_rewards": False}
    wanted = on_policy(task, teacher, tmp_path, steps=60, rate=5e-3, loss="reverse_kl", args=args)
    told = [step["distillation/divergence"] for step in steps_of(run_here(wanted, tmp_path / "run"))]
    assert sum(told[-10:]) < 0.9 * sum(told[:10])


def test_the_estimate_from_drawn_tokens_is_a_loss_of_its_own(task: Any, teacher: str, tmp_path: Path) -> None:
    """The policy's workers are asked for the teacher's log-probs before the step: k2 is half the square of their distance."""
    args = {"with_rewards": False, "estimator": "k2", "distillation_loss.loss_max_clamp": 1000.0}
    wanted = on_policy(task, teacher, tmp_path, steps=1, loss="reverse_kl", args=args)
    (step,) = steps_of(run_here(wanted, tmp_path / "run"))
    assert step["policy/divergence"] == pytest.approx(step["policy/loss"])
    assert 0.05 < step["policy/divergence"] < 5
    assert "policy/policy_loss" not in step


def test_a_teacher_is_learnt_from_beside_the_data_sets_answers(task: Any, teacher: str, tmp_path: Path) -> None:
    wanted = task.config(
        tmp_path,
        objective="sft",
        algorithm={
            "objective": "sft",
            "distillation": {
                "teacher": teacher, "loss": "forward_kl", "coefficient": 0.9, "args": {"distill_on_prompt": True}
            },
        },
        schedule={"total_steps": 4},
        checkpoint={"every": None, "export": "never", "at_end": False},
    )  # fmt: skip
    seen = run_here(wanted, tmp_path / "run")
    steps = steps_of(seen)
    assert steps[-1]["policy/divergence"] < 0.95 * steps[0]["policy/divergence"]
    (shown,) = [event["samples"] for event in seen if event["kind"] == "samples"]
    assert len(shown[0]["trained_on"]) > len("<assistant>") + 8  # the prompt too


def test_the_full_kl_to_the_reference_needs_no_workers_of_its_own(task: Any, tmp_path: Path) -> None:
    wanted = task.config(
        tmp_path,
        algorithm={"kl_in_loss": {"estimator": "full", "coefficient": 0.05}},
        schedule={"total_steps": 2, "evaluate_every": None, "evaluate_at_start": False},
        checkpoint={"every": None, "export": "never", "at_end": False},
    )
    steps = steps_of(run_here(wanted, tmp_path / "run"))
    assert steps[0]["policy/kl_loss"] == pytest.approx(0, abs=1e-6)
    assert steps[1]["policy/kl_loss"] > 1e-5


def test_the_full_kl_in_the_reward_is_the_one_that_the_loss_measures(task: Any, tmp_path: Path) -> None:
    """Both at the weights of a step's start: the update of a single optimizer step has moved nothing before it measures."""
    whole = {"estimator": "full", "coefficient": 0.05}
    wanted = task.config(
        tmp_path,
        algorithm={
            "kl_in_reward": whole,
            "kl_in_loss": whole,
            "loss_aggregation": {"mode": "seq_mean_token_mean"},
            "train_temperature": "one",
        },
        schedule={"total_steps": 3, "evaluate_every": None, "evaluate_at_start": False},
        checkpoint={"every": None, "export": "never", "at_end": False},
    )
    assert make_plan(wanted).stages[0].role("reference") is None
    steps = steps_of(run_here(wanted, tmp_path / "run"))
    assert steps[0]["reward/kl"] == pytest.approx(0, abs=1e-6)
    assert steps[2]["reward/kl"] > 1e-5
    for step in steps:
        assert step["reward/kl"] == pytest.approx(step["policy/kl_loss"], rel=1e-4, abs=1e-7)
    assert steps[2]["reward/kl_coefficient"] == 0.05


def test_stages_of_every_objective_inherit_what_they_do_not_set(task: Any, rows: Path, tmp_path: Path) -> None:
    """sft, then dpo from its weights, then mix from these: each with its own objective and data, and the rest in common."""
    base = to_plain(mix(task, rows, tmp_path, steps=7))
    base["stages"] = [
        {
            "name": "sft",
            "algorithm": {"objective": "sft"},
            "data": {"max_sequence_tokens": 32},
            "buffer": {"auxiliary": {}},
        },
        {"name": "dpo", "algorithm": {"objective": {"type": "dpo", "beta": 0.3}}, "buffer": {"auxiliary": {}}},
        {"name": "mix", "schedule": {"total_steps": 2}},
    ]
    config = config_from(base)
    stages, plans = stages_of(config), make_plan(config).stages
    assert [stage.config.algorithm.objective.choice for stage in stages] == ["sft", "dpo", "mix"]
    assert [stage.config.schedule.total_steps for stage in stages] == [7, 7, 2]
    assert {stage.config.train.optimizer.lr for stage in stages} == {1e-3}
    assert getattr(stages[1].config.algorithm.objective, "beta", None) == 0.3
    assert getattr(stages[2].config.algorithm.objective, "expert_share", None) == MIX["expert_share"]
    assert [plan.role("reference") is not None for plan in plans] == [False, True, False]
    assert [plan.batch.responses_per_step for plan in plans] == [6, 6, 32]
    assert [plan.continues for plan in plans] == [False, True, True]


@pytest.mark.parametrize("make", [dpo, mix], ids=["dpo", "mix"])
def test_a_run_that_is_resumed_goes_on_as_the_one_that_was_not(
    make: Callable[..., Any], task: Any, rows: Path, tmp_path: Path
) -> None:
    def config(name: str, steps: int) -> Any:
        made = make(task, rows, tmp_path / name, steps=steps)
        kept = dataclasses.replace(made.checkpoint, every=Interval(steps=1), at_end=True)
        schedule = dataclasses.replace(made.schedule, evaluate_every=None, evaluate_at_start=False)
        return dataclasses.replace(made, checkpoint=kept, schedule=schedule)

    whole = steps_of(run_here(config("whole", 3), tmp_path / "whole"))
    run_here(config("cut", 2), tmp_path / "cut")
    (resumed,) = steps_of(run_here(config("cut", 3), tmp_path / "cut"))
    told = {name: value for name, value in whole[-1].items() if not name.startswith(OF_THE_MACHINE)}
    assert {name: resumed[name] for name in told} == told
