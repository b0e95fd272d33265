"""verl as people launch it: a list of Hydra overrides, or a bash script with them in arrays, by kind of file and release."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlctl.adapters.engine.dialect import File
from rlctl.adapters.engine.rules import split, version_of
from rlctl.adapters.engine.schema import Composition
from rlctl.adapters.engine.secrets import is_secret
from rlctl.adapters.engine.table import Table, generic
from rlctl.adapters.engine.tree import find, remove
from rlctl.common.errors import TranslationError
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.documents import Comment, KeyPath
from rlctl.documents.overrides_write import Change, changes
from rlctl.documents.paths import copied
from rlctl.documents.yaml_write import comment_line
from rlctl.shell.write import bash_override

MODULES: Mapping[str, str] = {
    "ppo": "verl.trainer.main_ppo",
    "sft_engine": "verl.trainer.sft_trainer",
    "sft": "verl.trainer.fsdp_sft_trainer",
    "evaluation": "verl.trainer.main_eval",
    "generation": "verl.trainer.main_generation",
    "generation_server": "verl.trainer.main_generation_server",
}
"""The entry point of each kind of file."""

SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("DATA", ("data", "algorithm")),
    ("MODEL", ("actor_rollout_ref.model", "model")),
    ("ACTOR", ("actor_rollout_ref.actor", "engine", "optim")),
    ("ROLLOUT", ("actor_rollout_ref.rollout",)),
    ("REF", ("actor_rollout_ref.ref",)),
    ("CRITIC", ("critic",)),
    ("REWARD", ("reward", "reward_model", "custom_reward_function", "sandbox_fusion")),
    ("TRAINER", ("trainer",)),
)
"""The arrays of a script, as verl's own examples have them; what is in none of them stands in ``EXTRA``."""

ENGINES = (
    "model_engine",
    "actor_rollout_ref.actor.strategy",
    "actor_rollout_ref.ref.strategy",
    "critic.strategy",
    "engine.strategy",
)
"""Keys that name an engine; one that a config group chooses is named by the group alone."""
COMPOSED = ("fsdp", "megatron", "veomni", "torchtitan", "mindspeed", "automodel")
"""Engines that verl has a config group for; what another one is named by, as fsdp2 or a fork's, overrides the usual group."""
ENGINE_KINDS = ("ppo", "sft_engine", "generation_server")
"""The kinds of file that are composed for an engine."""
GROUPS = ("megatron", "veomni", "torchtitan")
"""Engines that a config group chooses; the others are named by ``strategy``."""
GROUP_SINCE = "0.8"
"""From this release on a config group chooses Megatron; before, a config file of its own does."""


@record
class VerlLauncher:
    """What starts verl: the command, and the overrides it is given."""

    command: tuple[str, ...]
    """Words of bash, options of Hydra included."""
    changes: tuple[Change, ...]


def overrides_text(file: File, table: Table) -> str:
    """One override a line.

    Raises:
        TranslationError: overrides alone cannot say it.
    """
    launch = launch_of(file, table)
    if any(word.startswith("--config-name") for word in launch.command):
        raise TranslationError(
            said("verl@{release} chooses Megatron by a config file, which no override can do", release=file.release),
            hint="write a launch script: --format sh, or a newer release: --to verl@0.9",
        )
    return "\n".join(change.text() for change in launch.changes) + "\n"


def script_text(file: File, table: Table, comments: Mapping[KeyPath, Comment], tail: Sequence[str]) -> str:
    """A launch script that runs as it is; further overrides may follow its name."""
    launch = launch_of(file, table)
    head = [line for line in comments.get((), Comment()).above if not line.startswith("!")]
    lines = ["#!/usr/bin/env bash", *(comment_line(line) or "#" for line in head), "set -xeuo pipefail", ""]
    arrays = [(name, list(_array(own, file, comments))) for name, own in _sections(launch.changes)]
    text = "\n".join(line for _, array in arrays for line in array)
    names = [f"{name}_ARGS" if re.search(rf"\${{(oc\.env:)?{name}\b", text) else name for name, _ in arrays]
    for name, (_, array) in zip(names, arrays, strict=True):  # an array would hide the environment variable of its name
        lines += [f"{name}=(", *array, ")", ""]
    words = [" ".join(launch.command), *(f'"${{{name}[@]}}"' for name in names), '"$@"']
    lines += [" \\\n    ".join(words)]
    if tail:
        lines += ["", *(comment_line(line) for line in tail)]
    return "\n".join(lines) + "\n"


def _array(own: Sequence[Change], file: File, comments: Mapping[KeyPath, Comment]) -> Iterator[str]:
    told: set[KeyPath] = set()
    for change in own:
        above, beside = _comments(change.path, comments, told)
        yield from (f"    {comment_line(line)}" for line in above if line)
        now = file.resolved.get(change.path)
        number = now if isinstance(now, int | float) else None
        word = bash_override(change, number=number, keep=is_secret(change.path))
        yield f"    {word}" + (f"  {comment_line(beside)}" if beside else "")


def _comments(path: KeyPath, comments: Mapping[KeyPath, Comment], told: set[KeyPath]) -> tuple[tuple[str, ...], str]:
    """The comments of a key and, before the first key in it, those of the sections above."""
    above: tuple[str, ...] = ()
    for length in range(1, len(path)):
        note = comments.get(path[:length])
        if note is not None and path[:length] not in told:
            above += (*note.above, note.beside)
        told.add(path[:length])
    own = comments.get(path, Comment())
    inside = [note for place, note in comments.items() if len(place) > len(path) and place[: len(path)] == path]
    above += (*own.above, *(line for note in inside for line in (*note.above, note.beside)))
    return above, own.beside


def _sections(found: Sequence[Change]) -> Iterator[tuple[str, list[Change]]]:
    arrays: dict[str, list[Change]] = {name: [] for name in (*(name for name, _ in SECTIONS), "EXTRA")}
    for change in found:
        arrays[_section_of(change.path)].append(change)
    return ((name, own) for name, own in arrays.items() if own)


def _section_of(path: KeyPath) -> str:
    for name, roots in SECTIONS:
        for root in roots:
            parts = split(root)
            if path[: len(parts)] == parts:
                return name
    return "EXTRA"


def launch_of(file: File, table: Table) -> VerlLauncher:
    """The command and the overrides of a file."""
    values = copied(file.values)
    engine = engine_of(values)
    options, groups = _choice(file, engine)
    for change in groups:
        for key in ENGINES:
            if find(values, split(key)) == change.value:
                remove(values, split(key))
    composed = table.composed_for(Composition(composed_engine(file.values)))
    found = changes(values, lambda path: prefix_of(file.release, composed, path))
    return VerlLauncher((*_runner(file, values), "-m", MODULES[file.kind], *options), (*groups, *found))


def engine_of(values: Mapping[str, Any]) -> str:
    return next((value for key in ENGINES if isinstance(value := find(values, split(key)), str)), "")


def composed_engine(values: Mapping[str, Any]) -> str:
    """The engine whose composition a file overrides."""
    return composed_as(str(values.get("engine@engine") or engine_of(values)))


def composed_as(engine: str) -> str:
    """The engine whose config group holds for one that a file names."""
    return engine if engine in COMPOSED else COMPOSED[0]


def _choice(file: File, engine: str) -> tuple[tuple[str, ...], tuple[Change, ...]]:
    """How the file's release is told of an engine other than its usual one: options of Hydra, or config groups."""
    if engine not in GROUPS or file.kind not in ("ppo", "generation_server", "sft_engine"):
        return (), ()
    if file.kind == "sft_engine":
        return (), (Change(("engine",), engine), Change(("optim",), engine))
    if engine == "megatron" and version_of(file.release) < version_of(GROUP_SINCE):
        return ("--config-path=config", "--config-name=ppo_megatron_trainer.yaml"), ()
    return (), (Change(("model_engine",), engine),)


def _runner(file: File, values: Mapping[str, Any]) -> tuple[str, ...]:
    if not file.kind.startswith("sft"):
        return ("python3",)
    nodes, devices = (
        int(number) if isinstance(number := find(values, ("trainer", key)), int) else usual
        for key, usual in (("nnodes", 1), ("n_gpus_per_node", 8))
    )
    if nodes == 1:
        return ("torchrun", "--standalone", "--nnodes=1", f"--nproc_per_node={devices}")
    meeting = (
        '--node_rank="${NODE_RANK:?}"',
        '--master_addr="${MASTER_ADDR:?}"',
        '--master_port="${MASTER_PORT:-29500}"',
    )
    return ("torchrun", f"--nnodes={nodes}", f"--nproc_per_node={devices}", *meeting)


def prefix_of(release: str, table: Table, path: KeyPath) -> str:
    """What Hydra needs before a key: nothing if every patch release composes it, ``++`` if something else does, else ``+``."""
    place = generic(path)
    if table.schema.in_composition(place, release, table.composition, everywhere=True):
        return ""
    return "++" if table.schema.releases_of_any(place) or kept_by_default(path) else "+"


def kept_by_default(path: KeyPath) -> bool:
    """Whether a free mapping follows another role's, so that the key may be there without being said."""
    return path[:2] == ("actor_rollout_ref", "ref")
