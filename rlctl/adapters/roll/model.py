"""ROLL: the model of a run: weights, template, attention, LoRA and what is left untrained.

ROLL overwrites the paths together: where one of ``actor_train``, ``actor_infer`` and ``reference`` names no model, all three get
``pretrain``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.conditions import negated, never
from rlctl.adapters.engine.rules import (
    FROM_SCHEMA,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    InexpressibleError,
    Key,
    Out,
    Provenance,
    Reading,
    Rule,
    Same,
    Tree,
    When,
    Writing,
)
from rlctl.adapters.engine.values import Names, NullReads
from rlctl.adapters.roll.strategies import is_engine, is_strategy
from rlctl.adapters.roll.workers import MEGATRON
from rlctl.common.messages.reasons import said

A, INFER, REF = "actor_train", "actor_infer", "reference"
PATH = "model_args.model_name_or_path"
ATTENTION = Names(
    {None: "auto", "auto": "auto", "sdpa": "sdpa", "fa2": "flash_attention_2"},
    "ROLL has two attention implementations, sdpa and fa2",
)
CHATML = (
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The ChatML format, as Jinja."""
TEMPLATES: Mapping[str, tuple[str | None, Mapping[str, Any]]] = {
    "native": (None, {}),
    "qwen2_5": (None, {}),
    "qwen3": (None, {"enable_thinking": True}),
    "chatml": (CHATML, {}),
}
"""ROLL's named templates that are the tokenizer's own, with arguments, or Jinja text; the first is the default."""


# Paths


def paths(*roles: str) -> CustomRule:
    """The key of the whole file and those of roles, which hold only where each of them is written; the first is trained."""

    def read(view: Reading) -> Iterator[Flow]:
        own = {role: view.get(f"{role}.{PATH}") for role in roles}
        if any(path is None for path in own.values()):
            yield Flow(view.to("model.path"), view.get("pretrain") or "", (view.path("pretrain"),), same=True)
            for role in roles:
                same = own[role] == view.get("pretrain")
                note = (
                    "pretrain" if same else "ROLL gives all roles the pretrain model, because some roles name no model"
                )
                yield Flow((), None, (view.path(f"{role}.{PATH}"),), "mapped" if same else "dead", note)
            yield Flow(view.to("reference.model"), None, ())
            return
        yield Flow(view.to("model.path"), own[A], (view.path(f"{A}.{PATH}"),), same=True)
        yield Flow(
            (), None, (view.path("pretrain"),), "dead", said("each role names its own model; {a}'s is trained", a=A)
        )
        if own.get(INFER) == own[A]:
            yield Flow((), None, (view.path(f"{INFER}.{PATH}"),), "mapped", "the same as the policy's")
        place = (view.path(f"{REF}.{PATH}"),)
        if own[REF] == own[A]:
            yield Flow(view.to("reference.model"), None, place, "mapped", "the same as the policy's")
        else:
            yield Flow(view.to("reference.model"), {}, ())
            yield Flow(view.to("reference.model.path"), own[REF], place, same=True)

    def write(view: Writing) -> Iterator[Out]:
        used, reference = (view.to("model.path"),), view.get("reference.model.path")
        yield Flow(view.path("pretrain"), view.get("model.path"), used, same=True, always=True)
        for role in roles if isinstance(reference, str) and reference else ():
            to = "reference.model.path" if role == REF else "model.path"
            yield Flow(view.path(f"{role}.{PATH}"), view.get(to), (view.to(to),), same=True, always=True)

    return CustomRule(
        "model paths",
        (DialectKey("pretrain"), *(DialectKey(f"{role}.{PATH}") for role in roles)),
        ("model.path", "reference.model", "reference.model.path"),
        read,
        write,
        "pretrain, unless each role names a model",
        by_key={
            "pretrain": "model.path",
            **{f"{role}.{PATH}": "reference.model.path" if role == REF else "model.path" for role in roles},
        },
        why="The roles' keys hold only together: if one names no model, all have the one of `pretrain`.",
    )


# Templates


def _template_key(view: Reading) -> str:
    return "global_template" if view.get("global_template") else f"{A}.data_args.template"


def _read_template(view: Reading) -> Iterator[Flow]:
    key = _template_key(view)
    name = view.get(key)
    if key == "global_template":
        other = (view.path(f"{A}.data_args.template"),)
        yield Flow((), None, other, "dead", "global_template decides")
    elif view.written("global_template"):
        yield Flow((), None, (view.path("global_template"),), "mapped", "names none")
    if not isinstance(name, str) or name not in TEMPLATES:
        return
    text, args = TEMPLATES[name]
    used = (view.path(key),)
    if text is None:
        yield Flow((), None, used, "mapped", "the tokenizer's default")
    else:
        yield Flow(view.to("model.chat_template"), text, used, "derived", "as Jinja text")
    for arg, value in args.items():
        yield Flow((*view.to("model.chat_template_args"), arg), value, used, "derived")


def _write_template(view: Writing) -> Iterator[Out]:
    text, args = view.get("model.chat_template"), view.get("model.chat_template_args")
    used = (view.to("model.chat_template"), view.to("model.chat_template_args"))
    both = next((name for name, known in TEMPLATES.items() if known == (text, args)), None)
    plain = next((name for name, known in TEMPLATES.items() if known == (text, {})), None)
    keys = used if both else used[:1] if plain else ()
    if not plain:
        yield Inexpressible(used[:1], "ROLL has only built-in chat templates, no custom ones")
    if not both and args:
        names = ", ".join(args)
        yield Inexpressible(
            used[1:], said("ROLL's built-in chat templates take no arguments, such as {args}", args=names)
        )
    yield Flow(view.path(f"{A}.data_args.template"), both or plain or next(iter(TEMPLATES)), keys)


# LoRA

LINEAR = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
"""All linear layers by name, as ROLL's examples tell the rollout engine, which does not know ``all-linear``."""


def _read_lora(view: Reading) -> Iterator[Flow]:
    target = view.get(f"{A}.model_args.lora_target")
    key = view.path(f"{A}.model_args.lora_target")
    if target is None:
        yield Flow(view.to("model.lora"), None, (key,))
        return
    yield Flow(view.to("model.lora"), {}, (key,))
    regular = any(sign in str(target) for sign in "*$|(")
    names = [str(target)] if regular else [name.strip() for name in str(target).split(",")]
    yield Flow(view.to("model.lora.target_modules"), names, (key,))
    rank, alpha = view.get(f"{A}.model_args.lora_rank"), view.get(f"{A}.model_args.lora_alpha")
    at = (view.path(f"{A}.model_args.lora_rank"), view.path(f"{A}.model_args.lora_alpha"))
    yield Flow(view.to("model.lora.rank"), rank, at[:1], same=True)
    if alpha:
        yield Flow(view.to("model.lora.alpha"), alpha, at[1:], same=True)
    elif isinstance(rank, int):
        yield Flow(view.to("model.lora.alpha"), rank * 2, at, "derived", "ROLL uses twice the rank")
    for name in ("lora_target", "lora_rank", "lora_alpha"):
        note = "makes the rollout engine ready for the policy's adapter"
        yield Flow((), None, (view.path(f"{INFER}.model_args.{name}"),), "mapped", note)


def _write_lora(view: Writing) -> Iterator[Out]:
    lora = view.get("model.lora")
    if not isinstance(lora, Mapping):
        return
    names = ",".join(lora["target_modules"])
    alpha = lora["alpha"]
    used = (view.to("model.lora.target_modules"), view.to("model.lora.rank"), view.to("model.lora.alpha"))
    if alpha != int(alpha):
        yield Inexpressible(used[2:], said("ROLL's lora_alpha is a whole number; {alpha} is used", alpha=round(alpha)))
    for role, target in ((A, names), (INFER, names.replace("all-linear", LINEAR))):
        m = f"{role}.model_args."
        note = "" if target == names else "the rollout engine needs module names. Wrote those of Qwen and Llama"
        how: Provenance = "derived" if note else "mapped"
        yield Flow(view.path(f"{m}lora_target"), target, (*used[:1], view.to("model.lora")), how, note, always=True)
        yield Flow(view.path(f"{m}lora_rank"), lora["rank"], used[1:2], same=True, always=True)
        yield Flow(view.path(f"{m}lora_alpha"), round(alpha), used[2:], always=True)


# Parameters that are not trained


class Prefixes(Same):
    """Beginnings of parameter names with commas, which are patterns that end in a star."""

    def read(self, value: Any, view: Reading) -> Any:
        items = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else []
        return [f"{item.strip()}*" for item in items]

    def write(self, value: Any, view: Writing) -> Any:
        for pattern in value:
            if not pattern.endswith("*") or any(sign in pattern[:-1] for sign in "*?["):
                raise InexpressibleError(
                    said("ROLL freezes by name prefix; {pattern!r} is more than a prefix", pattern=pattern)
                )
        return ",".join(pattern[:-1] for pattern in value) or None


def _auxiliary(to: str) -> Key:
    """The weight of the experts' balance loss, which is Megatron's own key or one of the model's config; null is the model's."""
    return Key(f"{A}.model_args.moe_aux_loss_coef", to, convert=NullReads())


NOT_MEGATRON = "Megatron builds the model from its own classes"
RULES: list[Rule] = [
    paths(A, INFER, REF),
    CustomRule(
        "chat template",
        # 2026.8 configs/data_args.py, DataArguments
        (DialectKey("global_template"), DialectKey(f"{A}.data_args.template", "native")),
        ("model.chat_template", "model.chat_template_args"),
        _read_template,
        _write_template,
        why="One of two keys names a template, which is the tokenizer's own, a text or arguments of it.",
    ),
    When(
        (
            Key(f"{A}.model_args.attn_implementation", "model.attention", convert=ATTENTION),
            Tree(f"{A}.model_args.model_config_kwargs", "model.overrides"),
        ),
        negated(is_strategy(MEGATRON, A)),
        negated(is_engine("megatron", "train.engine")),
        NOT_MEGATRON,
    ),
    Dropped("model.attention", "Megatron chooses the attention implementation itself"),
    Dropped("model.overrides", "Megatron takes strategy_config.additional_configs"),
    Key(f"{A}.model_args.freeze_module_prefix", "model.freeze", convert=Prefixes()),
    When((_auxiliary("train.engine.transformer.moe_aux_loss_coeff"),), is_strategy(MEGATRON, A), never, ""),
    When((_auxiliary("model.overrides.router_aux_loss_coef"),), negated(is_strategy(MEGATRON, A)), never, ""),
    CustomRule(
        "LoRA",
        tuple(
            # 2026.8 configs/model_args.py, LoraArguments: null is twice the rank
            DialectKey(f"{role}.model_args.{name}", default)
            for role in (A, INFER)
            for name, default in (("lora_target", FROM_SCHEMA), ("lora_rank", FROM_SCHEMA), ("lora_alpha", None))
        ),
        ("model.lora", "model.lora.rank", "model.lora.alpha", "model.lora.target_modules"),
        _read_lora,
        _write_lora,
        by_key={
            f"{role}.model_args.{name}": names
            for role in (A, INFER)
            for name, names in (
                ("lora_target", "model.lora.target_modules"),
                ("lora_rank", ("model.lora.rank", "model.lora.alpha")),
                ("lora_alpha", "model.lora.alpha"),
            )
        },
        why="Names with commas are a list, alpha follows the rank, and the rollout engine's block repeats the policy's.",
    ),
    Key(f"{A}.model_args.lora_dropout", "model.lora.dropout"),
    *[
        Dropped(f"model.lora.{name}", reason)
        for name, reason in (
            ("exclude_modules", "ROLL's lora_target lists only modules that get adapters; it cannot exclude any"),
            ("adapter_path", "ROLL always initializes new adapters"),
            ("base_model", "ROLL has no key for the base model's name"),
            ("dtype", "ROLL's adapters are float32, unless autocast_adapter_dtype is false"),
            ("merge_for_rollout", "ROLL always syncs the adapter"),
        )
    ],
    Dropped("model.lora.name", "ROLL has no adapter names", idle=True),
    Dropped("model.stage_in_shared_memory", "ROLL loads it from the folder", idle=True),
    Dropped("model.trust_remote_code", "ROLL always trusts remote code", True, matters=True),
    *[
        Dropped(f"model.{name}", reason)
        for name, reason in (
            ("tokenizer", "ROLL uses the model's tokenizer"),
            ("rope.theta", "ROLL uses the model's own"),
            ("rope.scaling", "ROLL uses the model's own"),
            ("import_modules", "ROLL cannot import extra modules for a model"),
            ("modality", "ROLL decides by the model and by the start script"),
            ("multi_token_prediction", "ROLL uses mtp_training_mode, which has no equivalent"),
        )
    ],
]
