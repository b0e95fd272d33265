"""Rules on what the runtime does not do, from the support table."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common.errors import PlanError
from rlctl.config import Config
from rlctl.config.sections.execution import WeightSync
from rlctl.config.sections.rollout import ExternalEngine
from rlctl.planning import arithmetic
from rlctl.planning.agents import check_agents
from rlctl.planning.support import Status, refusals, unhonoured


def supported(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Every key that is set is one the runtime honours; one that no number hangs on is told.

    No fix is offered: a key that only rlctl's own runtime ignores may well matter to the framework that the file is for.
    """
    known = surroundings.cluster
    for each in unhonoured(config, known.device if known is not None else None):
        if each.status is Status.REFUSED:
            yield problem("not-supported", each.key, reason=each.reason)
        elif surroundings.is_silent(each.key):
            yield problem("not-applied", each.key, reason=each.reason)
        else:
            yield problem("not-used", each.key, reason=each.reason)


def outside_endpoint(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """An endpoint has an address, and generates only where nothing is trained: no weights can be sent to it."""
    engine = config.rollout.engine
    if not isinstance(engine, ExternalEngine) or not arithmetic.needs_rollout(config):
        return
    if engine.base_url is None:
        yield problem("not-supported_endpoint-address", ("rollout", "engine"))
    elif arithmetic.trains(config):
        key = ("rollout", "engine")
        yield problem("not-supported_endpoint-trains", key, [(key, name) for name in ("vllm", "transformers")])


def recorded_responses(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Responses go to a file where a run only explores, and come from a file only where a run evaluates and nothing else."""
    if arithmetic.writes_responses(config) and config.rollout.responses_folder is None:
        yield problem("not-supported_rollout-only", ("run", "mode"))
    if config.run.mode == "rollout_only" and config.algorithm.objective.choice != "rl":
        yield problem("not-supported_rollout-objective", ("run", "mode"), objective=config.algorithm.objective.choice)
    for index, source in enumerate(config.data.eval):
        recorded = source.response_key is not None and not arithmetic.measures_loss(config, source)
        if recorded and config.run.mode != "evaluate_only":
            yield problem("not-supported_recorded", ("data", "eval", index, "response_key"))


def agents(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A run plays its agents, and does all that the config asks of them; what the table refuses is reported there."""
    if not arithmetic.needs_rollout(config):
        return
    try:
        check_agents(config)
    except PlanError as error:
        if not any(each.key[:2] == ("rollout", "agents") for each in refusals(config)):
            yield problem("not-supported_agents", ("rollout", "agents"), reason=error.message, advice=error.hint)


def buffers(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A run that trains on what another explored names a buffer that both find."""
    key = {"sql": "url", "file": "path"}.get(config.buffer.choice)
    if arithmetic.drains_buffer(config) and key is None:
        yield problem("not-supported_memory-buffer", ("buffer", "type"))
    elif arithmetic.drains_buffer(config) and getattr(config.buffer, str(key)) is None:
        yield problem("not-supported_no-buffer", ("buffer", str(key)))
    apart = arithmetic.drains_buffer(config) or arithmetic.fills_buffer(config)
    for name in ("max_steps_ahead", "style", "in_flight_requests") if apart else ():
        if getattr(config.weight_sync, name) != getattr(WeightSync(), name):
            yield problem("not-supported_two-runs", ("weight_sync", name))
    if apart and config.weight_sync.on_stale == "wait" and config.weight_sync.max_staleness_steps is not None:
        yield problem("not-supported_wait", ("weight_sync", "on_stale"), [(("weight_sync", "on_stale"), "drop")])
    for interval in (
        (("schedule", "evaluate_every"), ("checkpoint", "every")) if arithmetic.drains_buffer(config) else ()
    ):
        chosen = getattr(getattr(config, interval[0]), interval[1])
        if chosen is not None and chosen.epochs is not None:
            yield problem("not-supported_epochs", interval)
    replay, capacity = config.buffer.replay, config.buffer.capacity
    step = arithmetic.responses_per_step(config)
    if capacity is not None and capacity < step and replay.enabled:
        yield problem(
            "not-supported_replay-capacity",
            ("buffer", "capacity"),
            [(("buffer", "capacity"), step)],
            capacity=capacity,
            step=step,
        )


RULES = (recorded_responses, outside_endpoint, agents, buffers, supported)
