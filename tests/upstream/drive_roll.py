"""Runs in a Python that has a checkout of ROLL: composes a file as ROLL's start scripts do, makes its config class, and tells its numbers.

A question is a line of JSON: ``{"path": ...}`` for a file of the checkout, or ``{"text": ...}``. Nothing here knows rlctl.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
VARIABLE = re.compile(r"oc\.env:(\w+)\}")
STEPS = (0, 1, 2, 5, 10, 20, 50, 100)
"""Steps at whose first optimizer step the learning rate is told."""
TRAINED = {"sft": "sft_train", "distill": "student"}
"""The worker that learns, where it is not ``actor_train``."""


def kind_of(values: dict[str, Any]) -> str:
    """The pipeline that a file is for: in ROLL the start script says so."""
    for key, kind in (
        ("sft_train", "sft"),
        ("student_pretrain", "distill"),
        ("student_train", "on-policy distillation"),
        ("chosen_key", "dpo"),
        ("beta", "dpo"),
        ("train_env_manager", "agentic"),
        ("custom_envs", "agentic"),
    ):
        if key in values:
            return kind
    return "rlvr"


def classes() -> dict[str, Any]:
    """The config class of each pipeline."""
    from roll.pipeline.agentic.agentic_config import AgenticConfig
    from roll.pipeline.distill.distill_config import DistillConfig
    from roll.pipeline.dpo.dpo_config import DPOConfig
    from roll.pipeline.rlvr.rlvr_config import RLVRConfig
    from roll.pipeline.sft.sft_config import SFTConfig

    return {
        "sft": SFTConfig,
        "distill": DistillConfig,
        "dpo": DPOConfig,
        "agentic": AgenticConfig,
        "rlvr": RLVRConfig,
        "on-policy distillation": RLVRConfig,
    }


def keys() -> dict[str, dict[str, list[Any]]]:
    """Every key of each pipeline's config class with a list that holds its default, empty where it has none."""
    import dataclass_keys  # beside this file, which tests import for its numbers

    made = {kind: cls for kind, cls in classes().items() if kind != "on-policy distillation"}
    return {kind: dict(dataclass_keys.keys(cls)) for kind, cls in made.items()}


def loaded(path: Path) -> tuple[str, Any]:
    """The kind of a file and ROLL's config object; devices are there as many as the file says that a node has."""
    from dacite import Config, from_dict
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf
    from roll.platforms import current_platform

    around = dict.fromkeys(VARIABLE.findall(path.read_text()), "org/model") | {"HOME": "/home/me"}
    GlobalHydra.instance().clear()
    with mock.patch.dict(os.environ, around), initialize_config_dir(config_dir=str(path.parent), version_base=None):
        values = OmegaConf.to_container(compose(config_name=path.stem), resolve=True)
    kind = kind_of(values)
    type(current_platform).device_count = classmethod(lambda cls: values.get("num_gpus_per_node") or 8)
    if kind == "on-policy distillation":
        return kind, from_dict(classes()[kind], {**values, "is_pure_opd": True}, Config(check_types=False))
    return kind, from_dict(classes()[kind], values)


def replicas(worker: Any) -> int | None:
    """Ranks that see different data; None where nothing trains."""
    if not worker.device_mapping or not worker.strategy_args:
        return None
    count, settings = len(worker.device_mapping), worker.strategy_args.strategy_config or {}
    name = worker.strategy_args.strategy_name
    if name.startswith("megatron"):
        parts = (settings.get(f"{part}_parallel_size", 1) for part in ("tensor_model", "pipeline_model", "context"))
        for part in parts:
            count //= part
    elif name.startswith("fsdp2"):
        count //= worker.model_args.ulysses_size or 1
    return count


def learning_rates(config: Any, worker: Any, ranks: int, each: int) -> list[float] | None:
    """The rate at the first optimizer step of some steps, by the schedule that ROLL's FSDP2 asks Transformers for."""
    import torch
    from transformers import get_scheduler

    if config.max_steps <= 0 or not worker.strategy_args.strategy_name.startswith("fsdp2"):
        return None
    config.set_max_steps(max_steps=config.max_steps)
    arguments = worker.training_args
    total = arguments.max_steps // ranks
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=arguments.learning_rate)
    made = get_scheduler(
        arguments.lr_scheduler_type,
        optimizer,
        num_warmup_steps=arguments.get_warmup_steps(total),
        num_training_steps=total,
    )
    return [made.lr_lambdas[0](step * each) * arguments.learning_rate for step in STEPS]


def numbers(kind: str, config: Any) -> dict[str, Any]:
    """What would run."""
    worker = getattr(config, TRAINED.get(kind, "actor_train"))
    arguments, ranks = worker.training_args, replicas(worker)
    found: dict[str, Any] = {
        "seed": config.seed,
        "save every": config.save_steps,
        "evaluate every": config.eval_steps,
        "learning rate": arguments.learning_rate,
        "weight decay": arguments.weight_decay,
        "gradient clip": config.max_grad_norm,
        "tokens of a sequence": config.sequence_length,
    }
    if ranks is not None:
        cut = arguments.per_device_train_batch_size // (2 if kind == "dpo" else 1)
        found["training replicas"] = ranks
        found["mini-batch"] = cut * arguments.gradient_accumulation_steps * ranks
        found["training GPUs"] = len(worker.device_mapping)
        if not worker.use_dynamic_batching_in_train:
            found["micro-batch"] = cut
        else:
            found["micro-batch tokens"] = worker.max_tokens_per_microbatch_in_train
    if kind in ("rlvr", "agentic"):
        found |= rl_numbers(kind, config, worker, ranks, found.get("mini-batch"))
    return found


def rl_numbers(kind: str, config: Any, worker: Any, ranks: int | None, mini: int | None) -> dict[str, Any]:
    """Batch, sampling, KL, loss and advantages of a run with rollouts."""
    agentic, actor = kind == "agentic", config.actor_infer
    if agentic:
        sampling, group = config.train_env_manager.generating_args, config.train_env_manager.group_size
        sampling = actor.generating_args or sampling
    else:
        sampling, group = actor.generating_args, config.num_return_sequences_in_group
    responses = config.rollout_batch_size if agentic else config.rollout_batch_size * group
    ranged = config.use_pg_clip_range
    found = {
        "steps": config.max_steps,
        "responses a step": responses,
        "responses a prompt": group,
        "ppo epochs": config.ppo_epochs,
        "clip low": config.pg_clip_low if ranged else config.pg_clip,
        "clip high": config.pg_clip_high if ranged else config.pg_clip,
        "dual clip": 1 + 2 * config.pg_clip if config.dual_clip_loss else None,
        "aggregation": config.loss_agg_mode,
        "KL in the loss": config.kl_loss_coef if config.use_kl_loss else None,
        "KL in the reward": config.init_kl_coef if config.add_token_level_kl else None,
        "entropy": config.entropy_loss_coef,
        "gamma": config.gamma,
        "lambda": config.lambd,
        "advantage clip": config.advantage_clip,
        "reward clip": config.reward_clip,
        "whitened rewards": bool(config.whiten_rewards),
        "whitened advantages": bool(config.whiten_advantages),
        "steps ahead": config.async_generation_ratio,
        "steps of a weight update": worker.model_update_frequency,
        "rollout GPUs": len(actor.device_mapping or []),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": max(sampling.top_k or 0, 0),
        "tokens of a turn": sampling.max_new_tokens,
    }
    if ranks and mini:
        each = max(1, responses * config.ppo_epochs // mini)
        found["optimizer steps a step"] = each
        found["learning rates"] = learning_rates(config, worker, ranks, each)
    if agentic:
        shaping = config.reward_normalization
        turns = [config.custom_envs[tag].get("max_tokens_per_step", math.inf) for tag in config.train_env_manager.tags]
        found["tokens of a turn"] = max(min(turn, sampling.max_new_tokens) for turn in turns)
        if config.adv_estimator in ("gigpo", "step_reinforce"):
            found["gamma"] = config.step_reward_gamma
        found["environment groups"] = config.train_env_manager.num_env_groups
        found["reward mean"], found["reward deviation"] = shaping.norm_mean_type, shaping.norm_std_type
        return found
    group_of = config.adv_estimator == "grpo"
    found["reward mean"] = "group" if group_of else config.norm_mean_type
    found["reward deviation"] = "group" if group_of else config.norm_std_type
    found["tokens of a prompt"] = config.prompt_length
    if config.validation and config.validation.data_args and config.validation.generating_args:
        held_out = config.validation.generating_args
        found["held-out temperature"], found["held-out top_p"] = held_out.temperature, held_out.top_p
        found["held-out top_k"] = max(held_out.top_k or 0, 0)
        found["held-out responses"] = held_out.num_return_sequences
        found["held-out tokens"] = held_out.max_new_tokens
    return found


def told(question: dict[str, Any]) -> dict[str, Any]:
    """Accepted with its numbers, or refused with ROLL's error."""
    import effective_roll  # beside this file, which tests import as a part of their package
    import workers_roll

    with tempfile.TemporaryDirectory() as folder:
        path = Path(question["path"]) if "path" in question else Path(folder) / "written.yaml"
        if "text" in question:
            path.write_text(question["text"])
        try:
            kind, config = loaded(path)
            if question.get("effective"):
                workers_roll.asked(kind, config)
                return {"accepted": True, "numbers": [effective_roll.numbers(kind, config)]}
            return {"accepted": True, "kind": kind, "numbers": numbers(kind, config)}
        except Exception as error:  # noqa: BLE001
            frame = traceback.extract_tb(error.__traceback__)[-1]
            at = f"{Path(frame.filename).name}:{frame.lineno}"
            return {"accepted": False, "error": f"{type(error).__name__}: {error}", "at": at}


def main() -> None:
    """Answer every line of stdin; whatever ROLL itself prints goes to stderr."""
    out = sys.stdout
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            question = json.loads(line)
            answer = {"keys": keys()} if question.get("keys") else told(question)
            print(json.dumps(answer, default=str), file=out, flush=True)


if __name__ == "__main__":
    main()
