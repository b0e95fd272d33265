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
    """How new weights reach the rollout engine, and how far apart the two may be."""

    every: Annotated[int, Unit("steps"), Range(at_least=1)] = 1
    """Steps between two synchronisations. Raised, less time is spent on it and responses are staler."""
    every_optimizer_steps: Count | None = None
    """The same in optimizer steps, where a run counts these (verl's ``parameter_sync_step``); null goes by steps."""
    max_steps_ahead: NonNegative = 0.0
    """Steps that rollout may be ahead of training; 0 is synchronous, 1 is one-step-off. Raised, nobody waits and
    responses are staler."""
    max_staleness_steps: Staleness | None = None
    """Limit on staleness: steps between the weights that started a response and the weights trained on it, as in the metric
    ``staleness/max``. Higher values let rollout run further ahead. null = whatever the schedule produces."""
    on_stale: Literal["drop", "wait", "keep"] = "drop"
    """Responses beyond ``max_staleness_steps``: drop discards them, wait holds rollout back so that there are none, keep
    trains on them."""
    style: Literal["fixed", "trainer_driven", "explorer_driven", "fully_async"] = "fixed"
    """Who decides when to synchronise (Trinity's ``sync_style``)."""
    method: Literal["auto", "nccl", "ipc", "checkpoint", "memory", "in_place"] = "auto"
    """How weights travel: nccl from GPU to GPUs, ipc on the one GPU that training and rollout share, both into vLLM only;
    checkpoint through files in a folder that all machines see; memory through the host's. auto is the first that can be.
    What cannot be is told, and goes through memory: no number depends on it."""
    bucket_mib: Annotated[int, Unit("MiB"), Range(at_least=1)] = 2048
    """Weights sent at once, at most; a larger tensor travels alone. Raised, fewer messages and more memory."""
    timeout: Seconds = 3600.0
    """Longest wait for the other side in a weight sync, for each bucket; what has not come by then is named."""
    in_flight_requests: Literal["wait", "abort", "continue"] = "wait"
    """Responses under way at a weight update are waited for, thrown away, or continued with the new weights."""
    args: dict[str, Any] = {}
    """Further settings of the transfer, of a dialect's."""


@section
class RolePlacement:
    """Where one role runs."""

    devices: tuple[int, ...] = ()
    """Device numbers over all nodes; empty is CPU only."""


@section
class Placement:
    """Nodes, devices, and who shares them."""

    device: Literal["auto", "cuda", "cpu"] = "auto"
    """What a device is: a GPU, or on cpu one worker process. auto takes GPUs where there are any."""
    layout: Literal["colocated", "split", "explicit"] = "colocated"
    """All roles share all devices and take turns; rollout has devices of its own; or each role's are listed."""
    nodes: ParallelSize = 1
    """Machines of the run. Raised, the work is shared by more devices."""
    devices_per_node: Devices = 8
    """Devices used on each machine."""
    rollout_devices: Devices | None = None
    """Devices of rollout under split; null is half of them."""
    roles: dict[str, RolePlacement] = {}
    """Devices of each role under explicit: policy, rollout, reference, critic, reward."""
    cpus_per_worker: Count = 1
    """CPU cores that each worker process reserves."""


@section
class Replay:
    """Responses are trained on more than once."""

    enabled: bool = False
    """Whether responses may be drawn again."""
    priority: str = "linear_decay"
    """Rule that orders them."""
    priority_args: dict[str, Any] = {}
    """Arguments of that rule, by name."""
    cooldown: Annotated[float, Unit("seconds"), Range(at_least=0)] | None = None
    """Time before a response is drawn again; null never draws it again."""


@section
class AuxiliaryBuffer:
    """Further training data beside rollouts, such as expert responses of MIX."""

    path: str
    """File, folder, hub name or database URL."""
    format: Literal["file", "sql", "queue"] = "file"
    """What the path is."""
    prompt_key: str | None = None
    """Column with the prompt."""
    response_key: str | None = None
    """Column with the response."""
    messages_key: str | None = None
    """Column with whole conversations."""
    prompt_type: Literal["auto", "messages", "text", "raw"] = "auto"
    """Type of the prompt column."""
    settings: dict[str, Any] = {}
    """Further settings of the dialect."""


@section
class Buffer(Choice):
    """Where responses wait to be trained on."""

    label: str | None = None
    """Name of the buffer, by which another run finds it."""
    capacity: Annotated[int, Unit("responses"), Range(at_least=1)] | None = None
    """Responses that may wait; writers wait when it is full. null is what the schedule needs."""
    read_timeout: Seconds = 1800.0
    """Longest wait of a reader for the next batch."""
    replay: Replay = Replay()
    """Train on responses more than once."""
    auxiliary: dict[str, AuxiliaryBuffer] = {}
    """Further training data, by name."""


@section
class MemoryBuffer(Buffer, type="memory"):
    """In the controller's memory; saved with the checkpoint."""

    log_path: str | None = None
    """Database or file that gets a copy of what passes through."""


@section
class SqlBuffer(Buffer, type="sql"):
    """In a database."""

    url: str | None = None
    """SQLAlchemy URL; null is a SQLite file in the run folder."""


@section
class FileBuffer(Buffer, type="file"):
    """In files, for training without rollout."""

    path: str | None = None
    """JSONL or parquet file, or folder."""


@section
class DataJuicer:
    """A Data-Juicer service that runs operators."""

    url: str | None = None
    """Address of the service; null starts one where ``auto_start`` says so."""
    auto_start: bool = False
    """Start it with the run."""
    port: Annotated[int, Range(at_least=0, at_most=65535)] | None = None
    """Port of a service that is started here; null picks a free one."""


@section
class Service:
    """Helper services."""

    data_juicer: DataJuicer | None = None
    """Data-Juicer; null uses none."""
