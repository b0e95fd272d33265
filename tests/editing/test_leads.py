"""A line of the account leads to the field that it speaks of, whichever file's key it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.common.report import Finding, Level
from rlctl.editing.leads import Leads
from rlctl.editing.session import Session
from rlctl.translation.translate import Translation

FILE = """\
data: {train_files: train.parquet, train_batch_size: 64}
actor_rollout_ref:
  model: {path: model}
  rollout: {n: 8, name: vllm}
algorithm: {adv_estimator: grpo}
trainer: {n_gpus_per_node: 8, total_epochs: 1}
"""


@pytest.fixture
def session(tmp_path: Path) -> Session:
    (tmp_path / "verl.yaml").write_text(FILE)
    return Session.open(tmp_path / "verl.yaml", dialect="verl")


def warned(found: Translation, code: str) -> Finding:
    return next(item for item in found.report.findings if item.code == code)


def test_a_warning_of_the_targets_key_leads_to_the_field_that_it_was_written_from(session: Session) -> None:
    found = session.preview("roll")
    item = warned(found, "data-columns")
    assert item.key == "actor_train.data_args.file_name"
    assert Leads(session, found).of_finding(item) == ("data", "train", 0, "path")


def test_of_a_key_that_nothing_was_written_to_it_is_what_the_dialect_means_by_it(session: Session) -> None:
    found = session.preview("trinity")
    item = Finding("other-gradient", Level.WARNING, "it is another one", "algorithm.policy_loss_fn")
    assert Leads(session, found).of_finding(item)[0] == "algorithm"
    workflow = Finding("x", Level.WARNING, "it is another one", "buffer.explorer_input.default_workflow_type")
    assert Leads(session, found).of_finding(workflow)[0] == "rollout"


def test_a_key_in_the_words_of_a_warning_is_found_and_where_there_is_none_nothing_is(session: Session) -> None:
    leads = Leads(session, session.preview("roll"))
    told = Finding("x", Level.WARNING, "set batch.prompts_per_step to 8, or a.b.c")
    assert leads.of_finding(told) == ("batch", "prompts_per_step")
    assert leads.of_finding(Finding("x", Level.WARNING, "nothing of it; a.b")) == ()


def test_a_key_of_the_source_leads_to_the_field_that_it_fills(session: Session) -> None:
    found = session.preview("roll")
    entry = next(entry for entry in found.report.accounting if entry.key == "actor_rollout_ref.rollout.n")
    assert Leads(session, found).of_entry(entry) == ("batch", "responses_per_prompt")
