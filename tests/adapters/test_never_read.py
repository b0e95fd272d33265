"""Keys that a framework accepts and never reads: what ``check`` says of them, and that the tables agree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from rlctl.adapters import dialect
from rlctl.adapters.engine.requirements import IGNORES, refused, requirements_of
from rlctl.adapters.engine.rules import Key, split, version_of
from rlctl.adapters.engine.schema import schema
from rlctl.adapters.engine.unread import FOLDER, unread
from rlctl.documents import read_yaml
from tests.upstream.unread_keys import Source

FRAMEWORKS = ("roll", "trinity", "verl")
LINES = [(name, *line.split("\t")) for name in FRAMEWORKS for line in (FOLDER / f"{name}.tsv").read_text().splitlines()]


def _ignored(framework: str, release: str, text: str) -> list[str]:
    requirements = requirements_of(framework)
    assert requirements is not None
    document = read_yaml(text, "run.yaml")
    broken = refused(requirements, dialect(framework), document, release=release, environment={})
    return [row.key for row, _ in broken if row.code == IGNORES]


@pytest.mark.parametrize(
    ("framework", "release", "text", "keys"),
    [
        ("verl", "0.9", "data: {return_raw_input_ids: true}\n", ["data.return_raw_input_ids"]),
        ("verl", "0.9", "data: {return_raw_input_ids: false}\n", []),
        ("verl", "0.9", "actor_rollout_ref: {nccl_timeout: 1200}\n", ["actor_rollout_ref.nccl_timeout"]),
        ("verl", "0.6", "actor_rollout_ref: {nccl_timeout: 1200}\n", []),
        ("verl", "0.9", "critic: {forward_max_token_len_per_gpu: '${critic.ppo_max_token_len_per_gpu}'}\n", []),
        ("trinity", "0.6", "synchronizer: {wait_for_checkpoint: true}\n", ["synchronizer.wait_for_checkpoint"]),
        ("trinity", "0.6", "model: {lora_configs: [{lora_dtype: bfloat16}]}\n", ["model.lora_configs.0.lora_dtype"]),
        ("roll", "2026.8", "rewards: {}\nval_n_sample: 4\n", ["val_n_sample"]),
        ("roll", "2026.8", "rewards: {}\nval_n_sample: 1\nl2: null\n", []),
    ],
)
def test_a_value_other_than_the_default_is_told(framework: str, release: str, text: str, keys: list[str]) -> None:
    assert [key.replace("[0]", ".0") for key in _ignored(framework, release, text)] == keys


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_key_is_one_of_the_releases(framework: str) -> None:
    for name, kind, key, releases in LINES:
        if name == framework:
            having = schema(framework, kind).releases(split(key)) or frozenset()
            assert {release for release in having if split(key) in unread(framework, kind, release)}, (key, releases)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_rule_reads_or_writes_a_key_that_is_never_read(framework: str) -> None:
    """A value that rlctl writes there would be lost."""
    found = dialect(framework)
    wrong = set()
    for release in found.versions:
        for kind, table in found.tables.items():
            never = unread(framework, kind, release)
            for rule in table.rules:
                keys = [key for key in rule.keys if key.path in never and key.applies(version_of(release))]
                wrong |= {(release, kind, key.name) for key in keys if isinstance(rule, Key) and key is rule.keys[0]}
    assert wrong == set()


SOURCE = '''
"""A module that is about told."""
from dataclasses import dataclass, field

@dataclass
class Config:
    """A field declared is no place that reads it."""
    declared: int = field(default=1, metadata={"help": "as described"})
    checked: int = 2

    def __post_init__(self):
        assert self.checked > 0

def run(config, argument):
    engine(**config.whole)
    other = config.copied
    engine(**other)
    return config.section.get("looked_up"), getattr(config, "by_name"), config["by_index"]
'''


def test_what_a_source_reads(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(SOURCE)
    ast.parse(SOURCE)
    source = Source(tmp_path)
    read = (
        "checked",
        "a.looked_up",
        "by_name",
        "by_index",
        "argument",
        "whole.any",
        "copied.any.more",
        "elsewhere.any",
    )
    assert [key for key in read if not source.reads(key, ("elsewhere",))] == []
    assert [key for key in ("declared", "a.described", "told") if source.reads(key, ())] == []


def test_a_config_without_code_counts_as_read(tmp_path: Path) -> None:
    """As the folders of an asynchronous trainer whose package lacks its modules."""
    folder = tmp_path / "package" / "config"
    folder.mkdir(parents=True)
    (folder / "run.yaml").write_text("only_here: 1\nother: ${referred.to}\n")
    assert Source(tmp_path / "package").reads("only_here", ())
    (tmp_path / "package" / "main.py").write_text("x = 1\n")
    source = Source(tmp_path / "package")
    assert not source.reads("only_here", ())
    assert source.reads("a.to", ())
