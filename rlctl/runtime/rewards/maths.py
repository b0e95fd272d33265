r"""How the three frameworks decide with math-verify whether a response's answer is right.

    method    what is read in the response                              what is read in the answer
    verl      any expression or formula                                 ``\boxed{answer}``
    roll      the last box after the thinking, else the first formula   ``$answer$``
              there; thinking ends at ``</think>``, else at the last
              empty line; without either, nothing
    trinity   what stands in ``<answer>``, else anywhere; 0.1 more or   the answer
              less for the format ``<think>`` and ``<answer>``
    open_r1   the first formula, boxed ones first                       the first formula, else the text itself

Sources: verl/utils/reward_score/math_verify.py; ROLL's math_rule_reward_worker.py; Trinity's MathRewardFn and AccuracyReward, the
latter from open-r1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.rewards.interface import Call, Outcome

THINK, END_OF_THINKING = "<think>", "</think>"
TRINITY_FORMAT = r".*?<think>.*?</think>\s*<answer>.*?</answer>\s*$"
TRINITY_FORMAT_SCORE = 0.1


def by_verl(call: Call) -> bool:
    """See the table above."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify  # type: ignore[import-untyped]

    wanted = parse(f"\\boxed{{{call.answer}}}", (LatexExtractionConfig(),))
    found = parse(call.response, (ExprExtractionConfig(), LatexExtractionConfig()))
    return any(verify(gold, guess) for gold in wanted for guess in found)


def by_roll(call: Call) -> bool:
    """See the table above."""
    from math_verify import parse, verify

    said = after_thinking(call.response, call.prompt)
    boxed = _last_box(said)
    found = parse(said if boxed is None else f"${boxed}$", fallback_mode="no_fallback")
    wanted = parse(f"${call.answer}$")
    return bool(found and wanted and verify(wanted[0], found[0]))


def after_thinking(response: str, prompt: str = "") -> str:
    """What ROLL takes for the answer: what follows the thinking, nothing where the thinking is badly marked."""
    opened = prompt.rstrip("\n").endswith(THINK)
    twice = response.count(END_OF_THINKING) > 1
    misplaced = THINK in response and (opened or not response.startswith(THINK))
    if twice or misplaced:
        return ""
    for mark in (END_OF_THINKING, "\n\n"):
        _, found, after = response.rpartition(mark)
        if found:
            return after.strip()
    return ""


def _last_box(text: str) -> str | None:
    r"""What the last ``\boxed{`` holds, braces balanced; braces in double quotes do not count. None where it is not closed."""
    opening = next((mark for mark in ("\\boxed\\{", "\\boxed{") if mark in text), None)
    if opening is None:
        return None
    start = text.rfind(opening) + len(opening)
    depth, quoted = 0, False
    for position in range(start, len(text)):
        character = text[position]
        if character == '"':
            quoted = not quoted
        elif character == "}" and not quoted:
            if depth == 0:
                return text[start:position]
            depth -= 1
        elif character == "{" and not quoted:
            depth += 1
    return None


def by_trinity(call: Call, pattern: str = TRINITY_FORMAT) -> Outcome:
    """See the table above; ``pattern`` is the format."""
    from math_verify import parse, verify

    def read(text: str) -> Any:
        found = re.search(r"<answer>(.*?)</answer>", text)
        return parse(found[1] if found else text)

    right = bool(verify(read(call.response), read(str(call.answer))))
    formatted = re.match(pattern, call.response, re.DOTALL | re.MULTILINE) is not None
    form = TRINITY_FORMAT_SCORE if formatted else -TRINITY_FORMAT_SCORE
    return Outcome(right + form, right, {"accuracy": float(right), "format_score": form})


def by_open_r1(call: Call) -> bool:
    """See the table above."""
    from latex2sympy2_extended import NormalizationConfig  # type: ignore[import-untyped]
    from math_verify import LatexExtractionConfig, parse, verify

    wanted = parse(str(call.answer), [LatexExtractionConfig()], extraction_mode="first_match") or str(call.answer)
    reading = LatexExtractionConfig(
        normalization_config=NormalizationConfig(
            nits=False, malformed_operators=False, basic_latex=True, equations=True, boxed="all", units=True
        ),
        boxed_match_priority=0,
        try_extract_without_anchor=False,
    )
    return bool(verify(parse(call.response, [reading], extraction_mode="first_match"), wanted))


METHODS: dict[str, Callable[[Call], bool | Outcome]] = {
    "verl": by_verl,
    "roll": by_roll,
    "trinity": by_trinity,
    "open_r1": by_open_r1,
}


def math(call: Call, *, method: str = "verl", pattern: str | None = None) -> bool | Outcome:
    """The response's answer equals the answer mathematically, as math-verify decides.

    Args:
        call: the response.
        method: whose way of reading answers; see the table above.
        pattern: the format that method trinity rewards, as a regular expression; None is Trinity's own.

    Raises:
        RunError: there is no such method, or it takes no pattern.
    """
    if pattern is not None:
        if method != "trinity":
            raise RunError(said("rule math takes a pattern with method trinity only, not with {method}", method=method))
        return by_trinity(call, pattern)
    if method not in METHODS:
        raise RunError(
            said("rule math has no method {method!r}; its methods are {names}", method=method, names=", ".join(METHODS))
        )
    return METHODS[method](call)
