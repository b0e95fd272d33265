"""The Chinese help of keys and options: all of it there, none of it older than its English."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rlctl.config import chinese
from rlctl.config.explain import explain, shown_type
from rlctl.config.inspect import walk
from rlctl.config.root import Config
from rlctl.editing import fields
from rlctl.editing.session import Session

ENGLISH = dict(chinese.english())
TABLE = chinese.lines()
CODE = re.compile(r"``.+?``")
NUMBER = re.compile(r"(?<![\w.^-])\d+(?:\.\d+)?(?![\w.])")
HAN = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture(autouse=True)
def _nothing_known_of_another_language() -> Iterator[None]:
    """A process has one language, but for these tests."""
    for known in (fields._help, fields._nature):
        known.cache_clear()
    yield
    for known in (fields._help, fields._nature):
        known.cache_clear()


def test_every_key_and_option_is_there_as_the_english_is_now() -> None:
    now = {name: chinese.mark_of(text) for name, text in ENGLISH.items()}
    then = {name: mark for name, (mark, _) in TABLE.items()}
    assert then == now, "python -m rlctl.config.chinese prints what is to be written anew"
    assert list(then) == list(now), "the table is in the schema's order"


def test_a_line_stands_once() -> None:
    names = [line.partition("\t")[0] for line in chinese.TABLE.read_text(encoding="utf-8").splitlines()]
    assert len(names) == len(set(names))


def test_every_key_of_the_schema_has_a_name_in_the_table() -> None:
    assert {chinese.name_of(key) for key in walk(Config)} <= ENGLISH.keys()


def test_the_chinese_says_what_the_english_says() -> None:
    """The same keys and values in code marks, the same numbers; Chinese but for proper names; whole sentences."""
    wrong = []
    for name, english in ENGLISH.items():
        text = TABLE[name][1]
        same = set(CODE.findall(english)) == set(CODE.findall(text))
        counted = set(NUMBER.findall(english)) <= set(NUMBER.findall(text))
        told = HAN.search(text) or english.rstrip(".") == text.rstrip("。")
        if not (same and counted and told and text.endswith("。") and text == text.strip()):
            wrong.append((name, english, text))
    assert not wrong


def test_an_explanation_is_in_the_readers_language(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explain("rollout.engine").help == "The engine that generates."
    monkeypatch.setattr(chinese, "LANGUAGE", "zh")
    found = explain("rollout.engine")
    assert found.help == "生成回答的引擎。"
    assert "有 GPU 用 vLLM，否则用内置引擎。" in [option.help for option in found.options]


def test_fields_are_found_by_their_help_in_either_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chinese, "LANGUAGE", "zh")
    views = fields.fields(Session.new())
    for text in ("峰值学习率", "peak learning rate"):
        assert "train.optimizer.lr" in [view.pattern for view in fields.search(views, text, lambda _: [])]


def test_types_units_and_ranges_are_in_the_readers_language(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chinese.in_words("at least 0 and at most 1") == "at least 0 and at most 1"
    monkeypatch.setattr(chinese, "LANGUAGE", "zh")
    left = set()
    for key in walk(Config):
        texts = [shown_type(key.info), key.info.unit, str(key.info.range or "")]
        told = [chinese.in_words(text) for text in texts if " | " not in text]
        left |= set(re.findall(r"[A-Za-z_]{2,}", " ".join(told)))
    assert left == {"null", "all", "auto", "optimizer_steps", "epochs", "GiB", "MiB", "TFLOP", "token", "prompt"}
    assert chinese.in_words("auto | text or null") == "auto | text 或 null", "what is written in a file stays"


def test_the_command_explains_in_chinese_where_it_is_asked_to() -> None:
    def told(**variables: str) -> str:
        deciding = ("RLCTL_LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
        clean = {name: value for name, value in os.environ.items() if name not in deciding}
        command = [sys.executable, "-m", "rlctl", "explain", "rollout.engine"]
        done = subprocess.run(
            command, env=clean | variables, capture_output=True, text=True, check=True, encoding="utf-8"
        )
        return done.stdout

    zh, en = "生成回答的引擎。", "The engine that generates."
    assert zh in told(RLCTL_LANGUAGE="zh", LANG="C.UTF-8")
    assert zh in told(LANG="zh_CN.UTF-8", PYTHONUTF8="1")
    assert en in told(LANG="zh_CN.UTF-8", RLCTL_LANGUAGE="en")
    assert en in told(LANG="de_DE.UTF-8")
