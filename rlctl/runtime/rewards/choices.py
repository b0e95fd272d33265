"""Rules on answers that are chosen or short: multiple choice, and questions whose answer is one of a few texts."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from typing import Literal

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.rewards.interface import Call, Outcome

MOST_ANSWER_TAGS = 10
"""More ``<answer>`` or ``</answer>`` than this are taken for a trick: a right answer counts a quarter."""
SCORES: Mapping[str, Mapping[tuple[bool, bool], float]] = {
    "boxed": {(True, True): 1.0, (True, False): 0.0, (False, True): 0.0, (False, False): 0.0},
    "loose": {(True, True): 1.0, (True, False): 1.0, (False, True): -1.0, (False, False): -1.0},
    "soft": {(True, True): 1.0, (True, False): 0.5, (False, True): -0.5, (False, False): -1.0},
    "strict": {(True, True): 1.0, (True, False): -1.0, (False, True): -1.0, (False, False): -1.0},
}
"""Score by (letter right, answer in a box)."""
NGRAM = 3
SHORT, LONG = 100, 400
"""Tokens between which a response is scored by its length: -0.5 at ``SHORT`` and below, 0 at ``LONG``."""


def multiple_choice(
    call: Call,
    *,
    scores: Literal["boxed", "loose", "soft", "strict"] = "boxed",
    repetition_penalty: float = 0.0,
    length_weight: float = 0.0,
) -> Outcome:
    r"""The first capital letter of the last ``\boxed{}``, else of what follows ``answer is``, is that of the answer.

    Args:
        call: the response; what stands before ``</think>`` is left out.
        scores: how much right, wrong, boxed and not boxed count; ``boxed`` gives 1 only where the letter is right and boxed.
        repetition_penalty: taken off by the share of three-word sequences that are repetitions.
        length_weight: times a score from -0.5 to 0 by the response's length between 100 and 400 tokens.

    Sources: ROLL's multiple_choice_boxed_rule_reward_worker.py (``boxed``) and crossthinkqa_rule_reward_worker.py, which takes
    0.5 for repetition and measures the length with its padding.
    """
    if scores not in SCORES:
        raise RunError(
            said(
                "rule multiple_choice has no scores {scores!r}; there are {names}",
                scores=scores,
                names=", ".join(SCORES),
            )
        )
    stripped = after_last_thinking(call.response)
    boxes = re.findall(r"\\boxed\{([^}]+)\}", stripped)
    stated = (
        stripped[stripped.lower().rfind("answer is") + len("answer is") :]
        if "answer is" in stripped.lower()
        else stripped
    )
    letter = next((character for character in (boxes[-1] if boxes else stated) if character.isupper()), None)
    right = letter == str(call.answer)[:1]
    base = SCORES[scores][right, bool(boxes)]
    repetition = -repetition_penalty * repeated_share(call.response)
    length = length_weight * _length_score(call.tokens)
    return Outcome(base + repetition + length, base > 0, {"boxed": float(bool(boxes)), "letter": float(right)})


def after_last_thinking(response: str) -> str:
    """What follows the last ``</think>``, all where there is none."""
    _, found, after = response.rpartition("</think>")
    return after.lstrip("\n") if found else response


def repeated_share(text: str) -> float:
    """The share of a text's three-word sequences that stand in it before (Yeo et al., arXiv:2502.03373)."""
    words = text.lower().split()
    sequences = list(zip(*(words[start:] for start in range(NGRAM)), strict=False))
    return 1 - len(set(sequences)) / len(sequences) if sequences else 0.0


def _length_score(tokens: int) -> float:
    if tokens < SHORT:
        return -0.5
    return 0.0 if tokens > LONG else -0.5 * (LONG - tokens) / (LONG - SHORT)


def search_qa(call: Call, *, format_score: float = 0.0, part: bool = False) -> bool | float:
    """The last ``<answer>`` is one of ``answer["target"]``, articles, punctuation and case aside.

    Args:
        call: the response; the answer is a mapping with ``target``, a text or several.
        format_score: for an ``<answer>`` that is none of them.
        part: a target that stands in the answer is enough.

    Source: verl/utils/reward_score/search_r1_like_qa_em.py, from Search-R1.
    """
    if not isinstance(call.answer, Mapping) or "target" not in call.answer:
        raise ValueError(said("the answer of search_qa must have a target, got {answer!r}", answer=call.answer))
    target = call.answer["target"]
    targets = [plain(str(one)) for one in ([target] if isinstance(target, str) else target)]
    answers = re.findall(r"<answer>(.*?)</answer>", call.response, re.DOTALL)
    if not answers:
        return False
    found = plain(answers[-1].strip())
    if not any(one in found if part else one == found for one in targets):
        return format_score or False
    tags = max(call.response.count("<answer>"), call.response.count("</answer>"))
    return 0.25 if tags > MOST_ANSWER_TAGS and not part else True


def plain(text: str) -> str:
    """A text in small letters, without punctuation and articles (SQuAD's normalization)."""
    letters = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", letters).split())
