"""Trinity: on-policy distillation, an ``algorithm_type`` and a workflow whose first auxiliary model is the teacher.

The advantage of a token is the teacher's log-prob less the student's, times ``kl_coef``; rewards are metrics only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.rules import CustomRule, DialectKey, Flow, Inexpressible, Out, Reading, Rule, Writing
from rlctl.adapters.trinity.workflows import TEACHES, taught, teaches
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.planning import arithmetic

TO = "algorithm.distillation"
FIELDS = ("teacher", "loss", "coefficient", "top_k", "args")
MODELS = "explorer.auxiliary_models"
ARGS = "algorithm.advantage_fn_args"
ENGINE = "teacher_engine."
"""Beginning of the teacher's settings in ``args``: those of its engine, under Trinity's names."""
SIZES = ("engine_num", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
JSD_ARGS = ("lambda_coef", "temperature")
ALONE = "Trinity distills only by an advantage from the teacher's log-probs"


def teacher_devices(config: Config) -> int:
    """Devices of the teacher that is written as an auxiliary model; 0 if there is none."""
    if not taught(config) or config.algorithm.distillation is None:
        return 0
    args = config.algorithm.distillation.args
    return _teacher_engines(config, args) * _devices_of_an_engine(args)


def _devices_of_an_engine(args: Mapping[str, Any]) -> int:
    return math.prod(int(args.get(f"{ENGINE}{size}") or 1) for size in SIZES[1:])


def _teacher_engines(config: Config, args: Mapping[str, Any]) -> int:
    """As many as the source says; else the fewest that leave devices which engines and trainer can use up."""
    if given := args.get(f"{ENGINE}engine_num"):
        return int(given)
    parallel = config.rollout.parallel
    engine = parallel.tensor_parallel_size * parallel.pipeline_parallel_size * parallel.data_parallel_size
    unit = math.gcd(engine, arithmetic.devices_per_replica(config.train.engine))
    total, each = arithmetic.devices(config), _devices_of_an_engine(args)
    return next((count for count in range(1, unit + 1) if (total - count * each) % unit == 0), 1)


def _read(view: Reading) -> Iterator[Flow]:
    to, name = view.to(TO), teaches(view)
    if name is None:
        yield Flow(to, None, ())
        return
    models, given = view.get(MODELS), view.get(ARGS)
    args = given if isinstance(given, Mapping) else {}
    teacher, place = models[0], (*view.path(MODELS), 0)
    key = view.path("algorithm.algorithm_type")
    yield Flow(to, {}, ())
    yield Flow((*to, "teacher"), teacher["model_path"], ((*place, "model_path"),), same=True)
    yield Flow((*to, "loss"), TEACHES[name], (key,))
    yield Flow((*to, "coefficient"), args.get("kl_coef", 1.0), ((*view.path(ARGS), "kl_coef"),), same=True)
    yield Flow((*to, "args", "policy_gradient"), True, ())
    yield Flow((*to, "args", "with_rewards"), False, ())
    for field in JSD_ARGS if name == "jsd" else ():
        if field in args:
            yield Flow((*to, "args", field), args[field], ((*view.path(ARGS), field),), same=True)
    for field, value in teacher.items():
        if field != "model_path" and value is not None:
            yield Flow((*to, "args", f"{ENGINE}{field}"), value, ((*place, field),), same=True)


def _write(view: Writing) -> Iterator[Out]:
    section, to = view.get(TO), view.to(TO)
    if not isinstance(section, Mapping):
        return
    if not taught(view.config):
        reason = said(
            "{alone}: set policy_gradient of its args to true and with_rewards to false, top_k to null", alone=ALONE
        )
        yield Inexpressible((to, *((*to, name) for name in section)), reason)
        return
    root, used = (*view.path(MODELS), 0), ((*to, "args"), to, (*to, "loss"))
    args = section["args"]
    yield Flow((*root, "model_path"), section["teacher"], ((*to, "teacher"),), same=True, always=True)
    engines = _teacher_engines(view.config, args)
    note = said(
        "{engines} engines of 1 device: what is left divides by the sizes of engines and trainer", engines=engines
    )
    for size, value in (("engine_num", engines), ("tensor_parallel_size", 1)):
        if f"{ENGINE}{size}" not in args:
            reason = "one engine of one device" if engines == 1 else note
            yield Flow((*root, size), value, (to,), "derived", reason, always=True)
    yield Flow(view.path(f"{ARGS}.kl_coef"), section["coefficient"], ((*to, "coefficient"),), same=True, always=True)
    for name, value in args.items():
        place = ((*to, "args", name), (*to, "args"))
        if name.startswith(ENGINE):
            yield Flow((*root, name.removeprefix(ENGINE)), value, place, same=True, always=True)
        elif name in JSD_ARGS:
            yield Flow(view.path(f"{ARGS}.{name}"), value, place, same=True, always=True)
        elif name in ("policy_gradient", "with_rewards", "estimator"):
            yield Flow((), None, place, "mapped", ALONE)
        else:
            yield Inexpressible(place, "Trinity has no such setting for the divergence or the teacher", idle=True)
    yield Flow((), None, used, "mapped", ALONE)


RULES: list[Rule] = [
    CustomRule(
        "on-policy distillation",
        (DialectKey(f"{ARGS}.kl_coef"), *(DialectKey(f"{ARGS}.{name}") for name in JSD_ARGS)),
        (TO, *(f"{TO}.{name}" for name in FIELDS)),
        _read,
        _write,
        "advantage of a token = coefficient x (the teacher's log-prob - the student's)",
        by_key={
            f"{ARGS}.kl_coef": f"{TO}.coefficient",
            **{f"{ARGS}.{name}": f"{TO}.args" for name in JSD_ARGS},
            "algorithm.algorithm_type": f"{TO}.loss",
            "explorer.auxiliary_models.*.model_path": f"{TO}.teacher",
        },
        why="The teacher is the first of a list of models, and an algorithm type says that it teaches.",
    ),
]
