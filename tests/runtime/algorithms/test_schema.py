"""What the config lets a user set, and what the algorithms take, are the same names with the same defaults."""

from __future__ import annotations

import inspect
from dataclasses import asdict
from typing import get_args

import pytest

from rlctl.config.sections import algorithm as schema
from rlctl.config.sections.train import ValueLoss
from rlctl.runtime.algorithms.advantages import ADVANTAGES
from rlctl.runtime.algorithms.aggregation import AGGREGATIONS
from rlctl.runtime.algorithms.kl import KL_ESTIMATORS
from rlctl.runtime.algorithms.policy_losses import POLICY_LOSSES, ImportanceWeight
from rlctl.runtime.algorithms.table import Algorithm
from rlctl.runtime.algorithms.value_loss import clipped_value_loss

ADVANTAGE_SECTIONS = {section().name_: section() for section in schema.Advantage.__subclasses__()}
LOSS_SECTIONS = {section().name_: section() for section in schema.PolicyLoss.__subclasses__()}


def defaults(algorithm: Algorithm) -> dict[str, object]:
    parameters = inspect.signature(algorithm.function).parameters
    return {name: parameters[name].default for name in algorithm.options}


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_advantage_options(name: str) -> None:
    options = asdict(ADVANTAGE_SECTIONS[name])
    options.pop("kl_order", None)  # where the caller subtracts the penalty
    whiten = options.pop("whiten", ADVANTAGES[name].whiten)  # an option of estimate() itself
    assert options == defaults(ADVANTAGES[name])
    assert whiten == ADVANTAGES[name].whiten


@pytest.mark.parametrize("name", sorted(POLICY_LOSSES))
def test_policy_loss_options(name: str) -> None:
    assert asdict(LOSS_SECTIONS[name]) == defaults(POLICY_LOSSES[name])


def test_closed_sets() -> None:
    modes = get_args(inspect.get_annotations(schema.Aggregation, eval_str=True)["mode"])
    assert set(modes) == set(AGGREGATIONS)
    # the logits of both models, and the old policy's log-probs: neither is at hand where these are computed
    assert set(get_args(schema.KlEstimator)) - set(KL_ESTIMATORS) == {"full", "k3_corrected"}
    assert set(KL_ESTIMATORS) <= set(get_args(schema.KlEstimator))
    weights = inspect.get_annotations(schema.PolicyGradient, eval_str=True)["importance_weight"]
    assert get_args(weights) == get_args(ImportanceWeight)


def test_value_clip() -> None:
    assert inspect.signature(clipped_value_loss).parameters["clip"].default == ValueLoss().clip
