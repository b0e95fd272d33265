"""What is said on stderr can be copied and grepped: places are never wrapped, whatever the terminal."""

from __future__ import annotations

import io
import sys

import pytest

from rlctl.cli import diagnostics
from rlctl.common.errors import Location
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


def test_elsewhere_a_finding_is_one_line_gravest_first(capsys: pytest.CaptureFixture[str]) -> None:
    diagnostics.findings(FINDINGS)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"{LONG}:1234: error: cannot be (do [that]) [error-code]"
    assert lines[1].startswith(f"{LONG}:12: warning: look [twice] look")
    assert lines[2] == "note: worth knowing [note-code]"


def test_a_table_keeps_places_whole_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched(monkeypatch)
    diagnostics.findings(FINDINGS)
    shown = terminal.getvalue()
    assert f"{LONG}:1234" in shown
    assert f"{LONG}:12 " in shown
    assert "error-code" in shown
    assert "do [that]" in shown


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


def test_the_account_shows_shares_and_what_was_not_simply_mapped(capsys: pytest.CaptureFixture[str]) -> None:
    diagnostics.accounting(report())
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "verl@0.9 -> trinity@0.6: 3 keys: 1 mapped (33%), 1 unsupported (33%), 1 unknown (33%)"
    assert lines[1] == "Names and files:"
    assert lines[2].startswith("v.yaml:3: unknown: c = vvv")
    assert lines[3] == "v.yaml:2: unsupported: b = null: no such thing"
    assert lines[4] == "warning: 'x.gpus: 4' is assumed (--assume gpus=...) [assumed]"
    assert len(lines) == 5


def test_verbose_shows_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    diagnostics.accounting(report(), verbose=True)
    shown = capsys.readouterr().err
    assert "v.yaml:1: mapped: a = 1 -> x.a: 1" in shown
    assert "assumed: x.gpus = 4: half of 8" in shown


def test_the_account_is_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched(monkeypatch)
    diagnostics.accounting(report())
    rows = [line.split() for line in terminal.getvalue().splitlines()]
    assert ["v.yaml:2", "unsupported", "b", "=", "null:", "no", "such", "thing"] in rows


def test_a_closed_stderr_does_not_end_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    diagnostics._Stderr().write("x")
    diagnostics._Stderr().flush()
