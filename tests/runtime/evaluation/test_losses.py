"""The loss of sft on held-out answers is Transformers' own, and only sft measures it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM

from rlctl.checks import check
from rlctl.common.errors import RunError
from rlctl.planning import arithmetic
from rlctl.planning.plan import make_plan
from rlctl.runtime.data.tokenizer import load_tokenizer
from rlctl.runtime.evaluation.losses import HeldOutAnswers, HeldOutLosses
from rlctl.runtime.roles import Policy
from rlctl.runtime.types import Sample
from tests.runtime.local import run_here


def taught(task: Any, folder: Path, **data: Any) -> Any:
    held_out = {"path": str(task.folder / "sft.parquet"), "name": "held-out", "max_samples": 7, **data}
    train = {"path": str(task.folder / "sft.parquet"), "messages_key": "messages"}
    return task.config(
        folder,
        objective="sft",
        data={"train": [train], "eval": [held_out]},
        schedule={"total_steps": 4, "evaluate_every": 2, "evaluate_at_start": True},
        checkpoint={"every": None, "export": "never", "at_end": False},
    )


def test_the_loss_on_held_out_answers_is_that_of_transformers(task: Any, tmp_path: Path) -> None:
    config = taught(task, tmp_path, messages_key="messages")
    assert not arithmetic.needs_rollout(config)
    assert {role.role for role in make_plan(config).stages[0].roles} == {"policy"}
    seen = run_here(config, tmp_path / "run")
    found = [event["metrics"] for event in seen if event["kind"] == "evaluation"]
    assert [set(each) for each in found] == [{"evaluation/held-out/loss"}] * 3
    before, *_, after = [each["evaluation/held-out/loss"] for each in found]
    assert after < before
    assert before == pytest.approx(by_transformers(task, tmp_path), rel=1e-5)


def by_transformers(task: Any, folder: Path) -> float:
    """The mean over all assistant tokens, of the untrained model, with the labels set by hand."""
    model = AutoModelForCausalLM.from_pretrained(task.folder / "model", dtype=torch.float32).eval()
    tokenizer = load_tokenizer(taught(task, folder).model)
    rows = Dataset.from_parquet(str(task.folder / "sft.parquet"), cache_dir=str(folder)).select(range(7))
    total, count = 0.0, 0
    for messages in rows["messages"]:
        prompt = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True, tokenize=False)
        answer = [*tokenizer(messages[-1]["content"], add_special_tokens=False).input_ids, tokenizer.eos_token_id]
        before = tokenizer(prompt, add_special_tokens=False).input_ids
        ids = torch.tensor([[*before, *answer]])
        labels = torch.tensor([[-100] * len(before) + answer])
        with torch.no_grad():
            total += float(model(ids, labels=labels).loss) * len(answer)
        count += len(answer)
    return total / count


def test_a_column_of_answers_does_as_well_as_one_of_conversations(task: Any, tmp_path: Path) -> None:
    rows = Dataset.from_parquet(str(task.folder / "sft.parquet"), cache_dir=str(tmp_path))
    apart = [{"prompt": each[:-1], "said": each[-1]["content"]} for each in rows["messages"]]
    Dataset.from_list(apart).to_parquet(tmp_path / "apart.parquet")
    told = []
    for name, data in (
        ("whole", {"messages_key": "messages"}),
        ("apart", {"path": str(tmp_path / "apart.parquet"), "response_key": "said"}),
    ):
        seen = run_here(taught(task, tmp_path / name, **data), tmp_path / name / "run")
        told.append([event["metrics"] for event in seen if event["kind"] == "evaluation"])
    assert told[0] == told[1]


def test_answers_that_truncation_leaves_nothing_of_are_refused() -> None:
    """Their loss would be 0 over no tokens."""
    cut = Sample(torch.tensor([1, 2]), torch.tensor([False, False]))
    policy = SimpleNamespace(log_probs=lambda samples: [torch.zeros(2) for _ in samples])
    with pytest.raises(RunError, match="dataset 'cut': no answer has a token"):
        HeldOutLosses([HeldOutAnswers("cut", [cut])], cast(Policy, policy), 8).run()


def test_a_run_that_samples_refuses_held_out_conversations(task: Any, tmp_path: Path) -> None:
    held_out = {"path": str(task.folder / "sft.parquet"), "messages_key": "messages"}
    found = check(task.config(tmp_path, data={"eval": [held_out]}))
    assert [each.key for each in found if each.code == "not-supported"] == ["data.eval[0].messages_key"]
    assert not [each for each in check(taught(task, tmp_path, messages_key="messages")) if each.level == "error"]
