"""verl: overrides that Hydra refuses: ``+`` on a key that the composed config has, and no ``+`` on one that it lacks."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.adapters.engine.reading import unknown_keys
from rlctl.adapters.engine.rules import Absent, DefaultFrom, matches, split, version_of
from rlctl.adapters.engine.table import Table, generic
from rlctl.adapters.engine.tree import find
from rlctl.adapters.verl import launch
from rlctl.common.report import Finding, Level, finding
from rlctl.common.report_lines import release as release_of
from rlctl.documents import Document, dotted

NULLS = (
    *("custom_reward_function.**", "reward_model.**", "algorithm.filter_groups.metric"),
    *("actor_rollout_ref.actor.optim.min_lr_ratio", "critic.optim.min_lr_ratio"),
)
"""Keys that are null in the config of some release, where rlctl's default is what verl does then."""


def refused(document: Document, table: Table, release: str, versions: tuple[str, ...]) -> Iterator[Finding]:
    """A warning for each key that is added and is there, with a release that reads it and lacks it in its config.

    Hydra merges a mapping or a list, and replaces null. Where rlctl does not know the value, nothing is said.
    """
    for path, _ in document.leaves():
        if path not in document.appended or isinstance(find(document.values, path), (dict, list)):
            continue
        key, releases = table.key_at(path), table.releases(generic(path)) or frozenset()
        default = table.default_at(path, version_of(release)) if key is not None else None
        if any(matches(split(name), path) for name in NULLS):
            continue
        there = launch.prefix_of(release, table, path) == ""
        if not there or default is None or isinstance(default, (Absent, DefaultFrom, dict, list)):
            continue
        reads = [version for version in versions if key is not None and key.applies(version_of(version))]
        lack = [version for version in reads if version not in releases]
        others = [leaf for leaf, _ in document.leaves() if leaf not in document.appended]
        without = [version for version in lack if not any(unknown_keys(table, version_of(version), version, others))]
        yield finding(
            "added-key",
            Level.WARNING,
            dotted(path),
            document.at(path),
            framework=release_of(f"verl@{release}"),
            default=str(default),
            without=without[-1] if without else "none",
        )


def of_other_engines(document: Document, table: Table, release: str) -> Iterator[Finding]:
    """A warning for each key that an override sets without ``+`` and that the release composes for other engines alone."""
    schema, composition = table.schema, table.composition
    for path, _ in document.leaves():
        place = generic(path)
        if tuple(map(str, path)) not in document.overridden or release not in (schema.releases(place) or ()):
            continue
        if schema.in_composition(place, release, composition) or schema.is_free(place, release):
            continue
        if composition.engine in schema.engines(release):
            yield finding(
                "other-engines-key",
                Level.WARNING,
                dotted(path),
                document.at(path),
                framework=release_of(f"verl@{release}"),
                engine=composition.engine,
                engines=", ".join(sorted(schema.engines_of(place, release))),
            )
