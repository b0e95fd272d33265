"""Token counts of the first rows of a config's data, for ``rlctl check --data``: a process of its own, without the user's code.

    echo '{"config": {...}, "rows": 64}' | python -m rlctl.runtime.data.lengths

It prints one JSON object: ``lengths``, of each training source the token counts of its rows, or ``error`` and ``hint``.
"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import replace
from typing import Any

from rlctl.common.errors import RlctlError
from rlctl.config import Config, config_from
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.data.open import make_chat
from rlctl.runtime.data.prompts import Limits, PromptSet
from rlctl.runtime.data.sft import SampleSet
from rlctl.runtime.data.sources import load_source
from rlctl.runtime.data.tokenizer import load_tokenizer

NO_LIMIT = sys.maxsize


def measured(config: Config, rows: int) -> list[list[int]]:
    """The token counts of the first rows of each training source: of prompts, or of whole sequences where responses are data.

    Raises:
        RlctlError: the tokenizer or the data cannot be read.
    """
    chat = make_chat(config, load_tokenizer(config.model))
    return [_of_source(config, chat, index, rows) for index in range(len(config.data.train))]


def _of_source(config: Config, chat: Chat, index: int, rows: int) -> list[int]:
    source = config.data.train[index]
    source = replace(source, max_samples=min(rows, source.max_samples or rows))
    key = f"data.train[{index}]"
    dataset = load_source(source, key=key)
    if config.algorithm.objective.choice == "sft":
        samples = SampleSet(dataset, source, chat, config.data, max_tokens=NO_LIMIT, key=key)
        return [len(samples[position].token_ids) for position in range(len(samples))]
    prompts = PromptSet(dataset, source, chat, Limits(NO_LIMIT), key=key)
    return [len(prompt.token_ids) for prompt in prompts.several(range(len(prompts)))]


def main() -> None:
    """Answer the question on stdin. What libraries print goes to stderr."""
    asked = json.load(sys.stdin)
    answer: dict[str, Any]
    with contextlib.redirect_stdout(sys.stderr):
        try:
            answer = {"lengths": measured(config_from(asked["config"]), asked["rows"])}
        except RlctlError as error:
            answer = {"error": error.message, "hint": error.hint}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
