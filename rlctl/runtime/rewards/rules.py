"""The built-in rules: is the answer in the response right?

A rule is a function of a ``Call`` and the rule's own arguments. It returns whether the response is right, or a number
where there is more to say than right and wrong, or an ``Outcome`` where there are several. ``RULES`` lists them; ``AUTO`` is
what verl's ``default_compute_score`` (verl/utils/reward_score/__init__.py, 0.9) does for each data source.
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, Overflow

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.rewards import boxed as latex
from rlctl.runtime.rewards import dapo
from rlctl.runtime.rewards.choices import multiple_choice, search_qa
from rlctl.runtime.rewards.instructions import ifeval
from rlctl.runtime.rewards.interface import Call, Outcome
from rlctl.runtime.rewards.maths import math

GSM8K_WINDOW = 300
"""Characters from the end in which verl looks for the answer."""
THINK_FORMAT = r"<think>.*?</think>\s*<answer>.*?</answer>"
"""DeepSeek-R1's format (arXiv:2501.12948, table 1)."""
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?|\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class RewardRule:
    """One line of the table."""

    function: Callable[..., bool | float | Outcome]
    slow: bool = False
    """It may take long or hang on some response, so it runs in a child process with a time limit."""
    needs: tuple[str, str] | None = None
    """A module that must be there, and the package that brings it."""
    says: Callable[[str], str | None] | None = None
    """What a response answers, in the spelling that the rule compares: evaluation counts majorities of it."""


def exact_match(call: Call, *, ignore_case: bool = False) -> bool:
    """The response is the answer, whitespace around both aside."""
    response, answer = call.response.strip(), str(call.answer).strip()
    return response.casefold() == answer.casefold() if ignore_case else response == answer


def number(call: Call, *, tolerance: float = 0.0) -> bool:
    """The last number of the response equals the last number of the answer, up to ``tolerance``; 1,000 is 1000.0."""
    found, wanted = last_number(call.response), last_number(str(call.answer))
    if wanted is None:
        raise ValueError(said("expected a number in the answer, found: {answer!r}", answer=call.answer))
    try:
        return found is not None and abs(found - wanted) <= Decimal(str(tolerance))
    except Overflow:  # 9e9999999 is a number and not the answer
        return False


def last_number(text: str) -> Decimal | None:
    """Return the last number in a text; a minus sign counts where no word or number stands before it."""
    for found in reversed(_NUMBER.findall(text)):
        try:
            return Decimal(found.replace(",", ""))
        except InvalidOperation:
            continue
    return None


def gsm8k(call: Call, *, method: str = "strict", format_score: float = 0.0) -> bool | float:
    """The number after the last ``####`` is the answer, as text; ``flexible`` takes the last number anywhere.

    ``format_score`` is given for a number that is not the answer.

    Source: verl/utils/reward_score/gsm8k.py (the last 300 characters; commas left out; compared as text).
    """
    tail = call.response[-GSM8K_WINDOW:]
    if method == "strict":
        found = [text.replace(",", "") for text in re.findall(r"#### (-?[0-9.,]+)", tail)]
    elif method == "flexible":
        numbers = re.findall(r"-?[0-9.,]+", tail)
        found = [text for text in numbers if text != "."] or numbers[:1]
    else:
        raise RunError(said("rule gsm8k has no method {method!r}; its methods are strict and flexible", method=method))
    if not found:
        return False
    return True if found[-1] == str(call.answer) else format_score or False


def _number_says(response: str) -> str | None:
    found = last_number(response)
    return None if found is None else str(found)


def _gsm8k_says(response: str) -> str | None:
    tail = response[-GSM8K_WINDOW:]
    found = re.findall(r"#### (-?[0-9.,]+)", tail) or [text for text in re.findall(r"-?[0-9.,]+", tail) if text != "."]
    return found[-1].replace(",", "") if found else None


def boxed(call: Call, *, think_penalty: float = 0.0) -> bool | Outcome:
    r"""The last ``\boxed{...}`` is the answer, in one of the spellings that MATH takes for equal; see ``boxed.py``.

    Args:
        call: the response.
        think_penalty: taken off a response that does not hold ``<think>`` and ``</think>`` once each, in this order.

    Source of the penalty: trinity/common/rewards/math_reward.py (MathBoxedRewardFn with ``with_think``).
    """
    found = latex.last_boxed(call.response)
    right = found is not None and latex.equal_latex(found, str(call.answer))
    if not think_penalty:
        return right
    before, opened, after = call.response.partition("<think>")
    thinks = bool(opened) and "</think>" not in before and after.count("</think>") == 1 and "<think>" not in after
    form = 0.0 if thinks else -think_penalty
    return Outcome(right + form, right, {"accuracy": float(right), "format_score": form})


def _boxed_says(response: str) -> str | None:
    found = latex.last_boxed(response)
    try:
        return None if found is None else latex.normalize(found)
    except ValueError:  # cut off in the middle of a command: no other spells it so
        return found


def dapo_math(call: Call) -> bool:
    """The text after ``Answer:`` is the answer after Minerva's normalization; see ``dapo.py``."""
    return dapo.is_right(call.response, str(call.answer))


def geo3k(call: Call, *, format_score: float = 0.1) -> Outcome:
    r"""The last ``\boxed{}`` is the answer, as mathruler decides; ``format_score`` of the score is for thinking before a box.

    Source: verl/utils/reward_score/geo3k.py.
    """
    from mathruler.grader import extract_boxed_content, grade_answer  # type: ignore[import-not-found]

    right = bool(grade_answer(extract_boxed_content(call.response), str(call.answer)))
    formatted = re.fullmatch(r"<think>.*</think>.*\\boxed\{.*\}.*", call.response, re.DOTALL) is not None
    return Outcome((1 - format_score) * right + format_score * formatted, right, {"format": float(formatted)})


def format_(call: Call, *, pattern: str = THINK_FORMAT, whole: bool = True) -> bool:
    """The whole response, whitespace around it aside, matches a regular expression.

    Args:
        call: the response.
        pattern: the regular expression; its dot stands for any character.
        whole: false lets the response go on behind a line that ends the match, as Trinity's and ROLL's format rewards do.
    """
    if whole:
        return re.fullmatch(pattern, call.response.strip(), re.DOTALL) is not None
    return re.match(pattern, call.response, re.DOTALL | re.MULTILINE) is not None


def length(call: Call, *, max_tokens: int, min_tokens: int = 0) -> bool:
    """The response has between ``min_tokens`` and ``max_tokens`` tokens; one that was cut never does."""
    return not call.truncated and min_tokens <= call.tokens <= max_tokens


def countdown(call: Call, *, format_score: float = 0.1) -> bool | float:
    """The equation in the last ``<answer>`` of the last line gives ``answer["target"]``, with each of ``answer["numbers"]``.

    ``format_score`` is given for an equation that does not.

    Source: TinyZero's countdown task (verl/utils/reward_score/countdown.py in it).
    """
    answer = json.loads(call.answer) if isinstance(call.answer, str) else call.answer
    if not isinstance(answer, Mapping) or not {"target", "numbers"} <= answer.keys():
        raise ValueError(said("the answer of countdown must have target and numbers, got {answer!r}", answer=answer))
    equations = re.findall(r"<answer>(.*?)</answer>", call.response.split("\n")[-1])
    if not equations:
        return False
    try:
        used = sorted(int(text) for text in re.findall(r"\d+", equations[-1]))
    except ValueError:  # more digits than Python reads
        return format_score
    if used != sorted(int(value) for value in answer["numbers"]):
        return format_score
    value = arithmetic(equations[-1].strip())
    return True if value is not None and abs(value - answer["target"]) < 1e-5 else format_score


_OPERATIONS: dict[type, Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def arithmetic(text: str) -> float | None:
    """Return the value of an expression of numbers, ``+ - * / //`` and parentheses; None where it is no such thing."""

    def value(node: ast.AST) -> float:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            return _OPERATIONS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATIONS:
            return _OPERATIONS[type(node.op)](value(node.operand))
        raise ValueError("not arithmetic")

    try:
        return value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
        return None


RULES: dict[str, RewardRule] = {
    "exact_match": RewardRule(exact_match, says=str.strip),
    "number": RewardRule(number, says=_number_says),
    "gsm8k": RewardRule(gsm8k, says=_gsm8k_says),
    "boxed": RewardRule(boxed, says=_boxed_says),
    "math": RewardRule(math, slow=True, needs=("math_verify", "math-verify")),
    "geo3k": RewardRule(geo3k, slow=True, needs=("mathruler", "mathruler")),
    "multiple_choice": RewardRule(multiple_choice),
    "search_qa": RewardRule(search_qa),
    "ifeval": RewardRule(ifeval, slow=True),
    "dapo_math": RewardRule(dapo_math, says=dapo.said),
    "format": RewardRule(format_, slow=True),
    "length": RewardRule(length),
    "countdown": RewardRule(countdown),
}


@dataclass(frozen=True, slots=True)
class Auto:
    """What verl's default does for a data source."""

    rule: str
    right: float = 1.0
    wrong: float = 0.0


AUTO: dict[str, Auto] = {
    "openai/gsm8k": Auto("gsm8k"),
    "lighteval/MATH": Auto("boxed"),
    "DigitalLearningGmbH/MATH-lighteval": Auto("boxed"),
    "HuggingFaceH4/MATH-500": Auto("boxed"),
    "math_dapo": Auto("dapo_math", wrong=-1.0),
    "math": Auto("dapo_math", wrong=-1.0),
    "math_dapo_reasoning": Auto("dapo_math", wrong=-1.0),
}
_SEARCH = "nq triviaqa popqa hotpotqa 2wikimultihopqa musique bamboogle"
AUTO |= {"hiyouga/geometry3k": Auto("geo3k"), **{f"searchR1_{name}": Auto("search_qa") for name in _SEARCH.split()}}
_PRIME_MATH = (
    "numina_aops_forum numina_synthetic_math numina_amc_aime numina_synthetic_amc numina_cn_k12 numina_olympiads"
)
_VERLS_OWN = (
    "verl compares them with its prime_math grader: install verl and use a reward of type function with path "
    "pkg://verl.utils.reward_score and function default_compute_score, or set rule to math"
)
NO_RULE: dict[str, str] = {
    **dict.fromkeys(_PRIME_MATH.split(), _VERLS_OWN),
    **dict.fromkeys(
        ("codecontests", "apps", "codeforces", "taco"), "verl runs their code; use a reward of type sandbox"
    ),
}
"""Data sources that verl's default knows and no built-in rule scores the same way: what to do instead."""


def auto_rule(source: str) -> Auto:
    """Return what verl's default does for a data source.

    Raises:
        RunError: it knows none, or none that is built in.
    """
    if source.startswith("aime"):
        return Auto("dapo_math", wrong=-1.0)
    if source in AUTO:
        return AUTO[source]
    known = said("built-in rules: {names}, and sources whose names start with aime", names=", ".join(AUTO))
    raise RunError(
        said("rule auto has no rule for the data source {source!r}; {known}", source=source, known=known),
        hint=NO_RULE.get(
            source,
            said("set the reward's rule to one of {names}, or use a reward of type function", names=", ".join(RULES)),
        ),
    )
