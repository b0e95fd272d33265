"""ROLL's mini-batch is no key: it follows from one rank's batch, the accumulation, and how many ranks the devices make."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.common.report import Bucket
from rlctl.config import Loaded, Source, config_from
from rlctl.documents import read_yaml
from rlctl.planning import arithmetic
from rlctl.translation.translate import read_document, translate_loaded

from .texts import AGENTIC, RLVR, bucket, lost, read, written

BASE: dict[str, Any] = {
    "model": {"path": "org/model"},
    "data": {"train": [{"path": "train.parquet"}], "max_prompt_tokens": 1024},
    "batch": {"prompts_per_step": 64, "responses_per_prompt": 8, "mini_batch_responses": 128},
    "rollout": {"max_response_tokens": 1024},
    "schedule": {"total_steps": 30},
    "placement": {"devices_per_node": 8},
}


def _config(**batch: Any) -> Loaded:
    return Loaded(config_from({**BASE, "batch": {**BASE["batch"], **batch}}))


def _megatron(**sizes: int) -> dict[str, Any]:
    return {
        "strategy_name": "megatron_train",
        "strategy_config": {f"{key}_parallel_size": size for key, size in sizes.items()},
    }


@pytest.mark.parametrize(
    ("strategy", "ulysses", "ranks"),
    [
        ({"strategy_name": "fsdp2_train"}, 1, 8),
        ({"strategy_name": "fsdp2_train"}, 4, 2),
        (_megatron(tensor_model=2), 1, 4),
        (_megatron(tensor_model=2, pipeline_model=2), 1, 2),
        (_megatron(context=2, expert_model=4), 1, 4),
    ],
)
def test_the_mini_batch_grows_with_the_data_parallel_ranks(strategy: dict[str, Any], ulysses: int, ranks: int) -> None:
    loaded, _ = read(RLVR, actor_train__strategy_args=strategy, actor_train__model_args={"ulysses_size": ulysses})
    assert arithmetic.train_replicas(loaded.config) == ranks
    assert arithmetic.mini_batch_responses(loaded.config) == 2 * 8 * ranks
    assert arithmetic.optimizer_steps_per_step(loaded.config) == 64 * 8 // (16 * ranks)


def test_a_rank_s_batch_and_the_accumulation_make_the_mini_batch_that_was_asked_for() -> None:
    values, report = written(_config(micro_batch={"unit": "responses", "size": 4}))
    training = values["actor_train"]["training_args"]
    assert (training["per_device_train_batch_size"], training["gradient_accumulation_steps"]) == (4, 4)
    assert lost(report) == {}


def test_a_micro_batch_that_does_not_divide_is_the_next_smaller_that_does() -> None:
    values, report = written(_config(micro_batch={"unit": "responses", "size": 7}))
    assert values["actor_train"]["training_args"]["per_device_train_batch_size"] == 4
    assert lost(report) == {}


def test_micro_batches_of_tokens_become_as_many_responses_as_fit() -> None:
    """ROLL's own dynamic batching would change how many responses an optimizer step has."""
    values, _ = written(_config(micro_batch={"unit": "tokens", "size": 8192}))
    training = values["actor_train"]["training_args"]
    assert (training["per_device_train_batch_size"], training["gradient_accumulation_steps"]) == (4, 4)
    assert "use_dynamic_batching_in_train" not in values["actor_train"]


def test_a_mini_batch_that_no_ranks_share_is_refused_with_the_nearest_that_they_would() -> None:
    place = ("batch", "mini_batch_responses")
    config = _config(mini_batch_responses=100).config
    _, report = written(Loaded(config, {place: Source("file", ".".join(place))}))
    assert "96 or 104 responses can" in lost(report)[".".join(place)]


@pytest.mark.parametrize(("prompts", "mini", "trains"), [(16, 64, 4), (24, 96, 6), (7, 28, 4)])
def test_training_takes_the_most_devices_that_share_a_step(prompts: int, mini: int, trains: int) -> None:
    """ROLL's ``DataProto.chunk`` refuses a batch that its ranks do not divide; here 6 devices are left beside rollout's 2."""
    batch = {"prompts_per_step": prompts, "responses_per_prompt": 4, "mini_batch_responses": mini}
    placement = {"devices_per_node": 8, "layout": "split", "rollout_devices": 2}
    source = {("placement", "rollout_devices"): Source("file", "placement.rollout_devices")}
    values, report = written(Loaded(config_from({**BASE, "batch": batch, "placement": placement}), source))
    assert values["actor_train"]["device_mapping"] == f"list(range(0,{trains}))"
    training = values["actor_train"]["training_args"]
    assert training["per_device_train_batch_size"] * training["gradient_accumulation_steps"] * trains == mini
    told = [entry.note for entry in report.accounting if f"{trains} of 6 devices train" in entry.note]
    assert bool(told) is (trains != 6)


def test_dynamic_batching_comes_back_as_it_was() -> None:
    loaded, report = read(
        RLVR, actor_train__use_dynamic_batching_in_train=True, actor_train__max_tokens_per_microbatch_in_train=8192
    )
    assert loaded.config.batch.micro_batch.unit == "tokens"
    assert loaded.config.batch.micro_batch.size == 8192
    assert bucket(report, "actor_train.use_dynamic_batching_in_train") is Bucket.MAPPED
    values, _ = written(loaded)
    actor = values["actor_train"]
    assert actor["use_dynamic_batching_in_train"] is True
    assert actor["max_tokens_per_microbatch_in_train"] == 8192
    assert actor["training_args"]["per_device_train_batch_size"] == 2
    assert actor["training_args"]["gradient_accumulation_steps"] == 8


def test_agentic_batches_count_trajectories() -> None:
    loaded, _ = read(AGENTIC)
    assert (loaded.config.batch.prompts_per_step, loaded.config.batch.responses_per_prompt) == (16, 8)
    values, _ = written(loaded)
    assert values["rollout_batch_size"] == 128
    assert values["train_env_manager"]["group_size"] == 8


@pytest.mark.parametrize(
    ("keys", "prompt", "response"),
    [
        ({}, 1024, 3072),
        ({"sequence_length": 4096}, 1024, 3072),
        ({"response_length": None, "sequence_length": 2048}, 1024, 1024),
    ],
)
def test_the_whole_sequence_decides_where_it_is_said(keys: dict[str, Any], prompt: int, response: int) -> None:
    loaded, _ = read(RLVR, **keys)
    assert (loaded.config.data.max_prompt_tokens, loaded.config.rollout.max_response_tokens) == (prompt, response)


def test_epochs_become_steps_where_the_length_of_the_data_is_known() -> None:
    config = config_from({**BASE, "schedule": {"total_epochs": 3}})
    values, _ = written(Loaded(config), dataset_rows="1000")
    assert values["max_steps"] == 3 * (1000 // 64)


def test_steps_ahead_say_how_old_responses_may_be() -> None:
    loaded, _ = read(RLVR, async_generation_ratio=1.5)
    assert (loaded.config.weight_sync.max_steps_ahead, loaded.config.weight_sync.max_staleness_steps) == (1.5, 2)
    assert loaded.config.rollout.split_groups
    values, _ = written(loaded)
    assert values["async_generation_ratio"] == 1.5
    rarely, _ = read(RLVR, async_generation_ratio=1.5, actor_train__model_update_frequency=3)
    assert rarely.config.weight_sync.max_staleness_steps == 4, "two steps ahead, and two between two syncs"
    again, written_report = written(rarely)
    assert again["async_generation_ratio"] == 1.5
    assert not [entry.key for entry in written_report.accounting if entry.loses]


def test_a_mini_batch_of_more_than_a_step_is_cut_for_verl() -> None:
    """ROLL fills a step up to its mini-batch; verl refuses one of more than a step has."""
    loaded, report = read(RLVR, actor_train__training_args__gradient_accumulation_steps=4096)
    made = translate_loaded(loaded, report, "verl", options={"carried": "none"})
    mini, step = arithmetic.mini_batch_responses(loaded.config), arithmetic.responses_per_step(loaded.config)
    assert mini > step
    assert [entry.note for entry in made.report.accounting if f"{mini} responses is written as {step}" in entry.note]
    back, _ = read_document(read_yaml(made.text or "", "x.yaml"), dialect="verl", environment={})
    assert back is not None
    assert arithmetic.mini_batch_responses(back.config) == step
