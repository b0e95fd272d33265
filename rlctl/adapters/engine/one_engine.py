"""Frameworks in which every role trains with the policy's engine: what is written of a role that has another one."""

from __future__ import annotations

from dataclasses import replace

from rlctl.adapters.engine.lacking import SHOWN
from rlctl.adapters.engine.writing import ConfigWithOrigins, WriteOutcome, Written
from rlctl.common.messages.reasons import said
from rlctl.common.report import Finding, Level, finding
from rlctl.config import Config
from rlctl.config.sections.train import Fsdp2, Megatron, TrainEngine
from rlctl.planning import arithmetic


def with_one_engine(given: ConfigWithOrigins, framework: str) -> tuple[ConfigWithOrigins, list[Finding]]:
    """The config with the policy's engine for critic and reference, and a note on each that had another."""
    config, found = given.config, []
    policy = config.train.engine
    critic, reference = config.critic, config.reference
    if critic is not None and arithmetic.needs_critic(config) and _kind(critic.engine) != _kind(policy):
        found.append(_note("critic", critic.engine, policy, framework))
        engine = policy
        if isinstance(policy, (Fsdp2, Megatron)) and isinstance(critic.engine, (Fsdp2, Megatron)):
            engine = replace(policy, offload=critic.engine.offload)
        config = replace(config, critic=replace(critic, engine=engine))
    if reference.engine is not None and _kind(reference.engine) != _kind(policy):
        if arithmetic.needs_reference(config):
            found.append(_note("reference", reference.engine, policy, framework))
        config = replace(config, reference=replace(reference, engine=None))
    return replace(given, config=config) if config is not given.config else given, found


def tell_engines(written: Written, before: Config, after: Config, framework: str) -> None:
    """Account for the engines that ``with_one_engine`` replaced: they are kept only for converting back."""
    engines = {
        "critic": (before.critic and before.critic.engine, after.critic and after.critic.engine),
        "reference": (before.reference.engine, after.reference.engine),
    }
    for role, (was, now) in engines.items():
        if was == now:
            continue
        for path in [path for path in written.fates if path[:2] == (role, "engine")]:
            del written.fates[path]
        reason = said("{framework} runs every role on the policy's engine", framework=SHOWN.get(framework, framework))
        written.fates[role, "engine"] = WriteOutcome(kept=reason)


def _kind(engine: TrainEngine) -> str:
    return engine.type_name


def _note(role: str, engine: TrainEngine, policy: TrainEngine, framework: str) -> Finding:
    return finding(
        "silent-difference_engine",
        Level.NOTE,
        f"{role}.engine.type",
        role=role,
        engine=_kind(engine),
        policy=_kind(policy),
        framework=SHOWN.get(framework, framework),
    )
