"""``rlctl eval``: answer or read responses, score them, train nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlctl.cli import arguments, diagnostics, output, progress
from rlctl.cli.launch import EXIT_CODES, checked
from rlctl.common.errors import UsageError
from rlctl.common.messages.reasons import translated

if TYPE_CHECKING:
    from rlctl.config import Config


def evaluate(
    inputs: arguments.Inputs,
    *,
    dialect: arguments.Dialect = None,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    trace: arguments.Trace = False,
    variables: arguments.Variables = [],  # noqa: B006
    model: Annotated[
        str | None, typer.Option(metavar="PATH", help="Evaluate these weights instead of the config's initial weights.")
    ] = None,
    allow_unknown: arguments.AllowUnknown = [],  # noqa: B006
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the metrics.")] = False,
    json: arguments.Json = False,
) -> None:
    """Evaluate a model: generate responses to the config's evaluation prompts and score them, without training.

    If an evaluation dataset names a column of responses ([bold]response_key[/bold]), as verl's evaluation file does, those are
    scored and no model is loaded. Each evaluation writes its own folder, [bold]runs/NAME-eval[/bold]. If the config has stages,
    the last one is evaluated.

    [bold]Examples[/bold]

    [cyan]rlctl eval evaluation.yaml data.path=responses.parquet[/cyan]

    [cyan]rlctl eval run.yaml --model runs/demo/checkpoints/main/hf --json[/cyan]
    """
    from rlctl import runs

    loaded, report = arguments.must_read(
        inputs, dialect=dialect, assignments=assignments, trace=trace, variables=variables
    )
    loaded = replace(loaded, config=only_evaluating(loaded.config, model))
    loaded = runs.with_ray_that_is_there(loaded)
    cluster = runs.local_cluster() if loaded.config.runtime.ray.address is None else None
    checked(loaded, report, cluster=cluster, allow_unknown=allow_unknown)
    made = runs.prepare(loaded, cluster)
    with progress.Progress(quiet=quiet) as watch:
        result = runs.start(loaded, plan=made, observer=watch, new=True)
    metrics = {name: value for stage in result.stages.values() for name, value in found(stage).items()}
    if json:
        output.data({"status": result.status, "folder": str(result.folder), "cause": result.cause, "metrics": metrics})
    elif metrics:
        output.text(table(metrics))
    if result.cause:
        diagnostics.note(translated(result.cause))
    arguments.finish(EXIT_CODES[result.status])


def only_evaluating(config: Config, model: str | None) -> Config:
    """The config of a run that evaluates what the last stage of another does.

    Raises:
        UsageError: it has no held-out source.
    """
    from rlctl.config import stages_of
    from rlctl.planning import arithmetic

    last = stages_of(config)[-1].config
    if not last.data.eval:
        raise UsageError("the config has no evaluation dataset", hint="add one to data.eval")
    answered = tuple(each for each in last.data.eval if not arithmetic.measures_loss(last, each))
    if not answered:
        raise UsageError(
            "all evaluation datasets of the config measure the loss of sft, and only during training",
            hint="to score responses instead, remove messages_key and response_key from one of them",
        )
    last = replace(last, data=replace(last.data, eval=answered))
    run = replace(last.run, mode="evaluate_only", name=f"{config.run.name}-eval")
    weights = replace(last.model, path=model, tokenizer=last.model.tokenizer) if model is not None else last.model
    return replace(last, run=run, model=weights)


def found(stage: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a stage's evaluation."""
    return dict(stage.get("evaluated", {}).get("last", {}))


def table(metrics: Mapping[str, float]) -> str:
    """Metrics by source, one a line."""
    width = max(len(name) for name in metrics) - len("evaluation/")
    return "\n".join(f"{name.removeprefix('evaluation/'):<{width}}  {value:.4f}" for name, value in metrics.items())
