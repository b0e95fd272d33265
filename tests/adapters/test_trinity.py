"""What Trinity-RFT's keys mean, release by release: each case was read in Trinity's own source."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlctl.adapters import dialect
from rlctl.adapters.engine.rules import ABSENT, version_of
from rlctl.adapters.engine.table import generic
from rlctl.adapters.engine.tree import find, put
from rlctl.common.report import Bucket, Entry, Origin, Report
from rlctl.config import config_from, to_plain
from rlctl.config.sections.rewards import JudgeReward
from rlctl.documents import dotted, parse_dotted, read_yaml
from rlctl.planning import support
from rlctl.planning.plan import make_plan
from rlctl.translation.translate import convert, read_document, translate_loaded, write

from .cases import BASE

SHARED = Path(__file__).parents[3] / "shared"
TRAINER = "trainer.trainer_config"
ACTOR = f"{TRAINER}.actor_rollout_ref.actor"
PLAIN: dict[str, Any] = {
    "algorithm": {"algorithm_type": "grpo", "repeat_times": 8},
    "model": {"model_path": "org/model", "max_prompt_tokens": 512, "max_response_tokens": 512, "max_model_len": 1024},
    "cluster": {"node_num": 1, "gpu_per_node": 8},
    "buffer": {
        "batch_size": 32,
        "explorer_input": {"taskset": {"name": "t", "path": "data"}, "default_workflow_type": "math_workflow"},
    },
    "explorer": {"rollout_model": {"engine_num": 4}},
    "trainer": {"save_interval": 10},
}


def read_with(release: str, **keys: Any) -> tuple[dict[str, Any], Report]:
    """The plain canonical config of a small file with some keys set; ``__`` stands for a dot."""
    tree: dict[str, Any] = yaml.safe_load(yaml.safe_dump(PLAIN))
    for name, value in keys.items():
        put(tree, parse_dotted(name), value)
    document = read_yaml(yaml.safe_dump(tree), "run.yaml")
    loaded, report = read_document(document, dialect=f"trinity@{release}", environment={})
    assert loaded is not None, [finding.message for finding in report.errors]
    return dict(to_plain(loaded.config)), report


CASES: list[tuple[str, dict[str, Any], str, Any]] = [
    # Arguments replace their defaults, and loss_agg_mode replaces the one among them.
    (
        "0.6",
        {"algorithm.policy_loss_fn_args": {"clip_range": 0.1, "loss_agg_mode": "seq-mean-token-sum"}},
        "algorithm.loss_aggregation.mode",
        "token_mean",
    ),
    ("0.6", {"algorithm.loss_agg_mode": "seq-mean-token-sum"}, "algorithm.loss_aggregation.mode", "seq_mean_token_sum"),
    (
        "0.6",
        {"algorithm.loss_agg_mode": "seq-mean-token-sum", "algorithm.policy_loss_fn_args": {"clip_range": 0.1}},
        "algorithm.loss_aggregation.mode",
        "token_mean",
    ),
    ("0.6", {"algorithm.algorithm_type": "gspo"}, "algorithm.loss_aggregation.mode", "token_mean"),
    (
        "0.6",
        {"algorithm.algorithm_type": "gspo", "algorithm.policy_loss_fn_args": {"clip_range": 0.1}},
        "algorithm.loss_aggregation.mode",
        "seq_mean_token_mean",
    ),
    (
        "0.6",
        {"algorithm.policy_loss_fn_args": {"clip_range": 0.1, "enable_sequence_masking": True}},
        "algorithm.policy_loss.type",
        "trinity.ppo",
    ),
    ("0.6", {"algorithm.advantage_fn_args": {"std_cal_level": "batch"}}, "algorithm.advantage.type", "trinity.grpo"),
    (
        "0.6",
        {"algorithm.algorithm_type": "gigpo", "algorithm.advantage_fn_args": {"omega": 0.5, "fnorm": "std"}},
        "algorithm.advantage",
        {
            "type": "gigpo",
            "whiten": False,
            "clip": None,
            "episode_weight": 1.0,
            "step_weight": 0.5,
            "gamma": 1.0,
            "normalize_by_std": True,
            "epsilon": 1e-6,
            "anchor_scope": "batch",
        },
    ),
    (
        "0.6",
        {"algorithm.algorithm_type": "gigpo", "algorithm.advantage_fn_args": {"step_reward_key": "own"}},
        "algorithm.advantage.type",
        "trinity.gigpo",
    ),
    (
        "0.5",
        {
            "algorithm.algorithm_type": "multi_step_grpo",
            "algorithm.advantage_fn_args": {"enable_step_norm": True, "std_threshold": 0.1, "std_cal_level": "batch"},
        },
        "algorithm.advantage",
        {
            "type": "step_wise_grpo",
            "whiten": False,
            "clip": None,
            "divide_by_steps": True,
            "std_over": "batch",
            "drop_below_std": 0.1,
            "epsilon": 1e-6,
        },
    ),
    # Where no arguments are given mu is 8.5, which is canonical; beside others it is 2.
    ("0.6", {"algorithm.advantage_fn": "clipv"}, "algorithm.advantage.args", {}),
    (
        "0.6",
        {"algorithm.advantage_fn": "clipv", "algorithm.advantage_fn_args": {"max_frac": 0.1}},
        "algorithm.advantage.args",
        {"mu": 2.0, "max_frac": 0.1},
    ),
    ("0.6", {"algorithm.algorithm_type": "on_policy_distill"}, "algorithm.policy_loss.type", "ppo_clip"),
    ("0.6", {"algorithm.algorithm_type": "dapo"}, "algorithm.kl_in_loss", None),
    ("0.6", {}, "algorithm.kl_in_loss.estimator", "k2"),
    # The gradient clip is under another key in each release.
    ("0.5", {"trainer.grad_clip": 0.5, "algorithm.optimizer.clip_grad": 0.25}, "train.optimizer.max_grad_norm", 0.5),
    ("0.6", {"trainer.grad_clip": 0.5, "algorithm.optimizer.clip_grad": 0.25}, "train.optimizer.max_grad_norm", 0.25),
    ("0.5", {"trainer.grad_clip": 0.5, f"{ACTOR}.grad_clip": 0.125}, "train.optimizer.max_grad_norm", 0.125),
    (
        "0.5",
        {"trainer.trainer_strategy": "megatron", "algorithm.optimizer.clip_grad": 0.25},
        "train.optimizer.max_grad_norm",
        0.25,
    ),
    # verl's optimizer is replaced in 0.5 and decides in 0.6.
    ("0.5", {f"{ACTOR}.optim.lr": 1e-3}, "train.optimizer.lr", 1e-6),
    ("0.6", {f"{ACTOR}.optim.lr": 1e-3}, "train.optimizer.lr", 1e-3),
    # A warm-up of 0 steps is one in 0.5 and leaves it to the ratio in 0.6; a step of the trainer is all its passes.
    ("0.5", {"algorithm.optimizer.lr_warmup_steps": 0}, "train.lr_scheduler.warmup_steps", 0),
    ("0.6", {"algorithm.optimizer.lr_warmup_steps": 0}, "train.lr_scheduler.warmup_steps", None),
    (
        "0.6",
        {"algorithm.optimizer.lr_warmup_steps": 5, f"{ACTOR}.ppo_epochs": 2},
        "train.lr_scheduler.warmup_steps",
        10,
    ),
    # The critic does not follow the policy's passes.
    ("0.6", {"algorithm.algorithm_type": "ppo", f"{ACTOR}.ppo_epochs": 2}, "critic.ppo_epochs", 1),
    ("0.6", {"algorithm.algorithm_type": "ppo"}, "critic.ppo_epochs", None),
    # A ratio is of the trainer's steps, rounded down, before it is all passes: int(0.25 x 35) x 2, not int(0.25 x 70).
    *(
        (
            "0.6",
            {
                "algorithm.optimizer.lr_warmup_steps_ratio": 0.25,
                "trainer.total_steps": total,
                f"{ACTOR}.ppo_epochs": 2,
            },
            f"train.lr_scheduler.{field}",
            value,
        )
        for total, field, value in ((35, "warmup_steps", 16), (36, "warmup_ratio", 0.25))
    ),
    # Micro-batches: 0.5 raises them to the longest sequence, and lets the actor's own keys decide.
    ("0.5", {"trainer.max_token_len_per_gpu": 600}, "batch.micro_batch.size", 1024),
    ("0.6", {"trainer.max_token_len_per_gpu": 600}, "batch.micro_batch.size", 600),
    (
        "0.5",
        {"trainer.max_token_len_per_gpu": 4096, f"{ACTOR}.ppo_max_token_len_per_gpu": 2048},
        "batch.micro_batch.size",
        2048,
    ),
    (
        "0.6",
        {"trainer.max_token_len_per_gpu": 4096, f"{ACTOR}.ppo_max_token_len_per_gpu": 2048},
        "batch.micro_batch.size",
        4096,
    ),
    # Old log-probs.
    ("0.5", {f"{TRAINER}.algorithm.rollout_correction.bypass_mode": False}, "algorithm.old_log_probs", "recompute"),
    ("0.6", {f"{TRAINER}.algorithm.rollout_correction.bypass_mode": False}, "algorithm.old_log_probs", "rollout"),
    ("0.6", {"algorithm.bypass_old_logprobs": False}, "algorithm.old_log_probs", "recompute"),
    # The critic of 0.5 clips values to the old ones unless told otherwise.
    ("0.5", {"algorithm.algorithm_type": "ppo"}, "critic.value_loss.clip", 0.0),
    ("0.6", {"algorithm.algorithm_type": "ppo"}, "critic.value_loss.clip", 0.5),
    ("0.6", {"algorithm.algorithm_type": "ppo", "trainer.param_offload": True}, "critic.engine.offload", "parameters"),
    # Since 0.6 training logits are divided by the model's temperature.
    ("0.6", {"buffer.explorer_input.taskset.rollout_args.temperature": 0.7}, "algorithm.train_temperature", "one"),
    ("0.5", {"buffer.explorer_input.taskset.rollout_args.temperature": 0.7}, "algorithm.train_temperature", "sampling"),
    # Models beside the policy take devices of the explorer.
    (
        "0.6",
        {"explorer.auxiliary_models": [{"model_path": "org/judge", "engine_num": 2}]},
        "placement.rollout_devices",
        6,
    ),
    # Steps of the explorer between synchronisations make a canonical step.
    ("0.6", {"synchronizer.sync_interval": 2, "synchronizer.explorer_sync_interval": 4}, "batch.prompts_per_step", 128),
    # 0.4 has other names for styles and orders, room for two longest sequences, and no least learning rate.
    ("0.4", {"synchronizer.sync_style": "dynamic_by_explorer"}, "weight_sync.style", "explorer_driven"),
    ("0.4", {"trainer.max_token_len_per_gpu": 600}, "batch.micro_batch.size", 2048),
    ("0.4", {}, "train.lr_scheduler.min_lr_ratio", 0.0),
    ("0.5", {}, "train.lr_scheduler.min_lr_ratio", 0.01),
    *(
        (release, {f"buffer.explorer_input.taskset.{name}.selector_type": "random"}, "data.curriculum.order", "random")
        for name, releases in (("task_selector", ("0.4", "0.5", "0.6")), ("data_selector", ("0.5", "0.6")))
        for release in releases
    ),
    # Megatron recomputes everything unless told otherwise.
    ("0.6", {"trainer.trainer_strategy": "megatron"}, "train.engine.recompute_granularity", "full"),
]


@pytest.mark.parametrize(("release", "keys", "canonical", "expected"), CASES)
def test_a_key_means_what_it_means_in_its_release(
    release: str, keys: dict[str, Any], canonical: str, expected: Any
) -> None:
    plain, _ = read_with(release, **keys)
    assert find(plain, tuple(canonical.split("."))) == expected


@pytest.mark.parametrize(
    ("release", "key"),
    [
        ("0.6", "trainer.grad_clip"),
        ("0.6", f"{ACTOR}.grad_clip"),
        ("0.5", f"{ACTOR}.optim.lr"),
        ("0.6", f"{TRAINER}.trainer.critic_warmup"),
        ("0.5", "algorithm.optimizer.clip_grad"),
        ("0.6", "algorithm.kl_penalty_fn"),
    ],
)
def test_a_key_that_its_release_ignores_is_dead(release: str, key: str) -> None:
    _, report = read_with(release, **{key: "k2" if key.endswith("fn") else 2})
    assert [entry.bucket for entry in report.accounting if entry.key == key] == [Bucket.DEAD]


@pytest.mark.parametrize(
    "key",
    [
        "buffer.explorer_input.taskset.format.promt_key",
        "buffer.explorer_input.taskset.rollout_args.temprature",
        "buffer.trainer_input.experience_buffer.capacitty",
        "algorithm.policy_loss_fn_args.clip_rang",
        f"{ACTOR}.ppo_epoch",
        "explorer.rollout_model.enforce_eagre",
        "synchronizer.sync_intervall",
    ],
)
def test_a_misspelt_key_is_unknown_wherever_it_stands(key: str) -> None:
    _, report = read_with("0.6", **{key: 1})
    assert [entry.bucket for entry in report.accounting if entry.key == key] == [Bucket.UNKNOWN]


def test_names_of_the_users_own_are_no_unknown_keys() -> None:
    taskset = "buffer.explorer_input.taskset"
    keys = {f"{taskset}.workflow_args.mine": 1, f"{taskset}.reward_fn_args.mine": 1, "explorer.env_vars.MINE": "1"}
    keys[f"{taskset}.default_reward_fn_type"] = "mine"
    _, report = read_with("0.6", **keys)
    assert Bucket.UNKNOWN not in {entry.bucket for entry in report.accounting}


def test_tinker_is_the_engine_that_trains() -> None:
    """A remote service: nothing of it is carried past the engine, so that a run with it is refused."""
    canonical, _ = read_with("0.6", **{"model.tinker.enable": True, "model.tinker.rank": 32})
    assert canonical["train"]["engine"] == {"type": "tinker", "args": {"rank": 32}}
    assert support.refusals(config_from(canonical))[0].key == ("train", "engine")
    back = written("0.6", **{"train.engine": {"type": "tinker", "args": {"rank": 32}}})
    assert back["model"]["tinker"] == {"enable": True, "rank": 32}
    off, report = read_with("0.6", **{"model.tinker.enable": False, "model.tinker.rank": 32})
    assert off["train"]["engine"]["type"] == "fsdp2"
    assert next(entry for entry in report.accounting if entry.key == "model.tinker.rank").bucket is Bucket.DEAD


def written(release: str, **changes: Any) -> dict[str, Any]:
    """What is written for a config with some canonical keys set."""
    tree: dict[str, Any] = yaml.safe_load(yaml.safe_dump(BASE))
    for name, value in changes.items():
        put(tree, tuple(name.split(".")), value)
    text, report = write_plain(tree, release)
    assert text is not None, report.findings
    return dict(yaml.safe_load(text))


def write_plain(tree: dict[str, Any], release: str) -> tuple[str | None, Report]:
    config = config_from(tree)
    loaded, _ = read_document(read_yaml(yaml.safe_dump({"rlctl": 1, **tree}), "run.yaml"), dialect="rlctl")
    assert loaded is not None
    assert loaded.config == config
    return write(loaded, f"trinity@{release}", options={"carried": "none"})


@pytest.mark.parametrize(
    ("release", "changes", "key", "expected"),
    [
        (
            "0.6",
            {"algorithm.advantage": {"type": "clipv", "args": {"max_frac": 0.1}}},
            "algorithm.advantage_fn_args.mu",
            8.5,
        ),
        # rlctl's critic has the policy's passes, Trinity's has one.
        (
            "0.6",
            {"algorithm.advantage.type": "gae", "critic": {}, "batch.ppo_epochs": 2},
            f"{TRAINER}.critic.ppo_epochs",
            2,
        ),
        # 0 would leave nothing of any gradient.
        ("0.6", {"train.optimizer.max_grad_norm": None}, "algorithm.optimizer.clip_grad", 1e9),
        ("0.5", {"train.optimizer.max_grad_norm": 0.5}, "trainer.grad_clip", 0.5),
        # Whole seconds, or Trinity refuses the file.
        ("0.6", {"rollout.timeouts.response": 900.0}, "explorer.max_timeout", 900),
        ("0.6", {"rollout.timeouts.response": None}, "explorer.max_timeout", 604800),
        ("0.6", {"weight_sync.timeout": 1200.0}, "synchronizer.sync_timeout", 1200),
        # Training logits stay as they are where only the task set has a temperature.
        (
            "0.6",
            {"algorithm.train_temperature": "one", "rollout.sampling.temperature": 0.7},
            "buffer.explorer_input.taskset.rollout_args.temperature",
            0.7,
        ),
        ("0.6", {"algorithm.train_temperature": "one", "rollout.sampling.temperature": 0.7}, "model.temperature", 1.0),
        # Prompt and response fit in the context, which Trinity checks.
        (
            "0.6",
            {
                "model.max_context_tokens": 8000,
                "data.max_prompt_tokens": 2048,
                "rollout.max_response_tokens": 8192,
            },
            "model.max_model_len",
            10240,
        ),
        # One string, which is a pattern of PEFT's.
        (
            "0.6",
            {"model.lora": {"rank": 8, "alpha": 8, "target_modules": ["q_proj", "v_proj"]}},
            "model.lora_configs",
            [{"name": "lora", "lora_rank": 8, "lora_alpha": 8, "target_modules": r".*\.(q_proj|v_proj)"}],
        ),
        # Engines that leave a trainer devices that divide its batch: 4 of 8, where the source has 2 and idles 2.
        (
            "0.5",
            {
                "batch": {"prompts_per_step": 64, "responses_per_prompt": 8},
                "placement": {
                    "layout": "explicit",
                    "nodes": 1,
                    "devices_per_node": 8,
                    "roles": {"policy": {"devices": [0, 1, 2, 3]}, "rollout": {"devices": [4, 5]}},
                },
            },
            "explorer.rollout_model.engine_num",
            4,
        ),
        # Engines that leave a trainer whole nodes.
        (
            "0.6",
            {
                "placement": {"layout": "split", "nodes": 2, "devices_per_node": 8, "rollout_devices": 4},
                "rollout.parallel": {"tensor_parallel_size": 1},
            },
            "explorer.rollout_model.engine_num",
            8,
        ),
        (
            "0.6",
            {
                "placement": {"layout": "colocated", "nodes": 3, "devices_per_node": 8},
                "rollout.parallel": {"tensor_parallel_size": 4},
            },
            "explorer.rollout_model.engine_num",
            2,
        ),
        (
            "0.6",
            {
                "placement": {"layout": "colocated", "nodes": 1, "devices_per_node": 8},
                "rollout.parallel": {"tensor_parallel_size": 8},
            },
            "explorer.rollout_model.tensor_parallel_size",
            4,
        ),
    ],
)
def test_a_value_is_written_as_trinity_takes_it(release: str, changes: dict[str, Any], key: str, expected: Any) -> None:
    value = find(written(release, **changes), tuple(key.split(".")))
    assert value == expected
    assert isinstance(value, type(expected))


def test_files_of_one_name_become_task_sets_of_different_names() -> None:
    sources = [{"path": "gsm8k/train.parquet"}, {"path": "math/train.parquet"}]
    sets = written("0.6", **{"data.train": sources})["buffer"]["explorer_input"]["tasksets"]
    assert [item["name"] for item in sets] == ["gsm8k_train", "math_train"]


def test_the_warm_up_of_megatron_begins_at_the_lowest_rate() -> None:
    changes: dict[str, Any] = {
        "train.engine.type": "megatron",
        "train.lr_scheduler.warmup_steps": 4,
        "train.lr_scheduler.min_lr_ratio": 0.0,
    }
    assert written("0.6", **changes)["algorithm"]["optimizer"]["min_lr_ratio"] == 0.0
    keys = {"trainer.trainer_strategy": "megatron", "algorithm.optimizer.lr_warmup_steps": 4}
    config, _ = read_with("0.6", **keys)
    assert config["train"]["lr_scheduler"]["warmup_start_lr"] == pytest.approx(1e-8)


@pytest.mark.parametrize(
    ("steps", "changes", "expected", "told"),
    [
        # int(0.25 x 39) steps of 2 mini-batches; Trinity's own rounding gives int(0.25 x 78) = 19.
        (39, {"batch.mini_batch_responses": 128}, {"lr_warmup_steps": 18}, None),
        (40, {"batch.mini_batch_responses": 128}, {"lr_warmup_steps_ratio": 0.25}, None),
        # int(0.25 x 70) = 17 optimizer steps are no whole number of trainer steps, each of which is 2 passes.
        (
            35,
            {"batch.ppo_epochs": 2, "train.lr_scheduler.step_unit": "optimizer_step"},
            {"lr_warmup_steps": 9},
            8.5,
        ),
    ],
)
def test_a_warm_up_by_ratio_has_the_optimizer_steps_of_its_source(
    steps: int, changes: dict[str, Any], expected: dict[str, Any], told: float | None
) -> None:
    tree = yaml.safe_load(yaml.safe_dump(BASE))
    given = {"schedule.total_steps": steps, "batch.mini_batch_responses": 256, "train.lr_scheduler.warmup_ratio": 0.25}
    for name, value in (given | changes).items():
        put(tree, parse_dotted(name), value)
    text, report = write_plain(tree, "0.6")
    assert text is not None
    optimizer = yaml.safe_load(text)["algorithm"].get("optimizer", {})
    assert {name: value for name, value in optimizer.items() if "warmup" in name} == expected
    (entry,) = (entry for entry in report.accounting if entry.key == "train.lr_scheduler.warmup_ratio")
    if told is None:
        assert entry.bucket in (Bucket.MAPPED, Bucket.DERIVED)
    else:
        assert entry.bucket is Bucket.APPROXIMATED
        assert f"{told} became {expected['lr_warmup_steps']}" in entry.note


@pytest.mark.parametrize(
    ("rows", "expected"),
    [("100", {"total_steps": 12}), ("128", {"total_epochs": 3}), ("", {"total_epochs": 3})],
)
def test_epochs_that_drop_their_rest_are_written_as_steps_where_the_data_is_known(rows: str, expected: Any) -> None:
    # 3 epochs of 100 rows by 64 a step are 3 steps of 4 train steps where each epoch drops 36 rows, 4 steps where it does not.
    tree: dict[str, Any] = {**BASE, "schedule": {"total_epochs": 3}, "data": {**BASE["data"], "last_batch": "drop"}}
    loaded, _ = read_document(read_yaml(yaml.safe_dump({"rlctl": 1, **tree}), "run.yaml"), dialect="rlctl")
    assert loaded is not None
    text, report = write(loaded, "trinity@0.6", options={"dataset_rows": rows} if rows else {})
    assert text is not None, report.findings
    buffer = yaml.safe_load(text)["buffer"]
    assert {key: buffer[key] for key in ("total_steps", "total_epochs") if key in buffer} == expected


@pytest.mark.parametrize(("mini", "bypass"), [(64, True), (256, False)])
def test_old_log_probs_are_computed_anew_only_where_a_step_is_one_train_step(mini: int, bypass: bool) -> None:
    changes: dict[str, Any] = {"batch.mini_batch_responses": mini, "algorithm.old_log_probs": "recompute"}
    assert written("0.6", **changes)["algorithm"]["bypass_old_logprobs"] is bypass


def test_several_task_sets_are_written_as_such_alone_with_all_that_belongs_to_each() -> None:
    sources = [{"path": "a.parquet", "name": "a"}, {"path": "b.parquet", "name": "b"}]
    changes: dict[str, Any] = {
        "data.train": sources,
        "data.mixing": "weighted",
        "rewards": [{"type": "external", "kind": "mine", "args": {"strict": True}}],
        "rollout.sampling.temperature": 0.7,
        "rollout.sampling.top_k": 100,
        "algorithm.reward_shaping.overlong_penalty": {"limit": 400, "buffer": 64},
    }
    values = written("0.6", **changes)
    given = values["buffer"]["explorer_input"]
    assert "taskset" not in given
    for item in given["tasksets"]:
        assert item["rollout_args"] == {"temperature": 0.7, "top_k": 100}
        assert item["reward_fn_args"]["strict"] is True
        assert item["reward_fn_args"]["max_response_length"] == 400
    loaded, report = read_document(read_yaml(yaml.safe_dump(values), "run.yaml"), dialect="trinity@0.6", environment={})
    assert loaded is not None, report.errors
    assert loaded.config.algorithm.reward_shaping.overlong_penalty is not None
    assert loaded.config.algorithm.reward_shaping.overlong_penalty.buffer == 64
    assert loaded.config.rollout.sampling.top_k == 100


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("cispo", {"clip_ratio_low": 1.0, "clip_ratio_high": 0.28}),
        ("gspo", {"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4}),
        ("ppo", {}),
    ],
)
def test_the_bounds_that_a_loss_has_by_itself_reach_another_dialect(kind: str, expected: dict[str, float]) -> None:
    tree: dict[str, Any] = {**PLAIN, "algorithm": {"algorithm_type": kind, "repeat_times": 8}}
    loaded, report = read_document(read_yaml(yaml.safe_dump(tree), "run.yaml"), dialect="trinity@0.6", environment={})
    assert loaded is not None, report.errors
    text, _ = write(loaded, "verl")
    assert text is not None
    actor = yaml.safe_load(text)["actor_rollout_ref"]["actor"]
    assert {key: actor[key] for key in ("clip_ratio_low", "clip_ratio_high") if key in actor} == expected


def test_a_loss_that_takes_no_aggregation_is_given_none() -> None:
    """``RECPolicyLossFn.__init__() got an unexpected keyword argument 'loss_agg_mode'``."""
    args = {"epsilon_low": 0.3, "clip_mode": "one-side"}
    algorithm = {"algorithm_type": "rec", "repeat_times": 8, "policy_loss_fn_args": args}
    text = convert(yaml.safe_dump({**PLAIN, "algorithm": algorithm}), "trinity", dialect="trinity", environment={}).text
    assert yaml.safe_load(text or "")["algorithm"]["policy_loss_fn_args"] == args


def test_the_release_is_told_by_what_only_one_of_them_reads() -> None:
    def taken(**keys: Any) -> str:
        tree = yaml.safe_load(yaml.safe_dump(PLAIN))
        for name, value in keys.items():
            put(tree, parse_dotted(name), value)
        return dialect("trinity").detect(read_yaml(yaml.safe_dump(tree), "run.yaml")).version

    assert taken() == "0.6"
    assert taken(**{"trainer.grad_clip": 1.0}) == "0.6"
    assert taken(**{"trainer.grad_clip": 0.5}) == "0.5"
    assert taken(**{"trainer.grad_clip": 0.5, "trainer.param_offload": True}) == "0.6"
    assert taken(**{f"{TRAINER}.actor.ppo_epochs": 2}) == "0.6"
    assert taken(**{"trainer.param_offload": True}) == "0.6"
    assert taken(**{f"{TRAINER}.trainer.critic_warmup": 5}) == "0.5"
    assert taken(**{"synchronizer.sync_style": "trainer_driven"}) == "0.6"
    assert taken(**{"synchronizer.sync_style": "Dynamic_by_trainer"}) == "0.4"
    assert taken(**{"buffer.explorer_input.taskset.task_selector.seed": 1}) == "0.4"
    assert taken(**{"buffer.explorer_input.taskset.task_selector.seed": 1, "trainer.param_offload": True}) == "0.6"


def test_an_older_order_replaces_a_newer_one() -> None:
    """Trinity-RFT 0.5 and 0.6, config_validator.py, ``_check_explorer_input``."""
    taskset = "buffer.explorer_input.taskset"
    keys = {f"{taskset}.task_selector.selector_type": "random", f"{taskset}.data_selector.selector_type": "shuffle"}
    plain, report = read_with("0.6", **keys)
    assert plain["data"]["curriculum"]["order"] == "random"
    buckets = {entry.key: entry.bucket for entry in report.accounting}
    assert buckets[f"{taskset}.data_selector.selector_type"] is Bucket.DEAD


def test_a_release_is_written_in_its_own_words() -> None:
    order = {"selector_type": "random", "seed": 7}
    source = yaml.safe_load(yaml.safe_dump(PLAIN))
    source["synchronizer"] = {"sync_style": "explorer_driven"}
    source["buffer"]["explorer_input"]["taskset"]["data_selector"] = order

    def written(release: str) -> dict[str, Any]:
        made = convert(yaml.safe_dump(source), f"trinity@{release}", dialect="trinity@0.6", environment={})
        values: dict[str, Any] = yaml.safe_load(made.text or "")
        return values

    older, newer = written("0.4"), written("0.5")
    assert older["synchronizer"]["sync_style"] == "dynamic_by_explorer"
    assert newer["synchronizer"]["sync_style"] == "explorer_driven"
    assert older["buffer"]["explorer_input"]["taskset"]["task_selector"] == order
    assert newer["buffer"]["explorer_input"]["taskset"]["data_selector"] == order


def test_roles_straight_under_trainer_config_are_read_as_0_6_does_and_told_as_written() -> None:
    canonical, report = read_with(
        "0.6",
        **{
            f"{TRAINER}.actor": {"ppo_epochs": 2, "nonsense": 1},
            f"{TRAINER}.ref": {"fsdp_config": {"param_offload": True}},
            f"{TRAINER}.actor_rollout_ref.ref": {"fsdp_config": {"fsdp_size": 4}},
        },
    )
    assert canonical["batch"]["ppo_epochs"] == 2
    assert canonical["reference"]["engine"]["fsdp_size"] == 4
    assert canonical["reference"]["engine"]["offload"] == "none"
    buckets = {entry.key: entry.bucket for entry in report.accounting}
    assert buckets[f"{TRAINER}.actor.ppo_epochs"] is Bucket.MAPPED
    assert buckets[f"{TRAINER}.actor.nonsense"] is Bucket.UNKNOWN
    assert buckets[f"{TRAINER}.ref.fsdp_config.param_offload"] is Bucket.DEAD
    assert [finding.key for finding in report.findings if finding.code == "unknown-key"] == [
        f"{TRAINER}.actor.nonsense"
    ]


@pytest.mark.parametrize(("release", "clip"), [("0.5", 0.3), ("0.6", 1.0)])
def test_only_0_5_clips_by_the_key_of_the_trainer(release: str, clip: float) -> None:
    canonical, _ = read_with(release, **{"trainer.grad_clip": 0.3})
    assert canonical["train"]["optimizer"]["max_grad_norm"] == clip


@pytest.mark.parametrize(("release", "seed"), [("0.4", None), ("0.5", None), ("0.6", 42)])
def test_since_0_6_a_shuffle_has_a_seed_of_its_own(release: str, seed: int | None) -> None:
    canonical, _ = read_with(release, **{f"{TRAINER}.actor_rollout_ref.actor.shuffle": True})
    assert (canonical["batch"]["shuffle"], canonical["batch"]["shuffle_seed"]) == (True, seed)


def test_a_clip_is_written_where_both_verls_of_0_6_read_it() -> None:
    made = convert(
        "actor_rollout_ref.actor.optim.clip_grad=0.3\nalgorithm.adv_estimator=grpo", to="trinity", dialect="verl"
    )
    values = yaml.safe_load(made.text or "")
    assert values["algorithm"]["optimizer"]["clip_grad"] == values["trainer"]["grad_clip"] == 0.3


# What a run of another framework needs in Trinity


def told(text: str, source: str) -> tuple[dict[str, Any], dict[str, str], Report]:
    """A text of another dialect in Trinity: its values, the messages of what was found by code, and the report."""
    made = convert(text, to="trinity", dialect=source)
    found = {finding.code: finding.message for finding in made.report.findings}
    return yaml.safe_load(made.text or ""), found, made.report


def test_rows_and_rewards_of_verl_are_told_in_one_warning() -> None:
    values, found, _ = told("data.train_files=a.parquet\nalgorithm.adv_estimator=grpo", "verl")
    given = values["buffer"]["explorer_input"]
    assert given["taskset"]["format"] == {"response_key": "ground_truth"}
    warning = found["other-data-and-reward"]
    assert "as plain text" in warning
    assert "data_source" in warning
    assert "<think>" in warning


def test_a_run_that_was_trinitys_is_told_nothing_of_rows_and_rewards() -> None:
    _, found, _ = told(yaml.safe_dump(PLAIN), "trinity")
    assert set(found) <= {"micro-batches-added", "release-assumed", "releases-differ"}


AGENTIC = """
pretrain: org/model
rollout_batch_size: 16
train_env_manager: {group_size: 4, num_env_groups: 4, tags: [TAG], num_groups_partition: [4]}
custom_envs: {TAG: {env_type: KIND, max_steps: 10}}
actor_train: {device_mapping: "list(range(0,8))", strategy_args: {strategy_name: fsdp2_train}}
actor_infer: {device_mapping: "list(range(0,8))", strategy_args: {strategy_name: vllm}}
"""


@pytest.mark.parametrize(("kind", "workflow"), [("frozen_lake", "frozen_lake_workflow"), ("sokoban", None)])
def test_environments_become_a_task_set_and_a_workflow_that_plays_them_or_none(kind: str, workflow: str | None) -> None:
    values, found, _ = told(AGENTIC.replace("TAG", "Lake").replace("KIND", kind), "roll")
    given = values["buffer"]["explorer_input"]
    assert given.get("default_workflow_type") == workflow
    assert given["taskset"]["path"] == "${oc.env:TRINITY_TASKSET_PATH}"
    assert "Lake" in found["other-environment"]
    assert "other-data-and-reward" not in found


RLVR = """
pretrain: org/model
prompt_length: 512
response_length: 512
rollout_batch_size: 16
max_steps: 100
actor_train:
  device_mapping: "list(range(0,8))"
  strategy_args: {strategy_name: fsdp2_train}
  training_args: {learning_rate: 1.0e-6}
  data_args: {file_name: a.jsonl, messages: messages}
actor_infer: {device_mapping: "list(range(0,8))", strategy_args: {strategy_name: vllm}}
rewards:
  mine: {worker_cls: WORKER, tag_included: [math], further: 1}
"""
WORKERS = ["roll.pipeline.rlvr.rewards.detection_reward_worker.DetectionRewardWorker", "own.module.OwnRewardWorker"]


@pytest.mark.parametrize("worker", WORKERS)
def test_a_reward_class_of_roll_is_never_one_of_trinitys(worker: str) -> None:
    values, found, report = told(RLVR.replace("WORKER", worker), "roll")
    given = values["buffer"]["explorer_input"]
    assert "default_reward_fn_type" not in given
    assert "reward_fn_args" not in given["taskset"]
    entry = next(item for item in report.accounting if item.key == "rewards.mine.worker_cls")
    assert entry.bucket is Bucket.UNSUPPORTED
    assert "registered names" in entry.note
    assert "the source scores" in found["other-data-and-reward"]


def test_a_reward_of_the_users_own_stays_trinitys() -> None:
    tree = yaml.safe_load(yaml.safe_dump(PLAIN))
    tree["buffer"]["explorer_input"]["default_reward_fn_type"] = "own.rewards.Careful"
    values, _, _ = told(yaml.safe_dump(tree), "trinity")
    assert values["buffer"]["explorer_input"]["default_reward_fn_type"] == "own.rewards.Careful"


def test_a_linear_decay_becomes_the_cosine_that_ends_with_it() -> None:
    values, _, report = told(RLVR.replace("WORKER", WORKERS[1]), "roll")
    optimizer = values["algorithm"]["optimizer"]
    assert optimizer["lr_scheduler_type"] == "cosine"
    assert optimizer["min_lr_ratio"] == 0.0
    assert values["trainer"]["total_steps"] == 100
    assert any("no linear decay" in finding.message for finding in report.findings)


def test_megatron_keeps_a_linear_decay() -> None:
    """Trinity's ``lr_scheduler_type`` becomes Megatron's ``lr_decay_style`` as it is."""
    lines = ["model_engine=megatron", "algorithm.adv_estimator=grpo", "trainer.total_training_steps=100"]
    lines += [f"actor_rollout_ref.actor.optim.{key}" for key in ("lr=1e-5", "lr_decay_style=linear")]
    made = convert("\n".join(lines), to="trinity", dialect="verl")
    assert yaml.safe_load(made.text or "")["algorithm"]["optimizer"]["lr_scheduler_type"] == "linear"
    assert not any("linear decay" in finding.message for finding in made.report.findings)
    back, report = read_document(read_yaml(made.text or "", "trinity.yaml"), dialect="trinity")
    assert not report.errors
    assert back is not None
    assert back.config.train.lr_scheduler.type == "linear"


def test_a_lowest_learning_rate_becomes_a_share_of_the_peak() -> None:
    lines = ["model_engine=megatron", "algorithm.adv_estimator=grpo", "trainer.total_training_steps=100"]
    lines += [f"actor_rollout_ref.actor.optim.{key}" for key in ("lr=1e-5", "min_lr=1e-6", "lr_decay_style=cosine")]
    assert told("\n".join(lines), "verl")[0]["algorithm"]["optimizer"]["min_lr_ratio"] == 0.1


def test_what_verl_takes_of_its_own_is_handed_on() -> None:
    actor = "actor_rollout_ref.actor"
    lines = ["model_engine=megatron", "algorithm.adv_estimator=grpo", f"{actor}.megatron.use_mbridge=true"]
    lines += [f"{actor}.megatron.vanilla_mbridge=false", f"{actor}.use_torch_compile=false"]
    lines += [f"+{actor}.megatron.override_transformer_config.moe_router_dtype=fp32"]
    lines += ["actor_rollout_ref.rollout.max_num_seqs=64"]
    values, _, report = told("\n".join(lines), "verl")
    own = values["trainer"]["trainer_config"]["actor_rollout_ref"]["actor"]
    assert own["use_torch_compile"] is False
    assert own["megatron"]["vanilla_mbridge"] is False
    assert own["megatron"]["override_transformer_config"]["moe_router_dtype"] == "fp32"
    assert values["explorer"]["rollout_model"]["extra_engine_args"] == {"max_num_seqs": 64}
    assert not [entry.key for entry in report.accounting if entry.bucket is Bucket.UNSUPPORTED]


def test_what_the_critic_has_anyway_is_not_called_lost() -> None:
    lines = [
        "algorithm.adv_estimator=gae",
        "actor_rollout_ref.actor.use_dynamic_bsz=true",
        "critic.use_dynamic_bsz=true",
    ]
    lines += ["critic.model.use_remove_padding=true", "critic.model.enable_gradient_checkpointing=true"]
    lines += [f"{role}.ppo_max_token_len_per_gpu=8192" for role in ("actor_rollout_ref.actor", "critic")]
    lines += [
        "actor_rollout_ref.model.path=org/m",
        "critic.model.path=org/m",
        "actor_rollout_ref.model.use_remove_padding=true",
    ]
    _, _, report = told("\n".join(lines), "verl")
    assert not [entry.key for entry in report.accounting if entry.bucket is Bucket.UNSUPPORTED]


@pytest.mark.parametrize("key", ["lr_scheduler_type", "lr_warmup_steps_ratio"])
@pytest.mark.parametrize("total", [None, 100])
def test_a_schedule_of_an_endless_run_is_told(key: str, total: int | None) -> None:
    value = {"lr_scheduler_type": "cosine", "lr_warmup_steps_ratio": 0.1}[key]
    _, report = read_with("0.6", **{f"algorithm.optimizer.{key}": value, "trainer.total_steps": total})
    assert [item.key for item in report.findings if item.code == "endless-schedule"] == (
        [] if total else [f"algorithm.optimizer.{key}"]
    )


def test_an_algorithm_that_no_release_has_is_told() -> None:
    _, report = read_with("0.6", **{"algorithm.algorithm_type": "grpoo"})
    (found,) = [finding for finding in report.findings if finding.code == "unknown-algorithm"]
    assert "grpo" in found.hint


@pytest.mark.parametrize("source", ["trinity", "verl"])
def test_trinitys_gate_of_sapo_is_told(source: str) -> None:
    text = "algorithm.adv_estimator=grpo\nactor_rollout_ref.actor.policy_loss.loss_mode=sapo"
    if source == "trinity":
        tree = yaml.safe_load(yaml.safe_dump(PLAIN))
        text = yaml.safe_dump({**tree, "algorithm": {"algorithm_type": "sapo", "repeat_times": 8}})
    made = convert(text, to="verl" if source == "trinity" else "trinity", dialect=source)
    assert [item.level.value for item in made.report.findings if item.code == "other-gradient"] == ["warning"]


def test_micro_batches_that_0_6_adds_up_are_told() -> None:
    assert "micro-batches-added" in told("algorithm.adv_estimator=grpo", "verl")[1]
    canonical, report = read_with("0.6", **{"trainer.fix_actor_microbatch_loss_scale": True})
    assert canonical["algorithm"]["loss_aggregation"]["per_micro_batch"] is False
    buckets = {entry.key: entry.bucket for entry in report.accounting}
    assert buckets["trainer.fix_actor_microbatch_loss_scale"] is Bucket.DEAD
    assert read_with("0.5")[0]["algorithm"]["loss_aggregation"]["per_micro_batch"] is True


# The shared material, where it is beside the repository


def documented() -> dict[str, Any]:
    path = SHARED / "reference" / "documented_keys.yaml"
    return dict(yaml.safe_load(path.read_text())["trinity"]) if path.exists() else {}


@pytest.mark.skipif(not SHARED.exists(), reason="no shared reference material here")
@pytest.mark.parametrize("release", ["0.5", "0.6"])
def test_every_documented_key_is_known(release: str) -> None:
    unknown = []
    for name, facts in documented().items():
        tree: dict[str, Any] = {}
        path = [int("0") if part == "[]" else part for part in name.replace("[]", ".[]").split(".")]
        put(tree, tuple(path), (facts or {}).get("default") or "x")
        if path[0] == "stages":
            put(tree, ("stages", 0, "stage_name"), "first")
        _, report = read_document(
            read_yaml(yaml.safe_dump(tree), "x.yaml"), dialect=f"trinity@{release}", environment={}
        )
        unknown += [entry.key for entry in report.accounting if entry.bucket is Bucket.UNKNOWN]
    assert unknown == []


@pytest.mark.skipif(not SHARED.exists(), reason="no shared examples here")
def test_the_examples_have_no_unknown_keys_and_carry_what_is_rare() -> None:
    carried: dict[Any, set[str]] = defaultdict(set)
    for path in sorted((SHARED / "corpus" / "trinity").rglob("*.yaml")):
        document = read_yaml(path.read_text(encoding="utf-8"), path.name)
        if "process" in document.values:
            continue  # a Data-Juicer recipe among the examples
        _, report = read_document(document, dialect="trinity", environment={"TRINITY_MODEL_PATH": "org/model"})
        for entry in report.accounting:
            assert entry.bucket is not Bucket.UNKNOWN, (path, entry)
            if entry.bucket is Bucket.CARRIED:
                carried[generic(parse_dotted(entry.key))].add(path.name)
    assert {key: files for key, files in carried.items() if len(files) > 2} == {}


@pytest.mark.parametrize(("nodes", "fits"), [(1, False), (2, True)])
def test_a_split_that_holds_no_replica_of_the_trainer_is_told(nodes: int, fits: bool) -> None:
    engine = "actor_rollout_ref.actor.megatron"
    lines = ["model_engine=megatron", f"{engine}.tensor_model_parallel_size=4", f"{engine}.context_parallel_size=2"]
    lines += ["trainer.n_gpus_per_node=8", f"trainer.nnodes={nodes}", "algorithm.adv_estimator=grpo"]
    report = convert("\n".join(lines), to="trinity", dialect="verl").report
    (assumed,) = [found.message for found in report.findings if found.code == "assumed"]
    assert ("is not a multiple of 8" not in assumed) is fits


def test_a_loss_that_the_algorithm_type_names_is_not_lost() -> None:
    lines = (
        "algorithm.adv_estimator=grpo\nactor_rollout_ref.actor.policy_loss.loss_mode=gspo\ntrainer.n_gpus_per_node=8"
    )
    made = convert(lines, to="trinity", dialect="verl")
    buckets = {entry.key: entry.bucket for entry in made.report.accounting}
    assert buckets["actor_rollout_ref.actor.policy_loss.loss_mode"] is Bucket.MAPPED
    assert "algorithm.policy_loss" not in made.text


def said(entry: Entry) -> bool:
    """Whether the report says of a leaf what became of it."""
    return entry.bucket is not Bucket.MAPPED or bool(entry.note or entry.targets)


@pytest.mark.skipif(not SHARED.exists(), reason="no shared examples here")
def test_an_example_is_itself_again_after_rlctl_or_the_report_says_why() -> None:
    """What a user wrote comes back, and what is added is what a key became or differs from Trinity's default."""
    wrong: list[str] = []
    for path in sorted((SHARED / "corpus" / "trinity").rglob("*.yaml")):
        document = read_yaml(path.read_text(encoding="utf-8"), path.name)
        if "process" in document.values:
            continue  # a Data-Juicer recipe among the examples
        loaded, report = read_document(document, dialect="trinity", environment={"TRINITY_MODEL_PATH": "org/model"})
        assert loaded is not None
        release = report.dialect.partition("@")[2]
        made = translate_loaded(loaded, report, f"trinity@{release}")
        before, after = dict(document.leaves()), dict(read_yaml(made.text or "", "again.yaml").leaves())
        entries = {entry.key: entry for entry in made.report.accounting}
        became = {key for entry in entries.values() for key, _ in entry.targets}
        origins = {entry.key: entry.origin for entry in made.report.origins}
        table, version = dialect("trinity").tables["run"], version_of(release)
        wrong += [
            f"{path.name}: {dotted(leaf)} is gone without a word"
            for leaf, value in before.items()
            if after.get(leaf, ABSENT) != value and not said(entries[dotted(leaf)])
        ]
        wrong += [
            f"{path.name}: {dotted(leaf)}: {value} is added"
            for leaf, value in after.items()
            if leaf not in before
            and origins.get(dotted(leaf)) is Origin.DEFAULTED
            and dotted(leaf) not in became
            and table.default_at(leaf, version) == value
            and dotted(leaf) != "algorithm.algorithm_type"  # what a run is called is always said
        ]
    assert wrong == [], "\n".join(wrong)


DISTILS = """
algorithm: {algorithm_type: TYPE, repeat_times: 4, advantage_fn_args: {kl_coef: 0.5}}
model: {model_path: org/student, max_model_len: 1024}
cluster: {node_num: 1, gpu_per_node: 8}
buffer:
  batch_size: 32
  explorer_input:
    default_workflow_type: on_policy_distill_workflow
    taskset: {name: t, path: data, format: {prompt_key: question, response_key: answer}}
explorer:
  rollout_model: {engine_num: 2}
  auxiliary_models: [{model_path: org/teacher, engine_num: 1, tensor_parallel_size: 2}]
"""


@pytest.mark.parametrize(("name", "loss"), [("on_policy_distill", "reverse_kl"), ("jsd", "js_divergence")])
def test_a_teacher_is_one_in_every_framework(name: str, loss: str) -> None:
    """The first auxiliary model, whose log-probs alone make the advantage, is what ROLL calls pure OPD."""
    loaded, report = read_document(read_yaml(DISTILS.replace("TYPE", name), "a.yaml"), dialect="trinity")
    assert loaded is not None, report.errors
    chosen = loaded.config.algorithm.distillation
    assert chosen is not None
    assert (chosen.teacher, chosen.loss, chosen.coefficient) == ("org/teacher", loss, 0.5)
    assert (chosen.args["policy_gradient"], chosen.args["with_rewards"]) == (True, False)
    assert not loaded.config.rollout.auxiliary_models
    assert loaded.config.rollout.agents == ()
    roll = yaml.safe_load(translate_loaded(loaded, report, "roll").text or "")
    assert roll["is_pure_opd"] is True
    assert roll["teacher"]["model_args"]["model_name_or_path"] == "org/teacher"
    assert roll["teacher"]["opd_kl_coef"] == 0.5
    verl = yaml.safe_load(translate_loaded(loaded, report, "verl").text or "")["distillation"]
    assert verl["teacher_models"] == {"teacher_model": {"model_path": "org/teacher"}}
    assert "teacher_engine" not in verl


@pytest.mark.parametrize(("tensor", "sequence", "engines"), [(2, 2, 2), (2, 1, 1), (4, 2, 2)])
def test_a_teacher_leaves_whole_engines_and_ranks(tensor: int, sequence: int, engines: int) -> None:
    """With one GPU for the teacher, 7 of 8 are left: engines and trainer of two each cannot use the last one."""
    args = {"policy_gradient": True, "with_rewards": False}
    changes = {
        "algorithm.distillation": {"teacher": "org/teacher", "loss": "reverse_kl", "args": args},
        "rollout.parallel.tensor_parallel_size": tensor,
        "train.engine": {"type": "fsdp2", "ulysses_sequence_parallel_size": sequence},
        "placement": {"nodes": 1, "devices_per_node": 8, "layout": "colocated"},
    }
    explorer = written("0.6", **changes)["explorer"]
    assert explorer["auxiliary_models"][0]["engine_num"] == engines
    own = explorer["rollout_model"]
    assert (8 - engines - own["engine_num"] * own["tensor_parallel_size"]) % sequence == 0


def test_an_argument_that_only_trinitys_divergence_has_is_not_written_below_verls() -> None:
    """verl's dataclass raises a TypeError for a name that it does not have."""
    text = DISTILS.replace("TYPE", "jsd").replace("kl_coef: 0.5", "kl_coef: 0.5, lambda_coef: 0.3")
    done = convert(text, "verl", dialect="trinity", environment={})
    assert "lambda_coef" not in yaml.safe_load(done.text or "")["distillation"]
    told = next(entry for entry in done.report.accounting if entry.key.endswith("lambda_coef"))
    assert told.bucket is Bucket.UNSUPPORTED


def test_a_teacher_of_roll_is_an_auxiliary_model() -> None:
    loaded, report = read_document(read_yaml(DISTILS.replace("TYPE", "on_policy_distill"), "a.yaml"), dialect="trinity")
    assert loaded is not None
    roll = translate_loaded(loaded, report, "roll", options={"carried": "none"}).text or ""
    back, again = read_document(read_yaml(roll, "b.yaml"), dialect="roll")
    assert back is not None
    values = yaml.safe_load(translate_loaded(back, again, "trinity", options={"carried": "none"}).text or "")
    assert values["algorithm"]["algorithm_type"] == "on_policy_distill"
    assert values["algorithm"]["advantage_fn_args"] == {"kl_coef": 0.5}
    assert values["buffer"]["explorer_input"]["default_workflow_type"] == "on_policy_distill_workflow"
    (teacher,) = values["explorer"]["auxiliary_models"]
    assert teacher == {"model_path": "org/teacher", "engine_num": 1, "tensor_parallel_size": 1}


RATES = """
mode: both
algorithm: {algorithm_type: grpo, repeat_times: 4}
model: {model_path: org/student, max_model_len: 1024}
cluster: {node_num: 1, gpu_per_node: 8}
buffer:
  batch_size: 32
  explorer_input:
    default_workflow_type: rubric_judge_workflow
    default_reward_fn_type: math_reward
    taskset: {name: t, path: data, format: {prompt_key: question, response_key: answer}}
explorer:
  rollout_model: {engine_num: 2}
  auxiliary_models: MODELS
"""
GRADER = "[{name: grader, model_path: org/grader, engine_num: 1, tensor_parallel_size: 2}]"


def test_a_judge_of_rubrics_is_an_auxiliary_model_and_comes_back() -> None:
    """As get_judge_reward of trinity/common/workflows/rubric_judge_workflow.py asks: greedily, and 0 where it fails."""
    loaded, report = read_document(read_yaml(RATES.replace("MODELS", GRADER), "a.yaml"), dialect="trinity")
    assert loaded is not None, report.errors
    config = loaded.config
    (judge,) = config.rewards
    assert isinstance(judge, JudgeReward)
    assert (judge.auxiliary_model, judge.scoring, judge.sampling) == ("grader", "rubric", {"temperature": 0.0})
    assert (judge.on_error, judge.prompt, judge.weight) == ("zero", None, 1.0)
    (source,) = config.data.train
    assert str(source.system_prompt).endswith("provides the user with the answer.\n    ")
    assert config.rollout.agents == ()
    assert make_plan(config).stages[0].role("auxiliary") is not None
    back = yaml.safe_load(translate_loaded(loaded, report, "trinity").text or "")
    given = back["buffer"]["explorer_input"]
    assert given["default_workflow_type"] == "rubric_judge_workflow"
    assert "system_prompt" not in given["taskset"]["format"]
    assert back["explorer"]["auxiliary_models"][0]["name"] == "grader"


def test_without_a_model_that_judges_the_workflow_keeps_its_name() -> None:
    loaded, report = read_document(read_yaml(RATES.replace("MODELS", "[]"), "a.yaml"), dialect="trinity")
    assert loaded is not None, report.errors
    assert [agent.name for agent in loaded.config.rollout.agents] == ["rubric_judge_workflow"]


@pytest.mark.parametrize(("kind", "read"), [("queue", Bucket.MAPPED), ("sql", Bucket.MAPPED), ("file", Bucket.DEAD)])
def test_a_buffer_of_files_replays_nothing(kind: str, read: Bucket) -> None:
    key = "buffer.trainer_input.experience_buffer"
    settings = {f"{key}.storage_type": kind, f"{key}.path": "x", f"{key}.replay_buffer.enable": True}
    canonical, report = read_with("0.6", **settings)
    assert canonical["buffer"].get("replay", {}).get("enabled", False) is (read is Bucket.MAPPED)
    assert {entry.key: entry.bucket for entry in report.accounting}[f"{key}.replay_buffer.enable"] is read


def test_a_lowest_rate_above_the_peak_is_reported() -> None:
    tree = {**BASE, "train": {"lr_scheduler": {"type": "cosine", "min_lr": 1e-5}, "optimizer": {"lr": 1e-6}}}
    document = read_yaml(yaml.safe_dump({"rlctl": 1, **tree}), "run.yaml")
    loaded, report = read_document(document, dialect="rlctl", environment={})
    assert loaded is not None
    made = translate_loaded(loaded, report, "trinity@0.6")
    lost = next(entry for entry in made.report.accounting if entry.key == "train.lr_scheduler.min_lr")
    assert lost.bucket is Bucket.UNSUPPORTED
    assert read_yaml(made.text or "", "trinity.yaml").values["algorithm"]["optimizer"]["min_lr_ratio"] == 1.0


@pytest.mark.parametrize(
    ("critic", "reason"),
    [
        ({"packing": False}, "Trinity 0.6 uses train.packing for the critic too: true"),
        ({"memory": {"recompute_activations": False}}, "Trinity 0.6 always switches it on for the critic"),
    ],
)
def test_what_0_6_decides_for_the_critic_is_named(critic: dict[str, Any], reason: str) -> None:
    tree = {**BASE, "algorithm": {"advantage": {"type": "gae"}}, "train": {"packing": True}, "critic": critic}
    loaded, report = read_document(read_yaml(yaml.safe_dump({"rlctl": 1, **tree}), "run.yaml"), dialect="rlctl")
    assert loaded is not None, report.errors
    found = translate_loaded(loaded, report, "trinity@0.6").report
    assert any(reason in finding.message for finding in found.findings), [each.message for each in found.findings]


@pytest.mark.parametrize(("target", "key"), [("verl", ("trainer", "total_training_steps")), ("roll", ("max_steps",))])
def test_a_run_that_is_no_whole_number_of_steps_is_rounded_with_the_numbers(target: str, key: tuple[str, ...]) -> None:
    """100 explore steps of 64 responses are 533 train batches of 12: ``QueueStorage.get_batch`` drops the rest."""
    tree = {
        "algorithm": {"algorithm_type": "grpo", "repeat_times": 4},
        "model": {"model_path": "org/model", "max_prompt_tokens": 512, "max_response_tokens": 512},
        "cluster": {"node_num": 1, "gpu_per_node": 8},
        "buffer": {
            "batch_size": 16,
            "train_batch_size": 12,
            "total_steps": 100,
            "explorer_input": {"taskset": {"name": "t", "path": "org/data"}},
        },
        "synchronizer": {"sync_interval": 3},
    }
    loaded, report = read_document(read_yaml(yaml.safe_dump(tree), "run.yaml"), dialect="trinity@0.6", environment={})
    assert loaded is not None
    made = translate_loaded(loaded, report, target)
    entry = next(entry for entry in made.report.accounting if entry.key == "buffer.total_steps")
    assert entry.bucket is Bucket.APPROXIMATED
    assert (".".join(key), 34) in [(name, int(value)) for name, value in entry.targets]
    assert "533 optimizer steps are 33.3125 steps of 16, rounded up to 34" in entry.note


@pytest.mark.parametrize("release", ["0.5", "0.6"])
def test_an_optimizer_that_only_0_3_1_and_0_6_read_is_told_with_both_numbers(release: str) -> None:
    own = {f"{ACTOR}.optim.lr": 5e-7, f"{ACTOR}.optim.betas": [0.9, 0.95], f"{ACTOR}.optim.weight_decay": 0.01}
    canonical, report = read_with(release, **own)
    told = [found.message for found in report.findings if found.code == "optimizer-replaced"]
    if release == "0.6":
        assert (told, canonical["train"]["optimizer"]["betas"]) == ([], [0.9, 0.95])
        return
    (line,) = told
    assert "lr = 5e-07 becomes 1e-06" in line
    assert "betas = [0.9, 0.95] becomes [0.9, 0.999]" in line
    assert "weight_decay" not in line
    assert canonical["train"]["optimizer"]["lr"] == 1e-6
    _, report = read_with(release, **own, **{"algorithm.optimizer.lr": 5e-7, "algorithm.optimizer.betas": [0.9, 0.95]})
    assert "optimizer-replaced" not in {found.code for found in report.findings}


def test_an_empty_name_of_a_reward_function_is_not_written_back() -> None:
    """Trinity looks an empty name up and fails, once a workflow is there that calls it."""
    tree = yaml.safe_load(yaml.safe_dump(PLAIN))
    tree["buffer"]["explorer_input"] |= {"default_workflow_type": "", "default_reward_fn_type": ""}
    made = convert(yaml.safe_dump(tree), to="trinity", dialect="trinity")
    assert "default_reward_fn_type" not in (made.text or "default_reward_fn_type")


@pytest.mark.parametrize("method", ["nccl", "checkpoint", "memory"])
def test_verls_separate_async_gets_a_transport_between_devices(method: str) -> None:
    """Its trainer refuses naive, which is what verl has for the others' transports."""
    tree = yaml.safe_load(yaml.safe_dump(PLAIN))
    tree["cluster"]["node_num"] = 2
    tree["explorer"] = {"rollout_model": {"engine_num": 8}}
    tree["synchronizer"] = {"sync_method": method, "sync_interval": 1}
    values = yaml.safe_load(convert(yaml.safe_dump(tree), to="verl", dialect="trinity").text or "")
    assert values["trainer"]["v1"]["trainer_mode"] == "separate_async"
    assert values["actor_rollout_ref"]["rollout"]["checkpoint_engine"]["backend"] == "nccl"


def test_an_empty_default_of_an_environment_variable_is_text() -> None:
    """OmegaConf's ``${oc.env:NAME,''}`` is '', and no null."""
    canonical, _ = read_with("0.6", **{"model.model_path": "${oc.env:RLCTL_NO_SUCH_VARIABLE,''}"})
    assert canonical["model"]["path"] == ""


@pytest.mark.parametrize(
    ("given", "prompt", "response"),
    [
        ({"max_model_len": 2048, "max_response_tokens": 2048}, 1, 2047),
        ({"max_model_len": 2048, "max_response_tokens": 4096}, 1, 2047),
        ({"max_model_len": 2048, "max_response_tokens": 1024}, 1024, 1024),
        ({"max_model_len": 2048, "max_prompt_tokens": 2048}, 2047, 1),
        ({"max_model_len": 2049}, 1024, 1025),
    ],
)
def test_one_token_is_left_for_what_fills_the_context(given: dict[str, int], prompt: int, response: int) -> None:
    """trinity/common/config_validator.py, ModelConfigValidator._check_model_len."""
    values, report = read_with("0.6", model={"model_path": "org/model", **given})
    assert (values["data"]["max_prompt_tokens"], values["rollout"]["max_response_tokens"]) == (prompt, response)
    buckets = {entry.key: entry.bucket for entry in report.accounting}
    changed = given.get("max_response_tokens", response) != response
    assert (buckets.get("model.max_response_tokens") is Bucket.DERIVED) == changed
