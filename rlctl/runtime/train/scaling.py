"""Loss scaling for float16: the loss is multiplied before the backward pass, so that small gradients are not rounded to 0.

Token weights divide by the whole mini-batch: of one of 100,000 tokens most of what flows back is below float16's smallest number.
Source: Micikevicius et al., Mixed precision training, arXiv:1710.03740, section 3.2; numbers as in ``torch.amp.GradScaler``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

START = 2.0**16
GROWTH_UPDATES = 2000
"""Updates in a row without an overflow after which the factor is doubled."""


@dataclass
class LossScale:
    """The factor: halved where a gradient is not finite, doubled where all were for long. A power of 2: it rounds nothing."""

    value: float = START
    steady: int = 0
    """Updates without an overflow since it last changed."""

    def updated(self, *, finite: bool) -> None:
        """An update is over; ``finite``: whether its gradient was."""
        if not finite:
            self.value, self.steady = max(self.value / 2, 1.0), 0
            return
        self.steady += 1
        if self.steady == GROWTH_UPDATES:
            self.value, self.steady = self.value * 2, 0

    def state(self) -> Tensor:
        """What the next update depends on, float64 [2]."""
        return torch.tensor([self.value, self.steady], dtype=torch.float64)

    def restore(self, state: Tensor) -> None:
        """Go on from what ``state`` gave."""
        value, steady = state.tolist()
        self.value, self.steady = value, int(steady)
