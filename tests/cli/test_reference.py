"""The reference of the command line holds every command and option, with examples."""

from __future__ import annotations

from typing import Any

from typer.main import get_command

from rlctl.cli import app
from rlctl.cli.reference import commands


def named(group: Any, name: str) -> dict[str, Any]:
    found = {}
    for word, command in group.commands.items():
        inner = hasattr(command, "commands")
        found |= named(command, f"{name} {word}") if inner else {f"{name} {word}": command}
    return found


def test_every_command_and_option_is_on_it() -> None:
    sections = dict(part.split("\n", 1) for part in commands().split("\n## `")[1:])
    known = named(get_command(app), "rlctl")
    assert {title.rstrip("`") for title in sections} == set(known)
    for name, command in known.items():
        for option in command.params:
            shown = option.metavar or option.name.upper() if option.param_type_name == "argument" else option.opts[0]
            text = sections[f"{name}`"]
            assert f"`{shown}" in text or f"<code>{shown.replace('|', '&#124;')}" in text, (name, shown)


def test_every_command_shows_an_example() -> None:
    sections = dict(part.split("\n", 1) for part in commands().split("\n## `")[1:])
    for title, text in sections.items():
        assert f"\n{title.rstrip('`')}" in text.partition("```bash")[2], title


def test_no_markup_is_left() -> None:
    assert not any(tag in commands() for tag in ("[bold]", "[b]", "[cyan]", "[/"))


def test_a_bar_in_a_name_does_not_end_its_cell() -> None:
    rows = [line for line in commands().splitlines() if line.startswith("| <code>")]
    assert any("[FILE&#124;RUN]" in row for row in rows)
    assert all(len(row.split("|")) == 5 for row in rows)
