"""A run of each layout that is killed and resumed under Ray ends with the bits of the run that was not."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, Qwen3MoeConfig, Qwen3MoeForCausalLM

from rlctl import runs
from tests.runtime.conftest import Ran, Task
from tests.runtime.told import Numbers, events_of, numbers_of

pytestmark = [pytest.mark.ray, pytest.mark.soak, pytest.mark.timeout(1800)]

LAYOUTS: dict[str, dict[str, Any]] = {
    "tensor": {"tensor_parallel_size": 2},
    "pipeline": {"pipeline_parallel_size": 2, "transformer": {"num_layers_in_last_pipeline_stage": 1}},
    "context": {"context_parallel_size": 2},
    "expert": {"expert_parallel_size": 2},
    "replicas that share an optimizer": {"distributed_optimizer": True},
    "replicas with an optimizer each": {"distributed_optimizer": False},
}
EXPERTS = {"moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}


@pytest.fixture(scope="module")
def cluster(monkeypatch_module: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a Ray that all runs here join: starting one takes longer than a run of these."""
    from ray.cluster_utils import Cluster

    monkeypatch_module.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 6, "include_dashboard": False})
    yield made.address
    made.shutdown()


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def experts(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of experts with the tokens of the quickstart's."""
    folder = tmp_path_factory.mktemp("experts") / "model"
    shutil.copytree(task.folder / "model", folder, ignore=shutil.ignore_patterns("*.safetensors", "*config.json"))
    tokenizer = AutoTokenizer.from_pretrained(task.folder / "model")
    torch.manual_seed(3)
    config = Qwen3MoeConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=128,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **EXPERTS,
    )
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def told(folder: Path) -> tuple[Numbers, bytes]:
    """What a run has come to: the metrics of every step, and its weights."""
    weights = (folder / "checkpoints" / "main" / "hf" / "model.safetensors").read_bytes()
    return numbers_of(events_of(folder)), weights


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_killed_run_goes_on_to_the_same_end(
    layout: str,
    cluster: str,
    task: Task,
    experts: Path,
    run: Callable[..., Ran],
    session: Callable[..., Any],
    tmp_path: Path,
) -> None:
    def config(name: str) -> Any:
        return task.config(
            tmp_path / name,
            model={"path": str(experts if "expert" in LAYOUTS[layout] else task.folder / "model")},
            placement={"devices_per_node": 2, "device": "cpu"},
            runtime={"ray": {"address": cluster, "startup_timeout": 600}},
            train={
                "engine": {"type": "megatron", **LAYOUTS[layout]},
                "precision": {"compute": "float32"},
                "optimizer": {"lr": 1e-3},
            },
        )

    whole = run(config("whole"))
    assert whole.result.status == "finished", whole.result.cause
    broken = config("broken")
    ended = session(broken, at=("phase", "main", 2, "save"), after=0.02, within=900)
    assert ended.process.returncode == -signal.SIGKILL, ended.err
    assert runs.inspect(runs.folder_of(broken)).status == "interrupted"
    events: list[dict[str, Any]] = []
    result = runs.resume(runs.inspect(runs.folder_of(broken)), observer=events.append)
    assert result.status == "finished", result.cause
    assert [event["step"] for event in events if event["kind"] == "resumed"], "it goes on from a checkpoint"
    numbers, weights = told(result.folder)
    expected, expected_weights = told(whole.result.folder)
    assert numbers == expected
    assert weights == expected_weights
