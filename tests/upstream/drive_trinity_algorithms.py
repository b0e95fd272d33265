"""Runs in a Python that has Trinity-RFT: Trinity's own algorithm functions on tensors that the test sends, a line of JSON for each.

Nothing here knows rlctl.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch
from trinity import algorithm as registry
from trinity.common.experience import EID, Experience


def wide(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def made(table: Any, ask: dict[str, Any], **more: Any) -> Any:
    """A function with the arguments in effect: a default stands where none is given."""
    kind = table.get(ask["name"])
    return kind(**more, **{**kind.default_args(), **(ask.get("args") or {})})


def loss(ask: dict[str, Any]) -> Any:
    """A policy loss over a whole mini-batch, and its gradient."""
    log_probs = wide(ask["log_probs"]).requires_grad_()
    value, _ = made(registry.POLICY_LOSS_FN, ask, backend="verl")(
        logprob=log_probs,
        old_log_probs=wide(ask["old_log_probs"]),
        ref_log_prob=wide(ask["old_log_probs"]),
        response_mask=wide(ask["mask"]),
        advantages=wide(ask["advantages"]),
    )
    value.backward()
    assert log_probs.grad is not None
    return [value.item(), log_probs.grad.tolist()]


def advantage(ask: dict[str, Any]) -> Any:
    """The advantage of each response, of functions that work on groups; None where one is left out."""
    groups = ask["groups"]
    experiences = [
        Experience(
            eid=EID(task=group, run=index),
            tokens=torch.tensor([1, 2, 3]),
            prompt_length=2,
            reward=reward,
            logprobs=torch.zeros(1),
        )
        for index, (group, reward) in enumerate(zip(groups, ask["rewards"], strict=True))
    ]
    function = made(registry.ADVANTAGE_FN, ask)
    found, _ = function.process(experiences) if hasattr(function, "process") else function(experiences)
    values = {experience.eid.run: experience.advantages.flatten()[0].item() for experience in found}
    return [values.get(index) for index in range(len(groups))]


def token_advantage(ask: dict[str, Any]) -> Any:
    """Advantages by token, of functions that work on a batch in the trainer."""
    batch = {
        "old_log_probs": wide(ask["old_log_probs"]),
        "teacher_log_probs": wide(ask["teacher"]),
        "teacher_logprobs": wide(ask["teacher"]),
        "response_mask": wide(ask["mask"]),
        "token_level_rewards": wide(ask["at_tokens"]),
    }
    groups = {"uid": ask["groups"]}
    found, _ = made(registry.ADVANTAGE_FN, ask)(SimpleNamespace(batch=batch, non_tensor_batch=groups))
    return found.batch["advantages"].tolist()


def sifted(ask: dict[str, Any]) -> Any:
    """Advantages by token and the mask that is left, of functions that leave tokens out."""
    names = ("old_log_probs", "rollout_log_probs", "entropys", "necs")
    batch = {name: wide(ask[name]) for name in names}
    batch |= {"response_mask": wide(ask["mask"]), "token_level_rewards": wide(ask["at_tokens"])}
    found, _ = made(registry.ADVANTAGE_FN, ask)(SimpleNamespace(batch=batch, non_tensor_batch={"uid": ask["groups"]}))
    return [found.batch["advantages"].tolist(), found.batch["response_mask"].tolist()]


def kl(ask: dict[str, Any]) -> Any:
    """An estimate of the KL at every token, and the gradient of their sum."""
    log_probs = wide(ask["log_probs"]).requires_grad_()
    function = registry.KL_FN.get(ask["name"])()
    found = function.calculate_kl(log_probs, wide(ask["reference"]), wide(ask["old_log_probs"]))
    found.sum().backward()
    assert log_probs.grad is not None
    return [found.tolist(), log_probs.grad.tolist()]


def registered(ask: dict[str, Any]) -> Any:
    """Every name that this release has a function for."""
    tables = {
        "losses": registry.POLICY_LOSS_FN,
        "advantages": registry.ADVANTAGE_FN,
        "kl": registry.KL_FN,
        "entropy": registry.ENTROPY_LOSS_FN,
        "strategies": registry.SAMPLE_STRATEGY,
        "types": registry.ALGORITHM_TYPE,
    }
    return {kind: sorted({*table.modules, *table._default_mapping}) for kind, table in tables.items()}


def main() -> None:
    answers = {
        "loss": loss,
        "advantage": advantage,
        "token_advantage": token_advantage,
        "sifted": sifted,
        "kl": kl,
        "registered": registered,
    }
    out = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        ask = json.loads(line)
        out.write(json.dumps({"value": answers[ask["of"]](ask)}) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
