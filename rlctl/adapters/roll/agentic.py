"""ROLL: environments of agentic runs, their managers and kinds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rlctl.adapters.engine.rules import (
    ABSENT,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Key,
    Out,
    Reading,
    Rule,
    Writing,
)
from rlctl.adapters.engine.values import Off
from rlctl.adapters.roll.renamed_roles import Spelled
from rlctl.common.messages.reasons import said

WORKER = "roll.pipeline.agentic.environment_worker.EnvironmentWorker"
FILTER = "roll.pipeline.agentic.agentic_pipeline.GroupFilter"
MANAGERS = {"train_env_manager": "rollout.environments", "val_env_manager": "rollout.evaluation_environments"}
DEEPEST = 10
"""Blocks that name each other further than this are left as they are."""
PLAIN = {
    "num_env_groups": ("groups", 128),
    "group_size": ("group_size", 1),
    "group_size_redundancy": ("group_redundancy", 0),
}
LISTS = {"tags": ("tags", ["SimpleSokoban"]), "num_groups_partition": ("groups_per_tag", [128])}
FREE = ("llm_proxy", "group_filter_cls")
"""Settings of a manager that only ROLL has: kept as its arguments."""
TOP = {
    "batch_adjust_mode": "copy",
    "render_save_dir": None,
    "parse_tool_call_parameter_to_dict": False,
    "skip_mock_system_prompt": False,
}
"""Settings of agentic runs that only ROLL has, kept in the same way."""


def _read(view: Reading) -> Iterator[Flow]:
    for manager, section in MANAGERS.items():
        yield Flow(view.to(section), {}, ())
        yield from _read_manager(view, manager, view.to(section))
    for key in TOP:
        if view.written(key):
            to = (*view.to("rollout.environments.args"), key)
            yield Flow(to, view.get(key), (view.path(key),), same=True)
    if view.written("env_monitor"):
        yield Flow(
            (*view.to("rollout.environments.args"), "env_monitor"), view.get("env_monitor"), (view.path("env_monitor"),)
        )
    kinds = view.get("custom_envs")
    if isinstance(kinds, Mapping):
        for name, settings in kinds.items():
            place = (*view.path("custom_envs"), name)
            whole = _inlined(settings, view)
            yield Flow((*view.to("rollout.environments.custom"), name), whole, (place,), same=whole == settings)


_NODE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")


def _inlined(value: Any, view: Reading, depth: int = 0) -> Any:
    """A value with the blocks that it names in it: one with a secret is left named, and its name is no key of ROLL's."""
    if isinstance(value, Mapping):
        return {key: _inlined(item, view, depth) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_inlined(item, view, depth) for item in value]
    named = _NODE.fullmatch(value) if isinstance(value, str) and depth < DEEPEST else None
    block = view.get(named[1]) if named else None
    return _inlined(block, view, depth + 1) if isinstance(block, Mapping) else value


def _read_manager(view: Reading, manager: str, to: tuple[Any, ...]) -> Iterator[Flow]:
    for key, (field, _) in {**PLAIN, **LISTS}.items():
        value = view.get(f"{manager}.{key}")
        shown = list(value) if isinstance(value, (list, tuple)) else value
        yield Flow((*to, field), shown, (view.path(f"{manager}.{key}"),), same=True)
    cls = view.get(f"{manager}.worker_cls")
    yield Flow((*to, "worker"), None if cls == WORKER else cls, (view.path(f"{manager}.worker_cls"),))
    most = view.get(f"{manager}.max_env_num_per_worker")
    kept = most if isinstance(most, int) and most > 0 else None
    yield Flow((*to, "max_per_worker"), kept, (view.path(f"{manager}.max_env_num_per_worker"),), same=kept is not None)
    count = view.get(f"{manager}.max_traj_per_env")
    kept = count if isinstance(count, int) and count >= 0 else None
    note = (
        "ROLL computes it itself in asynchronous runs"
        if kept and view.get("async_generation_ratio") and manager.startswith("train")
        else ""
    )
    yield Flow(
        (*to, "max_trajectories"), None if note else kept, (view.path(f"{manager}.max_traj_per_env"),), note=note
    )
    own = (OWN_SAMPLING,) if manager == "val_env_manager" and managers_sample(view) else ()
    for key in (*FREE, *own):
        if view.written(f"{manager}.{key}"):
            yield Flow((*to, "args", key), view.get(f"{manager}.{key}"), (view.path(f"{manager}.{key}"),), same=True)


def _write(view: Writing) -> Iterator[Out]:
    for manager, section in MANAGERS.items():
        found = view.get(section)
        if isinstance(found, Mapping):
            yield from _write_manager(view, manager, section, found)
    kinds = {**_custom(view, MANAGERS["val_env_manager"]), **_custom(view, MANAGERS["train_env_manager"])}
    for name, settings in kinds.items():
        place = view.to(f"{MANAGERS['train_env_manager']}.custom")
        used = (place, (*place, name), view.to(f"{MANAGERS['val_env_manager']}.custom"))
        yield Flow((*view.path("custom_envs"), name), settings, used, same=True, always=True)


def _custom(view: Writing, section: str) -> dict[str, Any]:
    found = view.get(f"{section}.custom", {})
    return dict(found) if isinstance(found, Mapping) else {}


def _write_manager(view: Writing, manager: str, section: str, found: Mapping[str, Any]) -> Iterator[Out]:
    to = view.to(section)
    for key, (field, _) in PLAIN.items():
        always = key in ("num_env_groups", "group_size")
        value = found[field]
        written = (
            view.config.batch.responses_per_prompt if key == "group_size" and manager == "train_env_manager" else value
        )
        if written != value and view.explicit(f"{section}.{field}"):
            yield Inexpressible(
                ((*to, field),),
                said("ROLL has one group size. Wrote the batch's, {written} responses per prompt", written=written),
            )
        yield Flow(view.path(f"{manager}.{key}"), written, ((*to, field),), same=written == value, always=always)
    for key, (field, _) in LISTS.items():
        if found[field]:
            yield Flow(view.path(f"{manager}.{key}"), list(found[field]), ((*to, field),), same=True, always=True)
    if found["worker"] is not None:
        yield Flow(view.path(f"{manager}.worker_cls"), found["worker"], ((*to, "worker"),), same=True)
    if found["max_per_worker"] is not None:
        yield Flow(
            view.path(f"{manager}.max_env_num_per_worker"),
            found["max_per_worker"],
            ((*to, "max_per_worker"),),
            same=True,
        )
    if found["max_trajectories"] is not None:
        yield Flow(
            view.path(f"{manager}.max_traj_per_env"), found["max_trajectories"], ((*to, "max_trajectories"),), same=True
        )
    if found["template"] is not None:
        yield Inexpressible(
            ((*to, "template"),), "ROLL sets the template per environment: custom_envs.NAME.agent_template"
        )
    for key, value in found["args"].items():
        used = ((*to, "args", key), (*to, "args"))
        if key in FREE or (key == OWN_SAMPLING and manager == "val_env_manager"):
            yield Flow(view.path(f"{manager}.{key}"), value, used, same=True, always=True)
        elif key in TOP or key == "env_monitor":
            yield Flow(view.path(key), value, used, same=True, always=True)
        else:
            yield Inexpressible(((*to, "args"),), said("ROLL's environment manager has no {key}", key=key))


# Sampling: that of actor_infer for all managers, or, where it has none, each manager's own.

OWN_SAMPLING = "generating_args"
MANAGER = {"actor_infer": "train_env_manager"}


def managers_sample(view: Reading) -> bool:
    """Whether the managers' own sampling is in effect."""
    return not view.written(f"actor_infer.{OWN_SAMPLING}") and view.written(f"train_env_manager.{OWN_SAMPLING}")


@dataclass(frozen=True)
class Sampled(Rule):
    """A rule of the engine's sampling, which the training environments' manager may hold instead."""

    rule: Rule

    @cached_property
    def _managers(self) -> Spelled:
        return Spelled(self.rule, MANAGER)

    @cached_property
    def keys(self) -> tuple[DialectKey, ...]:
        return (*self.rule.keys, *self._managers.keys)

    @property
    def canonical(self) -> tuple[str, ...]:
        return self.rule.canonical

    def read(self, view: Reading) -> Iterable[Flow]:
        yield from (self._managers if managers_sample(view) else self.rule).read(view)
        if view.written(f"actor_infer.{OWN_SAMPLING}"):
            for key in self._managers.keys:
                if view.written(key.name):
                    yield Flow((), None, (view.path(key.name),), "dead", "actor_infer's sampling settings decide")

    def write(self, view: Writing) -> Iterable[Out]:
        arguments = view.get("rollout.evaluation_environments.args", {})
        own = isinstance(arguments, Mapping) and OWN_SAMPLING in arguments
        return (self._managers if own else self.rule).write(view)


def sampled(rules: Iterable[Rule]) -> list[Rule]:
    """Rules of an agentic file, those of sampling told apart."""
    root = f"actor_infer.{OWN_SAMPLING}."
    return [
        Sampled(rule) if rule.keys and all(key.name.startswith(root) for key in rule.keys) else rule for rule in rules
    ]


FIELDS = (
    "worker",
    "groups",
    "group_size",
    "group_redundancy",
    "tags",
    "groups_per_tag",
    "max_per_worker",
    "max_trajectories",
    "template",
    "custom",
    "args",
)
ENVIRONMENTS = CustomRule(
    "environments",
    (
        *(
            DialectKey(f"{manager}.{key}", default)
            for manager in MANAGERS
            for key, (_, default) in {**PLAIN, **LISTS}.items()
        ),
        *(
            DialectKey(f"{manager}.{key}", default)
            for manager in MANAGERS
            for key, default in (
                ("worker_cls", WORKER),
                ("max_env_num_per_worker", 0),
                ("max_traj_per_env", -1),
                ("llm_proxy", ABSENT),
                ("llm_proxy.**", ABSENT),
                ("group_filter_cls", FILTER),
            )
        ),
        *(DialectKey(key, default) for key, default in TOP.items()),
        DialectKey("env_monitor", ABSENT),
        DialectKey("env_monitor.**", ABSENT),
        DialectKey(f"val_env_manager.{OWN_SAMPLING}", ABSENT),
        DialectKey("custom_envs", ABSENT),
        DialectKey("custom_envs.**", ABSENT),
    ),
    tuple(item for section in MANAGERS.values() for item in (section, *(f"{section}.{field}" for field in FIELDS))),
    _read,
    _write,
    "rollout_batch_size counts trajectories: groups x group_size",
)
NO_ENVIRONMENTS: list[Rule] = [
    Dropped(f"{section}{end}", "agentic runs use a separate config file", None)
    for section in MANAGERS.values()
    for end in ("", ".**")
]
AGENTIC: list[Rule] = [
    ENVIRONMENTS,
    Key("val_batch_size", "data.evaluation_batch_prompts", 128, Off(-1), note="trajectories, not prompts"),
    Dropped("data.**", "environments bring their own data"),
    Dropped("data.train", "environments bring their own data"),
    Dropped("data.eval", "environments bring their own data"),
    Dropped("rewards", "environments give the rewards of agentic runs"),
    Dropped("rewards[].**", "environments give the rewards of agentic runs"),
    Dropped("reward_loop.**", "environments give the rewards of agentic runs"),
    Dropped("algorithm.filters", "agentic runs filter groups with a class, group_filter_cls"),
    Dropped("algorithm.filters[].**", "agentic runs filter groups with a class, group_filter_cls"),
]
