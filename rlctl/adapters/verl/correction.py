"""verl: the correction between rollout and training engine, which has had three generations of keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.rules import (
    ABSENT,
    FROM_SCHEMA,
    BadValueError,
    CustomRule,
    DialectKey,
    Flow,
    Inexpressible,
    Out,
    Reading,
    Writing,
)
from rlctl.adapters.engine.values import CORRECTION_FIELDS
from rlctl.common.messages.reasons import said

A = "actor_rollout_ref.actor"
C = "algorithm.rollout_correction"
IS = f"{C}.importance_sampling"
LEGACY_MODES = ("truncate", "mask")
LEGACY_RS = {"token": "token_k1", "sequence": "seq_sum_k1", "geometric": "seq_mean_k1"}


def _legacy(view: Reading, name: str) -> tuple[Any, str]:
    """A flat key of 0.6, under ``algorithm`` or, in older documents, under the actor."""
    for root in ("algorithm", A):
        if view.written(f"{root}.{name}"):
            return view.get(f"{root}.{name}"), f"{root}.{name}"
    return view.get(f"algorithm.{name}"), f"algorithm.{name}"


def _read_correction(view: Reading) -> Iterator[Flow]:
    names = [
        f"{C}.{name}"
        for name in ("rollout_is", "rollout_rs", "rollout_token_veto_threshold", "rollout_is_veto_threshold")
    ]
    _legacy_on, legacy_key = _legacy(view, "rollout_is")
    on = [name for name in names if view.get(name) is not None]
    if view.get(f"{C}.use_policy_gradient") or view.get(f"{C}.loss_type") == "reinforce":
        on.append(f"{C}.loss_type")
    threshold, threshold_key = _legacy(view, "rollout_is_threshold")
    is_legacy = threshold is not None and (view.written(threshold_key) or view.written(legacy_key))
    every = tuple(view.path(key.name) for key in KEYS if key.name != f"{C}.bypass_mode")
    yield Flow(view.to(C), {} if on or is_legacy else None, every)
    if is_legacy:
        yield from _read_legacy(view, threshold)
    elif on:
        yield from _read_modern(view)


def _read_legacy(view: Reading, threshold: Any) -> Iterator[Flow]:
    used = tuple(
        view.path(_legacy(view, f"rollout_is{end}")[1])
        for end in ("", "_threshold", "_threshold_lower", "_level", "_mode")
    )
    level, mode = _legacy(view, "rollout_is_level")[0], _legacy(view, "rollout_is_mode")[0]
    lower = _legacy(view, "rollout_is_threshold_lower")[0]
    note = "verl 0.6's flat keys"
    for name, value, allowed in (("level", level, tuple(LEGACY_RS)), ("mode", mode, LEGACY_MODES)):
        if value not in (None, *allowed):
            raise BadValueError(
                said("is {value!r}; expected {allowed}", value=value, allowed=" or ".join(allowed)),
                key=view.path(_legacy(view, f"rollout_is_{name}")[1]),
            )
    if not _legacy(view, "rollout_is")[0]:
        yield Flow((), None, used, "dead", "without rollout_is verl 0.6 only reports how far the log-probs are apart")
    else:
        if mode == "mask":  # weights outside the bounds are 0; none inside is above the threshold
            low = lower if lower is not None else 1.0 / threshold
            yield Flow(view.to(f"{C}.rejection"), [LEGACY_RS[str(level or "token")]], used, "derived", note)
            yield Flow(view.to(f"{C}.rejection_bounds"), [[low, threshold]], used, "derived", note)
        yield Flow(view.to(f"{IS}.level"), level or "token", used, "derived", note)
        yield Flow(view.to(f"{IS}.threshold"), threshold, used, "derived", note)
    veto, veto_key = _legacy(view, "rollout_is_veto_threshold")
    if view.written(veto_key):
        yield Flow(view.to(f"{C}.veto_threshold"), veto, (view.path(veto_key),), same=True)


def _read_modern(view: Reading) -> Iterator[Flow]:
    def used(name: str) -> tuple[Any, ...]:
        return (view.path(f"{C}.{name}"),)

    yield Flow(view.to(f"{IS}.level"), view.get(f"{C}.rollout_is") or "none", used("rollout_is"))
    threshold = view.get(f"{C}.rollout_is_threshold")
    threshold = 2.0 if threshold is None and not view.get(f"{C}.rollout_is") else threshold
    low, _, high = str(threshold).rpartition("_")
    try:
        yield Flow(view.to(f"{IS}.threshold"), float(high), used("rollout_is_threshold"))
        yield Flow(view.to(f"{IS}.lower_threshold"), float(low) if low else None, used("rollout_is_threshold"))
    except ValueError:
        place = view.path(f"{C}.rollout_is_threshold")
        raise BadValueError(
            said("is {threshold!r}; expected a number or LOW_HIGH", threshold=threshold), key=place
        ) from None
    rules = _words(view.get(f"{C}.rollout_rs"))
    lower = view.get(f"{C}.rollout_rs_threshold_lower")
    bounds = [_bound(view, word, lower) for word in _words(view.get(f"{C}.rollout_rs_threshold"))]
    yield Flow(view.to(f"{C}.rejection"), rules, used("rollout_rs"))
    yield Flow(
        view.to(f"{C}.rejection_bounds"), bounds, (*used("rollout_rs_threshold"), *used("rollout_rs_threshold_lower"))
    )
    yield Flow(
        view.to(f"{C}.veto_threshold"),
        view.get(f"{C}.rollout_token_veto_threshold"),
        used("rollout_token_veto_threshold"),
    )
    yield Flow(
        view.to(f"{IS}.normalize"),
        bool(view.get(f"{C}.rollout_is_batch_normalize")),
        used("rollout_is_batch_normalize"),
    )
    gradient = bool(view.get(f"{C}.use_policy_gradient")) or view.get(f"{C}.loss_type") == "reinforce"
    yield Flow(view.to(f"{C}.use_policy_gradient"), gradient, (*used("loss_type"), *used("use_policy_gradient")))


def _bound(view: Reading, word: str, lower: Any) -> float | list[float]:
    """A bound of a rule: an upper one, or both, as ``LOW_HIGH``."""
    low, _, high = word.rpartition("_")
    try:
        if low or lower is not None:
            return [float(low or lower), float(high)]
        return float(high)
    except ValueError:
        place = view.path(f"{C}.rollout_rs_threshold")
        raise BadValueError(said("is {word!r}; expected a number or LOW_HIGH", word=word), key=place) from None


def _words(value: Any) -> list[str]:
    if value is None:
        return []
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return [str(item).strip() for item in items]


def _write_correction(view: Writing) -> Iterator[Out]:
    section = view.get(C)
    if not isinstance(section, Mapping):
        return
    every = tuple(view.to(f"{C}.{name}") for name in section)
    if view.version < (0, 7):
        yield Inexpressible(
            every, "rollout correction has different keys before verl 0.7; convert to verl@0.7 or newer"
        )
        return
    yield from _write_weight(view, section)
    if section["rejection"]:
        yield Flow(view.path(f"{C}.rollout_rs"), ",".join(section["rejection"]), (view.to(f"{C}.rejection"),))
    if section["rejection_bounds"]:
        bounds = [
            "_".join(map(_shown, each if isinstance(each, list) else [each])) for each in section["rejection_bounds"]
        ]
        yield Flow(view.path(f"{C}.rollout_rs_threshold"), ",".join(bounds), (view.to(f"{C}.rejection_bounds"),))
    loss = "reinforce" if section["use_policy_gradient"] else "ppo_clip"
    yield Flow(view.path(f"{C}.loss_type"), loss, (view.to(f"{C}.use_policy_gradient"),))
    if section["veto_threshold"] is not None:
        target = view.path(f"{C}.rollout_token_veto_threshold")
        used = (view.to(f"{C}.veto_threshold"),)
        yield (
            Flow(target, section["veto_threshold"], used)
            if view.version < (0, 8)
            else Inexpressible(used, "the veto was removed in verl 0.8")
        )


def _shown(number: float) -> str:
    return f"{number:.12g}"


def _write_weight(view: Writing, section: Mapping[str, Any]) -> Iterator[Out]:
    """The weight with its bounds, which verl reads only if it has the weight."""
    sampling = section["importance_sampling"]
    kind, upper, lower = sampling["level"], sampling["threshold"], sampling["lower_threshold"]
    bounds = (view.to(f"{IS}.threshold"), view.to(f"{IS}.lower_threshold"))
    normalize = (view.to(f"{IS}.normalize"),)
    if kind in ("segment", "geometric"):
        yield Inexpressible(
            (view.to(f"{IS}.level"), *bounds, *normalize),
            said("verl has no {kind} weight, only token and sequence", kind=kind),
        )
        return
    if kind != "none":
        yield Flow(view.path(f"{C}.rollout_is"), kind, (view.to(f"{IS}.level"),))
    yield Flow(
        view.path(f"{C}.rollout_is_threshold"), upper if lower is None else f"{_shown(lower)}_{_shown(upper)}", bounds
    )
    yield Flow(view.path(f"{C}.rollout_is_batch_normalize"), sampling["normalize"], normalize)


KEYS = (  # in 0.6.1 trainer/ppo/rollout_corr_helper.py the words of the block are others
    DialectKey(f"{C}.rollout_is", since="0.7"),
    DialectKey(f"{C}.rollout_is_threshold", since="0.7", words=True),  # also LOWER_UPPER
    DialectKey(f"{C}.rollout_rs", since="0.7"),
    DialectKey(f"{C}.rollout_rs_threshold", since="0.7"),
    DialectKey(f"{C}.rollout_rs_threshold_lower", since="0.7"),
    DialectKey(f"{C}.rollout_token_veto_threshold", since="0.7"),
    DialectKey(f"{C}.use_policy_gradient", since="0.7", until="0.7", takes=bool),
    DialectKey(f"{C}.loss_type", takes=("ppo_clip", "reinforce")),
    DialectKey(f"{C}.rollout_is_batch_normalize", since="0.7"),
    *(
        DialectKey(f"{root}.rollout_is{end}", default, until=until)
        for root, default, until in (("algorithm", FROM_SCHEMA, ""), (A, ABSENT, "0.6"))
        for end in ("", "_threshold", "_threshold_lower", "_level", "_mode", "_veto_threshold")
    ),
)
LEGACY_FILLS: dict[str, str | tuple[str, ...]] = {
    "": (f"{IS}.level", C),
    "_threshold": (f"{IS}.threshold", f"{C}.rejection_bounds", C),
    "_threshold_lower": f"{C}.rejection_bounds",
    "_level": (f"{IS}.level", f"{C}.rejection"),
    "_mode": (f"{C}.rejection", f"{C}.rejection_bounds"),
    "_veto_threshold": f"{C}.veto_threshold",
}
"""What the flat keys of 0.6 fill, by the end of their names."""
CORRECTION = CustomRule(
    "rollout correction",
    KEYS,
    (*CORRECTION_FIELDS, C),
    _read_correction,
    _write_correction,
    by_key={
        f"{C}.rollout_is": f"{IS}.level",
        f"{C}.rollout_is_threshold": (f"{IS}.threshold", f"{IS}.lower_threshold"),
        f"{C}.rollout_rs": f"{C}.rejection",
        f"{C}.rollout_rs_threshold": f"{C}.rejection_bounds",
        f"{C}.rollout_rs_threshold_lower": f"{C}.rejection_bounds",
        f"{C}.rollout_token_veto_threshold": f"{C}.veto_threshold",
        f"{C}.use_policy_gradient": f"{C}.use_policy_gradient",
        f"{C}.loss_type": f"{C}.use_policy_gradient",
        f"{C}.rollout_is_batch_normalize": f"{IS}.normalize",
        **{f"{root}.rollout_is{end}": names for root in ("algorithm", A) for end, names in LEGACY_FILLS.items()},
    },
    why="Three releases have it as one block, as words that each name several settings, and as numbers in a text.",
)
