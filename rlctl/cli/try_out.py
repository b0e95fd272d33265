"""``rlctl try``: a few real prompts, answered and scored, and one small step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated

import typer

from rlctl.cli import arguments, diagnostics, output, progress


def try_out(
    inputs: arguments.Inputs,
    *,
    prompts: Annotated[int, typer.Option(min=1, max=64, help="How many prompts are answered.")] = 4,
    dialect: arguments.Dialect = None,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    trace: arguments.Trace = False,
    variables: arguments.Variables = [],  # noqa: B006
    allow_unknown: arguments.AllowUnknown = [],  # noqa: B006
    json: arguments.Json = False,
) -> None:
    """Try a config: a few real prompts rendered and answered, real rewards, one small step.

    It shows what no check can: what the model is really shown once the chat template is applied, what it answers, what
    the reward makes of that, and whether one step of training goes through. Nothing is kept.

    [bold]Examples[/bold]

    [cyan]rlctl try run.yaml[/cyan]

    [cyan]rlctl try grpo.yaml --prompts 8 --json[/cyan]
    """
    from rlctl import runs
    from rlctl.advice import in_own_keys
    from rlctl.cli.launch import checked

    loaded, report = arguments.must_read(
        inputs, dialect=dialect, assignments=assignments, trace=trace, variables=variables
    )
    loaded = runs.with_ray_that_is_there(loaded)
    cluster = runs.local_cluster() if loaded.config.environment.ray.address is None else None
    checked(loaded, report, cluster=cluster, allow_unknown=allow_unknown)
    with in_own_keys(loaded, report.dialect):
        made = runs.prepare(loaded, cluster)
    with progress.Progress(quiet=True):
        result = runs.try_out(loaded, made, prompts=prompts)
    if json:
        output.data(asdict(result))
        return
    for index, sample in enumerate(result.samples, 1):
        output.text(sample_text(index, sample))
    for stage, metrics in result.metrics.items():
        diagnostics.note(f"{stage}: {'  '.join(progress.headline(metrics))}")
    diagnostics.note(f"one step took {progress.duration(result.seconds)}; nothing was kept")


def sample_text(index: int, sample: Mapping[str, object]) -> str:
    """One sample as ``name: value`` blocks."""
    lines = [f"--- {index} ---"]
    for name, value in sample.items():
        lines.append(f"{name}: {value}" if "\n" not in str(value) else f"{name}:\n{value}")
    return "\n".join(lines)
