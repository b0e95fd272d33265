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


NINES = "9" * 5000
"""More digits than Python turns into a number."""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["check", "verl.yaml", f"data.{NINES}=1"], "has no key"),
        (["check", "verl.yaml", f"data.train_files.{NINES}=1"], "of a list of 1"),
        (["check", "run.yaml", "--set", f"data.train.{NINES}.path=x"], "of a list of 1"),
        (["set", "run.yaml", f"data.train.{NINES}.path=x"], "of a list of 1"),
        (["plan", "run.yaml", "--cluster", f"{NINES}x1:cpu"], "does not describe any machines"),
        (["plan", "run.yaml", "--cluster", f"1x{NINES}:H100"], "does not describe any machines"),
        (["explain", f"data.train.{NINES}"], "data.train"),
        (["explain", f"data.train[{NINES}]"], "data.train"),
        (["launch", "run.yaml", "--trace-steps", NINES], "expected step numbers"),
        (["convert", "run.yaml", "--to", "verl", "--assume", f"dataset_rows={NINES}"], "at least 1"),
        (["check", "run.sh", "--env", f"{NINES}=1"], "without gaps"),
    ],
)
def test_a_number_longer_than_python_reads_is_an_ordinary_mistake(
    rlctl: Any, words: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.yaml").write_text("rlctl: 1\nmodel: {path: m}\ndata: {train: [{path: a.jsonl}]}\n")
    (tmp_path / "verl.yaml").write_text("data: {train_files: [a.parquet]}\nactor_rollout_ref: {model: {path: m}}\n")
    (tmp_path / "run.sh").write_text("python3 -m verl.trainer.main_ppo data.train_batch_size=8\n")
    monkeypatch.chdir(tmp_path)
    result = rlctl(*words)
    shown = result.out + result.err
    assert "bug in rlctl" not in shown
    assert expected in shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cluster: {node_num: 1}\nbuffer: {name: math}\nsynchronizer: {sync_timeout: 1e400}\n", "at most 1e+09"),
        ("actor_train: {infer_batch_size: 8}\nrewards: {a: {worker_cls: '${oc.create:{a:1}}'}}\n", "must be a string"),
        (
            "algorithm: {algorithm_type: grpo}\n"
            "buffer: {explorer_input: {taskset: {name: a, default_reward_fn_type: '${oc.create:{a:1}}'}}}\n",
            "must be a string",
        ),
    ],
    ids=["a wait without end", "a class that is a mapping", "a reward that is a mapping"],
)
def test_a_value_of_another_kind_is_refused_before_it_is_written(
    rlctl: Any, text: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(text)
    result = rlctl("convert", str(tmp_path / "a.yaml"), "--to", "trinity")
    assert "bug in rlctl" not in result.err
    assert expected in result.err
