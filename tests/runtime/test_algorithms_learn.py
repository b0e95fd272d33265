"""Every algorithm that a config can choose learns the same tiny task: to begin a response with 1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .learning import check_that_it_learns

pytestmark = [pytest.mark.ray, pytest.mark.soak]

SEQUENCES = {"loss_aggregation": {"mode": "seq_mean_token_mean"}}
CORRECTED = {"importance_sampling": {"level": "token"}, "rejection": ["seq_mean_k1"], "rejection_bounds": [[0.5, 2]]}
DAPO = {
    "policy_loss": {"type": "ppo_clip", "clip_high": 0.28},
    "filters": [{"type": "zero_variance_groups", "refill": False}],
    "reward_shaping": {"overlong_penalty": {"buffer": 1, "factor": 0.1}},
}
RIGHT_ONLY = [{"type": "long_incorrect", "max_tokens": 1}]
NORMAL = {"normalize": {"mean": "running", "std": "running"}}

ALGORITHMS: dict[str, dict[str, Any]] = {
    "dr_grpo": {
        "advantage": {"type": "grpo", "normalize_by_std": False},
        "loss_aggregation": {"mode": "seq_mean_token_sum_norm"},
    },
    "dapo": DAPO,
    "rloo": {"advantage": "rloo"},
    "reinforce": {"advantage": "reinforce", "reward_shaping": NORMAL},
    "reinforce_plus_plus": {"advantage": "reinforce_plus_plus"},
    "reinforce_plus_plus_baseline": {"advantage": "reinforce_plus_plus_baseline"},
    "remax": {"advantage": "remax"},
    "opo": {"advantage": "opo"},
    "opmd": {"advantage": "opmd", "policy_loss": {"type": "opmd"}},
    "grpo_passk": {"advantage": "grpo_passk"},
    "gpg": {"advantage": {"type": "gpg"}, "policy_loss": "policy_gradient"},
    "reward": {"advantage": {"type": "reward"}},
    "optimal_token_baseline": {
        "advantage": {"type": "optimal_token_baseline"},
        "rollout_correction": {"importance_sampling": {"level": "token"}},
    },
    "clipb": {"advantage": {"type": "clipb", "args": {"mu": 0.5}}},
    "clipv": {"advantage": {"type": "clipv", "args": {"mu": 1.0, "max_frac": 0.05}}},
    "gspo": {"policy_loss": {"type": "gspo", "clip_low": 0.1, "clip_high": 0.1}, **SEQUENCES},
    "cispo": {"policy_loss": "cispo"},
    "topr": {"policy_loss": "topr"},
    "sapo": {"policy_loss": "sapo", **SEQUENCES},
    "geo_mean": {"policy_loss": {"type": "geo_mean", "args": {"clip_low": 0.4, "clip_high": 0.4}}},
    "dppo_tv": {"policy_loss": {"type": "dppo_tv"}},
    "ppo": {"advantage": {"type": "gae", "lambda": 0.95}},
    "ppo_with_feedback": {"advantage": "gae", "policy_filtration": {"reweight": "max_random"}},
    "raft": {"advantage": "reinforce", "policy_loss": {"type": "sft"}, "filters": RIGHT_ONLY},
    "raft_plus_plus": {"advantage": "reinforce", "filters": RIGHT_ONLY},
    "corrected": {"rollout_correction": CORRECTED},
    "bypass": {"old_log_probs": "rollout", "rollout_correction": {**CORRECTED, "use_policy_gradient": True}},
}
CRITIC = {
    "precision": {"compute": "float32"},
    "memory": {"recompute_activations": False},
    "optimizer": {"lr": 2e-3},
    "ppo_epochs": 2,
}


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_it_learns(name: str, task: Any, run: Callable[..., Any], tmp_path: Path) -> None:
    critic = CRITIC if name.startswith("ppo") else None
    check_that_it_learns(task, run, tmp_path, algorithm=ALGORITHMS[name], critic=critic)
