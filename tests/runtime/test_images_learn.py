"""Runs on prompts with images, in this process: GRPO teaches a tiny model to name a colour, and everything goes on from there."""

from __future__ import annotations

import io
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from PIL import Image
from transformers import AutoModelForImageTextToText

from rlctl.common.errors import PlanError, RunError
from rlctl.config import Config, config_from
from rlctl.runtime.agents import kinds
from rlctl.runtime.agents.families import Parsed, ToolCall
from tests.runtime import images
from tests.runtime.images import make_vision_model
from tests.runtime.local import Seen, run_here

REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return float(solution_str[:1] == ground_truth)
"""
COLOURS = {"r": (255, 0, 0), "g": (0, 255, 0)}


def png(colour: tuple[int, int, int], size: tuple[int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, "png")
    return file.getvalue()


def rows(count: int, objective: str = "rl") -> list[dict[str, Any]]:
    """Questions whose answer is in the image alone."""
    made = []
    for index in range(count):
        name, colour = list(COLOURS.items())[index % len(COLOURS)]
        row = {"prompt": "<image>colour?", "images": [{"bytes": png(colour, (8 + 8 * (index % 3), 8)), "path": None}]}
        made.append(row | ({"answer": name} if objective == "rl" else {"response": name}))
    return made


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vision_model(tmp_path_factory.mktemp("model"), "qwen2_5_vl", seed=1, initializer_range=0.05)


def config(path: Path, folder: Path, *, steps: int, objective: str = "rl", **changes: dict[str, Any]) -> Config:
    (folder / "reward.py").write_text(REWARD)
    Dataset.from_list(rows(12, objective)).to_parquet(folder / "train.parquet")
    source = {"path": str(folder / "train.parquet"), "image_key": "images"}
    plain: dict[str, Any] = {
        "run": {"name": "demo", "folder": str(folder / "runs"), "seed": 5},
        "model": {"path": str(path), "modality": "vision"},
        "placement": {"devices_per_node": 1, "device": "cpu"},
        "data": {"train": [source], "max_prompt_tokens": 32},
        "batch": {"prompts_per_step": 4, "responses_per_prompt": 8, "micro_batch": {"unit": "tokens", "size": 400}},
        "schedule": {"total_steps": steps, "evaluate_at_start": False},
        "algorithm": {"objective": objective},
        "checkpoint": {"every": steps, "export": "last"},
        "rollout": {"max_response_tokens": 1, "precision": "float32"},
        "train": {
            "precision": {"compute": "float32"},
            "memory": {"recompute_activations": False},
            "optimizer": {"lr": 3e-3},
        },
    }
    if objective == "rl":
        plain["rewards"] = [{"type": "function", "path": str(folder / "reward.py"), "workers": 1}]
    else:
        plain["batch"] = {"prompts_per_step": 6, "micro_batch": {"unit": "responses", "size": 4}}
    for section, values in changes.items():
        plain[section] = {**plain.get(section, {}), **values}
    return config_from(plain)


def steps_of(seen: Seen) -> list[dict[str, float]]:
    return [event["metrics"] for event in seen if event["kind"] == "step"]


def test_steps_with_images_compare_rollout_and_training_and_leave_a_whole_model(model: Path, tmp_path: Path) -> None:
    algorithm = {"kl_in_loss": {"estimator": "k3", "coefficient": 0.1}}
    two = config(model, tmp_path, steps=2, algorithm=algorithm, batch={"mini_batch_responses": 16})
    seen = steps_of(run_here(two, tmp_path / "run"))
    assert len(seen) == 2
    for metrics in seen:
        assert abs(metrics["policy/mismatch_kl"]) < 1e-4
        assert metrics["policy/grad_norm"] > 0
        assert metrics["policy/kl_loss"] >= 0
    exported = AutoModelForImageTextToText.from_pretrained(next((tmp_path / "run").rglob("hf")))
    before = AutoModelForImageTextToText.from_pretrained(model)
    towers = zip(exported.model.visual.parameters(), before.model.visual.parameters(), strict=True)
    assert any(not torch.equal(one, other) for one, other in towers), "the vision tower was not trained"


LOOKS = """
def look(place: str) -> str:
    '''Look closer.

    Args:
        place: Where.
    '''
    return "a" + place
"""
CALLS = (
    "{% for call in m.tool_calls or [] %}<tool_call>{{ {'name': call.function.name, 'arguments': call.function.arguments}"
    " | tojson }}</tool_call>{% endfor %}{% if m['role'] == 'assistant' %}"
)


def test_every_turn_of_a_tools_agent_reads_the_images_of_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an untrained model says is taken for a call, so that it has a second turn; training finds its log-probs."""
    monkeypatch.setattr(images, "CHARACTERS", images.CHARACTERS + '{}":,/[]\n')
    (tmp_path / "looks.py").write_text(LOOKS)
    agent = {
        "type": "tools",
        "name": "looker",
        "tools": [{"type": "python", "path": str(tmp_path / "looks.py"), "name": "look", "trusted": True}],
        "tool_format": "hermes",
        "max_turns": 3,
    }
    wanted = config(
        images.make_vision_model(tmp_path / "model", "qwen2_5_vl", seed=1, initializer_range=0.05),
        tmp_path,
        steps=1,
        model={"chat_template": images.CHAT_TEMPLATE.replace("{% if m['role'] == 'assistant' %}", CALLS)},
        rollout={"max_response_tokens": 80, "default_agent": "looker", "agents": [agent]},
        batch={"prompts_per_step": 2, "micro_batch": {"unit": "responses", "size": 4}},
    )
    monkeypatch.setattr(kinds, "parse", lambda text, *_: Parsed(text, [ToolCall("look", {"place": "b"})]))
    seen = run_here(wanted, tmp_path / "run")
    assert not [event for event in seen if event["kind"] == "failure"]
    (step,) = steps_of(seen)
    assert step["agent/turns"] > 1.2
    assert step["agent/inserted_tokens"] > 0
    assert abs(step["policy/mismatch_kl"]) < 1e-4


@pytest.mark.soak
def test_grpo_learns_to_name_a_colour(model: Path, tmp_path: Path) -> None:
    seen = steps_of(run_here(config(model, tmp_path, steps=40), tmp_path / "run"))
    rewards = [metrics["reward/mean"] for metrics in seen]
    assert statistics.fmean(rewards[:3]) < 0.4
    assert statistics.fmean(rewards[-5:]) > 0.9


@pytest.mark.soak
def test_sft_learns_to_name_a_colour(model: Path, tmp_path: Path) -> None:
    seen = steps_of(run_here(config(model, tmp_path, steps=20, objective="sft"), tmp_path / "run"))
    assert seen[-1]["policy/loss"] < 0.2 * seen[0]["policy/loss"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {
                "train": {"engine": {"type": "fsdp2", "ulysses_sequence_parallel_size": 2}},
                "placement": {"devices_per_node": 2},
            },
            "do not share its images",
        ),
        ({"algorithm": {"advantage": "gae"}, "critic": {}}, "there is no critic that reads images"),
        ({"model": {"modality": "text"}}, r"train.parquet has the column 'images' .* but model.modality is text"),
    ],
)
def test_what_reads_no_images_is_refused_before_the_run(
    changes: dict[str, Any], message: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises((PlanError, RunError), match=message):
        run_here(config(model, tmp_path, steps=1, **changes), tmp_path / "run")
