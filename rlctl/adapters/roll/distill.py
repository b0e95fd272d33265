"""ROLL: learning from a teacher, on the data set's answers (distillation) or on the policy's own (on-policy distillation)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.one_sided_rows import FollowsFrom, OtherEntries
from rlctl.adapters.engine.rules import (
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
    Same,
    Writing,
)
from rlctl.adapters.engine.values import IfWritten, NullReads, serves_teacher
from rlctl.adapters.roll.numbers import NUMBER, number
from rlctl.common.messages.reasons import said

D = "algorithm.distillation"
FIELDS = ("teacher", "loss", "coefficient", "top_k", "args")
WITHOUT_TEACHER: list[Rule] = [
    Dropped(D, "ROLL uses a different start script and config file for it", None),
    *[Dropped(f"{D}.{name}", "ROLL uses a different start script and config file for it") for name in FIELDS],
]
OFFLINE_ARGS = (
    "kd_temperature",
    "teacher_temperature",
    "adaptive_kl_alpha",
    "skew_lambda",
    "distill_on_prompt",
    "logits_transfer_backend",
)
LOSS = "loss = coefficient x divergence + (1 - coefficient) x imitation"
OBJECTIVES = ("forward_kl", "reverse_kl", "adaptive_kl", "skewed_forward_kl", "skewed_reverse_kl", "js_divergence")


class Objective(Same):
    """The divergence by name; ROLL has a few."""

    def write(self, value: Any, view: Writing) -> Any:
        if value not in OBJECTIVES:
            known = ", ".join(OBJECTIVES)
            raise InexpressibleError(
                said("ROLL has the distillation losses {objectives}, but not {loss}", objectives=known, loss=value)
            )
        return value


class TopTokens(Same):
    """How many tokens the distributions are compared on; ROLL does not compare all of them."""

    def read(self, value: Any, view: Reading) -> Any:
        return value or None

    def write(self, value: Any, view: Writing) -> Any:
        if value is None:
            raise InexpressibleError("ROLL compares the top logits_topk tokens, 64 by default")
        return value


OFFLINE: list[Rule] = [
    FollowsFrom(D, reads=lambda view: {}, writes=lambda view: {}, reason="", formula=LOSS),
    Key("teacher_pretrain", f"{D}.teacher", convert=NullReads(""), always=True),
    Key("kd_objective", f"{D}.loss", convert=Objective(), always=True),
    Key("distill_loss_weight", f"{D}.coefficient", convert=NUMBER, always=True),
    Key("logits_topk", f"{D}.top_k", convert=TopTokens()),
    *[Key(name, f"{D}.args.{name}", convert=IfWritten(key=name)) for name in OFFLINE_ARGS],
    OtherEntries(f"{D}.args", OFFLINE_ARGS, "ROLL's distillation has no {name}"),
    Key("student_pretrain", "model.path", always=True),
]


# On-policy: the reward of a token is minus its divergence from the teacher. The teacher's block is that of the reference.

ESTIMATORS = {"kl": "kl", "k1": "kl", "abs": "abs", "mse": "mse", "k2": "mse", "full": "full"}
PATH, WEIGHT = "reference.model_args.model_name_or_path", "reference.opd_kl_coef"
STUDENTS = ("actor_train.model_args.model_name_or_path", "actor_infer.model_args.model_name_or_path")
"""Where one of them names no model ROLL gives all roles ``pretrain``, the teacher too."""


def _read_teacher(view: Reading, to: tuple[Any, ...]) -> Iterator[Flow]:
    if any(view.get(key) is None for key in STUDENTS):
        note = "ROLL gives the teacher the pretrain model too, because some student roles name no model"
        yield Flow((*to, "teacher"), view.get("pretrain") or "", (view.path("pretrain"),), "derived", note)
        yield Flow((), None, (view.path(PATH),), "dead", note)
        return
    if view.get(PATH):
        yield Flow((*to, "teacher"), view.get(PATH), (view.path(PATH),), same=True)
        return
    block = view.get("reference")
    named = block if isinstance(block, Mapping) else {}
    for name, teacher in named.items():
        path = teacher.get("model_args", {}).get("model_name_or_path") if isinstance(teacher, Mapping) else None
        if path:
            used = ((*view.path("reference"), name, "model_args", "model_name_or_path"),)
            note = "the source has several teachers, each for the rows with its tags; only the first is kept"
            yield Flow((*to, "teacher"), path, used, "derived", note)
            return


def _read_online(view: Reading) -> Iterator[Flow]:
    to = view.to(D)
    mixed = bool(view.get("use_opd"))
    yield Flow(to, {}, ())
    yield from _read_teacher(view, to)
    yield Flow((*to, "loss"), "reverse_kl", ())
    value = view.get(WEIGHT)
    yield Flow((*to, "coefficient"), 1.0 if value is None else number(value), (view.path(WEIGHT),), same=True)
    if view.get("kl_penalty") == "kl":
        yield Flow((), None, (view.path("kl_penalty"),), "mapped", "the reverse KL of the sampled tokens")
    else:
        yield Flow((*to, "args", "estimator"), view.get("kl_penalty"), (view.path("kl_penalty"),))
    yield Flow((*to, "args", "policy_gradient"), True, ())
    yield Flow((*to, "args", "with_rewards"), mixed, (view.path("use_opd"), view.path("is_pure_opd")))


def _write_online(view: Writing) -> Iterator[Out]:
    section, to = view.get(D), view.to(D)
    if not isinstance(section, Mapping):
        return
    mixed = bool(section["args"].get("with_rewards"))
    places = ((*to, "args", "with_rewards"), (*to, "args", "policy_gradient"), to)
    yield Flow(view.path("use_opd" if mixed else "is_pure_opd"), True, places, always=True)
    yield Flow(view.path(PATH), section["teacher"], ((*to, "teacher"),), same=True, always=True)
    for key in STUDENTS:
        note = "if a role named no model, ROLL would give the teacher the pretrain model too"
        yield Flow(view.path(key), "${pretrain}", (view.to("model.path"),), "derived", note, always=True)
    yield Flow(view.path(WEIGHT), section["coefficient"], ((*to, "coefficient"),), same=True, always=True)
    if section["loss"] != "reverse_kl":
        yield Inexpressible(
            ((*to, "loss"),),
            said("ROLL's on-policy distillation uses the reverse KL, not {loss}", loss=section["loss"]),
        )
    if section["top_k"] is not None:
        yield Inexpressible(((*to, "top_k"),), "ROLL's on-policy distillation compares the sampled tokens only")
    for name, value in section["args"].items():
        place = ((*to, "args", name), (*to, "args"))
        if name == "estimator" and value in ESTIMATORS:
            yield Flow(view.path("kl_penalty"), ESTIMATORS[value], place)
        elif name == "estimator":
            known = ", ".join(sorted(set(ESTIMATORS.values())))
            yield Inexpressible(
                place, said("ROLL estimates the divergence by {known}, not by {value}", known=known, value=value)
            )
        elif name == "policy_gradient" and not value:
            yield Inexpressible(place, "ROLL uses the divergence as a reward, without gradients through it")
        elif serves_teacher(name):
            yield Inexpressible(
                place, "ROLL runs the teacher on the devices and engine of the teacher's own block", idle=True
            )
        elif name not in ("policy_gradient", "with_rewards"):
            yield Inexpressible(place, said("ROLL's on-policy distillation has no {name}", name=name))


ONLINE: list[Rule] = [
    CustomRule(
        "on-policy distillation",
        (
            DialectKey(PATH),
            *(DialectKey(key) for key in STUDENTS),
            DialectKey(WEIGHT),
            DialectKey("kl_penalty"),
            DialectKey("use_opd"),
            DialectKey("is_pure_opd"),
        ),
        (D, *(f"{D}.{name}" for name in FIELDS)),
        _read_online,
        _write_online,
        "reward of a token = -coefficient x (log-prob - the teacher's)",
        by_key={
            PATH: f"{D}.teacher",
            "reference.*.model_args.model_name_or_path": f"{D}.teacher",
            WEIGHT: f"{D}.coefficient",
            "kl_penalty": f"{D}.args",
            "use_opd": f"{D}.args",
            "is_pure_opd": f"{D}.args",
        },
        why="The teacher is one of several or the policy's own model, depending on which roles name a model.",
    ),
]
