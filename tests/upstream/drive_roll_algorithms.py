"""Runs in a Python that has a checkout of ROLL: ROLL's own functions on tensors that the test sends, a line of JSON for each.

Nothing here knows rlctl.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch


def wide(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def divergence(ask: dict[str, Any]) -> Any:
    """A divergence at every row, and the gradient of their sum, as the distillation worker hands both sides to it."""
    from roll.pipeline.distill.various_divergence import VariousDivergence

    config = SimpleNamespace(
        kd_temperature=ask["temperature"], kd_objective=ask["name"], adaptive_kl_alpha=0.4, skew_lambda=0.2
    )
    logits = wide(ask["logits"]).requires_grad_()
    teacher = wide(ask["teacher"]) / ask["teacher_temperature"]
    likely, inferred = teacher.softmax(-1), teacher.log_softmax(-1)
    found = VariousDivergence(config)(logits, likely, inferred, teacher.isinf())
    found.sum().backward()
    assert logits.grad is not None
    return [found.tolist(), logits.grad.tolist()]


def kl(ask: dict[str, Any]) -> Any:
    from roll.utils.functionals import compute_approx_kl

    return compute_approx_kl(wide(ask["log_probs"]), wide(ask["reference"]), kl_penalty=ask["name"]).tolist()


def aggregate(ask: dict[str, Any]) -> Any:
    from roll.utils.functionals import agg_loss

    weights = None if ask["weights"] is None else wide(ask["weights"])
    return agg_loss(wide(ask["values"]), wide(ask["mask"]), ask["mode"], weights=weights).item()


def main() -> None:
    answers = {"divergence": divergence, "kl": kl, "aggregate": aggregate}
    out = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        ask = json.loads(line)
        out.write(json.dumps({"value": answers[ask["of"]](ask)}) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
