"""Shared examples that plan on GPUs also plan on the two cores of a laptop: scaled down, and with small models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlctl.adapters import names
from rlctl.checks import check
from rlctl.common.report import Level
from rlctl.planning.plan import Cluster, make_plan
from rlctl.planning.scaling import scaled_to_cpu
from rlctl.runs.tiny import tiny

from .corpus import at_least, examples

GPUS, LAPTOP = Cluster(64, 8, "cuda"), Cluster(1, 2, "cpu", cpus_per_node=2)
OF_DATA = ("path-missing", "no-data")
FEWEST = 8
"""Examples of a dialect that rlctl runs."""


@pytest.mark.parametrize("dialect", [name for name in names() if name != "rlctl"])
def test_what_plans_on_gpus_plans_on_two_cores(dialect: str, tmp_path: Path) -> None:
    chosen = [example for example in examples(dialect) if not example.is_default]
    planned = 0
    for number, example in enumerate(chosen):
        loaded, _ = example.read()
        assert loaded is not None, example.name
        if errors(loaded.config, GPUS):
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        for small in (
            scaled_to_cpu(loaded.config, workers=2)[0],
            tiny(loaded, folder, prompts=4, steps=2)[0].config,
        ):
            assert errors(small, LAPTOP) == [], example.name
            plan = make_plan(small, cluster=LAPTOP)
            assert (plan.device, plan.nodes * plan.devices_per_node <= 2) == ("cpu", True)
        planned += 1
    assert planned >= at_least(FEWEST)


def errors(config: Any, cluster: Cluster) -> list[str]:
    found = check(config, cluster=cluster)
    return [each.message for each in found if each.level is Level.ERROR and each.code not in OF_DATA]
