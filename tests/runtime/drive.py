"""Runs a config in a process of its own, and sends a signal at a chosen event. See ``conftest.session``."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from rlctl import runs
from rlctl.config import Loaded, config_from


def main() -> None:
    order = json.loads(Path(sys.argv[1]).read_text())
    loaded = Loaded(config_from(order["config"]))

    def observe(event: dict[str, Any]) -> None:
        here = [event["kind"], event.get("stage"), event.get("step"), event.get("name")]
        if here[: len(order["at"])] == order["at"] != []:
            order["at"] = []
            if order["to"]:
                kill_child(order["to"])
            elif order["after"]:
                threading.Timer(order["after"], send, (order["send"], order["times"])).start()
            else:
                send(order["send"], order["times"])

    result = runs.start(loaded, plan=runs.prepare(loaded), observer=observe)
    print(f"ended {result.status}", flush=True)


def send(number: int, times: int) -> None:
    print(f"sent {time.time()}", flush=True)
    if number == signal.SIGKILL:
        os.kill(os.getpid(), number)
    for _ in range(times):
        os.killpg(0, number)
        time.sleep(0.01)


def kill_child(name: str) -> None:
    print(f"sent {time.time()}", flush=True)
    for child in psutil.Process().children():
        if child.name() == name:
            child.kill()


if __name__ == "__main__":
    main()
