"""A real run of the quickstart, which learns to add, kept in ``tests/tui/addition`` for pictures of the screens.

    python -m tests.tui.recorded            # runs it (about seven minutes of two cores) and keeps what the app reads

Kept are the run's own files without checkpoints, and of its responses a few steps. Of the stages before the last every
tenth step stays, and of phases only the last ones, so that the log is small. What names this machine is replaced.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rlctl import runs
from rlctl.cli import quickstart

FOLDER = Path(__file__).parent / "addition"
KEPT = ("run.json", "config.yaml", "plan.json", "source.yaml", "source1.yaml", "events.jsonl")
STEPS = {"step-000001", "step-000025", "step-000050", "step-000075", "step-000099", "step-000100"}
"""Whose responses are kept; those of evaluations all are."""
EVERY = 10
"""Of the stages before the last, each so-many-th step is kept."""
PHASES = 20
"""Events of phases that are kept, the last ones."""
HOME = "/home/me/addition"
"""In place of the folder that it ran in."""


def record() -> None:
    """Run it, and keep its files."""
    with tempfile.TemporaryDirectory(prefix="rlctl-recorded-") as name:
        os.chdir(name)
        quickstart._make(Path("quickstart"), seed=1)
        words = [
            "launch",
            "quickstart/sft.yaml",
            "quickstart/grpo.yaml",
            "--baseline",
            "--new",
            "--set",
            "run.folder=runs",
        ]
        subprocess.run([sys.executable, "-m", "rlctl", *words], check=True)
        keep(Path("runs/addition").resolve(), Path(name).resolve())


def keep(run: Path, around: Path) -> None:
    """Copy what the app reads of a run, with other names for its machine and the folder around it."""
    host = runs.inspect(run).host
    shutil.rmtree(FOLDER, ignore_errors=True)
    files = [run / name for name in KEPT] + [path for name in ("logs", "processes") for path in (run / name).iterdir()]
    files += [
        path for path in (run / "samples").rglob("*.jsonl") if path.stem in STEPS or not path.stem.startswith("step-")
    ]
    for path in files:
        target = FOLDER / path.relative_to(run)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text().replace(str(around), HOME).replace(f'"{host}"', '"node1"')
        target.write_text(thinned(text) if path.name == "events.jsonl" else text)


def thinned(log: str) -> str:
    """The events of a log without most steps of the stages before the last, and most phases."""
    lines = log.splitlines(keepends=True)
    events = [json.loads(line) for line in lines]
    last = [event["stage"] for event in events if event["kind"] == "step"][-1]
    phases = [place for place, event in enumerate(events) if event["kind"].startswith("phase")][-PHASES:]
    kept = []
    for place, event in enumerate(events):
        is_between = event["kind"] == "step" and event["stage"] != last and event["step"] % EVERY != 1
        if not is_between and (not event["kind"].startswith("phase") or place in phases):
            kept.append(lines[place])
    return "".join(kept)


def place(runs_folder: Path) -> Path:
    """The run in a folder of runs, as a run that is over: its files were written last when it ended."""
    run = runs_folder / FOLDER.name
    shutil.copytree(FOLDER, run)
    for path in run.rglob("*"):
        os.utime(path, (ended(), ended()))
    return run


def ended() -> float:
    """When it ended."""
    return float(json.loads((FOLDER / "run.json").read_text())["ended"])


if __name__ == "__main__":
    record()
