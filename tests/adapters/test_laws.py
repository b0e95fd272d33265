"""The laws of translation, for every canonical key with values that are not its default: what a dialect can say survives it.

canonical -> dialect -> canonical is the identity on what the dialect can express; what it cannot is said to be lost, never
dropped in silence. What was written, read and written again says the same. A -> B -> A keeps what both can express.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rlctl.adapters import dialect, names
from rlctl.adapters.engine.tree import find
from rlctl.common.errors import TranslationError
from rlctl.common.report import Bucket, Entry, Report
from rlctl.config import Config, Loaded, Source, to_plain
from rlctl.config.inspect import KeyInfo
from rlctl.documents import KeyPath, dotted, read_yaml
from rlctl.translation.difference import differences
from rlctl.translation.rendering import write_out
from rlctl.translation.translate import read_document, translate_loaded, write

from .cases import BASE, SFT, Several, leaves, together, values

KEYS = [
    key for key in leaves() if not key.pattern.startswith(("extensions", "stages", "rlctl")) and not key.info.secret
]
SECTIONS = sorted({key.pattern.split(".")[0].split("[")[0] for key in KEYS})
SUPERVISED = ("model", "data", "batch", "schedule", "train", "checkpoint")
WELL_SAID = ("batch", "train", "algorithm", "checkpoint", "rollout")
"""Sections of which every dialect has most."""
OFF = ("profiling.ray_timeline",)
"""Keys whose false and null are one."""
GOOD = ("kept", "derived", "approximated", "lost")
UNSAID = {Bucket.UNSUPPORTED, Bucket.CARRIED}
"""Where a value ends that the dialect does not say: unsupported, or carried where no result hangs on it."""


def _keys(section: str) -> Iterator[KeyInfo]:
    return (key for key in KEYS if key.pattern.split(".")[0].split("[")[0] == section)


def _loaded(config: Config, *places: KeyPath) -> Loaded:
    """The config as a file says it that names these places, with the names and types of what is above them."""
    plain = to_plain(config)
    above = {place[:length] for place in places for length in range(1, len(place))}
    tags = {(*path, tag) for path in above for tag in ("name", "type") if isinstance(find(plain, path), dict)}
    said = {*places, *(tag for tag in tags if isinstance(find(plain, tag), str))}
    return Loaded(config, {path: Source("file", ".".join(map(str, path))) for path in said})


def _there_and_back(group: Several, target: str) -> dict[KeyPath, tuple[str, Any, Any]]:
    """The fate of each value of a config in a dialect, with the value before and after."""
    config = group.config
    plain = to_plain(config)
    text, report = write(_loaded(config, *group.keys), target, options={"carried": "none"})
    if text is None and len(group.keys) > 1:
        return dict.fromkeys(group.keys, ("refused", None, None))
    if text is None:
        return {place: ("lost", find(plain, place), report.errors[0].message) for place in group.keys}
    back, again = read_document(read_yaml(text, "written.yaml"), dialect=target, environment={})
    assert back is not None, ([finding.message for finding in again.errors], list(group.keys), text)
    kept = _written_again(back, text, target)
    buckets: dict[str, set[Bucket]] = defaultdict(set)
    for entry in report.accounting:
        buckets[entry.key].add(entry.bucket)
    found, read = {}, to_plain(back.config)
    for place, (key, _) in group.keys.items():
        before, after = (
            None if item is False and key.pattern in OFF else item for item in (find(plain, place), find(read, place))
        )
        said = buckets[".".join(map(str, place))]
        fate = "lost" if said & UNSAID else "derived" if Bucket.DERIVED in said else "changed"
        if fate == "changed" and Bucket.APPROXIMATED in said and kept == "kept":
            fate = "approximated"  # rounded once: what was read of it is written as it was
        found[place] = (kept if after == before else fate, before, after)
    if any(fate == "changed" for fate, _, _ in found.values()):
        told = _told_by_reading_back(group, target)
        found = {place: (("lost" if dotted(place) in told else one[0]), *one[1:]) for place, one in found.items()}
    return found


def _told_by_reading_back(group: Several, target: str) -> set[str]:
    """Keys that the whole conversion reports: that a YAML of verl's does not name the program, for example."""
    loaded = _loaded(group.config, *group.keys)
    entries = [
        Entry(source.key, Bucket.MAPPED, None, None, ((source.key, None),)) for source in loaded.sources.values()
    ]
    made = translate_loaded(loaded, Report("rlctl@1", accounting=entries), target, options={"carried": "none"})
    return {entry.key for entry in made.report.accounting if entry.bucket in UNSAID}


def _written_again(back: Loaded, text: str, target: str) -> str:
    """``kept`` where writing what was read says all that was written first."""
    again, _ = write(back, target, options={"carried": "none"})
    assert again is not None
    first, second = read_yaml(text, "first.yaml").values, read_yaml(again, "second.yaml").values
    return "kept" if _covers(second, first) else "written otherwise"


def _covers(whole: Any, part: Any) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _covers(whole[key], item) for key, item in part.items())
    if isinstance(part, list) and isinstance(whole, list) and len(part) == len(whole):
        return all(map(_covers, whole, part))  # an evaluation dataset may say what its workflow implied
    return bool(whole == part)


def _check(section: str, target: str, base: dict[str, Any], data: st.DataObject, most: int = 20) -> dict[str, int]:
    """Every key of a section, many in one config; one that does not come back is tried again alone, where it has to."""
    drawn = [(key, data.draw(values(key.info), label=key.pattern)) for key in _keys(section)]
    wrong: list[str] = []
    fates: dict[str, int] = defaultdict(int)
    for group in together(drawn, base, most):
        for place, (fate, before, after) in _there_and_back(group, target).items():
            if fate not in GOOD and len(group.keys) > 1:
                (alone,) = together([group.keys[place]], base)
                ((fate, before, after),) = _there_and_back(alone, target).values()
            fates[fate] += 1
            if fate not in GOOD:
                wrong.append(f"{group.keys[place][0].pattern}: {before!r} became {after!r}: {fate}")
    assert wrong == [], "\n".join(wrong)
    return fates


LAW = settings(
    max_examples=1, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None
)
DIALECTS = {name: dialect(name) for name in names() if name != "rlctl"}
NEWEST = [f"{name}@{found.newest}" for name, found in DIALECTS.items()]
OLDER = [f"{name}@{release}" for name, found in DIALECTS.items() for release in found.versions[:-1]]


@pytest.mark.parametrize("target", NEWEST)
@pytest.mark.parametrize("section", SECTIONS)
@LAW
@given(data=st.data())
def test_every_value_survives_a_dialect_or_is_said_to_be_lost(section: str, target: str, data: st.DataObject) -> None:
    fates = _check(section, target, BASE, data)
    assert section not in WELL_SAID or fates["kept"] + fates["derived"] > 5


@pytest.mark.soak
@pytest.mark.parametrize("target", NEWEST)
@pytest.mark.parametrize("section", SECTIONS)
@LAW
@given(data=st.data())
def test_every_value_alone_survives_a_dialect_or_is_said_to_be_lost(
    section: str, target: str, data: st.DataObject
) -> None:
    _check(section, target, BASE, data, most=1)


@pytest.mark.soak
@pytest.mark.parametrize("target", OLDER)
@pytest.mark.parametrize("section", WELL_SAID)
@LAW
@given(data=st.data())
def test_every_value_survives_an_older_release_or_is_said_to_be_lost(
    section: str, target: str, data: st.DataObject
) -> None:
    _check(section, target, BASE, data)


@pytest.mark.soak
@pytest.mark.parametrize("target", NEWEST)
@pytest.mark.parametrize("section", SUPERVISED)
@LAW
@given(data=st.data())
def test_every_value_of_supervised_training_survives_or_is_said_to_be_lost(
    section: str, target: str, data: st.DataObject
) -> None:
    _check(section, target, SFT, data)


PAIRS = [(first, second) for first in NEWEST for second in NEWEST if first != second]
LAYOUT = (
    "placement",
    "rollout.parallel",
    "tracking",
    "rollout.memory.gpu_memory_utilization",
    "train.engine.fsdp_size",
)
"""Who shares devices, which a dialect may have no word for and then is assumed, and what hangs on it; and where one monitor is all
there can be."""
CUT = (
    *(
        "batch.micro_batch",
        "batch.log_prob_micro_batch",
        "critic.micro_batch",
        "rollout.split_groups",
        "rollout.memory.load_format",
    ),
    *("algorithm.preset", "extensions"),
)
"""How work is cut up and weights are first filled, which no result hangs on; a name for settings that are said one by one; and what
is carried, which is left out."""

HANGS_ON: dict[str, KeyPath] = {"reward_loop.manager": ("algorithm", "reward_shaping", "overlong_penalty")}
"""A value that another one asks for, which goes and comes with it: verl's manager that takes the overlong penalty."""


def _read(text: str, name: str) -> tuple[Loaded, Report]:
    loaded, report = read_document(read_yaml(text, "written.yaml"), dialect=name, environment={})
    assert loaded is not None, ([finding.message for finding in report.errors], text)
    return loaded, report


def _told_otherwise(loaded: Loaded, report: Report, target: str) -> set[str]:
    """Canonical keys that a conversion reports as changed or lost, such as a warm-up rounded to whole steps."""
    before = {entry.key: [key for key, _ in entry.targets] for entry in report.accounting}
    made = translate_loaded(loaded, copy.deepcopy(report), target, options={"carried": "none"})
    rounded = [
        entry.key for entry in made.report.accounting if entry.bucket in (Bucket.APPROXIMATED, Bucket.UNSUPPORTED)
    ]
    warned = [finding.key for finding in made.report.findings if finding.code == "silent-difference"]
    return {key for entry in (*rounded, *warned) for key in before.get(entry, [entry])}


def _lost(loaded: Loaded, target: str, carried: str) -> tuple[str, set[KeyPath]] | None:
    try:
        outcome = write_out(loaded, target, {"carried": carried})
    except TranslationError:
        return None
    fates = [(path, fate) for _, part in outcome.file.parts for path, fate in part.fates.items()]
    return outcome.text(), {path for path, fate in fates if fate.lost or fate.kept}


def _round_trip(group: Several, first: str, second: str, carried: str) -> list[str] | None:
    """What a text in the first dialect says, and no longer says once it has been through the second; None if one refuses it."""
    config = group.config
    there = _lost(_loaded(config, *group.keys), first, "none")
    if there is None:
        return None
    said, report = _read(there[0], first)
    away = _lost(said, second, carried)
    if away is None:
        return None
    foreign, away_report = _read(away[0], second)
    home = _lost(foreign, first, carried)
    if home is None:
        return [f"{second} -> {first} is refused"]
    back, _ = _read(home[0], first)
    gone = set() if carried == "comment" else away[1] | home[1]
    before, after = to_plain(said.config), to_plain(back.config)
    explicit = [path for path, source in said.sources.items() if source.kind != "dialect_default"]
    wrong = [
        path
        for path in explicit
        if find(before, path) != find(after, path)
        and not dotted(path).startswith((*LAYOUT, *(() if carried == "comment" else CUT)))
        and not any(path[: len(place)] == place or place[: len(path)] == path for place in gone)
    ]
    if not wrong:
        return []
    same = {dotted(path) for path in wrong} - {item.key for item in differences(said, back)}
    told = set() if carried == "comment" else _told_otherwise(said, report, second)
    told |= set() if carried == "comment" else _told_otherwise(foreign, away_report, first)
    return [
        f"{dotted(path)}: {find(before, path)!r} came back as {find(after, path)!r}"
        for path in wrong
        if dotted(path) not in same | told and HANGS_ON.get(dotted(path), path) not in gone
    ]


@pytest.mark.soak
@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("section", ["batch", "data", "model", "train", "algorithm", "rollout", "checkpoint"])
@LAW
@given(data=st.data())
def test_there_and_back_keeps_what_both_can_say(first: str, second: str, section: str, data: st.DataObject) -> None:
    drawn = [(key, data.draw(values(key.info), label=key.pattern)) for key in _keys(section)]
    trips = [_round_trip(group, first, second, "none") for group in together(drawn)]
    made = [trip for trip in trips if trip is not None]
    assert (wrong := [line for trip in made for line in trip]) == [], "\n".join(wrong)
    assert len(made) > len(trips) / 2, f"{len(trips) - len(made)} of {len(trips)} configs are refused, and say nothing"


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_what_is_carried_comes_back(first: str, second: str) -> None:
    """A key that only one dialect has travels in the block at the end, and is where it was."""
    name = first.partition("@")[0]
    own = KEPT[name]
    loaded, report = _read(own, first)
    carried = {entry.key: entry.value for entry in report.accounting if entry.bucket is Bucket.CARRIED}
    assert carried, "the example has no key that is carried"
    away = translate_loaded(loaded, report, second)
    assert away.text is not None, [finding.message for finding in away.report.errors]
    home = translate_loaded(*_read(away.text, second), first)
    assert home.text is not None
    again = _read(home.text, first)[1]
    assert {entry.key: entry.value for entry in again.accounting if entry.bucket is Bucket.CARRIED} == carried


KEPT = {
    "verl": """
data: {train_files: a.parquet}
actor_rollout_ref: {model: {path: org/model}, rollout: {name: vllm, trace: {backend: weave}}}
""",
    "trinity": """
model: {model_path: org/model}
cluster: {node_num: 1, gpu_per_node: 8}
buffer: {explorer_input: {taskset: {path: a.jsonl, storage_type: file}}}
algorithm: {algorithm_type: grpo}
explorer: {rollout_model: {enable_lora: true}}
""",
    "roll": """
pretrain: org/model
save_logging_board_dir: boards
prompt_length: 512
response_length: 512
actor_train:
  device_mapping: list(range(0,8))
  strategy_args: {strategy_name: fsdp2_train}
  data_args: {file_name: a.jsonl, messages: messages}
actor_infer: {device_mapping: "list(range(0,8))", strategy_args: {strategy_name: vllm}}
rewards:
  math_rule: {worker_cls: roll.pipeline.rlvr.rewards.math_rule_reward_worker.MathRuleRewardWorker, tag_included: [math]}
""",
}
"""A small file of each dialect with a key that means nothing elsewhere."""


def test_bounds_of_a_weight_that_verl_lacks_are_lost_with_it() -> None:
    """verl reads the threshold only with a weight, so a threshold alone would not come back."""
    own = (
        KEPT["roll"] + "train_infer_correction: {is_weight: {enabled: true, weight_type: segment, upper_bound: 2.0}}\n"
    )
    loaded, _ = _read(own, "roll")
    away = _lost(loaded, "verl", "none")
    assert away is not None
    upper = ("algorithm", "rollout_correction", "importance_sampling", "threshold")
    assert upper in away[1]
    assert "rollout_is_threshold" not in away[0]
