"""What held-out prompts are answered and scored with."""

from __future__ import annotations

from rlctl.config import Config
from rlctl.planning import arithmetic
from rlctl.planning.plan import StagePlan
from rlctl.runtime.evaluation.held_out import HeldOutSpec
from rlctl.runtime.specs.data import data_spec


def held_out_spec(config: Config, plan: StagePlan) -> HeldOutSpec:
    """Of what is answered, scored or measured beside training."""
    return HeldOutSpec(
        data=data_spec(config),
        rollout=config.rollout,
        explores=arithmetic.writes_responses(config),
        scores_recorded=config.run.mode == "evaluate_only",
        generates=plan.role("rollout") is not None,
        evaluates=arithmetic.evaluates(config),
        responses_per_prompt=config.batch.responses_per_prompt,
        seed=config.run.seed,
    )
