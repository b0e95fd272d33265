"""What weight decay pulls on: no dialect has a key for it, its engine decides.

Megatron-core excludes norms and biases from weight decay (``get_standard_config_overrides`` of its optimizer, which all
three dialects use unchanged); the other engines build their optimizers over all parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rlctl.adapters.engine.rules import Absent, CustomRule, Flow, Inexpressible, Out, Reading, Writing

__all__ = ["norms_and_biases"]


def norms_and_biases(
    optimizer: str, in_text: Callable[[Reading], bool], in_config: Callable[[Writing], bool]
) -> CustomRule:
    """Whether norms and biases decay, of the optimizer at a canonical place.

    Args:
        optimizer: the place, as ``train.optimizer``.
        in_text: whether Megatron trains in a text of the dialect.
        in_config: whether Megatron trains in what is written.
    """
    to = f"{optimizer}.decay_norms_and_biases"

    def read(view: Reading) -> Iterator[Flow]:
        if in_text(view):
            yield Flow(view.to(to), False, ())

    def write(view: Writing) -> Iterator[Out]:
        asked, does, used = view.get(to), not in_config(view), (view.to(to),)
        if isinstance(asked, Absent):
            return
        if asked == does:
            yield Flow((), None, used, "mapped", "what its engine does")
            return
        reason = (
            "FSDP decays norms and biases too; no key changes that"
            if does
            else "Megatron-core never decays norms and biases"
        )
        yield Inexpressible(used, reason, idle=not view.get(f"{optimizer}.weight_decay"))

    return CustomRule(
        f"what {optimizer} pulls on",
        (),
        (to,),
        read,
        write,
        "Megatron-core excludes norms and biases from weight decay",
    )
