"""The schema explains itself: every field has a sentence, every section a docstring, and no two options share a name."""

from __future__ import annotations

import dataclasses

from rlctl.config import Config
from rlctl.config.fields import Choice
from rlctl.config.inspect import fields_of, help_of, sections_in, walk

SECTIONS = {key.owner for key in walk(Config)} | {
    held for key in walk(Config) for held, _ in sections_in(key.info.type)
}
OPTIONS = {option for held in SECTIONS if issubclass(held, Choice) for option in held.registry.values()}


def test_every_field_has_a_sentence() -> None:
    bad = {key.pattern: key.help for key in walk(Config) if len(key.help.split()) < 4 or not key.help.endswith(".")}
    assert bad == {}


def test_every_section_and_option_says_what_it_is() -> None:
    bad = [
        cls.__name__
        for cls in SECTIONS | OPTIONS
        if not (cls.__doc__ or "").strip().split("\n")[0].endswith(".")
        or (cls.__doc__ or "").startswith(f"{cls.__name__}(")
    ]
    assert bad == []


def test_help_is_written_under_the_field_and_not_made_up() -> None:
    for cls in SECTIONS | OPTIONS:
        if dataclasses.is_dataclass(cls):
            assert set(help_of(cls)) >= set(fields_of(cls)), cls


def test_numbers_that_measure_something_say_in_what() -> None:
    """Lengths, counts of prompts and responses, and durations have a unit, by their type."""
    named = {
        "tokens": "tokens",
        "prompts": "prompts",
        "responses": "responses",
        "devices": "devices",
        "gib": "GiB",
        "mib": "MiB",
    }
    for key in walk(Config):
        last = key.pattern.split(".")[-1].split("_")
        for word in last:
            numeric = key.info.type in (int, float) or "int" in str(key.info.type) or "float" in str(key.info.type)
            if (
                word in named
                and numeric
                and key.info.default is not None
                and not isinstance(key.info.default, (bool, tuple, dict))
            ):
                assert key.info.unit == named[word], key.pattern
