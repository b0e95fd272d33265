"""What is written is read back as the same values, by this package and by every other YAML loader in use."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from ruamel.yaml import YAML

from rlctl.common.errors import DocumentError
from rlctl.documents import Comment, read_yaml, write_yaml

AMBIGUOUS = [
    "1e-6", "1.0e-06", "1E5", ".5", "1.", "-.5", "+1", "1_000", "0o7", "012", "08", "0x1F", "0b1", "1:30", "1:30:20.5",
    "yes", "No", "ON", "off", "y", "N", "true", "FALSE", "null", "Null", "~", "", " a", "a ", "none", "2024-01-01",
    "2024-01-01 10:00:00", "2024-1-1T10:00:00Z", ".inf", "-.INF", ".nan", "=", "<<", "<", "???", "a: b", "a #b", "a#b",
    "a:", ":a", "-", "- a", "-a", "--flag", "?", "? a", "!tag", "&a", "*a", "%a", "@a", "`a`", "|", ">", "'a'", '"a"', "{a}", "[a]",
    "a, b", "${a.b}", "${oc.env:X,default}", "${a}: ${b}", "C:\\dir", "\\d+'\"", "a\tb", "\t", "\x85", "\u2028", "\ufeff", "\x1b[0m",
    "hdfs://a:8020/b", "中文", "list(range(0,16))", "a\nb", "a\n", "\na", "a\n\n", " a\nb", "a\n  b\n", "a\n \nb", "a\n\tb", "\n", "a\r\nb",
    "# a", "a\n# b\n", "...", "---", "--- a", "😀", "/a/b", "~/a", "a]", "a}", "k: {v}", "\\", "a\\", "a\n---\nb", "a\n...\n",
]  # fmt: skip

text = st.one_of(
    st.sampled_from(AMBIGUOUS), st.text(st.characters(exclude_categories=["Cs"])), st.from_regex(r"[-+.0-9eE_:x]{1,8}")
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), text)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=20
)
trees = st.dictionaries(text, values, max_size=6)


def same(one: Any, other: Any) -> bool:
    """Equality that tells 1 from 1.0 and True, and -0.0 from 0.0."""
    return repr(one) == repr(other)


@given(trees)
def test_every_loader_reads_back_what_was_written(tree: dict[str, Any]) -> None:
    written = write_yaml(tree)
    assert same(read_yaml(written, "t").values, tree)
    assert same(yaml.safe_load(written), tree)
    assert same(yaml.load(written, Loader=yaml.CSafeLoader), tree)


@pytest.mark.parametrize("value", AMBIGUOUS)
def test_ambiguous_strings_stay_strings_for_yaml_1_1_and_1_2(value: str) -> None:
    written = write_yaml({"plain": value, "flow": [value, 1], "item": [{"a": value}], "k" + value: 1})
    expected = {"plain": value, "flow": [value, 1], "item": [{"a": value}], "k" + value: 1}
    assert read_yaml(written, "t").values == expected
    assert yaml.safe_load(written) == expected
    assert YAML(typ="safe", pure=True).load(written) == expected
    assert dict(OmegaConf.to_container(OmegaConf.create(yaml.safe_load(written)))) == expected


@given(st.floats())
def test_floats_are_floats_in_yaml_1_1_and_1_2(value: float) -> None:
    written = write_yaml({"a": value, "b": [value]})
    for loaded in (yaml.safe_load(written), YAML(typ="safe", pure=True).load(written), read_yaml(written, "t").values):
        for got in (loaded["a"], loaded["b"][0]):
            assert type(got) is float
            assert got == value or (math.isnan(got) and math.isnan(value))


@given(trees)
def test_comments_survive_the_round_trip_and_change_no_value(tree: dict[str, Any]) -> None:
    bare = read_yaml(write_yaml(tree), "t")
    comments = {path: Comment((f"above {path!a}", "# two"), f"beside: {path!a}") for path in bare.marks if path}
    again = read_yaml(write_yaml(bare.values, comments=comments, head=["head", "", "more"], tail=["tail"]), "t")
    assert same(again.values, tree)
    kept = [
        line for comment in again.comments.values() for line in (*comment.above, *comment.beside.split(" beside: "))
    ]
    assert len(kept) >= 3 * len(comments)
    assert all(
        again.comments[path] == comment
        for path, comment in comments.items()
        if len(path) == 1 and "\n" not in str(path)
    )
    if tree:
        assert again.comments[()] == Comment(("head", "", "more"), "", ("tail",))


def test_text_reads_like_a_person_wrote_it() -> None:
    tree = {
        "algorithm": {"lr": 1e-6, "betas": [0.9, 0.999], "names": [], "empty": {}, "none": None},
        "rewards": [{"name": "math", "weights": [1, 2]}, {"name": "code"}],
        "prompt": "line one\nline two\n",
        "path": "${oc.env:MODEL,Qwen/Qwen2.5}",
    }
    comments = {("algorithm", "lr"): Comment(("the rate",), "small"), ("rewards", 1): Comment(("second",))}
    assert write_yaml(tree, comments=comments, head=["by rlctl"], tail=["end"]) == (
        "# by rlctl\n\nalgorithm:\n  # the rate\n  lr: 1.0e-06  # small\n  betas: [0.9, 0.999]\n  names: []\n  empty: {}\n"
        "  none: null\nrewards:\n  - name: math\n    weights: [1, 2]\n  # second\n  - name: code\n"
        "prompt: |\n  line one\n  line two\npath: ${oc.env:MODEL,Qwen/Qwen2.5}\n\n# end\n"
    )


def test_a_comment_cannot_smuggle_in_a_key() -> None:
    written = write_yaml(
        {"a": 1}, comments={("a",): Comment(("x\nb: 2\u2028c: 3",), "y\rd: 4")}, head=["h\ne: 5"], tail=["t\nf: 6"]
    )
    assert yaml.safe_load(written) == {"a": 1}


def test_a_long_list_stands_on_lines_of_its_own() -> None:
    written = write_yaml({"files": [f"/data/part-{n:05d}.parquet" for n in range(10)]})
    assert written.startswith("files:\n  - /data/part-00000.parquet\n")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": object()}, "'a' is of type object"),
        ({"a": {True: 1}}, "the key True of 'a' is bool"),
        ({"a": [b"x"]}, r"'a\[0\]' is of type bytes"),
        ({"a": "\ud800"}, "lone surrogate"),
        ({"a": 10**5000}, "too many digits"),
        ({"k" * 2000: 1}, "a key of 2000 characters"),
    ],
)
def test_what_yaml_cannot_hold_is_refused(tree: dict[Any, Any], message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        write_yaml(tree)


@pytest.mark.parametrize("kind", ["mapping", "list", "mapping in list"])
def test_a_tree_without_end_is_refused(kind: str) -> None:
    tree: dict[str, Any] = {}
    endless: list[Any] = []
    endless.append(endless)
    tree["a"] = {"mapping": tree, "list": endless, "mapping in list": [tree]}[kind]
    with pytest.raises(DocumentError, match="deeper than 100"):
        write_yaml(tree)
