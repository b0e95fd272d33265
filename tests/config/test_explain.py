"""Every key of the schema can be asked for as it is written, and what is said of it is what it does."""

from __future__ import annotations

import pytest

from rlctl.common.errors import ConfigError
from rlctl.config import Config
from rlctl.config.explain import explain
from rlctl.config.inspect import walk
from rlctl.config.sections.train import Critic

KEYS = list(walk(Config))


def test_every_pattern_explains_itself() -> None:
    for key in KEYS:
        found = explain(key.pattern)
        assert (found.pattern, found.help) == (key.pattern, key.help)


def test_every_key_is_found_as_it_is_written() -> None:
    for key in KEYS:
        found = explain(key.path)
        assert key.pattern in (found.pattern, *found.also)


@pytest.mark.parametrize(
    ("asked", "pattern"),
    [
        ("data.train[0].path", "data.train[].path"),
        ("data.train.0.path", "data.train[].path"),
        ("placement.roles.rollout.devices", "placement.roles{}.devices"),
        ("placement.roles{}.devices", "placement.roles{}.devices"),
        ("algorithm.advantage<grpo>", "algorithm.advantage"),
        ("algorithm.advantage.type", "algorithm.advantage"),
        ("rewards[0].type", "rewards"),
        ("rewards[0].name", "rewards[]<rule>.name"),
        ("algorithm.advantage.lambda", "algorithm.advantage<gae>.lambda"),
    ],
)
def test_keys_as_people_write_them(asked: str, pattern: str) -> None:
    assert explain(asked).pattern == pattern


def test_a_default_is_that_of_the_section_above_where_it_changes_it() -> None:
    assert Critic().optimizer.lr == 1e-5
    assert explain("critic.optimizer.lr").default == "1e-05"
    assert explain("train.optimizer.lr").default == "1e-06"


def test_units_ranges_and_options_are_said() -> None:
    assert explain("batch.prompts_per_step").unit == "prompts"
    assert explain("batch.prompts_per_step").range == "at least 1"
    options = explain("algorithm.advantage").options
    assert [option.name for option in options][:2] == ["gae", "grpo"]
    assert all(option.help for option in options)


@pytest.mark.parametrize(
    ("asked", "suggested"),
    [
        ("batch.prompts_per_stp", "batch.prompts_per_step"),
        ("grad_norm", "train.optimizer.max_grad_norm"),
        ("mini_batch", "batch.mini_batch_responses"),
        ("train.optimizer.lrr", "train.optimizer.lr"),
    ],
)
def test_an_unknown_key_names_the_nearest(asked: str, suggested: str) -> None:
    with pytest.raises(ConfigError) as caught:
        explain(asked)
    assert suggested in caught.value.hint


@pytest.mark.parametrize(
    "asked", ["", ".", "[[[", "a..b", "algorithm.advantage<nope>.x", "batch.prompts_per_step.x", "\0"]
)
def test_what_is_no_key_is_refused(asked: str) -> None:
    with pytest.raises(ConfigError, match="there is no key"):
        explain(asked)
