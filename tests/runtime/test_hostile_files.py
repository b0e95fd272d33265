"""No file that a run, an export or a resume reads executes anything, whoever wrote it. Each test has a payload that would."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import fsspec
import pytest
import torch
from datasets import Dataset
from fsspec.implementations.memory import MemoryFileSystem
from safetensors.torch import load_file
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from transformers import AutoModelForCausalLM

from rlctl import runs
from rlctl.common.errors import RunError
from rlctl.config.sections.data import DataSource
from rlctl.config.sections.model import Lora, Model
from rlctl.config.sections.rewards import ModelReward
from rlctl.config.sections.train import MemorySettings
from rlctl.runtime.data.sources import load_source
from rlctl.runtime.data.tokenizer import load_tokenizer
from rlctl.runtime.experience.recorded import Replayed, name_of
from rlctl.runtime.remote.files import bring, bring_into
from rlctl.runtime.rollout import model as rollout_model
from rlctl.runtime.train import export, model
from rlctl.runtime.train.checkpoint_reader import CheckpointReader
from rlctl.runtime.train.lora import Adapters
from rlctl.runtime.types import Request, Sampling
from rlctl.runtime.workers import reward_model

from . import hostile
from .hostile import Change, Payload


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """Where payloads would make a folder."""
    place = tmp_path / "executed"
    hostile.works(place)
    return place


@pytest.fixture(scope="module")
def saved(task: Any, run_without_ray: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was asked to stop after its first step."""
    folder = tmp_path_factory.mktemp("saved")
    config = task.config(folder, objective="sft", run={"max_steps_this_session": 1}, data={"eval": []})
    ran = run_without_ray(config)
    assert ran.result.status == "stopped", ran.result.cause
    return folder / "demo"


def attacked(saved: Path, to: Path, change: Change, marker: Path) -> Path:
    """A copy of a run whose checkpoint somebody changed, and signed again."""
    shutil.copytree(saved, to / "demo")
    config = to / "demo" / "config.yaml"
    config.write_text(config.read_text().replace(str(saved.parent), str(to)))
    [checkpoint] = (to / "demo" / "checkpoints" / "main").glob("step-*")
    change(checkpoint / "policy", marker)
    hostile.sign(checkpoint)
    return checkpoint


ATTACKS = [hostile.in_metadata, hostile.as_object("progress"), hostile.in_place_of("progress")]
NAMES = ["metadata", "object", "tensor"]


@pytest.mark.parametrize(
    "change", [*ATTACKS[:1], hostile.as_object("model/lm_head.weight")], ids=["metadata", "object"]
)
def test_an_export_executes_nothing(saved: Path, tmp_path: Path, marker: Path, change: Change) -> None:
    attacked(saved, tmp_path, change, marker)
    with pytest.raises(RunError, match=r"was not loaded: .*(posix\.mkdir|is an object instead of a tensor)"):
        runs.export(runs.find("demo", tmp_path))
    assert not marker.exists()


@pytest.mark.parametrize(
    "length", [1 << 40, (1 << 63) - 1, (1 << 64) - 1], ids=["a terabyte", "the most", "more than there is"]
)
def test_a_file_that_asks_for_all_memory_is_refused(tmp_path: Path, length: int) -> None:
    (tmp_path / ".metadata").write_bytes(b"\x80\x04\x8d" + length.to_bytes(8, "little") + b"x.")
    with pytest.raises(UnpicklingError, match=r"does not fit into memory|read would overflow"):
        CheckpointReader(tmp_path).read_metadata()


@pytest.mark.parametrize("change", ATTACKS, ids=NAMES)
@pytest.mark.parametrize("way", ["resumed", "from another run", "from a URL"])
def test_a_resumed_run_executes_nothing(
    task: Any, run_without_ray: Callable[..., Any], saved: Path, tmp_path: Path, marker: Path, change: Change, way: str
) -> None:
    checkpoint = attacked(saved, tmp_path, change, marker)
    settings: dict[str, Any] = {}
    if way == "from another run":
        (tmp_path / "demo").rename(tmp_path / "theirs")
        there = tmp_path / "theirs" / "checkpoints" / "main" / checkpoint.name
        settings = {"checkpoint": {"resume": "path", "resume_path": str(there)}}
    elif way == "from a URL":
        checkpoint.parent.rename(tmp_path / "copies")
        shutil.copytree(tmp_path / "copies", tmp_path / "bucket" / "demo" / "main")
        settings = {"checkpoint": {"remote": f"file://{tmp_path}/bucket"}}
        shutil.rmtree(tmp_path / "demo")
    ran = run_without_ray(task.config(tmp_path, objective="sft", data={"eval": []}, **settings))
    assert ran.result.status == "failed"
    assert "was not loaded" in ran.result.cause
    assert not marker.exists()


def weights_in_pickles(source: Path, folder: Path, marker: Path) -> Path:
    """A model as Hugging Face had them before safetensors, with a payload."""
    shutil.copytree(source, folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save({**weights, "more": Payload(marker)}, folder / "pytorch_model.bin")
    return folder


def test_weights_in_pickles_execute_nothing(task: Any, tmp_path: Path, marker: Path) -> None:
    path = str(weights_in_pickles(task.folder / "model", tmp_path / "model", marker))
    loads: list[Callable[[], Any]] = [
        lambda: model.load(Model(path=path), MemorySettings(), dtype=torch.float32, train=True),
        lambda: model.load(Model(path=path), MemorySettings(), dtype=torch.float32, train=True, value_head=True),
        lambda: rollout_model.load_model(
            path, dtype=torch.float32, device=torch.device("cpu"), implementation="auto", trust_remote_code=False
        ),
        lambda: reward_model._load(ModelReward(path=path), torch.float32),
    ]
    for load in loads:
        with pytest.raises(RunError, match=r"it contains posix\.mkdir, which would be executed on loading"):
            load()
    assert not marker.exists()


def test_an_adapter_in_pickles_executes_nothing(task: Any, tmp_path: Path, marker: Path) -> None:
    settings = {"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    torch.save({"a": Payload(marker)}, tmp_path / "adapter_model.bin")
    plain = AutoModelForCausalLM.from_pretrained(task.folder / "model")
    with pytest.raises(RunError, match=r"it contains posix\.mkdir, which would be executed on loading"):
        Adapters.put_into(plain, Lora(rank=2, adapter_path=str(tmp_path)), base="", seed=0)
    assert not marker.exists()


def test_code_in_a_model_folder_runs_only_where_it_is_trusted(task: Any, tmp_path: Path, marker: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(task.folder / "model", folder)
    (folder / "evil.py").write_text(f"import os\nos.mkdir({str(marker)!r})\nraise SystemExit\n")
    for name, entry in (
        ("config.json", {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["evil.T", "evil.T"]}),
    ):
        known = json.loads((folder / name).read_text())
        (folder / name).write_text(
            json.dumps(known | {"auto_map": entry, "model_type": "evil", "tokenizer_class": "Evil"})
        )
    for load in (
        lambda: model.load(Model(path=str(folder)), MemorySettings(), dtype=torch.float32, train=True),
        lambda: load_tokenizer(Model(path=str(folder))),
        lambda: reward_model._load(ModelReward(path=str(folder)), torch.float32),
    ):
        with pytest.raises(RunError):
            load()
        assert not marker.exists()
    with pytest.raises(SystemExit):
        load_tokenizer(Model(path=str(folder), trust_remote_code=True))
    assert marker.exists(), "the code would have run"


def test_replayed_responses_execute_nothing(tmp_path: Path, marker: Path) -> None:
    asked = [Request((1, 2), Sampling(max_tokens=4), n=1, seed=3)]
    torch.save([[Payload(marker)]], tmp_path / name_of(asked))
    with pytest.raises(RunError, match=r"it contains posix\.mkdir, which would be executed on loading"):
        Replayed(tmp_path).generate(asked)
    assert not marker.exists()


@pytest.mark.parametrize("format", ["auto", "hub"])
def test_scripts_and_pickles_among_data_execute_nothing(
    tmp_path: Path, marker: Path, monkeypatch: pytest.MonkeyPatch, format: Any
) -> None:
    """A folder as the hub had them once: a script of the folder's name, and rows in a pickle of pandas."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "rows.py").write_text(f"import os\nos.mkdir({str(marker)!r})\n")
    (folder / "train.pkl").write_bytes(pickle.dumps(Payload(marker)))
    with pytest.raises(RunError):
        load_source(DataSource(path=str(folder), format=format), key="data.train[0]")
    saved = tmp_path / "saved"
    Dataset.from_list([{"prompt": "a"}]).save_to_disk(saved)
    assert load_source(DataSource(path=str(saved)), key="data.train[0]").num_rows == 1
    (saved / "state.json").write_bytes(pickle.dumps(Payload(marker)))
    with pytest.raises(RunError):
        load_source(DataSource(path=str(saved)), key="data.train[0]")
    assert not marker.exists()


class _Escaping(MemoryFileSystem):  # type: ignore[misc]
    """An object store, whose names may be anything."""

    protocol = "escaping"

    def find(self, path: str, **_: Any) -> list[str]:
        return [f"{path}/../../../outside"]

    def isdir(self, path: str) -> bool:
        return True

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": 1, "type": "file"}

    def get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        Path(lpath).write_text("x")


def test_names_at_a_url_stay_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCTL_CACHE", str(tmp_path / "a" / "b" / "cache"))
    fsspec.register_implementation("escaping", _Escaping, clobber=True)
    for load in (
        lambda: bring("escaping://store/model", key="model.path"),
        lambda: bring_into("escaping://store/step-000001", tmp_path / "a" / "b" / "c", key="checkpoint.remote"),
    ):
        with pytest.raises(RunError, match="names a file outside of it"):
            load()
    assert not list(tmp_path.rglob("outside"))


@pytest.mark.parametrize(
    ("module", "name"),
    [("torch", "load"), ("torch", "serialization.load"), ("builtins", "eval"), ("torch.hub", "load")],
)
def test_metadata_names_nothing_but_metadata(tmp_path: Path, module: str, name: str) -> None:
    names = [pickle.SHORT_BINUNICODE + bytes([len(text)]) + text.encode() for text in (module, name)]
    text = b"".join((pickle.PROTO, b"\x04", *names, pickle.STACK_GLOBAL, pickle.STOP))
    (tmp_path / ".metadata").write_bytes(text)
    with pytest.raises(pickle.UnpicklingError, match=f"its .metadata contains {module}.{name}"):
        CheckpointReader(tmp_path).read_metadata()


def test_metadata_names_files_of_its_folder_only(tmp_path: Path) -> None:
    stored = {MetadataIndex("a"): _StorageInfo("../outside.distcp", 0, 1)}
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Metadata({}, storage_data=stored)))
    with pytest.raises(
        pickle.UnpicklingError, match=r"names the file '\.\./outside\.distcp', which is not in the folder"
    ):
        CheckpointReader(tmp_path).read_metadata()


def test_the_tokenizer_of_a_hub_model_is_copied_without_its_code(
    task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: Path
) -> None:
    from huggingface_hub import constants

    place = tmp_path / "models--org--name"
    snapshot = place / "snapshots" / ("0" * 40)
    shutil.copytree(task.folder / "model", snapshot)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("0" * 40)
    (snapshot / "evil.py").write_text(f"import os\nos.mkdir({str(marker)!r})\n")
    known = json.loads((snapshot / "tokenizer_config.json").read_text())
    (snapshot / "tokenizer_config.json").write_text(
        json.dumps(known | {"auto_map": {"AutoTokenizer": ["evil.T", None]}})
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    (tmp_path / "to").mkdir()
    export._write_tokenizer("org/name", tmp_path / "to")
    assert {"tokenizer.json", "tokenizer_config.json"} <= {path.name for path in (tmp_path / "to").iterdir()}
    assert not (tmp_path / "to" / "evil.py").exists()
    assert not marker.exists()
