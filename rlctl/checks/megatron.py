"""Rules on the Megatron engine: its layout, and what it does not do."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common.errors import PlanError
from rlctl.config import Config
from rlctl.config.sections.train import Megatron
from rlctl.planning import arithmetic
from rlctl.planning.megatron.layout import broken
from rlctl.planning.megatron.limits import asked_of, limits
from rlctl.planning.memory import context_tokens
from rlctl.planning.models import read_shape
from rlctl.planning.support import RLCTL


def layouts(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """What a model is shared by divides it, and the devices."""
    found: list[Problem] = []
    for asked in asked_of(config):
        devices, shape = len(arithmetic.devices_of(config, asked.role)), read_shape(asked.model.path)
        per_node = config.placement.devices_per_node
        for each in broken(asked.engine, devices=devices, per_node=per_node, shape=shape, section=asked.section):
            own = "context-parallel" if each.key == "context_parallel_size" else "megatron-layout"
            code = "tensor-over-node" if each.slow else own
            key = (asked.section, "engine", *each.key.split("."))
            if asked.role == "reference" and surroundings.runner != RLCTL and surroundings.is_silent(key):
                continue  # which follows the policy there
            found.append(problem(code, key, role=asked.role, reason=each.message, advice=each.hint))
    yield from _once(found)


def beyond(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """What is asked of the Megatron engine is there, or no number hangs on it."""
    found: list[Problem] = []
    for each in (limit for asked in asked_of(config) for limit in limits(asked)):
        key = tuple(each.key.split("."))
        told = "not-applied" if surroundings.is_silent(key) else "not-used"
        found.append(
            problem(f"{told if each.noted else 'not-supported'}_engine", key, reason=each.message, advice=each.hint)
        )
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
        yield problem(
            "pipeline-idle" if micro.unit == "responses" else "pipeline-idle_tokens",
            ("train", "engine", "pipeline_parallel_size"),
            [(("batch", "micro_batch", "size"), max(1, total // stages))],
            mini=mini,
            replicas=replicas,
            share=share,
            count=count,
            stages=stages,
            idle=f"{(stages - 1) / slots:.0%}",
        )


def _once(problems: list[Problem]) -> Iterator[Problem]:
    """Each key once for each code: roles that share a section break its rules together."""
    told = set()
    for each in problems:
        if (each.code, each.key) not in told:
            told.add((each.code, each.key))
            yield each


RULES = (layouts, beyond, idle_stages)
