"""Whatever a file holds, a command that reads it ends with a message and a clean exit code, never with a traceback."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

COMMANDS: dict[str, list[str]] = {
    "convert": ["convert", "{file}", "--to", "rlctl"],
    "check": ["check", "{file}"],
    "plan": ["plan", "{file}"],
    "try": ["try", "{file}"],
    "launch": ["launch", "{file}"],
}
INPUTS: dict[str, bytes] = {
    "empty": b"",
    "blank": b"\n  \n# nothing\n",
    "scalar": b"just text\n",
    "number": b"42\n",
    "list": b"- a\n- b\n",
    "null": b"null\n",
    "binary": b"\x00\x01\x02\xff\xfe",
    "latin1": "rlctl: 1\nrun: {name: Käse}\n".encode("latin-1"),
    "tab": b"rlctl: 1\nrun:\n\tname: x\n",
    "unclosed": b"rlctl: 1\nrun: {name: x\n",
    "bad indentation": b"rlctl: 1\nrun:\n  name: x\n seed: 1\n",
    "duplicate key": b"rlctl: 1\nrun: {name: a}\nrun: {name: b}\n",
    "unknown anchor": b"rlctl: 1\nrun: *nope\n",
    "billion laughs": b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(9)),
    "self-reference": b"rlctl: 1\nrun: &r\n  name: *r\n",
    "python tag": b"rlctl: 1\nrun: !!python/object/apply:os.system ['echo owned > owned.txt']\n",
    "deep": b"rlctl: 1\nrun: " + b"[" * 5000 + b"]" * 5000 + b"\n",
    "deep mapping": b"rlctl: 1\nrun: " + b"{a: " * 3000 + b"1" + b"}" * 3000 + b"\n",
    "interpolation of nothing": b"rlctl: 1\nrun: {name: '${nope.nope}'}\n",
    "interpolation of itself": b"rlctl: 1\nrun: {name: '${run.name}'}\n",
    "interpolation unclosed": b"rlctl: 1\nrun: {name: '${run.'}\n",
    "missing variable": b"rlctl: 1\nrun: {name: '${oc.env:NO_SUCH_VARIABLE_HERE}'}\n",
    "missing value": b"rlctl: 1\nrun: {name: ???}\n",
    "unknown keys": b"rlctl: 1\nrun: {nmae: x}\nbatch: {prompts: 3}\n",
    "wrong types": b"rlctl: 1\nrun: {name: [1], seed: x}\nbatch: {prompts_per_step: 1.5}\n",
    "out of range": b"rlctl: 1\nbatch: {prompts_per_step: -1}\n",
    "huge number": b"rlctl: 1\nbatch: {prompts_per_step: " + b"9" * 5000 + b"}\n",
    "numbers for keys": b"1: 2\n3: {4: 5}\n",
    "null key": b"~: 1\n? [a, b]\n: 2\n",
    "other version": b"rlctl: 99\n",
    "two documents": b"rlctl: 1\n---\nrlctl: 1\n",
    "lone surrogate": b'rlctl: 1\nrun: {name: "\\ud800"}\nmodel: {path: m}\n',
    "control characters": b"rlctl: 1\nrun: {name: 'a\x07b'}\n",
    "bad stages": b"rlctl: 1\nstages: [{name: a, nope: 1}]\n",
    "not divisible": b"rlctl: 1\nmodel: {path: m}\nplacement: {devices_per_node: 3}\nrollout: {parallel: {tensor_parallel_size: 2}}\n",
}
CLEAN = {
    "lone surrogate",
    "duplicate key",
    "two documents",
    "control characters",
    "not divisible",
    "bad stages",
    "huge number",
}
"""What a reader may take: these need only end cleanly, in whatever way."""


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_hostile_file_ends_in_a_clean_error(
    rlctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_SUCH_VARIABLE_HERE", raising=False)
    path = tmp_path / "bad.yaml"
    path.write_bytes(INPUTS[kind])
    shown = rlctl(*(part.format(file=path) for part in COMMANDS[command]))
    assert "Traceback" not in shown.err
    assert "bug in rlctl" not in shown.err, shown.err
    if kind not in CLEAN:
        assert shown.code in (1, 2)
        assert shown.out == ""
    if shown.code in (1, 2):
        assert shown.err.strip()
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.yaml"]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_file_ends_in_a_clean_error(rlctl: Any, tmp_path: Path, command: str) -> None:
    for name in (tmp_path, tmp_path / "missing.yaml", tmp_path / ("x" * 300), Path("/dev/zero")):
        shown = rlctl(*(part.format(file=name) for part in COMMANDS[command]))
        assert shown.code in (1, 2)
        assert "bug in rlctl" not in shown.err
        assert str(name)[:50] in shown.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_ends_in_a_clean_error(rlctl: Any, tmp_path: Path) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text("rlctl: 1\n")
    path.chmod(0)
    assert rlctl("check", str(path)).code == 1


@pytest.mark.parametrize(
    "override", ["a=1,2", "=1", "a..b=1", "~", "+", "a={", "a=" + "[" * 100, "batch.nope=1", "batch=3"]
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_hostile_override_ends_in_a_clean_error(rlctl: Any, config_file: Path, command: str, override: str) -> None:
    shown = rlctl(*(part.format(file=config_file) for part in COMMANDS[command]), override)
    assert "bug in rlctl" not in shown.err, shown.err
    assert shown.code in (1, 2, 3) if command == "convert" else shown.code in (1, 2)


@pytest.mark.parametrize("assignment", ["", "=", "a", "a=1", "batch.nope=1", "batch.prompts_per_step=x", "batch={"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_hostile_assignment_ends_in_a_clean_error(
    rlctl: Any, config_file: Path, command: str, assignment: str
) -> None:
    shown = rlctl(*(part.format(file=config_file) for part in COMMANDS[command]), "--set", assignment)
    assert "bug in rlctl" not in shown.err, shown.err
    assert shown.code in (1, 2)
    assert shown.out == ""


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "{", '{"version": 1}', '{"version": 1, "stages": [{}]}', "[" * 100_000]
)
def test_a_damaged_plan_is_refused(rlctl: Any, config_file: Path, content: str) -> None:
    plan = config_file.with_name("plan.json")
    plan.write_text(content)
    shown = rlctl("launch", str(config_file), "--plan", str(plan), "--set", "placement.device=cpu")
    assert "bug in rlctl" not in shown.err, shown.err
    assert shown.code == 1
