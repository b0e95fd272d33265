"""Adapters compute, train, merge and are stored as peft has them; without them the model is the one it was."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM

from rlctl.common.errors import PlanError, RunError
from rlctl.config.sections.model import Lora
from rlctl.runtime.types import Sample
from tests.runtime.train import jobs
from tests.runtime.train.jobs import FLOAT64, make_samples, settings
from tests.runtime.train.processes import Workers

ATTENTION = Lora(rank=4, alpha=8, target_modules=("q_proj", "v_proj"))
TRAIN = settings(FLOAT64, lr=1e-2, epsilon=1.0)


@pytest.fixture(scope="module")
def adapter(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that peft made and wrote, and that does something."""
    torch.manual_seed(3)
    base = AutoModelForCausalLM.from_pretrained(models["qwen2"])
    made = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]))
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    folder = tmp_path_factory.mktemp("adapter")
    made.save_pretrained(folder)
    return folder


def drawn(model: torch.nn.Module, samples: list[Sample]) -> list[Tensor]:
    """Log-probs of every token but the first, by Transformers."""
    return [
        model(sample.token_ids[None]).logits[0, :-1].log_softmax(-1).gather(-1, sample.token_ids[1:, None]).squeeze(-1)
        for sample in samples
    ]


def with_peft(base: Path, adapter: Path) -> Any:
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64, attn_implementation="eager")
    return PeftModel.from_pretrained(model, adapter, is_trainable=True, autocast_adapter_dtype=False).double()


@pytest.mark.parametrize("workers", ["one", "two"])
def test_an_update_from_an_adapter_is_that_of_peft(
    workers: str, models: dict[str, Path], adapter: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Weights after two AdamW steps, merged and as adapters; log-probs with and without; in float64."""
    samples = make_samples(6)
    group: Workers = request.getfixturevalue(workers)
    lora = dataclasses.replace(ATTENTION, adapter_path=str(adapter))
    found = group.run(jobs.train_adapters, models["qwen2"], TRAIN, samples, lora, tmp_path / "c")
    model = with_peft(models["qwen2"], adapter)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, eps=1.0)
    tokens = sum(int(sample.mask.sum()) for sample in samples)
    for _ in range(2):
        optimizer.zero_grad()
        parts = [(d * s.mask[1:]).sum() for d, s in zip(drawn(model, samples), samples, strict=True)]
        (-torch.stack(parts).sum() / tokens).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    trained, plain = drawn(model, samples), drawn(with_peft(models["qwen2"], adapter).unload(), samples)
    for index, sample in enumerate(samples):
        rank, place = index % len(found), index // len(found)
        for mine, theirs in ((found[rank].log_probs, trained), (found[rank].base_log_probs, plain)):
            torch.testing.assert_close(mine[place][1:], (theirs[index] * sample.mask[1:]).float(), rtol=1e-5, atol=1e-5)
    stored = with_peft(models["qwen2"], tmp_path / "adapter").state_dict()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(stored[name], tensor, rtol=0, atol=1e-8)  # a token's weight is float32
    merged = model.merge_and_unload().state_dict()
    weights = found[0].weights
    assert weights.keys() == merged.keys() - {"lm_head.weight"}
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, merged[name], rtol=0, atol=1e-8)


def test_only_adapters_have_a_state_and_are_in_the_checkpoint(
    one: Workers, two: Workers, models: dict[str, Path], tmp_path: Path
) -> None:
    """And training goes on from it, with any number of workers, in the same bits where they are as many."""
    samples = make_samples(6)
    [found] = one.run(jobs.train_adapters, models["llama"], settings(), samples, ATTENTION, tmp_path / "c")
    assert {name.rsplit(".", 3)[1] for name in found.stored if name.startswith("model/")} == {"lora_A", "lora_B"}
    assert {n.split("/")[1] for n in found.stored if n.startswith("optimizer/")} == {
        n.removeprefix("model/") for n in found.stored if n.startswith("model/")
    }
    job = (jobs.continue_adapters, models["llama"], settings(), samples, ATTENTION, tmp_path / "c")
    [again], other = one.run(*job), two.run(*job)[0]
    assert all(torch.equal(again[name], tensor) for name, tensor in found.later.items())
    for name, tensor in found.later.items():
        torch.testing.assert_close(other[name], tensor, rtol=1e-4, atol=1e-5)


def test_new_adapters_change_nothing_and_are_the_same_for_any_number_of_workers(
    one: Workers, two: Workers, models: dict[str, Path], tmp_path: Path
) -> None:
    lora = Lora(rank=3, alpha=6)
    alone, *_ = one.run(jobs.new_adapters, models["qwen2"], settings(), lora)
    both, *_ = two.run(jobs.new_adapters, models["qwen2"], settings(), lora)
    assert alone.adapters.keys() == both.adapters.keys()
    assert all(torch.equal(tensor, both.adapters[name]) for name, tensor in alone.adapters.items())
    assert not any("lm_head" in name or "embed" in name for name in alone.adapters)
    assert sum("lora_A" in name for name in alone.adapters) == 2 * 7  # all seven linear layers of both blocks
    start = AutoModelForCausalLM.from_pretrained(models["qwen2"]).state_dict()
    assert all(torch.equal(tensor, start[name]) for name, tensor in alone.weights.items())


def test_an_export_is_merged_with_the_adapter_beside_it(two: Workers, models: dict[str, Path], tmp_path: Path) -> None:
    samples = make_samples(6)
    lora = dataclasses.replace(ATTENTION, base_model="org/base")
    two.run(jobs.export_adapters, models["llama"], settings(), samples, lora, tmp_path / "hf")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    adapted = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(models["llama"]), tmp_path / "hf" / "adapter"
    )
    for mine, theirs in zip(drawn(merged, samples), drawn(adapted, samples), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    jobs.check_sent_adapters(tmp_path / "hf", 8 / 4)
    start = AutoModelForCausalLM.from_pretrained(models["llama"])
    assert not torch.allclose(drawn(merged, samples)[0], drawn(start, samples)[0], atol=1e-3)
    config = json.loads((tmp_path / "hf" / "adapter" / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["r"], config["lora_alpha"]) == ("org/base", 4, 8)


def test_gpt2_whose_weights_lie_the_other_way_is_merged_too(one: Workers, models: dict[str, Path]) -> None:
    [found] = one.run(jobs.merged_and_adapted, models["gpt2"], TRAIN, make_samples(4), Lora(rank=2, alpha=4))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "lora",
    [dataclasses.replace(ATTENTION, dropout=0.9), Lora(target_modules=("q_proj",)), Lora(exclude_modules=("q_proj",))],
    ids=["dropout", "targets", "excluded"],
)
def test_settings_of_adapters_matter(one: Workers, models: dict[str, Path], lora: Lora) -> None:
    def trained(chosen: Lora) -> dict[str, Tensor]:
        [found] = one.run(jobs.trained_adapters, models["qwen2"], settings(), make_samples(4), chosen)
        return dict(found)

    plain, other = trained(ATTENTION), trained(lora)
    assert plain.keys() != other.keys() or any(not torch.equal(plain[name], other[name]) for name in plain)
    assert not lora.exclude_modules or not any("q_proj" in name for name in other)


def test_the_type_of_adapters_is_their_own(one: Workers, models: dict[str, Path]) -> None:
    half = dataclasses.replace(
        settings(), precision=dataclasses.replace(FLOAT64, parameters="bfloat16", compute="bfloat16")
    )
    for chosen, expected in (("auto", torch.float32), ("bfloat16", torch.bfloat16)):
        lora = dataclasses.replace(ATTENTION, dtype=chosen)  # type: ignore[arg-type]
        [found] = one.run(jobs.trained_adapters, models["qwen2"], half, make_samples(4), lora)
        assert {tensor.dtype for tensor in found.values()} == {expected}


def test_reentrant_recomputation_trains_adapters_too(one: Workers, models: dict[str, Path]) -> None:
    [plain] = one.run(jobs.trained_adapters, models["qwen2"], TRAIN, make_samples(4), ATTENTION)
    again = jobs.with_memory(TRAIN, recompute_activations=True, recompute_reentrant=True)
    [found] = one.run(jobs.trained_adapters, models["qwen2"], again, make_samples(4), ATTENTION)
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, plain[name], rtol=0, atol=1e-12)


def test_adapters_that_do_not_fit_are_refused(
    one: Workers, models: dict[str, Path], adapter: Path, tmp_path: Path
) -> None:
    for lora, error, message in (
        (Lora(target_modules=("q_prj",)), PlanError, "q_prj"),
        (Lora(target_modules=("embed_tokens",)), PlanError, "on an embedding"),
        (Lora(adapter_path=str(tmp_path)), RunError, "cannot be read"),
    ):
        with pytest.raises(error, match=message):
            one.run(jobs.trained_adapters, models["qwen2"], settings(), make_samples(3), lora)
    with pytest.raises((RunError, PlanError), match="q_proj"):
        one.run(jobs.trained_adapters, models["gpt2"], settings(), make_samples(3), Lora(adapter_path=str(adapter)))
