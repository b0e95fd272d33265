"""A language model as judge: what it is asked, how its answer is read, and asking it over an OpenAI-compatible endpoint.

    scoring   what the judge is asked for                       score
    number    ``Score: N``, N from 0 to 10                      N / 10
    yes_no    whether the response agrees with the answer       1 for yes, 0 for no
    rubric    ``{"rating": N}``, N from 1 to 10, by the row's   N / 10
              ``rubric`` (``extra_info["rubric"]``)
    ruler     the responses of a prompt compared, a list of     each of them, cut to 0 and 1
              numbers from 0 to 1

number and yes_no are those of ROLL's LLMJudgeRewardWorker; rubric is Trinity's RubricJudgeWorkflow (Gunjal et al.,
arXiv:2507.17746), ruler its MathRULERWorkflow (OpenPipe's RULER). An answer that holds no score is a failure, where ROLL says 0
or 0.5, and Trinity 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rlctl.common.messages.reasons import said
from rlctl.common.numbers import is_number
from rlctl.runtime.auxiliary import Auxiliary
from rlctl.runtime.rewards.interface import Call, Outcome
from rlctl.runtime.rewards.service import Service, ServiceError, one_by_one
from rlctl.runtime.seeds import derive_seed

Scoring = Literal["number", "yes_no", "rubric", "ruler"]
PLACEHOLDERS = re.compile(r"\{(prompt|question|response|answer|reference|rubric|responses)\}")
"""``question`` and ``reference`` are ROLL's names of ``prompt`` and ``answer``."""
NO_RUBRIC = "Rubrics are not provided."

NUMBER = """Judge how good a response to a prompt is.

Prompt:
{prompt}

Response:
{response}

Reference answer:
{answer}

Consider whether the response is correct, complete, clear and to the point. Give one number from 0 (worst) to 10 (best).
End with a line of this form:
Score: <number>"""
YES_NO = """Does the final answer of a response agree with the reference answer?

Question:
{prompt}

Response:
{response}

Reference answer:
{answer}

If the response is unclear or unfinished, it does not agree. Say YES or NO, and nothing else."""
RUBRIC = """Rate a response to a prompt from 1 to 10 by how well it satisfies the rubrics, all together.

<prompt>
{prompt}
</prompt>
<response>
{response}
</response>
<rubrics>
{rubric}
</rubrics>

Answer with a JSON object of one key and nothing else, such as:
```json
{"rating": 7}
```"""
RULER = """Below are a question and several candidate responses to it.

Question:
{prompt}

{responses}

Compare them, and give each a number from 0 to 1 for how well it answers the question. You may reason briefly first.
End with the list of numbers, in the order of the responses: [number of response 1, number of response 2, ...]"""
TEMPLATES: dict[Scoring, str] = {"number": NUMBER, "yes_no": YES_NO, "rubric": RUBRIC, "ruler": RULER}


@dataclass(frozen=True, slots=True)
class Judge:
    """A judge at an endpoint."""

    url: str
    """Base address, ``.../v1``."""
    model: str
    scoring: Scoring = "number"
    template: str | None = None
    """What it is asked; None takes the one of its scoring."""
    sampling: dict[str, Any] = field(default_factory=dict)
    auxiliary: Auxiliary | None = None
    """The judge, if it is an auxiliary model of the run."""

    def groups(self, calls: Sequence[Call]) -> list[list[int]]:
        """See ``groups_of``."""
        return groups_of(calls, self.scoring)

    async def score(self, calls: Sequence[Call], service: Service) -> list[Outcome]:
        """See ``ServiceScorer``."""
        question = fill(self.template or TEMPLATES[self.scoring], calls)
        body = {"model": self.model, "messages": [{"role": "user", "content": question}], **self.sampling}
        url = self.url
        if self.auxiliary is not None:
            url = self.auxiliary.url(question)
            if self.auxiliary.served:
                body = {"seed": derive_seed(0, "judge", question), **body}
        answer = text_of(await service.post(f"{url.rstrip('/')}/chat/completions", body))
        return READERS[self.scoring](answer, len(calls))


def groups_of(calls: Sequence[Call], scoring: Scoring) -> list[list[int]]:
    """Which calls are asked about together: the responses of a prompt where they are compared, else one by one."""
    if scoring != "ruler":
        return one_by_one(calls)
    members: dict[int, list[int]] = {}
    for index, call in enumerate(calls):
        members.setdefault(call.group, []).append(index)
    return list(members.values())


def fill(template: str, calls: Sequence[Call]) -> str:
    """Put a prompt and its responses into a template; other braces stay as they are."""
    first = calls[0]
    numbered = (f"Response {number}:\n{call.response}" for number, call in enumerate(calls, 1))
    question, answer = question_of(first), str(first.answer)
    values = {
        "prompt": question,
        "question": question,
        "response": first.response,
        "answer": answer,
        "reference": answer,
        "rubric": _rubric(first),
        "responses": "\n\n".join(numbered),
    }
    return PLACEHOLDERS.sub(lambda found: values[found[1]], template)


def question_of(call: Call) -> str:
    """What the user asked last; the whole prompt where the row is raw text."""
    asked = [message for message in call.messages if message.get("role") == "user"]
    content = asked[-1].get("content") if asked else call.prompt
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _rubric(call: Call) -> str:
    extra = call.extra if isinstance(call.extra, Mapping) else {}
    found = extra.get("rubric") or call.columns.get("rubric")
    found = json.loads(found) if isinstance(found, str) else found
    if not isinstance(found, Sequence) or not found:
        return NO_RUBRIC
    return "\n".join(f"Rubric {i} (weight: {one['weight']}): {one['description']}" for i, one in enumerate(found))


def text_of(completion: Mapping[str, Any]) -> str:
    """The text of a chat completion.

    Raises:
        ServiceError: it has none.
    """
    try:
        content = completion["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        content = None
    if not isinstance(content, str) or not content:
        raise ServiceError(said("the judge's answer is empty: {dumps}", dumps=json.dumps(completion)[:300]))
    return content


def _number(answer: str, count: int) -> list[Outcome]:
    found = re.findall(r"Score:\s*\**\s*(\d+(?:\.\d+)?)", answer, re.IGNORECASE)
    if not found or float(found[-1]) > 10:
        raise _unreadable(answer, "a line 'Score: N' with N from 0 to 10")
    return [Outcome(float(found[-1]) / 10)]


def _yes_no(answer: str, count: int) -> list[Outcome]:
    text = answer.lower()
    if "yes" not in text and "no" not in text:
        raise _unreadable(answer, "YES or NO")
    return [Outcome(float("yes" in text), "yes" in text)]


def _rating(answer: str, count: int) -> list[Outcome]:
    for text in (*re.findall(r"```(?:json)?(.*?)```", answer, re.DOTALL), answer):
        try:
            rating = json.loads(text)["rating"]
        except (ValueError, KeyError, TypeError):
            continue
        if is_number(rating) and 1 <= rating <= 10:
            return [Outcome(rating * 0.1)]
    raise _unreadable(answer, 'JSON {"rating": N} with N from 1 to 10')


def _list(answer: str, count: int) -> list[Outcome]:
    start, end = answer.rfind("["), answer.rfind("]")
    try:
        numbers = [float(text) for text in answer[start + 1 : end].split(",")] if 0 <= start < end else []
    except ValueError:
        numbers = []
    if len(numbers) != count or any(number != number for number in numbers):
        raise _unreadable(answer, said("a list of {count} numbers", count=count))
    return [Outcome(min(1.0, max(0.0, number))) for number in numbers]


def _unreadable(answer: str, expected: str) -> ServiceError:
    return ServiceError(
        said(
            "the judge's answer contains no score; expected {expected}, got ...{answer!r}",
            expected=expected,
            answer=answer[-300:],
        )
    )


READERS: dict[Scoring, Callable[[str, int], list[Outcome]]] = {
    "number": _number,
    "yes_no": _yes_no,
    "rubric": _rating,
    "ruler": _list,
}
