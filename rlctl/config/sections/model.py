"""The model that is trained: section ``model``, and LoRA."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rlctl.config.fields import Count, Fraction, Local, Positive, Tokens, section


@section
class Lora:
    """Low-rank adapters (Hu et al. 2021): only the adapters are trained."""

    rank: Count = 16
    """Rank of the adapters. Higher ranks can learn more and use more memory."""
    alpha: Positive = 32.0
    """Scale of the adapters: their output is multiplied by alpha / rank."""
    dropout: Fraction = 0.0
    """Dropout probability of adapter inputs in training."""
    target_modules: tuple[str, ...] = ("all-linear",)
    """Modules that get adapters, by name or suffix. ``all-linear`` = every linear layer except the head."""
    exclude_modules: tuple[str, ...] = ()
    """Matching modules that get no adapter."""
    adapter_path: Annotated[str | None, Local()] = None
    """Adapter to start from. null = a new adapter."""
    name: str | None = None
    """Name of the adapter in exported files and in the rollout engine."""
    base_model: str | None = None
    """Base model name written into the adapter's config."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Data type of the adapter weights."""
    merge_for_rollout: bool = False
    """Send merged weights to the rollout engine instead of the adapter: faster generation, slower sync. false = rlctl
    sends adapters to vLLM if vLLM can add them to the model, else merged weights; the plan says which."""


@section
class RopeScaling:
    """RoPE changes, for contexts longer than the model was trained on."""

    theta: Positive | None = None
    """RoPE base frequency. Higher values extend the usable context. null = the model's own."""
    scaling: dict[str, Any] | None = None
    """``rope_scaling`` of the model's config, as Transformers reads it."""


@section
class Model:
    """Weights, tokenizer and architecture of the policy."""

    path: Annotated[str, Local()] = ""
    """Folder or hub name of the initial weights. Required."""
    tokenizer: Annotated[str | None, Local()] = None
    """Folder or hub name of the tokenizer. null = the model's."""
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"] = "auto"
    """Attention implementation of the training engine. auto and flash_attention_2 take packed sequences: with PyTorch's flash
    attention on GPUs since Ampere in 16 bits, else padded inside attention only. flash_attention_3 needs flash-attn 3.
    Others pad."""
    chat_template: str | None = None
    """Jinja text, or path of a file with it, that replaces the tokenizer's template."""
    chat_template_args: dict[str, Any] = {}
    """Variables for the chat template, such as ``enable_thinking: false``."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model. Use only for sources you trust."""
    max_context_tokens: Tokens | None = None
    """Longest prompt plus response. null = the sum of the two limits. Higher values make the engine reserve more
    memory."""
    overrides: dict[str, Any] = {}
    """Values that override the model's ``config.json``."""
    rope: RopeScaling = RopeScaling()
    """Changes to the rotary embeddings."""
    lora: Lora | None = None
    """Train low-rank adapters instead of all weights. null = train all weights."""
    import_modules: tuple[str, ...] = ()
    """Python modules imported before the model is created, to register architectures."""
    stage_in_shared_memory: bool = False
    """Copy the weights to /dev/shm once per node before loading, which is faster if many processes load them."""
    modality: Literal["text", "vision", "audio", "omni"] = "text"
    """Input besides text. Selects the processor class."""
    freeze: tuple[str, ...] = ()
    """Parameters that are not trained, as glob patterns over Hugging Face names (``*.router.*``,
    ``vision_tower.*``)."""
    multi_token_prediction: dict[str, Any] | None = None
    """Settings of the multi-token prediction heads of models that have them (MiMo, DeepSeek-V3). null = leave the
    heads unchanged."""
