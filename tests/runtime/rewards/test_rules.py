"""A built-in rule scores as the source it names does.

The rows for gsm8k, boxed and dapo_math are results of verl 0.9.1's own functions (gsm8k.py, math_reward.py, math_dapo.py)
on these very texts; where verl is installed, they are asked again.
"""

from __future__ import annotations

import importlib
import importlib.util
from decimal import Decimal
from typing import Any

import pytest

from rlctl.common.errors import MissingDependency, RunError
from rlctl.runtime.rewards.interface import Call, Failure, Outcome
from rlctl.runtime.rewards.outcome import attempt
from rlctl.runtime.rewards.rules import RULES, arithmetic, auto_rule, last_number
from rlctl.runtime.rewards.scorers import RuleScorer


def verdict(rule: str, response: str, answer: Any, **args: Any) -> Any:
    return RULES[rule].function(Call("s", response, answer), **args)


GSM8K = [
    ("so #### 42", "42", True, True),
    ("#### 1,234", "1234", True, False),
    ("#### 42.", "42", False, False),
    ("the answer is 42", "42", False, True),
    ("#### 41 then #### 42", "42", True, True),
    ("#### 42 and 7", "42", True, False),
    ("####42", "42", False, True),
    ("#### -3", "-3", True, True),
    ("nothing", "42", False, False),
    ("#### 42" + "x" * 300, "42", False, False),
    ("ends here 42 .", "42", False, True),
]


@pytest.mark.parametrize(("response", "answer", "strict", "flexible"), GSM8K)
def test_gsm8k(response: str, answer: str, strict: bool, flexible: bool) -> None:
    assert verdict("gsm8k", response, answer) is strict
    assert verdict("gsm8k", response, answer, method="flexible") is flexible


def test_gsm8k_compares_with_an_answer_that_is_a_number_in_the_data() -> None:
    assert verdict("gsm8k", "so #### 1,234", 1234) is True
    assert verdict("gsm8k", "so #### 1", 1234) is False


def test_gsm8k_format_score() -> None:
    assert verdict("gsm8k", "#### 1", "2", format_score=0.25) == 0.25
    assert verdict("gsm8k", "nothing", "2", format_score=0.25) is False
    with pytest.raises(RunError, match="no method 'loose'"):
        verdict("gsm8k", "#### 1", "2", method="loose")


BOXED = [
    (r"\boxed{\frac12}", r"\frac{1}{2}", True),
    (r"\boxed{1/2}", r"\dfrac{1}{2}", True),
    (r"\boxed{0.5}", r"\frac{1}{2}", True),
    (r"\boxed{0.25}", r"\frac{1}{4}", False),
    (r"\boxed{\sqrt3}", r"\sqrt{3}", True),
    (r"first \boxed{1} then \boxed{2}", "2", True),
    (r"\boxed{x = 5}", "5", True),
    (r"\boxed{90^\circ}", "90", True),
    (r"\boxed{12 \text{ cm}}", "12", True),
    (r"\boxed{50\%}", "50", True),
    (r"\boxed 7$ end", "7", True),
    (r"\boxed{\left( 1, 2 \right)}", "(1,2)", True),
    (r"\boxed{{3}", "3", False),
    ("5", "5", False),
    (r"\boxed{.5}", "0.5", True),
]


@pytest.mark.parametrize(("response", "answer", "right"), BOXED)
def test_boxed(response: str, answer: str, right: bool) -> None:
    assert verdict("boxed", response, answer) is right


DAPO = [
    ("Answer: 34", "34", True),
    ("answer : $34$", "34", True),
    ("Answer: 1,234", "1234", True),
    (r"Answer: \frac12", r"\frac{1}{2}", True),
    ("Answer: 12 dollars", "12", True),
    ("Answer: x = 7", "7", True),
    ("Answer: 3\nAnswer: 4", "3", False),
    (r"so \boxed{34}", "34", True),
    (r"Answer: 1 so \boxed{34}", "34", False),
    (r"so \boxed{34 }", "34", False),
    ("Answer: 34" + " " * 300, "34", False),
    ("34", "34", False),
]


@pytest.mark.parametrize(("response", "answer", "right"), DAPO)
def test_dapo_math(response: str, answer: str, right: bool) -> None:
    assert verdict("dapo_math", response, answer) is right


def test_the_rows_above_are_verls() -> None:
    verl = pytest.importorskip("verl.utils.reward_score", reason="verl is not installed")
    gsm8k, boxed, dapo = (
        importlib.import_module(f"{verl.__name__}.{n}") for n in ("gsm8k", "math_reward", "math_dapo")
    )
    for response, answer, strict, flexible in GSM8K:
        assert gsm8k.compute_score(response, answer) == strict
        assert gsm8k.compute_score(response, answer, method="flexible") == flexible
    assert [boxed.compute_score(response, answer) == 1 for response, answer, _ in BOXED] == [row[2] for row in BOXED]
    assert [dapo.compute_score(response, answer)["acc"] for response, answer, _ in DAPO] == [row[2] for row in DAPO]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12+34=46", "46"),
        ("costs $1,234.50.", "1234.50"),
        ("-7", "-7"),
        ("from 3-5", "5"),
        ("x=-5", "-5"),
        ("2e3", "2000"),
        (".5", "0.5"),
        ("a1", "1"),
        ("#### 42", "42"),
        ("none", None),
        ("9, ", "9"),
    ],
)
def test_last_number(text: str, number: str | None) -> None:
    assert last_number(text) == (None if number is None else Decimal(number))


def test_number() -> None:
    assert verdict("number", "it is 46.0", 46)
    assert verdict("number", "it is 46", "work ... #### 46")
    assert not verdict("number", "it is 47", 46)
    assert verdict("number", "3.14", "3.1416", tolerance=0.01)
    assert not verdict("number", "no idea", 46)
    assert not verdict("number", "9e9999999", 46)
    with pytest.raises(ValueError, match="expected a number in the answer"):
        verdict("number", "1", "many")


def test_exact_match() -> None:
    assert verdict("exact_match", " yes\n", "yes")
    assert not verdict("exact_match", "Yes", "yes")
    assert verdict("exact_match", "Yes", "yes", ignore_case=True)
    assert verdict("exact_match", "46", 46)


def test_math_knows_maths() -> None:
    pytest.importorskip("math_verify")
    assert verdict("math", r"\boxed{0.25}", r"\frac{1}{4}")
    assert verdict("math", "so $x = \\frac{2}{8}$", "0.25")
    assert not verdict("math", r"\boxed{0.26}", r"\frac{1}{4}")
    assert not verdict("math", "no idea", "4")


def test_format() -> None:
    assert verdict("format", "<think>\na\n</think>\n<answer>b</answer>\n", None)
    assert not verdict("format", "<think>a</think> and <answer>b</answer>", None)
    assert verdict("format", "A: 4", None, pattern=r"A: \d")


def test_length_counts_tokens_and_a_cut_response_has_none() -> None:
    def within(tokens: int, truncated: bool = False) -> bool | float:
        return RULES["length"].function(Call("s", "x", tokens=tokens, truncated=truncated), min_tokens=2, max_tokens=4)

    assert [within(n) for n in (1, 2, 4, 5)] == [False, True, True, False]
    assert within(4, truncated=True) is False


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("<answer>(1+2)*3</answer>", True),
        ("<answer>1+2+3</answer>", 0.1),
        ("<answer>9</answer>", 0.1),
        ("<answer>3*3</answer>", 0.1),
        ("<answer>1+2*</answer>", 0.1),
        pytest.param(f"<answer>{'9' * 5000}</answer>", 0.1, id="5000 digits"),
        ("(1+2)*3", False),
        ("<answer>1+2+3</answer><answer>(1+2)*3</answer>", True),
    ],
)
def test_countdown(response: str, expected: bool | float) -> None:
    assert verdict("countdown", response, {"target": 9, "numbers": [1, 2, 3]}) == expected


@pytest.mark.parametrize("text", ["__import__('os')", "2**9", "x", "1/0", "(" * 500, "True", "f()"])
def test_arithmetic_runs_nothing(text: str) -> None:
    assert arithmetic(text) is None


def test_scores_right_and_wrong() -> None:
    score = RuleScorer("number", {}, right=2.0, wrong=-1.0).load().one
    right, wrong = score(Call("s", "4", 4)), score(Call("s", "5", 4))
    assert (right.score, right.correct, wrong.score, wrong.correct) == (2.0, True, -1.0, False)


def test_auto_goes_by_the_source_with_verls_scale() -> None:
    score = RuleScorer("auto").load().one
    assert score(Call("openai/gsm8k", "#### 4", "4")).score == 1.0
    assert score(Call("HuggingFaceH4/MATH-500", r"\boxed{4}", "4")).score == 1.0
    assert [score(Call(source, "Answer: 5", "4")).score for source in ("math_dapo", "aime_2024")] == [-1.0, -1.0]
    assert RuleScorer("auto", {}, 1.0, -2.0).load().one(Call("math_dapo", "Answer: 5", "4")).score == -2.0


def test_auto_says_what_to_do_for_a_source_it_does_not_know() -> None:
    with pytest.raises(RunError, match=r"no rule for the data source 'mine'.*openai/gsm8k.*\n.*exact_match"):
        auto_rule("mine")
    with pytest.raises(RunError, match="sandbox"):
        auto_rule("codecontests")


def test_arguments_are_checked_before_the_run() -> None:
    with pytest.raises(RunError, match=r"unexpected keyword argument 'tolerence'; its arguments are: tolerance"):
        RuleScorer("number", {"tolerence": 1}).check()
    with pytest.raises(RunError, match="max_tokens"):
        RuleScorer("length").check()


MATHS = [  # response, answer, and the scores of ROLL, Trinity and open-r1 (Trinity's accuracy_reward) by their own functions
    (r"<think>x</think> <answer>$\frac{1}{2}$</answer>", "1/2", 1.0, 1.1, None),
    (r"<think>a</think>\boxed{7}", "7", 1.0, 0.9, None),
    (r"no thinking \boxed{7}", "7", 0.0, 0.9, None),
    ("first\n\nthen $7$", "7", 1.0, 0.9, None),
    (r"<think>a</think>b</think>\boxed{7}", "7", 0.0, 0.9, None),
    (r"so \boxed{x^2+1}", "$1+x^2$", 0.0, 0.9, 1.0),
    ("it is 13", "12", 0.0, -0.1, 0.0),
]


@pytest.mark.parametrize(("response", "answer", "roll", "trinity", "open_r1"), MATHS)
def test_maths_as_other_frameworks_read_it(
    response: str, answer: str, roll: float, trinity: float, open_r1: float | None
) -> None:
    pytest.importorskip("math_verify")
    assert float(verdict("math", response, answer, method="roll")) == roll
    found = verdict("math", response, answer, method="trinity")
    assert isinstance(found, Outcome)
    assert found.score == pytest.approx(trinity)
    if open_r1 is not None:
        assert float(verdict("math", response, answer, method="open_r1")) == open_r1


def test_maths_has_no_other_methods() -> None:
    with pytest.raises(RunError, match="rule math has no method 'mine'; its methods are verl, roll, trinity, open_r1"):
        verdict("math", "1", "1", method="mine")


@pytest.mark.parametrize(
    ("response", "scores", "expected"),
    [
        (r"<think>A</think>\boxed{B}", "boxed", 1.0),
        (r"the answer is (B)", "boxed", 0.0),
        (r"the answer is (B)", "soft", 0.5),
        (r"the answer is (B)", "loose", 1.0),
        (r"the answer is (B)", "strict", -1.0),
        (r"\boxed{the C}", "soft", -0.5),
        ("nothing", "soft", -1.0),
    ],
)
def test_multiple_choice(response: str, scores: str, expected: float) -> None:
    found = verdict("multiple_choice", response, "B", scores=scores)
    assert isinstance(found, Outcome)
    assert (found.score, found.correct) == (expected, expected > 0)


def test_repetition_and_length_of_a_choice() -> None:
    found = verdict(
        "multiple_choice", "so so so so so so B", "B", scores="loose", repetition_penalty=0.5, length_weight=2.0
    )
    assert isinstance(found, Outcome)
    assert found.score == pytest.approx(1.0 - 0.5 * 3 / 5 - 2 * 0.5)


@pytest.mark.parametrize(
    ("response", "target", "args", "expected"),
    [
        ("<answer> The Beatles! </answer>", ["beatles", "x"], {}, True),
        ("<answer>b</answer>" * 11, "b", {}, 0.25),
        ("<answer>Rolling Stones</answer>", "beatles", {"format_score": 0.1}, 0.1),
        ("<answer>the Beatles of old</answer>", "beatles", {"part": True}, True),
        ("Beatles", "beatles", {"format_score": 0.1}, False),
    ],
)
def test_search_qa(response: str, target: Any, args: dict[str, Any], expected: float) -> None:
    assert verdict("search_qa", response, {"target": target}, **args) == expected


def test_ifeval() -> None:
    answer = '{"func_name": "verify_bullet_points", "N": 2, "other": null}'
    right = verdict("ifeval", "<think>* a</think>\n* a\n- b", answer)
    assert right == Outcome(1.0, correct=True)
    wrong = verdict("ifeval", "* a a a a", answer, repetition_penalty=0.5)
    assert (wrong.score, wrong.correct) == (pytest.approx(-0.5 / 3), False)
    with pytest.raises(ValueError, match="must have a func_name, one of verify_keywords"):
        verdict("ifeval", "x", {"func_name": "nothing"})


def test_a_rule_that_needs_a_package_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match="the rule geo3k needs mathruler"):
        RuleScorer("geo3k").check()
    score = RuleScorer("auto").load().one
    assert score is not None
    failed = attempt(score, Call("hiyouga/geometry3k", "x", "1"))
    assert isinstance(failed, Failure)
    assert failed.broken
    assert "pip install mathruler" in failed.message


def test_the_format_as_trinity_matches_it() -> None:
    pattern = r"^<a>.*?</a>$"
    assert verdict("format", "<a>1</a>\nmore", "", pattern=pattern, whole=False) is True
    assert verdict("format", "<a>1</a>\nmore", "", pattern=pattern) is False


@pytest.mark.parametrize(
    ("rule", "response", "vote"),
    [
        ("exact_match", " 4\n", "4"),
        ("number", "so it is 1,000.", "1000"),
        ("number", "it is not known", ""),
        ("gsm8k", "3 and 4: #### 1,007", "1007"),
        ("gsm8k", "it is 12.", "12."),
        ("boxed", r"\boxed{\frac12}", r"\frac{1}{2}"),
        ("boxed", r"\boxed{\frac", ""),
        ("dapo_math", "thus\nAnswer: $x = 5$", "5"),
        ("dapo_math", "no answer", "[INVALID]"),
    ],
)
def test_what_a_response_answers_is_told_for_majorities(rule: str, response: str, vote: str) -> None:
    scored = RuleScorer(rule).load().one
    assert scored is not None
    assert scored(Call("s", response, "4")).vote == vote


@pytest.mark.parametrize(
    ("response", "score"),
    [
        (r"<think>so</think>\boxed{7}", 1.0),
        (r"\boxed{7}", 0.9),
        (r"<think>so</think>\boxed{8}", 0.0),
        (r"\boxed{8}", -0.1),
        (r"</think>so<think>\boxed{7}", 0.9),
        (r"<think>a</think><think>b</think>\boxed{7}", 0.9),
        (r"<think>a</think>b</think>\boxed{7}", 0.9),
    ],
)
def test_a_box_without_thinking_costs_the_penalty_as_in_trinitys_math_boxed_workflow(
    response: str, score: float
) -> None:
    found = RULES["boxed"].function(Call("", response, "7"), think_penalty=0.1)
    assert isinstance(found, Outcome)
    assert found.score == pytest.approx(score)
    assert found.correct is (score > 0.5)


def test_the_format_that_trinity_rewards_can_be_another() -> None:
    pytest.importorskip("math_verify")
    found = [
        RULES["math"].function(Call("", said, "7"), method="trinity", pattern="^A").score for said in ("A: 7", "7")
    ]
    assert found == pytest.approx([1.1, 0.9])
    with pytest.raises(RunError, match="method trinity only"):
        RULES["math"].function(Call("", "7", "7"), method="verl", pattern="^A")
