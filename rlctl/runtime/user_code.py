"""Python files of the user's: imported, and what they raise shown from the first frame that is theirs."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from rlctl.common.errors import RunError

TRACEBACK_LINES = 8
"""Last lines of a user's traceback that a message holds."""


def import_file(file: Path, *, prefix: str, what: str) -> ModuleType:
    """Import a Python file, which can import modules beside it.

    Args:
        file: the file; it exists.
        prefix: of the module's name, so that files of one name and different purposes are different modules.
        what: what messages call it.

    Raises:
        RunError: it is no Python file, or importing it raises.
    """
    sys.path.append(str(file.parent))
    spec = importlib.util.spec_from_file_location(f"{prefix}_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise RunError(f"{what} is not a Python file; expected one that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the user's file raises is shown to the user
        raise RunError(f"importing {what} fails:\n{last_lines(error)}") from error
    return module


def last_lines(error: BaseException) -> str:
    """The last lines of an exception's traceback, from the first frame that is the user's."""
    frame = error.__traceback__
    while frame is not None and _is_ours(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    text = "".join(traceback.format_exception(type(error), error, frame))
    return "\n".join(text.strip().splitlines()[-TRACEBACK_LINES:])


def _is_ours(file: str) -> bool:
    return file.startswith(("<frozen importlib", str(Path(__file__).parent)))
