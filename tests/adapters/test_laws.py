"""The laws of translation, for every canonical key with values that are not its default: what a dialect can say survives it.

canonical -> dialect -> canonical is the identity on what the dialect can express; what it cannot is said to be lost, never
dropped in silence. What was written, read and written again says the same. A -> B -> A keeps what both can express.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rlctl.adapters.tree import find
from rlctl.config import Config, Loaded, Source, to_plain
from rlctl.config.inspect import Key
from rlctl.documents import read_yaml
from rlctl.errors import ConfigError
from rlctl.report import Bucket
from rlctl.translate import read_document, translate_loaded, write

from .cases import BASE, SFT, build, leaves, values

KEYS = [
    key for key in leaves() if not key.pattern.startswith(("extensions", "stages", "rlctl")) and not key.info.secret
]
SECTIONS = sorted({key.pattern.split(".")[0].split("[")[0] for key in KEYS})
SUPERVISED = ("model", "data", "batch", "schedule", "train", "checkpoint")
WELL_SAID = ("batch", "train", "algorithm", "checkpoint", "rollout")
"""Sections of which every dialect has most."""
OFF = ("profiling.ray_timeline",)
"""Keys whose false and null are one."""
GOOD = ("kept", "derived", "lost")


def _keys(section: str) -> Iterator[Key]:
    return (key for key in KEYS if key.pattern.split(".")[0].split("[")[0] == section)


def _loaded(config: Config, place: tuple[Any, ...]) -> Loaded:
    plain = to_plain(config)
    above = [place[:length] for length in range(1, len(place))]
    tags = {(*path, tag) for path in above for tag in ("name", "type") if isinstance(find(plain, path), dict)}
    said = {place, *(tag for tag in tags if isinstance(find(plain, tag), str))}
    return Loaded(config, {path: Source("file", ".".join(map(str, path))) for path in said})


def _there_and_back(key: Key, value: Any, target: str, base: dict[str, Any]) -> tuple[str, Any, Any]:
    """The fate of a value, with it before and after."""
    config, place = build(key, value, base)
    before = find(to_plain(config), place)
    text, report = write(_loaded(config, place), target, options={"carried": "none"})
    if text is None:
        return "lost", before, report.errors[0].message
    back, again = read_document(read_yaml(text, "written.yaml"), dialect=target, environment={})
    assert back is not None, (key.pattern, value, [finding.message for finding in again.errors], text)
    after = find(to_plain(back.config), place)
    before, after = (None if item is False and key.pattern in OFF else item for item in (before, after))
    buckets = {entry.bucket for entry in report.accounting if entry.key == ".".join(map(str, place))}
    if after == before:
        return _written_again(back, text, target), before, after
    fate = "lost" if Bucket.UNSUPPORTED in buckets else "derived" if Bucket.DERIVED in buckets else "changed"
    return fate, before, after


def _written_again(back: Loaded, text: str, target: str) -> str:
    """``kept`` where writing what was read says all that was written first."""
    again, _ = write(back, target, options={"carried": "none"})
    assert again is not None
    first, second = read_yaml(text, "first.yaml").values, read_yaml(again, "second.yaml").values
    return "kept" if _covers(second, first) else "written otherwise"


def _covers(whole: Any, part: Any) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _covers(whole[key], item) for key, item in part.items())
    return bool(whole == part)


def _check(section: str, target: str, base: dict[str, Any], data: st.DataObject) -> dict[str, int]:
    wrong, fates = [], defaultdict(int)
    for key in _keys(section):
        value = data.draw(values(key.info), label=key.pattern)
        try:
            fate, before, after = _there_and_back(key, value, target, base)
        except ConfigError:
            continue
        fates[fate] += 1
        if fate not in GOOD:
            wrong.append(f"{key.pattern}: {before!r} became {after!r}: {fate}")
    assert wrong == []
    return fates


LAW = settings(
    max_examples=1, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None
)


@pytest.mark.parametrize("target", ["verl@0.9", "trinity@0.6"])
@pytest.mark.parametrize("section", SECTIONS)
@LAW
@given(data=st.data())
def test_every_value_survives_a_dialect_or_is_said_to_be_lost(section: str, target: str, data: st.DataObject) -> None:
    fates = _check(section, target, BASE, data)
    assert section not in WELL_SAID or fates["kept"] + fates["derived"] > 5


@pytest.mark.soak
@pytest.mark.parametrize("target", ["verl@0.6", "trinity@0.5"])
@pytest.mark.parametrize("section", WELL_SAID)
@LAW
@given(data=st.data())
def test_every_value_survives_an_older_release_or_is_said_to_be_lost(
    section: str, target: str, data: st.DataObject
) -> None:
    _check(section, target, BASE, data)


@pytest.mark.soak
@pytest.mark.parametrize("target", ["verl@0.9", "trinity@0.6"])
@pytest.mark.parametrize("section", SUPERVISED)
@LAW
@given(data=st.data())
def test_every_value_of_supervised_training_survives_or_is_said_to_be_lost(
    section: str, target: str, data: st.DataObject
) -> None:
    _check(section, target, SFT, data)


@pytest.mark.soak
@pytest.mark.parametrize("section", ["batch", "data", "model", "train", "algorithm", "checkpoint"])
@LAW
@given(data=st.data())
def test_verl_to_trinity_and_back_keeps_what_both_can_say(section: str, data: st.DataObject) -> None:
    wrong = []
    keys = data.draw(
        st.lists(st.sampled_from(list(_keys(section))), min_size=8, max_size=8, unique_by=lambda key: key.pattern)
    )
    for key in keys:
        value = data.draw(values(key.info), label=key.pattern)
        try:
            config, place = build(key, value, BASE)
        except ConfigError:
            continue
        text, _ = write(_loaded(config, place), "verl@0.9", options={"carried": "none"})
        if text is None:
            continue
        first, report = read_document(read_yaml(text, "first.yaml"), dialect="verl@0.9", environment={})
        assert first is not None
        there = translate_loaded(first, report, "trinity@0.6")
        if there.text is None:
            continue
        said = {
            entry.key
            for entry in there.report.accounting
            if entry.targets and entry.bucket in (Bucket.MAPPED, Bucket.DERIVED)
        }
        second, middle = read_document(read_yaml(there.text, "there.yaml"), dialect="trinity@0.6", environment={})
        assert second is not None, (key.pattern, value, [finding.message for finding in middle.errors])
        home = translate_loaded(second, middle, "verl@0.9").text
        assert home is not None
        before, after = read_yaml(text, "a").values, read_yaml(home, "b").values
        for entry in report.accounting:
            path = tuple(entry.key.split("."))
            if entry.key not in said or "[" in entry.key or entry.key in LAYOUT:
                continue
            if find(after, path) != find(before, path) and not _default(home, entry.key, find(before, path)):
                wrong.append(
                    f"{key.pattern}={value!r}: {entry.key}: {find(before, path)!r} came back as {find(after, path)!r}"
                )
    assert wrong == []


LAYOUT = (
    "trainer.v1.trainer_mode",
    "trainer.nnodes",
    "trainer.n_gpus_per_node",
    "actor_rollout_ref.rollout.nnodes",
    "actor_rollout_ref.rollout.n_gpus_per_node",
    "trainer.logger",
)
"""Trinity has no hybrid engine: devices are split, which is assumed and said. And it always has one monitor."""


def _default(text: str, key: str, value: Any) -> bool:
    """Whether verl's own default for a key that is not written is the value."""
    from rlctl.adapters.reading import TextView
    from rlctl.adapters.rules import version_of
    from rlctl.adapters.verl import VERL

    values_ = read_yaml(text, "home.yaml").values
    view = TextView(VERL.tables["ppo"], version_of("0.9"), values_, {})
    return bool(view.get(key) == value)
