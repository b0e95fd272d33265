"""What a bare word means: the name of a key in any dialect, or an option that TRL's or vLLM's users know."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rlctl.adapters import dialect
from rlctl.adapters.engine.matrix import canonical_paths, meanings, others
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
VLLM: Mapping[str, tuple[str, ...]] = {
    "max_model_len": ("model.max_context_tokens",),
    "max_num_batched_tokens": ("rollout.memory.max_batched_tokens",),
    "enable_prefix_caching": ("rollout.memory.prefix_caching",),
    "enable_chunked_prefill": ("rollout.memory.chunked_prefill",),
    "tensor_parallel_size": ("rollout.parallel.tensor_parallel_size",),
    "pipeline_parallel_size": ("rollout.parallel.pipeline_parallel_size",),
}
"""Options of vLLM's ``EngineArgs``; a test looks whether it has them."""
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
    "gpus": ("placement.nodes", "placement.devices_per_node", "placement.layout", "placement.rollout_devices"),
    "group_size": ("batch.responses_per_prompt",),
    "kl": ("algorithm.kl_in_loss.coefficient", "algorithm.kl_in_reward.coefficient"),
    "kl_beta": ("algorithm.kl_in_loss.coefficient",),
    "kl_coef": ("algorithm.kl_in_loss.coefficient", "algorithm.kl_in_reward.coefficient"),
    "logger": ("tracking[].type",),
    "max_length": ("data.max_prompt_tokens", "rollout.max_response_tokens", "model.max_context_tokens"),
    "model": ("model.path",),
    "reward": ("rewards[].type", "algorithm.reward_shaping"),
    "rollout_n": ("batch.responses_per_prompt",),
    "tp": ("rollout.parallel.tensor_parallel_size", "train.engine.tensor_parallel_size"),
}
"""Words of everyday use that many keys have in their names, or none."""
_OF_OTHER_ROLES = ("critic.", "reference.")


def canonical_for(word: str) -> list[str]:
    """The canonical keys that a bare word may mean, likeliest first; none for an unknown word.

    A word is the name of a key, a type that some key can have (``grpo``), or a part of a name (``max_staleness``). Keys of the
    critic and the reference are left out if the policy has some.
    """
    if word in COMMON:
        return list(COMMON[word])
    found = [*_types(word), *_named(word)] or _within(word)
    mine = [path for path in found if not path.startswith(_OF_OTHER_ROLES)]
    known = TRL.get(word) or VLLM.get(word) or ()
    return sorted(dict.fromkeys(mine or found), key=lambda path: (path not in known, -_shared(word, path)))


def _shared(word: str, path: str) -> int:
    """How many parts of a word are parts of a key."""
    return len(set(word.split("_")) & set(re.split(r"[_.]", path)))


def _named(word: str) -> list[str]:
    found = [path for table in (TRL, VLLM) for path in table.get(word, ())]
    found += [path for path in canonical_paths() if path.endswith(f".{word}")]
    found = found or [key.path for key in walk(Config) if key.path.endswith(f".{word}")]
    return found or _of_dialects(lambda key: f".{key}".endswith(f".{word}"))


def _of_dialects(matches: Callable[[str], bool]) -> list[str]:
    """The canonical keys of every dialect's keys that match."""
    keys = dict.fromkeys(
        key
        for name in others()
        for table in dialect(name).tables.values()
        for key in (".".join(map(str, path)) for path in table.index)
        if matches(key)
    )
    return [path for key in keys for meaning in meanings(key) for path in meaning.canonical]


def _types(word: str) -> list[str]:
    """The keys that can have a type of this name."""
    return [
        f"{key.path}{suffix}.{held.tag}"
        for key in walk(Config)
        for held, suffix in sections_in(key.info.type)
        if issubclass(held, Choice) and word in held.names()
    ]


def _within(word: str) -> list[str]:
    """Keys in whose name the word is a part."""

    def has(name: str) -> bool:
        return f"_{word}_" in f"_{name.rpartition('.')[2]}_"

    return [path for path in canonical_paths() if has(path)] or _of_dialects(has)
