"""What GPUs can do, from their makers' data sheets; ``rlctl plan --gpus`` lists them."""

from __future__ import annotations

import re
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
    link: float
    """Bandwidth to other devices of a node in one direction, in 10^9 bytes a second: NVLink or the like, or PCIe."""
    source: str = ""
    """The data sheet."""
    linked: int = 8
    """Devices at most that ``link`` joins."""


GPUS: dict[str, Gpu] = {
    "B300": Gpu(2250, 8.0, 268, 900, "NVIDIA HGX B300: 2.1 TB and 18 PFLOPS of dense BF16 in eight"),
    "B200": Gpu(2250, 8.0, 180, 900, "NVIDIA HGX B200: 1.44 TB and 18 PFLOPS of dense BF16 in eight"),
    "GB200": Gpu(
        2500, 8.0, 186, 900, "NVIDIA GB200 NVL72: 13.4 TB and 180 PFLOPS of dense BF16 in 72, which NVLink joins", 72
    ),
    "H200": Gpu(989, 4.8, 140, 450, "NVIDIA H200 Tensor Core GPU data sheet, SXM"),
    "H100": Gpu(989, 3.35, 80, 450, "NVIDIA H100 Tensor Core GPU data sheet, SXM"),
    "H800": Gpu(989, 3.35, 80, 200, "as H100, with slower NVLink"),
    "H20": Gpu(148, 4.0, 96, 450, "NVIDIA H20 data sheet"),
    "A100": Gpu(312, 2.04, 80, 300, "NVIDIA A100 Tensor Core GPU data sheet, SXM 80 GB"),
    "A800": Gpu(312, 2.04, 80, 200, "as A100, with slower NVLink"),
    "L40S": Gpu(362, 0.864, 48, 32, "NVIDIA L40S data sheet"),
    "L20": Gpu(119.5, 0.864, 48, 32, "NVIDIA L20 data sheet"),
    "RTX5090": Gpu(
        209.5, 1.792, 32, 64, "NVIDIA RTX Blackwell GPU architecture, GeForce RTX 5090: BF16 with FP32 accumulation"
    ),
    "RTX4090": Gpu(165.2, 1.008, 24, 32, "NVIDIA Ada GPU architecture, GeForce RTX 4090: BF16 with FP32 accumulation"),
    "MI300X": Gpu(1307, 5.3, 192, 448, "AMD Instinct MI300X data sheet"),
    "910B": Gpu(313, 1.6, 64, 196, "Huawei Atlas 800T A2 (Ascend 910B3): 313 TFLOPS in FP16"),
}
"""By name, SXM models where there are several; the first whose name is in a text is taken."""


def known_gpu(name: str | None) -> Gpu | None:
    """The GPU that a text names (``NVIDIA H100 80GB HBM3``, ``NVIDIA GeForce RTX 4090``, ``Ascend910B3``), None if none."""
    words = re.split(r"[\s_-]+", (name or "").upper().replace("ASCEND", " ").replace("RTX ", "RTX"))
    named = (gpu for key, gpu in GPUS.items() if any(_is(word, key) for word in words))
    return next(named, None)


def _is(word: str, name: str) -> bool:
    """Whether a word is the name of a GPU; the parts of Ascend 910B are 910B1 to 910B4."""
    return word == name or (name == "910B" and re.fullmatch(r"910B\d(C)?", word) is not None)
