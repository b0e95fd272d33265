"""The best values that fit: each is the last one by the plan itself, and a refused one gives way to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rlctl.common.errors import PlanError, UsageError
from rlctl.config import Config, config_from
from rlctl.planning.arithmetic import Cluster
from rlctl.planning.memory_terms import OWN
from rlctl.planning.plan import make_plan
from rlctl.planning.solving import QUANTITIES, Fix, _with, in_order, lacks, machines_of, solve

FORTY = Cluster(1, 8, "cuda", gib_per_device=40)


def grpo(**sections: Any) -> Config:
    base: dict[str, Any] = {
        "model": {"path": "Qwen/Qwen2.5-7B"},
        "data": {"max_prompt_tokens": 1024},
        "rollout": {"max_response_tokens": 3072, "memory": {"gpu_memory_utilization": 0.4}},
        "batch": {"prompts_per_step": 64, "responses_per_prompt": 8, "micro_batch": {"unit": "responses", "size": 2}},
        "placement": {"devices_per_node": 8},
        "rewards": [{"type": "rule"}],
    }
    return config_from({**base, **sections})


def anything(config: Config, fixes: Sequence[Fix]) -> str:
    return ""


@pytest.mark.parametrize("name", QUANTITIES)
def test_the_best_value_fits_by_the_plan_and_the_next_does_not(name: str) -> None:
    config = grpo()
    machines = machines_of(config, FORTY, OWN)
    [found] = solve(config, [name], machines, anything).solutions
    changed = _with(config, found.fixes)
    assert changed is not None
    cluster = Cluster(changed.placement.nodes, changed.placement.devices_per_node, "cuda", gib_per_device=40)
    [stage] = make_plan(changed, cluster=cluster).stages
    assert stage.fit is not None
    assert stage.fit.fits
    if found.stop is not None:
        further = QUANTITIES[name].fixes(config, found.stop.value, machines)
        assert lacks(_with(config, further), machines) > 0
        assert found.stop.reason or found.stop.gib > 0.95 * 40
        assert found.stop.reason or found.stop.part


def test_the_part_that_stops_it_is_the_one_that_grows() -> None:
    config = grpo(model={"path": "Qwen/Qwen2.5-1.5B"}, train={"memory": {"recompute_activations": False}})
    [found] = solve(config, ["micro-batch"], machines_of(config, FORTY, OWN), anything).solutions
    assert found.stop is not None
    assert (found.stop.phase, found.stop.part) == ("train", "policy activations")


def test_a_refused_value_gives_way_to_the_next_that_divides() -> None:
    config = grpo()
    machines = machines_of(config, FORTY, OWN)

    def up_to_eight(config: Config, fixes: Sequence[Fix]) -> str:
        return "too many" if config.batch.micro_batch.size > 8 else ""

    [found] = solve(config, ["micro-batch"], machines, up_to_eight).solutions
    assert found.values == (8,)
    assert found.stop is not None
    assert found.stop.reason == "too many"
    nothing = solve(config, ["micro-batch"], machines, lambda config, fixes: "never")
    assert (nothing.solutions, nothing.refusal) == ((), "never")


def test_a_table_holds_only_rows_of_which_none_is_better_in_everything() -> None:
    config = grpo()
    names = in_order(["micro-batch", "max_response_length"])
    assert names == ["max_response_length", "micro-batch"]
    rows = [each.values for each in solve(config, names, machines_of(config, FORTY, OWN), anything).solutions]
    assert len(rows) > 2
    assert rows == sorted(rows)
    assert [micro for _, micro in rows] == sorted((micro for _, micro in rows), reverse=True)


def test_nothing_fits_where_even_the_least_is_too_much() -> None:
    config = grpo(model={"path": "Qwen/Qwen2.5-72B"})
    assert not solve(config, ["micro-batch"], machines_of(config, FORTY, OWN), anything).solutions


def test_stages_are_all_to_fit() -> None:
    long = {"name": "long", "rollout": {"max_response_tokens": 30000}}
    one, two = (
        solve(config, ["micro-batch"], machines_of(config, FORTY, OWN), anything).solutions
        for config in (grpo(), grpo(stages=[{"name": "short"}, long]))
    )
    assert one[0].values > two[0].values


def test_what_cannot_be_solved_is_refused() -> None:
    with pytest.raises(PlanError, match="memory is known"):
        machines_of(grpo(), Cluster(1, 8, "cuda"), OWN)
    with pytest.raises(PlanError, match="no/model"):
        machines_of(grpo(model={"path": "no/model"}), FORTY, OWN)
    with pytest.raises(UsageError, match="micro-batch"):
        solve(grpo(), ["micro"], machines_of(grpo(), FORTY, OWN), anything)
    with pytest.raises(UsageError, match="twice"):
        in_order(["gpus", "gpus"])
