"""FrozenLake on random maps of 3 x 3 fields: P is the player, H a hole, G the goal. Some maps are for evaluation only."""

from __future__ import annotations

import random
import zlib
from typing import Any

from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map

SIZE = 3
FROZEN = 0.7
"""Probability that a field is no hole."""
HELD_OUT = 4
"""One map of this many is for evaluation."""


def map_of(seed: int, *, held_out: bool) -> list[str]:
    """The first map of a seed that is for training, or for evaluation."""
    chance = random.Random(seed)
    while True:
        found: list[str] = generate_random_map(size=SIZE, p=FROZEN, seed=chance.randrange(2**31))
        if (zlib.crc32("".join(found).encode()) % HELD_OUT == 0) == held_out:
            return found


class Lake:
    """Gymnasium's FrozenLake, whose observation is the map with the player on it."""

    def __init__(self, held_out: bool = False) -> None:
        self.held_out = held_out

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        """Begin on the map of a seed."""
        self.map = map_of(seed, held_out=self.held_out)
        self.lake = FrozenLakeEnv(desc=self.map, is_slippery=False)
        field, _ = self.lake.reset(seed=seed)
        return self.shown(field), {}

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Move: 0 left, 1 down, 2 right, 3 up."""
        field, reward, terminated, truncated, _ = self.lake.step(action)
        return self.shown(field), float(reward), terminated, truncated, {"success": reward > 0}

    def shown(self, field: int) -> str:
        """The map, with P where the player is."""
        rows = [list(row.replace("S", "F")) for row in self.map]
        rows[int(field) // SIZE][int(field) % SIZE] = "P"
        return "\n".join("".join(row) for row in rows)
