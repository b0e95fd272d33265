"""Trinity: experience operators (``data_processor.experience_pipeline.operators``), each a name with arguments.

One of them masks responses that were cut at the limit, which is the filter ``overlong`` here: it is read as that filter,
wherever it is in the list, because it changes no reward and no group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.rules import ABSENT, CustomRule, DialectKey, Flow, Inexpressible, Out, Reading, Writing
from rlctl.adapters.trinity.data import masked_by_workflow
from rlctl.common.messages.reasons import said
from rlctl.documents.paths import KeyPath

OPERATORS, TO = "data_processor.experience_pipeline.operators", "algorithm.experience_operators"
MASK, MASK_SINCE = "mask_response_truncated", (0, 6)
"""Masks responses that were cut, and the release that first has it."""
ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "reward_filter": {"threshold": "threshold"},
    "reward_std_filter": {"threshold": "threshold"},
    "dapo_dynamic_sampling": {"metric_key": "metric", "correct_threshold": "correct_threshold"},
    "invalid_reward_filter": {},
    "reward_shaping_mapper": {"reward_shaping_configs": "reward_shaping_configs"},
    "pass_rate_calculator": {},
}
"""Trinity's operators that a run has, with the names of their arguments there and here."""
SINCE = {"dapo_dynamic_sampling": MASK_SINCE, MASK: MASK_SINCE}


def listed(view: Reading) -> list[tuple[int, Mapping[str, Any]]]:
    """The operators of a file with their places."""
    found = view.get(OPERATORS)
    items = found if isinstance(found, list) else []
    return [(place, item) for place, item in enumerate(items) if isinstance(item, Mapping)]


def masking(view: Reading) -> KeyPath | None:
    """The name of the operator that masks responses which were cut; None if there is none."""
    places = [place for place, item in listed(view) if item.get("name") == MASK]
    return (*view.path(OPERATORS), places[0], "name") if places else None


def _read(view: Reading) -> Iterator[Flow]:
    number = 0
    for place, item in listed(view):
        at, to = (*view.path(OPERATORS), place), (*view.to(TO), number)
        name = str(item.get("name", ""))
        if name == MASK:
            yield Flow((), None, ((*at, "name"), (*at, "args")), "mapped", "the filter overlong")
            continue
        number += 1
        args = item.get("args")
        args = args if isinstance(args, Mapping) else {}
        known = ARGUMENTS.get(name)
        yield Flow((*to, "type"), "external" if known is None else name, ((*at, "name"),))
        if known is None:
            yield Flow((*to, "kind"), name, ((*at, "name"),), same=True)
            yield Flow((*to, "args"), dict(args), ((*at, "args"),), same=True)
            continue
        yield Flow((), None, ((*at, "args"),), "mapped", "")
        for key, field in known.items():
            if key in args:
                yield Flow((*to, field), args[key], ((*at, "args", key),), same=True)


def _write(view: Writing) -> Iterator[Out]:
    number = 0
    for place, item in enumerate(view.get(TO)):
        used, at = (*view.to(TO), place), (*view.path(OPERATORS), number)
        name = item["kind"] if item["type"] == "external" else item["type"]
        if item["type"] not in (*ARGUMENTS, "external"):
            reason = said("Trinity's operators are registered classes, so {name} is not written", name=item["type"])
            yield Inexpressible(tuple((*used, field) for field in item), reason)
            continue
        if view.version < SINCE.get(name, (0,)):
            reason = said("Trinity has the operator {name} since 0.6", name=name)
            yield Inexpressible(tuple((*used, field) for field in item), reason)
            continue
        number += 1
        yield Flow(
            (*at, "name"),
            name,
            ((*used, "type"), *([(*used, "kind")] if item["type"] == "external" else [])),
            always=True,
        )
        if item.get("refill"):
            yield Inexpressible(
                ((*used, "refill"),), "Trinity does not refill a batch after an operator: it waits for rows"
            )
        elif "refill" in item:
            yield Flow((), None, ((*used, "refill"),), "mapped", "Trinity never refills")
        names = {field: key for key, field in ARGUMENTS.get(name, {}).items()}
        if item["type"] == "external":
            yield Flow((*at, "args"), item["args"], ((*used, "args"),), same=True, always=bool(item["args"]))
            continue
        for field, key in names.items():
            yield Flow((*at, "args", key), item[field], ((*used, field),), same=True, always=True)
    if masks(view):
        at = (*view.path(OPERATORS), number)
        yield Flow((*at, "name"), MASK, (view.to("algorithm.filters"),), "mapped", "the filter overlong", always=True)


def masks(view: Writing) -> bool:
    """Whether the filter ``overlong`` is written as an operator."""
    filters = view.get("algorithm.filters")
    wanted = any(item["type"] == "overlong" for item in filters)
    return wanted and view.version >= MASK_SINCE and not masked_by_workflow(view)


OPERATOR_FIELDS = (
    *(
        "threshold",
        "refill",
        "metric",
        "correct_threshold",
        "reward_shaping_configs",
        "kind",
        "args",
        "path",
        "function",
    ),
    *(f"reward_shaping_configs[].{name}" for name in ("stats_key", "op_type", "weight")),
)
RULES = [
    CustomRule(
        "experience operators",
        (
            DialectKey(OPERATORS),
            DialectKey(f"{OPERATORS}.*.name", ABSENT),
            DialectKey(f"{OPERATORS}.*.args", ABSENT),
        ),
        (TO, *(f"{TO}[].{name}" for name in OPERATOR_FIELDS)),
        _read,
        _write,
        by_key={
            OPERATORS: "algorithm.experience_operators",
            f"{OPERATORS}.*.args.**": "algorithm.experience_operators",
            f"{OPERATORS}.*.name": ("algorithm.experience_operators[].type", "algorithm.experience_operators[].kind"),
        },
        why="A list of names with arguments becomes a list of sections, but for one operator that is a filter.",
    )
]
