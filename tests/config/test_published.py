"""Published runs: each is its source in effective numbers, fits its hardware, and says what a framework cannot express of it."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from rlctl.adapters import memory_terms
from rlctl.checks import RULES_OF_FILES, check
from rlctl.cli.arguments import cluster_of
from rlctl.cli.gallery_page import gallery, lost
from rlctl.common.report import Level
from rlctl.config import Config, load, presets
from rlctl.documents import read_yaml
from rlctl.planning.plan import make_plan
from rlctl.translation.translate import translate

from ..adapters.corpus import ROWS
from ..adapters.effective import canonical, differences

RUNS = {run.name: run for run in presets.published()}
NUMBERS = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
"""What each source comes to at its commit; ``tests/upstream/make_recipes.py`` makes it."""
TIGHT = {"kl-cov-qwen2.5-32b", "clip-cov-qwen2.5-32b"}
"""Runs that do not fit by rlctl's estimate; a note says why, and what fits."""
MISSING = {"path-missing"}
"""Data and code of a run are where its user puts them."""
COVS = [f"{kind}-cov-qwen2.5-{size}" for kind in ("kl", "clip") for size in ("7b", "32b")]
DYNAMIC = {"algorithm.filters[0]", "rollout.oversampling"}
TOOLS = {"rollout.agents[0]", "rewards[0]", "data.custom"}
LOST: dict[str, dict[str, set[str]]] = {
    "verl": {**{name: {"rollout.oversampling"} for name in COVS}, "dapo-qwen2.5-32b": {"rollout.oversampling"}},
    "trinity": {
        **{name: {"algorithm.policy_loss", *DYNAMIC} for name in COVS},
        "dapo-qwen2.5-32b": DYNAMIC,
        "dapo-qwen2.5-32b-early": {"rollout.oversampling"},
        "gpg-qwen2-7b": {"algorithm.advantage"},
        "retool-qwen2.5-32b": TOOLS,
    },
    "roll": {
        **{name: {"algorithm.policy_loss", *DYNAMIC} for name in COVS},
        "dapo-qwen2.5-32b": {"algorithm.reward_shaping", *DYNAMIC},
        "dapo-qwen2.5-32b-early": {"algorithm.reward_shaping", "rollout.oversampling"},
        "dapo-qwen2.5-32b-static": {"algorithm.reward_shaping"},
        "dapo-qwen2.5-math-7b": {"algorithm.reward_shaping"},
        "gpg-qwen2-7b": {"algorithm.advantage"},
        "remax-qwen2.5-7b": {"algorithm.advantage"},
        "retool-qwen2.5-32b": TOOLS,
    },
}
"""What each framework cannot express of a run's method; runs and frameworks that are not here lose none of it."""


@cache
def read(name: str) -> Config:
    loaded, report = load(read_yaml(presets.text(name), f"{name}.yaml"))
    assert loaded is not None, report.findings
    assert report.findings == []
    return loaded.config


def test_there_are_runs_and_each_has_numbers() -> None:
    assert len(RUNS) >= 15
    assert RUNS.keys() == NUMBERS.keys()


@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_the_numbers_of_its_source(name: str) -> None:
    assert differences(NUMBERS[name], canonical(read(name), ROWS)) == {}
    assert {"optimizer steps a step", "clip range", "KL in the loss", "steps", "GPUs"} <= NUMBERS[name].keys()


@pytest.mark.parametrize("name", RUNS)
def test_a_run_fits_its_hardware_or_says_why_not(name: str) -> None:
    cluster = cluster_of(RUNS[name].hardware)
    _, report = load(read_yaml(presets.text(name), f"{name}.yaml"))
    plan = make_plan(read(name), rows=ROWS, cluster=cluster, terms=memory_terms(report, "verl"))
    assert (plan.nodes, plan.devices_per_node) == (cluster.nodes, cluster.devices_per_node)
    fits = [stage.fit is not None and stage.fit.fits for stage in plan.stages]
    assert all(fits) == (name not in TIGHT)
    assert (name in TIGHT) == any(note.startswith("memory: ") for note in RUNS[name].notes)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_no_error_but_for_its_files(name: str) -> None:
    findings = check(read(name), cluster=cluster_of(RUNS[name].hardware), more=RULES_OF_FILES)
    assert {finding.code for finding in findings if finding.level is Level.ERROR} <= MISSING


@pytest.mark.parametrize("target", ["verl", "trinity", "roll"])
def test_a_run_converts_and_what_is_lost_of_its_method_is_known(target: str) -> None:
    for name in RUNS:
        file = str(presets.folder() / "published" / f"{name}.yaml")
        assert translate(file, target, options={"dataset_rows": str(ROWS)}).text is not None, name
    assert {name: set(lost(name, target)) for name in RUNS if lost(name, target)} == LOST[target]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_names_its_source_at_a_commit(name: str) -> None:
    run = RUNS[name]
    assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/blob/[0-9a-f]{40}/\S+\.(sh|yaml)", run.link)
    assert all((run.title.endswith("."), run.needs, run.model, run.algorithm, run.data, run.result, run.stated))
    assert run.plan == f"rlctl plan {name}.yaml --runner verl --cluster {run.hardware}"
    assert read(name).run.name == name
    assert read(name).model.path == run.model


def test_the_page_shows_every_run_in_both_languages() -> None:
    english, chinese = gallery(), gallery("zh")
    assert all(f"## {name}\n" in english and f"## {name}\n" in chinese for name in RUNS)
    assert all(run.title not in chinese for run in RUNS.values())
