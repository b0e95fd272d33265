"""Laws of the config as plain values, over random configs made from the schema's own types.

build(dump(config)) == config                   whole and sparse
merge(base, difference(base, other)) == other   what stages are made of
stages_of(combine(parts)) == parts
"""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlctl.config import Config, build_config, combine, config_from, stages_of, to_file, to_plain
from rlctl.config.fields import MAX_DEVICES, Choice, Interval, Range
from rlctl.config.inspect import FieldInfo, fields_of
from rlctl.config.inspect import settings as settings_of
from rlctl.config.stages import difference, merge

FREE = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab1", max_size=3),
    lambda items: (
        st.lists(items, max_size=2) | st.dictionaries(st.text("xyz", min_size=1, max_size=2), items, max_size=2)
    ),
    max_leaves=3,
)
"""Values of mappings that hold anything."""


def in_range(hint: type, bounds: Range | None) -> st.SearchStrategy[Any]:
    bounds = bounds or Range()
    if hint is int:
        low = (
            bounds.at_least if bounds.at_least is not None else None if bounds.above is None else int(bounds.above) + 1
        )
        high = int(bounds.at_most) if bounds.at_most is not None else None
        high = 300 if high == MAX_DEVICES else high  # so that nodes * devices of a node are allowed too
        return st.integers(-(2**53) + 1 if low is None else int(low), 2**53 - 1 if high is None else high)
    low = bounds.at_least if bounds.above is None else bounds.above
    high = bounds.at_most if bounds.below is None else bounds.below
    return st.floats(low, high, allow_nan=False, allow_infinity=False).filter(lambda value: value in bounds)


def values(hint: Any, info: FieldInfo | None = None) -> st.SearchStrategy[Any]:
    """Plain values that a type of the schema takes."""
    origin, args = get_origin(hint), get_args(hint)
    bounds = info.range if info is not None else None
    if origin is Annotated:
        return in_range(args[0], next((extra for extra in hint.__metadata__ if isinstance(extra, Range)), None))
    if hint is Any or hint is dict:
        return FREE if hint is Any else st.dictionaries(st.text("xyz", min_size=1), FREE, max_size=2)
    if origin in (Union, types.UnionType):
        return st.one_of([st.none() if arg is type(None) else values(arg, info) for arg in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        fixed = len(args) == 2 and args[1] is not Ellipsis
        return st.lists(values(args[0]), min_size=2 if fixed else 0, max_size=2)
    if origin is dict:
        return st.dictionaries(st.text("xyz", min_size=1, max_size=2), values(args[1]), max_size=2)
    if hint is Interval:
        units = st.sampled_from(["steps", "optimizer_steps", "epochs"])
        return st.integers(1) | st.dictionaries(units, st.integers(1), min_size=1, max_size=1)
    if isinstance(hint, type) and issubclass(hint, Choice):
        names = (*hint.names(), *(["verl.mine"] if hint.further else []))
        return st.sampled_from(names).flatmap(lambda name: option(hint, name))
    if hint in (int, float):
        return in_range(hint, bounds)
    if hint in (str, bool):
        return st.text(max_size=4) if hint is str else st.booleans()
    return section(hint)


def option(setting: type[Choice], name: str) -> st.SearchStrategy[Any]:
    found = setting.option(name)
    assert found is not None
    chosen = section(found[1]).map(lambda options: {setting.tag: name, **options})
    return chosen if any(info.required for info in fields_of(found[1]).values()) else chosen | st.just(name)


@cache
def section(cls: type) -> st.SearchStrategy[dict[str, Any]]:
    """Some of a section's fields, all that are required among them. Made once: a strategy that is new is validated anew."""
    fields = {name: info for name, info in fields_of(cls).items() if name not in ("rlctl", "stages")}
    of = {name: values(info.type, info) for name, info in fields.items()}
    required = {name: of[name] for name, info in fields.items() if info.required}
    others = [name for name, info in fields.items() if not info.required]
    picked = st.lists(st.sampled_from(others), unique=True, max_size=3) if others else st.just([])
    return picked.flatmap(lambda names: st.fixed_dictionaries({**required, **{name: of[name] for name in names}}))


CONFIGS = section(Config).map(config_from)
WITH_A_MODEL = st.builds(
    lambda plain, path: config_from({**plain, "model": {**plain.get("model", {}), "path": path}}),
    section(Config),
    st.sampled_from(["one", "two"]),
)
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@QUICK
@given(section(Config))
def test_what_the_types_allow_is_built(plain: dict[str, Any]) -> None:
    config, findings = build_config(plain)
    assert findings == []
    assert config is not None


@QUICK
@given(CONFIGS)
def test_a_dumped_config_is_built_again_as_it_was(config: Config) -> None:
    assert config_from(to_plain(config)) == config
    assert config_from(to_plain(config, sparse=True)) == config
    assert config_from(to_file(config)) == config
    assert next(iter(to_file(config))) == "rlctl"


@QUICK
@given(CONFIGS)
def test_a_sparse_dump_holds_nothing_that_is_a_default(config: Config) -> None:
    whole, sparse = to_plain(config), to_plain(config, sparse=True)
    assert set(sparse) <= set(whole)
    assert to_plain(Config(), sparse=True) == {}
    assert config_from({}) == Config()


@QUICK
@given(CONFIGS)
def test_settings_of_a_config_are_where_they_say(config: Config) -> None:
    plain = to_plain(config)
    for setting in settings_of(config):
        at: Any = plain
        for part in setting.path:
            at = at[part]
        if not setting.pattern.endswith(">"):
            assert at == to_plain(setting.value)


@QUICK
@given(CONFIGS, CONFIGS)
def test_a_difference_merged_into_its_base_is_the_other(base: Config, other: Config) -> None:
    before, after = to_plain(base), to_plain(other)
    assert merge(before, difference(before, after)) == after
    assert difference(before, before) == {}


@QUICK
@given(CONFIGS, CONFIGS)
def test_a_difference_says_only_what_differs(base: Config, other: Config) -> None:
    before, after = to_plain(base), to_plain(other)
    for key in difference(before, after):
        assert before[key] != after[key]


@QUICK
@given(WITH_A_MODEL, CONFIGS | WITH_A_MODEL)
def test_combined_configs_come_apart_as_stages(first: Config, second: Config) -> None:
    combined = combine([("a", first), ("b", second)])
    one, two = stages_of(combined)
    assert (one.name, two.name) == ("a", "b")
    assert one.config == first
    assert two.config == second
    assert not one.continues
    assert two.continues == (second.model.path == first.model.path)
