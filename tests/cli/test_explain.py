"""``explain`` says of a key what the schema says, in words and as data."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from rlctl.config import Config
from rlctl.config.inspect import walk
from rlctl.planning.support import status_of


def test_a_key_shows_its_facts(rlctl: Any) -> None:
    shown = rlctl("explain", "batch.mini_batch_responses")
    assert shown.code == 0
    facts = dict(
        line.split(maxsplit=1) for line in shown.out.splitlines() if line.startswith("  ") and len(line.split()) > 1
    )
    assert facts["unit"] == "responses"
    assert facts["range"] == "at least 1"
    assert facts["default"] == "null"
    assert facts["launch"] == "supported"


def test_titles_are_in_the_chosen_language(rlctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCTL_LANGUAGE", "zh")
    shown = rlctl("explain", "batch.mini_batch_responses").out
    assert "  默认值    null" in shown
    assert not re.search(r"\b(type|default|unit|launch|in each framework)\b", shown)


def test_a_choice_shows_its_options_and_which_runs_refuse(rlctl: Any) -> None:
    shown = rlctl("explain", "algorithm.advantage").out
    for name in ("grpo", "rloo", "gae"):
        assert f"    {name} " in shown
    assert "normalize_by_std, epsilon" in shown


def test_a_section_shows_its_keys(rlctl: Any) -> None:
    shown = rlctl("explain", "train.optimizer").out
    assert "  lr " in shown
    assert "Peak learning rate" in shown


def test_json_holds_the_same(rlctl: Any) -> None:
    found = json.loads(rlctl("explain", "train.optimizer.lr", "--json").out)
    assert found["pattern"] == "train.optimizer.lr"
    assert found["default"] == "1e-06"
    assert found["support"] == str(status_of("train.optimizer.lr").status)


def test_an_unknown_key_fails_with_the_nearest(rlctl: Any) -> None:
    shown = rlctl("explain", "lr_schedulr")
    assert (shown.code, shown.out) == (1, "")
    assert "train.lr_scheduler" in shown.err


def test_every_key_can_be_shown(rlctl: Any) -> None:
    from rlctl.cli.explain import lines
    from rlctl.config.explain import explain

    for key in walk(Config):
        assert len(list(lines(explain(key.pattern)))) > 3


def test_a_canonical_key_shows_its_name_and_default_in_each_dialect(rlctl: Any) -> None:
    shown = rlctl("explain", "train.optimizer.lr").out
    assert "actor_rollout_ref.actor.optim.lr (1e-06)" in shown
    assert "algorithm.optimizer.lr (1e-06)" in shown
    dropped = rlctl("explain", "algorithm.loss_aggregation.scale_factor").out
    assert "no key: Trinity divides by the longest response" in dropped
    choice = rlctl("explain", "algorithm.advantage").out
    assert "algorithm.adv_estimator (gae)" in choice


def test_a_key_of_a_dialect_leads_to_the_canonical_one(rlctl: Any) -> None:
    shown = rlctl("explain", "actor_rollout_ref.rollout.n")
    assert shown.code == 0
    assert "means batch.responses_per_prompt" in shown.out
    assert "algorithm.repeat_times (1)" in shown.out
    only = rlctl("explain", "trinity:algorithm.repeat_times").out
    assert "in 0.4-0.6" in only
    carried = rlctl("explain", "trainer.esi_redundant_time").out
    assert "kept, but not used: applies only to elastic instances of verl's cloud setup" in carried


def test_a_key_that_nobody_has_names_near_ones_of_every_dialect(rlctl: Any) -> None:
    shown = rlctl("explain", "data.train_bach_size")
    assert shown.code == 1
    assert "similar keys: data.train_batch_size" in shown.err


def test_json_has_names_and_meanings(rlctl: Any) -> None:
    ours = json.loads(rlctl("explain", "batch.ppo_epochs", "--json").out)
    assert {item["dialect"] for item in ours["dialects"]} >= {"verl", "trinity"}
    theirs = json.loads(rlctl("explain", "data.train_batch_size", "--json").out)
    assert [(item["dialect"], item["canonical"]) for item in theirs["meanings"]] == [
        ("verl", ["batch.prompts_per_step"])
    ]


def test_a_word_of_another_tool_finds_the_key(rlctl: Any) -> None:
    for word, key in {
        "max_num_seqs": "rollout.memory.max_num_seqs",
        "num_generations": "batch.responses_per_prompt",
        "val_files": "data.eval[].path",
        "async_generation_ratio": "weight_sync.max_steps_ahead",
        "ppo_mini_batch_size": "batch.mini_batch_responses",
        "sync_interval": "weight_sync.every",
        "enable_prefix_caching": "rollout.memory.prefix_caching",
    }.items():
        shown = rlctl("explain", word)
        assert (shown.code, shown.err) == (0, "")
        assert key in shown.out, word
    assert json.loads(rlctl("explain", "epsilon", "--json").out)["keys"][0] == "algorithm.policy_loss.clip_low"


def test_the_likeliest_key_of_a_word_comes_first() -> None:
    """Words of verl, ROLL and TRL that set several keys, types of options, and parts of names."""
    from rlctl.adapters.engine.words import canonical_for

    for word, key in {
        "staleness_threshold": "weight_sync.max_staleness_steps",
        "max_staleness": "weight_sync.max_staleness_steps",
        "whiten_advantages": "algorithm.advantage.whiten",
        "sync_interval": "weight_sync.every",
        "micro_batch_size_per_gpu": "batch.micro_batch.size",
        "use_sequence_packing": "train.packing",
        "remove_padding": "train.packing",
        "loss_agg_mode": "algorithm.loss_aggregation.mode",
        "loss_aggregation": "algorithm.loss_aggregation",
        "gdpo": "algorithm.advantage.type",
        "fsdp2": "train.engine.type",
        "wandb": "tracking[].type",
        "kl": "algorithm.kl_in_loss.coefficient",
        "tp": "rollout.parallel.tensor_parallel_size",
        "mini batch": "batch.mini_batch_responses",
        "micro batch": "batch.micro_batch.size",
        "gpu memory": "rollout.memory.gpu_memory_utilization",
        "learning rate": "train.optimizer.lr",
        "Rollout n": "batch.responses_per_prompt",
        "max tokens": "rollout.max_response_tokens",
        "save freq": "checkpoint.every",
        "grad norm": "train.optimizer.max_grad_norm",
        "respon": "batch.responses_per_prompt",
        "beta": "algorithm.kl_in_loss.coefficient",
        "clip": "algorithm.policy_loss.clip_low",
        "temperature": "rollout.sampling.temperature",
        "hybrid_engine": "placement.layout",
        "n_samples_per_prompt": "batch.responses_per_prompt",
        "micro_rollout_batch_size": "batch.log_prob_micro_batch.size",
        "init_kl_coef": "algorithm.kl_in_reward.coefficient",
        "per_device_train_batch_size": "batch.micro_batch.size",
        "--rollout-max-response-len": "rollout.max_response_tokens",
        "--num-rollout": "schedule.total_steps",
        "--hf-checkpoint": "model.path",
        "--colocate": "placement.layout",
        "vllm.gpu_memory_utilization": "rollout.memory.gpu_memory_utilization",
        "off-policy": "weight_sync.max_steps_ahead",
        "token level loss": "algorithm.loss_aggregation.mode",
    }.items():
        assert canonical_for(word)[0] == key, word
    assert canonical_for("nonsense") == []


def test_the_words_of_trl_and_vllm_are_theirs() -> None:
    from dataclasses import fields

    from trl import GRPOConfig
    from vllm.engine.arg_utils import EngineArgs

    from rlctl.adapters.engine.words import COMMON, TOOLS, TRL, VLLM
    from rlctl.config.explain import explain

    assert TRL.keys() <= {field.name for field in fields(GRPOConfig)}
    assert VLLM.keys() <= {field.name for field in fields(EngineArgs)}
    for path in (path for table in (COMMON, *TOOLS.values()) for paths in table.values() for path in paths):
        assert explain(path.removesuffix(".type"))


def test_a_short_name_means_the_training_key_also_where_another_program_has_it(rlctl: Any) -> None:
    shown = rlctl("explain", "rollout.n").out
    assert shown.startswith("batch.responses_per_prompt")
    assert "actor_rollout_ref.rollout.n" in shown


def test_a_key_is_explained_by_what_it_fills_and_by_nothing_else(rlctl: Any) -> None:
    """A rule that reads several keys says which fills what."""
    for key, canonical in {
        "data.image_key": ["data.train[].image_key", "data.eval[].image_key"],
        "actor_rollout_ref.actor.use_kl_loss": ["algorithm.kl_in_loss"],
        "actor_rollout_ref.rollout.val_kwargs.temperature": ["data.eval[].evaluation_sampling.temperature"],
        "verl:critic.use_dynamic_bsz": ["critic.micro_batch.unit"],
        "trinity:algorithm.advantage_fn_args.tau": ["algorithm.advantage.tau"],
        "roll:init_kl_coef": ["algorithm.kl_in_reward.coefficient"],
        "trainer.logger": ["tracking[].type"],
    }.items():
        found = json.loads(rlctl("explain", key, "--json").out)
        assert [meaning["canonical"] for meaning in found["meanings"]] == [canonical], key
        assert "no key of rlctl" not in rlctl("explain", key).out


def test_an_option_is_told_as_it_is_written_in_a_script(rlctl: Any) -> None:
    assert rlctl("explain", "rollout-max-response-len").out.startswith("rollout-max-response-len in slime is:")


def test_a_word_of_another_tool_is_said_to_be_its_own(rlctl: Any) -> None:
    shown = rlctl("explain", "num_generations").out
    assert shown.startswith("num_generations in TRL")
    assert "batch.responses_per_prompt" in shown
    assert "in TRL, vLLM" not in rlctl("explain", "mini batch").out
