"""A control group holds a program, with what the kernel keeps for it, wherever one can be made; ``on_version_2.sh`` tries it in version 2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlctl.common.errors import SandboxUnavailable
from rlctl.sandbox import PATH, Limits, Profile, cgroup, find_bwrap, run

LIMITS = Limits(memory_mib=96, processes=64)
MAPPINGS = """if True:
    import ctypes, os, time
    libc = ctypes.CDLL(None)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, *[ctypes.c_size_t] * 5]
    for number in range(30000):
        libc.mmap(0, 4096, 1 + number % 2, 0x4022, 2**64 - 1, 0)
    for _ in range(40):
        if os.fork() == 0:
            time.sleep(20)
    time.sleep(20)
"""
"""Every process keeps 30,000 mappings of nothing: about 8 MB of the kernel's memory, of which /proc tells nothing."""


def _made() -> cgroup.Group:
    group = cgroup.make(LIMITS)
    if group is None:
        pytest.skip("no control group can be made here")
    return group


def test_what_the_kernel_keeps_for_a_program_counts() -> None:
    _made().remove()
    try:
        find_bwrap()
    except SandboxUnavailable as error:
        pytest.skip(error.message)
    result = run(["/usr/bin/python3", "-c", MAPPINGS], Profile(environment={"PATH": PATH}, limits=LIMITS))
    assert result.stopped == "memory"


def test_a_group_is_removed_with_its_program_and_those_of_killed_processes_too() -> None:
    group = _made()
    (folder, *_) = group._folders
    group.remove()
    assert not folder.exists()
    left = folder.with_name("rlctl-999999999-0")
    left.mkdir()
    cgroup._sweep.cache_clear()
    _made().remove()
    assert not left.exists()


def test_version_2_makes_the_group_where_the_controllers_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group with processes may not hold others there, so the new group is in the parent of this process's own."""
    own = tmp_path / "app.slice" / "shell.scope"
    own.mkdir(parents=True)
    (own / "cgroup.subtree_control").write_text("")
    (own.parent / "cgroup.subtree_control").write_text("cpu memory pids\n")
    mine = tmp_path / "mine"
    mine.write_text("0::/app.slice/shell.scope\n")
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    monkeypatch.setattr(cgroup, "MINE", mine)
    group = cgroup.make(LIMITS)
    assert group is not None
    (folder,) = group._folders
    assert folder.parent == own.parent
    group.add(os.getpid())
    told = {file.name: file.read_text() for file in folder.iterdir()}
    assert told == {
        "memory.max": str((96 + cgroup.HEADROOM_MIB) << 20),
        "memory.oom.group": "1",
        "pids.max": str(64 + cgroup.HEADROOM_PROCESSES),
        "cgroup.procs": str(os.getpid()),
    }
    assert not group.ran_out
    (folder / "memory.events").write_text("max 12\noom 1\noom_kill 1\noom_group_kill 1\n")
    assert group.ran_out

    (own.parent / "cgroup.subtree_control").write_text("cpu\n")
    assert cgroup.make(LIMITS) is None
