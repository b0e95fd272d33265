"""Files of verl's forks: told by the fork's own keys, named, and never read as another run of verl."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.adapters import dialect
from rlctl.adapters.verl.forks import FORKS, fork_of
from rlctl.common.report import Bucket, Level
from rlctl.documents import read_yaml
from rlctl.translation.translate import read_document

from .corpus import examples

VERL = [
    "data.train_files=a.parquet",
    "data.train_batch_size=16",
    "actor_rollout_ref.model.path=m",
    "actor_rollout_ref.actor.ppo_mini_batch_size=16",
    "algorithm.adv_estimator=grpo",
]


def _read(*own: str) -> Any:
    return read_document(read_yaml("", "f", allow_empty=True), overrides=[*VERL, *own], environment={})


@pytest.mark.parametrize(
    ("name", "own", "by"),
    [
        ("verl-agent", ["env.env_name=Webshop", "env.rollout.n=8", "env.max_steps=15"], "env.rollout.n"),
        ("Search-R1", ["actor_rollout_ref.rollout.n_agent=5", "max_turns=2"], "actor_rollout_ref.rollout.n_agent"),
        ("RAGEN", ["es_manager.train.group_size=16", "agent_proxy.max_turn=5"], "es_manager.train.group_size"),
    ],
)
def test_a_fork_that_counts_its_batch_otherwise_is_refused(name: str, own: list[str], by: str) -> None:
    loaded, report = _read(*own)
    assert loaded is None
    assert [(item.code, item.key) for item in report.errors] == [("fork", by)]
    assert name in report.errors[0].message
    assert "actor_rollout_ref.rollout.n " in report.errors[0].hint


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("rLLM", ["rllm.agent.max_steps=5", "rllm.env.name=search"]),
        ("verl-tool", ["actor_rollout_ref.agent.max_turns=1"]),
    ],
)
def test_the_keys_of_a_fork_are_named_once(name: str, own: list[str]) -> None:
    loaded, report = _read(*own, "discriminator.optim.lr=1")
    assert loaded is not None
    [found] = [item for item in report.findings if item.code == "fork"]
    assert found.level is Level.WARNING
    assert name in found.message
    buckets = {entry.key: entry.bucket for entry in report.accounting}
    assert {buckets[text.partition("=")[0]] for text in own} == {Bucket.UNSUPPORTED}
    [unknown] = [item for item in report.findings if item.code == "unknown-key"]
    assert (unknown.key, unknown.meant, unknown.hint) == ("discriminator.optim.lr", "", "")


def test_no_example_of_verl_is_a_forks() -> None:
    table = dialect("verl").tables["ppo"]
    for example in examples("verl"):
        document = read_yaml(example.path.read_text(), example.name, allow_empty=True)
        assert fork_of(document, table) is None, example.name


def test_no_fork_has_a_sign_that_verl_has() -> None:
    table = dialect("verl").tables["ppo"]
    plain = [sign for fork in FORKS for sign in fork.signs if "*" not in sign]
    assert [sign for sign in plain if table.releases(tuple(sign.split("."))) is not None] == []
