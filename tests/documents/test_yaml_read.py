"""Reading YAML: OmegaConf's values, the places and comments of every key, and no text that breaks or stalls it."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf._utils import get_yaml_loader

from rlctl.common.errors import DocumentError, Location
from rlctl.documents import Comment, Document, KeyPath, read_yaml
from rlctl.documents.scalars import plain_value

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"

SCALARS = [
    "1e-6", "1e-06", "1E5", "1.0e-06", ".5", "1.", "-.5", "+.5", ".5e3", ".5e+3", "5.e-3", "1e", "1_0e3", "1_000", "1_000.5", "-1", "+1",
    "0777", "0o7", "08", "0x1F", "-0x1f", "0b101", "0_", "1:30", "1:30:20", "1:30.5", "-1:30", "190:20:30", "1:60", "yes", "Yes", "YES",
    "yEs", "no", "on", "On", "off", "y", "n", "Y", "N", "true", "True", "TRUE", "tRue", "false", "null", "Null", "~", "None", "none",
    ".inf", "-.inf", "+.INF", ".Inf", "inf", ".nan", ".NaN", "nan", "2024-01-01", "2024-01-01 10:00:00", "12e03", "1__0", "_1", "1.2.3",
    "${a.b}", "${oc.env:X,default}", "a b", "a:b", "http://x:80/y", "1-2", "0", "-0", "0.0", "-0.0", "00", "+0", "'1'", '"on"',
    "\"a\\nb\\u4e2d\"", "'it''s'", "|\n  a\n  b", "|-\n  a\n", "|+\n  a\n\n", ">\n  a\n  b\n", "a\n  b", "[1, on, 1e3]", "{k: 1e3, l: }", "",
    "[a, [b, {c: d}]]", "\n  - a\n  - b", "\n- a\n-\n- - b", "中文", "😀", "a#b", "a #b", "a, b", "b]", "'!x'",
]  # fmt: skip


def by_omegaconf(text: str) -> Any:
    return OmegaConf.to_container(OmegaConf.create(text))


@pytest.mark.parametrize("scalar", SCALARS)
def test_a_scalar_means_what_it_means_to_omegaconf(scalar: str) -> None:
    got = read_yaml(f"a: {scalar}\nb: 1\n", "t").values
    assert repr(got) == repr(by_omegaconf(f"a: {scalar}\nb: 1\n"))


WORDS = [
    "yes",
    "No",
    "ON",
    "off",
    "true",
    "False",
    "NULL",
    "~",
    "nan",
    ".inf",
    "-.INF",
    ".NaN",
    "0x1f",
    "0o17",
    "0b101",
    "017",
    "2024-01-31",
]
WORDS += [
    "2024-1-1 10:00:00",
    "190:20:30",
    "1:30.5",
    "1e-6",
    "1E5",
    "1_000",
    "1_0.5",
    ".5",
    "5.",
    "-.5e-3",
    "cuda:0",
    "http://a:80/b?c=d",
    "a?b",
]
scalar_texts = st.one_of(
    st.sampled_from(WORDS),
    st.builds(
        lambda word, change: change(word), st.sampled_from(WORDS), st.sampled_from([str.upper, str.title, str.swapcase])
    ),
    st.from_regex(r"\A[-+.0-9eEx_:]{1,9}\Z"),
    st.from_regex(r"\A[-+.~=<0-9a-fxoynsOFNT:_]{1,7}\Z"),
).filter(lambda text: text != "-" and not text.startswith(":") and not text.endswith(":"))  # each is one plain scalar
PLACES = ["a: {}\n", "a: [{}, 1]\n", "a: {{b: {}}}\n", "- {}\n", "a: [[x, {}]]\n", "{}: 1\n", "{{{}: 1}}\n"]


def omegaconf_loads(text: str) -> Any:
    return yaml.load(text, Loader=get_yaml_loader())  # noqa: S506


@pytest.mark.parametrize("place", PLACES)
@given(scalar=scalar_texts)
def test_a_plain_scalar_means_what_it_means_to_the_loader_of_omegaconf(place: str, scalar: str) -> None:
    text = "top:\n" + textwrap.indent(place.format(scalar), "  ")
    try:
        expected = omegaconf_loads(text)
    except (yaml.YAMLError, ValueError):
        return
    allowed = suppress(DocumentError) if place.endswith((": 1\n", ": 1}}\n")) else nullcontext()  # a date is no key
    with allowed:
        assert repr(read_yaml(text, "t").values) == repr(expected)


IN_FLOW = [
    "[cuda:0, cuda:1]", "{url: http://host:80/a#b, n: 1}", "[[x:y], {a: [b:c]}]", "[a::b, a:-1, 'x':y]", '["x":y, "p: q"]',
    "{a: b:c, 'd':e}", "[1:30, a:1e-6]", "[2024-01-01T10:00:00, 10:20]", "[a:b] # c:d?\n", "[é:ü, 😀:😀]", "[a:b, 'c:d', \"e:f\", g]",
    "{\n    a: x:y,\n    b: 'it''s:so?'\n  }",
]  # fmt: skip


@pytest.mark.parametrize("flow", IN_FLOW)
def test_a_colon_inside_text_may_stand_in_a_flow_collection(flow: str) -> None:
    text = f"a: {flow}\nb: &x http://h:1\nc: *x\nd: |\n  k: v:w?\n"
    document = read_yaml(text, "t")
    assert repr(document.values) == repr(omegaconf_loads(text))
    assert document.marks == {(): Location("t", 1, 1)} | dict(places("t", (), yaml.compose(text)))
    assert document.text == text


def places(name: str, path: KeyPath, node: Any) -> Iterator[tuple[KeyPath, Location]]:
    """Where PyYAML finds the keys of mappings and the items of lists."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    items = node.value if isinstance(node, yaml.SequenceNode) else []
    found = [(key, plain_value(key.value) if key.style is None else key.value, value) for key, value in pairs]
    for mark, key, value in [*found, *((item, index, item) for index, item in enumerate(items))]:
        yield (*path, key), Location(name, mark.start_mark.line + 1, mark.start_mark.column + 1)
        yield from places(name, (*path, key), value)


def test_a_text_that_holds_the_stand_in_itself_keeps_it() -> None:
    assert read_yaml("a: [\ue03a, b]\n", "t").values == {"a": ["\ue03a", "b"]}
    with pytest.raises(DocumentError, match="':'"):
        read_yaml("a: [\ue03a, cuda:0]\n", "t")


@given(
    st.text(st.characters(codec="utf-8"), max_size=40)
    | st.text(st.sampled_from("ab:-#[]{},&*!|>'\"%@?~ \n\t."), max_size=30)
    | st.lists(st.sampled_from(["k: ", "a", ": ", "x:y", "- ", "\n", "\n  ", "[", "]", "{", "}", ", ", "'", '"', " # c", "&a ", "*a", "|\n  ", "?", "b?"]))
    .map("".join)
)  # fmt: skip
def test_any_text_is_read_as_omegaconf_reads_it_or_refused(text: str) -> None:
    try:
        got = read_yaml(text, "t")
    except DocumentError as error:
        refused = str(error)
        assert refused.startswith("t")
        return
    try:
        expected = omegaconf_loads(text)
    except (yaml.YAMLError, ValueError):
        return  # its pure Python parser refuses tabs between tokens, for example
    assert repr(got.values) == repr(expected)


PLACED = """\
# Copyright
# two

# first of all
actor:  # the actor
  lr: 1e-6   # rate
  betas: [0.9,
          0.999]  # both

  # a text
  prompt: |  # as it is
    # no comment
    hello
rewards:
  # one
  - name: math
    weight: 1
  - code  # two
"a.b": {c: 中, d: 5}  # dots
# end

# of file
"""


@pytest.fixture
def placed() -> Document:
    return read_yaml(PLACED, "f.yaml")


def test_every_key_and_item_has_its_place(placed: Document) -> None:
    lines = {path: (mark.line, mark.column) for path, mark in placed.marks.items()}
    assert lines == {
        (): (5, 1),
        ("actor",): (5, 1),
        ("actor", "lr"): (6, 3),
        ("actor", "betas"): (7, 3),
        ("actor", "betas", 0): (7, 11),
        ("actor", "betas", 1): (8, 11),
        ("actor", "prompt"): (11, 3),
        ("rewards",): (14, 1),
        ("rewards", 0): (16, 5),
        ("rewards", 0, "name"): (16, 5),
        ("rewards", 0, "weight"): (17, 5),
        ("rewards", 1): (18, 5),
        ("a.b",): (19, 1),
        ("a.b", "c"): (19, 9),
        ("a.b", "d"): (19, 15),
    }
    assert placed.at(("actor", "lr", "no", "such")) == Location("f.yaml", 6, 3)
    assert placed.at(("nowhere",)).line == 5


def test_comments_belong_to_their_keys(placed: Document) -> None:
    assert placed.comments == {
        (): Comment(above=("Copyright", "two"), below=("end", "", "of file")),
        ("actor",): Comment(("first of all",), "the actor"),
        ("actor", "lr"): Comment((), "rate"),
        ("actor", "betas"): Comment((), "both"),
        ("actor", "prompt"): Comment(("a text",), "as it is"),
        ("rewards", 0): Comment(("one",)),
        ("rewards", 1): Comment((), "two"),
        ("a.b",): Comment((), "dots"),
    }


def test_leaves_keep_plain_lists_whole_and_descend_into_others(placed: Document) -> None:
    leaves = dict(read_yaml("a: {}\nb: []\nc: [1, [2]]\nd: [{e: 1}, 2, []]\n", "t").leaves())
    assert leaves == {("a",): {}, ("b",): [], ("c",): [1, [2]], ("d", 0, "e"): 1, ("d", 1): 2, ("d", 2): []}
    assert ("actor", "betas") in dict(placed.leaves())


def test_windows_line_ends_and_a_byte_order_mark_change_nothing(placed: Document) -> None:
    again = read_yaml("\ufeff" + PLACED.replace("\n", "\r\n"), "f.yaml")
    assert (again.values, again.marks, again.comments) == (placed.values, placed.marks, placed.comments)


def test_anchors_and_merge_keys_work() -> None:
    text = "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: {<<: [{x: 5}, *a], z: 0}\nd: *a\n"
    document = read_yaml(text, "t")
    assert document.values == yaml.safe_load(text)
    assert not any("<<" in path for path in document.marks)
    assert document.at(("b", "x")).line == 3
    assert document.at(("d", "x")).line == 6
    document.values["d"]["x"] = 7
    assert document.values["a"]["x"] == 1


def test_integer_keys_of_free_mappings_stay_integers() -> None:
    assert read_yaml("a:\n  0: wall\n  1: floor\n", "t").values == {"a": {0: "wall", 1: "floor"}}


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 300))

HOSTILE = [
    ("", 0, "holds no settings"),
    ("# only\n\n", 0, "holds no settings"),
    ("null\n", 0, "holds no settings"),
    ("- a\n", 1, "the top level is a list"),
    ("just text\n", 1, "the top level is a single value"),
    ("a: 1\n---\nb: 2\n", 2, "a second document starts here"),
    ("a: 1\na: 2\n", 2, "the key 'a' is set here and on line 1"),
    ("x:\n  a.b: 1\n  c: 2\n  a.b: 3\n", 4, r"the key 'x.a\\.b' is set here and on line 2"),
    ("a: !!python/object/apply:os.system ['true']\n", 1, "the tag '!!python/object/apply:os.system' is not allowed"),
    ("a: !secret x\n", 1, "the tag '!secret' is not allowed"),
    ("a: ! x\n", 1, "the tag '!' is not allowed"),
    ("!!map {a: 1}\n", 1, "the tag '!!map' is not allowed"),
    ("a: !e!x 1\n", 1, "starts with '!'"),
    ("on: 1\n", 1, "the key 'on' means True"),
    ("a: {1.5: x}\n", 1, "the key '1.5' means 1.5"),
    ("~: 1\n", 1, "the key '~' means None"),
    ("?\n: 1\n", 1, "an empty key means None"),
    (": 1\n", 1, "an empty key means None|does not match"),
    ("? [a]\n: 1\n", 1, "expected a key"),
    ("a: {{b}}\n", 1, "expected a key"),
    ("a:\n  b: 1\n\tc: 2\n", 3, "line 3 is indented with a tab"),
    ("a:\n\tb: 1\n", 2, "line 2 is indented with a tab"),
    ("a: b: c\n", 1, "column 5: a ': ' appears where no key can start"),
    ("a: [1, 2\nb: 3\n", 2, r"a list opened with '\[' is not closed \(it started on line 1\)|no new key"),
    ("a: {b: 1\n", 2, "is not closed"),
    ('a: "b\n', 1, "a quote is opened and never closed"),
    ('a: "\\d"\n', 1, "a backslash in double quotes"),
    ("a:\n   b: 1\n  c: 2\n", 3, "the line's indentation does not match its neighbors"),
    ("a: 1\nb\n", 2, "a line is not 'key: value'|does not match"),
    ("a: @b\n", 1, "cannot start with this character"),
    ("a: %b\n", 1, "cannot start with this character"),
    ("a: *b\n", 1, r"'\*b' refers to nothing"),
    ("a: &b [*b]\n", 1, r"'\*b' refers to a value that contains it"),
    ("a: &b {c: *b}\n", 1, "refers to a value that contains it"),
    ("a: &b {<<: *b}\n", 1, "refers to a value that contains it"),
    ("a: {<<: 1}\n", 1, "'<<' takes a mapping"),
    (LAUGHS, 5, "holds more than 100000 values"),
    (CHAIN, 100, "nested deeper than 100 levels through"),
    ("a: " + "[" * 200, 1, "nested deeper than 100"),
    ("a: " + "{a: " * 200, 1, "nested deeper than 100"),
    ("- " * 5000 + "a\n", 1, "nested deeper than 100"),
    ("a: " + "9" * 5000 + "\n", 1, "'a' is a number of 5000 characters"),
    ("a: 0b_\n", 1, "has no digits"),
    ("a: \x00\n", 1, "U\\+0000"),
    ("a: 1\nb: \x1b[0m\n", 2, "U\\+001B"),
    ("a: \ud800\n", 1, "U\\+D800"),
    ("a: \ufffe\n", 1, "U\\+FFFE"),
    ("%TAG ! x\n" * 20 + "---\na: 1\n", 1, "too many lines that start with '%'"),
    ("%YAML 9.9\n---\na: 1\n", 1, "another version of YAML"),
    ("k" * 2000 + ": 1\n", 1, "no 'key: value'|no key can start|single value"),
    ("\n" * 600_000, 1, "lines"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), HOSTILE, ids=[repr(case[0][:24]) for case in HOSTILE])
def test_hostile_text_is_refused_with_its_place(text: str, line: int, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_yaml(text, "bad.yaml")
    error = caught.value
    assert error.at is not None
    assert error.at.file == "bad.yaml"
    assert re.search(message, error.message), error.message
    assert error.at.line == line
    assert error.hint or "nested" in error.message


HUGE = 16 * 1024 * 1024
FLOODS = {
    "flow lists": "a: " + "[" * (HUGE - 3),
    "flow pairs": "a: " + "{a: " * (HUGE // 4 - 1),
    "closed lists": "a: [" + "[]," * (HUGE // 3 - 2),
    "dashes": "- " * (HUGE // 2),
    "indentation": "\n".join(" " * n + "a:" for n in range(5000)),
    "keys": "".join(f"k{n}: 1\n" for n in range(1_000_000)),
    "comments": "#\n" * (HUGE // 2),
    "anchors": "a: [" + "&a a, " * (HUGE // 6 - 1),
    "one long line": "a: " + "x" * (HUGE - 3),
    "digits": "a: " + "1" * (HUGE - 3),
    "number-like": "a: " + "1_" * (HUGE // 2 - 2),
    "sexagesimal": "a: 1" + ":1" * (HUGE // 2 - 3),
    "quoted": 'a: "' + "\\" * (HUGE - 5),
    "tag directives": "".join(f"%TAG !{n}! x\n" for n in range(1_000_000)),
    "question marks": "? " * (HUGE // 2),
    "colons": ":" * HUGE,
    "colons in a list": "a: [" + "b:" * (2**19 - 10) + "\n",
    "hashes": "a: b" + "#" * (HUGE - 5),
    "blanks": "a:" + " " * (HUGE - 5) + "b",
    "comment after comment": "a: [" + "1, # x\n" * 400_000 + "]",
    "carriage returns": "#\r" * (HUGE // 2),
    "merges": "a: &a {x: 1}\n" + "".join(f"b{n}: {{<<: *a}}\n" for n in range(20_000)),
    "merges written out": "".join(f"b{n}: {{<<: [{{x: 1}}]}}\n" for n in range(18_000)),
    "too large": "a" * (HUGE + 1),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_is_answered_within_seconds(kind: str) -> None:
    began = time.process_time()
    try:
        read_yaml(FLOODS[kind], "flood.yaml")
        answered = kind in {"one long line", "blanks", "hashes", "merges", "merges written out"}
    except DocumentError as error:
        answered = len(str(error)) < 1000
    assert answered
    assert time.process_time() - began < 30  # minutes, where time grows with the square


def test_an_empty_text_may_be_allowed() -> None:
    document = read_yaml("# nothing\n", "t", allow_empty=True)
    assert document.values == {}
    assert document.comments[()].below == ("nothing",)


def test_importing_the_package_loads_no_yaml_library() -> None:
    heavy = "{'yaml', 'ruamel', 'omegaconf', 'hydra', 'antlr4', 'torch', 'ray'}"
    code = f"import sys, rlctl.documents; print(sorted({heavy} & {{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the checkout")
def test_every_config_of_the_corpus_reads_as_omegaconf_reads_it() -> None:
    paths = sorted(CORPUS.rglob("*.y*ml"))
    for path in paths:
        got = read_yaml(path.read_text(encoding="utf-8"), str(path), allow_empty=True)
        assert repr(got.values) == repr(OmegaConf.to_container(OmegaConf.load(path))), path
        assert all(got.marks[leaf[:size]].line for leaf, _ in got.leaves() for size in range(1, len(leaf) + 1)), path
    assert paths
