"""What a config means on machines, as a picture's data: who is on each device, and the batch from prompts to optimizer
steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rlctl.adapters import memory_terms
from rlctl.checks import ABOUT_THIS_MACHINE
from rlctl.common.errors import RlctlError, shown
from rlctl.common.filenames import is_there
from rlctl.common.report import Finding, Level
from rlctl.common.report_lines import framework
from rlctl.config import Config, stages_of, to_plain
from rlctl.documents import KeyPath, write_atomic
from rlctl.editing.session import Change, Session
from rlctl.planning import arithmetic
from rlctl.planning.arithmetic import Cluster
from rlctl.planning.batch_table import Row, rows_by_stage
from rlctl.planning.machines import is_size, named_cluster
from rlctl.planning.plan import LETTERS, Plan, StagePlan, make_plan
from rlctl.runs import differences, folder_of, inspect, local_cluster, read_config
from rlctl.runs.launching import place


@dataclass(frozen=True, slots=True)
class Device:
    """A device: the roles on it, and the memory that they are estimated to need.

    Memory of roles that take turns is not added up.
    """

    number: int
    letters: str
    gib: float | None
    """In the phase that needs most; without machines to plan for, at least this much: what the largest role needs."""
    phase: str = ""
    """That phase; empty without machines to plan for."""
    is_over: bool = False
    """Whether a phase does not fit."""


@dataclass(frozen=True, slots=True)
class Node:
    """Nodes that look the same, from the first to the last of them."""

    first: int
    last: int
    devices: tuple[Device, ...]


def nodes(plan: Plan, stage: StagePlan) -> list[Node]:
    """Every node with its devices; neighbours that hold the same are one."""
    found: list[Node] = []
    for number in range(plan.nodes):
        first = number * plan.devices_per_node
        devices = tuple(_device(stage, first + index) for index in range(plan.devices_per_node))
        same = found and [replace(device, number=0) for device in found[-1].devices] == [
            replace(device, number=0) for device in devices
        ]
        if same and number > 1:
            found[-1] = Node(found[-1].first, number, found[-1].devices)
        else:
            found.append(Node(number, number, devices))
    return found


def _device(stage: StagePlan, number: int) -> Device:
    here = [role for role in stage.roles if number in role.devices]
    letters = "".join(LETTERS[role.role] for role in here)
    if (fit := stage.fit) is not None:
        phases = [phase for phase in fit.phases if number in phase.devices]
        if not phases:
            return Device(number, letters, None)
        worst = max(phases, key=lambda phase: phase.gib)
        return Device(number, letters, worst.gib, worst.phase, not all(map(fit.holds, phases)))
    needs = {estimate.role: estimate.least for estimate in stage.memory}
    return Device(number, letters, max((needs[role.role] for role in here if role.role in needs), default=None))


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a stage; it ends at the one that it reaches first."""

    steps: int | None
    """Whatever data there is."""
    epochs: int | None


@dataclass(frozen=True, slots=True)
class Planned:
    """A config as it would run."""

    plan: Plan | None
    refusal: str
    """Why there is no plan, with the arithmetic."""
    rows: tuple[tuple[str, tuple[Row, ...]], ...]
    """The batch arithmetic of each stage."""
    limits: tuple[Limits, ...] = ()
    """Where each stage ends."""
    cluster: Cluster | None = None
    """The machines that it is planned for, where that is known."""
    framework: str = ""
    """Whose memory is estimated, with its release."""


def changes_that_fit(found: Planned, config: Config) -> list[Change]:
    """Changes that make the first stage fit that does not; empty if all fit, or if no such changes were found.

    Of a config with stages, they are made in that stage.
    """
    for number, stage in enumerate(found.plan.stages if found.plan is not None else ()):
        if stage.fit is not None and stage.fit.changes:
            place: KeyPath = ("stages", number) if config.stages else ()
            return [Change((*place, *change.key), to_plain(change.after)) for change in stage.fit.changes]
    return []


LOCAL = "local"
"""What names this machine."""


def machines_of(text: str, config: Config) -> Cluster | None:
    """The machines that a config is planned for: none for an empty text, those of ``local`` or ``2x8:H100``; of a GPU's name
    alone, or of its memory, as many as the config says.

    Raises:
        UsageError: it names no machines.
        RunError: the driver does not say which GPUs this machine has.
    """
    if not text:
        return None
    if text == LOCAL:
        return local_cluster()
    place = config.placement
    return named_cluster(text if is_size(text) else f"{place.nodes}x{place.devices_per_node}:{text}")


def planned(session: Session, cluster: Cluster | None = None) -> Planned:
    """The plan and the arithmetic of a config as it is now."""
    loaded = session.loaded
    plan, refusal = None, ""
    rows: tuple[tuple[str, tuple[Row, ...]], ...] = ()
    terms = memory_terms(session.report)
    try:
        rows = tuple((name, tuple(found)) for name, found in rows_by_stage(loaded, session.report))
        plan = make_plan(loaded.config, cluster=cluster, rows=session.rows, terms=terms)
    except RlctlError as error:
        refusal = error.shown
    ends = tuple(
        Limits(arithmetic.drained_steps(stage.config), stage.config.schedule.total_epochs)
        for stage in stages_of(loaded.config)
    )
    runner = f"{framework(terms.framework)} {terms.release}".rstrip()
    return Planned(plan, refusal, rows, ends, cluster, runner)


# Before a launch


@dataclass(frozen=True, slots=True)
class Before:
    """The run that already has a name, if there is one."""

    status: str = ""
    """Of the run of that name; empty where there is none."""
    folder: Path | None = None
    changed: tuple[str, ...] = ()
    """What it was run with that is otherwise now."""

    @property
    def is_resumed(self) -> bool:
        """Whether a launch goes on with it."""
        return self.status not in ("", "running", "finished") and not self.changed

    @property
    def is_in_the_way(self) -> bool:
        """Whether a launch has to start beside it, under another name."""
        return bool(self.status) and not self.is_resumed


def before(config: Config) -> Before:
    """The run of the same name, if there is one."""
    try:
        folder = folder_of(config)
    except RlctlError:  # a name that no run has, which the checks tell of
        return Before()
    if not is_there(folder / "run.json"):
        return Before()
    try:
        return Before(inspect(folder).status, folder, tuple(differences(read_config(folder), config)))
    except (RlctlError, OSError) as error:
        return Before("unreadable", folder, (shown(error),))


def obstacles(findings: list[Finding], *, elsewhere: bool = False) -> list[Finding]:
    """The findings that keep a run from starting.

    With ``elsewhere`` it runs on other machines, and findings about this one are left out.
    """
    left_out = ABOUT_THIS_MACHINE if elsewhere else ()
    return [finding for finding in findings if finding.level is Level.ERROR and finding.code not in left_out]


def file_to_launch(session: Session) -> Path:
    """The file that says what is on the screen: the session's own, or where that is not saved, one written for the launch.

    Raises:
        RlctlError: it cannot be written.
    """
    if session.file is not None and not session.is_changed and not session.lost:
        return session.file.path
    path = place(session.config.run.name, ".yaml")
    write_atomic(path, session.text_in("rlctl"), force=True)
    path.chmod(0o600)
    return path


def launch_words(
    session: Session, file: Path, *, address: str = "", new: bool = False, detach: bool = False
) -> list[str]:
    """The command that launches a file of a session; ``detach``: as a job, which is not followed."""
    own = session.file is not None and file == session.file.path
    words = ["launch", str(file), *(["--from", session.dialect] if own else [])]
    words += [f"--env={name}={value}" for name, value in session.given.items()] if own and session.is_script else []
    words += ["--new"] if new else []
    return words + ([f"--address={address}"] if address else []) + (["--detach"] if detach else [])
