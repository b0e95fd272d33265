"""A reward function of the user's: loading it from its file, and calling it as verl does."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any

from rlctl.errors import RlctlError, RunError, nearest
from rlctl.runtime.rewards.interface import Call, Failure, Outcome, Score

TRACEBACK_LINES = 8
"""Last lines of a user's traceback that a message holds."""
VERL_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")


def load_function(path: str, name: str) -> Callable[..., Any]:
    """Import a Python file and return a function of it. Modules beside the file can be imported by it.

    Raises:
        RunError: there is no such file or function, or importing it raises.
    """
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise RunError(
            f"there is no reward file {file}",
            hint="set the path of the reward; relative paths start at the working folder",
        )
    module = _import_file(file)
    function = getattr(module, name, None)
    if not callable(function):
        names = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise RunError(
            f"{file} has no function {name!r}; it has {', '.join(names) or 'none'}",
            hint=f"{nearest(name, names)} set the function of the reward".strip(),
        )
    return function


def _import_file(file: Path) -> ModuleType:
    sys.path.append(str(file.parent))
    spec = importlib.util.spec_from_file_location(f"rlctl_reward_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise RunError(f"{file} is not a Python file; expected one that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the user's file raises is shown to the user
        raise RunError(f"importing the reward file {file} fails:\n{last_lines(error)}") from error
    return module


def check_verl_signature(function: Callable[..., Any], path: str) -> None:
    """Check that a function can be called with verl's arguments.

    Raises:
        RunError: it cannot.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    missing = [name for name in VERL_ARGUMENTS if name not in parameters]
    if missing and not takes_any:
        raise RunError(
            f"the reward function of {path} takes ({', '.join(parameters)}) and not {', '.join(missing)}; it is called with "
            f"{', '.join(VERL_ARGUMENTS)} by name",
            hint="give it those parameters, or **kwargs",
        )


def call_verl(function: Callable[..., Any], call: Call, args: Mapping[str, Any]) -> Outcome:
    """Call a function with verl's arguments; a coroutine is run to its end.

    Raises:
        TypeError: its result is neither a number nor a mapping with a numeric ``score``.
    """
    result = function(
        data_source=call.source,
        solution_str=call.response,
        ground_truth=call.answer,
        extra_info=call.extra,
        **{**args, **call.args},
    )
    return as_outcome(asyncio.run(result) if inspect.iscoroutine(result) else result)


def as_outcome(result: Any) -> Outcome:
    """Read a result: a number, or a mapping with ``score`` whose other numbers are metrics; ``acc`` says if it is right.

    Raises:
        TypeError: it is neither.
        ValueError: the score is not finite.
    """
    if isinstance(result, Mapping):
        if not _is_number(result.get("score")):
            raise TypeError(f"the reward is a mapping without a numeric 'score': {_short(result)}")
        metrics = {str(k): float(v) for k, v in result.items() if k != "score" and _is_number(v)}
        correct = bool(result["acc"]) if _is_number(result.get("acc")) else None
        return Outcome(_finite(result["score"]), correct, metrics)
    if not _is_number(result):
        raise TypeError(f"the reward is {_short(result)}; expected a number, or a mapping with 'score'")
    return Outcome(_finite(result))


def _finite(value: Any) -> float:
    if not math.isfinite(value):
        raise ValueError(f"the reward is {float(value)}; expected a finite number")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or (hasattr(value, "item") and getattr(value, "ndim", None) == 0)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def attempt(score: Score, call: Call) -> Outcome | Failure:
    """Score one call; whatever the user's code raises becomes a failure of this call."""
    try:
        return score(call)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code may raise anything
        return Failure(error.message if isinstance(error, RlctlError) else last_lines(error))


def last_lines(error: BaseException) -> str:
    """The last lines of an exception's traceback, from the first frame that is the user's."""
    frame = error.__traceback__
    while frame is not None and _is_ours(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    text = "".join(traceback.format_exception(type(error), error, frame))
    return "\n".join(text.strip().splitlines()[-TRACEBACK_LINES:])


def _is_ours(file: str) -> bool:
    return file.startswith(("<frozen importlib", str(Path(__file__).parent)))
