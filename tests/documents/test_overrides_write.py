"""Overrides that are written mean what was to be said: to Hydra's own parser, and through bash."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.common.errors import DocumentError
from rlctl.documents import read_overrides
from rlctl.documents.overrides_write import Change, changes, hydra_value
from rlctl.shell.write import Env, bash_override, pieces

TRAPS = ["true", "1e5", "~/x", "null", "a b", "x,y", "1_0", ".5", ".", "-1", "+x", "a:b", "it's", '"q"', "a\\", "\\'"]
TRAPS += [
    "${oc.env:X,1}",
    "${a.b}",
    "inf",
    "NaN",
    "1.",
    "1e",
    "@x",
    "%",
    "",
    " ",
    "$HOME",
    "`id`",
    "!x",
    "#x",
    "a=b",
    "(x)",
    "[x",
    "\n",
]
TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), max_size=8) | st.sampled_from(
    TRAPS
)
LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
KEY = st.from_regex(r"\A[a-z_][a-z0-9_.-]{0,5}\Z").filter(
    lambda key: key not in ("true", "false", "null", "nan", "inf")
)
VALUE = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY, inner, max_size=3), max_leaves=6
)


@given(VALUE)
@settings(max_examples=60)
def test_hydra_reads_what_was_written(value: Any) -> None:
    (read,) = read_overrides([Change(("a", "b"), value).text()], "test")
    assert repr(read.value) == repr(value)


@given(st.lists(VALUE, min_size=60, max_size=60))
@settings(max_examples=1)
def test_bash_hands_over_what_was_written(values: list[Any]) -> None:
    values += TRAPS
    words = [bash_override(Change(("a", "b"), value), keep=True) for value in values]
    done = subprocess.run(["bash", "-c", "printf '%s\\0' " + " ".join(words)], capture_output=True, check=True)
    handed = done.stdout.decode().split("\0")[:-1]
    assert [repr(item.value) for item in read_overrides(handed, "bash")] == [repr(value) for value in values]


@pytest.mark.parametrize(
    ("value", "number", "environment", "expected"),
    [
        ("${oc.env:N,8}", 4, {}, 8),
        ("${oc.env:N}", 4, {}, 4),
        ("${oc.env:N}", 4, {"N": "16"}, 16),
        ("${oc.env:N}", True, {}, True),
        ("${oc.env:N}", 1e-6, {}, 1e-6),
        ("${oc.env:N,8}", 4, {"N": "16"}, 16),
        ("${oc.env:N,8}", None, {}, "8"),
        ("/data/${oc.env:WHO,me}/x", None, {"WHO": "a b"}, "/data/a b/x"),
        ("/data/${oc.env:WHO}/x", None, {}, "/data/${oc.env:WHO}/x"),
        ("${oc.env:A,${oc.env:B}}", None, {}, "${oc.env:A,${oc.env:B}}"),
        (["${oc.env:D,~/my data}/a", "it's", 1, "$HOME"], None, {}, ["~/my data/a", "it's", 1, "$HOME"]),
        ("${oc.env:A,${oc.env:B,'c d'}}", None, {}, "c d"),
        ("${oc.env:A,${oc.env:B,'c d'}}", None, {"B": "e=f"}, "e=f"),
        ("${trainer.name}/${oc.env:U,me}", None, {}, "${trainer.name}/me"),
        ({"k": "${oc.env:Z,}"}, None, {}, {"k": ""}),
        ("${oc.env:A,{x}}", None, {}, "{x}"),
        # Hydra parses the word, so that bash gives it the number; a resolver inside the word would get a number and no text.
        ("${oc.decode:${oc.env:N,8}}", 8, {}, 8),
        ("${oc.decode:${oc.env:N}}", 4, {"N": "16"}, 16),
        ("${oc.decode:${oc.env:N,'[1,2]'}}", None, {"N": "[3]"}, "${oc.decode:${oc.env:N,'[1,2]'}}"),
        ("x/${oc.decode:${oc.env:N,8}}", None, {}, "x/${oc.decode:${oc.env:N,8}}"),
    ],
)
def test_bash_expands_variables_of_the_environment(
    value: Any, number: float | None, environment: dict[str, str], expected: Any
) -> None:
    word = bash_override(Change(("a",), value), number=number)
    done = subprocess.run(
        ["bash", "-uc", f"printf %s {word}"], capture_output=True, text=True, env=environment, check=True
    )
    assert read_overrides([done.stdout], "bash")[0].value == expected


def test_a_secret_stays_hydras_business() -> None:
    word = bash_override(Change(("api_key",), "${oc.env:KEY}"), keep=True)
    done = subprocess.run(
        ["bash", "-c", f"printf %s {word}"], capture_output=True, text=True, env={"KEY": "s3"}, check=True
    )
    assert done.stdout == "api_key=${oc.env:KEY}"


def test_a_text_is_cut_at_its_variables() -> None:
    assert pieces("a${oc.env:X,1}b${c.d}") == ("a", Env("X", ("1",)), "b${c.d}")
    assert pieces("${oc.env:X") == ("${oc.env:X",)


def test_a_tree_becomes_one_override_a_leaf() -> None:
    tree = {"a": {"b": 1, "c": {}, "d": {"e.f": 1}}, "g": [1, {"h": None}]}
    assert [change.text() for change in changes(tree)] == ["a.b=1", "a.c={}", "a.d={e.f:1}", "g=[1,{h:null}]"]
    assert [change.key for change in changes({"a": {"b": 1}}, lambda path: "+")] == ["+a.b"]


def test_numbers_stand_as_people_write_them() -> None:
    assert [hydra_value(value) for value in (1e-6, 1.0, 0.001, True, None)] == ["1e-6", "1.0", "0.001", "True", "null"]


def test_a_key_that_hydra_cannot_name_is_refused() -> None:
    with pytest.raises(DocumentError, match="cannot be written as an override"):
        list(changes({"a b": 1}))
    with pytest.raises(DocumentError, match="cannot be written as an override"):
        hydra_value({"": 1})
