"""How much is rolled out, trained on at once, and for how long: sections ``batch`` and ``schedule``."""

from __future__ import annotations

from typing import Annotated, Literal

from rlctl.config.fields import Count, Fraction, Interval, Prompts, Range, Responses, Seconds, Steps, Unit, section


@section
class MicroBatchSize:
    """The part of a mini-batch that one replica computes at once. It changes memory and speed, never the numbers."""

    unit: Literal["responses", "tokens"] = "tokens"
    """Count responses, or count tokens and put as many responses together as fit."""
    size: Count = 16384
    """Responses, or tokens, of one forward and backward pass on one replica. Raised, it is faster and needs more memory."""


@section
class Batch:
    """Batch arithmetic, in prompts and responses over all replicas."""

    prompts_per_step: Prompts = 1024
    """Prompts rolled out in one step. Raised, a step is slower and its gradient less noisy."""
    responses_per_prompt: Responses = 1
    """The group: responses drawn for each prompt. Raised, group baselines are better and rollout costs more."""
    mini_batch_responses: Responses | None = None
    """Responses of one optimizer step; null trains on the whole step at once. Raised, there are fewer optimizer steps a step."""
    ppo_epochs: Count = 1
    """Passes over each step's responses. Raised, more is learnt from them and the policy moves farther from the one that
    drew them."""
    micro_batch: MicroBatchSize = MicroBatchSize()
    """How a mini-batch is cut for training."""
    log_prob_micro_batch: MicroBatchSize | None = None
    """Micro-batch of log-prob passes; null is the training one."""
    shuffle: bool = False
    """Shuffle the responses of a step over its mini-batches, instead of keeping groups together."""
    shuffle_seed: int | None = None
    """Seed of that shuffle; null takes ``run.seed``."""
    balance: bool = True
    """Give every replica about the same number of tokens. It changes speed only."""
    round_tokens_to: Annotated[int, Unit("tokens"), Range(at_least=1)] = 1
    """Pad micro-batches to a multiple of this many tokens, for kernels that like it."""


@section
class Schedule:
    """How long the run is, and how often it evaluates. ROLL and Trinity count differently; their adapters convert."""

    total_steps: Steps | None = None
    """End after this many steps; null goes by epochs. Where both are set, the first that is reached ends the run."""
    total_epochs: Count | None = None
    """End after this many passes over the training data; null goes by steps."""
    total_optimizer_steps: Annotated[int, Unit("optimizer steps"), Range(at_least=1)] | None = None
    """End after this many optimizer steps."""
    evaluate_every: Interval | None = None
    """Evaluate on the held-out sources this often; null does not on the way."""
    evaluate_at_start: bool = True
    """Evaluate before the first step, where there are held-out sources, and an interval or a rollout to learn from."""
    evaluate_at_end: bool = True
    """Evaluate after the last step, where there are held-out sources and an interval."""
    critic_warmup_steps: Annotated[int, Unit("steps"), Range(at_least=0)] = 0
    """Steps in which only the critic is trained."""


@section
class DynamicTimeout:
    """Give up on responses that take much longer than those before."""

    ratio: Annotated[float, Range(above=1)] = 3.0
    """Times the mean duration of all responses so far, once there are as many as of a step. Raised, slow responses are waited for
    longer."""


@section
class Oversampling:
    """Start more prompts than a step needs and train on those that finish first."""

    ratio: Fraction = 0.0
    """Share of the prompts not waited for. Raised, stragglers cost less and long responses are seen less often."""
    wait_after_minimum: Seconds = 30.0
    """How long stragglers are still waited for once enough have finished."""
    additional_prompts: Annotated[int, Unit("prompts"), Range(at_least=0)] = 0
    """Further prompts kept running, to replace groups that filters throw away."""
    additional_responses: Annotated[int, Unit("responses"), Range(at_least=0)] = 0
    """Further responses to each prompt; those that finish first are trained on. Higher values wait less and favor short ones."""
    generation_batch_prompts: Prompts | None = None
    """Prompts generated at once when groups are filtered and refilled (verl's ``gen_batch_size``); null is a step's prompts."""
    max_generation_batches: Count | None = None
    """Refill rounds before a step gives up; null goes on until the batch is full."""
