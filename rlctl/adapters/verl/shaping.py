"""verl: which responses are left out, and what is taken off rewards of long ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlctl.adapters.engine.implied import MANAGERS
from rlctl.adapters.engine.rules import (
    ABSENT,
    CustomRule,
    DialectKey,
    Flow,
    Inexpressible,
    Out,
    Provenance,
    Reading,
    Rule,
    Version,
    Writing,
)
from rlctl.adapters.engine.values import FILTERED
from rlctl.common.messages.reasons import AND, said, together

UNLIMITED: Version = (0, 9)
"""The release whose trainer filters groups itself: without a limit of batches, and by a metric that must be named."""
REWARD = "reward"
BATCHES = "rollout.oversampling.max_generation_batches"


def _read_filters(view: Reading) -> Iterator[Flow]:
    root = "algorithm.filter_groups"
    used = (view.path(f"{root}.enable"),)
    if not view.get(f"{root}.enable"):
        yield Flow(view.to("algorithm.filters"), [], used)
        return
    metric = view.get(f"{root}.metric") or REWARD
    found = {"type": "zero_variance_groups", "metric": metric, "refill": True}
    yield Flow(view.to("algorithm.filters"), [found], (view.path(f"{root}.enable"), view.path(f"{root}.metric")))
    batches, used = view.get(f"{root}.max_num_gen_batches"), (view.path(f"{root}.max_num_gen_batches"),)
    if view.version >= UNLIMITED:
        yield Flow((), None, used, "dead", "verl's trainer ignores it since 0.9 and refills until the step is full")
    else:
        yield Flow(view.to(BATCHES), batches or None, used)


def _write_filters(view: Writing) -> Iterator[Out]:
    root = "algorithm.filter_groups"
    filters = view.get("algorithm.filters")
    used = (view.to("algorithm.filters"),)
    if not filters:
        if view.version >= (0, 9):
            yield Flow(view.path(f"{root}.enable"), False, used)
        return
    known = [item for item in filters if item["type"] == "zero_variance_groups"]
    if len(known) != len(filters) or len(known) != 1:
        names = together([FILTERED[item["type"]] for item in filters if item not in known[:1]], AND)
        yield Inexpressible(used, said("verl filters only zero-variance groups, and trains on {names}", names=names))
    if known:
        item = known[0]
        if not item["refill"] or item["threshold"]:
            yield Inexpressible(used, "verl refills, and filters groups with equal values")
        yield Flow(view.path(f"{root}.enable"), True, used)
        metric = None if item["metric"] == REWARD and view.version < UNLIMITED else item["metric"]
        yield Flow(view.path(f"{root}.metric"), metric, used)
        batches, limited = view.get(BATCHES), (view.to(BATCHES),)
        if view.version < UNLIMITED:
            yield Flow(view.path(f"{root}.max_num_gen_batches"), batches or 0, limited)
        elif batches:
            yield Inexpressible(limited, "verl ignores this limit since 0.9 and refills until the step is full")


OVERLONG = ("reward.reward_kwargs", "reward_model.reward_kwargs")
SHAPING = "algorithm.reward_shaping.overlong_penalty"


RECIPE = "reward_model.overlong_buffer"
"""Where the recipe ``dapo`` had it until 0.7; the limit is the response length."""


DAPO = "dapo"
"""The one reward manager of verl that reads the penalty."""
DEAF_MANAGERS = tuple(name for name, row in MANAGERS.items() if not row.penalty)
"""Verl's other reward managers, in any release; one of the user's own may read it."""
SAME_FUNCTION = tuple(name for name, row in MANAGERS.items() if row.one_response)
"""Managers that call the reward function for one response with the same arguments, so that one replaces another."""
MANAGER = "reward_loop.manager"


MANAGER_KEYS = ("reward.reward_manager.name", "reward_manager.name", "reward_model.reward_manager")
"""The keys that name the reward manager: since 0.8, in 0.7.0, and before 0.8."""


def _manager_key(version: Version) -> str:
    """0.7.0 takes ``reward_manager.name`` from the older key, and 0.7.1 ``reward.reward_manager.name``."""
    return MANAGER_KEYS[0 if version >= (0, 8) else 2]


def replaces_manager(view: Writing) -> bool:
    """Whether ``dapo`` is written in place of the reward manager, because there is a penalty that only it reads."""
    return view.version >= (0, 4) and isinstance(view.get(SHAPING), Mapping) and view.get(MANAGER) in SAME_FUNCTION


def _settings(view: Reading) -> tuple[str, str]:
    """The block that is written, and the key of its limit; empty where there is none."""
    if view.version < (0, 8) and view.written(f"{RECIPE}.enable"):
        return RECIPE, ""
    root = OVERLONG[0] if view.version >= (0, 8) else OVERLONG[1]
    block = f"{root}.overlong_buffer_cfg"
    return (block, f"{root}.max_resp_len") if view.written(f"{block}.enable") else ("", "")


def _read_overlong(view: Reading) -> Iterator[Flow]:
    block, limit = _settings(view)
    if not block:
        yield Flow(view.to(SHAPING), None, ())
        return
    limits = (view.path(limit),) if limit else ()
    if not view.get(f"{block}.enable"):
        yield Flow(view.to(SHAPING), None, (view.path(block), *limits), "mapped", "switched off")
        return
    manager = next((name for key in MANAGER_KEYS if view.written(key) and (name := view.get(key))), "naive")
    if block != RECIPE and manager in DEAF_MANAGERS:
        why = said("only the reward manager {dapo} reads it, but {manager} is set", dapo=DAPO, manager=manager)
        yield Flow(view.to(SHAPING), None, ())
        yield Flow((), None, (view.path(f"{block}.enable"),), "dead", why, misleads=True)
        rest = [view.path(f"{block}.{name}") for name in view.get(block) if name != "enable"]
        yield Flow((), None, (*rest, *limits), "dead", why)
        return
    yield Flow(view.to(SHAPING), {}, (view.path(f"{block}.enable"),))
    for name, field, usual in (("len", "buffer", None), ("penalty_factor", "factor", 1.0)):
        key = f"{block}.{name}"
        yield Flow(view.to(f"{SHAPING}.{field}"), view.get(key, usual), (view.path(key),), same=True)
    if limit:
        yield Flow(view.to(f"{SHAPING}.limit"), view.get(limit), limits, same=True)


def _write_overlong(view: Writing) -> Iterator[Out]:
    section = view.get(SHAPING)
    if not isinstance(section, Mapping):
        return
    root = OVERLONG[0] if view.version >= (0, 8) else OVERLONG[1]
    cfg = f"{root}.overlong_buffer_cfg"
    places = {name: view.to(f"{SHAPING}.{name}") for name in section}
    manager = view.get(MANAGER)
    if view.version < (0, 4):  # 0.3.0 workers/reward_manager has no dapo.py
        yield Inexpressible((view.to(SHAPING), *places.values()), "verl 0.3 has no overlong penalty")
        return
    if manager in DEAF_MANAGERS and manager not in SAME_FUNCTION:
        yield Inexpressible(
            (view.to(SHAPING), *places.values()),
            said("verl's reward manager {manager} has no overlong penalty", manager=manager),
        )
        return
    if replaces_manager(view):
        note = "" if manager == DAPO else said("only verl's reward manager {dapo} reads an overlong penalty", dapo=DAPO)
        how: Provenance = "derived" if note else "mapped"
        yield Flow(view.path(_manager_key(view.version)), DAPO, (view.to(MANAGER),), how, note, always=True)
    yield Flow(view.path(f"{cfg}.enable"), True, (view.to(SHAPING),))
    yield Flow(view.path(f"{cfg}.len"), section["buffer"], (places["buffer"],), same=True)
    yield Flow(view.path(f"{cfg}.penalty_factor"), section["factor"], (places["factor"],), same=True)
    limit = section["limit"] or view.config.rollout.max_response_tokens
    yield Flow(view.path(f"{root}.max_resp_len"), limit, (places["limit"],))
    if section["clamp"]:
        yield Inexpressible((places["clamp"],), "verl's penalty keeps growing beyond the limit")


RULES: list[Rule] = [
    CustomRule(
        "filters",
        (
            DialectKey("algorithm.filter_groups.enable"),
            DialectKey("algorithm.filter_groups.metric"),
            DialectKey("algorithm.filter_groups.max_num_gen_batches"),
        ),
        (
            "algorithm.filters",
            *(f"algorithm.filters[].{name}" for name in ("metric", "refill", "threshold", "low", "high", "max_tokens")),
            BATCHES,
        ),
        _read_filters,
        _write_filters,
        by_key={
            "algorithm.filter_groups.enable": "algorithm.filters",
            "algorithm.filter_groups.metric": "algorithm.filters[].metric",
            "algorithm.filter_groups.max_num_gen_batches": BATCHES,
        },
        why="A switch is one item of a list of filters, and the release decides what it can say of it.",
    ),
    CustomRule(
        "overlong penalty",
        (
            # 0.7.1 and 0.8.0 experimental/reward_loop/reward_manager/dapo.py
            *(DialectKey(f"{RECIPE}.{name}", ABSENT, until="0.7") for name in ("enable", "len", "penalty_factor")),
            *(
                # the same places: 0.7.1 and 0.8.0 experimental/reward_loop/reward_manager/dapo.py
                DialectKey(
                    f"{root}.{name}",
                    ABSENT,
                    since="0.8" if root == OVERLONG[0] else "",
                    until="" if root == OVERLONG[0] else "0.7",
                )
                for root in OVERLONG
                for name in (
                    *(f"overlong_buffer_cfg.{key}" for key in ("enable", "len", "penalty_factor")),
                    "max_resp_len",
                )
            ),
        ),
        (SHAPING, *(f"{SHAPING}.{name}" for name in ("buffer", "factor", "limit", "clamp"))),
        _read_overlong,
        _write_overlong,
        by_key={
            **{
                f"{block}.{name}": f"{SHAPING}{field}"
                for block in (RECIPE, *(f"{root}.overlong_buffer_cfg" for root in OVERLONG))
                for name, field in (("enable", ""), ("len", ".buffer"), ("penalty_factor", ".factor"))
            },
            **{f"{root}.max_resp_len": f"{SHAPING}.limit" for root in OVERLONG},
        },
        why="Three blocks have had it, and it acts only with one reward manager, which may have to be written for it.",
    ),
]
