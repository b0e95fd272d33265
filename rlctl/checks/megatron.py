"""Rules on the Megatron engine: its layout, and what it does not do."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.checks.problem import CheckContext, Problem
from rlctl.common.errors import PlanError
from rlctl.config import Config
from rlctl.config.sections.train import Megatron
from rlctl.planning import arithmetic
from rlctl.planning.megatron.layout import broken
from rlctl.planning.megatron.limits import asked_of, limits
from rlctl.planning.memory import context_tokens
from rlctl.planning.models import read_shape


def layouts(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """What a model is shared by divides it, and the devices."""
    found: list[Problem] = []
    for asked in asked_of(config):
        devices, shape = len(arithmetic.devices_of(config, asked.role)), read_shape(asked.model.path)
        per_node = config.placement.devices_per_node
        for each in broken(asked.engine, devices=devices, per_node=per_node, shape=shape, section=asked.section):
            code = "tensor-over-node" if each.slow else "megatron-layout"
            key = (asked.section, "engine", *each.key.split("."))
            found.append(Problem(code, key, f"{asked.role}: {each.message}", each.hint))
    yield from _once(found)


def beyond(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """What is asked of the Megatron engine is there, or no number hangs on it."""
    found: list[Problem] = []
    for each in (limit for asked in asked_of(config) for limit in limits(asked)):
        key = tuple(each.key.split("."))
        told = "not-applied" if surroundings.is_silent(key) else "not-used"
        found.append(Problem(told if each.noted else "not-supported", key, each.message, each.hint))
    yield from _once(found)


def idle_stages(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A mini-batch has micro-batches for all stages of the policy's pipeline."""
    engine = config.train.engine
    if not isinstance(engine, Megatron) or engine.pipeline_parallel_size == 1 or not arithmetic.trains(config):
        return
    try:
        replicas = arithmetic.train_replicas(config)
    except PlanError:
        return
    mini, micro, stages = (
        arithmetic.mini_batch_responses(config),
        config.batch.micro_batch,
        engine.pipeline_parallel_size,
    )
    share = -(-mini // replicas)
    total = share if micro.unit == "responses" else share * context_tokens(config)
    count = -(-total // micro.size)
    if count < stages:
        slots = count + stages - 1
        up_to = "" if micro.unit == "responses" else "up to "
        yield Problem(
            "pipeline-idle",
            ("train", "engine", "pipeline_parallel_size"),
            f"a mini-batch of {mini} / {replicas} replicas = {share} responses, in {up_to}{count} micro-batches for {stages} "
            f"stages: a stage waits for ({stages} - 1) / ({count} + {stages} - 1) = {stages - 1} / {slots} = "
            f"{(stages - 1) / slots:.0%} of the time",
            "{fix}, or lower train.engine.pipeline_parallel_size",
            ((("batch", "micro_batch", "size"), max(1, total // stages)),),
        )


def _once(problems: list[Problem]) -> Iterator[Problem]:
    """Each key once for each code: roles that share a section break its rules together."""
    told = set()
    for problem in problems:
        if (problem.code, problem.key) not in told:
            told.add((problem.code, problem.key))
            yield problem


RULES = (layouts, beyond, idle_stages)
