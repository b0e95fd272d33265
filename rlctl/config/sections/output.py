"""What a run leaves behind and what surrounds it: sections ``checkpoint``, ``tracking``, ``profiling`` and ``runtime``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import Choice, Count, Interval, Range, Seconds, Secret, Unit, section

Content = Literal["model", "optimizer", "extra", "hf_model"]


@section
class Checkpoint:
    """What is saved, how often, and what is resumed."""

    every: Interval | None = None
    """Save this often; null = only as ``at_end`` says. More often means less is lost and more time spent."""
    at_end: bool = True
    """Save at the end of the run."""
    resume: Literal["auto", "never", "path"] = "auto"
    """Go on from the newest whole checkpoint of the run folder, never, or from ``resume_path``."""
    resume_path: str | None = None
    """Checkpoint to go on from, under ``path``."""
    keep_last: Count | None = None
    """Checkpoints kept; null keeps all."""
    keep_last_critic: Count | None = None
    """The same for the critic; null is ``keep_last``."""
    save_contents: tuple[Content, ...] = ("model", "optimizer", "extra")
    """What a checkpoint holds: weights, optimizer state, extra (schedule, random states, counters), and a Hugging Face copy."""
    load_contents: tuple[Content, ...] = ("model", "optimizer", "extra")
    """What of it is taken up on resume; weights are those of ``model``. Without optimizer and extra it is not the same run."""
    export: Literal["never", "last", "always"] = "last"
    """When weights are also written in Hugging Face format."""
    folder: str | None = None
    """Folder of checkpoints; null is inside the run folder."""
    remote: str | None = None
    """fsspec URL that gets a copy of each checkpoint, under ``asynchronous`` in the background; one that fails ends the run."""
    delete_after_load: bool = False
    """Delete the local copy once it is loaded, where ``remote`` has another."""
    delete_previous: bool = False
    """Delete the checkpoints before it when the next is begun: the disk needs room for one, and a crash meanwhile loses all."""
    asynchronous: bool = False
    """Write, export and copy in the background while training goes on; until a checkpoint is whole the one before it counts."""
    writers: Literal["all", "one_process", "one_thread", "one_node"] = "all"
    """Who may write at the same time (Trinity's ``save_strategy``)."""


@section
class Tracker(Choice):
    """A place that metrics are sent to."""


@section
class ConsoleTracker(Tracker, type="console"):
    """One line a step on stderr."""


@section
class TensorboardTracker(Tracker, type="tensorboard"):
    """TensorBoard event files."""

    folder: str | None = None
    """Where they go; null is inside the run folder."""


@section
class SwanlabTracker(Tracker, type="swanlab"):
    """SwanLab."""

    mode: Literal["cloud", "local", "offline", "disabled"] = "cloud"
    """cloud and local need an account or a server; offline keeps files that can be sent later."""
    folder: str | None = None
    """Where files go; null is inside the run folder."""
    api_key: Annotated[str | None, Secret()] = None
    """Key of the account; write ``${oc.env:NAME}``."""


@section
class WandbTracker(Tracker, type="wandb"):
    """Weights & Biases."""

    mode: Literal["online", "offline", "disabled"] = "online"
    """offline keeps files that can be sent later."""
    base_url: str | None = None
    """Address of a private server."""
    api_key: Annotated[str | None, Secret()] = None
    """Key of the account; write ``${oc.env:NAME}``."""
    args: dict[str, Any] = {}
    """Further arguments of ``wandb.init``."""


@section
class MlflowTracker(Tracker, type="mlflow"):
    """MLflow."""

    uri: str | None = None
    """Address of the server or folder; null is inside the run folder."""
    username: str | None = None
    """User name at the server."""
    password: Annotated[str | None, Secret()] = None
    """Password at the server; write ``${oc.env:NAME}``."""


@section
class OtherTracker(Tracker, type="other", further=("clearml", "vemlp_wandb", "trackio", "file", "ml_tracker")):
    """A tracker that rlctl translates and cannot run; one that it does not know follows its framework's name, ``verl.mine``."""

    kind: str
    """The type."""
    args: dict[str, Any] = {}
    """Its arguments in its framework, by name."""


@section
class RoleProfile:
    """Profiling of one role."""

    enabled: bool = False
    """Whether it is profiled."""
    all_ranks: bool = False
    """Profile all its processes, not only the first."""
    ranks: tuple[int, ...] = ()
    """Profile these of its processes."""
    discrete: bool = False
    """One trace for each phase instead of one a step."""
    args: dict[str, Any] = {}
    """Settings of the tool for this role, over those of ``worker_args``; they may stand under the tool's name."""


@section
class Profiling:
    """Traces of chosen steps."""

    tool: Literal["nsys", "torch", "torch_memory", "npu", "timeline"] | None = None
    """Profiler; null is off. timeline records phases and calls only, which every other tool does too."""
    steps: tuple[int, ...] = ()
    """Steps that are profiled; none where it is empty."""
    continuous: bool = False
    """Profile neighbouring steps as one."""
    folder: str | None = None
    """Where traces go; null is inside the run folder."""
    roles: dict[str, RoleProfile] = {}
    """Which roles are profiled, and how, by role; none named is every model, in its first process."""
    controller_args: dict[str, Any] = {}
    """Settings of the tool for the controller, which torch profiles where there are any."""
    worker_args: dict[str, Any] = {}
    """Settings of the tool for workers: torch takes contents (shapes, memory, stack), torch_memory trace_alloc_max_entries."""
    peak_tflops: Annotated[float | None, Unit("TFLOP/s"), Range(above=0)] = None
    """What one training device can compute, in 10^12 operations a second, for MFU; null takes it from a table of GPUs."""
    ray_timeline: str | bool | None = None
    """File that gets Ray's timeline; true names it itself."""


@section
class RaySettings:
    """How Ray is started or found."""

    address: str | None = None
    """Address of a running cluster; null starts Ray here, ``auto`` looks for one."""
    namespace: str | None = None
    """Ray namespace; null names it after the run."""
    num_cpus: Count | None = None
    """CPU cores Ray may use here; null is all."""
    init_args: dict[str, Any] = {}
    """Further arguments of ``ray.init``."""
    call_timeout: Seconds = 3600.0
    """Longest call between processes."""
    startup_timeout: Seconds = 300.0
    """Longest wait for workers to find each other."""
    collective_timeout: Seconds = 1800.0
    """Longest wait in a collective operation."""


@section
class RuntimeSettings:
    """Environment variables, logs, plug-ins and the cluster."""

    env_vars: dict[str, str] = {}
    """Environment variables of every process."""
    role_env_vars: dict[str, dict[str, str]] = {}
    """Further ones by role: policy, rollout, reference, critic, reward, reward_model, judge."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least important message that is logged."""
    log_folder: str | None = None
    """Folder that gets a copy of the logs of every process, under the run's name."""
    logs_by_node: bool = False
    """Logs of workers go into a folder for each node, by its address."""
    log_every: Annotated[int, Unit("steps"), Range(at_least=1)] = 1
    """Steps between two lines on the console; every step is in the run folder, and goes to trackers."""
    ray: RaySettings = RaySettings()
    """How Ray is started or found."""
    plugins: tuple[str, ...] = ()
    """Folders of Python files, or modules, that the controller and every worker import first, for what they register."""
    device_memory_check: bool = True
    """Estimate memory before launch."""
