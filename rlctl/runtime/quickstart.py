"""Makes the quickstart's model, tokenizer and data on the spot: a task that a tiny model can learn, and nothing to download.

The task is two-digit addition, read and written character by character. The demonstrations for SFT are careless: most of
those that need a carry forget it. SFT therefore learns the format, the sums without a carry, and the mistake; GRPO sees only
right and wrong, and unlearns it. Held-out problems are never in the training data.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from datasets import Dataset, disable_progress_bars
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.utils.logging import disable_progress_bar

CHARACTERS = "0123456789+=- ?.,:abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ#"
SPECIAL = ("<pad>", "<end>", "<user>", "<assistant>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<assistant>{{ message['content'] }}<end>"
    "{% else %}<user>{{ message['content'] }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
HELD_OUT = 256
"""Problems that are only ever evaluated on."""
EASY_SHARE = 0.5
"""Share of the problems without a carry that are kept, so that most problems have one."""
FORGOTTEN_SHARE = 0.6
"""Share of the demonstrations with a carry that forget it."""
Problem = tuple[int, int]

SHAPE = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def make_quickstart(folder: Path, *, seed: int) -> None:
    """Write ``model/``, ``sft.parquet``, ``train.parquet`` and ``test.parquet`` into ``folder``, the same for the same seed."""
    folder.mkdir(parents=True, exist_ok=True)
    disable_progress_bars()
    disable_progress_bar()
    make_model(folder / "model", make_tokenizer(), seed=seed)
    train, held_out = split_problems(seed)
    _parquet(_demonstrations(train, seed), folder / "sft.parquet")
    _parquet([_rl_row(problem, index, "train") for index, problem in enumerate(train)], folder / "train.parquet")
    _parquet([_rl_row(problem, index, "test") for index, problem in enumerate(held_out)], folder / "test.parquet")


def make_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of the sums."""
    return tokenizer_of(SPECIAL, CHARACTERS, CHAT_TEMPLATE)


def tokenizer_of(
    special: Sequence[str], characters: str, chat_template: str, *, pieces: Sequence[str] = ()
) -> PreTrainedTokenizerFast:
    """A tokenizer with one token a character.

    Args:
        special: special tokens; the first pads, the second ends a turn.
        characters: the first known one stands for unknown ones, or a space if there is one.
        chat_template: how conversations are written.
        pieces: longer texts that are one token.
    """
    vocabulary = {token: index for index, token in enumerate((*special, *characters))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=" " if " " in characters else characters[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(?m)." if "\n" in characters else "."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in pieces])
    pad, end, *further = special
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=pad, eos_token=end)
    wrapped.add_special_tokens({"additional_special_tokens": further})
    wrapped.chat_template = chat_template
    return wrapped


def make_model(folder: Path, tokenizer: PreTrainedTokenizerFast, *, seed: int, **shape: int) -> None:
    """Save an untrained Qwen2-shaped model of 0.6 M parameters, or another ``shape``, with its tokenizer."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        **(SHAPE | shape),
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def split_problems(seed: int) -> tuple[list[Problem], list[Problem]]:
    """Sums of two two-digit numbers, shuffled: training problems and held-out ones, disjoint.

    ``12+34`` and ``34+12`` are kept on the same side, so that no held-out problem is seen the other way round.
    """
    chance = random.Random(seed)
    pairs = [(a, b) for a in range(10, 100) for b in range(a, 100)]
    pairs = [pair for pair in pairs if carries(pair) or chance.random() < EASY_SHARE]
    chance.shuffle(pairs)
    held_out, kept = pairs[:HELD_OUT], pairs[HELD_OUT:]
    train = kept + [(b, a) for a, b in kept if a != b]
    chance.shuffle(train)
    return train, held_out


def carries(problem: Problem) -> bool:
    """Whether the ones add up to ten or more."""
    return problem[0] % 10 + problem[1] % 10 >= 10


def _question(problem: Problem) -> str:
    return f"{problem[0]}+{problem[1]}="


def _answer(total: int) -> str:
    return f"{total:03d}"


def _demonstrations(problems: Sequence[Problem], seed: int) -> list[dict[str, object]]:
    chance = random.Random(seed)
    return [_sft_row(problem, carries(problem) and chance.random() < FORGOTTEN_SHARE) for problem in problems]


def _sft_row(problem: Problem, forgets: bool) -> dict[str, object]:
    messages = [
        {"role": "user", "content": _question(problem)},
        {"role": "assistant", "content": _answer(sum(problem) - 10 * forgets)},
    ]
    return {"messages": messages}


def _rl_row(problem: Problem, index: int, split: str) -> dict[str, object]:
    return {
        "data_source": "addition",
        "prompt": [{"role": "user", "content": _question(problem)}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": _answer(sum(problem))},
        "extra_info": {"index": index, "split": split},
    }


def _parquet(rows: Sequence[dict[str, object]], path: Path) -> None:
    Dataset.from_list(list(rows)).to_parquet(path)


def sizes(folder: Path) -> dict[str, int]:
    """Of what was made: the model's layers and width, problems to train on and to evaluate."""
    config = json.loads((folder / "model" / "config.json").read_text())
    rows = {name: Dataset.from_parquet(str(folder / f"{name}.parquet")).num_rows for name in ("train", "test")}
    return {"layers": config["num_hidden_layers"], "width": config["hidden_size"], **rows}
