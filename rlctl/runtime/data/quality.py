"""How good a text is, as a judge at an endpoint rates it: from 0 to 1."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import httpx

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.data import QualityFilter
from rlctl.config.sections.rollout import AuxiliaryModel
from rlctl.runtime.auxiliary import Auxiliary, chosen, outside
from rlctl.runtime.rewards.judge import READERS, text_of
from rlctl.runtime.rewards.service import Service

QUESTION = """Rate how useful a text is as a task for training a language model: whether it is clear, complete, answerable and
free of mistakes.

Text:
{text}

Give one number from 0 (useless) to 10 (excellent). End with a line of this form:
Score: <number>"""
TEXT = "{text}"


def judge_of(auxiliary: Mapping[str, AuxiliaryModel], operator: QualityFilter, where: str) -> Auxiliary:
    """The endpoint of an operator's judge, among the auxiliary models by name.

    Raises:
        RunError: there is none; engines of the run start after operators.
    """
    models = outside(auxiliary)
    if operator.auxiliary_model in models:
        return models[operator.auxiliary_model]
    if any(operator.auxiliary_model in (each.name, each.path) for each in auxiliary.values()):
        raise RunError(
            said(
                "{where} asks the auxiliary model {auxiliary_model!r}, which the run starts only after the data "
                "operators are done",
                where=where,
                auxiliary_model=operator.auxiliary_model,
            ),
            hint="serve it at an endpoint and set base_url of the model",
        )
    return chosen(models, operator.auxiliary_model)


def ratings(operator: QualityFilter, texts: Sequence[str], judge: Auxiliary, where: str) -> list[float]:
    """What the judge says of each text.

    Raises:
        RunError: it doesn't answer, or not with a score.
    """
    question = operator.prompt or QUESTION
    if TEXT not in question:
        raise RunError(
            said("{where}.prompt has no {text}", where=where, text=TEXT),
            hint=said("write {text} where the text goes", text=TEXT),
        )

    async def rated(text: str, service: Service) -> float:
        messages = [{"role": "user", "content": question.replace(TEXT, text)}]
        body = {"model": judge.model, "messages": messages, "temperature": 0.0, **operator.sampling}
        answer = text_of(await service.post(f"{judge.url(text)}/chat/completions", body))
        (outcome,) = READERS["number"](answer, 1)
        return outcome.score

    async def all_rated() -> list[float]:
        limits = httpx.Limits(max_connections=operator.max_concurrent)
        async with httpx.AsyncClient(limits=limits, timeout=None) as client:
            gate = asyncio.Semaphore(operator.max_concurrent)
            service = Service(client, gate, operator.timeout, operator.timeout, judge.api_key)
            return list(await asyncio.gather(*(rated(text, service) for text in texts)))

    try:
        return asyncio.run(all_rated())
    except RunError:
        raise
    except Exception as error:
        raise RunError(
            said("{where}: the judge {name!r} fails: {error}", where=where, name=judge.name, error=error),
            hint="correct the endpoint or the prompt of the operator",
        ) from error
