"""A sync takes the memory of a few buckets, not that of the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, Qwen2Config

from rlctl.config import config_from
from rlctl.runtime.processes.group import LocalGroup, _address
from rlctl.runtime.specs.served import rollout_spec
from rlctl.runtime.specs.trained import trainer_spec
from rlctl.runtime.sync.machine import TrainWorkers, WeightSync
from rlctl.runtime.sync.transport import HostMemory
from rlctl.runtime.train.distributed import leave
from rlctl.runtime.workers.rollout import RolloutWorker
from rlctl.runtime.workers.trainer import Place, Trainer

BUCKET_BYTES = 2 << 20
MODEL = Qwen2Config(
    num_hidden_layers=12, hidden_size=256, intermediate_size=1024, num_attention_heads=4, num_key_value_heads=4,
    vocab_size=512, tie_word_embeddings=True,
)  # fmt: skip


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="there is no /proc to read peaks from")
def test_the_peak_of_both_sides_is_a_few_buckets(tmp_path: Path) -> None:
    """Here both are in one process."""
    AutoModelForCausalLM.from_config(MODEL).save_pretrained(tmp_path)
    model = str(tmp_path)
    config = config_from(
        {
            "model": {"path": model},
            "placement": {"device": "cpu", "devices_per_node": 1},
            "train": {"precision": {"compute": "float32"}},
            "rollout": {"precision": "float32", "engine": "transformers"},
        }
    )
    trainer = Trainer(trainer_spec(config, model, 1), Place(0, 1, *_address()))
    try:
        engine = RolloutWorker(rollout_spec(config, "transformers", model, "cpu"))
        size = sum(parameter.nbytes for parameter in engine._engine.model.parameters())  # type: ignore[attr-defined]
        peaks = [peak_of_a_sync(trainer, engine, bucket_bytes) for bucket_bytes in (1 << 16, BUCKET_BYTES, 1 << 30)]
    finally:
        leave()
    assert size > 48 << 20
    assert peaks[1] < 4 * BUCKET_BYTES
    assert peaks[2] > 0.9 * size, "all in one bucket; else nothing is measured here"


def peak_of_a_sync(trainer: Trainer, engine: RolloutWorker, bucket_bytes: int) -> int:
    """What a sync takes at most beyond what was there before it; a process's first one takes more."""
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of before
    source = TrainWorkers(LocalGroup("policy-0", trainer), HostMemory(), bucket_bytes)
    WeightSync(LocalGroup("rollout-0", engine), 60.0).run(source, 1)
    return memory("VmHWM") - before


def memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024
