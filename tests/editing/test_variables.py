"""An edit of a value that a launch script takes from a variable changes the variable's default, so that the variable still works."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlctl.documents import parse_dotted
from rlctl.editing.session import Session
from rlctl.editing.variables import uses_variable

SCRIPT = """\
#!/usr/bin/env bash
# lr=1 was too much
lr=${LR:-1e-6}
export n="${N:-8}"
epochs=$n
: "${SEED:=1}"
max_prompt=${MAX_PROMPT:-512}
max_response=${MAX_RESPONSE:-1024}
tokens=${TOKENS:-$((max_prompt + max_response))}
fixed=$((64 * 2))
PROJECT=${PROJECT:-"${USER}/first"}
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files=train.parquet \\
    data.train_batch_size=$fixed \\
    data.max_prompt_length=${max_prompt} \\
    data.max_response_length=$max_response \\
    data.seed=${SEED} "trainer.project_name=${PROJECT}" \\
    "actor_rollout_ref.actor.optim.lr=$lr" "actor_rollout_ref.model.path=${MODEL:-model}" \\
    actor_rollout_ref.actor.ppo_mini_batch_size=${MINI:-16} \\
    actor_rollout_ref.actor.use_dynamic_bsz=True \\
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=${tokens} \\
    actor_rollout_ref.rollout.n="$n" \\
    trainer.total_epochs=${TOTAL:-3} trainer.n_gpus_per_node=8
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("LR", "N", "SEED", "MAX_PROMPT", "MAX_RESPONSE", "TOKENS", "PROJECT", "MODEL", "MINI", "TOTAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("USER", "me")
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    return path


def edited(path: Path, changes: Mapping[str, Any]) -> Session:
    session = Session.open(path)
    for key, value in changes.items():
        session.set(parse_dotted(key), value)
    return session


def said_by_bash(path: Path, key: str, **environment: str) -> str:
    """The value that the script's command is given for a key, as bash says it."""
    text = path.read_text().replace("python3 -m", "printf '%s\\n'")
    env = {"PATH": os.environ["PATH"], "USER": "me", **environment}
    done = subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True, check=True)
    return next(line.partition("=")[2] for line in done.stdout.splitlines() if line.startswith(f"{key}="))


@pytest.mark.parametrize(
    ("key", "value", "before", "after", "own", "variable"),
    [
        ("train.optimizer.lr", 2e-6, "${LR:-1e-6}", "${LR:-2e-6}", "actor_rollout_ref.actor.optim.lr", "LR"),
        ("data.seed", 7, "${SEED:=1}", "${SEED:=7}", "data.seed", "SEED"),
        ("schedule.total_epochs", 5, "${TOTAL:-3}", "${TOTAL:-5}", "trainer.total_epochs", "TOTAL"),
        ("model.path", "org/other", "${MODEL:-model}", "${MODEL:-org/other}", "actor_rollout_ref.model.path", "MODEL"),
        ("run.project", "next", '"${USER}/first"', '"next"', "trainer.project_name", "PROJECT"),
    ],
)
def test_the_default_is_edited_and_the_variable_still_sets_the_key(
    script: Path, key: str, value: Any, before: str, after: str, own: str, variable: str
) -> None:
    session = edited(script, {key: value})
    draft = session.draft()
    assert (draft.lost, draft.disconnected, draft.also) == ((), (), ())
    assert draft.text == SCRIPT.replace(before, after)
    session.save(draft)
    assert said_by_bash(script, own) == (str(value) if value != 2e-6 else "2e-6")
    assert said_by_bash(script, own, **{variable: "123"}) == "123"


def test_a_variable_that_sets_other_keys_too_is_asked_about_and_can_take_them_along(script: Path) -> None:
    session = edited(script, {"rollout.max_response_tokens": 2048})
    draft = session.draft()
    assert [(one.key, one.word, one.line, one.variable) for one in draft.disconnected] == [
        ("data.max_response_length", "$max_response", 17, "MAX_RESPONSE")
    ]
    assert draft.text == SCRIPT.replace("length=$max_response ", "length=2048 ")
    assert (("batch", "micro_batch", "size"), 1536, 2560) in draft.also
    session.follow_variables(draft)
    followed = session.draft()
    assert followed.text == SCRIPT.replace("MAX_RESPONSE:-1024", "MAX_RESPONSE:-2048")
    assert (followed.lost, followed.disconnected) == ((), ())
    session.undo()
    assert session.draft().text == draft.text


@pytest.mark.parametrize(
    ("key", "value", "environment"),
    [
        ("batch.prompts_per_step", 256, {}),  # computed, without a default
        ("train.optimizer.lr", 2e-6, {"LR": "1e-6"}),  # the environment sets it
    ],
)
def test_a_value_without_a_default_that_sets_it_is_asked_about(
    script: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: Any, environment: dict[str, str]
) -> None:
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    session = edited(script, {key: value})
    draft = session.draft()
    assert [one.variable for one in draft.disconnected] == [""]
    assert draft.also == ()
    session.save(draft)
    assert Session.open(script).written(parse_dotted(key)) == value


def test_overrides_that_share_a_line_are_edited_apart(script: Path) -> None:
    session = edited(script, {"model.path": "other", "train.optimizer.lr": 3e-6})
    assert session.draft().text == SCRIPT.replace("MODEL:-model", "MODEL:-other").replace("LR:-1e-6", "LR:-3e-6")


@pytest.mark.parametrize(
    ("word", "uses"),
    [
        ("$a", True),
        ('"${a}"', True),
        ("x-`date`", True),
        ("'$a'", False),
        (r"\$a", False),
        ("\"'$a'\"", True),
        ("a", False),
    ],
)
def test_what_bash_replaces(word: str, uses: bool) -> None:
    assert uses_variable(word) is uses
