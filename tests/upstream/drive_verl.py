"""Runs in verl's environment: composes a config as verl does, validates it with verl's code, answers with verl's own numbers.

A question names the config file that an entry point of verl composes (``ppo_trainer``), the overrides, and facts that a
config does not hold: rows of the training data. Numbers come from verl's functions called with stand-ins for what needs
GPUs: the data loader's setup, the trainer's update, the engines' schedulers and micro-batches, losses on a few tokens.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import os
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

LOGITS = [[0.0, 0.4, -0.6, 1.5], [-0.2, 0.05, 2.0, 0.0]]
"""New minus old log-probs of two responses of four and three tokens."""
ADVANTAGES = [[1.0, 1.0, 1.0, 1.0], [-1.0, -1.0, -1.0, -1.0]]
COMPUTED = ("vanilla", "gspo", "cispo", "gpg", "sapo")
"""Losses that need nothing but log-probs and advantages."""
MASK = [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0]]
VLLM = "0.18.0+cpu"
KL = [[0.1, -0.7, 2.5, 0.0], [-3.5, 0.2, 0.3, 0.0]]
"""Policy minus reference log-probs."""


def pretend() -> None:
    """Give Transformers the name that older releases of verl import, and a version to the vLLM that is not installed."""
    import older_names  # beside this file, which tests import for its numbers

    older_names.restore()
    real = importlib.metadata.version
    importlib.metadata.version = lambda name: VLLM if name == "vllm" else real(name)


def composed(question):
    """The config as Hydra composes it for an entry point."""
    import verl
    from hydra import compose, initialize_config_dir

    name = question["config"]
    parts = ("experimental", "fully_async_policy") if name.startswith("fully_async") else ("trainer",)
    folder = Path(verl.__file__).parent.joinpath(*parts, "config")
    with initialize_config_dir(config_dir=str(folder), version_base=None):
        return compose("ppo_trainer" if name == "generation" else name, overrides=question["overrides"])


def validated(cfg) -> None:
    """Raise what verl raises before it starts: in ``validate_config``, or in older releases in the trainer."""
    try:
        from verl.trainer.ppo.utils import need_critic, need_reference_policy
        from verl.utils.config import validate_config
    except ImportError:
        from verl.trainer.ppo.ray_trainer import RayPPOTrainer

        critic = cfg.algorithm.adv_estimator == "gae"
        RayPPOTrainer._validate_config(SimpleNamespace(config=cfg, use_critic=critic, use_reference_policy=False))
        return
    with no_models():
        try:
            validate_config(cfg, need_reference_policy(cfg), need_critic(cfg))
        except TypeError as error:
            if "use_reference_policy" not in str(error) and "positional" not in str(error):
                raise
            validate_config(cfg)


@contextlib.contextmanager
def no_models():
    """Keep the model block from loading a tokenizer: there is no network, and the block's own keys are checked all the same."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError):
            model = importlib.import_module("verl.workers.config").HFModelConfig
            stack.enter_context(mock.patch.object(model, "__post_init__", return_value=None))
        yield


def loader_numbers(cfg, rows):
    """Steps of an epoch and of the run: ``PPOTrainer._init_dataloader`` with ``rows`` rows instead of files."""
    from verl.trainer.ppo.v1 import trainer_base as base

    step = cfg.trainer.v1.separate_async.parameter_sync_step if cfg.trainer.v1.trainer_mode == "separate_async" else 1
    trainer = SimpleNamespace(config=cfg, tokenizer=None, processor=None, trainer_mode=cfg.trainer.v1.trainer_mode)
    trainer.parameter_sync_step = step
    data = mock.patch.multiple(
        base,
        create_rl_dataset=lambda *a, **k: range(rows),
        create_rl_sampler=lambda *a: None,
        StatefulDataLoader=mock.Mock,
    )
    with data:
        base.PPOTrainer._init_dataloader(trainer)
    return {"steps_per_epoch": trainer.steps_per_epoch, "total_steps": trainer.total_training_steps}


def update_numbers(cfg):
    """What the trainer asks of an update: ``PPOTrainer._update_actor`` and ``_update_critic`` with a stand-in for the workers."""
    from verl.trainer.ppo.v1 import trainer_base as base

    return {"actor": update_of(base, cfg, "actor"), "critic": update_of(base, cfg, "critic")}


def update_of(base, cfg, role):
    """What ``_update_actor`` or ``_update_critic`` asks of its workers."""
    batch = SimpleNamespace(extra_info={})
    workers = mock.Mock()
    workers.update_actor.return_value = {"metrics": {}}
    workers.train_mini_batch.return_value.get.return_value = {"metrics": {}}
    trainer = mock.Mock(config=cfg, actor_rollout_wg=workers, critic_wg=workers)
    answered = {f"{role}/mfu": 0.0}
    with mock.patch.multiple(base, rename_dict=lambda *a: dict(answered), reduce_metrics=lambda metrics: metrics):
        getattr(base.PPOTrainer, f"_update_{role}")(trainer, batch, {})
    asked = batch.extra_info
    return {
        "mini_batch_responses": asked["mini_batch_size"],
        "epochs": asked["epochs"],
        "shuffle": bool(asked["dataloader_kwargs"]["shuffle"]),
        "temperature": asked["temperature"],
    }


def learning_rates(optim, steps, ticks):
    """The rate at each tick: the engine's own ``_build_lr_scheduler``."""
    import torch
    from verl.utils.config import omega_conf_to_dataclass

    settings = omega_conf_to_dataclass(optim)
    settings.total_training_steps = steps
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=settings.lr)
    if type(settings).__name__ == "McoreOptimizerConfig":
        from verl.utils.megatron.optimizer import get_megatron_optimizer_param_scheduler

        for group in optimizer.param_groups:
            group.update(max_lr=settings.lr, min_lr=settings.min_lr, wd_mult=1.0, lr_mult=1.0)
        optimizer.config = SimpleNamespace()
        scheduler = get_megatron_optimizer_param_scheduler(optimizer, settings)
    else:
        from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

        engine = SimpleNamespace(optimizer_config=settings, rank=1)
        scheduler = FSDPEngine._build_lr_scheduler(engine, optimizer)
    rates = []
    for tick in range(max(ticks) + 1):
        if tick in ticks:
            rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step(1) if type(settings).__name__ == "McoreOptimizerConfig" else scheduler.step()
    return rates


def losses(cfg, actor):
    """The policy loss and the KL of a few tokens."""
    import torch
    from verl.trainer.ppo import core_algos

    mask, advantages = torch.tensor(MASK), torch.tensor(ADVANTAGES)
    new = torch.tensor(LOGITS)
    mode = actor.policy_loss.get("loss_mode", "vanilla")
    function = core_algos.get_policy_loss_fn(mode)
    found = {"mode": mode, "aggregation": actor.loss_agg_mode}
    actor.global_batch_info.update(dp_size=1, batch_num_tokens=int(mask.sum()), global_batch_size=len(MASK))
    if mode in COMPUTED:
        value, _ = function(
            torch.zeros_like(new), new, advantages, mask, loss_agg_mode=actor.loss_agg_mode, config=actor
        )
        found["policy"] = float(value)
    kl = torch.tensor(KL)
    if cfg.actor_rollout_ref.actor.use_kl_loss:
        values = core_algos.kl_penalty(kl, torch.zeros_like(kl), actor.kl_loss_type)
        found["kl_in_loss"] = [[float(x) for x in row] for row in values]
        found["kl_in_loss_coefficient"] = actor.kl_loss_coef
    if cfg.algorithm.use_kl_in_reward and cfg.algorithm.kl_penalty != "full":
        values = core_algos.kl_penalty(kl, torch.zeros_like(kl), cfg.algorithm.kl_penalty)
        found["kl_in_reward"] = [[float(x) for x in row] for row in values]
        controller = core_algos.get_kl_controller(cfg.algorithm.kl_ctrl)
        found["kl_in_reward_coefficient"] = controller.value
        found["kl_in_reward_adaptive"] = type(controller).__name__ == "AdaptiveKLController"
    return found


def micro(config, prefix=""):
    """How a role's batch is cut: tokens a GPU or responses a GPU."""
    name = "ppo" if not prefix else "log_prob"
    by_tokens = bool(config["use_dynamic_bsz" if not prefix else "log_prob_use_dynamic_bsz"])
    size = config[f"{name}_max_token_len_per_gpu"] if by_tokens else config[f"{name}_micro_batch_size_per_gpu"]
    return {"unit": "tokens" if by_tokens else "responses", "size": size}


def plain_numbers(cfg):
    """Numbers that verl takes from the config as they stand."""
    actor, rollout, trainer = cfg.actor_rollout_ref.actor, cfg.actor_rollout_ref.rollout, cfg.trainer
    return {
        "prompts_per_step": cfg.data.train_batch_size,
        "responses_per_prompt": rollout.n,
        "devices": trainer.nnodes * trainer.n_gpus_per_node,
        "nodes": trainer.nnodes,
        "save_every": trainer.save_freq,
        "evaluate_every": trainer.test_freq,
        "evaluate_at_start": bool(trainer.get("val_before_train", True)),
        "epochs": trainer.total_epochs,
        "max_prompt_tokens": cfg.data.max_prompt_length,
        "max_response_tokens": cfg.data.max_response_length,
        "sampling": {name: rollout[name] for name in ("temperature", "top_p", "top_k")},
        "evaluation": {name: rollout.val_kwargs[name] for name in ("temperature", "top_p", "top_k", "n")},
        "rollout_tensor": rollout.tensor_model_parallel_size,
        "micro_batch": micro(actor),
        "log_prob_micro_batch": micro(rollout, "log_prob"),
        "reference_micro": micro(cfg.actor_rollout_ref.ref, "log_prob"),
        "entropy": actor.entropy_coeff,
        "estimator": cfg.algorithm.adv_estimator,
        "use_kl_loss": bool(actor.use_kl_loss),
        "use_kl_in_reward": bool(cfg.algorithm.get("use_kl_in_reward", False)),
        "strategy": actor.strategy,
    }


def ppo_numbers(cfg, question):
    """All numbers of a PPO config; those of the V1 trainer where the release has it."""
    numbers = plain_numbers(cfg)
    if not (Path(importlib.import_module("verl").__file__).parent / "trainer/ppo/v1").exists():
        return numbers
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass

    numbers |= loader_numbers(cfg, question["rows"])
    numbers |= update_numbers(cfg)
    numbers["needs_critic"], numbers["needs_reference"] = bool(need_critic(cfg)), bool(need_reference_policy(cfg))
    with no_models():
        actor = omega_conf_to_dataclass(cfg.actor_rollout_ref.actor)
    numbers["losses"] = losses(cfg, actor)
    steps = cfg.actor_rollout_ref.actor.optim.total_training_steps
    numbers["horizon"] = steps
    if actor.strategy in ("fsdp", "fsdp2", "megatron"):
        numbers["rates"] = learning_rates(cfg.actor_rollout_ref.actor.optim, steps, question["ticks"])
        if numbers["needs_critic"]:
            numbers["critic_rates"] = learning_rates(cfg.critic.optim, steps, question["ticks"])
    optim = actor.optim
    numbers["optimizer"] = {"weight_decay": optim.weight_decay, "betas": listed(optim.betas), "clip": optim.clip_grad}
    return numbers


def sft_numbers(cfg, question):
    """Numbers of the SFT trainer."""
    from verl.utils.config import omega_conf_to_dataclass

    optim = omega_conf_to_dataclass(cfg.optim)
    omega_conf_to_dataclass(cfg.engine)
    rows = question["rows"]
    steps = cfg.trainer.total_training_steps or rows // cfg.data.train_batch_size * cfg.trainer.total_epochs
    by_tokens = bool(cfg.data.use_dynamic_bsz)
    return {
        "rows_per_step": cfg.data.train_batch_size,
        "epochs": cfg.trainer.total_epochs,
        "total_steps": steps,
        "micro_batch": {
            "unit": "tokens" if by_tokens else "responses",
            "size": cfg.data.max_token_len_per_gpu if by_tokens else cfg.data.micro_batch_size_per_gpu,
        },
        "max_tokens": cfg.data.max_length,
        "save_every": cfg.trainer.save_freq,
        "evaluate_every": cfg.trainer.test_freq,
        "devices": cfg.trainer.nnodes * cfg.trainer.n_gpus_per_node,
        "rates": learning_rates(cfg.optim, steps, question["ticks"]) if type(optim).__name__ in OPTIMIZERS else None,
        "optimizer": {"weight_decay": optim.weight_decay, "betas": listed(optim.betas), "clip": optim.clip_grad},
    }


def listed(value):
    """A list, also where a quoted override made it text."""
    return json.loads(value) if isinstance(value, str) else list(value)


OPTIMIZERS = ("FSDPOptimizerConfig", "McoreOptimizerConfig")
"""Those whose schedules are read here: FSDP's and Megatron's."""


def where():
    """The line that raised."""
    frame = traceback.extract_tb(sys.exc_info()[2])[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def answer(question):
    """Accepted with numbers, or refused with verl's words."""
    import effective_verl  # beside this file, which tests import as a part of their package
    import workers_verl

    try:
        cfg = composed(question)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever verl raises is its answer
        return {"accepted": False, "stage": "compose", "error": f"{type(error).__name__}: {error}"}
    try:
        if "ppo" in question["config"]:
            validated(cfg)
            if question.get("effective"):
                workers_verl.asked(cfg, no_models)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever verl raises is its answer
        return {"accepted": False, "stage": "validate", "error": f"{type(error).__name__}: {error}", "at": where()}
    try:
        numbers = {}
        if question.get("effective"):
            name, found = question["config"], {"kind": question["config"]}
            if name.endswith("ppo_trainer"):
                found = effective_verl.numbers(cfg, question, learning_rates)
            elif name.startswith("sft_trainer_engine"):
                found = effective_verl.supervised(cfg, question["rows"], learning_rates)
            return {"accepted": True, "numbers": [found]}
        if question["config"].startswith("ppo"):
            numbers = ppo_numbers(cfg, question)
        elif question["config"] == "generation":
            # main_generation_server sends max_tokens = rollout.response_length
            numbers = {**plain_numbers(cfg), "max_response_tokens": cfg.actor_rollout_ref.rollout.response_length}
        elif question["config"].startswith("sft_trainer_engine"):
            numbers = sft_numbers(cfg, question)
    except (Exception, SystemExit):  # noqa: BLE001 - told to the test
        return {"accepted": True, "broken": traceback.format_exc()[-3000:]}
    return {"accepted": True, "numbers": numbers}


def main() -> None:
    """Answer every line of standard input on what standard output was; what verl prints goes elsewhere."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    pretend()
    for line in sys.stdin:
        out.write(json.dumps(answer(json.loads(line)), default=str) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
