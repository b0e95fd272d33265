"""What verl's rollout engines and Ulysses refuse of a config: shapes of models, vLLM's limits, LoRA, agent workers, trackers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from rlctl.adapters.engine.model_limits import (
    SGLANG,
    ULYSSES,
    VLLM,
    batched_tokens_rows,
    memory_share_row,
    split_row,
)
from rlctl.adapters.engine.requirements import NEAREST, Remedy, Requirement, Values
from rlctl.adapters.verl.requirement_values import (
    ACTOR,
    CRITIC,
    MAIN,
    MODEL,
    ROLLOUT,
    SEPARATE,
    gpus,
    longest,
    sequence_parallel,
    serves,
    strategy,
    uses_critic,
    uses_engine,
)
from rlctl.common.errors import closest
from rlctl.common.filenames import expanded, is_folder
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level
from rlctl.config.sections.model import Model
from rlctl.planning.models import context_limit

TENSOR, WORKERS = f"{ROLLOUT}.tensor_model_parallel_size", f"{ROLLOUT}.agent.num_workers"
TOKENS, SEQUENCES, CHUNKED = (
    f"{ROLLOUT}.{name}" for name in ("max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill")
)
PATCH = "verl/models/transformers/monkey_patch.py, apply_monkey_patch"
SPMD = "verl/workers/rollout/vllm_rollout/vllm_rollout_spmd.py, vLLMRollout.__init__"
TRACKING = "verl/utils/tracking.py, Tracking.__init__"
VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The largest ranks of adapters that vLLM can be started for."""
ENGINES = ("vllm", "sglang", "sglang_async", "hf", "naive", "trtllm")
SERVED_ENGINES = ("vllm", "sglang", "trtllm")
"""Since 0.6, where all are servers or sharded engines."""
STRATEGIES = ("fsdp", "fsdp2", "fsdp_turbo", "megatron", "veomni", "torchtitan", "automodel", "mindspeed")
"""What any release has; names of single releases are not told apart."""
VLLM_DTYPES = ("auto", "bfloat16", "float16", "half", "float32", "float")
LOGGERS = ("console", "wandb", "mlflow", "swanlab", "vemlp_wandb", "tensorboard", "tracking")
MORE_LOGGERS = {"0.4": ("clearml",), "0.6": ("trackio", "file"), "0.9": ("rl_insight",)}
"""Trackers that a release has and the one before lacks."""


def _uses_ulysses(role: str) -> Callable[[Values], bool]:
    def applies(values: Values) -> bool:
        return strategy(values, role) in ("fsdp", "fsdp2") and (role != CRITIC or uses_critic(values))

    return applies


def _context(values: Values) -> int:
    """The context of the rollout engine, in tokens."""
    return values.number(f"{ROLLOUT}.max_model_len", 0) or longest(values)


def _in_process(values: Values) -> bool:
    """Whether vLLM runs in the trainer's workers, as until 0.6 unless the mode is async."""
    return uses_engine("vllm")(values) and not serves(values)


def _chunks(values: Values) -> bool:
    """Whether chunked prefill is on; Megatron's config turned it off until 0.5."""
    known = values.written(CHUNKED) or strategy(values) != "megatron"
    return known and values[CHUNKED] is not False


def _positions(values: Values) -> int:
    """Positions of a model that are not scaled; 0 if that is not known."""
    path = values[f"{MODEL}.path"]
    return (context_limit(Model(path=path)) or 0) if isinstance(path, str) else 0


def _responses(values: Values) -> int:
    return values.number("data.train_batch_size", 0) * values.number(f"{ROLLOUT}.n")


def _workers(values: Values) -> int:
    return values.number(WORKERS, 8)


def _fitting_workers(values: Values) -> int:
    """The most agent workers, up to those set, that share a step's responses evenly."""
    responses = _responses(values)
    return next(each for each in range(_workers(values), 0, -1) if responses % each == 0)


def _lora_rank(values: Values) -> int:
    return values.number(f"{MODEL}.lora_rank", 0)


def _is_dummy(values: Values) -> bool:
    return str(values[f"{ROLLOUT}.load_format"] or "dummy").startswith("dummy")


def _splits() -> Iterator[Requirement]:
    """Sizes that divide the heads of a model."""
    for name, engine in (("vllm", VLLM), ("sglang", SGLANG)):
        yield split_row(TENSOR, f"{MODEL}.path", lambda v: v.number(TENSOR), uses_engine(name), engine, since="0.3")
    for role, model in ((ACTOR, f"{MODEL}.path"), (CRITIC, "critic.model.path")):
        yield split_row(
            f"{role}.ulysses_sequence_parallel_size",
            model,
            lambda v, role=role: sequence_parallel(v, role),  # type: ignore[misc]
            _uses_ulysses(role),
            ULYSSES,
            "when verl loads the model",
            PATCH,
            since="0.3",
        )


def _agent_workers(applies: Callable[[Values], object], **releases: Any) -> Requirement:
    return Requirement(
        WORKERS,
        lambda v: applies(v) and _responses(v) % _workers(v),
        said(
            "a step has {{responses}} responses (data.train_batch_size x {rollout}.n), which {{workers}} agent workers ({key}) "
            "cannot share evenly: verl stops at the first rollout",
            rollout=ROLLOUT,
            key=WORKERS,
        ),
        "verl/experimental/agent_loop/agent_loop.py, AgentLoopManager.generate_sequences",
        Remedy(WORKERS, _fitting_workers),
        numbers={"responses": _responses, "workers": _workers},
        when="generation",
        **releases,
    )


def _unknown_loggers(known: tuple[str, ...]) -> Callable[[Values], str]:
    def found(values: Values) -> str:
        written = values["trainer.logger"]
        names = [written] if isinstance(written, str) else list(written or ())
        return ", ".join(str(name) for name in names if name not in known)

    return found


def _known_loggers(values: Values, known: tuple[str, ...]) -> list[str]:
    """The trackers, each by the known name that is nearest; those without one are left out."""
    written = values["trainer.logger"]
    names = re.findall(r"\w+", written) if isinstance(written, str) else map(str, written)
    found = [name if name in known else closest(name, known) for name in names]
    return [name for name in found if name] or ["console"]


def _loggers() -> Iterator[Requirement]:
    """Trackers that a release does not have; a list in quotes is one name."""
    known: tuple[str, ...] = LOGGERS
    starts = ["0.3", *MORE_LOGGERS]
    for start, end in zip(starts, ["0.3", "0.5", "0.8", ""], strict=True):
        known += MORE_LOGGERS.get(start, ())
        unknown = _unknown_loggers(known)
        yield Requirement(
            "trainer.logger",
            unknown,
            said(
                "trainer.logger names {{unknown}}, which verl does not have: the run stops when its workers have started. It has "
                "{known}",
                known=", ".join(known),
            ),
            TRACKING,
            Remedy("trainer.logger", lambda v, known=known: _known_loggers(v, known)),
            numbers={"unknown": unknown},
            since=start,
            until=end,
        )


def _lora() -> Iterator[Requirement]:
    yield Requirement(
        f"{MODEL}.lora_rank",
        lambda v: uses_engine("vllm")(v) and _lora_rank(v) > 0 and _lora_rank(v) not in VLLM_RANKS,
        said(
            "{model}.lora_rank is {{{model}.lora_rank}}; vLLM takes {ranks}, and verl stops when it starts vLLM",
            model=MODEL,
            ranks=", ".join(map(str, VLLM_RANKS)),
        ),
        "vllm/config/lora.py, LoRAConfig",
        said("set {model}.lora_rank to one of these", model=MODEL),
        since="0.4",
        until="0.5",
    )
    yield Requirement(
        f"{ROLLOUT}.layered_summon",
        lambda v: (
            uses_engine("vllm")(v) and _lora_rank(v) > 0 and bool(v[f"{ROLLOUT}.layered_summon"]) and _is_dummy(v)
        ),
        said(
            "{rollout}.layered_summon is true, and {rollout}.load_format leaves vLLM without the base model: verl stops at the "
            "first weight sync",
            rollout=ROLLOUT,
        ),
        "verl/utils/fsdp_utils.py, collect_lora_params",
        Remedy(f"{ROLLOUT}.load_format", "safetensors"),
        when="sync",
        since="0.6",
        older={"0.4": "verl/workers/sharding_manager/fsdp_vllm.py, FSDPVLLMShardingManager"},
        until="0.7",
    )
    yield Requirement(
        f"{ROLLOUT}.load_format",
        lambda v: (
            uses_engine("vllm")(v)
            and _lora_rank(v) > 0
            and strategy(v) in ("fsdp", "fsdp2")
            and not v[f"{ROLLOUT}.layered_summon"]
            and _is_dummy(v)
        ),
        said(
            "{model}.lora_rank is {{{model}.lora_rank}}, and {rollout}.load_format is dummy, its default: vLLM starts with "
            "random base weights, and each GPU gathers the whole base model at the first weight sync. verl's guide to LoRA "
            "requires safetensors",
            model=MODEL,
            rollout=ROLLOUT,
        ),
        "verl/workers/fsdp_workers.py, ActorRolloutRefWorker",
        Remedy(f"{ROLLOUT}.load_format", "safetensors"),
        since="0.4",
        until="0.7",
        level=Level.WARNING,
    )


CHAT, SCORER = "~/models/deepseek-llm-7b-chat", "~/models/FsfairX-LLaMA3-RM-v0.1"
DEFAULT_MODELS: tuple[tuple[str, str, Callable[[Values], bool], str, str], ...] = (
    (f"{MODEL}.path", CHAT, lambda v: True, "", "set it to your model"),
    (
        "critic.model.path",
        CHAT,
        uses_critic,
        "",
        "set it to your model, or algorithm.adv_estimator to an estimator without a critic, such as grpo",
    ),
    (
        "reward_model.model.path",
        SCORER,
        lambda v: v["reward_model.enable"] is True,
        "0.6",
        "set it to your reward model",
    ),
)
"""Models with a default that few machines have: the default, whether the model is loaded, the last release, and what to do."""


def _default_models() -> Iterator[Requirement]:
    for key, path, loaded, until, hint in DEFAULT_MODELS:
        yield Requirement(
            key,
            lambda v, key=key, path=path, loaded=loaded: (  # type: ignore[misc]
                loaded(v) and not v.written(key) and not is_folder(str(expanded(path)))
            ),
            said("{key} is not set: verl would load its default, {path}, which does not exist", key=key, path=path),
            "verl/trainer/config/ppo_trainer.yaml",
            hint,
            since="0.3",
            until=until,
            level=Level.WARNING,
            check_code="no-model",
        )


LOSS_MODES = ("vanilla", "gpg", "clip_cov", "kl_cov")
MORE_LOSS_MODES = {
    "0.6": ("gspo", "geo_mean", "rollout_correction"),
    "0.7": ("dppo_tv", "dppo_kl", "sapo", "cispo", "bypass_mode"),
}
"""Policy losses that a release has and the one before lacks."""


def _loss_modes() -> Iterator[Requirement]:
    key = f"{ACTOR}.policy_loss.loss_mode"
    known: tuple[str, ...] = LOSS_MODES
    for start, end in zip(("0.5", "0.6", "0.7"), ("0.5", "0.6", "0.8"), strict=True):
        known += MORE_LOSS_MODES.get(start, ())
        yield Requirement(
            key,
            lambda v, known=known: v[key] not in (None, *known) and not v[f"{MODEL}.external_lib"],  # type: ignore[misc]
            said("{key} is {{{key}}}, which verl does not have. It has {known}", key=key, known=", ".join(known)),
            "verl/trainer/ppo/core_algos.py, get_policy_loss_fn",
            Remedy(key, known),
            since=start,
            until=end,
            when="update",
        )


def _needs_messages(values: Values) -> bool:
    """Whether the rollout reads chat messages of each row, which a switch of the data adds until 0.6.

    A dataset class or agent loops of the user's may bring them in a column of the rows.
    """
    if values["data.custom_cls.path"] or values[f"{ROLLOUT}.agent.agent_loop_config_path"]:
        return False
    turns = values[f"{ROLLOUT}.multi_turn.enable"] is True and str(values[f"{ROLLOUT}.name"]).startswith("sglang")
    return serves(values) or turns


ESTIMATORS = ("gae", "grpo", "reinforce_plus_plus", "remax", "rloo")
MORE_ESTIMATORS = {
    "0.4": ("reinforce_plus_plus_baseline", "opo", "grpo_passk"),
    "0.5": ("gpg",),
    "0.6": ("rloo_vectorized", "grpo_vectorized"),
    "0.7": ("optimal_token_baseline", "tir_optimal_token_baseline", "gdpo"),
}
"""Advantage estimators that a release has and the one before lacks."""


def _estimators() -> Iterator[Requirement]:
    """Advantage estimators that a release does not have, if no code of the user's can register one."""
    known: tuple[str, ...] = ESTIMATORS
    starts = ["0.3", *MORE_ESTIMATORS]
    for start, end in zip(starts, ["0.3", "0.4", "0.5", "0.6", ""], strict=True):
        known += MORE_ESTIMATORS.get(start, ())
        yield Requirement(
            "algorithm.adv_estimator",
            lambda v, known=known: (  # type: ignore[misc]
                v.program in ("", MAIN) and not v[f"{MODEL}.external_lib"] and v["algorithm.adv_estimator"] not in known
            ),
            said(
                "algorithm.adv_estimator is {{algorithm.adv_estimator}}, which verl does not have: the run stops when it starts, "
                "or after the first rollout. It has {known}",
                known=", ".join(known),
            ),
            "verl/trainer/ppo/core_algos.py, get_adv_estimator_fn",
            Remedy("algorithm.adv_estimator", known),
            since=start,
            until=end,
        )


ROWS: tuple[Requirement, ...] = (
    *_splits(),
    *_estimators(),
    *_default_models(),
    *_loss_modes(),
    Requirement(
        "data.return_raw_chat",
        lambda v: _needs_messages(v) and not v["data.return_raw_chat"],
        said(
            "data.return_raw_chat is false, its default, but {rollout}.mode async and multi-turn rollout read the chat messages "
            "of each row: verl stops at the first rollout",
            rollout=ROLLOUT,
        ),
        "verl/experimental/agent_loop/agent_loop.py, AgentLoopWorker.generate_sequences",
        Remedy("data.return_raw_chat", True),
        since="0.5",
        older={"0.4": "verl/workers/rollout/chat_scheduler.py"},
        until="0.6",
        when="generation",
    ),
    Requirement(
        f"{MODEL}.target_modules",
        lambda v: (
            _lora_rank(v) > 0
            and isinstance(v[f"{MODEL}.target_modules"], str)
            and re.fullmatch(r"all[ _]?linear", v[f"{MODEL}.target_modules"], re.IGNORECASE) is not None
        ),
        said(
            "{model}.target_modules is {{{model}.target_modules}}; PEFT takes it for a name of modules, which the model does "
            "not have, and verl stops when it loads the model",
            model=MODEL,
        ),
        "peft/tuners/tuners_utils.py, BaseTuner.inject_adapter",
        Remedy(f"{MODEL}.target_modules", "all-linear"),
        since="0.4",
    ),
    Requirement(
        f"{ROLLOUT}.multi_turn.tool_config_path",
        lambda v: (
            v[f"{ROLLOUT}.multi_turn.enable"] is True
            and not v[f"{ROLLOUT}.multi_turn.tool_config_path"]
            and not v[f"{ROLLOUT}.multi_turn.interaction_config_path"]
        ),
        said(
            "{rollout}.multi_turn.enable is true, and neither tool_config_path nor interaction_config_path is set: verl stops "
            "when it starts",
            rollout=ROLLOUT,
        ),
        "verl/trainer/ppo/ray_trainer.py, RayPPOTrainer._validate_config",
        said("set {rollout}.multi_turn.tool_config_path to the file of your tools", rollout=ROLLOUT),
        since="0.4",
        until="0.4",
    ),
    Requirement(
        f"{ROLLOUT}.n",
        lambda v: uses_engine("hf")(v) and v.number(f"{ROLLOUT}.n") > 1,
        said(
            "{rollout}.n is {{{rollout}.n}}, but the engine hf answers each prompt once: the run stops after the first rollout",
            rollout=ROLLOUT,
        ),
        "verl/workers/rollout/hf_rollout.py, HFRollout.generate_sequences",
        Remedy(f"{ROLLOUT}.name", "vllm"),
        since="0.3",
        until="0.3",
        when="rollout",
    ),
    Requirement(
        TOKENS,
        lambda v: _in_process(v) and _chunks(v) and 0 < v.number(TOKENS, 8192) < _context(v),
        said(
            "{tokens} ({{{tokens}}}) is less than the engine's context of {{context}} tokens (data.max_prompt_length + "
            "data.max_response_length, or {rollout}.max_model_len), and chunked prefill is on: verl stops when it starts vLLM",
            tokens=TOKENS,
            rollout=ROLLOUT,
        ),
        SPMD,
        Remedy(TOKENS, NEAREST),
        numbers={"context": _context},
        since="0.3",
        until="0.6",
    ),
    *batched_tokens_rows(
        {"tokens": TOKENS, "sequences": SEQUENCES, "chunked": CHUNKED},
        _context,
        uses_engine("vllm"),
        since="0.3",
        until="0.8",
    ),
    *(
        Requirement(
            f"{ROLLOUT}.name",
            lambda v, engines=engines: v[f"{ROLLOUT}.name"] not in (None, "???", *engines),  # type: ignore[misc]
            said(
                "{rollout}.name is {{{rollout}.name}}, which verl does not have: it stops when it starts the rollout engine. It "
                "has {engines}",
                rollout=ROLLOUT,
                engines=", ".join(engines),
            ),
            source,
            said("set {rollout}.name to vllm or sglang", rollout=ROLLOUT),
            since=since,
            until=until,
        )
        for engines, source, since, until in (
            (ENGINES, "verl/workers/fsdp_workers.py, ActorRolloutRefWorker._build_rollout", "0.3", "0.5"),
            (SERVED_ENGINES, "verl/workers/rollout/base.py, get_rollout_class", "0.6", ""),
        )
    ),
    Requirement(
        f"{ROLLOUT}.dtype",
        lambda v: uses_engine("vllm")(v) and v[f"{ROLLOUT}.dtype"] not in (None, *VLLM_DTYPES),
        said(
            "{rollout}.dtype is {{{rollout}.dtype}}; vLLM takes {dtypes}, and stops when it starts",
            rollout=ROLLOUT,
            dtypes=", ".join(VLLM_DTYPES),
        ),
        "vllm/config/model.py, ModelConfig",
        Remedy(f"{ROLLOUT}.dtype", "bfloat16"),
        since="0.3",
    ),
    Requirement(
        f"{ACTOR}.strategy",
        lambda v: v[f"{ACTOR}.strategy"] not in (None, *STRATEGIES),
        said(
            "{actor}.strategy is {{{actor}.strategy}}, which verl does not have: it stops when it starts. It has {strategies}",
            actor=ACTOR,
            strategies=", ".join(STRATEGIES),
        ),
        "verl/trainer/main_ppo.py, TaskRunner.add_actor_rollout_worker",
        said("set {actor}.strategy to fsdp or megatron", actor=ACTOR),
        since="0.3",
    ),
    Requirement(
        f"{ACTOR}.fsdp_config.fsdp_size",
        lambda v: (
            strategy(v) in ("fsdp", "fsdp2")
            and 0 < v.number(f"{ACTOR}.fsdp_config.fsdp_size", -1) < gpus(v)
            and gpus(v) % v.number(f"{ACTOR}.fsdp_config.fsdp_size", -1)
        ),
        said(
            "{actor}.fsdp_config.fsdp_size is {{{actor}.fsdp_config.fsdp_size}}, which does not divide the {{gpus}} GPUs: some "
            "of them are in no shard, and verl stops when it loads the model",
            actor=ACTOR,
        ),
        "verl/workers/fsdp_workers.py, create_device_mesh",
        said("set {actor}.fsdp_config.fsdp_size to a divisor of {{gpus}}, or to -1", actor=ACTOR),
        numbers={"gpus": gpus},
        since="0.3",
    ),
    Requirement(
        "data.max_response_length",
        lambda v: _in_process(v) and 0 < _positions(v) < longest(v),
        said(
            "data.max_prompt_length + data.max_response_length ({{longest}}) is more than the model's {{positions}} positions: "
            "verl stops when it starts vLLM"
        ),
        SPMD,
        Remedy("data.max_response_length", NEAREST),
        numbers={"longest": longest, "positions": _positions},
        since="0.3",
        until="0.6",
    ),
    Requirement(
        "reward_model.micro_batch_size_per_gpu",
        lambda v: (
            v["reward_model.enable"] is True
            and not v["reward_model.use_dynamic_bsz"]
            and not v["critic.use_dynamic_bsz"]
            and v["reward_model.micro_batch_size"] is None
            and v["reward_model.micro_batch_size_per_gpu"] is None
        ),
        "reward_model.enable is true, and reward_model.micro_batch_size_per_gpu is not set: verl stops when it starts",
        "verl/trainer/ppo/ray_trainer.py, RayPPOTrainer._validate_config",
        "set reward_model.micro_batch_size_per_gpu",
        since="0.3",
        until="0.6",
    ),
    Requirement(
        f"{ROLLOUT}.enforce_eager",
        lambda v: _in_process(v) and v[f"{ROLLOUT}.enforce_eager"] is False and v[f"{ROLLOUT}.free_cache_engine"],
        said(
            "{rollout}.enforce_eager is false, and {rollout}.free_cache_engine is true: verl stops when it starts vLLM",
            rollout=ROLLOUT,
        ),
        SPMD,
        said("set {rollout}.free_cache_engine to false, or {rollout}.enforce_eager to true", rollout=ROLLOUT),
        since="0.3",
        until="0.4",
    ),
    memory_share_row(f"{ROLLOUT}.gpu_memory_utilization", uses_engine("vllm"), since="0.3"),
    *_lora(),
    _agent_workers(serves, since="0.5", until="0.6"),
    _agent_workers(lambda v: True, since="0.7", until="0.8"),
    *_loggers(),
    Requirement(
        "actor_rollout_ref.hybrid_engine",
        lambda v: v.program == MAIN and v["actor_rollout_ref.hybrid_engine"] is False,
        said(
            "actor_rollout_ref.hybrid_engine is false, and the script starts {program}, which shares its GPUs with the rollout: "
            "it stops when it starts",
            program=MAIN,
        ),
        "verl/trainer/ppo/ray_trainer.py, RayPPOTrainer.__init__",
        "start the trainer with its own rollout GPUs (one_step_off_policy or fully_async_policy), or remove the key",
        since="0.3",
        until="0.8",
    ),
    Requirement(
        "actor_rollout_ref.hybrid_engine",
        lambda v: any(part in v.program for part in SEPARATE) and v["actor_rollout_ref.hybrid_engine"] is not False,
        "actor_rollout_ref.hybrid_engine is true, and the trainer that the script starts needs separate GPUs for the rollout: "
        "it stops when it starts",
        "recipe/one_step_off_policy/ray_trainer.py, OneStepOffRayTrainer.__init__",
        Remedy("actor_rollout_ref.hybrid_engine", False),
        since="0.5",
        until="0.6",
    ),
)
