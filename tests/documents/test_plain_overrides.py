"""Overrides of the usual form are read without Hydra's parser, and as it reads them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rlctl.common.errors import DocumentError, Location
from rlctl.documents import overrides

AT = Location("command line", 1)
VALUES = (
    *(
        "1",
        "-1",
        "+1",
        "0",
        "-0",
        "007",
        "1_000",
        "1.0",
        "1.",
        ".5",
        "1e-6",
        "1E5",
        "1.5e3",
        "-1e-3",
        "01.5",
        "1e",
        "0x10",
    ),
    *("true", "False", "TRUE", "null", "Null", "None", "nan", "NaN", "inf", "-inf", "yes", "off"),
    *(
        "vllm",
        "Qwen/Qwen2.5-7B",
        "/data/a.parquet",
        "./a",
        "../a/b.c",
        "a-b",
        "a_b",
        "_a",
        "a.1e5",
        ".",
        "..",
        "a..b",
        "-a",
        "a:b",
    ),
    *(
        "'a b'",
        '"a"',
        "''",
        '""',
        "'1'",
        "'true'",
        "'a,b'",
        "'a\\'b'",
        '"a$b"',
        "${a.b}",
        "a$b",
        "a b",
        "~a",
        "a=b",
        "@a",
    ),
    *(
        "[a,b]",
        "[1,2.5,null]",
        '["console","wandb"]',
        "['console']",
        "[]",
        "[a]",
        "[[a]]",
        "[a,]",
        "[,a]",
        "['a,b',c]",
        "[a, b]",
    ),
    *(
        "${oc.env:A}",
        "${oc.env:A,vllm}",
        "${oc.env:A,0.5_4.0}",
        "${oc.env:A,}",
        "${oc.env:A,b c}",
        "${oc.env:A}/data/a.parquet",
        "a/${oc.env:A,${oc.env:B}/c}/d",
        "1${oc.env:A}",
        "${oc.env:A}1",
        "${oc.env:A",
        "'${oc.env:A,${oc.env:B}/data/a.parquet}'",
        "'${oc.env:A'",
        "'$A'",
        '"${oc.env:A} b, c"',
        "['${oc.env:A}/a.parquet', '${oc.env:B}/b.parquet']",
        "['a', 'b']",
        "[ a , 1 ]",
        "['a, b']",
        "['a' 'b']",
        "['a',]",
        "[a b]",
        "uv -v run --frozen --extra vllm",
        "uv run --extra ${oc.env:A,vllm} --extra b",
        "${oc.env:A,${oc.env:B}/c}",
        "${oc.env:A,${oc.env:B}}",
        "${oc.env:A,b-${oc.env:B}}",
        "a  b",
        "a 1",
        "a -1.5 true",
        "true false",
        "null a",
        "inf a",
        "1 a",
        "a b ",
    ),
    *(
        "{a:1}",
        "{}",
        "a,b",
        "range(1,3)",
        "",
        "é",
        "1é",
        "a/é",
        "[-1,+2]",
        "[1e-6]",
        "a.b.c",
        "0.28",
        "1e-06",
        "9" * 30,
    ),
)
KEYS = ("a", "+a.b", "++a.b_c", "a.b.c", "a.0.b", "a[0]", "~a", "a/b", "a@b", "_a", "a-b", "+a", "a.", ".a", "é.b")


def outcome(text: str, *, plain: bool) -> object:
    """What is read, with the kinds of values; or that it is refused."""
    try:
        read = overrides._read_plain(text, AT) if plain else overrides._read(overrides._parser(), text, AT)
    except DocumentError:
        return "refused"
    return read and (read.kind, read.key, read.path, repr(read.value), read.package)


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_read_as_hydra_reads_it(value: str) -> None:
    for text in (f"a.b={value}", f"+a={value}"):
        assert outcome(text, plain=True) in (None, outcome(text, plain=False))


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_read_as_hydra_reads_it(key: str) -> None:
    assert outcome(f"{key}=1", plain=True) in (None, outcome(f"{key}=1", plain=False))


def test_the_usual_forms_do_not_load_hydra() -> None:
    usual = ("a.b=1", "+a=true", "++a=1e-6", "a=Qwen/Qwen2.5-7B", 'a=["console","wandb"]', "a='a b'", "a=null")
    usual += (
        "a=${oc.env:A,Qwen/Qwen3-8B}",
        "a='${oc.env:A,${oc.env:B}/a.parquet}'",
        "a=['a', '${oc.env:A}/b']",
        "a=uv run -v",
    )
    assert all(outcome(text, plain=True) is not None for text in usual)
    code = f"import sys; from rlctl.documents.overrides import read_overrides; read_overrides({usual!r}, 'x'); "
    loaded = subprocess.run(
        [sys.executable, "-c", code + "print('hydra' in sys.modules)"], capture_output=True, text=True, check=True
    )
    assert loaded.stdout == "False\n"
