"""The same responses through the frameworks' own reward functions and through ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from rlctl.config.sections.rewards import RuleReward, SandboxReward
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.types import Prompt
from rlctl.runtime.workers.reward import RewardItem, RewardWorker
from tests.runtime.rewards.servers import run_code, serve
from tests.upstream.frameworks import framework, of_roll

pytestmark = pytest.mark.upstream


def ours(rule: str, pairs: Sequence[tuple[str, Any]], source: str = "s", **settings: Any) -> list[Score]:
    items = [RewardItem(Prompt(i, source, (1,), "", answer), text, 5) for i, (text, answer) in enumerate(pairs)]
    with RewardWorker([RuleReward(rule=rule, **settings)]) as worker:  # type: ignore[arg-type]
        return worker.score(items)


def theirs(environment: str, module: str, function: str, **ask: Any) -> Any:
    found = framework(environment, "drive_rewards.py").ask(module=module, function=function, **ask)
    assert "value" in found, found
    return found["value"]


def verl(source: str, response: str, answer: Any) -> float:
    found = theirs(
        "verl-0.9.1",
        "verl.utils.reward_score",
        "default_compute_score",
        arguments={"data_source": source, "solution_str": response, "ground_truth": answer},
    )
    return float(found["score"] if isinstance(found, dict) else found)


NUMBERS = [
    ("so #### 42", "42"),
    ("#### 1,234", "1234"),
    ("#### 41 then #### 42", "42"),
    ("the answer is 42", "42"),
    (r"\boxed{\frac12}", r"\frac{1}{2}"),
    (r"\boxed{0.25}", r"\frac{1}{4}"),
    (r"Answer: \frac12", r"\frac{1}{2}"),
    ("Answer: 12 dollars", "12"),
    (r"Answer: 1 so \boxed{34}", "34"),
    (r"so \boxed{34}", "34"),
]
SOURCES = ["openai/gsm8k", "lighteval/MATH", "HuggingFaceH4/MATH-500", "math_dapo", "math", "aime2024"]


@pytest.mark.parametrize("source", SOURCES)
def test_verls_default_by_data_source(source: str) -> None:
    expected = [verl(source, response, answer) for response, answer in NUMBERS]
    assert [one.total for one in ours("auto", NUMBERS, source)] == expected
    assert len(set(expected)) == 2


SEARCH = [
    ("<answer> The Beatles </answer>", {"target": ["beatles", "x"]}),
    ("<answer>Beatles!</answer>", {"target": "the beatles"}),
    ("<answer>a</answer><answer>\nyes\n</answer>", {"target": ["yes"]}),
    ("<answer>b</answer>" * 11, {"target": ["b"]}),
    ("Beatles", {"target": ["Beatles"]}),
    ("<answer>Rolling Stones</answer>", {"target": ["beatles"]}),
]


def test_verls_search_answers() -> None:
    expected = [verl("searchR1_nq", response, answer) for response, answer in SEARCH]
    assert [one.total for one in ours("auto", SEARCH, "searchR1_nq")] == expected
    assert set(expected) == {0.0, 0.25, 1.0}


MATHS = [
    (r"<think>x</think> <answer>\frac{1}{2}</answer>", "0.5"),
    (r"<think>x</think> <answer>$\frac{1}{2}$</answer>", "1/2"),
    ("<answer>7</answer>", "7"),
    ("<answer>7</answer> no", "8"),
    (r"so \boxed{x^2+1}", "$1+x^2$"),
    ("it is 12", "12"),
    ("it is 13", "12"),
    ("", "12"),
]


def test_verls_math_verify() -> None:
    module = "verl.utils.reward_score.math_verify"
    expected = [
        theirs(
            "verl-0.9.1",
            module,
            "_verify_in_subprocess",
            arguments={"ground_truth_boxed": f"\\boxed{{{a}}}", "model_output": r},
        )
        for r, a in MATHS
    ]
    assert [one.total for one in ours("math", MATHS)] == expected
    assert set(expected) == {0.0, 1.0}


def trinity(name: str, response: str, truth: Any, **made_with: Any) -> float:
    module, function = name.rsplit(".", 1)
    arguments = {"response": response, **({} if truth is None else {"truth": truth})}
    found = theirs(
        "trinity-0.6.0", f"trinity.common.rewards.{module}", function, made_with=made_with, arguments=arguments
    )
    return float(sum(found.values()))


@pytest.mark.parametrize(("method", "name"), [("trinity", "MathRewardFn"), ("open_r1", "AccuracyReward")])
def test_trinitys_maths(method: str, name: str) -> None:
    module = "math_reward" if name == "MathRewardFn" else "accuracy_reward"
    expected = [trinity(f"{module}.{name}", response, answer) for response, answer in MATHS]
    assert [one.total for one in ours("math", MATHS, args={"method": method})] == pytest.approx(expected)
    assert len(set(expected)) > 1


def test_trinitys_format() -> None:
    texts = [
        "<think>\na\n</think>\n<answer>\nb\n</answer>",
        "<think>\na\n</think>\n<answer>\nb\n</answer>\nmore",
        "<think>a</think><answer>b</answer>",
        " <think>\na\n</think>\n<answer>\nb\n</answer>",
        "",
    ]
    pattern = r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$"
    expected = [trinity("format_reward.FormatReward", text, None) for text in texts]
    found = ours(
        "format",
        [(text, "") for text in texts],
        args={"pattern": pattern, "whole": False},
        score_right=0.1,
        score_wrong=-0.1,
    )
    assert [one.total for one in found] == expected
    assert set(expected) == {0.1, -0.1}


def test_trinitys_countdown() -> None:
    truth = json.dumps({"target": 24, "numbers": [4, 6, 1]})
    texts = [
        "<answer>4 * 6 * 1</answer>",
        "think\n<answer>4 * (6 / 1)</answer>",
        "<answer>4 * 6 * 1</answer>\nDone",
        "<answer>4 + 6 + 1</answer>",
        "<answer>4 * 6</answer>",
        "<answer>6 // 1 * 4</answer>",
        "<answer>(4 * 6</answer> 1",
        "24",
    ]
    expected = [trinity("countdown_reward.CountDownRewardFn", text, truth) for text in texts]
    assert [one.total for one in ours("countdown", [(text, truth) for text in texts])] == expected
    assert set(expected) == {0.0, 0.1, 1.0}


CASES = {"inputs": ["1\n", "2\n", "x\n"], "outputs": ["2\n", "4", "8\n"]}
PROGRAMS: list[tuple[str, Any]] = [
    ("```python\nprint(2 * int(input()))\n```", CASES),
    ("```\nprint(int(input()) + 1)\n```", json.dumps(CASES)),
    ("print(2)", CASES),
    (
        "```python\ndef add(a, b): return a + b\n```",
        {"fn_name": "add", "inputs": ["1\n2", "[1]\n[2]"], "outputs": ["3", "[1, 2]"]},
    ),
    (
        "```python\nclass Solution:\n    def f(self, n): return sqrt(n) == 3\n```",
        {"fn_name": "f", "inputs": ["9", "4"], "outputs": ["true", "false"]},
    ),
    ("```python\ndef f(x): return x\n```", {"assert_case": ["assert f(1) == 1", "assert f(1) == 2"]}),
]


def test_verls_code_in_a_sandbox() -> None:
    with serve(run_code) as served:
        url = f"{served.url}/run_code"
        expected = [
            theirs(
                "verl-0.9.1",
                "verl.utils.reward_score",
                "default_compute_score",
                arguments={
                    "data_source": "apps",
                    "solution_str": response,
                    "ground_truth": cases,
                    "sandbox_fusion_url": url,
                    "memory_limit_mb": 512,
                },
            )
            for response, cases in PROGRAMS
        ]
        items = [RewardItem(Prompt(i, "apps", (1,), "", cases), text, 5) for i, (text, cases) in enumerate(PROGRAMS)]
        with RewardWorker([SandboxReward(url=url, memory_limit_mib=512, partial_credit=True)]) as worker:
            found = worker.score(items)
    assert [one.error for one in found] == [None] * len(found)
    assert [one.total for one in found] == pytest.approx(expected)
    assert expected == pytest.approx([2 / 3, 1 / 3, 0.0, 1.0, 1.0, 0.5])


ROLL = "roll.pipeline.rlvr.rewards"


def roll(module: str, function: str, **arguments: Any) -> Any:
    found = of_roll("drive_roll_rewards.py").ask(module=f"{ROLL}.{module}", function=function, arguments=arguments)
    assert "value" in found, found
    return found["value"]


ROLL_MATHS = [
    (r"<think>so</think>\boxed{\frac{1}{2}}", "0.5"),
    (r"<think>so</think>The answer is $7$.", "7"),
    (r"no thinking \boxed{7}", "7"),
    (r"first" + "\n\n" + r"then \boxed{7}", "7"),
    (r"<think>a</think>b</think>\boxed{7}", "7"),
    (r"well <think>a</think>\boxed{7}", "7"),
    (r"<think>a</think>\boxed{7", "7"),
    (r"<think>a</think>\boxed{\text{x}}", "7"),
    (r"<think>a</think>\boxed{8}", "7"),
]


def test_rolls_maths() -> None:
    expected = []
    for response, answer in ROLL_MATHS:
        right, _, _ = roll(
            "math_rule_reward_worker", "hf_verify_math_sample", answer_a=response, answer_b=f"${answer}$", prompt="p"
        )
        expected.append(float(right))
    assert [one.total for one in ours("math", ROLL_MATHS, args={"method": "roll"})] == expected
    assert len(set(expected)) == 2


CHOICES = [
    (r"<think>A</think>\boxed{B}", "B"),
    (r"the answer is (B)", "B"),
    (r"the answer is C", "B"),
    (r"\boxed{the C}", "B. x"),
    ("so so so so so so B", "B"),
    ("nothing", "B"),
]


@pytest.mark.parametrize("scores", ["loose", "soft", "strict"])
def test_rolls_crossthinkqa(scores: str) -> None:
    module = "crossthinkqa_rule_reward_worker"
    expected = []
    for response, answer in CHOICES:
        said = roll(module, "extract_after_last_think", input_string=response)
        found = roll(module, "crossthinkqa_reward_fn", response=said, ground_truth=answer, reward_type=scores)
        expected.append(found[1])
    assert [one.total for one in ours("multiple_choice", CHOICES, args={"scores": scores})] == expected
    found = ours("multiple_choice", CHOICES[4:5], args={"scores": scores, "repetition_penalty": 0.5})
    assert found[0].total == pytest.approx(expected[4] - 0.5 * 3 / 5)


def test_rolls_multiple_choice() -> None:
    module = "multiple_choice_boxed_rule_reward_worker"
    expected = []
    for response, answer in CHOICES:
        said = roll(module, "extract_after_last_think", input_string=response)
        expected.append(roll(module, "multiple_choice_boxed_reward_fn", response=said, ground_truth=answer)[1])
    assert [one.total for one in ours("multiple_choice", CHOICES)] == expected


TEXT = 'Dear [name], my FRIEND. This is *it*: <<a poem>>.\n\n* one\n- two\n\nP.S. buy milk "now"'
CONSTRAINTS: list[dict[str, Any]] = [
    {"func_name": "verify_keywords", "keyword_list": ["friend", "POEM"]},
    {"func_name": "verify_keywords", "keyword_list": ["foe"]},
    {"func_name": "verify_keyword_frequency", "word": "a", "N": 16},
    {"func_name": "validate_forbidden_words", "forbidden_words": ["Milk"]},
    {"func_name": "verify_letter_frequency", "letter": "a", "N": 2},
    {"func_name": "verify_paragraph_count", "N": 1},
    {"func_name": "validate_word_constraint", "N": 18, "quantifier": "around"},
    {"func_name": "validate_word_constraint", "N": 30, "quantifier": "at least"},
    {"func_name": "verify_sentence_constraint", "N": 3, "quantifier": "at most"},
    {"func_name": "validate_paragraphs", "N": 3, "first_word": "P.S.", "i": 3},
    {"func_name": "verify_postscript", "postscript_marker": "P.S."},
    {"func_name": "validate_placeholders", "N": 1},
    {"func_name": "verify_bullet_points", "N": 2},
    {"func_name": "validate_title"},
    {"func_name": "validate_choice", "options": ["yes", "no"]},
    {"func_name": "validate_highlighted_sections", "N": 1},
    {"func_name": "validate_sections", "N": 2, "section_splitter": "P.S."},
    {"func_name": "validate_json_format"},
    {"func_name": "validate_repeat_prompt", "original_prompt": "Dear"},
    {"func_name": "validate_two_responses"},
    {"func_name": "validate_uppercase"},
    {"func_name": "validate_lowercase"},
    {"func_name": "validate_frequency_capital_words", "N": 2, "quantifier": "at most"},
    {"func_name": "validate_end", "end_phrase": '"now"'},
    {"func_name": "validate_quotation"},
    {"func_name": "validate_no_commas"},
]


def test_rolls_instructions() -> None:
    texts = [TEXT, TEXT.lower(), "[1]\n\n[2]\n\n[3]", '{"a": 1}', "A. B. C.", "x******y", "yes", "* * *"]
    right = 0
    for text in texts:
        expected = [
            bool(
                roll(
                    "ifeval_rule_reward_worker",
                    one["func_name"],
                    text=text,
                    **{k: v for k, v in one.items() if k != "func_name"},
                )
            )
            for one in CONSTRAINTS
        ]
        pairs: list[tuple[str, Any]] = [(text, json.dumps(one)) for one in CONSTRAINTS]
        assert [one.correct for one in ours("ifeval", pairs)] == expected, text
        right += sum(expected)
    assert 40 < right < len(texts) * len(CONSTRAINTS) - 40
