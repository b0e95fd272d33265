"""What a report says of a key that the target has none for: what is lacking, and what follows for the run."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from rlctl.adapters import dialect, names
from rlctl.adapters.engine.lacking import EFFECTS, LACKS, lacking
from rlctl.adapters.engine.rules import NO_KEY
from rlctl.common.ranks import Rank
from rlctl.common.report import Bucket
from rlctl.config import Config
from rlctl.config.inspect import walk
from rlctl.planning.support import NOT_YET, status_of
from rlctl.translation.translate import convert

ENVIRONMENTS = """
pretrain: org/model
rollout_batch_size: 16
train_env_manager: {max_env_num_per_worker: 4, num_env_groups: 16, group_size: 2, tags: [SimpleSokoban], num_groups_partition: [16]}
custom_envs: {SimpleSokoban: {env_type: sokoban, env_config: {dim_room: [6, 6], num_boxes: 1, max_steps: 10, search_depth: 20}}}
"""
CATCH_ALL = re.compile(r"has nothing for it|has no such (key|setting|endpoint)|nothing like")


def test_keys_of_one_lack_share_one_sentence() -> None:
    made = convert(ENVIRONMENTS, to="verl", dialect="roll")
    lost = {entry.key: entry.note for entry in made.report.accounting if entry.loses}
    own = {key: note for key, note in lost.items() if key.startswith("custom_envs")}
    assert len(own) > 3
    assert set(own.values()) == {"an agent that acts in an environment: verl has no environments"}


def test_every_row_names_a_key() -> None:
    """Rows of values that only a dialect names are about its own keys."""
    known = [re.sub(r"\[\]|<[^>]*>", "", key.path) for key in walk(Config)] + ["rewards.type"]
    own = [row for row in LACKS if not row.startswith("extensions.")]
    assert [row for row in own if not any(key == row or key.startswith(f"{row}.") for key in known)] == []


def test_a_key_without_a_row_says_what_follows_of_its_rank() -> None:
    assert lacking("roll", ("batch", "balance")).endswith(EFFECTS[Rank.RESOURCES])
    assert "ROLL has no key for algorithm.filters" in lacking("roll", ("algorithm", "filters", 0))


@pytest.mark.parametrize("name", [name for name in names() if name != "rlctl"])
def test_no_table_has_a_sentence_for_everything(name: str) -> None:
    reasons = {rule.reason for table in dialect(name).tables.values() for rule in table.dropped.values()}
    assert [reason for reason in reasons if CATCH_ALL.search(reason)] == []


@pytest.mark.parametrize(
    ("target", "key", "line", "never"),
    [
        ("verl", "algorithm.old_log_probs", "algorithm: {old_log_probs: auto}", "bypass_mode: auto"),
        ("verl", "rollout.sampling.log_probs", "rollout: {sampling: {log_probs: 3}}", "calculate_log_probs: 3"),
        ("trinity", "train.engine.source", "train: {engine: {type: fsdp2, source: fsdp_turbo}}", "fsdp_turbo"),
    ],
)
def test_a_value_without_a_word_in_the_target_is_reported_and_not_copied(
    target: str, key: str, line: str, never: str
) -> None:
    source = f"rlctl: 1\nmodel: {{path: org/model}}\ndata: {{train: [{{path: a.parquet}}]}}\n{line}\n"
    made = convert(source, to=target, dialect="rlctl", options={"carried": "none"})
    assert made.text is not None
    assert never not in made.text
    entry = next(entry for entry in made.report.accounting if entry.key == key)
    assert entry.note, "it says why"
    assert entry.loses or entry.bucket is Bucket.DERIVED


@pytest.mark.parametrize("name", [name for name in names() if name != "rlctl"])
def test_each_key_that_a_table_calls_lacking_has_a_row(name: str) -> None:
    """One that no run supports yet may still have the general sentence, in which its rank says what follows."""
    entries = (rule for table in dialect(name).tables.values() for rule in table.dropped.values())
    keys = {rule.to for rule in entries if rule.reason == NO_KEY and not rule.to.endswith(".**")}
    general = tuple(EFFECTS.values())
    without = [key for key in sorted(keys) if lacking(name, _path(key)).endswith(general)]
    assert [key for key in without if not _waits(key)] == []


def _waits(key: str) -> bool:
    """Whether no run supports a key yet; of one that belongs to an option, tables leave out the option's name."""
    with suppress(KeyError):
        return status_of(key).why == NOT_YET
    return False


def _path(key: str) -> tuple[str, ...]:
    return tuple(re.sub(r"\[\]|\{\}|<[^>]*>", "", key).split("."))
