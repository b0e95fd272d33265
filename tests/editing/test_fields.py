"""A config as a form: every value is a field once, with what a person needs to know of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.common.errors import ConfigError
from rlctl.config.inspect import fields_of, walk
from rlctl.config.root import Config
from rlctl.documents import dotted
from rlctl.editing.fields import APPLIES, ESSENTIAL, fields, meanings, search, without_markup
from rlctl.editing.naming import all_names, dialects_inside, inner_names, name_in, names_of
from rlctl.editing.session import Session
from rlctl.editing.values import text_of, value_of


@pytest.fixture
def session(tmp_path: Path) -> Session:
    path = tmp_path / "run.yaml"
    path.write_text(
        "rlctl: 1\nrun: {name: demo}\ntrain:\n  optimizer:\n    lr: 2e-6\nrewards: [{name: a, type: rule}]\n"
    )
    return Session.open(path)


def view(session: Session, key: str):  # type: ignore[no-untyped-def]
    [found] = [field for field in fields(session) if field.pattern == key]
    return found


def test_every_value_is_a_field_once(session: Session) -> None:
    found = fields(session)
    paths = [field.path for field in found]
    assert len(paths) == len(set(paths))
    patterns = {field.pattern for field in found}
    for section in ("run", "model", "data", "batch", "train", "rollout", "checkpoint"):
        cls = type(getattr(Config(), section))
        assert {f"{section}.{name}" for name in fields_of(cls)} <= patterns | {
            pattern.rsplit(".", 1)[0] for pattern in patterns
        } | {key for pattern in patterns for key in _above(pattern)}
    assert all(field.help for field in found)


def _above(pattern: str) -> list[str]:
    parts = pattern.split(".")
    return [".".join(parts[:size]) for size in range(1, len(parts))]


def test_the_essential_keys_are_keys() -> None:
    known = {key.pattern for key in walk(Config)}
    assert known >= ESSENTIAL
    assert known >= set(APPLIES)


def test_what_is_known_of_a_field(session: Session) -> None:
    rate = view(session, "train.optimizer.lr")
    assert (rate.kind, rate.text, rate.default, rate.changed, rate.edited) == (
        "number",
        "2.0e-06",
        "1.0e-06",
        True,
        False,
    )
    assert rate.origin.endswith("run.yaml:5 (train.optimizer.lr)")
    session.set(rate.path, 3e-6)
    rate = view(session, "train.optimizer.lr")
    assert (rate.text, rate.edited, rate.origin) == ("3.0e-06", True, "changed here")
    name = view(session, "train.lr_scheduler.type")
    assert name.kind == "enum"
    assert "cosine" in name.options
    assert name.origin == "default"
    engine = view(session, "train.engine")
    assert (engine.kind, engine.text, engine.default, engine.changed) == ("choice", "fsdp2", "fsdp2", False)
    assert "megatron" in engine.options
    assert view(session, "data.train").kind == "list"
    assert view(session, "run.deterministic").kind == "bool"


def test_what_does_not_matter_is_said(session: Session) -> None:
    assert view(session, "rollout.max_response_tokens").applies
    session.choose(("algorithm", "objective"), "sft")
    assert not view(session, "rollout.max_response_tokens").applies
    assert view(session, "train.optimizer.lr").applies


def test_fields_are_found_by_key_name_and_help(session: Session) -> None:
    found = fields(session)

    def names(pattern: str) -> list[str]:
        return ["actor_rollout_ref.actor.optim.lr"] if pattern == "train.optimizer.lr" else []

    assert search(found, "optim.lr", names)[0].pattern == "train.optimizer.lr"
    assert search(found, "lr", names)[0].pattern.endswith(".lr")
    assert search(found, "PEAK learning", names)
    assert search(found, "temperature", names)[0].path == ("rollout", "sampling", "temperature")
    assert search(found, "path", names)[0].path == ("model", "path")
    assert search(found, "no such words at all", names) == []


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("kl_loss_coef", "algorithm.kl_in_loss"),
        ("val_files", "data.eval"),
        ("mini batch", "batch.mini_batch_responses"),
        ("gpu_memory_utilization", "rollout.memory.gpu_memory_utilization"),
        ("rollout_batch_size", "batch.prompts_per_step"),
        ("train_batch_size", "batch.prompts_per_step"),
        ("repeat_times", "batch.responses_per_prompt"),
        ("n", "batch.responses_per_prompt"),
        ("offload", "train.engine.offload"),
        ("lr", "train.optimizer.lr"),
        ("max_steps", "schedule.total_steps"),
        ("sync_interval", "weight_sync.every"),
        ("adv_estimator", "algorithm.advantage"),
        ("gamma", "algorithm.advantage"),
        ("lambda", "algorithm.advantage"),
        ("loss_agg_mode", "algorithm.loss_aggregation.mode"),
        ("n_gpus_per_node", "placement.devices_per_node"),
        ("nnodes", "placement.nodes"),
        ("response_length", "rollout.max_response_tokens"),
        ("tensor parallel", "rollout.parallel.tensor_parallel_size"),
        ("vllm", "rollout.engine"),
        ("wandb", "tracking"),
    ],
)
def test_what_a_user_of_a_framework_types_leads_to_what_they_mean(typed: str, first: str) -> None:
    assert dotted(search(fields(Session.new()), typed, all_names, inner_names)[0].path) == first


@pytest.mark.parametrize(
    ("typed", "first"), [("train_files", "path"), ("prompt_key", "prompt_key"), ("temperature", "temperature")]
)
def test_a_name_of_a_source_leads_to_its_field(typed: str, first: str) -> None:
    session = Session.new()
    session.set(("data", "train"), [{"path": "t.parquet"}])
    assert search(fields(session), typed, all_names, inner_names)[0].path[-1] == first


def test_a_choice_and_a_section_have_names_in_the_dialects() -> None:
    assert "algorithm.adv_estimator" in names_of("algorithm.advantage")["verl"]
    assert "critic.strategy" in names_of("critic.engine")["verl"]
    assert dialects_inside("algorithm.kl_in_loss") == {"verl", "trinity", "roll"}
    assert dialects_inside("run.name") == set()


def test_a_key_is_named_as_in_the_kind_of_the_file() -> None:
    """Only verl's SFT trainer has one seed for a run."""
    assert [name_in("run.seed", "verl", kind) for kind in ("ppo", "sft")] == ["", "trainer.seed"]
    assert name_in("algorithm.advantage", "verl", "ppo") == "algorithm.adv_estimator"
    assert Session.new("verl@0.9").kind == "ppo"
    assert Session.new().kind == ""


def test_what_is_saved_is_not_edited_any_more(session: Session) -> None:
    session.set(("run", "seed"), 7)
    session.save()
    session.set(("run", "name"), "other")
    assert {field.pattern for field in fields(session) if field.edited} == {"run.name"}
    session.undo()
    session.undo()
    assert {field.pattern for field in fields(session) if field.edited} == {"run.seed"}


@pytest.mark.parametrize(
    ("key", "typed", "value"),
    [
        ("train.optimizer.lr", "1e-6", 1e-6),
        ("train.optimizer.betas", "[0.9, 0.95]", [0.9, 0.95]),
        ("train.optimizer.max_grad_norm", "null", None),
        ("run.name", "123", "123"),
        ("run.deterministic", "true", True),
        ("checkpoint.every", "{optimizer_steps: 100}", {"optimizer_steps": 100}),
        ("checkpoint.every", "20", 20),
    ],
)
def test_typed_text_and_back(session: Session, key: str, typed: str, value: object) -> None:
    found = view(session, key)
    assert value_of(typed, found.info) == value
    session.set(found.path, value_of(typed, found.info))
    again = view(session, key)
    assert value_of(text_of(again.value), again.info) == value


def test_text_that_cannot_be_read_is_an_error(session: Session) -> None:
    with pytest.raises(ConfigError, match="betas"):
        value_of("[0.9", view(session, "train.optimizer.betas").info)


def test_every_option_of_a_choice_is_explained(session: Session) -> None:
    for view in fields(session):
        assert tuple(meanings(view)) == (view.options if view.kind == "choice" else tuple(meanings(view)))
        assert all(meanings(view).values())
    (rewards,) = [view for view in fields(session) if view.pattern == "rewards"]
    assert "judge" in meanings(rewards)
    assert not meanings(next(view for view in fields(session) if view.pattern == "run.name"))


def test_a_choice_says_where_its_name_was_written(tmp_path: Path) -> None:
    path = tmp_path / "verl.yaml"
    path.write_text("data: {train_files: a.parquet}\nalgorithm:\n  adv_estimator: rloo\n")
    (advantage,) = [view for view in fields(Session.open(path)) if view.pattern == "algorithm.advantage"]
    assert advantage.origin == f"{path}:3 (algorithm.adv_estimator)"


def test_help_has_no_markup_of_pages() -> None:
    texts = [view.help for view in fields(Session.new())] + [
        text for view in fields(Session.new()) for text in meanings(view).values()
    ]
    assert [text for text in texts if "`" in text] == []
    assert without_markup("null takes ``run.seed`` or `b`.") == "null takes run.seed or b."
