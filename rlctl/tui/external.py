"""A text in the person's own editor, and back."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from rlctl.common.errors import RlctlError
from rlctl.common.messages.reasons import said


class NoEditorError(RlctlError):
    """There is no editor that can be opened here."""


def edited(app: App[Any], text: str, name: str) -> str | None:
    """What a text is after a person was at it in ``$VISUAL``, ``$EDITOR`` or vi; None where the editor ended with an error.

    Args:
        app: gives the terminal away for so long.
        text: to begin with.
        name: of the file that is edited; its ending tells the editor what it is.

    Raises:
        NoEditorError: it cannot be started, or the app is not in a terminal.
    """
    words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory(prefix="rlctl-edit-") as folder:
        path = Path(folder) / name
        path.write_text(text, encoding="utf-8")
        try:
            with app.suspend():
                code = subprocess.run([*words, str(path)], check=False).returncode
        except SuspendNotSupported as error:
            raise NoEditorError(
                "no terminal is available to open the editor in", hint="run rlctl tui in one"
            ) from error
        except OSError as error:
            raise NoEditorError(
                said("{program} cannot be started: {reason}", program=words[0], reason=error.strerror),
                hint="set $EDITOR",
            ) from error
        return path.read_text(encoding="utf-8", errors="replace") if code == 0 else None
