"""How much Trinity's keys matter that no canonical key stands for, by their beginning."""

from collections.abc import Mapping

from rlctl.common.ranks import Rank

RANKS: Mapping[str, Rank] = {
    "algorithm": Rank.OBJECTIVE,
    "buffer": Rank.DATA,
    "buffer.batch_size": Rank.SCHEDULE,
    "buffer.train_batch_size": Rank.SCHEDULE,
    "buffer.total_epochs": Rank.SCHEDULE,
    "buffer.total_steps": Rank.SCHEDULE,
    "buffer.pad_token_id": Rank.NAMES,
    "cluster": Rank.RESOURCES,
    "data_processor": Rank.DATA,
    "explorer": Rank.RESOURCES,
    "explorer.over_rollout": Rank.SCHEDULE,
    "model": Rank.DATA,
    "stages": Rank.OBJECTIVE,
    "synchronizer": Rank.SCHEDULE,
    "trainer": Rank.RESOURCES,
    "trainer.trainer_config": Rank.OBJECTIVE,
}
