"""Servers that a run will ask are asked before it starts: real ones, on this machine."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.planning.plan import make_plan
from rlctl.runtime import endpoints
from rlctl.runtime.endpoints import check_endpoints, endpoints_of

KEY = "sk-secret"
Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server that gives the same answers, in turn; the last one on and on. Asked without the key it wants it says 401."""
    servers: list[ThreadingHTTPServer] = []

    def start(*answers: tuple[int, Any], key: str = "") -> str:
        left = list(answers)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = left.pop(0) if len(left) > 1 else left[0]
                if key and self.headers.get("authorization") != f"Bearer {key}":
                    status, body = 401, {"error": "no"}
                if self.path != "/v1/models" and self.path != "/run":
                    status, body = 404, {}
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(endpoints, "SECONDS", 2.0)


def check(**sections: Any) -> list[str]:
    config = config_from(
        {
            "model": {"path": "m"},
            "placement": {"device": "cpu", "devices_per_node": 1},
            "data": {"train": [{"path": "a"}]},
            **sections,
        }
    )
    told: list[str] = []
    check_endpoints(config, make_plan(config).stages[0], told.append)
    return told


def judge(url: str, **settings: Any) -> dict[str, Any]:
    return {"type": "judge", "base_url": f"{url}/v1", "model": "big", **settings}


def test_one_that_answers_and_serves_the_model_is_passed_over(serve: Serve) -> None:
    url = serve((200, {"data": [{"id": "small"}, {"id": "big"}]}), key=KEY)
    assert check(rewards=[judge(url, api_key=KEY)]) == []


@pytest.mark.parametrize("answer", [(200, "<html>"), (404, {}), (405, {}), (501, {})])
def test_one_that_answers_without_a_list_of_models_is_there(serve: Serve, answer: tuple[int, Any]) -> None:
    assert check(rewards=[judge(serve(answer))]) == []


def test_another_model_is_told(serve: Serve) -> None:
    url = serve((200, {"data": [{"id": "small"}]}))
    assert check(rewards=[judge(url)]) == [f"{url}/v1/models lists small, but not big (rewards[0].model)"]


def test_one_that_is_not_there_is_named_with_what_to_do() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(RunError) as raised:
        check(rewards=[{"type": "rule"}, judge(url)])
    assert raised.value.message.startswith(f"rewards[1].base_url: {url}/v1/models cannot be reached: ")
    assert f"curl {url}/v1/models" in raised.value.hint


def test_a_key_that_is_missing_or_wrong_is_told_without_it(serve: Serve) -> None:
    url = serve((200, {}), key=KEY)
    with pytest.raises(RunError, match="answered 401: it wants a key") as raised:
        check(rewards=[judge(url)])
    assert raised.value.hint == "set rewards[0].api_key"
    with pytest.raises(RunError, match="rejects its API key") as raised:
        check(rewards=[judge(url, api_key="sk-other")])
    assert "sk-other" not in str(raised.value)


def test_one_that_is_starting_is_asked_again(serve: Serve) -> None:
    assert check(rewards=[judge(serve((503, "starting"), (200, {"data": []})))]) == []
    with pytest.raises(RunError, match=r"answered 503: starting \(tried 3 times\)"):
        check(rewards=[judge(serve((503, "starting")))])


def test_one_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "SECONDS", 0.1)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with pytest.raises(RunError, match=r"did not answer within 0\.1 s"):
            check(rewards=[judge(f"http://127.0.0.1:{mute.getsockname()[1]}")])


def test_what_is_no_address_is_told() -> None:
    with pytest.raises(RunError, match="is not a valid URL") as raised:
        check(rewards=[{"type": "judge", "base_url": "judge:8000/v1", "model": "big"}])
    assert "http://host:8000/v1" in raised.value.hint


def test_a_sandbox_and_an_engine_outside_are_asked_too(serve: Serve) -> None:
    url = serve((200, {"data": [{"id": "other"}]}))
    engine = {"type": "external", "base_url": f"{url}/v1", "model": "m"}
    told = check(
        run={"mode": "evaluate_only"},
        rollout={"engine": engine},
        data={"eval": [{"path": "a"}]},
        rewards=[{"type": "sandbox", "url": f"{url}/run"}],
    )
    assert told == [f"{url}/v1/models lists other, but not m (rollout.engine.model)"]


def test_only_what_the_run_will_ask_is_asked(tmp_path: Path) -> None:
    config = config_from(
        {
            "model": {"path": "m"},
            "placement": {"device": "cpu", "devices_per_node": 1},
            "algorithm": {"objective": "sft"},
            "data": {"train": [{"path": "a"}]},
            "rewards": [judge("http://127.0.0.1:9")],
        }
    )
    assert list(endpoints_of(config, make_plan(config).stages[0])) == []
