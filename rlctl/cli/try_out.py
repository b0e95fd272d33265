"""``rlctl try``: a few real prompts, answered and scored, and one small step."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlctl.cli import arguments, diagnostics, output, progress, scaled
from rlctl.common import quoting
from rlctl.common.messages import text
from rlctl.common.messages.reasons import said, spoken, translated, with_values

if TYPE_CHECKING:
    from rlctl.common.report import Report
    from rlctl.config import Loaded
    from rlctl.runs import TryResult


OF_TOKENS = ("details", "components")
"""Parts of a sample that list every token, or repeat its reward."""
OF_AGENTS = ("prompt", "answer")
"""Parts of a sample that an agent's trajectories show, or that they may not have."""
LABELS = {
    "prompt_id": "sample-prompt-id",
    "source": "sample-source",
    "prompt": "sample-prompt",
    "answer": "sample-answer",
    "weight_version": "sample-weight-version",
}
"""What parts of a sample are called, by message."""
SHOWN_TRAJECTORIES = 2
NEXT_AFTER_TINY = "the model is random, so rewards near 0 are normal; next, on a GPU machine: rlctl launch {words}"
OF_LATER = ("never-saved", "tracker")
"""Findings about what a trial does not do: save and track."""
OF_SCALING = ("mini-batch-uneven", "replicas-uneven", "idle-replicas", "model-files")
"""Findings about numbers that ``--tiny`` itself chooses, and models that it makes."""


def try_out(
    inputs: arguments.Inputs,
    *,
    prompts: Annotated[int, typer.Option(min=1, max=64, help="Number of prompts.")] = 4,
    tiny: Annotated[
        bool,
        typer.Option(
            "--tiny", help="Use a small random model of the same family on two CPU workers: no GPU, no download."
        ),
    ] = False,
    steps: Annotated[int, typer.Option(min=1, max=100, help="Steps per stage with --tiny.")] = 2,
    dialect: arguments.Dialect = None,
    assignments: arguments.Assignments = [],  # noqa: B006 - typer reads it, nothing changes it
    trace: arguments.Trace = False,
    variables: arguments.Variables = [],  # noqa: B006
    allow_unknown: arguments.AllowUnknown = [],  # noqa: B006
    json: arguments.Json = False,
) -> None:
    """Dry-run a config on a few prompts: render, generate, score, and take one training step.

    Shows what a static check can't: the prompts after the chat template, the responses, their rewards, and whether one
    training step works. Keeps nothing.

    [bold]--tiny[/bold] is for a config whose model and GPUs are not on this machine: it creates a small random model of the same
    family and runs a few short steps of the config's algorithm on its data and rewards.

    [bold]Examples[/bold]

    [cyan]rlctl try run.yaml[/cyan]

    [cyan]rlctl try grpo.yaml --prompts 8 --json[/cyan]

    [cyan]rlctl try eight-gpus.yaml --tiny[/cyan]
    """
    from rlctl import runs
    from rlctl.cli.launch import checked
    from rlctl.translation.advice import in_own_keys

    loaded, report = arguments.must_read(
        inputs, dialect=dialect, assignments=assignments, trace=trace, variables=variables
    )
    words = scaled.words_of(inputs, dialect=dialect, assignments=assignments, trace=trace, variables=variables)
    if tiny:
        with tempfile.TemporaryDirectory(prefix="rlctl-tiny-") as folder:
            result = _tiny(loaded, report, Path(folder), prompts, steps, allow_unknown)
    else:
        loaded = runs.with_ray_that_is_there(loaded)
        cluster = runs.local_cluster() if loaded.config.runtime.ray.address is None else None
        checked(loaded, report, cluster=cluster, codes_left_out=OF_LATER, allow_unknown=allow_unknown, words=words)
        with in_own_keys(loaded, report.dialect):
            made = runs.prepare(loaded, cluster, tracks=False)
        with progress.Progress(quiet=True):
            result = runs.try_out(loaded, made, prompts=prompts)
    if json:
        output.data(asdict(result))
        return
    for index, sample in enumerate(result.samples, 1):
        output.text(sample_text(index, sample))
    for stage, metrics in result.metrics.items():
        diagnostics.note(f"{stage}: {'  '.join(progress.headline(metrics))}")
    diagnostics.note(said("it took {duration}; nothing was kept", duration=progress.duration(result.seconds)))
    diagnostics.note(said(NEXT_AFTER_TINY if tiny else "next: rlctl launch {words}", words=quoting.command(words)))


def _tiny(
    loaded: Loaded, report: Report, folder: Path, prompts: int, steps: int, allow_unknown: Sequence[str]
) -> TryResult:
    """A few steps of the config with small random models, made in a folder."""
    from rlctl import runs
    from rlctl.cli.launch import checked
    from rlctl.common import packages
    from rlctl.planning.arithmetic import Cluster
    from rlctl.runs.tiny import WORKERS, make_models, tiny

    packages.require({packages.RUNTIME: "running"})
    small, changes, wanted = tiny(loaded, folder, prompts=prompts, steps=steps)
    cluster = Cluster(1, WORKERS, "cpu", cpus_per_node=WORKERS)
    checked(small, report, cluster=cluster, codes_left_out=(*OF_LATER, *OF_SCALING), allow_unknown=allow_unknown)
    diagnostics.note("a small random model replaces the full-size one:")
    scaled.show_changes(changes, loaded)
    made = runs.prepare(small, cluster, tracks=False)
    for line in make_models(loaded.config, wanted):
        diagnostics.note(with_values(line, loaded.text_as_written))
    with progress.Progress(quiet=True):
        return runs.try_out(small, made, steps=steps)


def sample_text(index: int, sample: Mapping[str, Any]) -> str:
    """One sample as ``name: value`` blocks, each response with its reward; what is of single tokens is left to ``--json``."""
    lines = [f"--- {index} ---"]
    responses, rewards = sample.get("responses"), sample.get("rewards")
    details = [*sample.get("details", ()), *[{}] * len(responses or ())]
    acted = any(detail.get("segments") for detail in details)
    for name, value in sample.items():
        if name in OF_TOKENS or (name == "rewards" and responses) or (acted and name in OF_AGENTS):
            continue
        if name == "responses" and rewards and len(value) == len(rewards):
            shown = SHOWN_TRAJECTORIES if acted else len(value)
            for number, (response, reward, detail) in enumerate(zip(value[:shown], rewards, details, strict=False), 1):
                lines += _response_lines(number, response, reward, detail)
            if shown < len(value):
                lines.append(spoken("{count} more: --json shows them", count=len(value) - shown))
            continue
        name = text(LABELS[name]) if name in LABELS else translated(name)
        lines.append(f"{name}: {value}" if "\n" not in str(value) else f"{name}:\n{value}")
    return "\n".join(lines)


def _response_lines(number: int, response: str, reward: float, detail: Mapping[str, Any]) -> Iterator[str]:
    """A response in a line; a trajectory of an agent turn by turn, with ``>`` before what it is trained on."""
    if not detail.get("segments"):
        failed = f" ({detail['failure']})" if detail.get("failure") else ""
        yield (
            spoken("response {number}, reward {reward:g}: {text!r}", number=number, reward=reward, text=response)
            + failed
        )
        return
    yield spoken(
        "response {number}, reward {reward:g}, ended by {stop}; > generated, trained on; | inserted, not trained on",
        number=number,
        reward=reward,
        stop=detail["stop"],
    )
    rewards = iter(detail["turn_rewards"])
    for generated, part in detail["segments"]:
        mark = ">" if generated else "|"
        yield from (f"  {mark} {line}" for line in part.split("\n"))
        if generated and (own := next(rewards)):
            yield "    " + spoken("reward {reward:g}", reward=own)
