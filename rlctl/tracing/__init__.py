"""Running a launch script in isolation, to see which program it starts; the only place where something of an input is executed.

The script runs in namespaces of its own: without network, on a read-only root, with an end to its time, and with stand-ins for
python, torchrun, uv, ray and whatever reaches outside. ``inside.py`` runs there. Where that is not possible, nothing is run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlctl.errors import DocumentError, Location

SECONDS = 60
_INSIDE = Path(__file__).with_name("inside.py")
_UNSHARE = ("--user", "--map-root-user", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child")
_HINT = "leave out --trace: the script is then read without running it"


@dataclass(frozen=True)
class Traced:
    """What a script did."""

    calls: tuple[tuple[str, ...], ...]
    """The command lines of the stand-ins, in order."""
    status: int | None
    """The script's exit status; None where its time was over."""
    said: str
    """The end of what it printed on stderr."""


def trace(script: str, arguments: Sequence[str], environment: Mapping[str, str], *, seconds: float = SECONDS) -> Traced:
    """Run a script in isolation.

    Args:
        script: path of the file.
        arguments: what it is given.
        environment: the variables it sees.
        seconds: when it is ended.

    Raises:
        DocumentError: it cannot be isolated here; nothing was run.
    """
    at = Location(script)
    unshare = shutil.which("unshare")
    if unshare is None or not sys.platform.startswith("linux"):
        raise DocumentError(
            "cannot be traced: that needs Linux namespaces, and the program 'unshare' is not here", at=at, hint=_HINT
        )
    if shutil.which("bash") is None:
        raise DocumentError("cannot be traced: the program 'bash' is not here", at=at, hint=_HINT)
    order = {
        "script": str(Path(script).resolve()),
        "name": script,
        "arguments": list(arguments),
        "environment": dict(environment),
        "folder": str(Path.cwd()),
        "seconds": seconds,
    }
    try:
        ended = subprocess.run(
            [unshare, *_UNSHARE, "--", sys.executable, "-I", "-S", str(_INSIDE)],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            timeout=seconds + 30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DocumentError(f"cannot be traced: {error}", at=at, hint=_HINT) from None
    try:
        found = json.loads(ended.stdout)
    except ValueError:
        said = (ended.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        raise DocumentError(
            f"cannot be traced, because it cannot be isolated here: {said}", at=at, hint=_HINT
        ) from None
    if "refused" in found:
        raise DocumentError(
            f"cannot be traced, because it cannot be isolated here: {found['refused']}", at=at, hint=_HINT
        )
    return Traced(tuple(tuple(call) for call in found["calls"]), found["status"], found["said"])
