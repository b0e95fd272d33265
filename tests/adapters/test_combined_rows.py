"""Each kind of row for a value that several keys say together, in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.adapters.engine.combined_rows import Items, OneOf, SwitchedKey, Switches
from rlctl.adapters.engine.rules import ABSENT, DialectKey
from rlctl.adapters.engine.values import Names

from .test_one_sided_rows import read, written

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
BETAS = Items((DialectKey("beta1", 0.9), DialectKey("beta2", 0.999)), "train.optimizer.betas")
SKIP = SwitchedKey(
    "mock",
    "mock_mode",
    "run.skip.rollout",
    off="off",
    default="dump",
    convert=Names({"dump": "dump", "mock": "replay"}),
)


def test_several_keys_are_the_items_of_a_list() -> None:
    assert read(BETAS, {"beta2": 0.95}) == [("train.optimizer.betas", [0.9, 0.95], "mapped", "")]
    optimizer = {"optimizer": {"betas": [0.8, 0.9]}}
    assert list(written(BETAS, train=optimizer)) == [("beta1", 0.8, ""), ("beta2", 0.9, "")]


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
