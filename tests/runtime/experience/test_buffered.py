"""A run that fills a buffer takes its weights from the one that trains, and so does an engine that is replaced in it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.planning.rollout_schedule import sync_schedule
from rlctl.runtime.buffers.files import FileBuffer
from rlctl.runtime.experience.buffered import BufferReader, BufferWriter
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.specs.experience import shaping_spec
from rlctl.runtime.sync.machine import UnreadableWeights
from rlctl.runtime.types import Prompt, Response


class Engines:
    """Two engines, which know the folder that their weights came from."""

    def __init__(self, gone: tuple[str, ...] = ()) -> None:
        self.weights, self._gone = ["first", "first"], gone

    def share(self, value: Any) -> Any:
        return value

    def load_weights(self, source: Any, version: int, only: tuple[int, ...] = ()) -> None:
        if source._folder.name in self._gone:
            raise UnreadableWeights("there are no *.safetensors")
        for engine in only or range(2):
            self.weights[engine] = f"{source._folder.name} as {version}"


def filling(folder: Path, engines: Engines) -> BufferWriter:
    config = config_from({"schedule": {"total_steps": 9}, "model": {"path": "m"}})
    explorer: Any = SimpleNamespace(
        new_weights=lambda *_: nullcontext(), take=lambda step, phase: SimpleNamespace(kept=[], drawn=[], metrics={})
    )
    return BufferWriter(sync_schedule(config), explorer, FileBuffer(folder / "shared.jsonl", "me"), engines)  # type: ignore[arg-type]


def test_an_engine_in_the_place_of_a_lost_one_gets_the_weights_that_were_announced(tmp_path: Path) -> None:
    """Else it went on with those that the run began with, for good where the one that trains has ended."""
    engines = Engines()
    run = filling(tmp_path, engines)
    run.take(1, lambda name: nullcontext())
    run.renew(0)
    assert engines.weights == ["first", "first"], "nobody has announced others"
    run.buffer.announce(3, tmp_path / "third")
    run.take(2, lambda name: nullcontext())
    assert engines.weights == ["third as 3"] * 2
    engines.weights[1] = "first"
    run.renew(1)
    assert engines.weights == ["third as 3"] * 2


def test_weights_that_cannot_be_read_are_told_unless_newer_ones_have_taken_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = Engines(gone=("third",))
    run = filling(tmp_path, engines)
    run.buffer.announce(3, tmp_path / "third")
    with pytest.raises(RunError, match="published by the training run cannot be read"):
        run.take(1, lambda name: nullcontext())
    run._version = 2
    announced = iter([(3, tmp_path / "third"), (4, tmp_path / "fourth")])
    monkeypatch.setattr(run.buffer, "announced", lambda: next(announced))
    run.renew(0)
    assert engines.weights == ["fourth as 4", "first"]


def drained(folder: Path, rewards: list[tuple[float, float]], filters: list[Any], told: list[str]) -> BufferReader:
    """A run that trains on a buffer which another has filled with groups of these rewards, two groups a step."""
    writer = FileBuffer(folder / "groups.jsonl", "explorer")
    response = Response((1, 2), (-0.5, -0.5), "stop", 0)
    writer.put([RolloutGroup(Prompt(n, "s", (1,), "p"), [response] * 2, own, draw=n) for n, own in enumerate(rewards)])
    writer.end_writing()
    config = config_from(
        {
            "run": {"mode": "train_only"},
            "model": {"path": "m"},
            "batch": {"prompts_per_step": 2, "responses_per_prompt": 2},
            "algorithm": {"filters": filters},
        }
    )
    buffer = FileBuffer(folder / "groups.jsonl", "trainer")
    shaping = Shaping.of(shaping_spec(config))
    return BufferReader(sync_schedule(config), buffer, None, folder, shaping, told.append)  # type: ignore[arg-type]


EQUAL, APART = (1.0, 1.0), (0.0, 1.0)


def test_groups_that_others_drew_are_filtered_where_they_are_trained_on(tmp_path: Path) -> None:
    told: list[str] = []
    run = drained(tmp_path, [EQUAL, APART, EQUAL, APART, APART, EQUAL], ["zero_variance_groups"], told)
    assert run.more(1, lambda name: nullcontext())
    step = run.take(1, lambda name: nullcontext())
    assert [group.prompt.index for group in step.kept] == [1, 3]
    assert [group.prompt.index for group in step.drawn] == [0, 1, 2, 3]
    assert step.metrics["filter/kept_groups_share"] == 0.5
    assert not run.more(2, lambda name: nullcontext()), "one group is left, and a step takes two"
    assert "the buffer ends with 1 unused group" in told[0]


def test_groups_that_others_drew_are_left_out_without_others_for_them(tmp_path: Path) -> None:
    filters = [{"type": "zero_variance_groups", "refill": False}]
    run = drained(tmp_path, [EQUAL, APART, EQUAL, EQUAL], filters, [])
    kept = []
    for step in (1, 2):
        assert run.more(step, lambda name: nullcontext())
        kept.append([group.prompt.index for group in run.take(step, lambda name: nullcontext()).kept])
    assert kept == [[1], []]
