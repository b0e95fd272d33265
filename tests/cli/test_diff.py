"""Differences in meaning: the same said in another way is none, and everything else is told with both places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlctl.config import Loaded, load
from rlctl.documents import read_yaml
from rlctl.translation.difference import differences
from rlctl.translation.translate import read_document

BASE = """
data: {train_files: a.parquet, train_batch_size: 64}
actor_rollout_ref: {model: {path: org/model}, actor: {ppo_mini_batch_size: 16}, rollout: {n: 8}}
algorithm: {adv_estimator: grpo}
trainer: {n_gpus_per_node: 8, total_training_steps: 5}
"""


def _verl(*overrides: str, text: str = BASE, name: str = "a.yaml") -> Loaded:
    loaded, report = read_document(read_yaml(text, name), dialect="verl", overrides=overrides, environment={})
    assert loaded is not None, report.errors
    return loaded


def _canonical(text: str) -> Loaded:
    loaded, report = load(read_yaml("rlctl: 1\nmodel: {path: m}\n" + text, "run.yaml"), environment={})
    assert loaded is not None, report.errors
    return loaded


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("batch: {prompts_per_step: 8, responses_per_prompt: 4}", "batch: {prompts_per_step: 8, responses_per_prompt: 4, mini_batch_responses: 32}"),
        (
            "batch: {prompts_per_step: 8, mini_batch_responses: 2}\nschedule: {evaluate_every: 5}",
            "batch: {prompts_per_step: 8, mini_batch_responses: 2}\nschedule: {evaluate_every: {optimizer_steps: 20}}",
        ),
        ("algorithm: {kl_in_loss: null}", "algorithm: {kl_in_loss: {coefficient: 0.0, estimator: k2}}"),
        ("run: {seed: 1}", "run:\n  seed: 1  # said otherwise\n"),
        ("train: {optimizer: {lr: 1e-6}}", "train: {optimizer: {lr: 0.000001}}"),
    ],
)  # fmt: skip
def test_the_same_said_otherwise_is_no_difference(one: str, other: str) -> None:
    assert differences(_canonical(one), _canonical(other)) == []


def test_a_default_that_is_written_out_is_no_difference() -> None:
    assert differences(_verl(), _verl("actor_rollout_ref.actor.ppo_epochs=1", "data.shuffle=True")) == []


def test_both_sides_say_their_own_key_and_place() -> None:
    (found,) = differences(_verl(), _verl("actor_rollout_ref.actor.optim.lr=2e-6"))
    assert (found.key, found.section) == ("train.optimizer.lr", "train")
    assert (found.first.value, found.first.default) == (1e-6, True)
    assert (found.second.value, found.second.key, found.second.file) == (
        2e-6,
        "actor_rollout_ref.actor.optim.lr",
        "command line",
    )
    (group,) = differences(
        _verl(), _verl(text=BASE.replace("train_batch_size: 64", "train_batch_size: 32"), name="b.yaml")
    )
    assert (group.first.file, group.first.line, group.second.file, group.second.line) == ("a.yaml", 2, "b.yaml", 2)


def test_a_value_of_the_environment_is_shown_as_its_expression(
    rlctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACE", "/private/place")
    (tmp_path / "a.yaml").write_text("rlctl: 1\nrun: {name: '${oc.env:PLACE}'}\nmodel: {path: '${run.name}/m'}\n")
    (tmp_path / "b.yaml").write_text("rlctl: 1\nrun: {name: b}\nmodel: {path: b}\n")
    for form in ([], ["--json"]):
        shown = rlctl("diff", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"), *form)
        assert "${oc.env:PLACE}" in shown.out
        assert "${run.name}/m" in shown.out
        assert "private" not in shown.out + shown.err


def test_another_option_is_one_difference_and_not_one_for_each_of_its_keys() -> None:
    found = differences(_verl(), _verl("algorithm.adv_estimator=gae"))
    assert [item.key for item in found if item.section == "algorithm"] == ["algorithm.advantage"]
    assert not any(item.key.startswith("critic.") for item in found)


def test_keys_without_a_canonical_meaning_count_between_two_of_one_dialect() -> None:
    other = _verl("trainer.esi_redundant_time=60")
    assert differences(_verl(), other) == []
    (found,) = differences(_verl(), other, extensions="verl")
    assert (found.first.value, found.second.value) == (None, 60)


def test_stages_are_compared_one_by_one() -> None:
    two = "stages: [{name: a}, {name: b, batch: {prompts_per_step: 4}}]"
    assert differences(_canonical(two), _canonical(two)) == []
    (found,) = differences(_canonical(two), _canonical(two.replace("4", "2")))
    assert found.key == "stages[1].batch.prompts_per_step"
    (found,) = differences(_canonical(two), _canonical(""))
    assert found.key == "stages"


def test_the_command_tells_equal_from_different(rlctl: Any, tmp_path: Path) -> None:
    one, other = tmp_path / "a.yaml", tmp_path / "b.yaml"
    one.write_text(BASE)
    other.write_text(BASE.replace("n: 8", "n: 4"))
    same = rlctl("diff", str(one), str(one))
    assert (same.code, same.out) == (0, "")
    assert "no difference in meaning" in same.err
    shown = rlctl("diff", str(one), str(other))
    assert shown.code == 3
    assert "line 3 actor_rollout_ref.rollout.n" in shown.out
    assert rlctl("diff", str(one), str(other), "--json").out.startswith("{")
    assert rlctl("diff", str(one), str(tmp_path / "none.yaml")).code == 1


def test_values_kept_in_comments_are_not_compared(rlctl: Any, tmp_path: Path) -> None:
    """verl has no separate bounds in the advantage, so a run of the written file differs, whatever its comments say."""
    first, second = tmp_path / "rlctl.yaml", tmp_path / "verl.yaml"
    first.write_text(
        "rlctl: 1\nmodel: {path: a/b}\ndata: {train: [{path: t.parquet}]}\n"
        "algorithm: {reward_shaping: {clip: 5}}\nrewards: [{type: rule}]\nschedule: {total_epochs: 1}\n"
    )
    rlctl("convert", str(first), "--to", "verl", "-o", str(second))
    assert "# rlctl" in second.read_text()
    found = rlctl("diff", str(first), str(second), "--json")
    assert "algorithm.reward_shaping.clip" in {item["key"] for item in json.loads(found.out)["differences"]}
