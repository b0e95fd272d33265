"""Interpolations resolve to what OmegaConf resolves them to; what cannot be resolved keeps its expression, with the reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlctl.common.errors import DocumentError
from rlctl.documents import Resolved, read_yaml, resolve

ENVIRONMENT = {
    "HOME_DIR": "/home/me",
    "NUMBER": "12",
    "LIST": "[1, 2]",
    "SECRET_TOKEN": "hunter2",
    "KEY": "name",
    "REF": "${a.b}",
}
BASE = """\
a: {b: 1, c: [x, {d: 2.5}], e: true, n: null, s: text, "k-k": 7, f: {g: "${.h}", h: deep, up: "${..b}"}}
name: run
ref: ${a}
list: ["${name}", "${a.b}"]
must: ???
keys: {name: found}
odd: {"0": zero, "a.b": dotted}
"""

EXPRESSIONS = [
    "${a.b}", "${a.c}", "${a.c.1.d}", "${a.c[1].d}", "${a[c][0]}", "${a.e}", "${a.n}", "x${a.b}y", "${a.b}${a.e}${a.n}", "${ref.s}", "${a.f.g}",
    "${a.f.up}", "${list}", "${list.0}", "${a}", "${.name}", "${odd.0}", "${a.k-k}", "${ a.b }", "${keys.${name2}}", "${a.${oc.env:NOPE,b}}",
    "${oc.env:HOME_DIR}", "${oc.env:HOME_DIR}/x", "${oc.env:NUMBER}", "${oc.env:NOPE,5}", "${oc.env:NOPE,1e-6}", "${oc.env:NOPE,null}",
    "${oc.env:NOPE,true}", "${oc.env:NOPE,Qwen/Qwen2.5-1.5B}", "${oc.env:NOPE,'a, b'}", "${oc.env:NOPE,${name}}", "${oc.env:NOPE,nan}",
    "${oc.env:NOPE, spaced out}", "${oc.env:NOPE,}", "${oc.env:NOPE,/a/b-c.d}", "${oc.env:REF}", "${oc.env:NOPE,a:b}", "${oc.env:NOPE,nullable}",
    "${oc.decode:${oc.env:NUMBER}}", "${oc.decode:${oc.env:LIST}}", "${oc.decode:${oc.env:REF}}", "${oc.decode:null}",
    "${oc.select:a.b,5}", "${oc.select:a.zz,5}", "${oc.select:must,dflt}", "${oc.select:zz}", "${oc.select:zz.y,[1,2]}", "${oc.select:zz,{u: 1}}",
    "${oc.select:zz,${a.b}}", "${oc.select:zz,null}", "${oc.select:zz,False}", "${oc.select:zz,[]}", "x${oc.select:zz,{}}", "${oc.select:a.n,3}", "${oc.dict.keys:a.f}", "${oc.dict.values:keys}", "${oc.create:{q: 1}}",
    r"\${a.b}", r"\\${a.b}", r"a\b${a.b}", "$a", "$ {a}", "{a}", "50%$", "${oc.env:HOME_DIR}-${a.b}-${oc.select:zz,q}",
]  # fmt: skip


def resolved(expression: str, **more: Any) -> Resolved:
    document = read_yaml(BASE + "name2: name\nout: {in: placeholder, name: inner}\n", "f.yaml")
    document.values["out"]["in"] = expression
    return resolve(document, environment=ENVIRONMENT, **more)


@pytest.mark.filterwarnings("ignore:In the sequence:UserWarning")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_omegaconf(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    config = OmegaConf.create(read_yaml(BASE + "name2: name\nout: {in: x, name: inner}\n", "f.yaml").values)
    config.out["in"] = expression
    expected = OmegaConf.to_container(config, resolve=True)
    result = resolved(expression)
    assert result.unresolved == {}
    assert repr(result.values["out"]["in"]) == repr(expected["out"]["in"])  # type: ignore[call-overload, index]
    assert repr(result.values) == repr(expected)
    assert result.expressions.get(("out", "in")) == (expression if "${" in expression else None)
    assert result.missing == [("must",)]


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("${oc.env:NOPE}", "the environment variable 'NOPE' is not set"),
        ("${a.zz}", "there is no key 'a.zz'"),
        ("${a.b.c}", "there is no key 'a.b.c'"),
        ("${a.c.9}", "there is no key 'a.c.9'"),
        ("${.....x}", "there is no key '.....x'"),
        ("${must}", "the key 'must' must be set first"),
        ("x-${out.in}", "refers to itself: out.in -> out.in"),
        ("${out}", "refers to itself"),
        ("${hydra:runtime.cwd}", "'hydra' belongs to Hydra's own settings"),
        ("${eval:1+1}", "'eval' is not a resolver that rlctl knows"),
        ("${oc.env:1}", "an environment variable has a name, not a int"),
        ("${oc.env:A,b,c}", "'oc.env' cannot take these arguments"),
        ("${${oc.env:SECRET_TOKEN}}", "there is no key '${oc.env:SECRET_TOKEN}'"),
        ("${oc.dict.keys:name}", "takes a mapping"),
    ],
)
def test_what_has_no_value_keeps_its_expression_and_says_why(expression: str, reason: str) -> None:
    result = resolved(expression)
    assert result.values["out"]["in"] == expression
    assert reason in result.unresolved["out", "in"]
    assert "hunter2" not in str(result.unresolved)
    config = OmegaConf.create(read_yaml(BASE, "f.yaml").values)
    config.out = {"in": expression}
    with pytest.raises((OmegaConfBaseException, RecursionError)):
        OmegaConf.to_container(config.out, resolve=True, throw_on_missing=True)


@pytest.mark.parametrize(
    "expression", ["${a", "${a.b", "x${", "${a:b", "${" * 100 + "}" * 100, "${oc.env:${}}", "${a b}"]
)
def test_a_malformed_expression_is_refused_with_its_place(expression: str) -> None:
    with pytest.raises(DocumentError, match=r"the interpolation .* of 'out.in' cannot be read") as caught:
        resolved(expression)
    assert caught.value.at is not None
    assert caught.value.at.line == BASE.count("\n") + 2


def test_a_number_of_thousands_of_digits_is_refused_with_its_place() -> None:
    with pytest.raises(DocumentError, match=r"f\.yaml:1.*too many digits"):
        resolve(read_yaml("a: ${oc.select:b," + "1" * 5001 + "}\n", "f.yaml"))


def test_now_is_one_moment() -> None:
    result = resolve(read_yaml("a: ${now:%Y%m%d_%H%M%S}\nb: x-${now:%Y%m%d_%H%M%S}\n", "t"))
    assert result.values["b"] == "x-" + result.values["a"]
    assert len(result.values["a"]) == 15


def test_the_defaults_below_answer_and_the_document_wins() -> None:
    base = {"x": {"y": 1, "z": "${x.y}", "secret": "${oc.env:NOPE}"}, "q": [1]}
    result = resolve(read_yaml("x: {y: 2}\na: ${x.z}\nb: ${q}\nc: ${x.nope}\n", "t"), base=base, environment={})
    assert result.values == {"x": {"y": 2}, "a": 2, "b": [1], "c": "${x.nope}"}
    assert list(result.unresolved) == [("c",)]


def test_a_value_taken_twice_is_two_values() -> None:
    values = resolve(read_yaml("a: {x: [1]}\nb: ${a}\nc: ${a}\n", "t")).values
    values["b"]["x"].append(2)
    assert values["c"] == values["a"] == {"x": [1]}


def test_expansion_has_bounds() -> None:
    text = "a0: [x, x]\n" + "".join(f"a{n}: ['${{a{n - 1}}}', '${{a{n - 1}}}']\n" for n in range(1, 30))
    with pytest.raises(DocumentError, match="expand to more than 100000 values"):
        resolve(read_yaml(text, "t"))
    text = "a0: xxxxxxxx\n" + "".join(f"a{n}: '${{a{n - 1}}}${{a{n - 1}}}'\n" for n in range(1, 39))
    assert any("resolves to" in reason for reason in resolve(read_yaml(text, "t")).unresolved.values())
    text = "a0: x\n" + "".join(f"a{n}: '${{oc.select:a{n - 1}}}'\n" for n in range(1, 2000))
    chain = "a: ${b0}\n" + "".join(f"b{n}: '${{oc.select:b{n + 1}}}'\n" for n in range(2000))
    result = resolve(read_yaml(text, "t"))
    assert (result.unresolved, result.values["a1999"]) == ({}, "x")
    with pytest.raises(DocumentError, match="more than 10000 evaluations"):
        resolve(read_yaml(chain, "t"))
    chain = "a: ${b0}\n" + "".join(f"b{n}: ${{b{n + 1}}}\n" for n in range(50)) + "b50: x\n"
    result = resolve(read_yaml(chain, "t"))
    assert "needs more than" in result.unresolved["a",]
    assert result.values["b20"] == "x"


@given(st.text("${}a.b:,[]'\\ oc.env", max_size=14))
def test_any_text_resolves_as_omegaconf_or_is_refused(expression: str) -> None:
    values = {"a": {"b": 1}, "b": "x", "e": expression}
    document = read_yaml("a: {b: 1}\nb: x\ne: x\n", "t")
    document.values["e"] = expression
    try:
        result = resolve(document, environment={})
    except DocumentError:
        with pytest.raises(OmegaConfBaseException):
            OmegaConf.to_container(OmegaConf.create(values), resolve=True)
        return
    if not result.unresolved:
        assert repr(result.values) == repr(OmegaConf.to_container(OmegaConf.create(values), resolve=True))


def test_plain_forms_need_no_import_of_omegaconf() -> None:
    code = (
        "import sys; from rlctl.documents import read_yaml, resolve\n"
        "r = resolve(read_yaml('a: {b: 1}\\nc: x-${a.b}\\nd: ${oc.env:NOPE,Qwen/Q-1.5B}\\n', 't'))\n"
        "print(r.values['c'], r.values['d'], 'omegaconf' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip() == "x-1 Qwen/Q-1.5B False"
