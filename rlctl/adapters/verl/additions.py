"""verl: overrides that Hydra refuses: ``+`` on a key that the composed config has, and no ``+`` on one that it lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rlctl.adapters.engine.reading import unknown_keys
from rlctl.adapters.engine.rules import Absent, version_of
from rlctl.adapters.engine.table import TO_BE_SET, Table, generic
from rlctl.adapters.engine.tree import find
from rlctl.adapters.verl import launch
from rlctl.common.report import Finding, Level, finding
from rlctl.common.report_lines import release as release_of
from rlctl.documents import Document, dotted

COMPOSED_PROGRAMS = ("verl.trainer.main_ppo", "verl.trainer.fsdp_sft_trainer", "verl.trainer.sft_trainer")
"""Programs that start from verl's own config unless they are given another."""


def refused(document: Document, table: Table, release: str, versions: tuple[str, ...]) -> Iterator[Finding]:
    """A warning for each key that is added and is there, with a release that reads it and lacks it in its config.

    Hydra merges a mapping or a list, and replaces null.
    """
    for path, _ in document.leaves():
        if path not in document.appended or isinstance(find(document.values, path), (dict, list)):
            continue
        place = generic(path)
        default = table.schema.default(place, version_of(release), table.composition)
        there = launch.prefix_of(release, table, path) == ""
        if not there or default in (None, TO_BE_SET) or isinstance(default, (Absent, dict, list)):
            continue
        key, releases = table.key_at(path), table.releases(place) or frozenset()
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
        if table.takes(path, version_of(release), newest=False):
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


def of_no_release(
    document: Document, table: Table, release: str, program: str, known: Collection[str]
) -> Iterator[Finding]:
    """A warning for each key that an override of verl's own config sets without ``+``, and that the release's config lacks.

    Args:
        document: overrides alone; a config file of the user's may have any key.
        table: of the kind of file, for the engine that it names.
        release: of verl.
        program: that a launch script starts; the recipes have configs of their own.
        known: keys that have a finding already.
    """
    own = [path for path, _ in document.leaves() if tuple(map(str, path)) in document.overridden]
    if any(path[:2] == ("hydra", "searchpath") for path in own):  # its configs may have any key
        return
    if program not in COMPOSED_PROGRAMS or len(own) + len(document.added) < sum(1 for _ in document.leaves()):
        return
    version = version_of(release)
    for path in (
        path for path in own if "@" not in str(path[0]) and path[0] != "hydra"
    ):  # else it chooses a config of a group
        place, told = generic(path), dotted(path) in known
        releases = table.schema.releases_of_any(place)
        later = any(version_of(each) > version for each in releases)  # which a checkout after the release has, too
        lacks = release not in releases and not later and not table.schema.is_free(place, release)
        if (
            lacks
            and not told
            and not table.is_unlisted(place, version)
            and not table.is_section(path, version, release)
        ):
            yield finding(
                "no-release-key",
                Level.WARNING,
                dotted(path),
                document.at(path),
                framework=release_of(f"verl@{release}"),
                others=", ".join(sorted(releases)) or "none",
            )
