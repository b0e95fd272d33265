"""ROLL: correction between rollout and training engine, ``train_infer_correction``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.rules import ABSENT, CustomRule, DialectKey, Flow, Inexpressible, Out, Reading, Writing
from rlctl.adapters.engine.values import CORRECTION_FIELDS
from rlctl.adapters.roll.numbers import number
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import is_number

ROOT = "train_infer_correction"
WEIGHT, FILTERS = f"{ROOT}.is_weight", f"{ROOT}.filters"
C = "algorithm.rollout_correction"
IS = f"{C}.importance_sampling"
RULES_BY_LEVEL = {"token": "token_k1", "geometric": "seq_mean_k1", "sequence": "seq_sum_k1"}
"""ROLL's level of a ratio, and the rule that is the same."""
UNBOUND = 1e9
"""An upper bound that never cuts; ROLL's null."""
TURNED = (
    "rlctl and verl bound the ratio rollout / training, ROLL bounds training / rollout, so LOW and HIGH "
    "are 1/ratio_high and 1/ratio_low"
)


def _active(view: Reading) -> list[tuple[int, Mapping[str, Any]]]:
    found = view.get(FILTERS)
    items = found if isinstance(found, (list, tuple)) else []
    return [(index, item) for index, item in enumerate(items) if isinstance(item, Mapping) and item.get("enabled")]


def _says(item: Mapping[str, Any]) -> bool:
    """Whether a filter by ratios has an equal elsewhere."""
    return bool(item.get("ratio_enabled", True)) and item.get("agg_type", "token") in RULES_BY_LEVEL


def _read(view: Reading) -> Iterator[Flow]:
    weighs = bool(view.get(f"{WEIGHT}.enabled"))
    filters = [(index, item) for index, item in _active(view) if _says(item)]
    on = weighs or bool(filters)
    yield Flow(view.to(C), {} if on else None, (view.path(f"{WEIGHT}.enabled"),))
    if weighs:
        upper = view.get(f"{WEIGHT}.upper_bound")
        yield Flow(
            view.to(f"{IS}.level"), view.get(f"{WEIGHT}.weight_type"), (view.path(f"{WEIGHT}.weight_type"),), same=True
        )
        to = view.to(f"{IS}.threshold")
        yield Flow(to, UNBOUND if upper is None else number(upper), (view.path(f"{WEIGHT}.upper_bound"),))
    else:
        for name in ("weight_type", "upper_bound"):
            if view.written(f"{WEIGHT}.{name}"):
                yield Flow((), None, (view.path(f"{WEIGHT}.{name}"),), "dead", "is_weight.enabled is off")
    if filters:
        yield from _read_filters(view, filters)
    yield from _off(view)


def _read_filters(view: Reading, filters: list[tuple[int, Mapping[str, Any]]]) -> Iterator[Flow]:
    root = view.path(FILTERS)
    rules = [RULES_BY_LEVEL[item.get("agg_type", "token")] for _, item in filters]
    bounds = [
        [_turned_if_number(item.get(name, at)) for name, at in (("ratio_high", 1.2), ("ratio_low", 0.8))]
        for _, item in filters
    ]
    levels = tuple((*root, index, name) for index, _ in filters for name in ("enabled", "agg_type", "ratio_enabled"))
    yield Flow(view.to(f"{C}.rejection"), rules, levels)
    ends = tuple((*root, index, name) for index, _ in filters for name in ("ratio_low", "ratio_high"))
    yield Flow(view.to(f"{C}.rejection_bounds"), bounds, ends, "derived", TURNED)


def _off(view: Reading) -> Iterator[Flow]:
    found = view.get(FILTERS)
    for index, item in enumerate(found if isinstance(found, (list, tuple)) else []):
        place = (*view.path(FILTERS), index)
        if isinstance(item, Mapping) and not item.get("enabled"):
            yield Flow((), None, (place,), "dead", "this filter is off")
        elif isinstance(item, Mapping) and not item.get("diff_enabled"):
            for name in ("diff_enabled", "diff_low", "diff_high"):
                yield Flow((), None, ((*place, name),), "dead", "this filter does not use differences")


def _write(view: Writing) -> Iterator[Out]:
    section = view.get(C)
    if not isinstance(section, Mapping):
        return

    def used(*names: str) -> tuple[Any, ...]:
        return tuple(view.to(f"{C}.{name}") for name in names)

    sampling = section["importance_sampling"]
    if sampling["level"] != "none":
        upper = sampling["threshold"]
        yield Flow(view.path(f"{WEIGHT}.enabled"), True, used("importance_sampling.level"), always=True)
        yield Flow(
            view.path(f"{WEIGHT}.weight_type"),
            sampling["level"],
            used("importance_sampling.level"),
            same=True,
            always=True,
        )
        bound = None if upper >= UNBOUND else upper
        yield Flow(view.path(f"{WEIGHT}.upper_bound"), bound, used("importance_sampling.threshold"), always=True)
    elif view.explicit(f"{IS}.threshold"):
        yield Flow(
            (),
            None,
            used("importance_sampling.threshold"),
            "derived",
            "no importance weight is set, so its bound has no effect",
        )
    if sampling["lower_threshold"] is not None:
        yield Inexpressible(used("importance_sampling.lower_threshold"), "ROLL's weights have no lower bound")
    if sampling["normalize"]:
        yield Inexpressible(used("importance_sampling.normalize"), "ROLL does not normalise weights over the batch")
    if section["veto_threshold"] is not None:
        yield Inexpressible(used("veto_threshold"), "ROLL has no veto")
    if section["use_policy_gradient"]:
        yield Inexpressible(
            used("use_policy_gradient"),
            (
                "ROLL's plain policy gradient is pg_variant vanilla, which cannot use the rollout engine's log-probs "
                "as old log-probs"
            ),
        )
    yield from _write_filters(view, section)


def _write_filters(view: Writing, section: Mapping[str, Any]) -> Iterator[Out]:
    levels = {rule: level for level, rule in RULES_BY_LEVEL.items()}
    places = (view.to(f"{C}.rejection"), view.to(f"{C}.rejection_bounds"))
    written = []
    for index, rule in enumerate(section["rejection"]):
        bounds = section["rejection_bounds"]
        bound = bounds[0] if len(bounds) == 1 else bounds[index] if index < len(bounds) else None
        ends = _ends(bound)
        if rule not in levels or ends is None:
            yield Inexpressible(
                places,
                said(
                    "ROLL rejects by ratios of tokens, of sequences or of their mean, not by {rule} {bound}",
                    rule=rule,
                    bound=bound,
                ),
            )
            continue
        low, high = ends
        written.append({"enabled": True, "agg_type": levels[rule], "ratio_low": low, "ratio_high": high})
    if written:
        yield Flow(view.path(FILTERS), written, places, "derived", TURNED, always=True)
    elif section["rejection_bounds"] and not section["rejection"]:
        yield Inexpressible(places[1:], "bounds are set, but no rule uses them")


def _turned(end: float) -> float:
    """A bound of the ratio that stands the other way round; 0 and no bound turn into each other."""
    return 0.0 if end >= UNBOUND else UNBOUND if end <= 1 / UNBOUND else 1 / end


def _turned_if_number(end: Any) -> Any:
    """ROLL's bound as the rule has it; what is no number is left to the schema."""
    return float(f"{_turned(end):.12g}") if is_number(end) else end


def _ends(bound: Any) -> tuple[float, float] | None:
    """ROLL's bounds; the digits that turning twice would change are cut."""
    if bound is None:
        return None
    low, high = bound if isinstance(bound, list) else (None, bound)
    ends = _turned(high), high if low is None else _turned(low)
    return float(f"{ends[0]:.10g}"), float(f"{ends[1]:.10g}")


CORRECTION = CustomRule(
    "rollout correction",
    (
        DialectKey(f"{WEIGHT}.enabled"),
        DialectKey(f"{WEIGHT}.weight_type"),
        DialectKey(f"{WEIGHT}.upper_bound"),
        DialectKey(FILTERS, ABSENT),
        *(
            DialectKey(f"{FILTERS}.*.{name}", ABSENT)
            for name in ("enabled", "agg_type", "ratio_enabled", "ratio_low", "ratio_high")
        ),
    ),
    (C, *CORRECTION_FIELDS),
    _read,
    _write,
    "ratio of token, geometric, sequence = token_k1, seq_mean_k1, seq_sum_k1",
    by_key={
        f"{WEIGHT}.enabled": C,
        f"{WEIGHT}.weight_type": f"{IS}.level",
        f"{WEIGHT}.upper_bound": f"{IS}.threshold",
        FILTERS: (f"{C}.rejection", f"{C}.rejection_bounds"),
        **{f"{FILTERS}.*.{name}": f"{C}.rejection" for name in ("enabled", "agg_type", "ratio_enabled")},
        **{f"{FILTERS}.*.{name}": f"{C}.rejection_bounds" for name in ("ratio_low", "ratio_high")},
    },
    why="A list of filters is two lists of rules and bounds, and the bounds are of the inverse ratio.",
)
