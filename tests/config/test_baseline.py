"""A baseline stage changes no number of the stages after it, and what is known of their keys moves with them."""

from __future__ import annotations

from rlctl.common.errors import Location
from rlctl.config import Loaded, Source, combine, config_from, stages_of
from rlctl.config.baseline import with_baseline

SFT = config_from({"model": {"path": "start"}, "algorithm": {"objective": "sft"}})
RL = config_from({"model": {"path": "start"}, "data": {"eval": [{"path": "held-out.parquet"}]}})


def test_the_stages_are_those_of_before_with_one_in_front() -> None:
    config = combine([("sft", SFT), ("rl", RL)])
    before, after = stages_of(config), stages_of(with_baseline(Loaded(config)).config)
    assert [stage.name for stage in after] == ["baseline", "sft", "rl"]
    assert [stage.config for stage in after[1:]] == [stage.config for stage in before]
    assert [stage.continues for stage in after] == [False, False, True]


def test_the_baseline_answers_the_first_held_out_prompts_with_the_first_weights() -> None:
    baseline = stages_of(with_baseline(Loaded(combine([("sft", SFT), ("rl", RL)]))).config)[0].config
    assert baseline.run.mode == "evaluate_only"
    assert (baseline.model.path, baseline.data.eval) == ("start", RL.data.eval)


def test_the_baseline_answers_no_rows_that_sft_measures_its_loss_on() -> None:
    held_out = {"path": "sft.parquet", "response_key": "answer"}
    measured = config_from(
        {"model": {"path": "start"}, "algorithm": {"objective": "sft"}, "data": {"eval": [held_out]}}
    )
    baseline = stages_of(with_baseline(Loaded(combine([("sft", measured), ("rl", RL)]))).config)[0].config
    assert baseline.data.eval == RL.data.eval
    assert with_baseline(alone := Loaded(measured)) is alone


def test_a_run_without_stages_gets_two() -> None:
    after = stages_of(with_baseline(Loaded(RL)).config)
    assert [(stage.name, stage.continues) for stage in after] == [("baseline", False), ("main", False)]
    assert after[1].config == RL


def test_without_held_out_prompts_nothing_changes() -> None:
    loaded = Loaded(SFT)
    assert with_baseline(loaded) is loaded


def test_what_is_known_of_a_stages_keys_moves_with_the_stage() -> None:
    key = ("stages", 1, "tracking", 0, "api_key")
    source = Source("environment", "trainer.key", Location("rl.yaml", 3))
    loaded = Loaded(combine([("sft", SFT), ("rl", RL)]), {key: source}, {key: "${oc.env:KEY}"})
    moved = with_baseline(loaded)
    assert moved.expressions == {("stages", 2, *key[2:]): "${oc.env:KEY}"}
    assert moved.locate(("stages", 2, *key[2:])) == Location("rl.yaml", 3)
