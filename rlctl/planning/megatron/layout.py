"""How a model can be shared in Megatron: what has to divide what, as arithmetic on a layout and the shape of a model.

    devices             by tensor * pipeline * context (a replica), and by expert * expert_tensor * pipeline
    heads               by tensor * context; kv heads by tensor, or tensor by kv heads, each of which then has copies
    width of the MLP    by tensor, of an expert by expert_tensor
    layers              by pipeline * virtual_pipeline
    experts             by expert
    devices of a node   by tensor, and by expert_tensor

The vocabulary is padded to a multiple of tensor, and the tokens of a micro-batch to what shares them: neither has to divide.
Source: the checks of Megatron-core's ``TransformerConfig``, ``parallel_state`` and ``MoELayer``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rlctl.common.messages.reasons import said, together, with_values
from rlctl.config.sections.train import Megatron
from rlctl.planning.models import ModelShape


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that a layout breaks."""

    key: str
    """Of the engine."""
    message: str
    """The arithmetic, and what does not divide."""
    hint: str
    """The nearest values that fit."""
    slow: bool = False
    """Whether it runs all the same, only slowly."""


def broken(
    engine: Megatron, *, devices: int, per_node: int, shape: ModelShape | None, section: str = "train"
) -> Iterator[Broken]:
    """The rules that a layout breaks.

    Args:
        engine: the layout.
        devices: of the role.
        per_node: devices of a node.
        shape: of the model; None where it is not known, and rules on it say nothing.
        section: whose engine it is.
    """
    found = [*_devices(engine, devices), *_nodes(engine, per_node), *_pipeline(engine, shape), *_options(engine)]
    if shape is not None:
        found += [*_widths(engine, shape), *_experts(engine, shape)]
    for each in found:
        yield replace(each, hint=with_values(each.hint, lambda text: text.replace("train.engine", f"{section}.engine")))


def _devices(engine: Megatron, devices: int) -> Iterator[Broken]:
    expert_tensor = engine.expert_tensor_parallel_size or engine.tensor_parallel_size
    expert, pipeline = engine.expert_parallel_size, engine.pipeline_parallel_size
    sharing = expert * expert_tensor * pipeline
    replica = engine.tensor_parallel_size * pipeline * engine.context_parallel_size
    if devices % replica == 0 and devices % sharing:
        yield Broken(
            "expert_parallel_size",
            said(
                "expert {expert} * expert_tensor {expert_tensor} * pipeline {pipeline} = {sharing}, which does not divide "
                "{devices} devices",
                expert=expert,
                expert_tensor=expert_tensor,
                pipeline=pipeline,
                sharing=sharing,
                devices=devices,
            ),
            said(
                "{one}, or {other}",
                one=_set(
                    "expert_parallel_size",
                    expert,
                    lambda size: devices % (sharing // expert * size) == 0,
                    devices,
                ),
                other=_set(
                    "expert_tensor_parallel_size",
                    expert_tensor,
                    lambda size: devices % (sharing // expert_tensor * size) == 0,
                    devices,
                ),
            ),
        )


def _nodes(engine: Megatron, per_node: int) -> Iterator[Broken]:
    for key in ("tensor_parallel_size", "expert_tensor_parallel_size"):
        size = getattr(engine, key) or 1
        if per_node % size:
            yield Broken(
                key,
                said(
                    "layers are shared by {size} devices on nodes of {per_node}: some would span several nodes",
                    size=size,
                    per_node=per_node,
                ),
                _set(key, size, lambda value: per_node % value == 0, per_node),
                slow=True,
            )


def _pipeline(engine: Megatron, shape: ModelShape | None) -> Iterator[Broken]:
    chunks, stages = engine.virtual_pipeline_parallel_size or 1, engine.pipeline_parallel_size
    if chunks > 1 and stages == 1:
        yield Broken(
            "virtual_pipeline_parallel_size",
            said("{chunks} chunks of layers on each stage, but there is only one stage", chunks=chunks),
            said(
                "set {stages} to 2 or more, or {chunks} to null",
                stages="train.engine.pipeline_parallel_size",
                chunks="train.engine.virtual_pipeline_parallel_size",
            ),
        )
    if shape is None or any(engine.transformer.get(name) for name in UNEVEN):
        return
    further = [word for word, name in COUNTED.items() if engine.transformer.get(name)]
    layers = shape.layers + len(further)
    if layers % (stages * chunks) == 0:
        return
    counted = together([said("{count} layers", count=shape.layers), *further], {"en": " + ", "zh": " + "})
    what = said("{sum} = {layers}", sum=counted, layers=layers) if further else counted
    each = f"pipeline {stages}" + (f" * virtual_pipeline {chunks} = {stages * chunks}" if chunks > 1 else "")
    by_stages = layers % stages == 0
    key, value, most = (
        ("virtual_pipeline_parallel_size", chunks, layers) if by_stages else ("pipeline_parallel_size", stages, layers)
    )
    other = stages if by_stages else chunks
    yield Broken(
        key,
        said("{what} are not divisible by {each}", what=what, each=each),
        said(
            "{nearest}, or set the layers of each stage with {key}",
            nearest=_set(key, value, lambda size: layers % (size * other) == 0, most),
            key="train.engine.transformer.pipeline_model_parallel_layout",
        ),
    )


UNEVEN = (
    "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage",
    "pipeline_model_parallel_layout",
)
"""Settings of Megatron's with which stages are not alike; Megatron checks them itself."""
COUNTED = {"embedding": "account_for_embedding_in_pipeline_split", "loss": "account_for_loss_in_pipeline_split"}
"""What counts as a layer where stages are made alike, by the setting that says so."""


def in_one_piece(engine: Megatron) -> Megatron:
    """The engine with a model that nothing is shared of."""
    spread = (*UNEVEN, *COUNTED.values())
    return replace(
        engine,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        virtual_pipeline_parallel_size=None,
        context_parallel_size=1,
        expert_parallel_size=1,
        expert_tensor_parallel_size=None,
        distributed_optimizer=False,
        overlap_gradient_reduce=False,
        overlap_parameter_gather=False,
        transformer={name: value for name, value in engine.transformer.items() if name not in spread},
        ddp={},
        optimizer_overrides={},
    )


def _widths(engine: Megatron, shape: ModelShape) -> Iterator[Broken]:
    tensor, heads, kv = engine.tensor_parallel_size, shape.heads, shape.kv_heads

    def fits(size: int) -> bool:
        dense = shape.intermediate % size == 0 or shape.dense_layers == 0
        return shape.shares_heads(size) and dense

    whole = {"{count} heads": heads, "an MLP size of {count}": shape.intermediate if shape.dense_layers else 0}
    wrong = [said(what, count=count) for what, count in whole.items() if count % tensor]
    if kv % tensor and tensor % kv:
        wrong.append(said("{count} kv heads", count=kv))
    if wrong:
        yield Broken(
            "tensor_parallel_size",
            said(
                "{counts} are not divisible by the tensor parallel size {tensor}",
                counts=together(wrong, {"en": " and ", "zh": "、"}),
                tensor=tensor,
            ),
            _set("tensor_parallel_size", tensor, fits, heads),
        )
    elif heads // tensor % engine.context_parallel_size:
        yield Broken(
            "context_parallel_size",
            said(
                "{heads} heads / tensor parallel size {tensor} = {each}, which is not divisible by the context parallel "
                "size {context}",
                heads=heads,
                tensor=tensor,
                each=heads // tensor,
                context=engine.context_parallel_size,
            ),
            _set(
                "context_parallel_size",
                engine.context_parallel_size,
                lambda size: heads // tensor % size == 0,
                heads // tensor,
            ),
        )


def _experts(engine: Megatron, shape: ModelShape) -> Iterator[Broken]:
    if not shape.experts:
        if engine.expert_parallel_size > 1:
            yield Broken(
                "expert_parallel_size",
                said(
                    "experts are split over {devices} devices, but the model has no experts",
                    devices=engine.expert_parallel_size,
                ),
                said("set {key} to {values}", key="train.engine.expert_parallel_size", values="1"),
            )
        return
    if shape.experts % engine.expert_parallel_size:
        yield Broken(
            "expert_parallel_size",
            said(
                "{experts} experts are not divisible by the expert parallel size {expert}",
                experts=shape.experts,
                expert=engine.expert_parallel_size,
            ),
            _set(
                "expert_parallel_size",
                engine.expert_parallel_size,
                lambda size: shape.experts % size == 0,
                shape.experts,
            ),
        )
    expert_tensor = engine.expert_tensor_parallel_size or engine.tensor_parallel_size
    if shape.expert_intermediate % expert_tensor:
        yield Broken(
            "expert_tensor_parallel_size",
            said(
                "an expert's intermediate size {size} is not divisible by the expert tensor parallel size {expert_tensor}",
                size=shape.expert_intermediate,
                expert_tensor=expert_tensor,
            ),
            _set(
                "expert_tensor_parallel_size",
                expert_tensor,
                lambda size: shape.expert_intermediate % size == 0,
                engine.tensor_parallel_size,
            ),
        )
    if engine.tensor_parallel_size > 1 and not engine.sequence_parallel:
        yield Broken(
            "sequence_parallel",
            said(
                "with tensor_parallel_size {tensor}, Megatron trains experts only with sequence parallelism",
                tensor=engine.tensor_parallel_size,
            ),
            said("set {key} to {values}", key="train.engine.sequence_parallel", values="true"),
        )


def _options(engine: Megatron) -> Iterator[Broken]:
    """Settings that Megatron takes together only."""
    if engine.overlap_parameter_gather and not (engine.distributed_optimizer and engine.overlap_gradient_reduce):
        yield Broken(
            "overlap_parameter_gather",
            "Megatron overlaps parameter gathering only with a distributed optimizer and overlapped gradient reduction",
            said(
                "set {one} and {other} to true",
                one="train.engine.distributed_optimizer",
                other="train.engine.overlap_gradient_reduce",
            ),
        )
    if engine.moe.dispatcher == "allgather" and engine.pipeline_parallel_size > 1:
        yield Broken(
            "moe.dispatcher",
            "Megatron's allgather dispatcher needs micro-batches of equal length, but those of a pipeline differ",
            said("set {key} to {values}", key="train.engine.moe.dispatcher", values="alltoall"),
        )
    if engine.moe.layer_recompute and engine.recompute_granularity == "full":
        yield Broken(
            "moe.layer_recompute",
            "with full recomputation, experts are recomputed too",
            said(
                "set {layer} to false, or {granularity} to selective",
                layer="train.engine.moe.layer_recompute",
                granularity="train.engine.recompute_granularity",
            ),
        )


def _set(key: str, value: int, fits: Callable[[int], bool], most: int) -> str:
    """The values nearest to one that does not fit, of those up to ``most`` that do."""
    known = [size for size in range(1, max(most, value) + 1) if fits(size)]
    below = [size for size in known if size < value][-1:]
    above = [size for size in known if size > value][:1]
    nearest = together(map(str, (*below, *above)), {"en": " or ", "zh": " 或 "}) or "1"
    return said("set {key} to {values}", key=f"train.engine.{key}", values=nearest)
