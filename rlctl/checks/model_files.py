"""Local folders of models are whole: a config, and weights that are not cut off or only pointers. Tensors are not read."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.rewards import ModelReward
from rlctl.config.sections.train import Megatron
from rlctl.documents.paths import KeyPath
from rlctl.planning import arithmetic
from rlctl.planning.support import RLCTL

POINTER = b"version https://git-lfs.github.com/spec/"
"""How a file begins that Git LFS left in the place of a large one."""
LARGEST_HEADER = 100 << 20
"""Bytes of a safetensors header, which is what its readers take."""
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
NO_WEIGHTS = "it has no weights (*.safetensors or *.bin)"
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def fault_of(folder: Path, *, weights: bool = True) -> str:
    """What is wrong with the folder of a model, empty if nothing is that can be seen without reading its weights."""
    config = folder / "config.json"
    if not config.is_file():
        return said("its config.json is missing")
    files = sorted({file for pattern in ("*.json", *WEIGHTS) for file in folder.glob(pattern) if file.is_file()})
    for file in files:
        if is_pointer(file):
            return said("{file} is a Git LFS pointer, not the file itself", file=file.name)
    try:
        known = json.loads(config.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        return said("its config.json is not JSON: {error}", error=error)
    if not isinstance(known, dict):
        return said("its config.json is not a JSON object")
    return _fault_of_weights(folder) if weights else ""


def is_pointer(file: Path) -> bool:
    """Whether a file is only what Git LFS left in the place of a large one."""
    with file.open("rb") as stream:
        return stream.read(len(POINTER)) == POINTER


def _fault_of_weights(folder: Path) -> str:
    found = {file.name for pattern in WEIGHTS for file in folder.glob(pattern)}
    if not found:
        return NO_WEIGHTS
    for index in (folder / name for name in INDEXES):
        try:
            parts = (
                set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()) if index.is_file() else set()
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return said("its {file} cannot be read", file=index.name)
        if parts - found:
            return said("it lacks {file}, which {index} lists", file=min(map(str, parts - found)), index=index.name)
    cut = next((file.name for file in sorted(folder.glob("*.safetensors")) if _is_cut(file)), None)
    return said("{file} is cut off or damaged", file=cut) if cut else ""


def _is_cut(file: Path) -> bool:
    """Whether a safetensors file is shorter or longer than its header says."""
    with file.open("rb") as stream:
        start = stream.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else LARGEST_HEADER + 1
        if size > LARGEST_HEADER:
            return True
        try:
            header = json.loads(stream.read(size))
            ends = [each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"]
            return bool(file.stat().st_size != 8 + size + max(ends, default=0))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            return True


def folders(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Models that are local folders can be loaded."""
    for key, path, weights in _models(config):
        folder = Path(expanded(path)) if path and "://" not in path else None
        if folder is None or not folder.is_dir():
            continue
        try:
            fault = fault_of(folder, weights=weights)
        except OSError as error:
            fault = str(error)
        if fault:
            yield problem("model-files_shape" if fault == NO_WEIGHTS else "model-files", key, path=path, reason=fault)


TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "*.tiktoken",
    "tokenization_*.py",
    "tekken.json",
)
"""Files of which a tokenizer has one."""
TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")
"""Where a template stands if it is not in ``tokenizer_config.json``."""
CHATS = (RLCTL, "verl", "trinity")
"""Runners that put every prompt into the tokenizer's template; ROLL has templates of its own."""


def tokenizers(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """The policy's tokenizer is in its folder, with a chat template where prompts are put into one."""
    key: KeyPath = ("model", "tokenizer") if config.model.tokenizer else ("model", "path")
    path = config.model.tokenizer or config.model.path
    folder = Path(expanded(path)) if path and "://" not in path else None
    if folder is None or not folder.is_dir() or not (arithmetic.trains(config) or arithmetic.needs_rollout(config)):
        return
    has_weights = any(next(folder.glob(pattern), None) for pattern in WEIGHTS)
    if not any(next(folder.glob(pattern), None) for pattern in TOKENIZERS):
        if has_weights or key == ("model", "tokenizer"):  # a config alone stands for a model that is elsewhere
            yield problem("model-tokenizer", key, path=path)
    elif surroundings.runner in CHATS and _chats(config, surroundings.runner) and _lacks_template(folder):
        yield problem("model-tokenizer_template", key, path=path)


def _chats(config: Config, runner: str) -> bool:
    """Whether prompts are put into a chat template that the config does not bring."""
    kinds = {source.prompt_type for source in config.data.train}
    wrapped = bool(kinds & {"messages", "text"}) if runner == RLCTL else kinds != {"raw"}
    return wrapped and config.model.chat_template is None and config.data.custom is None


def _lacks_template(folder: Path) -> bool:
    if any((folder / name).exists() for name in TEMPLATES) or next(folder.glob("tokenization_*.py"), None):
        return False
    try:
        known = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(known, dict) and not known.get("chat_template")


def _models(config: Config) -> Iterator[tuple[KeyPath, str, bool]]:
    """The key and path of each model, and whether its weights are read."""
    own = isinstance(config.train.engine, Megatron) and config.train.engine.checkpoint_path is not None
    if arithmetic.trains(config) or arithmetic.needs_rollout(config):
        yield ("model", "path"), config.model.path, not own
    for role, section in (("reference", config.reference), ("critic", config.critic)):
        if section is not None and section.model is not None:
            held = isinstance(section.engine, Megatron) and section.engine.checkpoint_path is not None
            yield (role, "model", "path"), section.model.path, not held
    for index, reward in enumerate(config.rewards):
        if isinstance(reward, ModelReward):
            yield ("rewards", index, "path"), reward.path, True
        elif arithmetic.is_served_here(reward):
            yield ("rewards", index, "model"), getattr(reward, "model", ""), True
    for index, model in enumerate(config.rollout.auxiliary_models):
        if model.base_url is None:
            yield ("rollout", "auxiliary_models", index, "path"), model.path, True


RULES = (folders, tokenizers)
