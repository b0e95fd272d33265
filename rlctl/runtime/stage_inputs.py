"""What a stage works on, read and checked before a worker starts: tokenizer, data, held-out prompts, and its clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said
from rlctl.config import Config, Stage
from rlctl.config.sections.data import Data
from rlctl.config.sections.rewards import FunctionReward, JudgeReward
from rlctl.config.sections.rollout import TransformersEngine
from rlctl.planning import arithmetic
from rlctl.planning.plan import StagePlan
from rlctl.planning.support import refusals
from rlctl.runtime.agents.making import check_agent_code
from rlctl.runtime.buffers.make import check_buffer
from rlctl.runtime.checkpoints.checkpoint import check_contents
from rlctl.runtime.checkpoints.inputs import Inputs, inputs_of
from rlctl.runtime.data.experts import check_experts_last
from rlctl.runtime.data.open import (
    PairStream,
    PromptStream,
    SftStream,
    open_experts,
    open_pair_stream,
    open_prompt_stream,
    open_sft_stream,
)
from rlctl.runtime.data.operators import Prepared, prepare, tokens_by, with_operators
from rlctl.runtime.data.rowset import SetReport
from rlctl.runtime.data.tokenizer import load_tokenizer
from rlctl.runtime.endpoints import check_endpoints
from rlctl.runtime.evaluation.evaluation import HeldOut
from rlctl.runtime.evaluation.held_out import open_held_out, open_held_out_answers
from rlctl.runtime.evaluation.losses import HeldOutAnswers
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.remote.checkpoints import copies_of
from rlctl.runtime.reporting.events import Events
from rlctl.runtime.rewards.function import PACKAGE, file_of
from rlctl.runtime.rollout.sglang_arguments import check_sglang
from rlctl.runtime.rollout.vllm_arguments import check_vllm
from rlctl.runtime.specs.data import data_spec, operator_spec
from rlctl.runtime.specs.experience import check_service, check_skips, shaping_spec
from rlctl.runtime.specs.served import agent_spec, check_served
from rlctl.runtime.specs.stage import held_out_spec
from rlctl.runtime.specs.trained import check_critic, critic_section, loss_spec
from rlctl.runtime.stage_run import ENDLESS, Clock
from rlctl.runtime.train.preflight import check_section, check_training, check_vision, left_off
from rlctl.runtime.workers.critic import told_of_critic
from rlctl.runtime.workers.reward import scored_by_workers, scorer_of
from rlctl.runtime.workers.trainer import make_loss


@dataclass(frozen=True)
class StageInputs:
    """What a stage works on: read before any worker starts, so that a bad file ends the run at once."""

    tokenizer: Any
    stop_token_ids: tuple[int, ...]
    stream: PromptStream | SftStream | PairStream | None
    held_out: list[HeldOut]
    clock: Clock
    experts: SftStream | None = None
    """Of mix."""
    answers: Sequence[HeldOutAnswers] = ()
    """Held-out answers that sft measures its loss on."""
    inputs: Inputs = field(default_factory=dict)
    """What the stage is made from: what its checkpoints keep of that."""


def read_materials(stage: Stage, plan: StagePlan, events: Events) -> StageInputs:
    """Load the tokenizer and open the data.

    Raises:
        RunError: something cannot be read.
        PlanError: the stage has no end, or nothing computes its algorithm.
    """
    config = stage.config
    if plan.role("reward"):
        _check_rewards(config)
    for served in filter(None, (plan.role("judge"), plan.role("auxiliary"))):
        check_served(config, served.role, served.engine)
    rollout = plan.role("rollout")
    if rollout is not None:
        _check_engine(config, rollout.engine)
    check_vision(config, rollout=rollout.engine if rollout is not None else None)
    check_endpoints(config, plan, events.advise)
    check_service(config)
    if plan.role("policy"):
        make_loss(loss_spec(config))
        if plan.objective in ("rl", "mix"):
            Shaping.of(shaping_spec(config), explores=not arithmetic.drains_buffer(config))
    if plan.role("critic"):
        check_critic(config)
    copies_of(stage, Path())
    check_contents(config)
    check_skips(config)
    if config.run.skip.rollout == "replay":
        events.advise("responses are replayed from disk, not generated (run.skip.rollout)")
    check_buffer(config.buffer)
    tokenizer = _tokenizer(config)
    if plan.role("agent"):
        check_agent_code(agent_spec(config), tokenizer)
    stop_token_ids = _stop_tokens(tokenizer)
    data, operated = config.data, list[Prepared]()
    if not arithmetic.reads_no_rows(config):
        data, operated = prepare(operator_spec(config), tokens_by(tokenizer))
    for each in operated:
        events.emit("data_operators", data=each.key, file=str(each.file), counts=[vars(one) for one in each.counts])
        events.advise(str(each))
    stream, reports = _open_stream(config, data, plan, tokenizer)
    beside = held_out_spec(config, plan)
    held_out, more = open_held_out(beside, tokenizer, stop_token_ids)
    answers, answer_reports = open_held_out_answers(beside, tokenizer)
    drawn = stream is not None or arithmetic.drains_buffer(config)
    experts, expert_reports = open_experts(beside.data, tokenizer) if drawn else (None, [])
    for report in (*reports, *expert_reports, *more, *answer_reports):
        events.advise(str(report))
    clock = make_clock(config, stream.rows if stream else 0)
    if plan.role("policy"):
        check_training(config, scheduler_steps=scheduler_steps(config, plan, clock))
        for told in left_off(config):
            events.advise(told)
    if plan.role("critic"):
        with told_of_critic():
            check_section(critic_section(config), scheduler_steps=critic_scheduler_steps(config, clock))
    if experts is not None and beside.data.experts is not None:
        check_experts_last(beside.data.experts, experts, clock.total_steps)
    return StageInputs(
        tokenizer,
        stop_token_ids,
        stream,
        held_out,
        clock,
        experts,
        answers,
        with_operators(inputs_of(config), operated),
    )


def _check_engine(config: Config, engine: str) -> None:
    """Refuse what the engine that the plan chose does not do: where the config says auto, only the plan knows it."""
    if engine == "vllm":
        check_vllm(config)
        return
    if engine == "sglang":
        check_sglang(config)
        return
    chosen = replace(config, rollout=replace(config.rollout, engine=TransformersEngine()))
    for refusal in refusals(chosen):
        if refusal.key[:2] == ("rollout", "memory"):
            raise PlanError(
                said("'{names}': {reason}", names=".".join(map(str, refusal.key)), reason=refusal.reason),
                hint="set rollout.engine=vllm",
            )


def _check_rewards(config: Config) -> None:
    """Refuse a reward that cannot be computed here, before a worker that needs it is started."""
    for reward in config.rewards:
        if isinstance(reward, FunctionReward) and not reward.path.startswith(PACKAGE):
            file_of(reward.path)
        auxiliary = isinstance(reward, JudgeReward) and reward.auxiliary_model is not None
        if not scored_by_workers(reward) and not auxiliary:
            scorer_of(reward)


def _open_stream(
    config: Config, data: Data, plan: StagePlan, tokenizer: Any
) -> tuple[PromptStream | SftStream | PairStream | None, list[SetReport]]:
    if arithmetic.reads_no_rows(config):
        return None, []
    spec = replace(data_spec(config), section=data)
    if plan.objective == "sft":
        return open_sft_stream(spec, tokenizer)
    if plan.objective == "dpo":
        return open_pair_stream(spec, tokenizer)
    return open_prompt_stream(spec, tokenizer)


def make_clock(config: Config, rows: int) -> Clock:
    """When things happen, now that the number of rows is known.

    Raises:
        PlanError: the config names no end.
    """
    schedule = config.schedule
    if config.run.mode == "evaluate_only" or arithmetic.writes_responses(config):
        return Clock(0, None, None, evaluate_at_start=True, evaluate_at_end=False, save_last=False)
    total = _drained_steps(config) if arithmetic.drains_buffer(config) else arithmetic.total_steps(config, rows)
    if total is None:
        raise PlanError("the run has no end", hint="set schedule.total_steps or schedule.total_epochs")
    return Clock(
        total_steps=total,
        evaluate_every=arithmetic.interval_in_steps(schedule.evaluate_every, config, rows),
        save_every=arithmetic.interval_in_steps(config.checkpoint.every, config, rows),
        evaluate_at_start=schedule.evaluate_at_start,
        evaluate_at_end=schedule.evaluate_at_end,
        save_last=config.checkpoint.at_end,
    )


def _drained_steps(config: Config) -> int:
    """Steps of a run that trains on a buffer, at most: it ends with the buffer too.

    Raises:
        PlanError: the learning rate needs an end, and there is none.
    """
    rate, total = config.train.lr_scheduler, arithmetic.drained_steps(config)
    if total is None and rate.type != "constant" and rate.total_steps is None:
        raise PlanError(
            said(
                "the learning rate decays with {type} over the run, but the run's length depends on its buffer",
                type=rate.type,
            ),
            hint="set schedule.total_steps, or train.lr_scheduler.total_steps",
        )
    return ENDLESS if total is None else total


def scheduler_steps(config: Config, plan: StagePlan, clock: Clock) -> int:
    """Ticks of the learning-rate schedule over the whole stage."""
    schedule = config.train.lr_scheduler
    if schedule.total_steps is not None:
        return schedule.total_steps
    return clock.total_steps * (plan.batch.optimizer_steps_per_step if schedule.step_unit == "optimizer_step" else 1)


def critic_scheduler_steps(config: Config, clock: Clock) -> int:
    """Ticks of the critic's learning-rate schedule over the whole stage."""
    schedule = critic_section(config).lr_scheduler
    if schedule.total_steps is not None:
        return schedule.total_steps
    return clock.total_steps * (
        arithmetic.critic_steps_per_step(config) if schedule.step_unit == "optimizer_step" else 1
    )


def _tokenizer(config: Config) -> Any:
    """The policy's tokenizer; None in a run that scores recorded responses and names no model."""
    if not (config.model.path or config.model.tokenizer) and not arithmetic.needs_rollout(config):
        return None
    return load_tokenizer(config.model, trust_remote_code=config.data.trust_remote_code)


def _stop_tokens(tokenizer: Any) -> tuple[int, ...]:
    """Tokens that end a response: the tokenizer's end token."""
    end = None if tokenizer is None else tokenizer.eos_token_id
    return () if end is None else (int(end),)
