"""Every honoured key matters: changing it changes the plan, the arguments a part is made with, or numbers.

``EFFECTS`` shows it for the keys whose effect can be seen without running: a base, the changed value, and where to look.
``shown_elsewhere.py`` names the tests that show the others, in what a run does; the two together are all honoured keys.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from rlctl.checks import check
from rlctl.config import Config, config_from
from rlctl.config.fields import OTHER
from rlctl.config.inspect import is_container, option_patterns, walk
from rlctl.planning import support
from rlctl.planning.plan import make_plan
from rlctl.planning.support import Status

from .shown_elsewhere import SHOWN_BY

Probe = Callable[[Config], Any]
ROWS = 100
PLAIN = (str, int, float, dict, list, tuple, type(None))


def plan(config: Config) -> Any:
    """Everything of the plan but the run's name."""
    made = make_plan(config, rows=ROWS)
    return made.stages, made.device, made.nodes, made.devices_per_node


def plan_name(config: Config) -> Any:
    return make_plan(config, rows=ROWS).run


def training_sampling(config: Config) -> Any:
    from rlctl.runtime.experience.samples import training_sampling

    return training_sampling(config.rollout, (1,))


def endpoint(config: Config) -> Any:
    """How an outside endpoint is asked."""
    from rlctl.runtime.specs.served import rollout_spec
    from rlctl.runtime.workers.rollout import make_engine

    settings = vars(
        make_engine(rollout_spec(config, "external", "m", "cpu"))
    )  # with locks, queues and threads, each equal to itself only
    return {name: value for name, value in settings.items() if isinstance(value, PLAIN) and name != "tokens_computed"}


def sglang_arguments(config: Config) -> Any:
    """What SGLang's server is started with."""
    from rlctl.runtime.rollout.sglang_arguments import server_arguments

    return server_arguments(config, "m", "cuda")


def engine_arguments(config: Config) -> Any:
    """What vLLM is started with on a CPU and on a GPU, or why it is not."""
    from rlctl.common.errors import RunError
    from rlctl.runtime.rollout.vllm_arguments import check_vllm, engine_arguments, engine_environment

    try:
        check_vllm(config)
    except RunError as error:
        return str(error)
    return [
        (engine_arguments(config, "m", "cpu"), engine_environment(config, "cpu")),
        (engine_arguments(config, "m", "cuda"), engine_environment(config, "cuda")),
    ]


def way_of_weights(config: Config) -> Any:
    """How large a bucket of weights may be that training gives out, and by which way it travels."""
    from rlctl.runtime.roles import Policy
    from rlctl.runtime.specs.stage import transport_of
    from rlctl.runtime.specs.trained import policy_spec

    weights: Any = Policy(SimpleNamespace(), policy_spec(config), transport_of(config, "cpu", Path("stage"))).weights()  # type: ignore[arg-type]
    return weights.bucket_bytes, type(weights.transport)


def scheduled(config: Config) -> Any:
    """26 groups on a simulated engine where row 1 is slow, and what was begun and given up for them."""
    from .runtime.schedules.simulated import Engines, Simulation

    here = Simulation(config, Engines(lambda row, place: 40.0 if row == 1 else 1.0 + row % 5))
    here.scheduler.begin(1)
    here.scheduler.pump(0.0)
    here.engines.lose = {0}
    for there in (10, 18, 26):
        here.until(there, horizon=there + 2)
    engines = here.engines
    return here.rows, engines.begun, engines.now, engines.requests, engines.most, here.scheduler.counts


def paced(config: Config) -> Any:
    """When weights are sent, how far rollout may be, what is too old, and whether it goes on beside training."""
    from rlctl.planning import rollout_schedule

    steps = range(1, 9)
    schedule = rollout_schedule.sync_schedule(config)
    due = [schedule.due(step) for step in steps]
    reach = [schedule.horizon(synced=schedule.last_due(step), total_steps=99, explored=70) for step in steps]
    oldest = [schedule.oldest_version(step) for step in steps]
    return (
        due,
        reach,
        oldest,
        rollout_schedule.streams(config),
        schedule.in_order,
        schedule.in_background,
    )


def evaluation_sampling(config: Config) -> Any:
    from rlctl.runtime.experience.samples import evaluation_sampling

    return [evaluation_sampling(config.rollout, source, (1,)) for source in config.data.eval]


def own_sampling(config: Config) -> Any:
    """How a prompt of the first training source and one of the first held-out source are answered."""
    from rlctl.runtime.data.recorded import RecordedSet
    from rlctl.runtime.experience.samples import evaluation_sampling, requests_for, training_sampling
    from rlctl.runtime.types import Prompt

    def asked(source: Any, sampling: Any) -> Any:
        extra = RecordedSet._extra(SimpleNamespace(source=source, _agent=lambda row: None), {})  # type: ignore[arg-type]
        return requests_for([Prompt(0, "s", (1,), "", extra=extra)], sampling, n=1, seed=1, purpose="p")

    data = config.data
    held_out = evaluation_sampling(config.rollout, data.eval[0], (1,))
    return asked(data.train[0], training_sampling(config.rollout, (1,))), asked(data.eval[0], held_out)


def megatron(config: Config) -> Any:
    """What Megatron-core is told of a model of experts."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages for GPUs that it can do without
        from rlctl.runtime.train.megatron import arguments
    from transformers import Qwen3MoeConfig

    made = Qwen3MoeConfig(num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, num_experts=4)
    train = config.train
    configs = (
        arguments.transformer_config(train, made),
        arguments.ddp_config(train),
        arguments.optimizer_config(train),
    )
    return [{name: value for name, value in vars(each).items() if not callable(value)} for each in configs]


def joined(config: Config) -> Any:
    """How a training worker meets the others."""
    from rlctl.runtime.specs.trained import join_spec
    from rlctl.runtime.workers import trainer

    with patch.object(trainer, "join") as join:
        trainer.enter(join_spec(config), SimpleNamespace(rank=0, world_size=2, address="a", port=1, device="cpu"))  # type: ignore[arg-type]
    return join.call_args


def seed_of_policy(config: Config) -> Any:
    from rlctl.runtime.specs.trained import trainer_spec
    from rlctl.runtime.workers import trainer

    with patch.object(trainer, "make_train_engine") as made:
        trainer.make_engine(trainer_spec(config, "m", None), "cpu")
    return made.call_args.kwargs["seed"]


def seed_of_critic(config: Config) -> Any:
    from rlctl.runtime.specs.trained import critic_spec
    from rlctl.runtime.workers import critic

    with patch.object(critic, "make_train_engine") as made:
        critic.make_critic_engine(critic_spec(config, "m", None), "cpu")
    return made.call_args.kwargs["seed"]


def megatron_reference(config: Config) -> Any:
    assert config.reference.engine is not None
    return megatron(replace(config, train=replace(config.train, engine=config.reference.engine)))


def temperature(config: Config) -> Any:
    from rlctl.runtime.specs.trained import training_temperature

    return training_temperature(config)


def clock(config: Config) -> Any:
    from rlctl.runtime.stage_inputs import make_clock

    return make_clock(config, ROWS)


def environment(config: Config) -> Any:
    from rlctl.runtime.processes.environment import variables_by_role, worker_environment

    return worker_environment(config), variables_by_role(config)


def learning_rates(config: Config) -> Any:
    """The learning rate of each of the first 40 ticks."""
    from rlctl.runtime.stage_inputs import make_clock, scheduler_steps
    from rlctl.runtime.train.schedule import curve_of

    stage = make_plan(config, rows=ROWS).stages[0]
    train = config.train
    ticks = scheduler_steps(config, stage, make_clock(config, ROWS))
    curve = curve_of(train.lr_scheduler, peak=train.optimizer.lr, scheduler_steps=ticks)
    return [curve.rate(tick) for tick in range(40)]


def ordering(config: Config) -> Any:
    from rlctl.runtime.data.open import ordering_of
    from rlctl.runtime.specs.data import data_spec

    return ordering_of(data_spec(config), [])


def mini_batches(config: Config) -> Any:
    from rlctl.planning import arithmetic
    from rlctl.runtime.workers.sharding import mini_batches

    return mini_batches(arithmetic.responses_per_step(config), config.batch, seed=config.run.seed, step=3)


def critic_mini_batches(config: Config) -> Any:
    from rlctl.planning import arithmetic
    from rlctl.runtime.workers.sharding import mini_batches

    return mini_batches(80, arithmetic.critic_batch(config), seed=1, step=3)


def critic_micro_batches(config: Config) -> Any:
    """Of training, and of passes for values."""
    from rlctl.planning import arithmetic
    from rlctl.runtime.train.microbatch import split

    batch, lengths = arithmetic.critic_batch(config), [900, 800, 700, 100, 50]
    return [
        split(lengths, micro, padded=False)
        for micro in (batch.micro_batch, batch.log_prob_micro_batch or batch.micro_batch)
    ]


def critic_learning_rates(config: Config) -> Any:
    """The critic's learning rate of each of the first 40 ticks."""
    from rlctl.runtime.stage_inputs import critic_scheduler_steps, make_clock
    from rlctl.runtime.train.schedule import curve_of

    assert config.critic is not None
    ticks, peak = critic_scheduler_steps(config, make_clock(config, ROWS)), config.critic.optimizer.lr
    curve = curve_of(config.critic.lr_scheduler, peak=peak, scheduler_steps=ticks)
    return [curve.rate(tick) for tick in range(40)]


def critic_optimizer(config: Config) -> Any:
    assert config.critic is not None
    return optimizer(replace(config, train=config.critic))


def critic_path(config: Config) -> Any:
    from rlctl.runtime.start_workers import critic_path

    return critic_path(config, "start")


def value_loss(config: Config) -> Any:
    """Of two responses whose values are on both sides of the clip, with the gradient."""
    import torch

    from rlctl.runtime.algorithms.aggregation import Totals
    from rlctl.runtime.train.losses import CriticLoss

    assert config.critic is not None
    values, lengths = torch.tensor([-0.9, 1.0, 2.0, 0.1], requires_grad=True), torch.tensor([3, 1])
    tensors = {"values": values, "old_values": torch.zeros(4), "returns": torch.full((4,), -1.0), "lengths": lengths}
    loss = CriticLoss.of(config.critic.value_loss, max_response_tokens=8)(tensors, Totals.of(lengths)).loss
    loss.backward()
    return loss.item(), values.grad.tolist()


def policy_steps(config: Config) -> Any:
    """The steps out of four in which the policy is trained."""
    from contextlib import nullcontext
    from types import SimpleNamespace

    from rlctl.runtime.stage_run import Progress, StageRun

    trained: list[int] = []
    policy = SimpleNamespace(train=lambda samples, step, old_is_current: trained.append(step) or {})
    stage: Any = SimpleNamespace(
        auxiliary=None,
        config=config,
        policy=policy,
        critic=None,
        old_is_current=False,
        progress=Progress(),
        groups=None,
        phase=lambda name: nullcontext(),
        _updating=nullcontext(),
    )
    for step in range(1, 5):
        StageRun.train(stage, step, [])
    return trained, stage.progress.weight_version


def loss_and_gradient(config: Config, last: float = -0.5) -> Any:
    """Of the policy loss on two responses whose ratios are on both sides of every clip range; ``last`` is an old log-prob."""
    import torch

    from rlctl.runtime.algorithms.aggregation import Totals
    from rlctl.runtime.train.losses import PolicyLoss

    lengths = torch.tensor([4, 2])
    log_probs = torch.tensor([-0.1, -2.0, -0.9, -1.0, -0.2, -3.0], requires_grad=True)
    tensors = {
        "log_probs": log_probs,
        "old_log_probs": torch.tensor([-2.0, -0.2, -1.0, -1.0001, -2.0, last]),
        "reference_log_probs": torch.tensor([-1.0, -1.0, -0.5, -1.5, -1.0, -1.0]),
        "rollout_log_probs": torch.tensor([-2.0, -0.2, -1.0, -1.0001, -2.0, last]),
        "advantages": torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0, -1.0]),
        "entropy": torch.full((6,), 0.7),
        "lengths": lengths,
    }
    loss = PolicyLoss.of(config.algorithm, max_response_tokens=8)(tensors, Totals.of(lengths)).loss
    loss.backward()
    return loss.item(), log_probs.grad.tolist()


def loss_of_a_likelier_bad_response(config: Config) -> Any:
    """Of two responses, the second of which has a negative advantage and became likelier as a whole."""
    return loss_and_gradient(config, last=-1.5)


def loss_of_two_parts(config: Config) -> Any:
    """Of two responses, four tokens and two, each in a micro-batch of its own."""
    import torch

    from rlctl.runtime.algorithms.aggregation import Totals
    from rlctl.runtime.train.losses import weights_of

    weights = weights_of(config.algorithm, max_response_tokens=8)
    return [weights.total(torch.ones(size), torch.tensor([size]), Totals(6, 2)).item() for size in (4, 2)]


def objective_loss(config: Config) -> Any:
    """Loss and gradient of the config's objective in its third mini-batch, on a response rolled out and one of an expert,
    or on a pair: chosen and rejected."""
    import torch

    from rlctl.runtime.algorithms.aggregation import Totals
    from rlctl.runtime.specs.trained import loss_spec
    from rlctl.runtime.workers.trainer import make_loss

    log_probs = torch.tensor([-0.1, -2.0, -0.9, -1.0, -0.2, -3.0], requires_grad=True)
    columns = ("old_log_probs", "reference_log_probs", "rollout_log_probs", "advantages", "entropy")
    tensors = {name: torch.tensor([-1.0, -0.5, -2.0, -0.1, -1.0, -0.6]) for name in columns}
    expert = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 1.0])
    tensors |= {"log_probs": log_probs, "expert": expert, "lengths": torch.tensor([4, 2])}
    tensors |= {"teacher_log_probs": torch.full((6,), -0.8), "divergence": torch.full((6,), 0.3)}
    loss = make_loss(loss_spec(config), number=3)(tensors, Totals(6, 2, 2, 1)).loss
    loss.backward()
    return loss.item(), log_probs.grad.tolist()


def shaped(config: Config) -> Any:
    """What the samples of two steps of three groups become: advantages, weights, what is trained on, and what is remembered.

    The groups: rewards 1 and 1/4, the second response cut; 1/2 and 0; 2 and 2, of another tag.
    """
    import torch

    from rlctl.runtime.experience.samples import RolloutGroup, samples_of
    from rlctl.runtime.experience.shaping import Shaping
    from rlctl.runtime.rewards.routing import Score
    from rlctl.runtime.specs.experience import shaping_spec
    from rlctl.runtime.types import Prompt, Response

    tagged = [("a", 0.25), ("a", 0.5), ("b", 0.75)]
    prompts = [
        Prompt(index=i, source="s", token_ids=(1, 2), text="", extra={"tag": tag, "extra_info": {"difficulty": hard}})
        for i, (tag, hard) in enumerate(tagged)
    ]
    answers = [Response((3, 4, 5), (-1.0, -0.5, -0.2), "stop", 0), Response((6,), (-2.0,), "length", 0)]
    greedy = Response((7,), (-0.1,), "stop", 0), Score(0.5)
    answered = [
        RolloutGroup(
            prompt, answers, rewards, [Score(reward, {"format": 1.0}, reward > 0.2) for reward in rewards], greedy
        )
        for prompt, rewards in zip(prompts, ([1.0, 0.25], [0.5, 0.0], [2.0, 2.0]), strict=True)
    ]
    shaping, seen = Shaping.of(shaping_spec(config)), []
    for drift in (0.25, 1.0):
        kept = shaping.kept_groups(answered)
        samples = samples_of(kept, train_on_cut_prompts=True)
        for sample in samples:
            sample.columns["old_log_probs"] = sample.columns["rollout_log_probs"] * (1 - drift)
            sample.columns["reference_log_probs"] = torch.full((len(sample),), -0.75)
            sample.columns["old_values"] = torch.full((len(sample),), drift)
        shaping.shape(samples, kept)
        columns = ("advantages", "policy_weights", "returns")
        seen.append(
            [
                [sample.columns[name].tolist() for name in columns if name in sample.columns]
                + [sample.mask.tolist(), sample.counted]
                for sample in shaping.redrawn(samples, kept, step=1)
            ]
        )
    return seen, shaping.state(), shaping.refills


def drawn_prompts(config: Config) -> Any:
    """The rounds of prompts that a step of two draws where no group is ever kept but the third and fourth."""
    from contextlib import nullcontext

    from rlctl.common.errors import RunError
    from rlctl.planning.rollout_schedule import sync_schedule
    from rlctl.runtime.experience.explore import Explorer
    from rlctl.runtime.experience.samples import RolloutGroup
    from rlctl.runtime.experience.shaping import Shaping
    from rlctl.runtime.specs.experience import generation_spec, shaping_spec
    from rlctl.runtime.types import Prompt, Response

    class Rounds(Explorer):
        def _round(self, prompts: Any, purpose: str, phase: Any) -> list[RolloutGroup]:
            rewards = [[1.0, float(prompt.index < 2)] for prompt in prompts]
            one = Response((1,), (0.0,), "stop", 0)
            return [RolloutGroup(prompt, [one, one], each) for prompt, each in zip(prompts, rewards, strict=True)]

    class Prompts:
        taken = 0

        def take(self, count: int) -> list[Prompt]:
            self.taken += count
            return [Prompt(i, "s", (1,), "") for i in range(self.taken - count, self.taken)]

    none: Any = None
    stream: Any = Prompts()
    spec, schedule = generation_spec(config, "main", ()), sync_schedule(config)
    explorer = Rounds(spec, schedule, stream, none, none, Shaping.of(shaping_spec(config)))
    try:
        seen, kept, rounds = explorer._explore(1, lambda name: nullcontext())
    except RunError as error:
        return error.message
    return len(seen), len(kept), rounds


def wrong_and_long(config: Config) -> Any:
    """Whether a wrong response of three tokens is trained on."""
    from rlctl.runtime.experience.samples import RolloutGroup, samples_of
    from rlctl.runtime.experience.shaping import Shaping
    from rlctl.runtime.specs.experience import shaping_spec
    from rlctl.runtime.types import Prompt, Response

    answered = [RolloutGroup(Prompt(0, "s", (1, 2), ""), [Response((3, 4, 5), (0.0,) * 3, "stop", 0)], [0.0])]
    samples = samples_of(answered, train_on_cut_prompts=True)
    Shaping.of(shaping_spec(config)).shape(samples, answered)
    return samples[0].mask.tolist()


def trained_tokens(config: Config) -> Any:
    """Of a response to a prompt that was cut."""
    from rlctl.runtime.experience.samples import RolloutGroup, samples_of
    from rlctl.runtime.types import Prompt, Response

    prompt = Prompt(index=0, source="s", token_ids=(1, 2), text="", extra={"truncated": True})
    answered = [RolloutGroup(prompt, [Response((3, 4), (-1.0, -0.5), "stop", 0)], [1.0])]
    (sample,) = samples_of(answered, train_on_cut_prompts=config.data.train_on_truncated_prompts)
    return int(sample.mask.sum())


def optimizer(config: Config) -> Any:
    import torch

    from rlctl.runtime.train.optimizer import make_optimizer

    return make_optimizer([torch.nn.Parameter(torch.zeros(1))], config.train.optimizer).defaults


def decayed(config: Config) -> Any:
    """How far a weight of one dimension and one of two are pulled."""
    import torch

    from rlctl.runtime.train.optimizer import make_optimizer

    weights = [torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1, 1))]
    groups = make_optimizer(weights, config.train.optimizer).param_groups
    return [(group["weight_decay"], [tuple(weight.shape) for weight in group["params"]]) for group in groups]


def critic_decayed(config: Config) -> Any:
    return decayed(replace(config, train=config.critic))


def optimizer_class(config: Config) -> Any:
    from rlctl.runtime.train.optimizer import optimizer_class

    return optimizer_class(config.train.optimizer)


def weight_decays(config: Config) -> Any:
    """The weight decay of each of the first 40 ticks."""
    from rlctl.runtime.train.schedule import decay_of

    decay = decay_of(config.train.optimizer, scheduler_steps=20)
    return [decay.at(tick) for tick in range(40)]


def critic_optimizer_class(config: Config) -> Any:
    return optimizer_class(replace(config, train=config.critic))


def critic_weight_decays(config: Config) -> Any:
    return weight_decays(replace(config, train=config.critic))


def model_config(config: Config) -> Any:
    """What the model is made with, out of a config.json of Llama's."""
    import json
    import tempfile
    from pathlib import Path

    from rlctl.runtime.models.config import changed_config

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 64}))
        changed = changed_config(config.model, folder)
    return None if changed is None else {**changed.to_dict(), "_name_or_path": ""}


def trained_weights(config: Config) -> Any:
    """Name, type and size of what is trained of a small model, and how adapters count in it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from rlctl.runtime.train.lora import Adapters
    from rlctl.runtime.train.model import freeze

    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=16, **sizes)).to(torch.bfloat16)
    freeze(model, config.model.freeze)
    told = None
    if config.model.lora is not None:
        adapters = Adapters.put_into(model, config.model.lora, base=config.model.path, seed=1).config
        told = (adapters.lora_alpha, adapters.lora_dropout, adapters.base_model_name_or_path)
    trained = [(name, p.dtype, p.shape) for name, p in model.named_parameters() if p.requires_grad]
    return trained, told


def fed(config: Config) -> Any:
    """The shape in which responses of different lengths are fed to a small model."""
    import tempfile

    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from rlctl.runtime.train.microbatch import collate
    from rlctl.runtime.train.model import load, pads
    from rlctl.runtime.types import Sample

    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(LlamaConfig(vocab_size=16, **sizes)).save_pretrained(folder)
        model, _ = load(
            replace(config.model, path=folder),
            config.train.memory,
            dtype=torch.float32,
            train=True,
            packing=config.train.packing,
        )
    samples = [Sample(torch.arange(size), torch.arange(size) > 0, {}) for size in (3, 6)]
    return collate(samples, (), padded=pads(model), device=torch.device("cpu")).inputs["input_ids"].shape


def micro_batches_of_passes(config: Config) -> Any:
    """How the passes for log-probs of the policy and of the reference are cut."""
    from rlctl.runtime.specs.trained import reference_spec, trainer_spec
    from rlctl.runtime.train.microbatch import split
    from rlctl.runtime.workers import reference, trainer

    place, found = trainer.Place(0, 1, "a", 1), []
    for module in (trainer, reference):
        with patch.object(module, "enter"), patch.object(module, "make_train_engine") as made:
            engine = made.return_value
            engine.log_probs.return_value = []
            if module is trainer:
                trainer.Trainer(trainer_spec(config, "m", None), place).statistics([], ())
                asked = engine.statistics
            else:
                reference.Reference(reference_spec(config, "m"), place).log_probs([])
                asked = engine.log_probs
        found.append(split([900, 800, 700, 100, 50], asked.call_args.kwargs["micro"], padded=False))
    return found


def micro_batches(config: Config) -> Any:
    from rlctl.runtime.train.microbatch import split

    return split([900, 800, 700, 100, 50], config.batch.micro_batch, padded=False)


def scores(config: Config) -> Any:
    """Of a right and a wrong answer."""
    from rlctl.runtime.types import Prompt
    from rlctl.runtime.workers.reward import RewardItem, RewardWorker

    prompt = Prompt(index=0, source="arithmetic", token_ids=(1,), text="1+1=", answer="2")
    items = [RewardItem(prompt, text, 1) for text in ("2", "It is 2", "3")]
    with RewardWorker(config.rewards) as worker:
        return worker.score(items)


def one_of_two_fails(config: Config) -> Any:
    """What two responses get of which the first reward fails on one, or why the run stops."""
    from rlctl.common.errors import RunError
    from rlctl.runtime.rewards.interface import Failure, Outcome
    from rlctl.runtime.types import Prompt
    from rlctl.runtime.workers import reward

    prompt = Prompt(index=0, source="arithmetic", token_ids=(1,), text="1+1=", answer="2")
    items = [reward.RewardItem(prompt, text, 1) for text in ("2", "3")]
    found = [Outcome(1.0), Failure("it is gone")]
    with patch.object(reward, "score_by_service", return_value=found), reward.RewardWorker(config.rewards) as worker:
        try:
            return worker.score(items, {0: found})
        except RunError as error:
            return error.message


def replayed(config: Config) -> Any:
    """Which of two groups each of eight takes from the buffer gives, until there is none."""
    from contextlib import suppress
    from tempfile import TemporaryDirectory

    from rlctl.runtime.buffers.interface import BufferTimeout
    from rlctl.runtime.buffers.make import make_buffer

    from .runtime.buffers.made import group, indices

    with TemporaryDirectory() as folder:
        buffer = make_buffer(config.buffer, Path(folder), seed=0)
        buffer.put([group(0), group(1, version=1)])
        taken = []
        with suppress(BufferTimeout):
            for _ in range(8):
                taken += indices(buffer.take(1))
        buffer.close()
    return taken


def ray_joined(config: Config) -> Any:
    """What Ray is initialized with."""
    from rlctl.runtime.launch import ray_arguments

    return ray_arguments(config.runtime.ray, make_plan(config, rows=ROWS), "head:6379")


def scorer(config: Config) -> Any:
    """What the first reward is computed by, or why it cannot be here."""
    from rlctl.common.errors import RunError
    from rlctl.runtime.workers.reward import scorer_of

    try:
        return scorer_of(config.rewards[0])
    except RunError as error:
        return error.message


def judge_arguments(config: Config) -> Any:
    """What vLLM is started with for the judge that the run serves."""
    from rlctl.runtime.rollout.vllm_arguments import engine_arguments
    from rlctl.runtime.specs.served import judge_config

    return engine_arguments(judge_config(config, config.rewards[0], "vllm"), "m", "cuda")  # type: ignore[arg-type]


def auxiliary_arguments(config: Config) -> Any:
    """What vLLM is started with for the first auxiliary model."""
    from rlctl.runtime.rollout.vllm_arguments import engine_arguments
    from rlctl.runtime.specs.served import auxiliary_config

    made = auxiliary_config(config, config.rollout.auxiliary_models[0], "vllm")
    return engine_arguments(made, "m", "cuda")


def pools(config: Config) -> Any:
    """How many processes score for the first reward."""
    from rlctl.runtime.workers.reward import RewardWorker

    with RewardWorker(config.rewards) as worker:
        return len(worker._pools[0].pids)


BASE: dict[str, Any] = {
    "data": {"train": [{"path": "a.parquet"}], "eval": [{"path": "b.parquet"}]},
    "batch": {"prompts_per_step": 10, "responses_per_prompt": 4, "mini_batch_responses": 20},
    "schedule": {"total_steps": 20, "evaluate_every": 5},
    "checkpoint": {"every": 5},
    "placement": {"device": "cpu", "devices_per_node": 2},
    "train": {"lr_scheduler": {"type": "cosine", "warmup_steps": 4}},
    "critic": {"lr_scheduler": {"type": "cosine", "warmup_steps": 4}},
}
GAE, FEEDBACK = {"algorithm.advantage": {"type": "gae"}}, "algorithm.policy_filtration"
ADAPTERS = {"model": {"lora": {"rank": 2}}}
DECAYING = {"weight_decay_style": "linear", "start_weight_decay": 0.1, "end_weight_decay": 0.3}
WSD = {"train": {"lr_scheduler": {"type": "wsd", "wsd_decay_steps": 5}}}
RULE = {"rewards": [{"type": "rule", "rule": "number"}]}
JUDGE = {"rewards": [{"type": "judge", "base_url": "http://a/v1", "model": "m"}]}
SERVED = {"rewards": [{"type": "judge", "model": "m"}]}
AUXILIARY = {"rollout": {"auxiliary_models": [{"path": "m"}]}}
SANDBOX = {"rewards": [{"type": "sandbox", "url": "http://a/run_code"}]}
REWARD_MODEL = {"rewards": [{"type": "model", "path": "m"}]}
REPLAY = {"read_timeout": 0.2, "replay": {"enabled": True, "cooldown": 0.0}}
LIMITED = "decay_limit_randomization"
HERE = {"rewards": [{"type": "sandbox", "isolation": "limits"}]}
FUNCTION = {"rewards": [{"type": "function", "path": "a.py"}]}
SUM_NORM = "seq_mean_token_sum_norm"
TRUNCATED = {"algorithm": {"policy_loss": {"type": "policy_gradient", "importance_weight": "truncated_ratio"}}}
SCHEDULE = "train.lr_scheduler"
SAMPLING, MEMORY = "rollout.sampling", "rollout.memory"
VLLM = {"rollout": {"engine": "vllm"}}
SGLANG = {"rollout": {"engine": "sglang"}}
ENDPOINT = {"rollout": {"engine": {"type": "external", "base_url": "http://a/v1"}}}
HELD_OUT = "data.eval[].evaluation_sampling"
CORRECTION, SHAPING, FILTERS = "algorithm.rollout_correction", "algorithm.reward_shaping", "algorithm.filters"
KL_IN_REWARD, OVER = "algorithm.kl_in_reward", "rollout.oversampling"
ADAPTIVE = {KL_IN_REWARD: {"estimator": "k2", "coefficient": 0.1, "adaptive": True, "horizon": 10}}
ASYMRE, GEO_MEAN = {"type": "asymre"}, {"type": "geo_mean"}
TAUGHT = "algorithm.distillation"
REJECT = {"rejection": ["token_k2"], "rejection_bounds": [0.1]}
OVERLONG = {"rollout.max_response_tokens": 4, SHAPING: {"overlong_penalty": {"buffer": 2}}}
REFILL = {FILTERS: [{"type": "zero_variance_groups"}], "batch": {"prompts_per_step": 2, "responses_per_prompt": 2}}


def _of_critic(change: dict[str, Any]) -> dict[str, Any]:
    """A change of ``train`` as one of ``critic``."""
    return {key.replace("train", "critic", 1): value for key, value in change.items()}


AGENT = {"type": "function", "name": "a", "path": "agent.py"}
EFFECTS: list[tuple[str, Any, Probe, dict[str, Any]]] = [
    ("run.name", "other", plan_name, {}),
    ("run.mode", "evaluate_only", clock, {}),
    ("run.seed", 7, mini_batches, {"batch": {"shuffle": True}}),
    ("train.seed", 7, seed_of_policy, {}),
    ("runtime.ray.collective_timeout", 7.0, joined, {}),
    ("runtime.ray.namespace", "mine", ray_joined, {}),
    ("stages", [{"name": "a"}, {"name": "b"}], plan, {}),
    ("data.eval", [], plan, {"algorithm": {"objective": "sft"}}),
    ("data.train_on_truncated_prompts", False, trained_tokens, {}),
    ("data.mixing", "weighted", ordering, {}),
    ("data.domain_weights", {"a": 1.0, "b": 2.0}, ordering, {"data": {"domain_weights": {"a": 2.0, "b": 1.0}}}),
    ("data.curriculum.order", "sequential", ordering, {}),
    (
        "data.curriculum.args",
        {"tau": 0.5},
        ordering,
        {"data": {"curriculum": {"order": "difficulty", "keys": ["weak", "strong"]}}},
    ),
    ("data.seed", 7, ordering, {}),
    ("data.last_batch", "carry", ordering, {}),
    ("data.train[].weight", 2.0, ordering, {}),
    ("data.train[].sampling", {"temperature": 0.5}, own_sampling, {}),
    ("data.eval[].sampling", {"top_k": 5}, own_sampling, {}),
    ("data.eval[].response_key", "responses", plan, {"run": {"mode": "evaluate_only"}}),
    ("batch.prompts_per_step", 20, plan, {}),
    ("batch.responses_per_prompt", 2, plan, {}),
    ("batch.mini_batch_responses", 40, plan, {}),
    ("batch.ppo_epochs", 2, plan, {}),
    ("batch.shuffle", True, mini_batches, {}),
    ("batch.shuffle_seed", 7, mini_batches, {"batch": {"shuffle": True}}),
    ("schedule.total_steps", 10, plan, {}),
    ("schedule.total_epochs", 1, plan, {}),
    ("schedule.total_optimizer_steps", 4, plan, {}),
    ("schedule.evaluate_every", 2, plan, {}),
    ("schedule.evaluate_at_start", False, clock, {}),
    ("schedule.evaluate_at_end", False, clock, {}),
    ("algorithm.objective", "sft", plan, {}),
    ("algorithm.objective<dpo>", None, plan, {}),
    ("algorithm.objective<dpo>.beta", 0.5, objective_loss, {}),
    ("algorithm.objective<dpo>.label_smoothing", 0.2, objective_loss, {}),
    ("algorithm.objective<dpo>.ipo", True, objective_loss, {}),
    ("algorithm.objective<mix>", None, plan, {}),
    ("algorithm.objective<mix>.mu", 0.5, objective_loss, {}),
    ("algorithm.objective<mix>.expert_share", 0.5, plan, {}),
    ("algorithm.objective<mix>.args", {"mu_decay_steps": 9, "mu_peak": 0.9}, objective_loss, {}),
    ("algorithm.distillation", {"teacher": "t"}, plan, {}),
    ("algorithm.distillation.teacher", "other", plan, {TAUGHT: {"teacher": "t"}}),
    ("algorithm.distillation.loss", "forward_kl", objective_loss, {TAUGHT: {"teacher": "t"}}),
    ("algorithm.distillation.coefficient", 0.5, objective_loss, {TAUGHT: {"teacher": "t"}}),
    ("algorithm.distillation.top_k", 4, objective_loss, {TAUGHT: {"teacher": "t"}}),
    ("algorithm.distillation.args", {"with_rewards": False}, objective_loss, {TAUGHT: {"teacher": "t"}}),
    ("algorithm.kl_in_loss", {"coefficient": 0.1}, plan, {}),
    ("algorithm.kl_in_loss.coefficient", 0.0, plan, {"algorithm": {"kl_in_loss": {"coefficient": 0.1}}}),
    ("algorithm.kl_in_reward", {"coefficient": 0.1}, plan, {}),
    ("algorithm.kl_in_reward.coefficient", 0.0, plan, {"algorithm": {"kl_in_reward": {"coefficient": 0.1}}}),
    ("algorithm.train_temperature", "one", temperature, {"rollout": {"sampling": {"temperature": 0.5}}}),
    ("algorithm.advantage", "rloo", shaped, {}),
    ("algorithm.advantage<rloo>", None, shaped, {}),
    ("algorithm.advantage<grpo>.normalize_by_std", False, shaped, {}),
    ("algorithm.advantage<grpo>.epsilon", 1.0, shaped, {}),
    ("algorithm.advantage<reinforce>.gamma", 0.5, shaped, {}),
    ("algorithm.advantage<reinforce_plus_plus>.gamma", 0.5, shaped, {}),
    ("algorithm.advantage<reinforce>", None, shaped, {}),
    *[
        (f"algorithm.advantage<{option}>.{field}", value, shaped, {"algorithm": {"advantage": {"type": name}}})
        for option, name, whitens in (
            *((name, name, False) for name in ("grpo", "grpo_passk", "rloo", "remax", "reinforce", "opo", "opmd")),
            *((name, name, False) for name in ("gigpo", "step_wise_grpo", "step_reinforce", "segment_reinforce")),
            *((name, name, True) for name in ("gae", "reinforce_plus_plus", "reinforce_plus_plus_baseline")),
            ("other", "asymre", False),
        )
        for field, value in (("whiten", not whitens), ("clip", 0.1))
    ],
    ("algorithm.advantage<reinforce_plus_plus>", None, shaped, {}),
    ("algorithm.advantage<reinforce_plus_plus_baseline>", None, shaped, {}),
    ("algorithm.kl_in_reward.estimator", "k2", shaped, {"algorithm": {"kl_in_reward": {"coefficient": 0.1}}}),
    ("algorithm.kl_in_reward.adaptive", True, shaped, {"algorithm": {"kl_in_reward": {"coefficient": 0.1}}}),
    ("algorithm.kl_in_reward.target", 0.5, shaped, ADAPTIVE),
    ("algorithm.kl_in_reward.horizon", 20, shaped, ADAPTIVE),
    ("algorithm.advantage<grpo>.kl_order", "after_normalisation", shaped, {KL_IN_REWARD: {"coefficient": 0.1}}),
    ("algorithm.advantage<grpo_passk>", None, shaped, {}),
    ("algorithm.advantage<grpo_passk>.normalize_by_std", False, shaped, {}),
    ("algorithm.advantage<grpo_passk>.epsilon", 1.0, shaped, {}),
    ("algorithm.advantage<remax>", None, shaped, {}),
    ("algorithm.advantage<remax>.gamma", 0.5, shaped, {}),
    ("algorithm.advantage<opo>", None, shaped, {}),
    ("algorithm.advantage<opmd>", None, shaped, {}),
    ("algorithm.advantage<opmd>.baseline", "logavgexp", shaped, {}),
    (
        "algorithm.advantage<opmd>.tau",
        2.0,
        shaped,
        {"algorithm": {"advantage": {"type": "opmd", "baseline": "logavgexp"}}},
    ),
    ("algorithm.advantage<other>", "gpg", shaped, {"algorithm": {"advantage": {"type": "asymre"}}}),
    ("algorithm.advantage<other>.args", {"baseline_shift": 0.5}, shaped, {"algorithm": {"advantage": ASYMRE}}),
    (f"{CORRECTION}.importance_sampling.level", "token", shaped, {}),
    (
        f"{CORRECTION}.importance_sampling.threshold",
        1.1,
        shaped,
        {CORRECTION: {"importance_sampling": {"level": "token"}}},
    ),
    (
        f"{CORRECTION}.importance_sampling.lower_threshold",
        1.5,
        shaped,
        {CORRECTION: {"importance_sampling": {"level": "token"}}},
    ),
    (
        f"{CORRECTION}.importance_sampling.normalize",
        True,
        shaped,
        {CORRECTION: {"importance_sampling": {"level": "token"}}},
    ),
    (f"{CORRECTION}.rejection", ["token_k2"], shaped, {CORRECTION: {"rejection_bounds": [0.1]}}),
    (f"{CORRECTION}.rejection_bounds", [9], shaped, {CORRECTION: REJECT}),
    (f"{CORRECTION}.veto_threshold", 2.0, shaped, {}),
    (f"{CORRECTION}.use_policy_gradient", True, loss_and_gradient, {"algorithm": {"old_log_probs": "rollout"}}),
    (CORRECTION, {"importance_sampling": {"level": "sequence"}}, shaped, {}),
    (f"{SHAPING}.shift", 0.5, shaped, {"algorithm.advantage": {"type": "reinforce"}}),
    (f"{SHAPING}.scale", 2.0, shaped, {"algorithm.advantage": {"type": "rloo"}}),
    (f"{SHAPING}.clip", 0.1, shaped, {}),
    (f"{SHAPING}.normalize.mean", "batch", shaped, {"algorithm.advantage": {"type": "reinforce"}}),
    (f"{SHAPING}.normalize.std", "running", shaped, {"algorithm.advantage": {"type": "reinforce"}}),
    (f"{SHAPING}.normalize_per_domain", True, shaped, {"algorithm.advantage": {"type": "grpo", "whiten": True}}),
    (
        f"{SHAPING}.group_by",
        "tags",
        shaped,
        {SHAPING: {"normalize": {"mean": "group"}}, "algorithm.advantage": {"type": "reinforce"}},
    ),
    (f"{SHAPING}.whiten", True, shaped, {}),
    (f"{SHAPING}.length_penalty", 0.5, shaped, {"rollout.max_response_tokens": 4}),
    (f"{SHAPING}.overlong_penalty", {"buffer": 2}, shaped, {"rollout.max_response_tokens": 4}),
    (f"{SHAPING}.overlong_penalty.buffer", 3, shaped, OVERLONG),
    (f"{SHAPING}.overlong_penalty.factor", 0.5, shaped, OVERLONG),
    (f"{SHAPING}.overlong_penalty.limit", 3, shaped, OVERLONG),
    (f"{SHAPING}.overlong_penalty.clamp", True, shaped, {**OVERLONG, "rollout.max_response_tokens": 2}),
    (FILTERS, ["overlong"], shaped, {}),
    (f"{FILTERS}[]<zero_variance_groups>.metric", "format", shaped, {FILTERS: [{"type": "zero_variance_groups"}]}),
    (f"{FILTERS}[]<zero_variance_groups>.refill", False, shaped, {FILTERS: [{"type": "zero_variance_groups"}]}),
    (f"{FILTERS}[]<zero_variance_groups>.threshold", 0.5, shaped, {FILTERS: [{"type": "zero_variance_groups"}]}),
    (f"{FILTERS}[]<group_mean>.low", 0.5, shaped, {FILTERS: [{"type": "group_mean"}]}),
    (f"{FILTERS}[]<group_mean>.high", 0.5, shaped, {FILTERS: [{"type": "group_mean"}]}),
    (f"{FILTERS}[]<group_mean>.refill", True, shaped, {FILTERS: [{"type": "group_mean"}]}),
    (f"{FILTERS}[]<difficulty_mask>.low", 0.6, shaped, {FILTERS: [{"type": "difficulty_mask"}]}),
    (f"{FILTERS}[]<difficulty_mask>.high", 0.4, shaped, {FILTERS: [{"type": "difficulty_mask"}]}),
    (
        f"{FILTERS}[]<long_incorrect>.max_tokens",
        3,
        wrong_and_long,
        {FILTERS: [{"type": "long_incorrect", "max_tokens": 4}]},
    ),
    ("algorithm.loss_weights.difficulty", True, shaped, {}),
    ("algorithm.loss_weights.length", True, shaped, {}),
    ("algorithm.loss_weights.rl", 0.5, loss_and_gradient, {}),
    (f"{OVER}.generation_batch_prompts", 6, drawn_prompts, REFILL),
    (f"{OVER}.max_generation_batches", 1, drawn_prompts, REFILL),
    ("algorithm.policy_loss<topr>", None, loss_and_gradient, {}),
    ("algorithm.policy_loss<topr>.positive_weight", 2.0, loss_and_gradient, {}),
    ("algorithm.policy_loss<topr>.negative_weight", 2.0, loss_and_gradient, {}),
    ("algorithm.policy_loss<sapo>", None, loss_and_gradient, {}),
    ("algorithm.policy_loss<sapo>.tau_positive", 2.0, loss_and_gradient, {}),
    ("algorithm.policy_loss<sapo>.tau_negative", 2.0, loss_and_gradient, {}),
    ("algorithm.policy_loss<other>", "kimi15", loss_and_gradient, {"algorithm.policy_loss": GEO_MEAN}),
    ("algorithm.policy_loss<other>.args", {"clip_low": 2.0}, loss_and_gradient, {"algorithm.policy_loss": GEO_MEAN}),
    ("algorithm.policy_loss", "gspo", loss_and_gradient, {}),
    ("algorithm.policy_loss<gspo>", None, loss_and_gradient, {}),
    ("algorithm.policy_loss<cispo>", None, loss_and_gradient, {}),
    ("algorithm.policy_loss<policy_gradient>", None, loss_and_gradient, {}),
    ("algorithm.policy_loss<ppo_clip>.clip_low", 0.9, loss_and_gradient, {}),
    ("algorithm.policy_loss<ppo_clip>.clip_high", 0.5, loss_and_gradient, {}),
    ("algorithm.policy_loss<ppo_clip>.dual_clip", None, loss_and_gradient, {}),
    ("algorithm.policy_loss<gspo>.clip_low", 0.5, loss_and_gradient, {}),
    ("algorithm.policy_loss<gspo>.clip_high", 0.01, loss_and_gradient, {}),
    (
        "algorithm.policy_loss<gspo>.dual_clip",
        1.01,
        loss_of_a_likelier_bad_response,
        {"algorithm.policy_loss": {"type": "gspo", "clip_high": 1.0}},
    ),
    ("algorithm.policy_loss<cispo>.clip_low", 0.1, loss_and_gradient, {}),
    ("algorithm.policy_loss<cispo>.clip_high", 0.5, loss_and_gradient, {}),
    ("algorithm.policy_loss<policy_gradient>.importance_weight", "ratio", loss_and_gradient, {}),
    ("algorithm.policy_loss<policy_gradient>.weight_bound", 2.0, loss_and_gradient, TRUNCATED),
    ("algorithm.loss_aggregation.mode", "seq_mean_token_mean", loss_and_gradient, {}),
    ("algorithm.loss_aggregation.per_micro_batch", True, loss_of_two_parts, {}),
    (
        "algorithm.loss_aggregation.scale_factor",
        4.0,
        loss_and_gradient,
        {"algorithm.loss_aggregation": {"mode": SUM_NORM}},
    ),
    ("algorithm.kl_in_loss.estimator", "k1", loss_and_gradient, {"algorithm": {"kl_in_loss": {"coefficient": 0.1}}}),
    ("algorithm.entropy_coefficient", 0.1, loss_and_gradient, {}),
    ("train.optimizer.weight_decay", 0.1, optimizer, {}),
    ("train.optimizer.betas", [0.8, 0.9], optimizer, {}),
    ("train.optimizer.epsilon", 1e-6, optimizer, {}),
    ("train.optimizer.type", "sgd", optimizer_class, {}),
    (
        "train.optimizer.module",
        "transformers.optimization",
        optimizer_class,
        {"train.optimizer": {"type": "adafactor"}},
    ),
    ("train.optimizer.args", {"amsgrad": True}, optimizer, {}),
    ("train.optimizer.decay_norms_and_biases", False, decayed, {}),
    ("train.optimizer.weight_decay_style", "cosine", weight_decays, {"train.optimizer": {**DECAYING}}),
    ("train.optimizer.start_weight_decay", 0.5, weight_decays, {"train.optimizer": {**DECAYING}}),
    ("train.optimizer.end_weight_decay", 0.5, weight_decays, {"train.optimizer": {**DECAYING}}),
    ("train.engine<fsdp2>.ulysses_sequence_parallel_size", 2, plan, {}),
    ("train.packing", False, fed, {}),
    ("critic.engine<fsdp2>.ulysses_sequence_parallel_size", 2, plan, GAE),
    ("model.overrides", {"hidden_act": "gelu"}, model_config, {}),
    ("model.rope.theta", 5.0, model_config, {}),
    ("model.rope.scaling", {"rope_type": "linear", "factor": 2.0}, model_config, {}),
    ("model.freeze", ["*.mlp.*"], trained_weights, {}),
    ("model.lora", {"rank": 4}, trained_weights, {}),
    ("model.lora.rank", 4, trained_weights, ADAPTERS),
    ("model.lora.alpha", 4.0, trained_weights, ADAPTERS),
    ("model.lora.dropout", 0.5, trained_weights, ADAPTERS),
    ("model.lora.target_modules", ["q_proj"], trained_weights, ADAPTERS),
    ("model.lora.exclude_modules", ["q_proj"], trained_weights, ADAPTERS),
    ("model.lora.base_model", "org/base", trained_weights, ADAPTERS),
    ("model.lora.dtype", "bfloat16", trained_weights, ADAPTERS),
    ("batch.micro_batch.unit", "responses", micro_batches, {"batch": {"micro_batch": {"size": 1000}}}),
    ("batch.micro_batch.size", 1000, micro_batches, {}),
    *(
        (f"{key}{part}", value, micro_batches_of_passes, change)
        for key in ("batch.log_prob_micro_batch", "reference.micro_batch")
        for part, value, change in (
            ("", {"size": 1000}, {}),
            (".unit", "responses", {key.split(".")[0]: {key.split(".")[1]: {"size": 1000}}}),
            (".size", 1800, {key.split(".")[0]: {key.split(".")[1]: {"size": 1000}}}),
        )
    ),
    ("rewards", [{"type": "rule", "rule": "exact_match", "weight": 3.0}], scores, RULE),
    ("rewards[]<rule>.rule", "exact_match", scores, RULE),
    ("rewards[]<rule>.weight", 2.0, scores, RULE),
    ("rewards[]<rule>.score_right", 2.0, scores, RULE),
    ("rewards[]<rule>.score_wrong", -1.0, scores, RULE),
    ("rewards", [{"type": "model", "path": "m"}], plan, RULE),
    ("rewards[]<model>.overrides", {"rollout": {}}, plan, REWARD_MODEL),
    ("rewards[]<function>.path", "b.py", scorer, FUNCTION),
    ("rewards[]<function>.function", "mine", scorer, FUNCTION),
    ("rewards[]<function>.signature", "roll", scorer, FUNCTION),
    ("rewards[]<function>.args", {"k": 1}, scorer, FUNCTION),
    ("rewards[]<judge>.base_url", "http://b/v1", scorer, JUDGE),
    ("rewards[]<judge>.model", "other", scorer, JUDGE),
    ("rewards[]<judge>.prompt", "{response}", scorer, JUDGE),
    ("rewards[]<judge>.scoring", "ruler", scorer, JUDGE),
    ("rewards[]<judge>.sampling", {"temperature": 0.0}, scorer, JUDGE),
    ("rewards[]<judge>.engine", "vllm", plan, SERVED),
    ("rollout.auxiliary_models[].engine", "vllm", plan, AUXILIARY),
    ("rollout.auxiliary_models[].replicas", 2, plan, AUXILIARY),
    ("rollout.auxiliary_models[].tensor_parallel_size", 2, plan, AUXILIARY),
    ("rollout.auxiliary_models[].settings", {"block_size": 8}, auxiliary_arguments, AUXILIARY),
    ("rollout.auxiliary_models[].max_context_tokens", 64, auxiliary_arguments, AUXILIARY),
    ("rewards[]<judge>.replicas", 2, plan, SERVED),
    ("rewards[]<judge>.tensor_parallel_size", 2, plan, SERVED),
    ("rewards[]<judge>.engine_args", {"block_size": 8}, judge_arguments, SERVED),
    ("rewards[]<judge>.max_context_tokens", 64, judge_arguments, SERVED),
    ("rewards[]<sandbox>.url", "http://b/run_code", scorer, SANDBOX),
    ("rewards[]<sandbox>.isolation", "namespaces", scorer, HERE),
    ("rewards[]<sandbox>.method", "roll", scorer, HERE),
    ("rewards[]<sandbox>.workers", 2, pools, HERE),
    ("rewards[]<sandbox>.timeout", 9.0, scorer, SANDBOX),
    ("rewards[]<sandbox>.memory_limit_mib", 64, scorer, SANDBOX),
    ("rewards[]<sandbox>.partial_credit", True, scorer, SANDBOX),
    ("rewards[]<sandbox>.tests_together", "refuse", scorer, SANDBOX),
    ("rewards[]<sandbox>.on_error", "stop", one_of_two_fails, SANDBOX),
    ("rewards[]<judge>.on_error", "stop", one_of_two_fails, JUDGE),
    ("rewards[]<model>.on_error", "stop", one_of_two_fails, REWARD_MODEL),
    ("buffer<memory>.replay.priority", LIMITED, replayed, {"buffer": {"type": "memory", **REPLAY}}),
    ("buffer<sql>.replay.priority", LIMITED, replayed, {"buffer": {"type": "sql", **REPLAY}}),
    ("rollout.engine", "transformers", plan, {"placement": {"device": "cuda"}}),
    ("rollout.max_response_tokens", 100, training_sampling, {}),
    ("rollout.sampling.temperature", 0.5, training_sampling, {}),
    (f"{SAMPLING}.top_p", 0.5, training_sampling, {}),
    (f"{SAMPLING}.top_k", 5, training_sampling, {}),
    (f"{SAMPLING}.repetition_penalty", 1.1, training_sampling, {}),
    (f"{SAMPLING}.min_response_tokens", 5, training_sampling, {}),
    (f"{SAMPLING}.min_p", 0.1, training_sampling, {}),
    (f"{SAMPLING}.stop", ["x"], training_sampling, {}),
    (f"{SAMPLING}.include_stop", True, training_sampling, {}),
    (f"{SAMPLING}.ignore_eos", True, training_sampling, {}),
    ("rollout.engine<external>.base_url", "http://b/v1", endpoint, ENDPOINT),
    ("rollout.engine<external>.model", "other", endpoint, ENDPOINT),
    ("rollout.engine<external>.api_key", "secret", endpoint, ENDPOINT),
    ("rollout.engine<external>.args", {"user": "a"}, endpoint, ENDPOINT),
    ("rollout.engine<vllm>.args", {"max_logprobs": 5}, engine_arguments, VLLM),
    ("rollout.engine<sglang>.args", {"attention_backend": "fa3"}, sglang_arguments, SGLANG),
    ("rollout.parallel.tensor_parallel_size", 2, engine_arguments, VLLM),
    ("rollout.parallel.pipeline_parallel_size", 2, engine_arguments, VLLM),
    ("rollout.parallel.data_parallel_size", 2, plan, {"rollout": {"engine": "vllm", "parallel": {"replicas": 1}}}),
    (
        "rollout.parallel.expert_parallel_size",
        2,
        engine_arguments,
        {**VLLM, "rollout.parallel": {"tensor_parallel_size": 2}},
    ),
    (f"{MEMORY}.gpu_memory_utilization", 0.3, engine_arguments, VLLM),
    (f"{MEMORY}.max_batched_tokens", 4096, engine_arguments, VLLM),
    (f"{MEMORY}.block_size", 32, engine_arguments, VLLM),
    (f"{MEMORY}.prefix_caching", False, engine_arguments, VLLM),
    (f"{MEMORY}.chunked_prefill", False, engine_arguments, VLLM),
    (f"{MEMORY}.enforce_eager", True, engine_arguments, VLLM),
    (f"{MEMORY}.sleep", False, engine_arguments, VLLM),
    (f"{MEMORY}.load_format", "dummy", engine_arguments, VLLM),
    (f"{MEMORY}.log_statistics", True, engine_arguments, VLLM),
    (f"{MEMORY}.kv_cache_dtype", "fp8", engine_arguments, VLLM),
    (f"{MEMORY}.quantization", "fp8", engine_arguments, VLLM),
    (f"{HELD_OUT}.temperature", 0.5, evaluation_sampling, {}),
    (f"{HELD_OUT}.top_p", 0.5, evaluation_sampling, {}),
    (f"{HELD_OUT}.top_k", 5, evaluation_sampling, {}),
    (f"{HELD_OUT}.max_response_tokens", 5, evaluation_sampling, {}),
    ("rollout.parallel.replicas", 1, plan, {}),
    ("train.engine<fsdp2>.source", "fsdp", plan, {}),
    ("train.optimizer.lr", 1e-3, learning_rates, {}),
    (f"{SCHEDULE}.type", "linear", learning_rates, {}),
    (f"{SCHEDULE}.step_unit", "optimizer_step", learning_rates, {}),
    (f"{SCHEDULE}.warmup_steps", 8, learning_rates, {}),
    (f"{SCHEDULE}.warmup_ratio", 0.5, learning_rates, {SCHEDULE: {"warmup_steps": None}}),
    (f"{SCHEDULE}.warmup_start_lr", 1e-7, learning_rates, {}),
    (f"{SCHEDULE}.min_lr_ratio", 0.5, learning_rates, {}),
    (f"{SCHEDULE}.min_lr", 5e-7, learning_rates, {}),
    (f"{SCHEDULE}.num_cycles", 1.5, learning_rates, {}),
    (f"{SCHEDULE}.decay_steps", 8, learning_rates, {}),
    (f"{SCHEDULE}.total_steps", 60, learning_rates, {}),
    (f"{SCHEDULE}.wsd_decay_steps", 10, learning_rates, WSD),
    (f"{SCHEDULE}.wsd_decay_style", "linear", learning_rates, WSD),
    ("weight_sync.every", 2, paced, {}),
    ("weight_sync.every_optimizer_steps", 3, paced, {}),
    ("weight_sync.max_steps_ahead", 1.5, paced, {}),
    ("weight_sync.max_staleness_steps", 1, paced, {"weight_sync": {"max_steps_ahead": 1}}),
    ("weight_sync.on_stale", "wait", paced, {"weight_sync": {"max_steps_ahead": 3, "max_staleness_steps": 1}}),
    ("weight_sync.style", "explorer_driven", paced, {}),
    ("weight_sync.in_flight_requests", "continue", paced, {}),
    ("weight_sync.bucket_mib", 64, way_of_weights, {}),
    ("weight_sync.method", "checkpoint", way_of_weights, {}),
    ("rollout.timeouts.response", 9.0, scheduled, {}),
    ("rollout.timeouts.retries", 0, scheduled, {}),
    ("rollout.timeouts.dynamic", {}, scheduled, {}),
    ("rollout.timeouts.dynamic.ratio", 9.0, scheduled, {"rollout": {"timeouts": {"dynamic": {}}}}),
    ("rollout.max_running_prompts", 2, scheduled, {}),
    ("rollout.agent_workers", 3, plan, {"rollout": {"default_agent": "a", "agents": [AGENT]}}),
    ("rollout.split_groups", False, scheduled, {}),
    (f"{OVER}.ratio", 0.5, scheduled, {OVER: {"wait_after_minimum": 1.0}}),
    (f"{OVER}.wait_after_minimum", 9.0, scheduled, {OVER: {"ratio": 0.5, "wait_after_minimum": 1.0}}),
    (f"{OVER}.additional_prompts", 20, scheduled, {}),
    ("reward_loop.overlap_with_rollout", True, paced, {}),
    ("placement.layout", "split", plan, {}),
    ("placement.rollout_devices", 1, plan, {"placement": {"layout": "split", "devices_per_node": 4}}),
    ("placement.roles", {"policy": {"devices": [1]}}, plan, {"placement": {"layout": "explicit"}}),
    ("placement.device", "cuda", plan, {}),
    ("placement.nodes", 2, plan, {}),
    ("placement.devices_per_node", 1, plan, {}),
    ("placement.cpus_per_worker", 2, plan, {}),
    ("algorithm.advantage<gae>", None, shaped, {}),
    ("algorithm.advantage<gae>.gamma", 0.5, shaped, {}),
    ("algorithm.advantage<gae>.lambda", 0.5, shaped, {}),
    (FEEDBACK, {}, shaped, GAE),
    (f"{FEEDBACK}.reweight", "max_random", shaped, {**GAE, FEEDBACK: {"power": 9.0}}),
    (f"{FEEDBACK}.power", 0.1, shaped, {**GAE, FEEDBACK: {"power": 9.0}}),
    ("schedule.critic_warmup_steps", 2, policy_steps, {}),
    ("critic.model", {"path": "own"}, critic_path, {}),
    ("critic.model.path", "other", critic_path, {"critic": {"model": {"path": "own"}}}),
    ("critic.value_loss.clip", 1.5, value_loss, {}),
    ("critic.value_loss.coefficient", 2.0, value_loss, {}),
    ("critic.value_loss.aggregation", "seq_mean_token_mean", value_loss, {}),
    ("critic.mini_batch_responses", 40, critic_mini_batches, {}),
    ("critic.ppo_epochs", 2, critic_mini_batches, {}),
    ("critic.shuffle", True, critic_mini_batches, {}),
    ("critic.shuffle_seed", 7, critic_mini_batches, {"critic": {"shuffle": True}}),
    ("critic.micro_batch", {"size": 1000}, critic_micro_batches, {}),
    ("critic.micro_batch.unit", "responses", critic_micro_batches, {"critic": {"micro_batch": {"size": 1000}}}),
    ("critic.micro_batch.size", 9, critic_micro_batches, {"critic": {"micro_batch": {"size": 1000}}}),
    ("critic.forward_micro_batch", {"size": 1000}, critic_micro_batches, {}),
    (
        "critic.forward_micro_batch.unit",
        "responses",
        critic_micro_batches,
        {"critic": {"forward_micro_batch": {"size": 2}}},
    ),
    ("critic.forward_micro_batch.size", 9, critic_micro_batches, {"critic": {"forward_micro_batch": {"size": 1000}}}),
    ("checkpoint.every", 2, plan, {}),
    ("runtime.env_vars", {"A": "1"}, environment, {}),
    ("runtime.role_env_vars", {"policy": {"A": "1"}}, environment, {}),
    ("runtime.log_level", "error", environment, {}),
    ("runtime.logs_by_node", True, environment, {}),
    ("runtime.plugins", ["plugins"], environment, {}),
    ("rollout.env_vars", {"A": "1"}, environment, {}),
    ("run.deterministic", True, environment, {}),
]
SHARED = [
    ("tensor_parallel_size", 2, {}),
    ("pipeline_parallel_size", 2, {}),
    ("virtual_pipeline_parallel_size", 2, {"pipeline_parallel_size": 2}),
    ("context_parallel_size", 2, {}),
    ("expert_parallel_size", 2, {}),
    ("expert_tensor_parallel_size", 1, {"tensor_parallel_size": 2}),
    ("sequence_parallel", False, {"tensor_parallel_size": 2}),
    ("moe.dispatcher", "allgather", {}),
    ("moe.grouped_gemm", True, {}),
    ("transformer", {"moe_z_loss_coeff": 0.1}, {}),
]
TRAINED = [
    ("distributed_optimizer", False, {}),
    ("overlap_gradient_reduce", True, {}),
    ("overlap_parameter_gather", True, {}),
    ("ddp", {"bucket_size": 100}, {}),
    ("optimizer_overrides", {"initial_loss_scale": 8.0}, {}),
    ("recompute_granularity", "full", {}),
    ("recompute_method", "block", {"recompute_granularity": "full"}),
    ("recompute_layers", 2, {"recompute_granularity": "full"}),
    ("recompute_modules", ["mlp"], {"recompute_granularity": "selective"}),
    ("moe.layer_recompute", True, {}),
]
EFFECTS += [
    (f"{section}.engine<megatron>.{name}", value, probe, {section: {"engine": {"type": "megatron", **engine}}})
    for section, probe, keys in (("train", megatron, SHARED + TRAINED), ("reference", megatron_reference, SHARED))
    for name, value, engine in keys
]
OF_CRITIC = {
    megatron: lambda config: megatron(replace(config, train=config.critic)),
    fed: lambda config: fed(replace(config, train=config.critic)),
    learning_rates: critic_learning_rates,
    optimizer: critic_optimizer,
    optimizer_class: critic_optimizer_class,
    weight_decays: critic_weight_decays,
    seed_of_policy: seed_of_critic,
    decayed: critic_decayed,
}
"""Probes of ``train``, and those of the same keys of the critic."""
EFFECTS += [
    (f"critic{pattern.removeprefix('train')}", value, OF_CRITIC[probe], _of_critic(change))
    for pattern, value, probe, change in EFFECTS
    if pattern.startswith("train.") and probe in OF_CRITIC
]


def _of_critics_model(probe: Probe) -> Probe:
    """The probe of the section ``model``, looking at the critic's own."""

    def look(config: Config) -> Any:
        assert config.critic is not None
        return probe(config if config.critic.model is None else replace(config, model=config.critic.model))

    return look


EFFECTS += [
    (f"critic.{pattern}", value, _of_critics_model(probe), {f"critic.{key}": each for key, each in change.items()})
    for pattern, value, probe, change in EFFECTS
    if pattern.startswith("model.") and probe in (model_config, trained_weights)
]
NOT_HONOURED = {"rewards[]<model>.overrides", "train.engine<fsdp2>.source"}
"""Descriptive, with a note in the plan."""


def over(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in change.items():
        if "." in key:
            head, rest = key.split(".", 1)
            merged = over(merged, {head: {rest: value}})
        elif isinstance(value, dict) and isinstance(merged.get(key), dict) and value:
            merged[key] = over(merged[key], value)
        else:
            merged[key] = value
    return merged


def set_at(values: dict[str, Any], pattern: str, value: Any) -> dict[str, Any]:
    """The values with the key of a pattern set; the first item of a list, the option under its name."""
    head, _, rest = pattern.partition(".")
    name, _, option = head.removesuffix(">").partition("<")
    listed, name = name.endswith("[]"), name.removesuffix("[]")
    if not rest:
        return {**values, name: value if option in ("", OTHER) else option}
    if listed:
        return {**values, name: [set_at(values[name][0], rest, value)]}
    below = values.get(name, {})
    below = {"type": below} if isinstance(below, str) else below or ({"type": option} if option else {})
    return {**values, name: set_at(below, rest, value)}


def with_option(values: dict[str, Any], pattern: str) -> dict[str, Any]:
    """The values with the option chosen that an option's key belongs to, so that only the key makes the difference."""
    head, _, _ = pattern.rpartition(">.")
    return set_at(values, f"{head}>", None) if head and "[]" not in head and not _chosen(values, head) else values


def _chosen(values: dict[str, Any], head: str) -> bool:
    path, _, option = head.rpartition("<")
    at: Any = values
    for part in path.split("."):
        at = at.get(part, {}) if isinstance(at, dict) else {}
    return isinstance(at, dict) and (at.get("type") == option or option == OTHER)


@pytest.mark.parametrize(("pattern", "value", "probe", "change"), EFFECTS, ids=[row[0] for row in EFFECTS])
def test_a_key_has_the_effect_it_is_said_to_have(
    pattern: str, value: Any, probe: Probe, change: dict[str, Any]
) -> None:
    before = with_option(over(BASE, change), pattern)
    after = set_at(before, pattern, value)
    seen = probe(config_from(before))
    assert probe(config_from(before)) == seen, "equal configs look different, so that any change would"
    assert probe(config_from(after)) != seen


def test_shown_keys_are_honoured_keys() -> None:
    for pattern, *_ in EFFECTS:
        expected = Status.DESCRIPTIVE if pattern in NOT_HONOURED else Status.HONOURED
        assert support.status_of(pattern).status is expected, pattern


def test_the_base_is_a_config_that_runs() -> None:
    refused = [finding for finding in check(config_from(BASE)) if finding.code == "not-supported"]
    assert refused == []


def honoured() -> set[str]:
    patterns = [key.pattern for key in walk(Config) if not is_container(key)] + option_patterns(Config)
    return {pattern for pattern in patterns if support.status_of(pattern).status is Status.HONOURED}


def test_every_honoured_key_is_shown_here_or_by_the_test_that_is_named() -> None:
    shown = {row[0] for row in EFFECTS} - NOT_HONOURED
    elsewhere = [key for keys in SHOWN_BY.values() for key in keys.split()]
    assert set(elsewhere) == honoured() - shown
    assert len(elsewhere) == len(set(elsewhere))


def test_the_tests_that_show_other_keys_exist() -> None:
    named = {place.partition("::")[::2] for place in SHOWN_BY}
    assert {(file, name) for file, name in named if name not in functions(Path(__file__).parent / file)} == set()


def functions(file: Path) -> set[str]:
    """The tests of a file."""
    body = ast.parse(file.read_text(encoding="utf-8")).body if file.exists() else []
    return {each.name for each in body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")}
