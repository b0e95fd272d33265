"""Runs in verl's environment: verl's own functions on tensors that the test sends, a line of JSON for each."""

from __future__ import annotations

import json
import sys
from typing import Any
from unittest import mock

import numpy as np
import torch
from verl import DataProto
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.trainer.ppo.ray_trainer import compute_advantage
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


def token_baseline(ask: dict[str, Any]) -> Any:
    """Advantages of an optimal token baseline, [batch, width], told as the trainer tells them; squared probabilities of logits."""
    from verl.utils.torch_functional import calculate_sum_pi_squared_from_logits

    mask, squared = wide(ask["mask"]), calculate_sum_pi_squared_from_logits(wide(ask["logits"]))
    batch = {
        "token_level_rewards": wide(ask["rewards"]),
        "response_mask": mask,
        "old_log_probs": wide(ask["old_log_probs"]),
        "sum_pi_squared": squared,
    }
    if ask.get("weights"):
        batch["rollout_is_weights"] = wide(ask["weights"])
    data = DataProto.from_dict(tensors=batch, non_tensors={"uid": np.array(ask["groups"])})
    found = compute_advantage(data, adv_estimator=ask["name"], config=AlgoConfig(adv_estimator=ask["name"]))
    return [found.batch["advantages"].tolist(), squared.tolist()]


def loss(ask: dict[str, Any]) -> Any:
    """A policy loss over a whole mini-batch, and its gradient."""
    log_probs = wide(ask["log_probs"]).requires_grad_()
    mask = wide(ask["mask"])
    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **ask["config"])
    for name, value in (ask.get("policy_loss") or {}).items():
        object.__setattr__(config.policy_loss, name, value)
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


def registered(ask: dict[str, Any]) -> Any:
    """Every name that this release has a function for."""
    from verl.trainer.distillation.losses import DISTILLATION_SETTINGS_REGISTRY

    return {
        "estimators": sorted(map(str, core_algos.ADV_ESTIMATOR_REGISTRY)),
        "losses": sorted(core_algos.POLICY_LOSS_REGISTRY),
        "distillation": sorted(DISTILLATION_SETTINGS_REGISTRY),
    }


def gdpo(ask: dict[str, Any]) -> Any:
    """Advantages of several rewards, [batch, width], told as the trainer tells them."""
    mask = wide(ask["mask"])
    names = [f"part{number}" for number in range(len(ask["parts"]))]
    batch = {
        "prompts": torch.zeros(len(mask), 2),
        "attention_mask": torch.cat([torch.ones(len(mask), 2), mask], 1).long(),
    }
    return core_algos.get_adv_estimator_fn("gdpo")(
        token_level_rewards=mask * 0,
        response_mask=mask,
        index=np.array(ask["groups"]),
        config=AlgoConfig(gdpo_reward_keys=names, gdpo_reward_weights=ask["weights"]),
        non_tensor_batch={name: np.array(part) for name, part in zip(names, ask["parts"], strict=True)},
        batch=batch,
    )[0].tolist()


def distillation(ask: dict[str, Any]) -> Any:
    """A teacher's part in the loss of every token, after both clamps, and the gradient of their sum."""
    from types import SimpleNamespace

    from verl.trainer.distillation.fsdp.losses import compute_forward_kl_topk
    from verl.workers.config import DistillationLossConfig

    config = DistillationLossConfig(loss_mode="forward_kl_topk", topk=ask["top_k"], use_policy_gradient=False)
    logits = wide(ask["logits"]).requires_grad_()

    def nested(values: torch.Tensor) -> torch.Tensor:
        return torch.nested.as_nested_tensor([values], layout=torch.jagged)

    found = compute_forward_kl_topk(
        logits[None],
        nested(wide(ask["teacher"])),
        nested(torch.tensor(ask["places"])),
        SimpleNamespace(distillation_loss=config),
        "thd",
    )["distillation_losses"][0]
    found = found.clamp_min(0.0).clamp(-config.loss_max_clamp, config.loss_max_clamp)
    found.sum().backward()
    assert logits.grad is not None
    return [found.tolist(), logits.grad.tolist()]


def gae(ask: dict[str, Any]) -> Any:
    """Advantages, returns, and the explained variance of the values, over the counted tokens."""
    rewards, values, mask = (wide(ask[name]) for name in ("rewards", "values", "mask"))
    advantages, returns = core_algos.compute_gae_advantage_return(rewards, values, mask, ask["gamma"], ask["lambda"])
    counted = mask > 0
    explained = 1 - (returns - values)[counted].var() / (returns[counted].var() + 1e-5)
    return [advantages.tolist(), returns.tolist(), explained.item()]


def value_loss(ask: dict[str, Any]) -> Any:
    """The critic's loss over a whole mini-batch, its gradient, and the share of clipped tokens."""
    values, mask = wide(ask["predicted"]).requires_grad_(), wide(ask["mask"])
    loss, clipped = core_algos.compute_value_loss(
        vpreds=values,
        returns=wide(ask["returns"]),
        values=wide(ask["old_values"]),
        response_mask=mask,
        cliprange_value=ask["clip"],
        loss_agg_mode=ask["mode"],
        batch_num_tokens=mask.sum(),
        global_batch_size=len(mask),
    )
    loss.backward()
    assert values.grad is not None
    return [loss.item(), values.grad.tolist(), clipped.item()]


def feedback(ask: dict[str, Any]) -> Any:
    """The weights by which responses are drawn anew: those that verl hands to ``multinomial``."""
    seen: list[torch.Tensor] = []

    def multinomial(found: torch.Tensor, count: int, replacement: bool) -> torch.Tensor:
        assert replacement
        assert count == len(found)
        seen.append(found)
        return torch.arange(count)

    data = DataProto.from_dict(tensors={"token_level_scores": wide(ask["scores"])})
    with mock.patch.object(torch, "multinomial", multinomial):
        core_algos.compute_pf_ppo_reweight_data(data, ask["reweight"], ask["power"])
    return seen[0].tolist()


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
    answers = {
        "advantage": advantage,
        "gae": gae,
        "loss": loss,
        "registered": registered,
        "gdpo": gdpo,
        "token_baseline": token_baseline,
        "distillation": distillation,
        "value_loss": value_loss,
        "feedback": feedback,
        "weights": weights,
        "rejection": rejection,
    }
    out = sys.stdout
    sys.stdout = sys.stderr  # what verl prints is no answer
    for line in sys.stdin:
        ask = json.loads(line)
        out.write(json.dumps({"value": answers[ask["of"]](ask)}) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
