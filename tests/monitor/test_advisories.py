"""What looks wrong is told with what to try, and what is well is not."""

from __future__ import annotations

import pytest

from rlctl.monitor.advisories import RULES, advise
from rlctl.monitor.metrics import StepTable
from rlctl.monitor.phases import Current


def table(**columns: list[float]) -> StepTable:
    made = StepTable()
    for step in range(len(next(iter(columns.values())))):
        made.add(step + 1, {name.replace("__", "/"): values[step] for name, values in columns.items()})
    return made


def codes(made: StepTable) -> list[str]:
    return [advice.code for advice in advise(made)]


WELL = {"group__equal_share": [0.2] * 30, "policy__entropy": [1.0] * 30, "policy__approx_kl": [0.01] * 30}


def test_a_run_that_is_well_has_no_advice() -> None:
    assert codes(table(**WELL)) == []
    assert codes(StepTable()) == []


@pytest.mark.parametrize(
    ("metric", "values", "code"),
    [
        ("group__equal_share", [0.2] * 20 + [0.9] * 10, "equal-groups"),
        ("response__truncated_share", [0.3] * 5, "truncation"),
        ("reward__failed_share", [0.5], "reward-errors"),
        ("reward__max", [0.0] * 3, "no-rewards"),
        ("policy__mismatch_k3", [0.2] * 3, "mismatch"),
        ("policy__skipped_updates", [0.0, 1.0], "skipped-updates"),
        ("critic__skipped_updates", [0.25], "skipped-critic-updates"),
        ("throughput__mfu", [0.05] * 3, "low-mfu"),
        ("policy__approx_kl", [0.01] * 20 + [0.9] * 10, "kl-runs-away"),
        ("policy__entropy", [2.0] * 20 + [0.01] * 10, "entropy-collapse"),
    ],
)
def test_what_looks_wrong_is_told(metric: str, values: list[float], code: str) -> None:
    assert codes(table(**{metric: values})) == [code]


def test_rewards_of_1_and_minus_1_whose_mean_is_0_are_rewards() -> None:
    assert codes(table(reward__max=[1.0, -1.0])) == []


def test_steps_that_are_skipped_are_told_as_a_share() -> None:
    (advice,) = advise(table(policy__skipped_updates=[0.0, 0.25]))
    assert advice.message.startswith("12.5% of the optimizer steps are skipped")


def test_a_phase_is_stalled_when_it_takes_many_times_what_is_usual_and_long() -> None:
    usual = Current("rollout", began=0.0, usual=60.0)
    assert [advice.code for advice in advise(StepTable(), usual, now=3600.0)] == ["stalled"]
    assert not advise(StepTable(), usual, now=1000.0), "long for the phase, not long for a person"
    assert not advise(StepTable(), Current("rollout", 0.0, 900.0), now=3600.0)
    quick = Current("rollout", began=0.0, usual=2.0)
    assert advise(StepTable(), quick, now=121.0), "60 times of what is usual"
    assert not advise(StepTable(), quick, now=119.0)
    unknown = Current("start", began=0.0, usual=None)
    assert [advice.code for advice in advise(StepTable(), unknown, now=1801.0)] == ["stalled"]
    assert not advise(StepTable(), unknown, now=1799.0)


def test_the_metrics_of_rules_are_ones_that_runs_tell() -> None:
    from pathlib import Path

    import rlctl.runtime

    source = "\n".join(path.read_text() for path in Path(rlctl.runtime.__file__).parent.rglob("*.py"))
    for rule in RULES:
        assert rule.metric.split("/")[1] in source, rule.metric
