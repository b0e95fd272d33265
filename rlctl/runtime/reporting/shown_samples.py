"""The responses of a step that people are shown: which, and what is told of each. ``sample_files`` writes them down."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from rlctl.runtime.data.tokenizer import decode_all
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.types import Prompt, Response, Sample

MOST_GROUPS, MOST_TOKENS = 8, 1 << 14
"""Of a step. Its first group is shown whatever its length."""
MOST_MARKED = 1 << 16
"""Tokens of a group; a longer one is shown without numbers of its tokens."""
DIGITS = 3
"""Of log-probs."""
MOST_BYTES = 4
"""Of a character, and so the most tokens that one is made of."""


def chosen(groups: Sequence[RolloutGroup]) -> list[int]:
    """The groups that are shown, by their place: the one with the lowest reward, then always the same prompts before others.

    So the worst is there, and a prompt that is shown once is shown again when it comes again.
    """
    order = sorted(range(len(groups)), key=lambda place: zlib.crc32(b"%d" % groups[place].prompt.index))
    worst = min(order, key=lambda place: min(groups[place].rewards, default=0.0), default=0)
    order.sort(key=lambda place: place != worst)
    found: list[int] = []
    tokens = 0
    for place in order[:MOST_GROUPS]:
        tokens += _tokens(groups[place])
        if found and tokens > MOST_TOKENS:
            break
        found.append(place)
    return sorted(found)


def _tokens(group: RolloutGroup) -> int:
    return sum(len(response.token_ids) for response in group.responses)


def shown_group(
    prompt: Prompt,
    texts: Sequence[str],
    rewards: Sequence[float],
    scores: Sequence[Score],
    responses: Sequence[Response] = (),
    *,
    spans: Callable[[Response, str], list[int] | None] = lambda response, text: None,
    tokenizer: Any = None,
) -> dict[str, Any]:
    """What is told of a group; ``spans`` gives the characters of every token of a response.

    Of each response under ``details``: its length and why it ended, the log-probs of its tokens by the engine that drew them,
    and the characters of each token where they make up the text. Of a trajectory also all token ids and the weight version of
    each turn: enough to compute the same log-probs again.
    """
    group: dict[str, Any] = {
        "prompt_id": prompt.index,
        "source": prompt.source,
        "prompt": prompt.text,
        "answer": prompt.answer,
        "responses": list(texts),
        "rewards": list(rewards),
        "components": [score.components for score in scores],
    }
    marks = sum(len(response.token_ids) for response in responses) <= MOST_MARKED
    details: list[dict[str, Any]] = []
    for response, text in zip(responses, texts, strict=bool(responses)):
        detail: dict[str, Any] = {"length": len(response.token_ids), "finish": response.finish_reason}
        detail |= {"version": response.weight_version}
        if response.turns:
            detail["turns"] = [[turn.tokens, len(turn.inserted), turn.starts_row] for turn in response.turns]
            detail |= {"messages": list(response.messages), "counts": dict(response.counts)}
            detail |= {"turn_rewards": [turn.reward for turn in response.turns], "stop": response.stop}
            parts = _parts(response)
            if marks:
                detail["versions"] = [turn.weight_version for turn in response.turns]
                detail["token_ids"] = [list(map(int, ids)) for _, ids in parts]
            if tokenizer is not None:
                texts_of_parts = decode_all(tokenizer, [ids for _, ids in parts], special=True)
                detail["segments"] = [[own, part] for (own, _), part in zip(parts, texts_of_parts, strict=True)]
        if response.failure:
            detail["failure"] = response.failure
        if marks:
            detail |= {"rollout_log_probs": rounded(response.log_probs), "spans": spans(response, text)}
        details.append(detail)
    for detail, score in zip(details, scores, strict=False):
        told = {"correct": score.correct, "error": score.error}
        detail |= {name: value for name, value in told.items() if value is not None}
    if responses:
        group |= {"details": details, "weight_version": responses[0].weight_version}
    return group


def _parts(response: Response) -> list[tuple[bool, Sequence[int]]]:
    """The tokens of a trajectory, row after row: each part with whether the model generated it, so that it is trained on."""
    parts: list[tuple[bool, Sequence[int]]] = []
    begin = 0
    for turn in response.turns:
        parts += [(False, turn.inserted), (True, response.token_ids[begin : begin + turn.tokens])]
        begin += turn.tokens
    return parts


def texts_of(responses: Sequence[Response], tokenizer: Any) -> list[str]:
    """What is shown of each, special tokens too."""
    return decode_all(tokenizer, [response.token_ids for response in responses], special=True)


def rounded(values: Iterable[float]) -> list[float]:
    """Numbers as they are written down."""
    numbers: list[float] = np.asarray(values, dtype=np.float64).round(DIGITS).tolist()
    return numbers


def add_training(details: Sequence[dict[str, Any]], samples: Sequence[Sequence[Sample]], *, trainer: bool) -> None:
    """Say of each response what training makes of it: its advantage, and the trainer's log-probs if it has them.

    ``samples`` are those of each response; only an agent's trajectory has several, or inserted tokens among its own.
    """
    for detail, rows in zip(details, samples, strict=True):
        if all("advantages" in sample.columns for sample in rows):
            counted = torch.cat([sample.columns["advantages"][sample.mask] for sample in rows])
            detail["advantage"] = round(float(counted.mean()), 4) if len(counted) else None
        if trainer and "rollout_log_probs" in detail and "turns" not in detail:
            (sample,) = rows
            of_response = slice(len(sample) - detail["length"], None)
            found = sample.columns["old_log_probs"][of_response]
            if bool(found.any()):  # of a response that is not trained on they are not computed
                detail["trainer_log_probs"] = rounded(found.numpy())


def spans_by(tokenizer: Any, groups: Iterable[RolloutGroup] = ()) -> Callable[[Response, str], list[int] | None]:
    """Gives the characters of every token of a response, None where the tokens do not make up its text one by one.

    The tokens of ``groups`` are decoded at once, which takes hardly longer than those of one response.
    """
    marked = [group for group in groups if _tokens(group) <= MOST_MARKED]
    if tokens_at_once := [token for group in marked for response in group.responses for token in response.token_ids]:
        _known(tokenizer, tokens_at_once)

    def spans(response: Response, text: str) -> list[int] | None:
        tokens = list(map(int, response.token_ids))
        pieces = _pieces(tokenizer, tokens)
        whole = "".join(pieces)
        if "\ufffd" in whole:
            pieces = _whole_characters(tokenizer, tokens, pieces)
            whole = "".join(pieces)
        sizes = list(map(len, pieces))
        if whole == f" {text}":  # a leading space that decoding the whole leaves out
            whole, sizes[0] = text, sizes[0] - 1
        return sizes if whole == text else None

    return spans


def _whole_characters(tokenizer: Any, tokens: Sequence[int], pieces: Sequence[str]) -> list[str]:
    """The pieces, where a character of several tokens belongs to the last of them."""
    found: list[str] = []
    waiting: list[int] = []
    for token, piece in zip(tokens, pieces, strict=True):
        waiting.append(token)
        part = piece if len(waiting) == 1 else str(tokenizer.decode(waiting))
        if "\ufffd" in part and len(waiting) < MOST_BYTES:
            found.append("")
            continue
        found.append(part)
        waiting = []
    return found


_KNOWN: WeakKeyDictionary[Any, dict[int, str]] = WeakKeyDictionary()
"""Texts of single tokens, by tokenizer."""


def _pieces(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """The text of each token, with the space before it that decoding a token alone leaves out."""
    try:
        return list(map(_KNOWN.get(tokenizer, {}).__getitem__, tokens))
    except KeyError:
        return list(map(_known(tokenizer, tokens).__getitem__, tokens))


def _known(tokenizer: Any, tokens: Sequence[int]) -> dict[int, str]:
    """The texts of single tokens, these among them."""
    known = _KNOWN.setdefault(tokenizer, {})
    new = list(set(tokens).difference(known))
    if new:
        names = getattr(tokenizer, "convert_ids_to_tokens", lambda ids: [""] * len(ids))(new)
        for token, name, text in zip(
            new, names, decode_all(tokenizer, [[one] for one in new], special=True), strict=True
        ):
            spaced = str(name).startswith("\u2581") and not text.startswith(" ")
            known[token] = f" {text}" if spaced else text
    return known


@dataclass
class Evaluated:
    """Chooses, of all answers of an evaluation, those that are shown; ``tokenizer`` is of the responses."""

    tokenizer: Any
    _kept: dict[str, list[tuple[RolloutGroup, Sequence[str]]]] = field(default_factory=dict)
    """By source, with the texts where there are only texts."""

    def add(self, source: str, answered: Sequence[RolloutGroup], texts: Sequence[Sequence[str]]) -> None:
        """Further answers of a source; ``texts`` are read where the responses have no tokens."""
        known = self._kept.get(source, [])
        known = known + list(zip(answered, texts, strict=True))
        self._kept[source] = [known[place] for place in chosen([group for group, _ in known])]

    def take(self) -> list[dict[str, Any]]:
        """The groups that are shown, which are forgotten."""
        kept, self._kept = self._kept, {}
        return [self._shown(*each) | {"source": source} for source, groups in kept.items() for each in groups]

    def _shown(self, group: RolloutGroup, texts: Sequence[str]) -> dict[str, Any]:
        if group.responses:
            texts = texts_of(group.responses, self.tokenizer)
        spans = spans_by(self.tokenizer)
        return shown_group(
            group.prompt, texts, group.rewards, group.scores, group.responses, spans=spans, tokenizer=self.tokenizer
        )
