"""What runs do not do, by key: the only keys of the frameworks' documents and examples that may be refused."""

from __future__ import annotations

import re

LATER = {
    "the agentic pipeline": r"rollout\.(default_agent|agents|auxiliary_models|openai_server|oversampling\.additional_responses)\b|data\.(train|eval)\[\d*\]\.(agent|format)",
    "the data processor": r"data\.operators|service\.data_juicer|algorithm\.experience_operators",
}
"""Key patterns, and keys, that begin so: not run yet."""

NEVER = {
    "model.multi_token_prediction": "heads that Transformers does not read; in none of the documents",
    "critic.model.multi_token_prediction": "a critic has one value head",
    "rollout.sampling.num_beams": "a beam is searched, not drawn; in none of the documents",
    "rollout.engine<other>": "an engine of one framework; in none of the documents",
    "train.engine<other>": "an engine of one framework, or a remote service with an account",
}
"""What else is refused, and why."""


def is_later(key: str) -> bool:
    """Whether a key, or a pattern of keys, is of what comes later."""
    return any(re.match(pattern, re.sub(r"^stages\[\d+\]\.", "", key)) for pattern in LATER.values())


def is_never(key: str) -> bool:
    """Whether a key, or a pattern of keys, is one that is refused for good."""
    return key.startswith(tuple(NEVER))
