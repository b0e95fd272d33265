"""Which samples are computed together, and how they become the tensors of one forward pass.

A sample of T tokens is fed up to its last counted token, which is predicted and never fed. Two layouts:

    end to end   [1, tokens]      no padding; needs an attention that knows where sequences begin; a prompt that several
                                  samples begin with may lie there once
    padded       [rows, width]    padded on the right; any causal model

Of samples with images the patches lie end to end in either, and positions are [3, ...] of the same shape. A micro-batch
without images gets a blank one, as a row that nothing counts: every worker runs the vision tower in every pass, since its
parameters are spread over all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.runtime.models.vision import Vision, joined
from rlctl.runtime.train.rows import Rows, to_device
from rlctl.runtime.types import Sample

if TYPE_CHECKING:
    from rlctl.runtime.types import Inputs


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The tensors of one forward pass over B samples, N tokens of which are counted."""

    inputs: dict[str, Any]
    """Arguments of the model."""
    select: Tensor
    """int64 [N]: the places, in the flattened inputs, that predict a counted token."""
    targets: Tensor
    """int64 [N]: those tokens."""
    lengths: Tensor
    """int64 [B]: counted tokens of each sample."""
    columns: dict[str, Tensor]
    """float32 [N] each."""
    widths: list[int]
    """Tokens fed of each sample."""
    places: Tensor
    """int64 [sum of widths], on CPU: where they lie in the flattened inputs."""
    selected: Tensor
    """``select`` on CPU."""


TOKEN_BYTES = 8
"""Of a token id."""


def fed_tokens(samples: Sequence[Sample]) -> list[int]:
    """Tokens of each sample that are fed to the model: those before its last counted one, at least 1 if it has 2."""
    return _Laid.of(samples).fed.tolist() if samples else []


@dataclass(frozen=True, slots=True)
class _Laid:
    """Samples, one at least, end to end: a few operations on all tokens instead of some on each sample."""

    tokens: Tensor
    """int64, all of them."""
    mask: Tensor
    """bool, as many."""
    starts: Tensor
    """int64 [B]: where each sample begins."""
    prompts: Tensor
    """int64 [B]: its tokens before the first that is counted; 0 where none is."""
    fed: Tensor
    """int64 [B]: as ``fed_tokens``."""
    counted: Tensor
    """int64 [B]: its counted tokens."""

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> _Laid:
        mask = torch.cat([sample.mask for sample in samples])
        lengths = torch.tensor([len(sample) for sample in samples])
        ends = lengths.cumsum(0)
        starts = ends - lengths
        places = mask.nonzero().squeeze(1)
        before, until = torch.searchsorted(places, starts), torch.searchsorted(places, ends)
        bounded = F.pad(places, (1, 1))  # of a sample without counted tokens, whose first and last place count as 0
        has = until > before
        first = (bounded[before + 1] - starts).where(has, 0)
        last = (bounded[until] - starts).where(has, 0)
        fed = last.maximum((lengths - 1).clamp(max=1))
        return cls(torch.cat([sample.token_ids for sample in samples]), mask, starts, first, fed, until - before)

    def prompt_bytes(self) -> list[bytes]:
        """The tokens of each prompt."""
        whole = self.tokens.numpy().tobytes()
        begins, counts = (self.starts * TOKEN_BYTES).tolist(), (self.prompts * TOKEN_BYTES).tolist()
        return [whole[begin : begin + count] for begin, count in zip(begins, counts, strict=True)]


def split(
    lengths: Sequence[int], micro: MicroBatchSize, *, padded: bool, together: int = 1, like: Sequence[int] = ()
) -> list[list[int]]:
    """Return the samples of each micro-batch, as indices into ``lengths`` (tokens fed), longest first.

    By tokens, as many as fit in ``micro_batch.size``, padding included where there is any; a longer sample is alone.
    With ``together``, so many neighbours stay together in their order, and count as one response. With ``like``, the first
    sample with the same prompt as each, samples of one prompt follow each other where the longest of them is.
    """
    units = [lengths[start : start + together] for start in range(0, len(lengths), together)]
    kinds = [like[start] if like else start for start in range(0, len(lengths), together)]
    widest_of = dict[int, int]()
    for kind, own in zip(kinds, units, strict=True):
        widest_of[kind] = max(widest_of.get(kind, 0), *own)
    order = sorted(range(len(units)), key=lambda unit: (-widest_of[kinds[unit]], kinds[unit], -max(units[unit]), unit))
    parts: list[list[int]] = []
    size = 0
    for unit in order:
        widest = max(units[parts[-1][0]]) if parts else 0
        alone = max(units[unit]) * len(units[unit]) if padded else sum(units[unit])
        added = widest * len(units[unit]) if padded else alone
        if micro.unit == "responses":
            alone = added = 1
        if parts and size + added <= micro.size:
            parts[-1].append(unit)
            size += added
        else:
            parts.append([unit])
            size = alone
    return [spread(part, len(lengths), together) for part in parts]


def spread(units: Iterable[int], count: int, together: int) -> list[int]:
    """The members of runs of ``together`` neighbours out of ``count``, run after run."""
    return [index for unit in units for index in range(unit * together, min((unit + 1) * together, count))]


def collate(
    samples: Sequence[Sample],
    columns: Sequence[str],
    *,
    padded: bool,
    device: torch.device,
    vision: Vision | None = None,
    share_prompts: bool = False,
) -> MicroBatch:
    """Lay out samples for one forward pass; without samples, one token that nothing counts.

    Args:
        samples: what is laid out.
        columns: of the samples, that the loss reads.
        padded: the layout.
        device: where the tensors are to be.
        vision: of a model that reads images.
        share_prompts: end to end, the tokens before the first counted one lie there once for all samples that begin with
            the same. Not of a model that reads images.

    Raises:
        RunError: a sample lacks one of ``columns``.
    """
    laid = _Laid.of(samples or [_NOTHING])
    chosen = _ranges(laid.starts, laid.fed)
    counted, nexts = laid.mask[chosen + 1], laid.tokens[chosen + 1]
    widths = laid.fed.tolist()
    fed = list(laid.tokens[chosen].split(widths))
    given = [sample.inputs for sample in samples] or [{}]
    if vision is not None:
        fed, given = _with_images(vision, fed, given)
    rows = Rows.of(torch.tensor([len(tokens) for tokens in fed]))
    places = (rows.to_tokens if padded else torch.arange(len(rows.to_tokens)))[: len(counted)]
    inputs = (_padded if padded else _end_to_end)(fed, given, rows, vision)
    if share_prompts and samples:
        kept, places = _shared(laid)
        shorter = {name: inputs[name][:, kept] for name in ("input_ids", "position_ids")}
        inputs = {**inputs, **shorter, "rows": rows.sharing(kept, places)}
    selected = places[counted]
    return MicroBatch(
        inputs={
            name: value.to(device) if isinstance(value, Rows) else to_device(value, device)
            for name, value in inputs.items()
        },
        select=to_device(selected, device),
        targets=to_device(nexts[counted], device),
        lengths=to_device(laid.counted[: len(samples)], device),
        columns={name: to_device(_column(name, samples, laid.mask), device) for name in columns},
        widths=widths[: len(samples)],
        places=places[: sum(widths[: len(samples)])],
        selected=selected,
    )


_NOTHING = Sample(torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.bool))
"""Is fed as one token, which nothing counts."""


def prompts_of(samples: Sequence[Sample]) -> list[bytes]:
    """The tokens of each sample before the first that is counted; nothing where none is."""
    return _Laid.of(samples).prompt_bytes() if samples else []


def _shared(laid: _Laid) -> tuple[Tensor, Tensor]:
    """Which of the tokens fed are left where a prompt lies there once, and where each of all is found among them."""
    known: dict[bytes, int] = {}
    kept: list[tuple[int, int]] = []
    places: list[tuple[int, int]] = []
    begin = end = 0
    for prompt, width in zip(laid.prompt_bytes(), laid.fed.tolist(), strict=True):
        start = known.setdefault(prompt, end)
        lies_there = 0 if start == end else len(prompt) // TOKEN_BYTES
        own = width - lies_there
        kept.append((begin + lies_there, own))
        places += [(start, lies_there), (end, own)]
        begin, end = begin + width, end + own
    return _ranges(*torch.tensor(kept).unbind(1)), _ranges(*torch.tensor(places).unbind(1))


def _ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """The numbers of all ranges, each from its first number and as many as it says."""
    shifts = starts - (counts.cumsum(0) - counts)
    return shifts.repeat_interleave(counts) + torch.arange(int(counts.sum()))


def _with_images(vision: Vision, fed: list[Tensor], given: list[Inputs]) -> tuple[list[Tensor], list[Inputs]]:
    """What is fed with the images that it reaches; with a blank one behind it where there are none."""
    given = [vision.fed(tokens, inputs) for tokens, inputs in zip(fed, given, strict=True)]
    if any(given):
        return fed, given
    tokens, inputs = vision.blank()
    return [*fed, tokens], [*given, inputs]


def _padded(fed: Sequence[Tensor], given: Sequence[Inputs], rows: Rows, vision: Vision | None) -> dict[str, Any]:
    laid = {"input_ids": pad_sequence(list(fed), batch_first=True)}
    if vision is None:
        return laid
    places = [F.pad(each, (0, rows.width - each.shape[-1])) for each in map(vision.positions, fed, given)]
    return {**laid, "position_ids": torch.stack(places, 1), **joined(given)}


def _end_to_end(fed: Sequence[Tensor], given: Sequence[Inputs], rows: Rows, vision: Vision | None) -> dict[str, Any]:
    if vision is None:
        lengths = rows.starts.diff().long()
        positions = _ranges(torch.zeros_like(lengths), lengths)
    else:
        positions = torch.cat(list(map(vision.positions, fed, given)), -1)
    return {
        "input_ids": torch.cat(list(fed))[None],
        "position_ids": positions.unsqueeze(-2),
        "rows": rows,
        **joined(given),
    }


def _column(name: str, samples: Sequence[Sample], mask: Tensor) -> Tensor:
    """A column of all samples at the counted tokens, which ``mask`` says of all tokens."""
    if not samples:
        return torch.zeros(0)
    if any(name not in sample.columns for sample in samples):
        has = ", ".join(sorted(samples[0].columns)) or "none"
        raise RunError(said("the loss needs the column {name}, but a sample has only {has}", name=name, has=has))
    return torch.cat([sample.columns[name] for sample in samples])[mask]
