"""Each kind of row for what only one side has a key for, and the conditions and converters that they take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.conditions import before, every, has, negated, since
from rlctl.adapters.engine.one_sided_rows import FollowsFrom, OtherEntries, ReadOnly, WriteOnly
from rlctl.adapters.engine.reading import TextView
from rlctl.adapters.engine.rules import (
    Computed,
    DialectKey,
    Flow,
    Inexpressible,
    Key,
    Rule,
    Same,
    Writing,
    in_releases,
)
from rlctl.adapters.engine.table import Table
from rlctl.adapters.engine.values import IfWritten
from rlctl.adapters.engine.writing import ConfigView, ConfigWithOrigins
from rlctl.adapters.roll.rollout import PRECISION
from rlctl.config import config_from
from rlctl.documents import dotted


def read(rule: Rule, text: Mapping[str, Any], version: tuple[int, ...] = (0, 2)) -> list[tuple[str, Any, str, str]]:
    flows = rule.read(TextView(Table((rule,)), version, text, {}))
    return [(dotted(flow.to), flow.value, flow.how, flow.note) for flow in flows]


def written(rule: Rule, version: tuple[int, ...] = (0, 2), **tree: Any) -> Iterator[tuple[str, Any, str]]:
    """What a rule makes of a config: keys with their values and notes, and what is lost, below ``lost``."""
    plain = {"model": {"path": "m"}, **tree}
    for out in rule.write(ConfigView(Table((rule,)), ConfigWithOrigins(config_from(plain)), version, {})):
        if isinstance(out, Inexpressible):
            yield "lost", out.idle, out.reason
        else:
            yield dotted(out.to), out.value, out.note


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


def test_what_is_read_from_keys_names_them() -> None:
    rule = FollowsFrom(
        "critic.optimizer.max_grad_norm",
        reads=lambda view: Computed(view.get("clip"), "one for all"),
        writes=lambda view: view.get("train.optimizer.max_grad_norm"),
        reason="there is one for all roles",
        note="the policy's",
        of=(DialectKey("clip", 1.0),),
    )
    (flow,) = rule.read(TextView(Table((rule,)), (1,), {"clip": 2.0}, {}))
    assert (flow.value, flow.keys, flow.how, flow.note) == (2.0, (("clip",),), "derived", "one for all")
    gae = {"advantage": {"type": "gae"}}
    other = {"optimizer": {"max_grad_norm": 9.0}}
    assert list(written(rule, algorithm=gae, critic=other)) == [("lost", False, "there is one for all roles")]
    assert list(written(rule, algorithm=gae, critic={})) == [("", None, "the policy's")]


def test_a_row_for_writing_only() -> None:
    def is_open(view: Writing) -> bool:
        return view.get("rollout.engine.type") == "auto"

    rule = WriteOnly("rollout.engine.type", is_open, "a name is required", key="engine", value="vllm")
    assert list(written(rule)) == [("engine", "vllm", "a name is required")]
    assert list(written(rule, rollout={"engine": {"type": "sglang"}})) == []
    lost = WriteOnly("rollout.engine.type", is_open, lost="there is none", idle=True)
    assert list(written(lost)) == [("lost", True, "there is none")]


def test_an_open_value_is_written_from_another_key() -> None:
    own, other = PRECISION
    dtype = "actor_infer.model_args.dtype"
    assert list(written(own, rollout={"precision": "float16"})) == [(dtype, "fp16", "")]
    assert list(written(other, rollout={"precision": "float16"})) == []
    assert list(written(own, train={"precision": {"compute": "float32"}})) == []
    config = config_from({"model": {"path": "m"}, "train": {"precision": {"compute": "float32"}}})
    (flow,) = other.write(ConfigView(Table(PRECISION), ConfigWithOrigins(config), (1,), {}))
    assert isinstance(flow, Flow)
    assert (dotted(flow.to), flow.value, flow.how, flow.note) == (dtype, "fp32", "derived", "the same as in training")
    assert flow.keys == (("rollout", "precision"), ("train", "precision", "compute"))


def test_a_row_for_reading_only() -> None:
    rule = ReadOnly("padding", "rows are packed", "none", dead=lambda view: view.get("padding") != "none")
    assert read(rule, {}) == []
    assert read(rule, {"padding": "none"}) == [("", None, "mapped", "rows are packed")]
    assert read(rule, {"padding": "left"})[0][2] == "dead"


def test_entries_without_a_key_are_lost_one_by_one() -> None:
    rule = OtherEntries("train.engine.ddp", ("bucket_size",), "no key for {name}")
    engine = {"engine": {"type": "megatron", "ddp": {"bucket_size": 1, "average": True}}}
    assert list(written(rule, train=engine)) == [("lost", False, "no key for average")]


def test_rows_of_some_releases() -> None:
    rule = in_releases(Key("steps", "schedule.total_steps", None), since="0.2")
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
    given = ConfigWithOrigins(config_from({"schedule": {"total_steps": 24}}))
    flow = next(iter(rule.write(ConfigView(Table((rule,)), given, (0, 2), {}))))
    assert isinstance(flow, Flow)
    assert (flow.always, flow.same, flow.how) == (True, False, "derived")
    assert next(iter(written(rule, schedule={"total_steps": 25}))) == ("lost", True, "whole dozens")


def test_silence_says_nothing_of_some_keys() -> None:
    rule = Key("packing", "train.packing", False, IfWritten(key="packing"))
    assert read(rule, {}) == []
    assert read(rule, {"packing": False}) == [("train.packing", False, "mapped", "")]
    assert list(written(rule, train={"packing": True})) == [("packing", True, "")]


def test_conditions_combine() -> None:
    view = ConfigView(
        Table(()), ConfigWithOrigins(config_from({"model": {"path": "m"}, "schedule": {"total_steps": 5}})), (1,), {}
    )
    assert has("schedule.total_steps")(view)
    assert not has("schedule.total_epochs")(view)
    assert every(has("schedule.total_steps"), negated(has("schedule.total_epochs")))(view)
    assert not every(has("schedule.total_steps"), has("schedule.total_epochs"))(view)
