"""Trinity-RFT itself reads its examples and what rlctl writes: it accepts the texts, and would run the numbers of the canonical config."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlctl.adapters import dialect as dialect_called
from rlctl.adapters.engine.requirements import refused, requirements_of
from rlctl.adapters.engine.schema import schema
from rlctl.common.report import Bucket, Level
from rlctl.config import Loaded
from rlctl.documents import dotted, read_yaml
from rlctl.translation.translate import read, read_document, write

from .frameworks import ROOT, framework
from .trinity_numbers import differences

pytestmark = pytest.mark.upstream
CORPUS = ROOT.parent / "shared" / "corpus"
ROWS = 100_000
RELEASES = {"0.4": "trinity-0.4.1", "0.5": "trinity-0.5.2", "0.6": "trinity-0.6.0"}
EXAMPLES = sorted((CORPUS / "trinity").rglob("*.yaml"))
OVERRIDES = sorted((CORPUS / "verl" / "overrides").glob("*.yaml"))
PRESETS = sorted((ROOT / "presets").rglob("*.yaml"))
GRPO = ROOT / "presets" / "grpo-1node.yaml"
VARIABLES = re.compile(r"oc\.env:(\w+)(,?)")
MISSING = ("No module named 'peft'", "No module named 'tinker'", "couldn't connect to 'https://huggingface.co'")
"""What Trinity wants for some configs and these tests do not have: packages, and models of the hub (to make a first adapter)."""


def ask(release: str, **question: Any) -> dict[str, Any]:
    """What Trinity says; what is missing here skips the test."""
    answer = framework(RELEASES[release], "drive_trinity.py").ask(**question)
    if any(text in answer.get("error", "") for text in MISSING):
        pytest.skip(answer["error"])
    return answer


def environment(text: str) -> dict[str, str]:
    """Values for the variables that a text has no default for."""
    return {name: "org/model" for name, default in VARIABLES.findall(text) if not default}


def symbols_resolved(text: str) -> str:
    """The text with its variables as rlctl is told them, so that Trinity is told the same."""
    for name, value in environment(text).items():
        text = text.replace("${oc.env:" + name + "}", value)
    return text


def is_refused(text: str, release: str) -> bool:
    """Whether rlctl warns that the release refuses a text, which no text for the source's devices or data would change."""
    requirements = requirements_of("trinity")
    assert requirements is not None
    rows = requirements.of(release)
    assert rows is not None
    document = read_yaml(symbols_resolved(text), "run.yaml")
    found = refused(rows, dialect_called("trinity"), document, release=release, environment={})
    return any(row.level is Level.ERROR for row, _ in found)


@pytest.mark.parametrize("release", RELEASES)
def test_the_list_of_keys_is_trinitys_own(release: str) -> None:
    listed = {".".join(map(str, path)) for path, releases in schema("trinity", "run").items() if release in releases}
    theirs = {key for key in ask(release, keys=True)["keys"] if not key.startswith("stages")}
    assert sorted(theirs ^ listed) == []


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: "/".join(path.parts[-2:]))
def test_an_example_is_read_as_trinity_reads_it(path: Path, release: str) -> None:
    text = symbols_resolved(path.read_text(encoding="utf-8"))
    answer = ask(release, text=text)
    if not answer["accepted"]:
        pytest.skip(f"Trinity {release} refuses its own example: {answer['error'][:200]}")
    loaded, report = read_document(read_yaml(text, path.name), dialect=f"trinity@{release}", environment={})
    assert loaded is not None, [finding.message for finding in report.errors]
    assert differences(loaded.config, answer["stages"][0]) == []


@cache
def source(path: Path) -> Loaded:
    """An override list of verl's, or any other config, as rlctl reads it."""
    if path in OVERRIDES:
        lines = [line for line in yaml.safe_load(path.read_text())["overrides"] if not line.startswith("--")]
        nothing = read_yaml("", "overrides", allow_empty=True)
        loaded, report = read_document(
            nothing, dialect="verl", overrides=lines, environment={}, options={"dataset_rows": str(ROWS)}
        )
    else:
        text = path.read_text(encoding="utf-8")
        loaded, report = read(path, environment={**os.environ, **environment(text)})
    assert loaded is not None, [finding.message for finding in report.errors]
    return loaded


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("path", [*OVERRIDES, *PRESETS, *EXAMPLES], ids=lambda path: "/".join(path.parts[-2:]))
def test_what_rlctl_writes_is_accepted_and_runs_the_same_numbers(path: Path, release: str) -> None:
    loaded = source(path)
    text, report = write(loaded, f"trinity@{release}", options={"dataset_rows": str(ROWS), "carried": "none"})
    assert text is not None, [finding.message for finding in report.errors]
    answer = ask(release, text=symbols_resolved(text))
    if path in EXAMPLES and not answer["accepted"]:
        own = ask(release, text=symbols_resolved(path.read_text(encoding="utf-8")))
        if own.get("error", "")[:40] == answer["error"][:40]:
            pytest.skip(f"Trinity {release} refuses the example for the same reason: {answer['error'][:200]}")
    if not answer["accepted"] and is_refused(text, release):
        return
    assert answer["accepted"], answer["error"]
    said = {entry.key for entry in report.accounting if entry.bucket in (Bucket.UNSUPPORTED, Bucket.APPROXIMATED)}
    lost = [dotted(path) for path, one in loaded.sources.items() if one.key in said]
    if not loaded.config.stages:
        assert differences(loaded.config, answer["stages"][0], lost, rows=ROWS) == []


def test_trinity_refuses_what_is_wrong() -> None:
    """The tests above can fail: Trinity itself tells a wrong text from a right one."""
    text, _ = write(source(GRPO), "trinity@0.6")
    assert text is not None
    assert ask("0.6", text=text)["accepted"]
    assert not ask("0.6", text=text.replace("repeat_times", "repeat_time"))["accepted"]
    wrong = ask("0.6", text=re.sub(r"repeat_times: \d+", "repeat_times: 3", text))
    assert differences(source(GRPO).config, wrong["stages"][0]) != []
