"""Times, speeds and memory are what a person works out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlctl.config import config_from
from rlctl.planning.memory import GIB, GPUS
from rlctl.planning.plan import make_plan
from rlctl.runtime.profiling.throughput import Interval, Speed, covered, phase_times, worker_metrics
from rlctl.runtime.profiling.usage import Gpu, SameCalls, Usage
from rlctl.runtime.reporting.metrics import describe
from rlctl.runtime.specs.stage import speed_of

TINY = {
    "model_type": "qwen2",
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 16,
    "vocab_size": 32,
    "tie_word_embeddings": True,
}
"""A layer: q and o 8 x 8, k and v 8 x 4, biases 8 + 4 + 4, MLP 3 x 8 x 16, norms 16: 608. In all 2 x 608 + 32 x 8 + 8 = 1480."""
FORWARD_OF_10 = 10 * (2 * 1480 + 2 * 2 * 10 * 8)
"""Of a sequence of 10: 2 a parameter; scores and their sums over 5 tokens on average, 2 x 2 x 5 x 8 a layer and token."""


def speed_in(folder: Path, **sections: Any) -> Speed:
    (folder / "config.json").write_text(json.dumps(TINY))
    config = config_from(
        {
            "model": {"path": str(folder), **sections.pop("model", {})},
            "schedule": {"total_steps": 1},
            "placement": {"device": "cpu", "devices_per_node": 2},
            **sections,
        }
    )
    return speed_of(config, make_plan(config).stages[0])


def call(worker: str, *, seconds: float = 1.0, resident: float = 1.0, gpu: Gpu | None = None) -> SameCalls:
    return SameCalls([worker], "method", [Usage(100.0, seconds, 7, int(resident * GIB), gpu)])


def test_phases_that_overlap_cover_their_time_once() -> None:
    """1 to 3, 2 to 5, 4 to 4.5 and 8 to 12, of 2 to 10: 2 to 5 and 8 to 10."""
    phases = [Interval("a", 8, 4), Interval("b", 2, 3), Interval("a", 4, 0.5), Interval("c", 1, 2)]
    assert covered(phases, 2, 10) == 5
    times = phase_times(phases, 2, 8)
    assert times == {"time/a": 4.5, "time/b": 3, "time/c": 2, "time/idle": 3, "time/step": 8}


def test_workers_are_busy_for_their_calls_and_weigh_what_the_heaviest_does() -> None:
    gpus = [Gpu("NVIDIA H100", int(1 * GIB), int(2 * GIB), int(9 * GIB)), Gpu("x", int(3 * GIB), int(4 * GIB), 0)]
    calls = [
        call("policy-0", seconds=2, resident=3, gpu=gpus[0]),
        call("policy-0", seconds=1, gpu=gpus[1]),
        call("policy-1", seconds=1),
        call("reward_model-0", seconds=4),
    ]
    found = worker_metrics(calls, 4.0)
    assert found.pop("memory/controller/resident") > 0
    assert found == {
        "worker/policy/busy_share": 0.5,
        "memory/policy/resident": 3,
        "memory/policy/gpu_allocated": 3,
        "memory/policy/gpu_reserved": 4,
        "memory/policy/gpu_peak": 9,
        "worker/reward_model/busy_share": 1.0,
        "memory/reward_model/resident": 1,
    }
    assert all(describe(name) for name in found)


def test_tokens_a_second(tmp_path: Path) -> None:
    times = {"time/step": 4.0, "time/train": 2.0, "time/rollout": 0.5}
    found = speed_in(tmp_path).metrics([10, 20], 12, 15.0, times, [call("policy-0")])
    assert found == {
        "throughput/tokens_per_second": 3.0,
        "throughput/responses_per_second": 0.5,
        "throughput/tokens_per_second_per_device": 1.5,
        "throughput/trained_tokens_per_second": 15.0,
        "throughput/drawn_tokens_per_second": 30.0,
    }
    assert all(describe(name) for name in found)


def test_mfu_is_the_arithmetic_by_hand_over_the_peak(tmp_path: Path) -> None:
    """Forward and twice as much backward, in two epochs, by two devices of 1,000 operations a second."""
    given = {"profiling": {"peak_tflops": 1e-9}, "batch": {"ppo_epochs": 2}}
    found = speed_in(tmp_path, **given).metrics([10, 10], 12, 0.0, {"time/step": 400.0, "time/train": 100.0}, [])
    assert found["throughput/mfu"] == pytest.approx(2 * 3 * 2 * FORWARD_OF_10 / (100 * 2 * 1000))
    assert found["throughput/step_mfu"] == pytest.approx(found["throughput/mfu"] / 4)


def test_adapters_need_no_gradients_of_the_weights_below(tmp_path: Path) -> None:
    whole, adapted = speed_in(tmp_path), speed_in(tmp_path, model={"lora": {"rank": 2}})
    assert (whole.flops([10]), adapted.flops([10])) == (3 * FORWARD_OF_10, 2 * FORWARD_OF_10)


def test_the_peak_of_a_gpu_is_known_where_it_is_computed_in_half_precision(tmp_path: Path) -> None:
    times = {"time/step": 2.0, "time/train": 1.0}
    calls = [call("rollout-0"), call("policy-0", gpu=Gpu("NVIDIA H100 80GB HBM3", 0, 0, 0))]
    half = {"train": {"precision": {"compute": "bfloat16"}}}
    found = speed_in(tmp_path, **half).metrics([10], 5, 0.0, times, calls)
    assert found["throughput/mfu"] == pytest.approx(3 * FORWARD_OF_10 / (2 * GPUS["H100"].tflops * 1e12))
    for metrics in (
        speed_in(tmp_path, train={"precision": {"compute": "float32"}}).metrics([10], 5, 0.0, times, calls),
        speed_in(tmp_path, **half).metrics([10], 5, 0.0, times, [call("policy-0")]),
        speed_in(tmp_path, **half).metrics(
            [10], 5, 0.0, times, [call("policy-0", gpu=Gpu("NVIDIA GeForce RTX 9090", 0, 0, 0))]
        ),
    ):
        assert "throughput/mfu" not in metrics
