"""What the parts between prompts and training samples are made from."""

from __future__ import annotations

from collections.abc import Callable

from rlctl.common.errors import PlanError
from rlctl.config import Config
from rlctl.planning import arithmetic, rollout_schedule
from rlctl.planning.plan import StagePlan
from rlctl.runtime.experience.batch_builders import RolloutBatchSpec
from rlctl.runtime.experience.explore import GenerationSpec
from rlctl.runtime.experience.failures import Failures
from rlctl.runtime.experience.samples import training_sampling
from rlctl.runtime.experience.selection import corrects, needs_greedy, reads_old
from rlctl.runtime.experience.shaping import ShapingSpec
from rlctl.runtime.juicer.client import service_of
from rlctl.runtime.schedules.scheduler import SchedulerSpec
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


def generation_spec(config: Config, stage: str, stop_token_ids: tuple[int, ...]) -> GenerationSpec:
    """Of what is generated to be trained on; ``stage`` is the name of the stage."""
    seed = config.rollout.sampling.seed
    return GenerationSpec(
        stage=stage,
        sampling=training_sampling(config.rollout, stop_token_ids),
        prompts_per_step=config.batch.prompts_per_step,
        responses_per_prompt=config.batch.responses_per_prompt,
        oversampling=config.rollout.oversampling,
        greedy=needs_greedy(config.algorithm),
        seed=config.run.seed if seed is None else seed,
    )


def scheduler_spec(config: Config, generation: GenerationSpec) -> SchedulerSpec:
    """Of the scheduler that streams these responses."""
    return SchedulerSpec(
        generation=generation,
        in_order=rollout_schedule.in_order(config),
        split_groups=config.rollout.split_groups,
        max_running_prompts=config.rollout.max_running_prompts,
        timeouts=config.rollout.timeouts,
        reward_loop=config.reward_loop,
    )


def shaping_spec(config: Config) -> ShapingSpec:
    """Of what makes advantages of rewards."""
    return ShapingSpec(
        algorithm=config.algorithm,
        max_response_tokens=config.rollout.max_response_tokens,
        agents=arithmetic.agents_of(config),
        default_agent=config.rollout.default_agent,
        seed=config.run.seed,
        service=config.service.data_juicer,
    )


def failures_of(config: Config, tell: Callable[[str], None]) -> Failures:
    """Counts the failures of a run's agents; ``tell`` gets what went wrong."""
    step = config.batch.prompts_per_step * config.batch.responses_per_prompt
    return Failures(arithmetic.agents_of(config), config.rollout.default_agent, step, tell)


def check_service(config: Config) -> None:
    """Refuse a stage with operators of Data-Juicer and no service that answers.

    Raises:
        RunError: see ``service_of``.
    """
    for (section, name, index), _ in arithmetic.data_juicer_operators(config):
        service_of(config.service.data_juicer, f"{section}.{name}[{index}]")
        return


def check_skips(config: Config) -> None:
    """Refuse to keep or replay what is drawn one response at a time.

    Raises:
        PlanError: the schedule streams responses.
    """
    if config.run.skip.rollout != "off" and rollout_schedule.streams(config):
        raise PlanError(
            "run.skip.rollout saves and replays whole rounds of prompts, but this schedule generates responses one by one",
            hint="use a synchronous schedule while debugging, or turn run.skip.rollout off",
        )
