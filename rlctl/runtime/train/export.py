"""Weights in Hugging Face names, whole: as a stream to a rollout engine, and as files that ``from_pretrained`` reads."""

from __future__ import annotations

import copy
import itertools
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import cached_file

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.data.hub import hub_access
from rlctl.runtime.models.vision import auto_class, reads_images
from rlctl.runtime.train.gathering import BUCKET_BYTES, whole

if TYPE_CHECKING:
    from rlctl.runtime.train.lora import Adapters

TOKENIZER_FILES = (
    "tokenizer*",
    "vocab*",
    "merges.txt",
    "*.tiktoken",
    "*.spm",
    "spiece.model",
    "sentencepiece*",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template*",
)
"""What belongs to a tokenizer in a model folder."""

PROCESSOR_FILES = ("preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json")
"""What belongs to the processor of a model that reads images."""


ADAPTER = "adapter"
"""The folder, in an export and beside a checkpoint, of adapters in peft's format."""


def weights(
    model: PreTrainedModel,
    adapters: Adapters | None = None,
    *,
    bucket_bytes: int = BUCKET_BYTES,
    own: bool = True,
    dtype: torch.dtype | None = None,
    everywhere: bool = False,
) -> Iterator[tuple[str, Tensor]]:
    """See ``TrainEngine.export_weights``, and for the rest ``gathering.whole``.

    With ``dtype`` each worker casts its part of a parameter before parts are gathered, so that half as much travels. Adapters
    are merged in the parameters' own type, and cast after that. Buffers keep theirs.
    """
    cast = _casting(model, dtype)
    kept = model.state_dict().keys()
    parameters = ((name, tensor.detach()) for name, tensor in model.named_parameters())
    buffers = ((name, buffer.detach()) for name, buffer in model.named_buffers() if name in kept)
    gathered = partial(whole, bucket_bytes=bucket_bytes, own=own, everywhere=everywhere)
    if adapters is None:
        return gathered(itertools.chain(map(cast, parameters), buffers))
    names = {name for name, _ in model.named_buffers()}
    merged = adapters.merged(gathered(itertools.chain(parameters, buffers)))
    return (item if item[0] in names else cast(item) for item in merged)


def adapter_weights(
    model: PreTrainedModel, adapters: Adapters, *, dtype: torch.dtype | None = None
) -> Iterator[tuple[str, Tensor]]:
    """See ``TrainEngine.export_adapters``."""
    return ((name, tensor.to(dtype or tensor.dtype)) for name, tensor in adapters.unmerged(whole(_trained(model))))


def _casting(model: PreTrainedModel, dtype: torch.dtype | None) -> Callable[[tuple[str, Tensor]], tuple[str, Tensor]]:
    """What casts a named parameter to the type that Transformers loads it in under ``dtype``."""
    wide = set(model._keep_in_fp32_modules_strict or ())
    if dtype == torch.float16:
        wide |= set(model._keep_in_fp32_modules or ())

    def cast(item: tuple[str, Tensor]) -> tuple[str, Tensor]:
        name, tensor = item
        if dtype is None or not tensor.is_floating_point() or not wide.isdisjoint(name.split(".")):
            return item
        return name, tensor.to(dtype)

    return cast


def write(
    model: PreTrainedModel,
    folder: Path,
    *,
    tokenizer: str | None,
    adapters: Adapters | None = None,
    asynchronous: bool = False,
) -> Future[None]:
    """Write weights, config and the files of ``tokenizer`` (folder or hub name; None writes none), whole or not at all.

    With ``adapters`` the weights are merged, and the adapters by themselves lie in the folder ``adapter`` within.

    Returns:
        What is done when the folder is whole: at once, or under ``asynchronous``, where the first worker writes a copy of the
        weights while training goes on, some time later; what goes wrong then is its result there.

    Raises:
        RunError: the folder or the tokenizer cannot be written, on every worker; not under ``asynchronous``.
    """
    state = {name: tensor.cpu() for name, tensor in weights(model, adapters)}
    trained = {} if adapters is None else _adapters_of(model)
    plain = _without_weights(model)  # not in a thread: Transformers sets torch's default type meanwhile

    def write_beside() -> str:
        return adapter_problem(adapters, trained, folder / ADAPTER) if adapters is not None else ""

    return write_state(plain, state, folder, tokenizer=tokenizer, asynchronous=asynchronous, beside=write_beside)


def write_state(
    plain: PreTrainedModel,
    state: dict[str, Tensor],
    folder: Path,
    *,
    tokenizer: str | None,
    asynchronous: bool = False,
    beside: Callable[[], str] = str,
) -> Future[None]:
    """Write what the first worker has: weights on CPU, of a model that is ``plain`` without them. For the rest see ``write``.

    ``beside`` writes more into the folder, and says what went wrong.
    """

    def write_all() -> str:
        return _write_files(plain, state, folder, tokenizer) or beside()

    done: Future[None] = Future()
    if not asynchronous:
        _raise_together(write_all() if dist.get_rank() == 0 else "", folder)
        done.set_result(None)
    elif dist.get_rank() != 0:
        done.set_result(None)
    else:
        threading.Thread(target=_finish, args=(done, write_all, folder), name="export", daemon=True).start()
    return done


def _finish(done: Future[None], write_all: Callable[[], str], folder: Path) -> None:
    try:
        problem = write_all()
    except BaseException as error:  # noqa: BLE001 - told to whoever asks for the result
        done.set_exception(error)
        return
    if problem:
        done.set_exception(_failed(folder, problem))
    else:
        done.set_result(None)


def write_adapters(model: PreTrainedModel, adapters: Adapters, folder: Path) -> None:
    """Write the adapters as peft does.

    Raises:
        RunError: the folder cannot be written, on every worker.
    """
    write_adapter_state(adapters, _adapters_of(model), folder)


def write_adapter_state(adapters: Adapters, state: Mapping[str, Tensor], folder: Path) -> None:
    """Write whole adapters, which the first worker has, as peft does.

    Raises:
        RunError: the folder cannot be written, on every worker.
    """
    _raise_together(adapter_problem(adapters, state, folder) if dist.get_rank() == 0 else "", folder)


def _adapters_of(model: PreTrainedModel) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in whole(_trained(model))}


def _trained(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    return ((name, tensor.detach()) for name, tensor in model.named_parameters() if tensor.requires_grad)


def adapter_problem(adapters: Adapters, state: Mapping[str, Tensor], folder: Path) -> str:
    """Write whole adapters; return what went wrong, empty where nothing did."""
    try:
        adapters.write(state, folder)
    except (OSError, SafetensorError) as error:
        return str(error)
    return ""


def _raise_together(problem: str, folder: Path) -> None:
    """Raise on every worker what went wrong on rank 0."""
    told = [problem]
    dist.broadcast_object_list(told, src=0)
    if told[0]:
        raise _failed(folder, told[0])


def _failed(folder: Path, problem: str) -> RunError:
    return RunError(said("the weights could not be exported to {folder}: {problem}", folder=folder, problem=problem))


def _write_files(plain: PreTrainedModel, state: dict[str, Tensor], folder: Path, tokenizer: str | None) -> str:
    """Return what went wrong, empty where nothing did. ``plain`` is the model without weights."""
    partial = folder.with_name(f"{folder.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        plain.save_pretrained(partial, state_dict=state)
        if tokenizer is not None:
            _write_tokenizer(tokenizer, partial)
        if tokenizer is not None and reads_images(plain.config):
            _write_processor(plain.name_or_path, partial)
        shutil.rmtree(folder, ignore_errors=True)
        partial.replace(folder)
    except (OSError, ValueError, SafetensorError) as error:
        return str(error)
    return ""


def _write_tokenizer(tokenizer: str, folder: Path) -> None:
    """Copy a tokenizer's files as they are: beside a config.json Transformers may load it as another class, and save that."""
    source = Path(tokenizer)
    if not source.is_dir():
        with hub_access():
            source = Path(snapshot_download(tokenizer, allow_patterns=list(TOKENIZER_FILES)))
    files = {path for pattern in TOKENIZER_FILES for path in source.glob(pattern) if path.is_file()}
    if not files:
        raise ValueError(f"{source} holds no tokenizer")
    for path in sorted(files):
        shutil.copyfile(path, folder / path.name)


def _write_processor(source: str, folder: Path) -> None:
    """Copy the files of the processor of the model at ``source``, a folder or hub name, as they are."""
    found = [cached_file(source, name, _raise_exceptions_for_missing_entries=False) for name in PROCESSOR_FILES]
    if not any(found):
        raise ValueError(f"{source} contains no processor ({', '.join(PROCESSOR_FILES)})")
    for name, path in zip(PROCESSOR_FILES, found, strict=True):
        if path is not None:
            shutil.copyfile(path, folder / name)


def _without_weights(model: PreTrainedModel) -> PreTrainedModel:
    """The same model on no device: FSDP2 gives the one that is trained a class of its own, whose name is not for a file.

    Its config is its own too: Transformers notes the attention that it is made with there.
    """
    config, dtype = copy.deepcopy(model.config), next(model.parameters()).dtype
    with torch.device("meta"):
        plain = auto_class(config).from_config(config, dtype=dtype, attn_implementation="sdpa")
    if model.generation_config is not None:
        plain.generation_config = model.generation_config
    return plain
