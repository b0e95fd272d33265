"""The one way in: connect to Ray, run the stages of a plan, and leave nothing behind.

    launch ─▶ read all data ─▶ Ray ─▶ for each stage: place ─▶ build workers ─▶ (restore) ─▶ run_stage ─▶ close

Whatever ends the run, the workers are ended, Ray is left, and the run folder says how it ended and why.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from rlctl.common import packages
from rlctl.common.errors import MissingDependency, RlctlError, RunError
from rlctl.common.messages.reasons import said, sequence
from rlctl.common.whole_files import write_whole
from rlctl.config import Config, revealed
from rlctl.config.sections.output import RaySettings
from rlctl.planning.megatron.starting import from_weights
from rlctl.planning.plan import Plan, resolved_stages
from rlctl.planning.support import WORKER_PYTHON
from rlctl.runtime.checkpoints.checkpoint import newest_here, place_of
from rlctl.runtime.checkpoints.inputs import check_data, same_data
from rlctl.runtime.garbage import loaded_set_aside
from rlctl.runtime.loop import run_stage
from rlctl.runtime.processes.calls import StopRequested, WorkerFailed, WorkerLost
from rlctl.runtime.processes.environment import copies_of_logs, import_plugins
from rlctl.runtime.processes.ray_access import (
    address_to_join,
    job_config,
    join,
    listening,
    make_session_private,
    make_token_private,
    private_folder,
)
from rlctl.runtime.processes.ray_health import RayLost, ray_of_this_process, watched
from rlctl.runtime.processes.vitals import controller
from rlctl.runtime.profiling.ray_timeline import ray_timeline
from rlctl.runtime.remote.inputs import with_files_here
from rlctl.runtime.reporting.events import Events, Observer
from rlctl.runtime.stage_run import StageRun
from rlctl.runtime.stopping import StopSwitch

if TYPE_CHECKING:
    from rlctl.runtime.processes.placement import Placement
    from rlctl.runtime.stage_context import StageContext
    from rlctl.runtime.stage_inputs import StageInputs

Status = Literal["finished", "stopped", "failed"]
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    status: Status
    account: str = ""
    """What it failed of, with the worker it came from; empty otherwise."""
    hint: str = ""
    """What to do about that."""
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By stage: ``evaluated`` (first, last), ``seconds`` by phase, ``tokens``, ``steps``."""

    @property
    def cause(self) -> str:
        """What it failed of, and what to do."""
        return sequence(self.account, "\n  ", self.hint) if self.hint else self.account


def launch(plan: Plan, config: Config, folder: Path, *, observer: Observer, accept_changes: bool = False) -> Outcome:
    """Run a plan in its run folder, from its newest checkpoints where there are any.

    Args:
        plan: what is run.
        config: that it was made of.
        folder: of the run.
        observer: called with every event.
        accept_changes: continue though training data was changed since a checkpoint.

    Raises:
        RunError: the folder cannot be written.
    """
    folder = folder.resolve()
    events = Events(folder / "events.jsonl", observer)
    stop = StopSwitch(folder, config.run.time_limit, config.run.max_steps_this_session)
    outcome = Outcome("failed")

    def tell(message: str) -> None:
        events.emit("advisory", message=message, hint="")

    try:
        with stop.on_signals(tell), controller(folder):
            outcome = _attempt(plan, config, folder, events, stop, tell, accept_changes)
    finally:
        events.emit("run_ended", status=outcome.status, cause=outcome.cause, stages=outcome.stages)
        events.close()
    return outcome


def _attempt(
    plan: Plan, config: Config, folder: Path, events: Events, stop: StopSwitch, tell: Tell, accept_changes: bool
) -> Outcome:
    try:
        events.emit(
            "run_started",
            folder=str(folder),
            run=plan.run,
            stages=[stage.name for stage in plan.stages],
            not_used=list(dict.fromkeys(line for stage in plan.stages for line in stage.not_used)),
        )
        config = with_files_here(revealed(config), tell)
        with _variables(config.runtime.env_vars):
            import_plugins(config.runtime.plugins)
            materials = _read_stages(plan, config, folder, events, stop, accept_changes)
            with (
                copies_of_logs(folder / "logs", config.runtime.log_folder, plan.run),
                _ray(config, plan, folder / "logs" / "ray.log", stop, tell, partial(_tell_end, events, tell)),
                ray_timeline(config.profiling.ray_timeline, folder, tell),
            ):
                return _run_stages(plan, config, folder, materials, events, stop, accept_changes)
    except (StopRequested, KeyboardInterrupt):
        return Outcome("stopped")
    except WorkerFailed as error:
        return _failed_of(error, events)
    except RlctlError as error:
        events.emit("failure", message=error.account, actor="controller", traceback="", hint=error.hint)
        return Outcome("failed", error.account, error.hint)
    except Exception as error:  # noqa: BLE001 - the run folder must tell how every run ended
        message = f"{type(error).__name__}: {error}"
        events.emit("failure", message=message, actor="controller", traceback=traceback.format_exc())
        return Outcome("failed", message)


def _failed_of(error: WorkerFailed, events: Events) -> Outcome:
    events.emit("failure", message=error.message, actor=error.actor, traceback=error.trace, hint=error.hint)
    return Outcome("failed", error.account, error.hint)


def _tell_end(events: Events, tell: Tell, lost: RayLost) -> None:
    """Tell how the run ended while its program waits for a Ray that is gone: nothing comes after this."""
    outcome = _failed_of(lost, events)
    tell(outcome.cause)
    events.emit("run_ended", status=outcome.status, cause=outcome.cause, stages=outcome.stages)
    events.close()


def _read_stages(
    plan: Plan, config: Config, folder: Path, events: Events, stop: StopSwitch, accept_changes: bool
) -> dict[str, StageInputs]:
    """What every stage works on, by name: a bad file of the last one ends the run before anything is trained."""
    from rlctl.runtime.stage_inputs import read_materials

    materials: dict[str, StageInputs] = {}
    for stage, stage_plan in zip(resolved_stages(config, plan.device), plan.stages, strict=True):
        if finished_stage(place_of(stage, folder)) is None:
            events.enter_stage(stage.name)
            with events.timed("read"), stop.interrupted_by(1):
                materials[stage.name] = read_materials(stage, stage_plan, events)
            newest = newest_here(place_of(stage, folder))
            if newest is not None and stage.config.checkpoint.resume != "never":
                check_data(newest, materials[stage.name].inputs, stage.config, accept=accept_changes)
    return materials


def _run_stages(
    plan: Plan,
    config: Config,
    folder: Path,
    materials: Mapping[str, StageInputs],
    events: Events,
    stop: StopSwitch,
    accept_changes: bool,
) -> Outcome:
    from rlctl.runtime.processes.placement import reserve
    from rlctl.runtime.stage_context import StageContext

    restarts = Restarts(config.run.max_restarts)
    summaries: dict[str, dict[str, Any]] = {}
    start_from: Path | None = None
    stages = resolved_stages(config, plan.device)
    settings = config.runtime.ray
    with reserve(
        plan,
        timeout=settings.startup_timeout,
        logs=folder / "logs",
        stop_requested=stop.now,
        limit=settings.call_timeout,
        tell=lambda message: events.emit("advisory", message=message, hint=""),
        gives_back=settings.address is not None,
    ) as placement:
        for index, (stage, stage_plan) in enumerate(zip(stages, plan.stages, strict=True)):
            place = place_of(stage, folder)
            done = finished_stage(place)
            if done is None:
                if stop.now() or (index > 0 and stop.after_step()):
                    return Outcome("stopped", stages=summaries)
                events.enter_stage(stage.name)
                feeds_next = index + 1 < len(stages) and stages[index + 1].continues
                model, read = stage.config.model.path, materials[stage.name]
                started = stage
                if stage.continues and start_from:
                    model, started = str(start_from), replace(stage, config=from_weights(stage.config))
                given = StageContext(started, stage_plan, plan.device, read, folder, events, stop, accept_changes)
                done = _run_with_restarts(given, placement, model, restarts, feeds_next=feeds_next)
            if done is None:
                return Outcome("stopped", stages=summaries)
            summaries[stage.name] = done
            start_from = place / "hf" if (place / "hf").exists() else start_from
    return Outcome("finished", stages=summaries)


def _run_with_restarts(
    given: StageContext, placement: Placement, model_path: str, restarts: Restarts, *, feeds_next: bool
) -> dict[str, Any] | None:
    """Run a stage, anew from its last checkpoint where workers are lost; see ``_run_one``."""
    from rlctl.runtime.build import build_stage
    from rlctl.runtime.stage_inputs import read_materials

    while True:
        try:
            with build_stage(given, placement, model_path) as run, given.stop.interrupted_by(2):
                return _run_one(run, given.place, feeds_next)
        except WorkerLost as error:
            restarts.allow(error, given.events)
            placement.restart()
            again = read_materials(given.stage, given.plan, given.events)
            same_data(given.materials.inputs, again.inputs, given.stage.config)
            given = replace(given, materials=again, accept_changes=False)


@dataclass
class Restarts:
    """How often stages of a run began again because workers were lost."""

    at_most: int
    so_far: int = 0

    def allow(self, error: WorkerLost, events: Events) -> None:
        """Count one more, and tell of it; raises the error where the config does not allow it."""
        self.so_far += 1
        if self.so_far > self.at_most:
            raise error
        told = "{message}; the stage restarts from its last checkpoint (restart {count} of {most})"
        message = said(told, message=error.message, count=self.so_far, most=self.at_most)
        events.emit("advisory", message=message, hint=error.hint)


def _run_one(run: StageRun, place: Path, feeds_next: bool) -> dict[str, Any] | None:
    """Run a stage to its end and mark it so; None where it was asked to stop first."""
    try:
        with loaded_set_aside():
            run_stage(run)
    except StopRequested:
        run.raise_failure()
        raise
    if not run.finished:
        return None
    if feeds_next and run.config.checkpoint.export == "never" and run.policy is not None:
        run.export()
    return mark_finished(place, run.summary())


def finished_stage(place: Path) -> dict[str, Any] | None:
    """The summary of a stage that is over, None where it is not."""
    path = place / "finished.json"
    return json.loads(path.read_text()) if path.exists() else None


def mark_finished(place: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """Write, whole or not at all, that a stage is over.

    Raises:
        RunError: it cannot be written.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
        write_whole(place / "finished.json", json.dumps(summary, indent=1))
    except OSError as error:
        raise RunError(
            said(
                "the end of the stage could not be recorded in {place}: {strerror}",
                place=place,
                strerror=error.strerror,
            )
        ) from error
    return summary


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process, which a Ray started here and its workers inherit, for the run only."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class _WithoutRay:
    """Standard output without what Ray's own threads print to it, which goes to a log."""

    def __init__(self, shown: TextIO, log: TextIO) -> None:
        self._shown = shown
        self._log = log

    def __getattr__(self, name: str) -> Any:
        of_ray = threading.current_thread().name.startswith("ray_")
        return getattr(self._log if of_ray else self._shown, name)


OWN_RAY = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # Ray's own default lets everything else go first
    "RAY_agent_register_timeout_ms": "120000",  # its node ends where an agent takes longer; 30 s are too few under load
}
"""Settings of a Ray that the run starts, where the environment has none."""


@contextmanager
def _ray(
    config: Config, plan: Plan, log: Path, stop: StopSwitch, tell: Tell, gone: Callable[[RayLost], None]
) -> Iterator[None]:
    """Start a Ray of this run's own here, or join the cluster that the config names; leave it at the end.

    Args:
        config: section ``runtime.ray``.
        plan: how many cores the run needs.
        log: gets what Ray has to say.
        stop: ends its start.
        tell: is told that it is started once more.
        gone: tells how the run ends where its program does not come back from a Ray that is gone.

    Raises:
        MissingDependency: Ray is not installed.
        RunError: Ray does not start, or the cluster cannot be reached.
        RayLost: it is gone.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingDependency(
            "rlctl needs Ray to run, but Ray is not installed", hint=packages.install(packages.RUNTIME)
        ) from error
    settings = config.runtime.ray
    address = address_to_join(settings.address) if settings.address else None
    arguments = ray_arguments(settings, plan, address)
    if address is None:
        make_token_private()
        for name, value in OWN_RAY.items():
            os.environ.setdefault(name, value)
    os.environ.setdefault("RAY_task_events_shutdown_flush_timeout_ms", "1000")  # 5 s for a head that is gone
    logging.getLogger("ray").setLevel(logging.ERROR)
    with log.open("a", buffering=1) as file, redirect_stdout(_WithoutRay(sys.stdout, file)):  # type: ignore[type-var]
        try:
            try:
                _init(arguments, stop)
            except Exception as error:
                if settings.address or "timed out" not in str(error):
                    raise
                tell(said("Ray did not start within its own time limit; starting it again: {error}", error=error))
                _init(arguments, stop)
        except RunError:
            raise
        except Exception as error:  # Ray raises that class itself where its node does not come up in time
            raise RunError(
                said("Ray failed to start: {error}", error=error),
                hint="read Ray's output in logs/ray.log of the run folder",
            ) from error
        if address is None:
            make_session_private()
        try:
            with watched(ray_of_this_process(), stop, gone):
                yield
        finally:
            with redirect_stdout(file):
                ray.shutdown()


def ray_arguments(settings: RaySettings, plan: Plan, address: str | None) -> dict[str, Any]:
    """What Ray is initialized with, to join the cluster at ``address``, or to start one."""
    arguments: dict[str, Any] = {
        "namespace": settings.namespace or plan.run,
        "log_to_driver": False,
        "logging_level": "error",
        "configure_logging": False,
        **_init_args(settings),
        "address": address or "local",
    }
    if address is None:
        arguments.setdefault("_temp_dir", str(private_folder() / "ray"))
        arguments |= {"include_dashboard": False, "num_cpus": settings.num_cpus or _cpus_needed(plan)}
    return arguments


def _init_args(settings: RaySettings) -> dict[str, Any]:
    """The arguments of ``ray.init`` that are used: see ``support.WORKER_PYTHON``."""
    section, name = WORKER_PYTHON[-2:]
    arguments = dict(settings.init_args)
    if isinstance(arguments.get(section), Mapping):
        arguments[section] = {key: value for key, value in arguments[section].items() if key != name}
    return arguments


def _init(arguments: dict[str, Any], stop: StopSwitch) -> None:
    """Start Ray, or join one; nothing is left of one that was not to come up."""
    import ray

    before = _children()
    try:
        alone = arguments["address"] == "local"
        with stop.interrupted_by(1), _in_groups_of_their_own(), listening(loopback=alone):
            if alone:
                ray.init(**arguments, job_config=job_config())
            else:
                join(**arguments)
    except BaseException as error:
        new = _children() - before  # before Ray ends some of them, whose children would be nobody's
        ray.shutdown()
        _end_half_started(new)
        if isinstance(error, SystemExit):  # what Ray makes of SIGTERM meanwhile
            raise KeyboardInterrupt from None
        raise
    finally:
        stop.take_signals()


@contextmanager
def _in_groups_of_their_own() -> Iterator[None]:
    """What Ray starts meanwhile gets no signal that is sent to the group of this process, which puts it away itself.

    `timeout`, shells and schedulers send SIGTERM to a whole group. Calls to a Ray whose head has ended wait a minute for it, and
    then end this process without a word. There is no option for it; the release of Ray is fixed.
    """
    from ray._private import services

    popen = services.ConsolePopen
    services.ConsolePopen = partial(popen, process_group=0)
    try:
        yield
    finally:
        services.ConsolePopen = popen


def _children() -> set[Any]:
    """The processes that this one started, and those that they did."""
    import psutil

    return set(psutil.Process().children(recursive=True))


def _end_half_started(new: set[Any]) -> None:
    """End those of a Ray that did not come up among the processes begun since: it has forgotten them."""
    import psutil

    for process in new:
        with suppress(psutil.Error):
            command = " ".join(process.cmdline())
            if "/ray/" in command or command.startswith("ray::"):
                process.kill()


def _cpus_needed(plan: Plan) -> int:
    """Cores that a Ray started here may hand out: what the machine has, or what the plan's workers take in turns."""
    needed = max(1 + max(role.devices, default=0) for stage in plan.stages for role in stage.roles)
    each = max(role.cpus_per_process for stage in plan.stages for role in stage.roles)
    return max(os.cpu_count() or 1, needed * each)
