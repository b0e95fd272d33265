"""A default reward that becomes another reward is the first thing that a conversion says, with what each rule reads."""

from __future__ import annotations

import pytest

from rlctl.adapters.engine.implied import RULES
from rlctl.common.ranks import Rank
from rlctl.common.report import Finding, Level
from rlctl.translation.translate import convert

VERL = """\
data: {train_files: /d/a.parquet, val_files: /d/b.parquet, train_batch_size: 8}
actor_rollout_ref: {model: {path: org/m}, actor: {ppo_mini_batch_size: 8}, rollout: {n: 4}}
trainer: {total_training_steps: 2, n_gpus_per_node: 4}
"""
DAPO = VERL + "reward: {reward_manager: {name: dapo}}\n"
FUNCTION = VERL + "reward: {custom_reward_function: {path: r.py, name: f}}\n"
TRINITY = """\
mode: both
algorithm: {algorithm_type: grpo, repeat_times: 4}
model: {model_path: org/m}
cluster: {node_num: 1, gpu_per_node: 4}
buffer:
  batch_size: 8
  total_steps: 2
  explorer_input:
    default_workflow_type: math_workflow
    default_reward_fn_type: REWARD
    taskset: {path: org/d, format: {prompt_key: question, response_key: answer}}
"""
ROLL = """\
pretrain: org/m
max_steps: 2
rollout_batch_size: 8
num_return_sequences_in_group: 4
prompt_length: 64
response_length: 64
actor_train: {data_args: {file_name: a.jsonl, messages: messages}, device_mapping: "list(range(0,2))"}
actor_infer: {device_mapping: "list(range(0,2))", strategy_args: {strategy_name: vllm}}
rewards:
  math_rule:
    worker_cls: roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker
    tag_included: [math]
"""


def _told(text: str, source: str, target: str) -> list[Finding]:
    made = convert(text, target, dialect=source, options={"explorer_gpus": "2"})
    assert made.text is not None, made.report.errors
    return [item for item in made.report.findings if item.code == "other-reward"]


@pytest.mark.parametrize(
    ("text", "source", "target", "rules"),
    [
        (VERL, "verl", "roll", (("auto", ""), ("math", "roll"))),
        (DAPO, "verl", "roll", (("auto", ""), ("math", "roll"))),
        (VERL, "verl", "trinity", (("auto", ""), ("math", "trinity"))),
        (ROLL, "roll", "trinity", (("math", "roll"), ("math", "trinity"))),
        (ROLL, "roll", "verl", (("math", "roll"), ("auto", ""))),
        (TRINITY.replace("REWARD", "math_reward"), "trinity", "roll", (("math", "trinity"), ("math", "roll"))),
        (TRINITY.replace("REWARD", "math_reward"), "trinity", "verl", (("math", "trinity"), ("auto", ""))),
    ],
)
def test_it_is_told_first_with_what_both_read(
    text: str, source: str, target: str, rules: tuple[tuple[str, str], tuple[str, str]]
) -> None:
    (told,) = _told(text, source, target)
    assert (told.level, told.rank) == (Level.WARNING, Rank.OBJECTIVE)
    assert [RULES[rule] in str(told.params[side]) for rule, side in zip(rules, ("ours", "theirs"), strict=True)] == [
        True
    ] * 2


@pytest.mark.parametrize(
    ("text", "source", "target"),
    [
        (VERL, "verl", "rlctl"),
        (DAPO, "verl@0.9", "verl@0.7"),
        (FUNCTION, "verl", "roll"),
        (ROLL, "roll", "rlctl"),
        (ROLL, "roll", "roll"),
        (TRINITY.replace("REWARD", "math_boxed_reward"), "trinity", "rlctl"),
    ],
)
def test_the_same_rule_is_not_told_and_a_lost_function_is_told_as_such(text: str, source: str, target: str) -> None:
    assert _told(text, source, target) == []


@pytest.mark.parametrize(
    ("response", "verl", "roll"),
    [
        ("It is 15.\n#### 15", 1, 0),
        ("<think>5 + 10</think>\\boxed{15}", 0, 1),
        ("I add.\n\n#### 15", 1, 1),
        ("15", 0, 0),
    ],
)
def test_the_facts_are_what_the_rules_do(response: str, verl: int, roll: int) -> None:
    """The scores that verl 0.9.1's gsm8k and ROLL's MathRuleRewardWorker gave these responses."""
    pytest.importorskip("math_verify")
    from rlctl.runtime.rewards.interface import Call
    from rlctl.runtime.rewards.rules import gsm8k, math

    def call() -> Call:
        return Call("openai/gsm8k", response, "15")

    assert (int(bool(gsm8k(call()))), int(bool(math(call(), method="roll")))) == (verl, roll)
