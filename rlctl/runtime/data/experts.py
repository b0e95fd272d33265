"""Where the expert responses of mix are: the auxiliary buffer that holds them, as a source of training sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlctl.common.errors import PlanError, RunError, nearest
from rlctl.common.messages.reasons import said
from rlctl.config.sections.data import DataSource
from rlctl.config.sections.execution import AuxiliaryBuffer
from rlctl.runtime.data.stream import Stream
from rlctl.runtime.types import Sample

NAMED = "sft_dataset"
"""The name that Trinity-RFT takes where ``algorithm.sample_strategy_args.sft_dataset_name`` says none."""

TRINITYS_MESSAGES = "message_list"
"""The column of conversations in the tables that Trinity-RFT writes."""

_FIELDS = {"name": "name", "split": "split", "subset_name": "subset", "system_prompt": "system_prompt"}
"""Settings of an auxiliary buffer, and what they are of a source."""

_KNOWN = (*_FIELDS, "schema_type", "total_epochs")


@dataclass(frozen=True, slots=True)
class ExpertSpec:
    """Which expert responses a step takes."""

    buffers: Mapping[str, AuxiliaryBuffer]
    """The section ``buffer.auxiliary``."""
    wanted: str
    """The name that the config gives, or ``NAMED``."""
    per_step: int


def expert_source(spec: ExpertSpec) -> tuple[DataSource, str]:
    """The source of the experts and its place in the config.

    Raises:
        RunError: there is none, or more than one and none of them is named, or it has settings that nothing reads.
    """
    found, wanted = spec.buffers, spec.wanted
    name = wanted if wanted in found else next(iter(found), "") if len(found) == 1 and wanted == NAMED else ""
    if not name:
        has = ", ".join(found) or "none"
        raise RunError(
            said(
                "mix needs expert responses in buffer.auxiliary.{wanted}; the config has {has}", wanted=wanted, has=has
            ),
            hint=said("set buffer.auxiliary.{wanted}: {{path: experts.jsonl, messages_key: messages}}", wanted=wanted),
        )
    chosen, key = found[name], f"buffer.auxiliary.{name}"
    if chosen.format == "queue":
        raise RunError(
            said(
                "{key}.format is queue, which only Trinity-RFT's own processes fill; rlctl reads expert responses "
                "from files, hubs and databases",
                key=key,
            )
        )
    unknown = sorted(set(chosen.settings) - set(_KNOWN))
    if unknown:
        raise RunError(
            said("{key}.settings.{unknown} is not a known setting", key=key, unknown=unknown[0]),
            hint=nearest(unknown[0], _KNOWN) or said("expected one of {names}", names=", ".join(_KNOWN)),
        )
    fields: dict[str, Any] = {field: chosen.settings[old] for old, field in _FIELDS.items() if old in chosen.settings}
    fields |= {"messages_key": chosen.messages_key, "response_key": chosen.response_key}
    if chosen.prompt_key is not None:
        fields["prompt_key"] = chosen.prompt_key
    if chosen.format == "sql":
        fields = {"format": "sql", "name": name, **fields}
        if (chosen.messages_key, chosen.response_key) == (None, None):
            fields["messages_key"] = TRINITYS_MESSAGES
    return DataSource(path=chosen.path, prompt_type=chosen.prompt_type, **fields), key


def check_experts_last(spec: ExpertSpec, experts: Stream[Sample], steps: int) -> None:
    """Refuse a run that passes over the expert responses more often than their ``total_epochs`` allows.

    Raises:
        PlanError: it does; Trinity-RFT would end there.
    """
    _, key = expert_source(spec)
    most = spec.buffers[key.rpartition(".")[2]].settings.get("total_epochs")
    needed = -(-steps * experts.per_step // experts.rows)
    if isinstance(most, int) and needed > most:
        raise PlanError(
            said(
                "{steps} steps take {value} expert responses, {needed} passes over {rows}; "
                "{key}.settings.total_epochs is {most}",
                steps=steps,
                value=steps * experts.per_step,
                needed=needed,
                rows=experts.rows,
                key=key,
                most=most,
            ),
            hint=said(
                "set it to {needed}, or schedule.total_steps to {value}",
                needed=needed,
                value=most * experts.rows // experts.per_step,
            ),
        )
