"""Trinity: how responses are drawn: a task set's own numbers over those of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlctl.adapters.engine.rules import (
    NO_KEY,
    CustomRule,
    DialectKey,
    Dropped,
    Flow,
    Inexpressible,
    Key,
    Out,
    Reading,
    Rule,
    Writing,
)
from rlctl.adapters.trinity.keys import ROLL, train_places
from rlctl.adapters.trinity.workflows import limit_of_answers
from rlctl.documents import dotted


def _read_sampling(view: Reading) -> Iterator[Flow]:
    """Sampling of the first task set over that of the model; ``model.top_k`` never reaches a task set."""
    first = (
        "buffer.explorer_input.taskset"
        if isinstance(view.get("buffer.explorer_input.taskset"), Mapping)
        else "buffer.explorer_input.tasksets.0"
    )
    root = view.inside(
        ("buffer", "explorer_input", "taskset")
        if first.endswith("taskset")
        else ("buffer", "explorer_input", "tasksets", 0),
        (),
    )
    for name, default in (("temperature", 1.0), ("top_p", 1.0)):
        own = root.get(f"rollout_args.{name}", None)
        key = root.path(f"rollout_args.{name}") if own is not None else view.path(f"model.{name}")
        value = own if own is not None else view.get(f"model.{name}")
        yield Flow(view.to(f"rollout.sampling.{name}"), default if value is None else value, (key,), same=True)
        if own is not None:
            yield Flow((), None, (view.path(f"model.{name}"),), "dead", "the task set's value takes effect")
    if root.get("rollout_args.temperature", None) is not None and view.version >= (0, 6):
        yield from _read_train_temperature(view, root)
    top_k = root.get("rollout_args.top_k", None)
    yield Flow(
        view.to("rollout.sampling.top_k"),
        top_k if isinstance(top_k, int) and top_k > 0 else None,
        (root.path("rollout_args.top_k"),),
    )
    yield Flow((), None, (view.path("model.top_k"),), "dead", "Trinity never passes model.top_k to its task sets")
    logprobs = root.get("rollout_args.logprobs", None)
    key = root.path("rollout_args.logprobs") if logprobs is not None else view.path("model.logprobs")
    value = logprobs if logprobs is not None else view.get("model.logprobs")
    yield Flow(view.to("rollout.sampling.log_probs"), value, (key,), same=True)
    limit, place = root.get("rollout_args.max_tokens", None), root.path("rollout_args.max_tokens")
    if isinstance(limit, int) and limit_of_answers(view) is None:
        kept = ("extensions", "trinity", dotted(place))
        yield Flow(kept, limit, (place,), note="the longest generation of a workflow of several turns")


def _read_train_temperature(view: Reading, root: Reading) -> Iterator[Flow]:
    """Since 0.6 training logits are divided by the model's temperature, whatever the task set says."""
    drawn, common = root.get("rollout_args.temperature"), view.get("model.temperature")
    if drawn != common and common == 1.0:
        to, note = (
            view.to("algorithm.train_temperature"),
            "training logits are divided by model.temperature, which is 1",
        )
        yield Flow(to, "one", (root.path("rollout_args.temperature"),), "derived", note)


def _write_train_temperature(view: Writing) -> Iterator[Out]:
    used = (view.to("algorithm.train_temperature"),)
    if view.config.algorithm.train_temperature == "sampling" or view.config.rollout.sampling.temperature == 1:
        yield Flow((), None, used)
    elif view.version >= (0, 6) and train_places(view):
        yield Flow(view.path("model.temperature"), 1.0, used, "derived", "training logits are not divided", always=True)
    else:
        yield Inexpressible(used, "Trinity divides training logits by the sampling temperature")


def _write_sampling(view: Writing) -> Iterator[Out]:
    if view.config.algorithm.objective.choice in ("sft", "dpo"):
        return
    sampling = view.config.rollout.sampling
    roots = train_places(view)
    for root in roots:
        for name, value in (("temperature", sampling.temperature), ("top_k", sampling.top_k or -1)):
            used = (view.to(f"rollout.sampling.{name}"),)
            yield Flow((*root, "rollout_args", name), value, used, same=name != "top_k", always=name == "temperature")
    yield from _write_train_temperature(view)
    for name, value in (("temperature", sampling.temperature), ("top_p", sampling.top_p)):
        used = (view.to(f"rollout.sampling.{name}"),)
        if value == 1 and roots:
            yield Flow((), None, used, "mapped", "Trinity's default too")
        else:
            yield Flow(view.path(f"model.{name}"), value, used, same=True)
    if sampling.log_probs is None or (sampling.log_probs == 0 and not view.explicit("rollout.sampling.log_probs")):
        yield Flow(
            (),
            None,
            (view.to("rollout.sampling.log_probs"),),
            "mapped",
            "Trinity always returns the sampled token's log-prob",
        )
    else:
        used = (view.to("rollout.sampling.log_probs"),)
        for key in [(*root, "rollout_args", "logprobs") for root in roots] or [view.path("model.logprobs")]:
            yield Flow(key, sampling.log_probs, used, same=True)


TASKS = "buffer.explorer_input.taskset.rollout_args"
SAMPLING: list[Rule] = [
    CustomRule(
        "sampling",
        (
            DialectKey("model.temperature"),
            DialectKey("model.top_p"),
            DialectKey("model.top_k"),
            DialectKey("model.logprobs"),
        ),
        (
            "rollout.sampling.temperature",
            "rollout.sampling.top_p",
            "rollout.sampling.top_k",
            "rollout.sampling.log_probs",
            "algorithm.train_temperature",
        ),
        _read_sampling,
        _write_sampling,
        by_key={
            "model.temperature": ("rollout.sampling.temperature", "algorithm.train_temperature"),
            "model.top_p": "rollout.sampling.top_p",
            "model.top_k": "rollout.sampling.top_k",
            "model.logprobs": "rollout.sampling.log_probs",
            f"{TASKS}.temperature": ("rollout.sampling.temperature", "algorithm.train_temperature"),
            f"{TASKS}.top_p": "rollout.sampling.top_p",
            f"{TASKS}.top_k": "rollout.sampling.top_k",
            f"{TASKS}.logprobs": "rollout.sampling.log_probs",
        },
        why="A task set's own numbers override the model's, and each task set is written with all of them.",
    ),
    Key(f"{ROLL}.ignore_eos", "rollout.sampling.ignore_eos"),
    Key(f"{ROLL}.seed", "rollout.sampling.seed"),
    *[Dropped(f"rollout.sampling.{name}", NO_KEY) for name in ["min_p", "stop", "num_beams"]],
    Dropped("rollout.sampling.include_stop", NO_KEY, matters=True),
]
