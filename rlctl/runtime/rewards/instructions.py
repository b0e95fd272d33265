"""Instructions that code can check: the constraints of IFEval (Zhou et al., arXiv:2311.07911) as open-instruct names them.

The answer of a row is a mapping, or its JSON text, with ``func_name`` and the arguments of that constraint. What is compared and
how is ROLL's (ifeval_rule_reward_worker.py, from open-instruct's if_functions.py), its quirks included: they are said where they
are.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlctl.common.errors import MissingDependency
from rlctl.common.messages.reasons import said
from rlctl.runtime.rewards.choices import after_last_thinking, repeated_share
from rlctl.runtime.rewards.interface import Call, Outcome

RENAMED = {"N": "count"}
"""Arguments that have another name here."""


def ifeval(call: Call, *, repetition_penalty: float = 0.0) -> Outcome:
    """The response, without its thinking, keeps the row's constraint; ROLL takes 0.5 off for repetition.

    Args:
        call: the response.
        repetition_penalty: taken off by the share of three-word sequences that are repetitions.

    Raises:
        ValueError: the row names no known constraint.
        MissingDependency: the constraint needs a package.
    """
    constraint = json.loads(call.answer) if isinstance(call.answer, str) else call.answer
    name = constraint.get("func_name") if isinstance(constraint, Mapping) else None
    if name not in CONSTRAINTS:
        raise ValueError(
            said(
                "the answer of ifeval must have a func_name, one of {names}; got {answer!r}",
                names=", ".join(CONSTRAINTS),
                answer=call.answer,
            )
        )
    function = CONSTRAINTS[name]
    takes = inspect.signature(function).parameters
    named = {RENAMED.get(key, key): value for key, value in constraint.items()}
    given = {key: value for key, value in named.items() if key in takes and key != "text"}
    kept = bool(function(after_last_thinking(call.response), **given))
    return Outcome(kept - repetition_penalty * repeated_share(call.response), kept)


def _compares(count: int, wanted: int, quantifier: str, around: float) -> bool:
    return {
        "at least": count >= wanted,
        "at most": count <= wanted,
        "around": abs(count - wanted) <= around,
    }.get(quantifier, False)


def _keywords(text: str, keyword_list: Sequence[str]) -> bool:
    return all(word.lower() in text.lower() for word in keyword_list)


def _keyword_frequency(text: str, word: str, count: int) -> bool:
    """ROLL counts all words of the response, whatever ``word`` is."""
    return len(re.findall(r"\b\w+\b", text)) == count


def _forbidden_words(text: str, forbidden_words: Sequence[str]) -> bool:
    return not any(word.lower() in text.lower() for word in forbidden_words)


def _letter_frequency(text: str, letter: str, count: int) -> bool:
    if len(letter) != 1:
        raise ValueError(said("letter must be one character, got {letter!r}", letter=letter))
    return text.count(letter) == count


def _language(text: str, language: str) -> bool:
    try:
        from langdetect import detect  # type: ignore[import-not-found]
    except ImportError as error:
        raise MissingDependency(
            "the constraint validate_response_language needs langdetect", hint="pip install langdetect"
        ) from error
    return bool(detect(text) == language)


def _paragraph_count(text: str, count: int) -> bool:
    """Paragraphs between ``* * *``, none of them empty."""
    lines = "\n".join(line.strip() for line in text.splitlines()).strip()
    paragraphs = lines.split("* * *")
    return len(paragraphs) == count and all(paragraph.strip() for paragraph in paragraphs)


def _word_constraint(text: str, count: int, quantifier: str) -> bool:
    return _compares(len(text.split()), count, quantifier, max(round(count * 0.1), 1))


def _sentence_constraint(text: str, count: int, quantifier: str) -> bool:
    sentences = re.split(r"(?<!\w\.\w.)(?<![A-Z][a-z]\.)(?<=\.|\?)\s", text)
    return _compares(len(sentences), count, quantifier, 1)


def _paragraphs(text: str, count: int, first_word: str, i: int) -> bool:
    paragraphs = text.split("\n\n")
    return len(paragraphs) == count and paragraphs[i - 1].strip().startswith(first_word)


def _postscript(text: str, postscript_marker: str) -> bool:
    return postscript_marker in text and len(text[text.find(postscript_marker) :].strip()) > len(postscript_marker)


def _placeholders(text: str, count: int) -> bool:
    return len(re.findall(r"\[(.*?)\]", text)) >= count


def _bullet_points(text: str, count: int) -> bool:
    return sum(line.strip().startswith(("*", "-")) for line in text.split("\n")) == count


def _title(text: str) -> bool:
    return re.search(r"<<(.*?)>>", text) is not None


def _choice(text: str, options: Sequence[str]) -> bool:
    """The response stands in an option, not an option in the response."""
    return any(text in option for option in options)


def _highlighted_sections(text: str, count: int) -> bool:
    return len(re.findall(r"\*(.*?)\*", text)) >= count


def _sections(text: str, count: int, section_splitter: str) -> bool:
    sections = text.split(section_splitter)
    return len(sections[1:] if sections[0] == "" else sections) == count


def _json_format(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _repeat_prompt(text: str, original_prompt: str) -> bool:
    return text.startswith(original_prompt)


def _two_responses(text: str) -> bool:
    parts = [part.strip() for part in text.split("******")]
    return text.count("******") == 1 and parts[0] != parts[1]


def _uppercase(text: str) -> bool:
    return text == text.upper()


def _lowercase(text: str) -> bool:
    return text == text.lower()


def _capital_words(text: str, count: int, quantifier: str) -> bool:
    return _compares(len(re.findall(r"\b[A-Z]+\b", text)), count, quantifier, 0)


def _end(text: str, end_phrase: str) -> bool:
    return text.endswith(end_phrase)


def _quotation(text: str) -> bool:
    return text.startswith('"') and text.endswith('"')


def _no_commas(text: str) -> bool:
    return "," not in text


CONSTRAINTS: dict[str, Callable[..., Any]] = {
    "verify_keywords": _keywords,
    "verify_keyword_frequency": _keyword_frequency,
    "validate_forbidden_words": _forbidden_words,
    "verify_letter_frequency": _letter_frequency,
    "validate_response_language": _language,
    "verify_paragraph_count": _paragraph_count,
    "validate_word_constraint": _word_constraint,
    "verify_sentence_constraint": _sentence_constraint,
    "validate_paragraphs": _paragraphs,
    "verify_postscript": _postscript,
    "validate_placeholders": _placeholders,
    "verify_bullet_points": _bullet_points,
    "validate_title": _title,
    "validate_choice": _choice,
    "validate_highlighted_sections": _highlighted_sections,
    "validate_sections": _sections,
    "validate_json_format": _json_format,
    "validate_repeat_prompt": _repeat_prompt,
    "validate_two_responses": _two_responses,
    "validate_uppercase": _uppercase,
    "validate_lowercase": _lowercase,
    "validate_frequency_capital_words": _capital_words,
    "validate_end": _end,
    "validate_quotation": _quotation,
    "validate_no_commas": _no_commas,
}
