"""verl: learning from a teacher's log-probs on the policy's own responses; several teachers travel as settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlctl.adapters.rules import ABSENT, Code, Flow, K, Lost, Out, Reading, Rule, Writing
from rlctl.documents.paths import KeyPath

D, TO = "distillation", "algorithm.distillation"
LOSS = f"{D}.distillation_loss"
ALONE = f"{D}.teacher_models.teacher_model.model_path"
OLD = f"{D}.teacher_model.model_path"
TYPED = {
    "loss": (f"{LOSS}.loss_mode", "k3"),
    "coefficient": (f"{LOSS}.distillation_loss_coef", 1.0),
    "top_k": (f"{LOSS}.topk", 32),
}
LOSSES = {"forward_kl_topk": "forward_kl"}
"""verl's name to the divergence's; its estimators of the reverse KL keep their names."""
KNOWN = ("forward_kl_topk", "kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")
TOP_K = "forward_kl_topk"


def _leaves(tree: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(tree, Mapping) and tree:
        for name, item in tree.items():
            yield from _leaves(item, (*path, name))
    else:
        yield path, tree


def _read(view: Reading) -> Iterator[Flow]:
    to, root = view.to(TO), view.path(D)
    if not view.get(f"{D}.enabled"):
        yield Flow(to, None, (view.path(f"{D}.enabled"),))
        if view.written(D):
            rest = [path for path, _ in _leaves(view.get(D)) if path != ("enabled",)]
            yield Flow((), None, tuple(root + path for path in rest), "dead", "'distillation.enabled' is off")
        return
    teacher = ALONE if view.written(ALONE) or not view.written(OLD) else OLD
    typed = {(*root, "enabled"), view.path(teacher), *(view.path(key) for key, _ in TYPED.values())}
    yield Flow(to, {}, (view.path(f"{D}.enabled"),))
    yield Flow((*to, "teacher"), view.get(teacher) or "", (view.path(teacher),), same=True)
    for field, (key, default) in TYPED.items():
        value = view.get(key, default)
        if field == "loss":
            value = LOSSES.get(value, value)
        elif field == "top_k" and view.get(TYPED["loss"][0]) != TOP_K:
            yield Flow((), None, (view.path(key),), "dead", f"only {TOP_K} compares the likeliest tokens")
            value = None
        yield Flow((*to, field), value, (view.path(key),), same=field != "loss")
    others = {path: value for path, value in _leaves(view.get(D)) if root + path not in typed}
    if others:
        args = {".".join(str(part) for part in path): value for path, value in others.items()}
        yield Flow((*to, "args"), args, tuple(root + path for path in others), "mapped", "under their own names")


def _write(view: Writing) -> Iterator[Out]:
    section, to = view.get(TO), view.to(TO)
    if not isinstance(section, Mapping):
        return
    if view.version < (0, 8):
        yield Lost((to, *((*to, name) for name in section)), "verl distils since 0.8")
        return
    yield Flow(view.path(f"{D}.enabled"), True, (to,))
    if section["teacher"]:
        yield Flow(view.path(ALONE), section["teacher"], ((*to, "teacher"),), same=True)
    names = {canonical: name for name, canonical in LOSSES.items()}
    loss = names.get(section["loss"], section["loss"])
    if loss in KNOWN:
        yield Flow(view.path(TYPED["loss"][0]), loss, ((*to, "loss"),))
    else:
        yield Lost(((*to, "loss"),), f"verl distils by {', '.join(KNOWN)}, not by {loss}")
    yield Flow(view.path(TYPED["coefficient"][0]), section["coefficient"], ((*to, "coefficient"),), same=True)
    if section["top_k"] is not None:
        yield Flow(view.path(TYPED["top_k"][0]), section["top_k"], ((*to, "top_k"),), same=True)
    for name, value in section["args"].items():
        yield Flow((*view.path(D), *name.split(".")), value, ((*to, "args"),))


RULES: list[Rule] = [
    Code(
        "distillation",
        (
            K(f"{D}.enabled", False, "0.8"),
            K(ALONE, None, "0.8"),
            K(OLD, ABSENT, "0.8"),
            *(K(key, default, "0.8") for key, default in TYPED.values()),
            K(f"{D}.**", ABSENT, "0.8"),
        ),
        (TO, *(f"{TO}.{name}" for name in ("teacher", "loss", "coefficient", "top_k", "args"))),
        _read,
        _write,
    ),
]
