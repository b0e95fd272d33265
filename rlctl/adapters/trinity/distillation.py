"""Trinity: on-policy distillation, an ``algorithm_type`` and a workflow whose first auxiliary model is the teacher.

The advantage of a token is the teacher's log-prob less the student's, times ``kl_coef``; rewards are metrics only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlctl.adapters.engine.rules import CustomRule, DialectKey, Flow, Inexpressible, Out, Reading, Rule, Writing
from rlctl.adapters.trinity.workflows import TEACHES, taught, teaches
from rlctl.common.messages.reasons import said
from rlctl.config import Config

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
    args, count = config.algorithm.distillation.args, 1
    for size in SIZES:
        count *= int(args.get(f"{ENGINE}{size}") or 1)
    return count


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
    for size in SIZES[:2]:
        if f"{ENGINE}{size}" not in args:
            yield Flow((*root, size), 1, (to,), "derived", "one engine of one device", always=True)
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
        why="The teacher is the first of a list of models, and an algorithm type says that it teaches.",
    ),
]
