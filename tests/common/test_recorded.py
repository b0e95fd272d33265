"""Texts that a run has recorded are shown in the reader's language."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import Location, RunError
from rlctl.common.messages.reasons import said, sequence, translated
from rlctl.common.messages.recorded import text_in, with_reasons, with_templates
from rlctl.common.regular_files import read_json
from rlctl.monitor.log import EventLog
from rlctl.runs.record import Record, record_of, write_record
from rlctl.runtime.reporting.events import Events


def read_back(**record: Any) -> dict[str, Any]:
    """A record as whoever opens the run folder has it."""
    return with_reasons(json.loads(json.dumps(with_templates(record))))


def test_the_english_text_is_there_for_programs() -> None:
    written = with_templates({"kind": "advisory", "message": said("there is no reward file {file}", file="a.py")})
    assert json.loads(json.dumps(written))["message"] == "there is no reward file a.py"
    assert with_templates({"kind": "step", "step": 3}) == {"kind": "step", "step": 3}


def test_a_constant_and_a_reason_with_values_are_translated() -> None:
    event = read_back(message="the run has no end", hint=said("there is no reward file {file}", file="/data/reward.py"))
    assert text_in(event, "message", "zh") == "任务没有结束条件"
    assert text_in(event, "hint", "zh") == "奖励文件 /data/reward.py 不存在"
    assert text_in(event, "hint", "en") == "there is no reward file /data/reward.py"
    assert text_in(event, "other", "zh") == ""


def test_an_error_is_shown_with_its_place_and_its_hint() -> None:
    error = RunError(
        said("{path} has no column {name!r}; its columns are {names}", path="a.parquet", name="prompt", names="q, a"),
        at=Location("run.yaml", 3),
        hint="set data.train[].response_key to the column with the response",
    )
    first, second = text_in(read_back(cause=str(error)), "cause", "zh").split("\n")
    assert first == "run.yaml:3: a.parquet 没有列 'prompt'；它的列有 q, a"
    assert second == "  请把 data.train[].response_key 设为回答所在的列"


def test_a_value_that_is_a_reason_is_translated_too() -> None:
    inner = said("{url} took longer than {timeout:g} s to answer", url="http://judge", timeout=2.0)
    event = read_back(message=said("{message}; rlctl starts a replacement", message=inner))
    assert text_in(event, "message", "zh") == "http://judge 超过 2 秒没有响应；rlctl 会启动一个替代它的引擎"


def test_a_worker_before_a_reason_of_several_lines_stays() -> None:
    inner = said(
        "{where}: importing {dotted} fails:\n{error}", where="rewards[0]", dotted="mine", error="Boom\nat line 3"
    )
    event = read_back(message=said("{name}: {error}", name="reward-0", error=inner))
    assert text_in(event, "message", "zh") == "reward-0: rewards[0]：导入 mine 失败：\nBoom\nat line 3"


def test_a_list_of_texts_is_translated_one_by_one() -> None:
    event = read_back(changes=["plain", sequence("model.path: ", said("there is no reward file {file}", file="r.py"))])
    assert [translated(each, "zh") for each in event["changes"]] == ["plain", "model.path: 奖励文件 r.py 不存在"]


@pytest.mark.parametrize(
    "data",
    [
        7,
        "another text",
        {"template": "{x:>99999999999}", "values": {"x": "1"}},
        {"template": "{x.__class__}", "values": {"x": "1"}},
        {"template": "there is no reward file {file}", "values": {"file": "another"}},
        {"template": "there is no reward file {file}", "values": {}},
        {"template": ["a"], "values": {}},
        {"parts": 3, "separators": {}},
        {"parts": ["a"]},
    ],
)
def test_what_does_not_say_the_text_is_ignored(data: Any) -> None:
    event = with_reasons({"message": "the run has no end", "said": {"message": data}})
    assert event == {"message": "the run has no end"}
    assert text_in(event, "message", "zh") == "任务没有结束条件"


@pytest.mark.parametrize("said_of_it", [None, 3, "x", ["message"]])
def test_a_damaged_record_stays_readable(said_of_it: Any) -> None:
    event = with_reasons({"message": ["no", "text"], "said": said_of_it})
    assert text_in(event, "message", "zh") == "['no', 'text']"


def test_the_files_of_a_run_keep_what_texts_were_made_of(tmp_path: Path) -> None:
    error = RunError(said("there is no reward file {file}", file="r.py"), hint="the run has no end")
    events = Events(tmp_path / "events.jsonl", lambda event: None)
    events.advise(error.message, error.hint)
    events.close()
    write_record(tmp_path, Record("run", "failed", 1, "host", 1.0, 2.0, cause=str(error)))
    (event,) = EventLog(tmp_path / "events.jsonl").read()
    assert (text_in(event, "message", "zh"), text_in(event, "hint", "zh")) == (
        "奖励文件 r.py 不存在",
        "任务没有结束条件",
    )
    record = record_of(read_json(tmp_path / "run.json"))
    assert record.cause == "there is no reward file r.py\n  the run has no end"
    assert translated(record.cause, "zh") == "奖励文件 r.py 不存在\n  任务没有结束条件"
