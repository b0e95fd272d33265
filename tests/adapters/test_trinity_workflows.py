"""What a workflow of Trinity's implies: the reward and the system prompt that no key of the file holds, in both directions."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rlctl.adapters.engine.tree import put
from rlctl.adapters.trinity.workflows import BOXED_PROMPT, ONE_TURN, R1_PROMPT, THINKING_PROMPT
from rlctl.common.report import Bucket, Report
from rlctl.config import to_plain
from rlctl.documents import parse_dotted, read_yaml
from rlctl.translation.translate import convert, read_document, translate_loaded, write

INPUT = "buffer.explorer_input"
SET = f"{INPUT}.taskset"
EVAL = f"{INPUT}.eval_tasksets"
BASE: dict[str, Any] = {
    "algorithm": {"algorithm_type": "grpo", "repeat_times": 8},
    "model": {"model_path": "org/model", "max_prompt_tokens": 512, "max_response_tokens": 512, "max_model_len": 1024},
    "cluster": {"node_num": 1, "gpu_per_node": 8},
    "buffer": {"batch_size": 32, "explorer_input": {"taskset": {"name": "t", "path": "data"}}},
}


def text_of(**keys: Any) -> str:
    tree: dict[str, Any] = yaml.safe_load(yaml.safe_dump(BASE))
    for name, value in keys.items():
        put(tree, parse_dotted(name), value)
    return yaml.safe_dump(tree)


def read_with(release: str = "0.6", **keys: Any) -> tuple[dict[str, Any], Report]:
    document = read_yaml(text_of(**keys), "run.yaml")
    loaded, report = read_document(document, dialect=f"trinity@{release}", environment={})
    assert loaded is not None, [finding.message for finding in report.errors]
    return dict(to_plain(loaded.config)), report


def meaning(values: dict[str, Any]) -> tuple[list[dict[str, Any]], str | None, str | None, bool]:
    """The rewards as far as they are set, the prompt, the workflow, and whether responses that were cut are masked."""
    usual = {"type": "rule", "args": {}, "score_right": 1.0, "score_wrong": 0.0}
    shown = ("type", "rule", "kind", "args", "score_right", "score_wrong")
    rewards = [
        {key: one[key] for key in shown if key in one and one[key] != usual.get(key)} for one in values["rewards"]
    ]
    workflow = values["rollout"]["agents"][0]["kind"] if values["rollout"]["agents"] else None
    masks = any(item["type"] == "overlong" for item in values["algorithm"]["filters"])
    return rewards, values["data"]["train"][0]["system_prompt"], workflow, masks


TRINITY = {"rule": "math", "args": {"method": "trinity"}}
BOXED = {"rule": "boxed"}
CASES: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    ({f"{INPUT}.default_workflow_type": "math_workflow"}, ([TRINITY], R1_PROMPT, None, False)),
    ({f"{INPUT}.default_workflow_type": "async_math_workflow"}, ([TRINITY], R1_PROMPT, None, False)),
    ({f"{SET}.default_workflow_type": "math_workflow"}, ([TRINITY], R1_PROMPT, None, False)),
    # The prompt belongs to its own reward, and is not put over one that the file has.
    (
        {f"{INPUT}.default_workflow_type": "math_workflow", f"{INPUT}.default_reward_fn_type": "math_boxed_reward"},
        ([BOXED], None, None, False),
    ),
    (
        {f"{INPUT}.default_workflow_type": "math_workflow", f"{INPUT}.default_reward_fn_type": "math_reward"},
        ([TRINITY], R1_PROMPT, None, False),
    ),
    (
        {f"{INPUT}.default_workflow_type": "math_workflow", f"{SET}.format.system_prompt": "Be brief."},
        ([TRINITY], "Be brief.", None, False),
    ),
    (
        {f"{INPUT}.default_workflow_type": "math_workflow", f"{SET}.format.system_prompt": ""},
        ([TRINITY], None, None, False),
    ),
    (
        {f"{INPUT}.default_workflow_type": "math_workflow", f"{SET}.reward_fn_args": {"pattern": "^x"}},
        ([{"rule": "math", "args": {"method": "trinity", "pattern": "^x"}}], R1_PROMPT, None, False),
    ),
    ({f"{INPUT}.default_workflow_type": "math_boxed_workflow"}, ([BOXED], BOXED_PROMPT, None, True)),
    (
        {f"{INPUT}.default_workflow_type": "math_boxed_workflow", f"{SET}.workflow_args": {"with_think": True}},
        ([{"rule": "boxed", "args": {"think_penalty": 0.1}}], THINKING_PROMPT, None, True),
    ),
    (
        {
            f"{INPUT}.default_workflow_type": "math_boxed_workflow",
            f"{SET}.workflow_args": {"with_think": True, "format_score_coef": 0.5},
        },
        ([{"rule": "boxed", "args": {"think_penalty": 0.5}}], THINKING_PROMPT, None, True),
    ),
    (
        {f"{INPUT}.default_workflow_type": "simple_workflow", f"{INPUT}.default_reward_fn_type": "math_reward"},
        ([TRINITY], None, None, False),
    ),
    (
        {f"{INPUT}.default_workflow_type": "simple_workflow", f"{SET}.default_reward_fn_type": "accuracy_reward"},
        ([{"rule": "math", "args": {"method": "open_r1"}}], None, None, False),
    ),
    (
        {
            f"{INPUT}.default_workflow_type": "simple_mm_workflow",
            f"{INPUT}.default_reward_fn_type": "math_boxed_reward",
            f"{SET}.format.system_prompt": "not read",
        },
        ([BOXED], THINKING_PROMPT, None, False),
    ),
    (
        {
            f"{INPUT}.default_workflow_type": "simple_workflow",
            f"{INPUT}.default_reward_fn_type": "format_reward",
            f"{SET}.reward_fn_args": {"pattern": "^x"},
        },
        (
            [{"rule": "format", "args": {"pattern": "^x", "whole": False}, "score_right": 0.1, "score_wrong": -0.1}],
            None,
            None,
            False,
        ),
    ),
    # What the table does not have keeps its name, as does a prompt without a chat template.
    ({f"{INPUT}.default_workflow_type": "alfworld_workflow"}, ([{"rule": "auto"}], None, "alfworld_workflow", False)),
    (
        {f"{INPUT}.default_workflow_type": "math_boxed_workflow", f"{SET}.workflow_args": {"use_base": True}},
        ([{"rule": "auto"}], None, "math_boxed_workflow", False),
    ),
]


@pytest.mark.parametrize(("keys", "expected"), CASES, ids=[str(index) for index in range(len(CASES))])
def test_what_a_workflow_implies_is_read(keys: dict[str, Any], expected: tuple[Any, ...]) -> None:
    values, _ = read_with(**keys)
    assert meaning(values) == expected


@pytest.mark.parametrize(("keys", "expected"), CASES, ids=[str(index) for index in range(len(CASES))])
@pytest.mark.parametrize("release", ["0.5", "0.6"])
def test_what_a_workflow_implies_is_written_so_that_it_means_the_same(
    keys: dict[str, Any], expected: tuple[Any, ...], release: str
) -> None:
    first, _ = read_with(release, **keys)
    loaded, _ = read_document(read_yaml(text_of(**keys), "run.yaml"), dialect=f"trinity@{release}", environment={})
    assert loaded is not None
    text, _ = write(loaded, f"trinity@{release}", options={"carried": "none"})
    assert text is not None
    back, report = read_document(read_yaml(text, "written.yaml"), dialect=f"trinity@{release}", environment={})
    assert back is not None, [finding.message for finding in report.errors]
    assert meaning(dict(to_plain(back.config))) == meaning(first), text


def test_only_0_6_masks_responses_that_were_cut_and_punishes_a_wrong_answer_in_math_dapo_reward() -> None:
    boxed = {f"{INPUT}.default_workflow_type": "math_boxed_workflow"}
    assert [meaning(read_with(release, **boxed)[0])[3] for release in ("0.5", "0.6")] == [False, True]
    dapo = {f"{INPUT}.default_workflow_type": "simple_workflow", f"{INPUT}.default_reward_fn_type": "math_dapo_reward"}
    wrong = [read_with(release, **dapo)[0]["rewards"][0]["score_wrong"] for release in ("0.5", "0.6")]
    assert wrong == [0.0, -1.0]


def test_task_sets_of_different_rewards_name_theirs() -> None:
    evaluation = [
        {"name": "e", "path": "e", "default_reward_fn_type": "accuracy_reward"},
        {"name": "f", "path": "f", "default_workflow_type": "math_boxed_workflow"},
    ]
    values, _ = read_with(**{f"{INPUT}.default_workflow_type": "math_workflow", EVAL: evaluation})
    assert [one["name"] for one in values["rewards"]] == ["math_reward", "accuracy_reward", "math_boxed_reward"]
    sources = [*values["data"]["train"], *values["data"]["eval"]]
    assert [one["reward"] for one in sources] == ["math_reward", "accuracy_reward", "math_boxed_reward"]
    assert [one["system_prompt"] for one in sources] == [R1_PROMPT, None, BOXED_PROMPT]
    assert [one["agent"] for one in sources] == [None, None, None]


def test_rows_that_name_their_reward_function_are_routed_by_it() -> None:
    keys = {f"{INPUT}.default_workflow_type": "math_workflow", f"{SET}.format.reward_fn_key": "scored_by"}
    values, _ = read_with(**keys)
    assert values["data"]["train"][0]["source_key"] == "scored_by"
    covers = {one["name"]: one["applies_to"] for one in values["rewards"]}
    assert covers["math_reward"] == ["math_reward", "t"]
    assert covers["countdown_reward"] == ["countdown_reward"]


@pytest.mark.parametrize(
    ("keys", "key", "said"),
    [
        (
            {f"{INPUT}.default_workflow_type": "simple_workflow"},
            f"{INPUT}.default_workflow_type",
            "default_reward_fn_type",
        ),
        (
            {f"{INPUT}.default_workflow_type": "math_workflow", f"{SET}.reward_fn_args": {"mine": 1}},
            f"{SET}.reward_fn_args.mine",
            "pattern",
        ),
    ],
)
def test_what_trinity_itself_would_stop_at_is_an_error(keys: dict[str, Any], key: str, said: str) -> None:
    _, report = read_document(read_yaml(text_of(**keys), "run.yaml"), dialect="trinity", environment={})
    assert {error.key for error in report.errors} == {key}
    assert said in report.errors[0].message


def test_a_format_that_is_not_run_is_told() -> None:
    _, report = read_with(**{f"{INPUT}.default_workflow_type": "math_workflow", f"{SET}.format.reply_prefix": "x"})
    assert [entry.bucket for entry in report.accounting if entry.key.endswith("reply_prefix")] == [Bucket.UNSUPPORTED]


def test_the_column_with_workflows_names_agents() -> None:
    values, _ = read_with(**{f"{INPUT}.default_workflow_type": "math_workflow", f"{SET}.format.workflow_key": "by"})
    assert values["data"]["train"][0]["agent_key"] == "by"


def test_a_reward_that_trinity_cannot_pick_is_lost_and_comes_back() -> None:
    text = "rlctl: 1\nmodel: {path: m}\nrewards:\n  - {type: rule, rule: auto, score_wrong: 0.0}\n"
    there = convert(text, "trinity", dialect="rlctl", environment={})
    assert any(
        entry.bucket is Bucket.UNSUPPORTED and entry.key.startswith("rewards") for entry in there.report.accounting
    )
    back, _ = read_document(read_yaml(there.text or "", "there.yaml"), dialect="trinity", environment={})
    assert back is not None
    assert getattr(back.config.rewards[0], "rule", "") == "auto"


def test_the_table_names_every_source() -> None:
    assert all(row.source.startswith("trinity/common/") and row.names for row in ONE_TURN)


DAPO = [
    "data.train_files=a.parquet",
    "actor_rollout_ref.model.path=org/model",
    "algorithm.adv_estimator=grpo",
    "data.max_response_length=512",
    "reward.reward_manager.name=dapo",
    "+reward.reward_kwargs.overlong_buffer_cfg.enable=True",
    "+reward.reward_kwargs.overlong_buffer_cfg.len=64",
    "+reward.reward_kwargs.max_resp_len=512",
]


def test_an_overlong_penalty_of_verl_is_written_with_the_function_and_workflow_that_take_it() -> None:
    """Trinity's other functions raise a TypeError at its arguments, and math_workflow cannot call math_dapo_reward."""
    loaded, _ = read_document(read_yaml("", "o", allow_empty=True), dialect="verl@0.9", overrides=DAPO, environment={})
    assert loaded is not None
    text, report = write(loaded, "trinity@0.6", options={"carried": "none"})
    given = yaml.safe_load(text or "")["buffer"]["explorer_input"]
    assert (given["default_workflow_type"], given["default_reward_fn_type"]) == (
        "math_boxed_workflow",
        "math_dapo_reward",
    )
    assert given["taskset"]["reward_fn_args"]["cache_length"] == 64
    assert given["taskset"]["format"]["system_prompt"] == ""
    assert "cut-responses-masked" in {finding.code for finding in report.findings}


def test_an_overlong_penalty_is_lost_with_a_function_that_has_none() -> None:
    text = "rlctl: 1\nmodel: {path: m}\ndata: {train: [{path: a}]}\nrewards: [{type: rule, rule: countdown}]\n"
    text += "algorithm: {reward_shaping: {overlong_penalty: {limit: 400, buffer: 64}}}\n"
    there = convert(text, "trinity", dialect="rlctl", environment={})
    assert "enable_overlong_penalty" not in (there.text or "").partition("# rlctl")[0]
    assert any(
        entry.bucket is Bucket.UNSUPPORTED and "takes no overlong penalty" in entry.note
        for entry in there.report.accounting
    )


@pytest.mark.parametrize(
    ("workflow", "reward", "works"),
    [
        ("math_workflow", "math_dapo_reward", False),
        ("async_math_boxed_workflow", "math_dapo_reward", True),
        ("math_boxed_workflow", "countdown_reward", False),
        ("simple_workflow", "format_reward", False),
        ("simple_workflow", "countdown_reward", True),
        ("simple_workflow", "one_of_the_users", True),
    ],
)
def test_a_reward_function_that_the_workflow_cannot_call_is_reported(workflow: str, reward: str, works: bool) -> None:
    _, report = read_with(**{f"{INPUT}.default_workflow_type": workflow, f"{INPUT}.default_reward_fn_type": reward})
    assert ("uncallable-reward" in {finding.code for finding in report.findings}) is not works


def test_a_workflow_with_arguments_of_its_own_comes_back_without_another_reward() -> None:
    """email_search_workflow takes ``llm_as_a_judge``, which ``math_reward``, the nearest of what ROLL was given, refuses."""
    text = """
model: {model_path: org/model, max_prompt_tokens: 512, max_response_tokens: 512}
cluster: {node_num: 1, gpu_per_node: 8}
algorithm: {algorithm_type: grpo, repeat_times: 8}
buffer:
  batch_size: 32
  total_steps: 10
  explorer_input:
    taskset: {name: a, path: rows, storage_type: file, reward_fn_args: {llm_as_a_judge: true}}
    default_workflow_type: email_search_workflow
"""
    away = translate_loaded(*read_document(read_yaml(text, "a.yaml"), dialect="trinity", environment={}), "roll")
    found = read_document(read_yaml(str(away.text), "b.yaml"), dialect="roll", environment={})
    home = translate_loaded(*found, "trinity")
    tasks = read_yaml(str(home.text), "c.yaml").values["buffer"]["explorer_input"]
    assert tasks["default_workflow_type"] == "email_search_workflow"
    assert tasks["taskset"]["reward_fn_args"] == {"llm_as_a_judge": True}
    assert "default_reward_fn_type" not in tasks
    assert not [finding for finding in home.report.findings if finding.code == "not-readable"]
