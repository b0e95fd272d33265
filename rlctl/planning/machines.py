"""The machines that a text names, as after ``--cluster``: ``2x8:H100``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlctl.common.errors import UsageError
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import natural
from rlctl.planning.arithmetic import Cluster
from rlctl.planning.memory import known_gpu

_SIZE = re.compile(r"(?P<nodes>[1-9]\d*)x(?P<each>[1-9]\d*)")
_GIB = re.compile(r"(?P<gib>\d+(?:\.\d+)?)(?:GiB|GB|G)")
_HINT = "write NODESxDEVICES, as 2x8, 2x8:H100, 2x8:cuda:80GiB or 1x4:cpu; cpu:2; or local"


def named_cluster(text: str) -> Cluster:
    """The machines of ``2x8``, ``2x8:H100``, ``2x8:cuda:80GiB`` or ``cpu:2``.

    Raises:
        UsageError: it is none of these.
    """
    size, *facts = text.removeprefix("cpu:").split(":")
    size = f"1x{size}" if text.startswith("cpu:") else size
    match = _SIZE.fullmatch(size)
    nodes, each = (natural(match[part]) for part in ("nodes", "each")) if match else (None, None)
    if nodes is None or each is None or (text.startswith("cpu:") and facts):
        raise UsageError(said("--cluster {text!r} does not describe any machines", text=text), hint=_HINT)
    return _cluster(nodes, each, ["cpu"] if text.startswith("cpu:") else facts, text)


def is_size(text: str) -> bool:
    """Whether a text begins with how many machines and devices there are."""
    return text.startswith("cpu:") or _SIZE.fullmatch(text.partition(":")[0]) is not None


def _cluster(nodes: int, each: int, facts: Sequence[str], text: str) -> Cluster:
    """Machines of a size, with their facts: a kind of device, its memory, the name of a GPU."""
    gib: float | None = None
    gpu: str | None = None
    for fact in facts:
        if match := _GIB.fullmatch(fact):
            gib = float(match["gib"])
        elif known := known_gpu(fact):
            gpu, gib = fact, gib or known.gib
        elif fact not in ("cuda", "cpu"):
            raise UsageError(
                said(
                    "--cluster {text!r}: {part!r} is not a device, a memory size or a known GPU", text=text, part=fact
                ),
                hint=_HINT,
            )
    if "cpu" in facts and (gpu or gib or "cuda" in facts):
        raise UsageError(said("--cluster {text!r} combines cpu with a GPU setting", text=text), hint=_HINT)
    return Cluster(
        nodes=nodes, devices_per_node=each, device="cpu" if "cpu" in facts else "cuda", gib_per_device=gib, gpu=gpu
    )
