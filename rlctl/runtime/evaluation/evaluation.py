"""Answering prompts that are not trained on, or taking recorded answers, and scoring them: evaluation, and files of responses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlctl.runtime.data.recorded import RECORDED
from rlctl.runtime.evaluation.losses import HeldOutLosses
from rlctl.runtime.evaluation.response_files import Chosen, Keeper, Shown
from rlctl.runtime.experience.samples import RolloutGroup, requests_for
from rlctl.runtime.reporting.metrics import evaluation_metrics
from rlctl.runtime.reporting.shown_samples import Evaluated
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.roles import Rewards, RolloutEngines, texts_of
from rlctl.runtime.tracking.interface import ShownResponse
from rlctl.runtime.types import Prompt, Response, Sampling


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One source."""

    name: str
    prompts: Sequence[Prompt]
    sampling: Sampling | None
    """How its prompts are answered; None where the rows bring their responses."""
    responses_per_prompt: int = 1


@dataclass(slots=True)
class _Marks:
    """What is known of each response of a source, in order."""

    sources: list[str] = field(default_factory=list)
    """The data source of its row."""
    prompts: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    """In tokens; empty where nothing counts them."""
    scores: list[Score] = field(default_factory=list)
    """Empty where nothing scores."""

    def metrics(self, name: str, source: str | None = None) -> dict[str, float]:
        """Metrics of all responses, or of those of one data source."""
        chosen = [index for index, own in enumerate(self.sources) if source in (None, own)]
        lengths = [self.lengths[index] for index in chosen] if self.lengths else []
        if not self.scores:
            return {f"evaluation/{name}/length_mean": sum(lengths) / len(lengths)} if lengths else {}
        scores = [self.scores[index] for index in chosen]
        return evaluation_metrics(
            name,
            [score.total for score in scores],
            [score.correct for score in scores],
            lengths,
            [self.prompts[index] for index in chosen],
            [score.vote for score in scores],
        )


@dataclass(frozen=True)
class Evaluator:
    """Runs every source."""

    sources: Sequence[HeldOut]
    rollout: RolloutEngines | None
    """None where all rows bring their responses."""
    rewards: Rewards | None
    """None where responses are only written down."""
    seed: int
    batch_prompts: int | None
    """Prompts answered at once; None is a whole source."""
    tokenizer: Any = None
    """Of the responses; None where there are only recorded ones."""
    keeper: Keeper | None = None
    """Gets every response."""
    chosen: Chosen | None = None
    """Gets every response too, and chooses those that trackers are sent."""
    evaluated: Evaluated | None = None
    """Gets every response too, and chooses those that the run folder keeps."""
    losses: HeldOutLosses | None = None
    """Measures the loss on held-out answers; None if no source has any."""

    def run(self, step: int = 0) -> dict[str, float]:
        """Metrics of every source, ``evaluation/<source>/...``; of one whose rows are of several data sources, of each too.

        The random streams depend on neither the step nor the size of a batch, so two evaluations of the same weights give
        the same numbers.
        """
        metrics: dict[str, float] = {}
        for number, source in enumerate(self.sources):
            marks = self._marks(number, source, step)
            metrics |= marks.metrics(source.name)
            several = dict.fromkeys(marks.sources)
            for own in several if len(several) > 1 else ():
                metrics |= marks.metrics(f"{source.name}/{own}", own)
        for keeper in self._keepers:
            keeper.close()
        return metrics if self.losses is None else metrics | self.losses.run()

    @property
    def _keepers(self) -> list[Keeper]:
        return [keeper for keeper in (self.keeper, self.chosen) if keeper is not None]

    def shown(self) -> list[ShownResponse]:
        """Some of the responses of the last evaluation."""
        return [] if self.chosen is None else self.chosen.shown

    def groups(self) -> list[dict[str, Any]]:
        """Some of the groups of the last evaluation, for people; they are told once."""
        return [] if self.evaluated is None else self.evaluated.take()

    def _marks(self, number: int, source: HeldOut, step: int) -> _Marks:
        marks = _Marks()
        size = self.batch_prompts or len(source.prompts)
        for start in range(0, len(source.prompts), size):
            prompts = source.prompts[start : start + size]
            texts, lengths, scores = self._answered(source, prompts, start)
            for place, (prompt, group) in enumerate(zip(prompts, texts, strict=True)):
                marks.sources += [prompt.source] * len(group)
                marks.prompts += [start + place] * len(group)
            marks.lengths += lengths
            marks.scores += [score for group in scores for score in group]
            for keeper in self._keepers:
                keeper.keep(step, number, start, list(_shown(prompts, texts, scores)))
        return marks

    def _answered(
        self, source: HeldOut, prompts: Sequence[Prompt], first: int
    ) -> tuple[list[list[str]], list[int], list[list[Score]]]:
        """Responses of each prompt, the lengths of all, and their scores where something scores."""
        if source.sampling is None:
            recorded = [list(prompt.extra[RECORDED]) for prompt in prompts]
            lengths = [] if self.tokenizer is None else [self._length(text) for group in recorded for text in group]
            scores = self.rewards.score_texts(prompts, recorded) if self.rewards is not None else []
            self._show(source, prompts, [() for _ in prompts], scores, recorded)
            return recorded, lengths, scores
        assert self.rollout is not None, "prompts without responses are answered"
        purpose, n = f"evaluation:{source.name}", source.responses_per_prompt
        answers = self.rollout.generate(
            requests_for(prompts, source.sampling, n=n, seed=self.seed, purpose=purpose, first=first)
        )
        lengths = [len(response.token_ids) for group in answers for response in group]
        scores = self.rewards.score(prompts, answers) if self.rewards is not None else []
        texts = texts_of(answers, self.tokenizer) if self._keepers else [[""] * len(group) for group in answers]
        self._show(source, prompts, answers, scores, texts)
        return texts, lengths, scores

    def _show(
        self,
        source: HeldOut,
        prompts: Sequence[Prompt],
        answers: Sequence[Sequence[Response]],
        scores: Sequence[Sequence[Score]],
        texts: Sequence[Sequence[str]],
    ) -> None:
        if self.evaluated is None:
            return
        groups = [
            RolloutGroup(prompt, responses, [score.total for score in own], own)
            for prompt, responses, own in zip(prompts, answers, scores or [()] * len(prompts), strict=True)
        ]
        self.evaluated.add(source.name, groups, texts)

    def _length(self, text: str) -> int:
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def _shown(
    prompts: Sequence[Prompt], texts: Sequence[Sequence[str]], scores: Sequence[Sequence[Score]]
) -> Iterator[Shown]:
    for index, (prompt, group) in enumerate(zip(prompts, texts, strict=True)):
        yield Shown(prompt, group, scores[index] if scores else ())
