"""Trinity: the reference, which verl's own keys under ``trainer_config`` set."""

from __future__ import annotations

from typing import Any

from rlctl.adapters.engine.rules import (
    NO_KEY,
    DefaultFrom,
    Dropped,
    Key,
    Rule,
    Section,
    VersionedDefault,
    When,
    Writing,
)
from rlctl.adapters.engine.values import Listed, Partly
from rlctl.adapters.trinity.keys import REF
from rlctl.adapters.trinity.megatron import megatron
from rlctl.adapters.trinity.train import role_engine, role_strategy, writes_engine
from rlctl.adapters.verl_trainer.fsdp import sharding
from rlctl.adapters.verl_trainer.megatron import SIZES

E = "reference.engine"


class Parameters(Partly):
    """The reference has no optimizer to move: both is its parameters."""

    def write(self, value: Any, view: Writing) -> Any:
        return value in ("parameters", "both")


OFFLOAD = Parameters({True: "parameters", False: "none"}, "derived")
*SHARDING, WRAPPING = sharding(f"{REF}.fsdp_config", E, handed_on=True)
FSDP: tuple[Rule, ...] = (
    # 0.5.2 trainer/verl/verl_config.py, FSDPConfig; 0.6.0 trainer/verl/config.py, _build_fsdp_engine_config
    Key(
        f"{REF}.fsdp_config.param_offload",
        f"{E}.offload",
        VersionedDefault({"0.5": False, "0.6": DefaultFrom("trainer.param_offload")}),
        OFFLOAD,
    ),
    *SHARDING,
    # the same places: 0.5.2 trainer/verl/verl_config.py, 0.6.0 trainer/verl/config.py
    Key(
        f"{REF}.fsdp_config.offload_policy",
        f"{E}.cpu_offload_policy",
        VersionedDefault({"0.5": False, "0.6": DefaultFrom("trainer.offload_policy")}),
    ),
    WRAPPING,
    Key(
        f"{REF}.fsdp_config.wrap_policy.transformer_layer_cls_to_wrap",
        f"{E}.wrap_layers",
        convert=Listed(),
    ),
    # 0.5.2 trainer/verl/verl_config.py, synchronize_config; 0.6.0 trainer/verl/config.py, FROZEN_KEYS
    Key(
        f"{REF}.ulysses_sequence_parallel_size",
        f"{E}.ulysses_sequence_parallel_size",
        DefaultFrom("trainer.ulysses_sequence_parallel_size"),
        until="0.5",
    ),
)
REFERENCE: list[Rule] = [
    Section(
        E,
        (
            role_engine("reference engine", f"{REF}.strategy", E),
            When(
                FSDP,
                lambda view: role_strategy(view, f"{REF}.strategy") != "megatron",
                lambda view: writes_engine(view, E, "fsdp2"),
                "only for the FSDP trainer",
            ),
            When(
                (
                    *[
                        # 0.5.2 trainer/verl/verl_config.py, synchronize_config; 0.6.0 trainer/verl/config.py, _build_ref_config
                        Key(f"{REF}.megatron.{key}", f"{E}.{field}", DefaultFrom(f"trainer.megatron.{key}"))
                        for key, field in SIZES
                    ],
                    *megatron(f"{REF}.megatron", E),
                    Key(f"{REF}.megatron.param_offload", f"{E}.offload", convert=OFFLOAD),
                ),
                lambda view: role_strategy(view, f"{REF}.strategy") == "megatron",
                lambda view: writes_engine(view, E, "megatron"),
                "only for the Megatron trainer",
            ),
        ),
    ),
    Dropped("reference.engine.**", NO_KEY),
    Dropped("reference.precision", "Trinity's reference uses the policy's dtypes", None),
    Dropped("reference.precision.**", "Trinity's reference uses the policy's dtypes"),
    Key(f"{REF}.use_torch_compile", "reference.compile"),
    Dropped("reference.model", "Trinity's reference is the initial policy", None),
    Dropped("reference.model.**", "Trinity's reference is the initial policy"),
]
