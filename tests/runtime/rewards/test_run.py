"""A run whose responses are scored by a function that breaks on some, a reward model and two judges at once: one is asked over
HTTP, the other served by the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runtime.rewards.servers import completion, serve
from tests.runtime.workers.speaking import save_speaker

GREEDY = {"sampling": {"temperature": 0.0, "max_tokens": 8}}
pytestmark = pytest.mark.ray

BREAKS = """
def reward(response, answer):
    if sum(map(ord, response)) % 2:
        raise ValueError("odd")
    return 0.25
"""


def test_all_kinds_of_rewards_in_one_run(task: Any, run: Callable[..., Any], tmp_path: Path) -> None:
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(task.folder / "model")
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Qwen2Config(
        **shape, num_key_value_heads=2, num_labels=1, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id
    )
    Qwen2ForSequenceClassification(config).save_pretrained(tmp_path / "rm")
    tokenizer.save_pretrained(tmp_path / "rm")
    own = save_speaker(tmp_path / "own", "+YES")
    (tmp_path / "breaks.py").write_text(BREAKS)
    with serve(lambda body: (200, completion("Score: 6"))) as judge:
        rewards = [
            {"type": "function", "name": "mine", "path": str(tmp_path / "breaks.py"), "function": "reward"},
            {"type": "model", "name": "rm", "path": str(tmp_path / "rm"), "weight": 0.5},
            {"type": "judge", "name": "judge", "base_url": f"{judge.url}/v1", "model": "big", "weight": 2.0},
            {"type": "judge", "name": "own", "model": own, "scoring": "yes_no", "prompt": "{response}+", **GREEDY},
        ]
        schedule = {"total_steps": 1, "evaluate_at_start": False}
        done = run(task.config(tmp_path / "runs", rewards=rewards, schedule=schedule))
    assert done.result.status == "finished", done.result.cause
    metrics = done.numbers[("main step", 1)]
    assert metrics["reward/judge"] == pytest.approx(0.6)
    assert 0.0 < metrics["reward/mine"] < 0.25
    share = metrics["reward/failed_share"]
    assert metrics["reward/mine"] == pytest.approx(0.25 * (1 - share))
    assert metrics["reward/own"] == 1.0
    total = 1.0 + metrics["reward/mine"] + 0.5 * metrics["reward/rm"] + 2.0 * metrics["reward/judge"]
    assert metrics["reward/mean"] == pytest.approx(total, abs=1e-6)
    assert metrics["reward/rm"] != 0.0
    told = [event["message"] for event in done.kinds("advisory") if "not scored" in event["message"]]
    assert told[0].startswith(
        f"{round(share * 16)} of 16 responses were not scored by every reward; the first: mine: Traceback"
    )
    assert "ValueError: odd" in told[0]
