"""Running the proof of a ported folder, which executes the reward of its run."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from rlctl.common import own_python
from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.common.whole_files import write_whole

SECONDS = 600
"""How long a proof may take."""


def prove(folder: Path, python: str | None, responses: Path | None = None) -> dict[str, Any] | str:
    """The result of ``prove.py``, or what it printed if it made none.

    Args:
        folder: of the port.
        python: an interpreter in whose environment the target is installed; None is the one that runs rlctl.
        responses: responses of a real run.

    Raises:
        RunError: the interpreter cannot be started, or the proof takes too long.
    """
    given = ["--responses", str(responses.resolve())] if responses else []
    words = own_python.file("prove.py", *given) if python is None else [python, "prove.py", *given]
    result = folder / "proof" / "result.json"
    result.unlink(missing_ok=True)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except OSError as error:
        raise RunError(
            said("{python} cannot be started: {reason}", python=words[0], reason=error.strerror or str(error)),
            hint="name an interpreter with --python",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise RunError(
            said("the proof took longer than {seconds} s", seconds=SECONDS), hint="run python prove.py in the folder"
        ) from error
    if not result.exists():
        return "\n".join((done.stdout + done.stderr).strip().splitlines()[-6:])
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def add_to_readme(folder: Path, table: str) -> None:
    """Put the result of a proof at the end of a folder's README."""
    readme = folder / "README.md"
    write_whole(readme, readme.read_text(encoding="utf-8").rstrip() + f"\n\n{table}\n")
