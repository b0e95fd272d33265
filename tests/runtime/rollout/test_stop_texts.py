"""Texts that end a response in the built-in engine."""

from __future__ import annotations

import string
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from rlctl.common.errors import RunError
from rlctl.runtime.rollout.stop_texts import StopTexts
from rlctl.runtime.rollout.transformers import TransformersEngine
from rlctl.runtime.types import Request, Sampling

from .conftest import VOCAB, MakeModel

CHARACTERS = (string.ascii_letters + string.digits + "+-")[:VOCAB]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One character a token, token 0 is ``a``."""
    made = Tokenizer(models.WordLevel({c: i for i, c in enumerate(CHARACTERS)}, unk_token="a"))
    made.decoder = decoders.Fuse()
    folder = tmp_path_factory.mktemp("tokenizer")
    PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(folder)
    return folder


def text(token_ids: tuple[int, ...]) -> str:
    return "".join(CHARACTERS[i] for i in token_ids)


def test_a_response_ends_with_the_first_text_and_is_the_same_until_there(
    make_model: MakeModel, tokenizer: Path
) -> None:
    engine = TransformersEngine(str(make_model()), tokenizer=str(tokenizer))
    free = Sampling(max_tokens=24, temperature=1.5)
    requests = [Request((1, 2 + i), free, 4, seed=i) for i in range(3)]
    whole = [response for group in engine.generate(requests) for response in group]
    stop = text(whole[0].token_ids)[6:8]
    stopping = replace(free, stop=(stop, "never-drawn-text"))
    found = [r for group in engine.generate([replace(r, sampling=stopping) for r in requests]) for r in group]
    ended = 0
    for before, after in zip(whole, found, strict=True):
        at = text(before.token_ids).find(stop)
        length = len(before.token_ids) if at < 0 else at + len(stop)
        assert after.token_ids == before.token_ids[:length]
        assert after.log_probs == pytest.approx(before.log_probs[:length], abs=1e-4)
        assert (after.finish_reason, after.cut) == (("length", "") if at < 0 else ("stop", stop))
        ended += at >= 0
    assert ended
    kept = engine.generate([replace(requests[0], sampling=replace(stopping, include_stop=True))])[0][0]
    assert (kept.token_ids, kept.cut) == (found[0].token_ids, "")


def test_a_text_that_was_complete_before_the_shortest_response_does_not_end_it() -> None:
    texts = StopTexts([Sampling(max_tokens=9, stop=("bc",), min_tokens=3)], text)
    ids = [CHARACTERS.index(c) for c in "abcabc"]
    assert [texts.check(0, ids[:length]) for length in range(1, 7)] == [False] * 5 + [True]


def test_a_text_may_end_inside_a_token() -> None:
    words = ["one", " two", " three"]
    texts = StopTexts([Sampling(max_tokens=9, stop=("o th",))], lambda ids: "".join(words[i] for i in ids))
    assert [texts.check(0, [0, 1, 2][:length]) for length in (1, 2, 3)] == [False, False, True]


def test_texts_need_a_tokenizer(make_model: MakeModel) -> None:
    engine = TransformersEngine(str(make_model()))
    with pytest.raises(RunError, match="need a tokenizer"):
        engine.generate([Request((1,), Sampling(max_tokens=2, stop=("x",)), 1, seed=0)])
