"""Adapters, and sequences over several workers, in the real loop: what a run learns, measures, stores and takes up again."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from rlctl.config import Config
from rlctl.planning.plan import make_plan
from rlctl.runtime.processes.group import Replicas
from tests.runtime.local import Seen, run_here

LORA = {"rank": 8, "alpha": 16.0}


def grpo(task: Any, folder: Path, *, steps: int, **changes: Any) -> Config:
    config: Config = task.config(
        folder,
        model={"path": str(task.folder / "model"), "lora": LORA},
        algorithm={"kl_in_loss": {"estimator": "k3", "coefficient": 0.001}},
        batch={
            "prompts_per_step": 16,
            "responses_per_prompt": 8,
            "mini_batch_responses": 64,
            "micro_batch": {"unit": "responses", "size": 64},
        },
        schedule={"total_steps": steps, "evaluate_every": 100},
        train={
            "precision": {"compute": "float32"},
            "memory": {"recompute_activations": False},
            "optimizer": {"lr": 1e-2},
        },
        checkpoint={"every": 100, "at_end": True},
        **changes,
    )
    return config


def steps_of(seen: Seen) -> list[dict[str, float]]:
    return [event["metrics"] for event in seen if event["kind"] == "step"]


def test_grpo_with_adapters_learns_and_measures_its_kl_to_the_base(task: Any, tmp_path: Path) -> None:
    config = grpo(task, tmp_path, steps=12)
    plan = make_plan(config).stages[0]
    assert plan.role("reference") is None
    assert any("the policy with its adapters disabled" in note for note in plan.notes)
    seen = run_here(config, tmp_path / "run")
    evaluated = [e["metrics"]["evaluation/addition/accuracy"] for e in seen if e["kind"] == "evaluation"]
    assert evaluated[0] < 0.2
    assert evaluated[-1] > 0.8
    steps = steps_of(seen)
    assert steps[0]["policy/kl_loss"] < 0.05 < steps[-1]["policy/kl_loss"]
    # what draws is what is trained: weights are merged for rollout
    assert max(abs(step["policy/mismatch_k3"]) for step in steps) < 1e-3
    [folder] = [Path(event["folder"]) for event in seen if event["kind"] == "checkpoint"]
    merged = AutoModelForCausalLM.from_pretrained(folder.parent / "hf")
    base = AutoModelForCausalLM.from_pretrained(task.folder / "model")
    tokens = torch.arange(3, 9)[None]
    plain = base(tokens).logits
    for place in (folder / "adapter", folder.parent / "hf" / "adapter"):
        found = PeftModel.from_pretrained(base, place)(tokens).logits
        torch.testing.assert_close(found, merged(tokens).logits, rtol=1e-3, atol=1e-4)
        assert not torch.allclose(found, plain, atol=1e-2)


def test_a_run_with_adapters_goes_on_where_it_was(task: Any, tmp_path: Path) -> None:
    """In the same bits."""
    straight = steps_of(run_here(grpo(task, tmp_path, steps=3), tmp_path / "straight"))
    run_here(grpo(task, tmp_path, steps=2), tmp_path / "again")
    [later] = steps_of(run_here(grpo(task, tmp_path, steps=3), tmp_path / "again"))
    assert policy(later) == policy(straight[2])


def policy(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name.startswith("policy/")}


class Recording:
    """A group that says what each of its workers was called with."""

    names = ("a", "b", "c", "d")
    turn = nullcontext()

    def __len__(self) -> int:
        return 4

    def each(self, method: Any, arguments: Any) -> list[Any]:
        return [(name, *given) for name, given in zip(self.names, arguments, strict=True)]

    def all(self, method: Any, *args: Any) -> list[Any]:
        return [(name, *args) for name in self.names]

    fetch = all

    def close(self) -> None: ...


def test_workers_that_share_sequences_are_one_to_the_controller() -> None:
    pairs = Replicas(Recording(), [[0, 1], [2, 3]])
    assert len(pairs) == 2
    assert list(pairs.names) == ["a", "c"]
    assert pairs.each(len, [(1,), (2,)]) == [("a", 1), ("c", 2)]
    assert pairs.all(len, 7) == pairs.fetch(len, 7) == [("a", 7), ("c", 7)]
    with pytest.raises(ValueError, match="argument"):
        pairs.each(len, [(1,)])
