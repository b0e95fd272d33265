"""Python files of the user's: imported, and what they raise shown from the first frame that is theirs."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from rlctl.common.errors import RunError, nearest
from rlctl.common.messages.reasons import said

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
        raise RunError(said("{what} is not a Python file; expected one that ends in .py", what=what))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the user's file raises is shown to the user
        raise RunError(said("importing {what} fails:\n{error}", what=what, error=last_lines(error))) from error
    return module


def import_module(name: str) -> ModuleType:
    """Import a module by name: an installed one, else one of the working folder, whose modules hide no others."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    return importlib.import_module(name)


PACKAGE = "pkg://"
"""Before the name of an installed module; anything else is a file."""


def load_object(path: str, name: str, *, where: str) -> Any:
    """Return a function or class of a file or installed module.

    Args:
        path: of the config.
        name: of the object.
        where: the part of the config that names it, for messages.

    Raises:
        RunError: there is no such file, module or object, or importing it raises.
    """
    module = _module_of(path, where)
    if not hasattr(module, name):
        names = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        listed = ", ".join(sorted(names)) or "nothing"
        raise RunError(
            said("{where}: {path} has no {name!r}; it has {listed}", where=where, path=path, name=name, listed=listed),
            hint=nearest(name, names),
        )
    return getattr(module, name)


def _module_of(path: str, where: str) -> ModuleType:
    if path.startswith(PACKAGE):
        dotted = path.removeprefix(PACKAGE).strip("/").replace("/", ".")
        try:
            return import_module(dotted)
        except (Exception, SystemExit) as error:
            raise RunError(
                said("{where}: importing {dotted} fails:\n{error}", where=where, dotted=dotted, error=last_lines(error))
            ) from error
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise RunError(
            said("{where}: there is no file {file}", where=where, file=file),
            hint="relative paths start at the working folder",
        )
    return import_file(file, prefix="rlctl_agent", what=f"{file}, of {where},")


def encodable(text: str) -> str:
    """Text with lone surrogates replaced, which no tokenizer and no file takes."""
    return text.encode("utf-8", "replace").decode()


class Escaped(Exception):
    """Code of the user's raised something that would end the thread or the asyncio loop that calls it, such as SystemExit."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(last_lines(raised))
        self.cause = type(raised).__name__
        self.text = f"{self.cause}: {raised}"


@contextmanager
def contained() -> Iterator[None]:
    """Within, what code of the user's raises is an Exception, except the cancellation of this task.

    Raises:
        Escaped: it raised something else.
    """
    try:
        yield
    except (asyncio.CancelledError, GeneratorExit) as error:
        if isinstance(error, GeneratorExit) or _is_being_cancelled():
            raise
        raise Escaped(error) from error
    except (SystemExit, KeyboardInterrupt, StopIteration, StopAsyncIteration) as error:
        raise Escaped(error) from error


def _is_being_cancelled() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # in a thread
        return False
    return task is not None and task.cancelling() > 0


def last_lines(error: BaseException) -> str:
    """The last lines of an exception's traceback, from the first frame that is the user's."""
    frame = error.__traceback__
    while frame is not None and _is_ours(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    text = "".join(traceback.format_exception(type(error), error, frame))
    return "\n".join(text.strip().splitlines()[-TRACEBACK_LINES:])


def _is_ours(file: str) -> bool:
    return file.startswith(("<frozen importlib", str(Path(__file__).parent)))
