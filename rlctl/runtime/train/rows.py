"""Where the tokens of a micro-batch lie, when sequences lie end to end and when each has a row of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device. A GPU takes it in its turn: from memory that is not pinned, PyTorch would wait for all work
    before it."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the tokens of a micro-batch lie when each sequence has a row of its own."""

    count: int
    width: int
    to_rows: Tensor
    """int64 [count * width]: the token at each place; padding repeats some token."""
    to_tokens: Tensor
    """int64 [tokens]: the place of each token, in the first of the rows that it is in."""
    starts: Tensor
    """int32 [count + 1]: where each row begins if rows lie end to end, and where the last ends."""
    kept: Tensor | None = None
    """int64 [tokens]: the place of each token in rows end to end, in the first that it is in; None if that is its number."""
    laid: Tensor | None = None
    """int64 [starts[-1]]: the token at each such place; None as above."""

    @property
    def shared(self) -> bool:
        """Whether a token may be in several rows."""
        return self.laid is not None

    @classmethod
    def of(cls, lengths: Tensor) -> Rows:
        """Lay out sequences of these lengths, int64 [B], of which some may be 0."""
        count, width = len(lengths), max(1, int(lengths.max()))
        ends = lengths.cumsum(0)
        starts = ends - lengths
        inside = torch.arange(width, device=lengths.device) < lengths[:, None]
        places = starts[:, None] + torch.arange(width, device=lengths.device)
        from_0 = torch.cat((ends.new_zeros(1), ends)).int()
        return cls(count, width, places.where(inside, 0).flatten(), inside.flatten().nonzero().squeeze(1), from_0)

    def to(self, device: torch.device) -> Rows:
        """Return it on another device."""
        kept, laid = (None if each is None else to_device(each, device) for each in (self.kept, self.laid))
        to_rows, to_tokens, starts = (to_device(each, device) for each in (self.to_rows, self.to_tokens, self.starts))
        return Rows(self.count, self.width, to_rows, to_tokens, starts, kept, laid)

    def sharing(self, kept: Tensor, place: Tensor) -> Rows:
        """The same rows of fewer tokens: those ``kept``, int64 [tokens]; ``place``, int64 [all tokens], is where each is now."""
        return Rows(self.count, self.width, place[self.to_rows], self.to_tokens[kept], self.starts, kept, place)
