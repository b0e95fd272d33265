"""Silence is impossible: every canonical key is in every dialect's table, and every line of a table names keys that exist."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import yaml

from rlctl.adapters import SIGNS, dialect, names
from rlctl.adapters.engine.dialect import Detection
from rlctl.adapters.engine.meanings import named
from rlctl.adapters.engine.reading import unknown_keys
from rlctl.adapters.engine.rules import CustomRule, Dropped, Key, flat, matches, version_of
from rlctl.adapters.engine.table import Table, Tables
from rlctl.adapters.engine.tree import put
from rlctl.common.report import Bucket
from rlctl.config import Config
from rlctl.config.inspect import walk
from rlctl.documents import read_yaml

TABLES = {
    f"{name}:{kind}": table for name in names() if name != "rlctl" for kind, table in dialect(name).tables.items()
}
MAIN = {name: table for name, table in TABLES.items() if not name.endswith(":evaluation")}
CANONICAL = {key.path for key in walk(Config)} | {f"{key.path}.type" for key in walk(Config) if key.is_section}
CANONICAL |= {"rewards[].type", "rollout.agents[].type", "rollout.agents[].tools[].type"}


def _named(table: Table) -> set[str]:
    return {_listed(name) for rule in table.rules for name in rule.canonical}


def _bare(path: str) -> tuple[str, ...]:
    return tuple(path.replace("[]", "").replace("{}", "").split("."))


def _listed(name: str) -> str:
    return ".".join("[]" if part.isdecimal() else part for part in name.split(".")).replace(".[]", "[]")


@pytest.mark.parametrize("name", MAIN)
def test_every_canonical_key_is_mapped_or_dropped_with_a_reason(name: str) -> None:
    named = _named(MAIN[name])
    wildcards = [_bare(item) for item in named if item.endswith("**")]
    missing = [
        key.path
        for key in walk(Config)
        if not key.is_section
        and key.path not in named
        and key.path.replace("{}", "") not in named
        and not key.path.startswith(("extensions", "stages"))
        and not any(matches(pattern, _bare(key.path)) for pattern in wildcards)
    ]
    assert missing == []


@pytest.mark.parametrize("name", TABLES)
def test_every_rule_names_canonical_keys_that_exist(name: str) -> None:
    free = {key.path for key in walk(Config) if key.info.type is dict or "dict" in str(key.info.type)}
    strange = []
    for rule in TABLES[name].rules:
        for item in rule.canonical:
            path = _listed(item.removesuffix(".**"))
            path = path.removesuffix("[]").removesuffix("{}")
            inside_free = any(path.startswith(f"{root}.") for root in free)
            if path not in CANONICAL and not inside_free:
                strange.append(item)
    assert strange == []


@pytest.mark.parametrize("name", TABLES)
def test_every_pair_is_of_a_key_of_its_rule_and_a_canonical_key_that_exists(name: str) -> None:
    table = TABLES[name]
    known = {*table.index, *table.schema, *(note.path for note in table.notes)}
    above = {path[:length] for path in known for length in range(1, len(path) + 1)}
    strange = [
        (key.name, canonical)
        for rule in flat(table.rules)
        for key, canonical in rule.pairs
        if not named(canonical) or not any(key.path == path or matches(path, key.path) for path in above)
    ]
    assert strange == []


@pytest.mark.parametrize("name", TABLES)
def test_every_drop_and_every_note_gives_a_reason(name: str) -> None:
    table = TABLES[name]
    drops = [rule.to for rule in table.rules if isinstance(rule, Dropped) and not rule.reason]
    notes = [note.key for note in table.notes if not note.reason]
    assert drops == []
    assert notes == []


SENTENCE = re.compile(r"[A-Z`][^\n]{25,}[a-z0-9`)]\.")


@pytest.mark.parametrize("name", TABLES)
def test_every_custom_rule_says_why_no_row_can_express_it(name: str) -> None:
    whys = {rule.name: rule.why for rule in flat(TABLES[name].rules) if isinstance(rule, CustomRule)}
    assert not [f"{rule}: {why}" for rule, why in whys.items() if not SENTENCE.fullmatch(why)]


@pytest.mark.parametrize("name", TABLES)
def test_versions_in_a_table_are_releases_of_the_dialect(name: str) -> None:
    releases = set(dialect(name.split(":")[0]).versions)
    used = {item for rule in TABLES[name].rules for key in rule.keys for item in (key.since, key.until) if item}
    assert used <= releases


def test_the_signs_of_a_dialect_are_its_own() -> None:
    """A top-level key that tells a dialect at once is one of its own, and no other dialect has it."""
    tops = {name: {top for table in dialect(name).tables.values() for top in table.tops} for name in SIGNS}
    tops["rlctl"] = {key.path for key in walk(Config) if "." not in key.path}
    for name, signs in SIGNS.items():
        assert signs <= tops[name], name
        others = set().union(*(tops[other] for other in SIGNS if other != name))
        assert not signs & others, name


def test_what_is_put_into_a_tree_is_no_table_s_default() -> None:
    default: dict[str, Any] = {}
    tree: dict[str, Any] = {}
    put(tree, ("engine", "args"), default)
    put(tree, ("engine", "args", "swap_space"), 4)
    assert (default, tree) == ({}, {"engine": {"args": {"swap_space": 4}}})


def test_the_tree_of_defaults_shares_nothing_with_the_table() -> None:
    table = Table((Key("engine.args", "rollout.engine.args", {}), Key("engine.args.swap", "rollout.swap", 4)))
    assert table.defaults_tree((1,)) == {"engine": {"args": {"swap": 4}}}
    assert table.default_at(("engine", "args"), (1,)) == {}


@pytest.mark.parametrize("whole", [True, False], ids=["top", "deepest"])
@pytest.mark.parametrize("name", MAIN)
def test_a_known_section_that_is_empty_is_no_unknown_key(name: str, whole: bool) -> None:
    framework, kind = name.split(":")
    table, made = MAIN[name], dialect(framework)
    release = next(item for item in reversed(made.versions) if item in (table.releases_with or made.versions))
    listed = [path for path, releases in table.schema.items() if release in releases]
    sections = {path[:1] if whole else path[:-1] for path in listed if len(path) > 1 and "*" not in path[:-1]}
    tree: dict[str, Any] = {}
    for section in sorted(sections, key=len):
        put(tree, section, {})
    document = read_yaml(yaml.safe_dump(tree), "run.yaml")
    read = made.read(document, Detection(release, kind, 0, 0), environment={}, options={}, restored={})
    found = [entry.key for entry in read.report.accounting if entry.bucket is Bucket.UNKNOWN]
    assert found == []
    leaves = [path for path, _ in document.leaves()]
    assert not list(unknown_keys(table, version_of(release), release, leaves))


def test_threads_that_ask_for_a_table_at_once_get_the_same_one() -> None:
    """A table is compared by identity: two tables with the same rules are different tables."""
    both = Barrier(2)

    def make() -> Table:
        both.wait(10)
        return Table(())

    tables = Tables({"run": make})
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: tables["run"], range(2))
    assert one is other
