"""Every command takes a launch script in the same way, and whatever is in one ends with a message and a clean exit code."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import ExitCode

RUN = """set -x
NNODES=${NNODES:-1}
python3 -m verl.trainer.main_ppo data.train_files=/nowhere/train.parquet data.train_batch_size=64 \\
    actor_rollout_ref.model.path=/nowhere/model trainer.nnodes=$NNODES trainer.n_gpus_per_node=8 trainer.total_epochs=1 "$@"
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "run.sh"
    path.write_text(RUN)
    return str(path)


def test_convert_takes_a_script_and_what_follows_it(rlctl: Any, script: str) -> None:
    shown = rlctl("convert", script, "trainer.nnodes=4", "--to", "rlctl", "--json")
    found = json.loads(shown.out)
    assert found["dialect"].startswith("verl@")
    rows = {entry["key"]: (entry["value"], entry["file"], entry["line"]) for entry in found["accounting"]}
    assert rows["data.train_batch_size"] == (64, script, 3)
    assert rows["trainer.nnodes"] == (4, "command line", 1)
    assert "line 3 starts verl.trainer.main_ppo" in json.dumps(found["findings"])


@pytest.mark.parametrize("command", ["check", "plan", "try", "launch"])
def test_the_other_commands_take_it_too(command: str, rlctl: Any, script: str) -> None:
    shown = rlctl(command, script, "--env", "NNODES=3", *(["-v"] if command == "check" else []))
    assert "bug in rlctl" not in shown.err
    if command == "plan":
        assert "3 nodes x 8 GPUs" in shown.out
    else:
        assert "/nowhere/model" in shown.err
        assert ("starts verl.trainer.main_ppo" in shown.err) == (command == "check")


def test_several_scripts_are_stages(rlctl: Any, script: str, tmp_path: Path) -> None:
    sft = tmp_path / "sft.sh"
    sft.write_text(
        "torchrun --nnodes=1 --nproc_per_node=8 -m verl.trainer.sft_trainer data.train_files=/x model.path=/m\n"
    )
    shown = rlctl("convert", str(sft), script, "--to", "rlctl", "--env", "NNODES=2")
    assert "stages:" in shown.out
    assert "name: sft" in shown.out
    assert "name: run" in shown.out


def test_standard_input_may_be_a_script(rlctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(RUN.encode())))
    shown = rlctl("convert", "-", "trainer.nnodes=5", "--to", "rlctl")
    assert "nodes: 5" in shown.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--env", "NNODES"], "not key=value"),
        (["--env", "A=1", "--env", "A=2"], "given twice"),
        (["8"], "takes no arguments"),
        (["data.seed=1,2"], "sweep"),
        (["--from", "nothing"], "unknown format"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_told(arguments: list[str], said: str, rlctl: Any, tmp_path: Path) -> None:
    plain = tmp_path / "plain.sh"
    plain.write_text(RUN.replace(' "$@"', "") if arguments == ["8"] else RUN)
    shown = rlctl("convert", str(plain), *arguments, "--to", "rlctl")
    assert shown.code in (ExitCode.FAILED, ExitCode.USAGE)
    assert said in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("option", [["--trace"], ["--env", "A=1"]])
def test_what_only_a_script_takes_is_refused_for_a_yaml(option: list[str], rlctl: Any, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("trainer: {nnodes: 2}\n")
    shown = rlctl("convert", str(file), *option, "--to", "rlctl")
    assert shown.code == ExitCode.USAGE
    assert "launch script" in shown.err


HOSTILE = {
    "empty": b"",
    "only comments": b"# nothing\n",
    "binary": b"\x00\x01\xff",
    "latin1": "A='K\xe4se'\n".encode("latin-1"),
    "a quote": b"A='\n",
    "many quotes": b"'" * 9999,
    "deep substitution": b"A=" + b"$(echo " * 3000 + b")" * 3000 + b"\n",
    "deep braces": b"A=" + b"${A:-" * 3000 + b"}" * 3000 + b"\n",
    "deep blocks": b"{ " * 3000 + b"; }" * 3000 + b"\n",
    "deep arithmetic": b"A=$((" + b"(" * 3000 + b"1" + b")" * 3000 + b"))\n",
    "deep ifs": b"if true; then\n" * 2000 + b":\n" + b"fi\n" * 2000,
    "growing": b"A=xxxxxxxxxxxxxxxx\n" + b"A=$A$A$A$A\n" * 50,
    "growing nothing": b'A=""\n' + b'A="$A$A$A$A"\n' * 50,
    "growing symbols": b"A=${X:-a}\n" + b"A=$A$A$A$A\n" * 50,
    "growing defaults": b"".join(b"A=${X%d:-$A$A}\n" % n for n in range(60)),
    "growing array": b"A=(1 2 3)\n" + b"A+=(${A[@]} ${A[@]})\n" * 50,
    "endless": b"while true; do :; done\n",
    "fork bomb": b":(){ :|:& };:\n",
    "big power": b"A=$((9**9**9))\n",
    "division": b"A=$((1/0))\npython3 -m verl.trainer.main_ppo a=$A\n",
    "itself": b"source $0\n",
    "another device": b"source /dev/zero\n",
    "slow pattern": b"A=" + b"a" * 5000 + b"\nB=${A//*a*a*a*a*a*a*a*a*b/x}\n",
    "slow case": b"A=" + b"a" * 5000 + b"\ncase $A in *a*a*a*a*a*a*a*a*b) B=1;; esac\n",
    "slow condition": b"A="
    + b"a" * 5000
    + b"\n[[ $A == *a*a*a*a*a*a*a*a*b ]]; [[ $A =~ (a+)+b ]]; [[ $A =~ a*a*a*a*a*a*b ]]\n",
    "yaml in a script": b"a: 1\nb: 2\n",
    "no bash": b"function (x) { return 1 }\n",
    "config is a device": b"trinity run --config /dev/zero\n",
    "config is a folder": b"trinity run --config /\n",
    "tree": b"python3 -m verl.trainer.main_ppo --config-path=/ --config-name=../../../etc/passwd a=1\n",
    "no value": b"python3 -m verl.trainer.main_ppo =1\n",
    "long word": b"python3 -m verl.trainer.main_ppo a=" + b"x" * 100_000 + b"\n",
    "many words": b"python3 -m verl.trainer.main_ppo" + b" a.b=1" * 6000 + b"\n",
}


@pytest.mark.parametrize("case", HOSTILE, ids=str)
def test_whatever_is_in_a_script_ends_with_a_message(case: str, rlctl: Any, tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_bytes(HOSTILE[case])
    shown = rlctl("convert", str(file), "--to", "rlctl")
    assert "bug in rlctl" not in shown.err
    assert shown.code in (ExitCode.FAILED, ExitCode.USAGE, ExitCode.FINDINGS)
    assert shown.err.strip()
