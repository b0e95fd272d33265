"""What is said on stderr can be copied and grepped: places are never wrapped, whatever the terminal."""

from __future__ import annotations

import io
import sys

import pytest

from rlctl.cli import diagnostics, layout
from rlctl.common.errors import Location
from rlctl.common.ranks import Rank
from rlctl.common.report import Bucket, Entry, Finding, Level, Origin, OriginEntry, Report

LONG = "some/quite/deeply/nested/folder/with/a/config/of/a/long/name.yaml"
FINDINGS = [
    Finding("note-code", Level.NOTE, "worth knowing"),
    Finding("warning-code", Level.WARNING, "look [twice] " * 12, "b", Location(LONG, 12), "do this"),
    Finding("error-code", Level.ERROR, "cannot be", "a.b", Location(LONG, 1234), "do [that]"),
]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def watched(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Somebody watches stderr on a narrow terminal from here on; not in a fixture, as pytest sets streams again after it."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    return stream


def test_elsewhere_a_finding_is_a_line_that_compilers_write_and_what_to_do_below(
    capsys: pytest.CaptureFixture[str],
) -> None:
    diagnostics.findings(FINDINGS)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [f"{LONG}:1234: error: cannot be [error-code]", "    → do [that]"]
    assert lines[2].startswith(f"{LONG}:12: warning: look [twice] look")
    assert lines[4] == "note: worth knowing [note-code]"


def test_notes_are_counted_unless_they_are_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    diagnostics.findings(FINDINGS, notes=False)
    shown = capsys.readouterr().err
    assert "note-code" not in shown
    assert shown.splitlines()[-1] == "One note (rlctl check -v)"


def test_places_are_whole_and_text_is_wrapped_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched(monkeypatch)
    diagnostics.findings(FINDINGS)
    shown = terminal.getvalue()
    assert f"{LONG}:1234\n" in shown
    assert f"{LONG}:12\n" in shown
    assert "error-code" in shown
    assert "do [that]" in shown
    assert max(len(line) for line in shown.splitlines() if LONG not in line) <= 60


def test_a_terminal_shows_the_line_alone_of_the_file_that_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched(monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    diagnostics.findings(FINDINGS, file=LONG)
    lines = terminal.getvalue().splitlines()
    assert lines[0] == "  error    line 1234  cannot be [error-code]"
    assert lines[1] == "                      → do [that]"
    assert lines[2].startswith("  warning  line 12    look [twice]")


def test_no_color_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched(monkeypatch)
    diagnostics.findings(FINDINGS)
    assert "\x1b[3" not in terminal.getvalue()
    monkeypatch.delenv("NO_COLOR")
    diagnostics.findings(FINDINGS)
    assert "\x1b[3" in terminal.getvalue()


def report() -> Report:
    return Report(
        "verl@0.9",
        "trinity@0.6",
        [
            Finding("unsupported", Level.WARNING, "'b' cannot be said", "b", Location("v.yaml", 2)),
            Finding("assumed", Level.WARNING, "'x.gpus: 4' is assumed", "x.gpus", None, "--assume gpus=..."),
        ],
        [
            Entry("a", Bucket.MAPPED, 1, Location("v.yaml", 1), (("x.a", 1),)),
            Entry("b", Bucket.UNSUPPORTED, None, Location("v.yaml", 2), (), "no such thing"),
            Entry("c", Bucket.UNKNOWN, "v" * 100, Location("v.yaml", 3), (), "did you mean 'd'?"),
        ],
        [OriginEntry("x.a", Origin.MAPPED, 1), OriginEntry("x.gpus", Origin.ASSUMED, 4, "half of 8")],
    )


def test_a_report_begins_with_what_needs_a_decision_and_counts_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    diagnostics.accounting(report())
    assert capsys.readouterr().err.splitlines() == [
        "verl 0.9 -> Trinity-RFT 0.6: 3 keys: 1 converted, 1 without an equivalent in Trinity-RFT, 1 unknown to verl",
        "",
        "Decide before you train",
        "  Names and files",
        f"  ? c = {'v' * 37}...  (v.yaml:3)",
        "    verl has no such key; did you mean 'd'?",
        "  ! 'x.gpus: 4' is assumed [assumed]",
        "    → --assume gpus=...",
        "",
        "  One key without an equivalent in Trinity-RFT, with an effect only on memory, speed or names: b",
    ]


def test_verbose_shows_every_key_and_every_value_written(capsys: pytest.CaptureFixture[str]) -> None:
    diagnostics.accounting(report(), verbose=True)
    lines = capsys.readouterr().err.splitlines()
    assert "  · a = 1 -> x.a = 1  (v.yaml:1)" in lines
    assert "  ✗ b = null  (v.yaml:2)" in lines
    place = lines.index("  · x.gpus = 4 (assumed)")
    assert lines[place + 1] == "    half of 8"


def test_a_terminal_shows_places_at_its_right_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched(monkeypatch)
    diagnostics.accounting(report())
    (line,) = [line for line in terminal.getvalue().splitlines() if line.startswith("  ? c")]
    assert line.endswith(" v.yaml:3")
    assert len(line) == 60


def test_chinese_text_is_wrapped_by_the_columns_it_takes() -> None:
    lines = layout.wrapped("训练前需要确认，模型 Qwen3-8B 的路径不存在。", 12)
    assert max(map(layout.cells, lines)) <= 14  # a mark of punctuation may hang over
    assert "".join(lines).replace(" ", "") == "训练前需要确认，模型Qwen3-8B的路径不存在。"
    assert not any(line.startswith(("，", "。")) for line in lines)


def test_a_stream_that_cannot_encode_marks_gets_plain_ones() -> None:
    item = layout.Item("✗", "", "a", advice="b")
    assert list(item.lines(layout.Screen(unicode=False))) == ["  x a", "    -> b"]


def test_a_closed_stderr_does_not_end_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    diagnostics._Stderr().write("x")
    diagnostics._Stderr().flush()


def test_what_to_decide_stands_under_its_rank_the_gravest_first(capsys: pytest.CaptureFixture[str]) -> None:
    lost = [
        Entry("a", Bucket.UNSUPPORTED, 1, note="no a", rank=Rank.DATA),
        Entry("b", Bucket.UNSUPPORTED, 1, note="no b", rank=Rank.OBJECTIVE),
        Entry("c", Bucket.UNSUPPORTED, 1, note="no c", rank=Rank.OBJECTIVE),
    ]
    diagnostics.accounting(Report("verl@0.9", "trinity@0.6", accounting=lost))
    assert capsys.readouterr().err.splitlines()[2:] == [
        "Decide before you train",
        "  The objective changes",
        "  ✗ b = 1",
        "    no b",
        "  ✗ c = 1",
        "    no c",
        "  Data and reward",
        "  ✗ a = 1",
        "    no a",
    ]
