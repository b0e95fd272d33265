"""A launch script as an input: which command it is, what it is told, and where each value was written."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlctl import adapters
from rlctl.adapters.engine.dialect import Dialect, TrainerProgram
from rlctl.adapters.engine.rules import Key
from rlctl.adapters.engine.table import Table
from rlctl.common.errors import DocumentError, Location, RlctlError, UsageError
from rlctl.common.report import Report
from rlctl.shell.launch import program_of
from rlctl.shell.run import read_script
from rlctl.shell.text import literal, plain, problem
from rlctl.shell.tracing import trace
from rlctl.translation import translate
from rlctl.translation.sources import Script, gather

RUN = """#!/usr/bin/env bash
set -xeuo pipefail
export VLLM_USE_V1=1

MODEL_PATH=${MODEL_PATH:-Qwen/Qwen3-8B}
NNODES=${NNODES:-2}
batch=64

DATA=(
    data.train_files="['$HOME/a.parquet', '/b.parquet']"
    data.train_batch_size=${batch}
    data.max_response_length=$((1024 * 2))
)
EXTRA=()
[ "${DEVICE:-gpu}" = gpu ] && EXTRA+=(actor_rollout_ref.rollout.gpu_memory_utilization=0.6)

python3 -m verl.trainer.main_ppo \\
    "${DATA[@]}" \\
    actor_rollout_ref.model.path="$MODEL_PATH" \\
    trainer.nnodes=$NNODES \\
    trainer.experiment_name=run_${MODEL_PATH##*/} \\
    "${EXTRA[@]}" "$@"
"""
AROUND = {"HOME": "/home/me"}


def write(folder: Path, text: str, name: str = "run.sh") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def values(report: Report) -> dict[str, Any]:
    return {entry.key: entry.value for entry in report.accounting}


def lines(report: Report) -> dict[str, int]:
    return {entry.key: entry.at.line for entry in report.accounting if entry.at is not None}


def test_a_script_is_read_with_the_line_of_each_value(tmp_path: Path) -> None:
    loaded, report = translate.read(write(tmp_path, RUN), environment=AROUND)
    assert loaded is not None
    assert values(report) == {
        "data.train_files": ["${oc.env:HOME}/a.parquet", "/b.parquet"],
        "data.train_batch_size": 64,
        "data.max_response_length": 2048,
        "actor_rollout_ref.model.path": "${oc.env:MODEL_PATH,Qwen/Qwen3-8B}",
        "trainer.nnodes": 2,
        "trainer.experiment_name": "run_Qwen3-8B",
        "actor_rollout_ref.rollout.gpu_memory_utilization": 0.6,
    }
    assert lines(report) == {
        "data.train_files": 10,
        "data.train_batch_size": 7,
        "data.max_response_length": 12,
        "actor_rollout_ref.model.path": 5,
        "trainer.nnodes": 6,
        "trainer.experiment_name": 21,
        "actor_rollout_ref.rollout.gpu_memory_utilization": 15,
    }
    assert report.dialect.startswith("verl@")
    assert "line 17 starts verl.trainer.main_ppo" in report.reason
    assert loaded.config.batch.prompts_per_step == 64
    assert loaded.config.model.path == "Qwen/Qwen3-8B"
    assert loaded.expressions["model", "path"] == "${oc.env:MODEL_PATH,Qwen/Qwen3-8B}"


def test_what_was_resolved_set_or_assumed_is_told(tmp_path: Path) -> None:
    _, report = translate.read(write(tmp_path, RUN), environment=AROUND)
    told = {finding.code: finding.message for finding in report.findings}
    assert "NNODES (trainer.nnodes)" in told["environment"]
    assert "MODEL_PATH (trainer.experiment_name)" in told["environment"]
    assert "VLLM_USE_V1" in told["exports"]


def test_variables_given_and_around_are_the_scripts(tmp_path: Path) -> None:
    file = write(tmp_path, RUN)
    _, report = translate.read(
        file, environment=AROUND | {"NNODES": "4"}, variables={"MODEL_PATH": "/m", "DEVICE": "npu"}
    )
    assert values(report)["trainer.nnodes"] == 4
    assert values(report)["actor_rollout_ref.model.path"] == "/m"
    assert "actor_rollout_ref.rollout.gpu_memory_utilization" not in values(report)


def test_overrides_after_the_script_are_passed_on_by_it(tmp_path: Path) -> None:
    file = write(tmp_path, RUN)
    _, report = translate.read(file, overrides=["trainer.nnodes=8", "+data.seed=3"], environment=AROUND)
    assert values(report)["trainer.nnodes"] == 8
    entry = next(entry for entry in report.accounting if entry.key == "trainer.nnodes")
    assert entry.at == Location("command line", 1)
    assert values(report)["data.seed"] == 3


def test_overrides_are_applied_on_top_of_a_script_that_takes_no_arguments(tmp_path: Path) -> None:
    file = write(tmp_path, "python3 -m verl.trainer.main_ppo trainer.nnodes=2 data.train_files=x\n")
    _, report = translate.read(file, overrides=["trainer.nnodes=8"])
    assert values(report)["trainer.nnodes"] == 8


def test_arguments_of_a_script_are_its_own(tmp_path: Path) -> None:
    text = (
        'if [ "$#" -lt 2 ]; then\n  echo "usage: run.sh GPUS FOLDER"\n  exit 1\nfi\nn=$1\nsave=$2\nshift 2\n'
        "torchrun --standalone --nnodes=1 --nproc_per_node=$n -m verl.trainer.sft_trainer data.train_files=x "
        'trainer.default_local_dir=$save "$@"\n'
    )
    file = write(tmp_path, text)
    loaded, report = translate.read(file, overrides=["4", "/save", "trainer.total_epochs=3"])
    assert loaded is not None
    found = values(report)
    assert found["trainer.default_local_dir"] == "/save"
    assert found["trainer.total_epochs"] == 3
    assert found["trainer.n_gpus_per_node"] == 4
    assert loaded.config.algorithm.objective.choice == "sft"
    again = translate.read(file, overrides=["trainer.total_epochs=3"], variables={"2": "/save", "1": "4"})
    assert values(again[1]) == found, "they are given by number too"
    assert again[0] is not None
    assert again[0].config == loaded.config


def test_a_script_that_ends_itself_tells_what_it_says_and_all_that_it_wants(tmp_path: Path) -> None:
    text = (
        'set -u\nif [ "$#" -lt 2 ]; then\n  echo "usage: run.sh GPUS FOLDER" >&2\n  exit 1\nfi\nn=$1\nsave=$2\nshift 2\n'
        "python3 -m verl.trainer.main_ppo data.train_files=$DATA trainer.n_gpus_per_node=$n "
        'trainer.default_local_dir=$save "$@"\n'
    )
    file = write(tmp_path, text)
    with pytest.raises(DocumentError, match=r"usage: run\.sh GPUS FOLDER") as caught:
        translate.read(file, environment={})
    assert "needs $1 (line 6), $2 (line 7), $DATA (line 9: set -u)" in caught.value.message
    assert caught.value.at is not None
    assert caught.value.at.line == 4
    assert "--env 1=VALUE --env 2=VALUE --env DATA=VALUE; a number is an argument" in caught.value.hint
    with pytest.raises(UsageError, match="without gaps"):
        translate.read(file, variables={"2": "/save"})
    with pytest.raises(UsageError, match="'4' after the script"):
        translate.read(file, variables={"1": "4"}, overrides=["4"])


def test_an_argument_that_a_script_does_not_look_at_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "python3 -m verl.trainer.main_ppo data.train_files=x\n")
    with pytest.raises(DocumentError, match="takes no arguments, but received '8'"):
        translate.read(file, variables={"1": "8"})


def test_a_word_that_the_script_does_not_look_at_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "python3 -m verl.trainer.main_ppo data.train_files=x\n")
    with pytest.raises(DocumentError, match="takes no arguments"):
        translate.read(file, overrides=["8"])


COMMANDS = {
    "python3 -m verl.trainer.main_ppo a=1": ("verl.trainer.main_ppo", ["a=1"]),
    "/opt/conda/bin/python -u -W ignore -m verl.trainer.main_ppo a=1": ("verl.trainer.main_ppo", ["a=1"]),
    "PYTHONUNBUFFERED=1 nohup python3 -m m a=1 > log 2>&1 &": ("m", ["a=1"]),
    "exec env A=1 B=2 python3 m.py a=1": ("m.py", ["a=1"]),
    "uv run --frozen --extra vllm --all-packages python3 -m m a=1": ("m", ["a=1"]),
    "uv -v run -m m a=1": ("m", ["a=1"]),
    "torchrun --nnodes=1 --nproc_per_node 8 -m m a=1": ("m", ["a=1"]),
    "torchrun --standalone t/m.py --x a=1": ("t/m.py", ["--x", "a=1"]),
    "python -m torch.distributed.run --nproc-per-node=2 -m m a=1": ("m", ["a=1"]),
    "accelerate launch --config_file c.yaml m.py a=1": ("m.py", ["a=1"]),
    "ray job submit --address=$A --working-dir . -- python3 -m m a=1": ("m", ["a=1"]),
    "/opt/bin/ray job submit --no-wait -- /opt/bin/python3 -m m a=1": ("m", ["a=1"]),
    "timeout 3h python3 -m m a=1 | tee log": ("m", ["a=1"]),
    "srun --nodes=2 python3 -m m a=1": ("m", ["a=1"]),
    "trinity run --config x.yaml": ("trinity", ["run", "--config", "x.yaml"]),
    "bash -c 'python3 -m m a=1'": ("m", ["a=1"]),
    "srun --nodes=1 -w x bash -c 'cd /; export B=1; python3 -m m a=$B'": ("m", ["a=1"]),
    "timeout 3h bash -lc 'A=1; exec python3 -m m a=$A'": ("m", ["a=1"]),
    "time python3 -m m a=1": ("m", ["a=1"]),
}


@pytest.mark.parametrize("line", COMMANDS, ids=str)
def test_the_program_is_found_behind_what_starts_it(line: str) -> None:
    reading = read_script(f"A=http://x\n{line}\n", "run.sh", environment={})
    found = [program for command in reading.commands if (program := program_of(command.words, command.at))]
    assert (found[-1].name, [plain(word) for word in found[-1].arguments]) == COMMANDS[line]
    assert found[-1].at.line == 2


@pytest.mark.parametrize(
    "line", ["python3 -c 'print(1)'", "ray start --head", "pip install x", "python3 - <<EOF\nx\nEOF"]
)
def test_other_commands_start_no_trainer(line: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="starts no trainer"):
        gather(write(tmp_path, line + "\n"))


def test_a_script_of_two_runs_is_refused_with_both_lines(tmp_path: Path) -> None:
    text = "python3 -m verl.trainer.main_ppo a=1\n\npython3 -m verl.trainer.main_ppo a=2\n"
    with pytest.raises(DocumentError, match=r"2 trainers: line 1 .*, line 3") as caught:
        gather(write(tmp_path, text))
    assert caught.value.at is not None
    assert caught.value.at.line == 3


def test_a_helper_with_settings_is_no_second_trainer(tmp_path: Path) -> None:
    text = "python3 tools/manifest.py --out run.json --set lr=1 --set path=a.b\npython3 -m mine.trainer.main data.train_files=a.parquet\n"
    assert values(translate.read(write(tmp_path, text), dialect="verl", environment={})[1]) == {
        "data.train_files": "a.parquet"
    }


def test_a_trainer_that_is_tried_again_is_one_run(tmp_path: Path) -> None:
    text = """tries=0
while (( tries < ${MAX_TRIES:-10} )); do
    tries=$((tries + 1))
    python3 -m verl.trainer.main_ppo data.seed=$tries
    code=$?
    if (( code == 0 )); then
        break
    fi
    sleep 60
done
exit $code
"""
    assert values(translate.read(write(tmp_path, text), environment={})[1]) == {"data.seed": 1}


@pytest.mark.parametrize("start", ["./gone.sh", "bash gone.sh", "exec $HOME/gone.sh", "nohup bash gone.sh"])
def test_overrides_for_a_script_that_is_not_there_are_no_config(start: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"it runs .*gone\.sh, which is not found"):
        gather(write(tmp_path, f"{start} data.train_batch_size=64\n"))


@pytest.mark.parametrize("sweep", ["--multirun", "-m"])
def test_a_multirun_is_refused_by_name(sweep: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=sweep):
        gather(write(tmp_path, f"python3 -m verl.trainer.main_ppo {sweep} data.seed=1\n"))


def test_a_sweep_is_refused_at_its_line(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="sweep") as caught:
        gather(write(tmp_path, "python3 -m verl.trainer.main_ppo \\\n  data.seed=1,2\n"))
    assert caught.value.at is not None
    assert caught.value.at.line == 2


def test_a_value_that_is_not_known_is_refused_with_its_line(tmp_path: Path) -> None:
    text = "G=$(nvidia-smi -L | wc -l)\npython3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=$G\n"
    with pytest.raises(DocumentError, match=r"trainer\.n_gpus_per_node.*nvidia-smi") as caught:
        gather(write(tmp_path, text))
    assert caught.value.at is not None
    assert caught.value.at.line == 1
    given = gather(
        write(tmp_path, text.replace("G=$", "G=${G:-$").replace("-l)", "-l)}")), Script(variables={"G": "8"})
    )
    assert [override.value for override in given.overrides] == [8]


def test_a_misspelt_key_is_told_where_it_was_written_and_its_value_where_that_was(tmp_path: Path) -> None:
    text = 'N=4\nX=(\n  trainer.nodes=$N\n)\npython3 -m verl.trainer.main_ppo data.train_files=x trainer.nnodes=$N "${X[@]}"\n'
    _, report = translate.read(write(tmp_path, text))
    found = next(each for each in report.findings if each.code == "unknown-key")
    assert found.at is not None
    assert (found.key, found.at.line) == ("trainer.nodes", 3)
    assert lines(report)["trainer.nnodes"] == 1


@pytest.mark.parametrize("folder", [".", "examples", "examples/m"])
def test_a_config_is_found_by_the_folder_that_a_script_starts_in(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "defaults:\n  - ppo_trainer\n  - _self_\ndata:\n  train_files: x\n", "examples/m/config/mine.yaml")
    text = (
        'HERE="$(pwd)"\npython3 -m verl.trainer.main_ppo --config-path="$HERE/examples/m/config" --config-name=mine '
        "custom_reward_function.path=$(pwd)/r.py\n"
    )
    file = write(tmp_path, text, "examples/m/run.sh")
    monkeypatch.chdir(tmp_path / folder)
    found = values(translate.read(file, environment={"PWD": str(tmp_path / folder)})[1])
    assert found["data.train_files"] == "x"
    assert found["custom_reward_function.path"] == "${oc.env:PWD}/r.py"


def test_a_script_that_ends_names_what_is_not_set(tmp_path: Path) -> None:
    text = 'if [ -z "$M" ]; then\n  echo "M is not set"\n  exit 1\nfi\npython3 -m verl.trainer.main_ppo model.path=$M\n'
    with pytest.raises(DocumentError, match="M is not set; it needs") as caught:
        translate.read(write(tmp_path, text), environment={})
    assert "--env M=VALUE" in caught.value.hint
    ran = 'if [ "$RANK" = 0 ]; then\n  python3 -m verl.trainer.main_ppo data.train_files=x\nfi\n'
    with pytest.raises(DocumentError, match=r"not set: \$RANK \(line 1\)") as caught:
        translate.read(write(tmp_path, ran), environment={})
    assert "--env RANK=VALUE" in caught.value.hint
    assert translate.read(write(tmp_path, ran), environment={}, variables={"RANK": "0"})[1].dialect.startswith("verl")


def test_arguments_that_a_script_wants_are_told_without_gaps(tmp_path: Path) -> None:
    text = "python3 -m verl.trainer.main_ppo data.train_files=$2 trainer.nnodes=$4\n"
    file = write(tmp_path, text)
    with pytest.raises(DocumentError) as caught:
        translate.read(file, environment={})
    assert caught.value.hint.startswith("give --env 1=VALUE --env 2=VALUE --env 3=VALUE --env 4=VALUE;")
    variables = {"1": "--data", "2": "x", "3": "--nodes", "4": "2"}
    assert values(translate.read(file, environment={}, variables=variables)[1])["trainer.nnodes"] == 2


# What is not set, and what is lost

UNSET = """set -x
python3 -m verl.trainer.main_ppo \\
    data.train_files=$DATA_DIR/train.parquet \\
    data.val_files="['$DATA_DIR/a b.parquet']" \\
    actor_rollout_ref.model.path=$BASE_MODEL \\
    trainer.experiment_name=${BASE_MODEL##*/}-grpo \\
    trainer.nnodes=2 $EXTRA
"""


def test_a_variable_that_is_not_set_is_named_and_never_an_empty_value(tmp_path: Path) -> None:
    file = write(tmp_path, UNSET)
    loaded, report = translate.read(file, environment=AROUND)
    assert loaded is not None
    assert values(report)["data.train_files"] == "${oc.env:DATA_DIR}/train.parquet"
    assert values(report)["data.val_files"] == ["${oc.env:DATA_DIR}/a b.parquet"]
    assert values(report)["actor_rollout_ref.model.path"] == "${oc.env:BASE_MODEL}"
    assert values(report)["trainer.experiment_name"] == "-grpo"
    told = {(found.code, found.at.line if found.at else 0): found.message for found in report.findings}
    assert "$DATA_DIR is not set" in told["unset", 3]
    assert "data.train_files, data.val_files" in told["unset", 3]
    assert "$BASE_MODEL is not set" in told["unset", 5]
    assert "$EXTRA is not set" in told["unset", 7]
    assert "run-name" in {code for code, _ in told}
    given = {"DATA_DIR": "/d", "BASE_MODEL": "a/b", "EXTRA": "trainer.total_epochs=3"}
    _, report = translate.read(file, environment=AROUND, variables=given)
    assert not {"unset", "run-name"} & {found.code for found in report.findings}
    assert values(report)["trainer.total_epochs"] == 3
    assert values(report)["trainer.experiment_name"] == "b-grpo"


def test_a_variable_that_is_wanted_after_the_trainer_is_none_of_its_concern(tmp_path: Path) -> None:
    text = "set -u\npython3 -m verl.trainer.main_ppo data.train_files=x\nkill $PID\n"
    assert values(translate.read(write(tmp_path, text), environment={})[1])["data.train_files"] == "x"


def test_a_number_that_is_not_set_is_refused_and_a_value_computed_from_it_too(tmp_path: Path) -> None:
    file = write(tmp_path, "python3 -m verl.trainer.main_ppo data.train_files=a trainer.nnodes=$N\n")
    loaded, report = translate.read(file, environment={})
    assert loaded is None
    assert {"unset", "unresolved"} <= {found.code for found in report.findings}
    assert translate.read(file, environment={}, variables={"N": "2"})[0] is not None
    text = (
        "N=$((A * 8))\npython3 -m verl.trainer.main_ppo data.train_files=$1 trainer.nnodes=$N data.val_files=${B%/}/x\n"
    )
    with pytest.raises(DocumentError, match=r"\$1 .*\$A .*\$B") as caught:
        translate.read(write(tmp_path, text), environment={})
    assert "--env 1=VALUE --env A=VALUE --env B=VALUE" in caught.value.hint


def test_what_a_missing_file_may_set_is_named_with_it(tmp_path: Path) -> None:
    text = "source conf/env.sh\npython3 -m verl.trainer.main_ppo data.train_files=$D trainer.nnodes=$SLURM_NNODES\n"
    file = write(tmp_path, text)
    with pytest.raises(DocumentError, match="Slurm sets") as caught:
        translate.read(file, environment={})
    assert "--env SLURM_NNODES=VALUE" in caught.value.hint
    _, report = translate.read(file, environment={}, variables={"SLURM_NNODES": "2"})
    told = next(found.message for found in report.findings if found.code == "unset")
    assert "'source conf/env.sh' may set it" in told


@pytest.mark.parametrize(
    "name",
    ["run_$(tr -dc a-z < /dev/urandom | head -c 8)", "run_$RANDOM", "run_$(uuidgen)", "run_$(git rev-parse HEAD)"],
)
def test_a_name_that_is_another_in_each_run_is_no_reason_to_refuse_it(name: str, tmp_path: Path) -> None:
    text = f'NAME="{name}"\npython3 -m verl.trainer.main_ppo data.train_files=x trainer.experiment_name=$NAME\n'
    file = write(tmp_path, text)
    _, report = translate.read(file, environment={})
    assert values(report)["trainer.experiment_name"] == "run_"
    assert "run-name" in {found.code for found in report.findings}
    _, report = translate.read(file, environment={}, overrides=["trainer.experiment_name=mine"])
    assert values(report)["trainer.experiment_name"] == "mine"
    assert "run-name" not in {found.code for found in report.findings}
    wrong = write(tmp_path, text.replace("trainer.experiment_name", "actor_rollout_ref.model.path"))
    with pytest.raises(DocumentError, match="cannot work out"):
        translate.read(wrong, environment={})


LOST = {
    "a comment": ("    # where it runs \\\n", "", "the comment in line 4"),
    "a comment after an override": ("    data.seed=1 # of it \\\n", "    data.seed=1 \\\n", "the comment in line 4"),
    "no backslash": ("    data.seed=1\n", "    data.seed=1 \\\n", "line 4 has no backslash"),
    "a blank line": ("\n", "", "the blank line 4"),
}


@pytest.mark.parametrize("case", LOST)
def test_overrides_that_are_no_part_of_the_command_are_told(case: str, tmp_path: Path) -> None:
    wrong, right, why = LOST[case]
    start = "# run\npython3 -m verl.trainer.main_ppo \\\n    data.train_files=x \\\n"
    end = "    trainer.nnodes=4 \\\n    trainer.logger='[\"console\"]'\n"
    _, report = translate.read(write(tmp_path, start + wrong + end))
    found = next(each for each in report.findings if each.code == "lost-overrides")
    assert found.at is not None
    assert found.at.line == 4
    assert why in found.message
    assert "2 settings: trainer.nnodes=4, trainer.logger=" in found.message
    assert "trainer.nnodes" not in values(report)
    _, report = translate.read(write(tmp_path, start + right + end))
    assert "lost-overrides" not in {each.code for each in report.findings}
    assert values(report)["trainer.nnodes"] == 4


def test_a_trainer_is_found_behind_a_module_that_starts_it(tmp_path: Path) -> None:
    file = write(tmp_path, "torchrun --nnodes=1 -m my.launch verl.trainer.sft_trainer data.train_files=x\n")
    _, report = translate.read(file, environment={})
    assert report.dialect.startswith("verl@")
    assert values(report)["data.train_files"] == "x"


def test_a_program_that_is_not_known_starts_a_module(tmp_path: Path) -> None:
    for first in ('PY="$(command -v python3)"\nexec "$PY"', "$PYTHON", "exec ${PYTHON:-python3}"):
        file = write(tmp_path, f"{first} -m verl.trainer.main_ppo data.train_files=x\n")
        assert values(translate.read(file, environment={})[1])["data.train_files"] == "x"


# What a command starts from


def test_a_config_of_verls_own_is_verls_defaults_and_that_is_said(tmp_path: Path) -> None:
    text = "python3 -m verl.trainer.main_ppo --config-path=config --config-name='ppo_megatron_trainer.yaml' data.train_files=x\n"
    loaded, report = translate.read(write(tmp_path, text))
    assert loaded is not None
    assert loaded.config.train.engine.choice == "megatron"
    assert "shipped-config" in {finding.code for finding in report.findings}


@pytest.mark.parametrize("options", ["--config-path=conf --config-name=mine", "-cp conf -cn mine.yaml"])
def test_a_config_beside_the_script_is_what_the_overrides_change(options: str, tmp_path: Path) -> None:
    base = write(
        tmp_path,
        "defaults:\n  - ppo_trainer\n  - _self_\ndata:\n  train_files: x\n  train_batch_size: 32\n",
        "conf/mine.yaml",
    )
    text = f"python3 -m verl.trainer.main_ppo {options} trainer.nnodes=2\n"
    file = write(tmp_path, text)
    _, report = translate.read(file)
    places = {entry.key: entry.at for entry in report.accounting}
    assert places["data.train_batch_size"] == Location(str(base), 6, 3)
    assert places["trainer.nnodes"] == Location(str(file), 1)
    assert "base-config" in {finding.code for finding in report.findings}


def test_a_config_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    text = "python3 -m verl.trainer.main_ppo --config-path=conf --config-name=mine a=1\n"
    with pytest.raises(DocumentError, match="conf/mine") as caught:
        gather(write(tmp_path, text))
    assert str(tmp_path) in caught.value.hint


TRINITY = "mode: both\nmodel:\n  model_path: m\nalgorithm:\n  algorithm_type: grpo\n  repeat_times: 4\ncluster:\n  node_num: 1\n"


@pytest.mark.parametrize(
    "line", ["trinity run --config my.yaml", "python -m trinity.cli.launcher run -c my.yaml --dlc"]
)
def test_trinitys_command_names_its_file(line: str, tmp_path: Path) -> None:
    base = write(tmp_path, TRINITY, "my.yaml")
    _, report = translate.read(write(tmp_path, f'cd "$(dirname "$0")"\nray start --head\n{line}\n'))
    assert report.dialect.startswith("trinity@")
    assert next(entry.at for entry in report.accounting if entry.key == "algorithm.repeat_times") == Location(
        str(base), 6, 3
    )


def test_a_file_that_the_script_writes_itself_is_read(tmp_path: Path) -> None:
    text = f"N=4\ncat > /tmp/made.yaml <<EOF\n{TRINITY.replace('4', '$N')}EOF\ntrinity run --config /tmp/made.yaml\n"
    _, report = translate.read(write(tmp_path, text))
    assert values(report)["algorithm.repeat_times"] == 4


@pytest.mark.parametrize(
    "change", ["sed -i s/4/5/ made.yaml", "cp other.yaml made.yaml", "echo 'seed: 1' >> made.yaml"]
)
def test_a_config_that_the_script_changes_is_not_read_as_it_is_now(change: str, tmp_path: Path) -> None:
    write(tmp_path, TRINITY, "made.yaml")
    file = write(tmp_path, f'cd "$(dirname "$0")"\n{change}\ntrinity run --config made.yaml\n')
    with pytest.raises(DocumentError, match=r"the script itself changes 'made\.yaml'"):
        translate.read(file)


@pytest.mark.parametrize("folder", [".", "elsewhere"])
def test_rolls_start_script_names_its_file_relative_to_itself(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "custom_envs:\n  sokoban:\n    max_steps: 3\n", "examples/config/envs.yaml")
    write(tmp_path, "defaults:\n  - ../config/envs@_here_\nexp_name: demo\nseed: 1\n", "examples/demo/run.yaml")
    (tmp_path / "elsewhere").mkdir()
    text = "CONFIG_PATH=$(basename $(dirname $0))\npython examples/start_agentic_pipeline.py --config_path $CONFIG_PATH --config_name run\n"
    file = write(tmp_path, text, "examples/demo/run.sh")
    monkeypatch.chdir(tmp_path / folder)
    given = gather(file)
    assert given.document.values == {"custom_envs": {"sokoban": {"max_steps": 3}}, "exp_name": "demo", "seed": 1}
    assert given.document.at(("custom_envs", "sokoban", "max_steps")).file.endswith("examples/config/envs.yaml")


# Secrets


def test_a_secret_in_a_script_is_in_no_report(tmp_path: Path) -> None:
    text = (
        "export WANDB_API_KEY=sk-literal-0123456789\nexport HF_TOKEN='hf-literal-0123456789'\n"
        "python3 -m verl.trainer.main_ppo data.train_files=x +trainer.note=$WANDB_API_KEY +trainer.api_key=sk-other-0123456789 "
        '+ray_kwargs.ray_init.runtime_env.env_vars.HF_TOKEN="$HF_TOKEN" trainer.experiment_name=x-$HF_TOKEN\n'
    )
    file = write(tmp_path, text)
    for target in ("rlctl", "trinity", "verl"):
        made = translate.translate(str(file), target)
        shown = json.dumps(made.report.as_data()) + (made.text or "")
        assert "literal" not in shown
        assert "sk-other" not in shown
        assert "WANDB_API_KEY" in shown


# Another package's dialect


@pytest.fixture
def other_dialect(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    table = Table((Key("model.name", "model.path", ""), Key("steps", "schedule.total_steps", None)))
    other = Dialect("other", ("1",), {"run": table}, programs={"other.main": TrainerProgram("hydra", "run")})
    point = EntryPoint("other", "nowhere:OTHER", adapters.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: other)
    monkeypatch.setattr(adapters, "_installed", lambda: (point,))
    adapters.names.cache_clear()
    adapters.dialect.cache_clear()
    yield
    adapters.names.cache_clear()
    adapters.dialect.cache_clear()


def test_a_dialect_of_another_package_names_its_programs(other_dialect: None, tmp_path: Path) -> None:
    loaded, report = translate.read(write(tmp_path, "python -m other.main model.name=m steps=7\n"))
    assert loaded is not None
    assert report.dialect == "other@1"
    assert (loaded.config.model.path, loaded.config.schedule.total_steps) == ("m", 7)


# Run in isolation


def _isolated() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            trace(str(write(Path(folder), "true\n")), [], {})
        except DocumentError:
            return False
    return True


needs_isolation = pytest.mark.skipif(not _isolated(), reason="nothing can be isolated here")


@needs_isolation
def test_running_a_script_gives_what_reading_it_gives(tmp_path: Path) -> None:
    file = write(tmp_path, RUN)
    found = [
        translate.read(file, overrides=["trainer.nnodes=8"], environment=AROUND, variables={"batch": "1"}, trace=trace)[
            1
        ]
        for trace in (False, True)
    ]
    assert values(found[0]) == values(found[1])
    assert lines(found[0]) == lines(found[1])


@needs_isolation
def test_running_a_script_decides_what_reading_cannot(tmp_path: Path) -> None:
    text = "N=$(echo 4 | sort)\npython3 -m verl.trainer.main_ppo data.train_files=x trainer.nnodes=$N\n"
    file = write(tmp_path, text)
    with pytest.raises(DocumentError, match="sort"):
        translate.read(file)
    _, report = translate.read(file, trace=True)
    assert values(report)["trainer.nnodes"] == 4


@needs_isolation
def test_a_word_that_reading_guesses_right_is_known_once_it_was_seen(tmp_path: Path) -> None:
    """What a command prints is taken for nothing where it is not known, and here it prints nothing."""
    file = write(tmp_path, 'python3 -m verl.trainer.main_ppo data.train_files=x trainer.project_name="$(grep a b)y"\n')
    _, report = translate.read(file, trace=True)
    assert values(report)["trainer.project_name"] == "y"


@needs_isolation
def test_only_given_variables_reach_a_script_that_is_run(tmp_path: Path) -> None:
    text = "python3 -m verl.trainer.main_ppo data.train_files=${DATA:-none} trainer.project_name=${NAME:?}\n"
    file = write(tmp_path, text)
    around = {"DATA": "/private", "NAME": "mine", "HOME": str(tmp_path)}
    with pytest.raises(DocumentError, match=r"NAME: parameter") as caught:
        translate.read(file, trace=True, environment=around)
    assert "--env DATA=... --env NAME=..." in caught.value.hint
    _, report = translate.read(file, trace=True, environment=around, variables={"NAME": "given"})
    assert values(report)["trainer.project_name"] == "given"
    assert values(report)["data.train_files"] == "none"
    assert any("doesn't pass DATA" in finding.message for finding in report.findings)


@needs_isolation
def test_a_script_that_starts_nothing_when_run_says_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="status 3: no data here"):
        translate.read(write(tmp_path, "echo 'no data here' >&2\nexit 3\n"), trace=True)


# verl's own examples

EXAMPLES = os.environ.get("VERL_CHECKOUT", "")
CORPUS = Path(__file__).parents[4] / "shared" / "corpus" / "verl" / "overrides"
needs_examples = pytest.mark.skipif(not EXAMPLES, reason="VERL_CHECKOUT names no checkout of verl")


def launches(commands: list[tuple[list[Any], Location]]) -> list[tuple[str, list[str]]]:
    programs = [program_of(words, at) for words, at in commands]
    return [
        (program.name, [plain(word) for word in program.arguments])
        for program in programs
        if program and program.name.startswith("verl.")
    ]


@needs_examples
@needs_isolation
@pytest.mark.timeout(900)
def test_verls_examples_read_as_they_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(EXAMPLES)
    around = {"HOME": "/root", "USER": "me"}
    ran, equal, different = 0, 0, []
    captured, same_as_captured, files = 0, 0, sorted(Path("examples").rglob("*.sh"))
    for file in files:
        calls = [
            ([literal(word, Location("")) for word in call], Location(""))
            for call in trace(str(file), [], around).calls
        ]
        seen = launches(calls)  # type: ignore[arg-type]
        try:
            commands = read_script(file.read_text(), str(file), environment=around).commands
            found = launches([(list(command.words), command.at) for command in commands])
            assert not any(problem(word) for command in commands for word in command.words if found)
        except RlctlError:
            found = []
        ran += bool(seen)
        equal += bool(seen) and seen == found
        if seen != found:
            different.append(file.name)
        record = CORPUS / f"{str(file.with_suffix('')).removeprefix('examples/').replace('/', '_')}.yaml"
        if record.is_file():
            captured += 1
            same_as_captured += bool(found) and _normal(*found[-1]) == _normal(**_captured(record))
    with capsys.disabled():
        print(
            f"\n{len(files)} scripts: {ran} run, {equal} read the same; {same_as_captured} of {captured} as captured before"
        )
    assert ran >= 87
    assert different == []
    assert same_as_captured == captured


def _captured(file: Path) -> dict[str, Any]:
    data = yaml.safe_load(file.read_text())
    return {"name": data["module"], "words": data["overrides"]}


def _normal(name: str, words: list[str]) -> tuple[str, list[str]]:
    """Without what differs from machine to machine: the home folder, the date, the checkout's place, the order of options."""
    import re

    plain_words = [re.sub(r"_?20\d{6}_\d{4,6}", "DATE", word.replace("/root/", "~/")) for word in words]
    plain_words = [re.sub(r"=(?:<verl>|/[^=]*)/verl/utils", "=VERL/verl/utils", word) for word in plain_words]
    return name, sorted(plain_words)
