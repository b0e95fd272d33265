"""Where things run and how data travels: sections ``weight_sync``, ``placement``, ``buffer`` and ``service``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import (
    Choice,
    Count,
    Devices,
    NonNegative,
    ParallelSize,
    Range,
    Seconds,
    Staleness,
    Unit,
    section,
)


@section
class WeightSync:
    """How new weights reach the rollout engines, and how stale rollout may be."""

    every: Annotated[int, Unit("steps"), Range(at_least=1)] = 1
    """Steps between weight syncs. Higher values save time and make responses staler."""
    every_optimizer_steps: Count | None = None
    """Optimizer steps between weight syncs (verl's ``parameter_sync_step``). null = use ``every``."""
    max_steps_ahead: NonNegative = 0.0
    """How many steps rollout may run ahead of training. 0 = synchronous, 1 = one-step-off. Higher values raise
    throughput and staleness."""
    max_staleness_steps: Staleness | None = None
    """Limit on staleness: steps between the weights that started a response and the weights trained on it, as in the metric
    ``staleness/max``. Higher values let rollout run further ahead. null = whatever the schedule produces."""
    on_stale: Literal["drop", "wait", "keep"] = "drop"
    """Responses beyond ``max_staleness_steps``: drop discards them, wait delays rollout so that none occur, keep
    trains on them."""
    style: Literal["fixed", "trainer_driven", "explorer_driven", "fully_async"] = "fixed"
    """Which side starts a weight sync (Trinity's ``sync_style``)."""
    method: Literal["auto", "nccl", "ipc", "checkpoint", "memory", "in_place"] = "auto"
    """Weight-sync transport: nccl (GPU to GPU), ipc (shared GPU), checkpoint (shared folder) or memory (host RAM).
    auto picks the fastest available. If the chosen transport is unavailable, rlctl warns and uses memory. Results
    don't change."""
    bucket_mib: Annotated[int, Unit("MiB"), Range(at_least=1)] = 2048
    """Most MiB of weights sent in one message; a larger tensor is sent alone. Higher values send fewer messages and
    use more memory."""
    timeout: Seconds = 3600.0
    """Longest wait for the other side in a weight sync, per bucket. After that the run stops and names the missing
    worker."""
    in_flight_requests: Literal["wait", "abort", "continue"] = "wait"
    """What happens to in-flight responses at a weight update: wait, abort, or continue with the new weights (partial
    rollout)."""
    args: dict[str, Any] = {}
    """Further settings of the transfer in the source framework."""


@section
class RolePlacement:
    """Where one role runs."""

    devices: tuple[int, ...] = ()
    """Device numbers over all nodes. Empty = CPU only."""


@section
class Placement:
    """Nodes, devices, and how roles share them."""

    device: Literal["auto", "cuda", "cpu"] = "auto"
    """Device type: a GPU, or on cpu one worker process. auto uses GPUs if there are any."""
    layout: Literal["colocated", "split", "explicit"] = "colocated"
    """colocated: all roles share all devices and take turns. split: rollout has dedicated devices. explicit:
    ``roles`` lists the devices of each role."""
    nodes: ParallelSize = 1
    """Number of machines used."""
    devices_per_node: Devices = 8
    """Devices used on each machine."""
    rollout_devices: Devices | None = None
    """Devices of rollout with split. null = half of them."""
    roles: dict[str, RolePlacement] = {}
    """Devices per role with explicit: policy, rollout, reference, critic, reward."""
    cpus_per_worker: Count = 1
    """CPU cores reserved per worker process."""


@section
class Replay:
    """Trains on responses more than once."""

    enabled: bool = False
    """Whether responses may be sampled from the buffer again."""
    priority: str = "linear_decay"
    """How responses are prioritized."""
    priority_args: dict[str, Any] = {}
    """Arguments of the priority function, by name."""
    cooldown: Annotated[float, Unit("seconds"), Range(at_least=0)] | None = None
    """Seconds before a response may be sampled again. null = never."""


@section
class AuxiliaryBuffer:
    """Additional training data, such as the expert responses of MIX."""

    path: str
    """File, folder, hub name or database URL."""
    format: Literal["file", "sql", "queue"] = "file"
    """File format of the path."""
    prompt_key: str | None = None
    """Column with the prompt."""
    response_key: str | None = None
    """Column with the response."""
    messages_key: str | None = None
    """Column with whole conversations."""
    prompt_type: Literal["auto", "messages", "text", "raw"] = "auto"
    """Type of the prompt column."""
    settings: dict[str, Any] = {}
    """Further settings of the source framework."""


@section
class Buffer(Choice):
    """Where responses wait for training."""

    label: str | None = None
    """Name under which another run finds the buffer."""
    capacity: Annotated[int, Unit("responses"), Range(at_least=1)] | None = None
    """Most responses in the buffer; writers wait while it is full. null = what the schedule needs."""
    read_timeout: Seconds = 1800.0
    """Longest wait of a reader for the next batch."""
    replay: Replay = Replay()
    """Train on responses more than once."""
    auxiliary: dict[str, AuxiliaryBuffer] = {}
    """Additional training data, by name."""


@section
class MemoryBuffer(Buffer, type="memory"):
    """In the controller's memory; saved with the checkpoint."""

    log_path: str | None = None
    """Database or file that receives a copy of everything in the buffer."""


@section
class SqlBuffer(Buffer, type="sql"):
    """In a database."""

    url: str | None = None
    """SQLAlchemy URL. null = a SQLite file in the run folder."""


@section
class FileBuffer(Buffer, type="file"):
    """In files, for training without rollout."""

    path: str | None = None
    """JSONL or parquet file, or folder."""


@section
class DataJuicer:
    """A Data-Juicer service that runs operators."""

    url: str | None = None
    """Address of the service. null = start one if ``auto_start`` is true."""
    auto_start: bool = False
    """Start a service when the first of its operators runs, and end it with the run."""
    python: str | None = None
    """Python of the environment with py-data-juicer, for a service that rlctl starts. null = the Python of rlctl."""
    port: Annotated[int, Range(at_least=0, at_most=65535)] | None = None
    """Port of a service that rlctl starts. null = any free port."""


@section
class Service:
    """Helper services."""

    data_juicer: DataJuicer | None = None
    """Data-Juicer. null = not used."""
