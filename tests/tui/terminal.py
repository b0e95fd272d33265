"""A real terminal for a journey: tmux, which a test types into and reads, line by line."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE = 90.0
"""Seconds until what is waited for has to be seen: much on a machine that is busy."""


class Terminal:
    """One ``rlctl tui`` in a terminal of its own server, in a folder."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    def tmux(self, *words: str) -> str:
        command = ["tmux", "-L", self._socket, "-f", "/dev/null", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", "it")

    @property
    def history(self) -> str:
        """The screen, and what went off its top."""
        return self.tmux("capture-pane", "-p", "-S", "-", "-t", "it")

    def sees(self, *texts: str) -> str:
        """Wait until all of it is on the screen, and return the screen."""
        deadline = time.monotonic() + PATIENCE
        while True:
            screen = self.screen
            missing = [text for text in texts if text not in screen]
            if not missing:
                return screen
            assert time.monotonic() < deadline, f"{missing} did not come:\n{screen}"
            time.sleep(0.1)

    def loses(self, text: str) -> None:
        """Wait until a text is no longer on the screen."""
        deadline = time.monotonic() + PATIENCE
        while text in (screen := self.screen):
            assert time.monotonic() < deadline, f"{text} did not go:\n{screen}"
            time.sleep(0.1)

    def press(self, *keys: str) -> None:
        """Press keys by their names in tmux, as fast as a person does: ``C-s``, ``F12``, ``Enter``."""
        for key in keys:
            self.tmux("send-keys", "-t", "it", key)
            time.sleep(0.3)

    def answer(self, *keys: str) -> None:
        """Press keys in a box, which takes none in its first moment, so that each has an effect."""
        self._rest()
        for key in keys:
            self._press_until_taken(key)

    def _rest(self) -> None:
        """Wait until nothing on the screen has changed for two seconds."""
        deadline = time.monotonic() + PATIENCE
        since, before = time.monotonic(), self._coloured
        while time.monotonic() < since + 2.0:
            assert time.monotonic() < deadline, f"the screen does not come to rest:\n{self.screen}"
            time.sleep(0.1)
            if self._coloured != before:
                since, before = time.monotonic(), self._coloured

    def _press_until_taken(self, key: str) -> None:
        """Press a key that changes the screen, and again if nothing came of it for thirty seconds."""
        deadline = time.monotonic() + PATIENCE
        before = self._coloured
        while True:
            self.press(key)
            again = time.monotonic() + 30.0
            while time.monotonic() < again:
                if self._coloured != before:
                    return
                time.sleep(0.1)
            assert time.monotonic() < deadline, f"{key} changed nothing:\n{self.screen}"

    @property
    def _coloured(self) -> str:
        """The screen with its colours, which show what is chosen."""
        return self.tmux("capture-pane", "-e", "-p", "-t", "it")

    def type(self, text: str) -> None:
        """Type a text as it is."""
        self.tmux("send-keys", "-t", "it", "-l", text)

    def resize(self, width: int, height: int) -> None:
        self.tmux("resize-window", "-t", "it", "-x", str(width), "-y", str(height))

    @property
    def pid(self) -> int:
        """Of the app."""
        return int(self.tmux("display-message", "-p", "-t", "it", "#{pane_pid}"))

    def ended(self) -> str:
        """Wait until the app has ended, and return what it left on the terminal."""
        deadline = time.monotonic() + PATIENCE
        while self.tmux("display-message", "-p", "-t", "it", "#{pane_dead}").strip() != "1":
            assert time.monotonic() < deadline, f"it goes on:\n{self.screen}"
            time.sleep(0.1)
        return self.history


@contextmanager
def terminal(folder: Path, *words: str, size: tuple[int, int] = (120, 40), **environment: str) -> Iterator[Terminal]:
    """``rlctl tui WORDS`` in a folder; skips where tmux is not installed."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    one = Terminal(f"rlctl-test-{os.getpid()}-{time.monotonic_ns()}")
    given = {"RLCTL_LANGUAGE": "en", "XDG_STATE_HOME": str(folder / ".state"), "XDG_CONFIG_HOME": str(folder / ".config"),
             **environment}  # fmt: skip
    command = shlex.join(
        [
            "env",
            "-u",
            "COLUMNS",
            "-u",
            "LINES",
            *(f"{name}={value}" for name, value in given.items()),
            sys.executable,
            "-m",
            "rlctl",
            "tui",
            *words,
        ]
    )
    width, height = map(str, size)
    start = ["new-session", "-d", "-s", "it", "-c", str(folder), "-x", width, "-y", height, f"exec {command}"]
    one.tmux("start-server", ";", "set-option", "-g", "remain-on-exit", "on", ";", *start)
    try:
        yield one
    finally:
        one.tmux("kill-server")
