"""A canonical key leads to the keys of a dialect, and a key of a dialect to its meaning."""

from __future__ import annotations

import pytest

from rlctl.adapters import dialect
from rlctl.adapters.engine.meanings import default_text, meanings, nearest, others, spellings
from rlctl.adapters.engine.rules import ABSENT, DefaultFrom, VersionedDefault


@pytest.mark.parametrize(
    ("path", "name", "key", "default"),
    [
        ("train.optimizer.lr", "verl", "actor_rollout_ref.actor.optim.lr", 1e-6),
        ("train.optimizer.lr", "trinity", "algorithm.optimizer.lr", 1e-6),
        ("batch.responses_per_prompt", "verl", "actor_rollout_ref.rollout.n", 1),
        ("batch.responses_per_prompt", "trinity", "algorithm.repeat_times", 1),
        ("algorithm.advantage.type", "verl", "algorithm.adv_estimator", "gae"),
        ("batch.ppo_epochs", "verl", "actor_rollout_ref.actor.ppo_epochs", 1),
    ],
)
def test_a_canonical_key_has_its_name_and_default_in_each_dialect(
    path: str, name: str, key: str, default: object
) -> None:
    keys = {item.name: item.default for found in spellings(path) if found.dialect == name for item in found.keys}
    assert keys[key] == default


def test_what_a_dialect_has_nothing_for_says_why() -> None:
    (found,) = [item for item in spellings("algorithm.loss_aggregation.scale_factor") if item.dialect == "trinity"]
    assert (found.keys, found.how) == ((), "dropped")
    assert found.notes[0]


def test_a_key_of_a_dialect_leads_to_its_canonical_keys() -> None:
    (found,) = meanings("buffer.train_batch_size")
    assert found.dialect == "trinity"
    assert "batch.mini_batch_responses" in found.canonical
    (verl,) = meanings("verl:data.train_batch_size")
    assert verl.canonical == ("batch.prompts_per_step",)
    assert verl.default == 1024
    assert "0.9" in verl.releases


def test_a_key_without_a_canonical_meaning_says_what_becomes_of_it() -> None:
    (found,) = meanings("trainer.esi_redundant_time")
    assert found.canonical == ()
    assert found.notes[0].startswith("kept, but not used: ")


def test_every_key_of_every_index_is_known() -> None:
    missing = []
    for name in others():
        for table in dialect(name).tables.values():
            keys = [path for path in table.index if "*" not in path and "**" not in path][::80]
            missing += [path for path in keys if not meanings(f"{name}:" + ".".join(str(part) for part in path))]
    assert missing == []


def test_names_that_nobody_has_are_answered_with_near_ones() -> None:
    assert meanings("data.train_bach_size") == []
    assert "data.train_batch_size" in nearest("data.train_bach_size")


def test_defaults_read_as_people_write_them() -> None:
    values = (ABSENT, None, True, 1, 0.5, DefaultFrom("a.b"), VersionedDefault({"0.3": 1, "0.6": False}))
    assert [default_text(value) for value in values] == [
        "",
        "null",
        "true",
        "1",
        "0.5",
        "same as a.b",
        "1 from 0.3; false from 0.6",
    ]
