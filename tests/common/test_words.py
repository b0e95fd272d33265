"""What users read is plain English: no phrase of the list below is in messages, help, the texts of errors, or the docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from typer.main import get_command

from rlctl import cli
from rlctl.common.messages import catalogue
from rlctl.config.chinese import english

BANNED = {
    r"(is|are|was|were|be|been) told": "warns, reports, prints",
    r"says so|is said|it is said": "prints a note; usually delete",
    r"hangs? on": "depends on, affects",
    r"(changes )?no numbers?": "does not affect results",
    r"go(es)? by": "uses, is determined by",
    r"go(es)? on": "continues, resumes",
    r"anew": "again, from scratch",
    r"what stands|stands (in|where|after|before)": "is, contains, appears in",
    r"beside": "alongside, next to, as well as",
    r"draws?|drawn": "sampled, generated",
    r"begun": "started",
    r"of (its|their) own": "its own X, separate, dedicated",
    r"(is|are) taken for": "is treated as",
    r"tak(es?|en) up": "loaded, resumed from",
    r"answered nobody": "has been unresponsive for",
    r"nobody|somebody|whoever": "name the user or the process",
    r"(is|are) not here|that there is not": "not installed, not found, unknown",
    r"in (the )?place of": "replaces, instead of",
    r"at once": "immediately, or at the same time",
    r"(by|for) itself": "automatically, or separately",
    r"so (many|long)": "N, this many",
    r"(put|goes|laid) over": "overrides",
    r"left out": "skipped, dropped, omitted",
    r"the way (is|back)": "so that converting back restores it",
    r"accounts? for every": "reports every key",
    r"dialects?": "framework, format",
    r"held-out": "evaluation dataset",
    r"raised,|lowered,": "Higher values ..., Lower values ...",
    r"no (text|config)|(?-i:is none|are none)": "not a string, not a config",
    r"people|a person": "you, users",
    r"mend(s|ed)?": "fix",
    r"in silence": "silently",
    r"honou?r(s|ed)?": "supported, takes effect",
    r"what looks wrong": "warnings, possible problems",
    r"of whom|for whom|whom": "name it",
    r"asks? (nobody|of)": "queries, requires",
    r"may be repeated": "Repeatable.",
}
"""Phrases as regular expressions, and what to write instead."""
REPOSITORY = Path(__file__).parents[2]
ROOT = REPOSITORY / "rlctl"
SPOKEN = (
    *(
        "adapters",
        "checks",
        "cli",
        "cluster",
        "common",
        "documents",
        "editing",
        "monitor",
        "planning",
        "runs",
        "runtime",
    ),
    *("sandbox", "shell", "translation"),
)
"""Packages whose texts are held to the list: what their commands and errors print."""
PAGES = ("support_page.py",)
"""Modules that write reference pages, which speak of dialects."""
_CODE = re.compile(r"^```.*?^```|`[^`]*`", re.MULTILINE | re.DOTALL)
_PHRASE = re.compile("|".join(rf"(?<![\w-])(?:{phrase})(?![\w-])" for phrase in BANNED), re.IGNORECASE)


def found(texts: Iterator[tuple[str, str]]) -> list[str]:
    """The banned phrases in texts, with where each is."""
    return [f"{name}: {match[0]!r}" for name, text in texts for match in _PHRASE.finditer(text)]


def help_texts(command: click.Command, name: str = "rlctl") -> Iterator[tuple[str, str]]:
    """The help of a command, of its options, and of the commands in it."""
    yield name, command.help or ""
    for parameter in command.params:
        yield f"{name} {parameter.name}", getattr(parameter, "help", None) or ""
    for inner in getattr(command, "commands", {}).values():
        yield from help_texts(inner, f"{name} {inner.name}")


def source_texts() -> Iterator[tuple[str, str]]:
    """The texts in the code of some packages, without docstrings."""
    for package in SPOKEN:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            about = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree) if path.name not in PAGES else ():
                if isinstance(node, ast.Constant) and " " in str(node.value) and id(node) not in about:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", re.sub(r"{\w+}", "", str(node.value))


def page_texts() -> Iterator[tuple[str, str]]:
    """The prose of README and docs, without code; contributors' pages speak of dialects, and generated pages have tests."""
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    for path in pages:
        if "reference" not in path.parts and "zh" not in (*path.parts, *path.name.split(".")):
            prose = _CODE.sub("", path.read_text(encoding="utf-8"))
            yield str(path.relative_to(REPOSITORY)), re.sub("dialects?", "", prose, flags=re.IGNORECASE)


def test_the_list_finds_what_it_bans() -> None:
    assert found(iter([("x", "It is told anew, and goes on.")])) == ["x: 'is told'", "x: 'anew'", "x: 'goes on'"]
    assert not found(iter([("x", "The plan continues; drawback, category, non-dialectal.")]))


@pytest.mark.parametrize("area", ["messages", "help", "code", "docs", "config"])
def test_no_text_for_users_has_a_banned_phrase(area: str) -> None:
    messages = ((id_, entry.partition(" =")[2]) for id_, entry in catalogue("en").items())
    texts = {
        "messages": messages,
        "help": help_texts(get_command(cli.app)),
        "code": source_texts(),
        "docs": page_texts(),
        "config": english(),
    }
    assert not found(texts[area])
