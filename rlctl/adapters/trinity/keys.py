"""Trinity: prefixes that its tables share, the parts of verl's config that it hands on among them."""

from __future__ import annotations

from rlctl.adapters.engine.rules import Writing
from rlctl.documents.paths import KeyPath

TC = "trainer.trainer_config"


ACTOR = f"{TC}.actor_rollout_ref.actor"


MODEL = f"{TC}.actor_rollout_ref.model"


REF = f"{TC}.actor_rollout_ref.ref"


ROLL = "explorer.rollout_model"


CRITIC_C = f"{TC}.critic"


MODES = ("explore", "train", "both", "bench", "serve", "colocate")
STORAGES = ("queue", "sql", "file")


REPLACED = {
    **{name: name for name in ("lr", "lr_warmup_steps", "lr_warmup_steps_ratio", "min_lr_ratio")},
    **{name: name for name in ("lr_scheduler_type", "betas", "weight_decay")},
    "warmup_style": "lr_scheduler_type",
}
"""Keys of the policy's own ``optim`` that 0.3.2 to 0.5 replace by ``algorithm.optimizer``, with the key there."""


def model_temperature(view: Writing) -> float:
    """``model.temperature`` as it is written, which evaluation follows and by which 0.6 divides training logits."""
    one = view.config.algorithm.train_temperature != "sampling" and view.version >= (0, 6) and train_places(view)
    return 1.0 if one else view.config.rollout.sampling.temperature


def train_places(view: Writing) -> list[KeyPath]:
    """Where the training task sets are written: one as ``taskset``, several as ``tasksets``; Trinity refuses both at once."""
    root, count = "buffer.explorer_input", len(view.config.data.train)
    if count == 1:
        return [view.path(f"{root}.taskset")]
    return [(*view.path(f"{root}.tasksets"), index) for index in range(count)]


def eval_places(view: Writing) -> list[KeyPath]:
    """Where the task sets of evaluation are written."""
    root = view.path("buffer.explorer_input.eval_tasksets")
    return [(*root, index) for index in range(len(view.config.data.eval))]


def answer_column(key: str | None) -> str:
    """The column of the answer: Trinity reads columns of the row itself, not what is inside them."""
    return (key or "ground_truth").rsplit(".", 1)[-1]
