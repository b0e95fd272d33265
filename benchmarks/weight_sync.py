"""Weight sync and checkpoints against a plain copy of the same bytes, on CPU.

    python benchmarks/weight_sync.py                     # 100 million float32 parameters
    python benchmarks/weight_sync.py --layers 24 --width 1024 --bucket-mib 64

One process has the training engine, the rollout engine and the plain copy, in turns: what a sync costs beside the copy is
gathering, packing into buckets, one copy into memory that both can see, as into Ray's, and loading into the engine; processor
time, as the machine may be busy. Checkpoints are compared with writing the same number of bytes to one file, with fsync, in
wall time; of asynchronous ones only what training waits for counts. All are medians.
"""

from __future__ import annotations

import argparse
import mmap
import os
import pickle
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlctl.config import config_from
from rlctl.config.sections.output import Checkpoint
from rlctl.runtime.processes.group import _address
from rlctl.runtime.specs.served import rollout_spec
from rlctl.runtime.specs.trained import trainer_spec
from rlctl.runtime.sync.bucket import MIB, Packer
from rlctl.runtime.sync.sender import Message
from rlctl.runtime.sync.transport import HostMemory
from rlctl.runtime.train.distributed import leave
from rlctl.runtime.workers.rollout import RolloutWorker
from rlctl.runtime.workers.trainer import Place, Trainer


def make_model(folder: Path, *, layers: int, width: int) -> None:
    shape = Qwen2Config(
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=4 * width,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        vocab_size=4096,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    Qwen2ForCausalLM(shape).save_pretrained(folder)


def seconds(action: Callable[[], object], rounds: int, clock: Callable[[], float] = time.process_time) -> float:
    action()
    found = []
    for _ in range(rounds):
        began = clock()
        action()
        found.append(clock() - began)
    return median(found)


def through(memory: mmap.mmap, message: Any) -> Any:
    """A message as it comes out of memory that processes share, and that is used again."""
    buffers: list[pickle.PickleBuffer] = []
    packed = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    place, shared = 0, []
    for buffer in buffers:
        raw = buffer.raw()
        memory[place : place + len(raw)] = raw
        shared.append(memoryview(memory)[place : place + len(raw)].toreadonly())
        place += len(raw)
    return pickle.loads(packed, buffers=shared)


def write(folder: Path, data: torch.Tensor) -> None:
    """One file of these bytes, durable."""
    with (folder / "plain").open("wb") as file:
        file.write(data.numpy().data)
        os.fsync(file.fileno())


def seconds_of_start(trainer: Trainer, folder: Path, settings: Checkpoint, rounds: int) -> float:
    """Until an asynchronous checkpoint lets training go on."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        trainer.save(folder, replace(settings, asynchronous=True))
        found.append(time.perf_counter() - began)
        trainer.is_saved(wait=True)
    return median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--bucket-mib", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_model(folder / "model", layers=options.layers, width=options.width)
        config = config_from(
            {
                "model": {"path": str(folder / "model")},
                "placement": {"device": "cpu", "devices_per_node": 1},
                "train": {"precision": {"compute": "float32"}},
                "rollout": {"precision": "float32"},
            }
        )
        trainer = Trainer(trainer_spec(config, str(folder / "model"), 1), Place(0, 1, *_address()))
        engine = RolloutWorker(rollout_spec(config, "transformers", str(folder / "model"), "cpu"))
        weights = [(name, tensor.clone()) for name, tensor in trainer._engine.export_weights()]
        flat = torch.cat([tensor.reshape(-1) for _, tensor in weights])
        target = torch.empty_like(flat)
        size = flat.numel() * flat.element_size()

        transport, memory = HostMemory(), mmap.mmap(-1, 2 * size)

        def sync() -> None:
            message, opens = trainer.begin_weights(transport, options.bucket_mib * MIB), transport
            while message is not None:
                engine.load_bucket(1, replace(message, content=through(memory, message.content)), opens)
                message, opens = trainer.next_bucket(), None

        def load() -> None:
            engine.load_bucket(1, Message(whole, last=True), transport)

        def pack() -> None:
            message = trainer.begin_weights(transport, options.bucket_mib * MIB)
            while message is not None:
                message = trainer.next_bucket()

        whole = Packer(torch.device("cpu")).pack(weights)
        copying = seconds(lambda: target.copy_(flat), options.rounds)
        packing = seconds(pack, options.rounds)
        loading = seconds(load, options.rounds)
        syncing = seconds(sync, options.rounds)
        writing = seconds(lambda: write(folder, flat), options.rounds, time.perf_counter)
        saving = seconds(lambda: trainer.save(folder / "checkpoint"), options.rounds, time.perf_counter)
        hidden = seconds_of_start(trainer, folder / "checkpoint", config.checkpoint, options.rounds)
        saved = sum(file.stat().st_size for file in (folder / "checkpoint").rglob("*") if file.is_file())
        leave()
    print(f"{size / 2**20:.0f} MiB of weights")
    print(f"plain copy {copying:.3f} s, packed {packing:.3f} s, loaded {loading:.3f} s, synchronised {syncing:.3f} s")
    print(f"ratio   {syncing / copying:.1f} (a sync to a copy)")
    plain = writing * saved / size
    print(f"checkpoint of {saved / 2**20:.0f} MiB: {saving:.3f} s; plain file of as many bytes: {plain:.3f} s")
    print(f"ratio   {saving / plain:.2f} (a checkpoint to a plain file)")
    print(f"ratio   {hidden / saving:.2f} (what training waits for, asynchronous to not: {hidden:.3f} s)")


if __name__ == "__main__":
    main()
