"""Two grid worlds played by text, with the arguments, texts and rewards of ROLL's environments of the same names.

An action is read from the text by ``action_pattern``; a text without one costs ``format_penalty``. ``info`` has the environment's
``env_instruction``, whether the action was valid and had an effect, and whether the goal is reached.

FrozenLake has ROLL's maps and gymnasium's moves: a seed gives the same map as in ROLL. Sokoban's rooms come from a generator of
our own: a seed gives other rooms than gym-sokoban's, of the same size and number of boxes.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np

Result = tuple[str, float, bool, bool, dict[str, Any]]
SPECIAL = ("<|im_start|>", "<|im_end|>")
PATTERN = "<answer>(.*?)</answer>"
Cell = tuple[int, int]


class Wording(TypedDict, total=False):
    """Arguments of both worlds: how they are shown, and how an action is read."""

    action_pattern: str
    """Regular expression of an action."""
    special_token_list: Sequence[str] | None
    """Removed from a text first."""
    grid_lookup: Mapping[Any, str] | None
    """Symbol of each kind of cell, by number."""
    grid_vocab: Mapping[str, str] | None
    """Meaning of each symbol."""
    action_lookup: Mapping[Any, str] | None
    """Name of each action."""
    env_instruction: str | None
    """The task in words."""


class _Texts:
    """How a world is shown, and how an action is read."""

    symbols: Mapping[int, str]
    meanings: Mapping[str, str]
    actions: Mapping[int, str]
    instruction: str

    def __init__(self, **words: Unpack[Wording]) -> None:
        self.symbols = {int(kind): symbol for kind, symbol in (words.get("grid_lookup") or self.symbols).items()}
        self.meanings = words.get("grid_vocab") or self.meanings
        self.actions = {int(number): name for number, name in (words.get("action_lookup") or self.actions).items()}
        self.instruction = words.get("env_instruction") or self.instruction
        self._pattern = re.compile(words.get("action_pattern", PATTERN), re.DOTALL)
        self._special = tuple(words.get("special_token_list", SPECIAL) or ())

    def instructions(self) -> str:
        """The task, what the symbols mean, and the actions."""
        meanings = ", ".join(f"{symbol}: {meaning}" for symbol, meaning in self.meanings.items())
        names = ", ".join(self.actions.values())
        return (
            f"{self.instruction}\nThe meaning of each symbol in the state is:\n{meanings}\n"
            f"Your available actions are:\n{names}"
        )

    def action_in(self, text: str) -> int | None:
        """The action that a text names: in the second group of the pattern, or its only one; None if it names none."""
        for token in self._special:
            text = text.replace(token, "").strip()
        found = self._pattern.search(text)
        if found is None or not found.groups():
            return None
        named = (found.groups()[1] if len(found.groups()) > 1 else found.groups()[0]) or ""
        by_name = {name.lower(): number for number, name in self.actions.items()}
        return by_name.get(named.strip().lower())

    def shown(self, grid: Sequence[Sequence[int]]) -> str:
        return "\n".join("".join(self.symbols.get(int(cell), "?") for cell in row) for row in grid)

    def info(self, *, valid: bool, effective: bool, success: bool) -> dict[str, Any]:
        return {
            "env_instruction": self.instructions(),
            "action_is_valid": valid,
            "action_is_effective": effective,
            "success": success,
        }


class FrozenLake(_Texts):
    """Walk over ice to the goal: 1 for reaching it, 0 for each other step."""

    symbols = {0: "P", 1: "_", 2: "O", 3: "G", 4: "X", 5: "√"}
    meanings = {
        "P": "player",
        "_": "empty",
        "O": "hole",
        "G": "goal",
        "X": "player in hole",
        "√": "player on goal",
    }
    actions = {0: "Left", 1: "Down", 2: "Right", 3: "Up"}
    instruction = (
        "You are solving the FrozenLake puzzle. Forbid the whole and go to the target. You may move to the unintended "
        "direction due to the slippery ice. The answer must be one of action in a turn, format is <answer>Right</answer>"
    )

    def __init__(
        self,
        size: int = 4,
        p: float = 0.8,
        is_slippery: bool = True,
        max_steps: int = 20,
        format_penalty: float = 0.0,
        map_lookup: Mapping[Any, int] | None = None,
        **words: Unpack[Wording],
    ) -> None:
        """Make a lake.

        Args:
            size: of a side.
            p: probability that a cell is ice, not a hole.
            is_slippery: whether a step may go to a side instead.
            max_steps: after which an episode that fails counts as truncated.
            format_penalty: reward of a text without an action.
            map_lookup: number of each kind of cell, by gymnasium's letter.
            words: see ``Wording``.
        """
        super().__init__(**words)
        named = {
            (key.decode() if isinstance(key, bytes) else str(key)): kind for key, kind in (map_lookup or {}).items()
        }
        self._kinds = {"P": 0, "F": 1, "H": 2, "G": 3, **named}
        self._size, self._ice, self._slippery = size, p, is_slippery
        self._max_steps, self._penalty = max_steps, format_penalty
        self._steps = 0
        self._lake: Any = None

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

        self._steps = 0
        self._lake = FrozenLakeEnv(desc=_lake(self._size, self._ice, seed), is_slippery=self._slippery)
        self._lake.reset(seed=seed)
        return self._text(), self.info(valid=True, effective=False, success=False)

    def step(self, text: str) -> Result:
        self._steps += 1
        action = self.action_in(text)
        if action is None:
            info = self.info(valid=False, effective=False, success=self._at() == "G")
            return self._text(), self._penalty, False, False, info
        before = int(self._lake.s)
        _, reward, terminated, truncated, _ = self._lake.step(action)
        success = self._at() == "G"
        failed = terminated and not success and self._steps >= self._max_steps
        info = self.info(valid=True, effective=before != int(self._lake.s), success=success)
        return self._text(), float(reward), bool(terminated), bool(truncated) or failed, info

    def _place(self) -> Cell:
        row, column = divmod(int(self._lake.s), self._size)
        return row, column

    def _at(self) -> str:
        return str(self._lake.desc[self._place()].decode())

    def _text(self) -> str:
        letters = [[cell.decode().replace("S", "F") for cell in row] for row in self._lake.desc]
        grid = [[self._kinds[letter] for letter in row] for row in letters]
        row, column = self._place()
        grid[row][column] = {"H": 4, "G": 5}.get(letters[row][column], 0)
        return self.shown(grid)


def _lake(size: int, ice: float, seed: int | None) -> list[str]:
    """A map with start and goal at random and a way between them, drawn as ROLL draws it."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    while True:
        board = random.choice(["F", "H"], (size, size), p=[ice, 1 - ice])
        start, goal = tuple(random.integers(size, size=2)), tuple(random.integers(size, size=2))
        if start == goal:
            continue
        board[start], board[goal] = "S", "G"
        if _reaches(board, start, goal):
            return ["".join(row) for row in board]


def _reaches(board: Any, start: Cell, goal: Cell) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        row, column = waiting.pop()
        if (row, column) == goal:
            return True
        for cell in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
            inside = 0 <= cell[0] < len(board) and 0 <= cell[1] < len(board)
            if inside and board[cell] != "H" and cell not in seen:
                seen.add(cell)
                waiting.append(cell)
    return False


WALL, FLOOR, TARGET, BOX_ON_TARGET, BOX, PLAYER, PLAYER_ON_TARGET = range(7)
MOVES: Mapping[int, Cell] = {1: (-1, 0), 2: (1, 0), 3: (0, -1), 4: (0, 1)}
MOST_ROOMS = 2000
"""Positions that the search for a start looks at."""


class Sokoban(_Texts):
    """Push boxes onto targets: -0.1 for a step, 1 for a box on a target and -1 for one off it, 10 for the last one."""

    symbols = {0: "#", 1: "_", 2: "O", 3: "√", 4: "X", 5: "P", 6: "S"}
    meanings = {
        "#": "wall",
        "_": "empty",
        "O": "target",
        "√": "box on target",
        "X": "box",
        "P": "player",
        "S": "player on target",
    }
    actions = {1: "Up", 2: "Down", 3: "Left", 4: "Right"}
    instruction = (
        "You are solving the Sokoban puzzle. You are the player and you need to push all boxes to targets. When you are right "
        "next to a box, you can push it by moving in the same direction. You cannot push a box through a wall, and you cannot "
        "pull a box. The answer must be one of action in a turn, format is <answer>Right</answer>."
    )

    def __init__(
        self,
        dim_room: Sequence[int] = (10, 10),
        num_boxes: int = 4,
        search_depth: int = 300,
        max_steps: int = 20,
        format_penalty: float = 0.0,
        **words: Unpack[Wording],
    ) -> None:
        """Make a room.

        Args:
            dim_room: rows and columns, walls around included.
            num_boxes: boxes, and targets.
            search_depth: pulls that lead from the solved room to the first one, at most.
            max_steps: after which an episode is over.
            format_penalty: reward of a text without an action, beside the -0.1 of the step.
            words: see ``Wording``.
        """
        super().__init__(**words)
        self._shape = (int(dim_room[0]), int(dim_room[1]))
        self._count, self._depth = num_boxes, search_depth
        self._max_steps, self._penalty = max_steps, format_penalty
        self._steps = 0
        self.floor: frozenset[Cell] = frozenset()
        self.targets: frozenset[Cell] = frozenset()
        self.boxes: frozenset[Cell] = frozenset()
        self.player: Cell = (0, 0)

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode in a new room.

        Raises:
            ValueError: there is no such room: it is too small for the boxes.
        """
        random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
        self._steps = 0
        for _ in range(100):
            room = _room(self._shape, self._count, self._depth, random)
            if room is not None:
                self.floor, self.targets, self.boxes, self.player = room
                return self._text(), self.info(valid=True, effective=False, success=False)
        raise ValueError(
            f"no room of {self._shape[0]} x {self._shape[1]} with {self._count} boxes was found; set dim_room larger"
        )

    def step(self, text: str) -> Result:
        self._steps += 1
        action, before = self.action_in(text), (self.player, len(self.boxes & self.targets))
        if action is not None:
            self._move(MOVES[action])
        on_target = len(self.boxes & self.targets)
        success = self.boxes == self.targets
        reward = -0.1 + (on_target - before[1]) + (10.0 if success else 0.0)
        reward += self._penalty if action is None else 0.0
        over = success or self._steps >= self._max_steps
        info = self.info(valid=action is not None, effective=self.player != before[0], success=success)
        return self._text(), reward, over, over and not success, info

    def _move(self, by: Cell) -> None:
        to = (self.player[0] + by[0], self.player[1] + by[1])
        if to in self.boxes:
            beyond = (to[0] + by[0], to[1] + by[1])
            if beyond not in self.floor or beyond in self.boxes:
                return
            self.boxes = self.boxes - {to} | {beyond}
        if to in self.floor:
            self.player = to

    def _text(self) -> str:
        grid = [[self._kind((row, column)) for column in range(self._shape[1])] for row in range(self._shape[0])]
        return self.shown(grid)

    def _kind(self, cell: Cell) -> int:
        on_target = cell in self.targets
        if cell == self.player:
            return PLAYER_ON_TARGET if on_target else PLAYER
        if cell in self.boxes:
            return BOX_ON_TARGET if on_target else BOX
        return WALL if cell not in self.floor else TARGET if on_target else FLOOR


Room = tuple[frozenset[Cell], frozenset[Cell], frozenset[Cell], Cell]


def _room(shape: Cell, count: int, depth: int, random: np.random.Generator) -> Room | None:
    """A room that can be solved, because it was made by pulling boxes off their targets; None if no box came off."""
    floor = _floor(shape, random)
    cells = sorted(floor)
    if len(cells) < count + 2:
        return None
    chosen = [cells[place] for place in random.choice(len(cells), size=count + 1, replace=False)]
    targets, player = frozenset(chosen[:count]), chosen[count]
    boxes, player = _pulled(floor, targets, player, depth, random)
    return None if boxes == targets else (floor, targets, boxes, player)


def _floor(shape: Cell, random: np.random.Generator) -> frozenset[Cell]:
    """Floor that a random walk cuts into the wall."""
    rows, columns = shape[0] - 2, shape[1] - 2
    if rows < 1 or columns < 1:
        return frozenset()
    at = (1 + int(random.integers(rows)), 1 + int(random.integers(columns)))
    found, direction = {at}, 1 + int(random.integers(4))
    for _ in range(2 * (shape[0] + shape[1])):
        if random.random() < 0.35:
            direction = 1 + int(random.integers(4))
        by = MOVES[direction]
        at = (min(max(at[0] + by[0], 1), rows), min(max(at[1] + by[1], 1), columns))
        found |= {at, (min(at[0] + 1, rows), at[1])} if random.random() < 0.3 else {at}
    return frozenset(found)


def _pulled(
    floor: frozenset[Cell], targets: frozenset[Cell], player: Cell, depth: int, random: np.random.Generator
) -> tuple[frozenset[Cell], Cell]:
    """Boxes and player after pulls from the solved room: of the positions found, one with most boxes off and most pulls."""
    waiting = deque([(targets, player, 0)])
    seen = {(targets, player)}
    best, choices = (0, 0), [(targets, player)]
    while waiting and len(seen) < MOST_ROOMS:
        boxes, at, pulls = waiting.popleft()
        score = (len(boxes - targets), pulls)
        if score > best:
            best, choices = score, []
        if score == best:
            choices.append((boxes, at))
        for number in random.permutation(4) + 1:
            by = MOVES[int(number)]
            to, behind = (at[0] + by[0], at[1] + by[1]), (at[0] - by[0], at[1] - by[1])
            if to not in floor or to in boxes:
                continue
            steps = [(boxes, to, pulls)]
            if behind in boxes and pulls < depth:
                steps.append((boxes - {behind} | {at}, to, pulls + 1))
            for state in steps:
                if state[:2] not in seen:
                    seen.add(state[:2])
                    waiting.append(state)
    return choices[int(random.integers(len(choices)))]
