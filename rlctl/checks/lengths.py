"""The lengths of a few rows of the training data, tokenized in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Iterator
from typing import Any

from rlctl.checks.data_values import is_read
from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common import own_python
from rlctl.config import Config, to_plain
from rlctl.documents.paths import KeyPath
from rlctl.planning.memory import context_tokens

ROWS = 64
"""Rows of each source that are measured, the first ones."""
SECONDS = 300.0
"""How long the process may take; a tokenizer that is downloaded counts."""


def lengths(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Prompts, or sequences that are data, fit into their limit."""
    key: KeyPath = ("data", "train")
    objective = config.algorithm.objective.choice
    reason = _unmeasured(config)
    if not config.data.train:
        return
    if reason:
        yield problem("data-lengths_unmeasured", key, reason=reason)
        return
    answer = _asked(config)
    if "error" in answer:
        yield problem("data-unreadable_rows", key, reason=answer["error"], advice=answer["hint"])
        return
    if "failed" in answer:
        yield problem("data-lengths_unmeasured", key, reason=answer["failed"])
        return
    limit = context_tokens(config) if objective == "sft" else config.data.max_prompt_tokens
    limited: KeyPath = ("data", "max_sequence_tokens" if objective == "sft" else "max_prompt_tokens")
    what = "sequences" if objective == "sft" else "prompts"
    for index, source in enumerate(answer["sources"]):
        where: KeyPath = ("data", "train", index, "path")
        yield from _of_source(config, where, source["lengths"], limit, limited, what)
        rows = {"count": len(source["lengths"]), "file": config.data.train[index].path}
        read = is_read(config.data.train[index])  # by a rule that looks at more rows
        if source["unanswered"] and not (read and config.data.train[index].answer_key):
            yield problem("data-unanswered", where, rows=source["unanswered"], **rows)
        if source["empty"] and not read:
            yield problem("data-blank", where, rows=source["empty"], **rows)


def _of_source(
    config: Config, key: KeyPath, counts: list[int], limit: int, limited: KeyPath, what: str
) -> Iterator[Problem]:
    path = config.data.train[int(key[2])].path
    over = [count for count in counts if count > limit]
    measured = {
        "count": len(counts),
        "what": what,
        "file": path,
        "shortest": min(counts),
        "longest": max(counts),
        "median": statistics.median(counts),
        "limit": limit,
    }
    if not over:
        yield problem("data-lengths", key, **measured)
    else:
        yield problem("data-overlong", limited, [(limited, max(counts))], over=len(over), **measured)


def _unmeasured(config: Config) -> str:
    """Why lengths cannot be measured without the user's code, or at all; empty if they can."""
    if config.algorithm.objective.choice == "dpo":
        return "preference pairs cannot be measured"
    if config.data.custom is not None:
        return "data.custom is your own code, which rlctl check does not run"
    if config.model.trust_remote_code or config.data.trust_remote_code or config.model.import_modules:
        return "the tokenizer comes with code, which rlctl check does not run"
    return ""


def _asked(config: Config) -> dict[str, Any]:
    """The answer of the process, or ``failed`` with what it said last."""
    question = json.dumps({"config": to_plain(config), "rows": ROWS})
    try:
        done = subprocess.run(
            own_python.module("rlctl.runtime.data.lengths"),
            input=question, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"failed": f"tokenizing took longer than {SECONDS:g} seconds"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"the tokenizing process exited with {done.returncode}"]
        return {"failed": lines[-1]}
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


RULES = (lengths,)
