"""A secret in a file is withheld, and never the reason that something else is refused."""

from __future__ import annotations

import pytest

from rlctl.documents import read_yaml
from rlctl.translation.translate import read_document

UNKNOWN = {
    "rlctl": "rlctl: 1\nmodel: {path: q}\n",
    "verl": "data: {train_batch_size: 8}\nactor_rollout_ref: {model: {path: q}}\n",
    "trinity": "model: {model_path: q}\nbuffer: {batch_size: 8}\n",
    "roll": "pretrain: q\nrollout_batch_size: 8\n",
}


@pytest.mark.parametrize(
    "value", ["<your-api-key>", "YOUR_API_KEY", "xxx", "hunter-2-hunter-2", "sk-abcdefghijklmnopqrstuvwx1"]
)
@pytest.mark.parametrize("dialect", UNKNOWN)
def test_a_secret_under_an_unknown_key_is_no_reason_of_its_own(dialect: str, value: str) -> None:
    document = read_yaml(f"{UNKNOWN[dialect]}mine: {{api_key: '{value}'}}\n", "run.yaml")
    loaded, report = read_document(document, dialect=dialect, environment={})
    assert not [each for each in report.findings if each.code.startswith("unresolved")]
    if dialect != "rlctl":  # there an unknown key is an error
        assert loaded is not None, report.errors
    assert "hunter" not in str(report.as_data())
    assert "sk-abc" not in str(report.as_data())


def test_a_secret_that_a_known_key_holds_is_not_missed() -> None:
    text = "rlctl: 1\nmodel: {path: q}\ntracking: [{type: wandb, api_key: hunter-2-hunter-2}]\n"
    loaded, report = read_document(read_yaml(text, "run.yaml"), environment={})
    assert loaded is not None, report.errors
    assert [each.code for each in report.findings if each.code == "secret"] == ["secret"]
