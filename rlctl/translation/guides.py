"""Where a finding of a conversion is explained at length: the script of a migration guide that rewrites the data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rlctl.common.messages import text
from rlctl.common.report import Finding
from rlctl.config import Config

GUIDES = "https://github.com/rlctl/rlctl/blob/main/docs/migrate"
GUIDED = ("verl", "trinity", "roll")
"""Frameworks with a guide from each to each other."""
_CODES = ("data-columns", "data-files")


def with_guide(findings: Iterable[Finding], source: str, target: str, config: Config) -> list[Finding]:
    """The findings, one of those on data with a link to the script for rows of RL.

    Args:
        findings: of a conversion.
        source: the framework that was read.
        target: the one that was written.
        config: that was read.
    """
    found = list(findings)
    if source == target or not {source, target} <= {*GUIDED} or config.algorithm.objective.choice != "rl":
        return found
    places = [place for code in _CODES for place, item in enumerate(found) if item.code == code and item.hint]
    for place in places[:1]:
        url = f"{GUIDES}/{source}-to-{target}.md#data"
        found[place] = replace(found[place], hint=text("data-guide", hint=found[place].hint, url=url))
    return found
