"""Runs in verl's environment: verl's own functions on tensors that the test sends, a line of JSON for each."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.workers.config import ActorConfig


def wide(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def advantage(ask: dict[str, Any]) -> Any:
    """Advantages of an estimator, [batch, width]."""
    known = {
        "token_level_rewards": wide(ask["rewards"]),
        "response_mask": wide(ask["mask"]),
        "index": np.array(ask["groups"]),
        "reward_baselines": wide(ask["baselines"]),
        "config": AlgoConfig(gamma=ask["gamma"]),
    }
    function = core_algos.get_adv_estimator_fn(ask["name"])
    wanted = function.__code__.co_varnames[: function.__code__.co_argcount]
    return function(**{name: value for name, value in known.items() if name in wanted})[0].tolist()


def loss(ask: dict[str, Any]) -> Any:
    """A policy loss over a whole mini-batch, and its gradient."""
    log_probs = wide(ask["log_probs"]).requires_grad_()
    mask = wide(ask["mask"])
    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **ask["config"])
    if ask.get("dro_beta"):
        object.__setattr__(config.policy_loss, "dro_beta", ask["dro_beta"])
    config.global_batch_info.update(
        dp_size=1, batch_num_tokens=mask.sum(), global_batch_size=len(mask), loss_scale_factor=None
    )
    value, _ = core_algos.get_policy_loss_fn(ask["name"])(
        old_log_prob=wide(ask["old_log_probs"]),
        log_prob=log_probs,
        advantages=wide(ask["advantages"]),
        response_mask=mask,
        loss_agg_mode=ask["mode"],
        config=config,
        rollout_is_weights=wide(ask["weights"]) if ask.get("weights") else None,
    )
    value.backward()
    assert log_probs.grad is not None
    return [value.item(), log_probs.grad.tolist()]


def weights(ask: dict[str, Any]) -> Any:
    found, _ = rollout_corr_helper.compute_rollout_correction_weights(
        wide(ask["log_ratio"]), wide(ask["mask"]), ask["level"], ask["threshold"], ask["normalize"]
    )
    return found.tolist()


def rejection(ask: dict[str, Any]) -> Any:
    found, _ = rollout_corr_helper.compute_rollout_rejection_mask(
        wide(ask["log_ratio"]), wide(ask["mask"]), ask["rules"], ask["bounds"]
    )
    return found.tolist()


def main() -> None:
    answers = {"advantage": advantage, "loss": loss, "weights": weights, "rejection": rejection}
    out = sys.stdout
    sys.stdout = sys.stderr  # what verl prints is no answer
    for line in sys.stdin:
        ask = json.loads(line)
        out.write(json.dumps({"value": answers[ask["of"]](ask)}) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
