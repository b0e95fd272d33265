"""Overrides mean here what they mean to Hydra, and what is no override is refused with its place."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from rlctl.common.errors import DocumentError, Location
from rlctl.documents import Override, apply_overrides, read_overrides, read_yaml

BASE = """\
actor: {lr: 1e-6, betas: [0.9, 0.95], nested: {x: 1, y: 2}}
data: {files: [a, b], name: null}
other: text
"""


def one(text: str) -> Override:
    return read_overrides([text], "command line")[0]


@pytest.mark.parametrize(
    ("text", "kind", "path", "value"),
    [
        ("actor.lr=1e-6", "set", ("actor", "lr"), 1e-6),
        ("+a.b=null", "add", ("a", "b"), None),
        ("++a=true", "force", ("a",), True),
        ("~a.b", "delete", ("a", "b"), None),
        ("~a.b=1", "delete", ("a", "b"), 1),
        ("a='1e-6'", "set", ("a",), "1e-6"),
        ("a=on", "set", ("a",), "on"),
        ("a=", "set", ("a",), ""),
        ("a=[x,1,{b: 2.0}]", "set", ("a",), ["x", 1, {"b": 2.0}]),
        ("a={b:1,c:[d,'e f']}", "set", ("a",), {"b": 1, "c": ["d", "e f"]}),
        ("a=\"['x', 'y']\"", "set", ("a",), "['x', 'y']"),
        ("a=x\\,y", "set", ("a",), "x,y"),
        ("a=${b.c}", "set", ("a",), "${b.c}"),
        ("a=pre-${oc.env:X,y}-post", "set", ("a",), "pre-${oc.env:X,y}-post"),
        ("a=Qwen/Qwen2.5-1.5B", "set", ("a",), "Qwen/Qwen2.5-1.5B"),
        ("a.0.b=1", "set", ("a", "0", "b"), 1),
        ("a='uv -v run x'", "set", ("a",), "uv -v run x"),
    ],
)
def test_forms(text: str, kind: str, path: tuple[str, ...], value: Any) -> None:
    override = one(text)
    assert (override.kind, override.path, override.value, override.text) == (kind, path, value, text)
    assert type(override.value) is type(value)
    assert override.at == Location("command line", 1)
    assert not override.is_group


def test_groups_keep_their_package() -> None:
    override = one("db/engine@actor.db=mysql")
    assert (override.key, override.package, override.value, override.is_group) == (
        "db/engine",
        "actor.db",
        "mysql",
        True,
    )
    assert not one("model_engine=megatron").is_group


def test_places_are_kept() -> None:
    at = Location("run.sh", 12, 5)
    assert [override.at for override in read_overrides(["a=1", ("b=2", at)], "x")] == [Location("x", 1), at]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("a", "cannot be read: missing EQUAL at the end"),
        ("=1", "cannot be read"),
        ("a b=1", "cannot be read at character 2"),
        ("a=[1,2", "cannot be read"),
        ("a='x", "cannot be read"),
        ("a={b:1", "cannot be read"),
        ("a={true:1}", "the key True"),
        ("a=1,2", "is a sweep"),
        ("a=range(1,5)", "is a sweep"),
        ("a=choice(1,2)", "is a sweep"),
        ("a=int(x)", "cannot be read"),
        ("a=system(ls)", "cannot be read"),
        ("a=" + "[" * 500, "too long or nested too deep"),
        ("a=" + "x" * 30_000, "too long"),
        ("a=1\nb=2", "cannot be read"),
    ],
)
def test_what_is_no_override_is_refused(text: str, message: str) -> None:
    began = time.process_time()
    with pytest.raises(DocumentError, match=message) as caught:
        read_overrides(["ok=1", text], "command line")
    assert caught.value.at == Location("command line", 2)
    assert caught.value.hint
    assert len(str(caught.value)) < 600
    assert time.process_time() - began < 30


APPLIED = [
    ["actor.lr=2e-6", "other=1"],
    ["actor.nested={x:5}"],
    ["data.files=[c]"],
    ["actor.nested=null"],
    ["+actor.new.deep=1"],
    ["++actor.lr=x", "++more.and.more=[1]"],
    ["+actor.nested={z:3}"],
    ["~actor.nested"],
    ["~actor.nested.x=1"],
    ["data.name=${other}"],
    ["actor.nested.x=1", "~actor.nested.y", "+actor.nested.y=null"],
]


@pytest.mark.parametrize("texts", APPLIED)
def test_applied_as_hydra_applies_them(texts: list[str], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(BASE)
    with initialize_config_dir(str(tmp_path), version_base=None):
        expected = OmegaConf.to_container(compose("config", overrides=texts))
    document = read_yaml(BASE, "f.yaml")
    assert apply_overrides(document, read_overrides(texts, "cli")).values == expected
    assert document.values == read_yaml(BASE, "f.yaml").values


def test_marks_lead_to_the_override() -> None:
    changed = apply_overrides(
        read_yaml(BASE, "f.yaml"),
        read_overrides(["actor.nested.x=5", "data.name={a:[1]}", "other.y=1", "~actor.betas"], "cli"),
    )
    assert changed.at(("actor", "nested", "x")) == Location("cli", 1)
    assert changed.at(("actor", "nested", "y")).file == "f.yaml"
    assert changed.at(("data", "name", "a", 0)) == Location("cli", 2)
    assert changed.at(("data", "files")).file == "f.yaml"
    assert changed.values["other"] == {"y": 1}
    assert ("actor", "betas") not in changed.marks


def test_items_of_lists() -> None:
    changed = apply_overrides(
        read_yaml("a: [{x: 1}, 2]\nb: {0: u}\n", "t"), read_overrides(["a.0.x=5", "a.1=7", "b.0=v"], "cli")
    )
    assert changed.values == {"a": [{"x": 5}, 7], "b": {0: "v"}}
    with pytest.raises(DocumentError, match="names item '2' of a list of 2"):
        apply_overrides(changed, read_overrides(["a.2=1"], "cli"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a/b@c=d", "chooses from a config group"),
        ("~other=1", "deletes a value that"),
        ("~data.files.0", "deletes an item"),
    ],
)
def test_what_cannot_be_applied_is_refused(text: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        apply_overrides(read_yaml(BASE, "f.yaml"), read_overrides([text], "cli"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a=[1,2", "character 7: the value ends too early"),
        ("a=b=c", "character 4: '=' is not expected here"),
        ("a=x,,y", "',' is not expected here"),
        ("a='x", "the quote is not closed"),
    ],
)
def test_a_syntax_error_is_told_without_the_words_of_the_grammar(text: str, reason: str) -> None:
    with pytest.raises(DocumentError, match=re.escape(reason)):
        read_overrides([text], "command line")
