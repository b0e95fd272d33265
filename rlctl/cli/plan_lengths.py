"""``rlctl plan --lengths``: how long responses are, from percentiles, a histogram or a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlctl.common.errors import UsageError
from rlctl.common.messages.reasons import said

if TYPE_CHECKING:
    from rlctl.config import Config
    from rlctl.planning.memory import Lengths
    from rlctl.planning.plan import KnownLengths

_PAIR = re.compile(r"p(?P<percent>\d+(?:\.\d+)?)=(?P<tokens>\d+)")
PROMPT, RESPONSE, SEQUENCE = "prompt_tokens", "response_tokens", "sequence_tokens"
"""Histograms of a file, by name."""
STEPS = 20
"""Last steps of a run whose lengths count."""
_HINT = "write p50=1200,p99=8000, a JSON file with a list of lengths or counts by length, or the folder of a run"


def known_lengths(text: str) -> KnownLengths:
    """The lengths that ``--lengths`` names, for each stage.

    Raises:
        UsageError: it is none of a pair of percentiles, a histogram and the folder of a run with steps.
    """
    path = Path(text)
    if path.is_dir():
        return _of_run(path)
    if path.is_file():
        return _of_file(path)
    found = [_PAIR.fullmatch(part.strip()) for part in text.split(",")]
    pair = [(float(match["percent"]), float(match["tokens"])) for match in found if match is not None]
    if len(found) != 2 or len(pair) != 2 or not _is_rising(pair):
        raise UsageError(said("--lengths {text!r} is no pair of percentiles, file or folder", text=text), hint=_HINT)
    return _of_pair(pair)


def _is_rising(pair: list[tuple[float, float]]) -> bool:
    (low, short), (high, long) = sorted(pair)
    return 0 < low < high < 100 and 0 < short < long


def _prompt(config: Config) -> float:
    from rlctl.planning.memory.lengths import TYPICAL

    return TYPICAL * config.data.max_prompt_tokens


def _of_pair(pair: list[tuple[float, float]], most: float | None = None) -> KnownLengths:
    from rlctl.planning.memory.lengths import of_pair

    def lengths(config: Config) -> Lengths:
        limit = config.rollout.max_response_tokens
        return of_pair(_prompt(config), pair[0], pair[1], limit if most is None else min(most, limit))

    return lengths


def _of_counts(counts: list[tuple[float, float]]) -> KnownLengths:
    from rlctl.planning.memory.lengths import of_counts

    return lambda config: of_counts(_prompt(config), counts, config.rollout.max_response_tokens)


def _of_file(path: Path) -> KnownLengths:
    """Lengths of responses, or of what a file counts by name (``PROMPT``, ``RESPONSE``, ``SEQUENCE``)."""
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            said("{file} has no lengths: {error}", file=str(path), error=str(error)), hint=_HINT
        ) from error
    if not isinstance(data, dict) or not {PROMPT, RESPONSE, SEQUENCE} & set(data):
        return _of_counts(_counts(path, data))
    named = {name: _counts(path, data[name]) for name in (PROMPT, RESPONSE, SEQUENCE) if name in data}
    return lambda config: _named(config, named)


def _named(config: Config, named: dict[str, list[tuple[float, float]]]) -> Lengths:
    """Lengths of named histograms; responses that none counts have half of their limit."""
    from rlctl.planning.memory.lengths import TYPICAL, of_counts, of_mean
    from rlctl.planning.memory.roles import context_tokens

    limit = config.rollout.max_response_tokens
    if SEQUENCE in named:
        return of_counts(0.0, named[SEQUENCE], context_tokens(config))
    prompt = _prompt(config)
    if PROMPT in named:
        counts = named[PROMPT]
        mean = sum(length * count for length, count in counts) / sum(count for _, count in counts)
        prompt = min(mean, config.data.max_prompt_tokens)
    if RESPONSE in named:
        return of_counts(prompt, named[RESPONSE], limit)
    return of_mean(prompt, TYPICAL * limit, limit)


def _counts(path: Path, data: Any) -> list[tuple[float, float]]:
    """Lengths with their counts: of a list of lengths, or of a mapping of lengths to counts."""
    try:
        pairs = data.items() if isinstance(data, dict) else ((length, 1) for length in data)
        counts = [(float(length), float(count)) for length, count in pairs]
    except (ValueError, TypeError) as error:
        raise UsageError(
            said("{file} has no lengths: {error}", file=str(path), error=str(error)), hint=_HINT
        ) from error
    if not counts or min(min(pair) for pair in counts) < 0 or not sum(count for _, count in counts):
        raise UsageError(
            said("{file} has no lengths: {error}", file=str(path), error="no length is counted"), hint=_HINT
        )
    return counts


def _of_run(folder: Path) -> KnownLengths:
    """The lengths of the last steps of a run."""
    from rlctl.monitor.log import EventLog

    log = EventLog(folder / "events.jsonl")
    steps: list[dict[str, float]] = []
    while events := log.read():
        steps += [event["metrics"] for event in events if event.get("kind") == "step" and "metrics" in event]
    names = ("response/length_p50", "response/length_p99", "response/length_max")
    last = [[step[name] for name in names] for step in steps if all(name in step for name in names)][-STEPS:]
    if not last:
        raise UsageError(
            said("{folder} has no steps with lengths of responses", folder=str(folder)),
            hint="give the folder of a run that trained",
        )
    middle, long = (sum(each[place] for each in last) / len(last) for place in (0, 1))
    most = max(each[2] for each in last)
    if long <= middle:
        return _of_counts([(middle, 1.0)])
    return _of_pair([(50.0, middle), (99.0, long)], most)
