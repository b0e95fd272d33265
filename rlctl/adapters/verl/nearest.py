"""verl: what is written for an estimator or loss that only another framework has: the nearest of verl's, and what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace

from rlctl.adapters.engine.rules import (
    Chosen,
    DialectKey,
    Flow,
    Inexpressible,
    Out,
    Version,
    Writing,
    bare_name,
    is_further,
    version_of,
)
from rlctl.common.messages.reasons import said
from rlctl.common.records import record


@record
class Nearest:
    """verl's name, what differs, and the keys that bring it nearer: their default here is the value to write."""

    raw: str
    differs: str
    settings: tuple[DialectKey, ...] = ()
    until: str = ""
    """The last version that has no such name; empty where none has it."""

    def stands_in(self, version: Version) -> bool:
        """Whether it is written for this version."""
        return not self.until or version <= version_of(self.until)


@record
class ChosenOrNearest(Chosen):
    """A name that picks an option; a name that the dialect does not know would end its run, so another one is written."""

    nearest: Mapping[str, Nearest] = field(default_factory=dict)
    """By type."""
    instead: Callable[[Writing], str] = lambda view: ""
    """The name that is written for one that a user added to another framework: left unset, verl's default would be computed."""
    unused: Callable[[Writing], bool] = lambda view: False
    """Whether the run never computes what is chosen here, so that any name does."""
    needs: Mapping[str, tuple[DialectKey, ...]] = field(default_factory=dict)
    """By type: the keys without which the dialect stops at a name of its own; their default here is the value to write."""

    def write(self, view: Writing) -> Iterator[Out]:
        name = view.get(f"{self.to}.type")
        kind = bare_name(name) if is_further(self.to, name) else name
        found = self.nearest.get(str(kind))
        if found is None or not found.stands_in(view.version) or not view.has(self.keys[0]):
            for out in super().write(view):
                yield out if isinstance(out, Flow) else replace(out, reason=self._with_instead(out.reason, view))
                if isinstance(out, Inexpressible) and view.has(self.keys[0]):
                    yield Flow(view.path(self.key), self.instead(view), out.keys, "derived", always=True)
            yield from self._needed(str(kind), view)
            return
        used = (view.to(f"{self.to}.type"),)
        yield Flow(view.path(self.key), found.raw, used, "derived", always=True)
        for key in found.settings:
            if view.has(key):
                yield Flow(view.path(key.name), key.default, used, "derived", always=True)
        if self.unused(view):
            return
        yield Inexpressible(
            used,
            said(
                "{value}verl has no {kind}; {raw} is the nearest: {differs}",
                value="this version of " if found.until else "",
                kind=kind,
                raw=found.raw,
                differs=found.differs,
            ),
        )

    def _with_instead(self, reason: str, view: Writing) -> str:
        raw = self.instead(view)
        return said("{reason}; wrote {raw}, which trains otherwise", reason=reason, raw=raw)

    def _needed(self, kind: str, view: Writing) -> Iterator[Out]:
        said = view.config.carried_for("verl")
        for key in self.needs.get(kind, ()):
            if view.has(key) and key.name not in said:
                yield Flow(view.path(key.name), key.default, (view.to(f"{self.to}.type"),), "derived", always=True)


def learns_from_teacher_alone(view: Writing) -> bool:
    """Whether the advantage of a token is the teacher's log-prob less the policy's, without rewards."""
    chosen = view.config.algorithm.distillation
    return chosen is not None and chosen.args.get("with_rewards") is False


def in_groups(view: Writing) -> str:
    """The estimator that is written for an unknown one: one with groups if there are any, and none with a critic."""
    return "grpo" if view.config.batch.responses_per_prompt > 1 else "reinforce_plus_plus"


# 0.7.1 trainer/ppo/core_algos.py, compute_grpo_outcome_advantage: written, as a value and not a default
UNSCALED = (DialectKey("algorithm.norm_adv_by_std_in_grpo", False),)
STEPS = "it compares whole responses, not the steps of an episode"
DISTILS = "it learns from rewards; a teacher is named under 'distillation', since 0.8"
ESTIMATORS: Mapping[str, Nearest] = {
    "opmd": Nearest("grpo", "the reward minus the group's mean, without a soft baseline", UNSCALED),
    "asymre": Nearest("grpo", "the reward minus the group's mean, without a shift", UNSCALED),
    "rec": Nearest("grpo", "the reward minus the group's mean; no response is filtered", UNSCALED),
    "clipb": Nearest("grpo", "verl's does not filter tokens by entropy"),
    "clipv": Nearest("grpo", "verl's does not filter tokens by entropy"),
    **dict.fromkeys(  # 0.7.1 trainer/ppo/core_algos.py, compute_optimal_token_baseline_advantage
        ("optimal_token_baseline", "tir_optimal_token_baseline"),
        Nearest("grpo", "the reward minus the group's mean, equal for every token", UNSCALED, until="0.6"),
    ),
    "step_wise_grpo": Nearest("grpo", STEPS),
    "gigpo": Nearest("grpo", STEPS),
    "reinforce": Nearest("reinforce_plus_plus", "it whitens advantages over the batch"),
    "step_reinforce": Nearest(
        "reinforce_plus_plus", said("it whitens advantages over the batch, and {steps}", steps=STEPS)
    ),
    "segment_reinforce": Nearest(
        "reinforce_plus_plus", said("it whitens advantages over the batch, and {steps}", steps=STEPS)
    ),
    "agentic_reinforce": Nearest(
        "reinforce_plus_plus", said("it whitens advantages over the batch, and {steps}", steps=STEPS)
    ),
    "on_policy_distill": Nearest("grpo", DISTILS),
    "jsd": Nearest("grpo", DISTILS),
}
# 0.9.1 trainer/ppo/ray_trainer.py, which wants the first, and trainer/main_ppo.py: written, as values and not defaults
MEASURED = (
    DialectKey("actor_rollout_ref.actor.calculate_sum_pi_squared", True),
    DialectKey("trainer.use_v1", False),
)
"""What switches the sum of squared probabilities on, and the trainer of 0.9 that computes it: its newer one stops without."""
NEEDS: Mapping[str, tuple[DialectKey, ...]] = dict.fromkeys(
    ("optimal_token_baseline", "tir_optimal_token_baseline"), MEASURED
)
CLIPS = "it clips the ratio, by clip_ratio_low and clip_ratio_high"
LOSSES: Mapping[str, Nearest] = {
    "opmd": Nearest("gpg", "equal except for the factor 1 / (1 + tau), so KL and entropy weigh less against it"),
    "topr": Nearest("gpg", "every response has weight 1; negative ones are not tapered by their ratio"),
    "kimi15": Nearest("gpg", "it has no trust region around the old policy"),
    "sppo": Nearest("vanilla", CLIPS),
    "rec": Nearest("vanilla", CLIPS),
    "segment": Nearest("vanilla", said("{clips}, for each token separately", clips=CLIPS)),
    "ppo": Nearest("vanilla", CLIPS),
    "sft": Nearest("gpg", "it weighs responses by their advantages"),
}
