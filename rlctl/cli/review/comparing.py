"""What a change of a repository means for its configs: two commits are read, and nothing in them is run."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from rlctl.adapters import memory_terms
from rlctl.cli.folders import is_another_script
from rlctl.cli.review.git import Change, Repository, is_inside
from rlctl.cli.review.isolation import isolated
from rlctl.common.errors import Location, PlanError, RlctlError, TranslationError
from rlctl.common.filenames import CONFIG_ENDINGS
from rlctl.common.messages.reasons import said
from rlctl.common.ranks import Rank, rank_of
from rlctl.common.records import record
from rlctl.common.report import Bucket, Finding, Level, Report, finding
from rlctl.config import Loaded, stages_of
from rlctl.planning.arithmetic import Cluster
from rlctl.translation.checking import Question, checked, read_for
from rlctl.translation.difference import Difference, compare

MOST_CONFIGS = 100
"""Changed configs that are read; further ones are only named."""
MOST_DEPENDENTS = 50
"""Configs that name a changed file and are read to see whether it changes them."""
OF_THE_MACHINE = ("path-missing",)
"""Codes of findings about the machine that a run starts on, which is not the one that reviews."""
LEVELS = (Level.ERROR, Level.WARNING, Level.NOTE)


@record
class Asked:
    """How the configs are read."""

    runner: str = ""
    """Who runs them; empty: each file's own framework."""
    cluster: Cluster | None = None
    paths: Sequence[str] = ()
    """Files and folders that are reviewed; empty: all."""
    ignored: Sequence[str] = ()


@record
class Stage:
    """Memory and time of one stage."""

    name: str
    gib: float | None = None
    """Of a GPU, in the phase that needs most; without a known GPU, of the role that needs most."""
    of: float | None = None
    """Memory of a GPU; None if it is not known."""
    fits: bool = True
    seconds: float | None = None
    """Of a typical step; None if the GPU is not known."""

    def as_data(self) -> dict[str, Any]:
        return {"stage": self.name, "gib": self.gib, "of": self.of, "fits": self.fits, "step_seconds": self.seconds}


@record
class Reading:
    """A config in one commit."""

    loaded: Loaded | None
    report: Report
    stages: tuple[Stage, ...] = ()


@record
class Reviewed:
    """One config of the change."""

    file: str
    before: str
    status: str
    """``added``, ``deleted``, ``modified``, ``renamed``; ``built`` if only a file that it is read from changed."""
    because: tuple[str, ...] = ()
    """The changed files that it names, if it did not change itself."""
    was: str = ""
    """Its format and release before, as ``verl@0.9``; empty if it could not be read."""
    dialect: str = ""
    differences: tuple[Difference, ...] = ()
    derived: tuple[Difference, ...] = ()
    """Those that follow from others: the line of their key did not change."""
    uncompared: tuple[str, ...] = ()
    """Keys that are new or gone, have no meaning that could be compared, and are in no new finding."""
    new: tuple[Finding, ...] = ()
    """Findings that the base does not have, the gravest first."""
    on_changed: tuple[Finding, ...] = ()
    """Those of them on lines that changed."""
    old: int = 0
    """How many findings the base has, too."""
    old_errors: int = 0
    fixed: tuple[Finding, ...] = ()
    """Findings of the base that are gone."""
    stages_before: tuple[Stage, ...] = ()
    stages: tuple[Stage, ...] = ()
    unread_before: str = ""
    """Why the version before could not be compared."""

    @property
    def level(self) -> Level:
        """How bad its new findings are."""
        found = {finding.level for finding in self.new}
        if Level.ERROR in found or self.overflows:
            return Level.ERROR
        return Level.WARNING if Level.WARNING in found else Level.NOTE

    @property
    def overflows(self) -> bool:
        """Whether it no longer fits its GPUs."""
        fitted = all(stage.fits for stage in self.stages_before)
        return fitted and not all(stage.fits for stage in self.stages)

    @property
    def changes_training(self) -> bool:
        return any(rank_of_difference(item).changes_training for item in self.differences)

    def as_data(self) -> dict[str, Any]:
        placed = {id(item) for item in self.on_changed}
        return {
            "file": self.file,
            "before": self.before or None,
            "status": self.status,
            "because": list(self.because),
            "format_before": self.was or None,
            "format": self.dialect or None,
            "differences": [
                {**item.as_data(), "rank": str(rank_of_difference(item)), "derived": item in self.derived}
                for item in self.differences
            ],
            "not_compared": list(self.uncompared),
            "findings": [{**item.as_data(), "on_changed_line": id(item) in placed} for item in self.new],
            "findings_before": self.old,
            "fixed": [item.as_data() for item in self.fixed],
            "stages_before": [stage.as_data() for stage in self.stages_before],
            "stages": [stage.as_data() for stage in self.stages],
            "unreadable_before": self.unread_before or None,
        }


@record
class Review:
    """All configs of a change, those with the gravest findings first."""

    base: str
    """The commit that the head is compared with: where they parted."""
    head: str
    configs: tuple[Reviewed, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    """Files that were not reviewed, and why."""
    cluster: str = ""

    def as_data(self) -> dict[str, Any]:
        """What ``rlctl review --json`` prints."""
        return {
            "base": self.base,
            "head": self.head,
            "cluster": self.cluster or None,
            "configs": [item.as_data() for item in self.configs],
            "skipped": [{"file": file, "reason": reason} for file, reason in self.skipped],
        }


def rank_of_difference(item: Difference) -> Rank:
    """How much a difference matters."""
    return rank_of(item.key) or Rank.NAMES


def review(repository: Repository, base: str, head: str, asked: Asked, cluster: str = "") -> Review:
    """Compare the configs of two commits.

    Args:
        repository: the repository.
        base: the branch that the change is for; what happened there since the branches parted does not count.
        head: the changed branch.
        asked: how the configs are read.
        cluster: what the machines of ``asked`` are called.

    Raises:
        UsageError: a commit is not there, or the two have none in common.
    """
    newer = repository.commit(head)
    older = repository.merge_base(repository.commit(base), newer)
    changes = [change for change in repository.changes(older, newer) if is_inside(change.file)]
    with tempfile.TemporaryDirectory(prefix="rlctl-review-") as folder:
        trees = Path(folder) / "base", Path(folder) / "head"
        large: set[str] = set()
        for tree, commit in zip(trees, (older, newer), strict=True):
            tree.mkdir()
            large.update(repository.write_tree(commit, tree))
        lines = repository.changed_lines(older, newer, changes)
        found, skipped = _configs(changes, trees, large, lines, asked)
    ordered = sorted(found, key=lambda item: (LEVELS.index(item.level), not item.changes_training, item.file))
    return Review(older, newer, tuple(ordered), tuple(skipped), cluster)


def _configs(
    changes: Sequence[Change],
    trees: tuple[Path, Path],
    large: set[str],
    lines: Mapping[str, frozenset[int]],
    asked: Asked,
) -> tuple[list[Reviewed], list[tuple[str, str]]]:
    found: list[Reviewed] = []
    skipped: list[tuple[str, str]] = []
    mine = [change for change in changes if change.file.endswith(CONFIG_ENDINGS) and _is_wanted(change, asked.paths)]
    for change in mine:
        if change.file in large or change.before in large:
            skipped.append((change.file, said("it is larger than {size}", size="1 MiB")))
        elif not _is_file(change, trees):
            skipped.append((change.file, "it is a link or a submodule"))
        elif len(found) >= MOST_CONFIGS:
            skipped.append((change.file, said("only {count} configs are reviewed", count=MOST_CONFIGS)))
        elif (item := _reviewed(change, trees, lines, asked)) is not None:
            found.append(item)
    known = {change.file for change in mine}
    for count, (file, because) in enumerate(_dependents(changes, trees[1])):
        change = Change(file, file, "built")
        if file in known or not _is_wanted(change, asked.paths):
            continue
        if count >= MOST_DEPENDENTS or len(found) >= MOST_CONFIGS:
            skipped.append((file, said("it names {file}, and is one of many that do", file=because[0])))
            continue
        item = _reviewed(change, trees, lines, asked, because)
        if item is not None and (item.differences or item.new or item.fixed or item.unread_before):
            found.append(item)
    return found, skipped


def _is_file(change: Change, trees: tuple[Path, Path]) -> bool:
    tree, name = (trees[0], change.before) if change.status == "deleted" else (trees[1], change.file)
    return (tree / name).is_file()


def _is_wanted(change: Change, paths: Sequence[str]) -> bool:
    """Whether a file is in one of the paths, before or after the change."""
    if not paths:
        return True
    names = [PurePosixPath(name) for name in (change.file, change.before) if name]
    return any(name.is_relative_to(PurePosixPath(path)) for name in names for path in paths)


def _dependents(changes: Sequence[Change], tree: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Configs that name a changed file, directly or by way of others: their Hydra base, what they source, their reward."""
    files = sorted(path for path in tree.rglob("*") if path.suffix in CONFIG_ENDINGS and path.is_file())
    texts = {path.relative_to(tree).as_posix(): path.read_text("utf-8", "replace") for path in files}
    origins: dict[str, tuple[str, ...]] = {}
    following = [(change.file, change.file) for change in changes]
    following += [(change.before, change.file) for change in changes if change.status == "renamed"]
    seen = {name for name, _ in following}
    while following:
        name, origin = following.pop(0)
        path = PurePosixPath(name)
        word = path.stem if path.suffix in CONFIG_ENDINGS[:2] else path.name
        for file, content in texts.items():
            if file == name or word not in content:
                continue
            if file not in origins:
                origins[file] = ()
                if file not in seen:
                    following.append((file, origin))
            origins[file] = tuple(dict.fromkeys((*origins[file], origin)))
    yield from origins.items()


def _reviewed(
    change: Change,
    trees: tuple[Path, Path],
    lines: Mapping[str, frozenset[int]],
    asked: Asked,
    because: tuple[str, ...] = (),
) -> Reviewed | None:
    """What a change means for one config; None if it is no config in either commit."""
    before = _read(trees[0], change.before, asked, tries_values=False) if change.before else None
    after = _read(trees[1], change.file, asked, tries_values=True) if change.status != "deleted" else None
    if before is None and after is None:
        return None
    old = before.report.findings if before is not None else []
    new = after.report.findings if after is not None else []
    added, fixed = _without(new, old), _without(old, new)
    if before is not None and before.loaded is None:  # nothing was known about it
        fixed = [item for item in fixed if item.level is Level.ERROR]
    told = [item for item in added if item.level is not Level.NOTE]
    kept = len([item for item in new if item.level is not Level.NOTE]) - len(told)
    differences: Sequence[Difference] = ()
    unread = ""
    if before is not None and after is not None:
        if before.loaded is not None and after.loaded is not None:
            differences = compare((before.loaded, before.report), (after.loaded, after.report)).differences
        elif before.loaded is None:
            unread = before.report.errors[0].message if before.report.errors else ""
    ordered = tuple(sorted(differences, key=lambda item: rank_of_difference(item).place))
    return Reviewed(
        change.file,
        change.before,
        change.status,
        because,
        before.report.dialect if before is not None else "",
        after.report.dialect if after is not None else "",
        ordered,
        tuple(item for item in ordered if _is_derived(item, lines)),
        tuple(key for key in _uncompared(before, after) if key not in {item.key for item in told}),
        tuple(told),
        tuple(item for item in told if item.at is not None and item.at.line in lines.get(item.at.file, ())),
        kept,
        sum(item.level is Level.ERROR for item in new) - sum(item.level is Level.ERROR for item in told),
        tuple(item for item in fixed if item.level is not Level.NOTE) if after is not None else (),
        before.stages if before is not None else (),
        after.stages if after is not None else (),
        unread,
    )


def _is_derived(item: Difference, lines: Mapping[str, frozenset[int]]) -> bool:
    """Whether a value differs although the lines of its key are as before."""
    side = item.second
    return not side.default and bool(side.file and side.line) and side.line not in lines.get(side.file or "", ())


def _uncompared(before: Reading | None, after: Reading | None) -> tuple[str, ...]:
    """Keys that are new, gone or have another value, and have no meaning that could be compared."""
    if before is None or after is None:
        return ()
    old, new = (
        {
            (entry.key, str(entry.value))
            for entry in each.report.accounting
            if entry.bucket in (Bucket.UNKNOWN, Bucket.UNSUPPORTED)
        }
        for each in (before, after)
    )
    return tuple(sorted({key for key, _ in old ^ new}))


def _without(found: Iterable[Finding], known: Iterable[Finding]) -> list[Finding]:
    """The findings that are not among others, wherever they are; the gravest first."""
    left = Counter(_identity(item) for item in known)
    new = []
    for item in found:
        if left[_identity(item)]:
            left[_identity(item)] -= 1
        else:
            new.append(item)
    return sorted(new, key=lambda item: (LEVELS.index(item.level), item.rank.place))


def _identity(item: Finding) -> tuple[str, ...]:
    return item.code, str(item.level), item.key, item.message


def _read(tree: Path, file: str, asked: Asked, *, tries_values: bool) -> Reading | None:
    """A config of one commit, checked and planned; None if it is none. Values in advice take longer than all else."""
    from rlctl.translation.translate import read_many

    if not (tree / file).is_file():
        return None
    with isolated(tree):
        try:
            loaded, report, runner = read_for(asked.runner, lambda without: read_many([file], without_kept=without))
        except RlctlError as error:
            if isinstance(error, TranslationError) or is_another_script(Path(file)) or _is_other_yaml(file):
                return None
            report = Report()
            at = error.at or Location(file)
            report.findings.append(finding("unreadable", Level.ERROR, at=at, reason=error.message, advice=error.hint))
            return Reading(None, report)
        ignored = (*OF_THE_MACHINE, *asked.ignored)
        question = Question(cluster=asked.cluster, runner=runner, ignored=ignored, tries_values=tries_values)
        result = checked(loaded, report, question, file)
        stages = _stages(loaded, result.report, asked) if loaded is not None else ()
        return Reading(loaded, result.report, stages)


def _is_other_yaml(file: str) -> bool:
    from rlctl.cli.check import is_other_yaml

    return is_other_yaml(file)


def _stages(loaded: Loaded, report: Report, asked: Asked) -> tuple[Stage, ...]:
    """Memory and time of each stage; none if it cannot be planned, of which the findings tell."""
    from rlctl.planning.plan import make_plan

    cluster = _large_enough(asked.cluster, loaded)
    try:
        plan = make_plan(loaded.config, cluster=cluster, terms=memory_terms(report, asked.runner))
    except PlanError:
        return ()
    found = []
    for stage in plan.stages:
        seconds = stage.cost.step_seconds if stage.cost is not None else None
        if stage.fit is not None:
            found.append(Stage(stage.name, stage.fit.worst.gib, stage.fit.gib, stage.fit.fits, seconds))
        else:
            gib = max((estimate.gib for estimate in stage.memory), default=None)
            found.append(Stage(stage.name, gib, seconds=seconds))
    return tuple(found)


def _large_enough(cluster: Cluster | None, loaded: Loaded) -> Cluster | None:
    """The machines, as many as a config names: a finding says that there are fewer, and the memory of a GPU is still known."""
    if cluster is None or cluster.device == "cpu":
        return cluster
    wanted = [stage.config.placement for stage in stages_of(loaded.config)]
    return replace(
        cluster,
        nodes=max(cluster.nodes, *(place.nodes for place in wanted)),
        devices_per_node=max(cluster.devices_per_node, *(place.devices_per_node for place in wanted)),
    )


def code_quality(made: Review) -> list[dict[str, Any]]:
    """The new findings as GitLab's code quality report: https://docs.gitlab.com/ci/testing/code_quality/."""
    import hashlib

    severities = {Level.ERROR: "critical", Level.WARNING: "minor", Level.NOTE: "info"}
    return [
        {
            "description": f"{item.message} ({item.advice})" if item.advice else item.message,
            "check_name": item.code,
            "fingerprint": hashlib.sha256(
                "\0".join((config.file, *_identity(item))).encode("utf-8", "replace")
            ).hexdigest(),
            "severity": severities[item.level],
            "location": {
                "path": item.at.file if item.at is not None else config.file,
                "lines": {"begin": max(1, item.at.line if item.at is not None else 1)},
            },
        }
        for config in made.configs
        for item in config.new
    ]
