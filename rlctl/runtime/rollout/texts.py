"""Responses as text: special tokens left out, and from where a text ended the response if it is to be cut."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rlctl.runtime.data.tokenizer import decode_all
from rlctl.runtime.types import Response


def decoded(responses: Sequence[Response], tokenizer: Any) -> list[str]:
    """The text of each; those that have theirs already are not decoded."""
    bare = [response for response in responses if response.text is None]
    texts = iter(decode_all(tokenizer, [response.token_ids for response in bare]) if bare else ())
    return [_cut(next(texts), response.cut) if response.text is None else response.text for response in responses]


def with_texts(responses: Sequence[Response], tokenizer: Any) -> list[Response]:
    """The same responses with their texts."""
    texts = decoded(responses, tokenizer)
    return [dataclasses.replace(response, text=text) for response, text in zip(responses, texts, strict=True)]


def _cut(text: str, end: str) -> str:
    return text[: text.rfind(end)] if end and end in text else text
