"""What ``rlctl diff`` finds between a file and its conversion in the objective, the schedule or the batch, convert warned of."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import rlctl
from rlctl.common.ranks import BY_CODE, BY_KEY, OF_THEIR_KEY, Rank, rank_of
from rlctl.common.report import Bucket, Finding, Level, Report
from rlctl.config import Config, Loaded, Source, config_from, to_plain
from rlctl.config.inspect import KeyInfo, walk
from rlctl.documents import dotted, read_yaml
from rlctl.translation.difference import differences
from rlctl.translation.read_back import LENGTHS, TELLS, by_name
from rlctl.translation.translate import Translation, convert, read_document, translate_loaded, write

from .cases import BASE, leaves, together, values
from .corpus import ROWS, Example, examples, some

NAMES = ("verl", "trinity", "roll")
FACTS = {"dataset_rows": str(ROWS)}
SECTIONS = ("algorithm", "batch", "schedule", "train", "critic", "weight_sync")


def _keys(section: str) -> list[KeyInfo]:
    return [key for key in leaves() if key.pattern.split(".")[0] == section and not key.info.secret]


def _overlap(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return long == short or long.startswith((f"{short}.", f"{short}["))


def _unreported(loaded: Loaded, report: Report, target: str) -> list[str]:
    """What differs in training after a conversion and is neither lost nor warned of, by the text that was written."""
    before = copy.deepcopy(report)
    made = translate_loaded(loaded, report, target, options={**FACTS, "carried": "none"})
    if made.text is None:
        return []
    back, again = read_document(read_yaml(made.text, "written.yaml"), dialect=target, environment={}, options=FACTS)
    assert back is not None, [finding.message for finding in again.errors]
    fates = {entry.key: entry for entry in made.report.accounting}
    told = [
        key
        for entry in before.accounting
        if fates[entry.key].bucket in (Bucket.UNSUPPORTED, Bucket.APPROXIMATED)
        for key, _ in entry.targets
    ]
    warned = [finding for finding in made.report.findings if finding.level is Level.WARNING]
    told += [TELLS.get(finding.code, finding.key) for finding in warned]
    told += LENGTHS if set(told) & set(LENGTHS) else []
    return [
        f"{item.key}: {item.first.value!r} became {item.second.value!r}"
        for item in itertools.chain.from_iterable(map(by_name, differences(loaded, back, rows=ROWS)))
        if (rank_of(item.key) or Rank.NAMES).changes_training and not any(_overlap(item.key, key) for key in told)
    ]


def _of_corpus() -> Iterator[Example]:
    for name in NAMES:
        yield from (item for item in examples(name) if not item.is_default)


def _check_examples(chosen: list[Example]) -> None:
    wrong = {}
    for example in chosen:
        loaded, report = example.read()
        for target in NAMES if loaded is not None else ():
            assert loaded is not None
            if found := _unreported(loaded, copy.deepcopy(report), target):
                wrong[f"{example.name} -> {target}"] = found
    assert wrong == {}


def test_convert_warns_of_what_differs_for_some_examples() -> None:
    _check_examples(some(_of_corpus(), 40))


@pytest.mark.soak
def test_convert_warns_of_what_differs_for_every_example() -> None:
    _check_examples(list(_of_corpus()))


LAW = settings(
    max_examples=1, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None
)


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("source", NAMES)
@LAW
@given(data=st.data())
def test_convert_warns_of_what_differs_for_generated_configs(source: str, section: str, data: st.DataObject) -> None:
    """Each config has many values that are not their defaults, is written in one format and converted to the others."""
    _check_generated(source, section, data, 1)


@pytest.mark.soak
@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("source", NAMES)
@LAW
@given(data=st.data())
def test_convert_warns_of_what_differs_for_many_generated_configs(
    source: str, section: str, data: st.DataObject
) -> None:
    _check_generated(source, section, data, 1000)


def _check_generated(source: str, section: str, data: st.DataObject, most: int) -> None:
    drawn = [(key, data.draw(values(key.info), label=key.pattern)) for key in _keys(section)]
    wrong: list[str] = []
    for group in itertools.islice(together(drawn, BASE, 20), most):
        said = {place: Source("file", dotted(place)) for place in group.keys}
        text, _ = write(Loaded(group.config, said), source, options={"carried": "none"})
        if text is None:
            continue
        loaded, report = read_document(read_yaml(text, "source.yaml"), dialect=source, environment={}, options=FACTS)
        assert loaded is not None, ([finding.message for finding in report.errors], text)
        for target in NAMES:
            wrong += [f"{source} -> {target}: {line}" for line in _unreported(loaded, copy.deepcopy(report), target)]
    assert wrong == [], "\n".join(wrong)


VERL = """
data: {train_files: gsm8k/train.parquet, val_files: gsm8k/test.parquet, train_batch_size: 64, max_response_length: 1024}
actor_rollout_ref:
  model: {path: Qwen/Qwen3-0.6B}
  actor: {ppo_mini_batch_size: 16, ppo_micro_batch_size_per_gpu: 4}
  rollout: {n: 4, temperature: 0.8}
algorithm: {adv_estimator: grpo}
trainer: {total_training_steps: 30, n_gpus_per_node: 8}
"""
TRINITY = """
algorithm: {algorithm_type: grpo, repeat_times: 4, kl_loss_fn_args: {kl_coef: 0.01}}
model: {model_path: Qwen/Qwen3-0.6B}
cluster: {node_num: 1, gpu_per_node: 8}
buffer:
  batch_size: 16
  train_batch_size: 16
  total_steps: 96
  explorer_input:
    taskset: {name: gsm8k, storage_type: file, path: gsm8k/train.parquet, format: {prompt_key: question}}
explorer: {rollout_model: {engine_num: 2}}
synchronizer: {sync_interval: 1}
trainer: {save_interval: 10}
"""
ROLL = """
pretrain: Qwen/Qwen3-0.6B
rollout_batch_size: 64
prompt_length: 512
response_length: 1024
num_return_sequences_in_group: 4
max_steps: 30
adv_estimator: grpo
actor_train:
  data_args: {file_name: [math.jsonl]}
  training_args: {learning_rate: 1.0e-6, per_device_train_batch_size: 4, gradient_accumulation_steps: 4}
  device_mapping: list(range(0,8))
actor_infer:
  generating_args: {temperature: 0.8, max_new_tokens: 1024}
  device_mapping: list(range(0,8))
rewards: {math_rule: {reward_type: soft}}
"""
OWN = {"verl": VERL, "trinity": TRINITY, "roll": ROLL}


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", NAMES)
def test_convert_warns_of_what_differs_for_one_config_of_each_format(source: str, target: str) -> None:
    loaded, report = read_document(read_yaml(OWN[source], "run.yaml"), dialect=source, environment={}, options=FACTS)
    assert loaded is not None, report.errors
    assert _unreported(loaded, report, target) == []


@pytest.mark.parametrize(
    ("source", "target", "key", "values"),
    [
        ("trinity", "roll", "algorithm.kl_in_loss.estimator", ("k2", "k3")),
        ("verl", "roll", "batch.shuffle", ("ROLL always shuffles",)),
        ("roll", "verl", "algorithm.train_temperature", ("0.8",)),
        ("verl", "trinity", "algorithm.old_log_probs", ("recompute",)),
    ],
)
def test_a_changed_objective_is_a_warning_and_a_loss(
    source: str, target: str, key: str, values: tuple[str, ...]
) -> None:
    found = _converted(source, target)
    (told,) = [finding for finding in found.report.findings if finding.key == key]
    assert told.level is Level.WARNING
    assert told.rank.changes_training
    assert all(value in told.message for value in values), told.message
    assert found.report.loses


def test_what_has_no_effect_is_no_warning() -> None:
    """One mini-batch a step cannot be shuffled, and logits divided by 1 are the same."""
    text = VERL.replace("ppo_mini_batch_size: 16", "ppo_mini_batch_size: 64").replace(
        "temperature: 0.8", "temperature: 1.0"
    )
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="verl", environment={})
    found = translate_loaded(loaded, report, "roll")
    told = [item.key for item in found.report.warnings if item.code == "silent-difference"]
    assert "batch.shuffle" not in told
    assert "algorithm.train_temperature" not in told


def _converted(source: str, target: str) -> Translation:
    loaded, report = read_document(read_yaml(OWN[source], "run.yaml"), dialect=source, environment={}, options=FACTS)
    return translate_loaded(loaded, report, target, options=FACTS)


# Ranks


def test_every_canonical_key_has_a_rank() -> None:
    assert [key.path for key in walk(Config) if rank_of(key.path) is None] == []


def test_every_row_of_ranks_names_a_key() -> None:
    known = {"rlctl", *(key.path.replace("[]", "").replace("{}", "") for key in walk(Config))}
    assert sorted(set(BY_KEY) - known) == []


def test_every_finding_of_a_conversion_has_a_rank() -> None:
    package = Path(rlctl.__file__).parent
    places = [path for name in ("adapters", "translation") for path in (package / name).rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in places if path.name != "acceptance.py"]  # of check
    codes = {code for text in texts for code in re.findall(r'\bfinding\(\s*"([a-z-]+)', text)}
    assert len(codes) > 20
    assert sorted(codes - BY_CODE.keys() - OF_THEIR_KEY) == []


def test_what_trinity_computes_otherwise_is_a_warning_elsewhere() -> None:
    for target, level in (("verl", Level.WARNING), ("trinity", Level.NOTE)):
        told = [item for item in _converted("trinity", target).report.findings if item.code == "micro-batches-added"]
        assert {item.level for item in told} == {level}


def test_the_longest_beginning_of_a_key_decides() -> None:
    assert rank_of("batch.micro_batch.unit") is Rank.RESOURCES
    assert rank_of("stages[1].batch.prompts_per_step") is Rank.SCHEDULE
    assert rank_of("actor_train.data_args.video_fps", {"*.data_args": Rank.DATA}) is Rank.DATA
    assert rank_of("nothing.of.it") is None
    assert [rank.heading for rank in Rank][:2] == ["The run would break", "The objective changes"]
    assert Finding("x", Level.NOTE, "", "algorithm.advantage").as_data()["rank"] == "objective"


def test_a_config_of_the_schema_alone_is_read_back() -> None:
    """Values that only the schema's defaults set are compared too."""
    loaded = Loaded(config_from(BASE), {("model", "path"): Source("file", "model.path")})
    assert to_plain(loaded.config)["batch"]["prompts_per_step"] == 64
    made: Any = translate_loaded(loaded, Report("rlctl@1"), "roll")
    assert made.text is not None


def test_a_number_is_told_as_a_number() -> None:
    """1 and 0.0 equal True and False: no additional prompt was ``false``."""
    filtered = (
        "data: {train_files: a.parquet}\n"
        "actor_rollout_ref: {model: {path: org/model}, rollout: {name: vllm, n: 4}}\n"
        "algorithm: {adv_estimator: grpo, filter_groups: {enable: true}}\n"
    )
    loaded, report = read_document(read_yaml(filtered, "x.yaml"), dialect="verl", environment={})
    told = [item.message for item in translate_loaded(loaded, report, "roll").report.warnings]
    assert any("additional prompts is 0 in verl, 16 in ROLL" in message for message in told)


@pytest.mark.parametrize(("longest", "told"), [(512, False), (2048, True)])
def test_a_penalty_that_grows_beyond_its_limit_is_told_only_if_responses_get_there(longest: int, told: bool) -> None:
    text = f"""
data: {{train_files: a.parquet, max_response_length: {longest}}}
algorithm: {{adv_estimator: grpo}}
actor_rollout_ref: {{model: {{path: m}}, rollout: {{name: vllm, n: 4}}}}
reward:
  reward_manager: {{name: dapo}}
  reward_kwargs: {{max_resp_len: 512, overlong_buffer_cfg: {{enable: true, len: 128, penalty_factor: 1.0}}}}
custom_reward_function: {{path: null}}
"""
    report = convert(text, "trinity", dialect="verl", environment={}).report
    assert any("clamp" in finding.message for finding in report.findings) is told


@pytest.mark.parametrize("target", ["trinity", "roll"])
def test_where_a_teacher_runs_is_no_change_of_the_objective(target: str) -> None:
    """verl's k1 with a policy gradient is what the others compute; its clamps they have not."""
    text = """
data: {train_files: a.parquet}
actor_rollout_ref: {model: {path: m}, rollout: {name: vllm, n: 1}}
distillation:
  enabled: true
  nnodes: 1
  n_gpus_per_node: 4
  teacher_models: {t: {model_path: big, inference: {name: vllm, tensor_model_parallel_size: 2}}}
  distillation_loss: {loss_mode: k1, use_policy_gradient: true, use_task_rewards: false, loss_max_clamp: 10.0}
"""
    report = convert(text, target, dialect="verl", environment={}).report
    lost = {entry.key.removeprefix("distillation.") for entry in report.accounting if entry.loses}
    assert {key for key in lost if key.startswith(("nnodes", "n_gpus", "teacher", "distillation_loss"))} == {
        "distillation_loss.loss_max_clamp"
    }
    assert not [finding for finding in report.findings if "estimator is" in finding.message]
