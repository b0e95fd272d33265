"""How much ROLL's keys matter that no canonical key stands for, by their beginning; ``*`` is any worker."""

from collections.abc import Mapping

from rlctl.common.ranks import Rank

RANKS: Mapping[str, Rank] = {
    "*.data_args": Rank.DATA,
    "*.generating_args": Rank.DATA,
    "*.model_args": Rank.DATA,
    "*.sequence_packing_args": Rank.RESOURCES,
    "*.strategy_args": Rank.RESOURCES,
    "*.training_args": Rank.SCHEDULE,
    "agent_config_common": Rank.DATA,
    "custom_envs": Rank.DATA,
    "difficulty_loss_weight": Rank.OBJECTIVE,
    "dual_clip_loss": Rank.OBJECTIVE,
    "importance_sampling": Rank.OBJECTIVE,
    "length_loss_weight": Rank.OBJECTIVE,
    "query_key": Rank.DATA,
    "reward_normalization": Rank.OBJECTIVE,
    "rewards": Rank.DATA,
    "rl_loss_coef": Rank.OBJECTIVE,
    "rollout_batch_size": Rank.SCHEDULE,
    "tag_to_template": Rank.DATA,
    "global_template": Rank.DATA,
    "teacher": Rank.OBJECTIVE,
    "train_env_manager": Rank.DATA,
    "val_env_manager": Rank.DATA,
    "validation": Rank.DATA,
}
