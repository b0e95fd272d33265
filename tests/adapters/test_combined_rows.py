"""Each kind of row for a value that two keys say together, or that another canonical key says, in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.adapters.engine.combined_rows import (
    IfWritten,
    Items,
    KeyOrOther,
    OtherEntries,
    ReadFrom,
    SwitchedKey,
    every,
    has,
    negated,
)
from rlctl.adapters.engine.reading import TextView
from rlctl.adapters.engine.rules import Computed, DialectKey, Flow, Key
from rlctl.adapters.engine.table import Table
from rlctl.adapters.engine.values import DTYPES, Names
from rlctl.adapters.engine.writing import ConfigView, ConfigWithOrigins
from rlctl.config import config_from

from .test_rows import read, written

BETAS = Items((DialectKey("beta1", 0.9), DialectKey("beta2", 0.999)), "train.optimizer.betas")
SKIP = SwitchedKey(
    "mock",
    "mock_mode",
    "run.skip.rollout",
    off="off",
    default="dump",
    convert=Names({"dump": "dump", "mock": "replay"}),
)
PRECISION = KeyOrOther(
    "dtype", "rollout.precision", "bf16", DTYPES, open="auto", other="train.precision.compute", because="as it trains"
)


def test_several_keys_are_the_items_of_a_list() -> None:
    assert read(BETAS, {"beta2": 0.95}) == [("train.optimizer.betas", [0.9, 0.95], "mapped", "")]
    optimizer = {"optimizer": {"betas": [0.8, 0.9]}}
    assert list(written(BETAS, train=optimizer)) == [("beta1", 0.8, ""), ("beta2", 0.9, "")]


@pytest.mark.parametrize(
    ("text", "value", "keys"),
    [
        ({}, "off", {"mock": False}),
        ({"mock_mode": "mock"}, "off", {"mock": False}),
        ({"mock": True}, "dump", {"mock": True, "mock_mode": "dump"}),
        ({"mock": True, "mock_mode": "mock"}, "replay", {"mock": True, "mock_mode": "mock"}),
    ],
)
def test_a_switch_and_its_key_are_one_value(text: dict[str, Any], value: str, keys: dict[str, Any]) -> None:
    assert read(SKIP, text) == [("run.skip.rollout", value, "mapped", "")]
    assert {key: raw for key, raw, _ in written(SKIP, run={"skip": {"rollout": value}})} == keys


def test_what_is_read_from_keys_names_them() -> None:
    rule = ReadFrom(
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


def test_an_open_value_is_written_from_another_key() -> None:
    assert read(PRECISION, {"dtype": "fp16"}) == [("rollout.precision", "float16", "mapped", "")]
    assert list(written(PRECISION, rollout={"precision": "float16"})) == [("dtype", "fp16", "")]
    config = config_from({"model": {"path": "m"}, "train": {"precision": {"compute": "float32"}}})
    (flow,) = PRECISION.write(ConfigView(ConfigWithOrigins(config), (1,), {}))
    assert isinstance(flow, Flow)
    assert (flow.value, flow.how, flow.note) == ("fp32", "derived", "as it trains")
    assert flow.keys == (("rollout", "precision"), ("train", "precision", "compute"))


def test_entries_without_a_key_are_lost_one_by_one() -> None:
    rule = OtherEntries("train.engine.ddp", ("bucket_size",), "no key for {name}")
    engine = {"engine": {"type": "megatron", "ddp": {"bucket_size": 1, "average": True}}}
    assert list(written(rule, train=engine)) == [("lost", False, "no key for average")]


def test_silence_says_nothing_of_some_keys() -> None:
    rule = Key("packing", "train.packing", False, IfWritten(key="packing"))
    assert read(rule, {}) == []
    assert read(rule, {"packing": False}) == [("train.packing", False, "mapped", "")]
    assert list(written(rule, train={"packing": True})) == [("packing", True, "")]


def test_conditions_combine() -> None:
    view = ConfigView(
        ConfigWithOrigins(config_from({"model": {"path": "m"}, "schedule": {"total_steps": 5}})), (1,), {}
    )
    assert has("schedule.total_steps")(view)
    assert not has("schedule.total_epochs")(view)
    assert every(has("schedule.total_steps"), negated(has("schedule.total_epochs")))(view)
    assert not every(has("schedule.total_steps"), has("schedule.total_epochs"))(view)
