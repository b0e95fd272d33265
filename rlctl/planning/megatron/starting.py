"""Whose weights a Megatron checkpoint is (``engine.checkpoint_path``), and whose it is not."""

from __future__ import annotations

from dataclasses import replace

from rlctl.config import Config
from rlctl.config.sections.train import Megatron, Train


def without_checkpoint(train: Train) -> Train:
    """The section for another model, which starts from Hugging Face weights."""
    if isinstance(train.engine, Megatron) and train.engine.checkpoint_path is not None:
        return replace(train, engine=replace(train.engine, checkpoint_path=None))
    return train


def from_weights(config: Config) -> Config:
    """The config of a stage whose policy and reference start from what the stage before left."""
    engine = config.reference.engine
    if isinstance(engine, Megatron):
        engine = replace(engine, checkpoint_path=None)
    return replace(config, train=without_checkpoint(config.train), reference=replace(config.reference, engine=engine))
