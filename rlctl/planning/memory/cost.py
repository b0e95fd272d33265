"""Estimates of the arithmetic of a step, and of its time on a known GPU (``step_time`` simulates it).

A forward pass is 2 operations a parameter and token, and 2 x sequence x attention width a layer and token (causal). A
backward pass is two forward passes, recomputation one more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rlctl.config import Config
from rlctl.config.sections.batch import Batch, MicroBatchSize
from rlctl.config.sections.train import Fsdp2, Megatron, Train
from rlctl.planning import arithmetic
from rlctl.planning.arithmetic import Cluster
from rlctl.planning.memory import fitted
from rlctl.planning.memory.engines import cache_bytes, linear_bytes, rollout_bytes, weight_bytes
from rlctl.planning.memory.gpus import Gpu, known_gpu
from rlctl.planning.memory.lengths import TYPICAL, Lengths, of_mean
from rlctl.planning.memory.parts import GIB
from rlctl.planning.memory.phases import rollout_share
from rlctl.planning.memory.roles import ROWS_AT_ONCE, context_tokens, states_of
from rlctl.planning.memory.step_time import HOST, Generation, Pass, generation_seconds, pass_seconds, sync_seconds
from rlctl.planning.models import ModelShape, read_shape

ROWS_ON_LARGE, LARGE_GIB = 1024, 70
"""Responses that vLLM decodes at once on GPUs with more memory than this, in GiB."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Arithmetic of one step where every sequence is as long as it may be, and its time on a known GPU."""

    flops: float
    """Operations, over all devices."""
    training_seconds: float | None
    """Log-prob passes and training, at typical lengths or those that are given; None where the GPU is not known."""
    generation_seconds: float | None
    """Of all responses, until the last one is finished."""
    moving_seconds: float | None = None
    """Weights sent to the engines, and what moves between device and host as roles take turns."""
    step_seconds: float | None = None
    """Together; if rollout works ahead of training, the longer of both."""
    longest_seconds: float | None = None
    """A step in which every response is as long as allowed."""
    mean_tokens: float | None = None
    """Mean response of the first of these times."""


def cost_of(
    config: Config, *, cluster: Cluster | None = None, lengths: Lengths | None = None, ahead: bool = False
) -> StepCost | None:
    """Estimate one step; None where the model is not in a local folder or of no known family.

    Args:
        config: of one stage.
        cluster: its machines; times need the name of their GPU.
        lengths: of prompts and responses; typical ones if None.
        ahead: whether rollout works while the policy trains.
    """
    shape = read_shape(config.model.path)
    if shape is None:
        return None
    length, responses = context_tokens(config), arithmetic.responses_per_step(config)
    generates = config.algorithm.objective.choice in ("rl", "mix") and arithmetic.needs_rollout(config)
    operations = forward_flops(shape, tokens=responses * length, length=length) * (_training_passes(config) + generates)
    gpu = known_gpu(cluster.gpu) if cluster is not None and cluster.device == "cuda" else None
    if gpu is None:
        return StepCost(operations, None, None)
    usual = lengths or typical_lengths(config, generates=generates)
    continues = ahead and config.weight_sync.in_flight_requests == "continue"
    overlap = 1 + math.ceil(config.weight_sync.max_steps_ahead) if continues else 1
    training, generation, moving = _times(config, shape, gpu, usual, generates=generates, overlap=overlap)
    worst_case = worst_lengths(config, generates=generates)
    worst = _times(config, shape, gpu, worst_case, generates=generates, overlap=overlap)
    return StepCost(
        operations,
        training,
        generation,
        moving,
        _together(training, generation, moving, ahead=ahead, continues=continues),
        _together(*worst, ahead=ahead, continues=continues),
        usual.response,
    )


def typical_lengths(config: Config, *, generates: bool = True) -> Lengths:
    """Prompts and responses of half of their limits, as runs that were measured have; whole rows if nothing is generated."""
    if not generates:
        return of_mean(0.0, TYPICAL * context_tokens(config), context_tokens(config))
    limit = config.rollout.max_response_tokens
    return of_mean(TYPICAL * config.data.max_prompt_tokens, TYPICAL * limit, limit)


def worst_lengths(config: Config, *, generates: bool = True) -> Lengths:
    """Every sequence as long as allowed."""
    if not generates:
        return of_mean(0.0, context_tokens(config), context_tokens(config))
    limit = config.rollout.max_response_tokens
    return of_mean(config.data.max_prompt_tokens, limit, limit)


def _together(training: float, generation: float, moving: float, *, ahead: bool, continues: bool) -> float:
    """Seconds of a step: engines that work ahead wait for new weights, unless their responses continue with them."""
    if not ahead:
        return training + generation + moving
    return max(training + moving, generation) if continues else max(training, generation) + moving


def _times(
    config: Config, shape: ModelShape, gpu: Gpu, lengths: Lengths, *, generates: bool, overlap: int
) -> tuple[float, float, float]:
    """Seconds of training, generation and moving; ``overlap`` steps are generated at once."""
    training = pass_seconds(_pass(config, shape, lengths), gpu)
    if not generates:
        return training, 0.0, 0.0
    drawn = _generation(config, shape, gpu)
    drawn = replace(drawn, responses=overlap * drawn.responses)
    return training, generation_seconds(drawn, lengths, gpu) / overlap, _moving_seconds(config, shape, gpu)


def forward_flops(shape: ModelShape, *, tokens: int, length: int) -> float:
    """Operations of one forward pass over ``tokens`` tokens in sequences of ``length``."""
    return tokens * (2.0 * shape.active_parameters + 2.0 * shape.layers * length * shape.attention_width)


def _training_passes(config: Config) -> float:
    """Training of one step in forward passes over its tokens."""
    update = _update_passes(config.train, config.batch, adapted=config.model.lora is not None)
    if config.algorithm.objective.choice == "sft":
        return update
    old = config.algorithm.old_log_probs == "recompute"
    needs_critic = arithmetic.needs_critic(config) and config.critic is not None
    critic = 1 + _update_passes(config.critic or config.train, arithmetic.critic_batch(config))
    return update + old + arithmetic.needs_reference(config) + needs_critic * critic


def _update_passes(train: Train, batch: Batch, *, adapted: bool = False) -> int:
    """Forward, twice as much backward, and once more forward; without weights to train, backward is once as much."""
    backward = 1 if adapted else 2
    return (1 + backward + train.memory.recompute_activations) * batch.ppo_epochs


def _pass(config: Config, shape: ModelShape, lengths: Lengths) -> Pass:
    """All passes over a step's sequences, as one."""
    adapted = config.model.lora is not None
    responses, engine = arithmetic.responses_per_step(config), config.train.engine
    tokens = responses * lengths.mean
    operations = forward_flops(shape, tokens=round(tokens), length=round(lengths.mean))
    devices = max(1, arithmetic.train_devices(config))
    replicas = max(1, devices // arithmetic.devices_per_replica(engine))
    spread = Pass(
        shape,
        operations,
        _training_passes(config),
        devices,
        max(1.0, _micro_batches(config, config.batch.micro_batch, responses / replicas, lengths)),
        tokens / replicas,
        context=arithmetic.devices_per_sequence(engine),
        sharded=isinstance(engine, Fsdp2) and not adapted,
    )
    if isinstance(engine, Megatron):
        spread = replace(
            spread,
            tensor=engine.tensor_parallel_size,
            pipeline=engine.pipeline_parallel_size,
            expert=engine.expert_parallel_size,
            chunks=engine.virtual_pipeline_parallel_size or 1,
        )
    return spread


def _micro_batches(config: Config, micro: MicroBatchSize, responses: float, lengths: Lengths) -> float:
    """Micro-batches of a replica in one pass over a step."""
    return responses / micro.size if micro.unit == "responses" else responses * lengths.mean / micro.size


def _generation(config: Config, shape: ModelShape, gpu: Gpu) -> Generation:
    parallel, memory = config.rollout.parallel, config.rollout.memory
    devices = parallel.tensor_parallel_size * parallel.pipeline_parallel_size
    held = weight_bytes(config, shape, "cuda")
    room = devices * (rollout_share(config) * gpu.gib * GIB - held)
    return Generation(
        shape,
        arithmetic.drawn_responses(config),
        config.batch.responses_per_prompt,
        max(1, arithmetic.rollout_devices(config) // devices),
        devices,
        memory.max_num_seqs or (ROWS_ON_LARGE if gpu.gib >= LARGE_GIB else ROWS_AT_ONCE),
        linear_bytes(config, "cuda"),
        max(room, 0.0),
        memory.enforce_eager,
        config.model.lora is not None and not config.model.lora.merge_for_rollout,
        cache_bytes(config, "cuda"),
    )


def _moving_seconds(config: Config, shape: ModelShape, gpu: Gpu) -> float:
    """Seconds for weights that are sent once a step, and for what waits in the host while others work."""
    engine, each = config.train.engine, rollout_bytes(config, "cuda")
    parallel = config.rollout.parallel
    moved = 0.0
    if config.placement.layout == "colocated" and config.rollout.memory.sleep:
        moved += each * shape.parameters / (parallel.tensor_parallel_size * parallel.pipeline_parallel_size)
    offload = engine.offload if isinstance(engine, Fsdp2 | Megatron) else "none"
    states = states_of(config, config.train, shape)
    if offload in ("parameters", "both"):
        moved += 2 * states["parameters"]
    if offload in ("optimizer", "both"):
        moved += 2 * states["optimizer"]
    return moved / (fitted.LINK * 1e9 * HOST) + sync_seconds(shape, each, arithmetic.train_devices(config), gpu)
