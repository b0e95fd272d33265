"""A key path as text is unambiguous: every path has one text, and the text gives the path back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlctl.documents import KeyPath, dotted, parse_dotted


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("a", "b", 0, "c.d"), r"a.b[0].c\.d"),
        ((0, "a"), "[0].a"),
        (("cuda-graph-trace", "a b"), "cuda-graph-trace.a b"),
        (("a[0]",), r"a\[0\]"),
        (("", ""), '""."".'[:-1]),
    ],
)
def test_examples(path: KeyPath, text: str) -> None:
    assert dotted(path) == text
    assert parse_dotted(text) == path


@given(st.lists(st.text(max_size=5) | st.text('.[]\\"01') | st.integers(1 - 10**18, 10**18 - 1)).map(tuple))
def test_there_and_back(path: KeyPath) -> None:
    assert parse_dotted(dotted(path)) == path


@pytest.mark.parametrize("text", [".", "a.", ".a", "a..b", "a[b]", "a[", "a]b", "a[0]b", "a\\", '"'])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a key path"):
        parse_dotted(text)
