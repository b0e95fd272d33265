"""A run that fills a buffer takes its weights from the one that trains, and so does an engine that is replaced in it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlctl.config import config_from
from rlctl.errors import RunError
from rlctl.runtime.buffers.files import FileBuffer
from rlctl.runtime.experience.buffered import Filling
from rlctl.runtime.sync.machine import UnreadableWeights


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


def filling(folder: Path, engines: Engines) -> Filling:
    config = config_from({"schedule": {"total_steps": 9}, "model": {"path": "m"}})
    explorer: Any = SimpleNamespace(
        new_weights=lambda *_: nullcontext(), take=lambda step, phase: SimpleNamespace(kept=[], drawn=[], metrics={})
    )
    return Filling(config, explorer, FileBuffer(folder / "shared.jsonl", "me"), engines)  # type: ignore[arg-type]


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
    with pytest.raises(RunError, match="which trains announced cannot be read"):
        run.take(1, lambda name: nullcontext())
    run._version = 2
    announced = iter([(3, tmp_path / "third"), (4, tmp_path / "fourth")])
    monkeypatch.setattr(run.buffer, "announced", lambda: next(announced))
    run.renew(0)
    assert engines.weights == ["fourth as 4", "first"]
