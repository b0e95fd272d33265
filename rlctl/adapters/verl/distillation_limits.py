"""What verl refuses of distillation: its teachers, their engines and its loss. Read from the source of 0.9.1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from rlctl.adapters.engine.requirements import NEAREST, Remedy, Requirement, Values
from rlctl.adapters.verl.combination_limits import DISTILLATION, TEACHER, needed_row, pair_row
from rlctl.adapters.verl.requirement_values import ACTOR, is_on, longest, strategy
from rlctl.adapters.verl.value_limits import DISTILLATION as LOSSES
from rlctl.adapters.verl.value_limits import LOSS, TRAINED, Applies, name_row
from rlctl.common.messages.reasons import said

SIZES = {"tensor_model_parallel_size": 2, "data_parallel_size": 1, "pipeline_model_parallel_size": 1}
"""Parallel sizes of a teacher's engine, with their defaults."""


def distils_topk(values: Values) -> bool:
    """Whether the loss compares the teacher's most probable tokens."""
    return bool(values[f"{DISTILLATION}.enabled"] and values[f"{LOSS}.loss_mode"] == "forward_kl_topk")


def _teachers(values: Values) -> dict[str, Mapping[str, Any]]:
    """The sections of teachers beside the usual one."""
    section = values[f"{DISTILLATION}.teacher_models"]
    found = section if isinstance(section, Mapping) else {}
    return {name: value for name, value in found.items() if name != "teacher_model" and isinstance(value, Mapping)}


def _devices(values: Values, name: str) -> int:
    """GPUs of one replica of a teacher."""
    inference = f"{DISTILLATION}.teacher_models.{name}.inference"
    return prod(values.number(f"{inference}.{size}", default) for size, default in SIZES.items())


def _teacher_devices(values: Values) -> int:
    """GPUs of all replicas of several teachers."""
    teachers = f"{DISTILLATION}.teacher_models"
    return sum(
        values.number(f"{teachers}.{name}.num_replicas", 0) * _devices(values, name) for name in _teachers(values)
    )


def _pool(values: Values) -> int:
    return values.number(f"{DISTILLATION}.n_gpus_per_node", 0) * values.number(f"{DISTILLATION}.nnodes", 0)


def _lacking(name: str) -> Applies:
    """A teacher without a value, among several."""
    return lambda values: next((teacher for teacher, own in _teachers(values).items() if own.get(name) is None), "")


def _distillation_rows() -> Iterator[Requirement]:
    """Teachers and the loss of distillation."""
    on, source = is_on(f"{DISTILLATION}.enabled"), "verl/workers/config/distillation.py, DistillationConfig"
    yield name_row(f"{LOSS}.loss_mode", LOSSES, "verl/trainer/distillation/losses.py", applies=on)
    yield name_row(f"{LOSS}.policy_loss_mode", ("vanilla",), f"{source}LossConfig", applies=on)
    yield pair_row(
        f"{LOSS}.loss_mode",
        f"{LOSS}.use_policy_gradient",
        lambda v: on(v) and v[f"{LOSS}.loss_mode"] == "k1" and not v[f"{LOSS}.use_policy_gradient"],
        source,
        "k3",
    )
    yield pair_row(
        f"{LOSS}.loss_mode",
        f"{ACTOR}.strategy",
        lambda v: distils_topk(v) and strategy(v) not in ("fsdp", "fsdp2", "veomni", "megatron"),
        "verl/trainer/distillation/losses.py, compute_topk_loss",
        "k3",
        TRAINED,
    )
    yield needed_row(f"{LOSS}.topk", f"{LOSS}.loss_mode", distils_topk, source)
    logprobs = f"{TEACHER}.inference.engine_kwargs.vllm.max_logprobs"
    yield pair_row(
        logprobs,
        f"{LOSS}.topk",
        lambda v: distils_topk(v) and not _teachers(v) and 0 <= v.number(logprobs, -1) < v.number(f"{LOSS}.topk", 0),
        source,
        lambda v: v[f"{LOSS}.topk"],
    )
    yield name_row(
        f"{TEACHER}.inference.name", ("vllm", "sglang"), source, applies=lambda v: on(v) and not _teachers(v)
    )
    yield needed_row(f"{TEACHER}.model_path", f"{DISTILLATION}.enabled", lambda v: on(v) and not _teachers(v), source)
    for name in ("model_path", "key", "num_replicas"):
        lacking = _lacking(name)
        yield Requirement(
            f"{DISTILLATION}.teacher_models",
            lambda v, lacking=lacking: on(v) and lacking(v),  # type: ignore[misc]
            said(
                "the teacher {{teacher}} has no {name}, which each of several teachers needs: verl stops when it starts",
                name=name,
            ),
            source,
            said("set {section}.{{teacher}}.{name}", section=f"{DISTILLATION}.teacher_models", name=name),
            numbers={"teacher": lacking},
        )
    yield Requirement(
        f"{DISTILLATION}.teacher_models",
        lambda v: on(v) and len({own.get("key") for own in _teachers(v).values()}) < len(_teachers(v)),
        "two teachers have the same key: verl stops when it starts",
        source,
        said("give each teacher of {section} its own key", section=f"{DISTILLATION}.teacher_models"),
    )
    yield pair_row(
        f"{TEACHER}.inference.tensor_model_parallel_size",
        f"{DISTILLATION}.n_gpus_per_node",
        lambda v: on(v) and not _teachers(v) and _pool(v) % _devices(v, "teacher_model"),
        source,
        1,
    )
    yield Requirement(
        f"{DISTILLATION}.n_gpus_per_node",
        lambda v: on(v) and _teachers(v) and _teacher_devices(v) != _pool(v),
        said(
            "the teachers need {{needed}} GPUs, and {section} has {{pool}} (n_gpus_per_node x nnodes): verl stops when it starts",
            section=DISTILLATION,
        ),
        source,
        said("set {key} so that n_gpus_per_node x nnodes is {{needed}}", key=f"{DISTILLATION}.n_gpus_per_node"),
        numbers={"needed": _teacher_devices, "pool": _pool},
    )
    length = f"{TEACHER}.inference.max_model_len"
    yield Requirement(
        length,
        lambda v: on(v) and not _teachers(v) and 0 < v.number(length, 0) < longest(v) + 1,
        said(
            "{key} is {{{key}}}, less than a prompt, a response and one token ({{needed}}): verl stops when it starts",
            key=length,
        ),
        source,
        Remedy(length, NEAREST),
        numbers={"needed": lambda v: longest(v) + 1},
    )
    yield Requirement(
        f"{DISTILLATION}.n_gpus_per_node",
        lambda v: on(v) and _straddles(v),
        said(
            "a teacher's engine has {{devices}} GPUs, and nodes have {{node}}: engines would lie across the border of two "
            "nodes, and verl stops when it starts the teacher"
        ),
        "verl/experimental/teacher_loop/teacher_model.py, TeacherModelManager._validate_replica_node_alignment",
        "choose parallel sizes that divide the GPUs of a node, or are multiples of them",
        numbers={
            "devices": lambda v: _devices(v, "teacher_model"),
            "node": lambda v: v.number(f"{DISTILLATION}.n_gpus_per_node", 0),
        },
    )


def _straddles(values: Values) -> bool:
    """Whether engines of one teacher, one after the other, would lie on more nodes than they need."""
    node, devices = values.number(f"{DISTILLATION}.n_gpus_per_node", 0), _devices(values, "teacher_model")
    replicas = _pool(values) // devices if not _teachers(values) else 0
    return any(
        (start + devices - 1) // node - start // node + 1 != -(-devices // node)
        for start in range(0, replicas * devices, devices)
    )


ROWS: tuple[Requirement, ...] = tuple(_distillation_rows())
