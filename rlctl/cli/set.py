"""``rlctl set``: canonical keys changed in a file of any dialect, which keeps everything else as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlctl.cli import arguments, completion, diagnostics, output
from rlctl.common.errors import ExitCode


def set_keys(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A config of any dialect, or a launch script.")],
    changes: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE...",
            help="Canonical keys, as after [b]--set[/b].",
            autocompletion=completion.assignments,
            show_default=False,
        ),
    ],
    *,
    dialect: arguments.Dialect = None,
    variables: arguments.Variables = [],  # noqa: B006 - typer reads it, nothing changes it
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change in the file, and write nothing.")
    ] = False,
) -> None:
    """Change canonical keys in a file of any dialect.

    The keys are canonical, and written in the file's own words: only the lines that say something else change. Comments and order
    stay, of a launch script everything but its overrides. The text is read again before it is written, and must say what was
    asked for; what its dialect cannot say is told, with exit code 3.

    [bold]Examples[/bold]

    [cyan]rlctl set verl.yaml train.optimizer.lr=2e-6[/cyan]

    [cyan]rlctl set run.sh batch.responses_per_prompt=16 --dry-run[/cyan]
    """
    from rlctl.documents import read_text
    from rlctl.editing.session import Session

    given = arguments.pairs(variables, "--env")
    session = Session.open(file, dialect=dialect, assignments=changes, given=given)
    before = read_text(file)
    draft = session.draft()
    lost = [(item.key, item.first.value, item.second.value) for item in draft.lost]
    if dry_run:
        output.text(_difference(before, draft.text, str(file)))
    else:
        session.save(draft)
        lines = _difference(before, read_text(file), str(file))
        count = sum(line[:1] == "+" and line[:3] != "+++" for line in lines.splitlines())
        diagnostics.note(f"{file}: {count} line{'s' * (count != 1)} changed" if lines else f"{file} says so already")
    for key, wanted, said in lost:
        diagnostics.note(
            f"{session.dialect} cannot say {key} = {diagnostics.shown(wanted)}: it says {diagnostics.shown(said)}"
        )
    for one in draft.disconnected:
        diagnostics.note(f"{file}:{one.line}: {one.key} was {one.word}: that variable no longer sets it")
    arguments.finish(ExitCode.FINDINGS if lost else ExitCode.OK)


def _difference(before: str, after: str, name: str) -> str:
    from difflib import unified_diff

    pair = (before.splitlines(keepends=True), after.splitlines(keepends=True))
    return "".join(unified_diff(*pair, fromfile=name, tofile=name, n=2))
