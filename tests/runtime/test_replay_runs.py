"""A run whose model has experts: with ``algorithm.router_replay`` its updates go to those of the pass before them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3MoeConfig

from rlctl.common.errors import PlanError
from tests.runtime.conftest import Task
from tests.runtime.local import run_here


@pytest.fixture(scope="module")
def with_experts(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with experts, and the task's tokenizer."""
    folder = tmp_path_factory.mktemp("experts")
    tokenizer = AutoTokenizer.from_pretrained(task.folder / "model")
    torch.manual_seed(3)
    config = Qwen3MoeConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, moe_intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_experts=8, num_experts_per_tok=2, norm_topk_prob=True,
        max_position_embeddings=64, initializer_range=0.3, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def steps(task: Task, model: Path, folder: Path, mode: str) -> list[dict[str, float]]:
    """The metrics of two steps of two updates each, at a learning rate that moves routers."""
    changes: dict[str, Any] = {
        "model": {"path": str(model)},
        "algorithm": {"router_replay": mode, "entropy_coefficient": 0.5},  # no response of a random model has a reward
        "batch": {"mini_batch_responses": 8},
        "schedule": {"total_steps": 2, "evaluate_every": None},
        "train": {"optimizer": {"lr": 0.03}},
        "checkpoint": {"at_end": False, "every": None, "export": "never"},
    }
    seen = run_here(task.config(folder, **changes), folder / mode)
    return [event["metrics"] for event in seen if event["kind"] == "step"]


@pytest.mark.soak
def test_a_run_replays_what_its_own_pass_recorded(task: Task, with_experts: Path, tmp_path: Path) -> None:
    """It draws the same as one without; the second update has another gradient, as it goes to the experts of before."""
    off, on = (steps(task, with_experts, tmp_path, mode) for mode in ("off", "recompute"))
    assert len(on) == len(off) == 2
    assert on[0]["reward/mean"] == off[0]["reward/mean"]
    assert on[0]["policy/grad_norm"] != off[0]["policy/grad_norm"], "the second update goes to the experts of before"
    assert on[0]["policy/grad_norm"] == pytest.approx(off[0]["policy/grad_norm"], rel=0.5)


def test_a_run_replays_what_the_rollout_engine_chose(task: Task, with_experts: Path, tmp_path: Path) -> None:
    """The engine chooses as the trainer's own pass over the same weights does, so both runs take the same steps."""
    recorded, routed = (steps(task, with_experts, tmp_path, mode) for mode in ("recompute", "rollout"))
    assert len(routed) == len(recorded) == 2
    for mine, theirs in zip(routed, recorded, strict=True):
        for name in ("reward/mean", "policy/grad_norm", "policy/loss"):
            assert mine[name] == pytest.approx(theirs[name], rel=1e-4, abs=1e-6), name


def test_a_model_without_experts_is_refused_before_a_worker_starts(task: Task, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="the fsdp2 engine supports it only for"):
        run_here(task.config(tmp_path, algorithm={"router_replay": "recompute"}), tmp_path / "run")
