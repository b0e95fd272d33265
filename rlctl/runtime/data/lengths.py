"""Token counts of the first rows of a config's data, for ``rlctl check --data``: a process of its own, without the user's code.

    echo '{"config": {...}, "rows": 64}' | python -m rlctl.runtime.data.lengths

It prints one JSON object: ``sources``, of each training source the token counts of its rows (``lengths``), and how many have no
answer (``unanswered``) or ask nothing (``empty``); or ``error`` and ``hint``.
"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import replace
from typing import Any

from rlctl.common.errors import RlctlError
from rlctl.config import config_from
from rlctl.config.sections.data import DataSource
from rlctl.runtime.data.chat import Chat
from rlctl.runtime.data.open import DataSpec, make_chat
from rlctl.runtime.data.prompts import Limits, PromptSet
from rlctl.runtime.data.sft import SampleSet
from rlctl.runtime.data.sources import load_source
from rlctl.runtime.data.tokenizer import load_tokenizer
from rlctl.runtime.specs.data import data_spec

NO_LIMIT = sys.maxsize


def measured(spec: DataSpec, rows: int) -> list[dict[str, Any]]:
    """Of the first rows of each training source: token counts of prompts, or of whole sequences where responses are data, and how
    many lack something.

    Raises:
        RlctlError: the tokenizer or the data cannot be read.
    """
    chat = make_chat(spec, load_tokenizer(spec.model))
    return [_of_source(spec, chat, key, source, rows) for key, source in spec.sources("train")]


def _of_source(spec: DataSpec, chat: Chat, key: str, source: DataSource, rows: int) -> dict[str, Any]:
    source = replace(source, max_samples=min(rows, source.max_samples or rows))
    dataset = load_source(source, key=key)
    if spec.objective == "sft":
        samples = SampleSet(dataset, source, chat, spec.section, max_tokens=NO_LIMIT, key=key)
        counts = [len(samples[position].token_ids) for position in range(len(samples))]
        return {"lengths": counts, "unanswered": 0, "empty": 0}
    prompts = PromptSet(dataset, source, chat, Limits(NO_LIMIT), key=key)
    counts = [len(prompt.token_ids) for prompt in prompts.several(range(len(prompts)))]
    return {"lengths": counts, "unanswered": prompts.report.unanswered, "empty": prompts.report.empty}


def main() -> None:
    """Answer the question on stdin. What libraries print goes to stderr."""
    asked = json.load(sys.stdin)
    answer: dict[str, Any]
    with contextlib.redirect_stdout(sys.stderr):
        try:
            answer = {"sources": measured(data_spec(config_from(asked["config"])), asked["rows"])}
        except RlctlError as error:
            answer = {"error": error.message, "hint": error.hint}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
