"""The last layer of a model: logits, or what is made of them, at the places that are asked for; most of a prompt's never are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlctl.runtime.algorithms.distributions import statistics_of_hidden
from rlctl.runtime.algorithms.entropy import log_probs_of_hidden


class Head:
    """Runs a model and its last layer."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._layer: Any = last_layer(model)
        self._select: Tensor | None = None
        self._read: Callable[[Tensor], Tensor] | None = None
        self._made: tuple[Tensor, int] | None = None
        """What was given to the model in place of logits, and its version, which a change of it would raise."""
        self._own: Callable[[Tensor], Tensor] = self._layer.forward
        self.chunks = isinstance(self._layer, torch.nn.Linear)
        """Whether log-probs can be had without whole logits: not where an adapter is on the layer, nor where the model goes
        on with its logits."""
        self._layer.forward = self._forward

    def logits(self, inputs: dict[str, Any], select: Tensor) -> Tensor:
        """Return logits [N, V], of a value head [N, 1], at the places ``select`` [N] of the flattened inputs."""
        self._select = select
        logits: Tensor = self._model(**inputs, use_cache=False).logits
        return logits

    def log_probs(
        self, inputs: dict[str, Any], select: Tensor, targets: Tensor, *, temperature: float, with_entropy: bool
    ) -> tuple[Tensor, Tensor] | None:
        """Return log-probs and entropy [N] at the places ``select``, the logits worked out chunk by chunk.

        Return None, now and from now on, where the model changes its logits after this layer (``chunks``).
        """

        # Stacked with log-probs, entropy would have a gradient of zeros if no loss reads it.
        entropies: list[Tensor] = []

        def read(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            drawn, entropy = log_probs_of_hidden(
                hidden, weight, bias, targets, temperature=temperature, with_entropy=with_entropy
            )
            entropies.append(entropy)
            return drawn

        found = self._read_through(inputs, select, read)
        return None if found is None else (found, entropies[0])

    def statistics(
        self, inputs: dict[str, Any], select: Tensor, targets: Tensor, names: Sequence[str], *, temperature: float
    ) -> Tensor | None:
        """Return what ``algorithms.distributions`` says at the places ``select``, [K, N]; None as for ``log_probs``."""

        def read(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return statistics_of_hidden(hidden, weight, bias, targets, names, temperature=temperature).T.clone()

        found = self._read_through(inputs, select, read)
        return None if found is None else found.T

    def _read_through(
        self, inputs: dict[str, Any], select: Tensor, read: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    ) -> Tensor | None:
        """What ``read`` makes of hidden states and the last layer in place of logits, [N, ...]; None where it cannot be had."""
        if not self.chunks:
            return None
        self._read = lambda hidden: read(hidden, self._layer.weight, self._layer.bias)
        try:
            found = self.logits(inputs, select)
        finally:
            self._read = None
        made, self._made = self._made, None
        self.chunks = made is not None and found is made[0] and found._version == made[1]
        return found if self.chunks else None

    def _forward(self, hidden: Tensor) -> Tensor:
        assert self._select is not None, "the model runs through this object only"
        chosen = hidden.flatten(0, -2).index_select(0, self._select)
        if self._read is None:
            return self._own(chosen)
        made = self._read(chosen)
        self._made = made, made._version
        return made


def last_layer(model: PreTrainedModel) -> torch.nn.Module:
    """From hidden states to logits, or to a value."""
    found = model.get_output_embeddings()
    if found is not None:
        return found
    return [each for each in model.children() if isinstance(getattr(each, "base_layer", each), torch.nn.Linear)][-1]
