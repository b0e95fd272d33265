"""Shared examples that train on Megatron plan as they are: no key of their layout is refused, and none breaks a rule."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest

from rlctl.adapters import names
from rlctl.checks.megatron import RULES
from rlctl.checks.problem import CheckContext
from rlctl.common.errors import PlanError
from rlctl.config import Config, stages_of
from rlctl.config.sections.train import Megatron
from rlctl.documents import dotted
from rlctl.planning import arithmetic
from rlctl.planning.agents import check_agents
from rlctl.planning.megatron.limits import asked_of
from rlctl.planning.plan import make_plan
from rlctl.planning.support import refusals, unhonoured

from .corpus import examples

SIZES = re.compile(r"(train|critic|reference)\.engine(\.(\w+_parallel_size|sequence_parallel))?")

REFUSED = {
    "verl/overrides/grpo_trainer_run_qwen3_235b_a22b_megatron": "expert 4 * expert_tensor 4 * pipeline 8 = 128, which",
    "roll/examples/qwen2.5-vl-7B-rlvr/rlvr_megatron": "28 heads / tensor parallel size 4 = 7, which",
}
"""Examples that Megatron-core itself refuses, as their devices are not divisible by it, or rlctl, which splits heads for context
parallelism; and our message."""


def with_devices(config: Config) -> Config:
    """A config with a replica's devices where it says one: those of verl's SFT are said to torchrun, not in the config."""
    if arithmetic.devices(config) > 1:
        return config
    engine = config.train.engine
    assert isinstance(engine, Megatron)
    experts = (
        engine.expert_parallel_size
        * (engine.expert_tensor_parallel_size or engine.tensor_parallel_size)
        * engine.pipeline_parallel_size
    )
    count = math.lcm(arithmetic.devices_per_replica(engine), experts)
    return replace(config, placement=replace(config.placement, devices_per_node=count))


def without_refused_agents(config: Config) -> Config:
    """A config less agents that no run plays: what Megatron-core does with its layout does not hang on them."""
    try:
        check_agents(config)
    except PlanError:
        pass
    else:
        return config
    rows: dict[str, Any] = {"agent": None, "agent_key": None, "format": "auto"}
    data = replace(
        config.data,
        train=tuple(replace(source, **rows) for source in config.data.train),
        eval=tuple(replace(source, **rows) for source in config.data.eval),
    )
    return replace(config, data=data, rollout=replace(config.rollout, default_agent=None, agents=()))


@pytest.mark.parametrize("dialect", [name for name in names() if name != "rlctl"])
def test_examples_on_megatron_plan_with_every_key_of_their_layout(dialect: str) -> None:
    problems, planned = {}, 0
    for example in examples(dialect):
        if example.is_default:
            continue  # some name groups of files that are in the framework's package and not beside them
        loaded, _ = example.read()
        for stage in stages_of(loaded.config) if loaded is not None else ():
            if not list(asked_of(stage.config)):
                continue
            config = with_devices(stage.config)
            found = [problem for rule in RULES for problem in rule(config, CheckContext())]
            wrong = [
                each.message
                for each in found
                if each.code in ("megatron-layout", "context-parallel", "tensor-over-node")
            ]
            not_done = [each for each in unhonoured(config) if SIZES.fullmatch(dotted(each.key))]
            refused = [each for each in refusals(config) if each.key[1:2] == ("engine",)]
            wrong += [f"{dotted(each.key)}: {each.reason}" for each in (*not_done, *refused)]
            plan = make_plan(without_refused_agents(config)).stages[0]
            wrong += [role.role for role in plan.roles if role.engine == "megatron" and role.replicas < 1]
            planned += 1
            known = REFUSED.get(example.name)
            if [each for each in wrong if known is None or known not in each] or (known is not None and not wrong):
                problems[example.name] = wrong
    if not planned:
        pytest.skip("the shared examples are not here")
    assert problems == {}
