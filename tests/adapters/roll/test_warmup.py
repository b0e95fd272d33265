"""A warm-up by a share of the run: ROLL rounds it up, others down, and all of them warm up for as long."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.common.report import Bucket
from rlctl.config import Loaded, Source, config_from, to_file
from rlctl.documents import read_yaml
from rlctl.translation.translate import read_document, write

from .files import bucket, entry, read, roll, written

ARGUMENTS = "actor_train__training_args__"
RATIO = "actor_train.training_args.warmup_ratio"


def _arguments(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values["actor_train"]["training_args"].items() if key.startswith("warmup")}


def _again(changes: dict[str, Any], target: str) -> dict[str, Any]:
    loaded, _ = read_document(read_yaml(roll(**changes), "roll.yaml"), dialect="roll", environment={})
    assert loaded is not None
    text, _ = write(loaded, target)
    assert text is not None
    return dict(read_yaml(text, "written.yaml").values)


@pytest.mark.parametrize(
    ("ratio", "steps", "ticks"),
    [
        (0.1, 50, None),  # 10 % of 200 optimizer steps are 20 in all of them
        (0.07, 25, 8),  # of 100: as floats, 0.07 x 100 is a little more than 7, and ROLL's ceil takes it as it is
        (0.1, 157, 63),  # 62.8 of 628
        (0.001, 50, 1),  # 0.2 of 200
    ],
)
def test_a_share_is_read_as_the_steps_it_is_where_others_would_round_it_otherwise(
    ratio: float, steps: int, ticks: int | None
) -> None:
    config, report = read(max_steps=steps, **{f"{ARGUMENTS}warmup_ratio": ratio})
    schedule = config.train.lr_scheduler
    assert (schedule.warmup_steps, schedule.warmup_ratio) == (ticks, ratio if ticks is None else None)
    assert bucket(report, RATIO) is (Bucket.MAPPED if ticks is None else Bucket.DERIVED)
    assert ("ROLL rounds up" in entry(report, RATIO).note) is (ticks is not None)


def test_the_passes_over_a_step_and_the_rests_of_its_mini_batches_count() -> None:
    changes = {"max_steps": 10, "ppo_epochs": 2, f"{ARGUMENTS}gradient_accumulation_steps": 6}
    config, _ = read(**changes, **{f"{ARGUMENTS}warmup_ratio": 0.5})
    # ROLL counts 10 x 512 x 2 // (2 x 6) // 8 = 106 and takes half of them; 6 mini-batches, twice, in 10 steps are 120
    assert config.train.lr_scheduler.warmup_steps == 53


def test_steps_come_before_a_share() -> None:
    config, _ = read(max_steps=157, **{f"{ARGUMENTS}warmup_ratio": 0.1, f"{ARGUMENTS}warmup_steps": 7})
    schedule = config.train.lr_scheduler
    assert (schedule.warmup_steps, schedule.warmup_ratio) == (7, None)


def test_roll_written_again_has_the_share_that_it_had() -> None:
    changes = {"max_steps": 157, f"{ARGUMENTS}warmup_ratio": 0.1}
    assert _arguments(_again(changes, "roll")) == {"warmup_ratio": 0.1}


def test_a_share_that_no_longer_fits_is_written_as_steps() -> None:
    changes = {"max_steps": 157, f"{ARGUMENTS}warmup_ratio": 0.1}
    loaded, _ = read_document(read_yaml(roll(**changes), "roll.yaml"), dialect="roll", environment={})
    assert loaded is not None
    tree = to_file(loaded.config)
    tree["schedule"] |= {"total_steps": 500}
    text, _ = write(Loaded(config_from(tree), dict(loaded.sources)), "roll", options={"carried": "none"})
    assert text is not None
    assert _arguments(read_yaml(text, "written.yaml").values) == {"warmup_steps": 63, "warmup_ratio": 0.0}


@pytest.mark.parametrize(
    ("ratio", "steps", "expected"),
    [
        (0.1, 10, {"warmup_ratio": 0.1}),  # 4 of 40 optimizer steps in both
        (0.1, 45, {"warmup_steps": 16}),  # int(4.5) steps of 4 optimizer steps; ROLL would take 18
        (0.01, 10, {"warmup_ratio": 0.0}),  # none; ROLL would take 1
    ],
)
def test_a_share_is_written_so_that_roll_warms_up_for_as_long(ratio: float, steps: int, expected: Any) -> None:
    schedule = {"type": "cosine", "warmup_ratio": ratio, "step_unit": "step"}
    values, _ = written(train__lr_scheduler=schedule, schedule__total_steps=steps)
    assert _arguments(values) == expected


def test_a_share_of_data_of_unknown_length_is_told() -> None:
    schedule = {"type": "cosine", "warmup_ratio": 0.1}
    values, report = written(train__lr_scheduler=schedule, schedule={"total_steps": None, "total_epochs": 3})
    assert _arguments(values) == {"warmup_ratio": 0.1}
    assert "ROLL rounds up" in entry(report, "train.lr_scheduler.warmup_ratio").note


def test_a_source_of_a_share_is_its_own_key() -> None:
    loaded, _ = read_document(
        read_yaml(roll(max_steps=157, **{f"{ARGUMENTS}warmup_ratio": 0.1}), "roll.yaml"), dialect="roll", environment={}
    )
    assert loaded is not None
    source = loaded.sources[("train", "lr_scheduler", "warmup_steps")]
    assert isinstance(source, Source)
    assert source.key == RATIO
