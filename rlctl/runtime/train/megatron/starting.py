"""First weights from a distributed checkpoint that Megatron-core wrote, in whatever program and layout of workers.

Read are checkpoints of Megatron-LM, of verl's converter and of rlctl. They name the same weights differently:

    layers        one by one (``decoder.layers.3.``), or all of a kind in one tensor (``decoder.layers.``); experts likewise
    norms         by themselves, or as Transformer Engine does with the layer after them
    before all    nothing, or ``model.`` or ``module.``
    vocabulary    padded to another multiple

Of the folder only weights are read, never its optimizer or its arguments, and nothing in it is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import ShardedTensorFactory
from megatron.core.dist_checkpointing.strategies.common import TorchCommonLoadStrategy
from megatron.core.dist_checkpointing.utils import extract_sharded_tensors_and_factories
from megatron.core.utils import unwrap_model
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.pickles import reason_of
from rlctl.runtime.train.checkpoint_reader import UNREADABLE, CheckpointReader
from rlctl.runtime.train.megatron.checkpointing import Reading
from rlctl.runtime.train.megatron.names import ADAPTERS
from rlctl.runtime.train.megatron.weights import drawn_head

NEWEST = "latest_checkpointed_iteration.txt"
"""The file of Megatron-LM that names its newest checkpoint in a folder of several."""
EMBEDDING = "embedding.word_embeddings.weight"
"""A weight of every model, by which a prefix is found."""
PREFIXES = ("", "model.", "module.")
FORMS: tuple[dict[str, bool], ...] = (
    {"singleton_local_shards": True},
    {},
    {"non_homogeneous_layers": True},
)
"""How Megatron-core may be told to name layers and experts."""
NORMS = (
    ("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"),
    ("mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"),
)
"""What Transformer Engine calls a norm, and what it is called by itself."""
HEAD = "output_layer."

State = dict[str, Any]
Stored = Mapping[str, Any]


class _Nothing(TorchCommonLoadStrategy):
    """Reads no arguments, which are objects of another program."""

    def load_common(self, checkpoint_dir: Path | str) -> State:
        """Called by Megatron-core."""
        return {}


def start_from(chunks: Sequence[torch.nn.Module], path: str, hf_config: Any, *, critic: bool) -> None:
    """Fill the model of all workers; every worker calls it, before the optimizer is made.

    Adapters stay as they are. The head of a critic is drawn if the checkpoint is of a policy: seed torch alike everywhere.

    Args:
        chunks: of this worker.
        path: the folder, or one of Megatron-LM's with several.
        hf_config: of the model.
        critic: whether there is one number a token, not a head over the vocabulary.

    Raises:
        RunError: it is no such checkpoint, or of another model.
    """
    folder = _folder(Path(path))
    try:
        stored = CheckpointReader(folder).read_metadata().state_dict_metadata
        prefix, embedding = _prefix(stored, path)
        _check_vocabulary(embedding, hf_config, path)
        draws = critic and _is_policys(stored.get(f"{prefix}{HEAD}weight"))
        skipped = (HEAD,) if draws else (f"{HEAD}bias",) if f"{prefix}{HEAD}bias" not in stored else ()
        state = _named(list(unwrap_model(list(chunks))), stored, prefix, path, skipped)
        for parameter in (parameter for chunk in chunks for parameter in chunk.parameters() if _is_padded(parameter)):
            parameter.data.zero_()
        loaded = dist_checkpointing.load(state, str(folder), Reading(), _Nothing(), validate_access_integrity=False)
    except (*UNREADABLE, dist_checkpointing.core.CheckpointingException) as error:
        raise RunError(
            said(
                "the Megatron checkpoint {folder} cannot be read: {reason_of}",
                folder=folder,
                reason_of=reason_of(error),
            ),
            hint="set checkpoint_path to a folder that Megatron-core's dist_checkpointing wrote in the format torch_dist",
        ) from error
    for number, chunk in enumerate(unwrap_model(list(chunks))):
        chunk.load_state_dict(loaded[str(number)], strict=False)  # adapters and what was skipped stay
    if draws:
        drawn_head(chunks, hf_config)


def _is_padded(parameter: torch.nn.Parameter) -> bool:
    """Whether it has a row for each token, and some that fill it up, which the checkpoint may lack."""
    return bool(getattr(parameter, "is_embedding_or_output_parameter", False))


def _folder(path: Path) -> Path:
    """The checkpoint itself."""
    if (path / NEWEST).is_file():
        newest = (path / NEWEST).read_text(encoding="utf-8").strip()
        return path / (newest if newest == "release" else f"iter_{int(newest):07d}")
    return path


def _prefix(stored: Stored, path: str) -> tuple[str, TensorStorageMetadata]:
    """What all names begin with, and the embedding."""
    for prefix in PREFIXES:
        found = stored.get(prefix + EMBEDDING)
        if isinstance(found, TensorStorageMetadata):
            return prefix, found
    raise RunError(
        said(
            "{path} contains no weights of a GPT model of Megatron-core: there is no {embedding}",
            path=path,
            embedding=EMBEDDING,
        ),
        hint="set checkpoint_path to a checkpoint of a language model, with its weights",
    )


def _check_vocabulary(embedding: TensorStorageMetadata, hf_config: Any, path: str) -> None:
    rows, columns = embedding.size
    if rows < hf_config.vocab_size or columns != hf_config.hidden_size:
        raise RunError(
            said(
                "the Megatron checkpoint {path} has an embedding of {rows} x {columns}; the model's config.json says "
                "{vocab_size} x {hidden_size}",
                path=path,
                rows=rows,
                columns=columns,
                vocab_size=hf_config.vocab_size,
                hidden_size=hf_config.hidden_size,
            ),
            hint="set model.path to the folder with the config and tokenizer of the checkpoint's model",
        )


def _is_policys(head: Any) -> bool:
    """Whether a checkpoint's head is over the vocabulary, or tied to the embedding."""
    return not isinstance(head, TensorStorageMetadata) or head.size[0] != 1


def _named(chunks: list[Any], stored: Stored, prefix: str, path: str, skipped: tuple[str, ...]) -> State:
    """The weights of all chunks, under the names that the checkpoint has for them."""
    lacking: list[list[str]] = []
    for form in FORMS:
        group = parallel_state.get_data_parallel_group(with_context_parallel=True)
        state: State = {}
        for number, chunk in enumerate(chunks):
            own = chunk.sharded_state_dict(metadata={**form, "dp_cp_group": group})
            kept = {
                name: part
                for name, part in own.items()
                if ADAPTERS not in name and not name.endswith("_extra_state") and not name.startswith(skipped)
            }
            state[str(number)] = kept
        lacking.append(sorted(_renamed(state, stored, prefix)))
        if not _anywhere(lacking[-1]):
            return state
    fewest = min(lacking, key=len)
    example = said(", the first is {fewest}", fewest=fewest[0]) if fewest else ""
    raise RunError(
        said(
            "the Megatron checkpoint {path} lacks {value} of the model's weights{example}",
            path=path,
            value=len(fewest) or "some",
            example=example,
        ),
        hint="check that model.path has the config.json of the checkpoint's model",
    )


def _anywhere(lacking: list[str]) -> bool:
    """Whether any worker lacks a weight: all read the checkpoint in the same form."""
    found = torch.tensor(len(lacking))
    torch.distributed.all_reduce(found)
    return bool(found)


def _renamed(state: State, stored: Stored, prefix: str) -> Iterator[str]:
    """Give each weight the checkpoint's name; yield those that it lacks."""
    for part in nested_values(extract_sharded_tensors_and_factories(state)[0]):
        made = nested_values(part.build()) if isinstance(part, ShardedTensorFactory) else (part,)
        ends = [each.key.removeprefix(part.key) for each in made]
        names = (prefix + each for each in _spellings(part.key))
        found = next((name for name in names if all(f"{name}{end}" in stored for end in ends)), None)
        if found is None:
            yield str(part.key)
        else:
            part.key = found


def _spellings(key: str) -> Iterator[str]:
    yield key
    for fused, alone in NORMS:
        if key.endswith(fused):
            yield key.removesuffix(fused) + alone
        if key.endswith(alone):
            yield key.removesuffix(alone) + fused
