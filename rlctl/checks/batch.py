"""Rules on batches, lengths and the schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from math import isqrt

from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common.errors import PlanError
from rlctl.common.messages import text
from rlctl.config import Config
from rlctl.config.sections.agents import ToolsAgent
from rlctl.planning import arithmetic
from rlctl.planning.memory import context_tokens
from rlctl.planning.models import read_shape


def mini_batches(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A step's responses divide into mini-batches, and these by the replicas."""
    if not arithmetic.trains(config) or _several_rows(config):
        return
    step, mini = arithmetic.responses_per_step(config), arithmetic.mini_batch_responses(config)
    key = ("batch", "mini_batch_responses")
    if mini > step:
        yield problem("mini-batch-too-large", key, [(key, step)], mini=mini, step=_step_arithmetic(config))
    elif step % mini:
        full, rest = divmod(step, mini)
        yield problem(
            "mini-batch-uneven",
            key,
            [(key, number) for number in _divisors_near(step, mini)],
            step=_step_arithmetic(config),
            full=full,
            mini=mini,
            rest=rest,
        )
    yield from _replicas(config, min(mini, step))


def _several_rows(config: Config) -> bool:
    """Whether a trajectory may give several training rows, so that a step's number of rows is known only when it is played."""
    return any(not isinstance(agent, ToolsAgent) for agent in arithmetic.agents_of(config).values())


def _step_arithmetic(config: Config) -> str:
    step, prompts = arithmetic.responses_per_step(config), config.batch.prompts_per_step
    each = config.batch.responses_per_prompt
    if step == prompts:
        return text("step-responses", responses=step)
    experts = step - arithmetic.drawn_responses(config)
    if experts:
        return text("step-experts", prompts=prompts, each=each, experts=experts, responses=step)
    return text("step-prompts", prompts=prompts, each=each, responses=step)


_LARGEST_TRIED = 100_000
"""The root of more responses than any step has; a mistyped number may be far larger, and take minutes."""


def _divisors_near(total: int, value: int) -> list[int]:
    """The divisors of a total: the nearest below and above a value first, then the next ones; of a huge total not all."""
    small = [number for number in range(1, min(isqrt(total), _LARGEST_TRIED) + 1) if total % number == 0]
    divisors = sorted({*small, *(total // number for number in small)})
    return _outwards([n for n in divisors if n <= value], [n for n in divisors if n > value])


def _outwards(below: Sequence[int], above: Sequence[int]) -> list[int]:
    """Numbers below and above a value, the nearest two first; both are given from low to high."""
    pairs = zip_longest(reversed(below), above)
    return [number for pair in pairs for number in pair if number is not None]


MULTIPLES = 32
"""Multiples that are tried: a framework that counts prompts can express every n-th of them."""


def _replicas(config: Config, mini: int) -> Iterator[Problem]:
    try:
        replicas = arithmetic.train_replicas(config)
    except PlanError:
        return
    key = ("batch", "mini_batch_responses")
    if mini < replicas:
        yield problem(
            "idle-replicas",
            key,
            [(key, replicas * factor) for factor in range(1, MULTIPLES)],
            mini=mini,
            replicas=replicas,
            idle=replicas - mini,
        )
    elif mini % replicas:
        below = range(replicas, mini, replicas)[-MULTIPLES:]
        above = range(mini - mini % replicas + replicas, mini + replicas * MULTIPLES, replicas)
        yield problem(
            "replicas-uneven",
            key,
            [(key, number) for number in _outwards(below, above)],
            mini=mini,
            replicas=replicas,
            each=f"{mini / replicas:.4g}",
        )


def lengths(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Sequences fit into the context, into the model and into a micro-batch."""
    prompt, response = config.data.max_prompt_tokens, config.rollout.max_response_tokens
    context = config.model.max_context_tokens
    from_data = config.algorithm.objective.choice in ("sft", "dpo")
    if context is not None and not from_data and prompt + response > context:
        yield problem(
            "context-too-short",
            ("model", "max_context_tokens"),
            [(("model", "max_context_tokens"), prompt + response)],
            prompt=prompt,
            response=response,
            total=prompt + response,
            context=context,
        )
    least, key = config.rollout.sampling.min_response_tokens, ("rollout", "sampling", "min_response_tokens")
    if least > response:
        yield problem("response-bounds", key, [(key, response)], least=least, most=response)
    longest = context_tokens(config)
    shape = read_shape(config.model.path)
    if shape is not None and shape.max_positions is not None and longest > shape.max_positions:
        yield problem(
            "model-positions",
            ("data", "max_sequence_tokens") if from_data else ("rollout", "max_response_tokens"),
            longest=longest,
            model=config.model.path,
            positions=shape.max_positions,
        )
    for name in ("micro_batch", "log_prob_micro_batch"):
        micro = getattr(config.batch, name)
        if micro is not None and micro.unit == "tokens" and longest > micro.size:
            key = ("batch", name, "size")
            yield problem("sequence-over-micro", key, [(key, longest)], longest=longest, size=micro.size)


def schedule(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """The run has an end, and evaluates where it has something to evaluate on."""
    limits = (config.schedule.total_steps, config.schedule.total_epochs, config.schedule.total_optimizer_steps)
    if arithmetic.trains(config) and not any(limits) and not arithmetic.drains_buffer(config):
        yield problem("no-end", ("schedule",), [(("schedule", "total_epochs"), 1)])
    if not arithmetic.trains(config):
        return
    if (
        config.data.eval
        and not arithmetic.evaluates(config)
        and not _always_evaluates_last(config, surroundings.runner)
    ):
        yield problem("evaluation-never", ("data", "eval"), count=len(config.data.eval))
    every = ("schedule", "evaluate_every")
    if config.schedule.evaluate_every is not None and not config.data.eval and not surroundings.is_silent(every):
        yield problem("evaluation-without-data", every)


def _always_evaluates_last(config: Config, runner: str) -> bool:
    """Whether a framework evaluates after the last step without any interval: Trinity-RFT, and verl's SFT trainers."""
    return runner == "trinity" or (runner == "verl" and config.algorithm.objective.choice == "sft")


RULES = (mini_batches, lengths, schedule)
