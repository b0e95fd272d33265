"""A ported folder: its config, its rows, its reward, and what is refused or left as a stub."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.main import get_command

from rlctl.cli import app
from rlctl.common.errors import RunError, UsageError
from rlctl.config import config_from
from rlctl.documents.yaml_read import read_yaml
from rlctl.porting.assemble import port
from rlctl.porting.licences import licence_of
from rlctl.porting.proof import add_to_readme, prove
from rlctl.porting.rewards import OF_ROLL, Ported, Stub, reward_of
from rlctl.translation.translate import read_many
from tests.porting.runs import MINE, OWN_ROWS, PLUGIN, ROWS, write


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a run of verl and one of Trinity-RFT; modules that adapters import are forgotten at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a port over another within a second may be of the same size
    write(tmp_path)
    known, path = set(sys.modules), list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - known:
        if name.startswith(
            ("helpers", "mapped", "ported", "proof_of", "rlctl_rules", "roll", "main_thread", "row_values")
        ) or name.endswith("_reward"):
            del sys.modules[name]


def _ported(file: str, target: str, **how: Any) -> Any:
    loaded, report = read_many([file])
    assert loaded is not None
    return port(loaded, report, target, Path("out"), file=file, here=Path.cwd(), **how)


def _module(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _reward() -> ModuleType:
    """The module of the folder that scores."""
    sys.path.insert(0, str(Path("out").resolve()))
    return _module(Path("out/ported_reward.py"), "ported_reward")


def test_a_run_of_verl_becomes_a_folder_for_trinity(here: Path) -> None:
    result = _ported("run.sh", "trinity", options={"explorer_gpus": "1"})
    assert isinstance(result.reward, Ported)
    assert (result.moved.rows, result.moved.written) == (10, 10)
    written = read_yaml((here / "out/config.yaml").read_text(), "config.yaml").values
    task = written["buffer"]["explorer_input"]
    assert task["default_workflow_type"] == "ported_run"
    assert "default_reward_fn_type" not in task
    assert (task["taskset"]["path"], task["taskset"]["split"]) == ("${oc.env:PORTED_RUN,.}/data", "train")
    assert task["eval_tasksets"][0]["split"] == "test"
    copied = {str(path.relative_to("out/source")) for path in Path("out/source").rglob("*.py")}
    assert copied == {"mine.py", "helpers/text.py"}
    assert Path("out/source/mine.py").read_text() == MINE
    assert Path("out/run.sh").stat().st_mode & 0o111
    assert "trinity-rft==" in Path("out/requirements.txt").read_text()
    readme = Path("out/README.md").read_text()
    assert "## What changes in training\n\n- " in readme
    assert "rewards may differ" not in readme, "the adapter calls the reward"
    assert "@@" not in "".join(
        path.read_text() for path in Path("out").rglob("*") if path.suffix in (".py", ".sh", ".md")
    )

    adapter = _reward()
    row = json.loads(pq.read_table("out/data/train.parquet")["source_row"][2].as_py())
    assert adapter.reward(row, "boxed 22}", 3) == (1.125, {"score": 1.125, "acc": True, "said": "22}"})
    assert adapter.reward(row, "21", 3) == (0.0, {"score": 0.0, "acc": False, "said": "21"})


def test_a_run_of_verl_becomes_a_folder_for_roll(here: Path) -> None:
    _ported("run.sh", "roll")
    written = read_yaml((here / "out/config.yaml").read_text(), "config.yaml").values
    assert written["max_steps"] == 6
    assert written["rewards"]["math_rule"]["worker_cls"] == "ported_worker.PortedRewardWorker"
    data = written["actor_train"]["data_args"]
    assert (data["file_name"], data["messages"]) == (["${oc.env:PORTED_RUN,.}/data/train.parquet"], "messages")
    for name in ("ported_worker.py", "start.py", "prove.py", "ported_reward.py", "verl_reward.py"):
        compile(Path("out", name).read_text(), name, "exec")


def test_a_run_of_trinity_becomes_a_folder_for_verl(here: Path) -> None:
    _ported("trinity.yaml", "verl", plugins=Path("plugins"))
    row, _ = pq.read_table("out/data/train.parquet").to_pylist()
    assert [each["content"] for each in row["prompt"]] == ["Use tags.", "20 + 1?"]
    _reward()
    adapter = _module(Path("out/ported_function.py"), "ported_function")
    told = adapter.compute_score("sums", "2024-01-01", "", row["extra_info"])
    assert told == {"score": 1.0, "right": 1.0, "tags": 0.0}
    assert adapter.compute_score("sums", "<a>", "", row["extra_info"])["score"] == 0.2
    assert "trinity" not in sys.modules
    assert 'reward.custom_reward_function.path="$PORTED_RUN/ported_function.py"' in Path("out/run.sh").read_text()


def test_a_run_of_roll_keeps_its_worker_and_its_rule_by_domain(here: Path) -> None:
    _ported("roll.yaml", "verl", plugins=Path())
    rows = [json.loads(row["extra_info"]["source_row"]) for row in pq.read_table("out/data/train.parquet").to_pylist()]
    adapter = _reward()
    assert adapter.reward(rows[1], "so and", 2) == (0.25, {"score": 0.25, "acc": 0.0})
    assert adapter.reward(rows[1], "and or", 2) == (1.0, {"score": 1.0, "acc": 1.0})
    right = "I add.\n\n\\boxed{20}"
    assert adapter.reward(rows[0], right, 2) == (1.0, {"score": 1.0, "acc": 1.0})
    with ThreadPoolExecutor(1) as thread:  # a rule that limits its time by a signal
        found = thread.submit(adapter.reward, rows[0], right, 2).result()
    assert found == (1.0, {"score": 1.0, "acc": 1.0})
    assert "rlctl" not in {name.partition(".")[0] for name in _imported(Path("out/rlctl_rules"))}
    with pytest.raises(KeyError, match="no reward scores"):
        adapter.reward({**rows[0], "domain": "another"}, right, 2)


def _imported(folder: Path) -> set[str]:
    found = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
    return found


def test_the_rows_of_a_proof_are_of_every_tag(here: Path) -> None:
    common = [
        json.dumps({"id": str(n), "tag": "sums", "messages": f"{n}?", "ground_truth": str(n)}) for n in range(200)
    ]
    Path("domains.jsonl").write_text(Path("domains.jsonl").read_text() + "\n".join(common))
    _ported("roll.yaml", "verl", plugins=Path())
    tags = [json.loads(line)["row"]["tag"] for line in Path("out/proof/rows.jsonl").read_text().splitlines()]
    assert (tags.count("words"), len(tags)) == (3, 16)


def test_a_rule_module_of_verl_is_copied_with_the_function_that_imports_it(here: Path) -> None:
    Path("verl/utils/reward_score").mkdir(parents=True)
    Path("verl/__init__.py").write_text("raise ImportError\n")
    Path("verl/utils/reward_score/my_rule.py").write_text("def right(text, answer):\n    return text == answer\n")
    Path("rewards/mine.py").write_text(
        "from verl.utils.reward_score import my_rule\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info, bonus):\n"
        "    return float(my_rule.right(solution_str, ground_truth))\n"
    )
    result = _ported("run.sh", "roll")
    assert {str(path.relative_to("out/source")) for path in Path("out/source").rglob("*.py")} == {
        "mine.py", "verl/utils/reward_score/my_rule.py",
    }  # fmt: skip
    assert result.reward.code.packages == ()


def test_a_run_of_rlctl_adds_its_rewards_and_counts_a_failure_as_0(here: Path) -> None:
    _ported("own.yaml", "trinity", options={"explorer_gpus": "1"})
    rows = [json.loads(text) for text in pq.read_table("out/data/train.parquet")["source_row"].to_pylist()]
    adapter = _reward()
    value, told = adapter.reward(rows[2], "\\boxed{22}", 4)
    assert (value, told["answer"], told["boxed"], told["answer/length"]) == (1.25, 1.0, 1.0, 10)
    assert adapter.reward(rows[2], "so 22", 4)[0] == 2.0
    assert adapter.reward(rows[0], "\\boxed{20}", 4) == (0.25, {"score": 0.25, "acc": 1.0, "boxed": 1.0})
    assert adapter.reward(rows[2], "", 0)[0] == 0.0


@pytest.mark.parametrize(
    ("file", "target"),
    [("roll.yaml", "trinity"), ("roll.yaml", "rlctl"), ("own.yaml", "roll"), ("own.yaml", "verl"),
     ("run.sh", "rlctl"), ("trinity.yaml", "roll"), ("trinity.yaml", "rlctl")],
)  # fmt: skip
def test_every_pair_of_frameworks_is_a_folder_whose_config_names_the_adapter(
    here: Path, file: str, target: str
) -> None:
    plugins = Path("plugins") if file == "trinity.yaml" else Path()
    result = _ported(file, target, plugins=plugins, options={"explorer_gpus": "1"})
    assert isinstance(result.reward, Ported)
    assert result.moved.skipped == 0
    adapter = {
        "verl": "ported_function.py",
        "rlctl": "ported_function.py",
        "roll": "ported_worker.",
        "trinity": "ported_run",
    }
    config = Path("out", "run.sh" if target == "verl" else "config.yaml").read_text()
    assert adapter[target] in config
    compile(Path("out/prove.py").read_text(), "prove.py", "exec")


def test_what_stands_for_a_framework_is_what_the_reading_of_files_allows(here: Path) -> None:
    _ported("roll.yaml", "verl", plugins=Path())
    _reward()
    standing = sys.modules["roll_reward"].STANDING
    assert {f"{module}.{name}" for module, values in standing.items() for name in values} == OF_ROLL


def test_a_function_of_verls_managers_batch_and_prime_is_called_as_they_do(here: Path) -> None:
    Path("rewards/mine.py").write_text(
        "def compute_score(data_sources, solution_strs, ground_truths, extra_infos, bonus):\n"
        "    return [{'score': bonus * (text == answer)} for text, answer in zip(solution_strs, ground_truths)]\n"
    )
    Path("run.sh").write_text(
        Path("run.sh").read_text().replace("trainer.n", "reward.reward_manager.name=batch trainer.n")
    )
    _ported("run.sh", "roll")
    assert _reward().reward(ROWS[3], "23", 2) == (0.25, {"score": 0.25})
    Path("rewards/mine.py").write_text(
        "def compute_score(task, text, answer, extra, bonus=1):\n    return text == answer, task\n"
    )
    Path("run.sh").write_text(Path("run.sh").read_text().replace("name=batch", "name=prime"))
    _ported("run.sh", "roll", force=True)
    assert _reward().reward(ROWS[3], "23", 2)[0] == 1.0
    assert _reward().reward({**ROWS[3], "data_source": None}, None, 2)[0] == 0.0


def test_a_proof_fails_if_anything_differs_or_all_rewards_are_equal(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ported("run.sh", "roll")
    proof = _module(Path("out/prove.py"), "proof_of_it")
    monkeypatch.setattr(sys, "argv", ["prove.py"])
    rows = [json.loads(line) for line in Path("out/proof/rows.jsonl").read_text().splitlines()]
    same = [proof.source_rewards(row["row"], proof.responses_to(row["answer"])) for row in rows]
    messages = [row["messages"] for row in rows]
    tokenizer = [*proof.tokenizer_of(None, None, None)]
    monkeypatch.setattr(proof, "tokenizer_of", lambda *given: tokenizer)
    assert (len(rows), {value for each in same for value in each}) == (5, {0.0, 0.125, 1.0, 1.125})
    wanted = json.loads(Path("out/proof/expected.json").read_text())
    assert wanted["numbers"] == {
        "prompts_per_step": 2, "responses_per_prompt": 8, "mini_batch_responses": 16, "total_steps": 6,
    }  # fmt: skip
    tokens = [proof.source_tokens(tokenizer[0], each, {}) for each in messages]
    loaded = {
        "messages": messages,
        "tokens": tokens,
        "rows": wanted["rows"],
        "left_out": 0,
        "numbers": wanted["numbers"],
    }

    def end(rewards: list[list[float]], **changed: Any) -> str:
        monkeypatch.setattr(proof, "target_rewards", lambda rows, texts: (rewards, changed.get("called", messages)))
        monkeypatch.setattr(proof, "target_loads", lambda rows, tokenizer, real: {**loaded, **changed})
        code = proof.main()
        found = json.loads(Path("out/proof/result.json").read_text())
        assert code == bool(found["different"]) == bool(found["problems"])
        return " ".join(found["problems"])

    assert end(same) == ""
    assert "0.0, not 1.0" in end([[0.0] * len(same[0]), *same[1:]])
    assert "called for other messages" in end(same, called=[[], *messages[1:]])
    assert "other messages" in end(same, messages=[[], *messages[1:]])
    assert "total_steps: 5, not 6" in end(same, numbers={**wanted["numbers"], "total_steps": 5})
    assert "test: 4 rows, not 5" in end(same, rows={"train": 5, "test": 4})
    assert "the first token is there twice" in end(same, tokens=[[tokens[0][0], *tokens[0]], *tokens[1:]])
    flat = [[0.0] * len(each) for each in same]
    assert "all rewards of the target are 0.0: this proves nothing" in end(flat)
    monkeypatch.setattr(proof, "source_rewards", lambda row, texts: [0.0] * len(texts))
    assert "all rewards of the source are 0.0" in end(flat)
    scores = iter(range(1000))
    monkeypatch.setattr(proof, "source_rewards", lambda row, texts: [next(scores), *[0.0] * (len(texts) - 1)])
    assert end(flat).startswith("all rewards of the source that are the same when scored again are 0.0")
    assert json.loads(Path("out/proof/result.json").read_text())["checks"][-1]["unsteady"] == 5
    monkeypatch.setattr(proof, "source_rewards", lambda row, texts: texts["a"])
    assert "the reward raises TypeError" in end(flat)

    def refused(*given: Any) -> Any:
        raise ValueError("no such key")

    monkeypatch.setattr(proof, "target_loads", refused)
    assert proof.main() == 1
    assert (
        json.loads(Path("out/proof/result.json").read_text())["problems"][0]
        == "config or data: ValueError: no such key"
    )


def test_the_result_of_a_proof_is_a_table_in_the_readme(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# a\n")
    checks: list[dict[str, Any]] = [
        {"check": "rows", "compared": 1200, "different": 0, "splits": {"train": 1200}, "left_out": 3},
        {"check": "tokens", "compared": 2, "different": 1, "tokens": 40, "tokenizer": "m", "of_model": True},
        {
            "check": "rewards",
            "compared": 26,
            "different": 0,
            "rows": 2,
            "lowest": 0,
            "highest": 1,
            "given": 4,
            "unsteady": 2,
        },
    ]
    add_to_readme(tmp_path, {"target": "ROLL", "seed": 0, "checks": checks, "problems": ["row 1: other"]})
    text = (tmp_path / "README.md").read_text()
    assert "| rows that ROLL's own dataset reads (train 1200); it leaves out 3 by their length | 1,200 | 0 |" in text
    assert "40 tokens by the tokenizer of m | 2 | 1 |" in text
    assert "and on 4 responses of a run; 2 have a random reward" in text
    assert text.endswith("- row 1: other\n")


def test_a_proof_that_cannot_run_says_why(here: Path) -> None:
    Path("out/proof").mkdir(parents=True)
    Path("out/prove.py").write_text("import a_framework_that_is_not_here\n")
    told = prove(Path("out"), sys.executable)
    assert isinstance(told, str)
    assert "a_framework_that_is_not_here" in told
    with pytest.raises(RunError, match="cannot be started"):
        prove(Path("out"), "no-python-here")


FUNCTION = {"type": "function", "path": "rewards/mine.py", "signature": "verl"}
STUBS: dict[str, tuple[dict[str, Any], str, str]] = {
    "secret": (
        {},
        "KEY = 1\nopenai_api_key = 'sk-abcdefghijklmnopqrstuvwxyz'\n" + MINE,
        "a key, a token or a password",
    ),
    "batch": ({}, "def compute_score(data_sources, solution_strs, ground_truths, extra_infos): ...", "batch"),
    "served": (
        {},
        "def compute_score(data_source, solution_str, ground_truth, extra_info, reward_router_address): ...",
        "reward model",
    ),
    "manager": ({"reward_loop": {"manager": "remote"}}, MINE, "remote"),
    "judge": ({"rewards": [{"type": "judge", "base_url": "http://a"}]}, MINE, "judge"),
    "two": ({"rewards": [FUNCTION, {**FUNCTION, "name": "b"}]}, MINE, "2 rewards"),
    "missing": ({"rewards": [{**FUNCTION, "path": "none.py"}]}, MINE, "no file"),
    "dataset": (
        {"data": {"train": [{"path": "a"}], "custom": {"path": "a.py", "class_name": "A"}}},
        MINE,
        "dataset class",
    ),
}


@pytest.mark.parametrize("case", STUBS)
def test_what_no_adapter_can_call_is_a_stub_with_its_reason(here: Path, case: str) -> None:
    changes, text, reason = STUBS[case]
    Path("rewards/mine.py").write_text(text)
    config = config_from({"rewards": [FUNCTION], "data": {"train": [{"path": "rows.jsonl"}]}, **changes})
    found = reward_of(config, "verl", None, here)
    assert isinstance(found, Stub)
    assert reason in found.reason
    assert case != "secret" or (found.at is not None and found.at.line == 2)


def test_what_an_async_reward_raises_reaches_its_caller(here: Path) -> None:
    Path("rewards/mine.py").write_text("async def compute_score(**given):\n    raise ValueError('no answer')\n")
    _ported("run.sh", "roll")
    row = {"data_source": "sums", "reward_model": {"ground_truth": "4"}}
    with pytest.raises(ValueError, match="no answer"):
        _reward().reward(row, "4", 1)


def test_a_stub_keeps_run_sh_from_starting(here: Path) -> None:
    Path("rewards/mine.py").write_text("password = 'a-real-one-123'\n" + MINE)
    result = _ported("run.sh", "roll")
    assert not result.whole
    assert not Path("out/source").exists()
    assert "a-real-one" not in "".join(
        path.read_text() for path in Path("out").rglob("*.*") if path.suffix != ".parquet"
    )
    started = subprocess.run(["bash", "out/run.sh"], capture_output=True, text=True, check=False)
    assert (started.returncode, "STUB.py says why" in started.stderr) == (3, True)
    with pytest.raises(NotImplementedError, match=r"mine\.py:1"):
        _module(Path("out/STUB.py"), "proof_of_stub")
    Path("rewards/mine.py").write_text(MINE)
    assert isinstance(_ported("run.sh", "roll", force=True).reward, Ported)
    assert not Path("out/STUB.py").exists(), "the stub of the port that was replaced"


@pytest.mark.parametrize(
    ("file", "target", "reason"),
    [
        ("run.sh", "verl", "not ported from verl to verl"),
        ("trinity.yaml", "trinity", "not ported from Trinity-RFT to Trinity-RFT"),
        ("run.sh", "trinity@0.5", "0.6 only"),
    ],
)
def test_a_pair_that_is_not_ported_is_refused(here: Path, file: str, target: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        _ported(file, target)
    assert not Path("out").exists()


def test_rows_that_name_an_agent_are_not_scored_by_an_adapter(here: Path) -> None:
    Path("rows.jsonl").write_text((json.dumps({**ROWS[0], "agent_name": "tool_agent"}) + "\n") * 2)
    result = _ported("run.sh", "roll")
    assert isinstance(result.reward, Stub)
    assert "tool_agent" in result.reward.reason


@pytest.mark.parametrize(
    ("reward", "module", "function"),
    [
        ({"type": "rule", "rule": "auto"}, "verl.utils.reward_score", "default_compute_score"),
        ({**FUNCTION, "path": "pkg://a_package.scores", "function": "score"}, "a_package.scores", "score"),
    ],
)
def test_a_function_of_a_package_is_called_there(here: Path, reward: Any, module: str, function: str) -> None:
    config = config_from({"rewards": [reward], "data": {"train": [{"path": "rows.jsonl"}]}})
    found = reward_of(config, "verl", None, here)
    assert isinstance(found, Ported)
    [part] = found.parts
    assert (part.settings["module"], part.name, found.code.files) == (module, function, ())
    assert found.code.packages == (module.partition(".")[0],)


def test_the_default_reward_of_verl_is_ported_by_its_own_function(here: Path) -> None:
    Path("run.sh").write_text(
        "\n".join(line for line in Path("run.sh").read_text().splitlines() if "custom" not in line)
    )
    _ported("run.sh", "roll")
    assert not Path("out/source").exists()
    assert "module='verl.utils.reward_score'" in Path("out/ported_reward.py").read_text()
    assert "verl" in Path("out/requirements.txt").read_text()
    assert "default_compute_score" in Path("out/README.md").read_text()


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("math_workflow", "math_boxed_workflow", "math_boxed_workflow"),
        ("{prompt_key: q,", "{reply_prefix: Sure, prompt_key: q,", "reply_prefix"),
    ],
)
def test_a_workflow_that_sends_other_prompts_is_not_ported(here: Path, before: str, after: str, reason: str) -> None:
    text = Path("trinity.yaml").read_text()
    assert before in text
    Path("trinity.yaml").write_text(text.replace(before, after))
    result = _ported("trinity.yaml", "verl", plugins=Path("plugins"))
    assert isinstance(result.reward, Stub)
    assert reason in result.reward.reason
    assert Path("out/STUB.py").exists()


def test_licences_of_copied_files_are_listed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "spdx.py").write_text("# SPDX-License-Identifier: MIT OR Apache-2.0\n")
    (tmp_path / "a" / "head.py").write_text("# Licensed under the Apache License, Version 2.0 (the License)\n")
    (tmp_path / "a" / "none.py").write_text("x = 1\n")
    (tmp_path / ".git").mkdir()
    assert licence_of(tmp_path / "a" / "spdx.py") == "MIT OR Apache-2.0"
    assert licence_of(tmp_path / "a" / "head.py") == "Apache-2.0"
    assert licence_of(tmp_path / "a" / "none.py") is None
    (tmp_path / "LICENSE").write_text("Our own terms\n")
    assert licence_of(tmp_path / "a" / "none.py") == "Our own terms"


@pytest.mark.parametrize("told", ["0.5", "{'a': 0.25, 'b': 0.25}"])
def test_a_reward_of_trinity_may_be_a_number(here: Path, told: str) -> None:
    Path("plugins/mine.py").write_text(PLUGIN.replace('return {"right"', f'return {told}\n        return {{"right"'))
    _ported("trinity.yaml", "verl", plugins=Path("plugins"))
    adapter = _module(Path("out/trinity_reward.py"), "trinity_reward")
    made = adapter.TrinityReward("sums_reward", file="mine.py", answer="a")
    assert made({"a": "1"}, "text", 3)[0] == 0.5


def test_the_folder_for_rlctl_starts_with_a_command_that_there_is(here: Path) -> None:
    _ported("run.sh", "rlctl")
    [line] = [line for line in Path("out/run.sh").read_text().splitlines() if line.startswith("exec rlctl ")]
    assert line.split()[2] in get_command(app).commands


def _parquet() -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), "rows.parquet")
    Path("run.sh").write_text(Path("run.sh").read_text().replace("rows.jsonl", "rows.parquet"))


@pytest.mark.parametrize("target", ["trinity", "rlctl"])
def test_rows_that_a_target_can_read_are_linked_with_their_columns_named(here: Path, target: str) -> None:
    _parquet()
    result = _ported("run.sh", target, map_data=True, options={"explorer_gpus": "1"})
    assert (result.mapped, result.moved.written) == (True, 5 + 5)
    assert Path("out/data/train.parquet").readlink() == here / "rows.parquet"
    assert "source_row" not in Path("out/config.yaml").read_text()
    if target == "rlctl":
        _reward()
        adapter = _module(Path("out/ported_function.py"), "ported_function")
        told = adapter.compute_score("boxed 22}", "22", "my/sums", None, ROWS[2]["extra_info"], 3)
        assert told == {"score": 1.125, "acc": True, "said": "22}"}
    else:
        sys.path.insert(0, str(here / "out"))
        rows = _module(Path("out/mapped_rows.py"), "ported_rows")
        assert rows.messages_of(ROWS[2]) == ROWS[2]["prompt"]
        assert rows.plain({**ROWS[2], "when": date(2024, 1, 1)}) == {**ROWS[2], "when": "2024-01-01"}


def test_a_run_of_rlctl_with_verls_columns_is_read_by_verl_where_it_is(here: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), "own.parquet")
    columns = "own.jsonl, prompt_key: question, answer_key: result, source_key: kind, extra_key: more"
    text = Path("own.yaml").read_text().replace(columns, "own.parquet").replace('"sum*"', '"my/sum*"')
    Path("own.yaml").write_text(text)
    _ported("own.yaml", "verl", map_data=True)
    _reward()
    adapter = _module(Path("out/ported_function.py"), "ported_function")
    extra = {**ROWS[2]["extra_info"], "num_turns": 2, "rollout_reward_scores": {}}
    assert adapter.compute_score("my/sums", "\\boxed{22}", "22", extra)["score"] == 0.5


@pytest.mark.parametrize(
    ("file", "target", "reason"),
    [
        ("run.sh", "roll", "by the column tag"),
        ("run.sh", "trinity", "no Parquet file"),
        ("own.yaml", "verl", "no list of messages"),
        ("trinity.yaml", "verl", "puts a system message first"),
    ],
)
def test_rows_that_a_target_cannot_read_where_they_are_are_refused(
    here: Path, file: str, target: str, reason: str
) -> None:
    if file == "own.yaml":
        pq.write_table(pa.Table.from_pylist(OWN_ROWS), "own.parquet")
        Path("own.yaml").write_text(Path("own.yaml").read_text().replace("own.jsonl", "own.parquet"))
    if file == "trinity.yaml":
        for path in Path("sums").iterdir():
            path.unlink()
        pq.write_table(pa.Table.from_pylist([{"q": "1?", "a": "1"}]), "sums/train.parquet")
    with pytest.raises(UsageError, match=reason):
        _ported(file, target, map_data=True, plugins=Path("plugins"))
    assert not Path("out").exists()
