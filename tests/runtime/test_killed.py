"""A run that is killed, at whatever moment, and resumed ends with the bits of the run that was not.

Real runs, without Ray: what Ray adds is in ``test_resume.py``. Each is a fork of a process that has imported everything, so
that a kill and a resumption take seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
            batch={"prompts_per_step": 24, "responses_per_prompt": 2, "micro": {"by": "responses", "per_replica": 24}},
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


RUNS, KILLS = 40, 5
"""Random moments of the soak test: together 200, where no run ends before it was killed so often."""


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(RUNS))
def test_random_moments(
    whole: Whole, small: Callable[[Path], Config], run_forked: Run, tmp_path: Path, seed: int, record_property: Any
) -> None:
    """Killed at random events, and at random times after them, among others inside a save."""
    config, random = small(tmp_path), Random(seed)
    kills = 0
    while kills < KILLS and run_forked(
        config, at=random.randrange(len(whole.events) // 3), after=random.choice((0.0, random.uniform(0.0, 0.2)))
    ):
        kills += 1
    record_property("kills", kills)
    if runs.inspect(runs.folder_of(config)).status == "finished":
        assert (ended(config).numbers, ended(config).weights) == (whole.numbers, whole.weights)
    else:
        goes_on_to_the_same_end(whole, config, run_forked)
