"""The picture in README: what ``rlctl convert`` prints to a terminal, drawn as ``docs/images/convert.svg``.

    python -m tests.docs.pictures

The command runs in a pseudo-terminal, so it prints what a person sees, colours included; Rich draws that.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "convert.svg"
COMMAND = "rlctl convert verl.yaml --to roll -o roll.yaml"
WIDTH = 110


def example() -> str:
    """The config that README shows."""
    (text,) = re.findall(
        r"```yaml\n# file: verl\.yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    return str(text)


def printed() -> str:
    """What the command prints to a terminal."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "verl.yaml").write_text(example(), encoding="utf-8")
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, WIDTH, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
        environment = {**kept, "TERM": "xterm-256color", "RLCTL_LANGUAGE": "en", "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-m", "rlctl", *COMMAND.split()[1:]]
        process = subprocess.Popen(words, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        text = _read(ours)
        assert process.wait() == 3, text
    return text.replace("\r\n", "\n")


def _read(terminal: int) -> str:
    """Everything that is written to a terminal until the last process closes it."""
    read = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux says so instead of an empty read
            part = b""
        if not part:
            os.close(terminal)
            return read.decode()
        read += part


def drawn(text: str) -> str:
    """The picture of a command and its output."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.assemble(("$ ", "green"), (COMMAND, "bold")))
    console.print(Text.from_ansi(text.rstrip("\n")))
    return console.export_svg(title="rlctl convert", unique_id="rlctl")


def draw() -> None:
    PICTURE.write_text(drawn(printed()), encoding="utf-8")


if __name__ == "__main__":
    draw()
