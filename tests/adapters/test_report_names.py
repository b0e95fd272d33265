"""A report on two frameworks' files has their keys: a canonical one only if the file that was read has none for it."""

from __future__ import annotations

import re

import pytest

from rlctl.adapters import names
from rlctl.documents import dotted, read_yaml
from rlctl.translation.translate import convert, translate_loaded

from .corpus import examples

FRAMEWORKS = [name for name in names() if name != "rlctl"]
OWN = re.compile(r"rlctl's ([a-z_]+(?:\[\d+\])?(?:\.[a-z_]+(?:\[\d+\])?)+)")
FACTS = {"dataset_rows": "4000", "explorer_gpus": "2", "stage": "main"}


@pytest.mark.parametrize("source", FRAMEWORKS)
@pytest.mark.parametrize("target", FRAMEWORKS)
def test_no_line_names_a_canonical_key_that_a_key_of_the_file_decides(source: str, target: str) -> None:
    wrong = []
    for example in [item for item in examples(source) if not item.is_default]:
        loaded, report = example.read()
        if loaded is None:
            continue
        made = translate_loaded(loaded, report, target, options=FACTS)
        own = {dotted(path) for path, item in loaded.sources.items() if item.key}
        texts = [*(item.message for item in made.report.findings), *(item.note for item in made.report.accounting)]
        wrong += [(example.name, key) for text in texts for key in OWN.findall(text) if key in own]
    assert wrong == []


def test_a_value_that_the_target_does_not_set_is_not_called_null() -> None:
    text = (
        "data: {train_files: /d/a.parquet, train_batch_size: 8}\ntrainer: {total_epochs: 3, total_training_steps: 5}\n"
    )
    made = convert(text, "trinity", dialect="verl@0.9", options=FACTS)
    assert not [item for item in made.report.accounting if "the value is null" in item.note]


HEAD = "# Experiment 12\n# by ana\n"
BODY = "data: {seed: 42, train_files: /d/a.parquet, train_batch_size: 8}\ntrainer: {total_training_steps: 5}\n"


@pytest.mark.parametrize("gap", ["\n", ""])
@pytest.mark.parametrize("target", ["trinity", "roll", "rlctl", "verl"])
def test_the_comment_of_a_file_stays_at_its_head(gap: str, target: str) -> None:
    made = convert(HEAD + gap + BODY, target, dialect="verl@0.9", options=FACTS)
    assert made.text is not None
    assert made.text.startswith(HEAD)
    assert made.text.count("Experiment 12") == 1
    assert read_yaml(made.text, "out").comments[()].above == ("Experiment 12", "by ana")


@pytest.mark.parametrize(("seed", "lost"), [(42, False), (7, True)])
def test_a_seed_of_the_order_is_lost_only_if_it_is_another_than_the_runs(seed: int, lost: bool) -> None:
    made = convert(BODY.replace("42", str(seed)), "roll", dialect="verl@0.9", options=FACTS)
    (entry,) = [item for item in made.report.accounting if item.key == "data.seed"]
    assert entry.loses is lost
