"""The reference of the command line, made from the commands themselves: what the site adds to ``docs/reference/cli.md``.

    python -m rlctl.cli.reference

A command's docstring is its help; here the same text, its arguments and options become Markdown.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import typer
from typer.main import get_command

from rlctl.cli import app

EXAMPLES = "[bold]Examples[/bold]"
_HEAD = "| command | what it does |\n| --- | --- |\n"
_TABLE = "| {kind} | default | what it is |\n| --- | --- | --- |\n"


def commands() -> str:
    """Every command with its arguments, options and examples, in Markdown."""
    found = list(_walk(get_command(app), "rlctl"))
    index = "".join(f"| [`{name}`](#{_anchor(name)}) | {_paragraphs(command)[0]} |\n" for name, command in found)
    return _HEAD + index + "".join(f"\n{_section(name, command)}" for name, command in found)


def _walk(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _walk(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


def _section(name: str, command: Any) -> str:
    text, examples = _split(_paragraphs(command))
    parts = [f"## `{name}`", *text, f"    {_usage(name, command)}"]
    arguments = [_row(_code(_metavar(item)), item) for item in command.params if _is_argument(item)]
    types = get_type_hints(inspect.unwrap(command.callback))
    options = [_row(_spelling(item, types[item.name]), item) for item in command.params if not _is_argument(item)]
    parts += [_TABLE.format(kind=kind) + "\n".join(rows) for kind, rows in _titled(arguments, options)]
    if examples:
        parts.append("```bash\n" + "\n".join(examples) + "\n```")
    return "\n\n".join(parts) + "\n"


def _titled(arguments: list[str], options: list[str]) -> Iterator[tuple[str, list[str]]]:
    return ((kind, rows) for kind, rows in (("argument", arguments), ("option", options)) if rows)


def _paragraphs(command: Any) -> list[str]:
    return [paragraph for paragraph in (command.help or "").split("\n\n") if paragraph]


def _split(paragraphs: list[str]) -> tuple[list[str], list[str]]:
    """The prose of a help text, and the command lines of its examples."""
    if EXAMPLES not in paragraphs:
        return [_prose(paragraph) for paragraph in paragraphs], []
    cut = paragraphs.index(EXAMPLES)
    return [_prose(paragraph) for paragraph in paragraphs[:cut]], [_plain(line) for line in paragraphs[cut + 1 :]]


def _usage(name: str, command: Any) -> str:
    arguments = [_metavar(item) for item in command.params if _is_argument(item)]
    return " ".join([name, "[OPTIONS]", *arguments])


def _is_argument(parameter: Any) -> bool:
    return isinstance(parameter, typer.core.TyperArgument)


def _metavar(parameter: Any) -> str:
    shown = parameter.metavar or parameter.name.upper()
    return f"{shown}..." if parameter.nargs == -1 else shown


def _spelling(option: Any, annotation: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or _type_name(annotation)}"
    return ", ".join(_code(f"{name}{value}") for name in [*option.opts, *option.secondary_opts])


def _type_name(annotation: Any) -> str:
    """What a value is called where the option does not say: the choices of an enum, else the name of its type."""
    kind = next((part for part in get_args(annotation) if part is not type(None)), annotation)
    members = getattr(kind, "__members__", None)
    return "|".join(str(member.value) for member in members.values()) if members else str(kind.__name__).upper()


def _row(name: str, parameter: Any) -> str:
    return f"| {name} | {_default(parameter)} | {_cell(_prose(parameter.help or ''))} |"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "must be given"
    empty = parameter.default is None or parameter.default is False or parameter.default in ([], ())
    return "" if empty else f"`{getattr(parameter.default, 'value', parameter.default)}`"


def _prose(text: str) -> str:
    """Help text as Markdown: what is bold there is code here."""
    return _plain(re.sub(r"\[(bold|b)\](.*?)\[/\1\]", r"`\2`", text)).replace("``", "`")


def _plain(text: str) -> str:
    return re.sub(r"\[/?(?:bold|b|cyan|dim)\]", "", text)


def _code(text: str) -> str:
    """Text as code in a cell of a table, where a bar would end the cell, and a backslash before it is shown."""
    return f"<code>{text.replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


if __name__ == "__main__":
    sys.stdout.write(commands())
