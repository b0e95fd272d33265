"""What one framework cannot say, an explicit value or a default of the other, is there again after converting back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlctl.config import Config
from rlctl.documents import read_yaml
from rlctl.translation.translate import convert, read, read_document, translate_loaded
from tests.adapters.roll.texts import AGENTIC, RLVR

TRINITY = """
algorithm: {algorithm_type: grpo, repeat_times: 8}
model: {model_path: org/model, max_model_len: 1024}
cluster: {node_num: 1, gpu_per_node: 8}
buffer:
  batch_size: 32
  total_epochs: 2
  explorer_input:
    default_workflow_type: math_workflow
    taskset:
      {name: t, path: data, subset_name: main, format: {prompt_key: question, response_key: answer}}
    eval_tasksets:
      - {name: e, path: data, split: test, format: {prompt_key: question, response_key: answer}}
  trainer_input: {experience_buffer: {name: exp, storage_type: queue}}
explorer: {rollout_model: {engine_num: 4}}
"""
VERL = """
data: {train_files: a.parquet, val_files: b.parquet, train_batch_size: 64}
actor_rollout_ref:
  model: {path: org/model}
  actor: {ppo_mini_batch_size: 64, policy_loss: {loss_mode: geo_mean}}
  rollout: {name: vllm, n: 4}
algorithm: {adv_estimator: grpo}
trainer: {total_epochs: 15, n_gpus_per_node: 8, nnodes: 1}
"""


def there_and_back(text: str, first: str, second: str) -> tuple[Config, Config, dict[str, Any]]:
    """The config of a text before and after, and the text's values after."""
    away = convert(text, second, dialect=first, environment={})
    assert away.text is not None, away.report.errors
    home = convert(away.text, first, dialect=second, environment={})
    assert home.text is not None, home.report.errors
    configs = []
    for each in (text, home.text):
        loaded, report = read_document(read_yaml(each, "x.yaml"), dialect=first, environment={})
        assert loaded is not None, report.errors
        configs.append(loaded.config)
    return configs[0], configs[1], yaml.safe_load(home.text)


def test_defaults_of_trinity_come_back_from_roll() -> None:
    """ROLL moves idle parameters, has another KL estimator and recomputes log-probs; Trinity's silence says otherwise."""
    before, after, values = there_and_back(TRINITY, "trinity", "roll")
    assert before.algorithm.kl_in_loss == after.algorithm.kl_in_loss
    assert before.algorithm.old_log_probs == after.algorithm.old_log_probs == "rollout"
    assert getattr(after.train.engine, "offload", "none") == "none"
    assert values["trainer"].get("param_offload") is False
    assert after.schedule.total_steps is None
    assert after.schedule.total_epochs == 2
    assert before.reference.engine is after.reference.engine is None
    assert before.algorithm.preset == after.algorithm.preset == "grpo"
    assert before.checkpoint.resume == after.checkpoint.resume == "auto"
    assert before.buffer.label == after.buffer.label == "exp"


def test_sources_keep_their_columns_and_prompts() -> None:
    before, after, _ = there_and_back(TRINITY, "trinity", "roll")
    for one, other in zip((*before.data.train, *before.data.eval), (*after.data.train, *after.data.eval), strict=True):
        fields = ("name", "path", "split", "subset", "prompt_key", "answer_key", "system_prompt")
        assert [getattr(one, name) for name in fields] == [getattr(other, name) for name in fields]


def test_a_list_that_was_changed_since_is_left_as_it_is() -> None:
    away = convert(TRINITY, "roll", dialect="trinity", environment={}).text or ""
    assert "file_name: [data]" in away
    home = convert(away.replace("file_name: [data]", "file_name: [other]"), "trinity", dialect="roll", environment={})
    named = yaml.safe_load(home.text or "")["buffer"]["explorer_input"]
    assert "subset_name" not in named["taskset"]


def test_the_length_of_a_verl_run_comes_back_from_roll() -> None:
    _, after, values = there_and_back(VERL, "verl", "roll")
    assert (after.schedule.total_steps, after.schedule.total_epochs) == (None, 15)
    assert values["trainer"].get("total_training_steps") is None


def test_a_loss_that_trinity_lacks_comes_back() -> None:
    _, after, values = there_and_back(VERL, "verl", "trinity")
    assert getattr(after.algorithm.policy_loss, "kind", "") == "geo_mean"
    assert values["actor_rollout_ref"]["actor"]["policy_loss"]["loss_mode"] == "geo_mean"


def test_what_is_kept_inside_a_list_refers_to_no_canonical_key() -> None:
    """A tracker's name that follows the run's came back as ``${run.name}``, which ROLL cannot resolve."""
    text = """
exp_name: mine
pretrain: org/model
prompt_length: 512
response_length: 512
track_with: wandb
tracker_kwargs: {name: "${exp_name}", project: p, tags: ["${oc.env:TAG,x}"]}
actor_train:
  device_mapping: list(range(0,8))
  strategy_args: {strategy_name: fsdp2_train}
  data_args: {file_name: a.jsonl, messages: messages}
actor_infer: {device_mapping: "list(range(0,8))", strategy_args: {strategy_name: vllm}}
"""
    for middle in ("verl", "trinity"):
        away = convert(text, middle, dialect="roll", environment={})
        home = convert(away.text or "", "roll", dialect=middle, environment={})
        assert "${run." not in (away.text or "").replace("checkpoint.folder", "") + (home.text or "")
        assert yaml.safe_load(home.text or "")["tracker_kwargs"]["name"] in ("mine", "${exp_name}")


@pytest.mark.parametrize("middle", ["roll", "verl", "trinity"])
def test_what_is_kept_names_no_key_that_is_not_written_again(middle: str) -> None:
    """ROLL's agentic files name a number of their own in several places; the number itself is no key of ROLL."""
    most = "train_env_manager: {max_traj_per_env: '${most}', "
    text = "most: 3\n" + AGENTIC.replace("train_env_manager: {", most, 1)
    away = convert(text, middle, dialect="roll", environment={})
    home = convert(away.text or "", "roll", dialect=middle, environment={})
    assert "${most}" not in (away.text or "") + (home.text or "")
    assert yaml.safe_load(home.text or "")["train_env_manager"]["max_traj_per_env"] == 3


def test_a_column_that_sft_rows_lack_is_not_written() -> None:
    text = """
pretrain: org/model
sequence_length: 512
sft_train:
  training_args: {learning_rate: 1.0e-5, per_device_train_batch_size: 1}
  data_args: {file_name: code.json}
  strategy_args: {strategy_name: fsdp2_train}
  device_mapping: list(range(0,8))
"""
    away = convert(text, "trinity", dialect="roll", environment={})
    home = convert(away.text or "", "roll", dialect="trinity", environment={})
    assert "system_key" not in yaml.safe_load(home.text or "")


def test_a_reward_that_a_workflow_implies_goes_whole_with_its_prompt() -> None:
    """The kept sources have no system prompt, so the workflow's is taken back, and the reward that goes with it."""
    text = "data: {path: a.parquet, prompt_key: prompt, response_key: responses, reward_model_key: reward_model}\n"
    away = convert(text, "trinity", dialect="verl", environment={})
    loaded, report = read_document(read_yaml(away.text or "", "a.yaml"), dialect="trinity", environment={})
    assert loaded is not None, [finding.message for finding in report.errors]
    assert loaded.config.data.eval[0].system_prompt is None
    assert getattr(loaded.config.rewards[0], "rule", "auto") == "auto" if loaded.config.rewards else True


def test_environments_come_back_whole_by_way_of_trinity() -> None:
    """Trinity's workflow plays one of them; a managers' tag without its environment makes ROLL stop with a KeyError."""
    kept = AGENTIC.replace("Sokoban: {", "Sokoban: {env_config: {dim_room: [6, 6]}, ")
    before, after, values = there_and_back(kept, "roll", "trinity")
    assert before.rollout.agents == after.rollout.agents
    assert before.data == after.data
    assert values["custom_envs"]["Sokoban"]["env_config"] == {"dim_room": [6, 6]}
    assert values["train_env_manager"]["tags"] == ["Sokoban"]


NAMED_WHOLE = (
    AGENTIC.split("train_env_manager:", maxsplit=1)[0]
    + """
blocks:
  Sokoban: {env_type: sokoban, max_steps: 10, agent_template: "See: \\n\\n{observation} \\nAct."}
  Larger: {env_type: sokoban, max_steps: 20, env_config: {dim_room: [8, 8]}}
train_env_manager: {num_env_groups: 16, group_size: 8, tags: [Sokoban], num_groups_partition: [16]}
val_env_manager: {num_env_groups: 64, group_size: 1, tags: [Sokoban, Larger], num_groups_partition: [32, 32]}
custom_envs: {Sokoban: "${blocks.Sokoban}", Larger: "${blocks.Larger}"}
"""
)


@pytest.mark.parametrize("middle", ["verl", "trinity"])
def test_environments_that_are_named_as_whole_blocks_come_back(middle: str) -> None:
    """As in ROLL's examples; the spaces at the ends of a template's lines are tokens of the prompt."""
    before, after, _ = there_and_back(NAMED_WHOLE, "roll", middle)
    assert after.rollout.agents == before.rollout.agents
    assert after.data == before.data
    assert len(after.data.eval) == 2


def test_environments_that_trinity_plays_in_its_own_way_come_back_with_the_others() -> None:
    """Its workflow of one of them is read as the only agent, and as the default one."""
    text = NAMED_WHOLE.replace(
        "Sokoban: {env_type: sokoban, max_steps: 10,", "Sokoban: {env_type: frozen_lake, max_steps: 10,"
    )
    before, after, values = there_and_back(text, "roll", "trinity")
    assert after.rollout == before.rollout
    assert after.data == before.data
    assert list(values["custom_envs"]) == ["Sokoban", "Larger"]


def test_sources_without_rows_come_back_where_the_variable_of_their_file_is_set() -> None:
    away = convert(NAMED_WHOLE, "verl", dialect="roll", environment={}).text or ""
    files = {"VERL_TRAIN_FILES": "a.parquet", "VERL_VAL_FILES": "b.parquet"}
    loaded, report = read_document(read_yaml(away, "x.yaml"), dialect="verl", environment=files)
    assert loaded is not None, report.errors
    assert [source.agent for source in loaded.config.data.eval] == ["Sokoban", "Larger"]
    assert {source.path for source in loaded.config.data.eval} == {""}


def test_environments_that_are_named_as_whole_blocks_are_reported_as_lost() -> None:
    entries = convert(NAMED_WHOLE, "verl", dialect="roll", environment={}).report.accounting
    lost = {entry.key: entry.note for entry in entries if entry.loses}
    assert lost["custom_envs.Sokoban"] == "an agent that acts in an environment: verl has no environments"


def test_rolls_own_reward_is_none_of_trinitys() -> None:
    away = convert(RLVR, "trinity", dialect="roll", environment={}).text or ""
    back = convert(away, "trinity", dialect="trinity", environment={}).text or ""
    for text in (away, back):
        taskset = yaml.safe_load(text)["buffer"]["explorer_input"].get("taskset", {})
        assert taskset.get("default_reward_fn_type") != "roll"


def test_shared_devices_come_back_from_trinity() -> None:
    """Trinity's explorer has devices of its own, and engines that leave some to the trainer."""
    wide = yaml.safe_load(VERL)
    wide["actor_rollout_ref"]["rollout"] |= {"tensor_model_parallel_size": 8, "gpu_memory_utilization": 0.6}
    before, after, _ = there_and_back(yaml.safe_dump(wide), "verl", "trinity")
    assert before.placement == after.placement
    assert before.rollout.parallel == after.rollout.parallel
    assert after.rollout.memory.gpu_memory_utilization == 0.6


def test_what_a_launch_script_keeps_comes_back(tmp_path: Path) -> None:
    """verl's scripts are what is run; their comments are read like those of YAML."""
    loaded, report = read_document(read_yaml(TRINITY, "x.yaml"), dialect="trinity", environment={})
    script = tmp_path / "run.sh"
    script.write_text(translate_loaded(loaded, report, "verl", options={"format": "sh"}).text or "")
    back, report = read(script, environment={})
    assert loaded is not None
    assert back is not None, report.errors
    assert [source.name for source in back.config.data.train] == [source.name for source in loaded.config.data.train]
    assert back.config.placement == loaded.config.placement


def test_a_bound_that_never_acts_is_none() -> None:
    """Trinity's dual clip is always on: none is written as a bound that no ratio reaches."""
    before, after, _ = there_and_back(RLVR, "roll", "trinity")
    assert getattr(before.algorithm.policy_loss, "dual_clip", 0) is None
    assert before.algorithm.policy_loss == after.algorithm.policy_loss


def test_a_share_comes_back_only_with_its_reward() -> None:
    """verl names the workers of its one reward, so that the list of rewards is not put back; ROLL refuses a domain without one."""
    values = yaml.safe_load(RLVR)
    values["actor_train"].setdefault("data_args", {})["domain_interleave_probs"] = {"math_rule": 0.5, "boxes": 0.5}
    worker = {"worker_cls": "my.Worker", "tag_included": ["boxes"], "world_size": 8}
    values["rewards"] = {"math_rule": {**next(iter(values["rewards"].values())), "world_size": 8}, "boxes": worker}
    _, _, after = there_and_back(yaml.safe_dump(values), "roll", "verl")
    assert set(after["actor_train"]["data_args"]["domain_interleave_probs"]) <= set(after["rewards"])


@pytest.mark.parametrize(
    ("written", "changed", "layout"),
    [
        ("    engine_num: 2", "    engine_num: 2", "colocated"),
        ("    engine_num: 2", "    engine_num: 3", "split"),
        ("  repeat_times: 4", "  repeat_times: 8", "colocated"),
    ],
)
def test_what_somebody_changed_since_holds_over_what_is_kept(written: str, changed: str, layout: str) -> None:
    """Trinity's explorer has devices of its own, which verl's shared ones imply; where they are set by hand they are meant."""
    away = convert(VERL, "trinity", dialect="verl", environment={}).text or ""
    assert written in away
    loaded, report = read_document(
        read_yaml(away.replace(written, changed), "x.yaml"), dialect="trinity", environment={}
    )
    assert loaded is not None, report.errors
    assert loaded.config.placement.layout == layout
    told = [finding for finding in report.findings if finding.code == "not-restored"]
    assert bool(told) is (layout == "split")
    assert all("engine_num" in finding.message for finding in told)


@pytest.mark.parametrize(
    ("written", "changed", "devices"),
    [("n_gpus_per_node: 4", "n_gpus_per_node: 4", 5), ("n_gpus_per_node: 4", "n_gpus_per_node: 2", 2)],
)
def test_what_a_framework_only_approximates_comes_back(written: str, changed: str, devices: int) -> None:
    """verl trains on all devices that divide a mini-batch, 4 of 5; Trinity on 4 beside 1 that explores."""
    odd = TRINITY.replace("gpu_per_node: 8", "gpu_per_node: 5").replace("engine_num: 4", "engine_num: 1")
    away = convert(odd, "verl", dialect="trinity", environment={}).text or ""
    assert written in away
    loaded, report = read_document(
        read_yaml(away.replace(written, changed, 1), "x.yaml"), dialect="verl", environment={}
    )
    assert loaded is not None, report.errors
    assert loaded.config.placement.devices_per_node == devices
    assert any(finding.code == "not-restored" for finding in report.findings) is (devices == 2)


def test_the_engine_of_a_role_comes_back_whole() -> None:
    """Its name alone, over the options of the engine that the text has, was a config that rlctl could not read."""
    veomni = yaml.safe_load(VERL)
    veomni["actor_rollout_ref"]["actor"] |= {"strategy": "veomni", "veomni": {"fsdp_size": 8}, "use_kl_loss": True}
    veomni["actor_rollout_ref"]["ref"] = {"strategy": "veomni", "veomni": {"param_offload": True}}
    before, after, _ = there_and_back(yaml.safe_dump(veomni), "verl", "roll")
    assert before.reference.engine == after.reference.engine


def test_what_is_kept_of_a_tracker_is_not_put_into_another_one() -> None:
    text = "exp_name: a\npretrain: m\ntrack_with: mine\ntracker_kwargs: {log_dir: logs}\n"
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="roll", environment={})
    assert loaded is not None, report.errors
    written = translate_loaded(loaded, report, "trinity")
    again, back = read_document(read_yaml(str(written.text), "again.yaml"), dialect="trinity", environment={})
    assert again is not None, back.errors
    assert "other" not in [tracker.choice for tracker in again.config.tracking]


def test_a_run_that_ends_between_two_train_steps_of_trinity_is_told_with_both_lengths() -> None:
    """A train step takes three steps of exploring, so that 200 steps are no whole number of train steps."""
    text = TRINITY.replace("batch_size: 32", "batch_size: 32\n  train_batch_size: 768")
    facts = {"dataset_rows": "3210"}
    away = convert(text, "verl", dialect="trinity", environment={}, options=facts)
    home = convert(away.text or "", "trinity", dialect="verl", environment={}, options=facts)
    assert yaml.safe_load(home.text or "")["buffer"]["train_batch_size"] == 768
    assert any("201 steps instead of 200" in entry.note for entry in home.report.accounting)


def test_a_rule_that_roll_only_approximates_comes_back() -> None:
    text = """
rlctl: 1
model: {path: m}
data: {train: [{path: a.parquet}]}
rewards: [{name: math_rule, applies_to: [math_rule], type: rule, rule: dapo_math}]
"""
    loaded, report = read_document(read_yaml(text, "x.yaml"), dialect="rlctl", environment={})
    made = translate_loaded(loaded, report, "roll").text or ""
    assert "rule: dapo_math" in made


@pytest.mark.parametrize("middle", ["verl", "roll"])
def test_settings_of_a_replay_buffer_and_of_micro_batches_come_back(middle: str) -> None:
    replay = "{enable: true, reuse_cooldown_time: 40, priority_fn: decay_limit_randomization}"
    text = TRINITY.replace("storage_type: queue", f"storage_type: queue, replay_buffer: {replay}")
    before, after, _ = there_and_back(text, "trinity@0.5", middle)
    assert before.buffer == after.buffer
    assert before.algorithm.loss_aggregation == after.algorithm.loss_aggregation
    assert after.algorithm.loss_aggregation.per_micro_batch


def test_the_note_of_restored_values_names_what_they_replace() -> None:
    text = TRINITY.replace("gpu_per_node: 8", "gpu_per_node: 7")
    away = convert(text, "verl", dialect="trinity", environment={}).text or ""
    home = convert(away, "trinity", dialect="verl", environment={})
    note = next(finding for finding in home.report.findings if finding.code == "restored")
    assert "replace trainer.n_gpus_per_node = 4" in note.message
    assert yaml.safe_load(home.text or "")["cluster"]["gpu_per_node"] == 7


def test_micro_batches_of_tokens_come_back_from_roll_unless_they_were_changed_there() -> None:
    tokens = "ppo_mini_batch_size: 64, use_dynamic_bsz: true, ppo_max_token_len_per_gpu: 30720"
    text = VERL.replace("ppo_mini_batch_size: 64", tokens).replace("loss_mode: geo_mean", "loss_mode: vanilla")
    before, after, _ = there_and_back(text, "verl", "roll")
    assert before.batch == after.batch
    away = convert(text, "roll", dialect="verl", environment={}).text or ""
    fewer, count = re.subn(r"(?m)^( +per_device_train_batch_size: )16$", r"\g<1>4", away)
    assert count == 1
    changed, _ = read_document(read_yaml(fewer, "x.yaml"), environment={})
    assert changed is not None
    assert (changed.config.batch.micro_batch.unit, changed.config.batch.micro_batch.size) == ("responses", 4)


def test_a_judge_of_roll_comes_back_from_verl_with_its_workers() -> None:
    """ROLL's own reference to the judge's model has to find it."""
    judge = "{worker_cls: my.Judge, world_size: 32, tag_included: [RLVR], model_args: {model_name_or_path: org/judge}}"
    text = re.sub(r"(?ms)^rewards:.*?(?=^\S|\Z)", f"rewards:\n  judge: {judge}\n", RLVR)
    assert "my.Judge" in text
    before, after, values = there_and_back(text, "roll", "verl")
    assert before.rewards == after.rewards
    assert values["rewards"]["judge"]["world_size"] == 32


@pytest.mark.parametrize("changed", [False, True])
def test_a_reward_that_roll_has_no_worker_for_comes_back_unless_it_was_changed(changed: bool) -> None:
    scored = "default_workflow_type: math_rm_workflow\n    default_reward_fn_type: rm_gallery_reward"
    text = TRINITY.replace("default_workflow_type: math_workflow", scored)
    text = text.replace("subset_name: main,", "subset_name: main, reward_fn_args: {reward_name: verify},")
    away = convert(text, "roll", dialect="trinity", environment={}).text
    assert away is not None
    away = re.sub(r"^    world_size: 1$", "    world_size: 2", away, flags=re.M) if changed else away
    home = convert(away, "trinity", dialect="roll", environment={}).text
    assert home is not None
    taskset = yaml.safe_load(home)["buffer"]["explorer_input"]["taskset"]
    assert taskset.get("reward_fn_args") == (None if changed else {"reward_name": "verify"})


def test_filters_that_trinity_has_only_one_of_come_back() -> None:
    text = f"{RLVR}max_len_mask: true\ndifficulty_mask: true\ndifficulty_low_threshold: 0.1\n"
    before, after, values = there_and_back(text, "roll", "trinity")
    assert [item.choice for item in before.algorithm.filters] == ["overlong", "difficulty_mask"]
    assert before.algorithm.filters == after.algorithm.filters
    assert values["difficulty_low_threshold"] == 0.1


def test_a_column_of_one_file_comes_back_from_a_framework_with_one_column_for_all() -> None:
    text = TRINITY.replace("split: test, format: {prompt_key: question", "split: test, format: {prompt_key: problem")
    before, after, _ = there_and_back(text, "trinity", "roll")
    assert [source.prompt_key for source in after.data.eval] == ["problem"]
    assert before.data.train[0].prompt_key == after.data.train[0].prompt_key == "question"


def test_a_warm_up_comes_back_in_the_unit_of_the_schedule() -> None:
    """verl moves its schedule once a step of 8 optimizer steps, and Trinity once an optimizer step."""
    text = TRINITY.replace("repeat_times: 8}", "repeat_times: 8, optimizer: {lr: 1e-6, lr_warmup_steps: 80}}")
    _, _, values = there_and_back(f"{text}synchronizer: {{sync_interval: 8}}\n", "trinity", "verl")
    assert values["synchronizer"]["sync_interval"] == 8
    assert values["algorithm"]["optimizer"]["lr_warmup_steps"] == 80


def test_arguments_of_one_of_several_rewards_stay_with_its_task_set() -> None:
    own = "reward_fn_args: {enable_overlong_penalty: false, pattern: x}"
    text = TRINITY.replace("subset_name: main,", f"default_reward_fn_type: my_reward, {own}, subset_name: main,")
    home = yaml.safe_load(convert(text, "trinity", dialect="trinity", environment={}).text or "")
    found = home["buffer"]["explorer_input"]
    assert found["taskset"]["reward_fn_args"]["pattern"] == "x"
    assert "reward_fn_args" not in found["eval_tasksets"][0]


@pytest.mark.parametrize("middle", ["trinity", "roll"])
def test_a_reward_function_of_verl_comes_back(middle: str) -> None:
    own = "reward: {custom_reward_function: {path: my.py, name: score, reward_kwargs: {a: 1}}}\nalgorithm:"
    before, after, values = there_and_back(VERL.replace("algorithm:", own), "verl", middle)
    assert before.rewards == after.rewards
    assert values["reward"] == {"custom_reward_function": {"path": "my.py", "name": "score", "reward_kwargs": {"a": 1}}}


@pytest.mark.parametrize(
    ("text", "first", "middle"),
    [(VERL, "verl", "trinity"), (VERL, "verl", "roll"), (TRINITY, "trinity", "roll"), (TRINITY, "trinity", "verl")],
)
def test_a_reward_by_default_comes_back_and_is_no_loss(text: str, first: str, middle: str) -> None:
    before, after, _ = there_and_back(text, first, middle)
    assert before.rewards == after.rewards
    assert [source.system_prompt for source in before.data.train] == [
        source.system_prompt for source in after.data.train
    ]


def test_a_section_that_is_kept_has_the_values_of_its_variables(tmp_path: Path) -> None:
    """The precision of verl's reference came back from Trinity as the text ``${oc.env:TYPE,bfloat16}``, which is no precision."""
    script = tmp_path / "run.sh"
    script.write_text(
        "python3 -m verl.trainer.main_ppo data.train_files=a.parquet actor_rollout_ref.actor.use_kl_loss=True "
        "actor_rollout_ref.ref.fsdp_config.model_dtype=${TYPE:-bfloat16}\n"
    )
    loaded, report = read(script, environment={})
    away = translate_loaded(loaded, report, "trinity")
    assert "${oc.env:TYPE,bfloat16}" in (away.text or "")
    home = convert(away.text or "", "verl", dialect="trinity", environment={})
    assert not home.report.errors
    assert yaml.safe_load(home.text or "")["actor_rollout_ref"]["ref"]["fsdp_config"]["model_dtype"] == "bf16"
