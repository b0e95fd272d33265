"""The help in Chinese: every paragraph has a text, and the command line shows it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from typer.main import get_command

from rlctl import cli
from rlctl.cli.usage import chinese_help, paragraphs_of

TYPERS = {"Options", "Arguments", "Commands", "Show this message and exit.", "[default: {}]", "[required]"}
"""What typer itself writes."""
PANELS = {cli.BEFORE, cli.RUNNING, cli.ABOUT}
CHINESE = re.compile("[\u4e00-\u9fff]")


def test_every_paragraph_of_help_has_a_chinese_text() -> None:
    english = set(paragraphs_of(get_command(cli.app)))
    assert len(english) > 150
    assert chinese_help().keys() == english | TYPERS | PANELS
    assert not [text for text in chinese_help().values() if not CHINESE.search(text)]


def test_commands_and_options_are_named_alike_in_both_languages() -> None:
    named = re.compile(r"(?<![\w/`-])--?[a-z][a-z-]+|(?<!\[)\b[A-Z_]{4,}=?\b|`[^`]+`|\[(?:b|bold|cyan)\](.*?)\[/")
    for english, chinese in chinese_help().items():
        if english not in TYPERS:
            assert set(named.findall(english)) - {"Examples"} == set(named.findall(chinese)) - {"示例"}, english


@pytest.mark.parametrize(
    ("language", "columns", "words"),
    [("en", "80", ["serve"]), ("en", "60", ["cluster", "kuberay"]), ("zh", "80", []), ("zh", "60", ["convert"])],
)
def test_help_is_never_cut_off(language: str, columns: str, words: list[str]) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "rlctl", "--language", language, *words, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": columns},
    ).stdout
    assert "--help" in shown
    assert "…" not in shown


def test_a_line_of_chinese_help_starts_with_no_closing_mark() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "rlctl", "--language", "zh", "convert", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "80"},
    ).stdout
    assert "转换后的配置写到标准输出或 -o 指定的文件" in shown, "a line is filled before it is broken"
    assert not re.search(r"^[│ ]*[，。；：、！？）]", shown, re.MULTILINE)


@pytest.mark.parametrize("words", [["--help"], ["runs"], ["convert", "-h"], ["cluster", "slurm", "--help"]])
def test_help_is_shown_in_chinese(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rlctl", "--language", "zh", *words], capture_output=True, text=True, check=False
    )
    shown = done.stdout + done.stderr
    assert "显示本说明并退出" in shown
    lines = [line for line in shown.splitlines() if not line.startswith(" rlctl ")]
    prose = [line for line in lines if re.search(r"[a-z]{3,} [a-z]{2,} [a-z]{2,} [a-z]{2,}", line)]
    assert not prose
