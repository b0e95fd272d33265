"""Experience operators: kept responses and rewards are those of Trinity-RFT 0.6.0's own classes on the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.runtime.experience.operators import Operators
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.specs.experience import shaping_spec
from rlctl.runtime.types import Prompt, Response
from tests.runtime.schedules.simulated import Engines, Simulation, configured

REWARDS = ((1.0, 0.25, -0.5, 0.0), (0.5, 0.5), (2.0,), (0.0, 1.0))
RIGHT = ((1.0, 0.0, 0.0, 0.0), (1.0, 1.0), (1.0,), None)
"""The number ``accuracy`` of each response, which the last group lacks."""


def answered() -> list[RolloutGroup]:
    groups: list[RolloutGroup] = []
    for number, (rewards, right) in enumerate(zip(REWARDS, RIGHT, strict=True)):
        responses = [
            Response(
                (7, 8), (0.0, 0.0), "stop", 0, text=f"{number}.{place}", info={"q": 0.5 * (place + 1), "zero": 0.0}
            )
            for place in range(len(rewards))
        ]
        scores = [
            Score(reward, {} if right is None else {"accuracy": right[place]}) for place, reward in enumerate(rewards)
        ]
        groups.append(RolloutGroup(Prompt(number, "s", (1,), f"p{number}"), responses, list(rewards), scores))
    return groups


def shaping_of(*operators: dict[str, Any], **sections: Any) -> Shaping:
    return Shaping.of(shaping_spec(config_from({"algorithm": {"experience_operators": list(operators)}, **sections})))


def operated(
    *operators: dict[str, Any], groups: list[RolloutGroup] | None = None
) -> tuple[list[str], dict[str, float]]:
    """The texts that are left, and the metrics."""
    shaping = shaping_of(*operators)
    kept = shaping.kept_groups(groups or answered())
    return [str(each.text) for item in kept for each in item.responses], shaping.operators.metrics()


MIXED = ["0.0", "0.1", "0.2", "0.3", "3.0", "3.1"]


@pytest.mark.parametrize(
    ("operator", "kept"),
    [
        ({"type": "reward_filter"}, ["0.0", "0.1", "0.3", "1.0", "1.1", "2.0", "3.0", "3.1"]),
        ({"type": "reward_filter", "threshold": 0.25}, ["0.0", "0.1", "1.0", "1.1", "2.0", "3.1"]),
        ({"type": "reward_std_filter"}, MIXED),
        ({"type": "reward_std_filter", "threshold": 0.5}, MIXED[:4]),
        ({"type": "dapo_dynamic_sampling"}, MIXED),
        ({"type": "dapo_dynamic_sampling", "metric": "missing", "correct_threshold": 0.25}, MIXED),
        ({"type": "dapo_dynamic_sampling", "correct_threshold": 1.0}, []),
    ],
)
def test_filters_keep_what_trinitys_keep(operator: dict[str, Any], kept: list[str]) -> None:
    found, metrics = operated(operator)
    name = f"operator/1_{operator['type']}"
    assert (found, metrics[f"{name}/in"], metrics[f"{name}/out"]) == (kept, 9, len(kept))


def test_dapo_counts_what_it_drops() -> None:
    _, metrics = operated({"type": "dapo_dynamic_sampling"})
    name = "operator/1_dapo_dynamic_sampling"
    assert (metrics[f"{name}/dropped_all_right"], metrics[f"{name}/dropped_all_wrong"]) == (2, 0)


@pytest.mark.parametrize(
    ("rules", "rewards", "change"),
    [
        ([{"stats_key": "q", "weight": 2.0}], [2.0, 2.25, 2.5, 4.0, 1.5, 2.5, 3.0, 1.0, 3.0], 17 / 9),
        ([{"stats_key": "q", "op_type": "SUB"}], [0.5, -0.75, -2, -2, 0, -0.5, 1.5, -0.5, 0], -8.5 / 9),
        ([{"stats_key": "q", "op_type": "MUL", "weight": 3.0}], [1.5, 0.75, -2.25, 0, 0.75, 1.5, 3, 0, 3], 3.5 / 9),
        (
            [
                {"stats_key": "q", "op_type": "DIV", "weight": 0.5},
                {"stats_key": "zero", "op_type": "DIV"},
                {"stats_key": "none"},
            ],
            [4.0, 0.5, -2 / 3, 0, 2, 1, 8, 0, 2],
            1.3425925925925926,
        ),
    ],
)
def test_rewards_are_shaped_as_trinity_shapes_them(rules: Any, rewards: list[float], change: float) -> None:
    shaping = shaping_of({"type": "reward_shaping_mapper", "reward_shaping_configs": rules})
    kept = shaping.kept_groups(answered())
    assert [reward for item in kept for reward in item.rewards] == pytest.approx(rewards)
    assert [score.total for item in kept for score in item.scores] == pytest.approx(rewards)
    name = "operator/1_reward_shaping_mapper/change_mean"
    assert shaping.operators.metrics()[name] == pytest.approx(change)


def test_pass_rates_are_measured_at_their_place_and_reported_as_trinity_does() -> None:
    shaping = shaping_of({"type": "pass_rate_calculator"})
    shaping.kept_groups(answered())
    metrics = shaping.operators.metrics()
    shares = [value for name, value in metrics.items() if name.endswith("_share")]
    assert shares == [0.75, 0.75, 0.75, 1.0, 0.75, 1.0]
    assert shaping.operators.pass_rates({9: 9.0}) == {0: 0.1875, 1: 0.5, 2: 2.0, 3: 0.5}
    later = shaping_of({"type": "reward_filter", "threshold": 0.25}, {"type": "pass_rate_calculator"})
    later.kept_groups(answered())
    assert later.operators.pass_rates({}) == {0: 0.625, 1: 0.5, 2: 2.0, 3: 1.0}
    assert shaping_of({"type": "reward_filter"}).operators.pass_rates({9: 9.0}) == {9: 9.0}


def test_a_reward_that_failed_or_is_no_number_is_invalid() -> None:
    groups = answered()
    groups[0].rewards[1] = float("nan")  # type: ignore[index]
    groups[2] = RolloutGroup(groups[2].prompt, groups[2].responses, [0.0], [Score(0.0, error="it failed")])
    kept, _ = operated({"type": "invalid_reward_filter"}, groups=groups)
    assert kept == ["0.0", "0.2", "0.3", "1.0", "1.1", "3.0", "3.1"]


def test_length_penalties_are_part_of_the_reward_that_operators_see() -> None:
    """Responses of 2 tokens at a limit of 4 lose half of the length penalty of 1: 0.5."""
    sections = {"rollout": {"max_response_tokens": 4}}
    algorithm = {
        "reward_shaping": {"length_penalty": 1.0},
        "experience_operators": [
            {"type": "reward_filter", "threshold": 0.0},
            {"type": "reward_shaping_mapper", "reward_shaping_configs": [{"stats_key": "q", "op_type": "MUL"}]},
        ],
    }
    kept = Shaping.of(shaping_spec(config_from({"algorithm": algorithm, **sections}))).kept_groups(answered())
    assert [[each.text for each in item.responses] for item in kept] == [["0.0"], ["1.0", "1.1"], ["2.0"], ["3.1"]]
    assert [list(item.rewards) for item in kept] == [[0.75], [0.5, 0.5], [1.25], [1.0]]  # (r - 0.5) q + 0.5


def test_the_mean_of_a_group_is_that_of_the_responses_that_are_left() -> None:
    """Rewards 1, 1/4 and 0 are left of a group of four: their mean is 5/12."""
    from rlctl.runtime.experience.samples import samples_of

    shaping = shaping_of({"type": "reward_filter"})
    shaping.spec.algorithm.__dict__["advantage"] = config_from(
        {"algorithm": {"advantage": {"type": "grpo", "normalize_by_std": False}}}
    ).algorithm.advantage
    kept = shaping.kept_groups(answered()[:1])
    samples = samples_of(kept, train_on_cut_prompts=True)
    shaping.shape(samples, kept)
    assert [float(each.columns["advantages"][-1]) for each in samples] == pytest.approx([7 / 12, -1 / 6, -5 / 12])


OWN = """
def keep_short(rows, most):
    for row in rows:
        row["info"]["length"] = float(row["tokens"])
        row["reward"] += 1.0
    kept = [row for row in rows if row["response"].endswith(most)]
    return kept, {"seen": len(rows)}

def invents(rows):
    return [{"id": 99}]

def breaks(rows):
    raise ValueError("on purpose")
"""


def test_an_operator_of_the_users_keeps_changes_and_counts(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    own = {"type": "function", "path": str(file), "function": "keep_short", "args": {"most": ".0"}}
    after = {"type": "reward_shaping_mapper", "reward_shaping_configs": [{"stats_key": "length", "weight": 0.5}]}
    shaping = shaping_of(own, after)
    kept = shaping.kept_groups(answered())
    assert [list(item.rewards) for item in kept] == [[3.0], [2.5], [4.0], [2.0]]
    assert shaping.operators.metrics()["operator/1_function/seen"] == 9
    for name, told in (("invents", "each with its id once"), ("breaks", "on purpose"), ("absent", "has no 'absent'")):
        with pytest.raises(RunError, match=told):
            shaping_of({**own, "function": name, "args": {}}).kept_groups(answered())


@pytest.mark.parametrize(
    "operator",
    [
        {"type": "reward_filter", "threshold": 0.5},
        {"type": "reward_std_filter"},
        {"type": "dapo_dynamic_sampling", "metric": "none"},
        {"type": "invalid_reward_filter"},
        {"type": "function", "path": "own.py", "function": "keep"},
    ],
)
def test_dropped_groups_are_made_up_for_where_that_is_asked(
    operator: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text("def keep(rows):\n    return [row for row in rows if row['reward'] > 0]\n")
    monkeypatch.chdir(tmp_path)
    assert shaping_of({**operator, "refill": True}).refills
    assert not shaping_of(operator).refills


def test_groups_that_are_drawn_ahead_are_operated_on_once_and_what_is_left_is_handed_on() -> None:
    """Rows that 3 divides have rewards of 1 alone; of the others the response of reward 0 is dropped."""
    operators = [
        {"type": "reward_std_filter", "refill": True},
        {"type": "reward_filter", "threshold": 1.0},
        {"type": "reward_shaping_mapper", "reward_shaping_configs": [{"stats_key": "none"}]},
    ]
    here = Simulation(configured(algorithm={"experience_operators": operators}), Engines(lambda row, place: 1.0))
    here.until(4)
    assert [row for row in here.rows if row % 3 == 0] == []
    assert {len(item.responses) for item in here.groups} == {1}
    assert {reward for item in here.groups for reward in item.rewards} == {1.0}


def test_counts_that_were_not_read_come_back() -> None:
    operators = [{"type": "reward_filter"}, {"type": "pass_rate_calculator"}]
    first, second = shaping_of(*operators).operators, shaping_of(*operators).operators
    first.applied(answered())
    second.restore(json.loads(json.dumps(first.state())))
    assert second.metrics() == first.metrics()
    assert second.pass_rates({}) == first.pass_rates({})


def test_without_operators_nothing_changes() -> None:
    groups = answered()
    assert Operators(()).applied(groups) == groups
    assert Operators(()).metrics() == {}
    assert not Shaping.of(shaping_spec(config_from({}))).drops


def test_a_step_reports_operators_and_a_run_that_reads_a_buffer_applies_none(tmp_path: Path) -> None:
    from tests.runtime.experience.test_batch_builders import gather_of, gathered

    gather, _ = gather_of({"experience_operators": [{"type": "reward_std_filter", "refill": True}]})
    step = gathered(gather, 1)
    assert step.metrics["operator/1_reward_std_filter/in"] == 8
    assert step.metrics["operator/1_reward_std_filter/out"] == 4
    assert step.metrics["filter/rounds"] == 2
    chosen = config_from({"algorithm": {"experience_operators": [{"type": "reward_filter", "refill": True}]}})
    reads = Shaping.of(shaping_spec(chosen), explores=False)
    assert (reads.refills, bool(reads.operators)) == (False, False)
