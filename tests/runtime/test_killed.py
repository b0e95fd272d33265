"""A run that is killed, at whatever moment, and resumed ends with the bits of the run that was not.

Real runs, without Ray: what Ray adds is in ``test_resume.py``. Each is a fork of a process that has imported everything, so
that a kill and a resumption take seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rlctl import runs
from rlctl.config import Config, to_plain
from tests.runtime.told import Numbers, events_of, numbers_of

ZYGOTE = Path(__file__).with_name("zygote.py")
Run = Callable[..., int]


@pytest.fixture(scope="module")
def run_forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run a config in a fork; the exit code. It is killed ``after`` seconds after the event ``at``."""
    log = tmp_path_factory.mktemp("zygote") / "log"
    process = subprocess.Popen(
        [sys.executable, str(ZYGOTE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def go(config: Config, *, at: Sequence[Any] | int | None = None, after: float = 0.0) -> int:
        order = {"config": to_plain(config), "at": at, "after": after, "log": str(log)}
        print(json.dumps(order), file=process.stdin, flush=True)
        code = int(process.stdout.readline() or 99)
        assert code in (0, -9), log.read_text()[-4000:]
        return code

    yield go
    process.stdin.close()
    process.wait()


@dataclass(frozen=True)
class Whole:
    """A run that nothing disturbed."""

    numbers: Numbers
    weights: dict[str, bytes]
    events: list[dict[str, Any]]


def ended(config: Config) -> Whole:
    """What a run has come to."""
    folder = runs.folder_of(config)
    events = events_of(folder)
    weights = {path.parts[-3]: path.read_bytes() for path in folder.glob("checkpoints/*/hf/model.safetensors")}
    return Whole(numbers_of(events), weights, events)


@pytest.fixture(scope="module")
def small(task: Any) -> Callable[[Path], Config]:
    """A run of both stages that goes over the end of its data, with an evaluation and a checkpoint between steps."""

    def make(folder: Path) -> Config:
        config: Config = task.two_stages(
            folder,
            run={"name": "demo", "folder": str(folder), "seed": 7},
            batch={"prompts_per_step": 24, "responses_per_prompt": 2, "micro_batch": {"unit": "responses", "size": 24}},
            schedule={"total_steps": 4, "evaluate_every": 2},
            checkpoint={"every": 1, "keep_last": 2},
        )
        return config

    return make


@pytest.fixture(scope="module")
def whole(small: Callable[[Path], Config], run_forked: Run, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    config = small(tmp_path_factory.mktemp("whole"))
    assert run_forked(config) == 0
    return ended(config)


def goes_on_to_the_same_end(whole: Whole, config: Config, run_forked: Run) -> None:
    assert run_forked(config) == 0
    resumed = ended(config)
    assert resumed.numbers == whole.numbers
    assert resumed.weights.keys() == {"sft", "grpo"}
    assert resumed.weights == whole.weights


TELLING = (
    (("phase", "sft", 1, "train"), 0.0),
    (("phase", "sft", 2, "save"), 0.02),
    (("stage_ended", "sft"), 0.0),
    (("phase", "grpo", 1, "rollout"), 0.05),
    (("phase", "grpo", 3, "save"), 0.01),
    (("phase", "grpo", 4, "export"), 0.01),
)
"""In a step, inside a save, between stages, after the end of an epoch: what a run is killed at, one after the other."""


def test_a_run_killed_again_and_again_ends_as_the_one_that_was_not(
    whole: Whole, small: Callable[[Path], Config], run_forked: Run, tmp_path: Path
) -> None:
    config = small(tmp_path)
    for moment, after in TELLING:
        assert run_forked(config, at=moment, after=after) == -9, moment
        assert runs.inspect(runs.folder_of(config)).status == "interrupted"
    goes_on_to_the_same_end(whole, config, run_forked)


TURNS, BUFFERED, APART, AHEAD, KILLS = range(16), range(8), range(8), range(8), 5
"""Random moments of the soak tests: 40 runs of 5 kills are 200, where no run ends before it was killed so often."""


def kill_again_and_again(config: Config, run_forked: Run, random: Random, within: int, kills: int = KILLS) -> int:
    """Kill a run at random events, and at random times after them, among others inside a save. Returns how often."""
    for before in range(kills):
        after = random.choice((0.0, random.uniform(0.0, 0.2)))
        if run_forked(config, at=random.randrange(within), after=after) == 0:
            return before
    return kills


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", TURNS)
def test_random_moments(
    whole: Whole, small: Callable[[Path], Config], run_forked: Run, tmp_path: Path, seed: int, record_property: Any
) -> None:
    config = small(tmp_path)
    record_property("kills", kill_again_and_again(config, run_forked, Random(seed), len(whole.events) // 3))
    if runs.inspect(runs.folder_of(config)).status == "finished":
        assert (ended(config).numbers, ended(config).weights) == (whole.numbers, whole.weights)
    else:
        goes_on_to_the_same_end(whole, config, run_forked)


BUFFERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "sql": lambda folder: {"type": "sql", "url": f"sqlite:///{folder}/groups.db"},
    "lines": lambda folder: {"type": "file", "path": str(folder / "groups.jsonl")},
    "parquet": lambda folder: {"type": "file", "path": str(folder / "groups.parquet")},
}
STEPS, PROMPTS = 6, 4


@pytest.fixture(scope="module")
def distinct(task: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many prompts as all steps take, each another."""
    from datasets import Dataset

    path = tmp_path_factory.mktemp("distinct") / "train.parquet"
    rows = Dataset.from_parquet(str(task.folder / "train.parquet"), cache_dir=str(path.parent))
    rows.select(range(STEPS * PROMPTS)).to_parquet(path)
    assert len(set(map(str, Dataset.from_parquet(str(path), cache_dir=str(path.parent))["prompt"]))) == STEPS * PROMPTS
    return path


@pytest.fixture
def through(task: Any, distinct: Path) -> Callable[..., Config]:
    """A run whose groups go through a buffer."""

    def make(folder: Path, kind: str, mode: str = "full", **changes: Any) -> Config:
        more: dict[str, Any] = {
            "run": {"name": mode, "folder": str(folder), "seed": 7, "mode": mode},
            "buffer": {**BUFFERS[kind](folder), "read_timeout": 60},
            "data": {"train": [{"path": str(distinct)}], "max_prompt_tokens": 16, "eval": []},
            "batch": {"prompts_per_step": PROMPTS, "responses_per_prompt": 2},
            "schedule": {"total_steps": STEPS, "evaluate_every": None, "evaluate_at_start": False},
            "checkpoint": {"every": 2, "export": "last"},
        }
        config: Config = task.config(folder, **{**more, **changes})
        return config

    return make


def told_of(config: Config) -> tuple[Numbers, dict[str, bytes]]:
    """The numbers of a run, without what its buffer counts since its process began, and its weights."""
    found = ended(config)
    counted = ("buffer/", "rollout/again", "rollout/abandoned")
    numbers = {
        key: {name: value for name, value in each.items() if not name.startswith(counted)}
        for key, each in found.numbers.items()
    }
    return numbers, found.weights


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", BUFFERED)
def test_random_moments_of_a_run_whose_groups_wait_in_a_buffer(
    through: Callable[..., Config], run_forked: Run, tmp_path: Path, seed: int, record_property: Any
) -> None:
    """One step off, in order, so that at every moment some groups are in the buffer: bit-equal."""
    kind = list(BUFFERS)[seed % len(BUFFERS)]
    off = {
        "weight_sync": {"max_steps_ahead": 1},
        "placement": {"layout": "split", "devices_per_node": 2, "device": "cpu"},
    }
    undisturbed, config = (through(tmp_path / name, kind, **off) for name in ("whole", "killed"))
    for folder in ("whole", "killed"):
        (tmp_path / folder).mkdir()
    assert run_forked(undisturbed) == 0
    kills = kill_again_and_again(config, run_forked, Random(seed), len(ended(undisturbed).events) // 2)
    record_property("kills", kills)
    assert kills < KILLS or run_forked(config) == 0
    assert told_of(config) == told_of(undisturbed)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", APART)
def test_random_moments_of_a_run_that_fills_a_buffer_and_of_one_that_drains_it(
    through: Callable[..., Config], run_forked: Run, tmp_path: Path, seed: int, record_property: Any
) -> None:
    """Killed with the buffer partly filled, then partly drained: bit-equal."""
    kind, random = list(BUFFERS)[seed % len(BUFFERS)], Random(seed)
    killed = 0
    for name, kills in (("whole", 0), ("killed", KILLS)):
        (tmp_path / name).mkdir()
        for mode, share in (("rollout_only", kills // 2), ("train_only", kills - kills // 2)):
            config = through(tmp_path / name, kind, mode)
            times = kill_again_and_again(config, run_forked, random, 12, share)
            killed += times
            assert times < share or run_forked(config) == 0
    record_property("kills", killed)
    for mode in ("rollout_only", "train_only"):
        assert told_of(through(tmp_path / "killed", kind, mode)) == told_of(through(tmp_path / "whole", kind, mode))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", AHEAD)
def test_random_moments_of_an_asynchronous_run_lose_and_repeat_no_prompt(
    through: Callable[..., Config], run_forked: Run, tmp_path: Path, seed: int, record_property: Any
) -> None:
    kind, kept = [*BUFFERS, "sql"][seed % (len(BUFFERS) + 1)], tmp_path / "kept"
    config = through(
        tmp_path,
        kind,
        weight_sync={
            "max_steps_ahead": 2,
            "in_flight_requests": ("continue", "abort")[seed % 2],
            "max_staleness_steps": 3,
            "on_stale": "keep",
        },
        placement={"layout": "split", "devices_per_node": 2, "device": "cpu"},
        rollout={"max_response_tokens": 4, "precision": "float32", "responses_folder": str(kept)},
    )
    kills = kill_again_and_again(config, run_forked, Random(seed), 25)
    record_property("kills", kills)
    assert kills < KILLS or run_forked(config) == 0
    lines = [json.loads(line) for path in kept.glob("*.jsonl") for line in path.read_text().splitlines()]
    trained: defaultdict[int, set[str]] = defaultdict(set)
    for line in lines:
        trained[line["step"]].add(line["input"])
    assert sorted(trained) == list(range(1, STEPS + 1))
    assert all(len(prompts) == PROMPTS for prompts in trained.values()), trained
    assert len(set.union(*trained.values())) == STEPS * PROMPTS, "each prompt is trained on in one step, and only there"
    assert len(lines) == STEPS * PROMPTS * 2
