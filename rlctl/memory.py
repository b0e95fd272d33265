"""Estimates of device memory, arithmetic and time, from a config and the shape of its models. Rough on purpose.

Bytes on one device, N parameters, S devices that share them, T tokens of a micro-batch on one device:

    fsdp2      parameters p N/S, gradients p N/S, AdamW 2 p N/S      p: bytes of train.precision.parameters
               adapters: parameters p N/S; theirs, their gradients and AdamW in 4 bytes, r (in + out) numbers a linear layer
               gathered: 2 of the largest layers (or embeddings)     in train.precision.compute
    megatron   what a worker holds is in ``megatron.sizes``: parameters in train.precision.compute, gradients in
               train.precision.reduce, the optimizer 12 bytes a parameter (8 at float32, which needs no masters), also over
               replicas where it is distributed (Megatron-LM's table of its distributed optimizer: 6 + 12 / d)
    activations   34 h T bytes a layer at 16 bit; recomputed: 2 h T a layer and one layer whole (Korthikanti et al.,
                  arXiv:2205.05198, equation 2 without the attention matrix, which flash attention never holds)
    logits        T x vocabulary and their gradient, in the compute type; a chunk of them in 4 bytes where they are never
                  whole (train.fused_kernels.enabled, and passes without gradient), and the head's gradient in 4 bytes
    rollout       weights over tensor x pipeline devices; cache: 2 x layers x kv heads x head size numbers a token

Arithmetic of a forward pass: 2 operations a parameter and token, and 2 x sequence x attention width a layer and token
(causal). A backward pass is two forward passes, recomputation one more.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlctl import arithmetic
from rlctl.arithmetic import Cluster, Device
from rlctl.config import Config
from rlctl.config.sections.batch import Batch, Micro
from rlctl.config.sections.model import Lora
from rlctl.config.sections.rewards import ModelReward
from rlctl.config.sections.train import Critic, Fsdp2, Megatron, Train
from rlctl.megatron import sizes
from rlctl.models import ModelShape, read_shape

GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
CHUNK_ELEMENTS = 2**26
"""Logits that the training engine works on at a time on a GPU."""
ROWS_AT_ONCE = 256
"""Responses decoded at once where the config names no number: the default of vLLM and of the built-in engine."""
TRAINING_UTILISATION = 0.4
"""Share of peak arithmetic that training is taken to reach."""
GENERATION_UTILISATION = 0.6
"""Share of peak memory bandwidth that decoding is taken to reach."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a GPU can do, from its maker's data sheet."""

    tflops: float
    """Dense bfloat16, in 10^12 operations a second."""
    terabytes_per_second: float
    """Memory bandwidth."""
    gib: float
    """Memory."""


GPUS: dict[str, Gpu] = {
    "B200": Gpu(2250, 8.0, 180),
    "H200": Gpu(989, 4.8, 140),
    "H100": Gpu(989, 3.35, 80),
    "H800": Gpu(989, 3.35, 80),
    "H20": Gpu(148, 4.0, 96),
    "A100": Gpu(312, 2.04, 80),
    "A800": Gpu(312, 2.04, 80),
    "L40S": Gpu(362, 0.864, 48),
    "L20": Gpu(119.5, 0.864, 48),
}
"""By a word of their name, SXM models where there are several; the first that matches is taken."""


def known_gpu(name: str | None) -> Gpu | None:
    """The GPU whose word is in ``name`` (``NVIDIA H100 80GB HBM3``), None where there is none."""
    words = (name or "").upper().replace("-", " ").replace("_", " ").split()
    return next((gpu for word, gpu in GPUS.items() if word in words), None)


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One thing that takes memory."""

    name: str
    gib: float


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Memory of one role on one of its devices, at its peak."""

    role: str
    parts: tuple[MemoryPart, ...]

    @property
    def gib(self) -> float:
        """Their sum."""
        return sum(part.gib for part in self.parts)

    def part(self, name: str) -> float:
        """GiB of one part, 0 where there is none."""
        return sum(part.gib for part in self.parts if part.name == name)


@dataclass(frozen=True, slots=True)
class StepCost:
    """Arithmetic of one step where every sequence is as long as it may be, and its time on a known GPU."""

    flops: float
    """Operations, over all devices."""
    training_seconds: float | None
    """Log-prob passes and training; None where the GPU is not known."""
    generation_seconds: float | None
    """Decoding of one response after the other wave, at the speed that weights are read from memory."""


def memory_of(config: Config, *, device: Device = "cuda") -> tuple[MemoryEstimate, ...]:
    """Estimate each role of a config whose model is in a local folder and of a known family; empty elsewhere."""
    policy = read_shape(config.model.path)
    if policy is None:
        return ()
    found = [_trained("policy", config, config.train, policy)]
    if arithmetic.needs_rollout(config):
        found.append(_rollout(config, policy, device))
    if arithmetic.needs_reference(config) and not arithmetic.reference_is_base(config):
        model = config.reference.model
        shape = read_shape(model.path) if model is not None and model.path else policy
        found += [] if shape is None else [_reference(config, shape)]
    if config.algorithm.distillation is not None:
        shape = read_shape(config.algorithm.distillation.teacher)
        found += [] if shape is None else [_teacher(config, shape)]
    if arithmetic.needs_critic(config) and config.critic is not None:
        model = config.critic.model
        shape = read_shape(model.path) if model is not None and model.path else policy
        found += [] if shape is None else [_trained("critic", config, config.critic, shape)]
    if arithmetic.needs_rollout(config):
        found += _reward_models(config)
    return tuple(found)


def _reward_models(config: Config) -> list[MemoryEstimate]:
    """Reward models, each whole on a device, one after the other at work; those of a size that is not known left out."""
    compute = BYTES[config.train.precision.compute]
    models = [(each, read_shape(each.path)) for each in config.rewards if isinstance(each, ModelReward)]
    known = [(each, shape) for each, shape in models if shape is not None]
    if not known:
        return []
    tokens = [each.micro_per_replica * (each.max_tokens or context_tokens(config)) for each, _ in known]
    at_work = [17 * compute * shape.hidden * each for each, (_, shape) in zip(tokens, known, strict=True)]
    held = sum(compute * shape.parameters for _, shape in known)
    return [_estimate("reward_model", [("parameters", held), ("activations", max(at_work))])]


def context_tokens(config: Config) -> int:
    """The longest sequence: prompt and response, or a whole training sequence of sft and dpo."""
    both = config.data.max_prompt_tokens + config.rollout.max_response_tokens
    if config.algorithm.objective.choice in ("sft", "dpo"):
        return config.data.max_sequence_tokens or both
    return config.model.max_context_tokens or both


def micro_tokens(config: Config, micro: Micro) -> int:
    """Tokens of a micro-batch on one replica, at most; a sequence is never split."""
    longest = context_tokens(config)
    return max(longest, micro.per_replica) if micro.by == "tokens" else micro.per_replica * longest


def _trained(role: str, config: Config, train: Train, shape: ModelShape) -> MemoryEstimate:
    critic = isinstance(train, Critic)
    micro = arithmetic.critic_batch(config).micro if critic else config.batch.micro
    tokens = micro_tokens(config, micro) / arithmetic.devices_per_sequence(train.engine)
    compute = BYTES[train.precision.compute]
    parts = [*_states(config, train, shape), ("activations", _activations(train, shape, tokens, compute))]
    if not critic:
        split = train.engine.tensor if isinstance(train.engine, Megatron) else 1
        whole = 2 * compute * tokens * shape.vocabulary / split
        chunks = (2 * _chunk_bytes(tokens, shape) + 4 * shape.vocabulary * shape.hidden) / split
        chunked = train.fused_kernels.enabled or isinstance(train.engine, Megatron)
        parts.append(("logits", min(whole, chunks) if chunked else whole))
    return _estimate(role, parts)


def _states(config: Config, train: Train, shape: ModelShape) -> list[tuple[str, float]]:
    engine, count = train.engine, shape.parameters
    if isinstance(engine, Megatron):
        return _megatron_states(config, train, engine, shape)
    if isinstance(engine, Fsdp2) and engine.cpu_offload_policy:
        return [("gathered", _gathered(train, shape))]
    shared = _shared_by(config, train)
    each = BYTES[train.precision.parameters] * count / shared
    lora = None if isinstance(train, Critic) else config.model.lora
    if lora is not None:
        trained = 4 * adapter_parameters(lora, shape) / shared
        adapted = [("parameters", each + trained), ("gradients", trained), ("optimizer", 2 * trained)]
        return [*adapted, ("gathered", _gathered(train, shape))]
    return [("parameters", each), ("gradients", each), ("optimizer", 2 * each), ("gathered", _gathered(train, shape))]


def _megatron_states(config: Config, train: Train, engine: Megatron, shape: ModelShape) -> list[tuple[str, float]]:
    role = "critic" if isinstance(train, Critic) else "policy"
    held = sizes.held(engine, shape, value_head=role == "critic")
    dense, experts = sizes.optimizer_shares(engine, len(arithmetic.devices_of(config, role)))
    compute = BYTES[train.precision.compute]
    moments = 8 if train.optimizer.name != "sgd" else 4 if train.optimizer.args.get("momentum") else 0
    each = moments + (4 if compute < 4 else 0)
    reduced = max(BYTES[train.precision.reduce], compute)
    return [
        ("parameters", compute * held.all),
        ("gradients", reduced * held.all),
        ("optimizer", each * (held.dense / dense + held.experts / experts)),
    ]


def adapter_parameters(lora: Lora, shape: ModelShape) -> int:
    """Numbers of a model's adapters: rank x (in + out) for each linear layer that has one, the experts' aside."""
    hidden, width, kv = shape.hidden, shape.attention_width, shape.kv_heads * shape.head_dim
    attention = {"q_proj": hidden + width, "k_proj": hidden + kv, "v_proj": hidden + kv, "o_proj": width + hidden}
    mlp = dict.fromkeys(("gate_proj", "up_proj", "down_proj"), hidden + shape.intermediate)
    everything = lora.target_modules == ("all-linear",)

    def chosen(sides: dict[str, int]) -> int:
        names = set(sides) if everything else set(sides) & set(lora.target_modules)
        return sum(sides[name] for name in names - set(lora.exclude_modules))

    return lora.rank * (shape.layers * chosen(attention) + shape.dense_layers * chosen(mlp))


def _chunk_bytes(tokens: float, shape: ModelShape) -> float:
    return 4 * min(CHUNK_ELEMENTS, tokens * shape.vocabulary)


def _shared_by(config: Config, train: Train) -> int:
    devices = max(1, arithmetic.train_devices(config))
    shard = train.engine.shard if isinstance(train.engine, Fsdp2) else "all"
    return devices if shard == "all" else min(devices, shard * arithmetic.devices_per_replica(train.engine))


def _gathered(train: Train, shape: ModelShape) -> float:
    largest = max(shape.layer_parameters, shape.vocabulary * shape.hidden)
    return 2 * BYTES[train.precision.compute] * largest


def _activations(train: Train, shape: ModelShape, tokens: float, compute: int) -> float:
    engine = train.engine
    if isinstance(engine, Megatron):
        return sizes.activation_bytes(engine, shape, tokens) * compute / 2
    one_layer = 17 * compute * shape.hidden * tokens
    if train.memory.offload_activations:
        return one_layer
    recomputed = train.memory.recompute_activations
    return one_layer + compute * shape.hidden * tokens * shape.layers if recomputed else one_layer * shape.layers


def _reference(config: Config, shape: ModelShape) -> MemoryEstimate:
    precision = config.reference.precision or config.train.precision
    _, engine = arithmetic.engine_of(config, "reference")
    compute = BYTES[precision.compute]
    tokens = micro_tokens(config, config.reference.micro or config.batch.log_prob_micro or config.batch.micro)
    tokens_each = tokens / arithmetic.devices_per_sequence(engine)
    logits = min(compute * tokens_each * shape.vocabulary, 2 * _chunk_bytes(tokens_each, shape))
    if isinstance(engine, Megatron):
        held = compute * sizes.held(engine, shape).all
        return _estimate("reference", [("parameters", held), ("logits", logits / engine.tensor)])
    held = BYTES[precision.parameters] * shape.parameters / _shared_by(config, config.train)
    return _estimate(
        "reference", [("parameters", held), ("gathered", _gathered(config.train, shape)), ("logits", logits)]
    )


def _teacher(config: Config, shape: ModelShape) -> MemoryEstimate:
    """A frozen model spread as the policy is; whole logits of what is trained on where distributions are compared."""
    train, batch = config.train, config.batch
    drawn = arithmetic.teacher_is_drawn(config)
    micro = (batch.log_prob_micro or batch.micro) if drawn else batch.micro
    tokens = micro_tokens(config, micro) / arithmetic.devices_per_sequence(train.engine)
    whole = BYTES[train.precision.compute] * tokens * shape.vocabulary
    logits = min(whole, 2 * _chunk_bytes(tokens, shape)) if drawn else whole
    if isinstance(train.engine, Megatron):
        parameters = BYTES[train.precision.compute] * sizes.held(train.engine, shape).all
        return _estimate("teacher", [("parameters", parameters), ("logits", logits / train.engine.tensor)])
    held = BYTES[train.precision.parameters] * shape.parameters / _shared_by(config, train)
    return _estimate("teacher", [("parameters", held), ("gathered", _gathered(train, shape)), ("logits", logits)])


def _rollout(config: Config, shape: ModelShape, device: Device) -> MemoryEstimate:
    parallel = config.rollout.parallel
    each = rollout_bytes(config, device)
    split = parallel.tensor * parallel.pipeline
    responses = config.batch.prompts_per_step * config.batch.responses_per_prompt
    engines = max(1, arithmetic.rollout_devices(config) // split)
    rows = min(config.rollout.memory.max_running_responses or ROWS_AT_ONCE, -(-responses // engines))
    cache = each * shape.cache_values_per_token() * context_tokens(config) * rows / split
    return _estimate("rollout", [("weights", each * shape.parameters / split), ("cache", cache)])


def rollout_bytes(config: Config, device: Device) -> int:
    """Bytes of a number in the rollout engine: its own type, or the one that training computes in; float32 on CPU."""
    precision = config.rollout.precision
    if precision == "auto":
        return 4 if device == "cpu" else BYTES[config.train.precision.compute]
    return BYTES[precision]


def _estimate(role: str, parts: list[tuple[str, float]]) -> MemoryEstimate:
    return MemoryEstimate(role, tuple(MemoryPart(name, count / GIB) for name, count in parts))


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
    engines = max(1, arithmetic.rollout_devices(config) // (parallel.tensor * parallel.pipeline))
    at_once = engines * (config.rollout.memory.max_running_responses or ROWS_AT_ONCE)
    waves = -(-arithmetic.responses_per_step(config) // at_once)
    weights = rollout_bytes(config, "cuda") * shape.active_parameters / (parallel.tensor * parallel.pipeline)
    iteration = weights / (gpu.terabytes_per_second * 1e12 * GENERATION_UTILISATION)
    return waves * config.rollout.max_response_tokens * iteration
