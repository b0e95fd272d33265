"""Prompts drawn by how often they are likely to be answered right: an estimate for every row, moved by the rewards of a run.

Each row has a pass rate p ~ Beta(alpha, beta), from two columns that say how often a weak and a strong model pass it. After a
step, with s the mean reward of a row drawn, m the weight of its rewards, and c where the policy stands between the two models::

    c      = 0.9 c + 0.1 (mean s - mean weak) / (mean strong - mean weak + 1e-6)     means over the rows drawn
    p~     = s where the row was drawn, else weak + c (strong - weak), within 0 and 1
    alpha  = (1 - lamb) alpha + lamb + (1 - rho) m s + rho m p~             beta alike, with 1 - s and 1 - p~

and a row is drawn by softmax(-|target - p| / tau), or the nearest ones where tau is 0.

Source: Trinity-RFT's DifficultyBasedSelector and InterpolationBetaPREstimator (buffer/selector); the same numbers and draws.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from rlctl.common.errors import RunError, nearest
from rlctl.common.messages.reasons import said

KEPT = 0.9
"""Share of the old estimate of where the policy stands."""
WRONG = 0.25
"""Mean error of the interpolated pass rates from which ``adaptive_rho`` trusts them half as much."""


@dataclass(frozen=True, slots=True)
class Pacing:
    """``data.curriculum.args`` of an order by difficulty."""

    target_reward: float = 1.0
    """Rows whose pass rate is near this are drawn."""
    tau: float = 1.0
    do_sample: bool = False
    """Whether pass rates are drawn from their distributions, or are the means of these."""
    m: float = 16
    lamb: float = 0.2
    rho: float = 0.2
    adaptive_rho: bool = False

    @classmethod
    def of(cls, args: Mapping[str, Any]) -> Pacing:
        """Read the arguments.

        Raises:
            RunError: one is not known, or is no number.
        """
        known = {field.name: field.default for field in fields(cls)}
        for name, value in args.items():
            if name not in known:
                hint = nearest(name, known) or said("expected one of {names}", names=", ".join(known))
                raise RunError(said("data.curriculum.args has no argument {name}", name=name), hint=hint)
            truth = isinstance(known[name], bool)
            if isinstance(value, bool) != truth or not isinstance(value, int | float):
                wanted = "true or false" if truth else "a number"
                raise RunError(
                    said(
                        "data.curriculum.args.{name} is {value!r}; expected {wanted}",
                        name=name,
                        value=value,
                        wanted=wanted,
                    )
                )
        return cls(**args)


class DifficultyCursor:
    """What is drawn next, and what the rewards said so far.

    Args:
        features: pass rates of a weak and of a strong model, float64 [rows, 2].
        pacing: how it draws.
        seed: of the draws.
    """

    def __init__(self, features: np.ndarray, pacing: Pacing, *, seed: int) -> None:
        self.rows = len(features)
        self._weak, self._strong = features.T
        self._pacing = pacing
        self._seed = seed
        self._drawn = 0
        self._stands: float | None = None
        self._rho = pacing.rho
        self._beliefs = np.ones((2, self.rows))
        """alpha and beta."""

    @property
    def epoch(self) -> int:
        """As many draws as there are rows."""
        return self._drawn // self.rows

    @property
    def left(self) -> int:
        """Rows that can be drawn at once: all of them, at any time."""
        return self.rows

    def skip_epoch(self) -> None:
        """There is no end of an epoch to skip to."""

    def take(self, count: int) -> list[int]:
        """The next ``count`` rows, different ones while there are as many."""
        taken: list[int] = []
        while len(taken) < count:
            taken += self._draw(min(count - len(taken), self.rows))
        return taken

    def _draw(self, count: int) -> list[int]:
        pacing, seed = self._pacing, self._seed + self._drawn
        alphas, betas = self._beliefs
        rates = np.random.default_rng(seed).beta(alphas, betas) if pacing.do_sample else alphas / (alphas + betas)
        scores = torch.from_numpy(-np.abs(pacing.target_reward - rates))
        self._drawn += count
        if pacing.tau == 0:
            return scores.topk(count).indices.tolist()
        chances = ((scores / pacing.tau) - (scores / pacing.tau).max()).softmax(0)
        generator = torch.Generator().manual_seed(seed)
        return torch.multinomial(chances, count, replacement=False, generator=generator).tolist()

    def feedback(self, rewards: Mapping[int, float]) -> None:
        """Learn from the mean rewards of rows that were answered, by row."""
        pacing, (weak, strong) = self._pacing, (self._weak, self._strong)
        rows, passed = list(rewards), np.array(list(rewards.values()))
        low, high = weak[rows].mean(), strong[rows].mean()
        stands = (passed.mean() - low) / (high - low + 1e-6)
        self._stands = stands if self._stands is None else KEPT * self._stands + (1 - KEPT) * stands
        likely = np.clip((strong - weak) * self._stands + weak, 0, 1)
        if pacing.adaptive_rho and np.abs(likely[rows] - passed).mean() >= WRONG:
            self._rho *= 0.5
        likely[rows] = passed
        for belief, seen, guess in zip(self._beliefs, (passed, 1 - passed), (likely, 1 - likely), strict=True):
            counted = np.zeros(self.rows)
            counted[rows] = seen * pacing.m
            belief[:] = (
                (1 - pacing.lamb) * belief + pacing.lamb + (1 - self._rho) * counted + self._rho * guess * pacing.m
            )

    def state(self) -> Any:
        """Everything that the next draw depends on, as plain data."""
        beliefs = base64.b64encode(zlib.compress(self._beliefs.tobytes())).decode()
        return {"drawn": self._drawn, "stands": self._stands, "rho": self._rho, "beliefs": beliefs}

    def restore(self, state: Any) -> None:
        """Go on from a state."""
        self._drawn, self._stands, self._rho = state["drawn"], state["stands"], state["rho"]
        raw = zlib.decompress(base64.b64decode(state["beliefs"]))
        self._beliefs = np.frombuffer(raw).reshape(2, self.rows).copy()
