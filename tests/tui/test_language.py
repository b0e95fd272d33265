"""Every text of the app has its Chinese, and the app shows it: tabs, footer and help, with nothing out of place."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import string
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich._wrap import divide_line
from rich.cells import cell_len

import rlctl
from rlctl.checks import check
from rlctl.common.messages.reasons import reasons
from rlctl.common.report import Finding, Level
from rlctl.common.report_lines import Cause
from rlctl.config import Config, chinese, config_from
from rlctl.config.inspect import walk
from rlctl.runtime.reporting.metrics import METRICS
from rlctl.tui.language import WORD, shortened, told_apart
from rlctl.tui.panes import findings
from rlctl.tui.screens.monitor import PANES
from rlctl.tui.widgets.pages import numbered
from rlctl.tui.zh import ZH

pytestmark = pytest.mark.xdist_group("language")  # the pages are gathered once
PACKAGE = Path(rlctl.__file__).parent
PLACES = ("tui", "monitor", "editing", "planning/batch_table.py")
MARKS = {"say", "later"}
HAN = re.compile(r"[\u4e00-\u9fff]")


def calls() -> Iterator[tuple[str, ast.expr]]:
    """Every text given to `say` or `later`, with where it stands."""
    for place in PLACES:
        for path in [PACKAGE / place] if place.endswith(".py") else sorted((PACKAGE / place).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKS:
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.func.id}", node.args[0]


def said() -> dict[str, str]:
    """Every literal among them, with where it stands; and what is said of metrics."""
    literals = {text.value: where for where, text in calls() if isinstance(text, ast.Constant)}
    metrics = {metric.help: name for name, metric in METRICS.items()}
    return literals | metrics


def fields_in(text: str) -> list[tuple[str, str]]:
    """The values that a text leaves room for, and how they are written."""
    return sorted((name, spec or "") for _, name, spec, _ in string.Formatter().parse(text) if name is not None)


def test_every_text_has_its_chinese() -> None:
    texts = said()
    assert {text: where for text, where in texts.items() if text not in ZH and text not in reasons("zh")} == {}


def test_no_chinese_is_of_a_text_that_is_gone() -> None:
    assert ZH.keys() - said().keys() == set()


def test_a_text_stands_whole_where_it_is_said() -> None:
    """Made of pieces, none could be found in the table."""
    assert [where for where, text in calls() if isinstance(text, (ast.JoinedStr, ast.BinOp))] == []


def test_the_chinese_has_room_for_the_same_values() -> None:
    assert {text: chinese for text, chinese in ZH.items() if fields_in(text) != fields_in(chinese)} == {}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What a person sees who reads Chinese, at 80 x 24."""
    folder = tmp_path_factory.mktemp("chinese")
    places = {"XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.tui.in_chinese", str(folder)],
        env=os.environ | places | {"RLCTL_LANGUAGE": "zh"},
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def test_pages_are_in_chinese_and_nothing_is_left_in_english(pages: dict[str, dict[str, str]]) -> None:
    sentences = [text for text, chinese in ZH.items() if " " in text.strip() and "{" not in text and text != chinese]
    for name, texts in pages.items():
        for page, text in texts.items():
            assert HAN.search(text), (name, page)
            assert [sentence for sentence in sentences if sentence in text] == [], (name, page)


def test_tabs_footer_and_help_are_in_chinese(pages: dict[str, dict[str, str]]) -> None:
    lines = pages["monitor"]["overview"].splitlines()
    assert re.sub(r"\s+", " ", lines[tabs_at(lines)]).strip() == " ".join(
        numbered(int(tab.key), ZH[tab.title]) for tab in PANES
    )
    assert "返回" in lines[-1], "a finished run has nothing to stop"
    assert "帮助" in pages["start"]["list"].splitlines()[-1]
    for texts in pages.values():
        assert "本页" in texts["help"]
        assert next(text for text in texts.values()).rstrip().endswith(" 帮助"), "whole characters at the edge"
    assert "任何地方" in pages["start"]["help"]
    beside = pages["editor"]["beside"]
    assert "现值" in beside
    assert "类型     文本" in beside
    field = next(key for key in walk(Config) if "." in key.pattern and f" {key.pattern} " in beside)
    assert chinese.chinese(chinese.name_of(field))[:20] in re.sub(r"[│▐\s]", "", beside)


def tabs_at(lines: list[str]) -> int:
    return next(place for place, line in enumerate(lines) if numbered(1, ZH["Overview"]) in line)


def test_layouts_hold_where_characters_take_two_cells(pages: dict[str, dict[str, str]]) -> None:
    for texts in pages.values():
        for page, text in texts.items():
            assert all(cell_len(line) <= 80 for line in text.splitlines()), page
    form = pages["editor"]["form"].splitlines()[1:-1]
    assert {cell_len(line.partition("││")[0]) for line in form[1:-1]} == {21}, "the tree is as wide in every line"
    for line in pages["start"]["list"].splitlines():
        if line.startswith("▊"):
            assert cell_len(line) == 78, "boxes close"


def test_a_pasted_text_is_shortened_in_no_time() -> None:
    """Cutting one character after another off 5,000 took seconds, and the app stood still meanwhile."""
    began = time.process_time()
    assert shortened("数学" * 50_000, 11) == "数学…学数学"
    assert shortened("abcdef", 0) == "a…f"
    assert time.process_time() - began < 5


def test_two_values_are_cut_where_they_are_alike() -> None:
    """Both were cut at the same place, so that nothing told them apart."""
    one, other = (f"/mnt/models/{'deep/' * 20}step-{step}/final" for step in (100, 200))
    for cells in (12, 20, 40, 60):
        pair = told_apart(one, other, cells)
        assert pair[0] != pair[1]
        assert all(cell_len(text) <= cells and "…" in text for text in pair)
    assert told_apart("short", "other", 20) == ("short", "other")
    ours, theirs = told_apart("中文" * 40 + "一", "中文" * 40 + "二", 21)
    assert (ours[-1], theirs[-1]) == ("一", "二")
    assert max(map(cell_len, (ours, theirs))) <= 21


def test_lines_of_chinese_are_broken_between_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich._wrap.re_word", WORD)
    text = "本机不存在以下 6 个路径：data/math.jsonl（第 85 行）、data/code.jsonl。请改正路径；相对路径从运行 rlctl 的目录算起"
    places = [0, *divide_line(text, 20), len(text)]
    lines = [text[start:end] for start, end in itertools.pairwise(places)]
    assert "".join(lines) == text
    assert all(cell_len(line.rstrip()) <= 20 for line in lines)
    assert lines[0] == "本机不存在以下 6 个"
    assert not any(line[0] in "，。；：、）" for line in lines), "a line does not begin with what ends a part"
    assert not any(line.rstrip()[-1] in "（" for line in lines)
    assert [line for line in lines if "data/math.jsonl" in line], "a path that fits a line is whole"


def test_a_finding_of_no_message_begins_with_what_its_code_means(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding("no-model", Level.ERROR, "no model is named", "model.path")
    monkeypatch.setattr(findings, "LANGUAGE", "zh")
    monkeypatch.setenv("RLCTL_LANGUAGE", "zh")
    first, second = findings._text(Cause((finding,))).splitlines()
    assert "没有设置 model.path" in first
    assert "no model is named" in second


def test_findings_and_what_to_set_are_in_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "LANGUAGE", "zh")
    monkeypatch.setenv("RLCTL_LANGUAGE", "zh")
    change = {"batch": {"prompts_per_step": 64, "responses_per_prompt": 8, "mini_batch_responses": 1024}}
    [finding] = [item for item in check(config_from(change)) if item.code == "mini-batch-too-large"]
    shown = findings._text(Cause((finding,)))
    assert "一个 mini-batch 有 1024 个回答，而一步只有 64 个 prompt x 8 = 512 条回答" in shown
    assert "把 batch.mini_batch_responses 设为 512 或更小" in shown
