"""The reward worker routes, weighs and adds up; a failure stops the run with the user's own traceback, or counts as 0."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.config.sections.rewards import ExternalReward, FunctionReward, Reward, RuleReward
from rlctl.runtime.rewards import late
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.types import Prompt
from rlctl.runtime.workers.reward import RewardItem, RewardWorker


def item(response: str, answer: Any = 4, source: str = "s", **extra: Any) -> RewardItem:
    return RewardItem(Prompt(3, source, (1,), "what is 2+2?", answer, extra), response, 5)


def function(folder: Path, body: str, **settings: Any) -> FunctionReward:
    (folder / "mine.py").write_text(
        f"def compute_score(data_source, solution_str, ground_truth, extra_info, **kwargs):\n    {body}\n"
    )
    return FunctionReward(path=str(folder / "mine.py"), **settings)


def score(rewards: list[Reward], *items: RewardItem) -> list[Score]:
    with RewardWorker(rewards) as worker:
        return worker.score(items)


def test_rewards_are_weighed_and_added(tmp_path: Path) -> None:
    rewards = [
        RuleReward(name="right", rule="number"),
        function(tmp_path, "return {'score': 2, 'words': len(solution_str.split())}", name="mine", weight=0.5),
        RuleReward(name="form", rule="format", weight=0.25, args={"pattern": ".*!"}, score_wrong=-1),
    ]
    right, wrong = score(rewards, item("it is 4!"), item("5"))
    assert right == Score(2.25, {"right": 1.0, "mine": 2.0, "mine/words": 3.0, "form": 1.0}, correct=True, vote="4")
    assert wrong == Score(0.75, {"right": 0.0, "mine": 2.0, "mine/words": 1.0, "form": -1.0}, correct=False, vote="5")


def test_routing_by_source_and_tag() -> None:
    rewards = [
        RuleReward(name="a", rule="number", applies_to=("math", "easy")),
        RuleReward(name="b", rule="exact_match", applies_to=("text",)),
    ]
    found = score(rewards, item("4", source="math"), item("4", source="text"), item("4", source="x", tag="easy"))
    assert [list(f.components) for f in found] == [["a"], ["b"], ["a"]]
    with pytest.raises(RunError, match=r"'code' with the tag 'hard': a applies to math, easy; b applies to text"):
        score(rewards, item("4", source="code", tag="hard"))


def test_a_star_stands_for_any_text() -> None:
    rewards = [
        RuleReward(name="a", rule="number", applies_to=("aime*", "x[1]")),
        RuleReward(name="b", rule="number", applies_to=("*",)),
    ]
    found = score(rewards, *(item("4", source=source) for source in ("aime2024", "aime", "my-aime", "x[1]", "x1")))
    assert [list(f.components) for f in found] == [["a", "b"], ["a", "b"], ["b"], ["a", "b"], ["b"]]


def test_a_source_may_name_its_reward() -> None:
    rewards = [RuleReward(name="a", rule="number"), RuleReward(name="b", rule="exact_match")]
    assert list(score(rewards, item("4", reward="b"))[0].components) == ["b"]
    with pytest.raises(RunError, match=r"names the reward 'c'; expected one of a, b"):
        score(rewards, item("4", reward="c"))


def test_rule_auto_does_not_score_what_an_agent_rewarded() -> None:
    rewarded = replace(item("#### 4", "4", "openai/gsm8k"), own=0.5)
    assert [each.total for each in score([RuleReward()], rewarded)] == [0.5]
    assert [each.total for each in score([RuleReward(rule="gsm8k")], rewarded)] == [1.5]
    with pytest.raises(RunError, match="no rule for the data source"):
        score([RuleReward()], item("4"))


def test_an_agent_that_a_limit_stopped_needs_no_reward() -> None:
    assert score([], replace(item("4"), stop="turns"))[0].total == 0.0
    with pytest.raises(RunError, match="no reward scores"):
        score([], replace(item("4"), stop="done"))


def test_arguments_of_a_source_reach_rules_and_functions(tmp_path: Path) -> None:
    rule = RuleReward(rule="number", args={"tolerance": 0.0})
    assert score([rule], item("4.4", reward_args={"tolerance": 0.5}))[0].total == 1.0
    mine = function(tmp_path, "return kwargs['k']", args={"k": 1})
    assert [s.total for s in score([mine], item("x"), item("x", reward_args={"k": 2}))] == [1.0, 2.0]


def test_a_failure_stops_the_run_with_the_users_traceback(tmp_path: Path) -> None:
    mine = function(tmp_path, "return 1 / (len(solution_str) - 3)", name="mine", on_error="stop")
    with pytest.raises(RunError) as caught:
        score([mine], item("fine"), item("bad"))
    text = str(caught.value)
    assert "the reward 'mine' failed on a response to prompt 3 of s" in text
    assert 'mine.py", line 2, in compute_score' in text
    assert "ZeroDivisionError" in text
    assert "prompt: what is 2+2?\n  response: bad\n  answer: 4" in text


def test_a_failure_counts_as_zero(tmp_path: Path) -> None:
    mine = function(tmp_path, "return 1 / (len(solution_str) - 3)", name="mine")
    fine, bad = score([mine], item("four"), item("bad"))
    assert fine == Score(1.0, {"mine": 1.0})
    assert (bad.total, bad.components) == (0.0, {"mine": 0.0})
    assert bad.error is not None
    assert bad.error.startswith("mine: Traceback")


def test_a_hanging_function_counts_as_zero_in_time(tmp_path: Path) -> None:
    mine = function(tmp_path, "while solution_str == 'hang': pass\n    return 1", timeout=1.0)
    with RewardWorker([mine], log_folder=tmp_path) as worker:
        start = time.monotonic()
        found = worker.score([item("hang"), item("go")])
        assert time.monotonic() - start < 15  # the function itself never ends
    assert [s.total for s in found] == [0.0, 1.0]
    assert "took longer than 1 s" in (found[0].error or "")


def test_math_runs_where_its_signals_work() -> None:
    pytest.importorskip("math_verify")
    found = score([RuleReward(rule="math")], item(r"\boxed{\frac{8}{2}}"), item(r"\boxed{5}"))
    assert [s.total for s in found] == [1.0, 0.0]


def test_a_reward_that_fails_on_everything_ends_the_run_soon(tmp_path: Path) -> None:
    mine = function(tmp_path, "while True: pass", name="mine", timeout=0.2)
    start = time.monotonic()
    with pytest.raises(RunError, match=r"(?s)the reward 'mine' failed .*hangs or is slow, or raise its timeout"):
        score(
            [mine],
            *(replace(item(str(i)), prompt=Prompt(i // 50, "s", (1,), "", 4, {}), group=i // 50) for i in range(100)),
        )
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("together", [True, False], ids=["of a step", "prompt by prompt"])
def test_a_reward_that_hangs_from_the_first_call_is_told_and_ends_the_run_after_three(
    tmp_path: Path, together: bool
) -> None:
    mine = function(tmp_path, "while True: pass", name="mine", timeout=1.0, workers=1)
    items = [replace(item(str(i)), prompt=Prompt(i, "s", (1,), "", 4, {}), group=i) for i in range(200)]
    seen: list[str] = []
    batches = [items] if together else [[each] for each in items[:3]]
    with RewardWorker([mine], log_folder=tmp_path) as worker, late.told(tmp_path, seen.append):
        for batch in batches[:-1]:
            worker.score(batch)
        with pytest.raises(RunError, match="took longer than 1 s") as stopped:
            worker.score(batches[-1])
    assert "raise its timeout" in stopped.value.hint
    first = "a call of the reward 'mine' took longer than 1 s; {} responses are not scored yet"
    assert seen == ([first.format("199 of 200")] if together else [first.format("0 of 1")] * 3)


def test_a_reward_that_hangs_later_is_told_of_at_the_first_call_and_ends_no_run(tmp_path: Path) -> None:
    mine = function(tmp_path, "while solution_str == 'hang': pass\n    return 1", name="mine", timeout=0.5, workers=1)
    seen: list[tuple[float, str]] = []
    with (
        RewardWorker([mine], log_folder=tmp_path) as worker,
        late.told(tmp_path, lambda message: seen.append((time.monotonic(), message))),
    ):
        assert [each.total for each in worker.score([item("go")])] == [1.0]
        found = worker.score([replace(item("hang"), group=i) for i in range(7)])
        ended = time.monotonic()
    assert [each.total for each in found] == [0.0] * 7
    (only,) = seen
    assert only[1].endswith("6 of 7 responses are not scored yet")
    assert only[0] < ended - 1, "while the others are scored"


@pytest.mark.parametrize("together", [True, False], ids=["of a step", "group by group"])
def test_a_row_whose_responses_cannot_be_scored_ends_no_run(tmp_path: Path, together: bool) -> None:
    """Its responses score 0, whether it comes first of a step or is scored alone, as where responses are scheduled one by one."""
    reward = function(tmp_path, "return float(ground_truth)")
    groups = [
        [RewardItem(Prompt(index, "s", (1,), "2+2?", "many" if index == 0 else "4", {}), "4", 5, group=index)] * 16
        for index in range(3)
    ]
    with RewardWorker([reward]) as worker:
        batches = [[item for group in groups for item in group]] if together else groups
        scores = [score.total for batch in batches for score in worker.score(batch)]
    assert scores == [0.0] * 16 + [4.0] * 32


def test_a_reward_that_fails_on_prompt_after_prompt_ends_the_run(tmp_path: Path) -> None:
    reward = function(tmp_path, "raise ValueError('gone')")
    with RewardWorker([reward]) as worker:
        for index in range(7):
            worker.score([RewardItem(Prompt(index, "s", (1,), "2+2?", 4, {}), "4", 5)] * 16)
        with pytest.raises(RunError, match="it fails on every response"):
            worker.score([RewardItem(Prompt(7, "s", (1,), "2+2?", 4, {}), "4", 5)] * 16)


def test_a_function_of_verls_batch_form_sees_all_responses(tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(
        "def compute_score(data_sources, solution_strs, ground_truths, extra_infos, scale):\n"
        "    if 'bad' in solution_strs: raise ValueError('together')\n"
        "    order = sorted(solution_strs, key=len)\n"
        "    return [{'score': scale * order.index(one), 'n': len(solution_strs)} for one in solution_strs]\n"
    )
    mine = FunctionReward(path=str(tmp_path / "ranks.py"), args={"scale": 2}, workers=2)
    with RewardWorker([mine]) as worker:
        found = worker.score([item("ccc"), item("a"), item("bb")])
        assert [one.total for one in found] == [4.0, 0.0, 2.0]
        assert found[0].components["reward/n"] == 3.0
        failed = worker.score([item("a"), item("bad")])
        assert [one.total for one in failed] == [0.0, 0.0]
        assert all("ValueError: together" in (one.error or "") for one in failed)


def test_rewards_score_at_the_same_time(tmp_path: Path) -> None:
    meets = f"""
    import pathlib, time
    (pathlib.Path({str(tmp_path)!r}) / kwargs["own"]).touch()
    for _ in range(1000):
        if (pathlib.Path({str(tmp_path)!r}) / kwargs["other"]).exists():
            return 1
        time.sleep(0.02)
    return 0"""
    both = [function(tmp_path, meets, name=own, args={"own": own, "other": other}) for own, other in ("ab", "ba")]
    with RewardWorker(both) as worker:
        assert worker.score([item("x"), item("y")])[0].total == 2.0


def test_a_rule_that_fails_in_process_is_a_failure_too() -> None:
    (found,) = score([RuleReward(rule="number")], item("4", answer="none"))
    assert "expected a number in the answer" in (found.error or "")
    with pytest.raises(RunError, match=r"no rule for the data source 's'"):
        score([RuleReward()], item("4"))


def test_what_the_runtime_does_not_run_is_refused() -> None:
    with pytest.raises(RunError, match="of type external"):
        RewardWorker([ExternalReward(kind="roll.X")])
    with pytest.raises(RunError, match="2 rewards are called 'reward'"):
        RewardWorker([RuleReward(rule="number"), RuleReward(rule="boxed")])
