"""verl: forks that have keys of their own beside verl's. They are recognized by those keys and named; rlctl does not read them.

A row says which keys show the fork, which are its own, and which of them count what verl counts by another.
A fork whose files are not
verl's at all, such as EasyR1's, is among the other tools (``rlctl/translation/sources/other_tools.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from rlctl.adapters.engine.rules import Noted, matches, split, unsupported
from rlctl.adapters.engine.table import Table, generic
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.common.report import Finding, Level, Report, finding
from rlctl.documents import Document, KeyPath

A, R = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
GROUP, PROMPTS = f"{R}.n", "data.train_batch_size"


@record
class Fork:
    """A fork of verl, by its keys; ``*`` is any part and a last ``**`` all below."""

    name: str
    signs: tuple[str, ...]
    """Keys that no other fork has."""
    own: tuple[str, ...] = ()
    """Further keys that verl does not have."""
    counts: Mapping[str, str] = field(default_factory=dict)
    """Keys by which it counts the batch, with verl's key for the same; its mini-batches count other things too."""

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.signs, *self.own, *self.counts)

    def notes(self) -> tuple[Noted, ...]:
        """What the report says of its keys."""
        reason = said("a key of {name}, a fork of verl; rlctl does not read it", name=self.name)
        return tuple(replace(note, free=True) for note in unsupported(reason, *self.keys))


FORKS = (
    Fork(
        "verl-agent",
        ("env.env_name", "env.rollout.n", "algorithm.gigpo.**", f"{A}.use_invalid_action_penalty"),
        (
            "env.**",
            f"{A}.invalid_action_penalty_coef",
        ),
        {"env.rollout.n": GROUP},
    ),
    Fork(
        "Search-R1",
        ("retriever.**", f"{R}.n_agent", "do_search", f"{A}.state_masking"),
        (
            *("max_turns", "algorithm.state_masking.**", "algorithm.no_think_rl"),
            *(f"data.max_{name}_length" for name in ("start", "obs")),
            *(f"data.{name}" for name in ("train_data_num", "val_data_num", "shuffle_train_dataloader")),
            *("reward_model.structure_format_score", "reward_model.final_format_score"),
            "reward_model.retrieval_score",
        ),
        {f"{R}.n_agent": GROUP},
    ),
    Fork("rLLM", ("rllm.**",), ("agent.**", "env.**", f"{R}.enable_log_prob")),
    Fork("verl-tool", ("actor_rollout_ref.agent.**",)),
    Fork(
        "RAGEN",
        ("es_manager.**", "agent_proxy.**", "ctx_manager.**"),
        (
            *("system.**", "seed.**", "custom_envs.**", "enable_response_mask", "grpo_advantage_length_weight"),
            *("output.**", "lora.**", "micro_batch_size_per_gpu", "log_prob_micro_batch_size_per_gpu"),
            *("ppo_mini_batch_size", "model_path", f"{A}.use_ref", f"{A}.grpo_advantage_length_weight"),
            *(f"{A}.filter_loss_scaling", f"{R}.rollout_filter_*", f"{R}.tp_size_check"),
        ),
        {"es_manager.train.group_size": GROUP, "es_manager.train.env_groups": PROMPTS},
    ),
    Fork("VAGEN", ("rollout_manager.**",), (f"{R}.n_trajectory",), {f"{R}.n_trajectory": GROUP}),
)


def fork_of(document: Document, table: Table) -> Fork | None:
    """The fork that a document is for; None where it has no sign of one, or verl itself has those keys."""
    own = [path for path, _ in document.leaves() if table.releases(path) is None]
    return next((fork for fork in FORKS if _of(fork.signs, own)), None)


def _of(patterns: Sequence[str], paths: Sequence[KeyPath]) -> list[KeyPath]:
    known = [split(pattern) for pattern in patterns]
    return [path for path in paths if any(matches(pattern, generic(path)) for pattern in known)]


def with_own(table: Table, fork: Fork) -> Table:
    """The table with what it says of the fork's keys before what it says of verl's; verl's own keys keep their rules."""
    return replace(table, notes=(*fork.notes(), *table.notes))


def told(report: Report, fork: Fork) -> list[Finding]:
    """The findings of reading a fork's file: one for its keys, and no guess of what an unknown key may have been meant for.

    It is an error where the fork counts the batch by its own keys: read as verl's, the file would be another run.
    """
    keys = [split(key) for key in fork.keys]
    own = [entry for entry in report.accounting if any(matches(key, generic(split(entry.key))) for key in keys)]
    counted = next((entry.key for entry in own if entry.key in fork.counts), "")
    found = finding(
        "fork_counts" if counted else "fork",
        Level.ERROR if counted else Level.WARNING,
        counted or own[0].key,
        next(entry.at for entry in own if entry.key == (counted or own[0].key)),
        name=fork.name,
        count=len(own),
        names=", ".join(entry.key for entry in own[:4]) + (", ..." if len(own) > 4 else ""),
        instead=fork.counts.get(counted, ""),
    )
    rest = [replace(item, meant="", hint="") if item.code == "unknown-key" else item for item in report.findings]
    return [found, *rest]
