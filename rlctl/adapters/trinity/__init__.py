"""Trinity-RFT: one YAML file, with stages or without; releases 0.4 to 0.6."""

from __future__ import annotations

from rlctl.adapters.trinity.dialect import TRINITY

__all__ = ["TRINITY"]
