"""verl: how responses are scored. Two generations of keys: roots of their own until 0.7, the ``reward`` tree since 0.8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlctl.adapters.rules import ABSENT, By, Code, Dropped, Flow, K, Key, Lost, Out, Reading, Rule, Writing
from rlctl.adapters.values import REWARD_FIELDS, NullReads

NEW, OLD = "reward", ""
OVERLONG_MANAGERS = ("dapo",)


def _roots(view: Reading) -> tuple[str, str, str]:
    """Where the function, the model and the sandbox stand in this text."""
    if view.version >= (0, 8):
        return "reward.custom_reward_function", "reward.reward_model", "reward.sandbox_fusion"
    return "custom_reward_function", "reward_model", "reward_model.sandbox_fusion"


def _read(view: Reading) -> Iterator[Flow]:
    function, model, sandbox = _roots(view)
    index = 0
    if view.get(f"{function}.path"):
        yield from _read_function(view, function, index)
        index += 1
    if view.get(f"{model}.enable"):
        yield from _read_model(view, model, index)
        index += 1
    if view.get(f"{sandbox}.url"):
        yield from _read_sandbox(view, sandbox, index)
        index += 1
    if not view.get(f"{function}.path") and not view.get(f"{model}.enable") and not view.get(f"{sandbox}.url"):
        used = (view.path(f"{function}.path"),)
        yield Flow(("rewards", 0, "type"), "rule", used, "mapped", "verl's default scores by data source")
        yield Flow(("rewards", 0, "rule"), "auto", ())
    yield from _unused(view, (function, model, sandbox))


def _read_function(view: Reading, root: str, index: int) -> Iterator[Flow]:
    to = ("rewards", index)
    yield Flow((*to, "type"), "function", (view.path(f"{root}.path"),))
    yield Flow((*to, "path"), view.get(f"{root}.path"), (view.path(f"{root}.path"),), same=True)
    yield Flow((*to, "function"), view.get(f"{root}.name") or "compute_score", (view.path(f"{root}.name"),), same=True)
    yield Flow((*to, "signature"), "verl", ())
    args = view.get(f"{root}.reward_kwargs")
    if isinstance(args, dict):
        yield Flow((*to, "args"), args, (view.path(f"{root}.reward_kwargs"),), same=True)


def _read_model(view: Reading, root: str, index: int) -> Iterator[Flow]:
    to = ("rewards", index)
    path = f"{root}.model_path" if view.version >= (0, 8) else f"{root}.model.path"
    yield Flow((*to, "type"), "model", (view.path(f"{root}.enable"),))
    yield Flow((*to, "path"), view.get(path) or "", (view.path(path),), same=True)
    if view.version < (0, 8):
        tokenizer = f"{root}.model.input_tokenizer"
        if view.written(tokenizer):
            yield Flow((*to, "tokenizer"), view.get(tokenizer), (view.path(tokenizer),), same=True)
        yield Flow((*to, "max_tokens"), view.get(f"{root}.max_length"), (view.path(f"{root}.max_length"),), same=True)
        size = view.get(f"{root}.micro_batch_size_per_gpu")
        if isinstance(size, int):
            yield Flow((*to, "micro_per_replica"), size, (view.path(f"{root}.micro_batch_size_per_gpu"),), same=True)
        trust = f"{root}.model.trust_remote_code"
        yield Flow((*to, "trust_remote_code"), bool(view.get(trust)), (view.path(trust),), same=True)
    block = view.get(root)
    kept = {name: item for name, item in block.items() if name not in OWN_FIELDS} if isinstance(block, dict) else {}
    if kept:
        yield Flow((*to, "overrides"), kept, tuple(view.path(f"{root}.{name}") for name in kept))


OWN_FIELDS = [
    "enable",
    "model_path",
    "model",
    "max_length",
    "micro_batch_size_per_gpu",
    "reward_manager",
    "num_workers",
    "reward_kwargs",
    "sandbox_fusion",
    "reward_loop_source",
    "reward_loop_module_path",
    "reward_loop_class_name",
    "launch_reward_fn_async",
    "use_reward_loop",
    "profiler",
]


def _read_sandbox(view: Reading, root: str, index: int) -> Iterator[Flow]:
    to = ("rewards", index)
    yield Flow((*to, "type"), "sandbox", (view.path(f"{root}.url"),))
    for name in ("url", "max_concurrent", "memory_limit_mb"):
        if view.get(f"{root}.{name}") is not None:
            yield Flow((*to, name), view.get(f"{root}.{name}"), (view.path(f"{root}.{name}"),), same=True)


def _unused(view: Reading, live: tuple[str, str, str]) -> Iterator[Flow]:
    """The settings of what is switched off, and roots that this version no longer reads."""
    function, model, sandbox = live
    for root, on in ((model, f"{model}.enable"), (sandbox, f"{sandbox}.url"), (function, f"{function}.path")):
        if not view.get(on) and view.written(root):
            inside = view.get(root)
            places = [(*view.path(root), name) for name in inside] if isinstance(inside, dict) else [view.path(root)]
            other = [
                place
                for place in places
                if place[-1]
                not in (
                    "reward_manager",
                    "num_workers",
                    "reward_kwargs",
                    "sandbox_fusion",
                    "reward_loop_source",
                    "reward_loop_module_path",
                    "reward_loop_class_name",
                    "launch_reward_fn_async",
                    "use_reward_loop",
                )
            ]
            if other:
                yield Flow((), None, tuple(other), "dead", f"'{on}' is off")
    if view.version >= (0, 8):
        reason = "verl accepts this root since 0.8 and no longer reads it: write it under 'reward'"
        for root in ("custom_reward_function", "reward_model", "sandbox_fusion"):
            if not view.written(root):
                continue
            inside = view.get(root) or {}
            yield Flow((), None, tuple((root, name) for name in inside), "dead", reason)


def _write(view: Writing) -> Iterator[Out]:
    new = view.version >= (0, 8)
    prefix = "reward." if new else ""
    seen: set[str] = set()
    for index, reward in enumerate(view.get("rewards")):
        place = ("rewards", index)
        kind = reward["type"]
        if kind in seen:
            yield Lost((place,), f"verl takes one {kind} reward")
            continue
        seen.add(kind)
        yield from _common(reward, place)
        if kind == "rule":
            yield from _write_rule(reward, place)
        elif kind == "function":
            yield from _write_function(view, f"{prefix}custom_reward_function", reward, place)
        elif kind == "model":
            yield from _write_model(view, f"{prefix}reward_model", reward, place, new)
        elif kind == "sandbox":
            root = f"{prefix}sandbox_fusion" if new else "reward_model.sandbox_fusion"
            for name in ("url", "max_concurrent", "memory_limit_mb"):
                yield Flow(
                    view.path(f"{root}.{name}"),
                    reward[name],
                    ((*place, name), (*place, "type"))[: 2 if name == "url" else 1],
                    same=name != "url",
                )
        else:
            yield Lost((place, (*place, "type")), f"verl has no {kind} reward; write a function for it")
    if not view.get("rewards"):
        yield Lost((("rewards",),), "verl always scores; its default goes by data source")


def _common(reward: dict[str, Any], place: tuple[Any, ...]) -> Iterator[Out]:
    usual = {"weight": 1.0, "applies_to": None, "timeout": 30.0, "on_error": "zero"}
    for name, value in usual.items():
        if reward[name] != value:
            yield Lost(((*place, name),), f"verl's rewards have no {name}")
    for name in ("name", "workers", *(name for name, value in usual.items() if reward[name] == value)):
        yield Flow((), None, ((*place, name),))


def _write_rule(reward: dict[str, Any], place: tuple[Any, ...]) -> Iterator[Out]:
    used = ((*place, "type"), (*place, "rule"))
    if reward["rule"] == "auto":
        yield Flow((), None, used, "mapped", "verl's default scores by data source")
    else:
        yield Lost(used, f"verl picks its rule by the data_source column; rule {reward['rule']} cannot be forced")
    for name, usual in (("args", {}), ("score_right", 1.0), ("score_wrong", 0.0)):
        if reward[name] != usual:
            yield Lost(((*place, name),), "verl's rules have scores and arguments of their own")
        else:
            yield Flow((), None, ((*place, name),))


def _write_function(view: Writing, root: str, reward: dict[str, Any], place: tuple[Any, ...]) -> Iterator[Out]:
    yield Flow(view.path(f"{root}.path"), reward["path"], ((*place, "path"),), same=True)
    yield Flow((), None, ((*place, "type"),))
    yield Flow(view.path(f"{root}.name"), reward["function"], ((*place, "function"),), same=True)
    if reward["args"]:
        yield Flow(view.path(f"{root}.reward_kwargs"), reward["args"], ((*place, "args"),), same=True)
    if reward["signature"] not in ("auto", "verl"):
        yield Lost(((*place, "signature"),), f"verl calls it as verl's own, not as {reward['signature']}'s")
    else:
        yield Flow((), None, ((*place, "signature"),))


def _write_model(view: Writing, root: str, reward: dict[str, Any], place: tuple[Any, ...], new: bool) -> Iterator[Out]:
    yield Flow(view.path(f"{root}.enable"), True, ((*place, "type"),))
    yield Flow(
        view.path(f"{root}.model_path" if new else f"{root}.model.path"), reward["path"], ((*place, "path"),), same=True
    )
    for name, value in reward["overrides"].items():
        yield Flow((*view.path(root), name), value, ((*place, "overrides"),))
    old = {
        "tokenizer": "model.input_tokenizer",
        "max_tokens": "max_length",
        "micro_per_replica": "micro_batch_size_per_gpu",
        "trust_remote_code": "model.trust_remote_code",
    }
    for name, key in old.items():
        usual = {"micro_per_replica": 16, "trust_remote_code": False}.get(name)
        if not new and reward[name] != usual:
            yield Flow(view.path(f"{root}.{key}"), reward[name], ((*place, name),), same=True)
        elif reward[name] != usual:
            yield Lost(((*place, name),), "the reward model is an engine since verl 0.8")
    if reward["chat_template"]:
        yield Lost(((*place, "chat_template"),), "verl takes the template of the reward model's tokenizer")


OWN = (
    K("custom_reward_function.path", None, until="0.7"),
    K("custom_reward_function.name", "compute_score", until="0.7"),
    K("custom_reward_function.reward_kwargs", ABSENT, until="0.7"),
    K("custom_reward_function.reward_kwargs.**", ABSENT, until="0.7"),
    K("reward_model.enable", False, until="0.7"),
    K("reward_model.model.path", ABSENT, until="0.7"),
    K("reward_model.model.input_tokenizer", ABSENT, until="0.7"),
    K("reward_model.model.trust_remote_code", False, "0.4", "0.7"),
    K("reward_model.max_length", None, until="0.7"),
    K("reward_model.micro_batch_size_per_gpu", None, until="0.7"),
    K("reward_model.strategy", ABSENT, until="0.7"),
    K("reward_model.sandbox_fusion.url", None, "0.4", "0.7"),
    K("reward_model.sandbox_fusion.max_concurrent", 64, "0.4", "0.7"),
    K("reward_model.sandbox_fusion.memory_limit_mb", 1024, "0.5", "0.7"),
    K("reward.custom_reward_function.path", None, "0.8"),
    K("reward.custom_reward_function.name", "compute_score", "0.8"),
    K("reward.custom_reward_function.reward_kwargs", ABSENT, "0.8"),
    K("reward.custom_reward_function.reward_kwargs.**", ABSENT, "0.8"),
    K("reward.reward_model.enable", False, "0.8"),
    K("reward.reward_model.model_path", None, "0.8"),
    K("reward.sandbox_fusion.url", None, "0.8"),
    K("reward.sandbox_fusion.max_concurrent", 64, "0.8"),
    K("reward.sandbox_fusion.memory_limit_mb", 1024, "0.8"),
)

RULES: list[Rule] = [
    Code("rewards", OWN, ("rewards", *(f"rewards[].{name}" for name in REWARD_FIELDS)), _read, _write),
    Key(
        "reward.reward_manager.name",
        "reward_loop.manager",
        "naive",
        NullReads("naive"),
        since="0.8",
        also=(K("reward_manager.name", ABSENT, "0.7", "0.7"), K("reward_model.reward_manager", "naive", until="0.7")),
    ),
    Key("reward_model.launch_reward_fn_async", "reward_loop.overlap_with_rollout", False, since="0.4", until="0.7"),
    Dropped("reward_loop.max_queued", "verl has no bound on waiting scores"),
    Key(
        "reward.num_workers",
        "rewards.0.workers",
        By({"0.8": ABSENT}),
        NullReads(),
        since="0.8",
        also=(K("reward_model.num_workers", ABSENT, "0.7", "0.7"),),
    ),
]
