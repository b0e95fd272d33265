"""What GPUs can do, from their makers' data sheets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a GPU can do, from its maker's data sheet."""

    tflops: float
    """Dense bfloat16, in 10^12 operations a second."""
    terabytes_per_second: float
    """Memory bandwidth."""
    gib: float
    """Memory."""


GPUS: dict[str, Gpu] = {
    "B200": Gpu(2250, 8.0, 180),
    "H200": Gpu(989, 4.8, 140),
    "H100": Gpu(989, 3.35, 80),
    "H800": Gpu(989, 3.35, 80),
    "H20": Gpu(148, 4.0, 96),
    "A100": Gpu(312, 2.04, 80),
    "A800": Gpu(312, 2.04, 80),
    "L40S": Gpu(362, 0.864, 48),
    "L20": Gpu(119.5, 0.864, 48),
}
"""By a word of their name, SXM models where there are several; the first that matches is taken."""


def known_gpu(name: str | None) -> Gpu | None:
    """The GPU whose word is in ``name`` (``NVIDIA H100 80GB HBM3``), None where there is none."""
    words = (name or "").upper().replace("-", " ").replace("_", " ").split()
    return next((gpu for word, gpu in GPUS.items() if word in words), None)
