"""Settings that verl accepts and does not use, because another setting turns them off or overrides them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rlctl.adapters.engine.requirements import IGNORES, Requirement, Values
from rlctl.adapters.verl.requirement_values import ACTOR, ROLLOUT, in_turns, serves, strategy
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level

LOSS = "verl/workers/actor/dp_actor.py, DataParallelPPOActor.update_policy"
LOSSES = "verl/workers/utils/losses.py, ppo_loss"
TRAINER = "verl/trainer/ppo/ray_trainer.py, RayPPOTrainer.fit"
VALIDATION = f"{ROLLOUT}.val_kwargs"
KL_IN_REWARD = "algorithm.kl_ctrl.kl_coef"
OVERLONG = ("reward_model.overlong_buffer.enable", "reward_model.reward_kwargs.overlong_buffer_cfg.enable")


def _ignored(
    key: str, ignored: Callable[[Values], object], message: str, source: str, hint: str, **others: Any
) -> Requirement:
    return Requirement(key, ignored, message, source, hint, level=Level.WARNING, code=IGNORES, **others)


def _is_on(values: Values, key: str) -> bool:
    """Whether a file writes a number other than 0."""
    return values.written(key) and float(values[key] or 0) != 0


def _kl() -> Iterator[Requirement]:
    key = f"{ACTOR}.kl_loss_coef"
    message = said(
        "{key} is {{{key}}}, but {actor}.use_kl_loss is false: the loss has no KL term", key=key, actor=ACTOR
    )
    hint = said("set {actor}.use_kl_loss to true, or remove {key}", actor=ACTOR, key=key)
    yield _ignored(
        key,
        lambda v: _is_on(v, key) and not v[f"{ACTOR}.use_kl_loss"],
        message,
        LOSSES,
        hint,
        since="0.8",
        older={"0.3": LOSS},
    )
    yield _ignored(
        KL_IN_REWARD,
        lambda v: _is_on(v, KL_IN_REWARD) and not v["algorithm.use_kl_in_reward"],
        said(
            "{key} is {{{key}}}, but algorithm.use_kl_in_reward is false: rewards have no KL penalty", key=KL_IN_REWARD
        ),
        TRAINER,
        said("set algorithm.use_kl_in_reward to true, or remove {key}", key=KL_IN_REWARD),
        since="0.4",
    )


def _offloading() -> Iterator[Requirement]:
    """The offloading of FSDP2, which FSDP1 does not know."""
    workers, engine = "verl/workers/fsdp_workers.py", "verl/workers/engine/fsdp/transformer_impl.py"
    of_actor = f"{workers}, ActorRolloutRefWorker._build_model_optimizer"
    of_critic = f"{workers}, CriticWorker._build_critic_model_optimizer"
    of_engine = f"{engine}, FSDPEngine._build_fsdp_module"
    for role, key, source, releases in (
        (ACTOR, f"{ACTOR}.fsdp_config", of_engine, {"since": "0.8", "older": {"0.4": of_actor}}),
        ("critic", "critic.fsdp", of_engine, {"since": "0.8"}),
        ("critic", "critic.model.fsdp_config", of_critic, {"since": "0.4", "until": "0.7"}),
    ):
        yield _ignored(
            f"{key}.offload_policy",
            lambda v, role=role, key=key: v[f"{key}.offload_policy"] is True and strategy(v, role) == "fsdp",  # type: ignore[misc]
            said("{key}.offload_policy is True, but {role}.strategy is fsdp: only fsdp2 reads it", key=key, role=role),
            source,
            said("set {role}.strategy to fsdp2, or {key}.param_offload to True", role=role, key=key),
            **releases,
        )


def _written_sampling(values: Values) -> str:
    names = [name for name in ("temperature", "top_p", "top_k", "n") if values.written(f"{VALIDATION}.{name}")]
    return ", ".join(f"{name}={values[f'{VALIDATION}.{name}']}" for name in names)


def _samples_otherwise(values: Values) -> bool:
    """Whether a file asks validation to sample: a temperature above 0, or more than one response."""
    return _is_on(values, f"{VALIDATION}.temperature") or values.number(f"{VALIDATION}.n") > 1


def _is_greedy(values: Values) -> bool:
    return float(values[f"{VALIDATION}.temperature"] or 0) == 0


def _repeats(values: Values) -> bool:
    """Whether a file asks for different responses to a prompt, or for sampling."""
    return values.number(f"{VALIDATION}.n") > 1 or bool(values[f"{VALIDATION}.do_sample"])


def _validation() -> Iterator[Requirement]:
    in_workers = "verl/workers/rollout/vllm_rollout/vllm_rollout_spmd.py, vLLMRollout.generate_sequences"
    yield _ignored(
        f"{VALIDATION}.do_sample",
        lambda v: not serves(v) and _samples_otherwise(v) and not v[f"{VALIDATION}.do_sample"],
        said(
            "{kwargs}.do_sample is false, its default, so validation is greedy: {kwargs} ({{sampling}}) has no effect",
            kwargs=VALIDATION,
        ),
        in_workers,
        said("set {kwargs}.do_sample to true", kwargs=VALIDATION),
        numbers={"sampling": _written_sampling},
        since="0.3",
        until="0.6",
    )
    greedy = said(
        "{kwargs}.temperature is 0, so validation is greedy: {kwargs}.do_sample has no effect, and each of {kwargs}.n "
        "({{{kwargs}.n}}) responses is the same",
        kwargs=VALIDATION,
    )
    hint = said("set {kwargs}.temperature to 0.6", kwargs=VALIDATION)
    yield _ignored(
        f"{VALIDATION}.temperature",
        lambda v: _is_greedy(v) and (serves(v) or v[f"{VALIDATION}.do_sample"]) and _repeats(v),
        greedy,
        in_workers,
        hint,
        since="0.3",
        until="0.6",
    )
    yield _ignored(
        f"{VALIDATION}.temperature",
        lambda v: _is_greedy(v) and _repeats(v),
        greedy,
        "verl/experimental/agent_loop/agent_loop.py, AgentLoopWorker.generate_sequences",
        hint,
        since="0.7",
    )


def _clipping() -> Iterator[Requirement]:
    low, high, both = (f"{ACTOR}.clip_ratio{end}" for end in ("_low", "_high", ""))
    yield _ignored(
        both,
        lambda v: v.written(both) and v[low] is not None and v[high] is not None and v[both] not in (v[low], v[high]),
        said(
            "{both} is {{{both}}}, but {low} ({{{low}}}) and {high} ({{{high}}}) override it: the ratio is clipped at those",
            both=both,
            low=low,
            high=high,
        ),
        "verl/trainer/ppo/core_algos.py, compute_policy_loss",
        said("set {low} and {high} to {{{both}}}", low=low, high=high, both=both),
        since="0.4",
    )


CLIPS = tuple(f"{ACTOR}.clip_ratio{end}" for end in ("_high", "_low", "_c"))
MINI, BATCH = f"{ACTOR}.ppo_mini_batch_size", "data.train_batch_size"
CORRECTION = "algorithm.rollout_correction"


def _written_clip(values: Values) -> str:
    """A clip ratio that a file writes, if each step is one optimizer step on what the same weights have answered."""
    one_update = values.number(BATCH, 0) == values.number(MINI, 0) and values.number(f"{ACTOR}.ppo_epochs") == 1
    usual = values.program in ("", "verl.trainer.main_ppo") and in_turns(values)
    own = values[f"{ACTOR}.policy_loss.loss_mode"] in (None, "vanilla") and not values[f"{CORRECTION}.bypass_mode"]
    is_plain = one_update and usual and own and not values[f"{ACTOR}.use_rollout_log_probs"]
    return next((key for key in CLIPS if values.written(key)), "") if is_plain else ""


def _on_policy() -> Iterator[Requirement]:
    yield _ignored(
        MINI,
        _written_clip,
        said(
            "{clip} has no effect: {mini} is data.train_batch_size ({{{batch}}}) and ppo_epochs is 1, so each step makes one "
            "update "
            "with the weights that answered, where the probability ratio is 1",
            clip="{clip}",
            mini=MINI,
            batch=BATCH,
        ),
        "verl/trainer/ppo/core_algos.py, compute_policy_loss",
        said("lower {mini}, or remove {{clip}}", mini=MINI),
        numbers={"clip": _written_clip},
        since="0.4",
    )


def _corrects(values: Values) -> bool:
    return any(values[f"{CORRECTION}.{name}"] not in (None, "null") for name in ("rollout_is", "rollout_rs"))


def _correction() -> Iterator[Requirement]:
    yield _ignored(
        f"{ROLLOUT}.calculate_log_probs",
        lambda v: _corrects(v) and not v[f"{ROLLOUT}.calculate_log_probs"] and not v[f"{CORRECTION}.bypass_mode"],
        said(
            "{correction} is set, but {rollout}.calculate_log_probs is false: the rollout returns no log-probs, and nothing is "
            "corrected",
            correction=CORRECTION,
            rollout=ROLLOUT,
        ),
        TRAINER,
        said("set {rollout}.calculate_log_probs to true", rollout=ROLLOUT),
        since="0.6",
    )


def _overlong(key: str) -> Requirement:
    return _ignored(
        key,
        lambda v: v[key] is True and v["reward_model.reward_manager"] in (None, "naive", "prime", "batch"),
        said(
            "{key} is true, but reward_model.reward_manager is {{reward_model.reward_manager}}, and only dapo lowers the "
            "reward of long responses",
            key=key,
        ),
        "verl/workers/reward_manager/dapo.py, DAPORewardManager",
        "set reward_model.reward_manager to dapo",
        since="0.4",
        until="0.8",
    )


ROWS: tuple[Requirement, ...] = (
    *_kl(),
    *_offloading(),
    *_validation(),
    *_clipping(),
    *_on_policy(),
    *_correction(),
    _ignored(
        "algorithm.norm_adv_by_std_in_grpo",
        lambda v: (
            v.written("algorithm.norm_adv_by_std_in_grpo")
            and v["algorithm.norm_adv_by_std_in_grpo"] is False
            and v["algorithm.adv_estimator"] in ("gae", "rloo", "remax", "opo", "gpg", "reinforce_plus_plus")
        ),
        "algorithm.norm_adv_by_std_in_grpo is false, but algorithm.adv_estimator {algorithm.adv_estimator} does not read it: "
        "only "
        "grpo does",
        "verl/trainer/ppo/ray_trainer.py, compute_advantage",
        "remove it, or set algorithm.adv_estimator to grpo",
        since="0.4",
    ),
    *map(_overlong, OVERLONG),
    *(
        _ignored(
            f"{root}.name",
            lambda v, root=root: v.written(f"{root}.name") and v[f"{root}.name"] and not v[f"{root}.path"],  # type: ignore[misc]
            said(
                "{root}.name is {{{root}.name}}, but {root}.path is not set: verl scores with its own rewards",
                root=root,
            ),
            "verl/trainer/ppo/reward.py, get_custom_reward_fn",
            said("set {root}.path to the file of this function", root=root),
            since=since,
            until=until,
        )
        for root, since, until in (
            ("custom_reward_function", "0.3", "0.7"),
            ("reward.custom_reward_function", "0.8", ""),
        )
    ),
    _ignored(
        "algorithm.filter_groups.enable",
        lambda v: v.program == "verl.trainer.main_ppo" and v["algorithm.filter_groups.enable"] is True,
        "algorithm.filter_groups.enable is true, but verl.trainer.main_ppo never filters groups: only the trainer of the DAPO "
        "recipe does",
        TRAINER,
        "start recipe.dapo.main_dapo, or remove algorithm.filter_groups",
        since="0.4",
        until="0.8",
    ),
    _ignored(
        "data.train_batch_size",
        lambda v: (
            v.program == "verl.trainer.main_ppo"
            and v.number("data.gen_batch_size", 0) > 0
            and v["data.gen_batch_size"] != v["data.train_batch_size"]
        ),
        "data.gen_batch_size is {data.gen_batch_size}, and verl.trainer.main_ppo takes that many prompts a step: "
        "data.train_batch_size "
        "({data.train_batch_size}) has no effect on it",
        "verl/trainer/ppo/ray_trainer.py, RayPPOTrainer._create_dataloader",
        "remove data.gen_batch_size, or set it to data.train_batch_size",
        since="0.4",
        until="0.8",
    ),
    _ignored(
        "algorithm.lam",
        lambda v: (
            v.written("algorithm.lam")
            and float(v["algorithm.lam"]) != 1
            and v["algorithm.adv_estimator"]
            in ("grpo", "rloo", "reinforce_plus_plus", "remax", "opo", "grpo_passk", "gpg")
        ),
        "algorithm.lam is {algorithm.lam}, but algorithm.adv_estimator {algorithm.adv_estimator} does not use it: only gae does",
        "verl/trainer/ppo/ray_trainer.py, compute_advantage",
        "remove algorithm.lam, or set algorithm.adv_estimator to gae",
        since="0.3",
    ),
)
