"""Estimates of the arithmetic of a step, and of its time on a known GPU. Rough.

A forward pass is 2 operations a parameter and token, and 2 x sequence x attention width a layer and token (causal). A
backward pass is two forward passes, recomputation one more.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlctl.config import Config
from rlctl.config.sections.batch import Batch
from rlctl.config.sections.train import Train
from rlctl.planning import arithmetic
from rlctl.planning.arithmetic import Cluster
from rlctl.planning.memory.gpus import Gpu, known_gpu
from rlctl.planning.memory.roles import ROWS_AT_ONCE, context_tokens, rollout_bytes
from rlctl.planning.models import ModelShape, read_shape

TRAINING_UTILISATION = 0.4
"""Share of peak arithmetic that training is taken to reach."""
GENERATION_UTILISATION = 0.6
"""Share of peak memory bandwidth that decoding is taken to reach."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Arithmetic of one step where every sequence is as long as it may be, and its time on a known GPU."""

    flops: float
    """Operations, over all devices."""
    training_seconds: float | None
    """Log-prob passes and training; None where the GPU is not known."""
    generation_seconds: float | None
    """Decoding of one response after the other wave, at the speed that weights are read from memory."""


def cost_of(config: Config, *, cluster: Cluster | None = None) -> StepCost | None:
    """Estimate one step; None where the model is not in a local folder or of no known family."""
    shape = read_shape(config.model.path)
    if shape is None:
        return None
    length, responses = context_tokens(config), arithmetic.responses_per_step(config)
    forward = forward_flops(shape, tokens=responses * length, length=length)
    generates = config.algorithm.objective.choice in ("rl", "mix") and arithmetic.needs_rollout(config)
    training = forward * _training_passes(config)
    gpu = known_gpu(cluster.gpu) if cluster is not None and cluster.device == "cuda" else None
    if gpu is None:
        return StepCost(training + forward * generates, None, None)
    speed = arithmetic.train_devices(config) * gpu.tflops * 1e12 * TRAINING_UTILISATION
    return StepCost(
        training + forward * generates, training / speed, _generation_seconds(config, shape, gpu) if generates else 0.0
    )


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


def _generation_seconds(config: Config, shape: ModelShape, gpu: Gpu) -> float:
    parallel = config.rollout.parallel
    engines = max(
        1, arithmetic.rollout_devices(config) // (parallel.tensor_parallel_size * parallel.pipeline_parallel_size)
    )
    at_once = engines * (config.rollout.memory.max_num_seqs or ROWS_AT_ONCE)
    waves = -(-arithmetic.responses_per_step(config) // at_once)
    weights = (
        rollout_bytes(config, "cuda")
        * shape.active_parameters
        / (parallel.tensor_parallel_size * parallel.pipeline_parallel_size)
    )
    iteration = weights / (gpu.terabytes_per_second * 1e12 * GENERATION_UTILISATION)
    return waves * config.rollout.max_response_tokens * iteration
