"""Numbers of a Trinity-RFT file that several of its requirements are about: GPUs of the explorer and the trainer, batches."""

from __future__ import annotations

from rlctl.adapters.engine.requirements import Values
from rlctl.adapters.trinity.keys import ACTOR
from rlctl.adapters.trinity.train import deciding, strategy

PARALLEL = ("tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size")
ENGINE = "explorer.rollout_model"
WITH_CRITIC = ("ppo",)
"""Algorithms that train a critic."""


def own_devices(values: Values) -> bool:
    """Whether rollout engines have devices of the cluster, which is described."""
    outside = values[f"{ENGINE}.engine_type"] in ("external", "tinker")
    known = values.number("cluster.node_num", 0) and values.number("cluster.gpu_per_node", 0)
    return (
        bool(known) and not outside and not values["model.tinker.enable"] and not values["model.external_model.enable"]
    )


def cluster_devices(values: Values) -> int:
    return values.number("cluster.node_num", 0) * values.number("cluster.gpu_per_node", 0)


def engine_devices(values: Values) -> int:
    product = 1
    for name in PARALLEL:
        product *= values.number(f"{ENGINE}.{name}")
    return product


def explorer_devices(values: Values) -> int:
    """Devices of rollout engines and auxiliary models."""
    found = 0 if values["mode"] == "train" else engine_devices(values) * values.number(f"{ENGINE}.engine_num")
    for model in (values["explorer.auxiliary_models"] or []) if values["mode"] != "train" else []:
        size = model.get("engine_num", 1)
        for name in PARALLEL:
            size *= model.get(name, 1)
        found += size
    return found


def trainer_devices(values: Values) -> int:
    return cluster_devices(values) - explorer_devices(values)


def rank_devices(values: Values) -> int:
    """Trainer GPUs that hold one data-parallel rank."""
    if strategy(values.view) != "megatron":
        own = f"{ACTOR}.ulysses_sequence_parallel_size"
        return max(1, values.number(deciding(values.view, own, "trainer.ulysses_sequence_parallel_size")))
    product = 1
    for name in ("tensor_model", "pipeline_model", "context"):
        own = f"{ACTOR}.megatron.{name}_parallel_size"
        product *= values.number(own if values.written(own) else f"trainer.megatron.{name}_parallel_size")
    return product


def train_batch(values: Values) -> int:
    """Responses of a train step."""
    own = values["buffer.train_batch_size"]
    return int(own) if own else values.number("buffer.batch_size") * values.number("algorithm.repeat_times")


def trains(values: Values) -> bool:
    """Whether verl trains on the GPUs that the explorer leaves."""
    trains = values["mode"] in ("both", "train") and values["trainer.trainer_type"] == "verl"
    return trains and own_devices(values) and trainer_devices(values) > 0


def ranks(values: Values) -> int:
    """Data-parallel ranks of the trainer."""
    return trainer_devices(values) // rank_devices(values)


TRAINER = {"trainer": trainer_devices, "share": rank_devices, "batch": train_batch, "ranks": ranks}
"""Numbers of the trainer that messages name."""


def longest(values: Values) -> int:
    """Tokens of the longest sequence."""
    whole = values.number("model.max_prompt_tokens", 0) + values.number("model.max_response_tokens", 0)
    return values.number("model.max_model_len", 0) or whole


def split_over(values: Values) -> int:
    """GPUs that share a sequence of the trainer, and its token budget with it."""
    if strategy(values.view) != "megatron":
        return rank_devices(values)
    own = f"{ACTOR}.megatron.context_parallel_size"
    return values.number(own if values.written(own) else "trainer.megatron.context_parallel_size")
