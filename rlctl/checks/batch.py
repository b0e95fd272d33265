"""Rules on batches, lengths and the schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from math import isqrt

from rlctl.checks.problem import CheckContext, Problem
from rlctl.common.errors import PlanError
from rlctl.config import Config
from rlctl.planning import arithmetic
from rlctl.planning.memory import context_tokens
from rlctl.planning.models import read_shape


def mini_batches(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A step's responses divide into mini-batches, and these by the replicas."""
    if not arithmetic.trains(config):
        return
    step, mini = arithmetic.responses_per_step(config), arithmetic.mini_batch_responses(config)
    key = ("batch", "mini_batch_responses")
    if mini > step:
        yield Problem(
            "mini-batch-too-large",
            key,
            f"a mini-batch of {mini} responses, and a step has {_step_arithmetic(config)}",
            "{first} or less",
            ((key, step),),
        )
    elif step % mini:
        full, rest = divmod(step, mini)
        yield Problem(
            "mini-batch-uneven",
            key,
            f"a step has {_step_arithmetic(config)}, which is {full} x {mini} + {rest}: the last mini-batch has {rest}",
            "{fix}",
            tuple((key, number) for number in _divisors_near(step, mini)),
        )
    yield from _replicas(config, min(mini, step))


def _step_arithmetic(config: Config) -> str:
    step, prompts = arithmetic.responses_per_step(config), config.batch.prompts_per_step
    if step == prompts:
        return f"{step} responses"
    experts = step - arithmetic.drawn_responses(config)
    if experts:
        return f"{prompts} prompts x {config.batch.responses_per_prompt} + {experts} of experts = {step} responses"
    return f"{prompts} prompts x {config.batch.responses_per_prompt} = {step} responses"


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
        yield Problem(
            "idle-replicas",
            key,
            f"a mini-batch of {mini} responses on {replicas} replicas: {replicas - mini} of them compute nothing",
            "{first} or more, or use fewer devices",
            tuple((key, replicas * factor) for factor in range(1, MULTIPLES)),
        )
    elif mini % replicas:
        below = range(replicas, mini, replicas)[-MULTIPLES:]
        above = range(mini - mini % replicas + replicas, mini + replicas * MULTIPLES, replicas)
        yield Problem(
            "replicas-uneven",
            key,
            f"a mini-batch of {mini} responses on {replicas} replicas is {mini / replicas:.4g} each",
            "for an even split, {fix}",
            tuple((key, number) for number in _outwards(below, above)),
        )


def lengths(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Sequences fit into the context, into the model and into a micro-batch."""
    prompt, response = config.data.max_prompt_tokens, config.rollout.max_response_tokens
    context = config.model.max_context_tokens
    from_data = config.algorithm.objective.choice in ("sft", "dpo")
    if context is not None and not from_data and prompt + response > context:
        yield Problem(
            "context-too-short",
            ("model", "max_context_tokens"),
            f"{prompt} prompt tokens + {response} response tokens = {prompt + response}; the context has {context}",
            "{fix}, or shorten one of the two",
            ((("model", "max_context_tokens"), prompt + response),),
        )
    if config.rollout.sampling.min_response_tokens > response:
        yield Problem(
            "response-bounds",
            ("rollout", "sampling", "min_response_tokens"),
            f"at least {config.rollout.sampling.min_response_tokens} response tokens, and at most {response}",
            "{first} or less, or raise rollout.max_response_tokens",
            ((("rollout", "sampling", "min_response_tokens"), response),),
        )
    longest = context_tokens(config)
    shape = read_shape(config.model.path)
    if shape is not None and shape.max_positions is not None and longest > shape.max_positions:
        yield Problem(
            "model-positions",
            ("data", "max_sequence_tokens") if from_data else ("rollout", "max_response_tokens"),
            f"sequences of up to {longest} tokens; {config.model.path} has {shape.max_positions} positions",
            "shorten prompts and responses",
        )
    for name in ("micro_batch", "log_prob_micro_batch"):
        micro = getattr(config.batch, name)
        if micro is not None and micro.unit == "tokens" and longest > micro.size:
            yield Problem(
                "sequence-over-micro",
                ("batch", name, "size"),
                f"sequences of up to {longest} tokens in micro-batches of {micro.size}",
                "{first} or more",
                ((("batch", name, "size"), longest),),
            )


def schedule(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """The run has an end, and evaluates where it has something to evaluate on."""
    limits = (config.schedule.total_steps, config.schedule.total_epochs, config.schedule.total_optimizer_steps)
    if arithmetic.trains(config) and not any(limits) and not arithmetic.drains_buffer(config):
        yield Problem(
            "no-end",
            ("schedule",),
            "the schedule has no end",
            "set schedule.total_steps or schedule.total_epochs",
            ((("schedule", "total_epochs"), 1),),
        )
    if not arithmetic.trains(config):
        return
    if config.data.eval and not arithmetic.evaluates(config):
        yield Problem(
            "evaluation-never",
            ("data", "eval"),
            f"{len(config.data.eval)} held-out source(s), and schedule.evaluate_every is null",
            "set schedule.evaluate_every, or remove data.eval",
        )
    if config.schedule.evaluate_every is not None and not config.data.eval:
        yield Problem(
            "evaluation-without-data",
            ("schedule", "evaluate_every"),
            "evaluates regularly, and data.eval is empty",
            "add a source to data.eval, or remove schedule.evaluate_every",
        )


RULES = (mini_batches, lengths, schedule)
