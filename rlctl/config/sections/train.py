"""How models are trained: sections ``train``, ``critic`` and ``reference``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import (
    Choice,
    Count,
    Fraction,
    Local,
    NonNegative,
    ParallelSize,
    Positive,
    Range,
    Unit,
    section,
)
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.model import Model

FloatType = Literal["float32", "bfloat16", "float16"]


@section
class TrainEngine(Choice):
    """The engine that trains."""


@section
class Fsdp2(TrainEngine, type="fsdp2"):
    """PyTorch FSDP2 on Transformers models."""

    fsdp_size: ParallelSize | Literal["all"] = "all"
    """Replicas that share one copy of the weights (HSDP). all = one copy over all replicas. Lower values communicate
    less and need more memory."""
    offload: Literal["none", "parameters", "optimizer", "both"] = "none"
    """What moves to CPU memory while unused. Saves GPU memory and slows down steps."""
    cpu_offload_policy: bool = False
    """Keep parameters in CPU memory and load them layer by layer (FSDP2's own offload): least memory, slowest."""
    reshard_after_forward: bool = True
    """Free gathered weights between forward and backward. Saves memory and costs one more all-gather."""
    forward_prefetch: bool = False
    """Gather the next layer's weights during the forward pass."""
    wrap_min_parameters: Annotated[int, Unit("parameters"), Range(at_least=0)] = 0
    """Wrap any module with at least this many parameters. 0 = wrap each transformer layer."""
    wrap_layers: tuple[str, ...] = ()
    """Class names of the layers to wrap. Empty = the model's own."""
    ulysses_sequence_parallel_size: ParallelSize = 1
    """Devices that share one sequence (Ulysses). Higher values fit longer sequences."""
    expert_parallel_size: ParallelSize = 1
    """Devices that share the experts."""
    source: Literal["fsdp", "fsdp2", "fsdp_turbo", "deepspeed"] = "fsdp2"
    """Engine named in the source config. All of them run as FSDP2."""
    source_args: dict[str, Any] = {}
    """Settings of that engine that don't apply to FSDP2."""


@section
class Moe:
    """Mixture-of-experts settings of Megatron."""

    dispatcher: Literal["allgather", "alltoall", "flex"] | None = None
    """How tokens are sent to experts. null = Megatron's default."""
    grouped_gemm: bool = False
    """Compute all experts of a device in one kernel."""
    shared_expert_overlap: bool = False
    """Compute the shared expert while tokens are dispatched."""
    layer_recompute: bool = False
    """Recompute expert layers in the backward pass. Saves memory and takes more time."""
    freeze_router: bool = False
    """Don't train the router."""


@section
class Megatron(TrainEngine, type="megatron"):
    """Megatron-core."""

    tensor_parallel_size: ParallelSize = 1
    """Devices that share each layer."""
    pipeline_parallel_size: ParallelSize = 1
    """Pipeline stages. Higher values fit larger models and idle more."""
    virtual_pipeline_parallel_size: ParallelSize | None = None
    """Chunks of layers per stage. Higher values idle less. null = one."""
    context_parallel_size: ParallelSize = 1
    """Devices that share one sequence."""
    expert_parallel_size: ParallelSize = 1
    """Devices that share the experts."""
    expert_tensor_parallel_size: ParallelSize | None = None
    """Devices that share one expert. null = ``tensor_parallel_size``."""
    sequence_parallel: bool = True
    """Also split activations across the tensor-parallel devices."""
    offload: Literal["none", "parameters", "optimizer", "both"] = "none"
    """What moves to CPU memory while unused."""
    offload_gradients: bool = False
    """Also move gradients to CPU memory while unused."""
    distributed_optimizer: bool = True
    """Shard the optimizer state over replicas."""
    distributed_checkpointing: bool = True
    """Save in Megatron's distributed format, which can be resharded."""
    checkpoint_path: Annotated[str | None, Local()] = None
    """Megatron checkpoint to start from instead of Hugging Face weights."""
    overlap_gradient_reduce: bool = False
    """Reduce gradients during the backward pass."""
    overlap_parameter_gather: bool = False
    """Gather parameters during the forward pass."""
    recompute_granularity: Literal["none", "selective", "full"] = "none"
    """What is recomputed in the backward pass."""
    recompute_method: Literal["uniform", "block"] | None = None
    """How full recomputation picks layers."""
    recompute_layers: Count | None = None
    """Layers per recomputed block."""
    recompute_modules: tuple[str, ...] = ()
    """Modules recomputed with selective."""
    moe: Moe = Moe()
    """Settings of mixture-of-experts layers."""
    bridge: Literal["auto", "builtin", "mbridge", "megatron_bridge"] = "auto"
    """How Hugging Face weights are converted. auto = whatever works."""
    transformer: dict[str, Any] = {}
    """Values that override Megatron's TransformerConfig, checked against it."""
    ddp: dict[str, Any] = {}
    """Values that override Megatron's DDP config, checked against it."""
    optimizer_overrides: dict[str, Any] = {}
    """Values that override Megatron's optimizer config, checked against it."""


@section
class OtherTrainEngine(
    TrainEngine, type="other", further=("veomni", "torchtitan", "mindspeed", "mlite", "hf_infer", "tinker")
):
    """An engine that rlctl converts but cannot run.

    One that it does not know is written with its framework's name: ``verl.mine``.
    """

    kind: str
    """The type."""
    args: dict[str, Any] = {}
    """Settings in its framework, by name."""


@section
class PrecisionSettings:
    """Data types of training."""

    parameters: FloatType = "float32"
    """Master weights and optimizer state."""
    compute: FloatType = "bfloat16"
    """Forward and backward pass."""
    reduce: FloatType = "float32"
    """Gradient reduction between replicas."""


@section
class Optimizer:
    """The optimizer."""

    type: str = "adamw"
    """``adamw``, or the name of another optimizer of the engine or of ``module``."""
    module: str | None = None
    """Python module with the optimizer. null = the engine's own."""
    lr: NonNegative = 1e-6
    """Peak learning rate. Higher values learn faster and are less stable."""
    weight_decay: NonNegative = 0.01
    """Weight decay of the optimizer."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's decay rates of the first and second moment."""
    epsilon: Positive = 1e-8
    """Added to Adam's denominator."""
    max_grad_norm: Positive | None = 1.0
    """Gradients with a larger norm are scaled down to it. null = no clipping."""
    weight_decay_style: Literal["constant", "linear", "cosine"] = "constant"
    """How weight decay changes from start to end of the run."""
    start_weight_decay: NonNegative | None = None
    """Weight decay at the start. null = ``weight_decay``."""
    end_weight_decay: NonNegative | None = None
    """Weight decay at the end. null = ``weight_decay``."""
    decay_norms_and_biases: bool = True
    """Also apply weight decay to norm and bias parameters. Megatron-core's optimizer never does."""
    args: dict[str, Any] = {}
    """Further arguments of the optimizer."""


@section
class LrScheduler:
    """Schedule of the learning rate."""

    type: Literal["constant", "linear", "cosine", "inverse_sqrt", "wsd", "polynomial"] = "constant"
    """Shape after the warm-up."""
    step_unit: Literal["step", "optimizer_step"] = "step"
    """Whether the schedule advances per step (verl) or per optimizer step (ROLL, Trinity). The step counts below use
    this unit."""
    warmup_steps: Annotated[int, Unit("scheduler steps"), Range(at_least=0)] | None = None
    """Scheduler steps until the peak. null = use ``warmup_ratio``."""
    warmup_ratio: Fraction | None = None
    """Warm-up as a share of the schedule. null = use ``warmup_steps``."""
    warmup_start_lr: NonNegative = 0.0
    """Learning rate at which the warm-up starts."""
    min_lr_ratio: Fraction = 0.0
    """Lowest learning rate as a share of the peak."""
    min_lr: NonNegative | None = None
    """Lowest learning rate. null = use ``min_lr_ratio``."""
    num_cycles: Positive = 0.5
    """Cosine periods over the run. 0.5 ends at the lowest point."""
    decay_steps: Annotated[int, Unit("scheduler steps"), Range(at_least=1)] | None = None
    """Scheduler steps until the lowest point. null = the whole run."""
    wsd_decay_steps: Annotated[int, Unit("scheduler steps"), Range(at_least=1)] | None = None
    """Scheduler steps of the final decay of wsd."""
    wsd_decay_style: Literal["exponential", "linear", "cosine", "minus_sqrt"] = "exponential"
    """Shape of that decay."""
    total_steps: Annotated[int, Unit("scheduler steps"), Range(at_least=1)] | None = None
    """Length of the schedule. null = the run's."""
    restore_from_checkpoint: bool = True
    """On resume, use the schedule of the checkpoint (shape, length, peak) instead of the config's. The position
    always comes from the checkpoint."""


@section
class MemorySettings:
    """Options that save memory."""

    recompute_activations: bool = True
    """Recompute activations in the backward pass (gradient checkpointing): less memory, about a third more time."""
    recompute_reentrant: bool = False
    """Use the older reentrant recomputation, which some models need."""
    offload_activations: bool = False
    """Keep activations in CPU memory between forward and backward."""
    entropy_chunked: bool = False
    """Compute entropy in chunks: less memory with large vocabularies."""
    entropy_recompute: bool = False
    """Recompute entropy in the backward pass."""
    empty_cache: bool = True
    """Release cached GPU memory between phases on shared devices."""


@section
class FusedKernels:
    """Kernels that replace parts of the model."""

    enabled: bool = False
    """Compute log-probs and entropy from chunks of logits, never from all logits together. FSDP2 on a GPU does so if
    the model allows it; true also does on a CPU, and refuses models that don't allow it."""
    backend: Literal["torch", "triton"] = "torch"
    """Implementation of the fused kernel."""
    liger: bool = False
    """Use Liger kernels in the model."""
    prefix_grouping: bool | None = None
    """Compute a prompt once for all its responses in a micro-batch. Needs packed sequences (FSDP2, ``model.attention`` auto
    or flash_attention). Results change by rounding; longer prompts save more. null = on for groups of responses, off with
    ``run.deterministic``."""


@section
class Train:
    """Engine, precision, optimizer and schedule of the policy."""

    engine: TrainEngine = Fsdp2()
    """The engine that trains."""
    precision: PrecisionSettings = PrecisionSettings()
    """Data types of weights, computation and gradients."""
    optimizer: Optimizer = Optimizer()
    """The optimizer and its settings."""
    lr_scheduler: LrScheduler = LrScheduler()
    """Schedule of the learning rate."""
    memory: MemorySettings = MemorySettings()
    """Options that save memory."""
    fused_kernels: FusedKernels = FusedKernels()
    """Kernels that replace parts of the model."""
    packing: bool = True
    """Pack sequences without padding if the attention implementation allows it. Results don't change; false is
    slower. Megatron always packs."""
    compile: bool = True
    """Compile the layers and the log-prob and entropy computation with torch.compile, on GPUs with a compiler. Results change
    by rounding; the first step takes a minute longer."""
    seed: int | None = None
    """Seed of the training engine (dropout). null = ``run.seed``."""


@section
class ValueLoss:
    """The critic's loss."""

    clip: NonNegative | None = 0.5
    """Value clip range around the old values. null = no clipping."""
    coefficient: NonNegative = 1.0
    """Weight of the loss."""
    aggregation: Literal[
        "token_mean", "token_sum", "seq_mean_token_sum", "seq_mean_token_mean", "seq_mean_token_sum_norm"
    ] = "token_mean"
    """How token losses are reduced to one number."""


@section
class Critic(Train):
    """The value model, trained together with the policy. Needed by gae."""

    model: Model | None = None
    """Initial weights. null = the policy's."""
    optimizer: Optimizer = Optimizer(lr=1e-5)
    """The critic's optimizer and its settings."""
    value_loss: ValueLoss = ValueLoss()
    """Loss of the critic."""
    mini_batch_responses: Annotated[int, Unit("responses"), Range(at_least=1)] | None = None
    """Responses per optimizer step. null = the policy's."""
    ppo_epochs: Count | None = None
    """Passes over each step's responses. null = the policy's."""
    micro_batch: MicroBatchSize | None = None
    """Micro-batch. null = the policy's."""
    forward_micro_batch: MicroBatchSize | None = None
    """Micro-batch of value passes. null = ``micro_batch``."""
    shuffle: bool = False
    """Shuffle responses across mini-batches."""
    shuffle_seed: int | None = None
    """Seed of that shuffle."""


@section
class Reference:
    """The model that KL is measured against."""

    model: Model | None = None
    """Weights. null = the policy's initial weights; with LoRA, its base weights, without a second copy."""
    engine: TrainEngine | None = None
    """Training engine. null = the policy's."""
    micro_batch: MicroBatchSize | None = None
    """Micro-batch of its passes. null = the policy's log-prob micro-batch."""
    precision: PrecisionSettings | None = None
    """Data types. null = the policy's."""
    compile: bool | None = None
    """Compile its log-prob computation. null = as the policy."""
