"""Trinity-RFT: one YAML file, with stages or without; releases 0.5 and 0.6."""

from __future__ import annotations

from rlctl.adapters.trinity.dialect import TRINITY

__all__ = ["TRINITY"]
