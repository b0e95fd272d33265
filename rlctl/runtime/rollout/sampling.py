"""From logits to tokens: penalties, temperature, min-p, top-k, top-p, the draw, and the log-probs that go with it.

Rows of one batch may sample differently. ``SamplingTable`` holds the distinct settings of a call as tensors of one row
each; ``rules`` gives the settings of the rows at hand, which broadcast when there is only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rlctl.runtime.types import Sampling

_OFF = float("-inf")


class SamplingTable:
    """The distinct samplings of a call, as tensors with one row per sampling."""

    def __init__(self, samplings: Sequence[Sampling], *, vocab_size: int, device: torch.device) -> None:
        self.distinct = list(dict.fromkeys(samplings))
        self.row_of = {sampling: row for row, sampling in enumerate(self.distinct)}
        self.any_penalty = any(s.repetition_penalty != 1 for s in self.distinct)
        self.any_min_tokens = any(s.min_tokens and not s.ignore_eos for s in self.distinct)
        self.any_greedy = any(s.temperature == 0 for s in self.distinct)
        self.all_greedy = all(s.temperature == 0 for s in self.distinct)
        self.any_scaled = any(s.temperature not in (0, 1) for s in self.distinct)
        self.largest_k = max((min(s.top_k, vocab_size) for s in self.distinct), default=-1)
        self.any_min_p = any(s.min_p > 0 for s in self.distinct)
        self.any_top_p = any(s.top_p < 1 for s in self.distinct)

        def column(values: list[float] | list[int], dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype, device=device)[:, None]

        self.temperature = column([s.temperature or 1.0 for s in self.distinct], torch.float32)
        self.greedy = column([int(s.temperature == 0) for s in self.distinct], torch.bool)
        self.top_k = column([min(s.top_k, vocab_size) for s in self.distinct], torch.int64)
        self.min_p = column([s.min_p for s in self.distinct], torch.float32)
        self.top_p = column([s.top_p for s in self.distinct], torch.float32)
        self.penalty = column([s.repetition_penalty for s in self.distinct], torch.float32)
        self.min_tokens = column([s.min_tokens for s in self.distinct], torch.int64)
        self.max_tokens = column([s.max_tokens for s in self.distinct], torch.int64)
        self.stops = torch.zeros(len(self.distinct), vocab_size, dtype=torch.bool, device=device)
        for row, sampling in enumerate(self.distinct):
            if not sampling.ignore_eos:
                self.stops[row, list(sampling.stop_token_ids)] = True

        self._only = self._select(torch.zeros(1, dtype=torch.int64, device=device)) if len(self.distinct) == 1 else None

    def rules(self, rows: torch.Tensor) -> Rules:
        """Return the settings of batch rows that use the samplings ``rows`` (int64 [batch])."""
        return self._only or self._select(rows)

    def _select(self, rows: torch.Tensor) -> Rules:
        return Rules(
            table=self,
            rows=rows,
            temperature=self.temperature.index_select(0, rows),
            greedy=self.greedy.index_select(0, rows),
            top_k=self.top_k.index_select(0, rows),
            min_p=self.min_p.index_select(0, rows),
            top_p=self.top_p.index_select(0, rows),
            penalty=self.penalty.index_select(0, rows),
            min_tokens=self.min_tokens.index_select(0, rows),
            max_tokens=self.max_tokens.index_select(0, rows),
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of one batch: columns of [batch, 1], or [1, 1] where all rows sample alike."""

    table: SamplingTable
    rows: torch.Tensor
    temperature: torch.Tensor
    greedy: torch.Tensor
    top_k: torch.Tensor
    min_p: torch.Tensor
    top_p: torch.Tensor
    penalty: torch.Tensor
    min_tokens: torch.Tensor
    max_tokens: torch.Tensor

    def finished(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return bool [batch]: whether each drawn token ends its response, which has ``lengths`` tokens with it."""
        return self.table.stops[self.rows, tokens] | (lengths >= self.max_tokens[:, 0])


def draw(
    logits: torch.Tensor,
    uniforms: torch.Tensor,
    rules: Rules,
    *,
    generated: torch.Tensor,
    seen: torch.Tensor | None,
    never: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token per row.

    Args:
        logits: [batch, vocab], any float type.
        uniforms: float64 [batch] in [0, 1).
        rules: how each row samples.
        generated: int64 [batch], response tokens drawn before this one.
        seen: bool [batch, vocab], the tokens of prompt and response so far; needed for a repetition penalty only.
        never: int64, tokens that are never drawn.

    Returns:
        The tokens, int64 [batch], and their log-probs, float32 [batch], under the temperature-scaled softmax before
        penalties, min-p, top-k and top-p (temperature 1 where the row is greedy).
    """
    logits = logits.float()
    scaled = logits / rules.temperature if rules.table.any_scaled else logits
    log_probs = torch.log_softmax(scaled, dim=-1)
    allowed = _allowed(logits, log_probs, rules, generated=generated, seen=seen, never=never)
    if rules.table.all_greedy:
        tokens = allowed.argmax(dim=-1)
    else:
        tokens = inverse_cdf(torch.softmax(allowed, dim=-1), uniforms)
        if rules.table.any_greedy:
            tokens = torch.where(rules.greedy[:, 0], allowed.argmax(dim=-1), tokens)
    return tokens, log_probs.gather(1, tokens[:, None])[:, 0]


def _allowed(
    logits: torch.Tensor,
    log_probs: torch.Tensor,
    rules: Rules,
    *,
    generated: torch.Tensor,
    seen: torch.Tensor | None,
    never: torch.Tensor | None,
) -> torch.Tensor:
    """Return the scores that are drawn from: -inf where a token cannot be."""
    table = rules.table
    scores = log_probs
    if table.any_penalty or table.any_min_tokens:
        scores = logits
        if table.any_penalty:
            assert seen is not None
            scores = penalise(scores, seen, rules.penalty)
        if table.any_min_tokens:
            too_early = generated[:, None] < rules.min_tokens
            scores = scores.masked_fill(too_early & table.stops[rules.rows], _OFF)
        scores = scores / rules.temperature
    if never is not None:
        scores = scores.index_fill(1, never, _OFF)
    if table.any_min_p:
        scores = keep_min_p(scores, rules.min_p)
    if table.largest_k > 0:
        scores = keep_top_k(scores, rules.top_k, largest=table.largest_k)
    if table.any_top_p:
        scores = keep_top_p(scores, rules.top_p)
    return scores


def penalise(logits: torch.Tensor, seen: torch.Tensor, penalty: torch.Tensor) -> torch.Tensor:
    """Divide the positive and multiply the negative logits of seen tokens (Keskar et al. 2019, CTRL, section 4.1)."""
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def keep_min_p(scores: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Keep tokens of at least ``min_p`` ([batch, 1] or [1, 1]) times the best one's probability (Nguyen et al. 2025, min-p)."""
    probs = scores.softmax(dim=-1)
    return scores.masked_fill(probs < min_p * probs.amax(dim=-1, keepdim=True), _OFF)


def keep_top_k(scores: torch.Tensor, top_k: torch.Tensor, *, largest: int) -> torch.Tensor:
    """Keep the ``top_k`` ([batch, 1] or [1, 1]; -1 is off) best scores of each row, and those equal to the last of them."""
    best = scores.topk(largest, dim=-1).values
    last = best.gather(1, (top_k.clamp(min=1) - 1).expand(len(scores), 1))
    return scores.masked_fill((scores < last) & (top_k > 0), _OFF)


def keep_top_p(scores: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Keep the fewest best tokens whose probability reaches ``top_p``, one at least (Holtzman et al. 2020, nucleus sampling)."""
    ascending, order = scores.sort(dim=-1)
    removed = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - top_p
    removed[:, -1] = False
    removed = (removed & (top_p < 1)).scatter(1, order, removed & (top_p < 1))
    return scores.masked_fill(removed, _OFF)


def inverse_cdf(probs: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return the first token at which the cumulated probability passes ``uniforms``; never one of probability 0."""
    cumulated = probs.cumsum(dim=-1, dtype=torch.float64)
    targets = uniforms[:, None] * cumulated[:, -1:]
    # A row of NaN passes nowhere; the caller refuses its log-prob, the index must only be a token.
    return torch.searchsorted(cumulated, targets, right=True)[:, 0].clamp(max=probs.shape[-1] - 1)
