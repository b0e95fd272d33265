"""Messages are formatted as Project Fluent's own library formats them."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from fluent.runtime import FluentBundle, FluentResource
from fluent.runtime.types import fluent_number
from fluent.syntax import FluentParser
from fluent.syntax.visitor import Visitor

from rlctl.common.messages import catalogue
from rlctl.common.messages.patterns import formatted, parsed

SPACES = re.compile(r"(?<=[\u4e00-\u9fff]) (?=[!-~])|(?<=[!-~]) (?=[\u4e00-\u9fff])")
"""Between Chinese and Latin text, where rlctl adds the space that Fluent does not know: see test_spacing."""


class Choices(Visitor):
    """The variables of a text, each with the names of variants that it chooses from."""

    def __init__(self) -> None:
        self.found: dict[str, set[str]] = {}

    def visit_VariableReference(self, node: Any) -> None:
        self.found.setdefault(node.id.name, set())

    def visit_SelectExpression(self, node: Any) -> None:
        keys = {getattr(each.key, "name", None) or each.key.value for each in node.variants}
        self.generic_visit(node)
        self.found[node.selector.id.name] |= keys


def values_of(node: Any) -> list[dict[str, Any]]:
    """Values for every variable: counts, text, and what the text chooses by. Of what chooses by a count only counts."""
    choices = Choices()
    choices.visit(node)
    counted = {name: 5 for name, keys in choices.found.items() if any(key == "one" or key.isdigit() for key in keys)}
    sets = [dict.fromkeys(choices.found, count) for count in (0, 1, 12_345)]
    sets += [{**dict.fromkeys(choices.found, text), **counted} for text in ("a {b} [c]", "")]
    for name, keys in choices.found.items():
        sets += [{**sets[2], name: key} for key in sorted(keys) if name not in counted]
    return sets


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_message_is_what_fluent_makes_of_it(language: str) -> None:
    bundle, compared = FluentBundle([language], use_isolating=False), 0
    for id_, entry in catalogue(language).items():
        bundle.add_resource(FluentResource(entry))
        message, ours = bundle.get_message(id_), parsed(entry)
        [node] = [each for each in FluentParser().parse(entry).body if getattr(each, "id", None)]
        theirs = {"": message.value, **message.attributes}
        assert ours.keys() == {name for name, pattern in theirs.items() if pattern is not None}, id_
        for (name, pattern), values in itertools.product(ours.items(), values_of(node)):
            given = {k: fluent_number(v, useGrouping=False) if isinstance(v, int) else v for k, v in values.items()}
            expected, errors = bundle.format_pattern(theirs[name], given)
            assert not errors
            assert SPACES.sub("", formatted(pattern, values, language)) == SPACES.sub("", expected), (id_, name, values)
            compared += 1
    assert compared > 1000


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("a = { FUNCTION() }", "unexpected text"),
        ("a = { $b", "expected }"),
        ("a = one line\n    and another", "unexpected text"),
        ("a = { $b ->\n    [one] c\n }", "no variant with a star"),
    ],
)
def test_other_syntax_is_refused(entry: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parsed(entry)


def test_a_value_that_lacks_is_named() -> None:
    with pytest.raises(ValueError, match=r"\$b has no value"):
        formatted(parsed("a = { $b }")[""], {}, "en")
