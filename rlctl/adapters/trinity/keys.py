"""Trinity: prefixes that its tables share, the parts of verl's config that it hands on among them."""

from __future__ import annotations

TC = "trainer.trainer_config"


ACTOR = f"{TC}.actor_rollout_ref.actor"


MODEL = f"{TC}.actor_rollout_ref.model"


REF = f"{TC}.actor_rollout_ref.ref"


ROLL = "explorer.rollout_model"


CRITIC_C = f"{TC}.critic"
