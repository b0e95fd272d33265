"""What verl's trainer and workers ask of a config beyond ``validate_config``: their own code, with stand-ins for what needs GPUs."""

from __future__ import annotations

import contextlib
import copy
from unittest import mock


def asked(cfg, models) -> None:
    """Raise what the trainer or a worker would raise.

    Args:
        cfg: a config that ``validate_config`` accepted.
        models: a context in which no tokenizer is loaded.
    """
    with models():
        _rewards(cfg)
        _worker(copy.deepcopy(cfg))
    _trainer(copy.deepcopy(cfg))
    _mini_batches(cfg)


def _rewards(cfg) -> None:
    """The reward manager is looked up by name; teachers become a dataclass with checks of its own."""
    from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER
    from verl.utils.config import omega_conf_to_dataclass

    manager = cfg.reward.reward_manager
    if manager.source == "register":
        assert manager.name in REWARD_MANAGER, f"Unknown reward manager: {manager.name}"
    if cfg.get("distillation") and cfg.distillation.enabled:
        omega_conf_to_dataclass(cfg.distillation)


def _worker(cfg) -> None:
    """``ActorRolloutRefWorker.init_model`` up to the engines, which are stand-ins."""
    from verl.trainer.ppo.utils import need_reference_policy
    from verl.workers import engine_workers
    from verl.workers.rollout import base

    role = "actor_rollout_ref" if need_reference_policy(cfg) else "actor_rollout"
    devices = int(cfg.trainer.nnodes) * int(cfg.trainer.n_gpus_per_node)
    worker = mock.Mock(config=cfg.actor_rollout_ref, role=role, world_size=devices, distillation_enabled=False)
    worker._omega_profiler_config = {}
    worker.ref.get_dispatch_collect.return_value = worker.actor.get_dispatch_collect.return_value = {}
    worker.ref_worker_cls.return_value.get_dispatch_collect.return_value = {}
    worker.actor_worker_cls.return_value.get_dispatch_collect.return_value = {}
    away = {
        name: mock.Mock()
        for name in ("init_device_mesh", "get_rollout_class", "CheckpointEngineRegistry", "aggressive_empty_cache")
    }
    name = (cfg.actor_rollout_ref.rollout.name, cfg.actor_rollout_ref.rollout.mode)
    assert name in base._ROLLOUT_REGISTRY, f"Rollout {name} not found"
    with mock.patch.multiple(engine_workers, **away), mock.patch("torch.distributed.get_rank", return_value=0):
        engine_workers.ActorRolloutRefWorker.init_model.__wrapped__(worker)


def _trainer(cfg) -> None:
    """``PPOTrainer``'s resource pools and filter, and the asserts of the asynchronous trainer."""
    from verl.trainer.ppo.v1 import trainer_base, trainer_separate_async

    trainer = mock.Mock(config=cfg)
    with mock.patch.object(trainer_base, "ResourcePoolManager"):
        trainer_base.PPOTrainer._init_resource_pool_mgr(trainer)
    trainer_base.PPOTrainer._resolve_filter_groups_metric(trainer)
    step = 1
    if cfg.trainer.v1.trainer_mode == "separate_async":
        step = cfg.trainer.v1.separate_async.parameter_sync_step
        own = trainer_separate_async.PPOTrainerSeparateAsync
        with (
            mock.patch.object(trainer_base.PPOTrainer, "__init__", return_value=None),
            contextlib.suppress(AttributeError),
        ):
            own.__init__(own.__new__(own), cfg)
    assert cfg.data.train_batch_size % step == 0, "train_batch_size must be divisible by parameter_sync_step"
    path = cfg.trainer.get("resume_from_path")
    if cfg.trainer.resume_mode == "resume_path":
        assert isinstance(path, str), "resume ckpt must be str type"
        assert "global_step_" in path, "resume ckpt must specify the global_steps"


def sharing(block) -> int:
    """Devices that share a sequence, and so the tokens of a micro-batch."""
    if block.strategy == "megatron":
        return int(block.megatron.context_parallel_size)
    if block.strategy == "veomni":
        return int(block.veomni.get("ulysses_parallel_size", 1))
    if block.strategy == "torchtitan":
        return int(block.torchtitan.get("tensor_parallel_size", 1))
    engine = block.get("fsdp_config") or {}
    return max(int(part.get("ulysses_sequence_parallel_size") or 1) for part in (block, engine))


def replicas(cfg) -> int:
    """Data-parallel ranks of the actor."""
    block = cfg.actor_rollout_ref.actor
    devices = int(cfg.trainer.nnodes) * int(cfg.trainer.n_gpus_per_node)
    if block.strategy == "megatron":
        devices //= block.megatron.tensor_model_parallel_size * block.megatron.pipeline_model_parallel_size
    return devices // sharing(block)


def _mini_batches(cfg) -> None:
    """``TrainingWorker.train_mini_batch``: a mini-batch divides by the data-parallel ranks."""
    actor, ranks = cfg.actor_rollout_ref.actor, replicas(cfg)
    size = actor.ppo_mini_batch_size * cfg.actor_rollout_ref.rollout.n
    assert ranks, "there are fewer devices than one replica of the actor takes"
    assert size % ranks == 0, f"Got mini_batch_size={size} and data parallel size {ranks}"
