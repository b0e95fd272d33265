"""verl: learning from a teacher's log-probs on the policy's own responses; several teachers travel as settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.engine.rules import ABSENT, CustomRule, DialectKey, Flow, Inexpressible, Out, Reading, Rule, Writing
from rlctl.common.messages.reasons import said
from rlctl.documents.paths import KeyPath

D, TO = "distillation", "algorithm.distillation"
LOSS = f"{D}.distillation_loss"
ALONE = f"{D}.teacher_models.teacher_model.model_path"
OLD = f"{D}.teacher_model.model_path"
TYPED = {
    "loss": f"{LOSS}.loss_mode",
    "coefficient": f"{LOSS}.distillation_loss_coef",
    "top_k": f"{LOSS}.topk",
}
ARGS = {
    "with_rewards": f"{LOSS}.use_task_rewards",
    "policy_gradient": f"{LOSS}.use_policy_gradient",
}
"""Settings that other frameworks have too, under the names that they have in ``args``."""
OWN = ("estimator", "nnodes", "n_gpus_per_node", "teacher_key")
BELOW = ("distillation_loss.", "teacher_models.", "teacher_model.")
"""What verl's section holds beside the settings above: any other name makes its dataclass raise a TypeError."""
UNCOMPOSED = (f"{LOSS}.use_chunked_topk", f"{LOSS}.chunked_topk_chunk_size")
"""What ``DistillationLossConfig`` of 0.9 has and verl's own config leaves out (0.9.1: verl/workers/config/distillation.py)."""
TOP_K = "forward_kl_topk"
ESTIMATORS = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")
"""verl's estimators of the reverse KL."""
ESTIMATE = "verl estimates the reverse KL: by k1 as a reward, by k3 as a loss"
POOL = (f"{D}.nnodes", f"{D}.n_gpus_per_node")


def _leaves(tree: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(tree, Mapping) and tree:
        for name, item in tree.items():
            yield from _leaves(item, (*path, name))
    else:
        yield path, tree


def _teacher(view: Reading) -> str:
    """The key of the teacher's model: the usual one, an older release's, or that of the only teacher with another name."""
    named = [name for name in view.get(f"{D}.teacher_models") or {} if name != "teacher_model"]
    if view.written(ALONE) or len(named) != 1:
        return OLD if view.written(OLD) and not view.written(ALONE) else ALONE
    return f"{D}.teacher_models.{named[0]}.model_path"


def _read(view: Reading) -> Iterator[Flow]:
    to, root = view.to(TO), view.path(D)
    if not view.get(f"{D}.enabled"):
        yield Flow(to, None, (view.path(f"{D}.enabled"),))
        if view.written(D):
            rest = [path for path, _ in _leaves(view.get(D)) if path != ("enabled",)]
            yield Flow((), None, tuple(root + path for path in rest), "dead", "'distillation.enabled' is off")
        return
    teacher = _teacher(view)
    read = (view.path(teacher), *map(view.path, (*TYPED.values(), *ARGS.values())))
    yield Flow(to, {}, (view.path(f"{D}.enabled"),))
    yield Flow((*to, "teacher"), view.get(teacher) or "", (view.path(teacher),), same=True)
    mode, used = view.get(TYPED["loss"]), (view.path(TYPED["loss"]),)
    if mode == TOP_K:
        yield Flow((*to, "loss"), "forward_kl", used)
        yield Flow((*to, "top_k"), view.get(TYPED["top_k"]), (view.path(TYPED["top_k"]),), same=True)
    else:
        yield Flow((*to, "loss"), "reverse_kl" if mode in ESTIMATORS else mode, used)
        yield Flow((*to, "args", "estimator"), mode, used, same=True)
        yield Flow(
            (),
            None,
            (view.path(TYPED["top_k"]),),
            "dead",
            said("only {top_k} compares the top-k tokens", top_k=TOP_K),
        )
    weight = view.path(TYPED["coefficient"])
    if view.get(ARGS["with_rewards"]):
        yield Flow((*to, "coefficient"), view.get(TYPED["coefficient"]), (weight,), same=True)
    else:
        yield Flow((), None, (weight,), "dead", "it weighs the divergence against rewards, but use_task_rewards is off")
    for name, key in ARGS.items():
        yield Flow((*to, "args", name), view.get(key), (view.path(key),), same=True)
    for path, value in _leaves(view.get(D)):
        if root + path not in ((*root, "enabled"), *read) and (named := _as_released(view, path)):
            yield Flow((*to, "args", named), value, (root + path,), "mapped", "under its own name", same=True)


def _as_released(view: Reading, path: KeyPath) -> str:
    """The name of a setting in the section of 0.8 and newer; empty for one of a fork, whose dataclass is another."""
    parts = [str(part) for part in path]
    if parts[0] == "teacher_model":  # main before 0.8.0 had one teacher
        parts[:1] = ["teacher_models", "teacher_model"]
    of_teacher = parts[0] == "teacher_models" and len(parts) > 2
    usual = [D, parts[0], "teacher_model", *parts[2:]] if of_teacher else [D, *parts]
    known = [".".join(usual)]
    if of_teacher and parts[2] == "inference":  # the same dataclass as the policy's
        known.append(".".join(["actor_rollout_ref.rollout", *parts[3:]]))
    is_known = known[0] in UNCOMPOSED or any(view.has(DialectKey(name)) for name in known)
    return ".".join(parts) if is_known else ""


def _write(view: Writing) -> Iterator[Out]:
    section, to = view.get(TO), view.to(TO)
    if not isinstance(section, Mapping):
        return
    if view.version < (0, 8):
        yield Inexpressible((to, *((*to, name) for name in section)), "verl supports distillation from 0.8")
        return
    yield Flow(view.path(f"{D}.enabled"), True, (to,))
    args = section["args"]
    if section["teacher"]:
        named = [name.split(".")[1] for name in args if name.startswith("teacher_models.")]
        model = f"{D}.teacher_models.{named[0]}.model_path" if named else ALONE
        yield Flow(view.path(model), section["teacher"], ((*to, "teacher"),), same=True)
    yield from _write_loss(view, section)
    if args.get("with_rewards", True):
        yield Flow(view.path(TYPED["coefficient"]), section["coefficient"], ((*to, "coefficient"),), same=True)
    elif section["coefficient"] != 1.0:
        yield Inexpressible(((*to, "coefficient"),), "verl weighs the divergence only if task rewards are used too")
    for name, value in args.items():
        if name.startswith("teacher_engine."):
            reason = "verl runs the teacher by teacher_models.teacher_model.inference, under different names"
            yield Inexpressible(((*to, "args", name), (*to, "args")), reason, idle=True)
        elif name not in ARGS and name not in OWN and not name.startswith(BELOW):
            yield Inexpressible(
                ((*to, "args", name), (*to, "args")), said("verl's distillation has no {name}", name=name)
            )
        elif name != "estimator":
            key = view.path(ARGS[name]) if name in ARGS else (*view.path(D), *name.split("."))
            yield Flow(key, value, ((*to, "args", name), (*to, "args")), same=True)
    for name in POOL:
        if name.removeprefix(f"{D}.") not in args:
            size = 1 if name == POOL[0] else view.config.placement.devices_per_node
            note = "verl runs the teacher on dedicated devices, in addition to trainer.nnodes"
            yield Flow(view.path(name), size, (to,), "assumed", note, always=True)


def _write_loss(view: Writing, section: Mapping[str, Any]) -> Iterator[Out]:
    to, key = view.to(TO), view.path(TYPED["loss"])
    loss, args = section["loss"], section["args"]
    if loss == "forward_kl":
        yield Flow(key, TOP_K, ((*to, "loss"),))
        if section["top_k"] is not None:
            yield Flow(view.path(TYPED["top_k"]), section["top_k"], ((*to, "top_k"),), same=True)
        return
    estimator = args.get("estimator", "k1" if args.get("policy_gradient") else "k3")
    used = ((*to, "args", "estimator"), (*to, "args"), (*to, "loss"))
    if loss == "reverse_kl" and estimator in ESTIMATORS:
        named = "estimator" in args
        yield Flow(key, estimator, used, "mapped" if named else "derived", "" if named else ESTIMATE, same=named)
    else:
        wanted = loss if loss != "reverse_kl" else said("the estimator {estimator}", estimator=estimator)
        yield Inexpressible(
            used,
            said(
                "verl has the distillation losses {top_k}, {estimators}, but not {wanted}",
                top_k=TOP_K,
                estimators=", ".join(ESTIMATORS),
                wanted=wanted,
            ),
        )
    if section["top_k"] is not None:
        yield Inexpressible(((*to, "top_k"),), said("verl compares the top-k tokens only with {top_k}", top_k=TOP_K))


RULES: list[Rule] = [
    CustomRule(
        "distillation",
        (
            DialectKey(f"{D}.enabled"),
            DialectKey(ALONE),
            DialectKey(OLD, ABSENT, since="0.8"),  # main before 0.8.0: trainer/config/distillation/distillation.yaml
            *map(DialectKey, (*TYPED.values(), *ARGS.values())),
            DialectKey(f"{D}.**"),
        ),
        (TO, *(f"{TO}.{name}" for name in ("teacher", "loss", "coefficient", "top_k", "args"))),
        _read,
        _write,
        by_key={
            D: f"{TO}.args",
            f"{D}.enabled": TO,
            f"{D}.teacher_models": f"{TO}.teacher",
            f"{D}.teacher_model.model_path": f"{TO}.teacher",
            f"{LOSS}.loss_mode": f"{TO}.loss",
            f"{LOSS}.distillation_loss_coef": f"{TO}.coefficient",
            f"{LOSS}.topk": f"{TO}.top_k",
            f"{LOSS}.use_task_rewards": f"{TO}.args",
            f"{LOSS}.use_policy_gradient": f"{TO}.args",
        },
        why="The mode decides which settings are read, and other keys of the block are kept as arguments.",
    ),
]
