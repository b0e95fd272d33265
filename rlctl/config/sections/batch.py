"""How much is rolled out, trained on at once, and for how long: sections ``batch`` and ``schedule``."""

from __future__ import annotations

from typing import Annotated, Literal

from rlctl.config.fields import Count, Fraction, Interval, Prompts, Range, Responses, Seconds, Steps, Unit, section


@section
class MicroBatchSize:
    """The part of a mini-batch that one replica computes in one pass. Affects memory and speed, not results."""

    unit: Literal["responses", "tokens"] = "tokens"
    """Size micro-batches by number of responses, or by a token budget (dynamic batching)."""
    size: Count = 16384
    """Responses or tokens per forward and backward pass on one replica. Higher values are faster and need more
    memory."""


@section
class Batch:
    """Batch arithmetic, in prompts and responses over all replicas."""

    prompts_per_step: Prompts = 1024
    """Prompts per step. Larger steps are slower and their gradients less noisy."""
    responses_per_prompt: Responses = 1
    """Responses sampled per prompt (group size). Higher values give better group baselines and cost more rollout."""
    mini_batch_responses: Responses | None = None
    """Responses per optimizer step (global, over all replicas). Larger values mean fewer optimizer steps per step.
    null = the whole step."""
    ppo_epochs: Count = 1
    """Passes over each step's responses. More passes reuse data but make it more off-policy."""
    micro_batch: MicroBatchSize = MicroBatchSize()
    """How a mini-batch is split for training."""
    log_prob_micro_batch: MicroBatchSize | None = None
    """Micro-batch of log-prob passes. null = ``micro_batch``."""
    shuffle: bool = False
    """Shuffle the responses of a step across its mini-batches instead of keeping groups together."""
    shuffle_seed: int | None = None
    """Seed of that shuffle. null = ``run.seed``."""
    balance: bool = True
    """Give every replica about the same number of tokens. Affects speed only."""
    round_tokens_to: Annotated[int, Unit("tokens"), Range(at_least=1)] = 1
    """Pad micro-batches to a multiple of this many tokens, which some kernels prefer."""


@section
class Schedule:
    """Length of the run and evaluation interval. ROLL and Trinity count differently; rlctl converts."""

    total_steps: Steps | None = None
    """Number of steps. null = use ``total_epochs``. If both are set, the run ends at whichever comes first."""
    total_epochs: Count | None = None
    """Passes over the training data. null = use ``total_steps``."""
    total_optimizer_steps: Annotated[int, Unit("optimizer steps"), Range(at_least=1)] | None = None
    """Number of optimizer steps after which the run ends."""
    evaluate_every: Interval | None = None
    """Evaluation interval. null = no evaluation during training."""
    evaluate_at_start: bool = True
    """Evaluate before the first step, if there are evaluation datasets and either an interval or a rollout."""
    evaluate_at_end: bool = True
    """Evaluate after the last step, if there are evaluation datasets and an interval."""
    critic_warmup_steps: Annotated[int, Unit("steps"), Range(at_least=0)] = 0
    """Steps at the start in which only the critic is trained."""


@section
class DynamicTimeout:
    """Abandons responses that take much longer than earlier ones."""

    ratio: Annotated[float, Range(above=1)] = 3.0
    """Limit as a multiple of the mean duration so far, once a step's worth of responses is known. Higher values wait
    longer for slow responses."""


@section
class Oversampling:
    """Starts more prompts than a step needs and trains on those that finish first."""

    ratio: Fraction = 0.0
    """Fraction of a step's prompts that may be abandoned as stragglers. Higher values cut waiting but bias training
    towards short responses."""
    wait_after_minimum: Seconds = 30.0
    """How long to keep waiting for stragglers once enough prompts have finished."""
    additional_prompts: Annotated[int, Unit("prompts"), Range(at_least=0)] = 0
    """Extra prompts kept running to replace groups that filters drop."""
    additional_responses: Annotated[int, Unit("responses"), Range(at_least=0)] = 0
    """Further responses to each prompt; those that finish first are trained on. Higher values wait less and favor short ones."""
    generation_batch_prompts: Prompts | None = None
    """Prompts generated together if filtered groups are refilled (verl's ``gen_batch_size``). null = a step's
    prompts."""
    max_generation_batches: Count | None = None
    """Refill rounds before the step fails. null = no limit."""
