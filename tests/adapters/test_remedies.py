"""Changes that rows of requirements suggest: each is made in the text of a file, which is checked again."""

from __future__ import annotations

import pytest

from rlctl.adapters.engine.requirements import Remedy, requirements_of
from rlctl.adapters.engine.tree import GONE
from rlctl.common.report import Finding, Report
from rlctl.config import Loaded
from rlctl.documents import parse_dotted, write_yaml
from rlctl.editing.saving import gathered, with_own_value
from rlctl.translation.checking import Question, checked
from rlctl.translation.translate import read_input
from tests.adapters.refused import VERL, A, R, changed, tree

SCRIPT = "python3 -m verl.trainer.main_ppo \\\n" + " \\\n".join(f"    {key}={value}" for key, value in VERL.items())
CASES = [
    ("verl", {f"{A}.ppo_micro_batch_size_per_gpu": 7}, f"{A}.ppo_micro_batch_size_per_gpu", (8,)),
    ("verl", {f"{R}.mode": "sync"}, f"{R}.mode", ("async",)),
    ("verl", {"trainer.logger": ["console", "wanbd"]}, "trainer.logger", (["console", "wandb"],)),
    ("verl", {f"{A}.ppo_micro_batch_size": 16}, f"{A}.ppo_micro_batch_size", ()),
    ("trinity", {"synchronizer.sync_interval": 0}, "synchronizer.sync_interval", (1,)),
    ("roll", {"rollout_batch_size": 66}, "rollout_batch_size", (64,)),
]


def check(text: str, framework: str, name: str = "run.yaml") -> tuple[Loaded | None, Report]:
    loaded, report = read_input(gathered(text, name, None), dialect=framework)
    return loaded, checked(loaded, report, Question(runner=framework), "", text).report


def suggestion(report: Report, key: str) -> tuple[Finding, tuple[object, ...]]:
    found = next(item for item in report.findings if item.code == "runner-refuses" and item.key == key)
    ((own, values),) = found.own_fixes
    assert own == key
    return found, values


@pytest.mark.parametrize(("framework", "changes", "key", "values"), CASES)
def test_each_suggestion_ends_its_refusal(
    framework: str, changes: dict[str, object], key: str, values: tuple[object, ...]
) -> None:
    text = write_yaml(tree(changed(framework, changes)))
    loaded, report = check(text, framework)
    found, offered = suggestion(report, key)
    assert offered == values
    assert found.as_data()["fixes"] == [{"key": key, "values": list(values)}]
    for value in offered or (GONE,):
        assert loaded is not None
        edited = with_own_value(text, "run.yaml", report.dialect, loaded, parse_dotted(key), value)
        assert edited is not None
        left = check(edited, framework)[1].errors
        assert [item.code for item in left if item.key == key] == []
        assert len(left) < len(report.errors)


def test_a_script_keeps_its_other_overrides() -> None:
    key = f"{A}.ppo_micro_batch_size_per_gpu"
    text = SCRIPT.replace(f"{key}=2", f"++{key}=7")
    loaded, report = check(text, "verl", "run.sh")
    assert loaded is not None
    _, (value, *_) = suggestion(report, key)
    edited = with_own_value(text, "run.sh", report.dialect, loaded, parse_dotted(key), value)
    assert edited == text.replace(f"++{key}=7", f"++{key}=8")


def test_nothing_is_suggested_that_brings_another_finding() -> None:
    mini = f"{A}.ppo_mini_batch_size"
    changes = {"data.train_batch_size": 20, mini: 20, f"{R}.n": 3}
    _, report = check(write_yaml(tree(changed("verl", changes))), "verl")
    found = next(item for item in report.findings if item.key == mini)
    assert not found.own_fixes
    assert "alone solves this" in found.hint


def test_most_rows_state_their_change() -> None:
    rows = [row for name in ("verl", "trinity", "roll") for row in requirements_of(name).rows]  # type: ignore[union-attr]
    assert sum(isinstance(row.hint, Remedy) for row in rows) > len(rows) * 0.7
