"""Configs in which one canonical key has a value that is not its default, made from the schema, for the laws of translation."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st

from rlctl.adapters.engine.tree import find, put
from rlctl.common.errors import ConfigError
from rlctl.config import Config, config_from, to_plain
from rlctl.config.fields import Choice, Interval
from rlctl.config.inspect import FieldInfo, KeyInfo, fields_of, walk

BASE: dict[str, Any] = {
    "model": {"path": "org/model"},
    "data": {"train": [{"path": "train.parquet"}], "eval": [{"path": "test.parquet"}]},
    "batch": {"prompts_per_step": 64, "responses_per_prompt": 4, "mini_batch_responses": 64},
    "schedule": {"total_steps": 30, "evaluate_every": 5},
    "algorithm": {"objective": {"type": "rl"}},
    "placement": {"layout": "split", "devices_per_node": 8, "rollout_devices": 4},
    "rollout": {"parallel": {"replicas": 4}},
}
SFT: dict[str, Any] = {
    "model": {"path": "org/model"},
    "data": {
        "train": [{"path": "train.parquet", "messages_key": "messages"}],
        "eval": [{"path": "test.parquet", "messages_key": "messages"}],
        "max_sequence_tokens": 1024,
    },
    "batch": {"prompts_per_step": 64},
    "schedule": {"total_steps": 30},
    "algorithm": {"objective": {"type": "sft"}},
    "checkpoint": {"every": 10},
}
NEEDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("critic", {"algorithm.advantage.type": "gae", "critic": {}}),
    ("critic.model", {"critic.model": {"path": "org/critic"}}),
    ("critic.micro_batch", {"critic.micro_batch": {"unit": "tokens", "size": 2048}}),
    ("model.lora", {"model.lora": {}}),
    ("algorithm.kl_in_loss", {"algorithm.kl_in_loss": {}}),
    ("algorithm.kl_in_reward", {"algorithm.kl_in_reward": {}, "algorithm.advantage.type": "gae", "critic": {}}),
    ("algorithm.rollout_correction", {"algorithm.rollout_correction": {"importance_sampling": {"level": "token"}}}),
    ("algorithm.reward_shaping.overlong_penalty", {"algorithm.reward_shaping.overlong_penalty": {"limit": 400}}),
    ("algorithm.policy_filtration", {"algorithm.policy_filtration": {}}),
    ("data.custom", {"data.custom": {"path": "a.py", "class_name": "A"}}),
    ("data.priority", {"data.priority": {}}),
    ("batch.log_prob_micro_batch", {"batch.log_prob_micro_batch": {"unit": "tokens", "size": 2048}}),
    ("reference.micro_batch", {"reference.micro_batch": {"unit": "tokens", "size": 2048}}),
    ("reference.engine", {"reference.engine": {"type": "fsdp2", "offload": "parameters"}}),
    ("reference.precision", {"reference.precision": {}}),
    ("rollout.timeouts.dynamic", {"rollout.timeouts.dynamic": {}}),
    ("service.data_juicer", {"service.data_juicer": {"url": "http://host:1"}}),
)
TOGETHER: dict[str, dict[str, Any]] = {
    "checkpoint.resume": {"checkpoint.resume_path": "runs/x/global_step_5"},
    "train.lr_scheduler.warmup_ratio": {},
}


def values(info: FieldInfo) -> st.SearchStrategy[Any]:
    """Values of a field other than its default, as plain values of a file."""
    few = (True, False) if info.type is bool else get_args(info.type) if get_origin(info.type) is Literal else ()
    if others := [value for value in few if value != info.default]:
        return st.sampled_from(others)  # a filter would reject half of what is drawn, of each of many keys
    return _of(info.type, info).filter(lambda value: value != _plain(info.default))


def _plain(value: Any) -> Any:
    plain = to_plain(value)
    return list(plain) if isinstance(plain, tuple) else plain


def _of(hint: Any, info: FieldInfo) -> st.SearchStrategy[Any]:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, types.UnionType):
        either = st.one_of(*[_of(arg, info) for arg in args if arg is not type(None)])
        is_off = type(None) in args  # then 0 often means the same
        return either.filter(lambda value: value != 0 or isinstance(value, bool)) if is_off else either
    if hint is bool:
        return st.booleans()
    if hint is int:
        low = int(info.range.at_least) if info.range and info.range.at_least is not None else 1
        high = int(info.range.at_most) if info.range and info.range.at_most is not None else low + 60
        return st.integers(max(low, 0), min(high, max(low, 0) + 60))
    if hint is float:
        return st.sampled_from([item for item in (0.125, 0.25, 0.75, 0.375, 0.0, 2.4) if _in_range(item, info)])
    if hint is str:
        return st.sampled_from(["alpha", "beta/gamma", "some_name"])
    if hint is Interval:
        return st.integers(1, 20)
    if origin is tuple:
        if args[-1] is not Ellipsis:
            return st.just([0.8, 0.95])
        return st.lists(_of(args[0], info), min_size=1, max_size=2, unique_by=str)
    if origin is dict and float in (args[1], *get_args(args[1])):
        return st.fixed_dictionaries({"reward": _of(float, info).filter(bool)})
    if origin is dict or hint is dict:
        return st.just({"key": "value"})
    return st.just({"key": "value"})


def _in_range(value: float, info: FieldInfo) -> bool:
    limits = info.range
    if limits is None:
        return value > 0
    low = limits.at_least is None or value >= limits.at_least
    return (
        low and (limits.above is None or value > limits.above) and (limits.at_most is None or value <= limits.at_most)
    )


def leaves() -> list[KeyInfo]:
    """Every canonical key that holds a value of its own."""
    return [key for key in walk(Config) if not key.is_section and "{}" not in key.pattern]


def build(key: KeyInfo, value: Any, base: dict[str, Any] = BASE) -> tuple[Config, tuple[Any, ...]]:
    """A config that has ``value`` at ``key``, with all that the key needs, and the key's path in it."""
    tree, place = tree_of(key, value, base)
    return config_from(tree), place


def tree_of(key: KeyInfo, value: Any, base: dict[str, Any] = BASE) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """The same as plain values."""
    tree = _copy(base)
    for prefix, extra in NEEDS:
        if key.path == prefix or key.path.startswith(f"{prefix}."):
            for path, item in extra.items():
                put(tree, tuple(path.split(".")), _copy(item))
    for path, item in TOGETHER.get(key.path, {}).items():
        put(tree, tuple(path.split(".")), item)
    place = _place(key, tree)
    put(tree, place, value)
    return tree, place


@dataclass
class Several:
    """Values of many keys in one config, as long as none needs what another rules out."""

    tree: dict[str, Any]
    chosen: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """What the keys set, by place."""
    keys: dict[tuple[Any, ...], tuple[KeyInfo, Any]] = field(default_factory=dict)
    """The keys and their values, by place."""
    options: frozenset[str] = frozenset()
    """The options of choices that the keys belong to: keys of one option are together, and no others with them."""

    def take(self, key: KeyInfo, value: Any, base: dict[str, Any]) -> bool:
        """Add a key, unless it contradicts what is there, or the config would be none."""
        options = frozenset(part for part in key.pattern.split(".") if "<" in part)
        if self.keys and options != self.options:
            return False
        tree, place = tree_of(key, value, base)
        sets = {path: item for path, item in _plain_leaves(tree) if find(base, path) != item}
        if any(self._contradicts(path, item) for path, item in sets.items()) or place in self.keys:
            return False
        merged = _copy(self.tree)
        for path, item in sets.items():
            put(merged, path, _copy(item))
        try:
            config_from(merged)
        except ConfigError:
            return False
        self.tree, self.chosen, self.keys[place] = merged, {**self.chosen, **sets}, (key, value)
        self.options = options
        return True

    def _contradicts(self, path: tuple[Any, ...], item: Any) -> bool:
        if path in self.chosen:
            return bool(self.chosen[path] != item)
        return any(path[: len(other)] == other or other[: len(path)] == path for other in self.chosen)

    @property
    def config(self) -> Config:
        return config_from(self.tree)


def together(drawn: Iterable[tuple[KeyInfo, Any]], base: dict[str, Any] = BASE, most: int = 20) -> list[Several]:
    """The keys with their values, in as few configs as they fit into; those that fit into none are left out."""
    groups: list[Several] = []
    for key, value in drawn:
        for group in groups:
            if len(group.keys) < most and group.take(key, value, base):
                break
        else:
            alone = Several(_copy(base))
            if alone.take(key, value, base):
                groups.append(alone)
    return groups


def _plain_leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inside = [(name, item) for name, item in pairs] if not isinstance(value, list) or _holds_sections(value) else []
    if not inside:
        yield path, value
    for name, item in inside:
        yield from _plain_leaves(item, (*path, name))


def _holds_sections(value: list[Any]) -> bool:
    return bool(value) and isinstance(value[0], dict)


def _place(key: KeyInfo, tree: dict[str, Any]) -> tuple[Any, ...]:
    """Walk the key's pattern, choosing the option of every choice and the first item of every list on the way."""
    place: list[Any] = []
    item = ".1" if key.pattern.startswith("tracking") else ".0"
    if item == ".1":
        put(tree, ("tracking",), [{"type": "console"}])
    for part in key.pattern.replace("[]", item).split("."):
        name, _, option = part.partition("<")
        place.append(int(name) if name.isdecimal() else name)
        if option:
            section = find(tree, tuple(place))
            required = _required(option.rstrip(">"), tuple(place))
            chosen = {"type": "verl.something" if option == "other>" else option.rstrip(">"), **required}
            put(tree, tuple(place), {**(section if isinstance(section, dict) else {}), **chosen})
    return tuple(place)


def _required(option: str, place: tuple[Any, ...]) -> dict[str, Any]:
    if place == ("rollout", "agents", 0):
        others = {
            "environment": {"environment": {"type": "gymnasium", "id": "CartPole-v1"}},
            "program": {"program": {"type": "command", "command": ["run"]}},
            "function": {"path": "agent.py"},
            "other": {"framework": "verl", "kind": "some_agent"},
        }
        return {"name": "some_agent", **others.get(option, {})}
    if place[0] == "rewards":
        return {
            "function": {"path": "reward.py"},
            "model": {"path": "org/reward"},
            "sandbox": {"url": "http://host:8080"},
            "external": {"kind": "some_reward"},
        }.get(option, {})
    return {}


def _copy(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: _copy(inner) for key, inner in item.items()}
    return [_copy(inner) for inner in item] if isinstance(item, list) else item


@st.composite
def numbered(draw: st.DrawFn) -> Config:
    """A run whose every number is drawn: batch, schedule, loss, lengths, sampling, devices. Most divide; some do not."""

    def one(*choices: Any) -> Any:
        return draw(st.sampled_from(choices))

    group, prompts = one(1, 4, 8), one(16, 32, 64, 96)
    parts = one(1, 2, 4)
    engine = one(
        {"type": "fsdp2"},
        {"type": "fsdp2", "ulysses_sequence_parallel_size": 2},
        {"type": "megatron"},
        {"type": "megatron", "tensor_parallel_size": 2, "context_parallel_size": 2},
    )
    shape = one("constant", "cosine") if engine["type"] == "fsdp2" else one("constant", "cosine", "linear")
    kl = {"estimator": one("k1", "k2", "k3", "abs"), "coefficient": one(0.001, 0.25)}
    rl: dict[str, Any] = {"objective": {"type": "rl"}, "advantage": {"type": one("grpo", "rloo", "gae")}}
    rl["policy_loss"] = one(
        {"type": "ppo_clip", "clip_low": 0.25, "clip_high": 0.5, "dual_clip": 4.0},
        {"type": "ppo_clip", "clip_low": 0.125, "clip_high": 0.125, "dual_clip": None},
        {"type": "gspo"},
        {"type": "cispo", "clip_low": 0.5},
    )
    rl["loss_aggregation"] = {"mode": one("token_mean", "seq_mean_token_sum", "seq_mean_token_mean")}
    rl[one("kl_in_loss", "kl_in_reward")] = one(None, kl)
    sampling = st.fixed_dictionaries(
        {
            "temperature": st.sampled_from([0.0, 0.75, 1.0]),
            "top_p": st.sampled_from([0.75, 1.0]),
            "top_k": st.sampled_from([None, 20]),
        }
    )
    held_out = [
        {"path": f"test_{place}.parquet", "responses_per_prompt": one(1, 4), "evaluation_sampling": draw(sampling)}
        for place in range(one(1, 2))
    ]
    split = one({"layout": "colocated"}, {"layout": "split", "rollout_devices": 4})
    tree = {
        "model": {"path": "org/model"},
        "data": {
            "train": [{"path": "train.parquet"}],
            "eval": held_out,
            "max_prompt_tokens": one(256, 1000),
        },
        "batch": {
            "prompts_per_step": prompts,
            "responses_per_prompt": group,
            "mini_batch_responses": one(None, prompts * group // parts),
            "ppo_epochs": one(1, 1, 2),
            "micro_batch": one({"unit": "tokens", "size": 4096}, {"unit": "responses", "size": 2}),
        },
        "schedule": {
            **one({"total_steps": 40}, {"total_epochs": 2}, {"total_steps": 40, "total_epochs": 300}),
            "evaluate_every": one(None, 5),
        },
        "checkpoint": {"every": one(None, 10, {"optimizer_steps": 24})},
        "algorithm": rl,
        "critic": {} if rl["advantage"]["type"] == "gae" else None,
        "rollout": {
            "max_response_tokens": one(512, 3000),
            "sampling": {**draw(sampling), "temperature": one(0.75, 1.0)},
        },
        "train": {
            "engine": engine,
            "optimizer": {"lr": one(1e-6, 3e-5)},
            "lr_scheduler": {
                "type": shape,
                "step_unit": one("step", "optimizer_step"),
                **one({}, {"warmup_steps": 8}, {"warmup_ratio": 0.25}),
                "min_lr_ratio": one(0.0, 0.25) if shape != "constant" else 0.0,
            },
        },
        "placement": {"devices_per_node": 8, **split},
    }
    return config_from(tree)


__all__ = ["BASE", "SFT", "Choice", "build", "fields_of", "leaves", "numbered", "together", "values"]
