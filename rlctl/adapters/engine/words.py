"""What plain words mean: the name of a key in any dialect, a part of one, or an option of TRL, OpenRLHF or vLLM."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rlctl.adapters.engine.meanings import canonical_paths, filled
from rlctl.config import Config
from rlctl.config.fields import Choice
from rlctl.config.inspect import sections_in, walk

_POLICY, _RATE = "algorithm.policy_loss", "train.lr_scheduler"
TRL: Mapping[str, tuple[str, ...]] = {
    "num_generations": ("batch.responses_per_prompt",),
    "generation_batch_size": ("batch.prompts_per_step",),
    "steps_per_generation": ("batch.mini_batch_responses",),
    "num_iterations": ("batch.ppo_epochs",),
    "per_device_train_batch_size": ("batch.micro_batch.size",),
    "gradient_accumulation_steps": ("batch.mini_batch_responses",),
    "max_completion_length": ("rollout.max_response_tokens",),
    "beta": ("algorithm.kl_in_loss.coefficient",),
    "epsilon": (f"{_POLICY}.clip_low", f"{_POLICY}.clip_high"),
    "epsilon_high": (f"{_POLICY}.clip_high",),
    "delta": (f"{_POLICY}.dual_clip",),
    "importance_sampling_level": (f"{_POLICY}.type",),
    "loss_type": ("algorithm.loss_aggregation.mode",),
    "scale_rewards": ("algorithm.advantage.normalize_by_std",),
    "reward_weights": ("rewards[].weight",),
    "vllm_mode": ("placement.layout",),
    "vllm_gpu_memory_utilization": ("rollout.memory.gpu_memory_utilization",),
    "vllm_tensor_parallel_size": ("rollout.parallel.tensor_parallel_size",),
    "num_train_epochs": ("schedule.total_epochs",),
    "max_steps": ("schedule.total_steps",),
    "eval_steps": ("schedule.evaluate_every",),
    "save_steps": ("checkpoint.every",),
    "learning_rate": ("train.optimizer.lr",),
    "warmup_steps": (f"{_RATE}.warmup_steps",),
    "lr_scheduler_type": (f"{_RATE}.type",),
    "gradient_checkpointing": ("train.memory.recompute_activations",),
    "use_liger_kernel": ("train.fused_kernels.liger",),
    "output_dir": ("run.folder",),
    "run_name": ("run.name",),
}
"""Options of TRL's ``GRPOConfig``; a test looks whether it has them."""
_OPENRLHF: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "rollout_batch_size": ("rollout.batch_size", ("batch.prompts_per_step",)),
    "micro_rollout_batch_size": ("rollout.micro_batch_size", ("batch.log_prob_micro_batch.size",)),
    "train_batch_size": ("train.batch_size", ("batch.mini_batch_responses",)),
    "micro_train_batch_size": ("train.micro_batch_size", ("batch.micro_batch.size",)),
    "n_samples_per_prompt": ("rollout.n_samples_per_prompt", ("batch.responses_per_prompt",)),
    "eval_n_samples_per_prompt": ("eval.n_samples_per_prompt", ("data.eval[].responses_per_prompt",)),
    "generate_max_len": ("rollout.max_new_tokens", ("rollout.max_response_tokens",)),
    "max_len": ("data.max_len", ("model.max_context_tokens",)),
    "max_epochs": ("train.max_epochs", ("batch.ppo_epochs",)),
    "num_episodes": ("train.num_episodes", ("schedule.total_epochs",)),
    "init_kl_coef": ("algo.kl.init_coef", ("algorithm.kl_in_reward.coefficient", "algorithm.kl_in_loss.coefficient")),
    "kl_estimator": ("algo.kl.estimator", ("algorithm.kl_in_reward.estimator", "algorithm.kl_in_loss.estimator")),
    "kl_target": ("algo.kl.target", ("algorithm.kl_in_reward.target",)),
    "kl_horizon": ("algo.kl.horizon", ("algorithm.kl_in_reward.horizon",)),
    "use_kl_loss": ("algo.kl.use_loss", ("algorithm.kl_in_loss",)),
    "advantage_estimator": ("algo.advantage.estimator", ("algorithm.advantage.type",)),
    "lambd": ("algo.advantage.lambd", ("algorithm.advantage.lambda",)),
    "no_advantage_std_norm": ("algo.advantage.no_std_norm", ("algorithm.advantage.normalize_by_std",)),
    "eps_clip": ("actor.eps_clip", (f"{_POLICY}.clip_low", f"{_POLICY}.clip_high")),
    "eps_clip_low_high": ("actor.eps_clip_low_high", (f"{_POLICY}.clip_low", f"{_POLICY}.clip_high")),
    "value_clip": ("critic.value_clip", ("critic.value_loss.clip",)),
    "entropy_loss_coef": ("actor.entropy_coef", ("algorithm.entropy_coefficient",)),
    "actor_learning_rate": ("actor.adam.lr", ("train.optimizer.lr",)),
    "critic_learning_rate": ("critic.adam.lr", ("critic.optimizer.lr",)),
    "max_norm": ("actor.max_norm", ("train.optimizer.max_grad_norm",)),
    "pretrain": ("actor.model_name_or_path", ("model.path",)),
    "prompt_data": ("data.prompt_dataset", ("data.train[].path",)),
    "packing_samples": ("ds.packing_samples", ("train.packing",)),
    "ring_attn_size": ("ds.ring_attn_size", ("train.engine.ulysses_sequence_parallel_size",)),
    "adam_offload": ("ds.adam_offload", ("train.engine.offload",)),
    "colocate_all_models": ("train.colocate_all", ("placement.layout",)),
    "async_train": ("train.async_enable", ("weight_sync.max_steps_ahead",)),
    "vllm_num_engines": ("vllm.num_engines", ("rollout.parallel.replicas",)),
    "max_ckpt_num": ("ckpt.max_num", ("checkpoint.keep_last",)),
}
"""Options of OpenRLHF's ``train_ppo_ray``: the flat name of releases until 0.9, the dotted one after it, and the keys."""
OPENRLHF = {name: keys for flat, (dotted, keys) in _OPENRLHF.items() for name in (flat, dotted)}
VLLM: Mapping[str, tuple[str, ...]] = {
    "max_model_len": ("model.max_context_tokens",),
    "max_num_batched_tokens": ("rollout.memory.max_batched_tokens",),
    "max_num_seqs": ("rollout.memory.max_num_seqs",),
    "gpu_memory_utilization": ("rollout.memory.gpu_memory_utilization",),
    "kv_cache_dtype": ("rollout.memory.kv_cache_dtype",),
    "enforce_eager": ("rollout.memory.enforce_eager",),
    "enable_prefix_caching": ("rollout.memory.prefix_caching",),
    "enable_chunked_prefill": ("rollout.memory.chunked_prefill",),
    "tensor_parallel_size": ("rollout.parallel.tensor_parallel_size",),
    "pipeline_parallel_size": ("rollout.parallel.pipeline_parallel_size",),
    "data_parallel_size": ("rollout.parallel.data_parallel_size",),
}
"""Options of vLLM's ``EngineArgs``; a test looks whether it has them."""
TOOLS: Mapping[str, Mapping[str, tuple[str, ...]]] = {"TRL": TRL, "OpenRLHF": OPENRLHF, "vLLM": VLLM}
"""The keys that an option of another tool means, by the tool."""
COMMON: Mapping[str, tuple[str, ...]] = {
    "async": ("weight_sync.max_steps_ahead", "weight_sync.max_staleness_steps", "checkpoint.asynchronous"),
    "clip": (f"{_POLICY}.clip_low", f"{_POLICY}.clip_high", f"{_POLICY}.dual_clip", "train.optimizer.max_grad_norm"),
    "dapo": (
        f"{_POLICY}.clip_high",
        "algorithm.filters",
        "algorithm.loss_aggregation.mode",
        "algorithm.reward_shaping.overlong_penalty",
    ),
    "dataset": ("data.train[].path", "data.eval[].path"),
    "flash_attention": ("model.attention",),
    "gpus": ("placement.nodes", "placement.devices_per_node", "placement.layout", "placement.rollout_devices"),
    "group_size": ("batch.responses_per_prompt",),
    "hybrid_engine": ("placement.layout",),
    "kl": ("algorithm.kl_in_loss.coefficient", "algorithm.kl_in_reward.coefficient"),
    "kl_beta": ("algorithm.kl_in_loss.coefficient",),
    "kl_coef": ("algorithm.kl_in_loss.coefficient", "algorithm.kl_in_reward.coefficient"),
    "logger": ("tracking[].type",),
    "max_length": ("data.max_prompt_tokens", "rollout.max_response_tokens", "model.max_context_tokens"),
    "max_tokens": ("rollout.max_response_tokens", "data.max_prompt_tokens", "model.max_context_tokens"),
    "micro_batch": ("batch.micro_batch.size", "batch.micro_batch.unit"),
    "model": ("model.path",),
    "pp": ("train.engine.pipeline_parallel_size", "rollout.parallel.pipeline_parallel_size"),
    "reward": ("rewards[].type", "algorithm.reward_shaping"),
    "rollout_n": ("batch.responses_per_prompt",),
    "tp": ("rollout.parallel.tensor_parallel_size", "train.engine.tensor_parallel_size"),
}
"""Words of everyday use that many keys have in their names, or none."""
_OF_OTHER_ROLES = ("critic.", "reference.")


def canonical_for(text: str) -> list[str]:
    """The canonical keys that plain words may mean, likeliest first; none for unknown ones.

    They are the name of a key, its end, a type that some key can have (``grpo``), an option of another tool, or parts of a name
    (``max staleness``). Keys of the critic and the reference are left out if the policy has some.
    """
    word = "_".join(text.lower().replace("-", "_").split()).strip("_")
    if word in COMMON:
        return list(COMMON[word])
    known = options_of(word)
    found = [*_types(word), *known, *_named(word)] or _within(word)
    mine = [path for path in found if not path.startswith(_OF_OTHER_ROLES)]

    def likely(path: str) -> tuple[bool, int, int]:
        return path not in known, -_shared(word, path), path.count("[")

    return sorted(dict.fromkeys(mine or found), key=likely)


def options_of(text: str) -> list[str]:
    """The canonical keys that an option of another tool means."""
    return list(dict.fromkeys(path for options in TOOLS.values() for path in options.get(text, ())))


def tools_with(text: str) -> list[str]:
    """The other tools that have an option of this name."""
    return [tool for tool, options in TOOLS.items() if text in options]


def _shared(word: str, path: str) -> int:
    """How many parts of a word are parts of a key."""
    return len(set(word.split("_")) & set(re.split(r"[_.]", path)))


def _named(word: str) -> list[str]:
    found = [path for path in canonical_paths() if path.endswith(f".{word}")]
    found = found or [key.path for key in walk(Config) if key.path.endswith(f".{word}")]
    return found or _of_dialects(lambda key: f".{key}".endswith(f".{word}"))


def _of_dialects(fits: Callable[[str], bool]) -> list[str]:
    """The canonical keys of every dialect's keys that fit."""
    return [path for key, paths in filled().items() if fits(key) for path in paths]


def _types(word: str) -> list[str]:
    """The keys that can have a type of this name."""
    return [
        f"{key.path}{suffix}.{held.tag}"
        for key in walk(Config)
        for held, suffix in sections_in(key.info.type)
        if issubclass(held, Choice) and word in held.names()
    ]


def _within(word: str) -> list[str]:
    """Keys in whose last name, or else in whose whole name, there are words that begin as these do."""
    parts = word.split("_")

    def has(name: str) -> bool:
        words = re.split(r"[^a-z0-9]+", name.lower())
        return all(any(each.startswith(part) for each in words) for part in parts)

    def ends(name: str) -> bool:
        return has(name.rpartition(".")[2])

    for fits in (ends, has):
        found = [path for path in canonical_paths() if fits(path)] or _of_dialects(fits)
        if found:
            return sorted(found, key=lambda path: (not path.rpartition(".")[2].startswith(parts[0]), path.count(".")))
    return []
