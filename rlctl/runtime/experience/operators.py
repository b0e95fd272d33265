"""Experience operators: what drops, scores or changes the responses of a step before filters and advantages.

    scored groups ──▶ operator 1 ──▶ operator 2 ──▶ ... ──▶ algorithm.filters ──▶ advantages
                          └── responses in and out, and further numbers, to the metrics

Each operator is a function of groups and its own settings: ``OPERATORS`` has them by the type of the config. A response
that is dropped leaves its group, so the group's mean is that of the rest; a group without responses is dropped.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.algorithm import (
    DapoDynamicSampling,
    ExperienceOperator,
    ExternalOperator,
    FunctionOperator,
    InvalidRewardFilter,
    PassRateCalculator,
    RewardFilter,
    RewardShapingMapper,
    RewardStdFilter,
    ShapingRule,
)
from rlctl.config.sections.execution import DataJuicer
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.juicer.client import service_of
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.types import Response
from rlctl.runtime.user_code import last_lines, load_object

Penalty = Callable[[Response], float]
"""The length penalty of a response, which is part of the reward that operators see, as it is in Trinity."""
_RIGHT = {"acc", "accuracy"}
_HARDEST, _EASIEST = 1 / 16 + 1e-3, 15 / 16 - 1e-3
"""Bounds of Trinity's stricter share of prompts from which something is learned."""


@dataclass
class Result:
    """What an operator makes of groups."""

    groups: list[RolloutGroup]
    numbers: dict[str, float] = field(default_factory=dict)
    """Further metrics."""
    pass_rates: dict[int, list[float]] | None = None
    """Rewards by prompt, from an operator that measures them."""


@dataclass(frozen=True)
class Given:
    """What operators may use beside the groups."""

    penalty: Penalty
    texts: Callable[[Sequence[RolloutGroup]], list[list[str]]]
    """The text of every response, group by group."""


class Operators:
    """The operators of a stage, in order, with the counts since they were last read."""

    def __init__(
        self,
        chosen: Sequence[ExperienceOperator],
        penalty: Penalty = lambda response: 0.0,
        texts: Callable[[Sequence[RolloutGroup]], list[list[str]]] | None = None,
        service: DataJuicer | None = None,
    ) -> None:
        """
        Args:
            chosen: of the config.
            penalty: of a response, by its length.
            texts: of the responses of groups; by default those that the responses have.
            service: that runs the operators of Data-Juicer.
        """
        self._chosen = tuple(chosen)
        self._given = Given(penalty, texts or _own_texts)
        self._calls = [_made(each, place, service) for place, each in enumerate(self._chosen)]
        self._counts: dict[str, float] = {}
        self._means: dict[str, list[float]] = {}
        self._pass_rates: dict[int, list[float]] = {}
        self._measures = any(isinstance(each, PassRateCalculator) for each in self._chosen)

    def __bool__(self) -> bool:
        return bool(self._chosen)

    @property
    def refills(self) -> bool:
        """Whether further prompts are sampled for groups that are dropped."""
        return any(getattr(each, "refill", False) for each in self._chosen)

    def applied(self, groups: Sequence[RolloutGroup]) -> list[RolloutGroup]:
        """The groups after all operators."""
        kept = list(groups)
        for place, (chosen, call) in enumerate(zip(self._chosen, self._calls, strict=True), start=1):
            name, before = f"operator/{place}_{chosen.choice}", _size(kept)
            result = call(kept, self._given)
            kept = result.groups
            self._count(f"{name}/in", before)
            self._count(f"{name}/out", _size(kept))
            for number, value in result.numbers.items():
                self._means.setdefault(f"{name}/{number}", []).append(value)
            for prompt, rewards in (result.pass_rates or {}).items():
                self._pass_rates.setdefault(prompt, []).extend(rewards)
        return kept

    def metrics(self) -> dict[str, float]:
        """Responses in and out of each operator and its other numbers, since they were last read."""
        told = self._counts | {name: statistics.fmean(values) for name, values in self._means.items()}
        self._counts, self._means = {}, {}
        return told

    def pass_rates(self, otherwise: Mapping[int, float]) -> Mapping[int, float]:
        """The mean reward of each prompt where an operator measures it, since it was last read; else ``otherwise``."""
        if not self._measures:
            return otherwise
        found, self._pass_rates = self._pass_rates, {}
        return {prompt: statistics.fmean(rewards) for prompt, rewards in found.items()}

    def state(self) -> dict[str, Any]:
        """What was counted and not read yet, as plain data."""
        rates = [[prompt, rewards] for prompt, rewards in self._pass_rates.items()]
        return {"counts": dict(self._counts), "means": dict(self._means), "pass_rates": rates}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on counting from what ``state`` gave."""
        self._counts, self._means = dict(state["counts"]), {name: list(each) for name, each in state["means"].items()}
        self._pass_rates = {int(prompt): list(rewards) for prompt, rewards in state["pass_rates"]}

    def _count(self, name: str, value: int) -> None:
        self._counts[name] = self._counts.get(name, 0.0) + value


def reward_filter(groups: Sequence[RolloutGroup], chosen: RewardFilter, given: Given) -> Result:
    """Keep responses whose reward is at least the threshold."""
    return Result(_kept(groups, lambda item, place: _reward(item, place, given) >= chosen.threshold))


def reward_std_filter(groups: Sequence[RolloutGroup], chosen: RewardStdFilter, given: Given) -> Result:
    """Keep groups of two or more whose rewards have a population standard deviation above the threshold."""

    def passes(item: RolloutGroup) -> bool:
        rewards = _rewards(item, given)
        return len(rewards) > 1 and statistics.pstdev(rewards) > chosen.threshold

    return Result([item for item in groups if passes(item)])


def dapo_dynamic_sampling(groups: Sequence[RolloutGroup], chosen: DapoDynamicSampling, given: Given) -> Result:
    """Keep groups of two or more of which some responses are right, but not all (DAPO, arXiv:2503.14476, section 3.2)."""
    kept: list[RolloutGroup] = []
    right_away = wrong_away = 0
    for item in groups:
        size = len(item.responses)
        right = sum(_outcome(item, place, chosen.metric, given) > chosen.correct_threshold for place in range(size))
        if size > 1 and 0 < right < size:
            kept.append(item)
        elif size > 1:
            right_away += size * (right == size)
            wrong_away += size * (right == 0)
    return Result(kept, {"dropped_all_right": float(right_away), "dropped_all_wrong": float(wrong_away)})


def invalid_reward_filter(groups: Sequence[RolloutGroup], chosen: InvalidRewardFilter, given: Given) -> Result:
    """Keep responses whose reward was computed and is a number."""

    def valid(item: RolloutGroup, place: int) -> bool:
        failed = bool(item.scores) and item.scores[place].error is not None
        return not failed and not math.isnan(item.rewards[place])

    return Result(_kept(groups, valid))


def reward_shaping_mapper(groups: Sequence[RolloutGroup], chosen: RewardShapingMapper, given: Given) -> Result:
    """Change each reward by numbers of its response."""
    shaped: list[RolloutGroup] = []
    changes: list[float] = []
    for item in groups:
        rewards = _rewards(item, given)
        after = [_shaped(item, place, reward, chosen.reward_shaping_configs) for place, reward in enumerate(rewards)]
        changes += [new - old for new, old in zip(after, rewards, strict=True)]
        penalties = [given.penalty(response) for response in item.responses]
        shaped.append(_with_rewards(item, [new - cost for new, cost in zip(after, penalties, strict=True)]))
    if not changes:
        return Result(shaped)
    return Result(
        shaped,
        {"change_mean": statistics.fmean(changes), "change_min": min(changes), "change_max": max(changes)},
    )


def pass_rate_calculator(groups: Sequence[RolloutGroup], chosen: PassRateCalculator, given: Given) -> Result:
    """Measure the mean reward of each prompt; the responses stay as they are."""
    found: dict[int, list[float]] = {}
    for item in groups:
        found.setdefault(item.prompt.index, []).extend(_rewards(item, given))
    means = [statistics.fmean(rewards) for rewards in found.values()]
    if not means:
        return Result(list(groups), {}, found)
    numbers = {
        "between_0_and_1_share": statistics.fmean(0 < mean < 1 for mean in means),
        "between_1_and_15_of_16_share": statistics.fmean(_HARDEST < mean < _EASIEST for mean in means),
        "below_1_share": statistics.fmean(mean < 1 for mean in means),
        "above_0_share": statistics.fmean(mean > 0 for mean in means),
        "below_15_of_16_share": statistics.fmean(mean < _EASIEST for mean in means),
        "above_1_of_16_share": statistics.fmean(mean > _HARDEST for mean in means),
    }
    return Result(list(groups), numbers, found)


def described(groups: Sequence[RolloutGroup], given: Given) -> list[dict[str, Any]]:
    """Every response as a user's operator gets it: plain values, numbered by ``id``."""
    rows: list[dict[str, Any]] = []
    for number, (item, texts) in enumerate(zip(groups, given.texts(groups), strict=True)):
        for place, (response, text) in enumerate(zip(item.responses, texts, strict=True)):
            score = item.scores[place] if item.scores else Score(item.rewards[place])
            rows.append(
                {
                    "id": len(rows),
                    "group": number,
                    "prompt": item.prompt.text,
                    "response": text,
                    "reward": _reward(item, place, given),
                    "answer": item.prompt.answer,
                    "extra": dict(item.prompt.extra),
                    "info": dict(response.info),
                    "rewards": dict(score.components),
                    "correct": score.correct,
                    "tokens": len(response.token_ids),
                    "truncated": response.finish_reason == "length",
                    "index": item.prompt.index,
                    "source": item.prompt.source,
                }
            )
    return rows


def rebuilt(
    groups: Sequence[RolloutGroup], rows: Sequence[Mapping[str, Any]], given: Given, *, what: str
) -> list[RolloutGroup]:
    """The groups with the responses that ``rows`` names by ``id``, their ``reward`` and ``info`` as they are there.

    Raises:
        RunError: rows are not those that were given.
    """
    places = [(item, place) for item in groups for place in range(len(item.responses))]
    kept: dict[int, Mapping[str, Any]] = {}
    for row in rows:
        number = row.get("id") if isinstance(row, Mapping) else None
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(places) or number in kept:
            raise RunError(
                said(
                    "{what} returned {row!r}; expected some of the rows that it received, each with its id once",
                    what=what,
                    row=str(row)[:80],
                ),
                hint="return the rows to keep, with reward and info changed at most",
            )
        kept[number] = row
    result: list[RolloutGroup] = []
    first = 0
    for item in groups:
        mine = [place for place in range(len(item.responses)) if first + place in kept]
        own = [kept[first + place] for place in mine]
        first += len(item.responses)
        if mine:
            part = _with_infos(_part(item, mine), own)
            result.append(_with_rewards(part, [_number(row, given, part, at, what) for at, row in enumerate(own)]))
    return result


def _number(row: Mapping[str, Any], given: Given, item: RolloutGroup, place: int, what: str) -> float:
    """The reward of a row without its length penalty."""
    value = row.get("reward")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RunError(said("{what} returned the reward {value!r}; expected a finite number", what=what, value=value))
    before = _reward(item, place, given)
    return item.rewards[place] if value == before else float(value) - given.penalty(item.responses[place])


def _function(chosen: FunctionOperator, place: int) -> Callable[[list[RolloutGroup], Given], Result]:
    where = f"algorithm.experience_operators[{place}]"
    function = load_object(chosen.path, chosen.function, where=where)
    what = f"{chosen.function} of {chosen.path} ({where})"

    def call(groups: list[RolloutGroup], given: Given) -> Result:
        try:
            found = function(described(groups, given), **chosen.args)
        except (Exception, SystemExit) as error:  # whatever the user's function raises is shown to the user
            raise RunError(
                said("{what} fails:\n{error}", what=what, error=last_lines(error)),
                hint="correct the function or its args",
            ) from error
        rows, numbers = found if isinstance(found, tuple) and len(found) == 2 else (found, {})
        if not isinstance(rows, Sequence) or isinstance(rows, str) or not isinstance(numbers, Mapping):
            raise RunError(
                said(
                    "{what} returned {kind}; expected a list of rows, or such a list and a mapping of numbers",
                    what=what,
                    kind=type(rows).__name__,
                )
            )
        return Result(rebuilt(groups, rows, given, what=what), {str(k): float(v) for k, v in numbers.items()})

    return call


def _data_juicer(
    chosen: ExternalOperator, place: int, service: DataJuicer | None
) -> Callable[[list[RolloutGroup], Given], Result]:
    where = f"algorithm.experience_operators[{place}]"

    def call(groups: list[RolloutGroup], given: Given) -> Result:
        rows = [
            {
                "id": row["id"],
                "prompt_text": row["prompt"],
                "response_text": row["response"],
                "reward": float(row["reward"]),
                "answer": "" if row["answer"] is None else str(row["answer"]),
                "truncate_status": "response_truncated" if row["truncated"] else "",
                "tokens": row["tokens"],
            }
            for row in described(groups, given)
        ]
        infos = [response.info for item in groups for response in item.responses]
        found = service_of(service, where).process(chosen.args, rows, where=where)
        kept = [
            {"id": values.get("id"), "reward": values.get("reward"), "info": {**infos[values["id"]], **statistics}}
            for values, place, statistics in zip(found.rows, found.places, found.statistics, strict=True)
            if place is not None
        ]
        return Result(rebuilt(groups, kept, given, what=f"Data-Juicer ({where})"), found.numbers)

    return call


OPERATORS: Mapping[type[ExperienceOperator], Callable[[Sequence[RolloutGroup], Any, Given], Result]] = {
    RewardFilter: reward_filter,
    RewardStdFilter: reward_std_filter,
    DapoDynamicSampling: dapo_dynamic_sampling,
    InvalidRewardFilter: invalid_reward_filter,
    RewardShapingMapper: reward_shaping_mapper,
    PassRateCalculator: pass_rate_calculator,
}


def _made(
    chosen: ExperienceOperator, place: int, service: DataJuicer | None
) -> Callable[[list[RolloutGroup], Given], Result]:
    """An operator, ready to be called."""
    if isinstance(chosen, FunctionOperator):
        return _function(chosen, place)
    if isinstance(chosen, ExternalOperator):
        return _data_juicer(chosen, place, service)
    found = OPERATORS[type(chosen)]
    return lambda groups, given: found(groups, chosen, given)


def _own_texts(groups: Sequence[RolloutGroup]) -> list[list[str]]:
    return [["" if response.text is None else str(response.text) for response in item.responses] for item in groups]


def _size(groups: Sequence[RolloutGroup]) -> int:
    return sum(len(item.responses) for item in groups)


def _reward(item: RolloutGroup, place: int, given: Given) -> float:
    return item.rewards[place] + given.penalty(item.responses[place])


def _rewards(item: RolloutGroup, given: Given) -> list[float]:
    return [_reward(item, place, given) for place in range(len(item.responses))]


def _kept(groups: Sequence[RolloutGroup], keeps: Callable[[RolloutGroup, int], bool]) -> list[RolloutGroup]:
    """The groups with the responses that are kept, without those that have none."""
    result = []
    for item in groups:
        places = [place for place in range(len(item.responses)) if keeps(item, place)]
        if places:
            result.append(item if len(places) == len(item.responses) else _part(item, places))
    return result


def _part(item: RolloutGroup, places: Sequence[int]) -> RolloutGroup:
    """A group with some of its responses."""
    return dataclasses.replace(
        item,
        responses=[item.responses[place] for place in places],
        rewards=[item.rewards[place] for place in places],
        scores=[item.scores[place] for place in places] if item.scores else (),
    )


def _with_rewards(item: RolloutGroup, rewards: Sequence[float]) -> RolloutGroup:
    """A group with other rewards; the parts that they were made of stay."""
    if list(rewards) == list(item.rewards):
        return item
    scores = [
        dataclasses.replace(score, total=new) for score, new in zip(item.scores, rewards, strict=bool(item.scores))
    ]
    return dataclasses.replace(item, rewards=list(rewards), scores=scores)


def _with_infos(item: RolloutGroup, rows: Sequence[Mapping[str, Any]]) -> RolloutGroup:
    """A group whose responses have the ``info`` of rows, one a response."""
    responses = [
        response if row.get("info", response.info) == response.info else dataclasses.replace(response, info=row["info"])
        for response, row in zip(item.responses, rows, strict=True)
    ]
    return dataclasses.replace(item, responses=responses)


def _outcome(item: RolloutGroup, place: int, metric: str, given: Given) -> float:
    """The number that says whether a response is right; its reward if it has no such number."""
    score = item.scores[place] if item.scores else None
    if score is not None and metric in _RIGHT and score.correct is not None:
        return float(score.correct)
    found = None if score is None else _component(score, metric)
    return _reward(item, place, given) if found is None else found


def _component(score: Score, name: str) -> float | None:
    return next((value for key, value in score.components.items() if name in (key, key.partition("/")[2])), None)


def _shaped(item: RolloutGroup, place: int, reward: float, rules: Sequence[ShapingRule]) -> float:
    for rule in rules:
        value = None if rule.stats_key is None else _statistic(item, place, rule.stats_key)
        if value is not None:
            reward = _OPERATIONS[rule.op_type](reward, rule.weight * value)
    return reward


_OPERATIONS: Mapping[str, Callable[[float, float], float]] = {
    "ADD": lambda reward, value: reward + value,
    "SUB": lambda reward, value: reward - value,
    "MUL": lambda reward, value: reward * value,
    "DIV": lambda reward, value: reward / value if value else reward,
}


def _statistic(item: RolloutGroup, place: int, name: str) -> float | None:
    """A number of a response: in its info, of its rewards, or of what its agent counted; None if there is none."""
    response = item.responses[place]
    value = response.info.get(name)
    if isinstance(value, int | float):
        return float(value)
    found = _component(item.scores[place], name) if item.scores else None
    return response.counts.get(name) if found is None else found
