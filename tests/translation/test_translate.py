"""The front door: detection, both ledgers, silence, secrets, what is kept for the way back, stages, the shipped corpus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlctl.common.errors import Location
from rlctl.common.ranks import Rank
from rlctl.common.report import Bucket, Level, Origin, Report
from rlctl.common.report_lines import lines
from rlctl.documents import Document, read_yaml
from rlctl.translation.translate import (
    convert,
    detect,
    dialects,
    read,
    read_document,
    read_many,
    translate,
    translate_loaded,
    write,
)

GOLDEN = Path(__file__).parent / "golden"
CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
WORKED = """
data: {train_files: train.parquet, val_files: test.parquet, train_batch_size: 1024}
actor_rollout_ref:
  model: {path: org/model}
  actor:
    ppo_mini_batch_size: 256
    optim: {lr: 1e-6, lr_warmup_steps: 10}
  rollout: {name: vllm, n: 8}
algorithm: {adv_estimator: grpo}
trainer: {total_training_steps: 100, save_freq: 20, test_freq: 5, n_gpus_per_node: 8}
"""


def _document(text: str, name: str = "run.yaml") -> Document:
    return read_yaml(text, name)


def _translated(text: str, target: str, **options: str) -> tuple[dict[str, Any], Report]:
    loaded, report = read_document(_document(text), environment={})
    done = translate_loaded(loaded, report, target, options=options)
    assert done.text is not None, [finding.message for finding in done.report.errors]
    return dict(read_yaml(done.text, "out.yaml").values), done.report


def _at(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values[int(part)] if isinstance(values, list) else values[part]
    return values


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("buffer.batch_size", 256),
        ("algorithm.repeat_times", 8),
        ("buffer.train_batch_size", 2048),
        ("synchronizer.sync_interval", 4),
        ("trainer.save_interval", 80),
        ("explorer.eval_interval", 20),
        ("buffer.total_steps", 400),
        ("trainer.total_steps", 400),
        ("algorithm.optimizer.lr_warmup_steps", 40),
    ],
)
def test_units_of_verl_become_units_of_trinity(key: str, value: int) -> None:
    """P = 1024, mini-batch 256 prompts, n = 8: k = 4 optimizer steps a step, so every interval is four times as long."""
    values, _ = _translated(WORKED, "trinity")
    assert _at(values, key) == value


def test_units_come_home_unchanged() -> None:
    there, report = read_document(_document(WORKED), environment={})
    text = translate_loaded(there, report, "trinity").text
    assert text is not None
    back, again = read_document(_document(text), environment={})
    home = translate_loaded(back, again, "verl").text
    assert home is not None
    values = read_yaml(home, "home.yaml").values
    for key in (
        "data.train_batch_size",
        "actor_rollout_ref.actor.ppo_mini_batch_size",
        "actor_rollout_ref.rollout.n",
        "actor_rollout_ref.actor.optim.lr_warmup_steps",
        "trainer.save_freq",
        "trainer.test_freq",
        "trainer.total_training_steps",
    ):
        assert _at(values, key) == _at(yaml.safe_load(WORKED.replace("1e-6", "1.0e-6")), key), key


def test_silence_is_translated_where_defaults_differ() -> None:
    """verl's KL loss is off, its order shuffled, its evaluation greedy; Trinity's are on, sequential and sampled."""
    values, report = _translated(WORKED, "trinity")
    origins = {entry.key: entry.origin for entry in report.origins}
    assert _at(values, "algorithm.kl_loss_fn") == "none"
    assert _at(values, "buffer.explorer_input.taskset.data_selector.selector_type") == "shuffle"
    assert _at(values, "buffer.explorer_input.eval_tasksets.0.rollout_args.temperature") == 0.0
    assert origins["algorithm.kl_loss_fn"] is Origin.DEFAULTED
    assert origins["buffer.batch_size"] is Origin.DERIVED
    assert "trainer.critic_warmup" not in origins


def test_every_leaf_of_the_source_is_in_one_bucket_with_its_line() -> None:
    document = _document(WORKED)
    loaded, report = read_document(document, environment={})
    done = translate_loaded(loaded, report, "trinity")
    keys = [entry.key for entry in done.report.accounting]
    assert len(keys) == len(set(keys)) == sum(1 for _ in document.leaves())
    assert all(entry.at is not None and entry.at.line for entry in done.report.accounting)
    assert all(entry.targets or entry.note for entry in done.report.accounting if entry.bucket is not Bucket.UNKNOWN)


def test_every_leaf_of_the_target_has_an_origin() -> None:
    loaded, report = read_document(_document(WORKED), environment={})
    done = translate_loaded(loaded, report, "trinity")
    assert done.text is not None
    origins = {entry.key for entry in done.report.origins}
    leaves = {".".join(map(str, path)) for path, _ in read_yaml(done.text, "out.yaml").leaves()}
    assert {key.replace("[", ".").replace("]", "") for key in origins} >= leaves


def test_a_split_that_the_source_does_not_hold_is_assumed_and_set_by_an_option() -> None:
    values, report = _translated(WORKED.replace("n: 8}", "n: 8, tensor_model_parallel_size: 2}"), "trinity")
    assumed = [entry for entry in report.origins if entry.origin is Origin.ASSUMED]
    assert [entry.key for entry in assumed] == ["explorer.rollout_model.engine_num"]
    assert _at(values, "explorer.rollout_model.engine_num") == 2
    assert any(item.code == "assumed" and item.level is Level.WARNING for item in report.findings)
    text = WORKED.replace("n: 8}", "n: 8, tensor_model_parallel_size: 2}")
    asked, _ = _translated(text, "trinity", explorer_gpus="6")
    assert _at(asked, "explorer.rollout_model.engine_num") == 3


def test_sft_and_grpo_files_become_the_stages_of_one_trinity_file() -> None:
    case = GOLDEN / "trinity" / "sft_then_grpo"
    done = translate([case / "sft.yaml", case / "grpo.yaml"], "trinity", environment={})
    assert done.report.shares()["unknown"] == 0
    assert done.text == (case / "expected.yaml").read_text(encoding="utf-8")
    values = read_yaml(done.text, "out.yaml").values
    first, second = values["stages"]
    assert (first["mode"], first["algorithm"]["algorithm_type"]) == ("train", "sft")
    assert first["trainer"]["save_interval"] == 20
    assert "mode" not in values  # both is what Trinity takes
    assert (values["algorithm"]["algorithm_type"], second["stage_name"]) == ("grpo", "grpo")


def test_stages_of_trinity_replace_whole_blocks_and_come_back_as_stages() -> None:
    case = GOLDEN / "trinity" / "sft_then_grpo"
    loaded, report = read(case / "expected.yaml", environment={})
    assert loaded is not None, report.errors
    assert [stage["name"] for stage in loaded.config.stages] == ["sft", "grpo"]
    assert loaded.config.batch.responses_per_prompt == 8
    assert loaded.config.stages[0]["batch"]["prompts_per_step"] == 16
    assert loaded.config.rewards[0].choice == "function"
    assert loaded.config.rollout.engine.choice == "transformers"
    assert report.shares()["unknown"] == 0


def test_what_stages_share_is_converted_and_their_files_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "model: {path: some/model}\nplacement: {nodes: 1, devices_per_node: 8}\n"
        "algorithm: {objective: rl, advantage: grpo}\n"
        "stages:\n"
        "  - {name: one, schedule: {total_steps: 4}, data: {train: [{path: data/a.parquet}]}}\n"
        "  - {name: two, schedule: {total_steps: 8}, data: {train: [{path: data/b.parquet}]}}\n"
    )
    done = translate(file, "trinity")
    fates = {entry.key: entry for entry in done.report.accounting}
    assert fates["model.path"].targets == (("model.model_path", "some/model"),)
    assert not fates["placement.devices_per_node"].loses
    [line] = [line for line in lines(done.report) if line.finding is not None and line.finding.code == "data-files"]
    assert line.note.endswith("data/a.parquet, data/b.parquet")


def test_several_files_become_stages_named_after_them() -> None:
    case = GOLDEN / "trinity" / "sft_then_grpo"
    loaded, _ = read_many([case / "sft.yaml", case / "grpo.yaml"], environment={})
    assert loaded is not None
    assert [stage["name"] for stage in loaded.config.stages] == ["sft", "grpo"]
    assert "path" not in loaded.config.stages[1].get("model", {})


def test_verl_has_no_stages_and_says_how_to_write_one() -> None:
    case = GOLDEN / "trinity" / "sft_then_grpo"
    sources = [case / "sft.yaml", case / "grpo.yaml"]
    refused = translate(sources, "verl", environment={})
    assert refused.text is None
    assert "stage=sft" in refused.report.errors[0].hint
    one = translate(sources, "verl", environment={}, options={"stage": "sft"})
    assert one.text is not None
    assert read_yaml(one.text, "sft.yaml").values["data"]["max_length"] == 512


def test_an_unknown_key_is_named_with_its_line_and_the_nearest_key() -> None:
    text = WORKED.replace("ppo_mini_batch_size: 256", "ppo_mini_batch_siez: 256")
    _, report = read_document(_document(text), environment={})
    unknown = [entry for entry in report.accounting if entry.bucket is Bucket.UNKNOWN]
    assert [entry.key for entry in unknown] == ["actor_rollout_ref.actor.ppo_mini_batch_siez"]
    assert "ppo_mini_batch_size" in unknown[0].note
    assert unknown[0].at == Location(
        "run.yaml", unknown[0].at.line if unknown[0].at else 0, unknown[0].at.column if unknown[0].at else 0
    )


def test_overrides_are_in_the_files_own_dialect() -> None:
    loaded, report = read_document(
        _document(WORKED), overrides=["data.train_batch_size=512", "trainer.total_epochz=3"], environment={}
    )
    assert loaded is not None
    assert loaded.config.batch.prompts_per_step == 512
    assert loaded.sources[("batch", "prompts_per_step")].kind == "override"
    assert "trainer.total_epochs" in next(item.hint for item in report.findings if item.code == "unknown-key")


def test_a_list_of_overrides_alone_is_read_as_verl() -> None:
    lines = ["algorithm.adv_estimator=rloo", "data.train_files=~/data/a.parquet", "actor_rollout_ref.rollout.name=vllm"]
    loaded, report = read_document(Document(name="overrides", values={}), overrides=lines, environment={})
    assert loaded is not None
    assert report.dialect == "verl@0.9"
    assert loaded.config.algorithm.advantage.choice == "rloo"
    assert loaded.config.data.train[0].path == "~/data/a.parquet"


def test_set_takes_canonical_keys() -> None:
    loaded, _ = read_document(_document(WORKED), assignments=["batch.prompts_per_step=64"], environment={})
    assert loaded is not None
    assert loaded.config.batch.prompts_per_step == 64


def test_errors_of_values_point_to_the_dialects_key_and_line() -> None:
    text = WORKED.replace("train_batch_size: 1024", "train_batch_size: many")
    loaded, report = read_document(_document(text), environment={})
    assert loaded is None
    assert report.errors[0].key == "data.train_batch_size"
    assert report.errors[0].at is not None
    assert report.errors[0].at.line == 2


def test_what_only_verl_has_is_kept_in_the_file_and_put_back() -> None:
    text = WORKED.replace("n_gpus_per_node: 8", "n_gpus_per_node: 8, esi_redundant_time: 30")
    loaded, report = read_document(_document(text), environment={})
    done = translate_loaded(loaded, report, "trinity")
    assert done.text is not None
    assert next(e for e in done.report.accounting if e.key == "trainer.esi_redundant_time").bucket is Bucket.CARRIED
    assert "trainer.esi_redundant_time: 30" in done.text
    back, again = read_document(_document(done.text), environment={})
    home = translate_loaded(back, again, "verl")
    assert home.text is not None
    assert _at(read_yaml(home.text, "home.yaml").values, "trainer.esi_redundant_time") == 30
    without = translate_loaded(loaded, report, "trinity", options={"carried": "none"}).text
    assert without is not None
    assert "esi_redundant_time" not in without


def test_an_environment_variable_stays_symbolic() -> None:
    text = WORKED.replace("path: org/model", "path: '${oc.env:MODEL,org/other}'")
    loaded, report = read_document(_document(text), environment={"MODEL": "secret/place"})
    assert loaded is not None
    assert loaded.config.model.path == "secret/place"
    done = translate_loaded(loaded, report, "trinity")
    assert done.text is not None
    assert "model_path: ${oc.env:MODEL,org/other}" in done.text
    assert "secret/place" not in done.text + str(done.report.as_data())


def test_an_interpolation_of_a_key_is_renamed_with_the_key() -> None:
    text = WORKED.replace(
        "test_freq: 5", "test_freq: 5, project_name: demo, experiment_name: '${trainer.project_name}-1'"
    )
    values, _ = _translated(text, "trinity")
    assert values["name"] == "${project}-1"


def test_comments_travel_with_their_key() -> None:
    text = WORKED.replace("  rollout: {name", "  # groups of eight\n  rollout: {name").replace(
        "    ppo_mini_batch_size: 256", "    ppo_mini_batch_size: 256  # a quarter of a step"
    )
    loaded, report = read_document(_document(text), environment={})
    done = translate_loaded(loaded, report, "trinity")
    assert done.text is not None
    assert "# actor_rollout_ref.actor.ppo_mini_batch_size: a quarter of a step" in done.text


def test_a_comment_beside_a_number_names_its_key_where_another_number_is_written() -> None:
    text = WORKED.replace("trainer: {", "trainer:\n  nnodes: 2  # shared with the judge\n  ").replace(
        "total_training_steps: 100, save_freq: 20, test_freq: 5, n_gpus_per_node: 8}", "total_training_steps: 100"
    )
    loaded, report = read_document(_document(text), environment={})
    assert "node_num: 2  # shared with the judge" in (translate_loaded(loaded, report, "trinity").text or "")
    assert "# trainer.nnodes: shared with the judge\n" in (translate_loaded(loaded, report, "roll").text or "")


def test_a_comment_on_a_value_that_becomes_another_names_its_key_and_returns_to_it() -> None:
    text = (
        "rollout_batch_size: 8\ntrain_env_manager: {tags: [A]}\ncustom_envs: {A: {env_type: sokoban}}\n# steps too\nadv_estimator: gigpo\n"
        "reward_normalization:\n  grouping: traj_group_id\n  method: mean_std  # or asym_clip\n"
    )
    loaded, report = read_document(_document(text), environment={}, dialect="roll")
    texts = {name: translate_loaded(loaded, report, name).text or "" for name in ("trinity", "rlctl", "roll")}
    assert "# reward_normalization.method: or asym_clip\n" in texts["trinity"]
    assert "# reward_normalization.method: or asym_clip\n" in texts["rlctl"]
    assert "method: mean_std  # or asym_clip\n" in texts["roll"]
    assert "# steps too\nadv_estimator: gigpo\n" in texts["roll"]


def test_a_secret_in_the_open_becomes_a_reference_everywhere() -> None:
    text = "project: a\nname: b\nmode: both\nalgorithm: {algorithm_type: grpo}\nmonitor:\n  monitor_type: wandb\n  monitor_args: {api_key: hunter2}\nbuffer: {batch_size: 4}\n"
    loaded, report = read_document(_document(text), environment={})
    for target in ("trinity", "verl", "rlctl"):
        done = translate_loaded(loaded, report, target)
        assert "hunter2" not in str(done.text) + str(done.report.as_data())
    done = translate_loaded(loaded, report, "trinity")
    assert "${oc.env:RLCTL_" in str(done.text)
    assert any(item.code == "secret" for item in report.findings)


def test_a_value_the_target_cannot_express_says_what_will_differ() -> None:
    text = WORKED.replace("adv_estimator: grpo", "adv_estimator: grpo, norm_adv_by_std_in_grpo: false")
    _, report = _translated(text, "trinity")
    entry = next(e for e in report.accounting if e.key == "algorithm.norm_adv_by_std_in_grpo")
    assert entry.bucket is Bucket.UNSUPPORTED
    assert entry.note


def test_numbers_that_do_not_divide_are_read_and_said_when_written() -> None:
    text = WORKED.replace("train_batch_size: 1024", "train_batch_size: 1000")
    loaded, report = read_document(_document(text), environment={})
    assert loaded is not None
    done = translate_loaded(loaded, report, "trinity")
    entry = next(e for e in done.report.accounting if e.key == "data.train_batch_size")
    assert entry.bucket is Bucket.UNSUPPORTED
    assert "768 or 1024" in entry.note


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WORKED, "verl@0.9"),
        ("rlctl: 1\nmodel: {path: a}\n", "rlctl@1"),
        ("actor_rollout_ref: {rollout: {use_fire_sampling: false, name: vllm}}\n", "verl@0.4"),
        ("reward_model: {reward_manager: dapo}\nactor_rollout_ref: {model: {path: a}}\n", "verl@0.8"),
        ("model: {partial_pretrain: a}\ndata: {train_files: b}\n", "verl@0.7"),
        ("model: {model_path: a}\nbuffer: {batch_size: 4}\nsynchronizer: {sync_interval: 1}\n", "trinity@0.6"),
    ],
)
def test_the_dialect_and_release_are_found_out(text: str, expected: str) -> None:
    assert detect(_document(text))[0] == expected


def test_dialects_list_themselves() -> None:
    known = {item.name: item.versions for item in dialects()}
    assert set(known) >= {"rlctl", "verl", "trinity"}
    assert known["verl"][-1] == "0.9"


def test_an_upgrade_moves_old_keys() -> None:
    old = WORKED + "custom_reward_function: {path: reward.py}\n"
    loaded, report = read_document(_document(old), dialect="verl@0.7", environment={})
    text = translate_loaded(loaded, report, "verl@0.9").text
    assert text is not None
    values = read_yaml(text, "new.yaml").values
    assert _at(values, "reward.custom_reward_function.path") == "reward.py"
    assert "custom_reward_function" not in values


def test_rlctl_writes_what_it_reads() -> None:
    loaded, report = read_document(_document(WORKED), environment={})
    text, _ = write(loaded, "rlctl") if loaded else (None, report)
    assert text is not None
    back, _ = read_document(_document(text), environment={})
    assert back is not None
    assert loaded is not None
    assert back.config == loaded.config


def _trinity_files() -> Iterator[Path]:
    yield from sorted((CORPUS / "trinity").rglob("*.yaml")) if CORPUS.exists() else ()


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of example configs is not beside the checkout")
def test_every_example_of_trinity_is_read_without_an_unknown_key() -> None:
    unknown, failed = [], []
    for path in _trinity_files():
        loaded, report = read(path, environment={})
        unknown += [(path.name, entry.key) for entry in report.accounting if entry.bucket is Bucket.UNKNOWN]
        if loaded is None:
            failed.append((str(path), [finding.message for finding in report.errors]))
    assert (unknown, failed) == ([], [])


STALE = ("actor_rollout_ref.actor.model_engine",)
"""Keys that the scripts pass and no release has."""


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of example configs is not beside the checkout")
def test_every_example_of_verl_is_read_without_an_unknown_key() -> None:
    unknown, failed = [], []
    for path in sorted((CORPUS / "verl" / "overrides").glob("*.yaml")):
        lines = [
            line for line in yaml.safe_load(path.read_text())["overrides"] if not line.startswith("--") and "=" in line
        ]
        loaded, report = read_document(Document(name=path.name, values={}), overrides=lines, environment={})
        unknown += [e.key for e in report.accounting if e.bucket is Bucket.UNKNOWN and e.key not in STALE]
        if loaded is None:
            failed.append((path.name, [finding.message for finding in report.errors]))
    assert (unknown, failed) == ([], [])


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of example configs is not beside the checkout")
@pytest.mark.parametrize("release", ["v0.3.0.post1", "v0.5.0", "v0.7.0", "v0.9.0"])
def test_composed_defaults_are_read_as_their_release_and_carry_little(release: str) -> None:
    folder = CORPUS / "verl" / "defaults" / release
    path = next(iter(sorted(folder.glob("*ppo_trainer.yaml"))))
    loaded, report = read(path, environment={})
    assert report.dialect == f"verl@{release[1:4]}"
    assert report.shares()["unknown"] == 0
    assert loaded is not None, [finding.message for finding in report.errors][:3]


NAMED = """
data: {train_files: a.parquet, train_batch_size: 64, max_prompt_length: 1024, max_response_length: "${data.max_prompt_length}"}
actor_rollout_ref: {model: {path: org/model}, actor: {ppo_mini_batch_size: 16}, rollout: {n: 8}}
algorithm: {adv_estimator: grpo}
trainer:
  {n_gpus_per_node: 8, total_training_steps: 5, save_freq: "${trainer.test_freq}", test_freq: 5, experiment_name: "${trainer.project_name}-x", project_name: p}
"""


def test_interpolations_of_other_keys_are_translated_or_resolved_with_a_note() -> None:
    values, _ = _translated(NAMED, "verl")
    assert _at(values, "data.max_response_length") == "${data.max_prompt_length}"
    assert _at(values, "trainer.experiment_name") == "${trainer.project_name}-x"
    assert _at(values, "trainer.save_freq") == 5
    values, report = _translated(NAMED, "trinity")
    assert values["name"] == "${project}-x"
    assert _at(values, "model.max_response_tokens") == 1024
    told = [finding.key for finding in report.findings if finding.code == "interpolation-resolved"]
    assert told == ["trainer.save_freq", "model.max_response_tokens"]


def test_a_value_computed_from_the_environment_says_that_it_does_not_follow_it() -> None:
    text = WORKED.replace("total_training_steps: 100", 'total_training_steps: "${oc.env:STEPS,100}"')
    values, report = _translated(text, "trinity")
    assert _at(values, "buffer.total_steps") == 400
    assert "buffer.total_steps" in [item.key for item in report.findings if item.code == "environment-fixed"]
    values, report = _translated(text, "verl")
    assert _at(values, "trainer.total_training_steps") == "${oc.env:STEPS,100}"
    assert not [item for item in report.findings if item.code == "environment-fixed"]


def test_a_comment_travels_once() -> None:
    text = WORKED.replace("data: {", "data: {  # all of it\n  ").replace("n: 8}", "n: 8}  # the group")
    loaded, report = read_document(_document(text), environment={})
    for target in ("trinity", "verl", "rlctl"):
        done = translate_loaded(loaded, report, target)
        assert str(done.text).count("the group") == 1, target
        assert str(done.text).count("all of it") == 1, target


def test_a_set_value_that_the_target_cannot_say_is_told() -> None:
    loaded, report = read_document(
        _document(WORKED),
        environment={},
        assignments=["algorithm.loss_weights.rl=0.5", "rollout.max_response_tokens=77"],
    )
    done = translate_loaded(loaded, report, "trinity")
    told = {entry.key: str(entry.bucket) for entry in done.report.accounting if entry.at and entry.at.file == "--set"}
    assert told == {"algorithm.loss_weights.rl": "unsupported", "rollout.max_response_tokens": "derived"}


def test_what_the_target_would_refuse_is_said_by_convert() -> None:
    """ROLL deals a step's responses to its data-parallel ranks."""
    text = (
        "data: {train_files: a.parquet, train_batch_size: 3}\nalgorithm: {adv_estimator: reinforce_plus_plus}\n"
        "actor_rollout_ref: {model: {path: org/model}, actor: {ppo_mini_batch_size: 3}, rollout: {name: vllm, n: 1}}\n"
        "trainer: {total_epochs: 15, n_gpus_per_node: 8, nnodes: 1}\n"
    )
    done = convert(text, "roll", dialect="verl", environment={})
    found = [finding for finding in done.report.findings if finding.code == "target-refuses"]
    assert [item.key for item in found if "(3 x 1) is not divisible by the data-parallel size" in item.message]
    assert all(finding.hint for finding in found)


def test_a_variable_that_is_not_set_here_does_not_break_the_written_config(tmp_path: Path) -> None:
    source = tmp_path / "run.yaml"
    source.write_text(
        "data: {train_files: '${oc.env:ELSEWHERE}/a.parquet'}\nactor_rollout_ref: {model: {path: '${oc.env:OF_MINE}'}}"
    )
    made = translate(source, "rlctl", dialect="verl", environment={})
    assert made.text is not None
    assert "${oc.env:ELSEWHERE}/a.parquet" in made.text
    assert [finding.message for finding in made.report.findings if finding.code == "not-readable"] == []


def test_a_difference_that_no_key_sets_is_named_in_the_words_of_the_source(tmp_path: Path) -> None:
    """A key that the source has is called by its name, any other is marked as rlctl's."""
    path = tmp_path / "verl.yaml"
    path.write_text(
        "algorithm: {adv_estimator: grpo}\ndata: {train_files: a.parquet, val_files: b.parquet, train_batch_size: 64}\n"
        "actor_rollout_ref: {model: {path: m}, actor: {ppo_mini_batch_size: 32}, rollout: {n: 8}}\n"
        "trainer: {test_freq: 5, total_training_steps: 10}\n"
    )
    told = [item.message for item in translate(path, "roll").report.findings if item.code == "silent-difference"]
    assert any("(actor_rollout_ref.actor.shuffle is false)" in message for message in told)
    assert any("evaluate at end is true in verl, false in ROLL" in message for message in told)
    assert not [message for message in told if "batch.shuffle" in message]


def test_a_refused_conversion_leaves_the_report_of_the_reading_as_it_was() -> None:
    loaded, report = read_document(
        _document("mode: train\ncluster: {node_num: 1}\nalgorithm: {algorithm_type: dpo}"), environment={}
    )
    before = list(report.findings)
    assert loaded is not None
    assert translate_loaded(loaded, report, "verl").text is None
    assert report.findings == before


def test_the_number_of_a_variable_is_a_number_for_frameworks_that_read_texts() -> None:
    """OmegaConf's ``oc.env`` gives text: Trinity's typed config turns it into a number, verl's and ROLL's do not."""
    text = "mode: both\nmodel: {model_path: org/m}\ncluster: {node_num: 1, gpu_per_node: '${oc.env:RLCTL_NONE,8}'}"
    loaded, report = read_document(_document(text), dialect="trinity", environment={})
    made = {name: translate_loaded(loaded, report, name).text or "" for name in ("trinity", "roll")}
    assert "gpu_per_node: ${oc.env:RLCTL_NONE,8}" in made["trinity"]
    assert "num_gpus_per_node: ${oc.decode:${oc.env:RLCTL_NONE,8}}" in made["roll"]
    again, _ = read_document(_document(made["roll"]), dialect="roll", environment={})
    assert again is not None
    assert again.config.placement.devices_per_node == 8


def test_defaults_of_a_composed_config_are_no_losses() -> None:
    """What no one wrote is told only where training changes."""
    file = CORPUS / "verl" / "defaults" / "v0.8.0" / "_generated_ppo_trainer.yaml"
    if not file.exists():
        pytest.skip("needs verl's composed configs")
    made = translate(file, "roll", environment={}, options={"dataset_rows": "4000"})
    lost = [entry.key for entry in made.report.accounting if entry.loses]
    assert len(lost) < 10, lost
    assert not [key for key in lost if "mtp" in key or "lora" in key or "rollout_correction" in key]


def test_a_loss_term_of_an_engine_is_lost_with_the_objective() -> None:
    """Other settings of an engine that the target lacks change memory and speed only; this one is a part of the loss."""
    values = {
        "data": {"train_files": "a.parquet", "val_files": "b.parquet"},
        "model_engine": "mindspeed",
        "actor_rollout_ref": {
            "model": {"path": "org/model"},
            "rollout": {"name": "vllm"},
            "actor": {"mindspeed": {"mcore_kwargs": {"moe_aux_loss_coeff": 0.001, "moe_grouped_gemm": True}}},
        },
    }
    loaded, report = read_document(Document("run.yaml", values), dialect="verl@0.9", environment={})
    assert loaded is not None
    entries = {
        entry.key.rpartition(".")[2]: entry for entry in translate_loaded(loaded, report, "trinity").report.accounting
    }
    assert (entries["moe_aux_loss_coeff"].rank, entries["moe_grouped_gemm"].rank) == (Rank.OBJECTIVE, Rank.RESOURCES)
    assert "the loss or the update may differ" in entries["moe_aux_loss_coeff"].why
    assert "results don't" in entries["moe_grouped_gemm"].why
