"""What plain words mean: the name of a key in any dialect, a part of one, or an option of TRL, OpenRLHF, slime or vLLM."""

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
    "use_vllm": ("rollout.engine.type",),
    "report_to": ("tracking[].type",),
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
    "zero_stage": ("ds.zero_stage", ("train.engine.type",)),
    "input_key": ("data.input_key", ("data.train[].prompt_key",)),
    "label_key": ("data.label_key", ("data.train[].answer_key",)),
    "use_dynamic_batch": ("train.dynamic_batch_enable", ("batch.micro_batch.unit",)),
    "packing_samples": ("ds.packing_samples", ("train.packing",)),
    "ring_attn_size": ("ds.ring_attn_size", ("train.engine.ulysses_sequence_parallel_size",)),
    "adam_offload": ("ds.adam_offload", ("train.engine.offload",)),
    "colocate_all_models": ("train.colocate_all", ("placement.layout",)),
    "async_train": ("train.async_enable", ("weight_sync.max_steps_ahead",)),
    "vllm_num_engines": ("vllm.num_engines", ("rollout.parallel.replicas",)),
    "max_ckpt_num": ("ckpt.max_num", ("checkpoint.keep_last",)),
    "ckpt_path": ("ckpt.path", ("checkpoint.folder",)),
    "save_steps": ("ckpt.save_steps", ("checkpoint.every",)),
    "eval_steps": ("eval.steps", ("schedule.evaluate_every",)),
    "max_samples": ("data.max_samples", ("data.train[].max_samples",)),
    "gradient_checkpointing": ("actor.gradient_checkpointing_enable", ("train.memory.recompute_activations",)),
    "actor_num_nodes": ("actor.num_nodes", ("placement.nodes",)),
    "actor_num_gpus_per_node": ("actor.num_gpus_per_node", ("placement.devices_per_node",)),
    "colocate_actor_ref": ("train.colocate_actor_ref", ("placement.layout",)),
    "train_max_tokens_per_gpu": ("train.max_tokens_per_gpu", ("batch.micro_batch.size",)),
    "rollout_max_tokens_per_gpu": ("rollout.max_tokens_per_gpu", ("batch.log_prob_micro_batch.size",)),
    "dynamic_filtering": ("algo.dynamic_filtering_enable", ("algorithm.filters",)),
    "enable_vllm_is_correction": (
        "algo.advantage.is_correction_enable",
        ("algorithm.rollout_correction.importance_sampling",),
    ),
    "vllm_gpu_memory_utilization": ("vllm.gpu_memory_utilization", ("rollout.memory.gpu_memory_utilization",)),
    "vllm_tensor_parallel_size": ("vllm.tensor_parallel_size", ("rollout.parallel.tensor_parallel_size",)),
    "vllm_enable_sleep": ("vllm.enable_sleep", ("rollout.memory.sleep",)),
    "enforce_eager": ("vllm.enforce_eager", ("rollout.memory.enforce_eager",)),
    "attn_implementation": ("ds.attn_implementation", ("model.attention",)),
    "param_dtype": ("ds.param_dtype", ("train.precision.compute",)),
}
"""Options of OpenRLHF's ``train_ppo_ray``: the flat name of releases until 0.9, the dotted one after it, and the keys."""
OPENRLHF = {name: keys for flat, (dotted, keys) in _OPENRLHF.items() for name in (flat, dotted)}
SLIME: Mapping[str, tuple[str, ...]] = {
    "rollout_batch_size": ("batch.prompts_per_step",),
    "n_samples_per_prompt": ("batch.responses_per_prompt",),
    "n_samples_per_eval_prompt": ("data.eval[].responses_per_prompt",),
    "global_batch_size": ("batch.mini_batch_responses",),
    "num_steps_per_rollout": ("batch.mini_batch_responses",),
    "micro_batch_size": ("batch.micro_batch.size",),
    "max_tokens_per_gpu": ("batch.micro_batch.size",),
    "use_dynamic_batch_size": ("batch.micro_batch.unit",),
    "balance_data": ("batch.balance",),
    "num_rollout": ("schedule.total_steps",),
    "num_epoch": ("schedule.total_epochs",),
    "num_critic_only_steps": ("schedule.critic_warmup_steps",),
    "eval_interval": ("schedule.evaluate_every",),
    "load": ("checkpoint.resume_path",),
    "save": ("checkpoint.folder",),
    "save_interval": ("checkpoint.every",),
    "hf_checkpoint": ("model.path",),
    "ref_load": ("reference.model.path",),
    "prompt_data": ("data.train[].path",),
    "eval_prompt_data": ("data.eval[].path",),
    "input_key": ("data.train[].prompt_key",),
    "label_key": ("data.train[].answer_key",),
    "apply_chat_template": ("data.train[].prompt_type",),
    "apply_chat_template_kwargs": ("model.chat_template_args",),
    "rollout_shuffle": ("data.curriculum.order",),
    "rollout_max_prompt_len": ("data.max_prompt_tokens",),
    "rollout_max_response_len": ("rollout.max_response_tokens",),
    "rollout_max_context_len": ("model.max_context_tokens",),
    "rollout_temperature": ("rollout.sampling.temperature",),
    "rollout_stop": ("rollout.sampling.stop",),
    "eval_max_response_len": ("data.eval[].evaluation_sampling.max_response_tokens",),
    "over_sampling_batch_size": ("rollout.oversampling.generation_batch_prompts",),
    "dynamic_sampling_filter_path": ("algorithm.filters",),
    "rm_type": ("rewards[].type",),
    "custom_rm_path": ("rewards[].function",),
    "advantage_estimator": ("algorithm.advantage.type",),
    "disable_grpo_std_normalization": ("algorithm.advantage.normalize_by_std",),
    "normalize_advantages": ("algorithm.advantage.whiten",),
    "eps_clip": (f"{_POLICY}.clip_low", f"{_POLICY}.clip_high"),
    "eps_clip_high": (f"{_POLICY}.clip_high",),
    "eps_clip_c": (f"{_POLICY}.dual_clip",),
    "calculate_per_token_loss": ("algorithm.loss_aggregation.mode",),
    "use_kl_loss": ("algorithm.kl_in_loss",),
    "kl_loss_coef": ("algorithm.kl_in_loss.coefficient",),
    "kl_loss_type": ("algorithm.kl_in_loss.estimator",),
    "kl_coef": ("algorithm.kl_in_reward.coefficient",),
    "entropy_coef": ("algorithm.entropy_coefficient",),
    "use_tis": ("algorithm.rollout_correction.importance_sampling",),
    "tis_clip": ("algorithm.rollout_correction.importance_sampling.threshold",),
    "colocate": ("placement.layout",),
    "actor_num_nodes": ("placement.nodes",),
    "actor_num_gpus_per_node": ("placement.devices_per_node",),
    "rollout_num_gpus": ("placement.rollout_devices",),
    "rollout_num_gpus_per_engine": ("rollout.parallel.tensor_parallel_size",),
    "sglang_mem_fraction_static": ("rollout.memory.gpu_memory_utilization",),
    "update_weights_interval": ("weight_sync.every",),
}
"""Options of slime's ``slime/utils/arguments.py``, with underscores for hyphens; SGLang's have ``sglang_`` before them."""
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
TOOLS: Mapping[str, Mapping[str, tuple[str, ...]]] = {"TRL": TRL, "OpenRLHF": OPENRLHF, "slime": SLIME, "vLLM": VLLM}
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
    "clip_higher": (f"{_POLICY}.clip_high",),
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
    "off_policy": ("weight_sync.max_steps_ahead", "algorithm.rollout_correction.importance_sampling"),
    "pp": ("train.engine.pipeline_parallel_size", "rollout.parallel.pipeline_parallel_size"),
    "reward": ("rewards[].type", "algorithm.reward_shaping"),
    "reward_funcs": ("rewards[].function", "rewards[].type"),
    "rollout_n": ("batch.responses_per_prompt",),
    "token_level_loss": ("algorithm.loss_aggregation.mode",),
    "tp": ("rollout.parallel.tensor_parallel_size", "train.engine.tensor_parallel_size"),
}
"""Words of everyday use that many keys have in their names, or none."""
_OF_OTHER_ROLES = ("critic.", "reference.")


def canonical_for(text: str) -> list[str]:
    """The canonical keys that plain words may mean, likeliest first; none for unknown ones.

    They are the name of a key, its end, a type that some key can have (``grpo``), an option of another tool, or parts of a name
    (``max staleness``). Keys of the critic and the reference are left out if the policy has some.
    """
    word = _plain(text)
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
    return list(dict.fromkeys(path for options in TOOLS.values() for path in options.get(_plain(text), ())))


def tools_with(text: str) -> list[str]:
    """The other tools that have an option of this name."""
    return [tool for tool, options in TOOLS.items() if _plain(text) in options]


def _plain(text: str) -> str:
    """A word as tables have it: ``--Use-KL-loss`` is ``use_kl_loss``."""
    return "_".join(text.lower().replace("-", "_").split()).strip("_")


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
