"""What verl's table has to get right by release and by engine; the numbers are verl's own, as tests/upstream asks them of it."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.adapters.engine.tree import find
from rlctl.common.messages import in_language
from rlctl.common.report import Bucket, Report
from rlctl.config import Loaded
from rlctl.documents import parse_dotted, read_yaml
from rlctl.translation.translate import read_document, translate_loaded

BASE = ["data.train_files=a.parquet", "data.val_files=b.parquet", "actor_rollout_ref.model.path=org/model"]
BASE += ["actor_rollout_ref.rollout.name=vllm", "algorithm.adv_estimator=grpo"]
A, R = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def read(*overrides: str, dialect: str = "verl@0.9", base: list[str] = BASE) -> tuple[Loaded, Report]:
    loaded, report = read_document(
        read_yaml("", "overrides", allow_empty=True),
        dialect=dialect,
        overrides=[*base, *overrides],
        environment={},
    )
    assert loaded is not None, report.findings
    return loaded, report


def written(loaded: Loaded, report: Report, target: str) -> tuple[dict[str, Any], Report]:
    made = translate_loaded(loaded, report, target, options={"carried": "none"})
    assert made.text is not None, made.report.findings
    return read_yaml(made.text, "written").values, made.report


def bucket(report: Report, key: str) -> Bucket:
    return next(entry.bucket for entry in report.accounting if entry.key == key)


@pytest.mark.parametrize(
    ("version", "overrides", "name"),
    [
        ("0.9", [], "constant"),
        ("0.9", ["model_engine=veomni"], "cosine"),
        ("0.9", ["model_engine=torchtitan"], "linear"),
        ("0.9", ["model_engine=megatron", f"{A}.optim.lr_decay_style=linear"], "linear"),
        ("0.4", [f"{A}.strategy=megatron"], "linear"),
        ("0.5", [f"{A}.optim.warmup_style=cosine"], "cosine"),
        ("0.9", [f"{A}.optim.warmup_style=cosine", f"{A}.optim.lr_scheduler_type=constant"], "cosine"),
    ],
)
def test_the_shape_of_the_schedule_goes_by_engine_and_release(version: str, overrides: list[str], name: str) -> None:
    loaded, _ = read(*overrides, dialect=f"verl@{version}")
    assert loaded.config.train.lr_scheduler.type == name


@pytest.mark.parametrize(
    ("version", "live", "dead"),
    [("0.7", f"{A}.grad_clip", f"{A}.optim.clip_grad"), ("0.9", f"{A}.optim.clip_grad", f"{A}.grad_clip")],
)
def test_gradients_are_clipped_by_the_key_that_the_release_reads(version: str, live: str, dead: str) -> None:
    loaded, report = read(f"{live}=0.3", f"{dead}=0.7", dialect=f"verl@{version}")
    assert loaded.config.train.optimizer.max_grad_norm == 0.3
    assert bucket(report, dead) is Bucket.DEAD


@pytest.mark.parametrize(
    "overrides",
    [
        [f"{A}.ulysses_sequence_parallel_size=4"],
        [f"{A}.fsdp_config.ulysses_sequence_parallel_size=4"],
        ["model_engine=megatron", f"{A}.megatron.context_parallel_size=4"],
    ],
)
def test_tokens_of_one_gpu_become_tokens_of_those_that_share_a_sequence(overrides: list[str]) -> None:
    loaded, report = read(*overrides, f"{A}.use_dynamic_bsz=true", f"{A}.ppo_max_token_len_per_gpu=1000")
    assert loaded.config.batch.micro_batch.size == 4000
    values, _ = written(loaded, report, "verl@0.9")
    assert values["actor_rollout_ref"]["actor"]["ppo_max_token_len_per_gpu"] == 1000


@pytest.mark.parametrize(
    ("overrides", "size"),
    [
        ([], 2),
        ([f"{A}.ulysses_sequence_parallel_size=4"], 8),
        (["model_engine=megatron", f"{A}.megatron.tensor_model_parallel_size=4"], 8),
        (
            [
                "model_engine=megatron",
                f"{A}.megatron.tensor_model_parallel_size=2",
                f"{A}.megatron.context_parallel_size=2",
            ],
            8,
        ),
        (["model_engine=megatron", f"{A}.megatron.pipeline_model_parallel_size=8"], 16),
    ],
)
def test_sequences_of_all_gpus_are_divided_by_the_data_parallel_ranks(overrides: list[str], size: int) -> None:
    loaded, _ = read(*overrides, f"{A}.ppo_micro_batch_size=16", "trainer.n_gpus_per_node=8", dialect="verl@0.6")
    assert loaded.config.batch.micro_batch.size == size


def test_a_context_size_of_an_engine_that_does_not_run_shares_nothing() -> None:
    loaded, _ = read(
        f"{A}.megatron.context_parallel_size=4", f"{A}.use_dynamic_bsz=true", f"{A}.ppo_max_token_len_per_gpu=1000"
    )
    assert loaded.config.batch.micro_batch.size == 1000


@pytest.mark.parametrize(
    ("version", "overrides", "temperature"),
    [
        ("0.5", [], 0.0),
        ("0.5", [f"{R}.val_kwargs.do_sample=true"], 0.6),
        ("0.6", [f"{R}.mode=async"], 0.6),
        ("0.9", [], 0.6),
    ],
)
def test_evaluation_without_do_sample_was_greedy_until_0_6(
    version: str, overrides: list[str], temperature: float
) -> None:
    loaded, report = read(f"{R}.val_kwargs.temperature=0.6", *overrides, dialect=f"verl@{version}")
    assert loaded.config.data.eval[0].evaluation_sampling.temperature == temperature
    again, _ = written(loaded, report, "verl@0.5")
    sampled = again["actor_rollout_ref"]["rollout"].get("val_kwargs", {}).get("do_sample", False)
    assert sampled is (temperature > 0)


@pytest.mark.parametrize(
    ("version", "loss", "mode"),
    [
        ("0.9", "vanilla", "token_mean"),
        ("0.9", "sapo", "seq_mean_token_mean"),
        ("0.8", "gspo", "seq_mean_token_mean"),
        ("0.9", "gspo", "token_mean"),
    ],
)
def test_some_losses_are_aggregated_in_their_own_way(version: str, loss: str, mode: str) -> None:
    loaded, _ = read(f"{A}.policy_loss.loss_mode={loss}", f"{A}.loss_agg_mode=token-mean", dialect=f"verl@{version}")
    assert loaded.config.algorithm.loss_aggregation.mode == mode


def test_an_upgrade_moves_keys_and_says_what_the_newer_release_would_have_ignored() -> None:
    old = ["custom_reward_function.path=reward.py", f"{A}.grad_clip=0.5", "reward_model.reward_manager=dapo"]
    loaded, report = read(*old, dialect="verl@0.7")
    values, account = written(loaded, report, "verl@0.9")
    assert values["reward"]["custom_reward_function"]["path"] == "reward.py"
    assert values["reward"]["reward_manager"]["name"] == "dapo"
    assert values["actor_rollout_ref"]["actor"]["optim"]["clip_grad"] == 0.5
    told = {finding.key for finding in account.findings if finding.code == "newer-ignores"}
    assert told == {"custom_reward_function.path", f"{A}.grad_clip", "reward_model.reward_manager"}


def test_defaults_that_changed_are_said_on_an_upgrade() -> None:
    loaded, report = read(dialect="verl@0.5")
    values, _ = written(loaded, report, "verl@0.9")
    rollout, model = values["actor_rollout_ref"]["rollout"], values["actor_rollout_ref"]["model"]
    assert rollout["enforce_eager"] is True
    assert rollout["max_num_seqs"] == 1024
    assert model["use_remove_padding"] is False


def test_a_release_is_written_only_keys_that_it_has() -> None:
    loaded, report = read("reward.custom_reward_function.path=reward.py", f"{A}.optim.lr_scheduler_type=cosine")
    values, _ = written(loaded, report, "verl@0.5")
    assert values["custom_reward_function"]["path"] == "reward.py"
    assert values["actor_rollout_ref"]["actor"]["optim"]["warmup_style"] == "cosine"
    assert "reward" not in values


GENERATION = ["data.path=in.parquet", "data.output_path=out.parquet", "data.n_samples=4", "data.batch_size=64"]
GENERATION += ["model.path=org/model", "rollout.temperature=0.7", "rollout.tensor_model_parallel_size=2"]


def test_a_generation_run_only_rolls_out() -> None:
    loaded, report = read(*GENERATION, dialect="verl@0.6", base=[])
    config = loaded.config
    assert (config.run.mode, config.batch.responses_per_prompt, config.batch.prompts_per_step) == (
        "rollout_only",
        4,
        64,
    )
    assert (config.rollout.sampling.top_p, config.rollout.sampling.top_k) == (0.7, 50)
    assert config.rollout.responses_folder == "out.parquet"
    values, _ = written(loaded, report, "verl@0.6")
    assert values["data"] == {"path": "in.parquet", "output_path": "out.parquet", "n_samples": 4, "batch_size": 64}
    newer, _ = written(loaded, report, "verl@0.9")
    assert newer["data"]["output_path"] == "out.parquet"
    assert newer["actor_rollout_ref"]["rollout"]["n"] == 4


def test_an_evaluation_scores_the_responses_of_a_file() -> None:
    lines = ["data.path=out.parquet", "data.response_key=answers", "custom_reward_function.path=score.py"]
    loaded, report = read(*lines, dialect="verl@0.9", base=[])
    source = loaded.config.data.eval[0]
    assert (loaded.config.run.mode, source.path, source.response_key) == ("evaluate_only", "out.parquet", "answers")
    assert source.answer_key == "reward_model.ground_truth"
    values, _ = written(loaded, report, "verl@0.9")
    assert values["data"] == {"path": "out.parquet", "response_key": "answers"}
    assert values["custom_reward_function"]["path"] == "score.py"


def test_distillation_has_one_teacher_and_a_loss() -> None:
    lines = [
        "distillation.enabled=true",
        "distillation.nnodes=1",
        "distillation.distillation_loss.loss_mode=forward_kl_topk",
    ]
    lines += [
        "distillation.teacher_models.teacher_model.model_path=org/teacher",
        "distillation.distillation_loss.topk=64",
    ]
    loaded, report = read(*lines)
    found = loaded.config.algorithm.distillation
    assert found is not None
    assert (found.teacher, found.loss, found.top_k) == ("org/teacher", "forward_kl", 64)
    assert found.args == {"with_rewards": True, "policy_gradient": False, "nnodes": 1}
    values, _ = written(loaded, report, "verl@0.9")
    loss = values["distillation"]["distillation_loss"]
    assert (loss["loss_mode"], loss["topk"]) == ("forward_kl_topk", 64)
    assert values["distillation"]["nnodes"] == 1


def test_a_distillation_setting_of_a_fork_is_unknown() -> None:
    """verl's dataclasses take no other names: what was written under its own name was refused."""
    loss, teacher = "distillation.distillation_loss", "distillation.teacher_models.math"
    lines = ["distillation.enabled=true", f"{loss}.loss_mode=forward_kl_topk", f"+{loss}.use_chunked_topk=true"]
    lines += [
        f"+{teacher}.model_path=org/teacher",
        f"+{teacher}.inference.max_num_seqs=8",
        f"+{teacher}.inference.seed=1",
    ]
    loaded, report = read(*lines, f"{loss}.gkd_beta=0.5", f"+{teacher}.inference.own=1", "distillation.skd.size=2")
    unknown = [entry.key for entry in report.accounting if entry.bucket is Bucket.UNKNOWN]
    assert {*unknown} == {f"{teacher}.inference.own", f"{loss}.gkd_beta", "distillation.skd.size"}
    values = written(loaded, report, "verl@0.9")[0]["distillation"]
    assert values["teacher_models"]["math"]["inference"] == {"max_num_seqs": 8, "seed": 1}
    assert values["distillation_loss"]["use_chunked_topk"] is True


def test_the_only_teacher_of_an_early_release_has_the_settings_of_a_newer_one() -> None:
    teacher = "distillation.teacher_model"
    lines = ["distillation.enabled=true", f"{teacher}.model_path=org/teacher"]
    loaded, report = read(*lines, f"{teacher}.inference.tensor_model_parallel_size=2")
    values = written(loaded, report, "verl@0.9")[0]["distillation"]
    assert values["teacher_models"]["teacher_model"]["inference"] == {"tensor_model_parallel_size": 2}
    assert "teacher_model" not in values


TRINITY = "mode: both\nmodel: {model_path: org/model}\n"


def from_trinity(text: str) -> tuple[dict[str, Any], Report]:
    loaded, report = read_document(read_yaml(TRINITY + text, "run.yaml"), dialect="trinity", environment={})
    assert loaded is not None, report.findings
    return written(loaded, report, "verl")


@pytest.mark.parametrize(
    ("theirs", "estimator", "loss"),
    [
        ("opmd", "grpo", "gpg"),
        ("asymre", "grpo", "gpg"),
        ("sppo", "grpo", None),
        ("rec", "grpo", None),
        ("topr", "reinforce_plus_plus", "gpg"),
        ("multi_step_grpo", "grpo", None),
    ],
)
def test_an_algorithm_that_verl_lacks_becomes_its_nearest(theirs: str, estimator: str, loss: str | None) -> None:
    values, report = from_trinity(f"algorithm: {{algorithm_type: {theirs}}}")
    assert values["algorithm"]["adv_estimator"] == estimator
    assert values["actor_rollout_ref"]["actor"].get("policy_loss", {}).get("loss_mode", "vanilla") == (
        loss or "vanilla"
    )
    entry = next(entry for entry in report.accounting if entry.key == "algorithm.algorithm_type")
    assert entry.bucket is Bucket.UNSUPPORTED
    assert "is the nearest" in entry.note


def test_an_estimator_registered_with_verl_keeps_its_name() -> None:
    loaded, report = read("algorithm.adv_estimator=my_own", base=BASE[:-1])
    values, _ = written(loaded, report, "verl")
    assert values["algorithm"]["adv_estimator"] == "my_own"


@pytest.mark.parametrize("kind", ["optimal_token_baseline", "tir_optimal_token_baseline"])
def test_a_token_baseline_is_written_with_what_verl_needs_for_it(kind: str) -> None:
    """verl asserts that squared probabilities are there, and 0.9's newer trainer never computes them; 0.6 has no such name."""
    loaded, report = read(f"algorithm.adv_estimator={kind}", base=BASE[:-1])
    assert loaded.config.algorithm.old_log_probs == "recompute"
    for version, switch, trainer in (("0.9", True, False), ("0.7", True, None)):
        values, _ = written(loaded, report, f"verl@{version}")
        assert values["algorithm"]["adv_estimator"] == kind
        assert values["actor_rollout_ref"]["actor"]["calculate_sum_pi_squared"] is switch
        assert values["trainer"].get("use_v1") is trainer
    values, report = written(loaded, report, "verl@0.6")
    assert (values["algorithm"]["adv_estimator"], values["algorithm"]["norm_adv_by_std_in_grpo"]) == ("grpo", False)
    assert "calculate_sum_pi_squared" not in values["actor_rollout_ref"]["actor"]
    assert bucket(report, "algorithm.adv_estimator") is Bucket.UNSUPPORTED


def test_what_the_file_says_of_a_token_baseline_stays() -> None:
    said = (f"{A}.calculate_sum_pi_squared=true", "trainer.use_v1=false")
    values, _ = written(*read("algorithm.adv_estimator=optimal_token_baseline", *said, base=BASE[:-1]), "verl@0.9")
    assert values["actor_rollout_ref"]["actor"]["calculate_sum_pi_squared"] is True
    assert values["trainer"]["use_v1"] is False


PLAIN = """
buffer:
  explorer_input:
    taskset:
      storage_type: file
      path: org/questions
      format: {prompt_key: question, response_key: answer}
"""


def test_data_made_for_another_framework_leaves_verl_its_columns_and_says_which() -> None:
    values, report = from_trinity(PLAIN)
    assert "reward_fn_key" not in values["data"]
    told = {finding.code: finding.message for finding in report.findings if finding.code.startswith("data-")}
    assert "reward_model.ground_truth" in told["data-columns"]
    assert any("org/questions" in finding.message for finding in report.findings if finding.code == "data-files")
    assert any(finding.key == "data.val_files" for finding in report.findings)


def test_data_of_verl_s_own_asks_for_nothing() -> None:
    _, report = written(*read(), "verl")
    assert not [finding for finding in report.findings if finding.code.startswith("data-")]


EIGHT = "cluster: {node_num: 1, gpu_per_node: 8}\n"
ENGINES = (
    "explorer: {rollout_model: {engine_num: 4, gpu_memory_utilization: 0.85}}\nsynchronizer: {sync_method: nccl}\n"
)


def test_what_holds_for_devices_of_rollout_s_own_is_not_written_where_all_roles_share_them() -> None:
    values, report = from_trinity(ENGINES + EIGHT)
    rollout = values["actor_rollout_ref"]["rollout"]
    assert "gpu_memory_utilization" not in rollout
    assert "backend" not in rollout.get("checkpoint_engine", {})
    assert bucket(report, "explorer.rollout_model.gpu_memory_utilization") is Bucket.CARRIED
    assert bucket(report, "synchronizer.sync_method") is Bucket.DERIVED


def test_devices_of_rollout_s_own_keep_their_share_and_their_way_of_weights() -> None:
    values, _ = from_trinity(
        ENGINES.replace("engine_num: 4", "engine_num: 8") + "cluster: {node_num: 2, gpu_per_node: 8}"
    )
    rollout = values["actor_rollout_ref"]["rollout"]
    assert rollout["gpu_memory_utilization"] == 0.85
    assert rollout["checkpoint_engine"]["backend"] == "nccl"


def test_prompts_that_are_not_trained_on_are_left_out_of_the_data() -> None:
    values, _ = from_trinity("")
    assert values["data"]["filter_overlong_prompts"] is True
    loaded, report = read_document(
        read_yaml("mode: both\nmodel: {model_path: org/model, enable_prompt_truncation: false}", "run.yaml"),
        dialect="trinity",
        environment={},
    )
    assert loaded is not None
    values, _ = written(loaded, report, "verl")
    assert "filter_overlong_prompts" not in values["data"]


def test_a_folder_of_runs_and_a_preset_are_not_lost() -> None:
    values, report = from_trinity("project: p\nname: n\ncheckpoint_root_dir: /root\nalgorithm: {algorithm_type: cispo}")
    assert values["trainer"]["default_local_dir"] == "/root/p/n"
    assert bucket(report, "checkpoint_root_dir") is Bucket.DERIVED
    assert bucket(report, "algorithm.algorithm_type") is Bucket.DERIVED


def test_an_interval_that_is_rounded_to_whole_steps_is_approximated() -> None:
    text = "buffer: {batch_size: 8}\nalgorithm: {repeat_times: 4}\nsynchronizer: {sync_interval: 80}\n"
    values, report = from_trinity(text + "trainer: {save_interval: 100}")
    assert values["trainer"]["save_freq"] == 1
    entry = next(entry for entry in report.accounting if entry.key == "trainer.save_interval")
    assert entry.bucket is Bucket.APPROXIMATED
    assert "100 optimizer steps in Trinity, 1 step in verl" in entry.note
    assert "100 optimizer steps = every 1 step, rounded" in entry.note
    assert "在 Trinity 中是 100 个优化器步，在 verl 中是 1 步" in in_language(
        "zh", "silent-difference", reason=entry.note
    )


def test_passes_of_the_critic_that_follow_the_policys_are_named_by_their_number() -> None:
    passes = ("algorithm.adv_estimator=gae", f"{A}.ppo_epochs=2", "trainer.total_training_steps=10")
    made = translate_loaded(*read(*passes), "roll")
    told = [finding.message for finding in made.report.findings if finding.key == "critic.ppo_epochs"]
    assert told == ["critic.ppo_epochs is 2 in verl, 1 in ROLL"]


DAPO = [f"reward_model.overlong_buffer.{item}" for item in ("enable=true", "len=512", "penalty_factor=0.5")]


def test_the_penalty_of_the_dapo_recipe_is_read_where_the_recipe_has_it() -> None:
    """Until 0.7 recipe.dapo took it from the reward model's block, which it has without a reward model."""
    document = read_yaml("", "overrides", allow_empty=True)
    groups = ["algorithm.filter_groups.enable=true", "data.gen_batch_size=1536", "reward_model.reward_manager=dapo"]
    loaded, report = read_document(document, dialect="verl", overrides=[*BASE, *DAPO, *groups], environment={})
    assert loaded is not None
    penalty = loaded.config.algorithm.reward_shaping.overlong_penalty
    assert penalty is not None
    assert (penalty.buffer, penalty.factor, penalty.limit) == (512, 0.5, None)
    assert bucket(report, "reward_model.overlong_buffer.len") is Bucket.MAPPED
    values, _ = written(loaded, report, "verl@0.9")
    reward = values["reward"]["reward_kwargs"]
    assert reward == {"overlong_buffer_cfg": {"enable": True, "len": 512, "penalty_factor": 0.5}, "max_resp_len": 512}


@pytest.mark.parametrize(("temperature", "told"), [(1.0, False), (0.99, True), (0.6, True)])
def test_training_at_another_temperature_is_reported_although_the_source_has_no_key_for_it(
    temperature: float, told: bool
) -> None:
    text = f"exp_name: x\npretrain: m\nactor_infer: {{generating_args: {{temperature: {temperature}}}}}\n"
    loaded, report = read_document(read_yaml(text, "roll.yaml"), dialect="roll")
    assert loaded is not None
    _, outcome = written(loaded, report, "verl@0.9")
    found = [finding for finding in outcome.findings if finding.key == "algorithm.train_temperature"]
    assert [finding.code for finding in found] == (["silent-difference"] if told else [])
    assert all(f"{temperature:g}" in finding.message for finding in found)


@pytest.mark.parametrize(
    ("micro", "log_prob", "expected"),
    [
        ("unit: responses, size: 2", "{unit: tokens, size: 8192}", {"log_prob_use_dynamic_bsz": False, "log_prob_micro_batch_size_per_gpu": 5}),
        ("unit: tokens, size: 9000", "{unit: responses, size: 3}", {"log_prob_use_dynamic_bsz": True, "log_prob_max_token_len_per_gpu": 4608}),
        ("unit: responses, size: 2", "null", {"log_prob_micro_batch_size_per_gpu": 2}),
    ],
)  # fmt: skip
def test_log_prob_passes_count_as_training_does(micro: str, log_prob: str, expected: dict[str, Any]) -> None:
    """verl's workers assert that both switches agree, and its validator asks for a size unless training counts tokens."""
    text = (
        f"rlctl: 1\nmodel: {{path: m}}\nbatch: {{micro_batch: {{{micro}}}, log_prob_micro_batch: {log_prob}}}\n"
        "data: {max_prompt_tokens: 512}\nrollout: {max_response_tokens: 1024}\n"
    )
    loaded, report = read_document(read_yaml(text, "rlctl.yaml"))
    assert loaded is not None
    values, _ = written(loaded, report, "verl@0.9")
    rollout, actor = values["actor_rollout_ref"]["rollout"], values["actor_rollout_ref"]["actor"]
    assert {key: rollout.get(key) for key in expected} == expected
    assert rollout.get("log_prob_use_dynamic_bsz", actor.get("use_dynamic_bsz")) == actor.get("use_dynamic_bsz")


@pytest.mark.parametrize("version", ["0.3", "0.4", "0.9"])
def test_the_only_loss_of_early_releases_is_no_loss_of_meaning(version: str) -> None:
    text = "rlctl: 1\nmodel: {path: m}\nalgorithm: {policy_loss: ppo_clip}\n"
    loaded, report = read_document(read_yaml(text, "rlctl.yaml"))
    assert loaded is not None
    assert bucket(written(loaded, report, f"verl@{version}")[1], "algorithm.policy_loss") is Bucket.MAPPED
    loaded, report = read_document(read_yaml(text.replace("ppo_clip", "{type: gspo}"), "rlctl.yaml"))
    assert loaded is not None
    expected = Bucket.MAPPED if version == "0.9" else Bucket.UNSUPPORTED
    assert bucket(written(loaded, report, f"verl@{version}")[1], "algorithm.policy_loss.type") is expected


PENALTY = "algorithm: {reward_shaping: {overlong_penalty: {buffer: 512, factor: 0.5}}}\n"


@pytest.mark.parametrize(
    ("version", "key"),
    [
        ("0.9", "reward.reward_manager"),
        ("0.7", "reward_model.reward_manager"),  # which 0.7.0 and 0.7.1 both take over
        ("0.6", "reward_model.reward_manager"),
    ],
)
def test_a_penalty_is_written_with_the_only_manager_that_reads_it(version: str, key: str) -> None:
    loaded, report = read_document(read_yaml(f"rlctl: 1\nmodel: {{path: m}}\n{PENALTY}", "rlctl.yaml"))
    assert loaded is not None
    values, _ = written(loaded, report, f"verl@{version}")
    named = find(values, parse_dotted(key))
    assert (named["name"] if isinstance(named, dict) else named) == "dapo"


def test_megatron_of_0_3_counts_responses_whatever_is_switched_on() -> None:
    text = "rlctl: 1\nmodel: {path: m}\ntrain: {engine: {type: megatron}}\nbatch: {micro_batch: {unit: tokens, size: 9000}}\n"
    loaded, report = read_document(read_yaml(text, "rlctl.yaml"))
    assert loaded is not None
    longest = loaded.config.data.max_prompt_tokens + loaded.config.rollout.max_response_tokens
    values, outcome = written(loaded, report, "verl@0.3")
    actor = values["actor_rollout_ref"]["actor"]
    assert (actor["ppo_micro_batch_size_per_gpu"], actor["use_dynamic_bsz"]) == (max(1, 9000 // longest), False)
    assert bucket(outcome, "batch.micro_batch.size") is Bucket.DERIVED
    lines = [*BASE, "actor_rollout_ref.actor.strategy=megatron", "actor_rollout_ref.actor.use_dynamic_bsz=true"]
    _, report = read_document(
        read_yaml("", "overrides", allow_empty=True), dialect="verl@0.3", overrides=lines, environment={}
    )
    assert bucket(report, "actor_rollout_ref.actor.use_dynamic_bsz") is Bucket.DEAD


def test_no_release_has_keys_for_rotary_positions() -> None:
    """A worker of 0.6 and later stops at one that its dataclass lacks."""
    loaded, report = read_document(read_yaml("rlctl: 1\nmodel: {path: m, rope: {theta: 5e5}}\n", "rlctl.yaml"))
    assert loaded is not None
    values, outcome = written(loaded, report, "verl@0.9")
    assert "rope_theta" not in values["actor_rollout_ref"]["model"]
    assert bucket(outcome, "model.rope.theta") is Bucket.UNSUPPORTED


def test_another_manager_loses_a_penalty_that_it_cannot_apply() -> None:
    text = f"rlctl: 1\nmodel: {{path: m}}\nreward_loop: {{manager: remote}}\n{PENALTY}"
    loaded, report = read_document(read_yaml(text, "rlctl.yaml"))
    assert loaded is not None
    values, outcome = written(loaded, report, "verl@0.9")
    assert values["reward"]["reward_manager"]["name"] == "remote"
    assert "reward_kwargs" not in values["reward"]
    assert bucket(outcome, "algorithm.reward_shaping.overlong_penalty.buffer") is Bucket.UNSUPPORTED


def test_a_penalty_that_no_manager_reads_is_no_penalty() -> None:
    root = "+reward.reward_kwargs"
    lines = [f"{root}.overlong_buffer_cfg.{item}" for item in ("enable=true", "len=512", "penalty_factor=0.5")]
    document = read_yaml("", "overrides", allow_empty=True)
    overrides = [*BASE, *lines, f"{root}.max_resp_len=512"]
    loaded, report = read_document(document, dialect="verl", overrides=overrides, environment={})
    assert loaded is not None
    assert loaded.config.algorithm.reward_shaping.overlong_penalty is None
    assert bucket(report, "reward.reward_kwargs.overlong_buffer_cfg.enable") is Bucket.DEAD
    loaded, _ = read_document(
        document, dialect="verl", overrides=[*overrides, "reward.reward_manager.name=dapo"], environment={}
    )
    assert loaded is not None
    assert loaded.config.algorithm.reward_shaping.overlong_penalty is not None


@pytest.mark.parametrize(
    ("overrides", "tokens", "buckets"),
    [
        (["data.max_response_length=1000"], 1000, {}),
        ([f"{R}.response_length=2000"], 2000, {}),
        (["data.max_response_length=1000", f"{R}.response_length=1000"], 1000, {f"{R}.response_length": Bucket.MAPPED}),
        (
            ["data.max_response_length=1000", f"{R}.response_length=2000"],
            2000,
            {"data.max_response_length": Bucket.DEAD},
        ),
    ],
)
def test_rollout_goes_by_its_own_length(overrides: list[str], tokens: int, buckets: dict[str, Bucket]) -> None:
    """``rollout.response_length`` names the data's where it is not said; the engine is given what it says."""
    loaded, report = read(*overrides)
    assert loaded.config.rollout.max_response_tokens == tokens
    assert {key: bucket(report, key) for key in buckets} == buckets


def test_an_adapter_to_start_from_is_lora_without_a_rank() -> None:
    loaded, report = read("actor_rollout_ref.model.lora_adapter_path=/adapters/mine")
    assert loaded.config.model.lora is not None
    assert loaded.config.model.lora.adapter_path == "/adapters/mine"
    values, _ = written(loaded, report, "verl")
    assert values["actor_rollout_ref"]["model"] == {"path": "org/model", "lora_adapter_path": "/adapters/mine"}


@pytest.mark.parametrize(
    ("overrides", "by", "size"),
    [
        (["data.micro_batch_size_per_gpu=64"], "tokens", 16384),
        (["data.max_token_len_per_gpu=2048"], "tokens", 4096),
        (["data.use_dynamic_bsz=false"], "responses", 4),
        (["data.use_dynamic_bsz=false", "data.micro_batch_size_per_gpu=64"], "responses", 64),
    ],
)
def test_supervised_training_counts_tokens_unless_it_is_told_not_to(overrides: list[str], by: str, size: int) -> None:
    """The SFT trainer's own default, unlike the PPO trainer's; 8192 tokens on each of two GPUs that share a sequence."""
    base = ["data.train_files=a.parquet", "model.path=org/model", "engine.ulysses_sequence_parallel_size=2"]
    loaded, _ = read(*overrides, base=base)
    assert (loaded.config.batch.micro_batch.unit, loaded.config.batch.micro_batch.size) == (by, size)


def test_groups_are_filtered_as_each_release_does() -> None:
    keys = ["algorithm.filter_groups.enable=true", "algorithm.filter_groups.max_num_gen_batches=10"]
    older, _ = read(*keys, dialect="verl@0.8")
    assert older.config.rollout.oversampling.max_generation_batches == 10
    newer, report = read(*keys, dialect="verl@0.9")
    assert newer.config.rollout.oversampling.max_generation_batches is None
    assert newer.config.algorithm.filters[0].metric == "reward"  # type: ignore[union-attr]
    assert bucket(report, "algorithm.filter_groups.max_num_gen_batches") is Bucket.DEAD
    values, _ = written(newer, report, "verl@0.9")
    assert values["algorithm"]["filter_groups"]["enable"] is True
    assert values["algorithm"]["filter_groups"].get("metric", "reward") == "reward", "null is refused"
    _, account = written(older, report, "verl@0.9")
    assert any("max_generation_batches" in finding.key for finding in account.findings)


@pytest.mark.parametrize(
    ("key", "live", "gone"),
    [
        (f"{R}.multi_turn.tokenization_sanity_check_mode=disable", "0.6", "0.7"),
        (f"{R}.multi_turn.use_inference_chat_template=true", "0.6", "0.7"),
        (f"{R}.agent.custom_async_server.path=server.py", "0.5", "0.6"),
    ],
)
def test_keys_of_turns_that_a_release_stopped_reading_are_dead(key: str, live: str, gone: str) -> None:
    name = key.partition("=")[0]
    assert bucket(read(key, dialect=f"verl@{live}")[1], name) in (Bucket.CARRIED, Bucket.UNSUPPORTED)
    loaded, report = read(key, dialect=f"verl@{gone}")
    assert bucket(report, name) is Bucket.DEAD
    assert loaded.config.rollout == read(dialect=f"verl@{gone}")[0].config.rollout


@pytest.mark.parametrize(
    "key",
    [f"{R}.agent.agent_loop_config_path", f"{R}.agent.agent_loop_manager_class", "data.tool_config_path"],
)
def test_tools_and_agent_loops_of_verl_are_not_kept_in_silence(key: str) -> None:
    _, report = read(f"{key}=tools.py")
    assert bucket(report, key) is Bucket.UNSUPPORTED


@pytest.mark.parametrize(
    ("advantage", "lost"),
    [
        ("{type: reinforce_plus_plus, whiten: true}", False),
        ("{type: reinforce_plus_plus, whiten: false}", True),
        ("{type: grpo, whiten: true}", True),
        ("{type: grpo, whiten: false}", False),
    ],
)
def test_whitening_is_lost_only_if_verls_estimator_does_otherwise(advantage: str, lost: bool) -> None:
    text = f"rlctl: 1\nmodel: {{path: m}}\nschedule: {{total_steps: 1}}\nalgorithm: {{advantage: {advantage}}}\n"
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="rlctl", environment={})
    made = translate_loaded(loaded, report, "verl").report
    (entry,) = [entry for entry in made.accounting if entry.key == "algorithm.advantage.whiten"]
    assert (entry.bucket is Bucket.UNSUPPORTED) is lost


@pytest.mark.parametrize(("release", "kept"), [("0.7", True), ("0.8", False), ("0.9", False)])
def test_a_reward_manager_that_a_release_removed_is_left_to_its_default(release: str, kept: bool) -> None:
    loaded, report = read_document(
        read_yaml("reward_model: {reward_manager: prime}\n", "run.yaml"), dialect="verl@0.6", environment={}
    )
    made = translate_loaded(loaded, report, f"verl@{release}", options={"carried": "none"})
    assert ("prime" in str(made.text)) is kept
    (entry,) = [entry for entry in made.report.accounting if entry.key == "reward_model.reward_manager"]
    assert (entry.bucket is Bucket.UNSUPPORTED) is not kept


@pytest.mark.parametrize(
    ("mode", "applied", "rejection"),
    [("truncate", True, []), ("mask", True, ["token_k1"]), ("mask", False, []), ("truncate", False, [])],
)
def test_the_flat_correction_of_0_6_weighs_only_where_it_is_applied(
    mode: str, applied: bool, rejection: list[str]
) -> None:
    """mismatch_helper.py of verl 0.6: without ``rollout_is`` metrics alone; ``mask`` sets weights out of the bounds to 0."""
    flat = [f"algorithm.rollout_is={str(applied).lower()}", "algorithm.rollout_is_threshold=2.0"]
    loaded, _ = read(*flat, f"algorithm.rollout_is_mode={mode}", dialect="verl@0.6")
    found = loaded.config.algorithm.rollout_correction
    assert found is not None
    assert found.importance_sampling.level == ("token" if applied else "none")
    assert list(found.rejection) == rejection
    assert [list(each) for each in found.rejection_bounds] == [[0.5, 2.0]] * len(rejection)


@pytest.mark.parametrize("line", ["rollout_is_mode=veto", "rollout_is_level=turn"])
def test_a_flat_correction_that_verl_0_6_refuses_is_refused(line: str) -> None:
    with pytest.raises(AssertionError, match="expected"):
        read("algorithm.rollout_is=true", "algorithm.rollout_is_threshold=2.0", f"algorithm.{line}", dialect="verl@0.6")


@pytest.mark.parametrize(
    ("overrides", "unit", "size"),
    [
        (["critic.use_dynamic_bsz=true", "critic.forward_max_token_len_per_gpu=1024"], "tokens", 1024),
        (["critic.use_dynamic_bsz=false", "critic.forward_micro_batch_size_per_gpu=2"], "responses", 2),
        (["critic.use_dynamic_bsz=false", "critic.forward_micro_batch_size=16"], "responses", 2),
    ],
)
def test_the_pass_for_values_has_a_separate_size_until_0_7(overrides: list[str], unit: str, size: int) -> None:
    critic = ["algorithm.adv_estimator=gae", "critic.model.path=org/model", "critic.ppo_micro_batch_size_per_gpu=4"]
    loaded, report = read(*critic, *overrides, dialect="verl@0.7")
    assert loaded.config.critic is not None
    found = loaded.config.critic.forward_micro_batch
    assert found is not None
    assert (found.unit, found.size) == (unit, size)
    again, _ = written(loaded, report, "verl@0.7")
    key = "forward_max_token_len_per_gpu" if unit == "tokens" else "forward_micro_batch_size_per_gpu"
    assert again["critic"][key] == size
    newer, about = read(*critic, *overrides, dialect="verl@0.8")
    assert newer.config.critic is not None
    assert newer.config.critic.forward_micro_batch is None
    assert bucket(about, overrides[1].partition("=")[0]) is Bucket.DEAD


@pytest.mark.parametrize(
    ("written_as", "names"),
    [("q_proj,v_proj", ["q_proj", "v_proj"]), ("all-linear", ["all-linear"]), (r"'.*\.[qv]_proj'", [r".*\.[qv]_proj"])],
)
def test_target_modules_may_be_names_with_commas(written_as: str, names: list[str]) -> None:
    model = "actor_rollout_ref.model"
    loaded, _ = read(f"{model}.lora_rank=8", f"{model}.target_modules='{written_as}'".replace("''", "'"))
    assert loaded.config.model.lora is not None
    assert list(loaded.config.model.lora.target_modules) == names


def test_an_export_at_the_end_comes_back_although_verl_writes_none() -> None:
    text = "model:\n  model_path: org/m\ncluster:\n  gpu_per_node: 8\ntrainer:\n  save_interval: 5\n  save_hf_checkpoint: last\n"
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="trinity", environment={})
    assert loaded is not None
    made = translate_loaded(loaded, report, "verl")
    assert bucket(made.report, "trainer.save_hf_checkpoint") is Bucket.CARRIED
    back, _ = read_document(read_yaml(made.text or "", "verl.yaml"), dialect="verl", environment={})
    assert back is not None
    assert back.config.checkpoint.export == "last"


def test_a_null_spelling_is_not_called_ignored_if_another_one_decides() -> None:
    tokenizer = "actor_rollout_ref.model.tokenizer_path"
    _, report = read("data.tokenizer=org/t", f"{tokenizer}=null")
    assert bucket(report, tokenizer) is Bucket.MAPPED
    _, report = read("data.tokenizer=org/t", f"{tokenizer}=org/other")
    assert bucket(report, tokenizer) is Bucket.DEAD


def test_a_key_of_fsdp_that_fsdp2_has_no_use_for_keeps_its_place() -> None:
    place = f"{A}.fsdp_config"
    loaded, report = read(f"{place}.use_orig_params=true", f"{place}.turbo_config.tensor_parallel_size=2")
    values, _ = written(loaded, report, "verl")
    block = values["actor_rollout_ref"]["actor"]["fsdp_config"]
    assert (block["use_orig_params"], block["turbo_config"]) == (True, {"tensor_parallel_size": 2})


@pytest.mark.parametrize(("version", "root"), [("0.9", "reward"), ("0.8", "reward"), ("0.7", "reward_model")])
def test_a_kept_key_goes_to_the_block_that_its_release_reads(version: str, root: str) -> None:
    """verl 0.8 would put an older block in the place of the whole new one, and lose the penalty with it."""
    kept = "{verl: {reward_model.reward_kwargs.overlong_buffer_cfg.log: true}}"
    text = f"rlctl: 1\nmodel: {{path: m}}\n{PENALTY}\nextensions: {kept}\n"
    loaded, report = read_document(read_yaml(text, "rlctl.yaml"))
    assert loaded is not None, report.findings
    values, _ = written(loaded, report, f"verl@{version}")
    assert values[root]["reward_kwargs"]["overlong_buffer_cfg"]["log"] is True
    assert values[root]["reward_kwargs"]["overlong_buffer_cfg"]["enable"] is True
    assert version == "0.7" or "reward_kwargs" not in values.get("reward_model", {})


def test_verl_0_3_reads_no_overlong_penalty_and_no_override_of_megatrons_transformer() -> None:
    engine = "{type: megatron, moe: {grouped_gemm: true}}"
    text = f"rlctl: 1\nmodel: {{path: m}}\ntrain: {{engine: {engine}}}\n{PENALTY}"
    loaded, report = read_document(read_yaml(text, "rlctl.yaml"))
    assert loaded is not None, report.findings
    values, outcome = written(loaded, report, "verl@0.3")
    assert "reward_kwargs" not in values.get("reward_model", {})
    assert "override_transformer_config" not in values["actor_rollout_ref"]["actor"]["megatron"]
    assert bucket(outcome, "algorithm.reward_shaping.overlong_penalty.factor") is Bucket.UNSUPPORTED
    assert bucket(outcome, "train.engine.moe.grouped_gemm") is Bucket.UNSUPPORTED
