"""Reading what ``torch.save`` wrote without executing it, and why a file that would execute something was refused."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

_REFUSED = re.compile(r"[Uu]nsupported (?:global: )?GLOBAL ([\w.]+)")
"""How torch names what ``weights_only`` refuses."""


def load_objects(file: Path | BytesIO) -> Any:
    """Return what ``torch.save`` wrote: tensors, numbers and text in lists and mappings.

    Raises:
        UnpicklingError: it is more than that.
        OSError: it cannot be read.
    """
    return torch.load(file, map_location="cpu", weights_only=True)


def reason_of(error: BaseException) -> str:
    """Why a file was not read, in one line; of one that would execute something, what."""
    found = _REFUSED.search(str(error)) if isinstance(error, UnpicklingError) else None
    if found:
        return f"it contains {found[1]}, which would be executed on loading"
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
