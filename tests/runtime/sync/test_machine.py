"""A weight sync, with the real ends of it: buckets arrive, the version moves when all have, and a failure leaves no half of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from rlctl.common.errors import RunError
from rlctl.config import Config, config_from
from rlctl.runtime.processes.calls import StopRequested, WorkerLost
from rlctl.runtime.processes.group import Limit, LocalGroup, RetryPolicy, Waiting, _address
from rlctl.runtime.specs.served import rollout_spec
from rlctl.runtime.specs.trained import trainer_spec
from rlctl.runtime.sync.machine import Files, TrainWorkers, UnreadableWeights, WeightSync
from rlctl.runtime.sync.transport import Folder, HostMemory, Transport
from rlctl.runtime.train.distributed import leave
from rlctl.runtime.types import Request, Sampling
from rlctl.runtime.workers.rollout import RolloutWorker
from rlctl.runtime.workers.trainer import Place, Trainer

ASKED = [Request((1, 2, 3), Sampling(max_tokens=2), 1, seed=0)]
LORA: dict[str, Any] = {"rank": 2, "target_modules": ["q_proj", "down_proj"]}
SMALL = 5000
"""Bytes; of a model whose embedding has more."""


def config_of(model: Path, **changes: Any) -> Config:
    plain: dict[str, Any] = {
        "model": {"path": str(model), **changes},
        "placement": {"device": "cpu", "devices_per_node": 1},
        "train": {"precision": {"compute": "float32"}},
        "rollout": {"precision": "float32", "engine": "transformers"},
    }
    return config_from(plain)


@pytest.fixture
def make_trainer(model: Path) -> Iterator[Callable[..., Trainer]]:
    def make(**changes: Any) -> Trainer:
        return Trainer(trainer_spec(config_of(model, **changes), str(model), 1), Place(0, 1, *_address()))

    yield make
    leave()


def change(trainer: Trainer) -> None:
    """As an update would."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in trainer._engine.model.parameters():  # type: ignore[attr-defined]
            local = parameter.to_local()
            local.add_(torch.randn(local.shape, generator=generator) * 0.1)


def exported(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in trainer._engine.export_weights()}


class Engine(RolloutWorker):
    """A real one that counts buckets, and may fail at one of them."""

    def __init__(self, model: Path) -> None:
        super().__init__(rollout_spec(config_of(model), "transformers", str(model), "cpu"))
        self.buckets, self.fails_at, self.seen, self.sizes = 0, 0, list[str](), list[list[int]]()
        self._engine.add_weights = partial(self._count, self._engine.add_weights)  # type: ignore[method-assign]

    def weights(self) -> dict[str, torch.Tensor]:
        return dict(self._engine.model.named_parameters())  # type: ignore[attr-defined]

    def _count(self, add: Callable[..., None], weights: Any) -> None:
        self.buckets += 1
        self.sizes.append([tensor.nbytes for _, tensor in weights])
        if self.buckets == self.fails_at:
            raise RunError("it does not fit")
        try:
            self.generate(ASKED)
        except RunError as error:
            self.seen.append(str(error))
        add(weights)


def answers_with(engine: RolloutWorker, version: int) -> bool:
    return engine.generate(ASKED)[0][0].weight_version == version


@pytest.mark.parametrize("way", ["memory", "folder"])
@pytest.mark.parametrize("lora", [None, {**LORA, "merge_for_rollout": True}])
def test_all_buckets_make_a_version_and_none_is_larger_than_it_may_be(
    make_trainer: Callable[..., Trainer], model: Path, tmp_path: Path, way: str, lora: dict[str, Any] | None
) -> None:
    """Tied weights; adapters merged."""
    trainer, engine = make_trainer(**({"lora": lora} if lora else {})), Engine(model)
    change(trainer)
    folder = tmp_path / "weights"
    transport: Transport = HostMemory() if way == "memory" else Folder(folder)
    sync = WeightSync(LocalGroup("rollout-0", engine), 60.0)
    sync.run(TrainWorkers(LocalGroup("policy-0", trainer), transport, SMALL), 3)
    expected = exported(trainer)
    held = engine.weights()
    assert expected.keys() == held.keys()
    for name, tensor in expected.items():
        assert torch.equal(held[name], tensor), name
    assert all(len(sizes) == 1 or sum(sizes) <= SMALL for sizes in engine.sizes)
    assert engine.buckets == len(engine.sizes) > 10
    assert answers_with(engine, 3)
    assert len(engine.seen) == engine.buckets, "it answered nothing while they came"
    assert "version 3 failed half-way" in engine.seen[0]
    assert not folder.exists(), "files are gone when all have them"


def test_adapters_alone_are_sent_to_an_engine_that_adds_them(make_trainer: Callable[..., Trainer]) -> None:
    """Of two layers, q_proj [32, 32] and down_proj [32, 64] with rank 2: what a merged sync would send is 40 times as much."""
    trainer = make_trainer(lora=LORA)
    change(trainer)
    sizes, tensors, message = [], {}, trainer.begin_weights(HostMemory(), 1000)
    while message is not None:
        sizes.append(message.content.table.nbytes)
        tensors |= {name: tensor.clone() for name, tensor in message.content.tensors()}
        message = trainer.next_bucket()
    assert sum(sizes) == 2 * 4 * 2 * ((32 + 32) + (64 + 32))
    assert len(sizes) > 1
    assert sum(tensor.nbytes for tensor in exported(trainer).values()) > 20 * sum(sizes)
    assert set(tensors) == {
        f"base_model.model.model.layers.{layer}.{name}.lora_{side}.weight"
        for layer in (0, 1)
        for name in ("self_attn.q_proj", "mlp.down_proj")
        for side in "AB"
    }


def test_what_fails_in_between_leaves_engines_that_answer_nothing_and_a_trainer_that_goes_on(
    make_trainer: Callable[..., Trainer], model: Path
) -> None:
    trainer, engine = make_trainer(), Engine(model)
    change(trainer)
    sync = WeightSync(LocalGroup("rollout-0", engine), 60.0)
    source = TrainWorkers(LocalGroup("policy-0", trainer), HostMemory(), SMALL)
    engine.fails_at = 3
    with pytest.raises(RunError, match="it does not fit"):
        sync.run(source, 1)
    with pytest.raises(RunError, match="loading weight version 1 failed half-way"):
        engine.generate(ASKED)
    sync.run(source, 2)
    assert answers_with(engine, 2)
    assert all(torch.equal(engine.weights()[name], tensor) for name, tensor in exported(trainer).items())


class Engines:
    """Several in this process, as a group: those in ``die_at`` are lost at one of their calls."""

    def __init__(self, model: Path, count: int, *, die_at: dict[int, int]) -> None:
        self.workers: list[Any] = [Engine(model) for _ in range(count)]
        self.names = [f"rollout-{index}" for index in range(count)]
        self.model, self.die_at, self.calls = model, die_at, [0] * count
        self.limits: list[Limit] = []
        self.died: set[int] = set()

    def __len__(self) -> int:
        return len(self.workers)

    def begin(
        self,
        method: Callable[..., Any],
        arguments: dict[int, tuple[Any, ...]],
        *,
        again: RetryPolicy | None = None,
        limit: Limit,
        **_: Any,
    ) -> Waiting:
        self.limits.append(limit)

        def call(index: int, args: tuple[Any, ...]) -> Any:
            self.calls[index] += 1
            if index in self.died:
                return replaced(index, args)
            if self.calls[index] != self.die_at.get(index):
                return method(self.workers[index], *args)
            self.died.add(index)
            return replaced(index, args)

        def replaced(index: int, args: tuple[Any, ...]) -> Any:
            lost = WorkerLost(f"{self.names[index]}: its process died", actor=self.names[index])
            if again is None:
                raise lost
            again.tell(lost)
            if again.make_room is not None:
                again.make_room()
            self.workers[index] = Engine(self.model)
            self.died.discard(index)
            again.renew(index)
            return method(self.workers[index], *args)

        return _Done([call(index, args) for index, args in arguments.items()])


class _Done(list[Any]):
    def wait(self) -> list[Any]:
        return self


@pytest.mark.parametrize("call", [1, 2, 4])
def test_an_engine_that_is_lost_meanwhile_is_replaced_and_gets_all_weights(
    make_trainer: Callable[..., Trainer], model: Path, call: int
) -> None:
    trainer, engines, told = make_trainer(), Engines(model, 2, die_at={1: call}), list[WorkerLost]()
    change(trainer)
    sync = WeightSync(engines, 60.0, RetryPolicy(1, told.append))  # type: ignore[arg-type]
    sync.run(TrainWorkers(LocalGroup("policy-0", trainer), HostMemory(), SMALL), 5)
    assert len(told) == 1
    expected = exported(trainer)
    for engine in engines.workers:
        assert answers_with(engine, 5)
        assert all(torch.equal(engine.weights()[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("call", [1, 2, 4])
def test_training_leaves_a_gpu_before_an_engine_starts_there_again(
    make_trainer: Callable[..., Trainer], model: Path, call: int
) -> None:
    """It is asked to when it gives out nothing; all engines then get all weights from the first bucket on."""
    trainer, engines, told, left = make_trainer(), Engines(model, 2, die_at={1: call}), list[WorkerLost](), list[str]()
    change(trainer)
    source = TrainWorkers(LocalGroup("policy-0", trainer), HostMemory(), SMALL)
    begin, end = source.begin, source.end
    source.begin = lambda *args: left.append("begin") or begin(*args)  # type: ignore[method-assign,func-returns-value]
    source.end = lambda limit, whole: end(limit, whole=whole) or left.append("end")  # type: ignore
    again = RetryPolicy(1, told.append, make_room=lambda: (trainer.vacate(), left.append("vacate"))[1])
    WeightSync(engines, 60.0, again).run(source, 5)  # type: ignore[arg-type]
    assert left == ["begin", "end", "vacate", "begin", "end"]
    assert len(told) == 1
    expected = exported(trainer)
    for engine in engines.workers:
        assert answers_with(engine, 5)
        assert all(torch.equal(engine.weights()[name], tensor) for name, tensor in expected.items())
    engines.die_at = {1: engines.calls[1] + 1, 0: engines.calls[0] + 8}
    with pytest.raises(WorkerLost, match="rollout-0"):
        WeightSync(engines, 60.0, again).run(source, 6)  # type: ignore[arg-type]


def test_only_the_engines_that_are_named_get_weights(make_trainer: Callable[..., Trainer], model: Path) -> None:
    engines = Engines(model, 2, die_at={})
    WeightSync(engines, 60.0).run(TrainWorkers(LocalGroup("p", make_trainer()), HostMemory(), SMALL), 4, [1])  # type: ignore[arg-type]
    assert [answers_with(engine, version) for engine, version in zip(engines.workers, (0, 4), strict=True)] == [
        True
    ] * 2


def test_what_does_not_come_in_time_is_named(make_trainer: Callable[..., Trainer], model: Path) -> None:
    engines = Engines(model, 1, die_at={})
    WeightSync(engines, 20.0).run(TrainWorkers(LocalGroup("p", make_trainer()), HostMemory(), SMALL), 4)  # type: ignore[arg-type]
    told = [limit.told for limit in engines.limits]
    assert told[:2] == [
        f"it did not load bucket {number} of weight version 4 within 20 s (weight_sync.timeout)" for number in (1, 2)
    ]
    assert {limit.seconds for limit in engines.limits} == {20.0}


def test_a_run_that_is_asked_to_end_does_so_at_once(make_trainer: Callable[..., Trainer], model: Path) -> None:
    class Stopping(Engines):
        def begin(self, *_: Any, **__: Any) -> Waiting:
            raise StopRequested

    source = TrainWorkers(LocalGroup("p", make_trainer()), HostMemory(), SMALL)
    ended: list[Any] = []
    source.end = ended.append  # type: ignore[method-assign,assignment]
    with pytest.raises(StopRequested):
        WeightSync(Stopping(model, 1, die_at={}), 20.0).run(source, 1)  # type: ignore[arg-type]
    assert not ended


def test_weights_in_files_go_to_engines_in_buckets(
    make_trainer: Callable[..., Trainer], model: Path, tmp_path: Path
) -> None:
    trainer, engine = make_trainer(), Engine(model)
    change(trainer)
    group = LocalGroup("rollout-0", engine)
    with pytest.raises(UnreadableWeights, match=r"no \*.safetensors"):
        WeightSync(group, 60.0).run(Files(tmp_path, SMALL, group.share), 1)
    items = list(exported(trainer).items())
    for number, part in enumerate((items[::2], items[1::2])):
        save_file(dict(part), tmp_path / f"model-{number}.safetensors")
    WeightSync(group, 60.0).run(Files(tmp_path, SMALL, group.share), 2)
    assert answers_with(engine, 2)
    assert all(torch.equal(engine.weights()[name], tensor) for name, tensor in exported(trainer).items())
    (tmp_path / "model-1.safetensors").write_bytes(b"half of a file")
    with pytest.raises(UnreadableWeights, match="model-1"):
        WeightSync(group, 60.0).run(Files(tmp_path, SMALL, group.share), 3)
    with pytest.raises(RunError, match="version 3 failed half-way"):
        engine.generate(ASKED)


def test_a_bucket_that_cannot_be_read_says_what_the_folder_has_to_be(model: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"bucket-000000.safetensors cannot be read") as raised:
        Folder(tmp_path).deliver(tmp_path / "bucket-000000.safetensors", Engine(model)._engine)
    assert "shared storage" in raised.value.hint
