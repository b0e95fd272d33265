"""Which runs with LoRA send adapters, and what the plan says of the others."""

from __future__ import annotations

from typing import Any

import pytest

from rlctl.config import Config, config_from
from rlctl.planning.adapter_sync import resolved_to_adapters, room_of, sends_adapters, targets_of, why_merged
from rlctl.planning.plan import make_plan, resolved_stages
from rlctl.planning.rollout_schedule import sleep_level
from rlctl.planning.support import generating, not_used
from rlctl.planning.weight_transfer import way_of

QWEN = "Qwen/Qwen3-8B"


def config(lora: dict[str, Any] | None = None, *, model: dict[str, Any] | None = None, **sections: Any) -> Config:
    made = {
        "model": {"path": QWEN, "lora": lora if lora is not None else {}, **(model or {})},
        "placement": {"device": "cuda", "devices_per_node": 4, **sections.pop("placement", {})},
        "rollout": {"engine": "vllm"},
    }
    return config_from({**made, **sections})


def resolved(plain: Config) -> Config:
    (stage,) = resolved_stages(plain, "cuda")
    return stage.config


def notes(plain: Config) -> str:
    return "\n".join(make_plan(plain).stages[0].notes)


@pytest.mark.parametrize(
    "lora", [{}, {"rank": 512}, {"target_modules": ["q_proj", "self_attn.v_proj"]}, {"exclude_modules": ["o_proj"]}]
)
def test_vllm_gets_adapters_and_keeps_its_base_model(lora: dict[str, Any]) -> None:
    plain = config(lora)
    assert sends_adapters(plain, "vllm")
    assert resolved_to_adapters(resolved(plain))
    assert sleep_level(resolved(plain)) == 1
    assert way_of(plain, "vllm", "cuda").name == "memory"
    assert "vLLM gets the adapters" in notes(plain)


@pytest.mark.parametrize(
    ("plain", "reason"),
    [
        (config({"merge_for_rollout": True}), "model.lora.merge_for_rollout is true"),
        (config(rollout={"engine": "sglang"}), "rollout.engine is sglang"),
        (config(rollout={"engine": "transformers"}), "rollout.engine is transformers"),
        (config({"rank": 513}), "model.lora.rank is 513; vLLM supports at most 512"),
        (config({"adapter_path": "some/adapter"}), "has its own rank"),
        (
            config(train={"engine": {"type": "megatron", "checkpoint_path": "m"}}),
            "differ from those of model.path",
        ),
        (config(rollout={"engine": "vllm", "memory": {"sleep_level": 2}}), "sleep_level 2 drops"),
        (config(rollout={"engine": "vllm", "memory": {"quantization": "fp8"}}), "quantization changes"),
        (config(model={"path": "somebody/something"}), "doesn't know what kind of model somebody/something is"),
        (config(model={"path": "deepseek-ai/DeepSeek-V3"}), "model.path is a deepseek_v3 model"),
        (config({"target_modules": ["q_proj", "lm_head"]}), "target_modules names lm_head"),
    ],
)
def test_what_vllm_cannot_take_is_merged_and_the_plan_says_why(plain: Config, reason: str) -> None:
    told = notes(plain)
    assert "adapters are merged into the weights" in told
    assert reason in told
    done = resolved(plain)
    assert done.model.lora is not None
    assert done.model.lora.merge_for_rollout
    assert not resolved_to_adapters(done)
    assert not sends_adapters(plain, generating(plain, "cuda"))
    assert sleep_level(done) == (plain.rollout.memory.sleep_level or (1 if plain.rollout.memory.quantization else 2))


def test_whole_weights_have_no_adapters_and_no_note() -> None:
    plain = config(model={"lora": None})
    assert not sends_adapters(plain, "vllm")
    assert why_merged(plain, "vllm") == ""
    assert "adapters" not in notes(plain)
    assert sleep_level(resolved(plain)) == 2


def test_the_reason_is_in_the_readers_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCTL_LANGUAGE", "zh")
    assert "适配器合并到权重后再发送，原因：model.lora.rank 为 600" in notes(config({"rank": 600}))


def test_what_adapters_change_of_other_keys_is_told() -> None:
    dummy = {"engine": "vllm", "memory": {"load_format": "dummy"}}
    told = "\n".join(not_used(config(rollout=dummy, weight_sync={"method": "nccl"}), "cuda"))
    assert "rollout.memory.load_format: vLLM reads the base weights from the files" in told
    assert "weight_sync.method: vLLM reads adapters from host memory" in told
    assert "load_format" not in "\n".join(not_used(config({"merge_for_rollout": True}, rollout=dummy), "cuda"))


def test_room_and_layers_are_in_vllms_words() -> None:
    assert [room_of(rank) for rank in (1, 2, 8, 9, 300, 512)] == [1, 8, 8, 16, 320, 512]
    assert targets_of(config({"target_modules": ["self_attn.q_proj", "o_proj"]})) == ["o_proj", "q_proj"]
    assert len(targets_of(config())) == 7


def test_ranks_are_those_of_vllm() -> None:
    lora = pytest.importorskip("vllm.config.lora")
    from typing import get_args

    from rlctl.planning.adapter_sync import RANKS

    assert get_args(lora.MaxLoRARanks) == RANKS
