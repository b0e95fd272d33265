"""Files at URLs are brought once for each state, checkpoints go there and come back, and what is missing is named."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import fsspec
import pytest
from datasets import Dataset

from rlctl.common.errors import MissingDependency, RunError
from rlctl.config import config_from, stages_of
from rlctl.config.sections.data import DataSource
from rlctl.runtime.checkpoints.checkpoint import Checkpoints
from rlctl.runtime.checkpoints.checksums import write_checksums
from rlctl.runtime.data.sources import load_source
from rlctl.runtime.remote.checkpoints import copies_of
from rlctl.runtime.remote.files import bring, names_in
from rlctl.runtime.remote.inputs import with_files_here


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    import datasets

    monkeypatch.setenv("RLCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("rlctl.runtime.remote.files.PAUSES", ())
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf-cache")
    yield tmp_path / "cache"
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "served").mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{served.server_port}"
    served.shutdown()


def test_data_is_read_over_http_and_of_any_format(server: str, tmp_path: Path) -> None:
    rows = [{"prompt": f"p{i}", "answer": i} for i in range(3)]
    Dataset.from_list(rows).to_parquet(str(tmp_path / "served" / "rows.parquet"))
    (tmp_path / "served" / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name in ("rows.parquet", "rows.jsonl"):
        assert load_source(DataSource(path=f"{server}/{name}"), key="data.train[0]").to_list() == rows
    with pytest.raises(RunError, match=r"data\.train\[0\]\.path: http://.*/none\.parquet does not exist"):
        load_source(DataSource(path=f"{server}/none.parquet"), key="data.train[0]")


def _break() -> None:
    raise ConnectionError("the network is gone")


def test_a_folder_is_brought_whole_once_and_anew_when_it_changed(cache: Path) -> None:
    system = fsspec.filesystem("memory")
    system.pipe({"/models/small/config.json": b"{}", "/models/small/sub/x.txt": b"one"})
    first = bring("memory://models/small", key="model.path")
    assert sorted(path.relative_to(first).as_posix() for path in first.rglob("*.*")) == ["config.json", "sub/x.txt"]
    (first / "mark").touch()
    assert (bring("memory://models/small", key="model.path") / "mark").exists(), "brought once"
    system.pipe("/models/small/sub/x.txt", b"other")
    assert (bring("memory://models/small", key="model.path") / "sub" / "x.txt").read_text() == "other"
    assert not list(cache.glob("partial-*"))
    before = sorted(cache.iterdir())
    system.pipe("/models/small/z.txt", b"new")
    get = system.get_file
    broken = Mock(side_effect=lambda file, target: get(file, target) if "config" in file else _break())
    with patch.object(type(system), "get_file", broken), pytest.raises(RunError, match="the network is gone"):
        bring("memory://models/small", key="model.path")
    assert sorted(cache.iterdir()) == before, "half of a model stays on no disk"
    with pytest.raises(RunError, match=r"model\.path: memory://none does not exist"):
        bring("memory://none", key="model.path")


def test_models_of_a_config_and_of_its_stages_are_brought() -> None:
    fsspec.filesystem("memory").pipe({"/m/config.json": b"{}", "/r/config.json": b"{}"})
    config = config_from(
        {
            "model": {"path": "memory://m"},
            "reference": {"model": {"path": "local/model"}},
            "rewards": [{"type": "model", "path": "memory://r"}],
            "stages": [{"name": "one"}, {"name": "two", "model": {"path": "memory://r"}}],
        }
    )
    told: list[str] = []
    here = with_files_here(config, told.append)
    one, two = (stage.config for stage in stages_of(here))
    assert (Path(one.model.path) / "config.json").exists()
    assert Path(two.model.path).name == "r"
    assert one.reference.model is not None
    assert one.reference.model.path == "local/model"
    assert Path(one.rewards[0].path).is_dir()  # type: ignore[attr-defined]
    assert len(told) == 3
    assert with_files_here(config_from({}), told.append) == config_from({})


def saved(folder: Path, keep_last: int | None, **checkpoint: Any) -> Checkpoints:
    config = config_from({"checkpoint": {"remote": "memory://bucket/ckpt", **checkpoint}})
    [stage] = stages_of(config)
    return Checkpoints(folder, keep_last=keep_last, copies=copies_of(stage, Path("demo")))


def write(folder: Path) -> None:
    (folder / "policy").mkdir()
    (folder / "policy" / "weights").write_bytes(b"w" * 100)
    write_checksums(folder / "policy")


def test_checkpoints_go_to_the_url_and_come_back(tmp_path: Path) -> None:
    state = {"progress": {}, "data": {}}
    checkpoints = saved(tmp_path / "here", keep_last=2)
    for step in (1, 2, 3):
        checkpoints.save(step, state, write)
    place = "memory://bucket/ckpt/demo/main"
    assert names_in(place, key="k") == ["step-000002", "step-000003"]
    elsewhere = saved(tmp_path / "elsewhere", keep_last=2).newest()
    assert elsewhere is not None
    assert (elsewhere.step, elsewhere.folder) == (3, tmp_path / "elsewhere" / "step-000003")
    assert (elsewhere.folder / "policy" / "weights").read_bytes() == b"w" * 100
    fsspec.filesystem("memory").rm("/bucket/ckpt/demo/main/step-000003/policy/weights")
    older = saved(tmp_path / "third", keep_last=2).newest()
    assert older is not None
    assert older.step == 2, "a copy that is not whole is passed over"
    own = saved(tmp_path / "here", keep_last=2).newest()
    assert own is not None
    assert own.step == 3, "what is here is not brought again"


@pytest.mark.parametrize(
    ("url", "error", "message", "hint"),
    [
        ("hdfs://host/x", MissingDependency, r"hdfs://host/x \(checkpoint\.remote\) cannot be reached", "HADOOP_HOME"),
        ("s3://bucket/x", MissingDependency, "Install s3fs", "pip install s3fs"),
        ("nope://x", RunError, "Protocol not known: nope", "checkpoint.remote"),
    ],
)
def test_what_is_missing_for_a_url_is_named(url: str, error: type[RunError], message: str, hint: str) -> None:
    with pytest.raises(error, match=message) as raised:
        saved(Path(), keep_last=None, remote=url)
    assert hint in raised.value.hint
