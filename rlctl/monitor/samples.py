"""The responses that a run has shown: where they stand in its log, read when somebody looks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Response:
    """One response of a group."""

    text: str
    reward: float
    components: dict[str, float]
    """By reward and by what each says beside its score."""


@dataclass(frozen=True, slots=True)
class Group:
    """A prompt and its responses; of a stage that draws none, a sequence that it trains on."""

    prompt: str
    answer: str
    responses: tuple[Response, ...]
    weight_version: int | None

    @property
    def mean_reward(self) -> float:
        return fmean(response.reward for response in self.responses) if self.responses else 0.0

    @property
    def is_equal(self) -> bool:
        """Whether all responses have one reward, so that nothing is learned from them."""
        return len({response.reward for response in self.responses}) == 1 and len(self.responses) > 1


@dataclass
class SampleIndex:
    """Where the samples of each step of each stage are."""

    path: Path
    places: dict[tuple[str, int], int] = field(default_factory=dict)
    """Offset of the line, by stage and step; of a step that was told twice, of the last."""

    def steps(self, stage: str) -> list[int]:
        return sorted(step for name, step in self.places if name == stage)

    def groups(self, stage: str, step: int) -> list[Group]:
        """The groups shown of a step; none where none were, or where they cannot be read any more."""
        place = self.places.get((stage, step))
        if place is None:
            return []
        try:
            with self.path.open("rb") as file:
                file.seek(place)
                event = orjson.loads(file.readline())
        except (OSError, ValueError):
            return []
        return [_group(shown) for shown in event.get("samples", ())]


def _group(shown: dict[str, Any]) -> Group:
    if "responses" not in shown:  # sft and dpo show what they train on
        fields = [f"{name}: {value}" for name, value in shown.items() if name != "sequence"]
        return Group(str(shown.get("sequence", "")), "\n".join(fields), (), None)
    responses = tuple(
        Response(text, reward, components)
        for text, reward, components in zip(
            shown["responses"],
            shown["rewards"],
            shown.get("components") or [{}] * len(shown["responses"]),
            strict=False,
        )
    )
    answer = shown.get("answer")
    return Group(shown["prompt"], "" if answer is None else str(answer), responses, shown.get("weight_version"))
