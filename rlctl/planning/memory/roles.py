"""Estimates of device memory for each role of a config, from the shapes of its models.

Bytes on one device, P parameters, S devices that share them:

    fsdp2      parameters p P/S, gradients p P/S, AdamW 2 p P/S      p: bytes of train.precision.parameters
               adapters: parameters p P/S; theirs, their gradients and AdamW in 4 bytes, r (in + out) numbers a linear layer
               and the largest moment of a pass (``memory.fsdp``)
    megatron   what a worker holds is in ``megatron.sizes``: parameters in train.precision.compute, gradients in
               train.precision.reduce, the optimizer 12 bytes a parameter (8 at float32, which needs no masters), also over
               replicas where it is distributed (Megatron-LM's table of its distributed optimizer: 6 + 12 / d)
               and the larger moment of a step (``memory.megatron``)
    rollout    weights over tensor x pipeline devices, and the KV cache of the sequences that run at once
    auxiliary, judge
               the same of the largest model that the run serves in addition to the policy: a device has one of them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlctl.config import Config
from rlctl.config.sections.batch import Batch, MicroBatchSize
from rlctl.config.sections.model import Lora
from rlctl.config.sections.rewards import ModelReward
from rlctl.config.sections.train import Critic, Fsdp2, Megatron, PrecisionSettings, Train, TrainEngine
from rlctl.planning import arithmetic
from rlctl.planning.arithmetic import Device
from rlctl.planning.megatron import sizes
from rlctl.planning.memory import fitted, megatron
from rlctl.planning.memory.engines import cache_bytes, draft_bytes, rollout_bytes, weight_bytes
from rlctl.planning.memory.fsdp import PRODUCT_CHUNK, Moment, Pass, forward_moments, peak, saved_bytes, training_moments
from rlctl.planning.memory.parts import BYTES, GIB, MemoryEstimate, MemoryPart
from rlctl.planning.memory_terms import OWN, MemoryTerms
from rlctl.planning.models import ModelShape, read_shape

ROWS_AT_ONCE = 256
"""Responses decoded at once where the config names no number: the default of the built-in engine, and of vLLM on GPUs with
less than 70 GiB."""


TOWERS = ("visual", "vision")
"""Words in the names of vision towers."""
ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Variables that configure PyTorch's allocator."""


def memory_of(config: Config, *, device: Device = "cuda", terms: MemoryTerms = OWN) -> tuple[MemoryEstimate, ...]:
    """Estimate each role at its peak; empty if the size of the policy is not known (``models.why_unknown``).

    Args:
        config: of one stage.
        device: its kind.
        terms: what the framework that runs it holds.
    """
    policy = read_shape(config.model.path)
    if policy is None:
        return ()
    found = [_trained("policy", config, config.train, policy, terms)] if arithmetic.trains(config) else []
    if arithmetic.needs_rollout(config):
        found.append(_rollout(config, policy, device))
    if arithmetic.needs_reference(config) and not arithmetic.reference_is_base(config):
        model = config.reference.model
        shape = read_shape(model.path) if model is not None and model.path else policy
        found += [] if shape is None else [_reference(config, shape, terms)]
    if config.algorithm.distillation is not None:
        shape = read_shape(config.algorithm.distillation.teacher)
        found += [] if shape is None else [_teacher(config, shape, terms)]
    if arithmetic.needs_critic(config) and config.critic is not None:
        model = config.critic.model
        shape = read_shape(model.path) if model is not None and model.path else policy
        found += [] if shape is None else [_trained("critic", config, config.critic, shape, terms)]
    if arithmetic.needs_rollout(config):
        found += _reward_models(config)
    for role in SERVED:
        served = [_serving(role, model, config, device) for model in served_models(config, role)]
        known = [each for each in served if each is not None]
        found += [max(known, key=lambda each: each.part("weights"))] if known else []
    return tuple(found)


SERVED = ("auxiliary", "judge")
"""Roles of models, other than the policy, that engines of the run serve."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of one of these roles."""

    path: str
    tensor_parallel_size: int
    max_context_tokens: int | None
    settings: Mapping[str, Any]
    """Of its engine, by vLLM's names."""


def served_models(config: Config, role: str) -> list[ServedModel]:
    """The models of one of ``SERVED``."""
    if role == "auxiliary":
        return [
            ServedModel(each.path, each.tensor_parallel_size, each.max_context_tokens, each.settings)
            for each in arithmetic.served_auxiliaries(config).values()
        ]
    judges = list(arithmetic.served_judges(config).values())[:1] if arithmetic.scores(config) else []
    return [
        ServedModel(each.model, each.tensor_parallel_size, each.max_context_tokens, each.engine_args) for each in judges
    ]


def _serving(role: str, model: ServedModel, config: Config, device: Device) -> MemoryEstimate | None:
    """Weights, and the cache of the requests that run at once; None if the size is not known."""
    shape = read_shape(model.path)
    if shape is None:
        return None
    each, tensor = rollout_bytes(config, device), model.tensor_parallel_size
    rows = int(model.settings.get("max_num_seqs") or ROWS_AT_ONCE)
    values = shape.cache_values(model.max_context_tokens or context_tokens(config)) / cache_shards(shape, tensor)
    return _estimate(role, [("weights", each * shape.parameters / tensor), ("cache", each * values * rows)])


def _reward_models(config: Config) -> list[MemoryEstimate]:
    """Reward models, each whole on a device, one after the other at work; those of a size that is not known left out."""
    compute = BYTES[config.train.precision.compute]
    models = [(each, read_shape(each.path)) for each in config.rewards if isinstance(each, ModelReward)]
    known = [(each, shape) for each, shape in models if shape is not None]
    if not known:
        return []
    tokens = [each.micro_batch_size * (each.max_tokens or context_tokens(config)) for each, _ in known]
    at_work = [
        each * max(saved_bytes(shape, kind, compute) for kind in shape.kinds)
        for each, (_, shape) in zip(tokens, known, strict=True)
    ]
    held = sum(compute * shape.parameters for _, shape in known)
    return [_estimate("reward_model", [("parameters", held), ("activations", max(at_work))])]


def context_tokens(config: Config) -> int:
    """The longest sequence: prompt and response, a conversation of an agent, or a whole training sequence of sft and dpo."""
    both = config.data.max_prompt_tokens + config.rollout.max_response_tokens
    if config.algorithm.objective.choice in ("sft", "dpo"):
        return config.data.max_sequence_tokens or both
    limit = config.model.max_context_tokens
    if limit is None or (not config.rollout.agents and not config.rollout.default_agent):
        return min(limit or both, both)
    return limit


def micro_tokens(config: Config, micro: MicroBatchSize) -> int:
    """Tokens of a micro-batch on one replica, at most; a sequence is never split."""
    longest = context_tokens(config)
    return max(longest, micro.size) if micro.unit == "tokens" else micro.size * longest


def likely_tokens(
    config: Config, micro: MicroBatchSize, batch: Batch, role: str, terms: MemoryTerms, *, trained: bool = True
) -> float:
    """Tokens of the largest micro-batch of a step, on one replica.

    Of sequences that are packed, one is as long as allowed and the others have ``fitted.MEAN_LENGTH`` of it. A budget of
    tokens is filled, unless the sequences of a mini-batch need fewer; of the step, in a pass without gradient.
    """
    longest, most = context_tokens(config), micro_tokens(config, micro)
    if terms.full_lengths or not config.train.packing:
        return most
    whole = batch if trained else replace(batch, mini_batch_responses=None)
    count = micro.size if micro.unit == "responses" else responses_of_replica(config, whole, role)
    return max(longest, min(most, _packed(longest, count, terms)))


def mean_share(terms: MemoryTerms) -> float:
    """Length of the sequences of a micro-batch as a share of the longest one."""
    return fitted.MEAN_LENGTH if terms.mean_share is None else terms.mean_share


def _packed(longest: int, count: int, terms: MemoryTerms) -> float:
    """Tokens of sequences that are packed."""
    return longest * (1 + (count - 1) * mean_share(terms))


def responses_of_replica(config: Config, batch: Batch, role: str) -> int:
    """Responses of a mini-batch on one replica."""
    _, engine = arithmetic.engine_of(config, role)
    replicas = max(1, len(arithmetic.devices_of(config, role)) // arithmetic.devices_per_replica(engine))
    return -(-arithmetic.mini_batch_responses(replace(config, batch=batch)) // replicas)


def _accumulates(config: Config, micro: MicroBatchSize, batch: Batch, role: str, terms: MemoryTerms) -> bool:
    """Whether a mini-batch is several micro-batches, so that gradients wait for the last one."""
    count = responses_of_replica(config, batch, role)
    if micro.unit == "responses":
        return count > micro.size
    return _packed(context_tokens(config), count, terms) > micro.size


def counted_share(config: Config) -> float:
    """Share of a sequence's tokens whose log-probs are computed: those of the response, or all of a training sequence."""
    if config.algorithm.objective.choice in ("sft", "dpo"):
        return 1.0
    return config.rollout.max_response_tokens / (config.data.max_prompt_tokens + config.rollout.max_response_tokens)


def _reads_entropy(config: Config) -> bool:
    """Whether the policy's loss has a gradient of the entropy, as an entropy bonus has."""
    return config.algorithm.entropy_coefficient != 0 and config.algorithm.objective.choice != "sft"


def _trained(role: str, config: Config, train: Train, shape: ModelShape, terms: MemoryTerms) -> MemoryEstimate:
    critic = isinstance(train, Critic)
    states = list(states_of(config, train, shape, terms).items())
    if isinstance(train.engine, Megatron):
        return _estimate(role, [*states, *_megatron_pass(config, train, train.engine, shape, terms)])
    batch = arithmetic.critic_batch(config) if critic else config.batch
    moment = peak(training_moments(pass_of(config, train, shape, batch.micro_batch, terms, trained=True)))
    return _estimate(role, [*states, *_parts(moment, config, terms)])


def policy_forward(config: Config, terms: MemoryTerms = OWN) -> MemoryEstimate | None:
    """The policy in a pass without gradient, for old log-probs; None if its size is not known."""
    shape, train = read_shape(config.model.path), config.train
    if shape is None:
        return None
    states = states_of(config, train, shape, terms)
    if isinstance(train.engine, Fsdp2) and train.engine.offload not in ("optimizer", "both"):
        kept = [(name, states[name]) for name in ("parameters", "optimizer")]
    elif isinstance(train.engine, Megatron):
        kept = list(states.items())
    else:
        kept = [("parameters", states["parameters"])]
    if isinstance(train.engine, Megatron):
        return _estimate("policy", kept)
    micro = config.batch.log_prob_micro_batch or config.batch.micro_batch
    moment = peak(forward_moments(pass_of(config, train, shape, micro, terms, trained=False, entropy=True)))
    return _estimate("policy", [*kept, *_parts(moment, config, terms)])


def _parts(moment: Moment, config: Config, terms: MemoryTerms) -> list[tuple[str, float]]:
    """What a pass allocates, and what fragments of it."""
    parts = [("gathered", moment.gathered), ("activations", moment.activations), ("logits", moment.logits)]
    fragments = 0.0 if _expands(config, terms) else fitted.FRAGMENTS * moment.all
    return [*parts, ("optimizer step", moment.step), ("fragments", fragments)]


def _expands(config: Config, terms: MemoryTerms) -> bool:
    """Whether training allocates in expandable segments: as the run's environment says, else as the framework does."""
    variables = {**config.runtime.env_vars, **config.runtime.role_env_vars.get("policy", {})}
    asked = next((variables[name] for name in ALLOCATOR if name in variables), None)
    return terms.expandable_segments if asked is None else "expandable_segments:true" in asked.lower()


def pass_of(
    config: Config,
    train: Train,
    shape: ModelShape,
    micro: MicroBatchSize,
    terms: MemoryTerms = OWN,
    *,
    trained: bool,
    precision: PrecisionSettings | None = None,
    entropy: bool = False,
) -> Pass:
    """One micro-batch of a role that FSDP2 computes.

    Args:
        config: of one stage.
        train: the engine and its settings.
        shape: of the model.
        micro: size of the micro-batch.
        terms: what the framework that runs it holds.
        trained: whether the pass has a gradient.
        precision: types of the model, if not those of ``train``.
        entropy: whether a pass without gradient computes the entropy.
    """
    engine, types = train.engine, precision or train.precision
    memory = train.memory
    critic = isinstance(train, Critic)
    batch = arithmetic.critic_batch(config) if critic else config.batch
    role = "critic" if critic else "policy"
    likely = likely_tokens(config, micro, batch, role, terms, trained=trained)
    tokens = likely / arithmetic.devices_per_sequence(engine)
    lora = None if critic or not trained else config.model.lora
    return Pass(
        shape=shape,
        tokens=tokens,
        counted=tokens * counted_share(config),
        compute=BYTES[types.compute],
        reduce=BYTES[types.reduce],
        shard=_shared_by(config, train),
        has_head=not critic,
        reshard=not isinstance(engine, Fsdp2) or engine.reshard_after_forward,
        recompute=train.memory.recompute_activations,
        offload_activations=train.memory.offload_activations,
        fused=train.fused_kernels.enabled or (terms.logits is None and _chunks_logits(config, shape)),
        trained=0.0 if lora is not None else 1.0,
        reads_entropy=(terms.entropy_always or _reads_entropy(config)) if trained else entropy,
        whole=terms.logits,
        eager_entropy=not (train.compile or memory.entropy_chunked or memory.entropy_recompute),
        kept_gradients=terms.kept_gradients.get(engine.source, 0)
        if isinstance(engine, Fsdp2) and trained and _accumulates(config, micro, batch, role, terms)
        else 0,
        optimizer_step=0 if lora is not None or not trained else terms.optimizer_step * BYTES[types.parameters],
    )


def _chunks_logits(config: Config, shape: ModelShape) -> bool:
    """Whether FSDP2 never has whole logits: on a GPU, if no loss compares whole distributions and the model caps none."""
    teacher = config.algorithm.distillation is not None and not arithmetic.teacher_is_drawn(config)
    compares = teacher or bool(arithmetic.whole_divergences(config))
    return config.placement.device != "cpu" and not shape.softcapped and not compares


def _megatron_pass(
    config: Config, train: Train, engine: Megatron, shape: ModelShape, terms: MemoryTerms
) -> list[tuple[str, float]]:
    critic = isinstance(train, Critic)
    batch, role = (arithmetic.critic_batch(config), "critic") if critic else (config.batch, "policy")
    tokens = likely_tokens(config, batch.micro_batch, batch, role, terms) / engine.context_parallel_size
    compute = BYTES[train.precision.compute]
    moment = peak(
        megatron.training_moments(
            engine,
            shape,
            tokens=tokens,
            counted=tokens * counted_share(config),
            compute=compute,
            has_head=not critic,
            reads_entropy=terms.entropy_always or _reads_entropy(config),
            terms=terms,
        )
    )
    return [(name, count) for name, count in _parts(moment, config, terms) if name != "gathered"]


def states_of(config: Config, train: Train, shape: ModelShape, terms: MemoryTerms = OWN) -> dict[str, float]:
    """Bytes of parameters, gradients and optimizer on one device."""
    engine, count = train.engine, trained_parameters(shape, critic=isinstance(train, Critic))
    if isinstance(engine, Megatron):
        return _megatron_states(config, train, engine, shape)
    if isinstance(engine, Fsdp2) and engine.cpu_offload_policy:
        return {"parameters": 0.0, "gradients": 0.0, "optimizer": 0.0}
    shared, moments = _shared_by(config, train), optimizer_moments(train)
    each = BYTES[train.precision.parameters] * count / shared
    lora = None if isinstance(train, Critic) else config.model.lora
    if lora is not None:
        trained = 4 * adapter_parameters(lora, shape) / shared
        if (
            isinstance(engine, Fsdp2) and terms.frozen_copy == engine.source and shared > 1
        ):  # alone, FSDP1 shards nothing
            each += fitted.FROZEN_COPY * count / shared
        return {"parameters": each + trained, "gradients": trained, "optimizer": moments * trained}
    trains = each * (1 - frozen_parameters(config, train, shape) / count)
    return {"parameters": each, "gradients": trains, "optimizer": moments * trains}


def frozen_parameters(config: Config, train: Train, shape: ModelShape) -> int:
    """Parameters of a vision tower that ``model.freeze`` names, which has neither gradients nor an optimizer."""
    names = () if isinstance(train, Critic) else config.model.freeze
    return shape.vision_parameters if any(tower in name for name in names for tower in TOWERS) else 0


def optimizer_moments(train: Train) -> int:
    """Numbers that the optimizer keeps for each parameter: two for Adam's family, one for momentum, none for plain SGD."""
    if train.optimizer.type.lower() == "sgd":
        return 1 if train.optimizer.args.get("momentum") else 0
    return 2


def trained_parameters(shape: ModelShape, *, critic: bool) -> int:
    """Parameters of a model; a critic has a head of one number a token in place of the output head."""
    if not critic:
        return shape.parameters
    return shape.parameters - (0 if shape.tied else shape.head_parameters) + shape.hidden + 1


def _megatron_states(config: Config, train: Train, engine: Megatron, shape: ModelShape) -> dict[str, float]:
    role = "critic" if isinstance(train, Critic) else "policy"
    held = sizes.held(engine, shape, value_head=role == "critic")
    dense, experts = sizes.optimizer_shares(engine, len(arithmetic.devices_of(config, role)))
    compute = BYTES[train.precision.compute]
    each = (4 * optimizer_moments(train) + (4 if compute < 4 else 0)) * (1 - _optimizer_on_cpu(engine))
    reduced = max(BYTES[train.precision.reduce], compute)
    lora = None if role == "critic" else config.model.lora
    if lora is not None:  # half of each adapter is cut over tensor workers, the other half is whole
        trained = adapter_parameters(lora, shape) / engine.pipeline_parallel_size
        return {
            "parameters": compute * (held.all + trained),
            "gradients": reduced * trained,
            "optimizer": each * trained / dense,
        }
    frozen = frozen_parameters(config, train, shape) / (engine.tensor_parallel_size * engine.pipeline_parallel_size)
    return {
        "parameters": compute * held.all,
        "gradients": reduced * (held.all - frozen),
        "optimizer": each * ((held.dense - frozen) / dense + held.experts / experts),
    }


def _optimizer_on_cpu(engine: Megatron) -> float:
    """Share of the optimizer that Megatron keeps and steps in CPU memory."""
    options = engine.optimizer_overrides
    return float(options.get("optimizer_offload_fraction", 0.0)) if options.get("optimizer_cpu_offload") else 0.0


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
    return 4 * min(PRODUCT_CHUNK, tokens * shape.vocabulary)


def _shared_by(config: Config, train: Train) -> int:
    devices = max(1, arithmetic.train_devices(config))
    shard = train.engine.fsdp_size if isinstance(train.engine, Fsdp2) else "all"
    return devices if shard == "all" else min(devices, shard * arithmetic.devices_per_replica(train.engine))


def _reference(config: Config, shape: ModelShape, terms: MemoryTerms) -> MemoryEstimate:
    precision = config.reference.precision or config.train.precision
    _, engine = arithmetic.engine_of(config, "reference")
    micro = config.reference.micro_batch or config.batch.log_prob_micro_batch or config.batch.micro_batch
    return _frozen("reference", config, engine, precision, shape, micro, terms)


def _teacher(config: Config, shape: ModelShape, terms: MemoryTerms) -> MemoryEstimate:
    """A frozen model spread as the policy is; whole logits of what is trained on where distributions are compared."""
    train, batch = config.train, config.batch
    drawn = arithmetic.teacher_is_drawn(config)
    micro = (batch.log_prob_micro_batch or batch.micro_batch) if drawn else batch.micro_batch
    found = _frozen("teacher", config, train.engine, train.precision, shape, micro, terms)
    if drawn:
        return found
    tokens = micro_tokens(config, micro) / arithmetic.devices_per_sequence(train.engine)
    split = train.engine.tensor_parallel_size if isinstance(train.engine, Megatron) else 1
    whole = BYTES[train.precision.compute] * tokens * counted_share(config) * shape.vocabulary / split
    others = [(part.name, part.gib * GIB) for part in found.parts if part.name != "logits"]
    return _estimate("teacher", [*others, ("logits", whole)])


def _frozen(
    role: str,
    config: Config,
    engine: TrainEngine,
    precision: PrecisionSettings,
    shape: ModelShape,
    micro: MicroBatchSize,
    terms: MemoryTerms,
) -> MemoryEstimate:
    """A model that is only read: its parameters, and a pass without gradient."""
    compute = BYTES[precision.compute]
    if isinstance(engine, Megatron):
        counted = micro_tokens(config, micro) / engine.context_parallel_size * counted_share(config)
        logits = (
            min(compute * counted * shape.vocabulary, 2 * _chunk_bytes(counted, shape)) / engine.tensor_parallel_size
        )
        return _estimate(role, [("parameters", compute * sizes.held(engine, shape).all), ("logits", logits)])
    held = BYTES[precision.parameters] * shape.parameters / _shared_by(config, config.train)
    if terms.frozen_on_cpu or (isinstance(engine, Fsdp2) and engine.cpu_offload_policy):
        held = 0.0
    one = pass_of(config, config.train, shape, micro, terms, trained=False, precision=precision)
    moment = peak(forward_moments(one))
    return _estimate(role, [("parameters", held), *_parts(moment, config, terms)])


def _rollout(config: Config, shape: ModelShape, device: Device) -> MemoryEstimate:
    parallel = config.rollout.parallel
    split = parallel.tensor_parallel_size * parallel.pipeline_parallel_size
    responses = config.batch.prompts_per_step * config.batch.responses_per_prompt
    engines = max(1, arithmetic.rollout_devices(config) // split)
    rows = min(config.rollout.memory.max_num_seqs or ROWS_AT_ONCE, -(-responses // engines))
    cache = (
        cache_bytes(config, device)
        * shape.cache_values(context_tokens(config))
        * rows
        / (cache_shards(shape, parallel.tensor_parallel_size) * parallel.pipeline_parallel_size)
    )
    weights = weight_bytes(config, shape, device) + _adapter_bytes(config, shape, device) + draft_bytes(config, device)
    return _estimate("rollout", [("weights", weights), ("cache", cache)])


def _adapter_bytes(config: Config, shape: ModelShape, device: Device) -> float:
    """Bytes of adapters that an engine computes next to the weights, on one device."""
    lora, parallel = config.model.lora, config.rollout.parallel
    if lora is None or lora.merge_for_rollout:
        return 0.0
    split = parallel.tensor_parallel_size * parallel.pipeline_parallel_size
    return rollout_bytes(config, device) * adapter_parameters(lora, shape) / split


def cache_of_one(config: Config, device: Device) -> float:
    """GiB of the KV cache of one sequence on one device of a rollout engine."""
    shape = read_shape(config.model.path)
    if shape is None:
        return 0.0
    parallel = config.rollout.parallel
    values = shape.cache_values(context_tokens(config)) / (
        cache_shards(shape, parallel.tensor_parallel_size) * parallel.pipeline_parallel_size
    )
    return cache_bytes(config, device) * values / GIB


def cache_shards(shape: ModelShape, tensor: int) -> int:
    """Devices of a tensor-parallel group that share one cache: as many as there are key-value heads; a latent cache is whole."""
    return 1 if any(kind.attention == "latent" for kind in shape.kinds) else min(tensor, shape.kv_heads)


def _estimate(role: str, parts: list[tuple[str, float]]) -> MemoryEstimate:
    return MemoryEstimate(role, tuple(MemoryPart(name, count / GIB) for name, count in parts))
