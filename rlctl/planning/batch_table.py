"""The batch arithmetic of a config as rows, from the prompts of a step to the micro-batches, each with formula and source key.

The numbers are those of ``arithmetic``; here they get a name, and what does not divide gets the names of those who refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from rlctl.common.errors import PlanError
from rlctl.common.messages.reasons import said, together
from rlctl.common.report import Report
from rlctl.config import Config, Loaded, Source, stages_of
from rlctl.config.sections.train import Fsdp2, Megatron
from rlctl.documents import KeyPath, dotted
from rlctl.planning import arithmetic

Find = Callable[[KeyPath], Source | None]
"""Where a canonical value came from; None where nobody said it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One number: its name, its value, how it is computed, and what in the source it comes from."""

    name: str
    value: int | float | str
    unit: str
    formula: str = ""
    key: str = ""
    """In the source's own dialect."""
    file: str | None = None
    line: int | None = None
    default: bool = False
    """Whether the source is silent, so that it is a default."""
    note: str = ""
    """What does not divide, and who refuses it."""

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def rows(config: Config, find: Find, formula: Callable[[KeyPath], str] = lambda path: "") -> list[Row]:
    """The arithmetic of one stage.

    Args:
        config: without stages.
        find: where a canonical value came from.
        formula: how reading computed a canonical value from the source's keys; empty where it is the source's own.
    """
    return [_placed(row, path, find, formula) if path else row for row, path in _rows(config)]


def rows_by_stage(loaded: Loaded, report: Report) -> list[tuple[str, list[Row]]]:
    """The rows of each stage, by its name; a number that reading computed shows how."""
    formulas = {key: entry.note for entry in report.accounting for key, _ in entry.targets if entry.bucket == "derived"}

    def rows_of(index: int, config: Config) -> list[Row]:
        def find(path: KeyPath) -> Source | None:
            return loaded.sources.get(("stages", index, *path)) or loaded.sources.get(path)

        def formula(path: KeyPath) -> str:
            return formulas.get(dotted(("stages", index, *path))) or formulas.get(dotted(path), "")

        return rows(config, find, formula)

    return [(stage.name, rows_of(index, stage.config)) for index, stage in enumerate(stages_of(loaded.config))]


def _placed(row: Row, path: KeyPath, find: Find, formula: Callable[[KeyPath], str]) -> Row:
    source = find(path)
    place = source.at if source is not None else None
    return replace(
        row,
        formula=row.formula or formula(path),
        key=(source.key if source is not None else "") or dotted(path),
        file=place.file if place is not None else None,
        line=place.line if place is not None else None,
        default=source is None or source.kind == "dialect_default",
    )


def _rows(config: Config) -> Iterator[tuple[Row, KeyPath]]:
    batch = config.batch
    prompts, group, step = batch.prompts_per_step, batch.responses_per_prompt, arithmetic.responses_per_step(config)
    mini, passes = arithmetic.mini_batch_responses(config), arithmetic.mini_batches_per_epoch(config)
    from_data = step == prompts and group != 1
    yield Row("prompts of a step", prompts, "prompts"), ("batch", "prompts_per_step")
    if not from_data:
        yield Row("responses of a prompt", group, "responses"), ("batch", "responses_per_prompt")
    formula = said("{prompts} rows, one response each", prompts=prompts) if from_data else f"{prompts} x {group}"
    yield Row("responses of a step", step, "responses", formula), ()
    formula = "" if batch.mini_batch_responses else "the whole step"
    yield Row("mini-batch", mini, "responses", formula), ("batch", "mini_batch_responses")
    formula, note = f"ceil({step} / {mini})", _uneven(step, mini)
    yield Row("mini-batches of a pass", passes, "mini-batches", formula, note=note), ()
    yield Row("passes over a step", batch.ppo_epochs, "passes"), ("batch", "ppo_epochs")
    steps = arithmetic.optimizer_steps_per_step(config)
    yield Row("optimizer steps of a step", steps, "optimizer steps", f"{passes} x {batch.ppo_epochs}"), ()
    yield from _replicas(config, step, mini)


def _replicas(config: Config, step: int, mini: int) -> Iterator[tuple[Row, KeyPath]]:
    placement, total = config.placement, arithmetic.train_devices(config)
    each = arithmetic.devices_per_replica(config.train.engine)
    formula = f"{placement.nodes} x {placement.devices_per_node}"
    if placement.layout != "colocated":
        formula += said(", less {rollout_devices} for rollout", rollout_devices=arithmetic.exploring_devices(config))
    yield Row("training devices", total, "devices", formula), ("placement", "devices_per_node")
    yield Row("devices of a replica", each, "devices", _replica_formula(config)), ()
    try:
        replicas = arithmetic.train_replicas(config)
    except PlanError as error:
        yield Row("replicas", "none", "replicas", f"{total} / {each}", note=error.message), ()
        return
    yield Row("replicas", replicas, "replicas", f"{total} / {each}"), ()
    share = mini / replicas
    note = together([_shared_unevenly(mini, replicas), *_refusals(config, step, mini, replicas)])
    yield Row("mini-batch on a replica", _short(share), "responses", f"{mini} / {replicas}", note=note), ()
    yield from _micro(config, share)


def _replica_formula(config: Config) -> str:
    engine = config.train.engine
    if isinstance(engine, Megatron):
        tensor, pipeline, context = (
            engine.tensor_parallel_size,
            engine.pipeline_parallel_size,
            engine.context_parallel_size,
        )
        return said(
            "{tensor} tensor x {pipeline} pipeline x {context} context",
            tensor=tensor,
            pipeline=pipeline,
            context=context,
        )
    return (
        said(
            "{ulysses_sequence_parallel_size} sequence parallel",
            ulysses_sequence_parallel_size=engine.ulysses_sequence_parallel_size,
        )
        if isinstance(engine, Fsdp2)
        else ""
    )


def _micro(config: Config, share: float) -> Iterator[tuple[Row, KeyPath]]:
    longest = config.data.max_prompt_tokens + config.rollout.max_response_tokens
    if config.algorithm.objective.choice in ("sft", "dpo"):
        longest = config.data.max_sequence_tokens or config.model.max_context_tokens or longest
    sharing = arithmetic.devices_per_sequence(config.train.engine)
    training = ("micro-batch", "micro-batches of a mini-batch")
    log_prob = ("log-prob micro-batch", "log-prob micro-batches of a mini-batch")
    for (name, count), micro, path in (
        (training, config.batch.micro_batch, ("batch", "micro_batch", "size")),
        (log_prob, config.batch.log_prob_micro_batch, ("batch", "log_prob_micro_batch", "size")),
    ):
        if micro is None:
            continue
        yield Row(name, micro.size, said("{unit} on a replica", unit=micro.unit)), path
        if micro.unit == "responses":
            number = -(-_ceil(share) // micro.size)
            yield Row(count, number, "micro-batches", f"ceil({_ceil(share)} / {micro.size})"), ()
        else:
            tokens = _ceil(share) * longest
            formula = said(
                "ceil({ceil} x {longest} tokens at most / {size})", ceil=_ceil(share), longest=longest, size=micro.size
            )
            note = ""
            if longest > micro.size:
                note = said(
                    "a sequence may have {longest} tokens, more than a micro-batch of {size}",
                    longest=longest,
                    size=micro.size,
                )
                note += said(" on each of the {sharing} devices that share it", sharing=sharing) if sharing > 1 else ""
            yield (
                Row(count, said("up to {value}", value=-(-tokens // micro.size)), "micro-batches", formula, note=note),
                (),
            )


def _ceil(number: float) -> int:
    return -int(-number // 1)


def _short(number: float) -> int | float:
    return int(number) if number == int(number) else round(number, 3)


def _uneven(step: int, mini: int) -> str:
    if mini > step:
        return said(
            "a mini-batch of {mini} is larger than the step of {step}: verl refuses it; rlctl takes the step as one mini-batch",
            mini=mini,
            step=step,
        )
    if step % mini == 0:
        return ""
    full, rest = divmod(step, mini)
    near = arithmetic.nearest_multiples(step, mini)
    return said(
        "{step} = {full} x {mini} + {rest}: rlctl's last mini-batch has {rest} responses. ROLL refuses such a step, verl's "
        "newest trainer pads it, Trinity never has one; {near} responses would be even",
        step=step,
        full=full,
        mini=mini,
        rest=rest,
        near=near,
    )


def _shared_unevenly(mini: int, replicas: int) -> str:
    if mini % replicas == 0:
        return ""
    near = arithmetic.nearest_multiples(mini, replicas)
    return said(
        "{mini} / {replicas} is not whole: in rlctl, replicas differ by one response; {near} would be even",
        mini=mini,
        replicas=replicas,
        near=near,
    )


def _refusals(config: Config, step: int, mini: int, replicas: int) -> Iterator[str]:
    """Who refuses the division over devices, each by its own rule."""
    total = arithmetic.train_devices(config)
    by_responses = config.batch.micro_batch.unit == "responses"
    if mini % replicas:
        yield said(
            "verl's workers, Trinity's trainer and ROLL refuse it ({mini} % {replicas} = {value})",
            mini=mini,
            replicas=replicas,
            value=mini % replicas,
        )
    if isinstance(config.train.engine, Megatron):
        least = replicas * config.batch.micro_batch.size
    else:
        least = total
    if by_responses and step % least:
        yield said(
            "verl refuses the step: {step} % {least} = {value}, unless its batches are dynamic",
            step=step,
            least=least,
            value=step % least,
        )
    if isinstance(config.train.engine, Megatron) and config.batch.prompts_per_step % replicas:
        rest = config.batch.prompts_per_step % replicas
        yield said(
            "ROLL's Megatron refuses the step: {prompts_per_step} prompts % {replicas} = {rest}",
            prompts_per_step=config.batch.prompts_per_step,
            replicas=replicas,
            rest=rest,
        )
