"""Batch, schedule and topology arithmetic on a config: one place, used by adapters, checks, plan and runtime.

Symbols: P prompts a step, n responses a prompt, M responses of a mini-batch, E ppo epochs, k optimizer steps a step, D replicas.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from rlctl.common.errors import PlanError, nearest
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.config.fields import Interval
from rlctl.config.root import Config
from rlctl.config.sections.agents import (
    SINGLE_TURN,
    EnvironmentAgent,
    FunctionAgent,
    ProgramAgent,
    RunningAgent,
    TrajectoryAgent,
)
from rlctl.config.sections.algorithm import ExternalOperator, KlInLoss, KlInReward, MixObjective
from rlctl.config.sections.algorithm import Other as OtherAdvantage
from rlctl.config.sections.batch import Batch
from rlctl.config.sections.data import EvaluationSource, ExternalDataOperator
from rlctl.config.sections.execution import MemoryBuffer
from rlctl.config.sections.rewards import JudgeReward, Reward
from rlctl.config.sections.rollout import AuxiliaryModel
from rlctl.config.sections.train import Critic, Fsdp2, LrScheduler, Megatron, TrainEngine
from rlctl.documents.paths import KeyPath

Device = Literal["cuda", "cpu"]

AGENT_MODELS = ("policy", "random")
"""What an agent can generate with; no auxiliary model has one of these names."""


@record
class Cluster:
    """The machines a run is planned and checked for."""

    nodes: int
    devices_per_node: int
    device: Device
    cpus_per_node: int | None = None
    gib_per_device: float | None = None
    gpu: str | None = None
    """Name of the GPU, as ``nvidia-smi`` or Ray gives it; the time of a step is estimated only for known ones."""


PACKING_ATTENTION = ("auto", "flash_attention_2", "flash_attention_3")
"""Values of ``model.attention`` that take packed sequences: on a GPU, the flash attention of PyTorch."""

FEWEST_WORKERS = 2
"""A machine with one core runs two workers too: a split layout needs them."""


def workers_on(cores: int) -> int:
    """Worker processes that a machine without GPUs runs: one a core, and two at least."""
    return max(cores, FEWEST_WORKERS)


def responses_per_step(config: Config) -> int:
    """P * n for rl, and with the experts' for mix; P (one response, or pair, a row) where they come from the data set."""
    experts = expert_responses(config)
    return drawn_responses(config) + (mini_batches_per_epoch(config) * experts if experts else 0)


def drawn_responses(config: Config) -> int:
    """Those of a step without the experts': P * n, or P where responses come from the data set."""
    if config.algorithm.objective.choice in ("sft", "dpo"):
        return config.batch.prompts_per_step
    return config.batch.prompts_per_step * config.batch.responses_per_prompt


def expert_responses(config: Config) -> int:
    """E: those of a mini-batch that are experts', ceil(share * M) for mix; at least one is always rolled out."""
    objective, mini = config.algorithm.objective, config.batch.mini_batch_responses
    if not isinstance(objective, MixObjective):
        return 0
    from fractions import Fraction

    share = Fraction(str(objective.expert_share))
    if mini is not None:
        return min(math.ceil(share * mini), mini - 1)
    if share >= 1:
        raise PlanError(
            "algorithm.objective.expert_share is 1: there would be no rollout",
            hint="lower it, or set algorithm.objective to sft",
        )
    return math.ceil(share * drawn_responses(config) / (1 - share))


def mini_batch_responses(config: Config) -> int:
    """M: responses of one optimizer step; the whole step where the config says nothing."""
    return config.batch.mini_batch_responses or drawn_responses(config) + expert_responses(config)


def mini_batches_per_epoch(config: Config) -> int:
    """ceil(P * n / M): mini-batches of one pass over a step's responses; ceil(P * n / (M - E)) for mix."""
    return -(-drawn_responses(config) // (mini_batch_responses(config) - expert_responses(config)))


def optimizer_steps_per_step(config: Config) -> int:
    """k = ceil(P * n / M) * E."""
    return mini_batches_per_epoch(config) * config.batch.ppo_epochs


def critic_batch(config: Config) -> Batch:
    """The section ``batch`` as the critic goes by it: its own mini-batches, epochs and shuffle, the policy's where null."""
    critic, batch = config.critic or Critic(), config.batch
    return dataclasses.replace(
        batch,
        mini_batch_responses=critic.mini_batch_responses or batch.mini_batch_responses,
        ppo_epochs=critic.ppo_epochs or batch.ppo_epochs,
        shuffle=critic.shuffle,
        shuffle_seed=critic.shuffle_seed,
        micro_batch=critic.micro_batch or batch.micro_batch,
        log_prob_micro_batch=critic.forward_micro_batch,
    )


def critic_steps_per_step(config: Config) -> int:
    """k of the critic."""
    return optimizer_steps_per_step(dataclasses.replace(config, batch=critic_batch(config)))


def steps_per_epoch(config: Config, rows: int) -> int:
    """Whole steps in one pass over ``rows`` prompts.

    Raises:
        PlanError: there are fewer prompts than one step needs.
    """
    per_step = config.batch.prompts_per_step
    if rows < per_step and config.data.last_batch == "drop":
        raise PlanError(
            said(
                "the training data has {rows} prompts and a step needs {per_step}: an epoch would have no step",
                rows=rows,
                per_step=per_step,
            ),
            hint=said("set batch.prompts_per_step to {rows} or less, or data.last_batch to carry", rows=rows),
        )
    return rows // per_step


def total_steps(config: Config, rows: int | None) -> int | None:
    """Steps of the whole run: the first reached of steps, epochs and optimizer steps; None where it needs the data's length.

    Args:
        rows: prompts in the training data after filtering, None while unknown.
    """
    schedule = config.schedule
    limits = [schedule.total_steps] if schedule.total_steps is not None else []
    if schedule.total_optimizer_steps is not None:
        limits.append(-(-schedule.total_optimizer_steps // optimizer_steps_per_step(config)))
    if schedule.total_epochs is not None:
        if rows is None:
            return None
        limits.append(_steps_in_epochs(config, schedule.total_epochs, rows))
    return min(limits) if limits else None


def warmup_in_optimizer_steps(config: Config, role: str, rows: int | None) -> int | None:
    """Optimizer steps until the learning rate of a role is at its peak; None where a ratio needs the data's length."""
    schedule: LrScheduler = getattr(config, role).lr_scheduler
    per_step = critic_steps_per_step(config) if role == "critic" else optimizer_steps_per_step(config)
    per_tick = per_step if schedule.step_unit == "step" else 1
    if schedule.warmup_steps is not None or not schedule.warmup_ratio:
        return (schedule.warmup_steps or 0) * per_tick
    length = schedule.total_steps
    if length is None:
        steps = total_steps(config, rows)
        length = None if steps is None else steps * (per_step // per_tick)
    return None if length is None else int(schedule.warmup_ratio * length) * per_tick


def drained_steps(config: Config) -> int | None:
    """Steps at most of a run that trains on a buffer, whatever data there is; None where it ends with its buffer alone."""
    schedule = dataclasses.replace(config.schedule, total_epochs=None)
    return total_steps(dataclasses.replace(config, schedule=schedule), None)


def _steps_in_epochs(config: Config, epochs: int, rows: int) -> int:
    if config.data.last_batch != "carry":
        return epochs * steps_per_epoch(config, rows)
    per_step = config.batch.prompts_per_step
    if rows and epochs * rows < per_step:
        raise PlanError(
            said(
                "the training data has {rows} prompts and a step needs {per_step}: schedule.total_epochs {epochs} gives no step",
                rows=rows,
                per_step=per_step,
                epochs=epochs,
            ),
            hint=said(
                "set batch.prompts_per_step to {most} or less, or schedule.total_epochs to {epochs}",
                most=epochs * rows,
                epochs=-(-per_step // rows),
            ),
        )
    return epochs * rows // per_step


def interval_in_steps(interval: Interval | None, config: Config, rows: int | None) -> int | None:
    """An interval in steps, at least 1; None where it never happens, or counts epochs of data of unknown length."""
    if interval is None:
        return None
    if interval.steps is not None:
        return interval.steps
    if interval.optimizer_steps is not None:
        return max(1, round(interval.optimizer_steps / optimizer_steps_per_step(config)))
    if interval.epochs is None or rows is None:
        return None
    return max(1, interval.epochs * steps_per_epoch(config, rows))


def devices(config: Config) -> int:
    """All devices of the run."""
    return config.placement.nodes * config.placement.devices_per_node


def devices_of(config: Config, role: str) -> tuple[int, ...]:
    """The device numbers of a role that has devices.

    Split, rollout has the first ones and training the rest; auxiliary models have the last ones of rollout's, if there are
    more than they need. Explicit, a role without a list of its own is where the policy is, rollout on all devices; without a
    list of the policy's too, every role is on all.
    """
    placement, all_devices = config.placement, tuple(range(devices(config)))
    if placement.layout == "split":
        own = _exploring(config)
        beside = _auxiliary_devices_needed(config)
        dedicated = own - beside if own > beside else own
        if role == "auxiliary":
            return all_devices[dedicated if own > beside else 0 : own]
        return all_devices[:dedicated] if role == "rollout" else all_devices[own:]
    if placement.layout == "explicit":
        instead = {
            "policy": (),
            "rollout": (),
            "judge": ("reward", "policy"),
            "auxiliary": ("rollout", "policy"),
        }
        names = (role, *instead.get(role, ("policy",)))
        return next((placement.roles[name].devices for name in names if name in placement.roles), all_devices)
    return all_devices


def rollout_devices(config: Config) -> int:
    """Devices that rollout runs on: all of them when colocated, else its own."""
    return len(devices_of(config, "rollout"))


def exploring_devices(config: Config) -> int:
    """Devices of rollout and of auxiliary models, which ``placement.rollout_devices`` counts together."""
    return _exploring(config) if config.placement.layout == "split" else rollout_devices(config)


def _exploring(config: Config) -> int:
    return config.placement.rollout_devices or devices(config) // 2


def train_devices(config: Config) -> int:
    """Devices that the policy is trained on."""
    return len(devices_of(config, "policy"))


def devices_per_replica(engine: TrainEngine) -> int:
    """Devices that hold one data-parallel rank: TP * PP * CP in Megatron, the Ulysses size in FSDP2."""
    if isinstance(engine, Megatron):
        return engine.tensor_parallel_size * engine.pipeline_parallel_size * engine.context_parallel_size
    return engine.ulysses_sequence_parallel_size if isinstance(engine, Fsdp2) else 1


def replica_members(engine: TrainEngine, workers: int) -> list[list[int]]:
    """The ranks of each replica, in Megatron's order (tensor, context, data, pipeline) and so the parts of a layer neighbours.

    With FSDP2 replicas are of neighbours.
    """
    stages = engine.pipeline_parallel_size if isinstance(engine, Megatron) else 1
    each, stage = devices_per_replica(engine) // stages, workers // stages
    return [
        [number * stage + first + place for number in range(stages) for place in range(each)]
        for first in range(0, stage, each)
    ]


def devices_per_sequence(engine: TrainEngine) -> int:
    """Devices that share one sequence: the context size in Megatron, the Ulysses size in FSDP2."""
    if isinstance(engine, Megatron):
        return engine.context_parallel_size
    return engine.ulysses_sequence_parallel_size if isinstance(engine, Fsdp2) else 1


def train_replicas(config: Config) -> int:
    """D: data-parallel ranks of the policy.

    Raises:
        PlanError: the devices do not divide into whole replicas, or there are none.
    """
    return replicas_of(config, "policy")


def replicas_of(config: Config, role: str) -> int:
    """Data-parallel ranks of a role that is trained, or of the reference.

    Raises:
        PlanError: its devices do not divide into whole replicas, or there are none.
    """
    section, engine = engine_of(config, role)
    total, each = len(devices_of(config, role)), devices_per_replica(engine)
    if total < 1:
        raise PlanError(
            said(
                "rollout takes {taken} of {devices} devices; training has none",
                taken=rollout_devices(config),
                devices=devices(config),
            ),
            hint="lower placement.rollout_devices, or give the policy separate devices",
        )
    if total % each:
        shared = ""
        if isinstance(engine, Megatron):
            tensor, pipeline, context = (
                engine.tensor_parallel_size,
                engine.pipeline_parallel_size,
                engine.context_parallel_size,
            )
            shared = f"tensor {tensor} * pipeline {pipeline} * context {context} = {each}; "
        raise PlanError(
            said(
                "{total} training devices do not divide into replicas of {each} devices "
                "({shared}{total} / {each} = {quotient:g})"
                if role == "policy"
                else "{total} devices of the {role} do not divide into replicas of {each} devices "
                "({shared}{total} / {each} = {quotient:g})",
                total=total,
                role=role,
                each=each,
                shared=shared,
                quotient=total / each,
            ),
            hint=said(
                "use {nearest} devices, or change the parallel sizes of {section}.engine",
                nearest=str(nearest_multiples(total, each)),
                section=section,
            ),
        )
    return total // each


def engine_of(config: Config, role: str) -> tuple[str, TrainEngine]:
    """The engine of a role that is trained, or of the reference, and the section that says so."""
    if role == "critic" and config.critic is not None:
        return "critic", config.critic.engine
    if role == "reference" and config.reference.engine is not None:
        return "reference", config.reference.engine
    return "train", config.train.engine


def devices_per_rollout_engine(config: Config) -> int:
    """Devices of one rollout engine: TP * PP * DP."""
    parallel = config.rollout.parallel
    return parallel.tensor_parallel_size * parallel.pipeline_parallel_size * parallel.data_parallel_size


def rollout_engines(config: Config) -> int:
    """Rollout engines: as set, or as many as fit the rollout devices.

    Raises:
        PlanError: they need more devices than there are, or do not divide them.
    """
    total, each = rollout_devices(config), devices_per_rollout_engine(config)
    wanted = config.rollout.parallel.replicas
    if isinstance(wanted, int):
        if wanted * each > total:
            raise PlanError(
                said(
                    "{wanted} rollout engines of {each} devices need {needed}; rollout has {total}",
                    wanted=wanted,
                    each=each,
                    needed=wanted * each,
                    total=total,
                ),
                hint=said("set rollout.parallel.replicas to {most} or less", most=total // each),
            )
        return wanted
    if total < each or total % each:
        raise PlanError(
            said("{total} rollout devices do not divide into engines of {each} devices", total=total, each=each),
            hint=said("set rollout.parallel.tensor_parallel_size to a divisor of {total}", total=total),
        )
    return total // each


def rollout_workers(config: Config) -> int:
    """Processes that generate: each data-parallel rank of a rollout engine is one, with weights of its own."""
    return rollout_engines(config) * config.rollout.parallel.data_parallel_size


def unsplit(config: Config) -> Config:
    """The config with rollout engines of one device each, as the built-in engine's are."""
    parallel = dataclasses.replace(
        config.rollout.parallel,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        data_parallel_size=1,
        expert_parallel_size=1,
    )
    return dataclasses.replace(config, rollout=dataclasses.replace(config.rollout, parallel=parallel))


def trains(config: Config) -> bool:
    """Whether the policy is trained."""
    return config.run.mode in ("full", "train_only")


def fills_buffer(config: Config) -> bool:
    """Whether responses go into a buffer that outlives the run, for another run to train on."""
    return config.run.mode == "rollout_only" and _outlives(config)


def _outlives(config: Config) -> bool:
    """Whether the buffer, or the copy of one in memory, is there after the run."""
    return not isinstance(config.buffer, MemoryBuffer) or config.buffer.log_path is not None


def rollout_routes(config: Config) -> bool:
    """Whether updates go to the experts that the rollout engine chose."""
    return config.algorithm.router_replay == "rollout" and config.algorithm.objective.choice == "rl" and trains(config)


def uses_data_juicer(config: Config) -> bool:
    """Whether Data-Juicer runs any operator."""
    return any(True for _ in data_juicer_operators(config))


def data_juicer_operators(config: Config) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    """The operators that Data-Juicer runs, each by its key with its arguments."""
    for index, of_data in enumerate(config.data.operators):
        if isinstance(of_data, ExternalDataOperator):
            yield ("data", "operators", index), of_data.args
    for index, of_experience in enumerate(config.algorithm.experience_operators):
        if isinstance(of_experience, ExternalOperator):
            yield ("algorithm", "experience_operators", index), of_experience.args


def reads_no_rows(config: Config) -> bool:
    """Whether a run draws nothing from the training data, or answers each of its rows once."""
    return config.run.mode == "evaluate_only" or writes_responses(config) or drains_buffer(config)


def writes_responses(config: Config) -> bool:
    """Whether the training data is answered once, into a file of responses."""
    return config.run.mode == "rollout_only" and not _outlives(config)


def drains_buffer(config: Config) -> bool:
    """Whether responses come from a buffer that another run fills or has filled."""
    return config.run.mode == "train_only" and config.algorithm.objective.choice in ("rl", "mix")


def rollout_sleeps(config: Config, device: Device) -> bool:
    """Whether rollout engines give their memory to training while that runs: on GPUs that both use."""
    shared = config.placement.layout == "colocated" and trains(config)
    return device == "cuda" and shared and config.rollout.memory.sleep


def needs_rollout(config: Config) -> bool:
    """Whether responses are generated: for training, or for evaluation on held-out prompts."""
    own = _recorded(config)
    return _generates(config) or (
        evaluates(config) and not all(own(each) or measures_loss(config, each) for each in config.data.eval)
    )


def scores(config: Config) -> bool:
    """Whether responses are scored; those that only go to a file need no reward."""
    if config.run.mode == "rollout_only":
        return bool(config.rewards)
    return needs_rollout(config) or scores_recorded(config)


def agent_of(config: Config) -> TrajectoryAgent | None:
    """The agent that makes trajectories; None where a response is one generation.

    Raises:
        PlanError: there is no agent of that name, or several.
    """
    return _agent_named(config, config.rollout.default_agent, "rollout.default_agent")


def agents_of(config: Config) -> dict[str, TrajectoryAgent]:
    """The agents that rows may use, by name: the default one, those of sources, and all if a source has ``agent_key``.

    Raises:
        PlanError: there is no agent of a name, or several.
    """
    named = {"rollout.default_agent": config.rollout.default_agent}
    for section in ("train", "eval"):
        named |= {f"data.{section}[{i}].agent": each.agent for i, each in enumerate(getattr(config.data, section))}
    found = [_agent_named(config, name, key) for key, name in named.items()]
    if any(source.agent_key for source in (*config.data.train, *config.data.eval)):
        found += config.rollout.agents
    return {agent.name: agent for agent in found if agent is not None}


def agent_rewards(config: Config) -> bool:
    """Whether agents give rewards of their own, or programs and functions may return some, so that there need be no other."""
    return any(
        isinstance(agent, ProgramAgent | FunctionAgent)
        or (isinstance(agent, RunningAgent) and credit_of(agent) != "function")
        for agent in agents_of(config).values()
    )


def credit_of(agent: RunningAgent) -> str:
    """What the reward of an agent's trajectories is: ``function``, ``sum`` or ``last``."""
    chosen = agent.credit.reward
    if chosen != "auto":
        return chosen
    return "sum" if isinstance(agent, EnvironmentAgent) or agent.credit.tool_rewards == "add" else "function"


def _agent_named(config: Config, chosen: str | None, key: str) -> TrajectoryAgent | None:
    agents = config.rollout.agents
    names = [agent.name for agent in agents]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PlanError(
            said("{count} agents are called {name!r}", count=names.count(twice), name=twice),
            hint="give each of rollout.agents its own name",
        )
    if chosen is None or (chosen == SINGLE_TURN and chosen not in names):
        return None
    if chosen not in names:
        listed = ", ".join(names) or "none"
        raise PlanError(
            said("{key} is {chosen!r}, but rollout.agents has {listed}", key=key, chosen=chosen, listed=listed),
            hint=nearest(chosen, names) or "add an agent of this name to rollout.agents",
        )
    return agents[names.index(chosen)]


def auxiliary_models(config: Config) -> dict[str, AuxiliaryModel]:
    """The models that judges and agents call, by name.

    Raises:
        PlanError: two have one name.
    """
    found: dict[str, AuxiliaryModel] = {}
    for model in config.rollout.auxiliary_models:
        name = model.name or model.path
        if name in found:
            raise PlanError(
                said("two of rollout.auxiliary_models are called {name!r}", name=name), hint="give each its own name"
            )
        found[name] = model
    return found


def served_auxiliaries(config: Config) -> dict[str, AuxiliaryModel]:
    """Those of them that engines of the run serve; none if nothing is generated or scored.

    Raises:
        PlanError: they want different engines.
    """
    if not (needs_rollout(config) or scores(config)):
        return {}
    found = {name: model for name, model in auxiliary_models(config).items() if model.base_url is None}
    for field in ("engine", "tensor_parallel_size"):
        values = {name: getattr(model, field) for name, model in found.items()}
        if len(set(values.values())) > 1:
            each_value = ", ".join(f"{name}: {value}" for name, value in values.items())
            raise PlanError(
                said("rollout.auxiliary_models differ in {field} ({each_value})", field=field, each_value=each_value),
                hint=said(
                    "give those that the run serves the same {field}, or serve some at an endpoint and set base_url",
                    field=field,
                ),
            )
    return found


def auxiliary_engine(config: Config, device: Device) -> str:
    """The engine of the auxiliary models that the run serves."""
    first = next(iter(served_auxiliaries(config).values()))
    return _engine_on(first.engine, device)


def auxiliary_of_each_engine(config: Config) -> list[str]:
    """The name of the model of each engine, in order."""
    return [name for name, model in served_auxiliaries(config).items() for _ in range(model.replicas)]


def auxiliary_devices(config: Config) -> tuple[int, ...]:
    """The devices of the auxiliary models that the run serves; none if it serves none.

    Raises:
        PlanError: there are too few.
    """
    needed = _auxiliary_devices_needed(config)
    if not needed:
        return ()
    devices = devices_of(config, "auxiliary")
    if needed > len(devices):
        raise PlanError(
            said(
                "rollout.auxiliary_models need {needed} devices; they have {count}", needed=needed, count=len(devices)
            ),
            hint="set placement.roles.auxiliary.devices, or lower their replicas or tensor_parallel_size",
        )
    return devices[:needed]


def auxiliaries_share(config: Config) -> tuple[str, ...]:
    """The roles on whose devices auxiliary models are too."""
    own = set(auxiliary_devices(config))
    roles = [*(["policy"] if trains(config) else []), *(["rollout"] if needs_rollout(config) else [])]
    return tuple(role for role in roles if own & set(devices_of(config, role)))


def _auxiliary_devices_needed(config: Config) -> int:
    return sum(model.replicas * model.tensor_parallel_size for model in served_auxiliaries(config).values())


def is_served_here(reward: Reward) -> bool:
    """Whether a reward is a judge that the run serves for this reward alone."""
    return isinstance(reward, JudgeReward) and reward.base_url is None and reward.auxiliary_model is None


def served_judges(config: Config) -> dict[int, JudgeReward]:
    """The judges that the run serves itself, by their position; they are one model, asked in several ways.

    Raises:
        PlanError: they want different engines.
    """
    found = {i: each for i, each in enumerate(config.rewards) if isinstance(each, JudgeReward) and is_served_here(each)}
    for name in ("model", "engine", "engine_args", "max_context_tokens", "replicas", "tensor_parallel_size"):
        values = [getattr(each, name) for each in found.values()]
        if any(value != values[0] for value in values):
            each_value = ", ".join(f"{each.name}: {getattr(each, name)}" for each in found.values())
            raise PlanError(
                said(
                    "a run serves one judge, and its rewards differ in {name} ({each_value})",
                    name=name,
                    each_value=each_value,
                ),
                hint="serve the others behind an OpenAI-compatible endpoint and set their base_url",
            )
    return found


def judge_engine(reward: JudgeReward, device: Device) -> str:
    """The engine of a judge that the run serves."""
    return _engine_on(reward.engine, device)


def _engine_on(engine: str, device: Device) -> str:
    if engine != "auto":
        return engine
    return "vllm" if device == "cuda" else "transformers"


def judge_devices(config: Config) -> tuple[int, ...]:
    """The devices of the judge that the run serves; none where it serves none.

    Raises:
        PlanError: there are too few.
    """
    judge = next(iter(served_judges(config).values()), None)
    if judge is None:
        return ()
    devices, each = devices_of(config, "judge"), judge.tensor_parallel_size
    needed = judge.replicas * each
    if needed > len(devices):
        raise PlanError(
            said(
                "{replicas} engines of {each} devices for the judge {name!r} need {needed}; it has {count}",
                replicas=judge.replicas,
                each=each,
                name=judge.name,
                needed=needed,
                count=len(devices),
            ),
            hint=said(
                "set its replicas to {count}, or placement.roles.judge.devices", count=max(1, len(devices) // each)
            ),
        )
    return devices[:needed]


def scores_recorded(config: Config) -> bool:
    """Whether responses are scored that held-out rows bring themselves."""
    return evaluates(config) and any(map(_recorded(config), config.data.eval))


def measures_loss(config: Config, source: EvaluationSource) -> bool:
    """Whether an evaluation measures the loss on the answers of a held-out source: in sft, if its rows have answers."""
    trained = config.algorithm.objective.choice == "sft" and trains(config)
    return trained and (source.response_key is not None or source.messages_key is not None)


def _recorded(config: Config) -> Callable[[EvaluationSource], bool]:
    """Tells whether the rows of a held-out source bring their responses: in a run of nothing else, where a column is named."""
    return lambda source: config.run.mode == "evaluate_only" and source.response_key is not None


def _generates(config: Config) -> bool:
    """Whether responses are generated to be learned from."""
    return config.algorithm.objective.choice in ("rl", "mix") and config.run.mode in ("full", "rollout_only")


def has_nodes(config: Config, cluster: Cluster, *, shared: bool) -> bool:
    """Whether a cluster has the nodes that a config asks for.

    Args:
        config: with ``placement``.
        cluster: the machines.
        shared: whether several nodes of the config may be one of the cluster, as pools of other frameworks may share a machine.
    """
    placement = config.placement
    each = cluster.devices_per_node // placement.devices_per_node
    return each >= 1 and placement.nodes <= cluster.nodes * (each if shared else 1)


def evaluates(config: Config) -> bool:
    """Whether held-out prompts are answered at all: regularly, in a run of nothing else, or once, before the first step."""
    schedule = config.schedule
    once = schedule.evaluate_at_start and _generates(config)
    return bool(config.data.eval) and (
        schedule.evaluate_every is not None or config.run.mode == "evaluate_only" or once
    )


def groups_prompts(config: Config) -> bool:
    """Whether ``fused_kernels.prefix_grouping`` is on if it is null: several responses to a prompt, and rounding may change."""
    several = config.algorithm.objective.choice in ("rl", "mix") and config.batch.responses_per_prompt > 1
    return several and not config.run.deterministic


def needs_reference(config: Config) -> bool:
    """Whether a reference model measures anything."""
    algorithm = config.algorithm
    in_loss = algorithm.kl_in_loss is not None and algorithm.kl_in_loss.coefficient > 0
    in_reward = algorithm.kl_in_reward is not None and algorithm.kl_in_reward.coefficient > 0
    measured = algorithm.objective.choice in ("rl", "mix") and (in_loss or in_reward)
    return trains(config) and (measured or algorithm.objective.choice == "dpo")


def reference_is_base(config: Config) -> bool:
    """Whether the reference is the policy without its adapters: no second copy, and no engine of its own."""
    return config.model.lora is not None and config.reference.model is None


def reference_is_held(config: Config) -> bool:
    """Whether the policy's workers hold the reference, as only its whole distributions are asked for (the full KL)."""
    measured = {kl.estimator for kl in _divergences(config).values()}
    return measured == {"full"} and config.algorithm.objective.choice != "dpo"


def whole_divergences(config: Config) -> tuple[str, ...]:
    """Which KLs compare whole distributions: ``kl_in_loss``, ``kl_in_reward``."""
    sampled = config.algorithm.objective.choice in ("rl", "mix")
    return tuple(name for name, kl in _divergences(config).items() if kl.estimator == "full" and sampled)


def _divergences(config: Config) -> dict[str, KlInLoss | KlInReward]:
    found = {name: getattr(config.algorithm, name) for name in ("kl_in_loss", "kl_in_reward")}
    return {name: kl for name, kl in found.items() if kl is not None and kl.coefficient > 0}


def teacher_is_drawn(config: Config) -> bool:
    """Whether a teacher is asked for the tokens drawn only, not for whole distributions."""
    distillation = config.algorithm.distillation
    if distillation is None:
        return False
    estimated = distillation.loss == "reverse_kl" and distillation.top_k is None
    return bool(distillation.args.get("policy_gradient")) or (estimated and config.algorithm.objective.choice == "rl")


def needs_critic(config: Config) -> bool:
    """Whether values are estimated."""
    return trains(config) and config.algorithm.objective.choice == "rl" and config.algorithm.advantage.choice == "gae"


def old_log_probs(config: Config, device: Device) -> Literal["recompute", "rollout"]:
    """Whose log-probs stand for the old policy's; auto is rollout's where a step is one optimizer step and engines agree.

    They agree where the built-in engine draws in the number type that training computes in, from the distribution that is
    trained on. An advantage of ``MEASURED`` needs the pass, and so does ``algorithm.router_replay: recompute``.
    """
    chosen, rollout = config.algorithm.old_log_probs, config.rollout
    if chosen != "auto":
        return chosen
    built_in = rollout.engine.choice == "transformers" or (rollout.engine.choice == "auto" and device == "cpu")
    trained_in = config.train.precision.compute
    drawn_in = rollout.precision if rollout.precision != "auto" else "float32" if device == "cpu" else trained_in
    same = config.algorithm.train_temperature == "sampling" or rollout.sampling.temperature == 1
    agree = built_in and drawn_in == trained_in and same
    recorded = config.algorithm.router_replay == "recompute"
    alone = optimizer_steps_per_step(config) == 1 and not measures_old(config) and not recorded
    return "rollout" if agree and alone else "recompute"


MEASURED = ("clipb", "clipv", "optimal_token_baseline", "tir_optimal_token_baseline")
"""Kinds of the advantage ``other`` that read entropies or squared probabilities, which the pass for old log-probs tells."""


def measures_old(config: Config) -> bool:
    """Whether the advantage reads more of the old policy than the rollout engine tells."""
    chosen = config.algorithm.advantage
    return isinstance(chosen, OtherAdvantage) and chosen.kind in MEASURED


@record
class Neighbours:
    """The two values nearest to one that does not divide."""

    below: int
    above: int

    def __str__(self) -> str:
        return said("{below} or {above}", below=self.below, above=self.above) if self.below else str(self.above)


def nearest_multiples(value: int, of: int) -> Neighbours:
    """The multiples of ``of`` just below and above ``value``."""
    return Neighbours(value // of * of, -(-value // of) * of)
