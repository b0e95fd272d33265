"""Each kind of row that reads or writes more than one key, alone and in both directions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rlctl.adapters.engine.reading import TextView
from rlctl.adapters.engine.rows import FollowsFrom, InReleases, OneOf, ReadOnly, Switches, WriteOnly, before, since
from rlctl.adapters.engine.rules import ABSENT, Computed, DialectKey, Flow, Inexpressible, Key, Rule, Same, Writing
from rlctl.adapters.engine.table import Table
from rlctl.adapters.engine.writing import ConfigView, ConfigWithOrigins
from rlctl.config import config_from
from rlctl.documents import dotted

OFFLOAD = Switches(
    (DialectKey("move_weights", False), DialectKey("move_states", False)),
    "train.engine.offload",
    {"both": (True, True), "parameters": (True, False), "optimizer": (False, True), "none": (False, False)},
)
BRIDGE = Switches(
    (DialectKey("bridge", True), DialectKey("old_bridge", False, "0.2")),
    "train.engine.bridge",
    {"builtin": (False, None), "mbridge": (True, True), "megatron_bridge": (True, False)},
    open=("auto",),
    missing="no bridge {word}",
)


def read(rule: Rule, text: Mapping[str, Any], version: tuple[int, ...] = (0, 2)) -> list[tuple[str, Any, str, str]]:
    flows = rule.read(TextView(Table((rule,)), version, text, {}))
    return [(dotted(flow.to), flow.value, flow.how, flow.note) for flow in flows]


def written(rule: Rule, version: tuple[int, ...] = (0, 2), **tree: Any) -> Iterator[tuple[str, Any, str]]:
    """What a rule makes of a config: keys with their values and notes, and what is lost, below ``lost``."""
    plain = {"model": {"path": "m"}, **tree}
    for out in rule.write(ConfigView(ConfigWithOrigins(config_from(plain)), version, {})):
        if isinstance(out, Inexpressible):
            yield "lost", out.idle, out.reason
        else:
            yield dotted(out.to), out.value, out.note


@pytest.mark.parametrize(
    ("text", "word"),
    [({}, "none"), ({"move_weights": True}, "parameters"), ({"move_weights": True, "move_states": True}, "both")],
)
def test_switches_are_one_word(text: dict[str, Any], word: str) -> None:
    assert read(OFFLOAD, text) == [("train.engine.offload", word, "mapped", "")]
    engine = {"engine": {"type": "fsdp2", "offload": word}}
    expected = {"none": (False, False), "parameters": (True, False), "both": (True, True)}[word]
    assert [value for _, value, _ in written(OFFLOAD, train=engine)] == list(expected)


def test_a_switch_that_does_not_matter_is_not_written() -> None:
    assert read(BRIDGE, {"bridge": False, "old_bridge": True})[0][1] == "builtin"
    for word, keys in (("builtin", ["bridge"]), ("mbridge", ["bridge", "old_bridge"]), ("auto", [""])):
        engine = {"engine": {"type": "megatron", "bridge": word}}
        assert [key for key, _, _ in written(BRIDGE, train=engine)] == keys


def test_what_follows_from_other_keys_is_read_and_compared() -> None:
    rule = FollowsFrom(
        "checkpoint.at_end",
        reads=lambda view: view.get("every") is not None,
        writes=lambda view: view.get("checkpoint.every") is not None,
        reason="it saves at the end if every is set",
        note="follows from every",
    )
    assert read(rule, {"every": 5})[0][:2] == ("checkpoint.at_end", True)
    assert list(written(rule, checkpoint={"every": 5, "at_end": True})) == [("", None, "follows from every")]
    assert list(written(rule, checkpoint={"every": 5, "at_end": False})) == [
        ("lost", False, "it saves at the end if every is set")
    ]


def test_a_row_for_writing_only() -> None:
    def is_open(view: Writing) -> bool:
        return view.get("rollout.engine.type") == "auto"

    rule = WriteOnly("rollout.engine.type", is_open, "a name is required", key="engine", value="vllm")
    assert list(written(rule)) == [("engine", "vllm", "a name is required")]
    assert list(written(rule, rollout={"engine": {"type": "sglang"}})) == []
    lost = WriteOnly("rollout.engine.type", is_open, lost="there is none", idle=True)
    assert list(written(lost)) == [("lost", True, "there is none")]


def test_a_row_for_reading_only() -> None:
    rule = ReadOnly("padding", "rows are packed", "none", dead=lambda view: view.get("padding") != "none")
    assert read(rule, {}) == []
    assert read(rule, {"padding": "none"}) == [("", None, "mapped", "rows are packed")]
    assert read(rule, {"padding": "left"})[0][2] == "dead"


def test_one_of_several_keys_decides() -> None:
    rule = OneOf(
        (DialectKey("new", ABSENT, "0.2"), DialectKey("old", 1.0)),
        "train.optimizer.max_grad_norm",
        reads=lambda view: "new" if view.written("new") else "old",
        writes=lambda view: "new" if view.version >= (0, 2) else "old",
    )
    assert read(rule, {"new": 2.0, "old": 3.0}) == [
        ("train.optimizer.max_grad_norm", 2.0, "mapped", ""),
        ("", None, "dead", "new decides"),
    ]
    assert read(rule, {"new": 2.0, "old": 2.0})[1][2] == "mapped"
    assert read(rule, {}) == [("train.optimizer.max_grad_norm", 1.0, "mapped", "")]
    optimizer = {"optimizer": {"max_grad_norm": 0.5}}
    assert [key for key, _, _ in written(rule, train=optimizer)] == ["new"]
    assert [key for key, _, _ in written(rule, (0, 1), train=optimizer)] == ["old"]


def test_rows_of_some_releases() -> None:
    rule = InReleases((Key("steps", "schedule.total_steps", None),), since="0.2")
    assert read(rule, {"steps": 5}, (0, 1)) == []
    assert read(rule, {"steps": 5}, (0, 2))[0][1] == 5
    assert not list(written(rule, (0, 1), schedule={"total_steps": 5}))
    view = TextView(Table((rule,)), (0, 2), {}, {})
    assert since("0.2")(view)
    assert not before("0.2")(view)


def test_a_converter_can_say_how_it_computed_and_what_is_lost() -> None:
    class Dozens(Same):
        def read(self, value: Any, view: Any) -> Any:
            return Computed(value * 12, "dozens")

        def write(self, value: Any, view: Any) -> Any:
            lost = "" if value % 12 == 0 else "whole dozens"
            return Computed(max(1, value // 12), lost=lost, idle=True, always=True)

    rule = Key("dozens", "schedule.total_steps", None, Dozens())
    assert read(rule, {"dozens": 2}) == [("schedule.total_steps", 24, "derived", "dozens")]
    assert list(written(rule, schedule={"total_steps": 24})) == [("dozens", 2, "")]
    flow = next(
        iter(rule.write(ConfigView(ConfigWithOrigins(config_from({"schedule": {"total_steps": 24}})), (0, 2), {})))
    )
    assert isinstance(flow, Flow)
    assert (flow.always, flow.same, flow.how) == (True, False, "derived")
    assert next(iter(written(rule, schedule={"total_steps": 25}))) == ("lost", True, "whole dozens")
