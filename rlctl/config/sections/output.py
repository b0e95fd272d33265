"""What a run leaves behind and what surrounds it: sections ``checkpoint``, ``tracking``, ``profiling`` and ``runtime``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import Choice, Count, Interval, Local, Range, Seconds, Secret, Unit, section

Content = Literal["model", "optimizer", "extra", "hf_model"]


@section
class Checkpoint:
    """What is saved, how often, and what a run resumes from."""

    every: Interval | None = None
    """Save interval. null = no interval (see ``at_end``). Shorter intervals lose less work in a failure and take more
    time."""
    at_end: bool = True
    """Save at the end of the run."""
    resume: Literal["auto", "never", "path"] = "auto"
    """Resume from the latest complete checkpoint of the run folder, never, or from ``resume_path``."""
    resume_path: str | None = None
    """Checkpoint to resume from with ``resume: path``."""
    keep_last: Count | None = None
    """Number of checkpoints kept. null = all."""
    keep_last_critic: Count | None = None
    """Number of critic checkpoints kept. null = ``keep_last``."""
    save_contents: tuple[Content, ...] = ("model", "optimizer", "extra")
    """Contents of a checkpoint: weights, optimizer state, extra (schedule, random states, counters), and a Hugging
    Face copy."""
    load_contents: tuple[Content, ...] = ("model", "optimizer", "extra")
    """What to restore on resume. Without ``optimizer`` and ``extra`` the resumed run differs from an uninterrupted
    one."""
    export: Literal["never", "last", "always"] = "last"
    """When weights are also exported in Hugging Face format."""
    folder: Annotated[str | None, Local()] = None
    """Folder of checkpoints. null = inside the run folder."""
    remote: str | None = None
    """fsspec URL that receives a copy of each checkpoint, in the background with ``asynchronous``. A failed copy
    stops the run."""
    delete_after_load: bool = False
    """Delete the local copy once it is loaded, if ``remote`` has another."""
    delete_previous: bool = False
    """Delete older checkpoints before writing the next one. This needs disk space for only one, but a crash while
    writing loses all."""
    asynchronous: bool = False
    """Write, export and copy checkpoints in the background. Until the new one is complete, the previous one is used
    for resume."""
    writers: Literal["all", "one_process", "one_thread", "one_node"] = "all"
    """Which processes may write at the same time (Trinity's ``save_strategy``)."""


@section
class Tracker(Choice):
    """A service that receives metrics."""


@section
class ConsoleTracker(Tracker, type="console"):
    """One line per step on stderr."""


@section
class TensorboardTracker(Tracker, type="tensorboard"):
    """TensorBoard event files."""

    folder: str | None = None
    """Folder of the event files. null = inside the run folder."""


@section
class SwanlabTracker(Tracker, type="swanlab"):
    """SwanLab."""

    mode: Literal["cloud", "local", "offline", "disabled"] = "cloud"
    """cloud and local need an account or a server. offline writes files that you can upload later."""
    folder: str | None = None
    """Folder of its files. null = inside the run folder."""
    api_key: Annotated[str | None, Secret()] = None
    """API key. Write ``${oc.env:NAME}``."""


@section
class WandbTracker(Tracker, type="wandb"):
    """Weights & Biases."""

    mode: Literal["online", "offline", "disabled"] = "online"
    """offline writes files that you can upload later."""
    base_url: str | None = None
    """Address of a private server."""
    api_key: Annotated[str | None, Secret()] = None
    """API key. Write ``${oc.env:NAME}``."""
    args: dict[str, Any] = {}
    """Further arguments of ``wandb.init``."""


@section
class MlflowTracker(Tracker, type="mlflow"):
    """MLflow."""

    uri: str | None = None
    """Address of the server or folder. null = inside the run folder."""
    username: str | None = None
    """User name at the server."""
    password: Annotated[str | None, Secret()] = None
    """Password at the server. Write ``${oc.env:NAME}``."""


@section
class OtherTracker(Tracker, type="other", further=("clearml", "vemlp_wandb", "trackio", "file", "ml_tracker")):
    """A tracker that rlctl converts but cannot run.

    One that it does not know is written with its framework's name: ``verl.mine``.
    """

    kind: str
    """The type."""
    args: dict[str, Any] = {}
    """Arguments in its framework, by name."""


@section
class RoleProfile:
    """Profiling of one role."""

    enabled: bool = False
    """Whether this role is profiled."""
    all_ranks: bool = False
    """Profile all processes of the role instead of only the first."""
    ranks: tuple[int, ...] = ()
    """Processes of the role to profile, by rank."""
    discrete: bool = False
    """One trace per phase instead of one per step."""
    args: dict[str, Any] = {}
    """Settings of the tool for this role, which override ``worker_args``. They can also be listed under the tool's
    name."""


@section
class Profiling:
    """Traces of selected steps."""

    tool: Literal["nsys", "torch", "torch_memory", "npu", "timeline"] | None = None
    """Profiler. null = off. timeline records only phases and calls, which every other tool records too."""
    steps: tuple[int, ...] = ()
    """Steps to profile. Empty = none."""
    continuous: bool = False
    """Profile adjacent steps as one trace."""
    folder: str | None = None
    """Folder of traces. null = inside the run folder."""
    roles: dict[str, RoleProfile] = {}
    """Roles to profile, and how. Empty = every model, in its first process."""
    controller_args: dict[str, Any] = {}
    """Settings of the tool for the controller. torch profiles the controller only if this is set."""
    worker_args: dict[str, Any] = {}
    """Settings of the tool for workers. torch accepts contents (shapes, memory, stack), torch_memory accepts
    trace_alloc_max_entries."""
    peak_tflops: Annotated[float | None, Unit("TFLOP/s"), Range(above=0)] = None
    """Peak TFLOP/s of one training device, for MFU. null = from a table of GPUs."""
    ray_timeline: str | bool | None = None
    """File for Ray's timeline. true = a default name."""


@section
class RaySettings:
    """How Ray is started or joined."""

    address: str | None = None
    """Address of a running cluster. null = start Ray locally, ``auto`` = look for a cluster."""
    namespace: str | None = None
    """Ray namespace. null = the run's name."""
    num_cpus: Count | None = None
    """CPU cores that a local Ray may use. null = all."""
    init_args: dict[str, Any] = {}
    """Further arguments of ``ray.init``."""
    call_timeout: Seconds = 3600.0
    """Longest call between processes."""
    startup_timeout: Seconds = 300.0
    """Longest wait for workers to connect to each other."""
    collective_timeout: Seconds = 1800.0
    """Longest wait in a collective operation."""


@section
class RuntimeSettings:
    """Environment variables, logs, plug-ins and the cluster."""

    env_vars: dict[str, str] = {}
    """Environment variables of every process."""
    role_env_vars: dict[str, dict[str, str]] = {}
    """Additional environment variables by role: policy, rollout, reference, critic, reward, reward_model, judge."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    log_folder: str | None = None
    """Folder that receives a copy of the logs of every process, under the run's name."""
    logs_by_node: bool = False
    """Write worker logs into one folder per node, named by its address."""
    log_every: Annotated[int, Unit("steps"), Range(at_least=1)] = 1
    """Steps between console lines. The run folder and trackers always get every step."""
    ray: RaySettings = RaySettings()
    """How Ray is started or joined."""
    plugins: tuple[str, ...] = ()
    """Python modules or folders imported by every process at startup (for registration side effects)."""
    device_memory_check: bool = True
    """Estimate memory before launch."""
