"""verl: what is written for an estimator or loss that only another framework has: the nearest of verl's, and what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rlctl.adapters.rules import Chosen, Flow, K, Lost, Out, Writing


@dataclass(frozen=True)
class Nearest:
    """verl's name, what differs, and the keys that bring it nearer: their default here is the value to write."""

    raw: str
    differs: str
    settings: tuple[K, ...] = ()


@dataclass(frozen=True)
class ChosenOrNearest(Chosen):
    """A name that picks an option; a name that the dialect does not know would end its run, so another one is written."""

    nearest: Mapping[str, Nearest] = field(default_factory=dict)
    """By option, or by kind where the option is ``other``."""

    def write(self, view: Writing) -> Iterator[Out]:
        option = view.get(f"{self.to}.name")
        kind = view.get(f"{self.to}.kind") if option == self.other else option
        found = self.nearest.get(str(kind))
        if found is None or not self.keys[0].exists(view.version):
            yield from super().write(view)
            return
        used = (view.to(f"{self.to}.name"), *((view.to(f"{self.to}.kind"),) if option == self.other else ()))
        yield Flow(view.path(self.key), found.raw, used, "derived", always=True)
        for key in found.settings:
            if key.exists(view.version):
                yield Flow(view.path(key.name), key.default, used, "derived", always=True)
        yield Lost(used, f"verl has no {kind}; {found.raw} is the nearest: {found.differs}")


UNSCALED = (K("algorithm.norm_adv_by_std_in_grpo", False, "0.4"),)
STEPS = "it compares whole responses, not the steps of an episode"
DISTILS = "it learns from rewards; a teacher is named under 'distillation', since 0.8"
ESTIMATORS: Mapping[str, Nearest] = {
    "opmd": Nearest("grpo", "the reward less the group's mean; there is no soft baseline", UNSCALED),
    "asymre": Nearest("grpo", "the reward less the group's mean, which is not shifted", UNSCALED),
    "rec": Nearest("grpo", "the reward less the group's mean; no response is left out", UNSCALED),
    "clipb": Nearest("grpo", "no token is left out by its entropy"),
    "clipv": Nearest("grpo", "no token is left out by its entropy"),
    "step_wise_grpo": Nearest("grpo", STEPS),
    "gigpo": Nearest("grpo", STEPS),
    "reinforce": Nearest("reinforce_plus_plus", "it whitens advantages over the batch"),
    "step_reinforce": Nearest("reinforce_plus_plus", f"it whitens advantages over the batch, and {STEPS}"),
    "agentic_reinforce": Nearest("reinforce_plus_plus", f"it whitens advantages over the batch, and {STEPS}"),
    "on_policy_distill": Nearest("grpo", DISTILS),
    "jsd": Nearest("grpo", DISTILS),
}
CLIPS = "it clips the ratio, by clip_ratio_low and clip_ratio_high"
LOSSES: Mapping[str, Nearest] = {
    "opmd": Nearest("gpg", "the same without the factor 1 / (1 + tau), so that KL and entropy weigh less against it"),
    "topr": Nearest("gpg", "every response has weight 1; bad ones are not tapered by their ratio"),
    "kimi15": Nearest("gpg", "nothing holds the policy to the old one"),
    "sppo": Nearest("vanilla", CLIPS),
    "rec": Nearest("vanilla", CLIPS),
    "segment": Nearest("vanilla", f"{CLIPS} token by token"),
    "ppo": Nearest("vanilla", CLIPS),
    "sft": Nearest("gpg", "it weighs responses by their advantages"),
}
