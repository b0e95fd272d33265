"""A small Sokoban, as a user would write it: push the boxes (X) onto the targets (O)."""

from __future__ import annotations

from typing import Any

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
LEVELS = (("#####", "#PXO#", "#####"), ("######", "#P__O#", "#_X__#", "#____#", "######"))


class Sokoban:
    """One of a few levels, chosen by the seed."""

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        rows = LEVELS[seed % len(LEVELS)]
        fields = {(r, c): field for r, row in enumerate(rows) for c, field in enumerate(row)}
        self.walls = {place for place, field in fields.items() if field == "#"}
        self.targets = {place for place, field in fields.items() if field == "O"}
        self.boxes = {place for place, field in fields.items() if field == "X"}
        (self.player,) = (place for place, field in fields.items() if field == "P")
        self.size = len(rows), len(rows[0])
        return self.shown(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action not in MOVES:
            return self.shown(), -0.1, False, False, {"action_is_valid": False}
        down, right = MOVES[action]
        to = self.player[0] + down, self.player[1] + right
        beyond = to[0] + down, to[1] + right
        before = len(self.boxes & self.targets)
        if to in self.boxes and beyond not in self.walls | self.boxes:
            self.boxes = self.boxes - {to} | {beyond}
        if to not in self.walls | self.boxes:
            self.player = to
        done = self.boxes == self.targets
        reward = len(self.boxes & self.targets) - before - 0.1 + done
        return self.shown(), reward, done, False, {"success": done}

    def shown(self) -> str:
        rows, columns = self.size
        return "\n".join("".join(self._field((r, c)) for c in range(columns)) for r in range(rows))

    def _field(self, place: tuple[int, int]) -> str:
        if place in self.boxes:
            return "√" if place in self.targets else "X"
        if place == self.player:
            return "P"
        return "#" if place in self.walls else "O" if place in self.targets else "_"
