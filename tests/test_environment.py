"""The environment that ``make setup`` makes: what must agree does, and vLLM's CPU build runs a model made here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
)
VLLM = """
import sys
from vllm import LLM, SamplingParams
engine = LLM(sys.argv[1], dtype="float32", max_model_len=32, enforce_eager=True, skip_tokenizer_init=True)
found = engine.generate({"prompt_token_ids": [2, 5, 6, 3]}, SamplingParams(temperature=0, max_tokens=4, detokenize=False))
print(*found[0].outputs[0].token_ids)
"""


def pinned(requirement: str) -> tuple[str, str] | None:
    """Name and version of a requirement that is pinned exactly."""
    match = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?==([\w.]+)", requirement)
    return (match[1], match[2]) if match else None


def test_exact_pins_are_the_versions_of_the_constraints() -> None:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    pins = [pin for group in groups for requirement in group if (pin := pinned(requirement))]
    here = [
        (name, version) for name, version in pins if name != "vllm"
    ]  # the GPU package; its CPU build is installed here
    assert here
    for name, version in here:
        assert CONSTRAINTS[name] == version


def test_every_dependency_says_why_it_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    block = text[text.index("dependencies = [") : text.index("vllm = [")]
    lines = [line for line in block.splitlines() if line.startswith('  "')]
    assert lines
    assert [line for line in lines if "#" not in line] == []


@pytest.mark.timeout(240)
def test_vllm_generates_on_cpu(tmp_path: Path) -> None:
    from rlctl.runtime.quickstart import make_model, make_tokenizer

    make_model(tmp_path, make_tokenizer(), seed=0)
    settings = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    told = subprocess.run(
        [sys.executable, "-c", VLLM, str(tmp_path)],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-2000:]
    tokens = [int(token) for token in told.stdout.splitlines()[-1].split()]

    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    expected = model.generate(torch.tensor([[2, 5, 6, 3]]), max_new_tokens=4, do_sample=False, pad_token_id=0)[
        0, 4:
    ].tolist()
    assert tokens == expected
