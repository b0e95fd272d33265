"""``rlctl convert``: the converted config on stdout, and on stderr what needs a decision and what changed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rlctl.cli import arguments, completion, diagnostics, folders, output
from rlctl.common import quoting
from rlctl.common.errors import ExitCode, UsageError
from rlctl.common.filenames import SCRIPT_ENDINGS
from rlctl.common.messages import text as message
from rlctl.common.messages.reasons import said
from rlctl.common.report import Report


class OnLoss(StrEnum):
    """What happens if a key cannot be converted, or training changes."""

    WARN = "warn"
    ERROR = "error"
    IGNORE = "ignore"


class Form(StrEnum):
    """What a config is written as."""

    YAML = "yaml"
    SH = "sh"
    OVERRIDES = "overrides"


def convert(
    inputs: arguments.Inputs,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="Output format: [b]verl[/b], [b]trinity[/b], [b]roll[/b] or [b]rlctl[/b]; with a release as [b]verl@0.8[/b].",
            autocompletion=completion.dialects,
        ),
    ],
    dialect: arguments.Dialect = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write to this file; for folders, into this folder."),
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format", help="For verl: YAML, a launch script or a list of overrides; `-o run.sh` implies a script."
        ),
    ] = None,
    force: arguments.Force = False,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    trace: arguments.Trace = False,
    variables: arguments.Variables = [],  # noqa: B006
    assume: arguments.Assumptions = [],  # noqa: B006
    on_loss: Annotated[
        OnLoss,
        typer.Option(
            help="If keys are lost or training changes: warn (exit 3), error (write nothing, exit 1) or ignore (exit 0)."
        ),
    ] = OnLoss.WARN,
    sidecar: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Save keys that the target lacks to this file instead of comments."),
    ] = None,
    no_carry: Annotated[bool, typer.Option("--no-carry", help="Discard keys that the target lacks.")] = False,
    annotate: Annotated[
        bool, typer.Option("--annotate", help="Add a comment to each key saying where its value comes from.")
    ] = False,
    html: arguments.Html = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show every key, including those simply converted.")
    ] = False,
    json: arguments.Json = False,
) -> None:
    """Convert a config to another framework's format.

    Writes the converted config to stdout, or to the file of [bold]-o[/bold], and a report to stderr: what needs your decision,
    how training changes, what was computed, and how many keys were simply converted. Defaults that differ between the
    frameworks are written out. Exits 3 if a key could not be converted or training changes.

    Given a folder, converts every config in it into the [bold]-o[/bold] folder and lists the files that it skips.

    [bold]Examples[/bold]

    [cyan]rlctl convert run_qwen.yaml --to trinity -o trinity.yaml[/cyan]

    [cyan]rlctl convert ppo.yaml data.train_batch_size=512 --to trinity@0.5 --on-loss error[/cyan]

    [cyan]rlctl convert run.yaml --to verl -o run.sh[/cyan]

    [cyan]rlctl convert configs/ --to trinity -o converted/[/cyan]

    [cyan]rlctl convert --from verl algorithm.adv_estimator=grpo trainer.n_gpus_per_node=8 --to rlctl[/cyan]
    """
    from rlctl.translation.translate import check_facts, translate_loaded

    if sidecar is not None and no_carry:
        raise UsageError("--sidecar and --no-carry exclude each other")
    out = None if out == output.STANDARD_OUTPUT else out
    options = arguments.pairs(assume, "--assume")
    check_facts(options)
    if no_carry or sidecar is not None:
        options["carried"] = "none" if no_carry else "sidecar"
    options["annotate"] = "yes" if annotate else ""
    if folders.are_folders(inputs):
        if out is None or sidecar is not None or html is not None or trace or variables:
            raise UsageError(
                said("{folder} is a folder, so the output must be a folder, too", folder=inputs[0]),
                hint="name it with -o; --sidecar, --html, --trace and --env work only for a single file",
            )
        options["format"] = form.value if form is not None else ""
        job = folders.Job(to, out, options, dialect, assignments, force, strict=on_loss is OnLoss.ERROR)
        arguments.finish(folders.run(inputs, job, verbose=verbose, json=json, ignore=on_loss is OnLoss.IGNORE))
    options["format"] = form_of(form, out)
    loaded, report = arguments.read_inputs(
        inputs, dialect=dialect, assignments=assignments, options=options, trace=trace, variables=variables
    )
    result = translate_loaded(loaded, report, to, options=options)
    refused = on_loss is OnLoss.ERROR and result.report.loses
    text = None if refused else result.text
    if text is not None and out is not None:
        output.file(out, text, force=force, executable=options["format"] == Form.SH)
    if text is not None and sidecar is not None and result.sidecar is not None:
        output.file(sidecar, result.sidecar, force=force)
    if html is not None:
        from rlctl.cli import pages

        title = quoting.command(["rlctl", "convert", *inputs, "--to", to])
        pages.write(html, title, pages.conversion(result.report, text), force=force)
    if json:
        output.data({**result.as_data(), "text": text})
    elif text is not None and out is None:
        output.text(text)
        if output.is_changed(text):
            diagnostics.note("the terminal shows other characters than the text has; -o FILE writes the text")
    diagnostics.accounting(result.report, verbose=verbose)
    for line in () if json else closing(result.report.target, text, out, refused=refused and result.text is not None):
        diagnostics.note(line)
    arguments.finish(exit_code(text, result.report, on_loss))


def closing(target: str, content: str | None, out: Path | None, *, refused: bool) -> list[str]:
    """What was written, and the command to type next."""
    if refused:
        return [message("convert-refused"), message("convert-next_refused")]
    if content is None:
        return []
    name = target.partition("@")[0]
    file = out if out is not None else Path(f"{name}.yaml")
    command = quoting.command(["rlctl", "check", file])
    if out is None:
        return [message("convert-next_stdout", file=file, command=command)]
    return [message("convert-wrote", file=file), message("convert-next", command=command)]


def form_of(form: Form | None, out: Path | None) -> str:
    """The format asked for, by name or by the name of the file; empty leaves it to the dialect."""
    if form is not None:
        return form.value
    return Form.SH.value if out is not None and out.suffix in SCRIPT_ENDINGS else ""


def exit_code(text: str | None, report: Report, on_loss: OnLoss) -> ExitCode:
    """What a translation ends with."""
    if text is None:
        return ExitCode.FAILED
    return ExitCode.FINDINGS if report.loses and on_loss is OnLoss.WARN else ExitCode.OK
