"""A run that is stopped and resumed ends in the same bits; a damaged checkpoint is never taken up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rlctl.config.sections.train import LearningRateSchedule, Train
from rlctl.errors import RunError
from rlctl.runtime.train.losses import SftLoss
from tests.runtime.train import jobs
from tests.runtime.train.jobs import make_samples, settings
from tests.runtime.train.processes import Workers


def decaying() -> Train:
    """Settings under which another tick, or another moment of AdamW, would show."""
    base = settings()
    return Train(
        precision=base.precision,
        optimizer=base.optimizer,
        memory=base.memory,
        learning_rate_schedule=LearningRateSchedule(name="cosine"),
    )


def test_resuming_gives_the_same_bits(two: Workers, models: dict[str, Path], tmp_path: Path) -> None:
    samples, train = make_samples(7), decaying()
    straight, _ = two.run(jobs.train_and_save, models["qwen2"], train, samples, SftLoss(), tmp_path / "c")
    resumed, _ = two.run(jobs.load_and_train, models["qwen2"], train, samples, SftLoss(), tmp_path / "c")
    assert resumed[1] == straight[1]
    assert resumed[1][0]["learning_rate"] < train.optimizer.learning_rate
    assert all(torch.equal(tensor, straight[0][name]) for name, tensor in resumed[0].items())


def test_a_checkpoint_of_two_workers_goes_on_with_one(
    one: Workers, two: Workers, models: dict[str, Path], tmp_path: Path
) -> None:
    samples, train = make_samples(7), decaying()
    straight, _ = two.run(jobs.train_and_save, models["qwen2"], train, samples, SftLoss(), tmp_path / "c")
    [resumed] = one.run(jobs.load_and_train, models["qwen2"], train, samples, SftLoss(), tmp_path / "c")
    assert [each["loss"] for each in resumed[1]] == pytest.approx([each["loss"] for each in straight[1]], rel=1e-4)
    for name, tensor in resumed[0].items():
        torch.testing.assert_close(tensor, straight[0][name], rtol=1e-3, atol=1e-4)


def test_random_states_come_back_and_new_workers_have_their_own(
    one: Workers, two: Workers, models: dict[str, Path], tmp_path: Path
) -> None:
    drawn = two.run(jobs.save_random_state, models["gpt2"], tmp_path / "two")
    again = two.run(jobs.load_random_state, models["gpt2"], tmp_path / "two")
    assert [each.tolist() for each in again] == [each.tolist() for each in drawn]
    assert not torch.equal(drawn[0], drawn[1])
    [first] = one.run(jobs.save_random_state, models["gpt2"], tmp_path / "one")
    grown = two.run(jobs.load_random_state, models["gpt2"], tmp_path / "one")
    assert torch.equal(grown[0], first)
    assert not torch.equal(grown[1], first)
    assert torch.equal(grown[1], two.run(jobs.load_random_state, models["gpt2"], tmp_path / "one")[1])


def _remove(folder: Path) -> None:
    next(folder.glob("*.distcp")).unlink()


def _remove_metadata(folder: Path) -> None:
    (folder / ".metadata").unlink()


def _flip_a_byte(folder: Path) -> None:
    path = next(folder.glob("*.distcp"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _unfinished(folder: Path) -> None:
    (folder / "checksums.json").unlink()


@pytest.mark.parametrize("damage", [_remove, _remove_metadata, _flip_a_byte, _unfinished])
def test_a_damaged_checkpoint_is_a_run_error(
    two: Workers, models: dict[str, Path], tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    two.run(jobs.save_random_state, models["qwen2"], tmp_path / "c")
    damage(tmp_path / "c")
    with pytest.raises(RunError, match="checkpoint"):
        two.run(jobs.load, models["qwen2"], tmp_path / "c")


def test_a_checkpoint_of_another_model_is_a_run_error(two: Workers, models: dict[str, Path], tmp_path: Path) -> None:
    two.run(jobs.save_random_state, models["qwen2"], tmp_path / "c")
    with pytest.raises(RunError, match="does not fit the model"):
        two.run(jobs.load, models["gpt2"], tmp_path / "c")
