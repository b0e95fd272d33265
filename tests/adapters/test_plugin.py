"""A dialect of another distribution, with keys that only it has, on the way through the dialects of the package."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from rlctl import adapters
from rlctl.adapters.engine.dialect import Dialect
from rlctl.adapters.engine.rules import Key, carried
from rlctl.adapters.engine.schema import Schema
from rlctl.adapters.engine.table import Table
from rlctl.documents import read_yaml
from rlctl.translation.translate import convert, read_document

RULES = (Key("model", "model.path", ""), Key("steps", "schedule.total_steps", None))
MINI = Dialect(
    "mini", ("0.9", "0.10"), {"run": Table(RULES, tuple(carried("only mini has it", "color")))}, order=("model",)
)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    point = EntryPoint("mini", f"{__name__}:MINI", adapters.GROUP)
    monkeypatch.setattr(adapters, "_installed", lambda: (point,))
    adapters.names.cache_clear()
    adapters.dialect.cache_clear()
    yield
    adapters.names.cache_clear()
    adapters.dialect.cache_clear()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("between", ["rlctl", "verl", "trinity", "roll"])
def test_keys_of_a_plug_in_come_back_through_every_dialect(between: str) -> None:
    text = "model: org/m\nsteps: 10\ncolor: red\n"
    there = convert(text, between, dialect="mini", environment={})
    back = convert(there.text or "", "mini", dialect=between, environment={})
    assert read_yaml(back.text or "", "back.yaml").values == {"model": "org/m", "steps": 10, "color": "red"}


def test_keys_of_a_dialect_that_is_not_installed_are_kept_with_a_warning() -> None:
    text = "rlctl: 1\nmodel:\n  path: m\nextensions:\n  verll:\n    a.b: 1\n"
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="rlctl", environment={})
    assert loaded is not None
    assert loaded.config.carried_for("verll") == {"a.b": 1}
    (finding,) = report.findings
    assert (finding.code, finding.at and finding.at.line) == ("unknown-dialect", 5)
    assert "did you mean 'verl'" in finding.hint


def test_the_tenth_release_comes_after_the_ninth() -> None:
    schema = Schema({"color": "9-11", "size": "4-6 1\t10:wide 2", "steps": "10"})
    assert schema["color",] == {"0.9", "0.10", "0.11"}
    assert schema["size",] == {"0.4", "0.5", "0.6", "0.10"}
    table = Table((Key("model", "model.path", ""), Key("steps", "schedule.total_steps", None, since="0.10")))
    mini = Dialect("mini", ("0.9", "0.10"), {"run": table})
    assert mini.newest == "0.10"
    assert mini.detect(read_yaml("steps: 10\n", "run.yaml")).version == "0.10"
    assert mini.detect(read_yaml("steps: 10\n", "run.yaml"), version="0.9").unknown == 1
