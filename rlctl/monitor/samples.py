"""The responses that a run has shown: read when somebody looks, sorted, filtered, and followed over the steps."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson

from rlctl.common.regular_files import LONGEST_LINE, open_regular
from rlctl.monitor.courses import Courses, courses
from rlctl.runtime.reporting.sample_files import EVALUATION, STEP, files_of, path_of

__all__ = ["EVALUATION", "STEP"]

UNLIKELY = math.log(0.01)
"""A token that was drawn with a lower log-prob is marked."""
MISMATCH = math.log(1.5)
"""A token is marked whose log-probs by rollout and trainer are further apart."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a response."""

    text: str
    log_prob: float | None
    """Of the engine that drew it."""
    trainer_log_prob: float | None = None

    @property
    def unlikely(self) -> bool:
        """Whether it was drawn though it hardly ever is."""
        return self.log_prob is not None and self.log_prob < UNLIKELY

    @property
    def mismatch(self) -> float:
        """How far the trainer's log-prob is from the engine's."""
        if self.log_prob is None or self.trainer_log_prob is None:
            return 0.0
        return abs(self.trainer_log_prob - self.log_prob)

    @property
    def mismatched(self) -> bool:
        """Whether that is too far."""
        return self.mismatch > MISMATCH


@dataclass(frozen=True, slots=True)
class Turn:
    """A model call of an agent."""

    inserted: str
    """What the agent inserted before it: not trained on."""
    generated: str
    reward: float | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that an agent called, with its arguments as the model wrote them."""

    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """A message of an agent's conversation."""

    role: str
    text: str
    calls: tuple[Call, ...] = ()
    tokens: int | None = None
    """Generated in it, which are trained on; None of a message that the model did not write."""
    inserted: int | None = None
    """Tokens before the generated ones that the model read and is not trained on."""
    reward: float | None = None
    """Of the turn that wrote it; None of a message that the model did not write, and if no turn has a reward but 0."""
    starts_row: bool = False
    """Whether training reads it as a new row, as the tokens before it are not a prefix of what the model read."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response of a group."""

    text: str
    reward: float
    components: dict[str, float]
    """By reward and by what each says beside its score."""
    length: int | None = None
    """In tokens."""
    finish: str = ""
    """Why it ended: ``stop``, or ``length`` where it was cut off."""
    advantage: float | None = None
    """The mean over its tokens; None where it is not trained on."""
    correct: bool | None = None
    error: str = ""
    """Why a reward failed."""
    version: int | None = None
    """Of the weights that drew it."""
    tokens: tuple[Token, ...] = field(default=(), repr=False)
    """Empty where they are not told, or are not the text's."""
    turns: tuple[Turn, ...] = field(default=(), repr=False)
    """Of an agent's trajectory."""
    failure: str = ""
    """Why the agent failed."""
    mismatch: float | None = None
    """Between rollout and trainer, the mean over its tokens; None where the trainer's log-probs are not told."""
    messages: tuple[Message, ...] = field(default=(), repr=False)
    """Of an agent: its conversation after the prompt."""
    counts: dict[str, float] = field(default_factory=dict)
    """What an agent counted, such as calls of tools."""

    @property
    def truncated(self) -> bool:
        return self.finish == "length"


@dataclass(frozen=True, slots=True)
class Group:
    """A prompt and its responses; of a stage that draws none, a sequence that it trains on."""

    prompt: str
    answer: str
    responses: tuple[Response, ...]
    weight_version: int | None = None
    prompt_id: int | None = None
    """The prompt's number in its data, the same whenever it comes."""
    source: str = ""
    shown_of: int | None = None
    """How many responses the group has, if ``responses`` are not all of them."""

    @property
    def mean_reward(self) -> float:
        return fmean(response.reward for response in self.responses) if self.responses else 0.0

    @property
    def is_equal(self) -> bool:
        """Whether all responses have one reward, so that nothing is learned from them."""
        is_whole = self.shown_of in (None, len(self.responses))
        return is_whole and len({response.reward for response in self.responses}) == 1 and len(self.responses) > 1


@dataclass(frozen=True)
class SampleIndex:
    """The samples of a run, by stage, kind (``STEP``, ``EVALUATION``) and step."""

    folder: Path
    """The run's."""
    _heads: dict[Path, tuple[int, dict[str, Any]]] = field(default_factory=dict, repr=False, compare=False)
    """The first lines that were read, each with when its file was written."""

    def steps(self, stage: str, kind: str = STEP) -> list[int]:
        """The steps whose samples are there, in order."""
        return [step for known, step in files_of(self.folder, stage) if known == kind]

    def groups(self, stage: str, step: int, kind: str = STEP) -> list[Group]:
        """The groups shown of a step; none where none were, or where they cannot be read any more."""
        return [group for shown in self._lines(stage, kind, step, first=1) if (group := _group(shown)) is not None]

    def follow(self, stage: str, kind: str, source: str, prompt_id: int) -> list[tuple[int, Group]]:
        """A prompt over the steps that show it."""
        found = []
        for step in self.steps(stage, kind):
            head = self._head(stage, kind, step)
            if any(
                (told.get("source"), told.get("prompt_id")) == (source, prompt_id) for told in _dicts(head, "groups")
            ):
                groups = self.groups(stage, step, kind)
                found += [(step, group) for group in groups if (group.source, group.prompt_id) == (source, prompt_id)]
        return found

    def courses(self, stage: str, kind: str = STEP) -> Courses:
        """The rewards of every prompt over the steps that show it."""
        return courses((step, self._head(stage, kind, step)) for step in self.steps(stage, kind))

    def worst(self, stage: str, kind: str = STEP) -> list[tuple[int, Group]]:
        """The groups of the worst responses of all steps, each with those responses only; the worst is first."""
        wanted: dict[tuple[int, int], list[int]] = {}
        for step, number, place in self.courses(stage, kind).worst():
            wanted.setdefault((step, number), []).append(place)
        read: dict[int, list[Group]] = {}
        found = []
        for (step, number), places in wanted.items():
            if step not in read:
                read[step] = self.groups(stage, step, kind)
            if number < len(read[step]):
                group = read[step][number]
                kept = tuple(group.responses[place] for place in places if place < len(group.responses))
                found.append((step, replace(group, responses=kept, shown_of=len(group.responses))))
        return found

    def _head(self, stage: str, kind: str, step: int) -> dict[str, Any]:
        path = path_of(self.folder, stage, kind, step)
        try:
            written = path.stat().st_mtime_ns
        except OSError:
            return {}
        if self._heads.get(path, (None,))[0] != written:
            self._heads[path] = written, next(self._lines(stage, kind, step), {})
        return self._heads[path][1]

    def _lines(self, stage: str, kind: str, step: int, *, first: int = 0) -> Iterator[dict[str, Any]]:
        try:
            with open_regular(path_of(self.folder, stage, kind, step)) as file:
                lines = iter(lambda: file.readline(LONGEST_LINE), b"")
                for number, line in enumerate(lines):
                    if number >= first and isinstance(told := orjson.loads(line), dict):
                        yield told
        except (OSError, ValueError):
            return


def _dicts(told: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of mappings; what is none in it is an empty one, and what is no list has none."""
    found = told.get(name)
    return [each if isinstance(each, dict) else {} for each in found] if isinstance(found, list) else []


def _list(told: dict[str, Any], name: str) -> list[Any]:
    found = told.get(name)
    return found if isinstance(found, list) else []


def _real(value: object) -> float | None:
    """A number; None for what is none."""
    return float(value) if isinstance(value, (int, float)) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _group(shown: dict[str, Any]) -> Group | None:
    """A group as it was written; None for one that is damaged."""
    if "responses" not in shown:  # sft and dpo show what they train on
        fields = [f"{name}: {value}" for name, value in shown.items() if name not in ("sequence", "prompt")]
        return Group(str(shown.get("sequence", shown.get("prompt", ""))), "\n".join(fields), ())
    texts = shown["responses"]
    if not isinstance(texts, list):
        return None
    missing: list[Any] = [{}] * len(texts)
    rewards = [*_list(shown, "rewards"), *[None] * len(texts)]
    components, details = ([*_dicts(shown, name), *missing] for name in ("components", "details"))
    parts = zip(texts, rewards, components, details, strict=False)
    answer = shown.get("answer")
    return Group(
        prompt=str(shown.get("prompt", "")),
        answer="" if answer is None else str(answer),
        responses=tuple(_response(*each) for each in parts),
        weight_version=_whole(shown.get("weight_version")),
        prompt_id=_whole(shown.get("prompt_id")),
        source=str(shown.get("source", "")),
    )


def _response(told: object, reward: object, components: dict[str, Any], detail: dict[str, Any]) -> Response:
    text, value = str(told), _real(reward)
    drawn, trained = (list(map(_real, _list(detail, name))) for name in ("rollout_log_probs", "trainer_log_probs"))
    spans = [size for size in _list(detail, "spans") if isinstance(size, int)]
    apart = [abs(b - a) for a, b in zip(drawn, trained, strict=False) if a is not None and b is not None]
    return Response(
        text=text,
        reward=math.nan if value is None else value,
        components={name: score for name, told in components.items() if (score := _real(told)) is not None},
        length=_whole(detail.get("length")),
        finish=str(detail.get("stop") or detail.get("finish") or ""),
        turns=tuple(_turns(detail)),
        failure=str(detail.get("failure") or ""),
        advantage=_real(detail.get("advantage")),
        correct=detail.get("correct"),
        error=str(detail.get("error") or ""),
        version=_whole(detail.get("version")),
        tokens=tuple(_tokens(text, spans, drawn, trained)),
        mismatch=fmean(apart) if apart else None,
        messages=tuple(_messages(detail)),
        counts={name: float(count) for name, count in _mapping(detail, "counts").items() if _real(count) is not None},
    )


def _mapping(told: dict[str, Any], name: str) -> dict[str, Any]:
    found = told.get(name)
    return found if isinstance(found, dict) else {}


def _messages(detail: dict[str, Any]) -> Iterator[Message]:
    """The conversation of an agent; the turn of each message that the model wrote says how many tokens it generated."""
    turns = iter(_list(detail, "turns"))
    rewards = list(map(_real, _list(detail, "turn_rewards")))
    earned = iter(rewards if any(rewards) else [])
    for told in _dicts(detail, "messages"):
        role = str(told.get("role", ""))
        content = told.get("content")
        text = content if isinstance(content, str) else "" if content is None else orjson.dumps(content).decode()
        turn = next(turns, None) if role == "assistant" else None
        known = turn if isinstance(turn, list) and len(turn) == 3 else [None, None, False]
        calls = tuple(_call(each) for each in _dicts(told, "tool_calls"))
        reward = next(earned, None) if role == "assistant" else None
        yield Message(role, text, calls, _whole(known[0]), _whole(known[1]), reward, known[2] is True)


def _call(told: dict[str, Any]) -> Call:
    function = _mapping(told, "function") or told
    arguments = function.get("arguments", "")
    return Call(
        str(function.get("name", "")), arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    )


def _turns(detail: dict[str, Any]) -> Iterator[Turn]:
    """The turns of a trajectory whose texts are known."""
    texts = [str(each[1]) for each in _list(detail, "segments") if isinstance(each, list) and len(each) == 2]
    rewards = [*map(_real, _list(detail, "turn_rewards")), *[None] * len(texts)]
    pairs = zip(texts[::2], texts[1::2], strict=False)
    for (inserted, generated), reward in zip(pairs, rewards, strict=False):
        yield Turn(inserted, generated, reward)


def _tokens(
    text: str, spans: Sequence[int], drawn: Sequence[float | None], trained: Sequence[float | None]
) -> Iterator[Token]:
    start = 0
    for place, size in enumerate(spans):
        log_prob = drawn[place] if place < len(drawn) else None
        yield Token(text[start : start + size], log_prob, trained[place] if place < len(trained) else None)
        start += size


# one response a row


@dataclass(frozen=True, slots=True)
class Row:
    """A response where it stands in a list."""

    step: int
    group: Group
    response: Response


SORTS: dict[str, Callable[[Row], float]] = {
    "reward": lambda row: _number(row.response.reward),
    "length": lambda row: -_number(row.response.length),
    "advantage": lambda row: _number(row.response.advantage),
    "mismatch": lambda row: -_number(row.response.mismatch),
}
"""What comes first: the lowest reward, the longest, the lowest advantage, the highest mismatch; what has none comes last."""


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def rows_of(groups: Sequence[tuple[int, Group]], *, sort: str | None = None, wanted: str = "") -> list[Row]:
    """The responses of groups, each with its step, that a filter lets pass; in the order of the groups, or sorted."""
    passes = filter_of(wanted)
    rows = [Row(step, group, response) for step, group in groups for response in group.responses]
    rows = [row for row in rows if passes(row)]
    if sort is None:
        return rows
    by = SORTS[sort]
    return sorted(rows, key=lambda row: (math.isnan(by(row)), by(row)))


def worst(rows: Sequence[Row]) -> int | None:
    """The place of the response with the lowest reward, of several the longest; None where there is none."""
    places = [place for place, row in enumerate(rows) if not math.isnan(row.response.reward)]
    return min(
        places, key=lambda place: (rows[place].response.reward, -(rows[place].response.length or 0)), default=None
    )


_COMPARED = re.compile(r"(reward|length|advantage|mismatch)(<=|>=|<|>|=)(-?[\d.]+(?:e-?\d+)?)")
_SAYS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "=": math.isclose,
}  # fmt: skip
_ARE: dict[str, Callable[[Response], bool]] = {
    "truncated": lambda response: response.truncated,
    "failed": lambda response: bool(response.error),
    "right": lambda response: response.correct is True,
    "wrong": lambda response: response.correct is False,
}


def filter_of(wanted: str) -> Callable[[Row], bool]:
    """Read a filter: words that all have to hold.

    ``truncated``, ``failed``, ``right``, ``wrong``; ``reward<0.5``, also length, advantage, mismatch; any other word is
    looked for in the prompt and the response, whatever its case.
    """
    tests: list[Callable[[Row], bool]] = [_test(word) for word in wanted.split()]
    return lambda row: all(test(row) for test in tests)


def _test(word: str) -> Callable[[Row], bool]:
    if word in _ARE:
        return lambda row: _ARE[word](row.response)
    found = _COMPARED.fullmatch(word)
    if found is not None:
        name, says = found[1], _SAYS[found[2]]
        try:
            limit = float(found[3])
        except ValueError:
            limit = math.nan
        return lambda row: getattr(row.response, name) is not None and says(getattr(row.response, name), limit)
    text = word.casefold()
    return lambda row: text in row.response.text.casefold() or text in row.group.prompt.casefold()
