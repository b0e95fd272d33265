"""Whether a run with LoRA sends rollout its adapters, or merges them into the weights and sends all of these.

vLLM keeps the base model that it has read from ``model.path`` and adds adapters to its layers: a sync then is a few megabytes.
Everything else gets merged weights, and so does vLLM if it would compute something else with the adapters.
"""

from __future__ import annotations

from dataclasses import replace

from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.train import Megatron
from rlctl.planning.models import read_shape

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Those that vLLM has room for (``max_lora_rank``); an adapter of another rank takes the room of the next."""
MODULES = frozenset(("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"))
"""Layers to which vLLM adds adapters in all models of ``FAMILIES``."""
FAMILIES = frozenset(("gemma2", "gemma3_text", "llama", "mistral", "qwen2", "qwen3"))
"""Kinds of models (``model_type``) for which responses under adapters were compared with those under merged weights."""


def sends_adapters(config: Config, engine: str) -> bool:
    """Whether rollout gets adapters if this engine generates."""
    return config.model.lora is not None and not why_merged(config, engine)


def resolved_to_adapters(config: Config) -> bool:
    """The same of a config that ``resolved`` returned: the engine was considered there."""
    lora = config.model.lora
    return lora is not None and not lora.merge_for_rollout and config.run.mode == "full"


def resolved(config: Config, engine: str) -> Config:
    """The config with ``merge_for_rollout`` set if adapters are merged for any reason."""
    lora = config.model.lora
    if lora is None or lora.merge_for_rollout or not why_merged(config, engine):
        return config
    return replace(config, model=replace(config.model, lora=replace(lora, merge_for_rollout=True)))


def why_merged(config: Config, engine: str) -> str:
    """Why adapters are merged for rollout; empty if they are sent, or there are none.

    Args:
        config: the canonical config of one stage.
        engine: the engine that generates.
    """
    lora, memory = config.model.lora, config.rollout.memory
    if lora is None:
        return ""
    if lora.merge_for_rollout:
        return "model.lora.merge_for_rollout is true"
    if engine != "vllm":
        return said("rlctl sends adapters only to vLLM, but rollout.engine is {engine}", engine=engine)
    if config.run.mode != "full":
        return "only a run that both trains and generates sends adapters"
    if lora.rank > RANKS[-1]:
        return said("model.lora.rank is {rank}; vLLM supports at most {most}", rank=lora.rank, most=RANKS[-1])
    if lora.adapter_path is not None:
        return "the adapter of model.lora.adapter_path has its own rank and layers"
    if isinstance(config.train.engine, Megatron) and config.train.engine.checkpoint_path is not None:
        return "the base weights of train.engine.checkpoint_path differ from those of model.path, which vLLM reads"
    if memory.sleep_level == 2:
        return "rollout.memory.sleep_level 2 drops the base weights, which no sync would bring back"
    if memory.quantization is not None:
        return "rollout.memory.quantization changes the base weights"
    return _of_model(config, lora.target_modules)


def _of_model(config: Config, targets: tuple[str, ...]) -> str:
    shape = read_shape(config.model.path)
    if shape is None:
        return said("rlctl doesn't know what kind of model {path} is", path=config.model.path)
    if shape.family not in FAMILIES:
        return said(
            "model.path is a {family} model; rlctl sends adapters of {families}",
            family=shape.family,
            families=", ".join(sorted(FAMILIES)),
        )
    if targets != ("all-linear",) and (other := sorted({_last(name) for name in targets} - MODULES)):
        return said(
            "model.lora.target_modules names {other}; rlctl sends adapters of {modules}",
            other=", ".join(other),
            modules=", ".join(sorted(MODULES)),
        )
    return ""


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def targets_of(config: Config) -> list[str]:
    """The layers that get adapters, by the last part of their names."""
    assert config.model.lora is not None, "adapters are sent"
    named = {_last(name) for name in config.model.lora.target_modules}
    return sorted(MODULES if named == {"all-linear"} else named)


def room_of(rank: int) -> int:
    """The smallest of ``RANKS`` that an adapter fits."""
    return next(room for room in RANKS if room >= rank)
