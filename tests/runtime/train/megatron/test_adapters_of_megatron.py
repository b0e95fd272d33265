"""Adapters and frozen parts on Megatron-core's layers: the numbers of the FSDP2 engine, and the files of peft."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from rlctl.common.errors import PlanError
from rlctl.config.sections.batch import MicroBatchSize
from rlctl.config.sections.model import Lora
from rlctl.config.sections.train import Fsdp2, Megatron
from rlctl.runtime.train.interface import Role
from rlctl.runtime.types import Sample
from tests.runtime.train.jobs import check_sent_adapters, make_samples
from tests.runtime.train.megatron import engine_jobs
from tests.runtime.train.megatron.conftest import some
from tests.runtime.train.megatron.test_engine import CRITIC_LOSS, MICRO, POLICY_LOSS, check, samples_of
from tests.runtime.train.processes import Workers

WHOLE = MicroBatchSize(unit="tokens", size=100_000)
SOME = ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj")
"""Not all of what Megatron-core fuses."""

LAYOUTS: dict[str, tuple[str, str, Megatron]] = {
    "one": ("one", "llama", Megatron()),
    "tensor": ("two", "qwen2", Megatron(tensor_parallel_size=2, sequence_parallel=False)),
    "tensor and sequence": ("two", "qwen3", Megatron(tensor_parallel_size=2)),
    "pipeline, recomputed": ("two", "qwen2", Megatron(pipeline_parallel_size=2, recompute_granularity="full")),
    "recomputed": ("one", "llama", Megatron(recompute_granularity="full")),
    "virtual pipeline": ("two", "qwen2", Megatron(pipeline_parallel_size=2, virtual_pipeline_parallel_size=2)),
    "context": ("two", "llama", Megatron(context_parallel_size=2)),
    "replicas that overlap": ("two", "llama", Megatron(overlap_gradient_reduce=True, overlap_parameter_gather=True)),
    "experts": ("two", "qwen3_moe", Megatron(expert_parallel_size=2)),
    "tensor and pipeline": ("four", "qwen3", Megatron(tensor_parallel_size=2, pipeline_parallel_size=2)),
}


@pytest.fixture(scope="module")
def adapters(families: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By family an adapter that peft made and wrote, and that does something."""
    found = {}
    for family, folder in families.items():
        torch.manual_seed(3)
        targets = SOME[:3] if family == "qwen3_moe" else SOME  # peft adapts experts by another method
        config = LoraConfig(r=4, lora_alpha=8, target_modules=list(targets))
        made = get_peft_model(AutoModelForCausalLM.from_pretrained(folder), config)
        for name, parameter in made.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.2)
        found[family] = tmp_path_factory.mktemp(f"adapter-{family}")
        made.save_pretrained(found[family])
    return found


@pytest.fixture(scope="module")
def expected(one: Workers, families: dict[str, Path]) -> Any:
    """What the FSDP2 engine with one worker says, once."""
    known: dict[Any, Any] = {}

    def of(family: str, role: Role = "policy", **model: Any) -> Any:
        key = family, role, repr(model)
        if key not in known:
            loss = CRITIC_LOSS if role == "critic" else POLICY_LOSS
            job = (families[family], Fsdp2(), role, samples_of(role), loss, MICRO)
            [known[key]] = one.run(engine_jobs.train, *job, model)
        return known[key]

    return of


@pytest.mark.parametrize("layout", some(LAYOUTS, "one", "pipeline, recomputed"))
def test_steps_with_adapters_are_those_of_fsdp2(
    layout: str, families: dict[str, Path], adapters: dict[str, Path], expected: Any, request: pytest.FixtureRequest
) -> None:
    """Log-probs, metrics, and merged weights of two steps, from an adapter on some of the layers that are fused."""
    fixture, family, engine = LAYOUTS[layout]
    workers: Workers = request.getfixturevalue(fixture)
    lora = Lora(adapter_path=str(adapters[family]))
    samples = samples_of("policy")
    told = workers.run(
        engine_jobs.train, families[family], engine, "policy", samples, POLICY_LOSS, MICRO, {"lora": lora}
    )
    check(told, expected(family, lora=lora))


@pytest.mark.parametrize(
    ("role", "model"),
    [
        ("critic", {"lora": Lora(rank=4)}),
        ("policy", {"freeze": ("model.embed_tokens", "model.layers.0", "model.layers.1", "*.mlp.*")}),
        ("policy", {"freeze": ("model.norm", "lm_head", "model.layers.2", "model.layers.3")}),
    ],
    ids=["critic", "frozen first stage", "frozen last stage"],
)
def test_pipelines_with_frozen_parts_are_those_of_fsdp2(
    role: Role, model: dict[str, Any], two: Workers, families: dict[str, Path], expected: Any
) -> None:
    loss = CRITIC_LOSS if role == "critic" else POLICY_LOSS
    engine = Megatron(pipeline_parallel_size=2)
    told = two.run(engine_jobs.train, families["llama"], engine, role, samples_of(role), loss, MICRO, model)
    check(told, expected("llama", role, **model))


def test_what_is_frozen_stays_and_the_rest_moves(two: Workers, families: dict[str, Path]) -> None:
    """Tied embeddings, experts, and a fused weight."""
    patterns = ("*.self_attn.*_proj", "*.mlp.experts", "model.norm")
    job = (families["qwen3_moe"], Megatron(expert_parallel_size=2), "policy", samples_of("policy"), POLICY_LOSS, MICRO)
    told = two.run(engine_jobs.train, *job, {"freeze": patterns})[0]
    before = AutoModelForCausalLM.from_pretrained(families["qwen3_moe"]).state_dict()
    still = {name for name, tensor in told.weights.items() if torch.equal(tensor, before[name])}
    assert still == {
        n for n in told.weights if ("_proj." in n and "self_attn" in n) or "experts" in n or n == "model.norm.weight"
    }


def test_a_part_of_a_fused_weight_is_not_frozen(one: Workers, families: dict[str, Path]) -> None:
    for freeze, message in ((("*.q_proj",), "one parameter"), (("*.qq_proj",), "qq_proj, which no parameter")):
        with pytest.raises(PlanError, match=message):
            one.run(engine_jobs.make, families["llama"], Megatron(), "policy", {"freeze": freeze})


@pytest.mark.parametrize("lora", [Lora(target_modules=("lm_head",)), Lora(target_modules=("q_prj",))])
def test_adapters_elsewhere_are_refused(lora: Lora, one: Workers, families: dict[str, Path]) -> None:
    with pytest.raises(PlanError, match=r"lm_head|q_prj"):
        one.run(engine_jobs.make, families["llama"], Megatron(), "policy", {"lora": lora})


def drawn(model: Any, samples: list[Sample]) -> list[Tensor]:
    with torch.no_grad():
        each = (model(sample.token_ids[None]).logits[0, :-1].log_softmax(-1) for sample in samples)
        picked = (logs.gather(-1, s.token_ids[1:, None]).squeeze(-1) for logs, s in zip(each, samples, strict=True))
        return [found * sample.mask[1:] for found, sample in zip(picked, samples, strict=True)]


def test_peft_reads_what_is_saved_and_other_layouts_go_on(
    one: Workers, two: Workers, families: dict[str, Path], tmp_path: Path
) -> None:
    """The adapter of the checkpoint and of the export, and the merged export, by Transformers and peft."""
    samples, lora = make_samples(6), Lora(rank=4, alpha=8, base_model="org/base")
    job = (samples, lora, WHOLE, tmp_path)
    told = two.run(engine_jobs.train_adapters, families["qwen2"], Megatron(tensor_parallel_size=2), *job)
    base = AutoModelForCausalLM.from_pretrained(families["qwen2"])
    plain = drawn(base, samples)
    read = [PeftModel.from_pretrained(base, tmp_path / "engine" / "adapter")]
    theirs = {"adapter": drawn(read[0], samples)}
    theirs["merged"] = drawn(AutoModelForCausalLM.from_pretrained(tmp_path / "hf"), samples)
    _, mine, without = told[0]
    for found in theirs.values():
        for one_of, other in zip(found, mine, strict=True):
            torch.testing.assert_close(one_of, other[1:], rtol=1e-4, atol=1e-4)
    for one_of, other in zip(plain, without, strict=True):
        torch.testing.assert_close(one_of, other[1:], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(plain[0], mine[0][1:], atol=1e-3)
    both = (load_file(tmp_path / folder / "adapter_model.safetensors") for folder in ("engine/adapter", "hf/adapter"))
    first, second = both
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], tensor) for name, tensor in second.items())
    check_sent_adapters(tmp_path / "hf", 8 / 4)
    other = Megatron(pipeline_parallel_size=2)
    again = [
        workers.run(engine_jobs.continue_adapters, families["qwen2"], layout, *job)[0]
        for workers, layout in ((two, other), (one, Megatron()))
    ]
    for _, found, base_found, _ in again:
        for one_of, now in zip((*found, *base_found), (*mine, *without), strict=True):
            torch.testing.assert_close(one_of, now, rtol=1e-4, atol=1e-4)
    assert again[0][3] == pytest.approx(again[1][3], rel=1e-4)


def test_new_adapters_are_those_of_fsdp2(one: Workers, families: dict[str, Path], tmp_path: Path) -> None:
    """From the same seed, drawn as peft draws them."""
    for name, engine in (("fsdp2", Fsdp2()), ("megatron", Megatron())):
        one.run(engine_jobs.new_adapters, families["llama"], engine, Lora(rank=3), tmp_path / name)
    found = [
        load_file(tmp_path / name / "engine" / "adapter" / "adapter_model.safetensors")
        for name in ("fsdp2", "megatron")
    ]
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[1][name], tensor) for name, tensor in found[0].items())


def test_dropout_is_drawn_alike_by_tensor_workers(two: Workers, families: dict[str, Path]) -> None:
    """Workers that have the same tokens drop the same of them: their sums stay alike, and differ from those without."""
    samples, lora = samples_of("policy"), Lora(rank=4, dropout=0.5)
    engine = Megatron(tensor_parallel_size=2, sequence_parallel=False)
    job = (families["llama"], engine, "policy", samples, POLICY_LOSS, MICRO)
    first, second = two.run(engine_jobs.train, *job, {"lora": lora})
    plain, _ = two.run(engine_jobs.train, *job, {"lora": dataclasses.replace(lora, dropout=0.0)})
    for mine, theirs in zip(first.after, second.after, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)
    assert any(not torch.allclose(plain.weights[name], tensor, atol=1e-6) for name, tensor in first.weights.items())
