"""How a command is added to an app: its docstring is its help, paragraph by paragraph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import typer

F = TypeVar("F", bound=Callable[..., None])


def group(text: str) -> typer.Typer:
    """An app that holds commands, and shows them where none is named."""
    return typer.Typer(help=text, no_args_is_help=True, rich_markup_mode="rich")


def command(app: typer.Typer, name: str | None = None, *, panel: str | None = None) -> Callable[[F], F]:
    """A decorator that adds a function to an app, under its own name unless another is given."""

    def add(function: F) -> F:
        app.command(name, help=paragraphs(function.__doc__ or ""), rich_help_panel=panel)(function)
        return function

    return add


def paragraphs(text: str) -> str:
    """Text whose paragraphs are one line each, so that the terminal's width alone breaks them."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
