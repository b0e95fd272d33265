"""What the roles of a run ask of the Megatron engine, and what it does not do: one row each, told before anything starts.

A row refuses a run, unless no number hangs on it (``noted``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from rlctl.common.messages.reasons import said, with_values
from rlctl.config import Config
from rlctl.config.sections.model import Model
from rlctl.config.sections.train import Critic, Megatron, Train
from rlctl.planning import arithmetic
from rlctl.planning.megatron.options import misfits


@dataclass(frozen=True, slots=True)
class Asked:
    """What a role asks of the engine."""

    config: Config
    role: Literal["policy", "critic", "reference"]
    engine: Megatron
    train: Train
    """Section ``train`` as the role has it."""
    model: Model
    section: str
    """Where its engine is in the config: ``train``, ``critic`` or ``reference``."""
    model_section: str
    """Where its model is."""

    @property
    def trains(self) -> bool:
        """Whether there is an optimizer."""
        return self.role != "reference"


def asked_of(config: Config) -> Iterator[Asked]:
    """The roles that Megatron computes, each with what it asks."""
    train, reference, critic = config.train, config.reference, config.critic or Critic()
    if arithmetic.trains(config) and isinstance(train.engine, Megatron):
        yield Asked(config, "policy", train.engine, train, config.model, "train", "model")
    if arithmetic.needs_critic(config) and isinstance(critic.engine, Megatron):
        own = "model" if critic.model is None else "critic.model"
        yield Asked(config, "critic", critic.engine, critic, critic.model or config.model, "critic", own)
    if not arithmetic.needs_reference(config) or arithmetic.reference_is_base(config):
        return
    section, engine = arithmetic.engine_of(config, "reference")
    if isinstance(engine, Megatron):
        alike = replace(train, engine=engine, precision=reference.precision or train.precision)
        own = "model" if reference.model is None else "reference.model"
        yield Asked(config, "reference", engine, alike, reference.model or config.model, section, own)


@dataclass(frozen=True, slots=True)
class Limit:
    """A key that asks for more than there is."""

    key: str
    """Dotted, of the config."""
    message: str
    hint: str
    noted: bool = False
    """Whether no number hangs on it, and a run starts all the same."""


@dataclass(frozen=True, slots=True)
class Row:
    """One limit."""

    key: str
    """``@`` stands for the section of the role's engine, ``@model`` for its model's, ``@train`` for that of its training; reasons
    and hints name them as ``{section}``, ``{model}`` and ``{train}``."""
    asks: Callable[[Asked], Any]
    """What is asked for; false where nothing is."""
    reason: str
    hint: str
    noted: bool = False


def _masters(asked: Asked) -> str:
    kept = asked.train.precision.parameters
    return kept if asked.trains and kept != "float32" else ""


def _reduce(asked: Asked) -> str:
    reduce, compute = asked.train.precision.reduce, asked.train.precision.compute
    return reduce if asked.trains and reduce not in ("float32", compute) else ""


def _compares(name: str) -> Callable[[Asked], bool]:
    return lambda asked: asked.role == "policy" and name in arithmetic.whole_divergences(asked.config)


def _teaches(asked: Asked) -> bool:
    taught = asked.config.algorithm.distillation is not None
    return asked.role == "policy" and taught and not arithmetic.teacher_is_drawn(asked.config)


def _falls_at_once(asked: Asked) -> str:
    schedule = asked.train.lr_scheduler
    warms = schedule.warmup_steps or schedule.warmup_ratio
    return schedule.type if asked.trains and schedule.type == "inverse_sqrt" and not warms else ""


def _adapter_dtype(asked: Asked) -> str:
    chosen = asked.model.lora.dtype if asked.trains and asked.model.lora is not None else "auto"
    return chosen if chosen not in ("auto", asked.train.precision.compute) else ""


PARTS = "each worker has only part of the vocabulary, and this loss compares whole distributions"

ROWS: tuple[Row, ...] = (
    *(
        Row(f"algorithm.{name}.estimator", _compares(name), PARTS, "set it to k3, or set train.engine to fsdp2")
        for name in ("kl_in_loss", "kl_in_reward")
    ),
    Row(
        "algorithm.distillation",
        _teaches,
        PARTS,
        "set its args to {{policy_gradient: true}}, or set train.engine to fsdp2",
    ),
    Row(
        "@model.lora.dtype",
        _adapter_dtype,
        "adapters are computed with the dtype of the model, and their optimizer keeps them in float32",
        "remove it",
        noted=True,
    ),
    Row(
        "@model.modality",
        lambda asked: asked.model.modality if asked.model.modality != "text" else "",
        "Megatron's models read only text",
        "set train.engine to fsdp2",
    ),
    Row(
        "@model.attention",
        lambda asked: asked.model.attention if asked.model.attention != "auto" else "",
        "the engine packs sequences and uses the fastest installed attention",
        "set {model}.attention to auto",
    ),
    Row(
        "@train.precision.parameters",
        _masters,
        "Megatron keeps weights and optimizer state in float32, in addition to the weights that it computes with",
        "set {train}.precision.parameters to float32",
    ),
    Row(
        "@train.precision.reduce",
        _reduce,
        "Megatron reduces gradients in float32 or in its compute dtype",
        "set {train}.precision.reduce to float32",
    ),
    Row(
        "@train.memory.offload_activations",
        lambda asked: asked.trains and asked.train.memory.offload_activations,
        "the engine does not offload activations",
        "set {section}.engine.recompute_granularity to full",
    ),
    Row(
        "@train.fused_kernels.liger",
        lambda asked: asked.train.fused_kernels.liger,
        "Liger's kernels work only with Transformers models",
        "set {train}.fused_kernels.liger to false",
    ),
    Row(
        "@train.optimizer.module",
        lambda asked: asked.trains and asked.train.optimizer.module,
        "the engine supports only Megatron-core's optimizers",
        "remove {train}.optimizer.module",
    ),
    Row(
        "@train.lr_scheduler.type",
        _falls_at_once,
        "without warm-up, Megatron-core decays by the root of the step, rlctl (like Transformers) over 10,000 steps",
        "set {train}.lr_scheduler.warmup_steps to 1 and warmup_start_lr to the learning rate, which is Megatron-core's",
    ),
    Row(
        "@train.packing",
        lambda asked: not asked.train.packing,
        "the engine always packs sequences without padding",
        "remove it",
        noted=True,
    ),
    Row(
        "@train.memory.recompute_reentrant",
        lambda asked: asked.trains and asked.train.memory.recompute_reentrant,
        "Megatron recomputes activations as {section}.engine.recompute_granularity says",
        "remove it",
        noted=True,
    ),
    Row(
        "@train.memory.recompute_activations",
        lambda asked: (
            asked.trains
            and not asked.train.memory.recompute_activations
            and asked.engine.recompute_granularity != "none"
        ),
        "Megatron recomputes only the activations that {section}.engine.recompute_granularity selects",
        "remove it",
        noted=True,
    ),
    Row(
        "@.engine.transformer.attention_backend",
        lambda asked: asked.engine.transformer.get("attention_backend"),
        "the engine packs sequences and uses the fastest installed attention",
        "remove it",
        noted=True,
    ),
)


def _placed(text: str, asked: Asked) -> str:
    places = {"model": asked.model_section, "train": _trained(asked), "section": asked.section}
    return said(text, **{name: place for name, place in places.items() if f"{{{name}}}" in text})


def _trained(asked: Asked) -> str:
    return "critic" if asked.role == "critic" else "train"


def _key(row: Row, asked: Asked) -> str:
    return row.key.replace("@model", asked.model_section).replace("@train", _trained(asked)).replace("@", asked.section)


def limits(asked: Asked) -> Iterator[Limit]:
    """What a role asks of the Megatron engine and is not there."""
    for row in ROWS:
        value = row.asks(asked)
        if value:
            key, reason, hint = _key(row, asked), _placed(row.reason, asked), _placed(row.hint, asked)
            shown = f"{key} {value}" if isinstance(value, str) else key
            message = said("{key} on the Megatron engine: {reason}", key=shown, reason=reason)
            yield Limit(key, message, hint, row.noted)
    for each in misfits(asked.engine):
        key = f"{asked.section}.engine.{each.key}"
        hint = with_values(each.hint, lambda text: text.replace("train.", f"{asked.section}."))
        yield Limit(key, said("{key}: {reason}", key=key, reason=each.message), hint)
