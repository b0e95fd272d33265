"""Reinforcement-learning post-training of language models: one config, read from and written to several frameworks' own.

    text ──read──▶ Document ──adapter──▶ Config + Report ──check──▶ findings
                                           │
                         ┌─────────────────┼─────────────────┐
                       write             plan               edit
                         ▼                 ▼
                  text in any dialect    Plan ──▶ runtime ──▶ run folder ──▶ whoever watches

    common  documents  shell  config  planning  adapters  checks  translation  runtime  runs  monitor  editing  cluster  cli  tui

Importing the package loads nothing of it; ``docs/architecture.md`` says what each part promises and who may import whom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from rlctl.translation.translate import Translation

__all__ = ["__version__", "convert"]
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
