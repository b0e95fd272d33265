"""What the config lets a user set, and what the algorithms take, are the same names with the same defaults."""

from __future__ import annotations

import inspect
from dataclasses import asdict
from typing import get_args

import pytest

from rlctl.config.sections import algorithm as schema
from rlctl.config.sections.train import ValueLoss
from rlctl.planning.support import ONLY_VALUES
from rlctl.runtime.algorithms import correction, rewards
from rlctl.runtime.algorithms.advantages import ADVANTAGES
from rlctl.runtime.algorithms.aggregation import AGGREGATIONS
from rlctl.runtime.algorithms.further_losses import FURTHER_LOSSES
from rlctl.runtime.algorithms.kl import KL_ESTIMATORS
from rlctl.runtime.algorithms.policy_losses import POLICY_LOSSES, ImportanceWeight
from rlctl.runtime.algorithms.table import Algorithm
from rlctl.runtime.algorithms.value_loss import clipped_value_loss
from rlctl.runtime.experience.selection import FURTHER_ESTIMATORS, TWINS, estimator_of, loss_of

ADVANTAGE_SECTIONS = {
    section().choice: section() for section in schema.Advantage.__subclasses__() if section.choice != "other"
}
LOSS_SECTIONS = {
    section().choice: section() for section in schema.PolicyLoss.__subclasses__() if section.choice != "other"
}


BY_TURNS = {"turn_gae": "gae", "ppo_clip_segments": "ppo_clip"}
"""Functions that a type of the config chooses by ``level: turn`` or ``ratio: segment``: they have the options of that type."""


def defaults(algorithm: Algorithm) -> dict[str, object]:
    parameters = inspect.signature(algorithm.function).parameters
    return {name: parameters[name].default for name in algorithm.options}


@pytest.mark.parametrize("name", sorted(set(ADVANTAGES) - set(FURTHER_ESTIMATORS)))
def test_advantage_options(name: str) -> None:
    options = asdict(ADVANTAGE_SECTIONS[BY_TURNS.get(name, name)])
    options.pop("clip")  # after it
    options.pop("level", None)  # which function it is
    options.pop("kl_order", None)  # where the caller subtracts the penalty
    if name == "step_reinforce":  # its turns are what reward_shaping normalizes
        options |= asdict(schema.Normalization())
    whiten = options.pop("whiten", ADVANTAGES[name].whiten)  # an option of estimate() itself
    assert options == defaults(ADVANTAGES[name])
    assert whiten == ADVANTAGES[name].whiten


@pytest.mark.parametrize("name", sorted(POLICY_LOSSES))
def test_policy_loss_options(name: str) -> None:
    options = asdict(LOSS_SECTIONS[BY_TURNS.get(name, name)])
    options.pop("ratio", None)  # which function it is
    assert options == defaults(POLICY_LOSSES[name])


def test_functions_by_turns_are_those_that_the_config_chooses() -> None:
    turns = schema.Algorithm(advantage=schema.Gae(level="turn"), policy_loss=schema.PpoClip(ratio="segment"))
    assert estimator_of(turns)[0] == "turn_gae"
    assert loss_of(turns)[0] is POLICY_LOSSES["ppo_clip_segments"]


def test_closed_sets() -> None:
    modes = get_args(inspect.get_annotations(schema.Aggregation, eval_str=True)["mode"])
    assert set(modes) == set(AGGREGATIONS)
    # the logits of both models are not at hand where estimates are computed
    assert set(get_args(schema.KlEstimator)) - set(KL_ESTIMATORS) == {"full"}
    assert set(KL_ESTIMATORS) <= set(get_args(schema.KlEstimator))
    weights = inspect.get_annotations(schema.PolicyGradient, eval_str=True)["importance_weight"]
    assert get_args(weights) == get_args(ImportanceWeight)
    assert get_args(schema.Scope) == get_args(rewards.Scope)
    levels = inspect.get_annotations(schema.ImportanceSampling, eval_str=True)["level"]
    assert set(get_args(levels)) == {"none", *get_args(correction.Level)}


def test_kinds_of_other_that_are_computed_are_those_that_are_honoured() -> None:
    kinds = {name: set(known) for name, (known, _) in ONLY_VALUES.items()}
    assert kinds["algorithm.advantage<other>"] == {*FURTHER_ESTIMATORS, *TWINS}
    assert {*FURTHER_ESTIMATORS, *(name for name, _ in TWINS.values())} <= set(ADVANTAGES)
    assert kinds["algorithm.policy_loss<other>"] == set(FURTHER_LOSSES)
    assert not set(FURTHER_ESTIMATORS) & set(ADVANTAGE_SECTIONS)
    assert not set(FURTHER_LOSSES) & set(LOSS_SECTIONS)


def test_value_clip() -> None:
    assert inspect.signature(clipped_value_loss).parameters["clip"].default == ValueLoss().clip
