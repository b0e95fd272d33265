"""Texts that end a response in the built-in engine: where they appear in what was drawn, by vLLM's rule.

A text counts once its last character is drawn after ``min_tokens`` tokens; one that was complete before does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.runtime.types import Sampling

Decode = Callable[[Sequence[int]], str]
_BYTES = 4
"""Tokens that one character may take, where a token is a byte of it."""


class StopTexts:
    """Which rows of a call a text has ended."""

    def __init__(self, samplings: Sequence[Sampling], decode: Decode) -> None:
        """
        Args:
            samplings: of each row.
            decode: token ids to text, special tokens left out.
        """
        self._samplings = samplings
        self._decode = decode
        self.ended: dict[int, str] = {}
        """The text that ended each row."""

    def check(self, row: int, token_ids: Sequence[int]) -> bool:
        """Whether the last token drawn ends a row whose response is ``token_ids``."""
        sampling = self._samplings[row]
        if not sampling.stop or len(token_ids) <= sampling.min_tokens:
            return False
        window = token_ids[-(_BYTES * (max(map(len, sampling.stop)) + 1)) - 1 :]
        before, text = len(self._decode(window[:-1])), self._decode(window)
        for stop in sampling.stop:
            if text.find(stop, max(0, before - len(stop) + 1)) >= 0:
                self.ended[row] = stop
                return True
        return False

    def cut(self, row: int) -> str:
        """The text that ended a row and is to be left out of its text."""
        return "" if self._samplings[row].include_stop else self.ended.get(row, "")


def decoder(tokenizer: str | None, *, trust_remote_code: bool) -> Decode:
    """What turns the token ids of the tokenizer at a path into text.

    Raises:
        RunError: there is none.
    """
    if tokenizer is None:
        raise RunError("stop strings need a tokenizer", hint="set model.tokenizer")
    loaded = _loaded(tokenizer, trust_remote_code)
    return lambda token_ids: str(loaded.decode(list(token_ids), skip_special_tokens=True))


@lru_cache(maxsize=1)
def _loaded(tokenizer: str, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(tokenizer, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise RunError(
            said("no tokenizer can be loaded from {tokenizer}: {error}", tokenizer=tokenizer, error=error),
            hint="set model.tokenizer",
        ) from error
