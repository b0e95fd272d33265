"""What ``rlctl check`` finds in one config that was read: the command, the editor's server and the agents' tools ask here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlctl.adapters import memory_terms
from rlctl.checks import RULES_OF_FILES, RULES_OF_ROWS, elsewhere, of_reading, rules_of_here, with_mistyped_keys
from rlctl.checks import check as run_rules
from rlctl.checks.coverage import Subject, coverage
from rlctl.checks.problem import CheckContext
from rlctl.checks.silence import divided
from rlctl.common.errors import Location, UsageError
from rlctl.common.messages.reasons import said
from rlctl.common.notebook import InNotebook
from rlctl.common.records import record
from rlctl.common.report import Finding, Level, Report, finding
from rlctl.common.report_lines import release as release_of
from rlctl.config import Loaded
from rlctl.planning.arithmetic import Cluster
from rlctl.translation.acceptance import findings_of, of_its_own_framework, once, with_moments, with_unknown_keys
from rlctl.translation.advice import in_own_words, with_own_keys
from rlctl.translation.verifying import verified

RLCTL = "rlctl"
"""The runner whose runs are ``rlctl launch``'s own."""
RUNNERS = (RLCTL, "verl", "trinity", "roll")
"""Who may run a config."""

VERIFIED = 10
"""Findings, gravest first, whose suggestions are verified by default: each takes readings of the config."""


def runner_of(dialect: str, asked: str = "") -> str:
    """Who runs a config: who is asked for, else the framework that it is written for.

    Args:
        dialect: of the config, with or without its release; empty if it could not be read.
        asked: a runner, or empty.
    """
    own = dialect.partition("@")[0]
    return asked or (own if own in RUNNERS else RLCTL)


def read_for(runner: str, read: Callable[[bool], tuple[Loaded | None, Report]]) -> tuple[Loaded | None, Report, str]:
    """Read a config as its runner does: only rlctl's runs know the values that rlctl keeps in comments.

    Args:
        runner: who is to run it; empty for the framework that it is written for.
        read: reads it; the argument says whether to leave out what is kept in comments.

    Returns:
        The config, the report of reading it, and who runs it.
    """
    loaded, report = read(runner != RLCTL)
    runs = runner_of(report.dialect, runner)
    if runs == RLCTL != runner:
        loaded, report = read(False)
    return loaded, report, runs


@record
class Question:
    """How each file is checked."""

    dialect: str | None = None
    assignments: Sequence[str] = ()
    trace: bool = False
    variables: Sequence[str] = ()
    cluster: Cluster | None = None
    allow_unknown: Sequence[str] = ()
    runner: str = RLCTL
    data: bool = False
    """Whether rows of the training data are tokenized, too."""
    here: bool = False
    """Whether the config is to run on this machine."""
    ignored: Sequence[str] = ()
    tries_values: bool = True
    """Whether hints have the values that the file's framework can express, which takes longer than everything else."""
    most: int | None = VERIFIED
    """Findings, gravest first, whose values are tried; None tries them for all."""


@record
class Checked(InNotebook):
    """What was found in one file."""

    file: str
    report: Report
    scope: Sequence[Subject] = ()
    """What was checked, and what was not."""
    silenced: Sequence[Finding] = ()
    """Findings that an option or a comment silences."""
    runner: str = ""
    """Who runs the config; empty if it could not be read."""


def checked(loaded: Loaded | None, report: Report, question: Question, file: str, text: str | None = None) -> Checked:
    """Check a config for who runs it.

    Args:
        loaded: the config; None if the text holds none.
        report: of reading it; its findings are replaced.
        question: who runs it, where, and what is not reported.
        file: the name of the file, empty if there is none.
        text: what the file contains, if that is not what is on disk.

    Raises:
        UsageError: there is no such runner.
    """
    if question.runner not in RUNNERS:
        names = ", ".join(RUNNERS)
        raise UsageError(said("the runner is {runner!r}; expected one of {names}", runner=question.runner, names=names))
    found = _of_config(loaded, report, question) if loaded is not None else []
    codes = {item.code for item in found}
    if question.runner != RLCTL:
        known = with_mistyped_keys(report.findings, question.allow_unknown)
        report.findings = with_unknown_keys(question.runner, known, question.allow_unknown)
        changed = bool(question.assignments)
        report.extend(findings_of(question.runner, loaded, report, changed=changed, checked=codes))
    else:
        report.findings = of_reading(report, question.allow_unknown)
        report.extend(of_its_own_framework(report, checked=codes) if not question.assignments else ())
    if loaded is not None:
        report.extend(loaded.as_written(found))
    elif not report.errors and not any(item.code == "fork" for item in report.findings):
        report.findings.append(finding("unreadable_empty", Level.ERROR, at=Location(file)))
    if question.tries_values:
        report.findings = verified(report.findings, report, question.runner, most=question.most)
    if not question.here:
        report.findings = [elsewhere(item) for item in report.findings]
    if question.runner != RLCTL:
        report.findings = with_moments(once(report.findings))
    scope = _scope(loaded, report, question) if loaded is not None else ()
    report.findings, silenced = divided(report.findings, question.ignored, file, text)
    return Checked(file, report, scope, silenced, question.runner)


def _scope(loaded: Loaded, report: Report, question: Question) -> list[Subject]:
    unread = any(item.code == "runner-release" for item in report.findings)
    context = CheckContext(question.cluster, runner=question.runner)
    release = release_of(report.dialect) if unread else ""
    return coverage(loaded.config, context, data=question.data, here=question.here, unread_release=release)


def _of_config(loaded: Loaded, report: Report, question: Question) -> list[Finding]:
    """What the rules find, in the words of the file."""
    rules = (
        *RULES_OF_FILES,
        *(RULES_OF_ROWS if question.data else ()),
        *(rules_of_here() if question.here else ()),
    )
    found = run_rules(
        loaded.config,
        locate=loaded.locate_any,
        cluster=question.cluster,
        symbolic=loaded.expressions.keys(),
        silent=loaded.silent,
        runner=question.runner,
        terms=memory_terms(report, question.runner),
        more=rules,
        verifies=question.tries_values,
    )
    if not question.tries_values:
        return with_own_keys(found, loaded, report.dialect)
    return in_own_words(found, loaded, report.dialect, most=question.most)
