"""Rules on the Megatron engine: its layout, and what it does not do."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl import arithmetic
from rlctl.checks.problem import Problem, Surroundings
from rlctl.config import Config
from rlctl.megatron.layout import broken
from rlctl.megatron.limits import asked_of, limits
from rlctl.model_shape import read_shape


def layouts(config: Config, surroundings: Surroundings) -> Iterator[Problem]:
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


def beyond(config: Config, surroundings: Surroundings) -> Iterator[Problem]:
    """What is asked of the Megatron engine is there."""
    found = [limit for asked in asked_of(config) for limit in limits(asked)]
    yield from _once([Problem("not-supported", tuple(each.key.split(".")), each.message, each.hint) for each in found])


def _once(problems: list[Problem]) -> Iterator[Problem]:
    """Each key once for each code: roles that share a section break its rules together."""
    told = set()
    for problem in problems:
        if (problem.code, problem.key) not in told:
            told.add((problem.code, problem.key))
            yield problem


RULES = (layouts, beyond)
