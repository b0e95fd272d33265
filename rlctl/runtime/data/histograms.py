"""Lengths of a config's training data as histograms, which ``rlctl plan --lengths`` reads.

``prompt_tokens`` counts prompts as the chat template writes them, ``sequence_tokens`` whole rows where responses are data;
``prompt_characters`` and ``sequence_characters`` count the text in the rows.
"""

from __future__ import annotations

import sys
from collections import Counter

from rlctl.runtime.data.lengths import measured
from rlctl.runtime.data.open import DataSpec
from rlctl.runtime.data.operators import text_of
from rlctl.runtime.data.sources import load_source

Histogram = dict[int, int]
"""How often each length occurs, ascending."""


def histograms(spec: DataSpec) -> dict[str, Histogram]:
    """Of all rows of the training data, by what is counted.

    Args:
        spec: of the data of a stage.

    Raises:
        RlctlError: the tokenizer or the data cannot be read.
    """
    of = "sequence" if spec.objective == "sft" else "prompt"
    tokens: Counter[int] = Counter()
    for source in measured(spec, sys.maxsize):
        tokens.update(source["lengths"])
    characters: Counter[int] = Counter()
    for key, each in spec.sources("train"):
        columns = [each.prompt_key]
        if of == "sequence":
            columns = [each.messages_key] if each.messages_key else [each.prompt_key, each.response_key or ""]
        for row in load_source(each, key=key):
            characters[sum(len(text_of(row.get(column))) for column in columns if column)] += 1
    return {f"{of}_tokens": _ascending(tokens), f"{of}_characters": _ascending(characters)}


def _ascending(counts: Counter[int]) -> Histogram:
    return dict(sorted(counts.items()))
