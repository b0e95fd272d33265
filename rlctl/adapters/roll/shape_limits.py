"""What ROLL refuses of a model's config.json and of the files and layouts by which Megatron trains it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlctl.adapters.engine.model_limits import shape_at
from rlctl.adapters.engine.requirements import Requirement, Values
from rlctl.adapters.roll.requirement_values import setting, strategy
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level
from rlctl.planning.models import model_config

MODELS = {
    **dict.fromkeys(("actor_train", "reference", "student_train", "sft_train"), "pretrain"),
    "student": "student_pretrain",
    "teacher": "teacher_pretrain",
}
"""The key that names the model of a role."""
ADAPTER = "mcore_adapter/src/mcore_adapter"
WITHOUT_DROPOUT = ("qwen2_vl", "qwen2_5_vl", "qwen3_5", "qwen3_5_moe")
"""Kinds of models whose Megatron class takes no dropout of hidden states."""
ENGINE_ONLY = ("qwen3_5", "qwen3_5_moe", "qwen3_next")
"""Kinds of models whose layers only Transformer Engine has."""
DEEPSTACK = {
    "qwen3_vl": ("vision_config",),
    "qwen3_vl_moe": ("vision_config",),
    "qwen3_omni_moe": ("thinker_config", "vision_config"),
}
"""Kinds of models whose first layers take features of the vision tower, and where its config stands."""
FEATURES = 3
"""Layers that take features, if the config does not name them."""
SECTIONED = ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
DENSE_FIRST = ("deepseek_v3", "glm4_moe")


def _config(values: Values, role: str) -> Mapping[str, Any]:
    """The ``config.json`` of a role's model; empty if it is not on this machine."""
    path = values[MODELS[role]]
    return (model_config(path) if isinstance(path, str) and path else None) or {}


def _kind(values: Values, role: str) -> str:
    return str(_config(values, role).get("model_type") or "")


def _by_megatron(values: Values, role: str) -> bool:
    return strategy(values, role).startswith("megatron")


def _inside(config: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    found: Any = config
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _positions(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """How positions are scaled, of a text model or of the decoder of one with a vision tower."""
    text = _inside(config, "text_config") or config
    return {**_inside(text, "rope_scaling"), **_inside(text, "rope_parameters")}


def _layout_stages(layout: str) -> int:
    """Stages of a written pipeline layout, as ``E,t*3|(t|)*4,L``: repeats are unrolled, ``|`` is between stages."""
    text = layout.replace(",", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        text = re.sub(pattern, lambda found: found[1] * int(found[2]), text)
    return text.count("|") + 1


def _uneven_layout(values: Values, role: str) -> bool:
    config = f"{role}.strategy_args.strategy_config"
    layout = values[f"{config}.pipeline_model_parallel_layout"]
    if not isinstance(layout, str) or values[f"{config}.virtual_pipeline_model_parallel_size"] is not None:
        return False
    return bool(_layout_stages(layout) % setting(values, role, "pipeline_model_parallel_size"))


def _unread_file(values: Values, key: str) -> bool:
    """Whether a key names a file that does not exist on this machine, or is not JSON."""
    name = values[key]
    if not isinstance(name, str) or not name:
        return False
    try:
        json.loads(Path(expanded(name)).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True
    return False


def _dropout(values: Values, role: str) -> float:
    more = values[f"{role}.strategy_args.strategy_config.additional_configs"]
    return float(more.get("hidden_dropout") or 0) if isinstance(more, Mapping) else 0.0


def _features(values: Values, role: str) -> int:
    """Layers that take features of the vision tower; 0 for a model without."""
    kind = _kind(values, role)
    if kind not in DEEPSTACK:
        return 0
    indexes = _inside(_config(values, role), *DEEPSTACK[kind]).get("deepstack_visual_indexes")
    return len(indexes) if isinstance(indexes, list) else FEATURES


def _stage_layers(values: Values, role: str) -> int:
    """Layers of the first stage of a model that is split evenly; 0 if the split is written by hand."""
    config = f"{role}.strategy_args.strategy_config"
    by_hand = ("pipeline_model_parallel_layout", "account_for_embedding_in_pipeline_split")
    text = _inside(_config(values, role), "text_config") or _inside(
        _config(values, role), "thinker_config", "text_config"
    )
    layers = int(text.get("num_hidden_layers") or 0)
    stages = setting(values, role, "pipeline_model_parallel_size") * setting(
        values, role, "virtual_pipeline_model_parallel_size"
    )
    return 0 if any(values[f"{config}.{name}"] for name in by_hand) else layers // stages


def _of_role(role: str) -> Iterator[Requirement]:
    config = f"{role}.strategy_args.strategy_config"
    layout, more, engine = (
        f"{config}.{name}" for name in ("pipeline_model_parallel_layout", "additional_configs", "transformer_impl")
    )
    arguments = f"{ADAPTER}/training_args.py, DistributingParallelArguments.__post_init__"

    def row(
        key: str,
        refused: Callable[[Values], object],
        message: str,
        source: str,
        hint: str,
        numbers: Mapping[str, Callable[[Values], object]] | None = None,
        level: Level = Level.ERROR,
    ) -> Requirement:
        return Requirement(
            key,
            lambda v: _by_megatron(v, role) and refused(v),
            message,
            source,
            hint,
            numbers={"kind": lambda v: _kind(v, role), **(numbers or {})},
            level=level,
        )

    yield row(
        layout,
        lambda v: _uneven_layout(v, role),
        said("{layout} has {{stages}} stages, which pipeline_model_parallel_size does not divide", layout=layout),
        arguments,
        said("change {layout}, or {config}.pipeline_model_parallel_size", layout=layout, config=config),
        {"stages": lambda v: _layout_stages(v[layout])},
    )
    yield row(
        more,
        lambda v: _unread_file(v, more),
        said("{more} names {{{more}}}, which is not a JSON file on this machine", more=more),
        arguments,
        said("correct the path, or write the settings in {more}", more=more),
        level=Level.WARNING,
    )
    yield row(
        more,
        lambda v: _kind(v, role) in WITHOUT_DROPOUT and _dropout(v, role),
        said("{more}.hidden_dropout is above 0, which ROLL does not support for models of type {{kind}}", more=more),
        f"{ADAPTER}/models/qwen2_5_vl/config_qwen2_5_vl.py, Qwen2_5_VLConfig.__post_init__",
        said("remove {more}.hidden_dropout", more=more),
    )
    yield row(
        engine,
        lambda v: _kind(v, role) in ENGINE_ONLY and v[engine] not in (None, "transformer_engine"),
        said("{engine} is {{{engine}}}, but models of type {{kind}} need transformer_engine", engine=engine),
        f"{ADAPTER}/models/qwen3_next/modeling_qwen3_next.py, Qwen3NextModel._get_transformer_layer_spec",
        said("remove {engine}", engine=engine),
    )
    yield row(
        f"{config}.pipeline_model_parallel_size",
        lambda v: 0 < _stage_layers(v, role) < _features(v, role),
        said(
            "the first stage of {role} has {{own}} layers, but the vision tower gives features to the first {{taken}}",
            role=role,
        ),
        f"{ADAPTER}/models/qwen3_vl/modeling_qwen3_vl.py, Qwen3VLModel.__init__",
        said("lower pipeline_model_parallel_size or virtual_pipeline_model_parallel_size in {config}", config=config),
        {"own": lambda v: _stage_layers(v, role), "taken": lambda v: _features(v, role)},
    )
    yield from _of_model(MODELS[role], role, row)


def _of_model(key: str, role: str, row: Callable[..., Requirement]) -> Iterator[Requirement]:
    """What Megatron's classes test of the model itself."""

    def uneven(values: Values) -> bool:
        shape = shape_at(values, key)
        return shape is not None and shape.kv_heads > 0 and shape.heads % shape.kv_heads != 0

    template = f"{ADAPTER}/models/deepseek_v3/__init__.py, DeepSeekV3Template.convert_hf_to_mca_config_kws"
    yield row(
        key,
        uneven,
        said("the attention heads of {{{key}}} are not divisible by its key-value heads", key=key),
        f"{ADAPTER}/models/converter/template.py, QKVConverOp._hf_to_mca",
        said("correct the config.json of {key}", key=key),
    )
    yield row(
        key,
        lambda v: _kind(v, role) in DENSE_FIRST and _dense(v, role) >= _layers(v, role),
        said("first_k_dense_replace of {{{key}}} is {{dense}}; expected less than its {{layers}} layers", key=key),
        template,
        said("correct the config.json of {key}", key=key),
        {"dense": lambda v: _dense(v, role), "layers": lambda v: _layers(v, role)},
    )
    yield row(
        key,
        lambda v: _kind(v, role) == "deepseek_v3" and _scaling(v, role) not in ("", "yarn"),
        said("positions of {{{key}}} are scaled by {{scaling}}; ROLL takes yarn for models of type {{kind}}", key=key),
        template,
        said("choose another model, or correct rope_scaling in the config.json of {key}", key=key),
        {"scaling": lambda v: _scaling(v, role)},
    )
    yield row(
        key,
        lambda v: _kind(v, role) in SECTIONED and "mrope_section" not in _positions(_config(v, role)),
        said("the config.json of {{{key}}} has no mrope_section, which models of type {{kind}} need", key=key),
        f"{ADAPTER}/models/qwen3_vl/modeling_qwen3_vl.py, Qwen3VLGPTModel.__init__",
        said("correct rope_scaling or rope_parameters in the config.json of {key}", key=key),
    )


def _dense(values: Values, role: str) -> int:
    return int(_config(values, role).get("first_k_dense_replace") or 0)


def _layers(values: Values, role: str) -> int:
    """Layers of a text model; more than any, if the config does not say."""
    return int(_config(values, role).get("num_hidden_layers") or 1 << 20)


def _scaling(values: Values, role: str) -> str:
    """What ``rope_scaling.type`` names; empty if it names nothing."""
    config = _config(values, role)
    return str((_inside(config, "rope_scaling") or _inside(config, "rope_parameters")).get("type") or "")


TILED = ("llama", "qwen2", "qwen2_5", "qwen3", "qwen3_moe")


def _tiled(role: str) -> Requirement:
    config = f"{role}.strategy_args.strategy_config"
    key = f"{config}.model_type"
    return Requirement(
        key,
        lambda v: (
            strategy(v, role).startswith("fsdp2") and v[f"{config}.apply_tiled_mlp"] and v[key] not in (None, *TILED)
        ),
        said(
            "{config}.apply_tiled_mlp is on, but {key} is {{{key}}}; expected one of {names}",
            config=config,
            key=key,
            names=", ".join(TILED),
        ),
        "roll/third_party/fsdp2/tiled_mlp.py, apply_tiled_mlp_monkey_patch",
        said("remove {key}, or set {config}.apply_tiled_mlp to false", config=config, key=key),
    )


ROWS: tuple[Requirement, ...] = (
    *(row for role in MODELS for row in _of_role(role)),
    *map(_tiled, ("actor_train", "reference", "student_train", "sft_train")),
)
