"""DeepSpeed's settings that a converted config keeps (``train.engine.source_args``): what FSDP2 does in place of each.

A setting that only moves memory or time has nothing to act on. One that changes results is refused, unless the config has the
same value in its own key, or the setting is ``auto`` or off, which is what such files say.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlctl.config.sections.train import Fsdp2, Train


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run makes of a setting."""

    names: str
    """Pattern of its name, parts joined by dots."""
    why: str
    """A message of ``support.*.ftl`` without its prefix."""
    fits: Callable[[Any, Train], bool] | None = None
    """Whether results are those that the value asks for; None if it changes none."""


def _clips(value: Any, train: Train) -> bool:
    return bool(value == (train.optimizer.max_grad_norm or 0.0))


def _computes(kind: str) -> Callable[[Any, Train], bool]:
    return lambda value, train: not value or train.precision.compute == kind


def _off(value: Any, train: Train) -> bool:
    return not value


SETTINGS = (
    Setting("gradient_clipping", "ds-clip", _clips),
    Setting("bf16.enabled", "ds-precision", _computes("bfloat16")),
    Setting("fp16.enabled", "ds-precision", _computes("float16")),
    Setting("fp16.*", "ds-loss-scale"),
    Setting("bf16.*", "ds-precision-detail"),
    Setting("train_batch_size", "ds-batch"),
    Setting("train_micro_batch_size_per_gpu", "ds-batch"),
    Setting("gradient_accumulation_steps", "ds-batch"),
    Setting("zero_allow_untested_optimizer", "ds-check"),
    Setting("zero_force_ds_cpu_optimizer", "ds-check"),
    Setting("zero_optimization.zero_quantized_*", "ds-quantized", _off),
    Setting("zero_optimization.*", "ds-buckets"),
    Setting("*", "ds-other", _off),
)
"""The first pattern that fits a name says it."""
AUTO = "auto"


def unmet(train: Train) -> Iterator[tuple[str, Any, str, bool]]:
    """Settings of a section that FSDP2 does not go by: name, value, why, and whether results would differ."""
    engine = train.engine
    if not isinstance(engine, Fsdp2) or engine.source != "deepspeed":
        return
    for name, value in _flat(engine.source_args):
        found = next(each for each in SETTINGS if fnmatch.fnmatchcase(name, each.names))
        if value == AUTO or (found.fits is not None and found.fits(value, train)):
            continue
        yield name, value, found.why, found.fits is not None


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
