"""A checkpoint is whole or it is not there: what is cut off, missing or unfinished is passed over for the one before."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

from rlctl.common.errors import RunError
from rlctl.config import config_from, stages_of
from rlctl.runs.rollback import go_back
from rlctl.runtime import unwritten
from rlctl.runtime.checkpoints.checkpoint import (
    MANIFEST,
    Checkpoints,
    place_of,
    read_checkpoint,
    replace_folder,
    verified,
)
from rlctl.runtime.checkpoints.checksums import write_checksums
from rlctl.runtime.processes.calls import WorkerFailed
from rlctl.runtime.remote.checkpoints import RemoteCopies

CONTROLLER = {"progress": {}, "data": {}}


def write(folder: Path) -> None:
    (folder / "policy").mkdir()
    (folder / "policy" / "__0_0.distcp").write_bytes(b"weights")
    (folder / "policy" / ".metadata").write_bytes(b"metadata")
    write_checksums(folder / "policy")


@pytest.fixture
def saved(tmp_path: Path) -> Checkpoints:
    """Steps 1, 2 and 10."""
    checkpoints = Checkpoints(tmp_path / "main", keep_last=None)
    for step in (1, 2, 10):
        checkpoints.save(step, CONTROLLER, write)
    return checkpoints


def test_the_newest_is_that_of_the_last_step(saved: Checkpoints) -> None:
    newest = saved.newest()
    assert newest is not None
    assert (newest.step, newest.folder.name) == (10, "step-000010")
    manifest = json.loads((newest.folder / "manifest.json").read_text())
    assert manifest.keys() == {
        *("controller.json", "checksums.json"),
        *(f"policy/{name}" for name in ("__0_0.distcp", ".metadata", "checksums.json")),
    }
    assert manifest["policy/__0_0.distcp"] == len(b"weights")
    assert saved.damaged() == []


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a file is cut off": lambda folder: (folder / "policy" / "__0_0.distcp").write_bytes(b"weight"),
    "a hidden file is missing": lambda folder: (folder / "policy" / ".metadata").unlink(),
    "there is no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "the manifest is cut off": lambda folder: (folder / "manifest.json").write_text('{"policy'),
    "the manifest is no object": lambda folder: (folder / "manifest.json").write_text("[]"),
    "there is no controller state": lambda folder: (folder / "controller.json").unlink(),
    "the controller state is of something else": lambda folder: (folder / "controller.json").write_text("{}"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_one_is_passed_over(saved: Checkpoints, how: str) -> None:
    newest = saved.folder / "step-000010"
    DAMAGE[how](newest)
    before = saved.newest()
    assert before is not None
    assert before.step == 2
    assert saved.damaged() == [newest]


FILES = ("controller.json", "checksums.json", "manifest.json")
ENGINE_FILES = ("policy/__0_0.distcp", "policy/.metadata", "policy/checksums.json")


@pytest.mark.parametrize("name", [*FILES, *ENGINE_FILES])
@pytest.mark.parametrize("cut", [True, False], ids=["cut off", "flipped"])
def test_no_byte_of_any_file_may_be_missing_or_another(tmp_path: Path, name: str, cut: bool) -> None:
    checkpoints = Checkpoints(tmp_path / "main", keep_last=None)
    for step in (1, 2):
        checkpoints.save(step, CONTROLLER, write)
    path = checkpoints.folder / "step-000002" / name
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] if cut else whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :])
        before = Checkpoints(checkpoints.folder, keep_last=None)
        newest = before.newest()
        assert newest is not None
        assert newest.step == 1, f"{name} is wrong at byte {place}"
        assert before.damaged() == [checkpoints.folder / "step-000002"]


def test_one_that_is_written_in_the_background_is_not_there_before_it_is_finished(saved: Checkpoints) -> None:
    saved.begin(11, CONTROLLER, write)
    assert saved.under_way == 11
    newest = Checkpoints(saved.folder, keep_last=None).newest()
    assert newest is not None
    assert newest.step == 10
    (saved.folder / "step-000011.partial" / "policy" / "__1_0.distcp").write_bytes(b"written later")
    assert saved.finish().name == "step-000011"
    assert saved.under_way is None
    assert json.loads((saved.folder / "step-000011" / "manifest.json").read_text())["policy/__1_0.distcp"] == 13
    newest = saved.newest()
    assert newest is not None
    assert newest.step == 11


def test_what_cannot_be_written_in_the_background_is_told_when_it_is_finished(saved: Checkpoints) -> None:
    def fails() -> None:
        raise WorkerFailed("policy-0: No space left on device", actor="policy-0")

    saved.begin(11, CONTROLLER, write)
    with pytest.raises(WorkerFailed, match="step 11 could not be written: policy-0: No space left"):
        saved.finish(fails)
    newest = saved.newest()
    assert newest is not None
    assert newest.step == 10


def test_the_previous_one_makes_room_where_that_is_asked_for(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "main", keep_last=None, delete_previous=True)
    checkpoints.save(1, CONTROLLER, write)
    checkpoints.begin(2, CONTROLLER, write)
    assert [path.name for path in checkpoints.folder.iterdir()] == ["step-000002.partial"]
    checkpoints.finish()
    assert [path.name for path in checkpoints.folder.iterdir()] == ["step-000002"]


def test_one_that_was_being_written_is_not_there(saved: Checkpoints) -> None:
    (saved.folder / "step-000010").rename(saved.folder / "step-000011.partial")
    assert [path.name for path in saved.damaged()] == []
    newest = saved.newest()
    assert newest is not None
    assert newest.step == 2


def test_a_failed_write_leaves_the_ones_before(saved: Checkpoints) -> None:
    def no_space(folder: Path) -> None:
        write(folder)
        raise OSError(28, "No space left on device")

    with pytest.raises(RunError, match="step 11 could not be written: No space left on device"):
        saved.save(11, CONTROLLER, no_space)
    assert not (saved.folder / "step-000011").exists()
    assert saved.newest() == read_checkpoint(saved.folder / "step-000010")


def beyond_the_limit(folder: Path) -> None:
    """What torch makes of a disk with no room for a file, here a limit of file sizes."""
    import resource

    import torch

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        torch.save(torch.zeros(1 << 16), folder / "policy.pt")
    except RuntimeError as error:
        raise WorkerFailed(f"policy-0: RuntimeError: {error}", actor="policy-0", trace="Traceback ...") from error
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_is_full_for_torch_is_called_so(saved: Checkpoints) -> None:
    with pytest.raises(
        WorkerFailed, match="step 11 could not be written: a file could not be written to its end"
    ) as full:
        saved.save(11, CONTROLLER, beyond_the_limit)
    assert "unexpected pos" not in str(full.value)
    assert full.value.trace == ""
    assert "free disk space" in full.value.hint


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("Error while serializing: I/O error: File too large (os error 27)", "File too large"),
        ("CheckpointException ranks:[0]\n  OSError: [Errno 28] No space left on device", "No space left on device"),
        ("[Errno 122] Disk quota exceeded", "Disk quota exceeded"),
        ("[Errno 2] No such file or directory", ""),
        ("the shapes differ", ""),
    ],
)
def test_why_nothing_could_be_written(text: str, cause: str) -> None:
    assert unwritten.cause(text) == cause


def test_writing_a_step_again_replaces_it(saved: Checkpoints) -> None:
    (saved.folder / "step-000010" / "policy" / "__0_0.distcp").unlink()
    saved.save(10, CONTROLLER, write)
    assert saved.damaged() == []


def test_only_the_last_ones_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "main", keep_last=2)
    for step in (999_999, 1_000_000, 1_000_001):
        checkpoints.save(step, CONTROLLER, write)
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == ["step-1000000", "step-1000001"]


def test_without_a_folder_there_is_none(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "nowhere", keep_last=1)
    assert checkpoints.newest() is None
    assert checkpoints.damaged() == []


def test_of_the_last_checkpoints_fewer_keep_their_critic_and_all_stay_whole(tmp_path: Path) -> None:
    def with_critic(folder: Path) -> None:
        write(folder)
        (folder / "critic").mkdir()
        (folder / "critic" / "__0_0.distcp").write_bytes(b"values")
        write_checksums(folder / "critic")

    checkpoints = Checkpoints(tmp_path / "main", keep_last=3, keep_last_critic=2)
    for step in (1, 2, 3, 4):
        checkpoints.save(step, CONTROLLER, with_critic)
    kept = {folder.name: (folder / "critic").exists() for folder in sorted(checkpoints.folder.iterdir())}
    assert kept == {"step-000002": False, "step-000003": True, "step-000004": True}
    assert checkpoints.damaged() == []


def test_rights_that_are_lost_are_told_and_nothing_is_harmed(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()

    def mount(*arguments: str) -> int:
        return subprocess.run(["mount", *arguments, str(place)], capture_output=True, check=False).returncode

    if mount("-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        pytest.skip("file systems cannot be mounted here")
    try:
        checkpoints = Checkpoints(place / "main", keep_last=1)
        checkpoints.save(1, CONTROLLER, write)
        assert mount("-o", "remount,ro") == 0
        with pytest.raises(WorkerFailed, match="step 2 could not be written: Read-only file system") as refused:
            checkpoints.save(2, CONTROLLER, write)
        assert "fix the permissions" in refused.value.hint
        newest = checkpoints.newest()
        assert newest is not None
        assert newest.step == 1
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def place() -> Iterator[str]:
    """A place for copies, in memory."""
    yield "memory://checkpoints/run/main"
    fsspec.filesystem("memory").store.clear()


def test_one_that_was_loaded_is_deleted_only_where_its_own_copy_is_whole(tmp_path: Path, place: str) -> None:
    """A run may be killed between a checkpoint and its copy, and another run's checkpoints are not copied here."""
    copies = RemoteCopies(place)
    checkpoints = Checkpoints(tmp_path / "main", keep_last=None, copies=copies)
    checkpoints.save(1, CONTROLLER, write)
    Checkpoints(checkpoints.folder, keep_last=None).save(2, CONTROLLER, write)  # and ended before it was copied
    Checkpoints(tmp_path / "other", keep_last=None).save(1, CONTROLLER, write)
    newest, other = checkpoints.newest(), verified(tmp_path / "other" / "step-000001")
    assert newest is not None
    assert other is not None
    assert not checkpoints.forget(newest)
    assert not checkpoints.forget(other)
    fsspec.filesystem("memory").rm(f"{place}/step-000001/{MANIFEST}".removeprefix("memory:/"))
    first = verified(checkpoints.folder / "step-000001")
    assert first is not None
    assert not checkpoints.forget(first), "its copy is cut off"
    copies.send(first.folder, keep=["step-000001", "step-000002"])
    copies.wait()
    assert checkpoints.forget(first)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*")) == [
        "main/step-000002",
        "other/step-000001",
    ]


def test_what_a_killed_run_left_of_others_makes_room_for_the_next(saved: Checkpoints) -> None:
    saved.begin(7, CONTROLLER, write)  # asked for by somebody, and cut off: no later run comes to save at this step
    again = Checkpoints(saved.folder, keep_last=None)
    again.save(11, CONTROLLER, write)
    assert [path.name for path in saved.folder.iterdir() if path.name.endswith(".partial")] == []


def test_before_the_ones_before_go_all_of_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of files are in their folders: after a power cut a file that was written is not there without."""
    synced: set[str] = set()
    monkeypatch.setattr(os, "fsync", lambda handle: synced.add(str(Path(f"/proc/self/fd/{handle}").readlink())))
    partial = tmp_path / "step-000001.partial"
    partial.mkdir()
    write(partial)
    replace_folder(partial, tmp_path / "step-000001")
    assert synced == {str(path) for path in (tmp_path, partial, partial / "policy")} | {
        str(partial / "policy" / name) for name in ("__0_0.distcp", ".metadata", "checksums.json")
    }


STATE = '{"step": 5, "progress": {}, "data": {}}'


@pytest.mark.parametrize("name", [MANIFEST, "controller.json"])
@pytest.mark.parametrize("content", ["[" * 100_000 + "]" * 100_000, "pipe", '{"step": "x", "progress": 1, "data": 1}'])
def test_a_checkpoint_with_a_hostile_file_is_none_and_ends_nothing(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / "controller.json").write_text(STATE)
    (tmp_path / MANIFEST).write_text(json.dumps({"controller.json": len(STATE)}))
    saved = read_checkpoint(tmp_path)
    assert saved is not None
    assert saved.step == 5
    (tmp_path / name).unlink()
    if content == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).write_text(content)
    if name == "controller.json":
        (tmp_path / MANIFEST).write_text(json.dumps({"controller.json": (tmp_path / name).stat().st_size}))
    assert read_checkpoint(tmp_path) is None


def test_a_run_goes_back_to_no_checkpoint_whose_content_is_damaged(tmp_path: Path) -> None:
    """Later ones would be set aside, and the run would resume from an earlier one than was asked for."""
    config = config_from({})
    place = place_of(stages_of(config)[0], tmp_path)
    checkpoints = Checkpoints(place, keep_last=None)
    for step in (1, 2, 3):
        checkpoints.save(step, CONTROLLER, write)
    (place / "step-000002" / "policy" / "__0_0.distcp").write_bytes(b"WEIGHTS")
    with pytest.raises(RunError, match="no complete checkpoint of step 2"):
        go_back(config, tmp_path, 2)
    assert sorted(path.name for path in place.iterdir()) == ["step-000001", "step-000002", "step-000003"]
    go_back(config, tmp_path, 1)
    assert sorted(path.name for path in place.glob("step-*")) == ["step-000001"]
