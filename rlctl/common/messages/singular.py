"""English after a count of 1: texts are written for several, as ``{count} steps``, and say ``1 step`` for one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NOUNS = (
    *("bytes", "characters", "cores", "devices", "engines", "epochs", "episodes", "experts", "files", "GPUs", "groups"),
    *("heads", "images", "inputs", "items", "jobs", "keys", "layers", "levels", "lines", "log-probs", "micro-batches"),
    *("mini-batches", "minutes", "models", "nodes", "overrides", "passes", "placeholders", "processes", "prompts"),
    *("ranks", "replicas", "responses", "rewards", "rounds", "rows", "runs", "seconds", "sequences", "steps", "syncs"),
    *("tasks", "tokens", "tools", "trainers", "trajectories", "turns", "updates", "versions", "workers"),
)
_IRREGULAR = {"passes": "pass", "processes": "process", "trajectories": "trajectory"}
_IRREGULAR |= {noun: noun[:-2] for noun in _NOUNS if noun.endswith("batches")}
_KINDS = (
    *("critic-only", "decay", "expert", "explore", "further", "image", "optimizer", "prompt", "response", "rollout"),
    *("train", "trainer", "training", "unused", "update_actor", "whole"),
)
"""Words that may be between the count and its noun."""
_VERBS = {"are": "is", "do": "does", "have": "has", "leave": "leaves", "need": "needs", "take": "takes", "were": "was"}
_AFTER = re.compile(
    rf" (?:(?:{'|'.join(_KINDS)}) )?(?P<noun>{'|'.join(_NOUNS)})(?![\w-])"
    rf"(?P<verbal>(?: (?:of|with) [^,;:.(]*?)? (?P<verb>{'|'.join(_VERBS)})(?![\w-]))?"
)
_COUNTED = re.compile(
    rf"(?<!of )(?<!all )(?<!there are )(?P<count>\{{(?P<name>\w+)(?::g)?\}})(?P<after>{_AFTER.pattern})"
)
"""Not ``1 of 1 sequences``, ``all 1 sequences`` and ``there are 1 inputs and 2 outputs``."""


def is_one(value: Any) -> bool:
    """Whether a value is a count of 1."""
    return type(value) in (int, float) and bool(value == 1)


def of_one(template: str, values: Mapping[str, Any]) -> str:
    """A template with its nouns in the singular after values that are 1."""
    if not any(map(is_one, values.values())):
        return template
    return _COUNTED.sub(
        lambda match: match["count"] + after_one(match["after"]) if is_one(values.get(match["name"])) else match[0],
        template,
    )


def after_one(text: str) -> str:
    """A text that follows a 1, such as `` steps are``, which is `` step is`` then."""
    if (match := _AFTER.match(text)) is None:
        return text
    noun, verb = match["noun"], match["verb"]
    one = text[: match.start("noun")] + _IRREGULAR.get(noun, noun[:-1])
    if verb:
        one += text[match.start("verbal") : match.start("verb")] + _VERBS[verb]
    return one + text[match.end() :]
