"""``rlctl explain``: one key of the canonical config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlctl.cli import arguments, completion, output

if TYPE_CHECKING:
    from rlctl.config.explain import Explanation


def explain(
    key: Annotated[
        str,
        typer.Argument(metavar="KEY", help="As [b]train.optimizer.learning_rate[/b].", autocompletion=completion.keys),
    ],
    *,
    json: arguments.Json = False,
) -> None:
    """Explain a key: what it is, its type, unit, range and default, and whether runs honour it.

    Keys are written as in a file, with or without list indices, or with the name of an option:
    [bold]algorithm.advantage<grpo>.epsilon[/bold]. A section shows what is in it.

    [bold]Examples[/bold]

    [cyan]rlctl explain batch.mini_batch_responses[/cyan]

    [cyan]rlctl explain algorithm.advantage[/cyan]

    [cyan]rlctl explain data.train[0].path[/cyan]
    """
    from rlctl.config.explain import explain as look_up

    found = look_up(key)
    if json:
        output.data(as_data(found))
    else:
        output.show(*lines(found))


def as_data(found: Explanation) -> dict[str, Any]:
    """An explanation as plain data."""
    from dataclasses import asdict

    return asdict(found) | {"support": support(found.pattern)}


def support(pattern: str) -> str:
    """What runs do with a key, with the reason where they refuse it; empty for a section."""
    from rlctl.support import status_of

    try:
        row = status_of(pattern)
    except KeyError:
        return ""
    return f"{row.status}: {row.reason}" if row.reason else str(row.status)


def lines(found: Explanation) -> Iterator[str]:
    """An explanation for a person."""
    yield f"[bold]{_escaped(found.pattern)}[/]"
    yield f"  {_escaped(_prose(found.help))}"
    yield ""
    facts = {
        "type": found.type,
        "default": found.default or "none: it must be set",
        "unit": found.unit,
        "range": found.range,
        "secret": "write it as ${oc.env:NAME}; it is never shown or stored" if found.secret else "",
        "runs": support(found.pattern),
        "set with": "" if found.below or found.options else f"--set {found.path}=...",
    }
    for name, fact in facts.items():
        if fact:
            yield f"  {name:<9} {_escaped(fact)}"
    yield from _options(found)
    yield from _below(found.below)
    if found.also:
        yield ""
        yield "  the same name in other options:"
        yield from (f"    {_escaped(pattern)}" for pattern in found.also)


def _options(found: Explanation) -> Iterator[str]:
    if not found.options:
        return
    yield ""
    yield "  options:"
    width = max(len(option.name) for option in found.options)
    for option in found.options:
        yield f"    {option.name:<{width}}  {_escaped(_prose(option.help))}"
        names = ", ".join(key.rsplit(">.", 1)[-1] for key in option.keys)
        if names:
            yield f"    {'':<{width}}  [dim]with {_escaped(names)}[/]"
        if (status := support(option.pattern)).startswith("refused"):
            yield f"    {'':<{width}}  [yellow]runs: {_escaped(status)}[/]"


def _below(patterns: tuple[str, ...]) -> Iterator[str]:
    from rlctl.config.explain import explain as look_up

    if not patterns:
        return
    yield ""
    yield "  keys:"
    width = max(len(pattern.rsplit(".", 1)[-1]) for pattern in patterns)
    for pattern in patterns:
        inner = look_up(pattern)
        name = pattern.rsplit(".", 1)[-1]
        yield f"    {name:<{width}}  {_escaped(_prose(inner.help))}"


def _prose(text: str) -> str:
    return text.replace("``", "'")


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
