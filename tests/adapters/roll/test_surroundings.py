"""ROLL: rewards and domains, validation, environments, trackers, checkpoints and variables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlctl.common.ranks import Rank, rank_of
from rlctl.common.report import Bucket
from rlctl.config import load
from rlctl.config.sections.agents import EnvironmentAgent
from rlctl.documents import read_yaml
from rlctl.runtime.experience.samples import evaluation_sampling
from rlctl.translation.translate import translate_loaded

from .texts import AGENTIC, RLVR, bucket, lost, read, written

JUDGE = {
    "worker_cls": "roll.pipeline.rlvr.rewards.llm_judge_reward_worker.LLMJudgeRewardWorker",
    "tag_included": ["RLVR"],
    "judge_api_key": "sk-very-secret",
    "generating_args": {"temperature": 0.8},
    "device_mapping": "[8]",
}


def test_rewards_are_domains_by_tag_and_come_back() -> None:
    loaded, report = read(RLVR, rewards__llm_judge=JUDGE)
    math, judge = loaded.config.rewards
    assert (math.choice, math.name, math.applies_to, math.workers) == ("rule", "math_rule", ("deepmath_103k",), 4)
    assert (judge.choice, judge.applies_to) == ("external", ("RLVR",))
    values, _ = written(loaded)
    assert values["rewards"]["llm_judge"]["worker_cls"] == JUDGE["worker_cls"]
    assert values["rewards"]["llm_judge"]["generating_args"] == {"temperature": 0.8}
    assert bucket(report, "rewards.llm_judge.judge_api_key") is Bucket.UNSUPPORTED
    assert "sk-very-secret" not in str(values) + str([entry.as_data() for entry in report.accounting])


def test_one_domain_is_the_whole_of_a_batch() -> None:
    values, _ = written(read(RLVR)[0])
    assert values["actor_train"]["data_args"]["domain_interleave_probs"] == {"math_rule": 1.0}


def of_domains(shares: Any) -> Any:
    code = {**JUDGE, "tag_included": ["code"]}
    return read(RLVR, actor_train__data_args__domain_interleave_probs=shares, rewards__code=code)


def test_shares_of_several_domains_are_weights_of_rewards() -> None:
    """The last domain gets what the others leave, whatever its share says."""
    shares = {"math_rule": 0.7, "code": 0.3}
    loaded, report = of_domains(shares)
    assert loaded.config.data.domain_weights == shares
    assert bucket(report, "actor_train.data_args.domain_interleave_probs.code") is Bucket.MAPPED
    values, _ = written(loaded)
    assert values["actor_train"]["data_args"]["domain_interleave_probs"] == shares
    assert of_domains({"code": 0.2, "math_rule": 0.1})[0].config.data.domain_weights == {"code": 0.2, "math_rule": 0.8}
    assert of_domains({"code": 0, "math_rule": 1})[0].config.data.domain_weights == {"math_rule": 1}
    with pytest.raises(AssertionError, match="expected a share from 0 to 1"):
        of_domains({"math_rule": "all", "code": 0.3})


@pytest.mark.parametrize("target", ["verl", "trinity"])
def test_shares_of_domains_are_lost_elsewhere(target: str) -> None:
    """The report has each share among what changes the data."""
    shares = {"math_rule": 0.7, "code": 0.3}
    loaded, report = of_domains(shares)
    made = translate_loaded(loaded, report, target)
    lost = {item.key for item in made.report.accounting if item.bucket is Bucket.UNSUPPORTED}
    assert {f"actor_train.data_args.domain_interleave_probs.{name}" for name in shares} <= lost
    assert rank_of("data.domain_weights.code") is Rank.DATA


def test_weights_of_rewards_are_shares_of_the_sum() -> None:
    loaded, _ = of_domains({"math_rule": 0.7, "code": 0.3})
    weighed = replace(loaded.config.data, domain_weights={"code": 3.0, "math_rule": 1.0, "other": 4.0})
    values, _ = written(replace(loaded, config=replace(loaded.config, data=weighed)))
    assert values["actor_train"]["data_args"]["domain_interleave_probs"] == {"code": 0.75, "math_rule": 0.25}


def test_validation_draws_as_roll_does_where_nothing_is_said() -> None:
    loaded, _ = read(RLVR, validation={"data_args": {"file_name": ["aime.jsonl"]}})
    source = loaded.config.data.eval[0]
    sampling = source.evaluation_sampling
    assert (source.path, sampling.temperature, sampling.top_p, sampling.top_k) == ("aime.jsonl", 0.95, 0.7, 50)
    values, _ = written(loaded)
    drawn = {"temperature": 0.95, "top_p": 0.7, "top_k": 50, "num_return_sequences": 1}
    assert values["validation"]["generating_args"] == drawn


@pytest.mark.parametrize(("training", "validation", "own"), [(1.1, None, 1.0), (1.1, 1.1, None), (1.0, 1.3, 1.3)])
def test_validation_has_a_repetition_penalty_of_its_own(training: float, validation: Any, own: Any) -> None:
    drawn = {} if validation is None else {"repetition_penalty": validation}
    loaded, report = read(
        RLVR,
        actor_infer__generating_args__repetition_penalty=training,
        validation={"data_args": {"file_name": ["aime.jsonl"]}, "generating_args": drawn},
    )
    source = loaded.config.data.eval[0]
    assert source.sampling == ({} if own is None else {"repetition_penalty": own})
    assert lost(report) == {}
    assert evaluation_sampling(loaded.config.rollout, source, ()).repetition_penalty == training
    values, report = written(loaded)
    assert lost(report) == {}
    assert values["validation"]["generating_args"].get("repetition_penalty", 1.0) == (validation or 1.0)


SETS = """
data: {eval: [{path: a, sampling: {repetition_penalty: 1.3, ignore_eos: true}}, {path: b}]}
rollout: {sampling: {repetition_penalty: 1.1}}
"""


def test_validation_sets_of_different_sampling_are_told() -> None:
    loaded, _ = load(read_yaml(SETS, "run.yaml"))
    assert loaded is not None
    values, report = written(loaded)
    assert values["validation"]["generating_args"]["repetition_penalty"] == 1.1
    assert lost(report).keys() == {f"data.eval[0].sampling.{name}" for name in ("ignore_eos", "repetition_penalty")}


def test_validation_lengths_are_those_of_validation() -> None:
    keys = {"val_prompt_length": 512, "val_sequence_length": 2560}
    loaded, _ = read(RLVR, validation={"data_args": {"file_name": ["aime.jsonl"]}}, **keys)
    assert loaded.config.data.eval[0].evaluation_sampling.max_response_tokens == 2048
    values, _ = written(loaded)
    assert values["val_sequence_length"] - values["val_prompt_length"] == 2048


def test_environments_come_back_with_their_kinds_and_settings() -> None:
    loaded, report = read(AGENTIC, batch_adjust_mode="delete", train_env_manager__format_penalty=-0.15)
    [agent], [source] = loaded.config.rollout.agents, loaded.config.data.train
    assert isinstance(agent, EnvironmentAgent)
    assert (agent.name, agent.max_turns, source.agent, source.format, source.max_samples) == (
        *("Sokoban", 10, "Sokoban", "episodes", 16),
    )
    assert loaded.config.batch.responses_per_prompt == 8
    assert [(one.agent, one.max_samples) for one in loaded.config.data.eval] == [("Sokoban", 128)], (
        "128 trajectories of 64 environments"
    )
    assert bucket(report, "custom_envs.Sokoban.env_type") is Bucket.MAPPED
    assert bucket(report, "train_env_manager.format_penalty") is Bucket.DEAD
    values, _ = written(loaded)
    environment = values["custom_envs"]["Sokoban"]
    assert (environment["env_type"], environment["max_steps"]) == ("sokoban", 10)
    assert values["val_env_manager"]["num_env_groups"] == values["val_batch_size"] == 128


def test_a_tracker_keeps_its_arguments() -> None:
    given = {"project": "alpha", "name": "first", "tags": ["a"]}
    loaded, _ = read(RLVR, track_with="wandb", tracker_kwargs=given)
    assert loaded.config.run.project == "alpha"
    values, report = written(loaded)
    assert (values["track_with"], values["tracker_kwargs"]) == ("wandb", given)
    assert lost(report) == {}


def test_a_run_goes_on_from_the_checkpoint_that_is_named() -> None:
    loaded, _ = read(RLVR, resume_from_checkpoint="/ckpt/checkpoint-50", save_steps=1_000_000)
    assert (loaded.config.checkpoint.resume, loaded.config.checkpoint.every) == ("path", None)
    values, _ = written(loaded)
    assert (values["resume_from_checkpoint"], values["save_steps"]) == ("/ckpt/checkpoint-50", 1_000_000)


def test_variables_of_the_run_and_of_roles_are_text() -> None:
    loaded, _ = read(RLVR, system_envs={"NCCL_DEBUG": "INFO", "RAY_PROFILING": 1}, actor_infer__system_envs={"A": True})
    runtime = loaded.config.runtime
    assert runtime.env_vars == {"NCCL_DEBUG": "INFO", "RAY_PROFILING": "1"}
    assert runtime.role_env_vars == {"rollout": {"A": "true"}}
    values, _ = written(loaded)
    assert values["actor_infer"]["system_envs"] == {"A": "true"}


def test_minutes_there_are_seconds_here() -> None:
    loaded, _ = read(RLVR, actor_train__backend_timeout=60)
    assert loaded.config.runtime.ray.collective_timeout == 3600.0
    values, _ = written(loaded)
    assert values["actor_train"]["backend_timeout"] == 60


def test_the_managers_own_sampling_holds_where_the_engine_has_none() -> None:
    """With a sampling of its own, the engine's holds for training and evaluation alike."""
    own = {"temperature": 0.2, "max_new_tokens": 128}
    keys = {
        "train_env_manager__generating_args": {"temperature": 0.7, "max_new_tokens": 64},
        "val_env_manager__generating_args": own,
    }
    with_engine, report = read(AGENTIC, **keys)
    assert with_engine.config.rollout.sampling.temperature == 0.99
    assert bucket(report, "train_env_manager.generating_args.temperature") is Bucket.DEAD
    text = AGENTIC.replace("  generating_args: {max_new_tokens: 128, temperature: 0.99, top_p: 0.99, top_k: 100}\n", "")
    alone, _ = read(text, **keys)
    rollout = alone.config.rollout
    assert (rollout.sampling.temperature, rollout.sampling.top_p, rollout.agents[0].max_turn_tokens) == (0.7, 0.7, 64)
    values, _ = written(alone)
    assert "generating_args" not in values["actor_infer"]
    assert values["train_env_manager"]["generating_args"]["temperature"] == 0.7
    assert values["val_env_manager"]["generating_args"]["temperature"] == own["temperature"]
