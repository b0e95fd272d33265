"""A config is built strictly: every problem is found at once, each with its key, its place in the file and what to do."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

from rlctl.common.errors import ConfigError
from rlctl.config import Config, build_config, config_from, load
from rlctl.config.fields import Interval
from rlctl.config.inspect import _hints, walk
from rlctl.config.sections.algorithm import Gae, Grpo
from rlctl.config.sections.train import Fsdp2
from rlctl.documents import read_yaml

# Text of a file, code, key, line, words of the message, hint.
WRONG: list[tuple[str, str, str, int, str, str]] = [
    (
        "batch:\n  prompts_per_stp: 8",
        "unknown-key",
        "batch.prompts_per_stp",
        2,
        "unknown key",
        "did you mean 'prompts_per_step'?",
    ),
    ("bacth: {}", "unknown-key", "bacth", 1, "unknown key 'bacth'", "did you mean 'batch'?"),
    ("batch:\n  ppo_epochs: 'two'", "wrong-type", "batch.ppo_epochs", 2, "'two' (a string); it must be an integer", ""),
    ("batch:\n  ppo_epochs: '2'", "wrong-type", "batch.ppo_epochs", 2, "it must be an integer", "remove the quotes"),
    ("batch:\n  ppo_epochs: 1.0", "wrong-type", "batch.ppo_epochs", 2, "1.0; it must be an integer", ""),
    ("batch:\n  ppo_epochs: true", "wrong-type", "batch.ppo_epochs", 2, "true; it must be an integer", ""),
    ("batch:\n  ppo_epochs: null", "wrong-type", "batch.ppo_epochs", 2, "null; it must be an integer", ""),
    ("batch:\n  shuffle: 1", "wrong-type", "batch.shuffle", 2, "1; it must be true or false", ""),
    ("run:\n  name: 3", "wrong-type", "run.name", 2, "3; it must be a string", ""),
    ("batch: 7", "wrong-type", "batch", 1, "7; it must be a mapping", ""),
    ("batch:\n  ppo_epochs: 0", "out-of-range", "batch.ppo_epochs", 2, "0; it must be at least 1", ""),
    (
        "rollout:\n  sampling:\n    top_p: 1.5",
        "out-of-range",
        "rollout.sampling.top_p",
        3,
        "more than 0 and at most 1",
        "",
    ),
    ("data:\n  max_prompt_tokens: -1", "out-of-range", "data.max_prompt_tokens", 2, "-1 tokens", ""),
    ("run:\n  mode: ful", "unknown-value", "run.mode", 2, "it must be one of full", "did you mean 'full'?"),
    (
        "algorithm:\n  advantage: grop",
        "unknown-value",
        "algorithm.advantage",
        2,
        "has type 'grop'",
        "did you mean 'grpo'?",
    ),
    ("algorithm:\n  advantage: {gamma: 1.0}", "unknown-value", "algorithm.advantage", 2, "has no 'type'", ""),
    (
        "algorithm:\n  advantage: {type: rloo, gamma: 1}",
        "unknown-key",
        "algorithm.advantage.gamma",
        2,
        "unknown key",
        "",
    ),
    ("rewards:\n  - {type: function}", "missing-key", "rewards[0]", 2, "'rewards[0].path' must be set", ""),
    (
        "rewards:\n  - type: rule\n    wieght: 2",
        "unknown-key",
        "rewards[0].wieght",
        3,
        "unknown key",
        "did you mean 'weight'?",
    ),
    ("checkpoint:\n  every: {days: 1}", "unknown-key", "checkpoint.every.days", 2, "unknown key", ""),
    ("checkpoint:\n  every: {steps: 1, epochs: 1}", "wrong-type", "checkpoint.every", 2, "a number of steps", ""),
    ("checkpoint:\n  every: soon", "wrong-type", "checkpoint.every", 2, "a number of steps", ""),
    ("checkpoint:\n  every: 0", "out-of-range", "checkpoint.every.steps", 2, "at least 1", ""),
    ("train:\n  optimizer:\n    betas: [0.9]", "wrong-type", "train.optimizer.betas", 3, "a list of 2 values", ""),
    ("train:\n  optimizer:\n    betas: [0.9, x]", "wrong-type", "train.optimizer.betas[1]", 3, "a number", ""),
    (
        "train:\n  engine: {type: fsdp2, fsdp_size: some}",
        "wrong-type",
        "train.engine.fsdp_size",
        2,
        "integer or all",
        "",
    ),
    ("runtime:\n  env_vars: {A: 1}", "wrong-type", "runtime.env_vars.A", 2, "it must be a string", ""),
    ("rlctl: 2", "schema-version", "rlctl", 1, "version 2; this rlctl reads 1", ""),
]


@pytest.mark.parametrize(
    ("text", "code", "key", "line", "words", "hint"), WRONG, ids=[f"{row[1]}-{row[2]}" for row in WRONG]
)
def test_what_is_wrong_is_named_with_its_place(
    text: str, code: str, key: str, line: int, words: str, hint: str
) -> None:
    loaded, report = load(read_yaml(text + "\n", "run.yaml"), environment={})
    assert loaded is None
    (finding,) = report.findings
    assert (finding.code, finding.key) == (code, key)
    assert finding.at is not None
    assert (finding.at.file, finding.at.line) == ("run.yaml", line)
    assert words in finding.message
    assert finding.hint == hint


def test_all_problems_are_found_at_once() -> None:
    values = {
        "bacth": {},
        "batch": {"ppo_epochs": "2", "micro_batch": {"unit": "rows"}},
        "algorithm": {"advantage": {"type": "grpo", "epsilon": 0}},
        "rewards": [{"type": "rule", "weight": None}, {"type": "nothing"}],
    }
    config, findings = build_config(values)
    assert config is None
    assert {finding.key for finding in findings} == {
        "bacth",
        "batch.ppo_epochs",
        "batch.micro_batch.unit",
        "algorithm.advantage.epsilon",
        "rewards[0].weight",
        "rewards[1]",
    }
    with pytest.raises(ConfigError) as raised:
        config_from(values)
    assert len(raised.value.message.splitlines()) == len(findings)


def test_an_unknown_key_alone_is_enough_to_build_nothing() -> None:
    config, findings = build_config({"batch": {"ppo_epoch": 2}})
    assert config is None
    assert [finding.code for finding in findings] == ["unknown-key"]
    with pytest.raises(ConfigError, match=r"unknown key 'batch\.ppo_epoch'"):
        config_from({"batch": {"ppo_epoch": 2}})


def test_unquoted_exponents_are_numbers_and_quoted_ones_are_text() -> None:
    """YAML 1.1 reads 1e-6 as text: a trap that verl, Trinity and ROLL share."""
    loaded, _ = load(read_yaml("train: {optimizer: {lr: 1e-6}}\n", "run.yaml"))
    assert loaded is not None
    assert loaded.config.train.optimizer.lr == 1e-6
    loaded, report = load(read_yaml("train: {optimizer: {lr: '1e-6'}}\n", "run.yaml"))
    assert loaded is None
    assert report.findings[0].hint == "remove the quotes"


def test_a_number_from_the_environment_is_a_number() -> None:
    text = (
        "batch: {prompts_per_step: '${oc.env:PROMPTS}'}\n"
        "train: {optimizer: {lr: '${oc.env:RATE,1e-5}'}}\n"
        "run: {name: '${oc.env:PROMPTS}'}\n"
    )
    loaded, report = load(read_yaml(text, "run.yaml"), environment={"PROMPTS": "64"})
    assert loaded is not None, report.findings
    assert loaded.config.batch.prompts_per_step == 64
    assert loaded.config.train.optimizer.lr == 1e-5
    assert loaded.config.run.name == "64"


def test_text_from_the_environment_in_a_number_field_is_an_error() -> None:
    document = read_yaml("batch: {prompts_per_step: '${oc.env:PROMPTS}'}\n", "run.yaml")
    loaded, report = load(document, environment={"PROMPTS": "many"})
    assert loaded is None
    assert [finding.code for finding in report.findings] == ["wrong-type"]
    loaded, report = load(document, environment={})
    assert loaded is None
    assert "PROMPTS" in report.findings[0].message


def test_a_choice_is_a_name_or_a_mapping_with_one() -> None:
    assert config_from({"algorithm": {"advantage": "gae"}}).algorithm.advantage == Gae()
    written = {"type": "gae", "lambda": 0.95}
    assert config_from({"algorithm": {"advantage": written}}).algorithm.advantage == Gae(lambda_=0.95)
    assert config_from({}).algorithm.advantage == Grpo()


@pytest.mark.parametrize(
    ("written", "interval"),
    [
        (20, Interval(steps=20)),
        ({"steps": 20}, Interval(steps=20)),
        ({"optimizer_steps": 100}, Interval(optimizer_steps=100)),
        ({"epochs": 2}, Interval(epochs=2)),
        (None, None),
    ],
)
def test_an_interval_counts_steps_unless_it_says_otherwise(written: Any, interval: Interval | None) -> None:
    assert config_from({"checkpoint": {"every": written}}).checkpoint.every == interval


def test_integers_are_floats_where_floats_are_asked_for_and_lists_become_tuples() -> None:
    config = config_from(
        {"train": {"optimizer": {"weight_decay": 0, "betas": [0.9, 1]}}, "profiling": {"steps": [1, 2]}}
    )
    assert config.train.optimizer.weight_decay == 0.0
    assert isinstance(config.train.optimizer.weight_decay, float)
    assert config.train.optimizer.betas == (0.9, 1.0)
    assert config.profiling.steps == (1, 2)


def test_a_union_takes_each_of_its_forms() -> None:
    for shard in ("all", 4):
        engine = config_from({"train": {"engine": {"type": "fsdp2", "fsdp_size": shard}}}).train.engine
        assert engine == Fsdp2(fsdp_size=shard)  # type: ignore[arg-type]


def test_a_section_with_a_default_of_its_own_keeps_it() -> None:
    """The critic's learning rate is 1e-5, the policy's 1e-6; setting another key of the optimizer does not change it."""
    critic = config_from({"critic": {"optimizer": {"weight_decay": 0.1}}}).critic
    assert critic is not None
    assert (critic.optimizer.lr, critic.optimizer.weight_decay) == (1e-5, 0.1)


def test_types_of_fields_are_those_that_python_finds() -> None:
    sections = {info.owner for info in walk(Config)}
    assert len(sections) > 100
    for section in sections:
        assert _hints(section) == get_type_hints(section, include_extras=True), section
