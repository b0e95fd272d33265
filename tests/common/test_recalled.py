"""Texts that a run has recorded are shown in the reader's language."""

from __future__ import annotations

import json

import pytest

from rlctl.common.errors import Location, RunError
from rlctl.common.messages.reasons import said
from rlctl.common.messages.recalled import recalled


def recorded(error: RunError) -> str:
    """What a run folder holds of an error."""
    return str(json.loads(json.dumps(str(error))))


def test_an_english_reader_sees_what_was_recorded() -> None:
    assert recalled("the run has no end", "en") == "the run has no end"


def test_a_constant_and_a_reason_with_values_are_found_by_their_words() -> None:
    assert recalled("the run has no end", "zh") == "任务没有结束条件"
    made = said("there is no reward file {file}", file="/data/reward.py")
    assert recalled(json.loads(json.dumps(made)), "zh") == "奖励文件 /data/reward.py 不存在"


def test_an_error_is_shown_with_its_place_and_its_hint() -> None:
    error = RunError(
        said("{path} has no column {name!r}; its columns are {names}", path="a.parquet", name="prompt", names="q, a"),
        at=Location("run.yaml", 3),
        hint="set data.train[].response_key to the column with it",
    )
    first, second = recalled(recorded(error), "zh").split("\n")
    assert first == "run.yaml:3: a.parquet 没有列 'prompt'；它的列有 q, a"
    assert second == "  请把 data.train[].response_key 设为回答所在的列"


def test_a_value_that_is_a_reason_is_translated_too() -> None:
    inner = said("{url} took longer than {timeout:g} s to answer", url="http://judge", timeout=2.0)
    outer = said("{message}; rlctl starts a replacement", message=inner)
    assert recalled(str(outer), "zh") == "http://judge 超过 2 秒没有响应；rlctl 会启动一个替代它的引擎"


def test_a_reason_of_several_lines_is_found() -> None:
    made = said(
        "{where}: importing {dotted} fails:\n{error}", where="rewards[0]", dotted="mine", error="Boom\nat line 3"
    )
    assert recalled(str(made), "zh") == "rewards[0]：导入 mine 失败：\nBoom\nat line 3"


def test_a_worker_before_a_reason_of_several_lines_stays() -> None:
    template = "the reward {name!r} failed on a response to prompt {index} of {source}: {message}\n  prompt: {text}\n  response: "
    template += "{response_text}\n  answer: {answer}"
    values = {"index": 3, "source": "gsm8k", "message": "boom", "text": "1\n+ 1", "response_text": "3", "answer": "2"}
    shown = recalled(
        f"reward-0: {said(template, name='a', **values)}\n  fix the reward: it fails on every response", "zh"
    )
    assert shown.startswith("reward-0: 奖励 'a' 在为 gsm8k 的第 3 条 prompt")
    assert "回答：3\n  参考答案：2" in shown
    assert shown.endswith("请修复奖励：它对每条回答都失败")


@pytest.mark.parametrize("text", ["", "CUDA error: device-side assert", "KeyError: 'x'", "a step", "  indented words"])
def test_what_no_reason_fits_stays_as_it_is(text: str) -> None:
    assert recalled(text, "zh") == text
