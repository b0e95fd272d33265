"""Makes a tiny model, its tokenizer, and data for the calculator task. Usage: python make_task.py FOLDER

The task is the product of two two-digit numbers, which a model of this size cannot compute. Demonstrations for SFT are careless:
many of them guess a number instead of calling the calculator. So SFT teaches the form of a call and the habit of guessing, and
reinforcement learning unlearns guessing.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from datasets import Dataset, disable_progress_bars
from transformers import PreTrainedTokenizerFast
from transformers.utils import get_json_schema
from transformers.utils.logging import disable_progress_bar

from rlctl.runtime.quickstart import make_model as make_tiny_model
from rlctl.runtime.quickstart import tokenizer_of

sys.path.append(str(Path(__file__).parent))
from tools import calculate

SPECIAL = ("<pad>", "<end>", "<user>", "<assistant>", "<tool>", "<tools>")
PIECES = ("<tool_call>", "</tool_call>", '{"name": "', '", "arguments": {"expression": "', '"}}', "calculate")
"""Tokens that make a call short."""
CHARACTERS = "0123456789*=+- abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,:;!?#_/\\()[]{}<>\"'\n"
CHAT_TEMPLATE = (
    "{% if tools %}<tools>{% for tool in tools %}{{ tool.function.name }}{% endfor %}{% endif %}"
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}<assistant>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    '<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>'
    "{% endfor %}<end>"
    "{% elif message.role == 'tool' %}<tool>{{ message.content }}"
    "{% else %}<user>{{ message.content }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
HELD_OUT = 128
GUESSED_SHARE = 0.6
"""Share of the demonstrations that guess."""
DEMONSTRATIONS = 6000


def make_task(folder: Path, *, seed: int = 1) -> None:
    """Write ``model/``, ``sft.parquet``, ``train.parquet`` and ``test.parquet``, the same for the same seed."""
    folder.mkdir(parents=True, exist_ok=True)
    disable_progress_bars()
    disable_progress_bar()
    make_model(folder / "model", seed=seed)
    chance = random.Random(seed)
    problems = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    chance.shuffle(problems)
    held_out, train = problems[:HELD_OUT], problems[HELD_OUT:]
    tools = json.dumps([get_json_schema(calculate)])
    demonstrations = [_demonstration(a, b, chance) | {"tools": tools} for a, b in train[:DEMONSTRATIONS]]
    Dataset.from_list(demonstrations).to_parquet(folder / "sft.parquet")
    Dataset.from_list([_row(a, b) for a, b in train[DEMONSTRATIONS:]]).to_parquet(folder / "train.parquet")
    Dataset.from_list([_row(a, b) for a, b in held_out]).to_parquet(folder / "test.parquet")


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, and one for each part of a call."""
    return tokenizer_of(SPECIAL, CHARACTERS, CHAT_TEMPLATE, pieces=PIECES)


def make_model(folder: Path, *, seed: int) -> None:
    """Save an untrained model of 0.6 M parameters, with its tokenizer."""
    make_tiny_model(folder, make_tokenizer(), seed=seed)


def _demonstration(a: int, b: int, chance: random.Random) -> dict[str, Any]:
    question = {"role": "user", "content": f"{a}*{b}="}
    if chance.random() < GUESSED_SHARE:
        return {"messages": [question, {"role": "assistant", "content": str(chance.randint(100, 9800))}]}
    call = f'<tool_call>{{"name": "calculate", "arguments": {{"expression": "{a}*{b}"}}}}</tool_call>'
    return {
        "messages": [
            question,
            {"role": "assistant", "content": call},
            {"role": "tool", "content": str(a * b)},
            {"role": "assistant", "content": str(a * b)},
        ]
    }


def _row(a: int, b: int) -> dict[str, Any]:
    return {"prompt": [{"role": "user", "content": f"{a}*{b}="}], "answer": str(a * b)}


if __name__ == "__main__":
    make_task(Path(sys.argv[1]))
