"""Files with very many unknown keys are read in a time that grows with their number, not with its square."""

from __future__ import annotations

import time

import pytest

from rlctl.documents import read_yaml
from rlctl.translation.translate import read_document

HEADS = {
    "verl": "data: {train_batch_size: 8}\nactor_rollout_ref: {model: {path: q}}\n",
    "trinity": "model: {model_path: q}\nbuffer: {batch_size: 8}\n",
    "roll": "pretrain: q\nrollout_batch_size: 8\n",
    "rlctl": "rlctl: 1\nmodel: {path: q}\n",
}


def seconds(dialect: str, keys: int, *, nested: bool) -> float:
    body = "".join(f"{'  ' * nested}key_{number}: {number}\n" for number in range(keys))
    document = read_yaml(HEADS[dialect] + ("mine:\n" if nested else "") + body, "run.yaml")
    began = time.process_time()
    _, report = read_document(document, dialect=dialect, environment={})
    took = time.process_time() - began
    assert len(report.accounting) >= keys
    return took


@pytest.mark.parametrize("nested", [False, True], ids=["top", "nested"])
@pytest.mark.parametrize("dialect", HEADS)
def test_unknown_keys_take_linear_time(dialect: str, nested: bool) -> None:
    seconds(dialect, 500, nested=nested)  # what is loaded once
    few, many = seconds(dialect, 1_500, nested=nested), seconds(dialect, 6_000, nested=nested)
    assert many < 9 * few + 0.5, (few, many)
    assert many < 20
