"""What worker processes do with checkpoints that another program writes with Megatron-core."""

from __future__ import annotations

import argparse
import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from rlctl.config.sections.train import Megatron, Train
from rlctl.runtime.train.interface import Role

import rlctl.runtime.train.megatron.layout  # noqa: F401  # isort: skip  # what imports Megatron-core comes after it
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

from rlctl.runtime.train.megatron.arguments import transformer_config
from rlctl.runtime.train.megatron.weights import load_weights
from tests.runtime.train.megatron import engine_jobs
from tests.runtime.train.megatron.weight_jobs import FLOAT32, chunks_of

VOCABULARY = {"embedding.word_embeddings.weight": "model.embed_tokens.weight", "output_layer.weight": "lm_head.weight"}


def write(engine: Megatron, folder: Path, target: Path, metadata: dict[str, Any], padded: int, head: bool) -> None:
    """As verl's ``converter_hf_to_mcore.py`` does: Megatron-core's own model, saved by Megatron-core with its defaults.

    The vocabulary is padded otherwise than rlctl pads it, and beside the weights lie the arguments of the program. With
    ``head`` there is one number a token, as in verl's critics.
    """
    hf_config = AutoConfig.from_pretrained(folder)
    chunks = chunks_of(engine, hf_config, "critic" if head else "policy")
    load_weights(chunks, folder, hf_config)
    config = transformer_config(Train(engine=engine, precision=FLOAT32), hf_config)
    spec = get_gpt_layer_local_spec(
        num_experts=config.num_moe_experts, qk_layernorm=config.qk_layernorm, normalization=config.normalization
    )
    theirs = GPTModel(
        config,
        spec,
        padded,
        128,
        share_embeddings_and_output_weights=hf_config.tie_word_embeddings and not head,
        position_embedding_type="rope",
    )
    if head:
        theirs.output_layer = torch.nn.Linear(hf_config.hidden_size, 1)
        with torch.no_grad():
            theirs.output_layer.weight.fill_(0.5)
    own = {name: tensor for name, tensor in chunks[0].state_dict().items() if isinstance(tensor, Tensor)}
    whole = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    rank = parallel_state.get_tensor_model_parallel_rank()
    for name, parameter in theirs.state_dict().items():
        if name in VOCABULARY and not (head and name.startswith("output_layer")):
            rows = whole[VOCABULARY[name]][rank * len(parameter) : (rank + 1) * len(parameter)]
            parameter.zero_()[: len(rows)] = rows
        elif isinstance(parameter, Tensor) and not name.startswith("output_layer"):
            parameter.copy_(own[name])
    if dist.get_rank() == 0:
        target.mkdir(parents=True)
    dist.barrier()
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    state: dict[str, Any] = theirs.sharded_state_dict(metadata={**metadata, "dp_cp_group": group})
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # it writes in a process
    dist_checkpointing.save({**state, "args": argparse.Namespace(tensor_model_parallel_size=1)}, str(target))


def started(engine: Megatron, folder: Path, checkpoint: Path, role: Role) -> dict[str, Tensor]:
    """The weights of an engine that starts there, on the first worker."""
    made = engine_jobs.make(folder, replace(engine, checkpoint_path=str(checkpoint)), role)
    return {name: tensor.clone() for name, tensor in made.export_weights()}


def started_from_weights(folder: Path, role: Role) -> dict[str, Tensor]:
    """The same of one that starts from Hugging Face weights."""
    return {name: tensor.clone() for name, tensor in engine_jobs.make(folder, Megatron(), role).export_weights()}
