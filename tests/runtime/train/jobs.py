"""What the worker processes of these tests do, and the samples they do it with."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rlctl.config import Config
from rlctl.config.sections.algorithm import Algorithm, KlInLoss
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.model import Lora, Model
from rlctl.config.sections.train import Fsdp2, MemorySettings, Optimizer, PrecisionSettings, Train
from rlctl.runtime.algorithms.aggregation import Totals
from rlctl.runtime.algorithms.distributions import LOG_PROBS, STATISTICS
from rlctl.runtime.algorithms.preference import PAIR
from rlctl.runtime.specs.trained import loss_spec, teaching_of
from rlctl.runtime.train import model as model_module
from rlctl.runtime.train.checkpoint import state_of
from rlctl.runtime.train.fsdp import FsdpEngine
from rlctl.runtime.train.gathering import whole
from rlctl.runtime.train.interface import Comparison, LossFunction, LossTerms, Role, TrainEngine
from rlctl.runtime.train.losses import PolicyLoss, SftLoss, totals_of
from rlctl.runtime.train.offloading import HostCopies, OffloadedActivations
from rlctl.runtime.train.sharded_loading import BareModel, bare
from rlctl.runtime.types import Sample
from rlctl.runtime.workers.sharding import split_pairs
from rlctl.runtime.workers.trainer import make_loss

FLOAT32 = PrecisionSettings(parameters="float32", compute="float32", reduce="float32")
FLOAT64 = PrecisionSettings(parameters="float64", compute="float64", reduce="float64")  # type: ignore[arg-type]
ALL_AT_ONCE = MicroBatchSize(unit="tokens", size=100_000)
FEW_AT_ONCE = MicroBatchSize(unit="responses", size=2)


def make_samples(count: int, *, seed: int = 0, vocab: int = 64) -> list[Sample]:
    """Samples of different lengths, with prompts, tool-like gaps, one without a counted token, and the columns of rl."""
    generator = torch.Generator().manual_seed(seed)
    samples = []
    for index in range(count):
        length = int(torch.randint(6, 25, (), generator=generator))
        mask = torch.arange(length) >= int(torch.randint(1, 5, (), generator=generator))
        if index % 3 == 1:
            mask[length // 2] = False
        if index == 2:
            mask[:] = False
        columns = {
            "advantages": torch.randn(length, generator=generator),
            "old_log_probs": -4 + 0.3 * torch.randn(length, generator=generator),
            "reference_log_probs": -4 + 0.3 * torch.randn(length, generator=generator),
            "policy_weights": torch.rand(length, generator=generator),
            "rollout_log_probs": -4 + 0.3 * torch.randn(length, generator=generator),
        }
        samples.append(Sample(torch.randint(3, vocab, (length,), generator=generator), mask, columns))
    return samples


def settings(precision: PrecisionSettings = FLOAT32, **optimizer: Any) -> Train:
    """Training settings without recomputation; ``optimizer`` overrides its fields."""
    values = {"lr": 1e-2, "max_grad_norm": None} | optimizer
    return Train(precision=precision, optimizer=Optimizer(**values), memory=MemorySettings(recompute_activations=False))


def engine_of(folder: Path, train: Train, role: Role = "policy", **options: Any) -> FsdpEngine:
    """An engine on this worker."""
    model = Model(path=str(folder), **options)
    return FsdpEngine(model, train, role=role, seed=1, scheduler_steps=10)


def share(samples: Sequence[Sample]) -> list[Sample]:
    """This worker's samples: every k-th, so that shares differ in size and tokens."""
    return list(samples[dist.get_rank() :: dist.get_world_size()])


def gathered(engine: FsdpEngine) -> dict[str, Tensor]:
    """All weights, on rank 0."""
    return dict(engine.export_weights())


def gather_whole(
    tensors: Mapping[str, Tensor], spread: Collection[str], bucket_bytes: int, everywhere: bool = False
) -> dict[str, Tensor]:
    """``tensors`` after those in ``spread`` were dealt out over the workers, and all were brought together again."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    dealt = [(name, distribute_tensor(t, mesh, [Shard(0)]) if name in spread else t) for name, t in tensors.items()]
    return dict(whole(dealt, bucket_bytes=bucket_bytes, everywhere=everywhere))


def log_probs(
    folder: Path,
    samples: Sequence[Sample],
    micro: MicroBatchSize,
    temperature: float,
    attention: str,
    packing: bool = True,
) -> list[Tensor]:
    engine = engine_of(folder, dataclasses.replace(settings(), packing=packing), attention=attention)
    return engine.log_probs(share(samples), temperature=temperature, micro=micro)


def statistics(
    folder: Path, samples: Sequence[Sample], micro: MicroBatchSize, temperature: float, packing: bool
) -> dict[str, list[Tensor]]:
    """Every statistic, and log-probs."""
    engine = engine_of(folder, dataclasses.replace(settings(), packing=packing))
    return engine.statistics(share(samples), (LOG_PROBS, *STATISTICS), temperature=temperature, micro=micro)


def values(folder: Path, samples: Sequence[Sample], micro: MicroBatchSize, attention: str) -> list[Tensor]:
    engine = engine_of(folder, settings(), "critic", attention=attention)
    return engine.values(share(samples), micro=micro)


def critic_updates(
    folder: Path, train: Train, samples: Sequence[Sample], loss: LossFunction, micro: MicroBatchSize
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """Take one optimizer step of a critic; weights and metrics."""
    return gathered_after(engine_of(folder, train, "critic"), samples, loss, micro, 1)


def updates(
    folder: Path,
    train: Train,
    samples: Sequence[Sample],
    loss: LossFunction,
    micro: MicroBatchSize,
    count: int = 1,
    attention: str = "auto",
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """Take optimizer steps on all samples, a schedule tick after each; weights and metrics."""
    engine = engine_of(folder, train, attention=attention)
    return gathered_after(engine, samples, loss, micro, count)


def loaded(folder: Path, role: Role, by_parts: bool) -> tuple[dict[str, Tensor], dict[str, Tensor], int, Any]:
    """All parameters; the buffers of this worker; how often a model was made without memory; its generation config."""
    made: list[BareModel | None] = []

    def noted(*args: Any, **options: Any) -> BareModel | None:
        made.append(bare(*args, **options) if by_parts else None)
        return made[-1]

    with patch.object(model_module, "bare", noted):
        engine = engine_of(folder, settings(), role)
    weights = dict(whole(((name, tensor.detach()) for name, tensor in engine.model.named_parameters())))
    buffers = {name: buffer.clone() for name, buffer in engine.model.named_buffers()}
    if engine.model.config.tie_word_embeddings and role == "policy":
        assert engine.model.get_input_embeddings().weight is engine.model.get_output_embeddings().weight
    assert not engine.model.training
    settled = engine.model.generation_config if role == "policy" else None
    return weights, buffers, sum(each is not None for each in made), settled and settled.to_dict()


def exported(folder: Path, dtype: torch.dtype | None) -> tuple[dict[str, Tensor], int]:
    """The weights for rollout, and the bytes that this worker sent for them."""
    engine = FsdpEngine(Model(path=str(folder)), settings(), role="policy", seed=1, export_dtype=dtype)
    with Collectives() as counted:
        weights = gathered(engine)
    return weights, counted.gathered


class Collectives(TorchDispatchMode):
    """Counts the collectives of this process by name."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.gathered = 0
        """Bytes that this process sent to be gathered on one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            self.calls[func._opname] += 1
            if func._opname == "gather_":
                self.gathered += sum(tensor.numel() * tensor.element_size() for tensor in args[1])
        return func(*args, **(kwargs or {}))


def collectives(
    folder: Path, train: Train, samples: Sequence[Sample], micro: MicroBatchSize
) -> tuple[dict[str, int], dict[str, Tensor], bool]:
    """How often each collective runs in one update; the weights after it; whether a pass without gradient left all spread."""
    engine = engine_of(folder, train)
    engine.log_probs(share(samples), temperature=1.0, micro=micro)
    spread = all(isinstance(parameter, DTensor) for parameter in engine.model.parameters())
    with Collectives() as counted:
        engine.update(share(samples), SftLoss(), micro=micro, temperature=1.0, totals=totals_of(samples))
    return dict(counted.calls), gathered(engine), spread


def update_and_export(folder: Path, samples: Sequence[Sample], freeze: Sequence[str], to: Path) -> None:
    """Take one step with some parameters frozen, and write what came of it."""
    engine = engine_of(folder, settings(), freeze=tuple(freeze))
    engine.update(share(samples), SftLoss(), micro=ALL_AT_ONCE, temperature=1.0, totals=totals_of(samples))
    engine.export_hf(to, tokenizer=str(folder))


def tower_dtypes(folder: Path, sample: Sample) -> dict[str, set[torch.dtype]]:
    """What the blocks of a vision tower are given where training computes in bfloat16: states, and angles."""
    engine = engine_of(folder, settings(PrecisionSettings(compute="bfloat16")))
    seen: dict[str, set[torch.dtype]] = {"states": set(), "angles": set()}

    def look(module: torch.nn.Module, args: Sequence[Tensor], kwargs: Mapping[str, Any]) -> None:
        seen["states"].add(args[0].dtype)
        seen["angles"] |= {each.dtype for each in kwargs["position_embeddings"]}

    for block in engine.model.model.visual.blocks:
        block.register_forward_pre_hook(look, with_kwargs=True)
    engine.log_probs([sample], temperature=1.0, micro=ALL_AT_ONCE)
    return seen


def gathered_after(
    engine: FsdpEngine, samples: Sequence[Sample], loss: LossFunction, micro: MicroBatchSize, count: int
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    totals = totals_of(samples)
    metrics = []
    for _ in range(count):
        metrics.append(engine.update(share(samples), loss, micro=micro, temperature=1.0, totals=totals))
        engine.step_schedule()
    return gathered(engine), metrics


def pair_updates(
    folder: Path,
    train: Train,
    pairs: Sequence[Sample],
    loss: LossFunction,
    micro: MicroBatchSize,
    attention: str = "auto",
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """Take one optimizer step on preference pairs; weights and metrics."""
    engine = engine_of(folder, train, attention=attention)
    split = split_pairs([len(sample) for sample in pairs], dist.get_world_size(), balance=True)
    mine = [pairs[index] for index in split[dist.get_rank()]]
    found = engine.update(mine, loss, micro=micro, temperature=1.0, totals=totals_of(pairs), together=PAIR)
    return gathered(engine), [found]


def distilled_updates(
    folder: Path, teacher: Path, train: Train, samples: Sequence[Sample], config: Config, micro: MicroBatchSize
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """Take one optimizer step with a teacher's distributions; weights and metrics."""
    engine, frozen = engine_of(folder, train), engine_of(teacher, train, "reference")
    teaching = teaching_of(config)
    assert teaching is not None
    found = engine.update(
        share(samples),
        make_loss(loss_spec(config)),
        micro=micro,
        temperature=1.0,
        totals=totals_of(samples),
        compare={"divergence": Comparison(frozen, teaching.of_logits)},
    )
    return gathered(engine), [found]


def with_memory(train: Train, **memory: Any) -> Train:
    """The same with other memory settings."""
    return dataclasses.replace(train, memory=MemorySettings(**memory))


def train_and_save(
    folder: Path, train: Train, samples: Sequence[Sample], loss: LossFunction, target: Path, role: Role = "policy"
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """Two optimizer steps, a save, and two more; the weights at the end and the metrics of the last two."""
    engine = engine_of(folder, train, role)
    gathered_after(engine, samples, loss, ALL_AT_ONCE, 2)
    engine.save(target)
    return gathered_after(engine, samples, loss, ALL_AT_ONCE, 2)


def load_and_train(
    folder: Path, train: Train, samples: Sequence[Sample], loss: LossFunction, source: Path, role: Role = "policy"
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """Two optimizer steps from a checkpoint."""
    engine = engine_of(folder, train, role)
    engine.load(source)
    return gathered_after(engine, samples, loss, ALL_AT_ONCE, 2)


def save_random_state(folder: Path, target: Path) -> Tensor:
    """Save, and return what this worker would draw next."""
    engine = engine_of(folder, settings())
    engine.save(target)
    return torch.rand(3)


def load_random_state(folder: Path, source: Path) -> Tensor:
    """Load, and return what this worker draws next."""
    engine = engine_of(folder, settings())
    torch.manual_seed(99)
    engine.load(source)
    return torch.rand(3)


def load(folder: Path, source: Path) -> None:
    engine_of(folder, settings()).load(source)


def train_and_export(
    folder: Path, samples: Sequence[Sample], loss: LossFunction, target: Path, tokenizer: str | None
) -> dict[str, Tensor]:
    """One optimizer step, then the Hugging Face folder; the weights."""
    engine = engine_of(folder, settings())
    weights, _ = gathered_after(engine, samples, loss, ALL_AT_ONCE, 1)
    engine.export_hf(target, tokenizer=tokenizer)
    return weights


def train_around_an_export(
    folder: Path, samples: Sequence[Sample], loss: LossFunction, target: Path | None
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """One optimizer step, an export where there is a folder for it, and two more steps."""
    engine = engine_of(folder, settings())
    gathered_after(engine, samples, loss, ALL_AT_ONCE, 1)
    if target is not None:
        engine.export_hf(target, tokenizer=None)
    return gathered_after(engine, samples, loss, ALL_AT_ONCE, 2)


@dataclasses.dataclass
class Adapted:
    """What a worker has after training adapters."""

    weights: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    """Merged, on rank 0."""
    adapters: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    log_probs: list[Tensor] = dataclasses.field(default_factory=list)
    base_log_probs: list[Tensor] = dataclasses.field(default_factory=list)
    stored: list[str] = dataclasses.field(default_factory=list)
    """Names in the checkpoint."""
    later: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    """Merged weights two steps after the checkpoint."""


def adapters_of(engine: FsdpEngine) -> dict[str, Tensor]:
    """The adapters, on rank 0."""
    return dict(whole((name, p.detach()) for name, p in engine.model.named_parameters() if p.requires_grad))


def new_adapters(folder: Path, train: Train, lora: Lora) -> Adapted:
    engine = engine_of(folder, train, lora=lora)
    return Adapted(gathered(engine), adapters_of(engine))


def train_adapters(folder: Path, train: Train, samples: Sequence[Sample], lora: Lora, target: Path) -> Adapted:
    """The reference's pass before the first update, two optimizer steps, a save, and two more."""
    engine = engine_of(folder, train, lora=lora)
    mine = share(samples)
    base = engine.log_probs(mine, temperature=1.0, micro=ALL_AT_ONCE, adapters=False)
    weights, _ = gathered_after(engine, samples, SftLoss(), ALL_AT_ONCE, 2)
    engine.save(target)
    again = engine.log_probs(mine, temperature=1.0, micro=ALL_AT_ONCE, adapters=False)
    assert all(torch.equal(one, other) for one, other in zip(base, again, strict=True))
    drawn = engine.log_probs(mine, temperature=1.0, micro=ALL_AT_ONCE)
    stored = [*state_of(engine)]
    later, _ = gathered_after(engine, samples, SftLoss(), ALL_AT_ONCE, 2)
    return Adapted(weights, {}, drawn, base, stored, later)


def continue_adapters(
    folder: Path, train: Train, samples: Sequence[Sample], lora: Lora, source: Path
) -> dict[str, Tensor]:
    """Two optimizer steps from a checkpoint; merged weights."""
    engine = engine_of(folder, train, lora=lora)
    engine.load(source)
    return gathered_after(engine, samples, SftLoss(), ALL_AT_ONCE, 2)[0]


def export_adapters(folder: Path, train: Train, samples: Sequence[Sample], lora: Lora, target: Path) -> None:
    engine = engine_of(folder, train, lora=lora)
    gathered_after(engine, samples, SftLoss(), ALL_AT_ONCE, 2)
    engine.export_hf(target, tokenizer=None)
    save_sent_adapters(engine, target)


SENT = "sent.safetensors"


def save_sent_adapters(engine: TrainEngine, folder: Path) -> None:
    """What rollout gets of adapters, beside an export."""
    sent = dict(engine.export_adapters())
    if dist.get_rank() == 0:
        save_file(sent, folder / SENT)
    else:
        assert not sent


def check_sent_adapters(folder: Path, scale: float) -> None:
    """Names are those of peft's files, and the scale is in B."""
    sent, stored = load_file(folder / SENT), load_file(folder / "adapter" / "adapter_model.safetensors")
    assert sent.keys() == stored.keys()
    for name, tensor in stored.items():
        torch.testing.assert_close(sent[name], tensor * scale if "lora_B" in name else tensor, rtol=0, atol=0)


def trained_adapters(folder: Path, train: Train, samples: Sequence[Sample], lora: Lora) -> dict[str, Tensor]:
    engine = engine_of(folder, train, lora=lora)
    gathered_after(engine, samples, SftLoss(), ALL_AT_ONCE, 2)
    return adapters_of(engine)


def merged_and_adapted(
    folder: Path, train: Train, samples: Sequence[Sample], lora: Lora
) -> tuple[list[Tensor], list[Tensor]]:
    """Log-probs of the model that is exported, and of the one that is trained."""
    engine = engine_of(folder, train, lora=lora)
    weights, _ = gathered_after(engine, samples, SftLoss(), ALL_AT_ONCE, 2)
    plain = engine_of(folder, train)
    with torch.no_grad():
        for name, parameter in plain.model.named_parameters():
            parameter.to_local().copy_(weights[name])
    return tuple(each.log_probs(samples, temperature=1.0, micro=ALL_AT_ONCE) for each in (plain, engine))  # type: ignore[return-value]


def shared_updates(
    folder: Path, train: Train, samples: Sequence[Sample], loss: LossFunction, micro: MicroBatchSize, count: int = 1
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """As ``updates``, where neighbours share sequences, and so have the same samples."""
    engine = engine_of(folder, train)
    assert isinstance(train.engine, Fsdp2)
    size = train.engine.ulysses_sequence_parallel_size
    mine = samples[dist.get_rank() // size :: dist.get_world_size() // size]
    totals, metrics = totals_of(samples), []
    for _ in range(count):
        metrics.append(engine.update(mine, loss, micro=micro, temperature=1.0, totals=totals))
        engine.step_schedule()
    return gathered(engine), metrics


def all_tokens(folder: Path, train: Train, samples: Sequence[Sample], role: Role) -> list[Tensor]:
    """Log-probs and statistics, or values, of all samples."""
    engine = engine_of(folder, train, role)
    if role == "critic":
        return engine.values(samples, micro=ALL_AT_ONCE)
    found = engine.statistics(samples, (LOG_PROBS, *STATISTICS), temperature=0.7, micro=ALL_AT_ONCE)
    return [each for of_name in found.values() for each in of_name]


RL_LOSS = PolicyLoss.of(
    Algorithm(kl_in_loss=KlInLoss(estimator="k3", coefficient=0.1), entropy_coefficient=0.01), max_response_tokens=32
)


def log_probs_of_model(folder: Path, samples: Sequence[Sample], section: Mapping[str, Any]) -> list[Tensor]:
    engine = engine_of(folder, settings(), **section)
    return engine.log_probs(samples, temperature=1.0, micro=ALL_AT_ONCE)


def updates_of_model(
    folder: Path, train: Train, samples: Sequence[Sample], section: Mapping[str, Any]
) -> dict[str, Tensor]:
    engine = engine_of(folder, train, **section)
    return gathered_after(engine, samples, SftLoss(), ALL_AT_ONCE, 1)[0]


def scaled_logits(folder: Path, samples: Sequence[Sample]) -> tuple[list[Tensor], list[Tensor]]:
    """Log-probs and entropies of a model that halves its logits after its head, and those at twice the temperature of one that
    does not."""
    engine = engine_of(folder, settings())
    names = (LOG_PROBS, STATISTICS[0])
    expected = engine.statistics(samples, names, temperature=2.0, micro=ALL_AT_ONCE)
    whole_logits = engine.model.forward

    def halved(*args: Any, **kwargs: Any) -> Any:
        output = whole_logits(*args, **kwargs)
        output.logits = output.logits / 2
        return output

    engine.model.forward = halved
    found = engine.log_probs(samples, temperature=1.0, micro=ALL_AT_ONCE)
    assert not engine._head.chunks
    again = engine.log_probs(samples, temperature=1.0, micro=ALL_AT_ONCE)
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))
    further = engine.statistics(samples, names, temperature=1.0, micro=ALL_AT_ONCE)
    return [*found, *further[names[1]]], [*expected[names[0]], *expected[names[1]]]


def offloaded_activations(
    folder: Path, samples: Sequence[Sample]
) -> tuple[list[int], list[tuple[dict[str, Tensor], list[dict[str, float]]]]]:
    """Tensors that were moved, with small ones and without; weights and metrics after an update with either."""
    train, moved, results = with_memory(settings(), recompute_activations=True), [], []
    for keeper in (OffloadedActivations(least_bytes=0), OffloadedActivations()):
        engine = engine_of(folder, train)
        engine._kept = lambda keeper=keeper: keeper  # type: ignore[method-assign, misc]
        results.append(gathered_after(engine, samples, SftLoss(), ALL_AT_ONCE, 1))
        moved.append(keeper.moved)
    return moved, results


def resting(folder: Path, samples: Sequence[Sample]) -> list[tuple[dict[str, Tensor], list[dict[str, float]]]]:
    """Weights and metrics after updates of a model that never moves, and of one that rests in CPU memory in between."""
    plain, engine = engine_of(folder, settings()), engine_of(folder, settings())
    metrics, places = [], []
    for _ in range(3):
        metrics += gathered_after(engine, samples, SftLoss(), FEW_AT_ONCE, 1)[1]
        rest(engine)
        places.append([local.data_ptr() for local in held(engine)])
    assert places[0] == places[1] == places[2]
    return [(gathered(engine), metrics), gathered_after(plain, samples, SftLoss(), FEW_AT_ONCE, 3)]


def rest(engine: FsdpEngine) -> None:
    """Have weights and optimizer in CPU memory, as ``FsdpEngine.offload`` does on a GPU."""
    assert engine.optimizer is not None
    engine._host.take_model(engine.model)
    engine._host.take_optimizer(engine.optimizer)
    engine._host.wait()
    engine._away |= {"parameters", "optimizer"}


def held(engine: FsdpEngine) -> list[Tensor]:
    """This worker's parts of weights and of the optimizer's state, but for counts of steps."""
    assert engine.optimizer is not None
    parts = [*engine.model.parameters()]
    parts += [value for state in engine.optimizer.state.values() for name, value in state.items() if name != "step"]
    return [part.to_local() for part in parts]  # type: ignore[attr-defined]


class Stream:
    """A stream that notes what it waits for and what runs in it."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self._log = name, log

    def wait_stream(self, other: Stream) -> None:
        self._log.append(f"{self.name} waits for {other.name}")


def order_of_the_optimizer(folder: Path, samples: Sequence[Sample]) -> list[str]:
    """What happens in an update of a model that rests in CPU memory, in order; streams are stood in for."""
    engine, log = engine_of(folder, settings()), list[str]()
    work = Stream("work", log)
    gathered_after(engine, samples, SftLoss(), FEW_AT_ONCE, 1)
    rest(engine)
    assert engine.optimizer is not None
    copy = Tensor.copy_

    @contextmanager
    def stream(entered: Stream) -> Iterator[None]:
        def copied(tensor: Tensor, *args: Any, **options: Any) -> Tensor:
            log.append("copies bring a part beside" if options.get("non_blocking") else "copies bring a part")
            return copy(tensor, *args, **options)

        with patch.object(Tensor, "copy_", copied):
            yield

    class Noted(SftLoss):
        def __call__(self, tensors: Mapping[str, Tensor], totals: Totals) -> LossTerms:
            log.append("forward")
            tensors["log_probs"].register_hook(lambda gradient: log.append("backward"))
            return super().__call__(tensors, totals)

    engine.optimizer.register_step_pre_hook(lambda *_: log.append("step"))
    module = SimpleNamespace(Stream=lambda: Stream("copies", log), stream=stream, current_stream=lambda: work)
    with patch.object(torch, "get_device_module", lambda device: module):
        engine.update(share(samples), Noted(), micro=FEW_AT_ONCE, temperature=1.0, totals=totals_of(samples))
    return log


def resting_uneven(rows: int) -> tuple[Tensor, Tensor]:
    """What a layer says whose rows the workers cannot share alike, before and after it rested in CPU memory."""
    torch.manual_seed(0)
    layer = fully_shard(torch.nn.Linear(4, rows))
    before = layer(torch.ones(1, 4)).detach()
    host = HostCopies(torch.device("cpu"))
    for _ in range(2):
        host.take_model(layer)
        host.wait()
        host.bring_model(layer)
    return before, layer(torch.ones(1, 4)).detach()


class Momentum(torch.optim.Optimizer):
    """An optimizer of another package, as torchao's are: a learning rate that is a tensor, a state that its first step makes."""

    def __init__(self, parameters: Any, lr: float, weight_decay: float, keep: float = 0.5) -> None:
        super().__init__(parameters, {"lr": torch.tensor(lr), "weight_decay": weight_decay, "keep": keep})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            assert isinstance(group["lr"], Tensor)
            for parameter in group["params"]:
                mean = self.state[parameter].setdefault("mean", torch.zeros_like(parameter))
                mean.mul_(group["keep"]).add_(parameter.grad)
                parameter.sub_(mean * group["lr"])
