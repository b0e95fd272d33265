"""A tokenizer that cannot be loaded is a sentence, in seconds, and the chat template is the config's where it has one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen2Config

from rlctl.common.errors import RunError
from rlctl.config.sections.model import Model
from rlctl.runtime.data.tokenizer import decode_all, load_tokenizer, read_template


def _not_asked(endpoint: str) -> bool:
    raise AssertionError(f"a folder on disk needs no hub, and {endpoint} was asked")


def test_loads_from_a_folder_with_the_template_of_the_config(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer.save_pretrained(tmp_path / "tok")
    (tmp_path / "mine.jinja").write_text("{{ messages[0]['content'] }}!")
    model = Model(path="elsewhere", tokenizer=str(tmp_path / "tok"), chat_template=str(tmp_path / "mine.jinja"))
    monkeypatch.setattr("rlctl.runtime.data.hub.hub_answers", _not_asked)
    loaded = load_tokenizer(model)
    assert loaded("hello")["input_ids"] == tokenizer("hello")["input_ids"]
    assert loaded.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False) == "a!"


def test_a_template_is_text_or_a_file(tmp_path: Path) -> None:
    assert read_template("{{ messages }}", key="model.chat_template") == "{{ messages }}"
    with pytest.raises(RunError, match=r"model\.chat_template is 'nowhere\.jinja'"):
        read_template("nowhere.jinja", key="model.chat_template")


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=rf"cannot load a tokenizer from the folder {tmp_path} \(model\.path\)"):
        load_tokenizer(Model(path=str(tmp_path)))
    Qwen2Config().save_pretrained(tmp_path)
    with pytest.raises(RunError, match="it has no vocabulary"):
        load_tokenizer(Model(path=str(tmp_path)))


def test_a_name_that_is_not_there_fails_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    start = time.monotonic()
    with pytest.raises(RunError, match=r"no tokenizer nobody/nothing \(model\.path\).*cannot be reached"):
        load_tokenizer(Model(path="nobody/nothing"))
    assert time.monotonic() - start < 6


def test_texts_are_those_of_batch_decode_however_they_are_made(tokenizer: Any) -> None:
    """A tokenizer that changes texts once they are decoded is asked for them one by one."""
    end = tokenizer.eos_token_id
    sequences = [tokenizer("what is 12 + 30 ?")["input_ids"], [], [*tokenizer("a , b")["input_ids"], end, end]]
    for cleans in (False, True):
        tokenizer.clean_up_tokenization_spaces = cleans
        found = decode_all(tokenizer, [tuple(each) for each in sequences])
        assert found == tokenizer.batch_decode(sequences, skip_special_tokens=True)
        assert tokenizer.decode([end]) not in found[2]
