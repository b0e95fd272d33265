"""Rules on what the runtime does not do, from the support table."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl import arithmetic
from rlctl.checks.problem import Problem, Surroundings
from rlctl.config import Config
from rlctl.documents.paths import dotted
from rlctl.support import VLLM, refusals


def supported(config: Config, surroundings: Surroundings) -> Iterator[Problem]:
    """Every key that is set is one the runtime honours; a dialect's own default that changes no number is told."""
    for refusal in refusals(config):
        message = f"'{dotted(refusal.key)}': {refusal.reason}"
        if not refusal.numbers and surroundings.is_silent(refusal.key):
            yield Problem("not-applied", refusal.key, message)
        else:
            yield Problem("not-supported", refusal.key, message, "set it back, or remove it")


def automatic_engine(config: Config, surroundings: Surroundings) -> Iterator[Problem]:
    """``auto`` is an engine that the runtime has: on GPUs it means vLLM."""
    known = surroundings.cluster
    on_gpu = config.placement.device == "cuda" or (
        config.placement.device == "auto" and known is not None and known.device == "cuda"
    )
    if on_gpu and config.rollout.engine.choice == "auto" and arithmetic.needs_rollout(config):
        message = f"'rollout.engine' auto is vllm on GPUs: {VLLM}"
        yield Problem("not-supported", ("rollout", "engine"), message, "set it to transformers")


RULES = (supported, automatic_engine)
