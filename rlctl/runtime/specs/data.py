"""What rows are read with, and in which order they are drawn."""

from __future__ import annotations

from rlctl.config import Config
from rlctl.config.sections.data import QualityFilter
from rlctl.planning import arithmetic
from rlctl.planning.models import context_limit
from rlctl.runtime.data.experts import NAMED, ExpertSpec
from rlctl.runtime.data.open import DataSpec
from rlctl.runtime.data.operators import OperatorSpec


def data_spec(config: Config) -> DataSpec:
    """Of what a stage reads."""
    data, objective = config.data, config.algorithm.objective.choice
    agents = arithmetic.agents_of(config) if objective == "rl" else {}
    return DataSpec(
        section=data,
        model=config.model,
        agents=agents,
        default_agent=config.rollout.default_agent,
        objective=objective,
        per_step=config.batch.prompts_per_step,
        seed=config.run.seed if data.seed is None else data.seed,
        rewards=config.rewards,
        max_sequence_tokens=data.max_sequence_tokens or data.max_prompt_tokens + config.rollout.max_response_tokens,
        with_loss=frozenset(i for i, source in enumerate(data.eval) if arithmetic.measures_loss(config, source)),
        experts=expert_spec(config),
        context_tokens=None if agents else context_limit(config.model),
        max_response_tokens=config.rollout.max_response_tokens,
    )


def operator_spec(config: Config) -> OperatorSpec:
    """Of the operators on the training data."""
    rates = any(isinstance(each, QualityFilter) for each in config.data.operators)
    return OperatorSpec(
        data=config.data,
        tokenizer=config.model.tokenizer or config.model.path,
        service=config.service.data_juicer,
        auxiliary=arithmetic.auxiliary_models(config) if rates else {},
    )


def expert_spec(config: Config) -> ExpertSpec | None:
    """Of the expert responses of mix; None if a step takes none."""
    if config.algorithm.objective.choice != "mix":
        return None
    per_step = arithmetic.responses_per_step(config) - arithmetic.drawn_responses(config)
    wanted = str(config.algorithm.sample_strategy_args.get("sft_dataset_name", NAMED))
    return ExpertSpec(config.buffer.auxiliary, wanted, per_step) if per_step else None
