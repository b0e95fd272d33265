"""What ROLL's pipelines and workers ask of a config beyond its class: their own code where it runs without GPUs, else its conditions."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TRAINED = {"sft": "sft_train", "distill": "student"}
ROLES = ("actor_train", "actor_infer", "reference", "critic", "sft_train", "student", "teacher")


def asked(kind: str, config: Any) -> None:
    """Raise what a pipeline or a worker would raise."""
    for role in ROLES:
        worker = getattr(config, role, None)
        if getattr(worker, "strategy_args", None) is not None and worker.device_mapping:
            _strategy(role, worker)
    trained = getattr(config, TRAINED.get(kind, "actor_train"))
    assert trained.device_mapping, "no devices to train on"
    if kind in ("rlvr", "agentic", "on-policy distillation"):
        _classes(config)
        _batch(kind, config, trained)
    if kind in ("rlvr", "on-policy distillation"):
        _domains(config)
        assert config.max_steps > 0, "max_steps must be greater than 0"
    if kind == "agentic":
        _devices(config)
    if kind == "dpo":
        _preferences(config)


def replicas(worker: Any) -> int:
    """Data-parallel ranks."""
    count, settings = len(worker.device_mapping), worker.strategy_args.strategy_config or {}
    name = worker.strategy_args.strategy_name
    if name.startswith("megatron"):
        for part in ("tensor_model", "pipeline_model", "context"):
            count //= settings.get(f"{part}_parallel_size", 1) or 1
    elif name.startswith("fsdp2"):
        count //= worker.model_args.ulysses_size or 1
    return count


def _strategy(role: str, worker: Any) -> None:
    """``create_strategy`` and the FSDP2 strategy's ``initialize``."""
    name, settings = worker.strategy_args.strategy_name, worker.strategy_args.strategy_config or {}
    known = (
        "hf_infer",
        "vllm",
        "sglang",
        "megatron_infer",
        "megatron_train",
        "mock_infer",
        "fsdp2_infer",
        "fsdp2_train",
    )
    if name not in known:
        raise ValueError(f"{role}: Unknown strategy name: {name}")
    if name.startswith("fsdp2"):
        shared = worker.model_args.ulysses_size or 1
        assert settings.get("fsdp_size", 1) >= shared, f"{role}: fsdp size should be greater than cp size."
        assert len(worker.device_mapping) % shared == 0, f"{role}: devices are not divisible by ulysses_size"
    if name.startswith("megatron"):
        from roll.utils.config_utils import calculate_megatron_dp_size

        parts = [settings.get(f"{part}_parallel_size", 1) for part in ("tensor_model", "pipeline_model", "context")]
        calculate_megatron_dp_size(len(worker.device_mapping), *parts)
        style = worker.training_args.lr_scheduler_type
        styles = ("constant_with_warmup", "inverse_sqrt", "cosine_with_min_lr", "constant", "cosine", "linear")
        if name == "megatron_train" and style not in styles:
            raise ValueError(f"lr_scheduler_type {style} is not supported")


def _classes(config: Any) -> None:
    """Workers are imported by name: looked for in ROLL's own files, because some import packages that are not installed here."""
    import roll

    workers = [config.actor_train, config.actor_infer, *(getattr(config, "rewards", None) or {}).values()]
    for name in (worker.worker_cls for worker in workers if isinstance(worker.worker_cls, str)):
        module, _, cls = name.rpartition(".")
        path = Path(roll.__file__).parents[1].joinpath(*module.split(".")).with_suffix(".py")
        if module.startswith("roll."):
            there = path.exists() and re.search(rf"^class {cls}\b", path.read_text(), re.MULTILINE)
            assert there, f"there is no {name}"


def _batch(kind: str, config: Any, trained: Any) -> None:
    """``DataProto.chunk``: a step's responses divide by the data-parallel ranks; and each rank has a mini-batch."""
    group = 1 if kind == "agentic" else config.num_return_sequences_in_group
    responses, ranks = config.rollout_batch_size * group, replicas(trained)
    if responses <= 0 or kind == "agentic":
        return  # agentic batches are cut or filled up to what divides
    assert responses % ranks == 0, f"{responses} responses of a step are not divisible by {ranks} data-parallel ranks"
    mini = trained.training_args.per_device_train_batch_size * trained.training_args.gradient_accumulation_steps
    assert responses // ranks >= mini, (
        f"{responses // ranks} responses of a rank are less than its mini-batch of {mini}"
    )


def _domains(config: Any) -> None:
    """``RLVRPipeline.__init__``: each domain of the data has a reward."""
    data = config.actor_train.data_args
    assert data is not None, "actor_train.data_args is not set"
    shares = data.domain_interleave_probs
    assert shares is not None, "actor_train.data_args.domain_interleave_probs is not set"
    for name in shares:
        if not config.is_pure_opd:
            assert name in config.rewards, f"domain {name} has no reward"


def _devices(config: Any) -> None:
    """``AgenticPipeline._validate_partial_gpu_config``, with the clusters' configs for clusters."""
    from roll.pipeline.agentic.agentic_pipeline import AgenticPipeline

    def cluster(worker: Any) -> Any:
        return SimpleNamespace(worker_config=worker, cluster_name=worker.name) if worker.device_mapping else None

    pipeline = AgenticPipeline.__new__(AgenticPipeline)
    pipeline.pipeline_config = config
    pipeline.actor_train, pipeline.actor_infer = cluster(config.actor_train), cluster(config.actor_infer)
    if config.enable_reference:
        pipeline.reference = cluster(config.reference)
    pipeline.critic = cluster(config.critic) if config.adv_estimator == "gae" else None
    pipeline.reward = cluster(config.reward) if config.reward and config.reward.device_mapping else None
    pipeline._validate_partial_gpu_config()


def _preferences(config: Any) -> None:
    """``DPOPipeline.__init__``: the reference's batch is not larger than the training batch."""
    trained = config.actor_train
    size = trained.training_args.per_device_train_batch_size // 2 * trained.training_args.gradient_accumulation_steps
    reference = config.reference.infer_batch_size // 2 * replicas(config.reference)
    assert reference <= size * replicas(trained), (
        f"reference_infer_global_batch_size ({reference}) must be <= global train batch size ({size * replicas(trained)})"
    )
