"""The rewards of a prompt over the steps, the worst of a run, and two texts compared word by word."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.monitor.courses import courses
from rlctl.monitor.samples import SampleIndex
from rlctl.monitor.words import MOST, Kind, difference, is_cut
from rlctl.runtime.reporting.sample_files import STEP, SampleFiles


def told(prompt_id: int | None, *rewards: float | None, source: str = "sums") -> dict[str, object]:
    return {"prompt_id": prompt_id, "source": source, "rewards": list(rewards)}


def test_a_course_has_each_step_that_shows_the_prompt_and_damage_is_passed_over() -> None:
    found = courses(
        [
            (1, {"groups": [told(7, 0.0, 1.0), told(8, 1.0)]}),
            (2, {"groups": [told(7, source="other"), "damaged", told(None, 1.0)]}),
            (5, {"groups": [told(9, 0.25), told(7, 1.0, None)]}),
            (6, {"groups": None}),
        ]
    )
    assert [(shown.step, shown.place, shown.rewards[0]) for shown in found.of("sums", 7)] == [(1, 0, 0.0), (5, 1, 1.0)]
    assert found.of("sums", None) == found.of("sums", 99) == ()
    assert found.worst(3) == [(1, 0, 0), (5, 0, 0), (5, 1, 0)], "the lowest first, then the newest step"


def test_the_mean_of_a_course_passes_over_rewards_that_are_missing() -> None:
    [shown] = courses([(1, {"groups": [told(7, 0.5, None, 1.0)]})]).of("sums", 7)
    assert shown.mean == 0.75


def test_the_worst_responses_of_a_run_are_read_from_their_files(tmp_path: Path) -> None:
    files = SampleFiles(tmp_path, "grpo", pytest.fail)
    for step, rewards in ((1, [0.5, -1.0]), (2, [0.0, 0.75])):
        shown = told(step, *rewards) | {"prompt": "p", "responses": [f"{step}a", f"{step}b"]}
        files.write(STEP, step, [shown])
    index = SampleIndex(tmp_path)
    found = [(step, response.text) for step, group in index.worst("grpo") for response in group.responses]
    assert found == [(1, "1b"), (1, "1a"), (2, "2a"), (2, "2b")]
    [(_, group), *_] = index.worst("grpo")
    assert group.shown_of == 2


def test_a_step_that_is_taken_again_has_its_new_rewards(tmp_path: Path) -> None:
    files = SampleFiles(tmp_path, "grpo", pytest.fail)
    index = SampleIndex(tmp_path)
    for reward in (0.0, 1.0):
        files.begin(0)
        files.write(STEP, 1, [told(7, reward) | {"prompt": "p", "responses": ["a"]}])
        assert [shown.mean for shown in index.courses("grpo").of("sums", 7)] == [reward]


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("one two three", "one 2 three", [("same", "one "), ("removed", "two "), ("added", "2 "), ("same", "three")]),
        ("", "new", [("added", "new")]),
        ("same", "same", [("same", "same")]),
        ("4+4=8", "4+4=9", [("same", "4+4="), ("removed", "8"), ("added", "9")]),
    ],
)
def test_texts_are_compared_by_words(before: str, after: str, wanted: list[tuple[str, str]]) -> None:
    assert [(str(words.kind), words.text) for words in difference(before, after)] == wanted


def test_of_a_very_long_text_the_beginning_is_compared() -> None:
    text = "word " * (MOST + 5)
    assert is_cut(text)
    assert [words.kind for words in difference(text, text)] == [Kind.SAME]
