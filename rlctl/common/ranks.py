"""How much a difference between two configs matters: six ranks, and the rank of every canonical key. Data only.

A conversion report lists its lines by rank, so that what stops or changes a run comes before what only makes it slower.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache

from rlctl.common.messages import text


class Rank(StrEnum):
    """Kinds of differences by what they change, the gravest first."""

    BREAKS = "breaks"
    OBJECTIVE = "objective"
    SCHEDULE = "schedule"
    DATA = "data"
    RESOURCES = "resources"
    NAMES = "names"

    @property
    def place(self) -> int:
        return _PLACES[self]

    @property
    def heading(self) -> str:
        """The heading above the differences of this rank in a report."""
        return text(f"rank-{self}")

    @property
    def changes_training(self) -> bool:
        """Whether the run trains something else, or on another schedule or batch: a conversion warns of it."""
        return self in (Rank.BREAKS, Rank.OBJECTIVE, Rank.SCHEDULE)


_PLACES = {rank: place for place, rank in enumerate(Rank)}

BY_KEY: Mapping[str, Rank] = {
    "run": Rank.NAMES,
    "run.mode": Rank.OBJECTIVE,
    "run.seed": Rank.DATA,
    "run.deterministic": Rank.RESOURCES,
    "run.skip": Rank.DATA,
    "model": Rank.DATA,
    "model.path": Rank.OBJECTIVE,
    "model.lora": Rank.OBJECTIVE,
    "model.lora.name": Rank.NAMES,
    "model.lora.merge_for_rollout": Rank.RESOURCES,
    "model.freeze": Rank.OBJECTIVE,
    "model.multi_token_prediction": Rank.OBJECTIVE,
    "model.attention": Rank.RESOURCES,
    "model.stage_in_shared_memory": Rank.RESOURCES,
    "model.trust_remote_code": Rank.NAMES,
    "model.import_modules": Rank.NAMES,
    "data": Rank.DATA,
    "data.curriculum.order": Rank.SCHEDULE,
    "data.loader_workers": Rank.RESOURCES,
    "data.filter_workers": Rank.RESOURCES,
    "data.stage_in_shared_memory": Rank.RESOURCES,
    "data.trust_remote_code": Rank.NAMES,
    "data.evaluation_batch_prompts": Rank.RESOURCES,
    "batch": Rank.SCHEDULE,
    "batch.micro_batch": Rank.RESOURCES,
    "batch.log_prob_micro_batch": Rank.RESOURCES,
    "batch.balance": Rank.RESOURCES,
    "batch.round_tokens_to": Rank.RESOURCES,
    "batch.shuffle_seed": Rank.DATA,
    "schedule": Rank.SCHEDULE,
    "algorithm": Rank.OBJECTIVE,
    "algorithm.preset": Rank.NAMES,
    "rollout": Rank.DATA,
    "rollout.engine": Rank.RESOURCES,
    "rollout.parallel": Rank.RESOURCES,
    "rollout.memory": Rank.RESOURCES,
    "rollout.memory.quantization": Rank.DATA,
    "rollout.timeouts": Rank.RESOURCES,
    "rollout.max_running_prompts": Rank.RESOURCES,
    "rollout.split_groups": Rank.RESOURCES,
    "rollout.agent_workers": Rank.RESOURCES,
    "rollout.oversampling": Rank.SCHEDULE,
    "rollout.openai_server": Rank.NAMES,
    "rollout.runners_per_engine": Rank.RESOURCES,
    "rollout.report_every": Rank.NAMES,
    "rollout.env_vars": Rank.NAMES,
    "rollout.log_responses": Rank.NAMES,
    "rollout.log_evaluation_responses": Rank.NAMES,
    "rollout.responses_folder": Rank.NAMES,
    "rollout.evaluation_folder": Rank.NAMES,
    "rollout.sampling.log_probs": Rank.RESOURCES,
    "train": Rank.RESOURCES,
    "train.optimizer": Rank.OBJECTIVE,
    "train.optimizer.lr": Rank.SCHEDULE,
    "train.lr_scheduler": Rank.SCHEDULE,
    "train.precision": Rank.RESOURCES,
    "train.seed": Rank.DATA,
    "critic": Rank.RESOURCES,
    "critic.model": Rank.OBJECTIVE,
    "critic.optimizer": Rank.OBJECTIVE,
    "critic.optimizer.lr": Rank.SCHEDULE,
    "critic.lr_scheduler": Rank.SCHEDULE,
    "critic.value_loss": Rank.OBJECTIVE,
    "critic.mini_batch_responses": Rank.SCHEDULE,
    "critic.ppo_epochs": Rank.SCHEDULE,
    "critic.shuffle": Rank.SCHEDULE,
    "critic.shuffle_seed": Rank.DATA,
    "critic.seed": Rank.DATA,
    "critic.model.attention": Rank.RESOURCES,
    "critic.model.trust_remote_code": Rank.NAMES,
    "critic.model.stage_in_shared_memory": Rank.RESOURCES,
    "reference": Rank.RESOURCES,
    "reference.model": Rank.OBJECTIVE,
    "reference.model.attention": Rank.RESOURCES,
    "reference.model.trust_remote_code": Rank.NAMES,
    "reference.model.stage_in_shared_memory": Rank.RESOURCES,
    "rewards": Rank.DATA,
    "reward_loop": Rank.RESOURCES,
    "weight_sync": Rank.SCHEDULE,
    "weight_sync.style": Rank.RESOURCES,
    "weight_sync.method": Rank.RESOURCES,
    "weight_sync.bucket_mib": Rank.RESOURCES,
    "weight_sync.timeout": Rank.RESOURCES,
    "weight_sync.args": Rank.RESOURCES,
    "placement": Rank.RESOURCES,
    "buffer": Rank.RESOURCES,
    "buffer.replay": Rank.OBJECTIVE,
    "buffer.auxiliary": Rank.DATA,
    "buffer.label": Rank.NAMES,
    "buffer.log_path": Rank.NAMES,
    "checkpoint": Rank.NAMES,
    "checkpoint.asynchronous": Rank.RESOURCES,
    "checkpoint.writers": Rank.RESOURCES,
    "tracking": Rank.NAMES,
    "profiling": Rank.NAMES,
    "runtime": Rank.NAMES,
    "runtime.ray": Rank.RESOURCES,
    "runtime.device_memory_check": Rank.RESOURCES,
    "service": Rank.NAMES,
    "stages": Rank.OBJECTIVE,
    "extensions": Rank.NAMES,
    "rlctl": Rank.NAMES,
}
"""The rank of each canonical key, by its beginning; the longest one decides."""
BY_ARGUMENT: Mapping[str, Rank] = {
    **dict.fromkeys(
        (f"train.engine.args.{name}" for name in ("rank", "train_mlp", "train_attn", "train_unembed")), Rank.OBJECTIVE
    ),
    "algorithm.distillation.args.teacher_engine": Rank.RESOURCES,
}
"""The rank of arguments that the schema doesn't list, where it is not that of the mapping they are in: Tinker's adapter, and the
engine of a teacher."""

BY_CODE: Mapping[str, Rank] = {
    "not-expressible": Rank.BREAKS,
    "not-readable": Rank.BREAKS,
    "target-refuses": Rank.BREAKS,
    "data-files": Rank.BREAKS,
    "start-script": Rank.BREAKS,
    "unreadable": Rank.BREAKS,
    "unset": Rank.BREAKS,
    "lost-overrides": Rank.BREAKS,
    "unresolved": Rank.BREAKS,
    "bad-value": Rank.BREAKS,
    "devices-uneven": Rank.BREAKS,
    "uncallable-reward": Rank.BREAKS,
    "unknown-dialect": Rank.BREAKS,
    "option": Rank.OBJECTIVE,
    "other-gradient": Rank.OBJECTIVE,
    "key-unread": Rank.OBJECTIVE,
    "other-trainer": Rank.OBJECTIVE,
    "rows-counted": Rank.NAMES,
    "hybrid-replicas": Rank.RESOURCES,
    "other-reward": Rank.OBJECTIVE,
    "other-observations": Rank.OBJECTIVE,
    "unknown-algorithm": Rank.OBJECTIVE,
    "fork": Rank.OBJECTIVE,
    "added-key": Rank.BREAKS,
    "other-engines-key": Rank.BREAKS,
    "no-release-key": Rank.BREAKS,
    "cut-responses-masked": Rank.OBJECTIVE,
    "endless-schedule": Rank.SCHEDULE,
    "rows-of-steps": Rank.SCHEDULE,
    "optimizer-replaced": Rank.OBJECTIVE,
    "reward-missing": Rank.DATA,
    "micro-batches-in-sequences": Rank.RESOURCES,
    "devices-shared": Rank.RESOURCES,
    "base-config": Rank.NAMES,
    "composed-config": Rank.NAMES,
    "shipped-config": Rank.NAMES,
    "exports": Rank.NAMES,
    "run-name": Rank.NAMES,
    "resume-latest": Rank.BREAKS,
    "launch": Rank.NAMES,
    "micro-batches-added": Rank.OBJECTIVE,
    "other-release": Rank.OBJECTIVE,
    "nearest-release": Rank.OBJECTIVE,
    "release-assumed": Rank.OBJECTIVE,
    "releases-differ": Rank.OBJECTIVE,
    "newer-ignores": Rank.OBJECTIVE,
    "data-columns": Rank.DATA,
    "other-data-and-reward": Rank.DATA,
    "other-environment": Rank.DATA,
    "tools-unused": Rank.DATA,
    "secret": Rank.NAMES,
    "not-carried": Rank.NAMES,
    "not-restored": Rank.NAMES,
    "restored": Rank.NAMES,
    "environment": Rank.NAMES,
    "environment-fixed": Rank.NAMES,
    "interpolation-resolved": Rank.NAMES,
    "detected": Rank.NAMES,
}
"""The rank of findings that are about more than their key."""
OF_THEIR_KEY = frozenset(
    {
        "assumed",
        "silent-difference",
        "unknown-key",
        "missing-value",
        "unsupported",
        "no-equivalent",
        "set",
        "option-left",
    }
)
"""Findings of a conversion that have the rank of their key."""

_PLACE = re.compile(r"\[[^\]]*\]|<[^>]*>|\{\}")
_STAGE = re.compile(r"^stages\[\d+\]\.")


def rank_of(key: str, table: Mapping[str, Rank] = BY_KEY) -> Rank | None:
    """The rank of a key by a table, in which ``*`` is any first part; None if no beginning of the key is in it."""
    return _longest(key, table) if table is not BY_KEY else _canonical(key)


@cache
def _canonical(key: str) -> Rank | None:
    return _longest(key, {**BY_KEY, **BY_ARGUMENT})


LOSS_TERMS = frozenset(
    {
        *("moe_aux_loss_coeff", "moe_aux_loss_coef", "router_aux_loss_coef", "aux_loss_coef", "moe_z_loss_coeff"),
        *("moe_router_load_balancing_type", "mtp_loss_scaling_factor"),
    }
)
"""Settings of models that add a term to the loss, wherever an engine keeps them."""


def _longest(key: str, table: Mapping[str, Rank]) -> Rank | None:
    parts = _PLACE.sub("", _STAGE.sub("", key)).replace("\\", "").split(".")
    if parts[-1] in LOSS_TERMS:
        return Rank.OBJECTIVE
    for length in range(len(parts), 0, -1):
        for first in (parts[0], "*"):
            if (found := table.get(".".join([first, *parts[1:length]]))) is not None:
                return found
    return None
