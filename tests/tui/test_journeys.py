"""Whole journeys in a real terminal, as a person makes them: keys in, the screen and the files out."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from rlctl.editing.session import Session
from tests.tui import recorded
from tests.tui.terminal import terminal

FILE = """\
rlctl: 1
run: {name: demo, seed: 1}   # mine
model: {path: m}
data: {train: [{path: t.parquet}]}
"""


SCRIPT = """\
#!/bin/bash
LR=1e-6
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files=train.parquet \\
    data.train_batch_size=64 \\
    actor_rollout_ref.model.path=model \\
    actor_rollout_ref.actor.optim.lr=$LR \\
    actor_rollout_ref.rollout.n=8 \\
    trainer.n_gpus_per_node=8 \\
    trainer.total_epochs=1
"""


def test_a_verl_script_is_ported_to_roll(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(SCRIPT)
    with terminal(tmp_path, "train.sh") as app:
        app.sees("train.sh", "verl")
        app.press("C-f")
        app.sees("search")
        app.type("actor.optim.lr")
        app.sees("train.optimizer.lr")
        app.press("Enter")
        app.sees("train.sh:2")
        app.type("7")  # on the line, no key changes the value
        app.press("e")
        app.sees("EDIT")
        app.press("End", "C-u")
        app.type("5.0e-6")
        app.sees("train.sh ●")
        app.press(
            "F5"
        )  # what each dialect calls the field is out of sight: the names that are seen next are the choice's
        app.press("F12")
        app.sees("Save as", "export a copy")
        app.press("End", "C-u")
        app.type("ported.yaml")
        app.press("Tab", "Enter")
        app.sees("trinity")
        app.press("End", "Enter")
        app.sees("roll")
        app.sees("Changes training")
        app.press("BTab", "Enter")
        app.sees("ported.yaml", "saved")
        app.press("C-q")
        app.ended()
    ported = Session.open(tmp_path / "ported.yaml")
    assert ported.dialect.startswith("roll")
    assert ported.config.train.optimizer.lr == 5e-6
    assert (tmp_path / "train.sh").read_text() == SCRIPT


def test_a_run_is_watched_from_the_start_page_in_a_small_and_a_large_terminal(tmp_path: Path) -> None:
    recorded.place(tmp_path / "runs")
    with terminal(tmp_path, size=(80, 24)) as app:
        app.sees("addition", "finished")
        app.press("Enter")
        app.sees("grpo", "step 100/100")
        app.press("3")
        app.sees("=<assistant>")
        app.resize(200, 60)
        app.sees("=<assistant>", "step 100/100")
        app.press("2")
        app.sees("reward/mean")
        app.resize(60, 15)
        app.sees("addition")
        app.press("F1")
        app.sees("Pick metrics by", "expression or letters")
        app.press("Escape")
        app.press("C-q")
        app.ended()


def test_what_was_typed_before_a_kill_is_offered_and_taken_up(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(FILE)
    with terminal(tmp_path, "run.yaml") as app:
        app.sees("run.yaml", "summary", "learning rate")
        app.press("C-p")
        app.sees("a command, a field")
        app.type("run.seed")
        app.sees("Base of all random streams")
        app.loses("section run")  # which "run" alone finds, before the rest is searched for
        app.press("Enter")
        app.sees("run.yaml:2")
        app.press("e", "End", "BSpace")
        app.type("77")
        app.sees("run.yaml ●", "77")
        wait_until_kept(tmp_path)
        os.kill(app.pid, signal.SIGKILL)
        app.ended()
    assert file.read_text() == FILE
    with terminal(tmp_path, "run.yaml") as app:
        app.sees("run.seed = 77", "Restore")
        app.answer("Down", "Enter")
        app.sees("run.yaml ●")
        app.press("C-s")
        app.sees("saved")
        app.press("C-q")
        app.ended()
    assert file.read_text() == FILE.replace("seed: 1", "seed: 77")


def wait_until_kept(folder: Path) -> None:
    """Until the change is in the recovery file."""
    deadline = time.monotonic() + 60
    while not any("77" in path.read_text() for path in (folder / ".state").rglob("*.json")):
        assert time.monotonic() < deadline, "nothing was kept"
        time.sleep(0.05)


def test_what_cannot_be_opened_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("rlctl: 1\nrun: {nam: demo\n")
    with terminal(tmp_path, "bad.yaml") as app:
        told = app.ended()
    assert "error: " in told
    assert "bad.yaml" in told
    assert "Traceback" not in told
