"""The engine computes what Transformers and plain PyTorch compute, however the work is split."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from rlctl.common.errors import PlanError, RunError
from rlctl.config.sections.algorithm import (
    Aggregation,
    Algorithm,
    Gspo,
    ImportanceSampling,
    KlInLoss,
    OtherLoss,
    PpoClip,
    RolloutCorrection,
    Sapo,
    Topr,
)
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.train import Fsdp2, FusedKernels
from rlctl.runtime.train.interface import Role
from rlctl.runtime.train.losses import PolicyLoss, SftLoss, Weights
from rlctl.runtime.train.scaling import GROWTH_UPDATES, START, LossScale
from rlctl.runtime.types import Sample
from tests.runtime.train import compiled_jobs, jobs
from tests.runtime.train.jobs import ALL_AT_ONCE, FLOAT32, FLOAT64, make_samples, settings
from tests.runtime.train.processes import Workers

KINDS = ["qwen2", "llama", "gpt2"]
POLICY_LOSS = PolicyLoss.of(
    Algorithm(kl_in_loss=KlInLoss(estimator="k3", coefficient=0.1), entropy_coefficient=0.01), max_response_tokens=32
)


def loss_of(**algorithm: Any) -> PolicyLoss:
    return PolicyLoss.of(Algorithm(**algorithm), max_response_tokens=32)


AGGREGATED = {
    mode: loss_of(
        loss_aggregation=Aggregation(mode=mode),
        policy_loss=loss,
        kl_in_loss=KlInLoss(estimator="k3_corrected", coefficient=0.1),
        entropy_coefficient=0.01,
        rollout_correction=RolloutCorrection(importance_sampling=ImportanceSampling(level="sequence")),
    )
    for mode, loss in (
        ("token_mean", PpoClip()),
        ("token_sum", Topr()),
        ("seq_mean_token_sum", Sapo()),
        ("seq_mean_token_mean", Gspo()),
        ("seq_mean_token_sum_norm", OtherLoss(kind="geo_mean")),
    )
}
"""Every mode, each with another loss, on samples with weights of their own."""


def expected_log_probs(folder: Path, samples: list[Sample], temperature: float) -> list[Tensor]:
    """One forward pass a sample, by Transformers, without any of our layout."""
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    results = []
    for sample in samples:
        with torch.no_grad():
            logits = model(sample.token_ids[None]).logits[0] / temperature
        drawn = logits[:-1].log_softmax(-1).gather(-1, sample.token_ids[1:, None]).squeeze(-1)
        results.append(torch.cat((torch.zeros(1), drawn)) * sample.mask)
    return results


def in_order(parts: list[list[Tensor]], count: int) -> list[Tensor]:
    """Undo ``jobs.share``."""
    return [parts[index % len(parts)][index // len(parts)] for index in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("attention", "micro"),
    [
        ("auto", ALL_AT_ONCE),
        ("auto", MicroBatchSize(unit="tokens", size=40)),
        ("sdpa", MicroBatchSize(unit="responses", size=3)),
    ],
)
def test_log_probs_are_those_of_transformers(
    one: Workers, models: dict[str, Path], kind: str, attention: str, micro: MicroBatchSize
) -> None:
    samples = make_samples(9)
    [found] = one.run(jobs.log_probs, models[kind], samples, micro, 0.7, attention)
    for mine, theirs in zip(found, expected_log_probs(models[kind], samples, 0.7), strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_log_probs_do_not_depend_on_the_number_of_workers(one: Workers, two: Workers, models: dict[str, Path]) -> None:
    samples = make_samples(7)
    [alone] = one.run(jobs.log_probs, models["qwen2"], samples, ALL_AT_ONCE, 1.0, "auto")
    both = two.run(jobs.log_probs, models["qwen2"], samples, MicroBatchSize(unit="responses", size=2), 1.0, "auto")
    for mine, theirs in zip(alone, in_order(both, len(samples)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kind", "padded"), [("qwen2", False), ("gpt2", True)])
def test_statistics_are_those_of_transformers_logits(
    one: Workers, models: dict[str, Path], kind: str, padded: bool
) -> None:
    samples, micro = make_samples(7), MicroBatchSize(unit="tokens", size=60)
    model = AutoModelForCausalLM.from_pretrained(models[kind], attn_implementation="eager")
    [found] = one.run(jobs.statistics, models[kind], samples, micro, 0.7, not padded)
    for index, sample in enumerate(samples):
        with torch.no_grad():
            p = (model(sample.token_ids[None]).logits[0, :-1].double() / 0.7).softmax(-1)
        entropy = -(p * p.log()).sum(-1)
        expected = {
            "log_probs": p.gather(-1, sample.token_ids[1:, None]).squeeze(-1).log(),
            "entropy": entropy,
            "squared_probabilities": (p**2).sum(-1),
            "expected_signal": (p**2 * (entropy[:, None] + p.log())).sum(-1),
        }
        assert found.keys() == expected.keys()
        for name, theirs in expected.items():
            whole = torch.cat((torch.zeros(1), theirs.float())) * sample.mask
            torch.testing.assert_close(found[name][index], whole, rtol=1e-5, atol=1e-5)


def plain_step(folder: Path, samples: list[Sample], *, clip: float | None) -> tuple[dict[str, Tensor], float, float]:
    """One AdamW step on the whole batch at once in float64, every formula written out.

    Loss: PPO with clip 0.2 and dual clip 3, + 0.1 * k3 to the reference, - 0.01 * entropy, token mean.
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01, foreach=False, fused=False)
    tokens = sum(int(sample.mask.sum()) for sample in samples)
    loss = torch.zeros((), dtype=torch.float64)
    for sample in samples:
        log_p = model(sample.token_ids[None]).logits[0, :-1].log_softmax(-1)
        drawn = log_p.gather(-1, sample.token_ids[1:, None]).squeeze(-1)
        advantage, old, reference = (
            sample.columns[name][1:].double() for name in ("advantages", "old_log_probs", "reference_log_probs")
        )
        ratio = (drawn - old).exp()
        worst = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2))
        policy = torch.where(advantage < 0, torch.minimum(worst, -advantage * 3.0), worst)
        kl = (reference - drawn).exp() - (reference - drawn) - 1
        entropy = -(log_p.exp() * log_p).sum(-1)
        loss = loss + ((policy + 0.1 * kl.clamp(max=10) - 0.01 * entropy) * sample.mask[1:]).sum() / tokens
    loss.backward()  # type: ignore[no-untyped-call]
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip or float("inf"))
    optimizer.step()
    return {name: parameter.detach() for name, parameter in model.named_parameters()}, loss.item(), norm.item()


@pytest.mark.parametrize("workers", ["one", "two"])
@pytest.mark.parametrize("clip", [None, 0.05])
def test_an_update_is_a_plain_adamw_step_in_float64(
    workers: str, clip: float | None, models: dict[str, Path], request: pytest.FixtureRequest
) -> None:
    samples = make_samples(9)
    group: Workers = request.getfixturevalue(workers)
    train = settings(FLOAT64, max_grad_norm=clip)
    (weights, metrics), *_ = group.run(
        jobs.updates, models["gpt2"], train, samples, POLICY_LOSS, MicroBatchSize(unit="tokens", size=50)
    )
    expected, loss, norm = plain_step(models["gpt2"], samples, clip=clip)
    assert metrics[0]["loss"] == pytest.approx(loss, rel=1e-6)  # the columns are float32
    assert metrics[0]["grad_norm"] == pytest.approx(norm, rel=1e-6)
    assert clip is None or norm > clip
    assert weights.keys() == expected.keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-10, atol=1e-6)


@pytest.mark.parametrize("loss", [*AGGREGATED.values(), SftLoss()], ids=[*AGGREGATED, "sft"])
def test_splits_do_not_change_an_update_in_float64(
    one: Workers, two: Workers, models: dict[str, Path], loss: PolicyLoss
) -> None:
    """Neither micro-batches nor workers do, to 1e-12. Epsilon 1: AdamW divides no gradient by its own rounding."""
    samples, train = make_samples(9), settings(FLOAT64, epsilon=1.0)
    samples[4].counted = False
    [(whole, metrics)] = one.run(jobs.updates, models["gpt2"], train, samples, loss, ALL_AT_ONCE)
    assert metrics[0]["grad_norm"] > 1e-3
    for group, micro in (
        (one, MicroBatchSize(unit="responses", size=2)),
        (two, ALL_AT_ONCE),
        (two, MicroBatchSize(unit="tokens", size=30)),
    ):
        (parts, found), *_ = group.run(jobs.updates, models["gpt2"], train, samples, loss, micro)
        assert found[0] == pytest.approx(metrics[0], rel=1e-12, abs=1e-12)
        for name, tensor in parts.items():
            torch.testing.assert_close(tensor, whole[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", ["token_mean", "seq_mean_token_mean"])
def test_splits_change_a_loss_in_float32_by_1e_5_at_most(
    one: Workers, two: Workers, models: dict[str, Path], mode: str
) -> None:
    samples, train = make_samples(9), settings(FLOAT32, epsilon=1.0)
    [(whole, metrics)] = one.run(jobs.updates, models["gpt2"], train, samples, AGGREGATED[mode], ALL_AT_ONCE)
    (parts, found), _ = two.run(jobs.updates, models["gpt2"], train, samples, AGGREGATED[mode], MicroBatchSize(size=30))
    for name in ("loss", "policy_loss", "grad_norm"):
        assert found[0][name] == pytest.approx(metrics[0][name], rel=1e-5, abs=1e-5)
    for name, tensor in parts.items():
        torch.testing.assert_close(tensor, whole[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_splits_change_float32_by_rounding_only(one: Workers, two: Workers, models: dict[str, Path], kind: str) -> None:
    """AdamW divides a gradient by its own size, so weights with almost no gradient show rounding most: SGD-like epsilon."""
    samples, train = make_samples(9), settings(FLOAT32, epsilon=1e-2)
    [(whole, metrics)] = one.run(jobs.updates, models[kind], train, samples, POLICY_LOSS, ALL_AT_ONCE)
    (parts, found), other = two.run(jobs.updates, models[kind], train, samples, POLICY_LOSS, MicroBatchSize(size=30))
    assert found[0] == pytest.approx(metrics[0], rel=1e-4)
    assert other[1] == found
    for name, tensor in parts.items():
        torch.testing.assert_close(tensor, whole[name], rtol=1e-5, atol=2e-6)


def test_recomputing_activations_and_attention_do_not_change_an_update(one: Workers, models: dict[str, Path]) -> None:
    samples, train = make_samples(9), settings(FLOAT64)
    padded = dataclasses.replace(train, packing=False)
    results = [
        one.run(jobs.updates, models["gpt2"], each, samples, SftLoss(), ALL_AT_ONCE, 1, attention)[0][0]
        for each, attention in (
            *((train, "auto"), (jobs.with_memory(train), "auto"), (train, "sdpa"), (train, "eager")),
            (padded, "auto"),
        )
    ]
    for other in results[1:]:
        for name, tensor in other.items():
            torch.testing.assert_close(tensor, results[0][name], rtol=0, atol=1e-10)


def test_prompts_that_are_computed_once_do_not_change_an_update(one: Workers, models: dict[str, Path]) -> None:
    samples, train = make_samples(9), settings(FLOAT64, epsilon=1.0)
    for first, second in ((0, 3), (0, 4), (5, 6)):  # of one prompt, and different from there on
        length = int(samples[first].mask.int().argmax())
        samples[second].token_ids[:length] = samples[first].token_ids[:length]
        samples[second].mask[: length + 1] = torch.arange(length + 1) == length
    shared = dataclasses.replace(train, fused_kernels=FusedKernels(prefix_grouping=True))
    for kind, tolerance in (("gpt2", 1e-12), ("llama", 1e-8)):  # whose norms and angles are float32 in any case
        [(whole, metrics)] = one.run(jobs.updates, models[kind], train, samples, POLICY_LOSS, ALL_AT_ONCE)
        for micro in (ALL_AT_ONCE, MicroBatchSize(unit="responses", size=3)):
            [(parts, found)] = one.run(jobs.updates, models[kind], shared, samples, POLICY_LOSS, micro)
            assert found[0] == pytest.approx(metrics[0], rel=10 * tolerance, abs=tolerance)
            for name, tensor in parts.items():
                torch.testing.assert_close(tensor, whole[name], rtol=0, atol=tolerance)


def test_padded_rows_give_the_log_probs_of_packed_ones(one: Workers, models: dict[str, Path]) -> None:
    samples = make_samples(9)
    packed, padded = (
        one.run(jobs.log_probs, models["llama"], samples, ALL_AT_ONCE, 1.0, "auto", packing)
        for packing in (True, False)
    )
    for mine, theirs in zip(padded[0], packed[0], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_the_same_run_gives_the_same_bits(two: Workers, models: dict[str, Path]) -> None:
    samples = make_samples(9)
    first, again = (
        two.run(jobs.updates, models["qwen2"], settings(), samples, POLICY_LOSS, ALL_AT_ONCE, 2)[0] for _ in range(2)
    )
    assert first[1] == again[1]
    assert all(torch.equal(tensor, again[0][name]) for name, tensor in first[0].items())


def test_sft_loss_is_that_of_transformers(two: Workers, models: dict[str, Path]) -> None:
    samples = make_samples(6)
    labels = [sample.token_ids.where(sample.mask, -100) for sample in samples]
    padded = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100)
    ids = torch.nn.utils.rnn.pad_sequence([sample.token_ids for sample in samples], batch_first=True)
    expected = AutoModelForCausalLM.from_pretrained(models["llama"])(input_ids=ids, labels=padded).loss
    (_, metrics), _ = two.run(jobs.updates, models["llama"], settings(), samples, SftLoss(), ALL_AT_ONCE)
    assert metrics[0]["loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_a_gradient_that_is_not_finite_leaves_the_weights_alone(two: Workers, models: dict[str, Path]) -> None:
    samples = make_samples(4)
    samples[1].columns["advantages"][-1] = float("nan")
    (weights, metrics), _ = two.run(jobs.updates, models["qwen2"], settings(), samples, POLICY_LOSS, ALL_AT_ONCE)
    start = AutoModelForCausalLM.from_pretrained(models["qwen2"]).state_dict()
    assert metrics[0]["skipped_updates"] == 1.0
    assert all(torch.equal(tensor, start[name]) for name, tensor in weights.items())


def test_compute_in_bfloat16_nears_float32(two: Workers, models: dict[str, Path]) -> None:
    samples = make_samples(9)
    mixed = settings(dataclasses.replace(FLOAT32, compute="bfloat16"))
    (weights, low), _ = two.run(jobs.updates, models["qwen2"], mixed, samples, SftLoss(), ALL_AT_ONCE)
    (_, full), _ = two.run(jobs.updates, models["qwen2"], settings(), samples, SftLoss(), ALL_AT_ONCE)
    assert low[0]["loss"] != full[0]["loss"]
    assert low[0]["loss"] == pytest.approx(full[0]["loss"], rel=1e-2)
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}


def test_gradients_of_a_large_mini_batch_survive_float16(two: Workers, models: dict[str, Path]) -> None:
    """Tokens weigh 1e-8 or less: in float16 what flows back would be 0 but for the scaling of the loss."""
    samples, rare = make_samples(9), SftLoss(Weights("seq_mean_token_sum_norm", 1e8))
    start = AutoModelForCausalLM.from_pretrained(models["qwen2"]).state_dict()
    moved = {}
    for compute in ("float16", "float32"):
        train = settings(dataclasses.replace(FLOAT32, compute=compute), type="sgd", lr=1e7, weight_decay=0.0)
        (weights, metrics), _ = two.run(jobs.updates, models["qwen2"], train, samples, rare, ALL_AT_ONCE)
        moved[compute] = torch.cat([(weights[name] - start[name]).flatten().double() for name in sorted(weights)])
        moved[f"norm {compute}"] = metrics[0]["grad_norm"]
    assert moved["float16"].norm() == pytest.approx(moved["float32"].norm(), rel=1e-2)
    assert torch.cosine_similarity(moved["float16"], moved["float32"], dim=0) > 0.999
    assert moved["norm float16"] == pytest.approx(moved["norm float32"], rel=1e-2)


def test_a_loss_is_scaled_by_less_after_an_overflow_and_by_more_after_a_long_time() -> None:
    scale = LossScale()
    scale.updated(finite=False)
    assert scale == LossScale(START / 2)
    for _ in range(GROWTH_UPDATES):
        scale.updated(finite=True)
    assert scale == LossScale(START)
    for _ in range(99):
        scale.updated(finite=False)
    assert scale == LossScale(1.0), "a loss that is not finite is no overflow for ever"


@pytest.mark.parametrize(
    "engine",
    [Fsdp2(fsdp_size=1), Fsdp2(reshard_after_forward=False), Fsdp2(forward_prefetch=True),
     Fsdp2(wrap_min_parameters=5000), Fsdp2(wrap_layers=("Qwen2MLP",)), Fsdp2(cpu_offload_policy=False)],
    ids=["copies", "kept", "prefetch", "by_size", "by_class", "plain"],
)  # fmt: skip
def test_how_weights_are_spread_does_not_change_an_update(two: Workers, models: dict[str, Path], engine: Fsdp2) -> None:
    samples, train = make_samples(6), settings(epsilon=1e-2)
    (plain, _), _ = two.run(jobs.updates, models["qwen2"], train, samples, SftLoss(), ALL_AT_ONCE)
    other = dataclasses.replace(train, engine=engine)
    (spread, _), _ = two.run(jobs.updates, models["qwen2"], other, samples, SftLoss(), ALL_AT_ONCE)
    for name, tensor in spread.items():
        torch.testing.assert_close(tensor, plain[name], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (Fsdp2(fsdp_size=3), "fsdp_size is 3 and there are 2"),
        (Fsdp2(ulysses_sequence_parallel_size=3), "ulysses_sequence_parallel_size is 3"),
        (Fsdp2(wrap_layers=("Qwen3MLP",)), "wrap_layers names Qwen3MLP"),
    ],
)
def test_engines_that_cannot_be_set_up_are_refused(
    two: Workers, models: dict[str, Path], engine: Fsdp2, message: str
) -> None:
    train = dataclasses.replace(settings(), engine=engine)
    with pytest.raises(PlanError, match=message):
        two.run(jobs.updates, models["qwen2"], train, make_samples(3), SftLoss(), ALL_AT_ONCE)


def test_a_model_that_is_not_there_is_a_run_error(one: Workers, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="could not be loaded"):
        one.run(jobs.log_probs, tmp_path / "none", make_samples(3), ALL_AT_ONCE, 1.0, "auto")


def test_a_missing_column_is_named(one: Workers, models: dict[str, Path]) -> None:
    samples = make_samples(3)
    del samples[0].columns["old_log_probs"]
    with pytest.raises(RunError, match="old_log_probs"):
        one.run(jobs.updates, models["qwen2"], settings(), samples, POLICY_LOSS, ALL_AT_ONCE)


def test_embedding_and_head_are_gathered_once_a_micro_batch(two: Workers, models: dict[str, Path]) -> None:
    for counts, _, spread in two.run(jobs.collectives, models["llama"], settings(), make_samples(6), ALL_AT_ONCE):
        assert counts["_allgather_base_"] == 2 * 2 + 1, "each layer forward and backward, the rest once"
        assert spread, "a pass without gradient leaves nothing gathered"


def test_copies_of_a_model_add_their_gradients_up_once_a_mini_batch(two: Workers, models: dict[str, Path]) -> None:
    train = dataclasses.replace(settings(epsilon=1e-2), engine=Fsdp2(fsdp_size=1))
    one_each = MicroBatchSize(unit="responses", size=1)
    found = two.run(jobs.collectives, models["llama"], train, make_samples(6), one_each)
    together = two.run(jobs.collectives, models["llama"], train, make_samples(6), ALL_AT_ONCE)
    for (three, _, _), (once, _, _) in zip(found, together, strict=True):
        assert three["allreduce_"] == once["allreduce_"], "as often with three micro-batches as with one"
    expected = together[0][1]
    for name, tensor in found[0][1].items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "role", "by_parts"),
    [
        ("llama", "policy", True),
        ("qwen2", "policy", True),
        ("gpt2", "policy", True),
        ("llama", "critic", True),
        ("llama", "reference", True),
        ("qwen3_moe", "policy", False),
    ],
)
def test_a_worker_that_reads_its_own_part_has_what_it_would_have_of_the_whole(
    two: Workers, models: dict[str, Path], kind: str, role: Role, by_parts: bool
) -> None:
    """Experts lie in the files one by one, and stacked in the model: such a model is loaded whole."""
    apart = two.run(jobs.loaded, models[kind], role, True)
    whole = two.run(jobs.loaded, models[kind], role, False)
    for (weights, buffers, made, settled), (others, other_buffers, _, other_settled) in zip(apart, whole, strict=True):
        assert made == int(by_parts)
        assert settled == other_settled
        for mine, theirs in ((weights, others), (buffers, other_buffers)):
            assert mine.keys() == theirs.keys()
            for name, tensor in mine.items():
                assert torch.equal(tensor, theirs[name]), name


def test_weights_for_rollout_are_cast_before_they_are_gathered(two: Workers, models: dict[str, Path]) -> None:
    wide = two.run(jobs.exported, models["qwen2"], None)
    narrow = two.run(jobs.exported, models["qwen2"], torch.bfloat16)
    for (weights, sent), (others, half) in zip(wide, narrow, strict=True):
        assert sent == 2 * half > 0
        assert weights.keys() == others.keys()
        assert all(torch.equal(tensor.bfloat16(), others[name]) for name, tensor in weights.items())
    assert {tensor.dtype for tensor in narrow[0][0].values()} == {torch.bfloat16}


def test_compiled_layers_compute_the_same_by_one_code_for_all(models: dict[str, Path], one: Workers) -> None:
    """One code with and one without gradient, and one each for a length that is a special case; none for each layer."""
    samples = jobs.make_samples(8)
    [(expected, told, codes, _)] = one.run(compiled_jobs.trained, models["qwen2"], samples, False)
    assert codes == 0
    [(found, same, codes, breaks)] = one.run(compiled_jobs.trained, models["qwen2"], samples, True)
    assert breaks == 0
    assert 1 <= codes <= 4
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(same, told, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
