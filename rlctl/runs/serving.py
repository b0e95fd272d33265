"""Serving a policy over the OpenAI API: the weights of a run, one of its checkpoints, a model, or a config's first ones."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlctl.common import own_python, packages
from rlctl.common.errors import ExitCode, RunError
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import lines_of, said
from rlctl.config import Config, config_from, revealed, stages_of
from rlctl.planning.support import generating
from rlctl.runs.folder import read_config
from rlctl.runs.inspection import RunInfo, find
from rlctl.runs.machine import local_cluster

if TYPE_CHECKING:
    from rlctl.runtime.buffers.interface import SharedBuffer
    from rlctl.runtime.serving.serve import Weights

FOLLOW_SECONDS = 5.0
"""How often a run's folder is looked at for newer weights."""
_STEP = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True, slots=True)
class Served:
    """A model to serve."""

    name: str
    """Under which clients see the model."""
    config: Config
    """Of one stage."""
    run: RunInfo | None = None
    """The run whose weights they are; None for a model."""
    step: int | None = None
    """Of the checkpoint; None is the newest, and newer ones as they come."""
    directory: str = ""
    """Where relative paths of the config start."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address and token of the API."""

    host: str
    port: int
    token: str


def served_by(what: str, folder: Path, *, step: int | None = None) -> Served | None:
    """A run by name or folder, a checkpoint ``.../step-NNNNNN`` in a run folder, or a model folder; None if it is none of these.

    Raises:
        RunError: it is one, and cannot be read.
    """
    path = Path(what)
    if match := _STEP.fullmatch(path.resolve().name):
        for parent in path.resolve().parents:
            if (parent / "run.json").is_file():
                return _of_run(find(str(parent), folder), int(match[1]))
    if (path / "config.json").is_file() and not (path / "run.json").is_file():
        return Served(path.resolve().name, config_from({"model": {"path": str(path.resolve())}}))
    if (folder / what / "run.json").is_file() or (path / "run.json").is_file():
        return _of_run(find(what, folder), step)
    return None


def _of_run(run: RunInfo, step: int | None) -> Served:
    config = stages_of(revealed(read_config(run.folder)))[-1].config
    return Served(run.name, config, replace(run, folder=run.folder.resolve()), step, run.directory)


def serve(
    served: Served,
    *,
    host: str,
    port: int,
    token: str | None,
    follow: bool,
    tool_format: str,
    collect: bool = False,
    ready: Callable[[Address], None],
    loaded: Callable[[int], None],
    warn: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        served: what.
        host: the address to listen on.
        port: 0 takes a free one.
        token: that clients must send; None makes one.
        follow: load newer weights of a run as it writes checkpoints.
        tool_format: how the model writes tool calls.
        collect: take feedback, and write what has it into the config's buffer, from which another run trains; that run's
            newest weights are served.
        ready: called when requests are answered.
        loaded: called with the step of newer weights.
        warn: called with what is not as the user may expect.

    Raises:
        RunError: the weights cannot be loaded, or the address cannot be used.
        MissingDependency: the runtime is not installed.
    """
    packages.require({packages.RUNTIME: "serving"})
    from rlctl.runtime.serving.connections import bound

    sockets = bound(host, port)  # before anything that takes long
    from rlctl.runtime.serving.serve import Service
    from rlctl.runtime.serving.serve import serve as run_server
    from rlctl.runtime.specs.served import rollout_spec

    device = local_cluster().device
    config = served.config
    if config.placement.device != "auto":
        device = config.placement.device
    engine = generating(config, device)
    if engine == "external":
        raise RunError(
            "rollout.engine is external, which already is an endpoint", hint="send requests to rollout.engine.base_url"
        )
    with tempfile.TemporaryDirectory(prefix="rlctl-serve-") as made:
        buffer = _buffer_of(config, Path(made)) if collect else None
        source = _Source(served.run, served.step, Path(made), warn) if served.run is not None else None
        first = source.first() if source is not None else None
        if first is None:
            _check_model(config)
        service = Service(
            engine=rollout_spec(config, engine, str(first.folder) if first is not None else config.model.path, device),
            name=served.name,
            token=token or secrets.token_urlsafe(24),
            host=host,
            port=port,
            version=first.version if first is not None else 0,
            tool_format=tool_format,
            buffer=buffer,
        )
        follows = source is not None and follow and served.step is None
        asyncio.run(
            run_server(
                service,
                ready=lambda found: ready(Address(host, found, service.token)),
                newest=_newest_in(buffer) if buffer else source.newer if source is not None and follows else None,
                every=FOLLOW_SECONDS,
                loaded=loaded,
                sockets=sockets,
            )
        )


def _check_model(config: Config) -> None:
    """Refuse a folder that cannot be loaded before anything is.

    Raises:
        RunError: says what is wrong with it.
    """
    from rlctl.checks.model_files import fault_of

    folder = Path(expanded(config.model.path))
    if fault := fault_of(folder) if folder.is_dir() else "":
        raise RunError(
            said("{path} cannot be loaded: {reason}", path=config.model.path, reason=fault),
            hint="download the model again, or serve a complete folder",
        )


def _buffer_of(config: Config, place: Path) -> SharedBuffer:
    """The buffer of a config. ``place``, a folder, tells this writer from others.

    Raises:
        RunError: it is in memory, or can't be used.
    """
    from rlctl.config.sections.execution import MemoryBuffer
    from rlctl.runtime.buffers.make import shared_buffer

    section = config.buffer
    if isinstance(section, MemoryBuffer) or (getattr(section, "url", None) or getattr(section, "path", None)) is None:
        raise RunError(
            "--collect writes into a buffer that a training run reads, but the config's buffer has no address",
            hint="set buffer to type sql with a url, or to type file with a path",
        )
    return shared_buffer(section, place, seed=config.run.seed)


def _newest_in(buffer: SharedBuffer) -> Callable[[int], Weights | None]:
    """A function that returns the newest weights that the training run announced, if they are newer than a version."""
    from rlctl.runtime.serving.serve import Weights

    def newest(version: int) -> Weights | None:
        found = buffer.announced()
        return Weights(found[1], found[0]) if found is not None and found[0] > version else None

    return newest


class _Source:
    """Weights of a run's checkpoints, exported to a folder one after the other."""

    def __init__(self, run: RunInfo, step: int | None, folder: Path, warn: Callable[[str], None]) -> None:
        self._run, self._step, self._folder, self._warn = run, step, folder, warn
        self._seen: tuple[int, int] = (-1, -1)
        """Stage and step of the newest checkpoint, whole or not, when weights were exported last."""
        self._exported: tuple[int, int] | None = None
        """Of those weights."""
        self._made: list[Path] = []

    def first(self) -> Weights | None:
        """The weights to start with; None if the run has no checkpoint yet.

        Raises:
            RunError: there is no checkpoint of that step, or all are damaged.
        """
        return self._export("--step", str(self._step)) if self._step is not None else self.newer(0)

    def newer(self, version: int) -> Weights | None:
        """The newest weights, if they are newer than those exported last.

        Raises:
            RunError: they cannot be exported.
        """
        from rlctl.runtime.checkpoints.checkpoint import newest_step, place_of

        stages = stages_of(revealed(read_config(self._run.folder)))
        steps = [newest_step(place_of(stage, self._run.folder)) for stage in stages]
        number = max((place for place, step in enumerate(steps) if step >= 0), default=-1)
        if number < 0 or (number, steps[number]) <= self._seen:
            return None
        weights = self._export("--stage", stages[number].name)
        self._seen, before = (number, steps[number]), self._exported
        self._exported = (number, weights.version)
        return weights if before is None or before < self._exported else None

    def _export(self, *which: str) -> Weights:
        """In a process of its own, since exporting sets up torch's process group."""
        from rlctl.runtime.serving.serve import Weights

        to = self._folder / f"weights-{len(self._made)}"
        where = [str(self._run.folder.resolve()), "--to", str(to), *which, "--json"]
        done = subprocess.run(own_python.module("rlctl", "export", *where), capture_output=True, text=True, check=False)
        if done.returncode not in (ExitCode.OK, ExitCode.FINDINGS):
            raise RunError(
                lines_of(
                    [done.stderr.strip()],
                    said("the weights of {name} cannot be exported:", name=self._run.name),
                )
            )
        exported = json.loads(done.stdout)
        for skipped in exported["skipped"]:
            self._warn(
                said(
                    "{folder} is damaged; serving the checkpoint of step {step}", folder=skipped, step=exported["step"]
                )
            )
        self._made.append(to)
        for old in self._made[:-2]:  # the last but one may still be read
            shutil.rmtree(old, ignore_errors=True)
        return Weights(to, exported["step"])


def of_config(config: Config) -> Served:
    """The weights that a config starts from, with its last stage's settings."""
    last = stages_of(revealed(config))[-1].config
    return Served(config.run.name, replace(last, run=config.run))
