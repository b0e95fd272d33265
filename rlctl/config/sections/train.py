"""How models are trained: sections ``train``, ``critic`` and ``reference``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import Choice, Count, Fraction, NonNegative, ParallelSize, Positive, Range, Unit, section
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
    """Replicas that share one copy of the weights; all is one copy over all. Lowered, it talks less and needs more memory."""
    offload: Literal["none", "parameters", "optimizer", "both"] = "none"
    """What moves to CPU memory while unused: less GPU memory, slower steps."""
    cpu_offload_policy: bool = False
    """Keep parameters in CPU memory and fetch them layer by layer (FSDP2's own offload): slowest, least memory."""
    reshard_after_forward: bool = True
    """Drop gathered weights between forward and backward: less memory, one more gather."""
    forward_prefetch: bool = False
    """Gather the next layer's weights during the forward pass."""
    wrap_min_parameters: Annotated[int, Unit("parameters"), Range(at_least=0)] = 0
    """Wrap any module with at least this many parameters; 0 wraps each transformer layer."""
    wrap_layers: tuple[str, ...] = ()
    """Class names of the layers to wrap; empty takes the model's own."""
    ulysses_sequence_parallel_size: ParallelSize = 1
    """Devices that share one sequence (Ulysses). Raised, longer sequences fit."""
    expert_parallel_size: ParallelSize = 1
    """Devices that share the experts."""
    source: Literal["fsdp", "fsdp2", "fsdp_turbo", "deepspeed"] = "fsdp2"
    """The engine the source config names; all of them run as FSDP2."""
    source_args: dict[str, Any] = {}
    """Settings of that engine that have no meaning for FSDP2."""


@section
class Moe:
    """Mixture-of-experts settings of Megatron."""

    dispatcher: Literal["allgather", "alltoall", "flex"] | None = None
    """How tokens travel to experts; null takes Megatron's default."""
    grouped_gemm: bool = False
    """Compute all experts of a device in one call."""
    shared_expert_overlap: bool = False
    """Compute the shared expert while tokens travel."""
    layer_recompute: bool = False
    """Recompute expert layers in the backward pass: less memory, more time."""
    freeze_router: bool = False
    """Leave the router untrained."""


@section
class Megatron(TrainEngine, type="megatron"):
    """Megatron-core."""

    tensor_parallel_size: ParallelSize = 1
    """Devices that share each layer."""
    pipeline_parallel_size: ParallelSize = 1
    """Pipeline stages. Raised, larger models fit and stages idle more."""
    virtual_pipeline_parallel_size: ParallelSize | None = None
    """Chunks of layers on each stage; null is one. Raised, stages idle less."""
    context_parallel_size: ParallelSize = 1
    """Devices that share one sequence."""
    expert_parallel_size: ParallelSize = 1
    """Devices that share the experts."""
    expert_tensor_parallel_size: ParallelSize | None = None
    """Devices that share one expert; null is ``tensor_parallel_size``."""
    sequence_parallel: bool = True
    """Split activations between the tensor devices too."""
    offload: Literal["none", "parameters", "optimizer", "both"] = "none"
    """What moves to CPU memory while unused."""
    offload_gradients: bool = False
    """Move gradients to CPU memory while unused, too."""
    distributed_optimizer: bool = True
    """Split the optimizer's state over replicas."""
    distributed_checkpointing: bool = True
    """Save in Megatron's own format, which reshards."""
    checkpoint_path: str | None = None
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
    """Modules recomputed under selective."""
    moe: Moe = Moe()
    """Settings of mixture-of-experts layers."""
    bridge: Literal["auto", "builtin", "mbridge", "megatron_bridge"] = "auto"
    """How Hugging Face weights are converted; auto takes what works."""
    transformer: dict[str, Any] = {}
    """Values put over Megatron's TransformerConfig, checked against it."""
    ddp: dict[str, Any] = {}
    """Values put over Megatron's DDP config, checked against it."""
    optimizer_overrides: dict[str, Any] = {}
    """Values put over Megatron's optimizer config, checked against it."""


@section
class OtherTrainEngine(
    TrainEngine, type="other", further=("veomni", "torchtitan", "mindspeed", "mlite", "hf_infer", "tinker")
):
    """An engine that rlctl translates and cannot run; one that it does not know follows its framework's name, ``verl.mine``."""

    kind: str
    """The type."""
    args: dict[str, Any] = {}
    """Its settings in its framework, by name."""


@section
class PrecisionSettings:
    """Number types of training."""

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
    """Python module that has the optimizer; null is the engine's own."""
    lr: NonNegative = 1e-6
    """Peak learning rate. Raised, it learns faster, until it becomes unstable."""
    weight_decay: NonNegative = 0.01
    """Pull of weights to 0."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's decay rates of the mean and of the square of gradients."""
    epsilon: Positive = 1e-8
    """Added to Adam's denominator."""
    max_grad_norm: Positive | None = 1.0
    """Gradients longer than this are scaled down to it; null never clips."""
    weight_decay_style: Literal["constant", "linear", "cosine"] = "constant"
    """How weight decay moves from start to end over the run."""
    start_weight_decay: NonNegative | None = None
    """Weight decay at the start; null is ``weight_decay``."""
    end_weight_decay: NonNegative | None = None
    """Weight decay at the end; null is ``weight_decay``."""
    decay_norms_and_biases: bool = True
    """Weight decay pulls on norms and biases too. Megatron-core's own optimizer leaves them out."""
    args: dict[str, Any] = {}
    """Further arguments of the optimizer."""


@section
class LrScheduler:
    """How the learning rate moves over the run."""

    type: Literal["constant", "linear", "cosine", "inverse_sqrt", "wsd", "polynomial"] = "constant"
    """Shape after the warm-up."""
    step_unit: Literal["step", "optimizer_step"] = "step"
    """What moves it: verl moves it once a step, ROLL and Trinity once an optimizer step. The steps below count this."""
    warmup_steps: Annotated[int, Unit("scheduler steps"), Range(at_least=0)] | None = None
    """Scheduler steps until the peak; null uses ``warmup_ratio``."""
    warmup_ratio: Fraction | None = None
    """Share of the whole schedule until the peak; null uses ``warmup_steps``."""
    warmup_start_lr: NonNegative = 0.0
    """Learning rate at which the warm-up starts."""
    min_lr_ratio: Fraction = 0.0
    """Lowest learning rate as a share of the peak."""
    min_lr: NonNegative | None = None
    """Lowest learning rate; null uses ``min_lr_ratio``."""
    num_cycles: Positive = 0.5
    """Periods of the cosine over the run; 0.5 ends at the lowest point."""
    decay_steps: Annotated[int, Unit("scheduler steps"), Range(at_least=1)] | None = None
    """Scheduler steps until the lowest point; null is the whole run."""
    wsd_decay_steps: Annotated[int, Unit("scheduler steps"), Range(at_least=1)] | None = None
    """Scheduler steps of the decay at the end of wsd."""
    wsd_decay_style: Literal["exponential", "linear", "cosine", "minus_sqrt"] = "exponential"
    """Shape of that decay."""
    total_steps: Annotated[int, Unit("scheduler steps"), Range(at_least=1)] | None = None
    """Length of the schedule; null is the run's."""
    restore_from_checkpoint: bool = True
    """On resume, take the schedule from the checkpoint rather than from the config: its shape, length and peak. Its
    position always comes from the checkpoint."""


@section
class MemorySettings:
    """Memory against time."""

    recompute_activations: bool = True
    """Compute activations again in the backward pass (gradient checkpointing): less memory, about a third more time."""
    recompute_reentrant: bool = False
    """Use the older, reentrant kind of recomputation, which some models need."""
    offload_activations: bool = False
    """Keep activations in CPU memory between forward and backward."""
    entropy_chunked: bool = False
    """Compute entropy chunk by chunk: less memory at large vocabularies."""
    entropy_recompute: bool = False
    """Compute entropy again in the backward pass."""
    empty_cache: bool = True
    """Give cached GPU memory back between phases when devices are shared."""


@section
class FusedKernels:
    """Kernels that replace parts of the model."""

    enabled: bool = False
    """Use a fused log-prob kernel that never holds all logits."""
    backend: Literal["torch", "triton"] = "torch"
    """Who provides the fused kernel."""
    liger: bool = False
    """Use Liger kernels in the model."""
    prefix_grouping: bool | None = None
    """Compute a prompt once for all its responses in a micro-batch. Needs packed sequences (FSDP2, ``model.attention`` auto).
    Results change by rounding; longer prompts save more. null = on for groups of responses, off with ``run.deterministic``."""


@section
class Train:
    """Engine, precision, optimizer and schedule of the policy."""

    engine: TrainEngine = Fsdp2()
    """The engine that trains."""
    precision: PrecisionSettings = PrecisionSettings()
    """Number types of weights, computation and gradients."""
    optimizer: Optimizer = Optimizer()
    """The optimizer and its settings."""
    lr_scheduler: LrScheduler = LrScheduler()
    """How the learning rate moves."""
    memory: MemorySettings = MemorySettings()
    """What is given up to save memory."""
    fused_kernels: FusedKernels = FusedKernels()
    """Kernels that replace parts of the model."""
    packing: bool = True
    """Pack sequences end to end instead of padding them, if the attention supports it. Results are the same; false is slower.
    Megatron always packs."""
    compile: bool = True
    """Compile the log-prob and entropy computation with torch.compile where a compiler is found."""
    seed: int | None = None
    """Seed of the training engine (dropout); null takes ``run.seed``."""


@section
class ValueLoss:
    """The critic's loss."""

    clip: NonNegative | None = 0.5
    """Values are clipped to within this of the old ones, 0 to the old ones themselves; null never clips."""
    coefficient: NonNegative = 1.0
    """Weight of the loss."""
    aggregation: Literal[
        "token_mean", "token_sum", "seq_mean_token_sum", "seq_mean_token_mean", "seq_mean_token_sum_norm"
    ] = "token_mean"
    """How token losses become one number."""


@section
class Critic(Train):
    """The value model, trained beside the policy. Needed by gae."""

    model: Model | None = None
    """Its weights; null starts from the policy's."""
    optimizer: Optimizer = Optimizer(lr=1e-5)
    """The critic's optimizer and its settings."""
    value_loss: ValueLoss = ValueLoss()
    """The loss that the critic is trained with."""
    mini_batch_responses: Annotated[int, Unit("responses"), Range(at_least=1)] | None = None
    """Responses of one optimizer step; null is the policy's."""
    ppo_epochs: Count | None = None
    """Passes over each step's responses; null is the policy's."""
    micro_batch: MicroBatchSize | None = None
    """Micro-batch; null is the policy's."""
    forward_micro_batch: MicroBatchSize | None = None
    """Micro-batch of value passes; null = ``micro_batch``."""
    shuffle: bool = False
    """Shuffle responses over mini-batches."""
    shuffle_seed: int | None = None
    """Seed of that shuffle."""


@section
class Reference:
    """The model that KL is measured against."""

    model: Model | None = None
    """Its weights; null is the policy's start, and its base under LoRA, without a second copy."""
    engine: TrainEngine | None = None
    """Its engine; null is the policy's."""
    micro_batch: MicroBatchSize | None = None
    """Micro-batch of its passes; null is the policy's log-prob one."""
    precision: PrecisionSettings | None = None
    """Number types; null is the policy's."""
    compile: bool | None = None
    """Compile its log-prob computation; null is as the policy."""
