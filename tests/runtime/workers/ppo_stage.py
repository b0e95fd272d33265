"""A stage of PPO in one process: real policy, critic, gathering, shaping and checkpoints; only the responses are made up."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from rlctl.config import Config
from rlctl.planning.plan import make_plan
from rlctl.planning.rollout_schedule import sync_schedule
from rlctl.runtime.checkpoints.checkpoint import Checkpoints
from rlctl.runtime.experience.batch_builders import RolloutBatchBuilder
from rlctl.runtime.experience.explore import Explorer
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.loop import run_stage
from rlctl.runtime.processes.group import LocalGroup
from rlctl.runtime.profiling.steps import Meter
from rlctl.runtime.reporting.events import Events
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.roles import Policy, ValueModel
from rlctl.runtime.specs.experience import generation_spec, rollout_batch_spec, shaping_spec
from rlctl.runtime.specs.stage import speed_of
from rlctl.runtime.specs.trained import critic_spec, policy_spec, trainer_spec, value_model_spec
from rlctl.runtime.stage_run import Clock, StageRun
from rlctl.runtime.stopping import StopSwitch
from rlctl.runtime.types import Prompt, Response, Sample
from rlctl.runtime.workers.critic import Critic
from rlctl.runtime.workers.trainer import Place, Trainer


class Tokenizer:
    """A text is the list of its tokens."""

    decode = staticmethod(str)

    def batch_decode(self, sequences: Sequence[Sequence[int]], *, skip_special_tokens: bool) -> list[str]:
        return [str(each) for each in sequences]


class MadeUp(Explorer):
    """Answers by a random number of the prompt; right ones begin with an even token."""

    def _round(self, prompts: Any, purpose: str, phase: Any) -> list[RolloutGroup]:
        answered = []
        for prompt in prompts:
            draw = random.Random(prompt.index)
            tokens = [tuple(draw.randrange(3, 64) for _ in range(draw.randint(1, 6))) for _ in range(2)]
            responses = [Response(each, (-4.0,) * len(each), "stop", 0) for each in tokens]
            rewards = [float(each[0] % 2 == 0) for each in tokens]
            answered.append(RolloutGroup(prompt, responses, rewards, [Score(reward) for reward in rewards]))
        return answered


class Prompts:
    """Endless prompts, numbered."""

    epoch, taken = 0, 0

    def take(self, count: int) -> list[Prompt]:
        self.taken += count
        return [Prompt(index, "s", (1, index % 60 + 3), "") for index in range(self.taken - count, self.taken)]

    def feedback(self, rewards: dict[int, float]) -> None:
        """Their order goes by nothing."""

    def state(self) -> dict[str, Any]:
        return {"taken": self.taken}

    def restore(self, state: dict[str, Any]) -> None:
        self.taken = state["taken"]


def run(config: Config, model: Path, folder: Path, with_critic: bool = True) -> list[dict[str, Any]]:
    """Run the stage, from its newest checkpoint where there is one; its events, the metrics without those of time."""
    place, events = Place(0, 1, "unused: the process is in its group already", 0), []
    plan = make_plan(config).stages[0]
    policy = Policy(LocalGroup("policy-0", Trainer(trainer_spec(config, str(model), 8), place)), policy_spec(config))
    critic = (
        ValueModel(LocalGroup("critic-0", Critic(critic_spec(config, str(model), 8), place)), value_model_spec(config))
        if with_critic
        else None
    )
    stream = Prompts()
    unused: Any = None
    log = Events(folder / "events.jsonl", events.append)
    shaping = Shaping.of(shaping_spec(config))
    explorer = MadeUp(
        spec=generation_spec(config, "main", ()),
        schedule=sync_schedule(config),
        stream=stream,  # type: ignore[arg-type]
        rollout=SimpleNamespace(sleep=lambda: None),  # type: ignore[arg-type]
        rewards=unused,
        shaping=shaping,
    )
    source = RolloutBatchBuilder(
        rollout_batch_spec(config, old_is_current=False),
        groups=explorer,
        tokenizer=Tokenizer(),
        policy=policy,
        reference=None,
        shaping=shaping,
        critic=critic,
    )
    stage = StageRun(
        config=config,
        plan=plan,
        clock=Clock(
            4, evaluate_every=None, save_every=2, evaluate_at_start=False, evaluate_at_end=False, save_last=False
        ),
        source=source,
        policy=policy,
        rollout=None,
        evaluator=None,
        checkpoints=Checkpoints(folder / "checkpoints", keep_last=None),
        events=log,
        trackers=(),
        stop=StopSwitch(folder, max_steps=config.run.max_steps_this_session),
        export_folder=folder / "hf",
        meter=Meter.of(speed_of(config, plan), config.profiling, {}, folder, lambda message: None),
        old_is_current=False,
        critic=critic,
    )
    with ExitStack() as stack:
        stack.callback(log.close)
        run_stage(stage)
    return [_plain(event) for event in events]


def _plain(event: dict[str, Any]) -> dict[str, Any]:
    metrics = event.get("metrics", {})
    timed = ("time/", "throughput/", "memory/", "worker/")
    return {**event, "metrics": {name: value for name, value in metrics.items() if not name.startswith(timed)}}


def steps(events: Sequence[dict[str, Any]]) -> dict[int, dict[str, float]]:
    """The metrics of each step."""
    return {event["step"]: event["metrics"] for event in events if event["kind"] == "step"}


def old_columns(config: Config, model: Path, samples: Sequence[Sample]) -> list[dict[str, Tensor]]:
    """What the pass for old log-probs writes of samples."""
    place = Place(0, 1, "unused: the process is in its group already", 0)
    Policy(
        LocalGroup("policy-0", Trainer(trainer_spec(config, str(model), 8), place)), policy_spec(config)
    ).add_old_log_probs(samples)
    return [sample.columns for sample in samples]
