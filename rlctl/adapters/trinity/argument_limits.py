"""Words and numbers that Trinity-RFT's functions and validators refuse, most of them when they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlctl.adapters.engine.requirements import Remedy, Requirement, Values
from rlctl.adapters.trinity.requirement_values import ENGINE, engine_devices, own_devices
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level

ADVANTAGE, LOSS = "algorithm.advantage_fn_args", "algorithm.policy_loss_fn_args"
FUNCTIONS = "trinity/algorithm"
VALIDATOR = "trinity/common/config_validator.py, "
INPUT, BUFFER = "buffer.explorer_input", "buffer.trainer_input.experience_buffer"
OPTIMIZER = "algorithm.optimizer"
REC = f"{FUNCTIONS}/policy_loss_fn/rec_policy_loss.py, RECPolicyLossFn"


def _among(*names: str) -> tuple[Callable[[Any], bool], str]:
    return lambda value: value in names, said("one of {names}", names=", ".join(names))


ABOVE_ZERO: tuple[Callable[[Any], bool], str] = (lambda value: value > 0, "more than 0")
SHARE: tuple[Callable[[Any], bool], str] = (lambda value: 0 <= value <= 1, "a number from 0 to 1")
PART: tuple[Callable[[Any], bool], str] = (lambda value: 0 < value <= 1, "more than 0 and at most 1")
PROMPTS: tuple[Callable[[Any], bool], str] = (
    lambda value: str(value).lower() in ("messages", "plaintext"),
    "messages or plaintext",
)
ARGUMENTS: tuple[tuple[str, tuple[Callable[[Any], bool], str], str], ...] = (
    (f"{ADVANTAGE}.fnorm", _among("std", "none"), f"{FUNCTIONS}/advantage_fn/gigpo_advantage.py, GiGPOAdvantageFn"),
    (
        f"{ADVANTAGE}.std_cal_level",
        _among("group", "batch"),
        f"{FUNCTIONS}/advantage_fn/grpo_advantage.py, GRPOGroupedAdvantage",
    ),
    (f"{ADVANTAGE}.drop", _among("balance"), f"{FUNCTIONS}/advantage_fn/rec_advantage.py, RECGroupedAdvantage"),
    (
        f"{ADVANTAGE}.opmd_baseline",
        _among("mean", "logavgexp"),
        f"{FUNCTIONS}/advantage_fn/opmd_advantage.py, OPMDAdvantageFn",
    ),
    (f"{LOSS}.cutoff_prob", SHARE, f"{FUNCTIONS}/policy_loss_fn/chord_policy_loss.py, SFTISLossFn"),
    (
        f"{LOSS}.clip_ratio_c",
        (lambda value: value > 1, "more than 1"),
        f"{FUNCTIONS}/policy_loss_fn/ppo_policy_loss.py, PPOPolicyLossFn",
    ),
    (f"{LOSS}.epsilon_low", PART, REC),
    (f"{LOSS}.epsilon_low_prime", PART, REC),
    (f"{LOSS}.epsilon_high", ABOVE_ZERO, REC),
    (f"{LOSS}.epsilon_high_prime", ABOVE_ZERO, REC),
    (f"{LOSS}.clip_mode", _among("none", "one-side", "gspo-one-side", "two-side", "ring"), REC),
    (f"{LOSS}.weight", _among("none", "importance_sampling", "gspo_importance_sampling", "advantage"), REC),
    (f"{LOSS}.regularizer", _among("none", "k2", "forward-kl"), REC),
    (f"{LOSS}.regularizer_coef", (lambda value: value >= 0, "0 or more"), REC),
    (f"{LOSS}.temp", ABOVE_ZERO, REC),
    (f"{INPUT}.taskset.storage_type", _among("file"), "trinity/buffer/task_scheduler.py, TasksetScheduler"),
    (f"{BUFFER}.storage_type", _among("file", "queue", "sql"), "trinity/buffer/buffer.py, get_buffer_reader"),
    (f"{INPUT}.taskset.format.prompt_type", PROMPTS, "trinity/common/config.py, load_config"),
    (f"{BUFFER}.format.prompt_type", PROMPTS, "trinity/common/config.py, load_config"),
    (
        f"{ENGINE}.engine_type",
        _among("vllm", "vllm_async", "sglang", "tinker", "external"),
        "trinity/common/models/allocator.py, create_engine",
    ),
    (
        "trainer.trainer_strategy",
        _among("fsdp", "fsdp2", "megatron"),
        "trinity/trainer/verl/config.py, build_verl_config",
    ),
    (
        "algorithm.loss_agg_mode",
        _among("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"),
        f"{FUNCTIONS}/utils.py, aggregate_loss",
    ),
)
"""Settings, what is allowed, and where the framework tests it."""
REGISTERED: Mapping[str, Sequence[str]] = {
    "advantage_fn": (
        *(
            "ppo",
            "grpo",
            "grpo_verl",
            "step_wise_grpo",
            "gigpo",
            "reinforceplusplus",
            "reinforce",
            "remax",
            "rloo",
            "opmd",
        ),
        *("opmd_verl", "asymre", "asymre_verl", "rec", "on_policy_distill", "jsd", "clipb", "clipv"),
    ),
    "kl_penalty_fn": (KL := ("none", "k1", "k2", "k3", "low_var_kl", "abs", "corrected_k3")),
    "kl_loss_fn": KL,
    "entropy_loss_fn": ("default", "mix", "none"),
    "policy_loss_fn": (
        *(
            "ppo",
            "opmd",
            "dpo",
            "sft",
            "mix",
            "gspo",
            "topr",
            "cispo",
            "sft_is",
            "sft_phi",
            "mix_chord",
            "sppo",
            "rec",
            "sapo",
        ),
        "importance_sampling",
    ),
    "sample_strategy": ("default", "warmup", "staleness_control", "mix"),
}
"""Functions that Trinity registers, by the key of ``algorithm`` that names one; a class path is one too."""
IN_TRAINER = (
    *("ppo", "grpo_verl", "reinforceplusplus", "remax", "rloo", "opmd_verl", "asymre_verl", "clipb", "clipv"),
)
"""Advantages that only the trainer computes."""
TRAINED_THERE = ("ppo", "reinforceplusplus", "rloo", "grpo_verl")
"""Algorithms whose trainer computes advantages."""
CLIPPED = (
    *("ppo", "grpo", "dapo", "reinforceplusplus", "rloo", "multi_step_grpo", "gigpo", "on_policy_distill", "jsd"),
    *("grpo_verl", "gspo"),
)
"""Algorithms whose loss is PPO's or GSPO's, if the file names no other."""
SELECTORS = ("sequential", "shuffle", "random", "offline_easy2hard", "difficulty_based")


def _limit(key: str, allowed: Callable[[Any], bool], expected: str, source: str) -> Requirement:
    return Requirement(
        key,
        lambda v: v.written(key) and v[key] is not None and not allowed(v[key]),
        said("{key} is {{{key}}}; expected {expected}", key=key, expected=expected),
        source,
        said("set {key} to {expected}", key=key, expected=expected),
    )


def _unregistered(key: str, names: Sequence[str]) -> Requirement:
    def is_unknown(values: Values) -> bool:
        name = values[key]
        return isinstance(name, str) and name not in names and "." not in name

    return Requirement(
        key,
        is_unknown,
        said("{key} is {{{key}}}, which Trinity does not register; only a plug-in could", key=key),
        f"{VALIDATOR}AlgorithmConfigValidator",
        Remedy(key, tuple(names)),
        level=Level.WARNING,
    )


def mixes(values: Values) -> bool:
    return values["algorithm.algorithm_type"] in ("mix", "mix_chord") or values["algorithm.sample_strategy"] == "mix"


def _is_adaptive(values: Values, key: str) -> bool:
    return bool(values[f"{key}.adaptive"]) and None in (values[f"{key}.target_kl"], values[f"{key}.horizon"])


def _without_clip_range(values: Values) -> bool:
    """Whether arguments are written, which replace all defaults, and the range of the ratio is not among them."""
    loss = values["algorithm.policy_loss_fn"]
    clips = loss in ("ppo", "gspo") if loss else values["algorithm.algorithm_type"] in CLIPPED
    given = values[LOSS]
    trains = values["mode"] in ("both", "train", "colocate")
    if not (trains and clips and isinstance(given, Mapping) and given) or given.get("clip_range") is not None:
        return False
    return None in (given.get("clip_range_low"), given.get("clip_range_high"))


KL_FN = f"{FUNCTIONS}/kl_fn/kl_fn.py, KLFn"


ROWS: tuple[Requirement, ...] = (
    *(_limit(key, *limits, source) for key, limits, source in ARGUMENTS),
    *(_unregistered(f"algorithm.{name}", names) for name, names in REGISTERED.items()),
    _unregistered(f"{BUFFER}.data_selector.selector_type", SELECTORS),
    *(
        Requirement(
            f"{key}.adaptive",
            lambda v, key=key: _is_adaptive(v, key),  # type: ignore[misc]
            said("{key}.adaptive is on, but {key}.target_kl or {key}.horizon is not set", key=key),
            KL_FN,
            said("set {key}.target_kl and {key}.horizon", key=key),
        )
        for key in ("algorithm.kl_penalty_fn_args", "algorithm.kl_loss_fn_args")
    ),
    Requirement(
        f"{LOSS}.tau_neg",
        lambda v: (
            v["algorithm.algorithm_type"] == "sapo"
            and float(v[f"{LOSS}.tau_neg"] or 1.05) < float(v[f"{LOSS}.tau_pos"] or 1.0)
        ),
        said("{loss}.tau_neg is less than {loss}.tau_pos, which SAPO refuses", loss=LOSS),
        f"{FUNCTIONS}/policy_loss_fn/sapo_policy_loss.py, SAPOPolicyLossFn",
        said("raise {loss}.tau_neg", loss=LOSS),
    ),
    Requirement(
        "model.chat_template_path",
        lambda v: (
            (path := v["model.chat_template_path"]) and not v["model.custom_chat_template"] and not Path(path).is_file()
        ),
        "model.chat_template_path {model.chat_template_path} is not a file on this machine",
        f"{VALIDATOR}ModelConfigValidator",
        "correct the path",
        level=Level.WARNING,
    ),
    Requirement(
        "model.external_model.model_name",
        lambda v: (
            v["model.external_model.enable"]
            and not all(v[f"model.external_model.{name}"] for name in ("model_name", "base_url_env", "api_key_env"))
        ),
        "model.external_model.enable is on, but model.external_model lacks model_name, base_url_env or api_key_env",
        f"{VALIDATOR}ModelConfigValidator._check_external_model",
        "set the three",
    ),
    Requirement(
        "model.tinker.enable",
        lambda v: v["model.tinker.enable"] and v["algorithm.algorithm_type"] in TRAINED_THERE,
        "model.tinker computes no advantages in the trainer, which algorithm.algorithm_type {algorithm.algorithm_type} needs",
        "trinity/trainer/tinker/tinker_trainer.py, TinkerTrainerWrapper._init_algorithm",
        Remedy("algorithm.algorithm_type", "grpo"),
    ),
    Requirement(
        f"{OPTIMIZER}.lr_scheduler_type",
        lambda v: v["model.tinker.enable"] and v[f"{OPTIMIZER}.lr_scheduler_type"] not in ("constant", "cosine"),
        said("{key} is {{{key}}}; model.tinker takes constant or cosine", key=f"{OPTIMIZER}.lr_scheduler_type"),
        "trinity/trainer/tinker/tinker_trainer.py, TinkerTrainerWrapper._init_algorithm",
        Remedy(f"{OPTIMIZER}.lr_scheduler_type", "constant"),
    ),
    Requirement(
        f"{OPTIMIZER}.min_lr_ratio",
        lambda v: v["model.tinker.enable"] and not 0 <= float(v[f"{OPTIMIZER}.min_lr_ratio"] or 0) <= 1,
        said("{key} is {{{key}}}; expected {expected}", key=f"{OPTIMIZER}.min_lr_ratio", expected=SHARE[1]),
        "trinity/trainer/tinker/tinker_trainer.py, TinkerTrainerWrapper._init_algorithm",
        said("set {key} to {expected}", key=f"{OPTIMIZER}.min_lr_ratio", expected=SHARE[1]),
    ),
    Requirement(
        LOSS,
        _without_clip_range,
        said(
            "{loss} replaces all default arguments, and has neither clip_range nor clip_range_low and clip_range_high",
            loss=LOSS,
        ),
        f"{FUNCTIONS}/policy_loss_fn/ppo_policy_loss.py, PPOPolicyLossFn",
        said("set {loss}.clip_range", loss=LOSS),
    ),
    Requirement(
        "algorithm.entropy_loss_fn",
        lambda v: v["algorithm.entropy_loss_fn"] == "mix" and not mixes(v),
        "algorithm.entropy_loss_fn is mix, but algorithm.algorithm_type {algorithm.algorithm_type} has no expert data",
        f"{FUNCTIONS}/entropy_loss_fn/entropy_loss_fn.py, MixEntropyLossFn",
        Remedy("algorithm.entropy_loss_fn", "default"),
    ),
    Requirement(
        "algorithm.advantage_fn",
        lambda v: v["algorithm.advantage_fn"] in IN_TRAINER and v["algorithm.algorithm_type"] not in TRAINED_THERE,
        "only the trainer computes algorithm.advantage_fn {algorithm.advantage_fn}, but algorithm.algorithm_type "
        "{algorithm.algorithm_type} computes advantages before it",
        "trinity/buffer/pipelines/experience_pipeline.py, ExperiencePipeline._set_algorithm_operators",
        Remedy("algorithm.advantage_fn"),
    ),
    Requirement(
        f"{BUFFER}.format.prompt_type",
        lambda v: (
            v["algorithm.algorithm_type"] == "cpt" and str(v[f"{BUFFER}.format.prompt_type"]).lower() == "messages"
        ),
        said(
            "algorithm.algorithm_type cpt reads plain text, but {buffer}.format.prompt_type is messages", buffer=BUFFER
        ),
        "trinity/buffer/schema/formatter.py, CPTFormatter",
        Remedy(f"{BUFFER}.format.prompt_type", "plaintext"),
    ),
    Requirement(
        f"{ENGINE}.data_parallel_size",
        lambda v: (
            own_devices(v)
            and v["mode"] != "train"
            and str(v[f"{ENGINE}.engine_type"]).startswith("vllm")
            and v.number(f"{ENGINE}.data_parallel_size") > 1
            and engine_devices(v) > v["cluster.gpu_per_node"]
        ),
        said(
            "a vLLM engine over several nodes takes no data parallelism, but {engine}.data_parallel_size is "
            "{{{engine}.data_parallel_size}}",
            engine=ENGINE,
        ),
        f"{VALIDATOR}RayClusterConfigValidator._validate_multinode_inference_models",
        Remedy(f"{ENGINE}.data_parallel_size", 1),
    ),
    Requirement(
        f"{ENGINE}.data_parallel_size",
        lambda v: (
            v["mode"] != "train"
            and v[f"{ENGINE}.engine_type"] == "sglang"
            and v.number(f"{ENGINE}.tensor_parallel_size") % v.number(f"{ENGINE}.data_parallel_size")
        ),
        said(
            "{engine}.tensor_parallel_size ({{{engine}.tensor_parallel_size}}) is not divisible by {engine}.data_parallel_size "
            "({{{engine}.data_parallel_size}}), which SGLang needs",
            engine=ENGINE,
        ),
        f"{VALIDATOR}RayClusterConfigValidator._validate_multinode_inference_models",
        Remedy(f"{ENGINE}.data_parallel_size", 1),
    ),
)
