"""Trinity: rewards, which task sets name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.rules import Code, Dropped, Flow, K, Lost, Out, Reading, Rule, Writing
from rlctl.adapters.trinity.batch import supervised
from rlctl.adapters.trinity.data import E, tasksets
from rlctl.adapters.trinity.keys import train_places
from rlctl.adapters.values import REWARD_FIELDS

FORMAT = r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$"
REWARDS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "math_reward": ("math", {"method": "trinity"}),
    "math_boxed_reward": ("boxed", {}),
    "math_dapo_reward": ("dapo_math", {}),
    "countdown_reward": ("countdown", {}),
    "format_reward": ("format", {"pattern": FORMAT, "whole": False}),
    "accuracy_reward": ("math", {"method": "open_r1"}),
}
"""Rewards that a rule stands for, and its arguments."""
SCORES = {"format_reward": (0.1, -0.1)}
"""Of right and wrong, where they are not 1 and 0."""
ABOUT = {
    "math_boxed_reward": "Trinity also leaves out units and reads number words before it compares: few scores differ",
    "math_dapo_reward": "Trinity grades the last box as PRIME does, here the text after 'Answer:' as verl does: scores differ",
}
RULE_NAMES = {
    "math": "math_reward",
    "boxed": "math_boxed_reward",
    "dapo_math": "math_dapo_reward",
    "countdown": "countdown_reward",
}
NEAREST = {"number": "math_reward", "gsm8k": "math_reward", "exact_match": "math_reward", "format": "format_reward"}


def _read_rewards(view: Reading) -> Iterator[Flow]:
    if supervised(view):
        return
    places = tasksets(view)
    inside = view.inside(places[0], ()) if places else None
    own = inside.get("default_reward_fn_type", None) if inside else None
    name = own or view.get(f"{E}.default_reward_fn_type")
    used = tuple(
        item
        for item in (
            inside.path("default_reward_fn_type") if inside else None,
            view.path(f"{E}.default_reward_fn_type"),
        )
        if item
    )
    to = ("rewards", 0)
    if not name:
        yield Flow((*to, "type"), "rule", ())
        yield Flow((*to, "rule"), "auto", ())
        return
    if name in REWARDS:
        rule, given = REWARDS[name]
        yield Flow((*to, "type"), "rule", used)
        yield Flow((*to, "rule"), rule, used, "derived" if name in ABOUT else "mapped", ABOUT.get(name, ""))
        for key, value in given.items():
            yield Flow((*to, "args", key), value, used)
        for key, score in zip(("score_right", "score_wrong"), SCORES.get(name, ()), strict=False):
            yield Flow((*to, key), score, used)
    else:
        yield Flow((*to, "type"), "external", used)
        yield Flow((*to, "kind"), name, used, same=True)
    if inside is None:
        return
    overlong = ("enable_overlong_penalty", "penalty_factor", "max_response_length", "cache_length")
    args = inside.get("reward_fn_args", None)
    rest = {key: item for key, item in args.items() if key not in overlong} if isinstance(args, Mapping) else {}
    for key, value in rest.items():
        yield Flow((*to, "args", key), value, ((*inside.path("reward_fn_args"), key),))


def _write_rewards(view: Writing) -> Iterator[Out]:
    rewards = view.get("rewards")
    if view.config.algorithm.objective.choice in ("sft", "dpo"):
        yield Flow((), None, (("rewards",), *(("rewards", index) for index in range(len(rewards)))))
        return
    for index, reward in enumerate(rewards):
        place = ("rewards", index)
        if len(rewards) > 1:
            hint = "name one in default_reward_fn_type of each, or call them all in a reward function of your own"
            yield Lost(tuple((*place, name) for name in reward), f"Trinity takes one reward for a task set: {hint}")
        else:
            yield from _write_reward(view, place, reward)


def _write_reward(view: Writing, place: tuple[Any, ...], reward: Mapping[str, Any]) -> Iterator[Out]:
    kind, target = reward["type"], view.path(f"{E}.default_reward_fn_type")
    used = ((*place, "type"), (*place, "rule"))
    if kind == "rule" and reward["rule"] == "auto":
        note = "Trinity's workflow scores with its own math reward, verl by the data source"
        yield Flow((), None, used, "mapped", note)
        if reward["args"]:
            yield Lost(((*place, "args"),), "Trinity's own math reward takes no arguments")
        yield from _plain_reward(place, reward)
        return
    elif kind == "rule" and _exact(reward):
        name = _exact(reward)
        own = tuple((*place, "args", key) for key in REWARDS[name][1])
        own += tuple((*place, key) for key in ("score_right", "score_wrong") if name in SCORES)
        yield Flow(target, name, (*used, *own), always=True)
        rest = {key: value for key, value in reward["args"].items() if key not in REWARDS[name][1]}
        reward = {**reward, "args": rest, "score_right": 1.0, "score_wrong": 0.0}
    elif kind == "rule" and reward["rule"] in RULE_NAMES:
        yield Flow(target, RULE_NAMES[reward["rule"]], used, always=True)
    elif kind == "rule" and reward["rule"] in NEAREST:
        yield Flow(target, NEAREST[reward["rule"]], used, always=True)
        yield Lost(
            used,
            f"Trinity has no rule {reward['rule']}; {NEAREST[reward['rule']]} is the nearest, and parses answers its own way",
        )
    elif kind == "external" and is_trinitys(reward["kind"]):
        yield Flow(target, reward["kind"], ((*place, "type"), (*place, "kind")), same=False, always=True)
    else:
        what = {
            "external": f"the reward {reward.get('kind')}",
            "function": f"the function {reward.get('function')} of {reward.get('path')}",
            "model": "a reward model",
            "sandbox": "a code sandbox",
            "judge": "a judge",
        }.get(kind, f"rule {reward.get('rule')}")
        hint = (
            "Trinity takes rewards by registered names: call it from a class in a plug-in folder, and name that class"
        )
        yield Lost(tuple((*place, name) for name in reward), f"{what} has no form in Trinity. {hint}")
        return
    yield from _write_args(view, place, reward)
    yield from _plain_reward(place, reward)


def _exact(reward: Mapping[str, Any]) -> str:
    """The reward of Trinity's that computes what a rule does; nothing where there is none."""
    for name, (rule, own) in REWARDS.items():
        same = rule == reward["rule"] and own.items() <= reward["args"].items() and (own or rule == "countdown")
        if same and SCORES.get(name, (1.0, 0.0)) == (reward["score_right"], reward["score_wrong"]):
            return name
    return ""


ARGUMENTS = {"math_boxed_reward": None, "math_dapo_reward": ()}
"""What a reward of Trinity's takes: None is any arguments, the overlong penalty is told elsewhere; the others take none."""


def _write_args(view: Writing, place: tuple[Any, ...], reward: Mapping[str, Any]) -> Iterator[Out]:
    name = RULE_NAMES.get(reward.get("rule", ""), NEAREST.get(reward.get("rule", ""), ""))
    if reward["args"] and reward["type"] == "rule" and ARGUMENTS.get(name, ()) is not None:
        given = ", ".join(f"{key} {value}" for key, value in reward["args"].items())
        yield Lost(((*place, "args"),), f"Trinity's {name} finds and compares answers its own way, not with {given}")
        return
    for root in train_places(view):
        for key, value in reward["args"].items():
            yield Flow((*root, "reward_fn_args", key), value, ((*place, "args"),), always=True)


def is_trinitys(kind: str) -> bool:
    """Whether a name may be that of a reward function of Trinity's: those of other frameworks' workers never are."""
    return not kind.startswith(("roll.", "verl.", "recipe.")) and not kind.endswith("Worker")


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
            what = "one reward scores all rows of a task set" if name == "applies_to" else f"its rewards have no {name}"
            yield Lost(((*place, name),), f"Trinity's own way: {what}")
        elif name in reward:
            yield Flow((), None, ((*place, name),))
    yield Lost(((*place, "name"),), "Trinity names scores by its reward functions", idle=True)
    yield Lost(((*place, "workers"),), "Trinity scores where it explores", idle=True)


REWARD: list[Rule] = [
    Code(
        "rewards",
        (K(f"{E}.default_reward_fn_type", None),),
        ("rewards", *(f"rewards[].{name}" for name in REWARD_FIELDS)),
        _read_rewards,
        _write_rewards,
        "default_reward_fn_type",
    ),
    Dropped("reward_loop.manager", "Trinity's workflows call their rewards", "naive"),
    Dropped("reward_loop.overlap_with_rollout", "Trinity's workflows call their rewards"),
    Dropped("reward_loop.max_queued", "Trinity's workflows call their rewards"),
]
