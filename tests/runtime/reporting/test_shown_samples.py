"""Which responses people are shown, what is told of each, and that their files stay few."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import orjson
import pytest
import torch

from rlctl.runtime.experience.samples import RolloutGroup, samples_of
from rlctl.runtime.reporting import sample_files
from rlctl.runtime.reporting import shown_samples as shown
from rlctl.runtime.reporting.sample_files import EVALUATION, STEP, SampleFiles, files_of, path_of, too_many
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.types import Prompt, Response


def answered(index: int, rewards: list[float], length: int = 2) -> RolloutGroup:
    prompt = Prompt(index, "sums", (1, 2), f"prompt {index}", answer="4")
    responses = [Response(tuple(range(length)), (-0.5,) * length, "stop", 3) for _ in rewards]
    return RolloutGroup(prompt, responses, rewards, [Score(reward, {"math": reward}) for reward in rewards])


def test_the_worst_is_shown_and_the_same_prompts_come_again() -> None:
    groups = [answered(index, [1.0, 1.0]) for index in range(100)]
    groups[61] = answered(61, [1.0, -2.0])
    first = shown.chosen(groups)
    assert len(first) == shown.MOST_GROUPS
    assert 61 in first
    assert first == sorted(first)
    again = shown.chosen(list(reversed(groups)))
    assert {groups[place].prompt.index for place in first} == {99 - place for place in again}
    assert shown.chosen([]) == []


def test_a_step_shows_so_many_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "MOST_TOKENS", 100)
    monkeypatch.setattr(shown, "MOST_MARKED", 100)
    assert len(shown.chosen([answered(index, [1.0], 40) for index in range(9)])) == 2
    [long] = shown.chosen([answered(0, [1.0], 101)])
    assert long == 0
    told = shown.shown_group(*_parts(answered(0, [1.0], 101)))
    assert told["details"] == [{"length": 101, "finish": "stop", "version": 3}]


def _parts(group: RolloutGroup) -> Any:
    return group.prompt, ["text"] * len(group.responses), group.rewards, group.scores, group.responses


def test_what_training_makes_of_a_response_is_told() -> None:
    group = answered(7, [1.0, 0.0], 3)
    samples = samples_of([group], train_on_cut_prompts=True)
    for sample, advantage in zip(samples, (0.5, -0.5), strict=True):
        sample.columns["advantages"] = advantage * sample.mask
        sample.columns["old_log_probs"] = torch.where(sample.mask, -0.625, 0.0)
    samples[1].mask[:] = False  # a filter left it out
    told = shown.shown_group(*_parts(group))
    shown.add_training(told["details"], [[sample] for sample in samples], trainer=True)
    assert [detail["advantage"] for detail in told["details"]] == [0.5, None]
    assert told["details"][0]["rollout_log_probs"] == [-0.5] * 3
    assert told["details"][0]["trainer_log_probs"] == [-0.625] * 3
    assert (told["prompt_id"], told["source"], told["weight_version"]) == (7, "sums", 3)


class Tokenizer:
    """Byte by byte, so that one character may be several tokens."""

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")

    def batch_decode(self, sequences: list[list[int]], *, skip_special_tokens: bool) -> list[str]:
        assert not skip_special_tokens
        return list(map(self.decode, sequences))


class Pieces(Tokenizer):
    """As SentencePiece does it: a space before a word belongs to its token, and goes where a text begins."""

    names = ("\u2581one", "\u2581two", "!")

    def decode(self, ids: list[int]) -> str:
        return "".join(self.names[token] for token in ids).replace("\u2581", " ").removeprefix(" ")

    def convert_ids_to_tokens(self, tokens: list[int]) -> list[str]:
        return [self.names[token] for token in tokens]


def test_the_characters_of_every_token() -> None:
    text = "a你b"
    response = Response(tuple(text.encode()), (0.0,) * 5, "stop", 0)
    assert shown.spans_by(Tokenizer())(response, text) == [1, 0, 0, 1, 1]
    assert shown.spans_by(Tokenizer())(response, "another text") is None
    words = Response((0, 1, 2), (0.0,) * 3, "stop", 0)
    assert shown.spans_by(Pieces())(words, "one two!") == [3, 4, 1]


def test_files_hold_a_step_each_and_what_is_taken_again_goes(tmp_path: Path) -> None:
    told: list[str] = []
    files = SampleFiles(tmp_path, "main", told.append)
    group = shown.shown_group(*_parts(answered(7, [1.0, float("nan")])))
    for step in (1, 2, 3):
        files.write(STEP, step, [group])
    files.write(EVALUATION, 2, [group | {"source": "held-out"}])
    head, line = map(orjson.loads, path_of(tmp_path, "main", STEP, 2).read_bytes().splitlines())
    assert head == {"step": 2, "groups": [{"prompt_id": 7, "source": "sums", "rewards": [1.0, None]}]}
    assert line["responses"] == ["text", "text"]
    SampleFiles(tmp_path, "main", told.append).begin(2)
    assert files_of(tmp_path, "main") == [(EVALUATION, 2), (STEP, 1), (STEP, 2)]
    assert told == []
    (tmp_path / "samples" / "other").write_text("in the way")
    blocked = SampleFiles(tmp_path, "other", told.append)
    blocked.write(STEP, 1, [group])
    blocked.write(STEP, 2, [group])
    assert len(told) == 1


def test_of_a_long_run_few_files_stay() -> None:
    left: list[int] = []
    for step in range(1, 5001):
        left.append(step)
        gone = set(too_many(left))
        left = [each for each in left if each not in gone]
        assert len(left) <= sample_files.RECENT + sample_files.OLDER + 1
    assert left[0] == 1
    assert left[-sample_files.RECENT :] == list(range(5001 - sample_files.RECENT, 5001))
    older = left[1 : -sample_files.RECENT]
    assert {after - before for before, after in itertools.pairwise(older)} == {64}
