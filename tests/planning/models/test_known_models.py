"""Every row of the table of known models: its parameters are those of the model that Transformers builds from it."""

from __future__ import annotations

import json
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from rlctl.planning.models import read_shape, shape_of, why_unknown
from rlctl.planning.models.lookup import known_configs, rows_of

TABLE: dict[str, Any] = tomllib.loads(
    files("rlctl.planning.models").joinpath("known_models.toml").read_text(encoding="utf-8")
)
ROWS = [
    (names, config, sources)
    for family, section in TABLE.items()
    if family != "sources"
    for names, config, sources in rows_of(section)
]
SHAPES = {str(sorted(map(str, config.items()))): (names[0], config) for names, config, _ in ROWS}
"""One row for each config: many names share one."""


def built(config: dict[str, Any]) -> torch.nn.Module:
    """The model of Transformers on the meta device."""
    made = AutoConfig.for_model(**config)
    kind = AutoModelForImageTextToText if "vision_config" in config else AutoModelForCausalLM
    with torch.device("meta"):
        return kind.from_config(made)


@pytest.mark.parametrize(("name", "config"), SHAPES.values(), ids=[name for name, _ in SHAPES.values()])
def test_parameters_are_exactly_those_that_transformers_builds(name: str, config: dict[str, Any]) -> None:
    model = built(config)
    shape = read_shape(name)
    assert shape is not None
    assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())


TOTALS = {  # billions, as model cards and README files state them; with MTP modules left out
    "Qwen/Qwen2.5-0.5B": 0.49,
    "Qwen/Qwen2.5-7B-Instruct": 7.61,
    "Qwen/Qwen2.5-14B": 14.7,
    "Qwen/Qwen2.5-72B": 72.7,
    "Qwen/Qwen3-30B-A3B": 30.5,
    "Qwen/Qwen3-235B-A22B": 235,
    "meta-llama/Llama-3.2-1B": 1.23,
    "meta-llama/Llama-3.2-3B": 3.21,
    "deepseek-ai/DeepSeek-R1": 671,
    "openai/gpt-oss-20b": 21,
    "openai/gpt-oss-120b": 117,
    "microsoft/Phi-4-mini-instruct": 3.8,
    "ByteDance-Seed/Seed-OSS-36B-Base": 36,
    "XiaomiMiMo/MiMo-7B-RL": 7.6,
    "deepseek-ai/deepseek-llm-7b-chat": 6.9,
    "Qwen/Qwen1.5-MoE-A2.7B": 14.3,
    "tencent/Hy3": 295,
    "MiniMaxAI/MiniMax-M2.5": 229,
    "Qwen/Qwen2-7B-Instruct": 7.61,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8.29,
    "Qwen/Qwen3-VL-8B-Instruct": 8.77,
    "zai-org/GLM-4.1V-9B-Thinking": 10.3,
}


@pytest.mark.parametrize(("name", "billions"), TOTALS.items())
def test_totals_are_those_that_are_published(name: str, billions: float) -> None:
    shape = read_shape(name)
    assert shape is not None
    digits = len(str(billions).partition(".")[2]) if isinstance(billions, float) else 0
    assert shape.parameters / 1e9 == pytest.approx(billions, abs=0.8 * 10**-digits)


def test_kimi_k2s_own_name_of_the_architecture_is_that_of_deepseek_v3() -> None:
    config = dict(known_configs()["moonshotai/kimi-k2-instruct"])
    assert shape_of({**config, "model_type": "kimi_k2"}) is not None


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/models/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("${HOME}/models/Qwen/Qwen2.5-VL-7B-Instruct/", "Qwen/Qwen2.5-VL-7B-Instruct"),
        ("./ckpt/qwen3-32b-fp8", "Qwen/Qwen3-32B"),
        ("/root/models/gpt-oss-20b-bf16", "openai/gpt-oss-20b"),
        ("${oc.env:HF_MODEL_PATH,${oc.env:HOME}/models/Qwen3-VL-8B-Instruct}", "Qwen/Qwen3-VL-8B-Instruct"),
        ("someone/Qwen3-8B", None),
        ("/models/my-model", None),
        ("/models/Qwen3-8B/step-10", None),
    ],
)
def test_a_folder_that_is_called_as_a_known_model_has_its_shape(path: str, name: str | None) -> None:
    assert read_shape(path) == (None if name is None else read_shape(name))


def test_every_row_names_its_sources() -> None:
    for names, _, sources in ROWS:
        assert sources, names
        assert set(sources) <= set(TABLE["sources"]), names


def test_no_name_is_twice_in_the_table() -> None:
    names = [name.lower() for own, _, _ in ROWS for name in own]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["qwen/qwen3-8b", "Qwen/Qwen3-8B-FP8", "Qwen/Qwen3-8B-AWQ", "Qwen/Qwen3-8B-GPTQ-Int4"])
def test_names_are_found_in_any_case_and_for_quantized_copies(name: str) -> None:
    assert read_shape(name) == read_shape("Qwen/Qwen3-8B") is not None


def test_a_local_folder_comes_before_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "Qwen" / "Qwen3-8B"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(known_configs()["qwen/qwen3-0.6b"]))
    assert read_shape("Qwen/Qwen3-8B") == read_shape("Qwen/Qwen3-0.6B")


def test_a_name_that_is_not_in_the_table_has_a_reason() -> None:
    assert read_shape("somebody/finetuned-qwen") is None
    assert "does not know 'somebody/finetuned-qwen'" in why_unknown("somebody/finetuned-qwen")


def test_the_cache_of_a_token_counts_latent_grouped_and_windowed_attention() -> None:
    """DeepSeek-V3: 512 + 64 values a layer. Gemma 3 12B: 1024 tokens in 40 of 48 layers. Qwen3.5: every fourth layer."""
    deepseek, gemma, hybrid = map(read_shape, ("deepseek-ai/DeepSeek-V3", "google/gemma-3-12b-it", "Qwen/Qwen3.5-9B"))
    assert deepseek is not None
    assert gemma is not None
    assert hybrid is not None
    assert deepseek.cache_values_per_token() == 61 * 576
    assert gemma.cache_values(8192) == 2 * 8 * 256 * (8 * 8192 + 40 * 1024)
    assert hybrid.cache_values_per_token() == 8 * 2 * 4 * 256
    assert hybrid.cache_values(0) == 24 * (32 * 128 * 128 + 4 * (2 * 16 * 128 + 32 * 128))
