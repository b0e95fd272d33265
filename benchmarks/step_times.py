"""How far simulated steps are from those that people measured: in sample, and with each source left out of the fit.

    python benchmarks/step_times.py [--fit]

``measured/steps.toml`` has the points with their sources. ``--fit`` searches the constants of time in
``rlctl/planning/memory/fitted.py`` again, without each source in turn.
"""

from __future__ import annotations

import argparse
import itertools
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rlctl.config import Config, config_from
from rlctl.planning.arithmetic import Cluster
from rlctl.planning.machines import named_cluster
from rlctl.planning.memory import StepCost, cost_of, fitted
from rlctl.planning.memory.lengths import Lengths, of_mean

POINTS = Path(__file__).with_name("measured") / "steps.toml"
CLOSE, FAR = 1.5, 2.5
UNSET: Mapping[str, Any] = {"mini": 512, "micro": 1, "eager": False, "recompute": True, "share": 0.6, "ahead": 0}
SEARCHED: Mapping[str, Sequence[float]] = {
    "TRAINING": tuple(n / 100 for n in range(25, 75, 5)),
    "DECODING": tuple(n / 100 for n in range(20, 80, 5)),
    "LAUNCH": tuple(n * 4e-5 for n in range(2, 15)),
    "LINK": tuple(n / 20 for n in range(1, 15)),
}
"""Values that the fit tries for each constant."""


def points() -> list[dict[str, Any]]:
    """The table."""
    table: list[dict[str, Any]] = tomllib.loads(POINTS.read_text(encoding="utf-8"))["step"]
    return table


def config_of(point: Mapping[str, Any]) -> Config:
    """A point as a config."""
    values, cluster = {**UNSET, **point["set"]}, named_cluster(point["cluster"])
    engine = {"type": "megatron", **values["megatron"]} if "megatron" in values else {"type": "fsdp2"}
    if "megatron" in values and values["recompute"]:
        engine["recompute_granularity"] = "full"
    if "ulysses" in values:
        engine["ulysses_sequence_parallel_size"] = values["ulysses"]
    if "lora" in values:
        engine["offload"] = "both"
    adapters = {"lora": {"rank": values.get("lora"), "alpha": values.get("lora"), "target_modules": ["all-linear"]}}
    return config_from(
        {
            "model": {"path": values["path"], **(adapters if "lora" in values else {})},
            "data": {"train": [{"path": "train.jsonl"}], "max_prompt_tokens": 512},
            "rollout": {
                "max_response_tokens": values["longest"],
                "parallel": {"tensor_parallel_size": values["tensor"]},
                "memory": {"gpu_memory_utilization": values["share"], "enforce_eager": values["eager"]},
            },
            "algorithm": {"kl_in_loss": {"coefficient": 0.001}, "old_log_probs": "recompute"},
            "batch": {
                "prompts_per_step": values["prompts"],
                "responses_per_prompt": values["n"],
                "mini_batch_responses": min(values["mini"], values["prompts"] * values["n"]),
                "micro_batch": {"unit": "tokens", "size": values["packed"]}
                if "packed" in values
                else {"unit": "responses", "size": values["micro"]},
            },
            "train": {"engine": engine, "memory": {"recompute_activations": values["recompute"]}},
            "placement": {
                "nodes": cluster.nodes,
                "devices_per_node": cluster.devices_per_node,
                **_split(values, cluster),
            },
            "weight_sync": {"max_steps_ahead": values["ahead"], "in_flight_requests": "continue"},
            "rewards": [{"type": "rule"}],
        }
    )


def _split(values: Mapping[str, Any], cluster: Cluster) -> dict[str, Any]:
    """Devices of rollout, if it has its own."""
    nodes = values.get("rollout_nodes")
    return {"layout": "split", "rollout_devices": nodes * cluster.devices_per_node} if nodes else {}


@cache
def _case(number: int) -> tuple[Config, Cluster, Lengths]:
    point = points()[number]
    values = point["set"]
    lengths = of_mean(values["prompt"], values["response"], values.get("most", values["longest"]))
    return config_of(point), named_cluster(point["cluster"]), lengths


def cost(number: int) -> StepCost:
    """The estimate of a point of the table."""
    config, cluster, lengths = _case(number)
    found = cost_of(config, cluster=cluster, lengths=lengths, ahead=config.weight_sync.max_steps_ahead > 0)
    assert found is not None
    return found


def ratios(numbers: Iterable[int]) -> list[float]:
    """Estimate / measured of points."""
    table = points()
    return [(cost(number).step_seconds or 0.0) / table[number]["seconds"] for number in numbers]


def within(found: Sequence[float], factor: float) -> float:
    """Share of ratios within a factor."""
    return sum(1 / factor <= each <= factor for each in found) / len(found)


def loss(numbers: Sequence[int]) -> float:
    """What the fit makes small: squared logarithms of the ratios."""
    return sum(math.log(each) ** 2 for each in ratios(numbers))


def fit(numbers: Sequence[int]) -> dict[str, float]:
    """The constants with the least loss: one after the other, three times."""
    before = {name: getattr(fitted, name) for name in SEARCHED}
    for name in itertools.chain(*[SEARCHED] * 3):
        setattr(fitted, name, min(SEARCHED[name], key=lambda value: _loss_with(name, value, numbers)))
    found = {name: getattr(fitted, name) for name in SEARCHED}
    _set(before)
    return found


def _loss_with(name: str, value: float, numbers: Sequence[int]) -> float:
    setattr(fitted, name, value)
    return loss(numbers)


def _set(constants: Mapping[str, float]) -> None:
    for name, value in constants.items():
        setattr(fitted, name, value)


def left_out() -> Iterator[tuple[str, dict[str, float], list[float]]]:
    """Each source, the constants that are fitted without it, and its ratios with these."""
    table = points()
    for source in dict.fromkeys(point["source"] for point in table):
        own = [number for number, point in enumerate(table) if point["source"] == source]
        constants = fit([number for number in range(len(table)) if number not in own])
        before = {name: getattr(fitted, name) for name in constants}
        _set(constants)
        yield source, constants, ratios(own)
        _set(before)


def line(title: str, found: Sequence[float]) -> str:
    """Errors as one line."""
    return (
        f"{title:<22} {within(found, CLOSE):.0%} of {len(found)} within {CLOSE}, {within(found, FAR):.0%} within {FAR}, "
        f"{min(found):.2f} to {max(found):.2f}"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--fit", action="store_true")
    asked = options.parse_args()
    table = points()
    for number, point in enumerate(table):
        found = cost(number)
        parts = f"{found.training_seconds:7.1f} {found.generation_seconds:7.1f} {found.moving_seconds:6.1f}"
        ratio = (found.step_seconds or 0.0) / point["seconds"]
        print(f"  {ratio:.2f}  {parts} of {point['seconds']:6.1f}  {point['set']['path']} {point['cluster']}")
    print(line("  all", ratios(range(len(table)))))
    if asked.fit:
        print("fitted to all:", fit(range(len(table))))
        every: list[float] = []
        for source, constants, found_ratios in left_out():
            every += found_ratios
            print(line(f"  without {source}", found_ratios), constants)
        print(line("  all, left out", every))


if __name__ == "__main__":
    main()
