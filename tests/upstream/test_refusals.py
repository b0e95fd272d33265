"""The inventory of refusals fits the frameworks' sources, rlctl's checks and the page about it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from . import refusals
from .frameworks import CHECKOUT
from .refusal_sites import SOURCES, Site, folder, sites_of

AIMS = {"verl": 65, "trinity": 69, "roll": 59, "vllm": 64, "megatron": 86}
"""The percentage of the sites that an input of a run decides which a check predicts, at least."""
JUDGED = [framework for framework in SOURCES if refusals.rows(framework)]


@pytest.mark.parametrize("framework", JUDGED)
def test_every_row_is_judged_with_checks_that_exist(framework: str) -> None:
    rows = refusals.rows(framework)
    assert [row.judgement for row in rows if row.judgement not in refusals.JUDGEMENTS] == []
    assert [row.text() for row in rows if not row.codes and not row.reason] == []
    assert [row.text() for row in rows if row.judgement == "internal" and row.codes] == []
    assert list(refusals.unknown_codes(framework)) == []


@pytest.mark.parametrize("framework", JUDGED)
def test_a_file_is_sorted_and_has_no_row_twice(framework: str) -> None:
    rows = refusals.rows(framework)
    assert [row.text() for row in rows] == sorted(row.text() for row in rows)
    assert len({row.site for row in rows}) == len(rows)


@pytest.mark.parametrize("framework", JUDGED)
def test_checks_predict_as_many_sites_as_they_did(framework: str) -> None:
    total, predicted = refusals.coverage(refusals.rows(framework))
    assert 100 * predicted >= AIMS[framework] * total


def test_the_page_is_what_the_files_say() -> None:
    assert refusals.PAGE.read_text(encoding="utf-8") == refusals.page(), "python -m tests.upstream.refusals page"


@pytest.mark.upstream
@pytest.mark.parametrize("framework", JUDGED)
def test_every_site_of_a_release_is_judged(framework: str, tmp_path: Path) -> None:
    if framework == "roll" and not CHECKOUT:
        pytest.skip("no checkout of ROLL: make test-upstream ROLL=/path/to/checkout")
    assert list(refusals.faults(framework, folder(framework, tmp_path))) == []


SOURCE = """
import sys

class Loader:
    def load(self, size):
        assert size % 2 == 0, "even"
        if size > 8:
            raise ValueError(size)
        try:
            self.open()
        except OSError as error:
            raise error
        def inner():
            sys.exit(1)

    def again(self, size):
        if size > 8:
            pass
        else:
            raise ValueError("small")
        if size > 8:
            raise ValueError("large")
"""


def test_sites_have_the_function_the_kind_and_the_condition() -> None:
    found = list(sites_of("a.py", ast.parse(SOURCE)))
    assert [(site.function, site.kind, line) for site, line in found] == [
        ("Loader.load", "assert", 6),
        ("Loader.load", "ValueError", 8),
        ("Loader.load", "re-raise", 12),
        ("Loader.load.inner", "sys.exit", 14),
        ("Loader.again", "ValueError", 20),
        ("Loader.again", "ValueError", 22),
    ]
    digests = [site.digest for site, _ in found]
    assert digests[1] == digests[5] != digests[4]


def test_new_and_lost_sites_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FILES", tmp_path)
    source = tmp_path / "verl" / "a.py"
    source.parent.mkdir()
    source.write_text("def f(x):\n    assert x\n")
    refusals.write("verl", refusals.joined("verl", tmp_path))
    assert [row.judgement for row in refusals.rows("verl")] == ["?"]
    judged = [refusals.Row(row.site, row.lines, "config", "no-model") for row in refusals.rows("verl")]
    refusals.write("verl", judged)
    assert list(refusals.faults("verl", tmp_path)) == []
    source.write_text("# lines move\n\ndef f(x):\n    assert x\n")
    assert list(refusals.faults("verl", tmp_path)) == []
    source.write_text("def f(x):\n    assert x > 1\n")
    assert [fault.partition(":")[0] for fault in refusals.faults("verl", tmp_path)] == ["no judgement", "no such site"]
    everything = refusals.Row(Site("verl/**", "*", "*", "*"), "x1", "internal", "- no run reaches it")
    refusals.write("verl", [everything])
    assert list(refusals.faults("verl", tmp_path)) == []
    source.write_text("def f(x):\n    assert x > 1\n    assert x > 2\n")
    assert [fault.partition(",")[0] for fault in refusals.faults("verl", tmp_path)] == ["2 sites"]
    refusals.write("verl", refusals.joined("verl", tmp_path))
    assert [row.sites for row in refusals.rows("verl")] == [2]


def test_a_check_that_does_not_exist_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FILES", tmp_path)
    codes = [
        "no-model",
        "no-modle",
        "runner-refuses:data.train_files",
        "runner-refuses:data.train_file",
        "runner-refuses",
    ]
    site = Site("verl/a.py", "f", "assert", "00000000")
    refusals.write("verl", [refusals.Row(site, "1", "config", code) for code in codes])
    assert len(list(refusals.unknown_codes("verl"))) == 3
