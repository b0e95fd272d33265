"""What the dialects call a key of the canonical config."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from rlctl.adapters.engine.meanings import Spelling, canonical_paths, filled, spellings
from rlctl.adapters.engine.words import TOOLS
from rlctl.config import Config
from rlctl.config.inspect import walk

_OF_A_CHOICE = ("", ".type", "[].type", "{}.type")
"""A choice, or a list or mapping of them, is called what its options' type is called."""


@cache
def names_of(pattern: str) -> dict[str, tuple[str, ...]]:
    """The names of a key in each dialect that has it; ``pattern`` as in ``FieldView``."""
    found: dict[str, dict[str, None]] = {}
    for said in _spellings_of(pattern):
        found.setdefault(said.dialect, {}).update(dict.fromkeys(key.name for key in said.keys))
    return {dialect: tuple(keys) for dialect, keys in found.items() if keys}


@cache
def name_in(pattern: str, dialect: str, kind: str) -> str:
    """The name of a key in a kind of a dialect's files, such as verl's ``ppo``; empty if such a file has no key for it."""
    found = (said for said in _spellings_of(pattern) if said.dialect == dialect and kind in said.kinds)
    return next((said.keys[0].name for said in found if said.keys), "")


def _spellings_of(pattern: str) -> Iterator[Spelling]:
    path = re.sub(r"<[^<>]*>", "", pattern)
    for end in _OF_A_CHOICE:
        if (called := f"{path}{end}") in canonical_paths():
            yield from spellings(called)


MEANT = {
    "adv_estimator": "algorithm.advantage",
    "batch_size": "batch.prompts_per_step",
    "gamma": "algorithm.advantage",
    "max_steps": "schedule.total_steps",
    "repeat_times": "batch.responses_per_prompt",
    "rollout_batch_size": "batch.prompts_per_step",
    "sync_interval": "weight_sync.every",
    "train_batch_size": "batch.prompts_per_step",
}
"""Of a dialect's name that several keys hang on, the one that a person means by it."""


@cache
def all_names(pattern: str) -> tuple[str, ...]:
    """The names of a key in all dialects, TRL, OpenRLHF and vLLM; first those by which people mean this key, last those
    by which they mean another."""
    names = [name for names in names_of(pattern).values() for name in names]
    names += _words_of().get(re.sub(r"<[^<>]*>", "", pattern), ())
    meant = {name: MEANT.get(name.rpartition(".")[2], "") for name in names}
    return tuple(sorted(names, key=lambda name: (meant[name] != pattern, bool(meant[name]))))


@cache
def _words_of() -> Mapping[str, tuple[str, ...]]:
    """The options of other tools that mean a key, by the key; a word of a dialect means what it means there."""
    found: dict[str, list[str]] = {}
    theirs = {name.rpartition(".")[2] for name in filled()}
    for word, keys in (
        (word, keys) for options in TOOLS.values() for word, keys in options.items() if word not in theirs
    ):
        for key in keys:
            found.setdefault(key, []).append(word)
    return {key: tuple(words) for key, words in found.items()}


@cache
def inner_names(pattern: str) -> tuple[str, ...]:
    """The keys that are in a section, a choice or the items of a list, and what any dialect calls them."""
    inner = _inner().get(pattern, ())
    return (*inner, *dict.fromkeys(name for key in inner for name in all_names(key)))


def dialects_inside(pattern: str) -> set[str]:
    """The dialects that have keys for what is in a section or in the items of a list."""
    return {dialect for key in _inner().get(pattern, ()) for dialect in names_of(key)}


@cache
def _inner() -> Mapping[str, tuple[str, ...]]:
    """The patterns of the keys that are in others, by the pattern of each of these."""
    found: dict[str, list[str]] = {}
    for key in walk(Config):
        for place in re.finditer(r"[.\[{<]", key.pattern):
            found.setdefault(key.pattern[: place.start()], []).append(key.pattern)
    return {pattern: tuple(keys) for pattern, keys in found.items()}
