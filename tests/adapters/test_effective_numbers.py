"""What runs is what was written: a translation computes the numbers of its source, by each framework's own rules.

``effective.py`` works the numbers out of a text without rlctl's adapters. They have to be those of rlctl's own config, and those
of every translation. A number may differ only where the report says so: a canonical key that it hangs on (``CONCERNS``) is lost,
or the target's key that says it is assumed (``ASSUMED``), or it is computed and changes no result (``ROUNDED``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from omegaconf import OmegaConf

from rlctl.adapters import dialect, names
from rlctl.common.errors import RlctlError
from rlctl.common.report import Origin
from rlctl.config import Config, Loaded, Source, to_file
from rlctl.documents import KeyPath, dotted, read_yaml
from rlctl.translation.rendering import write_out
from rlctl.translation.translate import read_document

from .cases import numbered
from .corpus import ROWS, Example, at_least, examples, plain, some
from .effective import ORACLES, Numbers, Unsupported, canonical, differences, effective

FACTS = {"dataset_rows": str(ROWS), "carried": "none"}
DIALECTS = [name for name in names() if name in ORACLES]

SIZES = ("batch.prompts_per_step", "batch.mini_batch_responses", "batch.ppo_epochs")
CONCERNS: dict[str, tuple[str, ...]] = {
    "prompts a step": SIZES,
    "responses a prompt": ("batch.responses_per_prompt",),
    "responses a step": ("batch.responses_per_prompt", *SIZES),
    "responses of a mini-batch": SIZES,
    "optimizer steps a step": SIZES,
    "micro-batch": ("batch.micro_batch",),
    "steps between checkpoints": ("checkpoint.every", *SIZES),
    "steps between evaluations": ("schedule.evaluate_every", *SIZES),
    "steps": ("schedule.total_", *SIZES),
    "tokens of a prompt": ("data.max_prompt_tokens",),
    "tokens of a response": ("rollout.max_response_tokens",),
    "temperature, top_p, top_k": ("rollout.sampling",),
    "held-out sets": ("data.eval[].path", "data.eval[].responses_per_prompt", "data.eval[].agent"),
    "held-out": (
        *(f"data.eval[].{name}" for name in ("path", "responses_per_prompt")),
        *(f"data.eval[].evaluation_sampling.{name}" for name in ("temperature", "top_p", "top_k")),
    ),
    "KL in the loss": ("algorithm.kl_in_loss",),
    "KL in the reward": ("algorithm.kl_in_reward",),
    "advantage": ("algorithm.advantage", "algorithm.distillation"),
    "policy loss": ("algorithm.policy_loss",),
    "clip range": ("algorithm.policy_loss",),
    "dual clip": ("algorithm.policy_loss",),
    "aggregation": ("algorithm.loss_aggregation",),
    "learning rate": ("train.lr_scheduler", "train.optimizer.lr", "schedule.total_", *SIZES),
    "GPUs": ("placement", "rollout.parallel", "rollout.auxiliary_models"),
}
"""A number, by the start of its name, may differ where the report says that one of these canonical keys is lost.

Sets of episodes are one set, of files that a variable names, where no agent plays them.
"""
ASSUMED: dict[str, tuple[str, ...]] = {"GPUs that": ("explorer.rollout_model.engine_num",)}
"""What the source does not hold; the report calls the target's key assumed."""
ROUNDED: dict[str, str] = {"micro-batch": "batch.micro_batch", "steps between checkpoints": "checkpoint.every"}
"""Derived with its formula: the cut of a mini-batch, which changes no result, and an interval that is no whole number of steps."""


@dataclass(frozen=True)
class Written:
    """A translation, and what its report says of it."""

    text: str
    lost: frozenset[str]
    derived: frozenset[str]
    assumed: frozenset[str]

    def explains(self, number: str) -> bool:
        """Whether the report says that a number differs, or may."""
        prefixes = next(found for start, found in CONCERNS.items() if number.startswith(start))
        lost = {re.sub(r"\[\d+\]", "[]", key) for key in self.lost}
        if any(
            key.startswith(prefix) or prefix.startswith((f"{key}.", f"{key}[")) for key in lost for prefix in prefixes
        ):
            return True
        if number in ROUNDED and any(key.startswith(ROUNDED[number]) for key in self.derived):
            return True
        return any(number.startswith(start) and self.assumed & set(keys) for start, keys in ASSUMED.items())


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".") if part.isdecimal())


def _numbers(name: str, text: str, release: str) -> Numbers:
    return effective(name, plain(OmegaConf.create(text)), version=_version(release), rows=ROWS)


def _translated(loaded: Loaded, target: str) -> Written | None:
    """A config in a dialect, with what the report says; None where the dialect has no such runs."""
    try:
        outcome = write_out(loaded, target, FACTS)
    except RlctlError:
        return None
    fates = {dotted(path): fate for _, part in outcome.file.parts for path, fate in part.fates.items()}
    return Written(
        outcome.text(),
        frozenset(key for key, fate in fates.items() if fate.lost),
        frozenset(key for key, fate in fates.items() if fate.derived),
        frozenset(entry.key for entry in outcome.report.origins if entry.origin is Origin.ASSUMED),
    )


def _unexplained(source: Numbers, target: Numbers, written: Written) -> dict[str, Any]:
    return {number: pair for number, pair in differences(source, target).items() if not written.explains(number)}


@cache
def _read(example: Example) -> tuple[Loaded, Numbers, Numbers] | None:
    """An example with its numbers, as rlctl has them and as they are; None where the oracle has no rules for it."""
    loaded, report = example.read()
    if loaded is None:
        pytest.fail(f"{example.name}: {[finding.message for finding in report.errors]}")
    release = report.dialect.partition("@")[2]
    try:
        own = canonical(loaded.config, ROWS)
        return loaded, own, effective(example.dialect, example.plain(), version=_version(release), rows=ROWS)
    except Unsupported:
        return None


def _told(wrong: Mapping[str, Mapping[str, Any]]) -> str:
    return "".join(f"\n{where}: {number}: {pair}" for where, apart in wrong.items() for number, pair in apart.items())


def _of(name: str) -> list[Example]:
    return [item for item in examples(name) if not item.is_default]


@pytest.mark.parametrize("name", DIALECTS)
def test_rlctl_computes_what_an_example_computes(name: str) -> None:
    wrong, seen = {}, 0
    for example in _of(name):
        if (found := _read(example)) is not None:
            _, own, numbers = found
            seen += 1
            if apart := differences(numbers, own):
                wrong[example.name] = apart
    assert wrong == {}, _told(wrong)
    assert seen >= at_least(11)


def _check_translations(name: str, target: str, chosen: list[Example]) -> None:
    wrong, seen = {}, 0
    for example in chosen:
        if (found := _read(example)) is None or (written := _translated(found[0], target)) is None:
            continue
        seen += 1
        numbers = _numbers(target, written.text, dialect(target).newest)
        if apart := _unexplained(found[2], numbers, written):
            wrong[example.name] = apart
    assert wrong == {}, _told(wrong)
    assert seen >= at_least(len(chosen) // 3 + 1)


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("name", DIALECTS)
def test_a_translated_example_computes_what_it_did(name: str, target: str) -> None:
    _check_translations(name, target, some(_of(name), 5))


@pytest.mark.soak
@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("name", DIALECTS)
def test_every_translated_example_computes_what_it_did(name: str, target: str) -> None:
    _check_translations(name, target, _of(name))


def _as_written(config: Config) -> Loaded:
    """A config as its file says it: what differs from the defaults."""
    return Loaded(config, {path: Source("file", dotted(path)) for path in _said(to_file(config), ())})


def _said(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _said(inner, (*path, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for place, inner in enumerate(value):
            yield from _said(inner, (*path, place))
    else:
        yield path


FEW = settings(
    max_examples=15, suppress_health_check=list(HealthCheck), database=None, phases=[Phase.explicit, Phase.generate]
)
MANY = settings(FEW, max_examples=300)


@dataclass
class Tally:
    """How many examples a property was checked on; the others it has no rules for."""

    checked: int = 0
    skipped: int = 0

    def check(self, compares: Callable[[], bool]) -> None:
        """Count an example that is compared, or one that is not, such as a ratio of a length that Trinity does not know."""
        try:
            compared = compares()
        except Unsupported:
            compared = False
        self.checked += compared
        self.skipped += not compared


@pytest.fixture
def tally() -> Iterator[Tally]:
    """Of all examples of a test: most have to be compared, or the test says nothing."""
    found = Tally()
    yield found
    assert found.checked > 4 * found.skipped, found


def _check_written(target: str, config: Config) -> bool:
    written = _translated(_as_written(config), target)
    assert written is not None
    numbers = _numbers(target, written.text, dialect(target).newest)
    assert _unexplained(canonical(config, ROWS), numbers, written) == {}, written.text
    return True


def _check_pair(name: str, target: str, config: Config) -> bool:
    """Whether the second dialect has such runs, so that there is something to compare."""
    first = _translated(_as_written(config), name)
    assert first is not None
    loaded, report = read_document(read_yaml(first.text, "first.yaml"), dialect=name, environment={}, options=FACTS)
    assert loaded is not None, [finding.message for finding in report.errors]
    before = _numbers(name, first.text, dialect(name).newest)
    assert differences(before, canonical(loaded.config, ROWS)) == {}, first.text
    second = _translated(loaded, target)
    if second is None:
        return False
    after = _numbers(target, second.text, dialect(target).newest)
    assert _unexplained(before, after, second) == {}, f"{first.text}\n---\n{second.text}"
    return True


@pytest.mark.parametrize("target", DIALECTS)
@FEW
@given(config=numbered())
def test_a_written_config_computes_what_it_says(target: str, config: Config, tally: Tally) -> None:
    tally.check(lambda: _check_written(target, config))


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("name", DIALECTS)
@FEW
@given(config=numbered())
def test_a_translation_computes_what_its_source_does(name: str, target: str, config: Config, tally: Tally) -> None:
    tally.check(lambda: _check_pair(name, target, config))


@pytest.mark.soak
@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("name", DIALECTS)
@MANY
@given(config=numbered())
def test_many_translations_compute_what_their_sources_do(name: str, target: str, config: Config, tally: Tally) -> None:
    tally.check(lambda: _check_written(target, config))
    tally.check(lambda: _check_pair(name, target, config))
