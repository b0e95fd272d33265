"""The catalogue of messages: both languages have every message, with the same variables, and the code uses each as it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fluent.syntax import FluentParser
from fluent.syntax import ast as fluent
from fluent.syntax.visitor import Visitor

from rlctl.common.messages import catalogue, has, in_language, optional, text

ROOT = Path(__file__).parents[2] / "rlctl"
MAKERS = {
    "problem": ("key", "fix", "first"),
    "finding": ("key",),
    "text": (),
    "optional": (),
    "joined": ("first", "second"),
}
"""Functions that take an id, and the variables that they give every message."""
IN_PYTHON = {"level", "at", "option", "ranked", "key"}
"""Arguments of ``finding`` that are not variables."""


class Variables(Visitor):
    """The variables that a text names."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_VariableReference(self, node: fluent.VariableReference) -> None:
        self.names.add(node.id.name)


def variables(node: fluent.BaseNode | None) -> set[str]:
    found = Variables()
    if node is not None:
        found.visit(node)
    return found.names


def parsed(language: str) -> dict[str, dict[str, set[str]]]:
    """Of each message its texts, by attribute, with their variables."""
    found = {}
    for id_, entry in catalogue(language).items():
        [message] = [item for item in FluentParser().parse(entry).body if not isinstance(item, fluent.BaseComment)]
        assert isinstance(message, fluent.Message), entry
        assert message.id.name == id_
        texts = {attribute.id.name: variables(attribute) for attribute in message.attributes}
        found[id_] = {"": variables(message.value), **texts}
    return found


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Calls in rlctl that make a message: the function, the id, the call."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and called(node) in MAKERS and node.args:
                for name in ids(node.args[0]):
                    yield called(node), name, node


def called(call: ast.Call) -> str:
    """The name of what is called: a function, or the method that config/build.py reports with."""
    if isinstance(call.func, ast.Name):
        return call.func.id
    return "bad" if getattr(call.func, "attr", "") == "bad" else ""


def ids(node: ast.expr) -> Iterator[str]:
    """The ids that an argument may be: a string, or one of two."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from ids(node.body)
        yield from ids(node.orelse)


def test_both_languages_have_the_same_messages() -> None:
    english, chinese = parsed("en"), parsed("zh")
    assert english.keys() == chinese.keys()
    for id_, texts in english.items():
        assert texts.keys() == chinese[id_].keys(), id_
        for attribute, names in texts.items():
            assert chinese[id_][attribute] <= names, f"{id_}.{attribute}"


def test_each_call_names_a_message_and_gives_its_variables() -> None:
    messages = parsed("en")
    found = 0
    for maker, name, call in calls():
        id_, _, attribute = name.partition(".")
        if maker in ("text", "optional") and attribute and "{" in attribute:
            continue
        assert id_ in messages, name
        given = {keyword.arg for keyword in call.keywords}
        if None in given:  # **values
            continue
        texts = messages[id_]
        wanted = texts[attribute] if maker in ("text", "optional") else texts[""] | texts.get("hint", set())
        lacking = wanted - {str(name) for name in given} - set(MAKERS[maker])
        assert not lacking, f"{name} needs {lacking}"
        found += 1
    assert found > 100


def test_each_message_is_used() -> None:
    source = "\n".join(path.read_text() for path in sorted(ROOT.rglob("*.py")))
    unused = [
        id_
        for id_ in catalogue("en")
        if f'"{id_}"' not in source
        and f'"{id_}.' not in source
        and f'_{id_.partition("_")[2]}"' not in source
        and not id_.startswith(
            (
                "rank-",
                "level-",
                "part-",
                "share-",
                "origin-",
                "folder-",
                "plan-",
                "explain-",
                "support-",
                "batch-",
                "end-",
            )
        )  # named by their value
    ]
    assert not unused


def test_a_text_is_on_one_line_and_only_a_choice_on_several() -> None:
    for language in ("en", "zh"):
        for entry in catalogue(language).values():
            for line in entry.rstrip().splitlines()[1:]:
                plain = line.strip()
                assert not plain or re.match(r"\.\w+ =|\*?\[\w+\] |\}|#", plain), entry


def test_counts_choose_the_plural_and_are_written_as_configs_write_them() -> None:
    assert in_language("en", "step-responses", responses=1) == "one response"
    assert in_language("en", "step-responses", responses=12345) == "12345 responses"
    assert in_language("zh", "step-responses", responses=1) == "1 条回答"


def test_a_value_is_never_read_as_syntax() -> None:
    assert text("path-missing", key="a.b", path="{ $x } {{}}\n.hint = y").startswith("a.b: { $x } {{}}")


def test_what_is_not_there_is_an_error() -> None:
    assert not has("no-such-message")
    assert not has("path-missing.never")
    assert optional("path-missing.never") == ""
    with pytest.raises(KeyError):
        text("no-such-message")
    with pytest.raises(ValueError, match="path"):
        text("path-missing", key="a")
