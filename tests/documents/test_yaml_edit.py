"""An edit changes the value it is asked to change, and no other byte a person wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rlctl.common.errors import DocumentError
from rlctl.documents import KeyPath, edit_yaml, read_yaml, write_yaml

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"

TEXT = """\
# Copyright

# first
actor:   # the actor
    lr: 1e-6     # rate
    betas:  [ 0.9,0.95 ]

    'quoted': 'it''s'
    nothing:
    # before text
    text: |
        hello
          there

rewards:
- name: math   # m
  weight: 1
- name: code
flow: {a: 1, "b": [x, z]}   # f
last: end
# tail
"""


def edited(changes: dict[KeyPath, Any], *, delete: tuple[KeyPath, ...] = (), text: str = TEXT) -> str:
    return edit_yaml(read_yaml(text, "f.yaml"), changes, delete=delete)


CASES: list[tuple[KeyPath, Any, str, str]] = [
    (("actor", "lr"), 2e-6, "lr: 1e-6     # rate", "lr: 2.0e-06     # rate"),
    (("actor", "lr"), "auto", "lr: 1e-6     # rate", "lr: auto     # rate"),
    (("actor", "betas"), [0.8, 0.9], "[ 0.9,0.95 ]", "[0.8, 0.9]"),
    (("actor", "betas", 1), 0.99, "0.9,0.95", "0.9,0.99"),
    (("actor", "betas", 2), 1, "[ 0.9,0.95 ]", "[0.9, 0.95, 1]"),
    (("actor", "quoted"), "yes", "'it''s'", '"yes"'),
    (("actor", "nothing"), 5, "nothing:\n", "nothing: 5\n"),
    (("actor", "nothing"), {"x": 1}, "nothing:\n", "nothing:\n      x: 1\n"),
    (("actor", "nothing", "x", "z"), 1, "nothing:\n", "nothing:\n      x:\n        z: 1\n"),
    (("actor", "text"), "one line", "text: |\n        hello\n          there\n", "text: one line\n"),
    (("actor", "new"), [1, 2], "          there\n", "          there\n    new: [1, 2]\n"),
    (("actor", "new", "deep"), True, "          there\n", "          there\n    new:\n      deep: true\n"),
    (("rewards", 0, "name"), "m2", "name: math   # m", "name: m2   # m"),
    (("rewards", 0, "args"), {"k": None}, "  weight: 1\n", "  weight: 1\n  args:\n    k: null\n"),
    (("rewards", 2), {"name": "x", "w": 1}, "- name: code\n", "- name: code\n- name: x\n  w: 1\n"),
    (("flow", "a"), "x, y", "{a: 1,", '{a: "x, y",'),
    (("flow", "c"), 1, '{a: 1, "b": [x, z]}', "{a: 1, b: [x, z], c: 1}"),
    (("flow", "b", 0), {"k": 1}, "[x, z]", "[{k: 1}, z]"),
    (("last",), None, "last: end", "last: null"),
    (("more",), "中", "last: end\n", "last: end\nmore: 中\n"),
]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(("path", "value", "old", "new"), CASES)
def test_a_change_touches_nothing_else(path: KeyPath, value: Any, old: str, new: str, newline: str) -> None:
    assert TEXT.count(old) == 1
    expected = TEXT.replace(old, new).replace("\n", newline)
    assert edited({path: value}, text=TEXT.replace("\n", newline)) == expected


def test_several_changes_and_deletions_at_once() -> None:
    text = edited({("actor", "lr"): 1.0, ("top",): {"a": [1]}}, delete=(("actor", "betas"), ("rewards", 0, "weight")))
    expected = TEXT.replace("1e-6", "1.0").replace("    betas:  [ 0.9,0.95 ]\n", "").replace("  weight: 1\n", "")
    assert text == expected.replace("last: end\n", "last: end\ntop:\n  a: [1]\n")


def test_deleting_takes_the_comments_of_the_key_along() -> None:
    gone = "    # before text\n    text: |\n        hello\n          there\n"
    assert edited({}, delete=(("actor", "text"),)) == TEXT.replace(gone, "")


def test_what_surgery_cannot_do_is_written_anew_with_its_comments() -> None:
    text = edited({("rewards",): "none"}, delete=(("flow", "a"), ("rewards", 0)))
    document = read_yaml(text, "t")
    assert list(document.values) == ["actor", "rewards", "flow", "last"]
    assert (document.values["rewards"], document.values["flow"]) == ("none", {"b": ["x", "z"]})
    assert [document.comments["actor", "lr"].beside, document.comments["flow",].beside] == ["rate", "f"]
    assert document.comments[()].above == ("Copyright",)


ITEMS = """\
name: "x"   # quoted
list:
  - a   # first

  # about b
  - b
  # about c
  - {c: 1,  d: 2}  # third
  - name: e
    size: 1
last: [1,   2]
"""


@pytest.mark.parametrize(
    ("index", "gone"),
    [
        (0, "  - a   # first\n"),
        (1, "  # about b\n  - b\n"),
        (2, "  # about c\n  - {c: 1,  d: 2}  # third\n"),
        (3, "  - name: e\n    size: 1\n"),
    ],
)
def test_an_item_of_a_list_goes_with_its_comments_and_no_other_line(index: int, gone: str) -> None:
    assert edited({}, text=ITEMS, delete=(("list", index),)) == ITEMS.replace(gone, "")


def test_comments_of_later_items_stay_with_them_when_the_document_is_written_again() -> None:
    text = "list:\n- - {a: 1}   # one\n  # about two\n  - {b: 1}  # two\n"
    document = read_yaml(edited({}, text=text, delete=(("list", 0, 0),)), "t")
    assert document.values == {"list": [[{"b": 1}]]}
    assert "    # about two\n    -  # two\n      b: 1\n" in document.text
    assert "one" not in document.text


LONG = """\
# A run.

name: 'first'   # quoted

shared: &sizes
  lr: 1e-6  # rate
  steps: 012

engine:   # replaced as a whole
  kind: fsdp
  offload: yes

other:
  <<: *sizes
  names: ["a", 'b']

tail:
- one
- two  # last
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_replacing_a_whole_block_leaves_the_lines_of_others(newline: str) -> None:
    """Quotes, anchors, blank lines and the spelling of numbers, which writing the document again would lose."""
    text = LONG.replace("\n", newline)
    made = edited({("engine",): {"kind": "on", "tensor": 2}}, text=text)
    expected = LONG.replace("  kind: fsdp\n  offload: yes\n\n", '  kind: "on"\n  tensor: 2\n')
    assert made == expected.replace("\n", newline)


def test_the_last_key_of_a_block_goes_and_the_document_keeps_its_look() -> None:
    text = "a: 'x'\n\nonly:\n  key: 1\n\nb: [1,   2]  # two\n"
    made = edited({}, text=text, delete=(("only", "key"),))
    assert yaml.safe_load(made) == {"a": "x", "only": {}, "b": [1, 2]}
    assert "a: 'x'\n\nonly: {}\n" in made


def test_an_alias_is_replaced_where_it_stands_and_kept_elsewhere() -> None:
    text = "a: &a {x: 1}\nb: *a  # b\nc: *a\n"
    assert edited({("b",): 2}, text=text) == "a: &a {x: 1}\nb: 2  # b\nc: *a\n"
    assert yaml.safe_load(edited({("b", "x"): 2}, text=text)) == {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 1}}


def test_an_empty_file_is_filled() -> None:
    assert yaml.safe_load(edit_yaml(read_yaml("# c\n", "t", allow_empty=True), {("a", "b"): 1})) == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("changes", "delete", "message"),
    [
        ({("last", "x"): 1}, (), "'last.x' cannot be set: 'last' is neither"),
        ({("rewards", 7): 1}, (), r"'rewards\[7\]' cannot be set"),
        ({}, (("actor", "no"),), "there is no 'actor.no' to delete"),
        ({("a",): object()}, (), "type object"),
    ],
)
def test_an_edit_that_makes_no_sense_is_refused(
    changes: dict[KeyPath, Any], delete: tuple[KeyPath, ...], message: str
) -> None:
    with pytest.raises(DocumentError, match=message):
        edited(changes, delete=delete)


words = st.text("ab: #-'\"{}[],&*\n", max_size=6)
leaves = st.none() | st.integers(0, 9) | words
trees = st.dictionaries(
    words,
    st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6
    ),
    min_size=1,
    max_size=4,
)


@given(st.data(), trees, trees)
def test_whatever_is_changed_reads_back_as_asked(
    data: st.DataObject, tree: dict[str, Any], other: dict[str, Any]
) -> None:
    document = read_yaml(
        data.draw(
            st.sampled_from([write_yaml(tree), yaml.safe_dump(tree), yaml.safe_dump(tree, default_flow_style=True)])
        ),
        "t",
    )
    path = data.draw(st.sampled_from([path for path in document.marks if path]))
    value = data.draw(st.sampled_from(list(other.values())))
    expected = read_yaml(document.text, "t").values
    container: Any = expected
    for part in path[:-1]:
        container = container[part]
    container[path[-1]] = value
    assert read_yaml(edit_yaml(document, {path: value}), "t").values == expected
    if isinstance(container, dict):
        del container[path[-1]]
        assert read_yaml(edit_yaml(document, {}, delete=[path]), "t", allow_empty=True).values == expected


@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the checkout")
def test_configs_of_the_corpus_keep_their_bytes_around_an_edit() -> None:
    for path in sorted(CORPUS.rglob("*.y*ml"))[::10]:
        document = read_yaml(path.read_text(encoding="utf-8"), str(path), allow_empty=True)
        scalars = [leaf for leaf, value in document.leaves() if isinstance(value, int | float)]
        for leaf in scalars[:: max(1, len(scalars) // 5)]:
            line = document.at(leaf).line - 1
            before, after = document.text.splitlines(), edit_yaml(document, {leaf: 987654}).splitlines()
            assert before[:line] + before[line + 1 :] == after[:line] + after[line + 1 :], (path, leaf)
            assert "987654" in after[line]


def test_a_key_added_to_a_file_that_ends_inside_a_text_in_lines_stands_before_it() -> None:
    """A line end more at the end would be one more in the text."""
    text = "a: 1\n# of b\nb:\n  c: |\n    one\n    two"
    edited = edit_yaml(read_yaml(text, "x.yaml"), {("d",): 4})
    assert edited == "a: 1\nd: 4\n# of b\nb:\n  c: |\n    one\n    two"
    assert read_yaml(edited, "x.yaml").values == {"a": 1, "b": {"c": "one\ntwo"}, "d": 4}
