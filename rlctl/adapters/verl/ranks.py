"""How much verl's keys matter that no canonical key stands for, by their beginning."""

from collections.abc import Mapping

from rlctl.adapters.verl.forks import FORKS
from rlctl.common.ranks import Rank

RANKS: Mapping[str, Rank] = {
    **{key.partition(".")[0]: Rank.DATA for fork in FORKS for key in fork.keys},
    "actor_rollout_ref": Rank.RESOURCES,
    "actor_rollout_ref.actor": Rank.OBJECTIVE,
    "actor_rollout_ref.actor.checkpoint": Rank.NAMES,
    "actor_rollout_ref.actor.fsdp_config": Rank.RESOURCES,
    "actor_rollout_ref.actor.megatron": Rank.RESOURCES,
    "actor_rollout_ref.actor.profiler": Rank.NAMES,
    "actor_rollout_ref.actor.optim": Rank.SCHEDULE,
    "actor_rollout_ref.model": Rank.DATA,
    "actor_rollout_ref.rollout.multi_turn": Rank.DATA,
    "actor_rollout_ref.rollout.agent": Rank.DATA,
    "actor_rollout_ref.rollout.val_kwargs": Rank.DATA,
    "algorithm": Rank.OBJECTIVE,
    "async_training": Rank.SCHEDULE,
    "critic": Rank.RESOURCES,
    "critic.optim": Rank.SCHEDULE,
    "custom_reward_function": Rank.DATA,
    "data": Rank.DATA,
    "distillation": Rank.OBJECTIVE,
    "engine": Rank.RESOURCES,
    "model": Rank.DATA,
    "optim": Rank.SCHEDULE,
    "reward": Rank.DATA,
    "reward_manager": Rank.DATA,
    "reward_model": Rank.DATA,
    "trainer": Rank.NAMES,
    "trainer.critic_warmup": Rank.SCHEDULE,
    "transfer_queue": Rank.RESOURCES,
}
