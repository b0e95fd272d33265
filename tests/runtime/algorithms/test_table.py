"""An entry of a table says by its signature what it reads and which options it has, and refuses what is missing."""

from __future__ import annotations

import pytest
import torch

from rlctl.common.errors import ConfigError
from rlctl.planning.arithmetic import MEASURED
from rlctl.runtime.algorithms.advantages import ADVANTAGES
from rlctl.runtime.algorithms.policy_losses import POLICY_LOSSES
from rlctl.runtime.algorithms.table import lookup


def test_an_entry_knows_its_tensors_and_options() -> None:
    assert ADVANTAGES["grpo"].reads == ("rewards", "groups")
    assert ADVANTAGES["grpo"].options == ("normalize_by_std", "epsilon")
    assert POLICY_LOSSES["gspo"].reads == ("log_probs", "old_log_probs", "advantages", "lengths")


def test_what_an_estimator_needs_follows_from_what_it_reads() -> None:
    needs = {name: (e.per_token, e.needs_values, "groups" in e.reads, e.needs_greedy) for name, e in ADVANTAGES.items()}
    assert needs == {
        "asymre": (False, False, True, False),
        "clipb": (False, False, True, False),
        "clipv": (False, False, True, False),
        "gae": (True, True, False, False),
        "gdpo": (False, False, True, False),
        "gigpo": (False, False, True, False),
        "gpg": (False, False, True, False),
        "none": (True, False, False, False),
        "reward": (False, False, False, False),
        "grpo": (False, False, True, False),
        "grpo_passk": (False, False, True, False),
        "opmd": (False, False, True, False),
        "opo": (False, False, True, False),
        "optimal_token_baseline": (True, False, True, False),
        "rec": (False, False, True, False),
        "reinforce": (True, False, False, False),
        "reinforce_plus_plus": (True, False, False, False),
        "reinforce_plus_plus_baseline": (False, False, True, False),
        "remax": (True, False, False, True),
        "rloo": (False, False, True, False),
        "segment_reinforce": (True, False, False, False),
        "step_reinforce": (False, False, False, False),
        "step_wise_grpo": (False, False, True, False),
        "turn_gae": (True, True, False, False),
        "tir_optimal_token_baseline": (True, False, True, False),
    }
    old, squared, entropy = "old_log_probs", "squared_probabilities", "entropy"
    assert {name: (each.measures, each.columns) for name, each in ADVANTAGES.items() if each.columns} == {
        "clipb": ((entropy,), ("rollout_log_probs", "old_entropy")),
        "clipv": ((entropy, "expected_signal"), (old, "old_entropy", "old_expected_signal")),
        "optimal_token_baseline": ((squared,), (old, "old_squared_probabilities")),
        "tir_optimal_token_baseline": ((squared,), (old, "old_squared_probabilities")),
    }
    assert {name for name, each in ADVANTAGES.items() if each.measures} == set(MEASURED)


def test_a_missing_tensor_is_named() -> None:
    zero = torch.zeros(1)
    with pytest.raises(ConfigError, match=r"gspo needs .*; got no lengths"):
        POLICY_LOSSES["gspo"]({"log_probs": zero, "old_log_probs": zero, "advantages": zero})


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown advantage estimator 'grop'(.|\n)*did you mean 'grpo'"):
        lookup(ADVANTAGES, "grop", "advantage estimator")
