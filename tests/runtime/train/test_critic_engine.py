"""The engine of a critic: Transformers' token classifier with one label, its values and its steps, however work is split."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForTokenClassification

from rlctl.common.errors import RunError
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.train import ValueLoss
from rlctl.runtime.train.losses import CriticLoss
from rlctl.runtime.types import Sample
from tests.runtime.train import jobs
from tests.runtime.train.jobs import ALL_AT_ONCE, FLOAT64, make_samples, settings
from tests.runtime.train.processes import Workers

SMALL = MicroBatchSize(unit="tokens", size=40)


@pytest.fixture(scope="module")
def critics(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of critics by kind, made by Transformers."""
    folders = {}
    for kind, folder in models.items():
        torch.manual_seed(1)
        model = AutoModelForTokenClassification.from_pretrained(folder, num_labels=1)
        folders[kind] = tmp_path_factory.mktemp(f"critic-{kind}")
        model.save_pretrained(folders[kind])
    return folders


def critic_samples(count: int) -> list[Sample]:
    generator = torch.Generator().manual_seed(4)
    samples = make_samples(count)
    for sample in samples:
        sample.columns["old_values"] = 0.5 * torch.randn(len(sample), generator=generator)
        sample.columns["returns"] = torch.randn(len(sample), generator=generator)
    return samples


def plain(folder: Path, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    """The critic as Transformers makes it, without dropout."""
    return AutoModelForTokenClassification.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def state_values(model: torch.nn.Module, sample: Sample) -> Tensor:
    """V before each token of a sample; 0 before the first."""
    values = model(sample.token_ids[None]).logits[0, :, 0]
    return torch.cat((values.new_zeros(1), values[:-1]))


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gpt2"])
@pytest.mark.parametrize(("attention", "micro"), [("auto", SMALL), ("sdpa", MicroBatchSize(unit="responses", size=3))])
def test_values_are_those_of_transformers(
    one: Workers, critics: dict[str, Path], kind: str, attention: str, micro: MicroBatchSize
) -> None:
    samples = make_samples(9)
    [found] = one.run(jobs.values, critics[kind], samples, micro, attention)
    model = plain(critics[kind])
    for mine, sample in zip(found, samples, strict=True):
        assert mine.dtype == torch.float32
        with torch.no_grad():
            torch.testing.assert_close(mine, state_values(model, sample) * sample.mask, rtol=1e-5, atol=1e-5)


def test_a_new_head_is_alike_on_every_worker_and_named_by_the_seed(
    one: Workers, two: Workers, models: dict[str, Path]
) -> None:
    samples = make_samples(6)
    [alone] = one.run(jobs.values, models["qwen2"], samples, ALL_AT_ONCE, "auto")
    both = two.run(jobs.values, models["qwen2"], samples, SMALL, "auto")
    for index, mine in enumerate(alone):
        torch.testing.assert_close(mine, both[index % 2][index // 2], rtol=1e-5, atol=1e-5)
    assert torch.cat(alone).abs().max() > 0


def plain_step(folder: Path, samples: list[Sample]) -> tuple[dict[str, Tensor], float]:
    """One AdamW step in float64: half the mean over tokens of the larger squared error, values clipped to 0.2."""
    model = plain(folder, torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1.0, weight_decay=0.01, foreach=False, fused=False)
    tokens = sum(int(sample.mask.sum()) for sample in samples)
    loss = torch.zeros((), dtype=torch.float64)
    for sample in samples:
        values = state_values(model, sample)
        old, returns = sample.columns["old_values"].double(), sample.columns["returns"].double()
        clipped = torch.minimum(torch.maximum(values, old - 0.2), old + 0.2)
        error = torch.maximum((values - returns) ** 2, (clipped - returns) ** 2)
        loss = loss + 0.5 * (error * sample.mask).sum() / tokens
    loss.backward()
    optimizer.step()
    return dict(model.named_parameters()), loss.item()


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
def test_a_step_is_that_of_plain_pytorch_in_float64_however_it_is_split(
    one: Workers, two: Workers, critics: dict[str, Path], kind: str
) -> None:
    """One worker and two, in one micro-batch and in several, agree to 1e-12."""
    samples = critic_samples(7)
    expected, loss = plain_step(critics[kind], samples)
    objective = CriticLoss.of(ValueLoss(clip=0.2), max_response_tokens=32)
    train = settings(FLOAT64, weight_decay=0.01, epsilon=1.0)
    runs = [(one, ALL_AT_ONCE), (two, ALL_AT_ONCE), (two, SMALL)]
    found = [
        workers.run(jobs.critic_updates, critics[kind], train, samples, objective, micro)[0] for workers, micro in runs
    ]
    whole, [metrics] = found[0]
    assert metrics["loss"] == pytest.approx(loss, rel=1e-6)
    assert 0 < metrics["clip_fraction"] < 1
    for name, value in expected.items():
        torch.testing.assert_close(whole[name], value.detach(), rtol=1e-6, atol=1e-7)
    for weights, [others] in found[1:]:
        assert others == pytest.approx(metrics, rel=1e-12)
        assert all(torch.allclose(weights[name], whole[name], rtol=0, atol=1e-12) for name in whole)


def test_a_model_without_a_token_classifier_is_refused(one: Workers, models: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "opt"}')
    with pytest.raises(RunError, match="could not be loaded"):
        one.run(jobs.values, tmp_path, make_samples(1), ALL_AT_ONCE, "auto")


def test_a_checkpoint_of_a_critic_resumes_exactly(one: Workers, critics: dict[str, Path], tmp_path: Path) -> None:
    samples = critic_samples(5)
    loss = CriticLoss.of(ValueLoss(), max_response_tokens=32)
    train = dataclasses.replace(settings(), seed=None)
    kept = one.run(jobs.train_and_save, critics["qwen2"], train, samples, loss, tmp_path / "saved", "critic")
    found = one.run(jobs.load_and_train, critics["qwen2"], train, samples, loss, tmp_path / "saved", "critic")
    for (weights, metrics), (others, their_metrics) in zip(kept, found, strict=True):
        assert metrics == their_metrics
        assert all(torch.equal(weights[name], others[name]) for name in weights)
