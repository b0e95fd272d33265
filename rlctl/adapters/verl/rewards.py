"""verl: how responses are scored. Two generations of keys: roots of their own until 0.7, the ``reward`` tree since 0.8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlctl.adapters.engine.implied import SCORERS, WORKERS, scored_as, told
from rlctl.adapters.engine.lacking import lacking
from rlctl.adapters.engine.rules import (
    ABSENT,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    InexpressibleError,
    Key,
    Out,
    Reading,
    Rule,
    Writing,
)
from rlctl.adapters.engine.values import REWARD_FIELDS, NullReads
from rlctl.adapters.verl.shaping import replaces_manager
from rlctl.common.messages.reasons import said

CODE = tuple(source for row in SCORERS for source in row.sources if row.runs_programs)
"""Data sources whose programs verl's default runs in the sandbox."""
OTHERS = tuple(source for row in SCORERS for source in row.sources if not row.runs_programs)
"""Those that it scores by rules."""
MODEL_NAME, SANDBOX_NAME = "reward_model", "code"
"""Names of rewards that stand beside another."""
SANDBOX_KEY = "reward.sandbox_fusion"
SANDBOX = {"url": "url", "max_concurrent": "max_concurrent", "memory_limit_mb": "memory_limit_mib"}
"""Keys of verl's sandbox, and the fields of a reward for them."""


def _roots(view: Reading) -> tuple[str, str, str]:
    """Where the function, the model and the sandbox stand in this text."""
    old = ("custom_reward_function", "reward_model", "reward_model.sandbox_fusion")
    new = ("reward.custom_reward_function", "reward.reward_model", "reward.sandbox_fusion")
    if view.version >= (0, 8):
        return new
    function, model, sandbox = (
        there if view.written(there) and not view.written(here) else here  # 0.7.1 has both, and the old one decides
        for here, there in zip(old, new, strict=True)
    )
    return function, model, sandbox


def _read(view: Reading) -> Iterator[Flow]:
    """A function goes over a reward model since 0.7, and a reward model over a function before; both go over the default."""
    function, model, sandbox = roots = _roots(view)
    by_model = bool(view.get(f"{model}.enable"))
    by_function = bool(view.get(f"{function}.path")) and not (by_model and view.version < (0, 7))
    by_sandbox = bool(view.get(f"{sandbox}.url")) and not by_function and not by_model
    if by_function:
        yield from _read_function(view, function, 0)
    if by_model:
        yield from _read_model(view, model, int(by_function))
    if by_function and by_model:
        note = "verl uses only the function's score; the function may call the model through verl's router"
        yield Flow(("rewards", 1, "weight"), 0.0, (view.path(f"{model}.enable"),), "derived", note)
        yield Flow(("rewards", 1, "name"), MODEL_NAME, ())
    if by_sandbox:
        yield from _read_sandbox(view, sandbox)
    if not by_function and not by_model:
        index, used = int(by_sandbox), (view.path(f"{function}.path"),)
        yield Flow(("rewards", index, "type"), "rule", used, "mapped", "verl's default scores by data source")
        yield Flow(("rewards", index, "rule"), "auto", ())
    yield from _unused(view, roots, (by_function, by_model, by_sandbox))


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
    new = root.startswith("reward.")
    path = f"{root}.model_path" if new else f"{root}.model.path"
    yield Flow((*to, "type"), "model", (view.path(f"{root}.enable"),))
    yield Flow((*to, "path"), view.get(path) or "", (view.path(path),), same=True)
    if not new:
        tokenizer = f"{root}.model.input_tokenizer"
        if view.written(tokenizer):
            note = "the policy's tokenizer decodes responses; the reward model uses its own, as in rlctl"
            yield Flow((), None, (view.path(tokenizer),), "mapped", note)
        yield Flow((*to, "max_tokens"), view.get(f"{root}.max_length"), (view.path(f"{root}.max_length"),), same=True)
        size = view.get(f"{root}.micro_batch_size_per_gpu")
        if isinstance(size, int):
            yield Flow((*to, "micro_batch_size"), size, (view.path(f"{root}.micro_batch_size_per_gpu"),), same=True)
        trust = f"{root}.model.trust_remote_code"
        yield Flow((*to, "trust_remote_code"), bool(view.get(trust)), (view.path(trust),), same=True)
    block = view.get(root)
    kept = {name: item for name, item in block.items() if name not in OWN_FIELDS} if isinstance(block, dict) else {}
    if kept:
        yield Flow((*to, "overrides"), kept, tuple(view.path(f"{root}.{name}") for name in kept))


LOOP_FIELDS = (
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
"""Keys of a reward model's section that say how scores are asked for, whatever gives them."""
OWN_FIELDS = ("enable", "model_path", "model", "max_length", "micro_batch_size_per_gpu", "profiler", *LOOP_FIELDS)
"""All that its section has beside what is handed on to its engine."""


def _read_sandbox(view: Reading, root: str) -> Iterator[Flow]:
    """The sandbox scores programs, rules score the rest: verl's default goes by data source."""
    to, used = ("rewards", 0), (view.path(f"{root}.url"),)
    yield Flow((*to, "type"), "sandbox", used)
    yield Flow((*to, "name"), SANDBOX_NAME, ())
    yield Flow((*to, "applies_to"), list(CODE), used, "derived", "the data sources with programs")
    yield Flow(
        (*to, "partial_credit"), True, used, "derived", "verl scores the share of passed cases among the first 10"
    )
    yield Flow(("rewards", 1, "applies_to"), list(OTHERS), used, "derived", "what verl scores by rules")
    for name, field in SANDBOX.items():
        if view.get(f"{root}.{name}") is not None:
            yield Flow((*to, field), view.get(f"{root}.{name}"), (view.path(f"{root}.{name}"),), same=True)


def _unused(view: Reading, roots: tuple[str, str, str], used: tuple[bool, bool, bool]) -> Iterator[Flow]:
    """The settings of what does not score."""
    function, model, sandbox = roots
    by_function, by_model, by_sandbox = used
    deciding = "only the function scores" if by_function else "only the reward model scores"
    for root, on, live in (
        (model, f"{model}.enable", by_model),
        (sandbox, f"{sandbox}.url", by_sandbox),
        (function, f"{function}.path", by_function),
    ):
        if not live and view.written(root):
            inside = view.get(root)
            places = [(*view.path(root), name) for name in inside] if isinstance(inside, dict) else [view.path(root)]
            other = [place for place in places if place[-1] not in (*LOOP_FIELDS, "overlong_buffer")]
            if other:
                yield Flow((), None, tuple(other), "dead", deciding if view.get(on) else said("'{on}' is off", on=on))


def _write(view: Writing) -> Iterator[Out]:
    rewards = view.get("rewards")
    chosen = _deciding([reward["type"] for reward in rewards])
    for index, reward in enumerate(rewards):
        place, kind = ("rewards", index), reward["type"]
        if index in chosen:
            yield from _write_one(view, reward, place)
        elif kind == "model" and not reward["weight"] and view.version >= (0, 7):
            yield from _write_one(view, {**reward, "weight": 1.0}, place)
        elif kind in ("function", "model", "sandbox", "rule"):
            yield Inexpressible(
                (place,),
                "verl does not sum rewards: it scores with one function, one model, or its default by data source",
            )
        else:
            reason = said(
                "verl has no {kind} reward; write a function for it{told}",
                kind=reward.get("kind", kind),
                told=told(WORKERS, reward.get("kind")),
            )
            yield Inexpressible((place, (*place, "type")), reason)
    if not rewards:
        yield Inexpressible((("rewards",),), "verl always scores; its default reward depends on the data source")


def _deciding(kinds: list[str]) -> set[int]:
    """The rewards that score in verl: a function, else a model, else the sandbox and the default's rules beside it."""
    for wanted in (("function",), ("model",), ("sandbox", "rule")):
        if any(kind in wanted for kind in kinds):
            return {kinds.index(kind) for kind in wanted if kind in kinds}
    return set()


def _write_one(view: Writing, reward: dict[str, Any], place: tuple[Any, ...]) -> Iterator[Out]:
    new, kind = view.version >= (0, 8), reward["type"]
    prefix = "reward." if new else ""
    shared = {"sandbox": list(CODE), "rule": list(OTHERS)}.get(kind)
    if shared is not None and list(reward["applies_to"] or ()) == shared:
        yield Flow((), None, ((*place, "applies_to"),), "mapped", "the data sources that verl scores this way")
        reward = {**reward, "applies_to": None}
    yield from _common(reward, place)
    if kind == "rule":
        yield from _write_rule(reward, place)
    elif kind == "function":
        yield from _write_function(view, f"{prefix}custom_reward_function", reward, place)
    elif kind == "model":
        yield from _write_model(view, f"{prefix}reward_model", reward, place, new)
    else:
        yield from _write_sandbox(
            view,
            SANDBOX_KEY if view.has(DialectKey(f"{SANDBOX_KEY}.url")) else f"{MODEL_NAME}.sandbox_fusion",
            reward,
            place,
        )


def _write_sandbox(view: Writing, root: str, reward: dict[str, Any], place: tuple[Any, ...]) -> Iterator[Out]:
    if reward["url"] is None:
        reason = "verl runs programs in a sandbox service, or without one in its own process, by data source"
        yield Inexpressible(
            ((*place, "type"), *((*place, name) for name in ("url", "memory_limit_mib", "isolation"))), reason
        )
    if reward["method"] != "verl":
        yield Inexpressible(((*place, "method"),), "verl reads test cases in another format, from the answer")
    else:
        yield Flow((), None, ((*place, "method"),))
    for name, field in SANDBOX.items() if reward["url"] is not None else ():
        used = ((*place, field), (*place, "type"))[: 2 if name == "url" else 1]
        yield Flow(view.path(f"{root}.{name}"), reward[field], used, same=name != "url")
    if reward["tests_together"] != "run":
        yield Inexpressible(((*place, "tests_together"),), "verl runs assertions in the process of the program")
    if reward["partial_credit"]:
        yield Flow((), None, ((*place, "partial_credit"),), "mapped", "verl scores the share of the first 10 cases")
    else:
        yield Inexpressible(
            ((*place, "partial_credit"),),
            "verl scores the share of passed cases among the first 10, not all or nothing",
        )


def _common(reward: dict[str, Any], place: tuple[Any, ...]) -> Iterator[Out]:
    usual = {"weight": 1.0, "applies_to": None, "timeout": 30.0, "on_error": "zero"}
    for name, value in usual.items():
        if reward[name] != value:
            yield Inexpressible(((*place, name),), lacking("verl", ("rewards", name)))
    for name in ("name", "workers", *(name for name, value in usual.items() if reward[name] == value)):
        yield Flow((), None, ((*place, name),))


def _write_rule(reward: dict[str, Any], place: tuple[Any, ...]) -> Iterator[Out]:
    used = ((*place, "type"), (*place, "rule"))
    if reward["rule"] == "auto":
        yield Flow((), None, used, "mapped", "verl's default scores by data source")
    else:
        source, rule = scored_as(reward["rule"]), reward["rule"]
        reason = (
            said(
                "verl picks its rule by the data_source column: set it to '{source}' in each row for rule {rule}",
                source=source,
                rule=rule,
            )
            if source
            else said(
                "verl has no rule {rule}, and stops at a row whose data_source it does not know: name your function in "
                "custom_reward_function",
                rule=rule,
            )
        )
        yield Inexpressible(used, reason)
    for name, usual in (("args", {}), ("score_right", 1.0), ("score_wrong", 0.0)):
        if reward[name] != usual:
            yield Inexpressible(((*place, name),), "verl's rules have their own scores and arguments")
        else:
            yield Flow((), None, ((*place, name),))


def _write_function(view: Writing, root: str, reward: dict[str, Any], place: tuple[Any, ...]) -> Iterator[Out]:
    yield Flow(view.path(f"{root}.path"), reward["path"], ((*place, "path"),), same=True)
    yield Flow((), None, ((*place, "type"),), "mapped", "a named function scores")
    yield Flow(view.path(f"{root}.name"), reward["function"], ((*place, "function"),), same=True)
    args = ((*place, "args"),)
    yield Flow(view.path(f"{root}.reward_kwargs") if reward["args"] else (), reward["args"], args, same=True)
    if reward["signature"] not in ("auto", "verl"):
        yield Inexpressible(
            ((*place, "signature"),),
            said("verl calls it with verl's signature, not {signature}'s", signature=reward["signature"]),
        )
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
        "max_tokens": "max_length",
        "micro_batch_size": "micro_batch_size_per_gpu",
        "trust_remote_code": "model.trust_remote_code",
    }
    for name, key in old.items():
        usual = {"micro_batch_size": 16, "trust_remote_code": False}.get(name)
        if not new and reward[name] != usual:
            yield Flow(view.path(f"{root}.{key}"), reward[name], ((*place, name),), same=True)
        elif reward[name] != usual:
            yield Inexpressible(((*place, name),), "the reward model is an engine since verl 0.8")
    for name in ("tokenizer", "chat_template"):
        if reward[name]:
            yield Inexpressible(((*place, name),), "verl uses the reward model's own tokenizer and chat template")


OWN = (  # 0.7.1 and 0.8.0 experimental/reward_loop/reward_loop.py, migrate_legacy_reward_impl: where the old keys are moved
    DialectKey("custom_reward_function.path", until="0.7"),
    DialectKey("custom_reward_function.name", "compute_score", until="0.7"),
    DialectKey("custom_reward_function.reward_kwargs", ABSENT, until="0.7"),
    DialectKey("custom_reward_function.reward_kwargs.**", ABSENT, until="0.7"),
    DialectKey("reward_model.enable", False, until="0.7"),
    DialectKey("reward_model.model.path", ABSENT, until="0.7"),
    DialectKey("reward_model.model.input_tokenizer", ABSENT),
    DialectKey("reward_model.model.trust_remote_code", False, until="0.7"),
    DialectKey("reward_model.max_length"),
    DialectKey("reward_model.micro_batch_size_per_gpu"),
    DialectKey("reward_model.strategy", ABSENT),
    DialectKey("reward_model.sandbox_fusion.url"),
    DialectKey("reward_model.sandbox_fusion.max_concurrent"),
    DialectKey("reward_model.sandbox_fusion.memory_limit_mb"),
    DialectKey("reward.custom_reward_function.path"),
    DialectKey("reward.custom_reward_function.name"),
    DialectKey("reward.custom_reward_function.reward_kwargs", ABSENT, since="0.7"),
    DialectKey("reward.custom_reward_function.reward_kwargs.**", ABSENT, since="0.7"),
    DialectKey("reward.reward_model.enable"),
    DialectKey("reward.reward_model.model_path"),
    DialectKey("reward.sandbox_fusion.url"),
    DialectKey("reward.sandbox_fusion.max_concurrent"),
    DialectKey("reward.sandbox_fusion.memory_limit_mb"),
)

REMOVED = ("batch", "prime")
"""Reward managers that releases before 0.8 have."""


class Manager(NullReads):
    """The name of a reward manager; those that a release has not are left to its default."""

    def write(self, value: Any, view: Writing) -> Any:
        if value in REMOVED and view.version >= (0, 8):
            raise InexpressibleError(
                said(
                    "verl has no reward manager {name} since 0.8; the default one calls the reward function for each response",
                    name=value,
                )
            )
        return super().write(value, view)


RULES: list[Rule] = [
    CustomRule(
        "rewards",
        OWN,
        ("rewards", *(f"rewards[].{name}" for name in REWARD_FIELDS)),
        _read,
        _write,
        by_key={
            **{
                f"{root}custom_reward_function.{name}": f"rewards[].{field}"
                for root in ("", "reward.")
                for name, field in (("path", "path"), ("name", "function"), ("reward_kwargs", "args"))
            },
            **{
                f"{root}.sandbox_fusion.{name}": f"rewards[].{field}"
                for root in ("reward_model", "reward")
                for name, field in SANDBOX.items()
            },
            **{
                f"{root}.sandbox_fusion.url": ("rewards[].url", "rewards[].applies_to", "rewards[].partial_credit")
                for root in ("reward_model", "reward")
            },
            "reward_model.enable": ("rewards[].type", "rewards[].weight"),
            "reward_model.model.path": "rewards[].path",
            "reward_model.model.input_tokenizer": "rewards[].chat_template",
            "reward_model.model.trust_remote_code": "rewards[].trust_remote_code",
            "reward_model.max_length": "rewards[].max_tokens",
            "reward_model.micro_batch_size_per_gpu": "rewards[].micro_batch_size",
            "reward_model.strategy": "rewards[].overrides",
            "reward.reward_model.enable": ("rewards[].type", "rewards[].weight"),
            "reward.reward_model.model_path": "rewards[].path",
        },
        why="Three blocks, of which one scores, become a list of rewards, and the other way round.",
    ),
    Key(
        "reward.reward_manager.name",
        "reward_loop.manager",
        convert=Manager("naive"),
        also=(
            DialectKey("reward_manager.name", ABSENT),
            # 0.7.1 and 0.8.0 experimental/reward_loop/reward_loop.py, migrate_legacy_reward_impl
            DialectKey("reward_model.reward_manager", "naive", until="0.7"),
        ),
        write_when=lambda view: not replaces_manager(view),
    ),
    Key("reward_model.launch_reward_fn_async", "reward_loop.overlap_with_rollout"),
    Dropped("reward_loop.max_queued", "verl has no limit on pending scores"),
    Key(
        "reward.num_workers",
        "rewards.0.workers",
        ABSENT,
        NullReads(),
        # 0.7.1 and 0.8.0 experimental/reward_loop/reward_loop.py, migrate_legacy_reward_impl
        also=(DialectKey("reward_model.num_workers", ABSENT, until="0.7"),),
        implied=True,
    ),
]
