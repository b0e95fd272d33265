"""A reward, data or a part of the loss that a framework accepts and does not read is a warning, with the key that it reads."""

from __future__ import annotations

import pytest

from rlctl.adapters import dialect as dialect_called
from rlctl.adapters import names
from rlctl.adapters.engine.rules import version_of
from rlctl.common.ranks import Rank
from rlctl.common.report import Finding, Level
from rlctl.documents import read_yaml
from rlctl.translation.translate import convert, read, read_document
from tests.adapters.corpus import OWN

VERL = "data: {train_files: /d/a.parquet, train_batch_size: 8}\ntrainer: {total_training_steps: 2}\n"
A = "actor_rollout_ref"
ROLL = "actor_train: {model_args: {lora_rank: 8}, data_args: {file_name: a.jsonl}}\nmax_steps: 2\n"


def _told(text: str, dialect: str) -> list[Finding]:
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect=dialect, environment={})
    assert loaded is not None, report.errors
    return [item for item in report.findings if item.code == "key-unread"]


@pytest.mark.parametrize(
    ("dialect", "text", "key", "instead"),
    [
        (
            "verl@0.9",
            VERL + f"{A}: {{model: {{path: m}}, actor: {{grad_clip: 0.3}}}}\n",
            "actor.grad_clip",
            "optim.clip_grad",
        ),
        (
            "verl@0.9",
            VERL + f"{A}: {{model: {{path: m}}, actor: {{policy_loss: {{loss_mode: sapo, tau_pos: 3.0}}}}}}\n",
            "policy_loss.tau_pos",
            "actor.tau_pos",
        ),
        (
            "verl@0.9",
            VERL + "reward: {overlong_buffer: {enable: true, len: 8}}\n",
            "reward.overlong_buffer",
            "overlong_buffer_cfg",
        ),
        (
            "verl@0.9",
            VERL + "reward: {reward_kwargs: {max_resp_len: 9, overlong_buffer_cfg: {enable: true, len: 8}}}\n",
            "overlong_buffer_cfg.enable",
            "none",
        ),
        (
            "verl@0.9",
            VERL + f"{A}: {{actor: {{policy_loss: {{loss_mode: sapo}}, loss_agg_mode: seq-mean-token-sum}}}}\n",
            "loss_agg_mode",
            "none",
        ),
        ("roll", ROLL + "pg_variant: topr\n", "pg_variant", "actor_train.pg_variant"),
        ("roll", ROLL + "lora_rank: 64\n", "lora_rank", "actor_train.model_args.lora_rank"),
        ("roll", ROLL + "reward_norm: batch\n", "reward_norm", "none"),
        ("roll", ROLL + "sft_loss_coef: 0.1\n", "sft_loss_coef", "none"),
        ("roll", ROLL + "use_topr_loss: true\n", "use_topr_loss", "none"),
    ],
)
def test_it_is_told_first_with_the_key_that_is_read(dialect: str, text: str, key: str, instead: str) -> None:
    (told,) = _told(text, dialect)
    assert told.key.endswith(key)
    assert str(told.params["instead"]).endswith(instead)
    assert (told.level, told.rank) == (Level.WARNING, Rank.OBJECTIVE)


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("verl@0.9", VERL + f"{A}: {{actor: {{grad_clip: 1.0}}}}\n"),
        ("verl@0.9", VERL + f"{A}: {{actor: {{grad_clip: 0.3, optim: {{clip_grad: 0.3}}}}}}\n"),
        ("verl@0.7", VERL + f"{A}: {{actor: {{grad_clip: 0.3}}}}\n"),
        ("roll", ROLL + "lora_rank: 8\n"),
        ("roll", ROLL + "sft_loss_coef: 0.0\nreward_norm: null\nuse_topr_loss: false\n"),
    ],
)
def test_a_key_that_asks_for_nothing_else_is_not_told(dialect: str, text: str) -> None:
    assert _told(text, dialect) == []


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("algorithm.rollout_correction.rollout_is=token", "algorithm.rollout_correction"),
        ("trainer.trainer_config.custom_reward_function.path=r.py", "trainer.trainer_config.custom_reward_function"),
        ("trainer.trainer_config.actor_rollout_ref.actor.clip_ratio=0.3", "actor.clip_ratio"),
        ("buffer.explorer_input.taskset.repeat_times=3", "taskset.repeat_times"),
    ],
)
def test_trinity(line: str, key: str) -> None:
    loaded, report = read(OWN / "trinity" / "grpo.yaml", dialect="trinity@0.6", overrides=[line], environment={})
    assert loaded is not None, report.errors
    assert [item.key.endswith(key) for item in report.findings if item.code == "key-unread"] == [True]


def test_every_such_note_of_a_table_names_a_key_that_the_table_reads() -> None:
    """``instead`` is advice: the release that has the note has the key."""
    wrong = set()
    for found in map(dialect_called, names()):
        tables = found.tables.values()
        for note in {note for table in tables for note in table.notes if note.instead}:
            for version in map(version_of, found.versions):
                place = note.read_instead(note.path)
                place = place[:-1] if place[-1] == "**" else place
                if note.applies(version) and not any(table.knows(place, version) for table in tables):
                    wrong.add((found.name, version, note.key, note.instead))
    assert wrong == set()


def test_convert_says_it_in_its_first_group() -> None:
    made = convert(VERL + "custom_reward_function: {path: r.py, name: f}\n", "trinity", dialect="verl@0.9")
    assert next(item for item in made.report.findings if item.rank is not Rank.BREAKS).code == "key-unread"
