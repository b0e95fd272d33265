"""Rules on what the runtime does not do, from the support table."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.checks.problem import CheckContext, Problem
from rlctl.config import Config
from rlctl.config.sections.execution import WeightSync
from rlctl.config.sections.rollout import ExternalEngine
from rlctl.documents.paths import dotted
from rlctl.planning import arithmetic
from rlctl.planning.support import Status, unhonoured


def supported(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Every key that is set is one the runtime honours; one that no number hangs on is told.

    No fix is offered: a key that only rlctl's own runtime ignores may well matter to the framework that the file is for.
    """
    known = surroundings.cluster
    for each in unhonoured(config, known.device if known is not None else None):
        message = f"'{dotted(each.key)}': {each.reason}"
        if each.status is Status.REFUSED:
            yield Problem("not-supported", each.key, message, "set it back, or remove it")
        elif surroundings.is_silent(each.key):
            yield Problem("not-applied", each.key, message)
        else:
            yield Problem(
                "not-used", each.key, message, "keep it for the framework that uses it; rlctl's results don't change"
            )


def outside_endpoint(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """An endpoint has an address, and generates only where nothing is trained: no weights can be sent to it."""
    engine = config.rollout.engine
    if not isinstance(engine, ExternalEngine) or not arithmetic.needs_rollout(config):
        return
    if engine.base_url is None:
        message = "'rollout.engine.base_url': the external engine has no address"
        yield Problem(
            "not-supported", ("rollout", "engine"), message, "set rollout.engine.base_url, such as http://host:8000/v1"
        )
    elif arithmetic.trains(config):
        message = (
            "'rollout.engine' external: an outside endpoint keeps its own weights, so a run that trains cannot use it"
        )
        yield Problem(
            "not-supported",
            ("rollout", "engine"),
            message,
            "{fix}",
            tuple((("rollout", "engine"), name) for name in ("vllm", "transformers")),
        )


def recorded_responses(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Responses go to a file where a run only explores, and come from a file only where a run evaluates and nothing else."""
    if arithmetic.writes_responses(config) and config.rollout.responses_folder is None:
        message = "'run.mode' rollout_only: there is no buffer that outlives the run, and no file for its responses"
        yield Problem(
            "not-supported",
            ("run", "mode"),
            message,
            "set buffer to {type: sql} or {type: file}, or rollout.responses_folder to a file such as responses.parquet",
        )
    if config.run.mode == "rollout_only" and config.algorithm.objective.choice != "rl":
        message = f"'run.mode' rollout_only: the objective {config.algorithm.objective.choice} generates nothing"
        yield Problem("not-supported", ("run", "mode"), message, "set algorithm.objective to rl")
    for index, source in enumerate(config.data.eval):
        if source.response_key is not None and config.run.mode != "evaluate_only":
            key = ("data", "eval", index, "response_key")
            message = (
                f"'{dotted(key)}': responses to held-out prompts are drawn; only evaluate_only scores recorded ones"
            )
            hint = f"set run.mode to evaluate_only, or remove {dotted(key)}"
            yield Problem("not-supported", key, message, hint)


def buffers(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A run that trains on what another explored names a buffer that both find."""
    key = {"sql": "url", "file": "path"}.get(config.buffer.choice)
    if arithmetic.drains_buffer(config) and key is None:
        message = "'run.mode' train_only: the buffer in memory ends with the run that fills it"
        yield Problem("not-supported", ("buffer", "type"), message, "set buffer to {type: sql, url: ...}")
    elif arithmetic.drains_buffer(config) and getattr(config.buffer, str(key)) is None:
        message = f"'run.mode' train_only: 'buffer.{key}' does not say which buffer to train on"
        yield Problem(
            "not-supported", ("buffer", str(key)), message, f"set buffer.{key} to the buffer of the run that explores"
        )
    apart = arithmetic.drains_buffer(config) or arithmetic.fills_buffer(config)
    for name in ("max_steps_ahead", "style", "in_flight_requests") if apart else ():
        if getattr(config.weight_sync, name) != getattr(WeightSync(), name):
            message = (
                f"'weight_sync.{name}' is for rollout and training in one run; here 'weight_sync.every' says when weights are"
                " exchanged"
            )
            yield Problem(
                "not-supported",
                ("weight_sync", name),
                message,
                f"remove weight_sync.{name}; weight_sync.max_staleness limits how old responses may be",
            )
    if apart and config.weight_sync.on_stale == "wait" and config.weight_sync.max_staleness is not None:
        message = (
            "'weight_sync.on_stale' wait: a run that explores does not know how far the one is that trains, and waits for"
            " nobody"
        )
        fixes = ((("weight_sync", "on_stale"), "drop"),)
        yield Problem("not-supported", ("weight_sync", "on_stale"), message, "{fix}", fixes)
    for interval in (
        (("schedule", "evaluate_every"), ("checkpoint", "every")) if arithmetic.drains_buffer(config) else ()
    ):
        chosen = getattr(getattr(config, interval[0]), interval[1])
        if chosen is not None and chosen.epochs is not None:
            message = f"'{dotted(interval)}' counts epochs, and a run that trains on a buffer reads no training data"
            yield Problem("not-supported", interval, message, f"give {dotted(interval)} in steps")
    replay, capacity = config.buffer.replay, config.buffer.capacity
    step = arithmetic.responses_per_step(config)
    if capacity is not None and capacity < step and replay.enabled:
        message = (
            f"'buffer.capacity' {capacity}: a step takes {step} responses, and a full buffer that replays gives some up"
        )
        yield Problem(
            "not-supported", ("buffer", "capacity"), message, "{first} or more", ((("buffer", "capacity"), step),)
        )


RULES = (recorded_responses, outside_endpoint, buffers, supported)
