"""What was changed and not saved is there at the next start, whatever ended the editor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlctl.editing import recovery
from rlctl.editing.session import Session
from rlctl.runs.record import began

EDITOR = """
import os, signal, sys
from pathlib import Path
from rlctl.editing import recovery
from rlctl.editing.session import Session
from rlctl.runs.record import began
session = Session.open(Path(sys.argv[1]))
session.set(("run", "seed"), 7)
recovery.keep(session)
session.set(("run", "name"), "late")
recovery.keep(session)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text("rlctl: 1\nrun: {name: early}\n")
    return path


def killed(file: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", EDITOR, str(file)], env=os.environ, timeout=60)
    assert ended.returncode == -signal.SIGKILL


def test_an_editor_that_was_killed_leaves_what_was_changed(file: Path) -> None:
    killed(file)
    [item] = recovery.kept(file)
    assert {change.label for change in item.changes} == {"run.seed = 7", "run.name = 'late'"}
    session = Session.open(file)
    assert recovery.recover(session, item)
    assert (session.config.run.seed, session.config.run.name) == (7, "late")
    session.undo()
    assert session.config.run.name == "early"
    assert list(recovery.kept(file)) == []


def test_it_is_said_when_the_file_is_another_one_by_now(file: Path) -> None:
    killed(file)
    file.write_text("rlctl: 1\nrun: {name: early}\nmodel: {path: other}\n")
    [item] = recovery.kept(file)
    session = Session.open(file)
    assert not recovery.recover(session, item)
    assert (session.config.run.name, session.config.model.path) == ("late", "other")


def test_nothing_is_kept_of_what_is_saved_or_undone(file: Path) -> None:
    session = Session.open(file)
    session.set(("run", "seed"), 7)
    recovery.keep(session)
    assert len(list(recovery.folder().iterdir())) == 1
    session.save()
    recovery.keep(session)
    assert list(recovery.folder().iterdir()) == []


def test_what_was_stated_of_the_run_is_kept_also_where_all_is_saved(file: Path) -> None:
    session = Session.open(file)
    session.assume({"dataset_rows": "80"})
    recovery.keep(session)
    [item] = recovery.kept(file)
    again = Session.open(file)
    again.assume({"explorer_gpus": "4"})
    assert recovery.recover(again, item)
    assert again.facts == {"dataset_rows": "80", "explorer_gpus": "4"}
    assert not again.is_changed


def test_what_an_rlctl_without_facts_left_is_taken_up(file: Path) -> None:
    killed(file)
    [place] = recovery.folder().iterdir()
    data = json.loads(place.read_text())
    del data["facts"]
    place.write_text(json.dumps(data))
    [item] = recovery.kept(file)
    assert len(item.changes) == 2


def test_an_editor_that_lives_keeps_its_own(file: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        session = Session.open(file)
        session.set(("run", "seed"), 7)
        recovery.keep(session)
        [place] = recovery.folder().iterdir()
        data = json.loads(place.read_text())
        place.write_text(json.dumps(data | {"pid": other.pid, "process_began": began(other.pid)}))
        assert list(recovery.kept(file)) == []
    finally:
        other.kill()
        other.wait()
    assert len(list(recovery.kept(file))) == 1


def test_a_secret_is_kept_nowhere(file: Path) -> None:
    session = Session.open(file)
    session.set(("buffer",), {"type": "sql", "url": "postgresql://me:hunter2@db/x"})
    session.set(("run", "seed"), 7)
    recovery.keep(session)
    [place] = recovery.folder().iterdir()
    assert "hunter2" not in place.read_text()
    assert place.stat().st_mode & 0o077 == 0


def test_what_was_undone_past_a_save_is_kept_too(file: Path) -> None:
    session = Session.open(file)
    session.set(("run", "seed"), 7)
    session.save()
    session.undo()
    recovery.keep(session)
    [place] = recovery.folder().iterdir()
    place.write_text(place.read_text().replace(f'"pid": {os.getpid()}', '"pid": 999999999'))
    again = Session.open(file)
    assert again.config.run.seed == 7
    [item] = recovery.kept(file)
    assert recovery.recover(again, item)
    assert (again.config.run.seed, again.config.run.name) == (session.config.run.seed, "early")


def test_a_damaged_file_is_passed_over(file: Path) -> None:
    killed(file)
    [place] = recovery.folder().iterdir()
    place.write_text(place.read_text()[:40])
    assert list(recovery.kept(file)) == []
