"""Trinity: a Megatron engine, of which verl's keys under ``trainer_config`` say most."""

from __future__ import annotations

from rlctl.adapters.engine.checkpoint_path import checkpoint
from rlctl.adapters.engine.rules import ABSENT, Key, Rule
from rlctl.adapters.verl_trainer.megatron import bridge, overrides


def megatron(block: str, to: str) -> list[Rule]:
    """What only verl's keys say of a Megatron engine: Trinity has separate keys for its sizes since 0.6."""
    return [
        # 0.4.1 common/verl_config.py, MegatronConfig; 0.6.0 trainer/verl/config.py, _build_mcore_engine_config
        Key(f"{block}.use_distributed_optimizer", f"{to}.distributed_optimizer", True),
        checkpoint(block, to, "trinity", on=False, path=None),
        *overrides(block, to, ("full", "uniform", 1, ["core_attn"])),
        bridge(block, to, ABSENT, if_written=True, missing="Trinity's Megatron has no {word}"),
    ]
