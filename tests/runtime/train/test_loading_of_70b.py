"""A model of 70 billion parameters is loaded on 8 workers, each of which makes and reads its eighth.

Everything is the engine's own but the disk and the memory: the files are headers over nothing, and tensors have no numbers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM

from rlctl.config.sections.model import Model
from rlctl.config.sections.train import Fsdp2, MemorySettings, PrecisionSettings
from rlctl.planning.models.lookup import known_configs
from rlctl.runtime.train import sharding
from rlctl.runtime.train.model import load
from rlctl.runtime.train.safetensors_files import SafetensorsFiles

WORKERS = 8
NAME = "meta-llama/Llama-3.1-70B-Instruct"
PARAMETERS = 70_553_706_496
"""As the model's page on the hub counts them."""
SHARD_BYTES = 5_000_000_000
DTYPES = {torch.float32: 4, torch.bfloat16: 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its config and files in bfloat16, 141 GB of holes."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(known_configs()[NAME.lower()]))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    shards: list[dict[str, Any]] = [{}]
    end = 0
    for name, tensor in model.state_dict().items():
        if end + 2 * tensor.numel() > SHARD_BYTES:
            shards.append({})
            end = 0
        begin, end = end, end + 2 * tensor.numel()
        shards[-1][name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [begin, end]}
    places = {name: f"model-{number}.safetensors" for number, shard in enumerate(shards) for name in shard}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    for number, shard in enumerate(shards):
        text = json.dumps(shard).encode()
        text += b" " * (-len(text) % 8)
        with (folder / f"model-{number}.safetensors").open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(file.tell() + max(each["data_offsets"][1] for each in shard.values()))
    return folder


class Read:
    """A tensor of the files that is read: the shape of what is asked for, without numbers."""

    sizes: list[int] = []

    def __init__(self, stored: Any) -> None:
        self._stored = stored

    def get_shape(self) -> list[int]:
        return list(self._stored.get_shape())

    def __getitem__(self, rows: slice) -> Tensor:
        part = torch.empty(self.get_shape(), dtype=torch.bfloat16, device="meta")[rows]
        self.sizes.append(part.numel())
        return part


@pytest.fixture
def rank(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """This process is one worker of eight."""
    dist.init_process_group("fake", store=FakeStore(), rank=request.param, world_size=WORKERS)  # type: ignore[no-untyped-call]
    stored = SafetensorsFiles.tensor
    monkeypatch.setattr(SafetensorsFiles, "tensor", lambda self, name: Read(stored(self, name)))
    monkeypatch.setattr(Read, "sizes", [])
    yield request.param
    dist.destroy_process_group()


@pytest.mark.parametrize(("rank", "dtype"), [(0, torch.bfloat16), (WORKERS - 1, torch.float32)], indirect=["rank"])
def test_each_worker_makes_and_reads_an_eighth(folder: Path, rank: int, dtype: torch.dtype) -> None:
    model, empty = load(Model(path=str(folder)), MemorySettings(), dtype=dtype, train=True, whole=False)
    assert empty is not None
    assert all(parameter.is_meta for parameter in model.parameters()), "nothing of it is in memory"
    sharding.shard_model(model, Fsdp2(), PrecisionSettings(), torch.device("cpu"))
    empty.fill(torch.device("meta"))
    parts = [parameter.to_local() for parameter in model.parameters() if isinstance(parameter, DTensor)]
    assert len(parts) == len(list(model.parameters()))
    held = sum(part.numel() * part.element_size() for part in parts)
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS
    assert held == PARAMETERS * DTYPES[dtype] / WORKERS, "its rows divide by 8"
    assert sum(Read.sizes) == PARAMETERS / WORKERS, "no row is read that another worker keeps"
    assert max(Read.sizes) * 2 < 2**29, "of the files less than 512 MiB at once"
    assert sum(buffer.nbytes for buffer in model.buffers()) < 2**20
