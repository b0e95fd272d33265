"""``rlctl convert``: a config in another dialect on stdout, and on stderr where every key went."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rlctl.cli import arguments, completion, diagnostics, folders, output
from rlctl.common.errors import ExitCode, UsageError
from rlctl.common.filenames import SCRIPT_ENDINGS
from rlctl.common.report import Report


class OnLoss(StrEnum):
    """What happens where something cannot be said in the target, or is not known to the source."""

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
            metavar="DIALECT",
            help="What to write: [b]verl[/b], [b]trinity[/b], [b]roll[/b], [b]rlctl[/b], or one with [b]@version[/b].",
            autocompletion=completion.dialects,
        ),
    ],
    dialect: arguments.Dialect = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to a file or, of folders, into a folder.")
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option("--format", help="For verl: YAML, a launch script, or overrides; `-o run.sh` means a script."),
    ] = None,
    force: arguments.Force = False,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    trace: arguments.Trace = False,
    variables: arguments.Variables = [],  # noqa: B006
    assume: Annotated[
        list[str],
        typer.Option(
            "--assume", metavar="KEY=VALUE", help="A fact that the source does not hold; the table names the keys."
        ),
    ] = [],  # noqa: B006
    on_loss: Annotated[
        OnLoss,
        typer.Option(
            help="If keys are lost or training changes: warn (exit 3), error (write nothing, exit 1) or ignore (exit 0)."
        ),
    ] = OnLoss.WARN,
    sidecar: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep what the target has no key for in this file, not in comments."),
    ] = None,
    no_carry: Annotated[bool, typer.Option("--no-carry", help="Leave out what the target has no key for.")] = False,
    annotate: Annotated[
        bool, typer.Option("--annotate", help="Write the account into the text, as a comment beside each key.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every key, also those simply mapped.")] = False,
    json: arguments.Json = False,
) -> None:
    """Translate a config into another dialect, and account for every key.

    The text goes to stdout, the account to stderr: how many keys were mapped, derived, carried along, or cannot be
    expressed, and a line with file, line and reason for each that was not simply mapped. What the source leaves unsaid is
    written out where the target's own default differs. Exit code 3 means that keys were lost, or that the objective, the schedule
    or the batch change.

    Of a folder every config in it is converted into the folder of [bold]-o[/bold], with the same names; files that are no
    configs are skipped, and it is said why.

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
    options = arguments.pairs(assume, "--assume")
    check_facts(options)
    if no_carry or sidecar is not None:
        options["carried"] = "none" if no_carry else "sidecar"
    options["annotate"] = "yes" if annotate else ""
    if folders.are_folders(inputs):
        if out is None or sidecar is not None or trace or variables:
            raise UsageError(
                f"{inputs[0]} is a folder, which is converted into a folder",
                hint="name it with -o; --sidecar, --trace and --env take one file",
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
    if json:
        output.data({**result.as_data(), "text": text})
    elif text is not None and out is None:
        output.text(text)
    diagnostics.accounting(result.report, verbose=verbose)
    if refused and result.text is not None:
        diagnostics.note("nothing was written: keys would be lost or training would change (--on-loss error)")
    arguments.finish(exit_code(text, result.report, on_loss))


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
