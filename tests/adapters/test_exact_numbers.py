"""Numbers that a dialect cannot hold exactly, and numbers at the edge: what is written instead is told with both numbers."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.adapters.engine.tree import find
from rlctl.common.report import Bucket, Report
from rlctl.documents import parse_dotted, read_yaml
from rlctl.translation.translate import convert, read_document

COLOCATED = "rlctl: 1\nmodel: {path: m}\nplacement: {layout: colocated, devices_per_node: 8}\n"
APART = "rlctl: 1\nmodel: {path: m}\nplacement: {layout: split, nodes: 2, devices_per_node: 8, rollout_devices: 8}\n"
MODES = {"colocate_async": COLOCATED, "separate_async": APART}
THRESHOLD = "trainer.v1.sampler.max_off_policy_threshold"


def written(text: str, target: str) -> tuple[dict[str, Any], Report]:
    done = convert(text, target, dialect="rlctl", environment={})
    assert done.text is not None, [finding.message for finding in done.report.errors]
    return read_yaml(done.text, "out.yaml").values, done.report


def lost(report: Report, key: str, bucket: Bucket = Bucket.UNSUPPORTED) -> str:
    found = [entry for entry in report.accounting if entry.key.startswith(key) and entry.bucket is bucket]
    return "; ".join(entry.note for entry in found)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("ahead", "whole"), [(0.5, 1), (1, 1), (2.4, 2), (2.5, 3), (7, 7)])
def test_steps_ahead_of_verl_are_whole_and_the_difference_is_told(mode: str, ahead: float, whole: int) -> None:
    values, report = written(f"{MODES[mode]}weight_sync: {{max_steps_ahead: {ahead}}}\n", "verl")
    assert find(values, parse_dotted(f"trainer.v1.{mode}.num_warmup_batches")) == whole
    said = lost(report, "weight_sync.max_steps_ahead")
    assert (f"{ahead:g} became {whole}" in said) is (ahead != whole)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("staleness", [0, 1, 7, 20])
def test_the_oldest_response_is_as_old_in_verl(mode: str, staleness: int) -> None:
    """verl keeps a response of step p in step s where s - p + 1 <= threshold, and sends weights after each step."""
    values, _ = written(f"{MODES[mode]}weight_sync: {{max_steps_ahead: 1, max_staleness_steps: {staleness}}}\n", "verl")
    threshold = find(values, parse_dotted(THRESHOLD))
    assert [age for age in range(100) if age + 1 <= threshold][-1] == staleness
    back = convert(
        f"{MODES[mode]}weight_sync: {{max_steps_ahead: 1, max_staleness_steps: {staleness}}}\n",
        "verl",
        dialect="rlctl",
        environment={},
    )
    loaded, _ = read_document(read_yaml(back.text or "", "out.yaml"), dialect="verl", environment={})
    assert loaded is not None
    assert loaded.config.weight_sync.max_staleness_steps == staleness


def test_a_bound_of_staleness_that_is_not_set_drops_nothing_in_verl() -> None:
    values, _ = written(f"{COLOCATED}weight_sync: {{max_steps_ahead: 12}}\n", "verl")
    assert find(values, parse_dotted(THRESHOLD)) > 12


def test_a_threshold_that_verl_refuses_is_an_error() -> None:
    text = "trainer: {v1: {trainer_mode: colocate_async, sampler: {max_off_policy_threshold: 0}}}\n"
    _, report = read_document(read_yaml(text, "run.yaml"), dialect="verl", environment={})
    assert [error.key for error in report.errors] == [THRESHOLD]


CLIP = "rlctl: 1\nmodel: {path: m}\ntrain: {engine: ENGINE, optimizer: {max_grad_norm: null}}\n"
OPTIM = "actor_rollout_ref.actor.optim.clip_grad"


@pytest.mark.parametrize(("release", "key"), [("0.9", OPTIM), ("0.6", "actor_rollout_ref.actor.grad_clip")])
def test_no_bound_of_gradients_is_no_bound_of_0_where_verl_clips_to_it(release: str, key: str) -> None:
    values, _ = written(CLIP.replace("ENGINE", "fsdp2"), f"verl@{release}")
    assert find(values, parse_dotted(key)) > 1e6
    for_megatron, _ = written(CLIP.replace("ENGINE", "megatron"), f"verl@{release}")
    assert find(for_megatron, parse_dotted(OPTIM)) == 0


@pytest.mark.parametrize(("strategy", "refused"), [("fsdp2", True), ("megatron", False)])
def test_a_bound_of_0_leaves_nothing_of_a_gradient_but_with_megatron(strategy: str, refused: bool) -> None:
    text = f"actor_rollout_ref: {{actor: {{strategy: {strategy}, optim: {{clip_grad: 0.0}}}}}}\n"
    loaded, report = read_document(read_yaml(text, "run.yaml"), dialect="verl", environment={})
    assert [error.key for error in report.errors] == ([OPTIM] if refused else [])
    assert refused or (loaded is not None and loaded.config.train.optimizer.max_grad_norm is None)


def test_values_that_are_not_clipped_are_not_clipped_to_where_they_were() -> None:
    text = "rlctl: 1\nmodel: {path: m}\nalgorithm: {advantage: gae}\ncritic: {value_loss: {clip: CLIP}}\n"
    values, _ = written(text.replace("CLIP", "null"), "verl")
    assert find(values, ("critic", "cliprange_value")) > 1e6
    values, _ = written(text.replace("CLIP", "0.0"), "verl")
    assert find(values, ("critic", "cliprange_value")) == 0
    loaded, _ = read_document(
        read_yaml("algorithm: {adv_estimator: gae}\ncritic: {cliprange_value: 0.0}\n", "r.yaml"),
        dialect="verl",
        environment={},
    )
    assert loaded is not None
    assert loaded.config.critic is not None
    assert loaded.config.critic.value_loss.clip == 0


def test_steps_that_are_no_whole_number_in_trinity_are_told() -> None:
    text = "rlctl: 1\nmodel: {path: m}\nbatch: {ppo_epochs: 2}\ncheckpoint: {every: {optimizer_steps: 5}}\n"
    values, report = written(text, "trinity")
    assert values["trainer"]["save_interval"] == 3
    assert "2.5 became 3" in lost(report, "checkpoint.every", Bucket.APPROXIMATED)


def test_seconds_that_trinity_rounds_up_are_told() -> None:
    values, report = written("rlctl: 1\nmodel: {path: m}\nweight_sync: {timeout: 2.4}\n", "trinity")
    assert values["synchronizer"]["sync_timeout"] == 3
    assert "2.4 became 3" in lost(report, "weight_sync.timeout")
