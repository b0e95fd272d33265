"""The families of models whose ``config.json`` is understood: what their blocks are made of.

One function a family. Each follows the family's modeling file in Transformers, and a test compares its count with the
model that Transformers builds from the same config on the meta device. A key that a file leaves out has the default of
the family's configuration class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlctl.planning.models.shape import AttentionKind, Layer, ModelShape

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Attention:
    """What attention adds to a ``Layer``."""

    kind: AttentionKind
    parameters: int
    norms: int
    query: int
    key: int
    value: int
    output: int
    cache: int
    window: int | None = None
    state: int = 0
    head_norms: bool = False


@dataclass(frozen=True, slots=True)
class _Mlp:
    """What an MLP adds to a ``Layer``: dense or shared parts, and routed experts."""

    width: int
    parameters: int
    experts: int = 0
    per_token: int = 0
    expert_width: int = 0
    expert: int = 0
    router: int = 0


def shape_of(config: Config) -> ModelShape | None:
    """The shape that the contents of a ``config.json`` describe; None if the family is unknown or a key is missing."""
    family = config.get("model_type")
    build = FAMILIES.get(family) if isinstance(family, str) else None
    if build is None:
        return None
    try:
        return build(config)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError):
        return None


# attention


def _grouped(
    config: Config,
    *,
    qkv_bias: bool = False,
    output_bias: bool = False,
    head_dim: int | None = None,
    head_norms: bool = False,
    output_gate: bool = False,
    sinks: bool = False,
    window: int | None = None,
) -> _Attention:
    """Multi-head attention with shared key-value heads."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    dim = config.get("head_dim") or head_dim or hidden // heads
    query, kv = heads * dim, kv_heads * dim
    projected = query * (2 if output_gate else 1)
    weights = hidden * projected + 2 * hidden * kv + query * hidden
    biases = (projected + 2 * kv) * qkv_bias + hidden * output_bias + heads * sinks
    norms = 2 * dim * head_norms
    kind: AttentionKind = "full" if window is None else "sliding"
    return _Attention(kind, weights + biases, norms, query, kv, kv, query, 2 * kv, window, head_norms=head_norms)


def _latent(config: Config) -> _Attention:
    """DeepSeek's multi-head latent attention (arXiv:2405.04434): the cache holds the compressed latent and one rotary key."""
    hidden, heads, bias = config["hidden_size"], config["num_attention_heads"], bool(config.get("attention_bias"))
    rank, rotary = config["kv_lora_rank"], config["qk_rope_head_dim"]
    plain, value = config["qk_nope_head_dim"], config["v_head_dim"]
    query_rank, query = config.get("q_lora_rank", 1536), heads * (plain + rotary)
    down = hidden * query_rank + query_rank * (1 + bias) + query_rank * query if query_rank else hidden * query
    compressed = hidden * (rank + rotary) + (rank + rotary) * bias + rank
    up = rank * heads * (plain + value)
    out = heads * value * hidden + hidden * bias
    norms = rank + (query_rank or 0)
    return _Attention(
        "latent", down + compressed + up + out - norms, norms, query, query, heads * value, heads * value, rank + rotary
    )


def _delta(config: Config) -> _Attention:
    """Gated delta rule (arXiv:2412.06464): a convolution and a matrix per value head are kept for each sequence."""
    hidden, kernel = config["hidden_size"], config.get("linear_conv_kernel_dim", 4)
    key_dim, value_dim = config.get("linear_key_head_dim", 128), config.get("linear_value_head_dim", 128)
    key_heads, value_heads = config.get("linear_num_key_heads", 16), config.get("linear_num_value_heads", 32)
    key, value = key_heads * key_dim, value_heads * value_dim
    mixed = 2 * key + value
    inward = hidden * (mixed + value + 2 * value_heads)
    parameters = inward + mixed * kernel + 2 * value_heads + value * hidden
    state = mixed * kernel + value_heads * key_dim * value_dim
    return _Attention("linear", parameters, value_dim, key, key, value, value, 0, state=state)


# MLP


def _gated(hidden: int, width: int, *, bias: bool = False) -> int:
    """Gate, up and down projection."""
    return 3 * hidden * width + (2 * width + hidden) * bias


def _dense(config: Config, *, bias: bool = False) -> _Mlp:
    width = config["intermediate_size"]
    return _Mlp(width, _gated(config["hidden_size"], width, bias=bias))


def _routed(
    config: Config, *, experts: int, width: int, shared: int = 0, shared_gate: bool = False, bias: bool = False
) -> _Mlp:
    hidden = config["hidden_size"]
    return _Mlp(
        width=shared,
        parameters=(_gated(hidden, shared) if shared else 0) + hidden * shared_gate,
        experts=experts,
        per_token=config["num_experts_per_tok"],
        expert_width=width,
        expert=_gated(hidden, width, bias=bias),
        router=(hidden + bias) * experts,
    )


def _experts(config: Config) -> int:
    """Routed experts of an MoE layer, under either of the names that Transformers saves."""
    return int(config.get("num_experts") or config.get("num_local_experts") or 0)


def _present(config: Config, *keys: str) -> dict[str, Any]:
    """Those of the keys that the config has: a vision-language model's own come before those of its text part."""
    return {key: config[key] for key in keys if key in config}


# whole models


def _layer(config: Config, attention: _Attention, mlp: _Mlp, *, wide_norms: int = 2) -> Layer:
    return Layer(
        count=1,
        attention=attention.kind,
        attention_parameters=attention.parameters,
        norm_parameters=wide_norms * config["hidden_size"] + attention.norms,
        query_width=attention.query,
        key_width=attention.key,
        value_width=attention.value,
        output_width=attention.output,
        cache=attention.cache,
        window=attention.window,
        state=attention.state,
        mlp_width=mlp.width,
        mlp_parameters=mlp.parameters,
        experts=mlp.experts,
        experts_per_token=mlp.per_token,
        expert_width=mlp.expert_width,
        expert_parameters=mlp.expert,
        router_parameters=mlp.router,
        wide_norms=wide_norms,
        head_norms=attention.head_norms,
    )


def _model(config: Config, layers: list[Layer], *, tied: bool = False, head_dim: int | None = None) -> ModelShape:
    """A model of these layers, in order; alike ones become one kind."""
    kinds = tuple(replace(kind, count=count) for kind, count in Counter(layers).items())
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    return ModelShape(
        family=config["model_type"],
        hidden=hidden,
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or head_dim or hidden // heads,
        vocabulary=config["vocab_size"],
        tied=bool(config.get("tie_word_embeddings", tied)),
        kinds=kinds,
        intermediate=max(kind.mlp_width for kind in kinds if not kind.experts) if _has_dense(kinds) else 0,
        max_positions=config.get("max_position_embeddings"),
        final_norm_parameters=hidden,
        mtp_layers=config.get("num_nextn_predict_layers") or config.get("mtp_num_hidden_layers") or 0,
        softcapped=config.get("final_logit_softcapping") is not None,
    )


def _has_dense(kinds: tuple[Layer, ...]) -> bool:
    return any(not kind.experts for kind in kinds)


def _uniform(config: Config, attention: _Attention, mlp: _Mlp, *, wide_norms: int = 2, **model: Any) -> ModelShape:
    return _model(
        config, [_layer(config, attention, mlp, wide_norms=wide_norms)] * config["num_hidden_layers"], **model
    )


def _llama(config: Config) -> ModelShape:
    bias = bool(config.get("attention_bias"))
    attention = _grouped(config, qkv_bias=bias, output_bias=bias)
    return _uniform(config, attention, _dense(config, bias=bool(config.get("mlp_bias"))))


def _mistral(config: Config) -> ModelShape:
    return _uniform(config, _grouped(config, window=config.get("sliding_window")), _dense(config))


def _mixtral(config: Config) -> ModelShape:
    mlp = _routed(config, experts=config["num_local_experts"], width=config["intermediate_size"])
    return _uniform(config, _grouped(config, window=config.get("sliding_window")), mlp)


def _qwen2(config: Config) -> ModelShape:
    return _uniform(config, _grouped(config, qkv_bias=True), _dense(config))


def _qwen3(config: Config) -> ModelShape:
    bias = bool(config.get("attention_bias"))
    attention = _grouped(config, qkv_bias=bias, output_bias=bias, head_dim=128, head_norms=True)
    return _uniform(config, attention, _dense(config), head_dim=128)


def _sparse_layers(config: Config) -> list[bool]:
    """Whether each layer has experts, by Qwen's rule: every ``decoder_sparse_step``-th that is not in ``mlp_only_layers``."""
    dense, step = config.get("mlp_only_layers") or [], config.get("decoder_sparse_step", 1)
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(config["num_hidden_layers"])]


def _qwen_moe(config: Config) -> _Mlp:
    shared = config.get("shared_expert_intermediate_size") or 0
    return _routed(
        config,
        experts=_experts(config),
        width=config["moe_intermediate_size"],
        shared=shared,
        shared_gate=bool(shared),
    )


def _qwen2_moe(config: Config) -> ModelShape:
    attention = _grouped(config, qkv_bias=bool(config.get("qkv_bias", True)))
    sparse, dense = _layer(config, attention, _qwen_moe(config)), _layer(config, attention, _dense(config))
    return _model(config, [sparse if chosen else dense for chosen in _sparse_layers(config)])


def _qwen3_moe(config: Config) -> ModelShape:
    bias = bool(config.get("attention_bias"))
    attention = _grouped(config, qkv_bias=bias, output_bias=bias, head_norms=True)
    mlp = _routed(
        config,
        experts=_experts(config),
        width=config["moe_intermediate_size"],
    )
    sparse, dense = _layer(config, attention, mlp), _layer(config, attention, _dense(config))
    return _model(config, [sparse if chosen else dense for chosen in _sparse_layers(config)])


def _linear_layers(config: Config) -> list[bool]:
    """Whether each layer has linear attention."""
    kinds = config.get("layer_types")
    if kinds:
        return [kind == "linear_attention" for kind in kinds]
    interval = config.get("full_attention_interval", 4)
    return [(layer + 1) % interval != 0 for layer in range(config["num_hidden_layers"])]


def _hybrid(config: Config) -> ModelShape:
    """Qwen3-Next and Qwen3.5: gated delta rule, and gated attention in every fourth layer."""
    bias = bool(config.get("attention_bias"))
    full = _grouped(config, qkv_bias=bias, output_bias=bias, head_dim=256, head_norms=True, output_gate=True)
    linear = _delta(config)
    moe = bool(_experts(config))
    sparse = _sparse_layers(config) if moe else [False] * config["num_hidden_layers"]
    layers = [
        _layer(config, linear if no_cache else full, _qwen_moe(config) if routed else _dense(config))
        for no_cache, routed in zip(_linear_layers(config), sparse, strict=True)
    ]
    return _model(config, layers, head_dim=256)


def _text(build: Callable[[Config], ModelShape]) -> Callable[[Config], ModelShape]:
    """Of a model with a vision tower, the part that ``AutoModelForCausalLM`` loads: the decoder."""

    def decoder(config: Config) -> ModelShape:
        text = {"tie_word_embeddings": config.get("tie_word_embeddings", False), **config["text_config"]}
        return replace(build({**text, "model_type": config["model_type"]}), family=config["model_type"])

    return decoder


def _windows(config: Config, pattern: int) -> list[int | None]:
    """The sliding window of each layer; every ``pattern``-th sees all tokens, unless ``layer_types`` says otherwise."""
    kinds = config.get("layer_types")
    sliding = (
        [kind == "sliding_attention" for kind in kinds]
        if kinds
        else [(layer + 1) % pattern != 0 for layer in range(config["num_hidden_layers"])]
    )
    return [config.get("sliding_window") if chosen else None for chosen in sliding]


def _gemma2(config: Config) -> ModelShape:
    bias = bool(config.get("attention_bias"))
    layers = [
        _layer(
            config,
            _grouped(config, qkv_bias=bias, output_bias=bias, head_dim=256, window=window),
            _dense(config),
            wide_norms=4,
        )
        for window in _windows(config, 2)
    ]
    return _model({"final_logit_softcapping": 30.0, **config}, layers, tied=True, head_dim=256)


def _gemma3_text(config: Config) -> ModelShape:
    bias = bool(config.get("attention_bias"))
    layers = [
        _layer(
            config,
            _grouped(config, qkv_bias=bias, output_bias=bias, head_dim=256, head_norms=True, window=window),
            _dense(config),
            wide_norms=4,
        )
        for window in _windows(config, config.get("sliding_window_pattern", 6))
    ]
    return _model(config, layers, tied=True, head_dim=256)


GEMMA3_TEXT = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
    "max_position_embeddings": 131072,
}
"""Defaults of Transformers' Gemma3TextConfig, which the files of the 4B, 12B and 27B models leave out."""


def _gemma3(config: Config) -> ModelShape:
    """Gemma 3 with its SigLIP tower, which Transformers loads with the decoder."""
    text = {**GEMMA3_TEXT, **config["text_config"], **_present(config, "tie_word_embeddings"), "model_type": "gemma3"}
    vision = {"num_channels": 3, **config["vision_config"]}
    width, patch = vision["hidden_size"], vision["patch_size"]
    norm = 2 * width
    block = 4 * (width * width + width) + 2 * norm + 2 * width * vision["intermediate_size"]
    block += vision["intermediate_size"] + width
    embeddings = (vision["num_channels"] * patch * patch + 1) * width + (vision["image_size"] // patch) ** 2 * width
    tower = embeddings + vision["num_hidden_layers"] * block + norm
    pooling = 4 * (width * width + width) + norm + 2 * width * vision["intermediate_size"]
    pooling += vision["intermediate_size"] + 2 * width
    projector = width * text["hidden_size"] + width
    tower += pooling if vision.get("vision_use_head", True) else 0
    return replace(_gemma3_text(text), vision_parameters=tower + projector)


def _qwen2_5_vl(config: Config) -> ModelShape:
    """Qwen2.5-VL with its vision tower."""
    text = {**config, **config.get("text_config", {}), **_present(config, "tie_word_embeddings")}
    vision = {
        "depth": 32,
        "hidden_size": 3584,
        "intermediate_size": 3420,
        "in_channels": 3,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "out_hidden_size": 3584,
        **config["vision_config"],
    }
    width, merged = vision["hidden_size"], vision["hidden_size"] * vision["spatial_merge_size"] ** 2
    patches = vision.get("in_chans", vision["in_channels"]) * vision["temporal_patch_size"] * vision["patch_size"] ** 2
    block = 3 * width * width + 3 * width + width * width + width + 2 * width
    block += _gated(width, vision["intermediate_size"], bias=True)
    merger = width + merged * merged + merged + merged * vision["out_hidden_size"] + vision["out_hidden_size"]
    return replace(
        _qwen2({**text, "model_type": "qwen2_5_vl"}),
        vision_parameters=patches * width + vision["depth"] * block + merger,
    )


def _qwen3_vl(config: Config) -> ModelShape:
    """Qwen3-VL, dense or MoE, with its vision tower."""
    text = {**config["text_config"], **_present(config, "tie_word_embeddings")}
    build = _qwen3_moe if _experts(text) else _qwen3
    decoder = build({**text, "model_type": config["model_type"]})
    vision = config["vision_config"]
    width, merged = vision["hidden_size"], vision["hidden_size"] * vision["spatial_merge_size"] ** 2
    patches = vision.get("in_channels", 3) * vision["temporal_patch_size"] * vision["patch_size"] ** 2
    out = vision["out_hidden_size"]
    block = 4 * width * width + 4 * width + 4 * width
    block += 2 * width * vision["intermediate_size"] + vision["intermediate_size"] + width
    connect = merged * merged + merged + merged * out + out
    deep = len(vision.get("deepstack_visual_indexes", (8, 16, 24)))
    tower = patches * width + width + vision["num_position_embeddings"] * width + vision["depth"] * block
    return replace(decoder, vision_parameters=tower + connect + 2 * width + deep * (connect + 2 * merged))


def _phi3(config: Config) -> ModelShape:
    return _uniform(config, _grouped(config, window=config.get("sliding_window")), _dense(config))


def _glm4(config: Config) -> ModelShape:
    attention = _grouped(config, qkv_bias=bool(config.get("attention_bias", True)), head_dim=128)
    return _uniform(config, attention, _dense(config), wide_norms=4, head_dim=128)


def _glm4v(config: Config) -> ModelShape:
    """GLM-4.1V with its vision tower."""
    text = {**config["text_config"], **_present(config, "tie_word_embeddings"), "model_type": "glm4v"}
    vision = config["vision_config"]
    width, out, merge = vision["hidden_size"], vision["out_hidden_size"], vision["spatial_merge_size"]
    patches = vision.get("in_channels", 3) * vision["temporal_patch_size"] * vision["patch_size"] ** 2
    places = (vision["image_size"] // vision["patch_size"]) ** 2
    block = 4 * width * width + 2 * width + _gated(width, out)
    if vision.get("attention_bias"):
        block += 4 * width
    tower = (patches + 1) * width + places * width + vision["depth"] * block + 2 * width
    merger = width * out * merge**2 + out + out * out + 2 * out + _gated(out, vision["intermediate_size"])
    return replace(_glm4(text), vision_parameters=tower + merger)


def _seed_oss(config: Config) -> ModelShape:
    attention = _grouped(
        config, qkv_bias=bool(config.get("attention_bias", True)), output_bias=bool(config.get("attention_out_bias"))
    )
    return _uniform(config, attention, _dense(config, bias=bool(config.get("mlp_bias"))))


def _dense_then_sparse(config: Config, attention: _Attention, *, first: int, kinds: list[str] | None) -> ModelShape:
    """DeepSeek's order: some dense layers, then experts with shared ones in every layer."""
    width = config["moe_intermediate_size"]
    shared = (config.get("n_shared_experts") or 0) * width
    mlp = _routed(config, experts=config["n_routed_experts"], width=width, shared=shared)
    sparse, dense = _layer(config, attention, mlp), _layer(config, attention, _dense(config))
    chosen = [kind == "sparse" for kind in kinds] if kinds else None
    chosen = chosen or [layer >= first for layer in range(config["num_hidden_layers"])]
    return _model(config, [sparse if each else dense for each in chosen])


def _glm4_moe(config: Config) -> ModelShape:
    attention = _grouped(
        config,
        qkv_bias=bool(config.get("attention_bias")),
        head_norms=bool(config.get("use_qk_norm")),
    )
    return _dense_then_sparse(config, attention, first=config.get("first_k_dense_replace", 1), kinds=None)


def _deepseek_v3(config: Config) -> ModelShape:
    first = config.get("first_k_dense_replace", 3)
    model = _dense_then_sparse(config, _latent(config), first=first, kinds=None)
    return replace(model, head_dim=config["qk_nope_head_dim"] + config["qk_rope_head_dim"])


def _glm4_moe_lite(config: Config) -> ModelShape:
    model = _dense_then_sparse(
        config,
        _latent(config),
        first=config.get("first_k_dense_replace", 1),
        kinds=config.get("mlp_layer_types"),
    )
    return replace(model, head_dim=config["qk_nope_head_dim"] + config["qk_rope_head_dim"])


def _glm_moe_dsa(config: Config) -> ModelShape:
    """GLM-5: DeepSeek-V3's layers, with an indexer in each that selects the tokens to attend to, and caches a key for it."""
    if "shared" in (config.get("indexer_types") or ()) or config.get("index_topk_freq", 1) != 1:
        raise ValueError("layers that share an indexer")
    hidden, heads, dim = config["hidden_size"], config["index_n_heads"], config["index_head_dim"]
    indexer = config["q_lora_rank"] * heads * dim + hidden * (dim + heads)
    attention = _latent(config)
    attention = replace(
        attention,
        parameters=attention.parameters + indexer,
        norms=attention.norms + 2 * dim,
        cache=attention.cache + dim,
    )
    first = config.get("first_k_dense_replace", 3)
    model = _dense_then_sparse(config, attention, first=first, kinds=config.get("mlp_layer_types"))
    return replace(model, head_dim=config["qk_nope_head_dim"] + config["qk_rope_head_dim"])


def _hy_v3(config: Config) -> ModelShape:
    named = {"n_routed_experts": config["num_experts"], "n_shared_experts": config.get("num_shared_experts", 1)}
    attention = _grouped(config, qkv_bias=bool(config.get("attention_bias")), head_norms=True)
    return _dense_then_sparse({**config, **named}, attention, first=1, kinds=config.get("mlp_layer_types"))


def _minimax_m2(config: Config) -> ModelShape:
    """MiniMax-M2, whose norms of queries and keys are as wide as all heads together."""
    attention = _grouped(config, head_norms=True)
    attention = replace(attention, norms=attention.query + attention.key)
    return _uniform(
        config, attention, _routed(config, experts=config["num_local_experts"], width=config["intermediate_size"])
    )


def _gpt_oss(config: Config) -> ModelShape:
    bias = bool(config.get("attention_bias", True))
    mlp = _routed(config, experts=config["num_local_experts"], width=config["intermediate_size"], bias=True)
    layers = [
        _layer(
            config,
            _grouped(config, qkv_bias=bias, output_bias=bias, head_dim=64, sinks=True, window=window),
            mlp,
        )
        for window in _windows(config, 2)
    ]
    return _model(config, layers, head_dim=64)


FAMILIES: dict[str, Callable[[Config], ModelShape]] = {
    "deepseek_v3": _deepseek_v3,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gemma3_text": _gemma3_text,
    "glm4": _glm4,
    "glm4_moe": _glm4_moe,
    "glm4_moe_lite": _glm4_moe_lite,
    "glm4v": _glm4v,
    "glm_moe_dsa": _glm_moe_dsa,
    "gpt_oss": _gpt_oss,
    "hy_v3": _hy_v3,
    "kimi_k2": _deepseek_v3,
    "llama": _llama,
    "mimo": _qwen2,
    "minimax_m2": _minimax_m2,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_5": _text(_hybrid),
    "qwen3_5_moe": _text(_hybrid),
    "qwen3_5_moe_text": _hybrid,
    "qwen3_5_text": _hybrid,
    "qwen3_moe": _qwen3_moe,
    "qwen3_next": _hybrid,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
    "seed_oss": _seed_oss,
}
"""By the ``model_type`` of a ``config.json``. Kimi K2 has DeepSeek-V3's architecture under another name, MiMo Qwen2's."""
