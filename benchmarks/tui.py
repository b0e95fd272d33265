"""Time to the first frame of ``rlctl tui`` against a bare Textual app's, both in one run, in turns.

    python benchmarks/tui.py                 # the start page, the editor, the monitor
    python benchmarks/tui.py --rounds 15

Each is a process of its own in a terminal of its own, 120 x 40. The first frame is there when the footer is, which Textual
draws last; the bare app has a header, a line of text and a footer. The first frame of the start page is the page itself, whose
list follows; a config and a run follow a frame that says they are being opened. The lines below are until their text is drawn.
Processor time is the process's until then, so that it says something on a busy machine too.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from statistics import median

from rlctl.config import presets

BARE = """
from textual.app import App
from textual.widgets import Footer, Header, Static

class Bare(App):
    def compose(self):
        yield Header()
        yield Static("text")
        yield Footer()

Bare().run()
"""
DRAWN = re.compile(rb"\^p|\? Help")
"""The end of the footer, in a plain Textual app and in rlctl's."""
STYLES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
STEPS = 2000


def until(drawn: re.Pattern[bytes], arguments: list[str], folder: Path, limit: float = 120.0) -> tuple[float, float]:
    """Seconds on the clock and of the processor until a text is drawn."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "PYTHONDONTWRITEBYTECODE")}
    environment = {**kept, "TERM": "xterm-256color", "RLCTL_LANGUAGE": "en", "XDG_STATE_HOME": str(folder / "state"),
                   "XDG_CONFIG_HOME": str(folder / "config")}  # fmt: skip
    start = time.monotonic()
    process = subprocess.Popen(arguments, stdin=there, stdout=there, stderr=there, cwd=folder, env=environment)
    os.close(there)
    seen = b""
    try:
        while not drawn.search(STYLES.sub(b"", seen)):
            ready, _, _ = select.select([here], [], [], limit - (time.monotonic() - start))
            data = os.read(here, 65536) if ready else b""
            if not data:
                raise SystemExit(f"{' '.join(arguments)} did not draw {drawn.pattern!r}: {seen[-500:]!r}")
            seen += data
        took = time.monotonic() - start
    finally:
        process.send_signal(signal.SIGKILL)
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = -signal.SIGKILL
        os.close(here)
    return took, used.ru_utime + used.ru_stime


def make_run(folder: Path) -> Path:
    """The folder of a run that is over, with some steps."""
    folder.mkdir(parents=True)
    now = time.time()
    record = {"name": folder.name, "status": "finished", "pid": 0, "host": "here", "started": now - STEPS, "ended": now,
              "cause": ""}  # fmt: skip
    (folder / "run.json").write_text(json.dumps(record))
    names = [f"group{number % 4}/metric{number}" for number in range(16)] + ["reward/mean", "policy/entropy"]
    events = [
        {"time": now - STEPS, "kind": "stage_started", "stage": "grpo", "total_steps": STEPS, "step": 0, "notes": []}
    ]
    events += [
        {"time": now - STEPS + step, "kind": "step", "stage": "grpo", "step": step, "total_steps": STEPS,
         "metrics": {name: step / (place + 1) for place, name in enumerate(names)}}
        for step in range(1, STEPS + 1)
    ]  # fmt: skip
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="rlctl-tui-") as name:
        folder = Path(name)
        (folder / "run.yaml").write_text(presets.text("grpo-1node"))
        run = make_run(folder / "runs" / "demo")
        rlctl = [sys.executable, "-m", "rlctl", "tui"]
        opened = {
            "start page": (rlctl, rb"Presets"),
            "editor": ([*rlctl, "run.yaml"], rb"Sections"),
            f"monitor, {STEPS} steps": ([*rlctl, str(run)], rb"reward/mean"),
        }
        sides = {"bare app": (DRAWN, [sys.executable, "-c", BARE])}
        sides |= {name: (DRAWN, arguments) for name, (arguments, _) in opened.items()}
        sides |= {
            f"{name}: {text.decode()}": (re.compile(text), arguments) for name, (arguments, text) in opened.items()
        }
        for drawn, arguments in sides.values():
            until(drawn, arguments, folder)  # compiled modules and a warm disk
        taken: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
        for _ in range(rounds):
            for side, (drawn, arguments) in sides.items():
                taken[side].append(until(drawn, arguments, folder))
    print(f"{'':34} {'clock':>8} {'of bare':>8} {'processor':>10} {'of bare':>8}   medians of {rounds}")
    for side, pairs in taken.items():
        clocks, works = zip(*pairs, strict=True)
        to_bare = [
            median(mine[at] / bare[at] for mine, bare in zip(pairs, taken["bare app"], strict=True)) for at in (0, 1)
        ]
        print(f"{side:34} {median(clocks):7.2f}s {to_bare[0]:7.2f}x {median(works):9.2f}s {to_bare[1]:7.2f}x")


if __name__ == "__main__":
    main()
