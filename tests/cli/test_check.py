"""``check`` names each problem with its code, line and remedy, and its exit code says how bad it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rlctl.cli.check import exit_code
from rlctl.cli.diagnostics import verdict
from rlctl.common.errors import ExitCode
from rlctl.common.report import Finding, Level, Report


def test_an_error_has_its_line_and_code(rlctl: Any, config_file: Path) -> None:
    config_file.write_text(config_file.read_text() + "rollout:\n  parallel: {tensor_parallel_size: 3}\n")
    shown = rlctl("check", str(config_file))
    assert shown.code == 1
    assert shown.out == ""
    assert any(line.startswith(f"{config_file}:9: error: ") for line in shown.err.splitlines()), shown.err


def test_json_holds_the_findings(rlctl: Any, config_file: Path) -> None:
    config_file.write_text(config_file.read_text() + "rollout:\n  parallel: {tensor_parallel_size: 3}\n")
    found = json.loads(rlctl("check", str(config_file), "--json").out)
    assert set(found["findings"][0]) == {
        *("code", "level", "rank", "key", "file", "line", "message", "hint", "runners", "when", "params", "fixes")
    }
    assert any(finding["level"] == "error" and finding["line"] == 9 for finding in found["findings"])


def test_an_unknown_key_is_an_error_with_the_nearest(rlctl: Any, config_file: Path) -> None:
    config_file.write_text(config_file.read_text().replace("prompts_per_step", "prompt_per_step"))
    shown = rlctl("check", str(config_file))
    assert shown.code == 1
    assert "did you mean 'prompts_per_step'?" in shown.err


def test_it_can_be_held_against_machines(rlctl: Any, config_file: Path) -> None:
    without = rlctl("check", str(config_file), "--json")
    small = rlctl("check", str(config_file), "--json", "--cluster", "1x1:H100")
    found = [{finding["code"] for finding in json.loads(shown.out)["findings"]} for shown in (without, small)]
    assert found[1] - found[0]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("name: CI\non: push\njobs: {}\n", 0),
        ("a: {{ b }}\n", 0),
        ("model: {path: a/b}\nbatch: {prompts_per_step: 64\nschedule: {total_steps: 10}\n", 1),
        ("student: {a: 1\nteacher: {a: 1}\n", 1),
    ],
    ids=["workflow", "template", "rlctl", "roll"],
)
def test_of_files_that_cannot_be_read_only_configs_are_reported(
    rlctl: Any, tmp_path: Path, text: str, code: int
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    shown = rlctl("check", "--only-configs", str(file))
    assert shown.code == code, shown.err
    assert ("skipped" in shown.err) == (not code), shown.err


def reported(*levels: Level) -> Report:
    return Report("rlctl@1", "", [Finding("code", level, f"message {number}") for number, level in enumerate(levels)])


def test_exit_codes_follow_the_gravest_finding() -> None:
    assert exit_code(reported()) is ExitCode.OK
    assert exit_code(reported(Level.NOTE)) is ExitCode.OK
    assert exit_code(reported(Level.NOTE, Level.WARNING)) is ExitCode.FINDINGS
    assert exit_code(reported(Level.WARNING, Level.ERROR)) is ExitCode.FAILED


def test_the_verdict_counts() -> None:
    assert verdict(reported(Level.ERROR, Level.WARNING, Level.WARNING), "rlctl") == "rlctl: one error, 2 warnings"
    assert verdict(reported(), "rlctl") == "rlctl: no problems found"


def test_the_verdict_names_a_runner_that_is_not_the_framework_of_the_file() -> None:
    assert verdict(reported(), "trinity") == "rlctl, run by Trinity-RFT: no problems found"


MISSING = """
rlctl: 1
model: {path: a/b}
batch: {responses_per_prompt: 8}
data:
  train:
    - path: /gone/1.parquet
    - path: /gone/2.parquet
  eval:
    - path: /gone/3.parquet
    - path: /gone/4.parquet
rewards: [{type: rule}]
schedule: {total_steps: 3, evaluate_every: 1}
checkpoint: {every: 1}
"""


def test_missing_files_are_one_finding_with_their_lines(rlctl: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(MISSING)
    shown = rlctl("check", str(path)).err.splitlines()
    paths = ", ".join(f"/gone/{number}.parquet (line {line})" for number, line in ((1, 7), (2, 8), (3, 10), (4, 11)))
    assert shown[0] == f"{path}: rlctl: one warning"
    assert shown[1] == f"{path}:7: warning: 4 paths do not exist on this machine: {paths} [path-missing]"
    assert len(shown) == 4
    assert len(json.loads(rlctl("check", str(path), "--json").out)["findings"]) == 5


STAGES = """
rlctl: 1
model: {path: a/b}
data:
  train:
    - path: /gone/base.parquet
rewards: [{type: rule}]
schedule: {total_steps: 3}
checkpoint: {every: 1}
stages:
  - name: first
    train: {optimizer: {lr: 0.01}}
  - name: second
    train: {optimizer: {lr: 0.01}}
  - name: third
    data:
      train:
        - path: /gone/third.parquet
"""


def test_a_finding_names_its_stages_once_and_the_line_of_the_stage(rlctl: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(STAGES)
    shown = rlctl("check", str(path)).err
    assert shown.count("train.optimizer.lr is 0.01") == 1
    assert f"{path}:12: warning: stages first, second: train.optimizer.lr is 0.01" in shown
    found = json.loads(rlctl("check", str(path), "--json").out)["findings"]
    lines = {item["params"].get("path"): item["line"] for item in found if item["code"] == "path-missing"}
    assert lines == {"/gone/base.parquet": 6, "/gone/third.parquet": 18}


def test_findings_of_one_cause_are_one_in_chinese_too(
    rlctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLCTL_LANGUAGE", "zh")
    path = tmp_path / "run.yaml"
    ignored = "rollout: {engine: transformers, memory: {gpu_memory_utilization: 0.5, load_format: dummy}}\n"
    path.write_text(STAGES + ignored)
    shown = rlctl("check", str(path)).err
    assert "rollout.memory.gpu_memory_utilization、rollout.memory.load_format：只有 vLLM 和 SGLang" in shown
    assert "阶段 first、second：" in shown


def test_what_only_rlctl_ignores_is_apart_and_without_a_fix(rlctl: Any, tmp_path: Path) -> None:
    path = tmp_path / "verl.yaml"
    path.write_text(
        "data: {train_files: /gone.parquet, train_batch_size: 8}\n"
        "actor_rollout_ref: {model: {path: a/b}, rollout: {name: hf, gpu_memory_utilization: 0.4}}\n"
        "trainer: {save_freq: 1, total_epochs: 1}\n"
    )
    shown = rlctl("check", str(path), "--runner", "rlctl").err.splitlines()
    place = next(number for number, line in enumerate(shown) if line.startswith("Only for rlctl launch (verl"))
    assert not any("[not-used]" in line for line in shown[:place])
    assert "gpu_memory_utilization" in shown[place + 1]
    assert not any(line.lstrip().startswith("→") for line in shown[place:])


@pytest.mark.parametrize("command", ["check", "plan", "launch"])
def test_a_key_that_rlctl_has_no_place_for_is_named_before_a_run(rlctl: Any, tmp_path: Path, command: str) -> None:
    script = tmp_path / "run.sh"
    key = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
    script.write_text(
        "python3 -m verl.trainer.main_ppo data.train_batch_size=8 actor_rollout_ref.rollout.n=4 \\\n"
        f"  actor_rollout_ref.model.path=here {key}=mine.Loops\n"
    )
    runner = ["--runner", "rlctl"] if command == "check" else []
    done = rlctl(command, str(script), *runner)
    assert (
        f"{script}:2: warning: '{key}': rlctl launch ignores this key, because rlctl has no such setting: "
        "only verl can run this class, which replaces its agent loops" in done.err
    )
    assert "[no-equivalent]" in done.err


def test_a_framework_that_checks_its_own_file_says_nothing_of_rlctl(rlctl: Any, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.agent.agent_loop_manager_class=mine.Loops\n"
    )
    assert "no-equivalent" not in rlctl("check", str(script)).err


def test_an_engine_over_several_nodes_is_refused_by_rlctl_alone(rlctl: Any, tmp_path: Path) -> None:
    """verl starts such engines, and keys below a tree are named once."""
    path = tmp_path / "verl.yaml"
    path.write_text(
        "data: {train_files: /gone.parquet, train_batch_size: 8}\n"
        "actor_rollout_ref: {model: {path: a/b}, rollout: {name: vllm, tensor_model_parallel_size: 16}}\n"
        "ray_kwargs: {ray_init: {runtime_env: {py_executable: uv run}}}\n"
        "trainer: {n_gpus_per_node: 8, nnodes: 2, save_freq: 1, total_epochs: 1}\n"
    )
    shown = rlctl("check", str(path), "--runner", "rlctl").err.splitlines()
    place = next(number for number, line in enumerate(shown) if line.startswith("Only for rlctl launch (verl"))
    own = "\n".join(shown[place:])
    assert "[engine-over-node]" in own
    assert "'ray_kwargs.ray_init.runtime_env.py_executable'" in own
    assert "[engine-over-node]" not in "\n".join(shown[:place])


def test_notes_are_counted_and_shown_by_an_option(rlctl: Any, config_file: Path) -> None:
    few, all_of_them = rlctl("check", str(config_file)), rlctl("check", str(config_file), "-v")
    assert few.code == all_of_them.code
    assert "[hub-name]" not in few.err
    assert "(rlctl check -v)" in few.err
    assert "[hub-name]" in all_of_them.err


# Several files, folders, formats


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Configs of several kinds, in the working folder."""
    place = tmp_path / "configs"
    (place / "more").mkdir(parents=True)
    (place / "good.yaml").write_text(
        "rlctl: 1\nmodel: {path: a/b}\ndata: {train: [{path: a/rows}]}\nbatch: {prompts_per_step: 8, responses_per_prompt: 2}\n"
        "schedule: {total_steps: 3}\nrewards: [{type: rule}]\n"
    )
    (place / "more" / "verl, one.yaml").write_text(
        "data: {train_files: /gone.parquet, train_batch_size: 8, train_batchsize: 9}\n"
        "actor_rollout_ref:\n  actor: {ppo_mini_batch_size: 3}\n  model: {path: a/b}\n"
    )
    (place / "other.yaml").write_text("services: {web: {image: nginx}}\n")
    (place / ".hidden.yaml").write_text("rlctl: 1\nmodel: {pth: x}\n")
    (place / "broken.yaml").write_text("a: [\n")
    monkeypatch.chdir(tmp_path)
    return place


def test_a_folder_is_checked_file_by_file(rlctl: Any, folder: Path) -> None:
    shown = rlctl("check", "configs", "--json")
    assert shown.code == 1
    files = {item["file"]: item for item in json.loads(shown.out)["files"]}
    assert list(files) == ["configs/broken.yaml", "configs/good.yaml", "configs/more/verl, one.yaml"]
    assert [item["level"] for item in files["configs/good.yaml"]["findings"] if item["level"] == "error"] == []
    assert files["configs/more/verl, one.yaml"]["dialect"] == "verl@0.9"
    assert "skipped: configs/other.yaml" in shown.err
    assert "configs/broken.yaml: nothing could be read" in shown.err


def test_several_files_are_checked_one_by_one(rlctl: Any, folder: Path) -> None:
    shown = rlctl("check", "configs/good.yaml", "configs/more/verl, one.yaml", "--json")
    assert [item["dialect"] for item in json.loads(shown.out)["files"]] == ["rlctl@1", "verl@0.9"]
    assert rlctl("check", "configs/good.yaml").code in (0, 3)
    assert rlctl("check", "configs", "a.b=1").code == 2


def test_a_path_that_is_not_here_is_a_warning(rlctl: Any, folder: Path) -> None:
    shown = rlctl("check", "configs/more/verl, one.yaml", "--json", "--allow-unknown", "data.train_batchsize")
    levels = {item["code"]: item["level"] for item in json.loads(shown.out)["findings"]}
    assert levels["path-missing"] == "warning"
    assert rlctl("launch", "configs/more/verl, one.yaml", "--allow-unknown", "data.train_batchsize").code == 1


def test_annotations_of_github_have_relative_paths_and_escaped_properties(rlctl: Any, folder: Path) -> None:
    lines = rlctl("check", "configs", "--format", "github").out.splitlines()
    mistyped = next(line for line in lines if "mistyped-key" in line)
    assert mistyped.startswith("::error file=configs/more/verl%2C one.yaml,line=1,col=")
    assert ",title=mistyped-key::verl 0.9 has no key 'data.train_batchsize' (rename it to" in mistyped
    assert all(
        re.fullmatch(r"::(error|warning) file=[^:,]+,line=\d+(,col=\d+)?,title=[\w-]+::.+", line) for line in lines
    )
    noted = rlctl("check", "configs", "--format", "github", "--verbose").out.splitlines()
    assert len(noted) > len(lines)
    assert {line.split()[0] for line in noted} == {"::error", "::warning", "::notice"}


SARIF: dict[str, Any] = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool"],
                "properties": {
                    "tool": {
                        "required": ["driver"],
                        "properties": {"driver": {"$ref": "#/$defs/driver"}},
                        "additionalProperties": False,
                    },
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "results": {"type": "array", "items": {"$ref": "#/$defs/result"}},
                },
                "additionalProperties": False,
            },
        },
        "$schema": {"type": "string", "format": "uri"},
    },
    "additionalProperties": False,
    "$defs": {
        "text": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}},
        "level": {"enum": ["none", "note", "warning", "error"]},
        "driver": {
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "version": {"type": "string"},
                "informationUri": {"type": "string", "pattern": "^https://"},
                "rules": {"type": "array", "uniqueItems": True, "items": {"$ref": "#/$defs/rule"}},
            },
            "additionalProperties": False,
        },
        "rule": {
            "required": ["id"],
            "properties": {
                "id": {"type": "string"},
                "shortDescription": {"$ref": "#/$defs/text"},
                "helpUri": {"type": "string", "pattern": "^https://"},
                "defaultConfiguration": {
                    "properties": {"level": {"$ref": "#/$defs/level"}},
                    "additionalProperties": False,
                },
            },
            "additionalProperties": False,
        },
        "result": {
            "required": ["message"],
            "properties": {
                "ruleId": {"type": "string"},
                "ruleIndex": {"type": "integer", "minimum": 0},
                "level": {"$ref": "#/$defs/level"},
                "message": {"$ref": "#/$defs/text"},
                "rank": {"type": "number", "minimum": -1.0, "maximum": 100.0},
                "properties": {"type": "object"},
                "locations": {"type": "array", "items": {"$ref": "#/$defs/location"}},
            },
            "additionalProperties": False,
        },
        "location": {
            "properties": {
                "physicalLocation": {
                    "required": ["artifactLocation"],
                    "properties": {
                        "artifactLocation": {
                            "properties": {"uri": {"type": "string", "pattern": "^(?!/)[^ ]+$"}},
                            "additionalProperties": False,
                        },
                        "region": {
                            "properties": {
                                "startLine": {"type": "integer", "minimum": 1},
                                "startColumn": {"type": "integer", "minimum": 1},
                            },
                            "additionalProperties": False,
                        },
                    },
                    "additionalProperties": False,
                }
            },
            "additionalProperties": False,
        },
    },
}
"""The objects of SARIF 2.1.0 that rlctl writes, with the properties, required ones and values of its schema."""


def test_a_sarif_log_is_valid_and_points_into_the_files(rlctl: Any, folder: Path) -> None:
    import jsonschema

    shown = rlctl("check", "configs", "--format", "sarif")
    assert shown.code == 1
    log = json.loads(shown.out)
    jsonschema.Draft202012Validator(SARIF).validate(log)
    [run] = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[item["ruleIndex"]]["id"] == item["ruleId"] for item in run["results"])
    [mistyped] = [item for item in run["results"] if item["ruleId"] == "mistyped-key"]
    place = mistyped["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "configs/more/verl%2C%20one.yaml"
    assert place["region"]["startLine"] == 1
    assert rules[mistyped["ruleIndex"]]["helpUri"].endswith("docs/reference/messages.md")


def test_json_and_another_format_exclude_each_other(rlctl: Any, config_file: Path) -> None:
    assert rlctl("check", str(config_file), "--json", "--format", "sarif").code == 2


def test_lengths_are_measured_by_another_process(rlctl: Any, tmp_path: Path) -> None:
    from rlctl.runtime.quickstart import make_model, make_tokenizer

    make_model(tmp_path / "model", make_tokenizer(), seed=0)
    rows = [{"prompt": "1+1=" * (1 + number), "answer": "2"} for number in range(5)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path = tmp_path / "run.yaml"
    path.write_text(
        f"rlctl: 1\nmodel: {{path: {tmp_path}/model}}\n"
        f"data: {{train: [{{path: {tmp_path}/rows.jsonl}}], max_prompt_tokens: 12}}\n"
        "batch: {prompts_per_step: 2}\nschedule: {total_steps: 1}\nrewards: [{type: rule}]\n"
    )
    found = {item["code"]: item for item in json.loads(rlctl("check", str(path), "--data", "--json").out)["findings"]}
    assert "the first 5 prompts of" in found["data-overlong"]["message"]
    assert "longer than the limit of 12" in found["data-overlong"]["message"]
    assert "set data.max_prompt_tokens to" in found["data-overlong"]["hint"]
    assert not {"data-unanswered", "data-blank"} & set(found)

    rows[1]["answer"] = rows[2]["answer"] = None
    rows[3]["prompt"] = " "
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = {item["code"]: item for item in json.loads(rlctl("check", str(path), "--data", "--json").out)["findings"]}
    assert "2 of the first 5 rows of" in found["data-unanswered"]["message"]
    assert "1 of the first 5 rows of" in found["data-blank"]["message"]
    assert found["data-blank"]["level"] == "warning"


def test_annotations_of_github_hold_no_escapes_of_a_terminal(rlctl: Any, tmp_path: Path) -> None:
    (tmp_path / "evil.yaml").write_text('rlctl: 1\nmodel: {path: "/none\\e]0;owned\\a\\x9b2J"}\n')
    out = rlctl("check", str(tmp_path / "evil.yaml"), "--format", "github").out
    assert "owned" in out
    assert not any(control in out for control in "\x1b\x07\x9b")


def test_what_was_not_checked_is_said_beside_a_clean_file(rlctl: Any, config_file: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "2 + 2", "answer": "4"}\n' * 8)
    config_file.write_text(config_file.read_text().replace("train.jsonl", str(tmp_path / "rows.jsonl")))
    shown = rlctl("check", str(config_file))
    assert "no problems found" in shown.err
    assert "checked: keys, batches, devices, algorithm, paths" in shown.err
    assert "memory (pass --cluster, such as 1x8:H100)" in shown.err
    found = json.loads(rlctl("check", str(config_file), "--json").out)
    assert found["checked"]
    assert any("pass --data" in line for line in found["not_checked"])


def test_columns_that_could_not_be_read_are_named(rlctl: Any, config_file: Path) -> None:
    config_file.write_text(config_file.read_text().replace("train.parquet", "away.parquet"))
    found = json.loads(rlctl("check", str(config_file), "--json").out)
    assert any("data columns" in line and "not all on this machine" in line for line in found["not_checked"])


def test_an_item_of_a_list_is_set_as_it_is_printed(rlctl: Any, config_file: Path) -> None:
    for key in ("data.train[0].tag_key", "data.train.0.tag_key"):
        assert "cannot be read" not in rlctl("check", str(config_file), "--set", f"{key}=domain").err


VERL_REWARD = """\
data: {train_files: train.parquet, val_files: test.parquet, train_batch_size: 64}
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-0.5B-Instruct}
  actor: {ppo_mini_batch_size: 32, ppo_micro_batch_size_per_gpu: 4}
  rollout: {name: vllm, n: 5, log_prob_micro_batch_size_per_gpu: 4}
  ref: {log_prob_micro_batch_size_per_gpu: 4}
algorithm: {adv_estimator: grpo}
trainer: {n_gpus_per_node: 8, nnodes: 1, save_freq: 10}
custom_reward_function: {path: score.py, name: compute_score}
"""


@pytest.mark.parametrize(
    ("signature", "code"),
    [
        ("solution_str, ground_truth, method='strict'", "code-signature"),
        ("response, answer", "code-signature"),
        ("data_source, solution_str, ground_truth, extra_info=None", ""),
        ("**kwargs", ""),
    ],
)
def test_a_reward_is_called_as_its_framework_calls_it(
    rlctl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signature: str, code: str
) -> None:
    """A function in rlctl's form is right for rlctl, which calls it by its parameters; verl would stop."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "score.py").write_text(f"def compute_score({signature}):\n    return 1.0\n")
    (tmp_path / "run.yaml").write_text(VERL_REWARD)
    found = json.loads(rlctl("check", "run.yaml", "--from", "verl@0.5", "--runner", "verl", "--json").out)["findings"]
    assert {item["code"] for item in found if item["code"].startswith("code-")} == ({code} if code else set())


@pytest.mark.parametrize("command", ["check", "plan"])
def test_the_release_that_was_assumed_is_said_once(rlctl: Any, tmp_path: Path, command: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "data: {train_files: train.parquet, train_batch_size: 8}\nactor_rollout_ref: {model: {path: org/m}}\n"
        "custom_reward_function: {path: r.py, name: f}\ntrainer: {total_training_steps: 2}\n"
    )
    assert rlctl(command, str(file)).err.count("[release-assumed]") == 1


def test_here_asks_this_machine_and_says_so(rlctl: Any, config_file: Path) -> None:
    shown = json.loads(rlctl("check", str(config_file), "--here", "--json", "--set", "placement.device=cpu").out)
    assert "this machine and its services" in shown["checked"]
    assert {item["level"] for item in shown["findings"] if item["code"] == "path-missing"} == {"error"}
