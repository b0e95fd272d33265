"""Makes a tiny model, its tokenizer, and demonstrations for FrozenLake. Usage: python make_task.py FOLDER

Demonstrations are careless walks: most moves are random. So SFT teaches what a move looks like, and little of where to go;
reinforcement learning, over the turns of an episode, teaches that.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from pathlib import Path
from typing import Any

from datasets import Dataset, disable_progress_bars
from transformers import PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from rlctl.runtime.quickstart import make_model as make_tiny_model
from rlctl.runtime.quickstart import tokenizer_of

sys.path.append(str(Path(__file__).parent))
from lake import SIZE, Lake

SPECIAL = ("<pad>", "<end>", "<user>", "<assistant>")
CHARACTERS = "\nPFHGLDRU"
MOVES = {"L": (0, -1), "D": (1, 0), "R": (0, 1), "U": (-1, 0)}
"""Row and column that a move adds, in the order of the environment's actions."""
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}<assistant>{{ message.content }}<end>"
    "{% else %}<user>{{ message.content }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
DEMONSTRATIONS = 2000
RIGHT_SHARE = 0.3
"""Share of the moves that lead to the goal on a shortest way."""
MOST_TURNS = 7


def make_task(folder: Path, *, seed: int = 1) -> None:
    """Write ``model/`` and ``sft.parquet``, the same for the same seed."""
    folder.mkdir(parents=True, exist_ok=True)
    disable_progress_bars()
    disable_progress_bar()
    make_model(folder / "model", seed=seed)
    chance = random.Random(seed)
    rows = [{"messages": _walk(chance)} for _ in range(DEMONSTRATIONS)]
    Dataset.from_list(rows).to_parquet(folder / "sft.parquet")


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character."""
    return tokenizer_of(SPECIAL, CHARACTERS, CHAT_TEMPLATE)


def make_model(folder: Path, *, seed: int) -> None:
    """Save an untrained model of 0.3 M parameters, with its tokenizer."""
    shape = {"hidden_size": 96, "intermediate_size": 256, "num_key_value_heads": 4, "max_position_embeddings": 160}
    make_tiny_model(folder, make_tokenizer(), seed=seed, **shape)


def _walk(chance: random.Random) -> list[dict[str, Any]]:
    lake = Lake()
    seen, _ = lake.reset(chance.randrange(2**31))
    messages: list[dict[str, Any]] = []
    for _ in range(MOST_TURNS):
        move = right_move(seen) if chance.random() < RIGHT_SHARE else chance.choice(list(MOVES))
        messages += [{"role": "user", "content": seen}, {"role": "assistant", "content": move}]
        seen, _, terminated, _, _ = lake.step(list(MOVES).index(move))
        if terminated:
            break
    return messages


def right_move(seen: str) -> str:
    """The first move of a shortest way to the goal."""
    rows = seen.split("\n")
    start = next((r, c) for r in range(SIZE) for c in range(SIZE) if rows[r][c] == "P")
    ways: deque[tuple[tuple[int, int], str]] = deque([(start, "")])
    known = {start}
    while ways:
        (r, c), first = ways.popleft()
        if rows[r][c] == "G":
            return first
        for move, (down, right) in MOVES.items():
            to = r + down, c + right
            if to not in known and 0 <= to[0] < SIZE and 0 <= to[1] < SIZE and rows[to[0]][to[1]] != "H":
                known.add(to)
                ways.append((to, first or move))
    return "R"


if __name__ == "__main__":
    make_task(Path(sys.argv[1]))
