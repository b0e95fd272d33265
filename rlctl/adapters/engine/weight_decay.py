"""What weight decay pulls on: no dialect has a key for it, its engine decides.

Megatron-core excludes norms and biases from weight decay (``get_standard_config_overrides`` of its optimizer, which all
three dialects use unchanged); the other engines build their optimizers over all parameters.
"""

from __future__ import annotations

from collections.abc import Callable

from rlctl.adapters.engine.one_sided_rows import FollowsFrom
from rlctl.adapters.engine.rules import ABSENT, Reading, Writing

__all__ = ["norms_and_biases"]


def norms_and_biases(
    optimizer: str, in_text: Callable[[Reading], bool], in_config: Callable[[Writing], bool]
) -> FollowsFrom:
    """Whether norms and biases decay, of the optimizer at a canonical place.

    Args:
        optimizer: the place, as ``train.optimizer``.
        in_text: whether Megatron trains in a text of the dialect.
        in_config: whether Megatron trains in what is written.
    """
    return FollowsFrom(
        f"{optimizer}.decay_norms_and_biases",
        reads=lambda view: False if in_text(view) else ABSENT,
        writes=lambda view: not in_config(view),
        reason=lambda view: (
            "Megatron-core never decays norms and biases"
            if in_config(view)
            else "FSDP decays norms and biases too; no key changes that"
        ),
        note="the engine always does this",
        idle=lambda view: not view.get(f"{optimizer}.weight_decay"),
        formula="Megatron-core excludes norms and biases from weight decay",
    )
