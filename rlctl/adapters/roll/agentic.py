"""ROLL: agentic runs. Environments become agents, and the managers' tags become sources of episodes.

custom_envs.TAG                      an agent of that name
train_env_manager.tags, partition    data.train, a source of episodes for each tag, weighed by its groups
val_env_manager.tags, partition      data.eval, with the groups that an evaluation plays
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from rlctl.adapters.engine.agents import AGENTS, GAMES, OF_STATES, WORLDS, lost_agent, of_other_agents, used_agents
from rlctl.adapters.engine.rules import (
    ABSENT,
    BadValueError,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Out,
    Reading,
    Rule,
    Writing,
    nothing,
)
from rlctl.adapters.engine.values import SOURCE_FIELDS
from rlctl.adapters.roll.renamed_roles import Spelled
from rlctl.adapters.roll.templates import (
    FIELDS,
    HISTORY,
    INSTRUCTION,
    STEP_FIELDS,
    read_template,
    write_template,
)
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.config.sections.agents import SINGLE_TURN, EnvironmentAgent, OtherAgent
from rlctl.documents import dotted
from rlctl.documents.paths import KeyPath

WORKER = "roll.pipeline.agentic.environment_worker.EnvironmentWorker"
FILTER = "roll.pipeline.agentic.agentic_pipeline.GroupFilter"
_MANAGERS = "roll.pipeline.agentic.env_manager"
TRAJECTORY = f"{_MANAGERS}.traj_env_manager.TrajEnvManager"
STEP = f"{_MANAGERS}.step_env_manager.StepEnvManager"
TRAIN, EVALUATION = "train_env_manager", "val_env_manager"
KINDS = {TRAIN: "train", EVALUATION: "eval"}
DEEPEST = 10
"""Blocks that name each other further than this are left as they are."""
ENVS = "custom_envs"


_SHOWN = ("grid_lookup", "grid_vocab", "action_lookup", "env_instruction", "format_penalty", "action_pattern")
RUNNING: Mapping[str, frozenset[str]] = {
    "frozen_lake": frozenset((*_SHOWN, "max_steps", "special_token_list", "map_lookup", "size", "p", "is_slippery")),
    "sokoban": frozenset((*_SHOWN, "max_steps", "special_token_list", "dim_room", "num_boxes", "search_depth")),
}
"""Environments of ROLL's that rlctl has too, and the settings in ``env_config`` that rlctl's take."""
CLASSES = {name: title for title, name in GAMES.items()}
TAKEN = (
    *("env_type", "env_manager_cls", "env_config", "max_steps", "max_tokens_per_step", "history_length"),
    *("agent_system_template", "agent_template", "max_env_step_concurrent", "http_timeout", "agent_runner_cls"),
)
"""Settings of an environment that become keys of its agent."""


@record
class Definition:
    """What ``custom_envs`` says of a tag, with the blocks in it that it names."""

    tag: str
    raw: Any
    settings: Mapping[str, Any]
    root: KeyPath
    longest: int
    """``max_new_tokens`` of the sampling settings."""
    longest_at: KeyPath
    """Where it is written."""

    def get(self, key: str, default: Any = None) -> Any:
        value = self.settings.get(key)
        return default if value is None else value

    def at(self, *keys: str) -> KeyPath:
        """Where a setting is written: its own place, or that of the block which is named as a whole."""
        place, raw = self.root, self.raw
        for key in keys:
            if not isinstance(raw, Mapping) or key not in raw:
                break
            place, raw = (*place, key), raw[key]
        return place

    @property
    def manager(self) -> str:
        return str(self.get("env_manager_cls", TRAJECTORY))

    @property
    def config(self) -> Mapping[str, Any]:
        """The arguments of the environment."""
        found = self.get("env_config", {})
        return found if isinstance(found, Mapping) else {}

    @property
    def is_plain(self) -> bool:
        """Whether the model alone acts, by text: no tools between, no program, no images."""
        bare = not self.get("tool_wrapper") and not self.get("agent_runner_cls")
        return bare and self.manager in (TRAJECTORY, STEP) and isinstance(self.get("env_type"), str)

    @property
    def game(self) -> str:
        """rlctl's class of the environment, if its settings are those that it takes; empty if rlctl has none."""
        kind, settings = str(self.get("env_type")), set(self.config) - {"render_mode"}
        text = self.config.get("render_mode", "text") == "text"
        return CLASSES[kind] if kind in RUNNING and settings <= RUNNING[kind] and text else ""


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


def _definitions(view: Reading) -> dict[str, Definition]:
    kinds = view.get(ENVS)
    longest, found = _longest(view), {}
    place = view.path(f"{_sampler(view)}.{OWN_SAMPLING}.max_new_tokens")
    for tag, raw in kinds.items() if isinstance(kinds, Mapping) else ():
        whole = _inlined(raw, view)
        settings = whole if isinstance(whole, Mapping) else {}
        found[str(tag)] = Definition(str(tag), raw, settings, (*view.path(ENVS), tag), longest, place)
    return found


def _sampler(view: Reading) -> str:
    return TRAIN if managers_sample(view) else "actor_infer"


def _longest(view: Reading) -> int:
    value = view.get(f"{_sampler(view)}.{OWN_SAMPLING}.max_new_tokens")
    return value if isinstance(value, int) and value > 0 else 8192


@record
class Manager:
    """What a manager plays: its tags, the groups of each, and how often."""

    name: str
    tags: Sequence[str]
    groups: Sequence[int]
    size: int
    rounds: int = 1
    """Episodes of a group in an evaluation."""
    used: Mapping[str, KeyPath] = field(default_factory=dict)


def _manager(view: Reading, name: str, defined: Mapping[str, Definition]) -> Manager:
    tags, groups = view.get(f"{name}.tags"), view.get(f"{name}.num_groups_partition")
    written = view.written(f"{name}.tags")
    pairs = (
        list(zip(tags, groups, strict=False))
        if isinstance(tags, (list, tuple)) and isinstance(groups, (list, tuple))
        else []
    )
    for tag, _ in pairs if written else ():
        if tag not in defined:
            near = ", ".join(defined) or "none"
            raise BadValueError(
                said("names {tag}; custom_envs defines {near}", tag=tag, near=near), key=view.path(f"{name}.tags")
            )
    pairs = [(str(tag), int(count)) for tag, count in pairs if tag in defined]
    size, total = view.get(f"{name}.group_size"), sum(count for _, count in pairs)
    size = size if isinstance(size, int) and size > 0 else 1
    batch, rounds = view.get("val_batch_size"), 1
    if name == EVALUATION and isinstance(batch, int) and batch > 0 and total:
        rounds = -(-batch // (total * size))
    used = {key: view.path(f"{name}.{key}") for key in ("tags", "num_groups_partition", "num_env_groups", "group_size")}
    return Manager(name, [tag for tag, _ in pairs], [count for _, count in pairs], size, rounds, used)


def _read(view: Reading) -> Iterator[Flow]:
    defined = _definitions(view)
    managers = [_manager(view, name, defined) for name in KINDS]
    tags = list(dict.fromkeys(tag for manager in managers for tag in manager.tags))
    random = view.get(f"{TRAIN}.llm_proxy.proxy_type") == "random"
    for index, tag in enumerate(tags):
        to = (*view.to(AGENTS), index)
        yield from _read_agent(defined[tag], to)
        if random:
            yield Flow((*to, "model"), "random", (view.path(f"{TRAIN}.llm_proxy.proxy_type"),))
    for tag, definition in defined.items():
        if tag not in tags:
            kept = ("extensions", "roll", dotted((ENVS, tag)))
            yield Flow(kept, dict(definition.settings), (definition.root,), note="no environment manager uses it")
    yield Flow(view.to("rollout.default_agent"), None, ())
    yield from _read_train(view, managers[0])
    yield from _read_evaluation(view, managers[1])
    yield from _read_rest(view, [defined[tag] for tag in managers[0].tags])


def _read_agent(definition: Definition, to: tuple[Any, ...]) -> Iterator[Flow]:
    yield Flow((*to, "name"), definition.tag, (definition.root,))
    if definition.is_plain:
        yield from _read_player(definition, to)
        rest = {key: value for key, value in definition.settings.items() if key not in TAKEN}
        for key, value in rest.items():
            kept = ("extensions", "roll", dotted((ENVS, definition.tag, key)))
            yield Flow(kept, value, (definition.at(key),), note="only ROLL has this setting of an environment")
        return
    place = definition.at("env_manager_cls")
    yield Flow((*to, "type"), "other", (place,))
    yield Flow((*to, "framework"), "roll", (place,))
    yield Flow((*to, "kind"), definition.manager, (place,))
    args = {key: value for key, value in definition.settings.items() if key != "env_manager_cls"}
    yield Flow((*to, "args"), args, (definition.root,), same=args == definition.raw)


def _read_player(definition: Definition, to: tuple[Any, ...]) -> Iterator[Flow]:
    """An environment in which the model acts by text."""
    game, stepwise = definition.game, definition.manager == STEP
    kind, environment = definition.at("env_type"), (*to, "environment")
    yield Flow((*to, "type"), "environment", (definition.at("env_manager_cls"), kind))
    yield Flow((*environment, "type"), "python" if game else "other", (kind,))
    args = {key: value for key, value in definition.config.items() if not game or key != "render_mode"}
    yield Flow((*environment, "args"), args, (definition.at("env_config"),), same=True)
    if game:
        yield Flow((*environment, "path"), WORLDS, (kind,))
        yield Flow((*environment, "name"), game, (kind,))
        yield Flow((*environment, "isolation"), "thread", ())
        for key, name in (("max_env_step_concurrent", "max_concurrent_steps"), ("http_timeout", "timeout")):
            if definition.get(key):
                yield Flow((*environment, name), definition.get(key), (definition.at(key),), same=True)
    else:
        yield Flow((*environment, "framework"), "roll", (kind,))
        yield Flow((*environment, "kind"), definition.get("env_type"), (kind,), same=True)
    steps = definition.get("max_steps")
    if isinstance(steps, int):
        yield Flow((*to, "max_turns"), steps, (definition.at("max_steps"),), same=True)
    longest = min(int(definition.get("max_tokens_per_step", definition.longest)), definition.longest)
    yield Flow((*to, "max_turn_tokens"), longest, (definition.at("max_tokens_per_step"), definition.longest_at))
    if definition.get("agent_system_template") is not None:
        place = definition.at("agent_system_template")
        yield Flow((*to, "system_prompt"), definition.get("agent_system_template"), (place,), same=True)
    yield from _read_texts(definition, to, longest, stepwise=stepwise, opens=bool(game) and not stepwise)


def _read_texts(
    definition: Definition, to: tuple[Any, ...], longest: int, *, stepwise: bool, opens: bool
) -> Iterator[Flow]:
    place = definition.at("agent_template")
    template = str(definition.get("agent_template", "{observation}"))
    try:
        found = read_template(template, STEP_FIELDS if stepwise else FIELDS, longest)
    except ValueError as error:
        raise BadValueError(said("is not a template: {error}", error=error), key=place) from error
    if found.lost:
        fields = ", ".join(STEP_FIELDS if stepwise else FIELDS)
        raise BadValueError(
            said("has the field {name}; expected one of {fields}", name=found.lost[0], fields=fields), key=place
        )
    yield Flow((*to, "template"), found.text, (place,), same=found.text == template)
    if opens:
        yield Flow((*to, "opening_template"), INSTRUCTION + found.text, (place,))
    if stepwise:
        kept = definition.get("history_length", 1)
        turns = max(0, kept - 1) if isinstance(kept, int) else 0
        yield Flow((*to, "history_turns"), turns, (definition.at("history_length"),), "derived")
        yield Flow((*to, "history_template"), HISTORY, ())


def _read_train(view: Reading, manager: Manager) -> Iterator[Flow]:
    used, several = manager.used, len(manager.tags) > 1
    for index, (tag, groups) in enumerate(zip(manager.tags, manager.groups, strict=True)):
        to = ("data", "train", index)
        yield from _episodes(to, tag, used)
        note = "groups of a tag"
        yield Flow((*to, "max_samples"), groups, (used["num_groups_partition"],), "derived", note)
        if several:
            yield Flow((*to, "weight"), float(groups), (used["num_groups_partition"],), "derived", note)
    if several:
        yield Flow(("data", "mixing"), "weighted_exact", (used["num_groups_partition"],))
    yield Flow((), None, (used["num_env_groups"],), "mapped", "the sum of num_groups_partition")
    more = view.get(f"{TRAIN}.group_size_redundancy")
    yield Flow(
        view.to("rollout.oversampling.additional_responses"),
        more,
        (view.path(f"{TRAIN}.group_size_redundancy"),),
        same=True,
    )


def _episodes(to: tuple[Any, ...], tag: str, used: Mapping[str, KeyPath]) -> Iterator[Flow]:
    yield Flow((*to, "format"), "episodes", (used["tags"],))
    yield Flow((*to, "name"), tag, (used["tags"],))
    yield Flow((*to, "agent"), tag, (used["tags"],))


def _read_evaluation(view: Reading, manager: Manager) -> Iterator[Flow]:
    used, batch = manager.used, (view.path("val_batch_size"),)
    for index, (tag, groups) in enumerate(zip(manager.tags, manager.groups, strict=True)):
        to = ("data", "eval", index)
        yield from _episodes(to, tag, used)
        note = said("{groups} groups x {rounds} episodes", groups=groups, rounds=manager.rounds)
        yield Flow(
            (*to, "max_samples"), groups * manager.rounds, (used["num_groups_partition"], *batch), "derived", note
        )
        yield Flow((*to, "responses_per_prompt"), manager.size, (used["group_size"],), same=True)
        yield from _read_sampling(view, (*to, "evaluation_sampling"))
    if not manager.tags:
        yield Flow((), None, (*used.values(), *batch), "dead", "no episodes of evaluation")
    yield Flow((), None, (used["num_env_groups"],), "mapped", "the sum of num_groups_partition")


SAMPLED = {"temperature": 0.95, "top_p": 0.7, "top_k": 50}
"""ROLL's defaults."""


def _read_sampling(view: Reading, to: tuple[Any, ...]) -> Iterator[Flow]:
    """Sampling of evaluation, which is that of training unless the managers have their own."""
    own = managers_sample(view) and view.written(f"{EVALUATION}.{OWN_SAMPLING}")
    root = f"{EVALUATION if own else _sampler(view)}.{OWN_SAMPLING}"
    for name, default in SAMPLED.items():
        value = view.get(f"{root}.{name}", default)
        value = None if name == "top_k" and isinstance(value, int) and value <= 0 else value
        yield Flow((*to, name), value, (view.path(f"{root}.{name}"),), same=name != "top_k")
    if own:
        yield Flow((), None, (view.path(f"{root}.num_return_sequences"),), "dead", "ROLL sets it itself")


def _read_rest(view: Reading, played: Sequence[Definition]) -> Iterator[Flow]:
    """Keys of managers that rlctl does without, if nothing depends on them."""
    for manager in KINDS:
        for key, usual, why in (
            ("worker_cls", WORKER, "rlctl always does this"),
            ("group_filter_cls", FILTER, "it drops no group"),
        ):
            if view.written(f"{manager}.{key}") and view.get(f"{manager}.{key}") == usual:
                yield Flow((), None, (view.path(f"{manager}.{key}"),), "mapped", why)
        if view.get(f"{manager}.llm_proxy.proxy_type") in ("policy", None):
            yield Flow((), None, (view.path(f"{manager}.llm_proxy"),), "mapped", "the policy generates the trajectory")
    if view.written("batch_adjust_mode") and all(item.manager == TRAJECTORY for item in played):
        note = "each trajectory is one sequence, and the number of trajectories always divides evenly"
        yield Flow((), None, (view.path("batch_adjust_mode"),), "mapped", note)


# Writing


NOT_ROLLS = "ROLL needs an environment manager for it"


def _write(view: Writing) -> Iterator[Out]:
    for place, agent in enumerate(view.config.rollout.agents):
        root = (*view.to(AGENTS), place)
        if isinstance(agent, EnvironmentAgent) and _kind(agent):
            yield from _write_player(view, agent, root)
        elif isinstance(agent, OtherAgent) and agent.framework == "roll":
            definition = {"env_manager_cls": agent.kind, **agent.args}
            used = tuple((*root, name) for name in ("type", "framework", "kind", "name", "args"))
            yield Flow((*view.path(ENVS), agent.name), definition, used, always=True)
        else:
            yield from lost_agent(view, place, NOT_ROLLS)
    yield Flow((), None, (view.to("rollout.default_agent"),), "mapped", "set by the manager's tags")
    yield from _write_manager(view, TRAIN)
    yield from _write_manager(view, EVALUATION)
    more = view.get("rollout.oversampling.additional_responses")
    yield Flow(
        view.path(f"{TRAIN}.group_size_redundancy"),
        more,
        (view.to("rollout.oversampling.additional_responses"),),
        same=True,
    )


def _kind(agent: EnvironmentAgent) -> str:
    """ROLL's type of an environment; empty for one that ROLL does not have."""
    environment: Any = agent.environment
    if environment.choice == "other":
        return environment.kind if environment.framework == "roll" else ""
    own = environment.choice == "python" and environment.path == WORLDS
    return GAMES.get(environment.name, "") if own else ""


LONGEST_EPISODE = 100
"""Actions of an episode whose end is not said."""


def _write_player(view: Writing, agent: EnvironmentAgent, root: tuple[Any, ...]) -> Iterator[Out]:
    to, kind = (*view.path(ENVS), agent.name), _kind(agent)
    plain = view.get(AGENTS)[root[-1]]
    stepwise = agent.history_turns is not None
    environment = tuple((*root, "environment", name) for name in plain["environment"])

    def used(*names: str) -> tuple[KeyPath, ...]:
        return tuple((*root, name) for name in names)

    yield Flow((*to, "env_type"), kind, (*environment, *used("name", "type", "environment")), always=True)
    manager = STEP if stepwise else TRAJECTORY
    yield Flow((*to, "env_manager_cls"), manager, used("history_turns"), always=True)
    if agent.history_turns is not None:
        yield Flow((*to, "history_length"), agent.history_turns + 1, used("history_turns"), "derived", always=True)
    steps = agent.max_turns or LONGEST_EPISODE
    if agent.max_turns is None:
        yield Inexpressible(
            used("max_turns"), said("ROLL ends each episode after a number of actions. Wrote {steps}", steps=steps)
        )
    yield Flow((*to, "max_steps"), steps, used("max_turns"), same=agent.max_turns is not None, always=True)
    tokens = agent.max_turn_tokens or view.config.rollout.max_response_tokens
    yield Flow(
        (*to, "max_tokens_per_step"),
        tokens,
        used("max_turn_tokens"),
        same=agent.max_turn_tokens is not None,
        always=True,
    )
    yield Flow((*to, "agent_system_template"), agent.system_prompt, used("system_prompt"), same=True, always=True)
    yield from _write_texts(agent, to, used, kind, stepwise=stepwise)
    yield from _write_config(agent, to, used, plain)


def _write_texts(agent: EnvironmentAgent, to: Any, used: Any, kind: str, *, stepwise: bool) -> Iterator[Out]:
    found = write_template(agent.template, STEP_FIELDS if stepwise else FIELDS)
    if found.lost:
        reason = said("ROLL's template has no field {name}", name=found.lost[0])
        yield Inexpressible(used("template"), reason)
    yield Flow((*to, "agent_template"), found.text, used("template"), same=found.text == agent.template, always=True)
    expected = None if stepwise or kind not in RUNNING else INSTRUCTION + agent.template
    if agent.opening_template == expected:
        yield Flow((), None, used("opening_template"), "mapped", "ROLL always does this")
    else:
        reason = (
            "ROLL starts with the environment's instruction and the first observation; it has no template for the "
            "first message"
        )
        yield Inexpressible(used("opening_template"), reason)
    if stepwise and agent.history_template == HISTORY:
        yield Flow((), None, used("history_template"), "mapped", "ROLL always does this")


def _write_config(agent: EnvironmentAgent, to: Any, used: Any, plain: Mapping[str, Any]) -> Iterator[Out]:
    """The arguments of the environment, which reads the action from the text itself."""
    environment = plain["environment"]
    for key, value in environment.get("args", {}).items():
        yield Flow((*to, "env_config", key), value, used("environment"), always=True)
    if agent.actions or agent.action_pattern is not None:
        reason = "ROLL's environments read the action themselves, by env_config.action_pattern"
        yield Inexpressible(used("actions", "action_pattern"), reason)
    for key, name, usual in (
        ("max_env_step_concurrent", "max_concurrent_steps", None),
        ("http_timeout", "timeout", 60.0),
    ):
        if environment.get(name, usual) != usual:
            yield Flow((*to, key), environment[name], ((*used("environment")[0], name),), same=True, always=True)


ROWS = "ROLL's environments make their tasks themselves"


def _write_manager(view: Writing, manager: str) -> Iterator[Out]:
    kind = KINDS[manager]
    sources, config = view.get(f"data.{kind}"), view.config
    names = used_agents(config, evaluation=kind == "eval") if sources or kind == "train" else []
    if not names and kind == "eval":
        yield from _write_no_evaluation(view)
        return
    counts: dict[str, int] = {}
    for source in sources:
        name = source["agent"] or config.rollout.default_agent
        if name in names:
            counts[name] = counts.get(name, 0) + (source["max_samples"] or config.batch.prompts_per_step)
    groups = [counts.get(name, config.batch.prompts_per_step) for name in names]
    fields = ("agent", "name", "format", "max_samples", "weight")
    used: tuple[KeyPath, ...] = (
        *(("data", kind, index, key) for index in range(len(sources)) for key in fields),
        view.to("rollout.default_agent"),
    )
    size = sources[0]["responses_per_prompt"] if kind == "eval" else config.batch.responses_per_prompt
    yield Flow(view.path(f"{manager}.tags"), names, used, always=True)
    yield Flow(view.path(f"{manager}.num_groups_partition"), groups, used, always=True)
    yield Flow(view.path(f"{manager}.num_env_groups"), sum(groups), used, "derived", always=True)
    sized = (
        tuple(("data", kind, index, "responses_per_prompt") for index in range(len(sources))) if kind == "eval" else ()
    )
    yield Flow(view.path(f"{manager}.group_size"), size, sized or (view.to("batch.responses_per_prompt"),), always=True)
    yield from _write_rows(view, kind, sources)
    if kind == "eval":
        yield Flow(view.path("val_batch_size"), sum(groups) * size, used, "derived", always=True)
        yield from _write_sampling(view, sources)


def _write_no_evaluation(view: Writing) -> Iterator[Out]:
    names = used_agents(view.config)[:1]
    note = "ROLL makes environments of evaluation even if it never evaluates"
    for key, value in (("tags", names), ("num_groups_partition", [1]), ("num_env_groups", 1), ("group_size", 1)):
        yield Flow(view.path(f"{EVALUATION}.{key}"), value, (), "derived", note, always=True)
    yield Flow(view.path("val_batch_size"), 1, (), "derived", note, always=True)


def _write_rows(view: Writing, kind: str, sources: Sequence[Mapping[str, Any]]) -> Iterator[Out]:
    for index, source in enumerate(sources):
        place = ("data", kind, index)
        rest = [
            key
            for key in source
            if key
            not in ("agent", "name", "format", "max_samples", "weight", "responses_per_prompt", "evaluation_sampling")
        ]
        if source["path"]:
            yield Inexpressible(tuple((*place, key) for key in ("path", *rest)), ROWS)
        else:
            yield Flow((), None, tuple((*place, key) for key in rest), "mapped", ROWS)
    shared = view.get("data.mixing")
    if kind == "train" and len(sources) > 1:
        yield Flow(
            (),
            None,
            (view.to("data.mixing"),),
            "mapped" if shared == "weighted_exact" else "derived",
            "groups of each tag",
        )


def _differs(view: Writing) -> bool:
    """Whether evaluation is sampled otherwise than training."""
    sampling, sources = view.config.rollout.sampling, view.get("data.eval")
    return any(
        source["evaluation_sampling"][name] != getattr(sampling, name) for source in sources[:1] for name in SAMPLED
    )


def _write_sampling(view: Writing, sources: Sequence[Mapping[str, Any]]) -> Iterator[Out]:
    places = tuple(
        ("data", "eval", index, "evaluation_sampling", name) for index in range(len(sources)) for name in SAMPLED
    )
    if not _differs(view):
        yield Flow((), None, places, "mapped", "evaluation is sampled as training")
        return
    first = sources[0]["evaluation_sampling"]
    for name in SAMPLED:
        value = first[name] if first[name] is not None else -1
        at = ("data", "eval", 0, "evaluation_sampling", name)
        yield Flow(view.path(f"{EVALUATION}.{OWN_SAMPLING}.{name}"), value, (at,), same=name != "top_k", always=True)
    for index, source in enumerate(sources[1:], 1):
        if source["evaluation_sampling"] != first:
            reason = "ROLL samples all environments of evaluation with the same settings"
            yield Inexpressible((("data", "eval", index, "evaluation_sampling"),), reason)
        else:
            yield Flow((), None, (("data", "eval", index, "evaluation_sampling"),), "mapped", "the same for all")


# Sampling: that of actor_infer for all managers, or, where it has none, each manager's own.

OWN_SAMPLING = "generating_args"
MANAGER = {"actor_infer": TRAIN}


def managers_sample(view: Reading) -> bool:
    """Whether the managers' own sampling is in effect."""
    return not view.written(f"actor_infer.{OWN_SAMPLING}") and view.written(f"{TRAIN}.{OWN_SAMPLING}")


@record
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

    @property
    def pairs(self) -> Iterable[tuple[DialectKey, str]]:
        return (*self.rule.pairs, *self._managers.pairs)

    def read(self, view: Reading) -> Iterable[Flow]:
        yield from (self._managers if managers_sample(view) else self.rule).read(view)
        if view.written(f"actor_infer.{OWN_SAMPLING}"):
            for key in self._managers.keys:
                if view.written(key.name):
                    yield Flow((), None, (view.path(key.name),), "dead", "actor_infer's sampling settings decide")

    def write(self, view: Writing) -> Iterable[Out]:
        return (self._managers if _differs(view) else self.rule).write(view)


def sampled(rules: Iterable[Rule]) -> list[Rule]:
    """Rules of an agentic file, those of sampling told apart."""
    root = f"actor_infer.{OWN_SAMPLING}."
    return [
        Sampled(rule) if rule.keys and all(key.name.startswith(root) for key in rule.keys) else rule for rule in rules
    ]


def _read_turns(view: Reading) -> Iterator[Flow]:
    key = f"actor_infer.{OWN_SAMPLING}.max_new_tokens"
    if managers_sample(view):
        yield Flow((), None, (view.path(key),), "dead", said("{name} decides", name=f"{TRAIN}.{OWN_SAMPLING}"))


def _write_turns(view: Writing) -> Iterator[Out]:
    agents = view.get(AGENTS)
    lengths = [agent.get("max_turn_tokens") or view.config.rollout.max_response_tokens for agent in agents]
    used = tuple((*view.to(AGENTS), place, "max_turn_tokens") for place in range(len(agents)))
    if lengths:
        note = "the longest generation of any agent"
        yield Flow(
            view.path(f"actor_infer.{OWN_SAMPLING}.max_new_tokens"), max(lengths), used, "derived", note, always=True
        )


TURNS: list[Rule] = [
    CustomRule(
        "tokens of a turn",
        # 2026.8 configs/generating_args.py, GeneratingArguments
        (DialectKey(f"actor_infer.{OWN_SAMPLING}.max_new_tokens", 8192),),
        (),
        _read_turns,
        _write_turns,
        "the shorter of max_new_tokens and max_tokens_per_step",
        why="What is written is the longest turn of all agents, which read it from their own settings.",
    )
]
PLAYER = (
    *("type", "name", "kind", "framework", "args", "model", "max_turns", "max_turn_tokens", "system_prompt"),
    *("opening_template", "template", "history_template", "history_turns", "action_pattern", "actions"),
    *(f"environment.{name}" for name in ("type", "path", "name", "args", "isolation", "kind", "framework", "seed")),
    *(f"environment.{name}" for name in ("max_concurrent_steps", "timeout", "id")),
)
ENVIRONMENTS = CustomRule(
    "environments",
    (
        *(DialectKey(f"{manager}.num_env_groups") for manager in KINDS),
        *(DialectKey(f"{manager}.group_size") for manager in KINDS),
        *(DialectKey(f"{manager}.tags") for manager in KINDS),
        *(DialectKey(f"{manager}.num_groups_partition") for manager in KINDS),
        *(DialectKey(f"{manager}.worker_cls") for manager in KINDS),
        *(DialectKey(f"{manager}.group_filter_cls") for manager in KINDS),
        *(DialectKey(f"{manager}.llm_proxy", takes=dict) for manager in KINDS),
        *(DialectKey(f"{manager}.llm_proxy.proxy_type") for manager in KINDS),
        *(DialectKey(f"{EVALUATION}.{OWN_SAMPLING}.{name}") for name in (*SAMPLED, "num_return_sequences")),
        DialectKey(f"{TRAIN}.group_size_redundancy"),
        DialectKey("val_batch_size"),
        DialectKey("batch_adjust_mode", takes=("copy", "delete", "auto", "random_sample")),
        DialectKey(ENVS, ABSENT),
        DialectKey(f"{ENVS}.**"),
    ),
    (
        "rollout.default_agent",
        "rollout.oversampling.additional_responses",
        AGENTS,
        *(f"{AGENTS}[].{name}" for name in PLAYER),
        *(f"data.{kind}[].{name}" for kind in KINDS.values() for name in SOURCE_FIELDS),
        *("data.train", "data.eval", "data.eval[].responses_per_prompt", "data.mixing"),
        *(f"data.eval[].evaluation_sampling.{name}" for name in SAMPLED),
    ),
    _read,
    _write,
    "a tag is an agent and a source of episodes; rollout_batch_size counts trajectories",
    by_key={
        **{f"{root}.{OWN_SAMPLING}.max_new_tokens": f"{AGENTS}[].max_turn_tokens" for root in ("actor_infer", TRAIN)},
        **{f"actor_infer.{OWN_SAMPLING}.{name}": f"data.eval[].evaluation_sampling.{name}" for name in SAMPLED},
        f"{EVALUATION}.group_size": "data.eval[].responses_per_prompt",
        f"{TRAIN}.group_size_redundancy": "rollout.oversampling.additional_responses",
        "val_batch_size": "data.eval[].max_samples",
        **{
            f"{manager}.tags": (f"data.{kind}[].name", f"data.{kind}[].agent", f"data.{kind}[].format")
            for manager, kind in KINDS.items()
        },
        **{f"{manager}.num_groups_partition": f"data.{kind}[].max_samples" for manager, kind in KINDS.items()},
        **{f"{EVALUATION}.{OWN_SAMPLING}.{name}": f"data.eval[].evaluation_sampling.{name}" for name in SAMPLED},
        ENVS: "rollout.agents",
    },
    why="Tags, groups and environments of two managers are both agents and two lists of data sources.",
)
AGENTIC: list[Rule] = [
    ENVIRONMENTS,
    Dropped("data.last_batch", "ROLL plays its groups again until a step has enough episodes", "carry"),
    Dropped("data.**", "environments bring their own data"),
    Dropped("data.train", "environments bring their own data"),
    Dropped("data.eval", "environments bring their own data"),
    Dropped("rewards", "environments give the rewards of agentic runs"),
    Dropped("rewards[].**", "environments give the rewards of agentic runs"),
    Dropped("reward_loop.**", "environments give the rewards of agentic runs"),
    Dropped("algorithm.filters", "agentic runs filter groups with a class, group_filter_cls"),
    Dropped("algorithm.filters[].**", "agentic runs filter groups with a class, group_filter_cls"),
    Dropped("rollout.agent_workers", "ROLL divides environments over workers by max_env_num_per_worker", idle=True),
    *of_other_agents("rollout.oversampling.additional_responses", *OF_STATES),
]


ALONE = "ROLL's RLVR runs answer each prompt once and score the answer"


def _write_alone(view: Writing) -> Iterator[Out]:
    """Agents in a run that answers prompts."""
    for place, _ in enumerate(view.config.rollout.agents):
        yield from lost_agent(view, place, ALONE)
    if view.config.rollout.default_agent in (None, SINGLE_TURN):
        yield Flow((), None, (view.to("rollout.default_agent"),), "mapped", "a prompt has one answer")


NO_AGENTS: list[Rule] = [
    CustomRule(
        "agents",
        (),
        ("rollout.default_agent", AGENTS),
        nothing,
        _write_alone,
        "a prompt has one answer",
        why="Each agent of the list is lost in its own words.",
    ),
    Dropped("rollout.agent_workers", "ROLL's RLVR runs have no agents", idle=True),
    *of_other_agents(),
]
