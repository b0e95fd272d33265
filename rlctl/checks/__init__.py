"""Preflight: what would go wrong, before anything starts. Pure functions from a config to problems.

    RULES ──each──▶ Problem(code, key, message, hint) ──locate──▶ Finding(level, file:line)

To add one: a function in the module of its subject, in that module's ``RULES``; its code in ``problem.LEVELS``; its message in
``rlctl/common/messages/checks.*.ftl``; a row in the
table of ``tests/checks/test_rules.py``, which fails on a code that no test provokes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from rlctl.checks import (
    algorithm,
    batch,
    data_files,
    data_values,
    images,
    lengths,
    megatron,
    model_files,
    output,
    placement,
    profiling,
    schedule,
    sources,
    supported,
    user_code,
)
from rlctl.checks.hints import in_canonical_words, nearest_fixes
from rlctl.checks.lost_keys import of_reading, refuse_unused, with_mistyped_keys, without_equivalent
from rlctl.checks.problem import LEVELS, CheckContext, Problem, level_for, runners_of
from rlctl.common.errors import Location, RlctlError
from rlctl.common.report import Finding, Fix, Level
from rlctl.config import Config, resolve_stages, with_value
from rlctl.documents.paths import KeyPath, dotted
from rlctl.planning.arithmetic import Cluster
from rlctl.planning.memory_terms import OWN, MemoryTerms
from rlctl.planning.support import RLCTL

__all__ = [
    "ABOUT_THIS_MACHINE",
    "LEVELS",
    "RULES",
    "RULES_OF_FILES",
    "RULES_OF_ROWS",
    "check",
    "elsewhere",
    "new_problems",
    "of_reading",
    "refuse_unused",
    "rules_of_here",
    "with_mistyped_keys",
    "without_equivalent",
]

Locate = Callable[[KeyPath], Location | None]
Check = Callable[[Config, CheckContext], Iterator[Problem]]
_Place = tuple[str, KeyPath]
"""The message and the key of a problem."""

ABOUT_THIS_MACHINE = ("path-missing", "hub-name", "code-import", "model-files_shape")
"""Codes and messages that say nothing of a run on other machines; a folder with a config alone tells a model's shape."""

RULES: tuple[Check, ...] = (
    *sources.RULES,
    *batch.RULES,
    *algorithm.RULES,
    *placement.RULES,
    *megatron.RULES,
    *schedule.RULES,
    *output.RULES,
    *profiling.RULES,
    *supported.RULES,
)
"""Every rule on the config itself, in the order that findings are shown."""

FIX_RULES = tuple(rule for rule in RULES if rule is not placement.memory)
"""What a suggested value must not break; an estimate of memory for each of them would take longer than the check."""
MOST_FIXES = 8
"""Suggested values of a finding that are applied and checked; a framework may not be able to express the first ones."""

RULES_OF_FILES: tuple[Check, ...] = (
    *user_code.RULES,
    *data_files.RULES,
    *data_values.RULES,
    *images.RULES,
    *model_files.RULES,
)
"""Rules that read the code, the data and the folders of models that a config names."""

RULES_OF_ROWS: tuple[Check, ...] = lengths.RULES
"""Rules that tokenize some of the data."""


def rules_of_here() -> tuple[Check, ...]:
    """Rules that ask this machine and the services of a run; loaded when they are asked for."""
    from rlctl.checks import here

    return here.RULES


def check(
    config: Config,
    *,
    locate: Locate = lambda path: None,
    cluster: Cluster | None = None,
    symbolic: Collection[KeyPath] | None = None,
    silent: Collection[KeyPath] = (),
    runner: str = RLCTL,
    terms: MemoryTerms = OWN,
    more: Iterable[Check] = (),
    verifies: bool = True,
) -> list[Finding]:
    """Check a config, each of its stages as it will run.

    Args:
        config: the canonical config, stages included.
        locate: where a key was written.
        cluster: the machines it is for; None checks nothing that depends on them.
        symbolic: keys written as ``${...}``; None does not look for secrets in plain text.
        silent: keys that hold what a dialect's silence means (``Loaded.silent``).
        runner: the framework that is to run it; findings that say nothing of that one are left away.
        terms: what that framework holds in memory.
        more: further rules, such as ``RULES_OF_FILES``.
        verifies: whether only those fixes stay that solve their problem and make no other, which takes longer than finding it.
    """
    rules = (*RULES, *more)
    surroundings = CheckContext(cluster, symbolic, silent, runner, terms)
    if not config.stages:
        found = _problems(config, surroundings, rules, verifies=verifies)
        return [_finding(problem, (), locate, runner) for problem in found]
    stages, broken = resolve_stages(config)
    findings = [Finding("stage", Level.ERROR, f.message, f.key, locate(("stages",)), f.hint) for f in broken]
    by_stage = {
        index: _problems(stage.config, _of_stage(surroundings, index), rules, verifies=verifies)
        for index, stage in enumerate(stages if not broken else ())
    }
    everywhere = [problem for problem in by_stage.get(0, []) if all(problem in others for others in by_stage.values())]
    findings += [_finding(problem, (), locate, runner) for problem in everywhere]
    for index, problems in by_stage.items():
        own = (problem for problem in problems if problem not in everywhere)
        found_here = [_finding(problem, ("stages", index), _in_stage(config, index, locate), runner) for problem in own]
        findings += [replace(item, stage=stages[index].name) for item in found_here]
    return findings


def new_problems(
    before: Config,
    after: Config,
    *,
    cluster: Cluster | None = None,
    silent: Collection[KeyPath] = (),
    runner: str = RLCTL,
) -> list[Problem]:
    """What the rules on the config itself find after a change and not before, without notes and estimates of memory.

    Args:
        before: the config.
        after: the changed one.
        cluster: the machines that the changed one is for.
        silent: as for ``check``.
        runner: the framework that is to run it.
    """
    surroundings = CheckContext(cluster, None, silent, runner)
    known, found = ([*_of_stages(config, surroundings)] for config in (before, after))
    places = {(problem.id, problem.key) for problem in known}
    grave = (problem for problem in found if level_for(problem.id, runner) not in (None, Level.NOTE))
    return [problem for problem in grave if (problem.id, problem.key) not in places]


def _of_stages(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    for stage in resolve_stages(config)[0]:
        for rule in FIX_RULES:
            yield from rule(stage.config, surroundings)


def elsewhere(finding: Finding) -> Finding:
    """A finding on a config that may be for another machine: what only this machine lacks is a warning."""
    named = {finding.code, finding.id}
    is_local = bool(named & set(ABOUT_THIS_MACHINE)) and finding.level is Level.ERROR
    return replace(finding, level=Level.WARNING) if is_local else finding


def _of_stage(surroundings: CheckContext, index: int) -> CheckContext:
    """The same, with the silent keys of a stage under the names they have in its own config."""
    own = {path[2:] for path in surroundings.silent if path[:2] == ("stages", index)}
    return replace(surroundings, silent=own or surroundings.silent)


def _in_stage(config: Config, index: int, locate: Locate) -> Locate:
    """Where a stage's key was written: in the stage if that changes it, else in the base that it came from."""

    def located(path: KeyPath) -> Location | None:
        change: object = config.stages[index]
        for part in path[2:]:
            if not isinstance(change, Mapping):  # a list or a value: all of it is the stage's
                break
            if part not in change:
                return locate(path[2:])
            change = change[part]
        return locate(path)

    return located


def _problems(config: Config, surroundings: CheckContext, rules: Iterable[Check], *, verifies: bool) -> list[Problem]:
    found = (problem for rule in rules for problem in rule(config, surroundings))
    told = [problem for problem in found if level_for(problem.id, surroundings.runner) is not None]
    if not verifies:
        return told
    before = {(problem.id, problem.key) for problem in told}
    return [replace(problem, fixes=_working(config, surroundings, problem, before)) for problem in told]


def _working(
    config: Config, surroundings: CheckContext, problem: Problem, before: Collection[_Place]
) -> tuple[Fix, ...]:
    """The fixes that solve a problem and make no other: each is applied and checked, until enough are found."""
    if problem.code == "memory":  # its fixes come from the estimate that they change
        return problem.fixes
    working: list[Fix] = []
    for fix in problem.fixes:
        if len(working) < MOST_FIXES and _solves(config, surroundings, problem, fix, before):
            working.append(fix)
    return tuple(working)


def _solves(config: Config, surroundings: CheckContext, problem: Problem, fix: Fix, before: Collection[_Place]) -> bool:
    try:
        changed = with_value(config, *fix)
        after = {(found.id, found.key) for rule in FIX_RULES for found in rule(changed, surroundings)}
    except RlctlError:
        return False
    new = (id_ for id_, _ in after - set(before) if level_for(id_, surroundings.runner) not in (None, Level.NOTE))
    return (problem.id, problem.key) not in after and not any(new)


def _finding(problem: Problem, stage: KeyPath, locate: Locate, runner: str) -> Finding:
    level = level_for(problem.id, runner)
    assert level is not None  # the others were left away
    path = (*stage, *problem.key)
    fixes = tuple(((*stage, *key), value) for key, value in problem.fixes)
    hint = problem.hint
    return Finding(
        problem.code,
        level,
        problem.message_for(runner),
        dotted(path),
        locate(path),
        in_canonical_words(hint, fixes),
        nearest_fixes(hint, fixes),
        id=problem.id,
        params=problem.params,
        template=hint,
        candidates=fixes,
        runners=runners_of(problem.id),
    )
