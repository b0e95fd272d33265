"""Settings of verl that contradict each other: a critic that nothing trains, thresholds without a mode, absent metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rlctl.adapters.engine.requirements import IGNORES, Requirement, Values
from rlctl.adapters.verl.requirement_values import MAIN, uses_critic
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level
from rlctl.config.reward_returns import MAPPING, NUMBER, returns_of

OF_CRITIC = ("critic.optim.lr", "critic.model.path")
"""Keys that a file writes to train a critic."""
CORRECTION = "algorithm.rollout_correction"
MODES = {
    "rollout_is": ("rollout_is_threshold", "rollout_is_batch_normalize"),
    "rollout_rs": ("rollout_rs_threshold",),
}
"""The modes of the rollout correction, and what is read only if they are set."""
FILTER, METRIC = "algorithm.filter_groups.enable", "algorithm.filter_groups.metric"
SUMMED, CANONICAL = ("seq_reward", "seq_final_reward"), ("reward",)
"""Metrics that the trainer of the recipe, and the trainer since 0.9, compute themselves."""
DAPO = "recipe/dapo/dapo_ray_trainer.py, RayDAPOTrainer.fit"
LATER_DAPO = "dapo/dapo_ray_trainer.py, RayDAPOTrainer.fit"
REPLAY = "verl/trainer/ppo/v1/replay_buffer.py, ReplayBuffer"


def _unused_critic(values: Values) -> str:
    """A key of a critic that the file writes and that the algorithm does not train."""
    written = next((key for key in OF_CRITIC if values.written(key)), "")
    named = values.written("algorithm.adv_estimator")
    return written if named and not uses_critic(values) else ""


def _critic(key: str) -> Requirement:
    return Requirement(
        key,
        lambda v: _unused_critic(v) == key,
        said(
            "{key} is {{{key}}}, but algorithm.adv_estimator {{algorithm.adv_estimator}} trains no critic: the keys below critic "
            "have no effect",
            key=key,
        ),
        "verl/trainer/ppo/utils.py, need_critic",
        "remove them, or set algorithm.adv_estimator to gae",
        since="0.6",
        older={"0.3": "verl/trainer/ppo/ray_trainer.py, RayPPOTrainer.__init__"},
        level=Level.WARNING,
        code=IGNORES,
    )


def _threshold(mode: str, name: str) -> Requirement:
    key, switch = f"{CORRECTION}.{name}", f"{CORRECTION}.{mode}"
    return Requirement(
        key,
        lambda v: v.written(key) and v[key] not in (None, False) and v[switch] in (None, "null"),
        said("{key} is {{{key}}}, but {switch} is null: it has no effect", key=key, switch=switch),
        "verl/trainer/ppo/rollout_corr_helper.py, compute_rollout_correction_and_rejection_mask",
        said("set {switch}, or remove {key}", switch=switch, key=key),
        since="0.7",
        level=Level.WARNING,
        code=IGNORES,
    )


def _lacks_metric(section: str, own: tuple[str, ...], counts: Callable[[Values], bool]) -> Callable[[Values], bool]:
    """Whether the user's reward function surely gives no metric by which groups are filtered.

    Args:
        section: the section that names the function.
        own: metrics that the trainer computes itself.
        counts: whether the reward manager calls a number that is returned ``acc``.
    """

    def lacks(values: Values) -> bool:
        path = values[f"{section}.path"]
        if values[FILTER] is not True or values[METRIC] in (None, *own) or not path:
            return False
        returns = returns_of(expanded(str(path)), str(values[f"{section}.name"] or "compute_score"))
        if returns is None or not returns.values:
            return False
        metric = str(values[METRIC])
        if all(each.kind == NUMBER for each in returns.values):
            return not (metric == "acc" and counts(values))
        return all(
            each.kind == MAPPING and each.keys is not None and metric not in each.keys for each in returns.values
        )

    return lacks


def _metric(
    section: str,
    own: tuple[str, ...],
    counts: Callable[[Values], bool],
    starts: Callable[[Values], bool],
    source: str,
    since: str,
    until: str = "",
) -> Requirement:
    lacks = _lacks_metric(section, own, counts)
    return Requirement(
        METRIC,
        lambda v: starts(v) and lacks(v),
        said(
            "{metric} is {{{metric}}}, which the reward function of {{{section}.path}} does not return: verl stops when it "
            "filters the first groups",
            metric=METRIC,
            section=section,
        ),
        source,
        said("set {metric} to {own}, or return a mapping with this key and score", metric=METRIC, own=own[0]),
        since=since,
        until=until,
        when="rollout",
    )


def _is_dapo(values: Values) -> bool:
    return "dapo" in values.program


def _is_main(values: Values) -> bool:
    return values.program == MAIN and values["trainer.use_v1"] is not False


def _metrics() -> Iterator[Requirement]:
    old, later = "custom_reward_function", "reward.custom_reward_function"
    yield _metric(old, SUMMED, lambda v: False, _is_dapo, DAPO, "0.4", "0.4")
    yield _metric(old, SUMMED, lambda v: v["reward_model.reward_manager"] == "dapo", _is_dapo, DAPO, "0.5", "0.6")
    yield _metric(old, SUMMED, lambda v: True, _is_dapo, LATER_DAPO, "0.7", "0.7")
    yield _metric(later, CANONICAL, lambda v: True, _is_main, REPLAY, "0.9")


ROWS: tuple[Requirement, ...] = (
    *map(_critic, OF_CRITIC),
    *(_threshold(mode, name) for mode, names in MODES.items() for name in names),
    *_metrics(),
)
