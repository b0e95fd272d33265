"""Tokens go to the experts that an earlier pass chose, whatever the weights are by then (``algorithm.router_replay``)."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

from rlctl.common.errors import PlanError, RunError
from rlctl.config import Config
from rlctl.config.sections.algorithm import Algorithm
from rlctl.config.sections.batch import Batch, MicroBatchSize
from rlctl.config.sections.train import Fsdp2, MemorySettings, Train
from rlctl.planning.plan import make_plan
from rlctl.runtime.serialization.sequences import shares_of
from rlctl.runtime.specs.experience import old_is_current
from rlctl.runtime.train.microbatch import fed_tokens
from rlctl.runtime.types import Sample
from tests.runtime.train import replay_jobs
from tests.runtime.train.jobs import make_samples, settings
from tests.runtime.train.processes import Workers
from tests.runtime.train.replay_jobs import TEMPERATURE, Replayed

MICRO = MicroBatchSize(unit="tokens", size=40)
LAYERS = [0, 2]
"""Of the model those with experts; the second is dense."""
EXPERTS, CHOSEN = 4, 2


@contextmanager
def forced(model: PreTrainedModel, experts: Tensor) -> Iterator[None]:
    """Transformers' model with routers written out here, which go to ``experts`` [tokens, layers, k]."""
    routers = [module for module in model.modules() if isinstance(module, Qwen3MoeTopKRouter)]
    assert len(routers) == experts.shape[1]
    for place, router in enumerate(routers):

        def forward(hidden: Tensor, own: Any = router, chosen: Tensor = experts[:, place].long()) -> Any:
            logits = F.linear(hidden, own.weight)
            likely = logits.softmax(-1).gather(1, chosen)
            return logits, likely / likely.sum(-1, keepdim=True), chosen

        router.forward = forward
    try:
        yield
    finally:
        for router in routers:
            del router.forward


def by_hand(model: PreTrainedModel, samples: Sequence[Sample]) -> list[Tensor]:
    """Log-probs of the counted tokens, one sample after the other, at the samples' experts."""
    found = []
    for sample in samples:
        [width] = fed_tokens([sample])
        with forced(model, sample.routed_experts[:width]):
            logits = model(sample.token_ids[None, :width]).logits[0] / TEMPERATURE
        drawn = logits.log_softmax(-1).gather(1, sample.token_ids[1 : width + 1, None])[:, 0]
        found.append(F.pad(drawn, (1, len(sample) - width - 1)) * sample.mask)
    return found


def close(found: Sequence[Tensor], expected: Sequence[Tensor], **within: float) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, **{"rtol": 1e-4, "atol": 2e-5} | within)


def far(found: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return max(float((ours - theirs).abs().max()) for ours, theirs in zip(found, other, strict=True))


def drawn_samples(count: int = 7) -> list[Sample]:
    """Samples with random experts, other ones for every token."""
    generator = torch.Generator().manual_seed(5)
    samples = make_samples(count)
    for sample in samples:
        order = torch.rand(len(sample), len(LAYERS), EXPERTS, generator=generator).argsort(-1)
        sample.routed_experts = order[..., :CHOSEN].to(torch.uint8)
    return samples


def memory(train: Train, **changes: Any) -> Train:
    return dataclasses.replace(train, memory=dataclasses.replace(train.memory, **changes))


@pytest.mark.parametrize(
    ("attention", "kept"), [("auto", MemorySettings(recompute_activations=False)), ("sdpa", MemorySettings())]
)
def test_tokens_go_to_the_experts_that_are_given_in_every_layout(
    one: Workers, models: dict[str, Path], attention: str, kept: MemorySettings
) -> None:
    """Laid end to end and padded, against Transformers' model with routers written out here, sample by sample."""
    samples, train = drawn_samples(), dataclasses.replace(settings(), memory=kept)
    with torch.no_grad():
        expected = by_hand(AutoModelForCausalLM.from_pretrained(models["qwen3_moe"]), samples)
    [found] = one.run(replay_jobs.given, models["qwen3_moe"], train, samples, MICRO, {"attention": attention})
    close(found, expected)


def recorded(workers: Workers, folder: Path, train: Train, target: Path) -> list[Replayed]:
    """What all workers have; the learning rate is so high that the weights choose other experts after one step."""
    found: list[Replayed] = workers.run(replay_jobs.record_and_replay, folder, train, make_samples(9), MICRO, target)
    return found


@pytest.mark.parametrize("recompute", [False, True])
def test_an_update_goes_to_the_experts_of_the_pass_before_whatever_the_weights_are(
    one: Workers, models: dict[str, Path], tmp_path: Path, recompute: bool
) -> None:
    """The same log-probs, bit for bit, while the weights are the same; the experts of then when they are others."""
    train = memory(settings(lr=0.05), recompute_activations=recompute)
    [found] = recorded(one, models["qwen3_moe"], train, tmp_path)
    close(found.replayed, found.recorded, rtol=0, atol=0)
    samples = make_samples(9)
    for sample, experts in zip(samples, found.experts, strict=True):
        sample.routed_experts = experts

    model = AutoModelForCausalLM.from_pretrained(models["qwen3_moe"])
    with torch.no_grad():
        for sample, experts in zip(samples, found.experts, strict=True):
            [width] = fed_tokens([sample])
            scores = model(sample.token_ids[None, :width], output_router_logits=True).router_logits
            chosen = torch.stack([each.topk(CHOSEN).indices for each in scores], 1)
            assert (chosen.sort(-1).values == experts.long().sort(-1).values).all(), "as Transformers chooses them"

    (-sum(each.sum() for each in by_hand(model, samples))).backward()
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert found.metrics["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)

    with torch.no_grad():
        close(found.after, by_hand(AutoModelForCausalLM.from_pretrained(tmp_path), samples), atol=1e-4)
    assert far(found.after, found.own) > 0.1, "the changed weights choose other experts"


def test_workers_that_share_sequences_record_and_replay_them_whole(
    one: Workers, two: Workers, models: dict[str, Path], tmp_path: Path
) -> None:
    """Ulysses over two workers, against one."""
    train = settings(lr=0.05)
    [alone] = recorded(one, models["qwen3_moe"], train, tmp_path / "alone")
    shared = dataclasses.replace(train, engine=Fsdp2(ulysses_sequence_parallel_size=2))
    for each in recorded(two, models["qwen3_moe"], shared, tmp_path / "two"):
        assert all((a == b).all() for a, b in zip(each.experts, alone.experts, strict=True))
        close(each.replayed, alone.replayed)
        assert each.metrics["grad_norm"] == pytest.approx(alone.metrics["grad_norm"], rel=1e-4)
        close(each.after, alone.after, atol=1e-3)


def test_a_sample_whose_experts_are_not_known_is_refused(one: Workers, models: dict[str, Path]) -> None:
    with pytest.raises(RunError, match="a sample has recorded experts for 0 tokens"):
        one.run(replay_jobs.given, models["qwen3_moe"], settings(), make_samples(2), MICRO)


def test_a_model_without_experts_is_refused(one: Workers, models: dict[str, Path]) -> None:
    with pytest.raises(PlanError, match="this is a qwen2 model"):
        one.run(replay_jobs.given, models["qwen2"], settings(), make_samples(2), MICRO)


@pytest.mark.parametrize("mode", ["off", "recompute"])
def test_the_updates_of_a_step_go_to_the_experts_of_the_pass_for_the_old_log_probs(
    one: Workers, models: dict[str, Path], mode: Any
) -> None:
    """Two epochs of two mini-batches, by the controller's own roles."""
    config = Config(
        algorithm=Algorithm(router_replay=mode),
        batch=Batch(mini_batch_responses=4, ppo_epochs=2, micro_batch=MicroBatchSize(size=1000)),
        train=settings(lr=0.05),
    )
    samples, went, metrics = one.run(replay_jobs.step, config, models["qwen3_moe"], make_samples(8))[0]
    if mode == "off":
        assert not went
        assert all(sample.routed_experts is None for sample in samples)
        return
    assert len(went) == 4, "one micro-batch each"
    known = {tuple(row.flatten().tolist()) for sample in samples for row in sample.routed_experts}
    for first, again in ((went[0], went[2]), (went[1], went[3])):
        assert torch.equal(first, again), "the weights have changed, the experts have not"
    assert len(torch.cat(went[:2])) == sum(fed_tokens(samples))
    assert {tuple(row.flatten().tolist()) for row in torch.cat(went)} == known
    assert metrics["policy/grad_norm"] > 0


def test_one_update_a_step_has_a_pass_before_it_that_records() -> None:
    batch = Batch(prompts_per_step=2, responses_per_prompt=2, mini_batch_responses=4)
    for mode, left_out in (("off", True), ("recompute", False)):
        config = Config(algorithm=Algorithm(router_replay=mode), batch=batch)
        assert old_is_current(config, make_plan(config).stages[0]) is left_out


def test_experts_cross_to_workers_with_their_samples() -> None:
    samples = drawn_samples(4)
    samples[1].routed_experts = None
    samples[2].routed_experts = samples[2].routed_experts.to(torch.int16) + 300
    for share, members in zip(shares_of(samples, [[0, 2], [3, 1]]), [[0, 2], [3, 1]], strict=True):
        for got, sent in zip(pickle.loads(pickle.dumps(share, 5)), [samples[index] for index in members], strict=True):
            if sent.routed_experts is None:
                assert got.routed_experts is None
            else:
                assert got.routed_experts.dtype == sent.routed_experts.dtype
                assert torch.equal(got.routed_experts, sent.routed_experts)
