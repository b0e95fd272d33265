"""Memory and arithmetic estimates, against numbers worked by hand for Qwen2.5-1.5B and from the papers named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification

from rlctl.config import Config, config_from
from rlctl.config.sections.model import Lora
from rlctl.planning.arithmetic import Cluster
from rlctl.planning.memory import (
    GIB,
    MemoryEstimate,
    adapter_parameters,
    cost_of,
    forward_flops,
    known_gpu,
    memory_of,
    micro_tokens,
)
from rlctl.planning.models import ModelShape, read_shape

PARAMETERS = 1_543_714_304
"""Of Qwen2.5-1.5B, as its model card counts them (1.54B)."""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    data = {
        "model_type": "qwen2",
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    }
    (tmp_path / "config.json").write_text(json.dumps(data))
    return str(tmp_path)


def config_for(folder: str, **sections: Any) -> Config:
    return config_from({"model": {"path": folder}, **sections})


def shape_in(folder: str) -> ModelShape:
    shape = read_shape(folder)
    assert shape is not None
    return shape


def test_fsdp2_takes_16_bytes_a_parameter_over_all_devices(folder: str) -> None:
    policy, *_ = memory_of(config_for(folder))
    assert shape_in(folder).parameters == PARAMETERS
    states = policy.part("parameters") + policy.part("gradients") + policy.part("optimizer")
    assert states * GIB == pytest.approx(16 * PARAMETERS / 8)


def test_a_smaller_shard_and_a_smaller_type(folder: str) -> None:
    config = config_for(
        folder, train={"engine": {"type": "fsdp2", "fsdp_size": 2}, "precision": {"parameters": "bfloat16"}}
    )
    policy, *_ = memory_of(config)
    assert policy.part("optimizer") * GIB == pytest.approx(2 * 2 * PARAMETERS / 2)


def test_megatron_takes_6_bytes_and_12_over_replicas(folder: str) -> None:
    policy, *_ = memory_of(config_for(folder, train={"engine": {"type": "megatron", "tensor_parallel_size": 2}}))
    states = policy.part("parameters") + policy.part("gradients") + policy.part("optimizer")
    assert states * GIB == pytest.approx((6 + 12 / 4) * PARAMETERS / 2, rel=1e-4)  # norms are whole on every device


def test_without_recomputation_every_layer_keeps_what_its_backward_pass_reads(folder: str) -> None:
    """A token of Qwen2.5-1.5B in bfloat16: two norms 16 h, q, k, v, output twice, 4 x 2 bytes of the MLP, 12 logsumexps."""
    tokens, hidden, layers, mlp, kv = 16384, 1536, 28, 8960, 256
    whole, *_ = memory_of(config_for(folder, train={"memory": {"recompute_activations": False}}))
    each = 16 * hidden + 2 * (3 * hidden + 2 * kv) + 8 * mlp + 4 * 12
    assert whole.part("activations") * GIB > tokens * layers * each
    assert whole.part("activations") * GIB == pytest.approx(tokens * layers * each, rel=0.02)


def test_megatrons_layers_keep_what_their_backward_pass_reads(folder: str) -> None:
    """A token in bfloat16: two norms 16 h, q, k and v twice, output twice, 5 x 2 bytes of the MLP, 12 logsumexps."""
    tokens, hidden, layers, mlp, kv = 16384, 1536, 28, 8960, 256
    each = 16 * hidden + 2 * (3 * hidden + 4 * kv) + 10 * mlp + 4 * 12
    engine = {"type": "megatron", "recompute_granularity": "none"}
    whole, *_ = memory_of(config_for(folder, train={"engine": engine}))
    assert whole.part("activations") * GIB > tokens * layers * each
    assert whole.part("activations") * GIB == pytest.approx(tokens * layers * each, rel=0.02)
    halved, *_ = memory_of(config_for(folder, train={"engine": engine | {"tensor_parallel_size": 2}}))
    assert halved.part("activations") == pytest.approx(whole.part("activations") / 2, rel=0.01)
    recomputed, *_ = memory_of(config_for(folder, train={"engine": engine | {"recompute_granularity": "full"}}))
    working = recomputed.part("activations") + recomputed.part("logits")
    assert working * GIB > 2 * hidden * tokens * layers + tokens * each


def test_the_cache_of_a_token_is_28_kib(folder: str) -> None:
    config = config_for(folder, rollout={"memory": {"max_num_seqs": 100}})
    rollout = memory_of(config)[1]
    # 2 x 28 layers x 2 heads x 128 numbers of 2 bytes = 28672 bytes a token; 1024 tokens, 100 responses.
    assert rollout.part("cache") * GIB == pytest.approx(28672 * 1024 * 100)
    assert rollout.part("weights") * GIB == pytest.approx(2 * PARAMETERS)
    on_cpu = memory_of(config, device="cpu")[1]
    assert on_cpu.part("weights") == pytest.approx(2 * rollout.part("weights"))


def test_only_roles_that_are_needed_are_estimated(folder: str) -> None:
    kl = {"kl_in_loss": {"coefficient": 0.01}}
    assert [role.role for role in memory_of(config_for(folder))] == ["policy", "rollout"]
    assert [role.role for role in memory_of(config_for(folder, algorithm=kl))] == ["policy", "rollout", "reference"]
    gae = config_for(folder, algorithm={"advantage": "gae"}, critic={})
    assert [role.role for role in memory_of(gae)] == ["policy", "rollout", "critic"]
    assert [role.role for role in memory_of(config_for(folder, algorithm={"objective": "sft"}))] == ["policy"]


def test_a_reward_model_is_whole_on_its_device(folder: str) -> None:
    model = {"type": "model", "path": folder, "max_tokens": 1000, "micro_batch_size": 2}
    found = memory_of(config_for(folder, rewards=[model, {"type": "model", "path": "org/elsewhere", "name": "x"}]))
    assert [role.role for role in found] == ["policy", "rollout", "reward_model"]
    assert found[-1].part("parameters") * GIB == 2 * PARAMETERS
    assert found[-1].part("activations") > 0


def test_models_beside_the_policy_are_weights_and_a_cache(folder: str) -> None:
    """28672 bytes a token, as above; each over two devices, which have one of the two key-value heads each."""
    beside = {"path": folder, "tensor_parallel_size": 2, "max_context_tokens": 4096, "settings": {"max_num_seqs": 8}}
    placement = {"layout": "explicit", "devices_per_node": 4, "roles": {"auxiliary": {"devices": [2, 3]}}}
    found = memory_of(config_for(folder, rollout={"auxiliary_models": [beside]}, placement=placement))
    assert [role.role for role in found] == ["policy", "rollout", "auxiliary"]
    assert found[-1].part("weights") * GIB == pytest.approx(PARAMETERS)
    assert found[-1].part("cache") * GIB == pytest.approx(28672 / 2 * 4096 * 8)
    elsewhere = {"path": "org/elsewhere"}, {**beside, "base_url": "http://127.0.0.1:8000/v1"}
    for each in elsewhere:
        config = config_for(folder, rollout={"auxiliary_models": [each]}, placement=placement)
        assert [role.role for role in memory_of(config)] == ["policy", "rollout"]
    judge = {"type": "judge", "model": folder, "prompt": "{response}", "max_context_tokens": 1024}
    judged = memory_of(config_for(folder, rewards=[judge], placement={"devices_per_node": 1}))
    assert [role.role for role in judged] == ["policy", "rollout", "judge"]
    assert judged[-1].part("weights") * GIB == pytest.approx(2 * PARAMETERS)


def test_a_teacher_is_spread_as_the_policy_is_with_whole_logits_where_distributions_are_compared(folder: str) -> None:
    """8 devices; float32 parameters; a micro-batch of 16384 tokens in bfloat16."""

    def teacher(**distillation: object) -> MemoryEstimate:
        batch = {"micro_batch": {"unit": "tokens", "size": 16384}}
        section = {"teacher": folder, "loss": "forward_kl", **distillation}
        *_, found = memory_of(config_for(folder, batch=batch, algorithm={"distillation": section}))
        assert found.role == "teacher"
        return found

    vocabulary = shape_in(folder).vocabulary
    compared, drawn = teacher(top_k=64), teacher(loss="reverse_kl")
    policy = memory_of(config_for(folder))[0]
    assert compared.part("parameters") == drawn.part("parameters") == policy.part("parameters")
    assert compared.part("logits") * GIB == 2 * 8192 * vocabulary  # half of a sequence is its response
    assert drawn.part("logits") < compared.part("logits")
    assert memory_of(config_for(folder, algorithm={"distillation": {"teacher": "org/elsewhere"}}))[-1].role != "teacher"


def test_a_known_hub_name_is_estimated_as_its_folder_is(folder: str) -> None:
    config = config_from({"model": {"path": "Qwen/Qwen2.5-1.5B"}})
    assert memory_of(config) == memory_of(config_for(folder))
    assert cost_of(config) == cost_of(config_for(folder))


def test_a_model_that_is_not_known_has_no_estimate() -> None:
    config = config_from({"model": {"path": "somebody/finetuned-qwen"}})
    assert memory_of(config) == ()
    assert cost_of(config) is None


def test_a_micro_batch_holds_at_least_one_whole_sequence(folder: str) -> None:
    config = config_for(folder, batch={"micro_batch": {"unit": "tokens", "size": 100}})
    assert micro_tokens(config, config.batch.micro_batch) == 1024
    config = config_for(folder, batch={"micro_batch": {"unit": "responses", "size": 3}})
    assert micro_tokens(config, config.batch.micro_batch) == 3 * 1024


def test_a_forward_pass_is_2_operations_a_parameter_and_token(folder: str) -> None:
    shape = shape_in(folder)
    assert shape.active_parameters == PARAMETERS
    attention = 2 * 28 * 1024 * 12 * 128
    assert forward_flops(shape, tokens=10, length=1024) == 10 * (2 * PARAMETERS + attention)


def test_a_step_adds_up_its_passes(folder: str) -> None:
    one = forward_flops(shape_in(folder), tokens=1024 * 1024, length=1024)
    recompute, three = {"memory": {"recompute_activations": True}}, {"memory": {"recompute_activations": False}}
    kl = {"kl_in_loss": {"coefficient": 0.01}, "old_log_probs": "rollout"}
    passes = [
        (6, config_for(folder, train=recompute)),  # generation, old log-probs, 1 + 2 + 1 of training
        (5, config_for(folder, train=three)),
        (9, config_for(folder, train=recompute, batch={"ppo_epochs": 2}, algorithm={"old_log_probs": "rollout"})),
        (5, config_for(folder, train=three, algorithm=kl)),
        (4, config_for(folder, train=recompute, algorithm={"objective": "sft"})),
    ]
    for count, config in passes:
        cost = cost_of(config)
        assert cost is not None
        assert cost.flops == pytest.approx(count * one)
        assert cost.training_seconds is None


def test_time_is_estimated_for_known_gpus_only(folder: str) -> None:
    config = config_for(folder)
    h100 = Cluster(1, 8, "cuda", gpu="NVIDIA H100 80GB HBM3")
    cost = cost_of(config, cluster=h100)
    assert cost is not None
    assert cost.training_seconds is not None
    assert cost.generation_seconds is not None
    assert cost.moving_seconds is not None
    together = cost.training_seconds + cost.generation_seconds + cost.moving_seconds
    assert cost.step_seconds == pytest.approx(together)
    assert cost.longest_seconds is not None
    assert cost.longest_seconds > cost.step_seconds
    unknown = cost_of(config, cluster=Cluster(1, 8, "cuda", gpu="Voodoo 2"))
    assert unknown is not None
    assert unknown.training_seconds is None


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA-A100-SXM4-80GB", 312),
        ("nvidia h20", 148),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("RTX5090", 209.5),
        ("AMD Instinct MI300X", 1307),
        ("Ascend910B3", 313),
        ("910B", 313),
        ("910BX", None),
        ("T4", None),
        (None, None),
    ],
)
def test_gpus_are_known_by_a_word_of_their_name(name: str | None, tflops: float | None) -> None:
    gpu = known_gpu(name)
    assert (gpu.tflops if gpu else None) == tflops


ALL_LINEAR: tuple[str, ...] = ("all-linear",)


@pytest.mark.parametrize(
    ("targets", "excluded"), [(ALL_LINEAR, ()), (ALL_LINEAR, ("q_proj",)), (("v_proj", "down_proj"), ())]
)
def test_adapters_are_as_large_as_pefts(folder: str, targets: tuple[str, ...], excluded: tuple[str, ...]) -> None:
    lora = Lora(rank=4, target_modules=targets, exclude_modules=excluded)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
        names = "all-linear" if targets == ALL_LINEAR else list(targets)
        made = LoraConfig(r=4, target_modules=names, exclude_modules=list(excluded) or None)
        inject_adapter_in_model(made, model)
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert adapter_parameters(lora, shape_in(folder)) == count


def test_on_megatron_too_only_adapters_have_gradients(folder: str) -> None:
    """Two stages of bfloat16; weights and adapters, gradients in float32, and for each adapter its moments and a copy."""
    train = {"train": {"engine": {"type": "megatron", "pipeline_parallel_size": 2}}, "model": {"path": folder}}
    [whole, *_] = memory_of(config_from(train))
    [found, *_] = memory_of(config_from({**train, "model": {"path": folder, "lora": {"rank": 16}}}))
    each = adapter_parameters(Lora(rank=16), shape_in(folder)) / 2 / GIB
    assert found.part("parameters") == pytest.approx(whole.part("parameters") + 2 * each)
    assert found.part("gradients") == pytest.approx(4 * each)
    assert found.part("optimizer") == pytest.approx((2 * 4 + 4) * each / 4)  # shared by 4 replicas of 8 devices


def test_with_adapters_only_they_have_gradients_and_there_is_no_second_copy(folder: str) -> None:
    """8 devices; the base stays, in float32; 3 passes of training, recomputation among them, and none for weights."""
    kl = {"kl_in_loss": {"coefficient": 0.01}}
    whole = memory_of(config_for(folder, algorithm=kl))
    config = config_from({"model": {"path": folder, "lora": {"rank": 16}}, "algorithm": kl})
    found = memory_of(config)
    assert [each.role for each in whole] == ["policy", "rollout", "reference"]
    assert [each.role for each in found] == ["policy", "rollout"]
    assert config.model.lora is not None
    adapters = 4 * adapter_parameters(config.model.lora, shape_in(folder)) / 8 / GIB
    assert found[0].part("gradients") == pytest.approx(adapters)
    assert found[0].part("optimizer") == pytest.approx(2 * adapters)
    assert found[0].part("parameters") == pytest.approx(whole[0].part("parameters") + adapters)
    costs = [cost_of(each) for each in (config_for(folder, algorithm=kl), config)]
    assert None not in costs
    one = forward_flops(shape_in(folder), tokens=1024 * 1024, length=1024)
    assert costs[0].flops - costs[1].flops == pytest.approx(one)  # type: ignore[union-attr]


def test_logits_that_are_never_whole_need_less(folder: str) -> None:
    micro = {"prompts_per_step": 4096, "micro_batch": {"unit": "tokens", "size": 65_536}}
    whole, fused = (
        memory_of(config_for(folder, batch=micro, placement={"device": device}))[0] for device in ("cpu", "cuda")
    )
    vocabulary = shape_in(folder).vocabulary
    chunks = 4 * 2**25
    assert whole.part("logits") * GIB == pytest.approx(2 * 2 * 32_768 * vocabulary + chunks)
    assert fused.part("logits") < whole.part("logits") / 4
    assert fused.gib < whole.gib
    asked = {"placement": {"device": "cpu"}, "train": {"fused_kernels": {"enabled": True}}}
    assert memory_of(config_for(folder, batch=micro, **asked))[0].gib == fused.gib
    compared = {"kl_in_loss": {"estimator": "full", "coefficient": 0.1}}
    assert memory_of(config_for(folder, batch=micro, algorithm=compared))[0].part("logits") == whole.part("logits")
    bonus = memory_of(
        config_for(folder, batch=micro, placement={"device": "cpu"}, algorithm={"entropy_coefficient": 0.01})
    )[0]
    assert (bonus.part("logits") - whole.part("logits")) * GIB == pytest.approx(2 * 4 * 2**25)


def test_a_critic_has_a_value_head_in_place_of_an_output_head(tmp_path: Path) -> None:
    data = {"model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 96}
    data |= {"num_hidden_layers": 2, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(data))
    config = config_for(str(tmp_path), algorithm={"advantage": "gae"}, critic={})
    (critic,) = (each for each in memory_of(config) if each.role == "critic")
    with torch.device("meta"):
        model = AutoModelForTokenClassification.from_config(AutoConfig.from_pretrained(tmp_path, num_labels=1))
    assert critic.part("parameters") * GIB * 8 == pytest.approx(4 * model.num_parameters())
    assert critic.part("logits") == 0


def test_the_cache_is_divided_by_the_heads_that_there_are_and_a_latent_cache_by_none() -> None:
    def cache(model: str, tensor: int) -> float:
        rollout = {"parallel": {"tensor_parallel_size": tensor}, "memory": {"max_num_seqs": 8}}
        return memory_of(config_from({"model": {"path": model}, "rollout": rollout}))[1].part("cache")

    one, four, eight = (cache("Qwen/Qwen2.5-7B", tensor) for tensor in (1, 4, 8))
    assert one == pytest.approx(4 * four)
    assert four == pytest.approx(eight)  # it has 4 key-value heads
    assert cache("deepseek-ai/DeepSeek-V3", 1) == pytest.approx(cache("deepseek-ai/DeepSeek-V3", 8))
