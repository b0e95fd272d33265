"""``rlctl port``: a whole run as a folder that another framework runs."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlctl.cli import arguments, completion, data_rows, diagnostics, output
from rlctl.common.errors import ExitCode, UsageError
from rlctl.common.messages.reasons import said, translated

if TYPE_CHECKING:
    from rlctl.porting.assemble import Result


class Rows(StrEnum):
    """How a ported folder gets its rows."""

    COPY = "copy"
    MAP = "map"


def port(
    inputs: arguments.Inputs,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FRAMEWORK",
            help="Target framework: [b]verl[/b], [b]trinity[/b], [b]roll[/b] or [b]rlctl[/b].",
            autocompletion=completion.dialects,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder to write.")],
    dialect: arguments.Dialect = None,
    plugin_dir: Annotated[
        Path | None,
        typer.Option(
            "--plugin-dir",
            metavar="FOLDER",
            help="Plug-ins of a Trinity-RFT run, or a ROLL run's workers.",
        ),
    ] = None,
    data: Annotated[
        Rows,
        typer.Option(
            help="[b]copy[/b] writes rows in the target's columns, [b]map[/b] links the run's files if it can name theirs."
        ),
    ] = Rows.COPY,
    force: arguments.Force = False,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    variables: arguments.Variables = [],  # noqa: B006
    assume: arguments.Assumptions = [],  # noqa: B006
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Run the proof, which executes the run's reward code. Needs the target framework."
        ),
    ] = False,
    python: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Python of the environment that has the target framework, for --verify."),
    ] = None,
    responses: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Responses of a real run for --verify: JSON Lines with row and response."),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Tokenizer of the model for --verify, if it is not in the cache."),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Write a whole run as a folder that another framework runs.

    The folder has the config, the rows in the target's columns, the run's reward function unchanged with an adapter that the
    target calls, a launch script, and a README with what changes in training. [bold]prove.py[/bold] in it compares the rewards of
    both frameworks. Without [bold]--verify[/bold], none of the run's code is executed. Exits 3 if something is left to do.

    [bold]Examples[/bold]

    [cyan]rlctl port run.sh --to trinity -o ported/[/cyan]

    [cyan]rlctl port run.sh --to roll -o ported/ --verify --python ~/roll/bin/python[/cyan]

    [cyan]rlctl port trinity.yaml --to verl -o ported/ --plugin-dir plugins[/cyan]
    """
    from rlctl.porting.assemble import port as write_port
    from rlctl.translation.translate import check_facts

    if responses is not None and not verify:
        raise UsageError("--responses is for --verify", hint="add --verify, or give the file to prove.py")
    if tokenizer is not None and not verify:
        raise UsageError("--tokenizer is for --verify", hint="add --verify, or give the folder to prove.py")
    options = arguments.pairs(assume, "--assume")
    check_facts(options)
    loaded, report = arguments.read_inputs(
        inputs, dialect=dialect, assignments=assignments, options=options, variables=variables
    )
    if loaded is None:
        diagnostics.findings(report.findings)
        arguments.finish(ExitCode.FAILED)
    with data_rows.progress() as seen:
        result = write_port(
            loaded, report, to, out, file=inputs[0], here=Path.cwd(), plugins=plugin_dir, options=options,
            force=force, map_data=data is Rows.MAP, seen=seen,
        )  # fmt: skip
    proven = _proven(result, python, responses, tokenizer) if verify else None
    if json:
        output.data({**result.as_data(), "proof": proven})
    else:
        _show(result)
    if proven is not None and not json:
        _show_proof(proven)
    if proven is not None and (isinstance(proven, str) or proven["different"]):
        arguments.finish(ExitCode.FAILED)
    arguments.finish(ExitCode.OK if result.whole else ExitCode.FINDINGS)


def _show(result: Result) -> None:
    from rlctl.porting.rewards import Stub

    diagnostics.accounting(result.translation.report)
    for line in _rows(result):
        diagnostics.note(line)
    if isinstance(result.reward, Stub):
        at = f" ({result.reward.at})" if result.reward.at else ""
        diagnostics.note(said("the reward is not ported: {reason}", reason=result.reward.reason + at))
    diagnostics.note(said("wrote {folder}; its README.md says what changes and what to check", folder=result.folder))


def _rows(result: Result) -> Iterator[str]:
    if not result.mapped:
        yield from data_rows.lines_of(result.moved, result.folder / "data", "parquet")
        return
    for each in result.moved.files:
        target = result.folder / "data" / f"{each.split}.parquet"
        yield said("{file}: {rows} rows, linked as {target}", file=each.file, rows=each.rows, target=target)


def _proven(
    result: Result, python: str | None, responses: Path | None, tokenizer: str | None
) -> dict[str, Any] | str | None:
    from rlctl.porting.proof import add_to_readme, prove
    from rlctl.porting.rewards import Stub

    if isinstance(result.reward, Stub):
        return None
    proven = prove(result.folder, python, responses, tokenizer)
    if not isinstance(proven, str):
        add_to_readme(result.folder, proven)
    return proven


def _show_proof(proven: dict[str, Any] | str) -> None:
    from rlctl.porting.proof import results

    if isinstance(proven, str):
        diagnostics.note(translated(said("the proof could not run: {reason}", reason=proven)))
        return
    for what, count, different in results(proven):
        diagnostics.note(
            said("proof: {what}: {count} compared, {different} different", what=what, count=count, different=different)
        )
    for problem in proven["problems"][:5]:
        diagnostics.note(f"  {problem}")
