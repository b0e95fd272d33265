"""The same numbers from every layout of Megatron-core as from FSDP2 with one worker: same seed, model and samples, in float32.

    python benchmarks/megatron_parity.py                     # every layout, on a tiny model with 4 layers
    python benchmarks/megatron_parity.py --layout "tensor 2" --layout "pipeline 2" --steps 5
    python benchmarks/megatron_parity.py --markdown          # as a table for a page

Each layout runs in gloo processes of its own. A row is the largest difference from FSDP2 over all responses and workers: of
log-probs before and after the optimizer steps, of loss and gradient norm relative to their size, and of the weights after
the steps, which travel as Hugging Face tensors. Needs ``rlctl[megatron]`` and no network.
"""

from __future__ import annotations

import argparse
import io
import queue
import socket
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from rlctl.config.sections.algorithm import Algorithm, KlInLoss
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.model import Model
from rlctl.config.sections.train import Fsdp2, Megatron, Optimizer, PrecisionSettings, Train
from rlctl.runtime.types import Sample

SIZES: dict[str, Any] = {
    "vocab_size": 67,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.1,
}
EXPERTS: dict[str, Any] = {"head_dim": 16, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
MICRO = MicroBatchSize(unit="tokens", size=40)
TEMPERATURE = 0.7

LAYOUTS: dict[str, tuple[str, int, Megatron]] = {
    "one worker": ("qwen2", 1, Megatron()),
    "2 replicas": ("qwen2", 2, Megatron()),
    "tensor 2": ("qwen2", 2, Megatron(tensor_parallel_size=2, sequence_parallel=False)),
    "tensor 2, sequence parallel": ("qwen2", 2, Megatron(tensor_parallel_size=2)),
    "pipeline 2": ("qwen2", 2, Megatron(pipeline_parallel_size=2)),
    "pipeline 2 x 2 chunks": ("qwen2", 2, Megatron(pipeline_parallel_size=2, virtual_pipeline_parallel_size=2)),
    "context 2": ("qwen2", 2, Megatron(context_parallel_size=2)),
    "tensor 2 x pipeline 2": ("qwen2", 4, Megatron(tensor_parallel_size=2, pipeline_parallel_size=2)),
    "tensor 2 x context 2": ("qwen2", 4, Megatron(tensor_parallel_size=2, context_parallel_size=2)),
    "experts, one worker": ("qwen3_moe", 1, Megatron()),
    "expert 2": ("qwen3_moe", 2, Megatron(expert_parallel_size=2)),
    "tensor 2 x expert 2": (
        "qwen3_moe",
        2,
        Megatron(tensor_parallel_size=2, expert_parallel_size=2, expert_tensor_parallel_size=1),
    ),
}


@dataclass
class Told:
    """What one worker says."""

    replica: int
    replicas: int
    before: list[Tensor]
    after: list[Tensor]
    metrics: list[dict[str, float]]
    weights: dict[str, Tensor]


def save_model(family: str, folder: Path) -> None:
    """A random model; norms and biases are not as they were begun."""
    from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3MoeConfig

    config = Qwen3MoeConfig(**SIZES, **EXPERTS) if family == "qwen3_moe" else Qwen2Config(**SIZES)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    model.save_pretrained(folder)


def make_samples(count: int) -> list[Sample]:
    """Responses of different lengths with what a GRPO step with a KL in its loss reads."""
    generator, samples = torch.Generator().manual_seed(1), []
    for _ in range(count):
        length = int(torch.randint(6, 25, (), generator=generator))
        columns = {
            "advantages": torch.randn(length, generator=generator),
            "policy_weights": torch.rand(length, generator=generator),
        }
        for name in ("old_log_probs", "reference_log_probs", "rollout_log_probs"):
            columns[name] = -4 + 0.3 * torch.randn(length, generator=generator)
        mask = torch.arange(length) >= 3
        samples.append(Sample(torch.randint(3, SIZES["vocab_size"], (length,), generator=generator), mask, columns))
    return samples


def work(
    rank: int, world: int, port: int, engine: Any, folder: str, samples: list[Sample], steps: int, told: Any, over: Any
) -> None:
    """One worker: a pass, optimizer steps, a pass."""
    warnings.simplefilter("ignore")
    from rlctl.runtime.train.distributed import join
    from rlctl.runtime.train.engines import make_train_engine
    from rlctl.runtime.train.losses import PolicyLoss, totals_of

    join(rank, world, "127.0.0.1", port, threads=1, timeout=300)
    float32 = PrecisionSettings(parameters="float32", compute="float32", reduce="float32")
    # Adam divides by the size of a gradient: with a tiny epsilon rounding decides where a weight without one goes.
    optimizer = Optimizer(lr=1e-2, epsilon=1e-3, weight_decay=0.1, max_grad_norm=1.0)
    train = Train(engine=engine, precision=float32, optimizer=optimizer)
    made = make_train_engine(Model(path=folder), train, role="policy", seed=1, scheduler_steps=10)
    replica, replicas = rank, world
    if isinstance(engine, Megatron):
        from megatron.core import parallel_state

        replica, replicas = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
    mine = samples[replica::replicas]
    algorithm = Algorithm(kl_in_loss=KlInLoss(estimator="k3", coefficient=0.1), entropy_coefficient=0.01)
    loss, metrics = PolicyLoss.of(algorithm, max_response_tokens=32), []
    before = made.log_probs(mine, temperature=TEMPERATURE, micro=MICRO)
    for _ in range(steps):
        metrics.append(made.update(mine, loss, micro=MICRO, temperature=TEMPERATURE, totals=totals_of(samples)))
        made.step_schedule()
    weights = {name: tensor.clone() for name, tensor in made.export_weights()}
    after = made.log_probs(mine, temperature=TEMPERATURE, micro=MICRO)
    written = io.BytesIO()
    torch.save(Told(replica, replicas, before, after, metrics, weights), written)
    told.put((rank, written.getvalue()))
    over.wait()
    dist.destroy_process_group()


def run(world: int, engine: Any, folder: Path, samples: list[Sample], steps: int) -> list[Told]:
    """What every worker says, by rank."""
    context = mp.get_context("spawn")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    told, over = context.Queue(), context.Event()
    arguments = (world, port, engine, str(folder), samples, steps, told, over)
    workers = [context.Process(target=work, args=(rank, *arguments)) for rank in range(world)]
    for worker in workers:
        worker.start()
    found: dict[int, Told] = {}
    while len(found) < world:
        try:
            rank, written = told.get(timeout=1)
            found[rank] = torch.load(io.BytesIO(written), weights_only=False)
        except queue.Empty:
            if any(worker.exitcode for worker in workers):
                raise SystemExit("a worker ended with an error, which is above") from None
    over.set()
    for worker in workers:
        worker.join()
    return [found[rank] for rank in range(world)]


def furthest(told: Sequence[Told], expected: Told, steps: int) -> list[float]:
    """Log-probs before and after, loss, gradient norm, weights: the largest differences."""

    def tokens(name: str) -> float:
        pairs = [
            pair
            for each in told
            for pair in zip(getattr(each, name), getattr(expected, name)[each.replica :: each.replicas], strict=True)
        ]
        return max(float((mine - theirs).abs().max()) for mine, theirs in pairs)

    def metric(name: str) -> float:
        theirs = [expected.metrics[step][name] for step in range(steps)]
        return max(abs(each.metrics[step][name] / theirs[step] - 1) for each in told for step in range(steps))

    weights = told[0].weights
    apart = max(float((weights[name] - tensor).abs().max()) for name, tensor in expected.weights.items())
    return [tokens("before"), tokens("after"), metric("loss"), metric("grad_norm"), apart]


COLUMNS = ("log-probs", "log-probs after", "loss", "gradient norm", "weights after")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layout", action="append", choices=LAYOUTS, help="only this one; may be repeated")
    parser.add_argument("--steps", type=int, default=3, help="optimizer steps")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    samples, known = make_samples(9), dict[str, tuple[Path, Told]]()

    def show(name: str, cells: Sequence[str]) -> None:
        row = (name.ljust(30), *(cell.rjust(15) for cell in cells))
        print(f"| {' | '.join(row)} |" if given.markdown else "  ".join(row), flush=True)

    show("layout", COLUMNS)
    if given.markdown:
        show("---", ["---"] * len(COLUMNS))
    with tempfile.TemporaryDirectory() as made:
        for name in given.layout or LAYOUTS:
            family, world, engine = LAYOUTS[name]
            if family not in known:
                folder = Path(made, family)
                save_model(family, folder)
                known[family] = folder, run(1, Fsdp2(), folder, samples, given.steps)[0]
            folder, expected = known[family]
            apart = furthest(run(world, engine, folder, samples, given.steps), expected, given.steps)
            show(name, [f"{value:.1e}" for value in apart])


if __name__ == "__main__":
    main()
