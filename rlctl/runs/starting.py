"""Starting, resuming and trying a run in this process: the only module here that imports the runtime."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from rlctl.common import quoting
from rlctl.common.errors import RunError
from rlctl.common.filenames import is_there
from rlctl.common.messages.reasons import lines_of, said
from rlctl.common.regular_files import from_json
from rlctl.config import Config, Loaded, combine, put, put_at, revealed, stages_of, to_plain
from rlctl.config.inspect import secrets
from rlctl.config.sections.execution import Buffer, FileBuffer, MemoryBuffer
from rlctl.config.sections.output import Profiling
from rlctl.documents import read_text
from rlctl.planning import arithmetic
from rlctl.planning.plan import Cluster, Plan, make_plan, plan_from
from rlctl.runs.folder import folder_of, make_folder, read_config, write_folder
from rlctl.runs.inspection import RunInfo, before_resume, inspect
from rlctl.runs.machine import local_cluster
from rlctl.runs.record import ALIVE_EVERY_SECONDS, ALIVE_FILE, Record, began, write_record
from rlctl.runs.requirements import require_packages
from rlctl.runs.rollback import go_back
from rlctl.runtime.stopping import forget_requests

Observer = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run in this process ended."""

    status: Literal["finished", "stopped", "failed"]
    folder: Path
    cause: str
    stages: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TryResult:
    """The result of ``rlctl try``."""

    samples: list[dict[str, Any]]
    """Prompts as the model was shown them, with responses and rewards; or sequences with what is trained on in them."""
    metrics: dict[str, dict[str, float]]
    """Of the last step of each stage."""
    steps: dict[str, int]
    """Taken in each stage."""
    seconds: float


def with_ray_that_is_there(loaded: Loaded) -> Loaded:
    """The config with a Ray of the run's own if ``auto`` is only a framework's default and there is no cluster to join."""
    address = ("runtime", "ray", "address")
    if loaded.config.runtime.ray.address != "auto" or address not in loaded.silent:
        return loaded
    from rlctl.runtime.processes.ray_access import has_cluster

    return loaded if has_cluster() else put(loaded, address, None)


def prepare(loaded: Loaded, cluster: Cluster | None = None, *, tracks: bool = True) -> Plan:
    """Plan a run for this machine, for a given cluster, or for the one that its config joins.

    Args:
        loaded: the config.
        cluster: the machines; None for this one, or for those of the Ray cluster that the config joins.
        tracks: whether metrics go to the config's trackers, whose packages are needed then.

    Raises:
        PlanError: something does not divide or fit.
        MissingDependency: the run needs packages that are not installed.
        RunError: the cluster that it joins cannot be asked what its devices are.
    """
    address = loaded.config.runtime.ray.address
    if cluster is None and address is None:
        cluster = local_cluster()
    elif cluster is None and address is not None:
        cluster = _joined(loaded.config, address)
    plan = make_plan(loaded.config, cluster=cluster)
    require_packages(loaded.config, plan.device, tracks=tracks)
    return plan


def _joined(config: Config, address: str) -> Cluster | None:
    """The machines of a run that joins the cluster at an address: as many as the config asks for, with that cluster's
    device. None if the config names the device."""
    if "://" in address:
        raise RunError(
            said("{address} is not an address that a run can join from here", address=address),
            hint="use rlctl launch, which submits it there as a job",
        )
    if config.placement.device != "auto":
        return None
    from rlctl.runtime.processes.ray_access import device_of

    placement = config.placement
    return Cluster(placement.nodes, placement.devices_per_node, device_of(address))


def start(
    loaded: Loaded, *, plan: Plan, observer: Observer, new: bool = False, accept_changes: bool = False
) -> RunResult:
    """Run in this process, in the foreground. An unfinished run of the same name and meaning is resumed.

    Args:
        loaded: the config and where it came from.
        plan: what ``prepare`` made of it.
        observer: called with every event.
        new: start beside a run of the same name, under the next free name.
        accept_changes: continue an unfinished run though its training data was changed.

    Raises:
        RunError: a run of that name is running, is over, or means something else.
    """
    if new:
        loaded = _renamed(loaded)
        plan = replace(plan, run=loaded.config.run.name)
    folder = folder_of(loaded.config)
    make_folder(folder)
    with run_lock(folder):
        _refuse_other(folder, loaded.config)
        write_folder(folder, loaded, plan)
        return _run(folder, loaded.config, plan, observer, accept_changes)


def resume(
    run: RunInfo,
    *,
    observer: Observer,
    address: str | None = None,
    step: int | None = None,
    accept_changes: bool = False,
) -> RunResult:
    """Go on with a run from a checkpoint, with the config and plan in its folder.

    Args:
        run: what ``inspect`` said of it.
        observer: called with every event.
        address: the Ray cluster to join; None is the one of its config.
        step: of the checkpoint; later ones are set aside. None is the newest.
        accept_changes: continue though training data was changed since the checkpoint.

    Raises:
        RunError: it is running, or over, or has no such checkpoint.
        MissingDependency: the run needs packages that are not installed.
    """
    if run.status == "running":
        raise RunError(
            said("run {name} is running (process {pid} on {host})", name=run.name, pid=run.pid, host=run.host),
            hint=said("rlctl runs follow {name}", name=quoting.word(run.name)),
        )
    if run.status == "finished":
        raise RunError(
            said("run {name} is finished; there is nothing to resume", name=run.name),
            hint="launch with --new to run it again",
        )
    with where_it_began(run) as folder, run_lock(folder):
        config = read_config(folder)
        if address is not None:
            ray = replace(config.runtime.ray, address=address)
            config = replace(config, runtime=replace(config.runtime, ray=ray))
        plan = plan_from(from_json(read_text(folder / "plan.json")))
        require_packages(config, plan.device)
        if step is not None:
            go_back(config, folder, step)
        return _run(folder, config, plan, observer, accept_changes)


@contextmanager
def where_it_began(run: RunInfo) -> Iterator[Path]:
    """Gives a run's folder, with this process in the directory that the run was started in, where that is there.

    Relative paths of its config are from there, wherever somebody goes on with it.
    """
    folder = run.folder.resolve()
    if not run.directory or not Path(run.directory).is_dir() or Path.cwd() == Path(run.directory):
        yield run.folder
        return
    with chdir(run.directory):
        yield folder


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold a run folder, so that two processes never run in it; the system lets go of it whatever ends this process.

    Raises:
        RunError: another process holds it.
    """
    file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(file)
        raise RunError(
            said("run {name} is running: another process has locked {folder}", name=folder.name, folder=folder),
            hint="pass --new to start another run",
        ) from error
    except OSError:
        pass  # a file system without locks: run.json still tells of a process that runs
    try:
        yield
    finally:
        os.close(file)


def try_out(loaded: Loaded, plan: Plan, *, prompts: int | None = None, steps: int = 1) -> TryResult:
    """Take a few steps of every stage on a few prompts, and keep nothing.

    Args:
        loaded: the config.
        plan: of ``prepare``; its devices are used.
        prompts: prompts (sft: sequences) of a step; None takes what the config says.
        steps: of each stage.

    Raises:
        RunError: the step failed, and the message names the first cause; or it would take from a buffer of other runs.
    """
    from rlctl.runtime.launch import launch

    seen: list[dict[str, Any]] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rlctl-try-") as folder:
        small = _small(loaded.config, prompts, steps, Path(folder))
        (Path(folder) / "logs").mkdir()
        cluster = Cluster(plan.nodes, plan.devices_per_node, plan.device)
        outcome = launch(make_plan(small, cluster=cluster), small, Path(folder), observer=seen.append)
    if outcome.status != "finished":
        raise RunError(outcome.account or "stopped before the step was finished", hint=outcome.hint)
    samples = [{"stage": e["stage"], **sample} for e in seen if e["kind"] == "samples" for sample in e["samples"]]
    metrics = {event["stage"]: event["metrics"] for event in seen if event["kind"] == "step"}
    shown = prompts or SAMPLES_SHOWN
    taken = {name: sum(event["kind"] == "step" and event["stage"] == name for event in seen) for name in metrics}
    return TryResult(samples[: shown * len(metrics)], metrics, taken, time.monotonic() - began)


SAMPLES_SHOWN = 4
"""Of each stage, if the config says how many prompts a step has."""


def _small(config: Config, prompts: int | None, steps: int, folder: Path) -> Config:
    """The config with a few steps of a few prompts in every stage, and nothing that is written outside of a folder."""
    parts = [(stage.name, _small_stage(stage.config, prompts, steps, folder)) for stage in stages_of(config)]
    return combine(parts)


def _small_stage(config: Config, prompts: int | None, steps: int, folder: Path) -> Config:
    if arithmetic.drains_buffer(config) and config.buffer.choice == "sql":
        raise RunError(
            "rlctl try on a train_only run would consume responses from its buffer, which the run needs",
            hint="use --set run.mode=full, or a copy of the buffer",
        )
    run, rollout = config.run, config.rollout
    skip = replace(run.skip, rollout="off") if run.skip.rollout == "dump" else run.skip
    responses = str(folder / "responses.parquet") if arithmetic.writes_responses(config) else None
    schedule = replace(
        config.schedule, total_steps=steps, total_epochs=None, total_optimizer_steps=None, evaluate_every=None
    )
    fewer = replace(config.batch, prompts_per_step=prompts or 1, mini_batch_responses=None)
    return replace(
        config,
        batch=config.batch if prompts is None else fewer,
        schedule=schedule,
        checkpoint=replace(config.checkpoint, every=None, at_end=False, resume="never", export="never", remote=None),
        tracking=(),
        run=replace(run, skip=skip),
        rollout=replace(rollout, log_responses=True, responses_folder=responses, evaluation_folder=None),
        buffer=_own_buffer(config, folder),
        profiling=Profiling(peak_tflops=config.profiling.peak_tflops),
        runtime=replace(config.runtime, log_folder=None),
    )


def _own_buffer(config: Config, folder: Path) -> Buffer:
    """A buffer that no other run sees, with what the config says of it; one that is only read from stays."""
    buffer = config.buffer
    if arithmetic.drains_buffer(config):
        return buffer
    common = {each.name: getattr(buffer, each.name) for each in fields(Buffer)}
    if config.run.mode == "rollout_only" and not arithmetic.writes_responses(config):
        return FileBuffer(**common, path=str(folder / "buffer.jsonl"))
    return MemoryBuffer(**common)


def _run(folder: Path, config: Config, plan: Plan, observer: Observer, accept_changes: bool) -> RunResult:
    from rlctl.runtime.launch import launch

    commands = _end_commands(config)
    forget_requests(folder)
    first_started, earlier_seconds = before_resume(folder)
    record = Record(
        config.run.name,
        "running",
        os.getpid(),
        socket.gethostname(),
        time.time(),
        process_began=began(os.getpid()),
        directory=str(Path.cwd()),
        first_started=first_started,
        earlier_seconds=earlier_seconds,
    )
    write_record(folder, record)
    status, cause = "failed", "the process exited before the run ended"
    try:
        with seen_alive(folder):
            outcome = launch(plan, config, folder, observer=observer, accept_changes=accept_changes)
        status, cause = outcome.status, outcome.cause
    finally:
        with suppress(OSError):  # on a full disk the run counts as interrupted, and the first cause is what is told
            write_record(folder, replace(record, status=status, ended=time.time(), cause=cause))
        _notify(commands.get(status), folder, status, cause)
    return RunResult(outcome.status, folder, outcome.cause, outcome.stages)


@contextmanager
def seen_alive(folder: Path) -> Iterator[None]:
    """Touch the file ``alive`` every now and then."""
    over = threading.Event()

    def touch() -> None:
        while True:
            with suppress(OSError):
                (folder / ALIVE_FILE).touch()
            if over.wait(ALIVE_EVERY_SECONDS):
                return

    thread = threading.Thread(target=touch, name="alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _end_commands(config: Config) -> dict[str, str | None]:
    """The user's command for each way that a run ends."""
    run = revealed(config).run
    return {"finished": run.on_end, "failed": run.on_failure}


def _notify(command: str | None, folder: Path, status: str, cause: str) -> None:
    """Call the user's command for the end of a run; its failure is the command's own, its output goes to stderr."""
    if command:
        told = {"RLCTL_RUN": str(folder), "RLCTL_STATUS": status, "RLCTL_ERROR": cause}
        subprocess.run(command, shell=True, env={**os.environ, **told}, stdout=sys.stderr, check=False)


def _renamed(loaded: Loaded) -> Loaded:
    run = loaded.config.run
    taken = {path.name for path in folder_of(loaded.config).parent.glob("*")}
    if run.name not in taken:
        return loaded
    number = 2
    while f"{run.name}-{number}" in taken:
        number += 1
    return put(loaded, ("run", "name"), f"{run.name}-{number}", by="--new")


def _refuse_other(folder: Path, config: Config) -> None:
    if not is_there(folder / "run.json"):
        return
    info = inspect(folder)
    new = "pass --new to start another run, or --name to give it another name"
    if info.status == "running":
        raise RunError(
            said("run {name} is running (process {pid} on {host})", name=info.name, pid=info.pid, host=info.host),
            hint=new,
        )
    if info.status == "finished":
        raise RunError(said("run {name} is finished: {folder}", name=info.name, folder=folder), hint=new)
    changed = differences(read_config(folder), config)
    if changed:
        goes_on = said("rlctl runs resume {folder} resumes it with its own config", folder=quoting.word(folder))
        there = "from a checkpoint of it with checkpoint.resume=path and checkpoint.resume_path"
        raise RunError(
            lines_of(
                ("  " + each for each in changed[:10]),
                said("run {name} exists with a different config:", name=info.name),
            ),
            hint=said("{goes_on}; {new}, {there}", goes_on=goes_on, new=new, there=there),
        )


_MEANINGLESS = (
    *("run.on_end", "run.on_failure", "run.max_steps_this_session", "run.time_limit"),
    *("runtime.log", "runtime.ray.address", "profiling."),
)
"""How keys begin that may differ between a run and its resumption."""


def differences(before: Config, after: Config) -> list[str]:
    """The keys whose values differ, as ``key: before -> after``, without those that change no numbers, and secrets."""
    old, new = _flat(_without_secrets(before)), _flat(_without_secrets(after))
    keys = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key) and not key.startswith(_MEANINGLESS)]
    return [f"{key}: {old.get(key)!r} -> {new.get(key)!r}" for key in keys]


def _without_secrets(config: Config) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(config)
    for path, _ in secrets(config, references=True):
        put_at(plain, path, None)
    return plain


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {
            key: item
            for name, run_lock in value.items()
            for key, item in _flat(run_lock, f"{prefix}.{name}" if prefix else name).items()
        }
    return {prefix: value}
