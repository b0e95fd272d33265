"""``rlctl set``: canonical keys changed in a file of any dialect, which keeps everything else as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlctl.cli import arguments, completion, diagnostics, output
from rlctl.common.errors import ExitCode
from rlctl.common.messages.reasons import said


def set_keys(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A config or launch script of any supported framework.")],
    changes: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE",
            help="Keys of rlctl's own config, as after [b]--set[/b].",
            autocompletion=completion.assignments,
            show_default=False,
        ),
    ],
    *,
    dialect: arguments.Dialect = None,
    variables: arguments.Variables = [],  # noqa: B006 - typer reads it, nothing changes it
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changed lines and write nothing.")] = False,
) -> None:
    """Set rlctl's keys in a file of any supported framework.

    Takes keys of rlctl's own config and edits the file in its own format. Only the affected lines change; comments and order are
    kept. rlctl reads the result again to verify it before it writes. Exits 3 if the format can't express the change.

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
        changed = said("{file}: 1 line changed", file=file)
        if count != 1:
            changed = said("{file}: {count} lines changed", file=file, count=count)
        diagnostics.note(changed if lines else said("{file} has these values already", file=file))
    for key, wanted, meant in lost:
        diagnostics.note(
            said(
                "{dialect} cannot express {key} = {shown}; the file means {meant}",
                dialect=session.dialect,
                key=key,
                shown=diagnostics.shown(wanted),
                meant=diagnostics.shown(meant),
            )
        )
    for one in draft.disconnected:
        diagnostics.note(
            said(
                "{file}:{line}: {key} was {word}: that variable no longer sets it",
                file=file,
                line=one.line,
                key=one.key,
                word=one.word,
            )
        )
    arguments.finish(ExitCode.FINDINGS if lost else ExitCode.OK)


def _difference(before: str, after: str, name: str) -> str:
    from difflib import unified_diff

    pair = (before.splitlines(keepends=True), after.splitlines(keepends=True))
    return "".join(unified_diff(*pair, fromfile=name, tofile=name, n=2))
