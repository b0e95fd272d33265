"""The config's data section to what the loop draws from: the training stream and the held-out sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.data import Data, EvaluationSource
from rlctl.planning import arithmetic
from rlctl.runtime.agents.tools import agent_prompts
from rlctl.runtime.data.chat import AgentPrompt, Chat
from rlctl.runtime.data.difficulty import Pacing
from rlctl.runtime.data.experts import expert_source
from rlctl.runtime.data.images import reader_of
from rlctl.runtime.data.order import easy_to_hard, numbers_of, shuffle
from rlctl.runtime.data.pairs import Pair, PairSet, open_pairs
from rlctl.runtime.data.prompts import PromptSet, open_prompts
from rlctl.runtime.data.rowset import SetReport
from rlctl.runtime.data.sft import SampleSet, longest_sequence, open_samples
from rlctl.runtime.data.sources import load_source
from rlctl.runtime.data.stream import Ordering, Stream
from rlctl.runtime.seeds import derive_seed
from rlctl.runtime.types import Prompt, Sample

PromptStream = Stream[Prompt]
SftStream = Stream[Sample]
PairStream = Stream[Pair]


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """The prompts of one held-out source, in the order they are evaluated."""

    name: str
    prompts: Sequence[Prompt]
    source: EvaluationSource
    """Its section of the config: responses per prompt, sampling."""


def make_chat(config: Config, tokenizer: Any) -> Chat:
    """The chat template of a config, and what reads images where its model does.

    Raises:
        RunError: the model reads none, or has no image processor; or a tool of the run's agent cannot be loaded.
    """
    agents = agent_prompts(arithmetic.agents_of(config) if config.algorithm.objective.choice == "rl" else {})
    return Chat(
        tokenizer,
        template_args=config.model.chat_template_args,
        images=reader_of(config.model),
        default=agents.get(config.rollout.default_agent or "", AgentPrompt()),
        agents=agents,
    )


def open_prompt_stream(config: Config, tokenizer: Any) -> tuple[PromptStream, list[SetReport]]:
    """Open the training prompts of a config.

    Raises:
        RunError: a source cannot be read, or not one step's prompts fit; see ``PromptSet`` and ``Stream``.
    """
    chat = make_chat(config, tokenizer)
    sets = list(open_prompts(config.data, chat, config.data.train, section="train"))
    stream = PromptStream(sets, **_drawing(config, sets))
    return stream, [prompts.report for prompts in sets]


def open_sft_stream(config: Config, tokenizer: Any) -> tuple[SftStream, list[SetReport]]:
    """Open the training sequences of a config whose objective is sft.

    Raises:
        RunError: a source cannot be read; see ``SampleSet`` and ``Stream``.
    """
    sets = list(open_samples(config, make_chat(config, tokenizer)))
    stream = SftStream(sets, **_drawing(config, sets))
    return stream, [samples.report for samples in sets]


def open_pair_stream(config: Config, tokenizer: Any) -> tuple[PairStream, list[SetReport]]:
    """Open the preference pairs of a config whose objective is dpo.

    Raises:
        RunError: a source cannot be read; see ``PairSet`` and ``Stream``.
    """
    sets = list(open_pairs(config, make_chat(config, tokenizer)))
    stream = PairStream(sets, **_drawing(config, sets))
    return stream, [pairs.report for pairs in sets]


def open_experts(config: Config, tokenizer: Any) -> tuple[SftStream | None, list[SetReport]]:
    """Open the expert responses of a config whose objective is mix, drawn in the order of the prompts; None for others.

    A batch is what a step takes; the last of an epoch is carried into the next.

    Raises:
        RunError: there are none, or they cannot be read.
    """
    per_step = arithmetic.responses_per_step(config) - arithmetic.drawn_responses(config)
    if config.algorithm.objective.choice != "mix" or not per_step:
        return None, []
    source, key = expert_source(config)
    chat = make_chat(config, tokenizer)
    rows = SampleSet(
        load_source(source, key=key), source, chat, config.data, max_tokens=longest_sequence(config), key=key
    )
    rows.check_cuts()
    order = config.data.curriculum.order
    if order in ("easy_to_hard", "difficulty"):
        order = "sequential"
    seed = derive_seed(data_seed(config), "experts")
    ordering = Ordering(order=order, seed=seed, last_batch="carry")
    return SftStream([rows], per_step=per_step, ordering=ordering), [rows.report]


def open_evaluation(config: Config, tokenizer: Any) -> tuple[list[EvaluationSet], list[SetReport]]:
    """Open the held-out prompts of a config that are answered.

    Raises:
        RunError: a source cannot be read.
    """
    chat, sources = make_chat(config, tokenizer), config.data.eval
    measured = [index for index, source in enumerate(sources) if arithmetic.measures_loss(config, source)]
    sets = list(open_prompts(config.data, chat, sources, section="eval", without=measured))
    opened = [
        EvaluationSet(prompts.report.name, _evaluation_order(config, prompts), source)
        for prompts, source in zip(
            sets, (each for index, each in enumerate(sources) if index not in measured), strict=True
        )
    ]
    return opened, [prompts.report for prompts in sets]


def _drawing(config: Config, sets: Sequence[PromptSet | SampleSet | PairSet]) -> dict[str, Any]:
    """How a stream draws its batches."""
    return {
        "per_step": config.batch.prompts_per_step,
        "ordering": ordering_of(config, sets),
        "ahead": config.data.loader_workers,
    }


def data_seed(config: Config) -> int:
    """Seed of the data order: ``data.seed``, else ``run.seed``."""
    return config.run.seed if config.data.seed is None else config.data.seed


def ordering_of(config: Config, sets: Sequence[PromptSet | SampleSet | PairSet]) -> Ordering:
    """How the training data is drawn.

    Raises:
        RunError: the order needs rewards and there are none, or columns or arguments that do not fit.
    """
    data, curriculum = config.data, config.data.curriculum
    by_difficulty = curriculum.order == "difficulty"
    if by_difficulty and config.algorithm.objective.choice in ("sft", "dpo"):
        raise RunError(
            said(
                "data.curriculum.order is difficulty, but {choice} has no rewards to measure difficulty",
                choice=config.algorithm.objective.choice,
            ),
            hint="set data.curriculum.order to easy_to_hard, or another",
        )
    if curriculum.args and not by_difficulty:
        raise RunError(
            said(
                "data.curriculum.args are only for the order difficulty, but data.curriculum.order is {order}",
                order=curriculum.order,
            ),
            hint="remove them",
        )
    return Ordering(
        order=curriculum.order,
        seed=data_seed(config),
        last_batch=data.last_batch,
        mixing=data.mixing,
        weights=tuple(source.weight for source in data.train),
        ranks=_ranks(data, sets),
        features=_features(data, sets),
        pacing=Pacing.of(curriculum.args),
    )


def _ranks(data: Data, sets: Sequence[PromptSet | SampleSet | PairSet]) -> tuple[np.ndarray, ...]:
    if data.curriculum.order != "easy_to_hard":
        return ()
    if not data.curriculum.keys:
        raise RunError("data.curriculum.order is easy_to_hard and data.curriculum.keys is empty")
    return tuple(easy_to_hard([rows.column(key) for key in data.curriculum.keys]) for rows in sets)


def _features(data: Data, sets: Sequence[PromptSet | SampleSet | PairSet]) -> tuple[np.ndarray, ...]:
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


def _evaluation_order(config: Config, prompts: PromptSet) -> Sequence[Prompt]:
    if not config.data.shuffle_evaluation:
        return prompts
    order = shuffle(len(prompts), seed=data_seed(config), epoch=0)
    return [prompts[row] for row in order.tolist()]
