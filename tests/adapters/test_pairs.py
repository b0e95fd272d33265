"""``explain`` says of a key what conversion does with it: what a key fills, when it is read, is what its rule declares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pytest

from rlctl.adapters import dialect
from rlctl.adapters.engine.meanings import filled, meanings, named, others
from rlctl.adapters.engine.rules import CustomRule, Rule, flat
from rlctl.adapters.engine.table import Table
from rlctl.adapters.engine.tree import find, put
from rlctl.adapters.roll.renamed_roles import Spelled, Without
from rlctl.common.report import Bucket
from rlctl.config.load import load
from rlctl.documents import Document, KeyPath, parse_dotted, read_yaml
from rlctl.translation.translate import write

from .cases import BASE
from .contexts import CONTEXTS, WORDS
from .corpus import examples, some
from .pairs import read_pairs

DIALECTS = others()
NEWEST, ALL = False, True
"""Of the releases of a dialect; all of them take ten minutes."""
RELEASES = [
    *(pytest.param(name, NEWEST, marks=pytest.mark.xdist_group(f"pairs of {name}")) for name in DIALECTS),
    *(pytest.param(name, ALL, marks=pytest.mark.soak) for name in DIALECTS),
]
"""What the keys of a dialect fill is tried once for two tests, which run in one process."""


@cache
def rules(name: str) -> dict[int, tuple[Rule, list[tuple[str, Table]]]]:
    """The rules of several keys or several canonical keys, each once, with the tables that have it.

    A rule that a table has under other names of roles is judged under its own names, if another table has it so.
    """
    found: dict[int, tuple[Rule, list[tuple[str, Table]]]] = {}
    plain = {id(rule) for table in dialect(name).tables.values() for rule in flat(table.rules)}
    for kind, table in dialect(name).tables.items():
        for rule in flat(table.rules):
            if isinstance(rule, (Spelled, Without)) and id(rule.rule) in plain:
                continue
            if len(rule.keys) > 1 and (len(rule.canonical) > 1 or isinstance(rule, CustomRule)):
                found.setdefault(id(rule), (rule, []))[1].append((kind, table))
    return found


@cache
def texts(name: str) -> tuple[Mapping[str, Any], ...]:
    """An empty text, our own examples, and texts in which rules come to life that are asleep in others."""
    made = []
    for settings in CONTEXTS[name]:
        tree: dict[str, Any] = {}
        for key, value in settings.items():
            put(tree, parse_dotted(key), value)
        made.append(tree)
    own = [example.plain() for example in examples(name) if example.is_own]
    return ({}, *own, *made)


def _covers(declared: str, leaf: KeyPath) -> bool:
    """Whether a declared canonical key stands for a leaf: it is the leaf, what the leaf is in, or what needs this section."""
    whole = tuple(
        "*" if part in ("[]", "{}") else part
        for part in named(declared).replace("[]", ".[]").replace("{}", ".{}").split(".")
    )
    length = min(len(whole), len(leaf))
    if all(one in ("*", other) for one, other in zip(whole[:length], leaf[:length], strict=True)):
        return True
    return leaf[-1] == "type" and whole[: len(leaf) - 1] == leaf[:-1]


def _is_kept(leaf: KeyPath) -> bool:
    """Whether it is a framework's own argument, which is kept under its own name."""
    return leaf[0] == "extensions" or any(part in ("args", "source_args", "overrides", "transformer") for part in leaf)


def _declared(rule: Rule) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for key, canonical in rule.pairs:
        found[key.name].add(canonical)
    return found


def _allowed(name: str, declared: Mapping[str, set[str]]) -> set[str]:
    """What a key may fill: a mapping also what its entries fill."""
    whole = name.removesuffix(".**")
    return {
        canonical
        for key, names in declared.items()
        if key == name or key.startswith(f"{whole}.")
        for canonical in names
    }


def _versions(name: str, rule: Rule, releases: bool) -> list[str]:
    own = dialect(name).versions
    if releases is NEWEST:
        return [own[-1]]
    ends = [end for key in rule.keys for end in (key.since, key.until) if end]
    return list(
        dict.fromkeys([own[-1], own[0], *(version for end in ends for version in own if version.startswith(end))])
    )


@cache
def _seen(name: str, releases: bool) -> dict[int, dict[str, set[KeyPath]]]:
    """What the keys of each rule fill."""
    return {number: _read(name, rule, tables, releases) for number, (rule, tables) in rules(name).items()}


def _read(name: str, rule: Rule, tables: Sequence[tuple[str, Table]], releases: bool) -> dict[str, set[KeyPath]]:
    found: dict[str, set[KeyPath]] = defaultdict(set)
    keys = tuple({key.name: key for key in (*(key for key, _ in rule.pairs), *rule.keys)}.values())
    for _, table in tables[:1]:
        for version in _versions(name, rule, releases):
            for plain in texts(name):
                names = rule.names if isinstance(rule, Spelled) else {}
                text = {names.get(role, role): block for role, block in plain.items()}
                for key, leaf in read_pairs(rule, table, version, text, keys, WORDS):
                    found[key].add(leaf)
    return found


@pytest.mark.parametrize(("name", "releases"), RELEASES)
def test_what_a_key_fills_is_declared(name: str, releases: bool) -> None:
    wrong: list[str] = []
    for number, (rule, _) in rules(name).items():
        declared, seen = _declared(rule), _seen(name, releases)[number]
        title = getattr(rule, "name", type(rule).__name__)
        for key, leaves in seen.items():
            allowed = _allowed(key, declared)
            wrong += [
                f"{title}: {key} fills {'.'.join(map(str, leaf))}, which is not declared"
                for leaf in leaves
                if not _is_kept(leaf) and not any(_covers(canonical, leaf) for canonical in allowed)
            ]
    assert wrong == [], f"{len(wrong)}:\n" + "\n".join(wrong)


WRITTEN: Mapping[tuple[str, str, str], dict[str, Any]] = {
    ("trinity", "synchronizer.sync_interval", "weight_sync.every"): {"weight_sync": {"every": 3}},
    ("verl", "trainer.total_training_steps", "schedule.total_optimizer_steps"): {
        "schedule": {"total_steps": None, "total_optimizer_steps": 60}
    },
}
"""Pairs that writing alone shows, with what is written."""
NAMED = {
    ("trinity", "explorer.rollout_model.engine_num", "placement.layout"),
    ("trinity", "model.temperature", "algorithm.train_temperature"),
    ("trinity", "buffer.explorer_input.default_eval_workflow_type", "rollout.default_agent"),
    ("roll", "actor_train.data_args.domain_interleave_probs.*", "data.mixing"),
}
"""Pairs that a report names, although no change of the key alone changes the value."""


@pytest.mark.parametrize(("name", "releases"), RELEASES)
def test_a_key_that_fills_anything_fills_all_that_is_declared(name: str, releases: bool) -> None:
    """Keys that are asleep in all texts are not judged."""
    wrong = []
    for number, (rule, _) in rules(name).items():
        seen = _seen(name, releases)[number]
        wrong += [
            f"{getattr(rule, 'name', rule)}: {key} is said to fill {canonical}, but does not"
            for key, names in (_declared(rule).items() if isinstance(rule, CustomRule) else ())
            for canonical in names
            if seen.get(key)
            and not _is_kept(tuple(canonical.split(".")))
            and not any(_covers(canonical, leaf) for leaf in seen[key])
            and (name, key, canonical) not in {*WRITTEN, *NAMED}
        ]
    assert wrong == [], "\n".join(wrong)


ASLEEP = {"verl": 4, "trinity": 26, "roll": 44}
"""Keys that no text here makes fill anything, so that what is declared of them is not judged."""


@pytest.mark.soak
@pytest.mark.parametrize("name", DIALECTS)
def test_few_keys_are_asleep_in_all_texts(name: str) -> None:
    asleep = [
        key
        for number, (rule, _) in rules(name).items()
        for key in _declared(rule)
        if not _seen(name, ALL)[number].get(key)
    ]
    assert len(asleep) <= ASLEEP[name], asleep


@pytest.mark.parametrize(("name", "key", "canonical"), WRITTEN)
def test_a_pair_that_writing_alone_shows_is_written(name: str, key: str, canonical: str) -> None:
    def written(tree: dict[str, Any]) -> Any:
        loaded, _ = load(Document("made", tree))
        assert loaded is not None
        text, _ = write(loaded, name)
        assert text is not None
        return find(read_yaml(text, "written.yaml").values, parse_dotted(key))

    assert written({**BASE, **WRITTEN[name, key, canonical]}) != written(BASE)


def _inside(key: str) -> list[str]:
    """What the keys in a mapping fill, which a report says of the mapping if it is empty."""
    return [path for name, paths in filled().items() if name.startswith(f"{key}.") for path in paths]


@pytest.mark.parametrize("name", DIALECTS)
def test_explain_names_what_the_report_of_a_conversion_names(name: str) -> None:
    wrong: set[str] = set()
    checked = 0
    for example in some((each for each in examples(name) if not each.is_default), 10):
        for entry in example.read()[1].accounting:
            if entry.bucket not in (Bucket.MAPPED, Bucket.DERIVED):
                continue
            canonical = [path for meaning in meanings(f"{name}:{entry.key}") for path in meaning.canonical]
            for target, _ in entry.targets:
                leaf = tuple("*" if isinstance(part, int) else part for part in parse_dotted(target))
                checked += 1
                if not _is_kept(leaf) and not any(_covers(path, leaf) for path in canonical):
                    wrong.add(f"{entry.key} became {target}; explain says {canonical}")
    assert checked
    assert wrong == set(), "\n".join(sorted(wrong))
