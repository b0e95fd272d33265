"""Configs for larger machines on this one: the two ways that ``launch`` offers, and ``launch --cpu``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from rlctl.cli import arguments, diagnostics, progress
from rlctl.cli.doctor import memory_gib
from rlctl.common import quoting
from rlctl.common.errors import ExitCode, UsageError
from rlctl.common.messages.reasons import said, translated

if TYPE_CHECKING:
    from rlctl.common.report import Finding
    from rlctl.config import Config, Loaded
    from rlctl.planning.arithmetic import Cluster
    from rlctl.planning.scaling import Change


OPERATIONS_OF_A_CORE = 6e10
"""In a second, of float32 matrix products as PyTorch computes them on one core of a current laptop or server."""


def words_of(
    inputs: Sequence[str], *, dialect: str | None, assignments: Sequence[str], trace: bool, variables: Sequence[str]
) -> list[str]:
    """The arguments with which another command reads the same config."""
    options = [*(["--from", dialect] if dialect else []), *(["--trace"] if trace else [])]
    for flag, values in (("--set", assignments), ("--env", variables)):
        options += [word for value in values for word in (flag, value)]
    return [*inputs, *options]


def offer(words: Sequence[str]) -> None:
    """Say which commands run a config that this machine is too small for."""
    diagnostics.note("this machine is too small for the config as it is; two commands run it here:")
    ways = (
        ("try --tiny", "a small random model of the same family; same algorithm, data and rewards; minutes"),
        ("launch --cpu", "the config scaled down to the CPU cores; shows what changes and asks"),
    )
    for command, what in ways:
        diagnostics.note(said("  rlctl {command} {names}", command=command, names=quoting.command(words)))
        diagnostics.note(f"      {translated(what)}")


def ask_for_paths(found: Sequence[Finding]) -> None:
    """Say how to give each file or folder that is missing, without changing the config's file."""
    missing = [finding.key for finding in found if finding.code == "path-missing" and finding.key]
    if missing:
        diagnostics.note("to use another path without changing the file:")
    for key in dict.fromkeys(missing):
        diagnostics.note(said("  --set {text}=PATH", text=key.replace("[", ".").replace("]", "")))


def on_cpu(loaded: Loaded, cluster: Cluster, *, yes: bool) -> Loaded:
    """The config scaled down to the cores of this machine, once the user agrees to the changes.

    Raises:
        UsageError: the user cannot be asked, and did not say ``--yes``.
    """
    from rlctl.planning.arithmetic import workers_on
    from rlctl.planning.scaling import scaled_to_cpu

    cores = cluster.cpus_per_node or 1
    config, changes = scaled_to_cpu(loaded.config, workers=workers_on(cores))
    diagnostics.note(
        said(
            "scaled down to CPU, {devices_per_node} workers on {cores} cores:",
            devices_per_node=config.placement.devices_per_node,
            cores=cores,
        )
    )
    show_changes(changes, loaded)
    diagnostics.note("unchanged: the model, the data, the rewards, the algorithm and the batch")
    for line in outlook(config, cores, memory_gib()):
        diagnostics.note(line)
    if not yes:
        _ask()
    return replace(loaded, config=config)


def outlook(config: Config, cores: int, gib: float | None) -> list[str]:
    """What the scaled config needs of a machine, as far as the model's size is known: memory if it is short, and time."""
    from rlctl.config import stages_of
    from rlctl.planning import arithmetic
    from rlctl.planning.memory import cost_of, memory_of

    lines = []
    for stage in stages_of(config):
        estimates = memory_of(stage.config, device="cpu")
        needed = sum(each.gib * max(1, len(arithmetic.devices_of(stage.config, each.role))) for each in estimates)
        if gib is not None and needed > gib:
            lines.append(
                said(
                    "warning: stage {name} needs about {needed:.0f} GiB of memory, but this machine has {gib:g}; "
                    "rlctl try --tiny needs less than 4",
                    name=stage.name,
                    needed=needed,
                    gib=gib,
                )
            )
        cost = cost_of(stage.config)
        if cost is not None:
            seconds = cost.flops / (cores * OPERATIONS_OF_A_CORE)
            lines.append(
                said(
                    "stage {name}: a step takes about {duration} if all responses have full length",
                    name=stage.name,
                    duration=progress.duration(seconds),
                )
            )
    return lines or ["no estimate of memory and time: the model is not in a local folder, or its family is unknown"]


def show_changes(changes: Sequence[Change], loaded: Loaded) -> None:
    """Show each change as ``KEY: old -> new, why``, with the expressions of interpolated values."""
    for change in changes:
        old, new = (
            diagnostics.shown(loaded.text_as_written(value) if isinstance(value, str) else value)
            for value in (change.old, change.new)
        )
        diagnostics.note(said("  {key}: {old} -> {new}, {why}", key=change.key, old=old, new=new, why=change.why))


def _ask() -> None:
    if not diagnostics.can_ask():
        raise UsageError(
            "cannot ask whether to run it with these changes: there is no terminal", hint="pass --yes to agree"
        )
    if not typer.confirm(translated("Run it with these changes?"), err=True):
        arguments.finish(ExitCode.FAILED)
