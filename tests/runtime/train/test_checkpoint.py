"""A run that is stopped and resumed ends in the same bits; a damaged checkpoint is never taken up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from rlctl.common.errors import RunError
from rlctl.config.sections.output import Checkpoint
from rlctl.config.sections.train import LrScheduler, Train
from rlctl.runtime.checkpoints.checksums import damage
from rlctl.runtime.train.losses import SftLoss, Weights
from rlctl.runtime.train.schedule import curve_of
from tests.runtime.train import jobs, saving_jobs
from tests.runtime.train.jobs import ALL_AT_ONCE, make_samples, settings
from tests.runtime.train.processes import Workers


def decaying() -> Train:
    """Settings under which another tick, or another moment of AdamW, would show."""
    base = settings()
    return Train(
        precision=base.precision,
        optimizer=base.optimizer,
        memory=base.memory,
        lr_scheduler=LrScheduler(type="cosine"),
    )


def test_resuming_gives_the_same_bits(two: Workers, models: dict[str, Path], tmp_path: Path) -> None:
    samples, train = make_samples(7), decaying()
    straight, _ = two.run(jobs.train_and_save, models["qwen2"], train, samples, SftLoss(), tmp_path / "c")
    resumed, _ = two.run(jobs.load_and_train, models["qwen2"], train, samples, SftLoss(), tmp_path / "c")
    assert resumed[1] == straight[1]
    assert resumed[1][0]["lr"] < train.optimizer.lr
    assert all(torch.equal(tensor, straight[0][name]) for name, tensor in resumed[0].items())


def test_the_scale_of_a_float16_loss_comes_back(two: Workers, models: dict[str, Path], tmp_path: Path) -> None:
    """Overflows have halved it by then; begun anew, it would overflow again."""
    train = dataclasses.replace(decaying(), precision=dataclasses.replace(decaying().precision, compute="float16"))
    samples, heavy = make_samples(7), SftLoss(Weights("seq_mean_token_sum_norm", 1.0))
    straight, _ = two.run(jobs.train_and_save, models["qwen2"], train, samples, heavy, tmp_path / "c")
    resumed, _ = two.run(jobs.load_and_train, models["qwen2"], train, samples, heavy, tmp_path / "c")
    assert [each["skipped_updates"] for each in straight[1]] == [0.0, 0.0]
    (_, anew), _ = two.run(jobs.updates, models["qwen2"], train, samples, heavy, ALL_AT_ONCE)
    assert anew[0]["skipped_updates"] == 1.0
    assert resumed[1] == straight[1]
    assert all(torch.equal(tensor, straight[0][name]) for name, tensor in resumed[0].items())


@pytest.mark.parametrize("restored", [True, False])
def test_the_schedule_is_the_checkpoints_or_the_configs(
    one: Workers, models: dict[str, Path], tmp_path: Path, restored: bool
) -> None:
    """Where it stands is the checkpoint's in both cases: the learning rate of the third tick."""
    samples, train = make_samples(3), decaying()
    [(_, straight)] = one.run(jobs.train_and_save, models["gpt2"], train, samples, SftLoss(), tmp_path / "c")
    other = LrScheduler(type="linear", total_steps=20, restore_from_checkpoint=restored)
    changed = dataclasses.replace(train, lr_scheduler=other)
    [(_, resumed)] = one.run(jobs.load_and_train, models["gpt2"], changed, samples, SftLoss(), tmp_path / "c")
    own = curve_of(other, peak=train.optimizer.lr, scheduler_steps=None)
    expected = [each["lr"] for each in straight] if restored else [own.rate(2), own.rate(3)]
    assert [each["lr"] for each in resumed] == expected


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


@pytest.mark.parametrize("break_it", [_remove, _remove_metadata, _flip_a_byte, _unfinished])
def test_damage_is_found_before_it_is_read(
    two: Workers, models: dict[str, Path], tmp_path: Path, break_it: Callable[[Path], None]
) -> None:
    two.run(jobs.save_random_state, models["qwen2"], tmp_path / "c")
    assert damage(tmp_path / "c") == ""
    break_it(tmp_path / "c")
    assert damage(tmp_path / "c") != ""


@pytest.mark.parametrize("break_it", [_remove, _remove_metadata])
def test_what_is_not_there_is_a_run_error(
    two: Workers, models: dict[str, Path], tmp_path: Path, break_it: Callable[[Path], None]
) -> None:
    two.run(jobs.save_random_state, models["qwen2"], tmp_path / "c")
    break_it(tmp_path / "c")
    with pytest.raises(RunError, match="checkpoint"):
        two.run(jobs.load, models["qwen2"], tmp_path / "c")


def test_contents_are_chosen_in_writing_and_in_reading(two: Workers, models: dict[str, Path], tmp_path: Path) -> None:
    model, samples = models["qwen2"], make_samples(7)

    def saved(*contents: Any) -> set[str]:
        to, checkpoint = tmp_path / "-".join(contents), Checkpoint(save_contents=contents)
        return set(two.run(saving_jobs.save_after_an_update, model, samples, SftLoss(), to, checkpoint)[0])

    def taken(folder: str, *contents: Any) -> Any:
        return two.run(saving_jobs.load_some, model, tmp_path / folder, Checkpoint(load_contents=contents))[0]

    assert saved("model") == {"model"}
    assert saved("model", "optimizer", "extra") == {"model", "optimizer", "progress", "random", "schedule"}
    everything = {"model": True, "optimizer": True, "extra": True}
    fresh = {"optimizer": False, "extra": False}
    assert taken("model-optimizer-extra", "model", "optimizer", "extra") == everything
    assert taken("model-optimizer-extra", "model") == {**fresh, "model": True}
    assert taken("model", "model", "optimizer", "extra") == {**fresh, "model": True}


def test_what_is_saved_beside_training_is_what_was_there_when_it_began(
    two: Workers, models: dict[str, Path], tmp_path: Path
) -> None:
    (early, trained), _ = two.run(
        saving_jobs.save_beside_training, models["qwen2"], make_samples(7), SftLoss(), tmp_path
    )
    assert not early, "training goes on before it is written"
    for name in ("at_once", "beside"):
        assert damage(tmp_path / name) == ""
        dcp_to_torch_save(tmp_path / name, tmp_path / f"{name}.pt")
    at_once, beside = (torch.load(tmp_path / f"{name}.pt") for name in ("at_once", "beside"))
    assert at_once.keys() == beside.keys()
    assert all(torch.equal(tensor, beside[name]) for name, tensor in at_once.items())
    moved = [not torch.equal(trained[name], beside[f"model/{name}"]) for name in trained if f"model/{name}" in beside]
    assert any(moved)


@pytest.mark.parametrize(("writers", "in_turn"), [("all", False), ("one_node", False), ("one_process", True)])
def test_writers_take_turns(two: Workers, models: dict[str, Path], tmp_path: Path, writers: Any, in_turn: bool) -> None:
    first, second = two.run(saving_jobs.times_of_writing, models["gpt2"], tmp_path / "c", Checkpoint(writers=writers))
    assert (first[1] <= second[0] or second[1] <= first[0]) is in_turn
    assert damage(tmp_path / "c") == ""


def test_a_checkpoint_of_another_model_is_a_run_error(two: Workers, models: dict[str, Path], tmp_path: Path) -> None:
    two.run(jobs.save_random_state, models["qwen2"], tmp_path / "c")
    with pytest.raises(RunError, match="does not fit the model"):
        two.run(jobs.load, models["gpt2"], tmp_path / "c")
