"""Workers of ROLL's that a rule or a judge stands for are that, with what they compute; the others stay named, for ROLL alone."""

from __future__ import annotations

from typing import Any

from rlctl.common.report import Bucket
from rlctl.config import Loaded, to_plain
from rlctl.documents import read_yaml
from rlctl.planning.plan import make_plan
from rlctl.runtime.workers.reward import scorer_of
from rlctl.translation.translate import read_document, translate_loaded

LOST = Bucket.UNSUPPORTED
ROOT = "roll.pipeline.rlvr.rewards"
TEXT = f"""
exp_name: a
pretrain: org/m
max_steps: 10
rewards:
  math_rule:
    worker_cls: {ROOT}.math_rule_reward_worker.MathRuleRewardWorker
    data_args: {{template: qwen2_5}}
    tag_included: [deepmath_103k]
    world_size: 8
    infer_batch_size: 1
  crossthinkqa:
    worker_cls: {ROOT}.crossthinkqa_rule_reward_worker.CrossThinkQARuleRewardWorker
    reward_type: soft
    response_length_penalty_coef: 0.1
    tag_included: [crossthinkqa]
  ifeval:
    worker_cls: {ROOT}.ifeval_rule_reward_worker.GeneralRuleRewardWorker
    tag_included: [ifeval]
  choice:
    worker_cls: {ROOT}.multiple_choice_boxed_rule_reward_worker.MultipleChoiceBoxedRuleRewardWorker
    tag_included: [choice]
  llm_judge:
    worker_cls: {ROOT}.llm_judge_reward_worker.LLMJudgeRewardWorker
    judge_model_type: api
    judge_model_name: big
    judge_api_url: http://host/v1
    tag_included: [RLVR]
  code_sandbox:
    use_local: true
    worker_cls: {ROOT}.code_sandbox_reward_worker.CodeSandboxRewardWorker
    tag_included: [KodCode]
actor_train:
  data_args: {{file_name: [a.jsonl]}}
"""


def read(text: str) -> Loaded:
    loaded, report = read_document(read_yaml(text, "roll.yaml"), dialect="roll", environment={})
    assert loaded is not None, report.findings
    return loaded


def rewards(loaded: Loaded) -> dict[str, Any]:
    return {reward["name"]: reward for reward in to_plain(loaded.config)["rewards"]}


def test_workers_become_the_rules_they_compute() -> None:
    loaded = read(TEXT)
    found = rewards(loaded)
    args = {
        name: (reward.get("rule"), reward.get("args")) for name, reward in found.items() if reward["type"] == "rule"
    }
    assert args == {
        "math_rule": ("math", {"method": "roll"}),
        "crossthinkqa": ("multiple_choice", {"repetition_penalty": 0.5, "scores": "soft", "length_weight": 0.1}),
        "ifeval": ("ifeval", {"repetition_penalty": 0.5}),
        "choice": ("multiple_choice", {"scores": "boxed"}),
    }
    judge = found["llm_judge"]
    assert (judge["type"], judge["base_url"], judge["model"], judge["scoring"]) == (
        "judge",
        "http://host/v1",
        "big",
        "yes_no",
    )
    code = found["code_sandbox"]
    assert (code["type"], code["url"], code["method"], code["timeout"]) == ("sandbox", None, "roll", 20.0)
    for reward in loaded.config.rewards[:-1]:
        assert scorer_of(reward) is not None
    assert make_plan(loaded.config).stages[0].role("reward") is not None


def test_they_come_back() -> None:
    first = read(TEXT)
    loaded, report = read_document(read_yaml(TEXT, "roll.yaml"), dialect="roll", environment={})
    assert loaded is not None
    made = translate_loaded(loaded, report, "roll")
    assert made.text is not None
    second = read(made.text)
    assert rewards(second) == rewards(first)
    assert first.config.carried_for("roll").items() <= second.config.carried_for("roll").items()


def test_what_comes_back_as_it_was_is_not_reported_as_lost() -> None:
    """Shares of domains, and the time limit that ROLL's sandbox has itself."""
    shares = "{file_name: [a.jsonl], domain_interleave_probs: {math_rule: 0.7, code_sandbox: 0.3}}"
    text = TEXT.replace("{file_name: [a.jsonl]}", shares)
    loaded, report = read_document(read_yaml(text, "roll.yaml"), dialect="roll", environment={})
    lost = {
        target: {item.key for item in translate_loaded(loaded, report, target).report.accounting if item.bucket is LOST}
        for target in ("roll", "verl")
    }
    assert not {key for key in lost["roll"] if "interleave" in key or "code_sandbox" in key}
    assert "actor_train.data_args.domain_interleave_probs.math_rule" in lost["verl"]


def test_a_judge_that_roll_serves_is_served_here() -> None:
    judge = f"""
  served:
    worker_cls: {ROOT}.llm_judge_reward_worker.LLMJudgeRewardWorker
    judge_model_type: inference
    judge_prompt: Qwen2.5-7B-Instruct-RLVR-prompt
    model_args: {{model_name_or_path: org/judge, dtype: bf16}}
    generating_args: {{max_new_tokens: 100, temperature: 0.8, top_p: 0.8, top_k: 50, num_beams: 1}}
    strategy_args: {{strategy_name: vllm, strategy_config: {{tensor_parallel_size: 2, max_model_len: 8000, block_size: 16}}}}
    device_mapping: list(range(4,8))
    tag_included: [served]
"""
    found = rewards(read(TEXT.replace("actor_train:", judge.strip("\n") + "\nactor_train:")))["served"]
    assert (found["type"], found["base_url"], found["model"], found["scoring"]) == (
        "judge",
        None,
        "org/judge",
        "yes_no",
    )
    assert (found["engine"], found["replicas"], found["tensor_parallel_size"]) == ("vllm", 2, 2)
    assert (found["max_context_tokens"], found["engine_args"]) == (8000, {"block_size": 16})
    drawn = {"max_tokens": 100, "temperature": 0.8, "top_p": 0.8, "top_k": 50, "repetition_penalty": 1.0}
    assert found["sampling"] == drawn
