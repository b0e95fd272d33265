"""Reinforcement-learning post-training of language models: one config, read from and written to several frameworks' own.

    text ──read──▶ Document ──adapter──▶ Config + Report ──check──▶ findings
                                           │
                         ┌─────────────────┼─────────────────┐
                       write             plan               edit
                         ▼                 ▼
                  text in any dialect    Plan ──▶ runtime ──▶ run folder ──▶ whoever watches

    common  documents  shell  config  planning  adapters  checks  translation  porting  runtime  runs  monitor  editing
    cluster  cli  tui

Importing the package loads nothing of it; ``docs/architecture.md`` says what each part promises and who may import whom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from rlctl.common.report import Report
    from rlctl.config import Loaded
    from rlctl.planning.plan import Plan
    from rlctl.porting.assemble import Result
    from rlctl.translation.checking import Checked
    from rlctl.translation.difference import Comparison
    from rlctl.translation.translate import Translation

__all__ = ["__version__", "check", "convert", "diff", "plan", "port"]
__version__ = "0.1.0"
"""The only place of the version; the build reads it from here."""


def convert(
    source: str | Path,
    to: str,
    *,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    assignments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    assume: Mapping[str, str] | None = None,
    form: str = "",
    annotate: bool = False,
    carry: bool = True,
) -> Translation:
    """Translate a config into another dialect, and account for every key.

    Args:
        source: the text of a config, or the path of a file; a text of one line without ``:`` and ``=`` is a path.
        to: what to write, as ``trinity`` or ``verl@0.7``.
        dialect: what the source is, as ``verl`` or ``verl@0.6``; found out if None.
        overrides: changes in the source's own dialect.
        assignments: changes of canonical keys, as ``key=value``.
        environment: what ``${oc.env:...}`` reads; the process's own environment if None.
        assume: facts that the source does not hold, such as ``dataset_rows``.
        form: ``yaml``, or for verl ``sh`` or ``overrides``; empty is the dialect's usual one.
        annotate: write the account into the text, as comments.
        carry: keep what the target has no key for in comments at the end.

    Returns:
        The text, None where a finding is an error, and the report; ``as_data()`` is what ``rlctl convert --json`` prints.

    Raises:
        RlctlError: the source cannot be read at all, its dialect cannot be told, or there is no such dialect.
    """
    from rlctl.translation.translate import check_facts
    from rlctl.translation.translate import convert as translated

    facts = dict(assume or {})
    check_facts(facts)
    wishes = {"format": form, "annotate": "yes" if annotate else "", "carried": "comment" if carry else "none"}
    return translated(
        source,
        to,
        dialect=dialect,
        overrides=overrides,
        assignments=assignments,
        environment=environment,
        options={**facts, **wishes},
    )


def check(
    source: str | Path,
    *,
    runner: str = "",
    cluster: str = "",
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    assignments: Sequence[str] = (),
) -> Checked:
    """Find what would go wrong in a config before it runs; nothing is started.

    Args:
        source: as for ``convert``.
        runner: the framework that runs the config: ``rlctl``, ``verl``, ``trinity`` or ``roll``; empty is that of the config.
        cluster: machines that it has to fit, as ``1x8:H100``; empty checks no memory.
        dialect: as for ``convert``.
        overrides: as for ``convert``.
        assignments: as for ``convert``.

    Returns:
        The findings in ``report``; a notebook shows them.

    Raises:
        RlctlError: the source cannot be read at all, or a name is unknown.
    """
    from rlctl.planning.machines import named_cluster
    from rlctl.translation.checking import Question, checked, read_for
    from rlctl.translation.translate import read_source

    def read(without_kept: bool) -> tuple[Loaded | None, Report]:
        return read_source(
            source, dialect=dialect, overrides=overrides, assignments=assignments, without_kept=without_kept
        )

    loaded, report, runs = read_for(runner, read)
    file = str(source)
    machines = named_cluster(cluster) if cluster else None
    question = Question(assignments=assignments, cluster=machines, runner=runs)
    return checked(loaded, report, question, file if "\n" not in file else "")


def plan(
    source: str | Path,
    *,
    cluster: str = "",
    runner: str = "",
    rows: int | None = None,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    assignments: Sequence[str] = (),
) -> Plan:
    """Say what a config comes to: devices by role, batch arithmetic, schedule, memory and the cost of a step.

    Args:
        source: as for ``convert``.
        cluster: machines, as ``1x8:H100``; empty are those of the config.
        runner: the framework whose memory is estimated; empty is that of the config.
        rows: of the training data, to turn epochs into steps; None counts local files.
        dialect: as for ``convert``.
        overrides: as for ``convert``.
        assignments: as for ``convert``.

    Raises:
        PlanError: the config cannot be placed or divided as it asks.
        RlctlError: the source holds no config.
    """
    from rlctl.adapters import memory_terms
    from rlctl.planning.dataset_rows import count_rows
    from rlctl.planning.machines import named_cluster
    from rlctl.planning.plan import make_plan
    from rlctl.translation.translate import must_read

    loaded, report = must_read(source, dialect=dialect, overrides=overrides, assignments=assignments)
    machines = named_cluster(cluster) if cluster else None
    counted = rows or count_rows(loaded.config)
    return make_plan(loaded.config, cluster=machines, rows=counted, terms=memory_terms(report, runner))


def diff(first: str | Path, second: str | Path, *, dialect: str | None = None) -> Comparison:
    """Compare what two configs mean, across frameworks, with defaults and in the same units.

    Args:
        first: as the source of ``convert``.
        second: the same.
        dialect: of both; found out if None.

    Raises:
        RlctlError: one of them holds no config.
    """
    from rlctl.translation.difference import compare
    from rlctl.translation.translate import must_read

    ours, theirs = (must_read(source, dialect=dialect, without_kept=True) for source in (first, second))
    return compare(ours, theirs)


def port(
    source: str | Path,
    to: str,
    out: str | Path,
    *,
    folder: str | Path = ".",
    plugins: str | Path | None = None,
    dialect: str | None = None,
    overrides: Sequence[str] = (),
    assignments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    assume: Mapping[str, str] | None = None,
    map_data: bool = False,
    force: bool = False,
) -> Result:
    """Write a whole run as a folder that another framework runs. No code of the run is executed.

    Args:
        source: as for ``convert``.
        to: the framework, as ``trinity``.
        out: the folder to write.
        folder: where the run is started, from which its paths start.
        plugins: the folder of a Trinity-RFT run's plug-ins.
        dialect: as for ``convert``.
        overrides: as for ``convert``.
        assignments: as for ``convert``.
        environment: as for ``convert``.
        assume: as for ``convert``.
        map_data: write no rows, but name the columns of the run's own files; refused where the target cannot.
        force: write into a folder that has files.

    Returns:
        ``folder``; ``moved``, the rows; ``reward``, ported or a stub with its reason; ``translation``, the report of the config;
        ``whole``, whether nothing is left to do; ``as_data()`` is what ``rlctl port --json`` prints.

    Raises:
        UsageError: the pair of frameworks or the kind of run is not ported, or the folder has files.
        RlctlError: the source holds no config, its data is not on this machine, or the target cannot express it.
    """
    from pathlib import Path

    from rlctl.porting.assemble import port as write_port
    from rlctl.translation.translate import check_facts, must_read

    facts = dict(assume or {})
    check_facts(facts)
    loaded, report = must_read(
        source, dialect=dialect, overrides=overrides, assignments=assignments, environment=environment, options=facts
    )
    file = "<text>" if "\n" in str(source) else str(source)
    return write_port(
        loaded, report, to, Path(out), file=file, here=Path(folder),
        plugins=None if plugins is None else Path(plugins), options=facts, force=force, map_data=map_data,
    )  # fmt: skip
