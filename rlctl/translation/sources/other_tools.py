"""Other tools for post-training, whose files rlctl does not read yet: one table of what shows whose a file is.

YAML, TOML and overrides are recognized by keys that belong together, scripts and Python files by a command or an import.
Without it the file would be measured against the keys of the formats that rlctl has, and the advice would be about the wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlctl.adapters.engine.rules import split
from rlctl.adapters.engine.tree import find
from rlctl.common.errors import Location, TranslationError
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.documents import Document


@record
class Tool:
    """A tool, and what only its files have."""

    name: str
    keys: tuple[tuple[str, ...], ...] = ()
    """Keys and sections that are in its files together; each tuple is enough."""
    text: str = ""
    """A regular expression for a command that starts it, or an import of it."""


def _imports(package: str) -> str:
    return rf"^\s*(?:from|import) {package}\b"


TOOLS = (
    Tool(
        "EasyR1",
        (("worker.actor",), ("worker.rollout",), ("worker.reward",)),
        r"\bverl\.trainer\.main\s+(?:\\\s*)?config=",
    ),
    Tool("rLLM", (), r"\brllm/backend=\w|" + _imports("rllm")),
    Tool("OpenRLHF", (), r"\bopenrlhf\.cli\.\w+|" + _imports("openrlhf")),
    Tool("slime", (), r"\A(?=[\s\S]*--rollout-batch-size\b)(?=[\s\S]*--hf-checkpoint\b)|" + _imports("slime")),
    Tool(
        "NeMo-RL",
        (
            ("grpo.num_prompts_per_step",),
            ("policy.model_name", "checkpointing"),
            ("grpo", "policy", "checkpointing"),
            ("dpo", "policy", "checkpointing"),
            ("sft", "policy", "checkpointing"),
            ("loss_fn", "policy"),
        ),
        r"\brun_(?:grpo|dpo|sft|rm)\w*\.py\b.*\bgrpo\.|" + _imports("nemo_rl"),
    ),
    Tool(
        "SkyRL",
        (("trainer.policy.model",), ("trainer.algorithm.advantage_estimator",), ("generator.n_samples_per_prompt",)),
        r"-m\s+skyrl(?:_train|_agent|\.train)\.\S+|" + _imports("skyrl(?:_train)?"),
    ),
    Tool(
        "AReaL",
        (("experiment_name", "trial_name", "actor"), ("gconfig", "actor"), ("allocation_mode", "experiment_name")),
        r"-m\s+(?:areal|realhf)\.\S+|" + _imports("(?:areal|realhf)"),
    ),
    Tool(
        "prime-rl",
        (
            *(("orchestrator", "trainer"), ("inference", "trainer"), ("orchestrator", "inference")),
            *(("model.name", "renderer"), ("seq_len", "group_size", "model.name"), ("model.seq_len", "optim")),
        ),
        r"\buv\s+run\s+(?:rl|sft|trainer|orchestrator|inference)\b.*@|" + _imports("prime_rl"),
    ),
    Tool(
        "ms-swift",
        (("rlhf_type", "model"), ("tuner_type", "dataset"), ("train_type", "model", "dataset")),
        r"^[^#\n]*\b(?:swift|megatron)\s+(?:rlhf|sft|pt|infer|export)\b|" + _imports("swift"),
    ),
    Tool("LLaMA-Factory", (("stage", "finetuning_type"),), r"\bllamafactory-cli\b|" + _imports("llamafactory")),
    Tool(
        "TRL",
        (
            ("model_name_or_path", "per_device_train_batch_size"),
            ("model_name_or_path", "dataset_name"),
            ("per_device_train_batch_size", "num_generations"),
        ),
        r"^[^#\n]*\btrl\s+(?:grpo|dpo|sft|kto|rloo|reward|vllm-serve)\b|" + _imports("trl"),
    ),
)
READ = "rlctl reads files of verl, Trinity-RFT and ROLL, and its own"


def refuse_keys(document: Document) -> None:
    """Refuse a document that is another tool's.

    Raises:
        TranslationError: it has keys that only the tool's files have.
    """
    tool = _by_keys(document.values)
    if tool is not None:
        raise _refused(tool, document.name)


def refuse_text(text: str, name: str, error: Exception | None = None) -> None:
    """Refuse a script that starts another tool, for the case that rlctl found nothing to read in it.

    Raises:
        TranslationError: it has a command or import of the tool.
    """
    tool = _by_text(text)
    if tool is not None:
        raise _refused(tool, name) from error


def refuse_other_language(text: str, name: str) -> None:
    """Refuse TOML and Python, which are no launch scripts.

    Raises:
        TranslationError: the name ends so.
    """
    ending = Path(name).suffix
    if ending == ".toml":
        tool, what = _by_keys(_toml(text)), "a TOML file"
    elif ending == ".py":
        tool, what = _by_text(text), "a Python file"
    else:
        return
    if tool is not None:
        raise _refused(tool, name)
    raise TranslationError(
        said("this is {what}, which rlctl does not read", what=what),
        at=Location(name),
        hint="rlctl reads YAML, launch scripts and lists of overrides",
    )


def _refused(tool: Tool, name: str) -> TranslationError:
    return TranslationError(
        said("this is a file of {tool}, which rlctl does not read yet", tool=tool.name), at=Location(name), hint=READ
    )


def _by_keys(values: Mapping[Any, Any]) -> Tool | None:
    return next((tool for tool in TOOLS if any(_has(values, keys) for keys in tool.keys)), None)


def _has(values: Mapping[Any, Any], keys: tuple[str, ...]) -> bool:
    return all(bool(find(values, split(key))) for key in keys)


def _by_text(text: str) -> Tool | None:
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return next((tool for tool in TOOLS if tool.text and re.search(tool.text, code, re.MULTILINE)), None)


def _toml(text: str) -> Mapping[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}
