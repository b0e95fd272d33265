"""Every rule of every table that is one key for one canonical key, alone, in both directions, with a value that is not the default."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from rlctl.adapters import dialect, names
from rlctl.adapters.engine.reading import TextView
from rlctl.adapters.engine.rules import Absent, Flow, Group, InexpressibleError, Key, Rule, computed, version_of
from rlctl.adapters.engine.table import Table
from rlctl.adapters.engine.tree import find, put
from rlctl.adapters.engine.writing import ConfigView, ConfigWithOrigins
from rlctl.common.errors import ConfigError
from rlctl.config import Source
from rlctl.config.inspect import KeyInfo
from rlctl.documents import KeyPath

from .cases import build, leaves, values

TABLES = [(name, kind) for name in names() if name != "rlctl" for kind in dialect(name).tables]
ONE_WAY: dict[str, str] = {
    "trainer.fix_actor_microbatch_loss_scale": "Trinity 0.6 has one way to normalise, the default",
    **{
        f"actor_rollout_ref.actor.{block}router_replay.mode": "the drawn configs train on FSDP, where verl replays no routes"
        for block in ("", "megatron.", "veomni.")
    },
    "actor_rollout_ref.rollout.calculate_log_probs": "a switch for a number of alternatives, of which verl reports none",
    "explorer.over_rollout.ratio": "Trinity refuses it with the drawn configs' way of synchronising",
    **dict.fromkeys(
        ("trainer.save_interval", "explorer.eval_interval", "synchronizer.sync_offset"),
        "counted in steps whose size is in other keys, which these texts do not hold",
    ),
    "explorer.rollout_model.enable_expert_parallel": "a switch for a number of devices: it comes back as the tensor size",
    "actor_rollout_ref.actor.freeze_vision_tower": "a switch for names of parts of a model, which the drawn ones are not",
    "actor_train.model_args.freeze_module_prefix": "ROLL's names of parts of a model, which the drawn ones are not",
    "actor_train.strategy_args.strategy_config.optimizer": "the names of Megatron's optimizers, which the drawn ones are not",
    "critic.strategy_args.strategy_config.optimizer": "the names of Megatron's optimizers, which the drawn ones are not",
    "actor_train.strategy_args.strategy_config.overlap_param_gather": "ROLL moves states to CPU memory, so it cannot be on",
    "critic.strategy_args.strategy_config.overlap_param_gather": "ROLL moves states to CPU memory, so it cannot be on",
    **{
        f"{worker}.strategy_args.strategy_config.lr_scheduler_kwargs.{name}": "ROLL counts optimizer steps, the drawn ones are steps"
        for worker in ("actor_train", "critic")
        for name in ("lr_decay_steps", "wsd_decay_steps")
    },
    "actor_infer.strategy_args.strategy_config.enable_expert_parallel": "a switch for a number of devices: it comes back as all",
    "rollout_batch_size": "ROLL's agentic runs count trajectories, whose groups another row writes",
    "kd_objective": "ROLL's names of divergences, which the drawn ones are not",
}
"""Keys of which no drawn value comes back, and why."""
FEW = settings(
    max_examples=10, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None
)


def _inner(rules: tuple[Rule, ...]) -> Iterator[Rule]:
    for rule in rules:
        if isinstance(rule, Group):
            yield from _inner(rule.rules)
        else:
            yield rule


@cache
def _canonical() -> dict[str, list[KeyInfo]]:
    """The schema's keys by the name that tables give them; a key of several options is there for each."""
    found: dict[str, list[KeyInfo]] = {}
    for key in leaves():
        found.setdefault(key.path.replace("[]", ".0"), []).append(key)
    return found


@cache
def _drawn(pattern: str) -> tuple[Any, ...]:
    """A few values of a canonical key other than its default."""
    found: list[Any] = []
    info = next(key.info for keys in _canonical().values() for key in keys if key.pattern == pattern)

    @FEW
    @given(value=values(info))
    def draw(value: Any) -> None:
        found.append(value)

    draw()
    whole = [120.0, 2.0] if "float" in str(info.type) else []
    return tuple(value for place, value in enumerate([*found, *whole]) if value not in found[:place])


@cache
def _given(pattern: str, number: int) -> tuple[ConfigWithOrigins, KeyPath] | None:
    """A config with one of these values, and its place; None where there is none like it."""
    key = next(key for keys in _canonical().values() for key in keys if key.pattern == pattern)
    try:
        config, place = build(key, _drawn(pattern)[number])
    except ConfigError:
        return None
    found = ConfigWithOrigins(config, {place: Source("file", "x")})
    return None if isinstance(find(found.plain, place), Absent) else (found, place)


def _comes_back(rule: Key, table: Table, release: str, given_: ConfigWithOrigins, place: KeyPath) -> bool:
    """Whether what the rule writes of a config is read by the rule as the same value."""
    version = version_of(release)
    view = ConfigView(table, given_, version, {})
    raw: dict[str, Any] = {}
    for flow in rule.write(view):
        if isinstance(flow, Flow) and flow.to:
            put(raw, flow.to, flow.value)
    if not raw:  # a spelling that is only read, or one that another engine has
        try:
            made = computed(rule.convert.write(find(given_.plain, place), view), rule.convert, None)
            put(raw, rule.keys[0].path, made.value)
        except InexpressibleError:
            return False
    read = [flow for flow in rule.read(TextView(table, version, raw, {})) if flow.to]
    before = find(given_.plain, place)
    return any(flow.to == place and flow.value == before for flow in read)


def _tried(rule: Key, table: Table, release: str) -> bool:
    for key in _canonical().get(rule.to, ()):
        for number in range(len(_drawn(key.pattern))):
            made = _given(key.pattern, number)
            if made is not None and _comes_back(rule, table, release, *made):
                return True
    return False


@pytest.mark.parametrize(("name", "kind"), TABLES)
def test_every_key_is_written_and_read_with_another_value(name: str, kind: str) -> None:
    table = dialect(name).tables[kind]
    release = max(table.releases_with, key=version_of) if table.releases_with else dialect(name).newest
    rules = [
        rule
        for rule in _inner(table.rules)
        if isinstance(rule, Key)
        and rule.to in _canonical()
        and any(table.has(key, key.path, version_of(release)) for key in rule.keys)
    ]
    stuck = [f"{rule.key} -> {rule.to}" for rule in rules if not _tried(rule, table, release)]
    strange = [line for line in stuck if line.partition(" ")[0] not in ONE_WAY]
    assert strange == [], "\n".join(strange)
