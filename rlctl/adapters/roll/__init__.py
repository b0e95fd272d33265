"""ROLL: RLVR, agentic, SFT, DPO and distillation files; which of them a file is, its start script says and not a key."""

from __future__ import annotations

from rlctl.adapters.roll.dialect import ROLL

__all__ = ["ROLL"]
