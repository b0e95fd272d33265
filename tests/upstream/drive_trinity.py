"""Runs in a Python that has Trinity-RFT: loads texts with Trinity's own loader and checks, and tells what would run.

A question is a line of JSON: ``{"text": ...}`` asks whether Trinity accepts a YAML and for the numbers in effect after its checks, stage by
stage; ``{"keys": true}`` for every key that this release knows. Nothing here knows rlctl.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import inspect
import json
import logging
import os
import sys
import tempfile
import traceback
import typing
from pathlib import Path
from typing import Any

import dataclass_keys
import effective_trinity
import formulas
import older_names
import workers_trinity

os.environ.setdefault("HF_HUB_OFFLINE", "1")
TICKS = (0, 1, 2, 5, 10, 20, 50, 100)
"""Trainer steps at which the learning rate is told."""
STYLES = {f"dynamic_by_{side}": f"{side}_driven" for side in ("trainer", "explorer")}
"""What later releases call the styles of 0.4."""


def attributes(made: Any) -> dict[str, Any]:
    """The numbers and names that an algorithm's function keeps."""
    found = {name: dataclass_keys.plain(item) for name, item in vars(made).items() if not name.startswith("_")}
    return {name: item for name, item in found.items() if isinstance(item, (int, float, str, bool, type(None)))}


def functions(config: Any) -> dict[str, Any]:
    """Every function of the algorithm, made with the arguments in effect."""
    from trinity import algorithm as registry

    here, found = config.algorithm, {}
    for kind, table, extra in (
        ("advantage", registry.ADVANTAGE_FN, {}),
        ("policy_loss", registry.POLICY_LOSS_FN, {"backend": "verl"}),
        ("kl_loss", registry.KL_FN, {}),
        ("kl_penalty", registry.KL_FN, {}),
        ("entropy_loss", registry.ENTROPY_LOSS_FN, {}),
    ):
        name = getattr(here, f"{kind}_fn")
        made = table.get(name)(**extra, **(getattr(here, f"{kind}_fn_args") or {}))
        found[kind] = {"name": name, **attributes(made)}
    kind = registry.ALGORITHM_TYPE.get(here.algorithm_type)
    found["advantage_in_trainer"] = kind.compute_advantage_in_trainer
    found["critic"] = kind.use_critic
    return found


def schedule(optim: Any, ticks: typing.Iterable[int] = TICKS) -> dict[int, float]:
    """The learning rate at some trainer steps, by verl's own schedule functions as the FSDP worker calls them."""
    import torch
    from verl.utils import torch_functional

    get = optim.get if hasattr(optim, "get") else lambda name, default=None: getattr(optim, name, default)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=get("lr"))
    total, warmup = get("total_training_steps"), int(get("lr_warmup_steps", -1))
    least = get("min_lr_ratio") or 0.0
    legacy = not hasattr(optim, "zero_indexed_step") and get("zero_indexed_step") is None
    if warmup < 0 or (warmup == 0 and not legacy):
        warmup = int((get("lr_warmup_steps_ratio") or 0.0) * total)
    if get("lr_scheduler_type") == "constant":
        made = torch_functional.get_constant_schedule_with_warmup(optimizer=optimizer, num_warmup_steps=warmup)
    else:
        more = {"init_lr_ratio": least} if legacy else {}
        made = torch_functional.get_cosine_schedule_with_warmup(
            optimizer=optimizer, num_warmup_steps=warmup, num_training_steps=total, min_lr_ratio=least, **more
        )
    return {tick: made.lr_lambdas[0](tick) * get("lr") for tick in ticks}


def rates(config: Any, ticks: list[int]) -> list[float]:
    """The learning rate at trainer steps, on either engine."""
    try:
        from trinity.trainer.verl.config import build_verl_config
    except ImportError:
        actor = config.trainer.trainer_config.actor_rollout_ref.actor
    else:
        actor = build_verl_config(config).actor
    optim = actor.optim if hasattr(actor.optim, "get") else vars(actor.optim)
    if not str(actor.strategy).startswith("megatron"):
        return list(schedule(optim, ticks).values())
    warmup, total = optim.get("lr_warmup_steps") or 0, optim["total_training_steps"]
    if warmup <= 0:
        warmup = int((optim.get("lr_warmup_steps_ratio") or 0.0) * total)
    decay, least, start = optim.get("lr_decay_steps") or total, optim.get("min_lr") or 0.0, optim.get("lr_warmup_init")
    style = optim.get("lr_decay_style") or "constant"
    return [formulas.megatron_rate(style, optim["lr"], least, warmup, decay, tick, start or 0.0) for tick in ticks]


def engine(config: Any) -> dict[str, Any]:
    """What verl's workers are told."""
    try:
        from trinity.trainer.verl.config import build_verl_config
    except ImportError:
        whole = config.trainer.trainer_config
        part, critic, grad = whole.actor_rollout_ref, whole.critic, lambda role: role.grad_clip
        temperature = part.rollout.temperature
        warmup, bypass = whole.trainer.critic_warmup, whole.algorithm.rollout_correction.bypass_mode
        critic_engine = critic.model.fsdp_config
    else:
        from verl.utils.config import omega_conf_to_dataclass

        part = build_verl_config(config)
        critic, grad = part.critic, lambda role: role.optim.clip_grad
        temperature = config.model.temperature
        warmup, bypass = config.trainer.critic_warmup, config.algorithm.bypass_old_logprobs
        critic_engine = part.critic.get("fsdp")
        omega_conf_to_dataclass(part.actor)
        if critic.enable:
            omega_conf_to_dataclass(critic)
    actor, ref = part.actor, part.ref
    megatron = str(actor.strategy).startswith("megatron")
    block = actor.megatron if megatron else actor.fsdp_config
    found = {
        "strategy": actor.strategy,
        "train_temperature": temperature,
        "max_grad_norm": actor.optim.clip_grad if megatron else grad(actor),
        "dynamic": actor.use_dynamic_bsz,
        "tokens": actor.ppo_max_token_len_per_gpu,
        "micro_batch": actor.ppo_micro_batch_size_per_gpu,
        "mini_batch": actor.ppo_mini_batch_size,
        "ppo_epochs": actor.ppo_epochs,
        "shuffle": actor.shuffle,
        "param_offload": block.param_offload,
        "optimizer_offload": block.optimizer_offload,
        "reference_offload": None if megatron else ref.fsdp_config.param_offload,
        "critic_warmup": warmup,
        "old_log_probs": "rollout" if bypass else "recompute",
        "learning_rates": None if megatron else schedule(actor.optim),
        "learning_rate": actor.optim.lr,
        "weight_decay": actor.optim.weight_decay,
        "betas": dataclass_keys.plain(list(actor.optim.betas)),
        "gradient_checkpointing": part.model.enable_gradient_checkpointing,
    }
    if megatron:
        names = ("tensor", "pipeline", "context")
        found["parallel"] = {name: getattr(block, f"{name}_model_parallel_size") for name in names[:2]}
        found["parallel"]["context"] = block.context_parallel_size
    else:
        found["sequence_parallel"], found["fsdp_size"] = actor.ulysses_sequence_parallel_size, block.fsdp_size
    if critic.enable:
        found["critic"] = {
            "learning_rates": None if megatron else schedule(critic.optim),
            "learning_rate": critic.optim.lr,
            "clip": critic.cliprange_value,
            "max_grad_norm": critic.optim.clip_grad if megatron else grad(critic),
            "ppo_epochs": critic.ppo_epochs,
            "param_offload": None if megatron else critic_engine.param_offload,
            "weight_decay": critic.optim.weight_decay,
        }
    return found


def sampling(taskset: Any) -> dict[str, Any]:
    """How responses to one task set are drawn."""
    names = ("temperature", "top_p", "top_k", "max_tokens")
    return {"name": taskset.name, "n": taskset.repeat_times} | {
        name: getattr(taskset.rollout_args, name) for name in names
    }


def effective(config: Any) -> dict[str, Any]:
    """The numbers that decide what a run computes."""
    synchronizer, buffer, explorer, trainer = config.synchronizer, config.buffer, config.explorer, config.trainer
    trains = config.mode in ("train", "both", "colocate") and trainer.trainer_type == "verl"
    sets = buffer.explorer_input.tasksets
    return {
        "mode": config.mode,
        "tasks": buffer.batch_size,
        "responses": config.algorithm.repeat_times,
        "train_batch": buffer.train_batch_size,
        "epochs": buffer.total_epochs,
        "explore_steps": buffer.total_steps,
        "train_steps": trainer.total_steps,
        "sync_interval": synchronizer.sync_interval,
        "sync_offset": synchronizer.sync_offset,
        "sync_style": STYLES.get(dataclass_keys.plain(synchronizer.sync_style), synchronizer.sync_style.value),
        "sync_method": dataclass_keys.plain(synchronizer.sync_method),
        "sync_timeout": synchronizer.sync_timeout,
        "save_interval": trainer.save_interval,
        "eval_interval": explorer.eval_interval,
        "eval_on_startup": explorer.eval_on_startup,
        "aggregation": config.algorithm.loss_agg_mode,
        "lengths": [config.model.max_prompt_tokens, config.model.max_response_tokens, config.model.max_model_len],
        "sampling": [sampling(one) for one in sets],
        "evaluation": [sampling(one) for one in buffer.explorer_input.eval_tasksets],
        "order": [one.data_selector.selector_type for one in sets],
        "engines": explorer.rollout_model.engine_num,
        "tensor": explorer.rollout_model.tensor_parallel_size,
        "gpus": [config.cluster.node_num, config.cluster.gpu_per_node],
        "rollout_gpus": config.cluster.rollout_gpu_num,
        "trainer_gpus": config.cluster.trainer_gpu_num,
        "learning_rate": config.algorithm.optimizer.lr,
        **functions(config),
        "engine": engine(config) if trains else None,
    }


def numbers(config: Any, rows: int) -> dict[str, Any]:
    """The effective numbers of one stage whose first task the explorer could start."""
    workers_trinity.asked(config)
    return effective_trinity.numbers(config, effective(config), rows, lambda ticks: rates(config, ticks))


def checked(config: Any) -> Any:
    """The config after Trinity's checks, with names that 0.4 lacks: the order of a task set, and the GPUs of each side."""
    config = config.check_and_update()
    if hasattr(config.cluster, "trainer_gpu_num"):
        return config
    for taskset in config.buffer.explorer_input.tasksets:
        taskset.data_selector = taskset.task_selector
    engine, trainer = config.explorer.rollout_model, getattr(config.trainer.trainer_config, "trainer", None)
    config.cluster.rollout_gpu_num = engine.tensor_parallel_size * engine.engine_num if config.mode != "train" else 0
    config.cluster.trainer_gpu_num = trainer.nnodes * trainer.n_gpus_per_node if trainer else 0
    return config


def told(text: str, *, rows: int = 0) -> dict[str, Any]:
    """What Trinity makes of one text; one with stages is told stage by stage."""
    from trinity.common.config import load_config

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(text, encoding="utf-8")
        os.environ["TRINITY_CHECKPOINT_ROOT_DIR"] = folder
        try:
            whole = load_config(str(path))
            whole.checkpoint_root_dir = folder
            parts = [checked(one) for one in (list(whole) if whole.stages else [whole])]
            if rows:
                found = [numbers(one, rows) for one in parts]
                return {
                    "accepted": True,
                    "numbers": found,
                    "too_few": "; ".join(filter(None, map(workers_trinity.too_few, parts))),
                }
            return {"accepted": True, "stages": [effective(one) for one in parts]}
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- a refusal of any kind is the answer
            frame = traceback.extract_tb(error.__traceback__)[-1]
            at = f"{Path(frame.filename).name}:{frame.lineno}"
            return {"accepted": False, "error": f"{type(error).__name__}: {error}", "at": at}


# Keys


def keys() -> dict[str, list[Any]]:
    """Every key of this release with a list that holds its default, empty where it has none.

    ``*`` stands for an index or a name of the user's, a last ``**`` for a free mapping.
    """
    from trinity.common.config import Config

    found = dict(dataclass_keys.keys(Config, "", ()))
    for kind, names in _arguments().items():
        found.pop(f"algorithm.{kind}_fn_args.**", None)
        found.update({f"algorithm.{kind}_fn_args.{name}": [] for name in sorted(names)})
    found.pop("trainer.trainer_config", None)
    found.update(_engine_keys("trainer.trainer_config."))
    return dict(sorted(found.items()))


def _arguments() -> dict[str, set[str]]:
    """The arguments of all functions of each kind."""
    from trinity import algorithm as registry

    tables = {
        "advantage": registry.ADVANTAGE_FN,
        "policy_loss": registry.POLICY_LOSS_FN,
        "kl_loss": registry.KL_FN,
        "kl_penalty": registry.KL_FN,
        "entropy_loss": registry.ENTROPY_LOSS_FN,
    }
    found: dict[str, set[str]] = {}
    for kind, table in tables.items():
        names = found.setdefault(kind, set())
        for name in table._default_mapping:
            made = table.get(name)
            names |= set(inspect.signature(made.__init__).parameters) | set(made.default_args())
        names -= {"self", "args", "kwargs", "backend"}
    return found


ENGINE_CONFIGS = ("trinity.common.verl_config", "trinity.trainer.verl.verl_config")
"""Where releases before 0.6 have the dataclass of ``trainer_config``, oldest first."""


def _engine_keys(prefix: str) -> dataclass_keys.Keys:
    for module in filter(importlib.util.find_spec, ENGINE_CONFIGS):
        yield from dataclass_keys.keys(importlib.import_module(module).veRLConfig, prefix, ())
        return
    yield from ((name, []) for name in _new_engine_keys(prefix))


def _new_engine_keys(prefix: str) -> typing.Iterator[str]:
    """Keys that the release hands on to verl, whose defaults its own settings replace."""
    from verl.workers.config import actor, critic, engine, model, optimizer, rollout

    roles = {
        "actor_rollout_ref.model": (model.HFModelConfig,),
        "actor_rollout_ref.actor": (actor.FSDPActorConfig, actor.McoreActorConfig),
        "actor_rollout_ref.ref": (actor.FSDPActorConfig, actor.McoreActorConfig),
        "actor_rollout_ref.rollout": (rollout.RolloutConfig,),
        "critic": (critic.FSDPCriticConfig, critic.McoreCriticConfig),
    }
    inside = {
        "optim": (optimizer.FSDPOptimizerConfig, optimizer.McoreOptimizerConfig),
        "fsdp_config": (engine.FSDPEngineConfig,),
        "fsdp": (engine.FSDPEngineConfig,),
        "megatron": (engine.McoreEngineConfig,),
    }
    more = ("log_prob_micro_batch_size_per_gpu", "log_prob_use_dynamic_bsz", "log_prob_max_token_len_per_gpu")
    for role, classes in roles.items():
        yield from (f"{prefix}{role}.{name}" for name in (more if role.endswith(".ref") else ()))
        for cls in classes:
            yield from (name for name, _ in dataclass_keys.keys(cls, f"{prefix}{role}.", ()))
            for name, parts in inside.items():
                if name in {item.name for item in dataclasses.fields(cls)}:
                    for part in parts:
                        yield from (key for key, _ in dataclass_keys.keys(part, f"{prefix}{role}.{name}.", ()))


def alone() -> None:
    """Let Trinity find no Ray, as where none runs: it would ask whichever cluster of this machine is another program's."""
    import ray

    def none(*_args: Any, **_options: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance")

    ray.init = none


def main() -> None:
    """Answer every line of stdin; whatever Trinity itself prints goes to stderr."""
    out = sys.stdout
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(sys.stderr):
        alone()
        older_names.restore()
        for line in sys.stdin:
            question = json.loads(line)
            answer = {"keys": keys()} if question.get("keys") else told(question["text"], rows=question.get("rows", 0))
            print(json.dumps({"release": importlib.metadata.version("trinity-rft"), **answer}), file=out, flush=True)


if __name__ == "__main__":
    main()
