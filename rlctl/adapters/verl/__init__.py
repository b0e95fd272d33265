"""verl: Hydra configs of its PPO trainer and its two SFT trainers, releases 0.3 to 0.9."""

from __future__ import annotations

from rlctl.adapters.verl.dialect import VERL

__all__ = ["VERL"]
