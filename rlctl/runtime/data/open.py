"""Sources of data to what the loop draws from: the training stream and the held-out sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.agents import TrajectoryAgent
from rlctl.config.sections.data import Data, DataSource, EvaluationSource
from rlctl.config.sections.model import Model
from rlctl.config.sections.rewards import Reward
from rlctl.runtime.agents.tools import agent_prompts
from rlctl.runtime.data.chat import AgentPrompt, Chat
from rlctl.runtime.data.difficulty import Pacing
from rlctl.runtime.data.domains import DomainRows, split_by_domain
from rlctl.runtime.data.experts import ExpertSpec, expert_source
from rlctl.runtime.data.images import reader_of
from rlctl.runtime.data.order import easy_to_hard, numbers_of, shuffle
from rlctl.runtime.data.pairs import Pair, PairSet, open_pairs
from rlctl.runtime.data.prompts import PromptSet, open_prompts
from rlctl.runtime.data.rowset import SetReport
from rlctl.runtime.data.sft import SampleSet, open_samples
from rlctl.runtime.data.sources import load_source
from rlctl.runtime.data.stream import Ordering, Stream
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.types import Prompt, Sample

PromptStream = Stream[Prompt]
SftStream = Stream[Sample]
PairStream = Stream[Pair]
Source = PromptSet | DomainRows | SampleSet | PairSet


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """The prompts of one held-out source, in the order they are evaluated."""

    name: str
    prompts: Sequence[Prompt]
    source: EvaluationSource
    """Its section of the config: responses per prompt, sampling."""


@dataclass(frozen=True, slots=True)
class DataSpec:
    """What rows become, and in which order they are drawn."""

    section: Data
    """Its sources are those of the config, or what operators made of them."""
    model: Model
    """Its chat template, and what reads images."""
    agents: Mapping[str, TrajectoryAgent]
    """By name, those whose tools and instructions stand in prompts."""
    default_agent: str | None
    objective: str
    """The type of ``algorithm.objective``."""
    per_step: int
    """Prompts, sequences or pairs that a step draws."""
    seed: int
    """Of the order: ``data.seed``, else ``run.seed``."""
    rewards: Sequence[Reward]
    """Whose rows are the domains of ``data.domain_weights``."""
    max_sequence_tokens: int
    """Of the longest training sequence that comes from the data set."""
    with_loss: frozenset[int]
    """Which of ``data.eval`` have answers that the loss is measured on."""
    experts: ExpertSpec | None
    """Of mix."""
    context_tokens: int | None
    """Of a prompt with its response; None if it is not known, or agents keep to it."""
    max_response_tokens: int

    def sources(self, name: str) -> list[tuple[str, DataSource]]:
        """The sources of ``train`` or ``eval``, by their places in the config."""
        return [(f"data.{name}[{index}]", each) for index, each in enumerate(getattr(self.section, name))]


def make_chat(spec: DataSpec, tokenizer: Any) -> Chat:
    """The chat template of a model, and what reads images where the model does.

    Raises:
        RunError: the model reads none, or has no image processor; or a tool of the run's agent cannot be loaded.
    """
    agents = agent_prompts(spec.agents)
    return Chat(
        tokenizer,
        template_args=spec.model.chat_template_args,
        images=reader_of(spec.model),
        default=agents.get(spec.default_agent or "", AgentPrompt()),
        agents=agents,
    )


def open_prompt_stream(spec: DataSpec, tokenizer: Any) -> tuple[PromptStream, list[SetReport]]:
    """Open the training prompts.

    Raises:
        RunError: a source cannot be read, or not one step's prompts fit; see ``PromptSet``, ``split_by_domain`` and ``Stream``.
    """
    sets = list(open_prompts(spec.section, make_chat(spec, tokenizer), spec.section.train, section="train"))
    _check_room(spec, sets)
    reports = [prompts.report for prompts in sets]
    if not spec.section.domain_weights:
        return PromptStream(sets, **_drawing(spec, sets)), reports
    drawn = split_by_domain(sets, spec.section.domain_weights, spec.rewards)
    for index, report in enumerate(reports):
        used = sum(rows.count_of(index) for rows in drawn)
        reports[index] = replace(report, rows=used, undrawn=report.rows - used)
    return PromptStream(drawn, **_drawing(spec, drawn)), reports


def open_sft_stream(spec: DataSpec, tokenizer: Any) -> tuple[SftStream, list[SetReport]]:
    """Open the training sequences of sft.

    Raises:
        RunError: a source cannot be read; see ``SampleSet`` and ``Stream``.
    """
    chat, longest = make_chat(spec, tokenizer), spec.max_sequence_tokens
    sets = list(open_samples(spec.section, spec.sources("train"), chat, max_tokens=longest))
    stream = SftStream(sets, **_drawing(spec, sets))
    return stream, [samples.report for samples in sets]


def open_pair_stream(spec: DataSpec, tokenizer: Any) -> tuple[PairStream, list[SetReport]]:
    """Open the preference pairs of dpo.

    Raises:
        RunError: a source cannot be read; see ``PairSet`` and ``Stream``.
    """
    chat, longest = make_chat(spec, tokenizer), spec.max_sequence_tokens
    sets = list(open_pairs(spec.section, spec.sources("train"), chat, max_tokens=longest))
    stream = PairStream(sets, **_drawing(spec, sets))
    return stream, [pairs.report for pairs in sets]


def open_experts(spec: DataSpec, tokenizer: Any) -> tuple[SftStream | None, list[SetReport]]:
    """Open the expert responses of mix, drawn in the order of the prompts; None for other objectives.

    A batch is what a step takes; the last of an epoch is carried into the next.

    Raises:
        RunError: there are none, or they cannot be read.
    """
    if spec.experts is None:
        return None, []
    source, key = expert_source(spec.experts)
    rows = SampleSet(
        load_source(source, key=key),
        source,
        make_chat(spec, tokenizer),
        spec.section,
        max_tokens=spec.max_sequence_tokens,
        key=key,
    )
    rows.check_cuts()
    order = spec.section.curriculum.order
    if order in ("easy_to_hard", "difficulty"):
        order = "sequential"
    ordering = Ordering(order=order, seed=derive_seed(spec.seed, "experts"), last_batch="carry")
    return SftStream([rows], per_step=spec.experts.per_step, ordering=ordering), [rows.report]


def open_evaluation(spec: DataSpec, tokenizer: Any) -> tuple[list[EvaluationSet], list[SetReport]]:
    """Open the held-out prompts that are answered.

    Raises:
        RunError: a source cannot be read.
    """
    chat, sources = make_chat(spec, tokenizer), spec.section.eval
    sets = list(open_prompts(spec.section, chat, sources, section="eval", without=spec.with_loss))
    _check_room(spec, sets)
    answered = [source for index, source in enumerate(sources) if index not in spec.with_loss]
    opened = [
        EvaluationSet(prompts.report.name, _evaluation_order(spec, prompts), source)
        for prompts, source in zip(sets, answered, strict=True)
    ]
    return opened, [prompts.report for prompts in sets]


def _check_room(spec: DataSpec, sets: Sequence[PromptSet]) -> None:
    """Refuse prompts after which the longest response does not fit into the model.

    Raises:
        RunError: there is one.
    """
    for prompts in sets:
        context, longest = spec.context_tokens, prompts.longest
        response = int(prompts.source.sampling.get("max_response_tokens", spec.max_response_tokens))
        if context is None or longest + response <= context:
            continue
        raise RunError(
            said(
                "the longest prompt of {name} has {longest} tokens; with rollout.max_response_tokens = {response} that is "
                "{total}, but only {context} fit into the model",
                name=prompts.report.path or prompts.report.name,
                longest=longest,
                response=response,
                total=longest + response,
                context=context,
            ),
            hint=said(
                "set rollout.max_response_tokens to at most {most}"
                if longest < context
                else "set data.max_prompt_tokens to less than {context}, and data.overlong_prompts to drop",
                most=context - longest,
                context=context,
            ),
        )


def _drawing(spec: DataSpec, sets: Sequence[Source]) -> dict[str, Any]:
    """How a stream draws its batches."""
    return {
        "per_step": spec.per_step,
        "ordering": ordering_of(spec, sets),
        "ahead": spec.section.loader_workers,
    }


def ordering_of(spec: DataSpec, sets: Sequence[Source]) -> Ordering:
    """How the training data is drawn.

    Raises:
        RunError: the order needs rewards and there are none, or columns or arguments that do not fit.
    """
    data, curriculum = spec.section, spec.section.curriculum
    by_difficulty = curriculum.order == "difficulty"
    if by_difficulty and spec.objective in ("sft", "dpo"):
        raise RunError(
            said(
                "data.curriculum.order is difficulty, but {choice} has no rewards to measure difficulty",
                choice=spec.objective,
            ),
            hint="set data.curriculum.order to easy_to_hard, or another",
        )
    if curriculum.args and not by_difficulty:
        raise RunError(
            said(
                "data.curriculum.args are only for the order difficulty, but data.curriculum.order is {order}",
                order=curriculum.order,
            ),
            hint="remove data.curriculum.args",
        )
    weights = {f"data.train[{index}].weight": source.weight for index, source in enumerate(data.train)}
    if data.domain_weights:
        weights = {f"data.domain_weights.{name}": weight for name, weight in data.domain_weights.items()}
    return Ordering(
        order=curriculum.order,
        seed=spec.seed,
        last_batch=data.last_batch,
        mixing="weighted_exact" if data.domain_weights else data.mixing,
        weights=tuple(weights.values()),
        keys=tuple(weights),
        ranks=_ranks(data, sets),
        features=_features(data, sets),
        pacing=Pacing.of(curriculum.args),
    )


def _ranks(data: Data, sets: Sequence[Source]) -> tuple[np.ndarray, ...]:
    if data.curriculum.order != "easy_to_hard":
        return ()
    if not data.curriculum.keys:
        raise RunError("data.curriculum.order is easy_to_hard and data.curriculum.keys is empty")
    return tuple(easy_to_hard([rows.column(key) for key in data.curriculum.keys]) for rows in sets)


def _features(data: Data, sets: Sequence[Source]) -> tuple[np.ndarray, ...]:
    keys = data.curriculum.keys
    if data.curriculum.order != "difficulty":
        return ()
    if len(keys) != 2:
        raise RunError(
            said(
                "data.curriculum.order is difficulty and data.curriculum.keys names {count} columns; it takes two",
                count=len(keys),
            ),
            hint="name the columns of the pass rates of a weak and of a strong model",
        )
    return tuple(numbers_of([rows.column(key) for key in keys]) for rows in sets)


def _evaluation_order(spec: DataSpec, prompts: PromptSet) -> Sequence[Prompt]:
    if not spec.section.shuffle_evaluation:
        return prompts
    order = shuffle(len(prompts), seed=spec.seed, epoch=0)
    return [prompts[row] for row in order.tolist()]
