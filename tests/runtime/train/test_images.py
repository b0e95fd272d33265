"""Samples with images: the engine computes what Transformers computes of what a processor made, however it is laid out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForImageTextToText

from rlctl.config.sections.batch import MicroBatchSize
from rlctl.runtime.train.losses import SftLoss
from rlctl.runtime.types import Sample
from tests.runtime.images import KINDS, SPECIAL, make_vision_model
from tests.runtime.train import jobs
from tests.runtime.train.jobs import ALL_AT_ONCE, FLOAT64, settings
from tests.runtime.train.processes import Workers

START, END, IMAGE = (SPECIAL.index(f"<|{name}|>") for name in ("vision_start", "vision_end", "image_pad"))
GRIDS: tuple[tuple[tuple[int, int], ...], ...] = (((4, 6),), (), ((2, 2), (8, 4)), ((6, 2),), (), ((4, 4),), ((2, 4),))
"""Patches, up and across, of the images of each sample."""


def make_samples(count: int = len(GRIDS)) -> list[Sample]:
    """Prompts with none, one or two images, and responses; one of them counts nothing."""
    generator = torch.Generator().manual_seed(3)
    samples = []
    for index, grids in enumerate(GRIDS[:count]):
        prompt = [9, 12]
        for high, wide in grids:
            prompt += [START, *[IMAGE] * (high * wide // 4), END, 10 + index]
        response = torch.randint(len(SPECIAL), 40, (5 + index,), generator=generator).tolist()
        mask = torch.arange(len(prompt) + len(response)) >= len(prompt)
        if index == 5:
            mask[:] = False
        inputs = {}
        if grids:
            patches = sum(high * wide for high, wide in grids)
            inputs = {
                "pixel_values": torch.randn(patches, 3 * 2 * 4 * 4, generator=generator),
                "image_grid_thw": torch.tensor([(1, high, wide) for high, wide in grids]),
            }
        columns = {
            name: scale * torch.randn(len(mask), generator=generator) - shift
            for name, scale, shift in (("advantages", 1, 0), ("old_log_probs", 0.3, 4), ("rollout_log_probs", 0.3, 4))
        }
        samples.append(Sample(torch.tensor(prompt + response), mask, columns, inputs=inputs))
    return samples


def sample_like(prompt: Sequence[int], response: Sequence[int], inputs: Mapping[str, Tensor]) -> Sample:
    """A prompt and a response to train on."""
    ids = torch.tensor([*prompt, *response])
    return Sample(ids, torch.arange(len(ids)) >= len(prompt), inputs=inputs)


@pytest.fixture(scope="module")
def vision_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: make_vision_model(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def drawn(model: torch.nn.Module, sample: Sample) -> Tensor:
    """Log-probs of the tokens after the first, by Transformers alone, which works out the positions itself."""
    ids = sample.token_ids[None]
    types = {"mm_token_type_ids": (ids == IMAGE).int()} if sample.inputs else {}
    inputs = {
        name: each.to(next(model.parameters()).dtype) if each.is_floating_point() else each
        for name, each in sample.inputs.items()
    }
    logits = model(input_ids=ids, **inputs, **types).logits[0]
    return logits[:-1].log_softmax(-1).gather(-1, sample.token_ids[1:, None]).squeeze(-1)


def expected_log_probs(folder: Path, samples: Sequence[Sample]) -> list[Tensor]:
    model = AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager")
    with torch.no_grad():
        return [torch.cat((torch.zeros(1), drawn(model, each))) * each.mask for each in samples]


LAYOUTS = [
    ("qwen2_vl", "auto", ALL_AT_ONCE),
    ("qwen2_vl", "sdpa", MicroBatchSize(unit="responses", size=3)),
    ("qwen2_5_vl", "auto", MicroBatchSize(unit="tokens", size=40)),
    ("qwen3_vl", "auto", MicroBatchSize(unit="tokens", size=40)),
]


@pytest.mark.parametrize(("kind", "attention", "micro"), LAYOUTS)
def test_log_probs_are_those_of_transformers(
    one: Workers, vision_models: dict[str, Path], kind: str, attention: str, micro: MicroBatchSize
) -> None:
    samples = make_samples()
    [found] = one.run(jobs.log_probs, vision_models[kind], samples, micro, 1.0, attention)
    for mine, theirs in zip(found, expected_log_probs(vision_models[kind], samples), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    assert (found[0] - blind_log_probs(vision_models[kind], samples[0])).abs().max() > 1e-2, "the image changes nothing"


def blind_log_probs(folder: Path, sample: Sample) -> Tensor:
    grey = {**sample.inputs, "pixel_values": 0 * sample.inputs["pixel_values"]}
    return expected_log_probs(folder, [Sample(sample.token_ids, sample.mask, inputs=grey)])[0]


def plain_step(folder: Path, samples: Sequence[Sample]) -> tuple[dict[str, Tensor], float]:
    """One AdamW step on the likelihood of all counted tokens, by Transformers alone in float64; weights and gradient norm."""
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-2, weight_decay=0.01, foreach=False, fused=False)
    tokens = sum(int(sample.mask.sum()) for sample in samples)
    loss = -sum(((drawn(model, sample) * sample.mask[1:]).sum() for sample in samples), torch.zeros(())) / tokens
    loss.backward()  # type: ignore[no-untyped-call]
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    optimizer.step()
    return {name: parameter.detach() for name, parameter in model.named_parameters()}, norm.item()


@pytest.mark.parametrize("kind", ["qwen2_vl", pytest.param("qwen3_vl", marks=pytest.mark.soak)])
def test_an_update_is_a_plain_adamw_step_though_not_all_workers_have_images(
    two: Workers, vision_models: dict[str, Path], kind: str
) -> None:
    samples = make_samples()
    expected, norm = plain_step(vision_models[kind], samples)
    micro = MicroBatchSize(unit="responses", size=1)
    found = two.run(jobs.updates, vision_models[kind], settings(FLOAT64, epsilon=1e-2), samples, SftLoss(), micro)
    weights, metrics = found[0]
    assert metrics[0]["grad_norm"] == pytest.approx(norm, rel=1e-6)
    assert weights.keys() == expected.keys() - {"lm_head.weight"} | (weights.keys() & {"lm_head.weight"})
    for name, mine in weights.items():
        torch.testing.assert_close(mine, expected[name], rtol=1e-5, atol=1e-5)  # rotary positions are float32


def test_frozen_vision_towers_stay_as_they_are_and_exports_hold_the_processor(
    one: Workers, vision_models: dict[str, Path], tmp_path: Path
) -> None:
    source = vision_models["qwen2_5_vl"]
    before = AutoModelForImageTextToText.from_pretrained(source).state_dict()
    one.run(jobs.update_and_export, source, make_samples(), ("model.visual",), tmp_path / "hf")
    after = AutoModelForImageTextToText.from_pretrained(tmp_path / "hf").state_dict()
    assert after.keys() == before.keys()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed
    assert not any("visual" in name for name in changed)
    assert (tmp_path / "hf/preprocessor_config.json").read_bytes() == (source / "preprocessor_config.json").read_bytes()
    assert type(AutoModelForImageTextToText.from_pretrained(tmp_path / "hf")).__name__.startswith("Qwen2_5_VL")


def test_a_vision_tower_in_bfloat16_turns_by_angles_in_float32(one: Workers, vision_models: dict[str, Path]) -> None:
    """As it does in a rollout engine: rounded, they would move what training sees away from what was drawn with."""
    [seen] = one.run(jobs.tower_dtypes, vision_models["qwen2_vl"], make_samples()[0])
    assert seen == {"states": {torch.bfloat16}, "angles": {torch.float32}}
