"""verl's trainers that roll out beside training, whose numbers stand elsewhere than the usual one's."""

from __future__ import annotations

import pytest

from rlctl.common.report import Bucket
from rlctl.planning import arithmetic
from rlctl.translation.translate import convert

from .test_verl import A, bucket, read, written

FULLY = [
    "data.train_batch_size=0",
    "data.gen_batch_size=1",
    f"{A}.ppo_mini_batch_size=32",
    "actor_rollout_ref.rollout.n=16",
    "trainer.nnodes=1",
    "trainer.n_gpus_per_node=4",
    "rollout.nnodes=1",
    "rollout.n_gpus_per_node=12",
    "rollout.total_rollout_steps=51200",
    "async_training.require_batches=4",
    "async_training.trigger_parameter_sync_step=4",
    "async_training.staleness_threshold=0.5",
]


def test_a_step_is_what_is_trained_on_before_the_weights_go_over() -> None:
    """32 prompts a mini-batch, 4 of them at once, 4 times before a synchronisation: 512 prompts and 16 optimizer steps."""
    loaded, report = read(*FULLY)
    config = loaded.config
    assert config.batch.prompts_per_step == 512
    assert arithmetic.optimizer_steps_per_step(config) == 16
    assert config.schedule.total_steps == 100
    assert (
        config.weight_sync.max_steps_ahead,
        config.weight_sync.max_staleness_steps,
        config.weight_sync.in_flight_requests,
    ) == (0.5, 1, "continue")
    assert config.algorithm.old_log_probs == "rollout"
    assert [entry.key for entry in report.accounting if entry.bucket is Bucket.UNKNOWN] == []


def test_devices_of_rollout_stand_beside_those_of_training() -> None:
    config = read(*FULLY)[0].config
    assert (arithmetic.devices(config), arithmetic.rollout_devices(config)) == (16, 12)
    assert arithmetic.train_devices(config) == 4


def test_one_step_off_is_a_step_ahead_on_devices_of_its_own() -> None:
    config = read("trainer.n_gpus_per_node=6", "rollout.nnodes=1", "rollout.n_gpus_per_node=2")[0].config
    assert (config.placement.layout, config.placement.devices_per_node, config.weight_sync.max_steps_ahead) == (
        "split",
        8,
        1.0,
    )


def test_the_newest_release_has_it_in_its_usual_trainer() -> None:
    nodes = ["trainer.n_gpus_per_node=8", "rollout.n_gpus_per_node=8"]
    values, _ = written(*read(*FULLY, *nodes), "verl@0.9")
    assert values["data"]["train_batch_size"] == 512
    assert values["trainer"]["v1"]["trainer_mode"] == "separate_async"
    assert values["trainer"]["v1"]["separate_async"]["parameter_sync_step"] == 16
    assert values["actor_rollout_ref"]["rollout"]["checkpoint_engine"]["backend"] == "nccl"


@pytest.mark.parametrize("own", ["true", "false"])
def test_a_written_bypass_decides_whose_log_probs_are_taken(own: str) -> None:
    bypass = f"algorithm.rollout_correction.bypass_mode={own}"
    loaded, report = read(*FULLY, bypass, "async_training.use_rollout_log_probs=true")
    assert loaded.config.algorithm.old_log_probs == ("rollout" if own == "true" else "recompute")
    assert bucket(report, "async_training.use_rollout_log_probs") is Bucket.DEAD


def test_an_engine_of_another_package_is_known_by_its_group() -> None:
    loaded, report = read("actor@actor_rollout_ref.actor=mlite_actor", f"{A}.engine.tp=2", f"{A}.engine.impl_cfg.x=1")
    assert loaded.config.train.engine.type_name == "mlite"
    assert [entry.key for entry in report.accounting if entry.bucket is Bucket.UNKNOWN] == []


def test_its_schedule_moves_with_each_update_of_require_batches_mini_batches() -> None:
    """4 mini-batches an ``update_actor``, which alone moves the schedule: 10 moves are 40 optimizer steps."""
    warm, decay = f"{A}.optim.lr_warmup_steps=10", f"{A}.optim.lr_decay_steps=100"
    loaded, report = read(*FULLY, warm, decay, "model_engine=megatron")
    schedule = loaded.config.train.lr_scheduler
    assert (schedule.step_unit, schedule.warmup_steps, schedule.decay_steps) == ("optimizer_step", 40, 400)
    roll, _ = written(loaded, report, "roll")
    assert roll["actor_train"]["training_args"]["warmup_steps"] == 40
    trinity, _ = written(*read(*FULLY, warm), "trinity")
    assert trinity["algorithm"]["optimizer"]["lr_warmup_steps"] == 40


def test_separate_async_moves_its_schedule_with_each_mini_batch() -> None:
    mode = ["trainer.v1.trainer_mode=separate_async", "trainer.v1.separate_async.parameter_sync_step=4"]
    mode += ["data.train_batch_size=128", f"{A}.ppo_mini_batch_size=32", f"{A}.optim.lr_warmup_steps=10"]
    own = "actor_rollout_ref.rollout"
    loaded, report = read(*mode, f"{own}.nnodes=1", f"{own}.n_gpus_per_node=8")
    schedule = loaded.config.train.lr_scheduler
    assert (schedule.step_unit, schedule.warmup_steps) == ("optimizer_step", 10)
    assert (
        loaded.config.weight_sync.in_flight_requests == "continue"
    )  # CheckpointEngineManager.update_weights resumes them
    again, _ = written(loaded, report, "verl")
    assert again["actor_rollout_ref"]["actor"]["optim"]["lr_warmup_steps"] == 10


def test_a_fully_asynchronous_run_written_as_separate_async_syncs_weights_as_often() -> None:
    """``parameter_sync_step`` mini-batches are the source's step, so the two intervals are one; 0.5 steps ahead become 1."""
    nodes = ["trainer.n_gpus_per_node=8", "rollout.n_gpus_per_node=8"]
    _, report = written(*read(*FULLY, *nodes, "async_training.partial_rollout=true"), "verl")
    assert not any("every_optimizer_steps" in finding.key for finding in report.findings)
    assert bucket(report, "async_training.partial_rollout") is Bucket.MAPPED
    (lost,) = [entry for entry in report.accounting if entry.key == "async_training.staleness_threshold"]
    assert "0.5 became 1" in lost.note


@pytest.mark.parametrize(("target", "said"), [("verl@0.9", "separate_async"), ("verl@0.8", "in turns")])
def test_another_trainer_than_the_source_starts_is_reported(target: str, said: str) -> None:
    nodes = ["trainer.n_gpus_per_node=8", "rollout.n_gpus_per_node=8"]
    _, report = written(*read(*FULLY, *nodes), target)
    (found,) = [finding for finding in report.findings if finding.code == "other-trainer"]
    assert "fully_async_main" in found.message
    assert said in found.message
    assert "other-trainer" not in {finding.code for finding in written(*read(), target)[1].findings}


def _to_trinity(ahead: float, staleness: int) -> dict[str, bool]:
    sync = f"weight_sync: {{max_steps_ahead: {ahead}, max_staleness_steps: {staleness}}}\n"
    data = "data: {train: [{path: a.parquet}]}\n"
    made = convert(f"rlctl: 1\nmodel: {{path: a/b}}\n{data}{sync}", to="trinity", dialect="rlctl")
    return {entry.key: entry.loses for entry in made.report.accounting}


@pytest.mark.parametrize(("ahead", "lost"), [(0, False), (1, False), (0.5, True)])
def test_a_bound_on_staleness_that_is_never_reached_is_not_reported_as_lost(ahead: float, lost: bool) -> None:
    """Trinity has no such bound; rollout that is at most one step ahead never makes responses two steps old."""
    loses = _to_trinity(ahead, 1)
    assert not loses["weight_sync.max_staleness_steps"]
    assert loses["weight_sync.max_steps_ahead"] is lost


def test_a_bound_on_staleness_that_matters_is_reported_as_lost() -> None:
    assert {key for key, lost in _to_trinity(3, 1).items() if lost} == {"weight_sync.max_staleness_steps"}


def test_a_trainer_with_a_batch_is_not_the_fully_asynchronous_one() -> None:
    """The recipe ``partial_rollout`` has a key of that trainer's block, and batches."""
    loaded, _ = read(
        "data.train_batch_size=8",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8",
        "async_training.partial_rollout=true",
    )
    assert loaded.config.batch.prompts_per_step == 8
    loaded, _ = read(
        "data.train_batch_size=0", "actor_rollout_ref.actor.ppo_mini_batch_size=8", "rollout.total_rollout_steps=64"
    )
    assert loaded.config.batch.prompts_per_step == 32, "4 updates for each sync by default"
    assert loaded.config.schedule.total_steps == 2


def test_pools_of_different_sizes_are_added_up_and_written_back() -> None:
    """4 devices train and 2 roll out, as verl's test of separate_async with two teachers starts them."""
    lines = [
        "trainer.n_gpus_per_node=4",
        "actor_rollout_ref.rollout.nnodes=1",
        "actor_rollout_ref.rollout.n_gpus_per_node=2",
    ]
    loaded, report = read("trainer.v1.trainer_mode=separate_async", *lines)
    config = loaded.config
    assert (arithmetic.devices(config), arithmetic.train_devices(config), arithmetic.rollout_devices(config)) == (
        6,
        4,
        2,
    )
    values, _ = written(loaded, report, "verl@0.9")
    assert values["trainer"]["v1"]["trainer_mode"] == "separate_async"
    assert (values["trainer"].get("nnodes", 1), values["trainer"]["n_gpus_per_node"]) == (1, 4)
    rollout = values["actor_rollout_ref"]["rollout"]
    assert (rollout["nnodes"], rollout["n_gpus_per_node"]) == (1, 2)
