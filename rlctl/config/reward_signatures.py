"""The forms of a reward function, by the names of its parameters: how a run calls it, and what a check reads in its file."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

VERL_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")
BATCH_ARGUMENTS = ("data_sources", "solution_strs", "ground_truths", "extra_infos")


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function."""

    names: frozenset[str]
    anything: bool
    """It has ``**kwargs``, or its parameters are not known."""
    is_class: bool = False
    """It is a class, whose objects are called."""
    required: frozenset[str] = frozenset()
    """Those without a default."""

    def __str__(self) -> str:
        return ", ".join([*sorted(self.names), *(["**kwargs"] if self.anything else [])])


def form_of(parameters: Parameters) -> str | None:
    """The form that parameters tell; None for those of no form."""
    if parameters.is_class:
        return "trinity"
    if "response" in parameters.names:
        told = (form for name, form in (("truth", "trinity"), ("ground_truth", "roll")) if name in parameters.names)
        return next(told, "rlctl")
    return "verl" if parameters.anything or parameters.names & {"solution_str", "solution_strs"} else None


def arguments_of(form: str, parameters: Parameters) -> Sequence[str]:
    """The arguments that a function of a form must take, by name."""
    if form == "trinity":
        return ()
    if form != "verl":
        return ("response",)
    return BATCH_ARGUMENTS if "solution_strs" in parameters.names else VERL_ARGUMENTS


def missing_arguments(form: str, parameters: Parameters) -> list[str]:
    """The arguments of a form that a function does not take."""
    wanted = arguments_of(form, parameters)
    return [] if parameters.anything else [name for name in wanted if name not in parameters.names]


def takes(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Parameters:
    """The parameters of a function in a syntax tree."""
    args = node.args
    plain = [*args.posonlyargs, *args.args]
    names = [*plain, *args.kwonlyargs, *([args.vararg] if args.vararg else [])]
    required = plain[: len(plain) - len(args.defaults)]
    required += [each for each, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default is None]
    return Parameters(
        frozenset(argument.arg for argument in names),
        args.kwarg is not None,
        required=frozenset(argument.arg for argument in required),
    )


def parameters_of(path: Path, name: str) -> Parameters | None:
    """The parameters of a function of a file; None if the file lacks it, or if a decorator may change them."""
    node = plain_function(path, name)
    return None if node is None else takes(node)


def plain_function(path: Path, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """A function of a file; None if the file lacks it or is no Python, or if a decorator may change it."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name and not node.decorator_list:
            return node
    return None
