"""``check --here`` asks real sockets, servers, tools and folders, says what is wrong with each, and shows no key."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rlctl.checks import check, rules_of_here
from rlctl.checks.here import machine
from rlctl.checks.here.probing import Probe, answered, place_of
from rlctl.checks.problem import LEVELS
from rlctl.common.language import VARIABLE
from rlctl.config import config_from

KEY = "sk-a-right-key-0123456789"
QUIET = {"placement": {"device": "cpu", "devices_per_node": 1}, "model": {"path": "./nowhere"}}
"""A config that asks nothing of the machine."""


class Services(BaseHTTPRequestHandler):
    """A hub, Weights & Biases, SwanLab, Ray's dashboard and an endpoint of models in one."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer()

    def _answer(self) -> None:
        given = self.headers.get("authorization") or ""
        right = KEY in given or base64.b64encode(f"api:{KEY}".encode()).decode() in given
        replies: Mapping[str, tuple[int, Any]] = {
            "/v1/models": (200, {"data": [{"id": "judge"}]}) if right else (401, {}),
            "/broken/models": (503, {}),
            "/api/models/org/open": (200, {"gated": False}),
            "/api/models/org/gated": (200 if right else 401, {}),
            "/api/datasets/org/open": (200, {}),
            "/graphql": (200, {"data": {"viewer": {"id": "1"} if right else None}}),
            "/api/login/api_key": (200 if right else 401, {}),
            "/api/version": (200, {"ray_version": "1.0.0"}),
        }
        status, data = replies.get(self.path, (404, {}))
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of the services."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Services) as started:
        threading.Thread(target=started.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{started.server_address[1]}"
        started.shutdown()


@pytest.fixture
def closed() -> str:
    """An address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(autouse=True)
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without logins and an environment without keys."""
    for name in list(os.environ):
        if name.startswith(("HF_", "WANDB_", "SWANLAB_", "RAY_", "CUDA_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(change: Mapping[str, Any]) -> dict[str, str]:
    """What is found, by the ids of the messages; in Chinese it is said, too, and nowhere with the key."""
    config = config_from({**QUIET, **change})
    shown = [item for item in check(config, more=rules_of_here()) if item.code.startswith("here-")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "zh")
        chinese = [item for item in check(config, more=rules_of_here()) if item.code.startswith("here-")]
    assert [item.id for item in chinese] == [item.id for item in shown]
    for own, other in zip(shown, chinese, strict=True):
        assert own.message != other.message
        assert all(item.hint and KEY not in repr(item) for item in (own, other))
        assert own.level is LEVELS[own.code]
    return {item.id: f"{item.key}: {item.message}" for item in shown}


def test_endpoints_are_asked_with_their_keys(server: str, closed: str) -> None:
    def judge(path: str, model: str = "judge", key: str | None = KEY) -> dict[str, str]:
        reward = {"type": "judge", "base_url": path, "model": model, "api_key": key}
        return found({"rewards": [reward]})

    assert judge(f"{server}/v1") == {}
    assert "does not serve other; it serves judge" in judge(f"{server}/v1", "other")["here-endpoint_model"]
    assert "refuses the API key" in judge(f"{server}/v1", key="sk-wrong")["here-endpoint_refused"]
    assert "HTTP 503" in judge(f"{server}/broken")["here-endpoint"]
    assert "nothing listens there" in judge(f"http://{closed}/v1")["here-endpoint"]
    assert judge(f"http://user:{KEY}@{closed}/v1?key={KEY}")["here-endpoint"].startswith(
        f"rewards[0].base_url: {closed} cannot"
    )
    tools = {
        "rollout": {
            "agents": [{"type": "tools", "name": "a", "tools": [{"type": "mcp", "url": f"http://{closed}/mcp"}]}]
        }
    }
    boxes = {"rewards": [{"type": "sandbox", "url": f"http://{closed}/run"}]}
    assert [list(found(each)) for each in (tools, boxes)] == [["here-endpoint"]] * 2
    assert found({"rewards": [{"type": "sandbox", "url": f"{server}/run"}]}) == {}


def test_a_server_that_never_answers_takes_no_longer_than_its_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        probes = [Probe("slow", ("model",), lambda: time.sleep(5) or []) for _ in range(3)]
        start = time.monotonic()
        late = list(answered(probes, limit=0.2))
        assert time.monotonic() - start < 2
    assert [(each.id, each.params["subject"]) for each in late] == [("here-late", "slow")] * 3
    assert place_of(url) == url.removeprefix("http://").removesuffix("/v1")


def test_the_hub_gives_a_model_to_who_is_logged_in(
    server: str, closed: str, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", server)
    data = {"data": {"train": [{"path": "org/open"}]}}
    assert found({"model": {"path": "org/open"}, **data}) == {}
    assert "has no org/none" in found({"model": {"path": "org/none"}})["here-hub_unknown"]
    gated = {"model": {"path": "org/gated"}}
    assert "not logged in" in found(gated)["here-hub_login"]
    (person / ".cache" / "huggingface").mkdir(parents=True)
    token = person / ".cache" / "huggingface" / "token"
    token.write_text("hf_wrong")
    assert "your account" in found(gated)["here-hub_login"]
    token.write_text(KEY)
    assert found(gated) == {}
    monkeypatch.setenv("HF_ENDPOINT", f"http://{closed}")
    assert "nothing listens there" in found(gated)["here-hub"]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "forbids a download" in found(gated)["here-hub_offline"]
    snapshot = person / ".cache" / "huggingface" / "hub" / "models--org--gated" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    assert found(gated) == {}


@pytest.mark.parametrize(
    ("kind", "variable", "host"),
    [("wandb", "WANDB_API_KEY", "WANDB_BASE_URL"), ("swanlab", "SWANLAB_API_KEY", "SWANLAB_API_HOST")],
)
def test_a_tracker_takes_the_key_of_a_login(
    server: str, closed: str, person: Path, monkeypatch: pytest.MonkeyPatch, kind: str, variable: str, host: str
) -> None:
    monkeypatch.setenv(host, server)
    tracked = {"tracking": [{"type": kind}]}
    assert list(found(tracked)) == ["here-tracker"]
    assert found({"tracking": [{"type": kind, "mode": "offline"}]}) == {}
    monkeypatch.setenv(variable, "wrong")
    assert list(found(tracked)) == ["here-tracker_refused"]
    monkeypatch.delenv(variable)
    folder = person if kind == "wandb" else person / ".swanlab"
    folder.mkdir(exist_ok=True)
    (folder / ".netrc").write_text(f"machine 127.0.0.1\nlogin user\npassword {KEY}\n")
    assert found(tracked) == {}
    monkeypatch.setenv(host, f"http://{closed}")
    assert "nothing listens there" in found(tracked)["here-tracker_unreached"]


def test_ray_answers_with_the_version_of_this_machine(server: str, closed: str) -> None:
    def ray(address: str) -> dict[str, str]:
        return found({"runtime": {"ray": {"address": address}}})

    assert "nothing listens there" in ray(closed)["here-ray"]
    assert "runs Ray 1.0.0; this machine has" in ray(server)["here-ray_version"]


def test_ports_of_the_run_are_free(closed: str) -> None:
    def port(number: int) -> dict[str, str]:
        return found({"runtime": {"env_vars": {"MASTER_PORT": str(number)}}})

    assert port(int(closed.rpartition(":")[2])) == {}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "is in use" in port(taken.getsockname()[1])["here-port"]
    assert "nothing can listen on port 99999" in port(99999)["here-port_refused"]


def test_folders_can_be_written_and_checkpoints_fit(person: Path) -> None:
    (person / "file").touch()
    assert "Not a directory" in found({"run": {"folder": str(person / "file")}})["here-folder"]
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4}
    (person / "model").mkdir()
    (person / "model" / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 10**6, **shape}))

    def of(**checkpoint: Any) -> tuple[int, float]:
        config = config_from(
            {
                **QUIET,
                "model": {"path": str(person / "model")},
                "schedule": {"total_steps": 100},
                "checkpoint": checkpoint,
            }
        )
        return machine.checkpoints_kept(config), machine.checkpoint_bytes(config) / 1e9

    assert of(every=10)[0] == 10
    assert of(every=10, keep_last=2)[0] == 3
    assert of(every=10, delete_previous=True)[0] == 1
    assert of(at_end=False)[0] == 0
    embeddings = 2 * 64 * 10**6
    assert of(every=10)[1] == pytest.approx(embeddings * 12 / 1e9, rel=0.01)
    assert of(every=10, save_contents=["hf_model"])[1] == pytest.approx(embeddings * 2 / 1e9, rel=0.01)
    free = shutil.disk_usage(person).free
    many = free // 1_500_000_000 + 2
    full = {
        "model": {"path": str(person / "model")},
        "schedule": {"total_steps": many},
        "checkpoint": {"every": 1},
        "run": {"folder": str(person)},
    }
    assert f"{many} checkpoints of 1.4 GiB" in found(full)["here-disk"]
    assert found({**full, "checkpoint": {"every": 1, "keep_last": 1}}) == {}


NVIDIA_SMI = """#!{python}
import sys
if len(sys.argv) == 1:
    print("| NVIDIA-SMI 535.54   Driver Version: 535.54   CUDA Version: {cuda}.2 |")
elif {fails}:
    sys.exit("Failed to initialize NVML: Driver/library version mismatch")
else:
    for index in range({count}):
        print(f"{{index}}, NVIDIA H100 80GB HBM3, 81559, {used}, 535.54")
"""


def test_gpus_are_counted_by_the_driver(person: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = person / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    needs = {"placement": {"device": "cuda", "devices_per_node": 4}}

    def gpus(count: int = 4, used: int = 3, cuda: int = 99, fails: bool = False) -> dict[str, str]:
        text = NVIDIA_SMI.format(python=sys.executable, count=count, used=used, cuda=cuda, fails=fails)
        (tools / "nvidia-smi").write_text(text)
        (tools / "nvidia-smi").chmod(0o755)
        seen = found(needs)
        seen.pop("here-shm", None)
        return seen

    assert "no nvidia-smi" in found(needs)["here-gpus_none"]
    assert gpus() == {}
    assert "uses 4 GPUs on each node; this machine has 2" in gpus(2)["here-gpus"]
    assert "GPU 3 already has 59 of 80 GiB in use" in gpus(used=60000)["here-busy"]
    assert "version mismatch" in gpus(fails=True)["here-gpus_driver"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert "CUDA_VISIBLE_DEVICES hides 2" in gpus()["here-gpus"]
