"""Trinity: rewards, which task sets name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlctl.adapters.engine.implied import WORKERS, told
from rlctl.adapters.engine.rules import (
    BadValueError,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Out,
    Reading,
    Rule,
    Version,
    Writing,
)
from rlctl.adapters.engine.values import REWARD_FIELDS, manager_rule
from rlctl.adapters.trinity.batch import supervised
from rlctl.adapters.trinity.keys import eval_places, train_places
from rlctl.adapters.trinity.workflows import (
    DAPO,
    REWARDS,
    RUBRIC,
    E,
    Scoring,
    judge_of,
    rated,
    scores_of,
    scorings,
    taught,
)
from rlctl.common.messages.reasons import said
from rlctl.config.sections.agents import SINGLE_TURN
from rlctl.documents.paths import KeyPath

RULE_NAMES = {
    "math": "math_reward",
    "boxed": "math_boxed_reward",
    "dapo_math": "math_dapo_reward",
    "countdown": "countdown_reward",
}
NEAREST = {"number": "math_reward", "gsm8k": "math_reward", "exact_match": "math_reward"}
GREEDY = {"temperature": 0.0}
"""How the judge of rubrics answers."""
THINK_PENALTY = "think_penalty"
"""The argument of rule boxed that with_think of math_boxed_workflow is."""


def _read_rewards(view: Reading) -> Iterator[Flow]:
    if supervised(view):
        return
    found = scorings(view)
    if not found:
        key = view.path(f"{E}.default_reward_fn_type")
        named = view.get(f"{E}.default_reward_fn_type")
        yield from _read_function(view, 0, named or None, (key,))
        if named == "":
            yield Flow((), None, (key,), "dead", "it names no reward function")
        return
    by_row = [place for one in found for place in one.places if view.inside(place, ()).get("format.reward_fn_key", "")]
    for index, one in enumerate(found):
        implied = set(one.keys) == set(one.first.workflow_keys)
        flows = _read_function(view, index, one.first.reward, one.keys, one.first.args)
        yield from (replace(flow, implied=implied) for flow in flows)
        yield from _read_args(view, index, one)
        if len(found) > 1 or by_row:
            yield Flow(("rewards", index, "name"), one.name, one.keys)
        if by_row:
            labels = [one.name, *(str(view.inside(place, ()).get("name", "") or "") for place in one.places)]
            yield Flow(("rewards", index, "applies_to"), [label for label in labels if label], one.keys)
    if by_row:
        used = tuple((*place, "format", "reward_fn_key") for place in by_row)
        taken = {one.name for one in found}
        for index, name in enumerate((name for name in REWARDS if name not in taken), start=len(found)):
            yield from _read_function(view, index, name, used)
            yield Flow(("rewards", index, "name"), name, used)
            yield Flow(("rewards", index, "applies_to"), [name], used, "derived", "rows name their reward function")


def _read_function(
    view: Reading, index: int, name: str | None, used: tuple[KeyPath, ...], given: Mapping[str, Any] | None = None
) -> Iterator[Flow]:
    """A reward function by its name; without one, the reward that rlctl picks by the data source. ``given`` goes over its own."""
    to = ("rewards", index)
    if name is None:
        yield Flow((*to, "type"), "rule", ())
        yield Flow((*to, "rule"), "auto", ())
    elif name == RUBRIC:
        yield Flow((*to, "type"), "judge", used, "derived", "the first auxiliary model rates by the rubrics of rows")
        yield Flow((*to, "scoring"), "rubric", used)
        yield Flow((*to, "auxiliary_model"), judge_of(view), used)
        yield Flow((*to, "sampling"), dict(GREEDY), used)
    elif name in REWARDS:
        row, (right, wrong) = REWARDS[name], scores_of(name, view.version)
        yield Flow((*to, "type"), "rule", used)
        yield Flow((*to, "rule"), row.rule, used, "derived" if row.differs else "mapped", row.differs)
        for key, value in row.args.items():
            if key not in (given or {}):
                yield Flow((*to, "args", key), value, used)
        if (right, wrong) != (1.0, 0.0):
            yield Flow((*to, "score_right"), right, used)
            yield Flow((*to, "score_wrong"), wrong, used)
    else:
        yield Flow((*to, "type"), "external", used)
        yield Flow((*to, "kind"), name, used, same=True)


def _read_args(view: Reading, index: int, one: Scoring) -> Iterator[Flow]:
    row, to = REWARDS.get(one.first.reward or ""), ("rewards", index, "args")
    for key, value in one.first.args.items():
        used = tuple((*place, "reward_fn_args", key) for place in one.places)
        if row is not None and row.takes is None:
            yield Flow(
                (),
                None,
                used,
                "dead",
                said("{reward} takes any argument and uses none", reward=one.first.reward),
                misleads=True,
            )
        elif row is not None and key not in (row.takes or ()):
            known = ", ".join(sorted(row.takes or ())) or "none"
            raise BadValueError(
                said(
                    "is {value!r}; the arguments of {reward} are: {known}",
                    value=value,
                    reward=one.first.reward,
                    known=known,
                ),
                key=used[0],
            )
        else:
            overrides = row is not None and key in row.args
            yield Flow((*to, key), value, used, "derived" if overrides else "mapped", same=not overrides)
    if one.first.think_penalty:
        used = tuple(
            (*place, "workflow_args", key) for place in one.places for key in ("with_think", "format_score_coef")
        )
        yield Flow((*to, THINK_PENALTY), one.first.think_penalty, used)


def _write_rewards(view: Writing) -> Iterator[Out]:
    rewards = view.get("rewards")
    if view.config.algorithm.objective.choice in ("sft", "dpo") or taught(view.config) is not None:
        yield Flow((), None, (("rewards",), *(("rewards", index) for index in range(len(rewards)))))
        return
    by_row = rows_name_functions(rewards, view.version)
    if by_row:
        target = view.path(f"{E}.default_reward_fn_type")
        yield Flow(
            target, function_of(rewards[0], view.version), (("rewards", 0, "type"), ("rewards", 0, "rule")), always=True
        )
    named = {source["reward"] for key in ("data.train", "data.eval") for source in view.get(key)}
    for index, reward in enumerate(rewards):
        place = ("rewards", index)
        if len(rewards) == 1:
            yield from _write_reward(view, place, reward)
        elif by_row or (reward["name"] in named and function_of(reward, view.version)):
            name = function_of(reward, view.version)
            own, implied = _own_args(reward, name)
            fields = ("type", "rule", "kind", "score_right", "score_wrong")
            used = (*((*place, field) for field in fields), *((*place, "args", key) for key in implied))
            yield Flow((), None, used, "mapped", said("{function_of}, which its task sets name", function_of=name))
            yield from _write_args(view, place, own, name, list(_places_naming(view, reward["name"])))
            applies = None if by_row else reward["applies_to"]
            yield from _plain_reward(place, {**reward, "applies_to": applies, "score_right": 1.0, "score_wrong": 0.0})
        else:
            hint = (
                "name one reward in each task set's default_reward_fn_type, or call all of them in your own reward "
                "function"
            )
            yield Inexpressible(
                tuple((*place, name) for name in reward),
                said("Trinity takes one reward per task set: {hint}", hint=hint),
            )


AUTO = (
    "Trinity does not pick a reward by each row's data source: math_workflow scores every row with math_reward. "
    "Name a reward function in default_reward_fn_type"
)

AUTO_DAPO = said(
    "Trinity does not pick a reward by each row's data source: {dapo} scores every row as the data "
    "source math_dapo, right answers with 1 and wrong ones with -1",
    dapo=DAPO,
)


def _write_reward(view: Writing, place: tuple[Any, ...], reward: Mapping[str, Any]) -> Iterator[Out]:
    if rated(view.config):
        yield from _write_rated(place, reward)
        return
    if _has_own_arguments(view):
        note = "the workflow scores its episodes, with its own arguments"
        yield Flow((), None, (place, *((*place, name) for name in reward)), "mapped", note)
        return
    kind, target = reward["type"], view.path(f"{E}.default_reward_fn_type")
    used = ((*place, "type"), (*place, "rule"))
    name = function_of(reward, view.version)
    if kind == "rule" and reward["rule"] == "auto" and written_function(view, reward):
        note = said("of Trinity's reward functions only {dapo} takes an overlong penalty", dapo=DAPO)
        yield Flow(target, DAPO, used, "derived", note, always=True)
        yield Inexpressible(((*place, "rule"), (*place, "args")), AUTO_DAPO)
        yield from _plain_reward(place, {**reward, "score_right": 1.0, "score_wrong": 0.0})
        return
    if kind == "rule" and reward["rule"] == "auto":
        yield Inexpressible((*used, (*place, "args")), AUTO)
        yield from _plain_reward(place, reward)
        return
    if kind == "rule" and (name or nearest_function(reward, view.version)):
        if not name:
            name = nearest_function(reward, view.version)
        row = REWARDS[name]
        own = tuple((*place, "args", key) for key in row.args if key in reward["args"])
        yield Flow(target, name, (*used, *own), "derived" if row.differs else "mapped", row.differs, always=True)
        if reward["rule"] != row.rule:
            wanted = said(
                "Trinity has no rule {rule}; {name} is the nearest, and parses answers differently",
                rule=reward["rule"],
                name=name,
            )
            yield Inexpressible(used, wanted)
        yield from _write_scores(place, reward, scores_of(name, view.version), name)
        reward = {**reward, "args": _own_args(reward, name)[0], "score_right": 1.0, "score_wrong": 0.0}
    elif name:
        yield Flow(target, name, ((*place, "type"), (*place, "kind")), same=False, always=True)
    else:
        what = {
            "external": said(
                "the reward {kind}{told}", kind=reward.get("kind"), told=told(WORKERS, reward.get("kind"))
            ),
            "function": said(
                "the function {function} of {path}", function=reward.get("function"), path=reward.get("path")
            ),
            "model": "a reward model",
            "sandbox": "a code sandbox",
            "judge": "a judge",
        }.get(kind, said("rule {rule}", rule=reward.get("rule")))
        hint = (
            "Trinity takes rewards by registered names: call it from a class in a plug-in folder, and name that class"
        )
        yield Inexpressible(
            tuple((*place, name) for name in reward),
            said("Trinity has no equivalent of {what}. {hint}", what=what, hint=hint),
        )
        return
    yield from _write_args(view, place, reward["args"], name, [*train_places(view), *eval_places(view)])
    yield from _plain_reward(place, reward)


def _has_own_arguments(view: Writing) -> bool:
    """Whether a workflow of agents is put back with ``reward_fn_args`` that no reward function takes."""
    own = view.config.rollout.default_agent not in (None, SINGLE_TURN)
    return own and any("reward_fn_args" in key for key in view.config.carried_for("trinity"))


def _write_rated(place: tuple[Any, ...], reward: Mapping[str, Any]) -> Iterator[Out]:
    note = "the workflow is rubric_judge_workflow"
    yield Flow((), None, tuple((*place, name) for name in ("type", "scoring", "auxiliary_model")), "mapped", note)
    usual = {"sampling": GREEDY, "prompt": None, "max_concurrent": 64}
    for name, value in usual.items():
        if reward[name] != value:
            lacks = said("Trinity's rubric_judge_workflow has its own {name}", name=name)
            yield Inexpressible(((*place, name),), lacks)
        else:
            yield Flow((), None, ((*place, name),), "mapped", note)
    unset = ("base_url", "model", "api_key", "engine", "engine_args", "max_context_tokens", "replicas")
    yield Flow((), None, tuple((*place, name) for name in (*unset, "tensor_parallel_size")), "mapped", note)
    yield from _plain_reward(place, reward)


def function_of(reward: Mapping[str, Any], version: Version) -> str:
    """The reward function of Trinity's that computes what a canonical reward does; empty where there is none."""
    if reward["type"] == "external":
        return str(reward["kind"]) if is_trinitys(reward["kind"]) else ""
    if reward["type"] != "rule":
        return ""
    for name, row in REWARDS.items():
        own = {key: item for key, item in row.args.items() if key not in (row.takes or ())}
        same = row.rule == reward["rule"] and own.items() <= reward["args"].items()
        scored = (reward["score_right"], reward["score_wrong"]) == scores_of(name, version)
        if same and scored:
            return name
    return ""


def _write_scores(
    place: tuple[Any, ...], reward: Mapping[str, Any], scores: tuple[float, float], name: str
) -> Iterator[Out]:
    used, asked = ((*place, "score_right"), (*place, "score_wrong")), (reward["score_right"], reward["score_wrong"])
    if asked == scores:
        yield Flow((), None, used)
    else:
        shown = [said("{right:g} and {wrong:g}", right=right, wrong=wrong) for right, wrong in (scores, asked)]
        yield Inexpressible(
            used,
            said(
                "Trinity's {name} scores right and wrong answers {shown}, not {shown2}",
                name=name,
                shown=shown[0],
                shown2=shown[1],
            ),
        )


def rows_name_functions(rewards: Sequence[Mapping[str, Any]], version: Version) -> bool:
    """Whether each reward is a function of Trinity's for rows that name it, as ``format.reward_fn_key`` reads them."""
    names = [(function_of(reward, version), reward["applies_to"] or ()) for reward in rewards]
    return len(names) > 1 and all(name and name in labels for name, labels in names)


def nearest_function(reward: Mapping[str, Any], version: Version) -> str:
    """The reward function that is written for a canonical reward; empty where the workflow's own stays."""
    rule = str(reward.get("rule", ""))
    return function_of(reward, version) or RULE_NAMES.get(rule, "") or NEAREST.get(rule, "")


def written_function(view: Writing, reward: Mapping[str, Any]) -> str:
    """The nearest function; for a reward by data source with an overlong penalty, the function that takes one."""
    penalty = isinstance(view.get("algorithm.reward_shaping.overlong_penalty"), Mapping)
    by_source = reward["type"] == "rule" and reward["rule"] == "auto"
    return nearest_function(reward, view.version) or (DAPO if by_source and penalty else "")


def _places_naming(view: Writing, name: str) -> Iterator[tuple[Any, ...]]:
    """The task sets that name a reward of several."""
    for kind, places in (("train", train_places(view)), ("eval", eval_places(view))):
        for source, place in zip(view.get(f"data.{kind}"), places, strict=False):
            if source["reward"] == name:
                yield place


def _own_args(reward: Mapping[str, Any], name: str) -> tuple[dict[str, Any], list[str]]:
    """The arguments that a reward function has to be given, and those that it implies."""
    usual = REWARDS[name].args if name in REWARDS else {}
    own = {key: value for key, value in reward["args"].items() if usual.get(key) != value}
    return own, [key for key in reward["args"] if key not in own]


def _write_args(
    view: Writing, place: tuple[Any, ...], args: Mapping[str, Any], name: str, roots: Sequence[tuple[Any, ...]]
) -> Iterator[Out]:
    row = REWARDS.get(name)
    takes = frozenset(args) if row is None else row.takes or frozenset()
    for key, value in args.items():
        used = ((*place, "args", key), (*place, "args"))
        if key == THINK_PENALTY and name == "math_boxed_reward":
            yield Flow((), None, used, "mapped", "with_think and format_score_coef of math_boxed_workflow")
        elif key not in takes:
            yield Inexpressible(
                used,
                said(
                    "Trinity's {name} has its own way to find and compare answers; it does not use {key} {value}",
                    name=name,
                    key=key,
                    value=value,
                ),
            )
        else:
            for root in roots:
                yield Flow((*root, "reward_fn_args", key), value, used, always=True)
    if not args:
        yield Flow((), None, ((*place, "args"),))


def is_trinitys(kind: str) -> bool:
    """Whether a name may be that of a reward function of Trinity's: those of other frameworks' workers never are."""
    return kind != "roll" and not kind.startswith(("roll.", "verl.", "recipe.")) and not kind.endswith("Worker")


def _plain_reward(place: tuple[Any, ...], reward: Mapping[str, Any]) -> Iterator[Out]:
    usual = {
        "weight": 1.0,
        "applies_to": None,
        "timeout": 30.0,
        "on_error": "zero",
        "score_right": 1.0,
        "score_wrong": 0.0,
    }
    for name, value in usual.items():
        if name in reward and reward[name] != value:
            what = (
                "in Trinity, one reward scores all rows of a task set"
                if name == "applies_to"
                else said("Trinity's rewards have no {name}", name=name)
            )
            yield Inexpressible(((*place, name),), what)
        elif name in reward:
            yield Flow((), None, ((*place, name),))
    yield Inexpressible(((*place, "name"),), "Trinity names scores after its reward functions", idle=True)
    yield Inexpressible(((*place, "workers"),), "Trinity's explorer computes rewards", idle=True)


REWARD: list[Rule] = [
    CustomRule(
        "rewards",
        (DialectKey(f"{E}.default_reward_fn_type"),),
        ("rewards", *(f"rewards[].{name}" for name in REWARD_FIELDS)),
        _read_rewards,
        _write_rewards,
        "default_reward_fn_type",
        by_key={
            f"{E}.{key}": "rewards"
            for key in (
                *("default_reward_fn_type", "default_workflow_type", "default_eval_workflow_type"),
                *("taskset.default_reward_fn_type", "taskset.default_workflow_type"),
            )
        },
        why="The function of each task set, or its workflow, is one reward of a list, or part of one.",
    ),
    manager_rule("Trinity"),
    Dropped("reward_loop.overlap_with_rollout", "Trinity's workflows call their rewards"),
    Dropped("reward_loop.max_queued", "Trinity's workflows call their rewards"),
]
