"""No command shows, writes or keeps a secret: not one of the environment, whatever a file makes of it, nor one in the open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlctl.checks import check
from rlctl.common.errors import RlctlError
from rlctl.common.report import Report
from rlctl.planning.batch_table import rows_by_stage
from rlctl.planning.plan import make_plan
from rlctl.translation import translate

VALUE = "canary-5ecretValue0123456789"
"""Of variables whose names say that they hold a secret."""
DATABASE = f"postgresql://me:{VALUE}@host/name"
"""Of one whose value says it."""
NAMES = ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY")
CANONICAL = """\
rlctl: 1
run: {{name: {name}, folder: runs}}
model: {{path: {value}}}
data: {{train: [{{path: {value}/train.parquet}}]}}
batch: {{prompts_per_step: {number}}}
"""
YAML = {
    "as a path": CANONICAL.format(name="a", value="'${oc.env:HF_TOKEN}'", number=8),
    "as a number": CANONICAL.format(name="a", value="m", number="'${oc.env:HF_TOKEN}'"),
    "as a name": CANONICAL.format(name="'x-${oc.env:WANDB_API_KEY}'", value="m", number=8),
    "decoded": CANONICAL.format(name="a", value="'${oc.decode:${oc.env:WANDB_API_KEY}}'", number=8),
    "by another key": CANONICAL.format(
        name="'${model.path}'", value="'${oc.env:HF_TOKEN,x}'", number="'${model.path}'"
    ),
    "as a URL": CANONICAL.format(name="a", value="'${oc.env:STORAGE}'", number="'${oc.env:STORAGE}'"),
    "as the name of a key": CANONICAL.format(name="a", value="'${${oc.env:HF_TOKEN}}'", number=8),
    "verl": "data: {train_files: '${oc.env:HF_TOKEN}/x', train_batch_size: 8}\nactor_rollout_ref: {model: {path: '${oc.env:WANDB_API_KEY}'}}\n"
    "trainer: {experiment_name: '${actor_rollout_ref.model.path}', nnodes: '${oc.env:HF_TOKEN}', other: '${oc.env:HF_TOKEN}'}\n",
    "roll": "exp_name: '${oc.env:HF_TOKEN}'\npretrain: '${oc.env:WANDB_API_KEY}'\nrollout_batch_size: '${oc.env:HF_TOKEN}'\n"
    "actor_train: {data_args: {file_name: '${oc.env:HF_TOKEN}'}}\n",
    "trinity": "mode: both\nname: '${oc.env:HF_TOKEN}'\nmodel: {model_path: '${oc.env:WANDB_API_KEY}/m'}\nbuffer: {batch_size: '${oc.env:HF_TOKEN}',\n"
    "  explorer_input: {taskset: {path: '${oc.env:STORAGE}'}}}\n",
}
TRAINER = "python3 -m verl.trainer.main_ppo data.train_batch_size=8"
SCRIPTS = {
    "whole": f"{TRAINER} data.train_files=$HF_TOKEN trainer.nnodes=$HF_TOKEN",
    "a part of it": f"{TRAINER} trainer.experiment_name=${{HF_TOKEN:0:12}}",
    "without its start": f"{TRAINER} trainer.experiment_name=${{HF_TOKEN#canary}}",
    "replaced": f"{TRAINER} trainer.experiment_name=${{HF_TOKEN/canary/bird}}",
    "in capitals": f"{TRAINER} trainer.experiment_name=${{HF_TOKEN^^}}",
    "its length": f"{TRAINER} data.train_batch_size=${{#HF_TOKEN}}",
    "by a function": f"f() {{ echo x-$1; }}\n{TRAINER} trainer.experiment_name=$(f $HF_TOKEN)",
    "by an array": f'a=($HF_TOKEN b)\n{TRAINER} trainer.experiment_name=${{a[0]:2}} data.train_files="${{a[@]}}"',
    "by a basename": f"{TRAINER} trainer.experiment_name=$(basename $STORAGE)",
    "by a name": f"n=HF_TOKEN\n{TRAINER} trainer.experiment_name=${{!n}}x data.val_files=$(printf '%s' ${{!n}})",
    "by a case": f"case $HF_TOKEN in canary*) x=1;; *) x=2;; esac\n{TRAINER} trainer.nnodes=$x",
    "by a comparison": f"x=1\nif [[ $HF_TOKEN > b ]]; then x=2; fi\n{TRAINER} trainer.nnodes=$x",
    "by a loop": f"for t in $HF_TOKEN $WANDB_API_KEY; do x=$x$t; done\n{TRAINER} trainer.experiment_name=$x data.train_files=${{x%9}}",
    "by arithmetic": f"{TRAINER} trainer.nnodes=$((HF_TOKEN + 1))",
    "as an argument": f"{TRAINER} $HF_TOKEN",
    "as a program": f"$HF_TOKEN\n{TRAINER} trainer.nnodes=$(nproc $HF_TOKEN)",
    "as a file": f"source $HF_TOKEN\n{TRAINER}",
    "as a folder": f"cd /$HF_TOKEN\n{TRAINER} data.train_files=$PWD/x trainer.default_local_dir=$(pwd)",
    "as an option": f"{TRAINER} --config-name=$HF_TOKEN",
    "in a default": f"{TRAINER} trainer.experiment_name=${{NO_SUCH_NAME:-$HF_TOKEN}} data.train_files=${{HF_TOKEN:-x}}",
    "in its last words": "echo no $HF_TOKEN\nexit 1",
    "as what it lacks": f"{TRAINER} x=${{NO_SUCH_NAME:?$HF_TOKEN}}",
    "in the open": f"export HF_TOKEN={VALUE}x\nexport B_API_KEY=${{C_API_KEY:-{VALUE}}}\na_token=({VALUE})\n{TRAINER} data.train_files=$HF_TOKEN/$B_API_KEY "
    "trainer.experiment_name=${a_token[0]}x +trainer.note=$HF_TOKEN",
}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, VALUE)
    monkeypatch.setenv("STORAGE", DATABASE)
    monkeypatch.chdir(tmp_path)


def made_of(path: Path) -> str:
    """Everything that rlctl says, writes and plans of a file."""
    said = ""
    for target in ("rlctl", "verl", "trinity", "roll"):
        try:
            done = translate.convert(path, target, options={"annotate": "yes"} if target == "trinity" else {})
            said += f"{done.text} {json.dumps(done.as_data())} {done.sidecar}"
            said += "".join(f"{item.at} {item.message} {item.hint}" for item in done.report.findings)
            loaded, _ = translate.read(path)
            if loaded is not None and target == "rlctl":
                findings = check(loaded.config, locate=loaded.locate, symbolic=loaded.expressions.keys())
                said += f"{findings} {loaded.config} {rows_by_stage(loaded, Report())}"
                said += json.dumps(make_plan(loaded.config).as_data())
        except RlctlError as error:
            said += f"{error}"
    return said


def assert_hidden(folder: Path, name: str, text: str, secret: str) -> str:
    (folder / name).write_text(text)
    said = made_of(folder / name)
    assert secret not in said
    return said


@pytest.mark.parametrize("kind", YAML)
def test_a_secret_of_the_environment_is_in_nothing_that_a_command_makes_of_a_config(tmp_path: Path, kind: str) -> None:
    assert_hidden(tmp_path, "config.yaml", YAML[kind], "5ecretValue")


@pytest.mark.parametrize("kind", SCRIPTS)
def test_neither_is_anything_computed_from_it_in_what_a_command_makes_of_a_script(tmp_path: Path, kind: str) -> None:
    text = "#!/bin/bash\n" + SCRIPTS[kind] + "\n"
    said = assert_hidden(tmp_path, "run.sh", text, "5ecretValue")
    assert not any(part in said for part in ("canary", "CANARY", "bird-", "5ecretV"))
    assert kind != "its length" or f"={len(VALUE)}" not in said


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("check", "FILE"),
    ("check", "FILE", "--json"),
    ("convert", "FILE", "--to", "verl"),
    ("convert", "FILE", "--to", "trinity", "--annotate"),
    ("convert", "FILE", "--to", "roll", "--json"),
    ("convert", "FILE", "--to", "rlctl", "-o", "OUT", "--sidecar", "SIDE"),
    ("plan", "FILE"),
    ("plan", "FILE", "--json"),
    ("batch", "FILE"),
    ("diff", "FILE", "OTHER"),
    ("diff", "FILE", "OTHER", "--json"),
    ("explain", "model.path", "--config", "FILE"),
    ("set", "FILE", "run.seed=x"),
    ("launch", "FILE", "--set", "batch.prompts_per_step=x"),
    ("try", "FILE", "--set", "batch.prompts_per_step=x"),
)


def test_no_command_shows_or_writes_it(rlctl: Any, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        YAML["by another key"].replace("[{path:", "[{nope: '${oc.env:HF_TOKEN}', path:")
    )
    (tmp_path / "named.yaml").write_text(YAML["as a name"])
    words = {"FILE": "config.yaml", "OTHER": "named.yaml", "OUT": "out.yaml", "SIDE": "side.yaml"}
    for command in COMMANDS:
        shown = rlctl(*(words.get(word, word) for word in command))
        assert "5ecretValue" not in shown.out + shown.err, command
        assert "bug in rlctl" not in shown.err, command
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "5ecretValue" in path.read_text()]


@pytest.mark.parametrize(
    "line",
    [
        "hub_token: hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
        "note: hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
        "command: curl -H hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345 host",
        "listed: [a, [hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345]]",
        "apiKey: AbCdEfGhIjKlMnOpQrStUvWxYz012345",
        "variables: [OPENAI_API_KEY=AbCdEfGhIjKlMnOpQrStUvWxYz012345]",
        "store: postgresql://me:AbCdEfGhIjKlMnOpQrStUvWxYz012345@host/name",
        "key: '${oc.env:OTHER_API_KEY,AbCdEfGhIjKlMnOpQrStUvWxYz012345}'",
    ],
)
def test_a_secret_in_the_open_under_an_unknown_key_is_shown_nowhere(tmp_path: Path, line: str) -> None:
    text = f"data: {{train_files: x.parquet, train_batch_size: 8}}\ntrainer:\n  total_epochs: 1\n  {line}\n"
    assert_hidden(tmp_path, "config.yaml", text, "AbCdEfGhIjKl")


def test_what_a_value_refers_to_is_shown_and_not_the_value(
    rlctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIZE", "a-lot-of-them")
    (tmp_path / "a.yaml").write_text("rlctl: 1\nmodel: {path: m}\nbatch: {prompts_per_step: '${oc.env:SIZE}'}\n")
    shown = rlctl("check", "a.yaml")
    assert "'batch.prompts_per_step' is ${oc.env:SIZE}; it must be an integer" in shown.err
    assert "a-lot-of-them" not in shown.err


PATHS = """\
data:
  train_files: ${oc.env:OURS}/train.parquet
  val_files: ['${oc.env:OURS}/test.parquet']
  train_batch_size: 64
actor_rollout_ref:
  model: {path: '${oc.env:OURS}/model'}
  rollout: {name: vllm, n: 5}
custom_reward_function: {path: '${oc.env:OURS}/reward.py', name: f}
trainer: {project_name: p, experiment_name: e, total_epochs: 1}
algorithm: {adv_estimator: grpo}
"""


@pytest.mark.parametrize(
    "command",
    [
        ("check", "a.yaml", "-v"),
        ("check", "a.yaml", "--json"),
        ("check", "a.yaml", "--format", "sarif"),
        ("--language", "zh", "check", "a.yaml", "-v"),
        ("convert", "a.yaml", "--to", "trinity", "--annotate", "-v"),
        ("--language", "zh", "convert", "a.yaml", "--to", "trinity", "-v"),
        ("launch", "a.yaml"),
    ],
    ids=" ".join,
)
def test_neither_is_the_value_of_a_path_nor_that_of_a_list_of_them(
    rlctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("OURS", "/nowhere/of-ours")
    (tmp_path / "a.yaml").write_text(PATHS)
    shown = rlctl(*command)
    assert "of-ours" not in shown.out + shown.err
    assert "${oc.env:OURS}/reward.py" in shown.out + shown.err


def test_a_script_still_asks_whether_a_secret_is_there(rlctl: Any, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        'if [ -z "$HF_TOKEN" ] || [[ $WANDB_API_KEY == "" ]]; then N=1; else N=2; fi\n'
        '[ -n "$HF_TOKEN" ] && E=4\n'
        f"{TRAINER} trainer.nnodes=$N trainer.total_epochs=$E trainer.project_name=Bearer_$HF_TOKEN\n"
    )
    shown = rlctl("convert", "run.sh", "--to", "rlctl", "--json")
    done = json.loads(shown.out)
    assert "nodes: 2" in done["text"]
    assert "total_epochs: 4" in done["text"]
    assert "Bearer_${oc.env:HF_TOKEN}" in done["text"]
