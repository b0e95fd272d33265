"""What the parts between prompts and training samples are made from."""

from __future__ import annotations

from rlctl.config import Config
from rlctl.planning import arithmetic
from rlctl.planning.plan import StagePlan
from rlctl.runtime.experience.batch_builders import RolloutBatchSpec
from rlctl.runtime.experience.selection import corrects, reads_old
from rlctl.runtime.specs.trained import teaching_of


def rollout_batch_spec(config: Config, *, old_is_current: bool) -> RolloutBatchSpec:
    """Of what makes training samples of groups; ``old_is_current`` as the function says."""
    return RolloutBatchSpec(
        old_log_probs=config.algorithm.old_log_probs,
        old_is_current=old_is_current,
        whole_kl="kl_in_reward" in arithmetic.whole_divergences(config),
        teaching=teaching_of(config),
        train_on_truncated_prompts=config.data.train_on_truncated_prompts,
        shows_responses=config.rollout.log_responses,
    )


def old_is_current(config: Config, plan: StagePlan) -> bool:
    """Whether the pass for the old policy's log-probs can be left out, as it would compute those of the update itself.

    So it is where a step is one optimizer step, nothing before the update reads them, and no experts are recorded in it.
    """
    algorithm = config.algorithm
    single = plan.batch.optimizer_steps_per_step == 1
    teaching = teaching_of(config)
    taught = teaching is not None and teaching.policy_gradient
    read_before = algorithm.kl_in_reward is not None or corrects(algorithm) or taught or reads_old(algorithm)
    recorded = algorithm.router_replay == "recompute"
    return algorithm.old_log_probs == "recompute" and single and not read_before and not recorded
