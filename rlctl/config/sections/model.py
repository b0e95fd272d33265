"""The model that is trained: section ``model``, and LoRA."""

from __future__ import annotations

from typing import Any, Literal

from rlctl.config.fields import Count, Fraction, Positive, Tokens, section


@section
class Lora:
    """Low-rank adapters (Hu et al. 2021): only they are trained, the base stays as it is."""

    rank: Count = 16
    """Rank of the adapters. Raised, they can learn more and cost more memory."""
    alpha: Positive = 32.0
    """Scale of the adapters: their output is multiplied by alpha / rank."""
    dropout: Fraction = 0.0
    """Share of adapter inputs dropped in training."""
    target_modules: tuple[str, ...] = ("all-linear",)
    """Modules that get adapters, by name or suffix; ``all-linear`` is every linear layer but the head."""
    exclude_modules: tuple[str, ...] = ()
    """Modules that get none, although they match."""
    adapter_path: str | None = None
    """Adapter to start from; null starts from zero."""
    name: str | None = None
    """Name of the adapter in exported files and in the rollout engine."""
    base_model: str | None = None
    """Name of the base model as written into the adapter's config."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of the adapter weights."""
    merge_for_rollout: bool = False
    """Send merged weights to the rollout engine instead of the adapter: faster generation, slower sync."""


@section
class RopeScaling:
    """Rotary embedding changes, for contexts longer than the model was trained on."""

    theta: Positive | None = None
    """Base of the rotary frequencies; null keeps the model's own. Raised, positions are told apart farther away."""
    scaling: dict[str, Any] | None = None
    """The ``rope_scaling`` mapping of the model's config, as Transformers reads it."""


@section
class Model:
    """Weights, tokenizer and architecture of the policy."""

    path: str = ""
    """Folder or hub name of the weights to start from. Must be set."""
    tokenizer: str | None = None
    """Folder or hub name of the tokenizer; null takes the model's."""
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"] = "auto"
    """Attention implementation of the training engine; auto takes the fastest that is installed."""
    chat_template: str | None = None
    """Jinja text, or path of a file with it, used instead of the tokenizer's template."""
    chat_template_args: dict[str, Any] = {}
    """Variables for the chat template, such as ``enable_thinking: false``."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model. Only for sources you trust."""
    max_context_tokens: Tokens | None = None
    """Longest prompt plus response; null is the sum of their two limits. Raised, the engine reserves more memory."""
    overrides: dict[str, Any] = {}
    """Values put over the model's own ``config.json``."""
    rope: RopeScaling = RopeScaling()
    """Changes to the rotary embeddings; nothing set keeps the model's own."""
    lora: Lora | None = None
    """Train low-rank adapters instead of all weights; null trains all."""
    import_modules: tuple[str, ...] = ()
    """Python modules imported before the model is made, to register architectures."""
    stage_in_shared_memory: bool = False
    """Copy the weights to /dev/shm once per node before loading: faster when many processes load them."""
    modality: Literal["text", "vision", "audio", "omni"] = "text"
    """What the model reads beside text; decides the processor class."""
    freeze: tuple[str, ...] = ()
    """Parameters left untrained, as glob patterns over Hugging Face names (``*.router.*``, ``vision_tower.*``)."""
    multi_token_prediction: dict[str, Any] | None = None
    """Multi-token-prediction head settings of models that have one (MiMo, DeepSeek-V3); null leaves the head alone."""
