"""Samples are read when they are looked at, sorted, filtered, and a prompt is followed over the steps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rlctl.monitor.samples import EVALUATION, STEP, SampleIndex, rows_of, worst
from rlctl.runtime.reporting.sample_files import SampleFiles, path_of


def group(prompt_id: int, *rewards: float, source: str = "sums") -> dict[str, Any]:
    texts = [f"answer {place}" for place in range(len(rewards))]
    details = [
        {"length": 10 + place, "finish": "length" if place else "stop", "version": 4, "advantage": reward - 0.5,
         "rollout_log_probs": [-0.1, -5.0], "trainer_log_probs": [-0.1, -5.0 - place], "spans": [6, 2],
         "correct": reward > 0}
        for place, reward in enumerate(rewards)
    ]  # fmt: skip
    return {"prompt_id": prompt_id, "source": source, "prompt": f"{prompt_id}+你=", "answer": "2", "responses": texts,
            "rewards": list(rewards), "components": [{"math": reward} for reward in rewards], "details": details,
            "weight_version": 4}  # fmt: skip


@pytest.fixture
def index(tmp_path: Path) -> SampleIndex:
    files = SampleFiles(tmp_path, "grpo", pytest.fail)
    for step in (1, 2, 3):
        files.write(STEP, step, [group(step, 1.0, 0.0), group(7, 0.0, step / 10, 1.0)])
    files.write(EVALUATION, 2, [group(7, 0.5, source="held-out")])
    return SampleIndex(tmp_path)


def test_a_step_is_read_group_by_group(index: SampleIndex) -> None:
    assert index.steps("grpo") == [1, 2, 3]
    assert index.steps("grpo", EVALUATION) == [2]
    assert index.steps("other") == []
    first, second = index.groups("grpo", 3)
    assert (first.prompt, first.answer, first.mean_reward, first.is_equal, first.weight_version) == ("3+你=", "2", 0.5, False, 4)  # fmt: skip
    cut = second.responses[1]
    assert (cut.length, cut.truncated, cut.advantage, cut.correct, cut.version) == (11, True, -0.2, True, 4)
    assert [token.text for token in cut.tokens] == ["answer", " 1"]
    assert [(token.unlikely, token.mismatched) for token in cut.tokens] == [(False, False), (True, True)]
    assert cut.mismatch == 0.5
    assert index.groups("grpo", 9) == []


def test_a_file_that_is_half_written_is_shown_as_far_as_it_goes(index: SampleIndex) -> None:
    path = path_of(index.folder, "grpo", STEP, 3)
    path.write_bytes(path.read_bytes()[:-20])
    assert len(index.groups("grpo", 3)) == 1


def test_a_prompt_is_followed_over_the_steps(index: SampleIndex) -> None:
    found = index.follow("grpo", STEP, "sums", 7)
    assert [(step, each.responses[1].reward) for step, each in found] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert [step for step, _ in index.follow("grpo", STEP, "sums", 2)] == [2]
    assert [step for step, _ in index.follow("grpo", EVALUATION, "held-out", 7)] == [2]


def test_what_is_trained_on_is_shown_where_nothing_is_drawn(tmp_path: Path) -> None:
    files = SampleFiles(tmp_path, "main", pytest.fail)
    files.write(STEP, 1, [{"sequence": "a b", "trained_on": "b"}, {"prompt": "p", "chosen": "c", "rejected": "r"}])
    one, two = SampleIndex(tmp_path).groups("main", 1)
    assert (one.prompt, one.answer, one.responses) == ("a b", "trained_on: b", ())
    assert (two.prompt, two.answer) == ("p", "chosen: c\nrejected: r")


@pytest.mark.parametrize(
    ("wanted", "count"),
    [("", 5), ("truncated", 3), ("reward>0.2", 3), ("reward<=0", 2), ("reward=0.3", 1), ("mismatch>0", 3), ("mismatch>0.6", 1),
     ("wrong", 2), ("right truncated", 2), ("failed", 0), ("ANSWER", 5), ("3+你", 2), ("nowhere", 0), ("reward<1..2", 0),
     ("length>=12 advantage>0", 1)],
)  # fmt: skip
def test_filters(index: SampleIndex, wanted: str, count: int) -> None:
    assert len(rows_of([(3, each) for each in index.groups("grpo", 3)], wanted=wanted)) == count


def test_sorts_and_the_worst(index: SampleIndex) -> None:
    groups = [(3, each) for each in index.groups("grpo", 3)]

    def sorted_by(sort: str) -> list[Any]:
        return [getattr(row.response, sort) for row in rows_of(groups, sort=sort)]

    assert sorted_by("reward") == [0.0, 0.0, 0.3, 1.0, 1.0]
    assert sorted_by("length") == [12, 11, 11, 10, 10]
    assert sorted_by("advantage") == [-0.5, -0.5, -0.2, 0.5, 0.5]
    assert sorted_by("mismatch") == [1.0, 0.5, 0.5, 0.0, 0.0]
    rows = rows_of(groups)
    place = worst(rows)
    assert place is not None
    assert (rows[place].response.reward, rows[place].response.length) == (0.0, 11), "of two, the longer one"
    assert worst([]) is None


def test_what_has_no_number_comes_last(tmp_path: Path) -> None:
    files = SampleFiles(tmp_path, "main", pytest.fail)
    files.write(STEP, 1, [{"prompt": "p", "responses": ["a", "b"], "rewards": [math.nan, 1.0]}])
    rows = rows_of([(1, each) for each in SampleIndex(tmp_path).groups("main", 1)], sort="reward")
    assert [row.response.text for row in rows] == ["b", "a"]
    assert worst(rows) == 0
