"""Small models with random weights, of the architecture of a large one, and tokenizers for them.

Everything is made on the spot: nothing is downloaded. The shape comes from the large model's ``config.json`` if it is on disk or
in the hub's cache, else from the family that its name says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils.logging import disable_progress_bar

from rlctl.common import quoting
from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.models.vision import auto_class

USUAL_FAMILY = "qwen2"
"""Of a model whose name says none, such as ``/path/to/model``."""
FAMILIES = (
    (r"qwen3[-_.]?next", "qwen3_next"),
    (r"qwen3\.5.*a\d+b", "qwen3_5_moe_text"),
    (r"qwen3\.5", "qwen3_5_text"),
    (r"qwen3.*a\d+b", "qwen3_moe"),
    (r"qwen3", "qwen3"),
    (r"distill[-_]?llama|llama|tulu|smollm|yi-|deepseek[-_]?(llm|coder|math)", "llama"),
    (r"mixtral", "mixtral"),
    (r"mistral|ministral|zephyr", "mistral"),
    (r"gemma-?3", "gemma3_text"),
    (r"gemma-?2", "gemma2"),
    (r"phi-?[34]", "phi3"),
    (r"olmo-?2", "olmo2"),
    (r"qwen|qwq|distill", "qwen2"),
    (r"deepseek|moonlight|kimi", "deepseek_v3"),
    (r"glm-?4", "glm4"),
)
"""What a name says of the family, as Transformers' ``model_type``; the first that matches."""
WITH_IMAGES = re.compile(r"[-_.]vl\b|[-_]vl[-_]|vision|omni", re.IGNORECASE)

SIZES: Mapping[str, int] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "max_window_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 16,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "num_nextn_predict_layers": 0,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "depth": 2,
    "out_hidden_size": 64,
    "num_heads": 4,
    "embed_dim": 64,
}
"""Sizes of a small model, by their names in ``config.json``; one that the large model lacks is left alone."""
DROPPED = (
    *("quantization_config", "auto_map", "_name_or_path", "dtype", "torch_dtype", "transformers_version"),
    *("mlp_only_layers", "no_rope_layers"),
)
VOCABULARY = 4096
ROWS_READ = 512
"""Of the training data, for the tokenizer."""
PAD, END = "<|endoftext|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n"
    "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}\n{% endif %}"
    "Tools:\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}{% if not (tools and loop.first and message['role'] == 'system') %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% elif message['content'] %}{% for part in message['content'] %}{{ part.get('text', '') }}{% endfor %}{% endif %}"
    "{% for call in message.get('tool_calls') or [] %}"
    '<tool_call>\n{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}"
    "<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML, with tools and calls as Hermes writes them."""


def found_tokenizer(name: str, *, trust_remote_code: bool) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a folder, or of a hub name that is in the cache; None if it is not on this machine."""
    try:
        found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            name, trust_remote_code=trust_remote_code, local_files_only=True
        )
    except (OSError, ValueError, KeyError, TypeError, ImportError):
        return None
    return found if len(found) > len(found.all_special_ids) else None


def made_tokenizer(texts: Iterator[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with a ChatML template, trained on texts: about as many tokens a text as a large model's."""
    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, "<|im_start|>", END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bare.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=bare, pad_token=PAD, eos_token=END)
    made.chat_template = CHAT_TEMPLATE
    return made


def texts_in(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Every text in some rows of data, however deep."""
    for row in rows:
        yield from _texts(row)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def architecture_of(name: str, *, trust_remote_code: bool) -> tuple[dict[str, Any], str]:
    """The ``config.json`` of a model, large or of its family's usual sizes, and where it comes from, in words.

    Raises:
        RunError: Transformers has no such family, or the model reads images and is not on this machine.
    """
    try:
        values, _ = PreTrainedConfig.get_config_dict(name, local_files_only=True)
    except (OSError, ValueError):
        values = {}
    if values:
        family = values.get("model_type", "")
        if family not in CONFIG_MAPPING:
            raise RunError(
                said(
                    "rlctl cannot make a small {value} model from {name}: Transformers has no such family",
                    value=family or "model",
                    name=name,
                ),
                hint="set model.path to a model of a supported family, or to your own small model",
            )
        return values, "its config.json"
    if WITH_IMAGES.search(name):
        raise RunError(
            said(
                "a small model of {name} needs its config.json, tokenizer and image processor, which are not "
                "available locally",
                name=name,
            ),
            hint=said(
                "download these files (not the weights) into a folder and set model.path to it: hf download {name} "
                "--exclude '*.safetensors' --local-dir FOLDER",
                name=quoting.word(name),
            ),
        )
    family = family_of(name)
    return AutoConfig.for_model(family or USUAL_FAMILY).to_dict(), _said_by(name, family)


def _said_by(name: str, family: str | None) -> str:
    if family:
        return said("its name: {family}", family=family)
    return said("the name matches no family; using {family}", family=USUAL_FAMILY)


def family_of(name: str) -> str | None:
    """The family that a model's name says, None if it says none."""
    last = name.rstrip("/").rsplit("/", 1)[-1].lower()
    return next((family for pattern, family in FAMILIES if re.search(pattern, last)), None)


def shrunk(values: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of a ``config.json`` with small sizes; parts of several models, such as a vision tower's, too."""
    made = {key: item for key, item in values.items() if key not in DROPPED}
    for name, size in SIZES.items():
        if isinstance(made.get(name), int) and not isinstance(made[name], bool):
            made[name] = size
    heads, shared = values.get("num_attention_heads"), values.get("num_key_value_heads")
    if shared is not None:
        made["num_key_value_heads"] = SIZES["num_attention_heads"] // (1 if shared == heads else 2)
    if isinstance(kinds := values.get("layer_types"), list):
        made["layer_types"] = _layers_of(kinds)
        made["num_hidden_layers"] = len(made["layer_types"])
    for name in ("rope_scaling", "rope_parameters"):
        if isinstance(rope := made.get(name), dict) and "mrope_section" in rope:
            made[name] = {**rope, "mrope_section": [2, 3, 3]}
    return {
        key: shrunk(item) if key.endswith("_config") and isinstance(item, dict) else item for key, item in made.items()
    }


def _layers_of(kinds: Sequence[str]) -> list[str]:
    """One layer of each kind, and two at least."""
    each = list(dict.fromkeys(kinds))
    return each if len(each) >= SIZES["num_hidden_layers"] else each * SIZES["num_hidden_layers"]


def write_tiny(
    folder: Path,
    architecture: Mapping[str, Any],
    tokenizer: PreTrainedTokenizerBase,
    *,
    seed: int,
    scores: bool = False,
) -> int:
    """Save a small random model with its tokenizer.

    Args:
        folder: to write.
        architecture: of the large model, as ``architecture_of`` gave it.
        tokenizer: whose vocabulary it has.
        seed: of the weights.
        scores: a classifier with one number, as a reward model is, instead of a language model.

    Returns:
        Its parameters.

    Raises:
        RunError: Transformers cannot make it.
    """
    disable_progress_bar()
    values = shrunk(architecture)
    ids = {
        "pad_token_id": _pad(tokenizer),
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id,
    }
    text = values["text_config"] if isinstance(values.get("text_config"), dict) else values
    text.update(vocab_size=_vocabulary(values, tokenizer), **ids)
    values.update(ids)
    try:
        config = AutoConfig.for_model(**values)
        torch.manual_seed(seed)
        if scores:
            config.num_labels = 1
            model = AutoModelForSequenceClassification.from_config(config)
        else:
            model = auto_class(config).from_config(config)
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, StrictDataclassError) as error:
        raise RunError(
            said("a small {get} model cannot be made: {error}", get=values.get("model_type"), error=error)
        ) from error
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def _pad(tokenizer: PreTrainedTokenizerBase) -> int | None:
    own: int | None = tokenizer.pad_token_id
    return tokenizer.eos_token_id if own is None else own


def _vocabulary(values: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> int:
    """Rows of the embedding: the tokenizer's, and the ids of image tokens that the config names."""
    named = [item for key, item in values.items() if key.endswith("token_id") and isinstance(item, int)]
    return max([len(tokenizer), *(number + 1 for number in named)])
