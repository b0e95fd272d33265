"""An OpenAI-compatible endpoint as engine: a real server, whose model is the built-in engine's."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.planning.plan import make_plan
from rlctl.runtime.rollout.external import ExternalEngine
from rlctl.runtime.rollout.interface import Finished
from rlctl.runtime.rollout.transformers import TransformersEngine
from rlctl.runtime.types import Request, Sampling
from tests.runtime.local import run_here

from .conftest import MakeModel

SAMPLING = Sampling(max_tokens=6, temperature=0.9, top_p=0.9, top_k=30, min_p=0.01, stop_token_ids=(3, 9), min_tokens=2)
REQUESTS = [Request((1, 2, 3 + i), SAMPLING, 3, seed=i) for i in range(4)]


class Server:
    """What vLLM's server answers to ``/v1/completions``, as far as the engine reads it."""

    def __init__(self, folder: str) -> None:
        self.engine, self.lock = TransformersEngine(folder), threading.Lock()
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.busy = 0
        self.hangs: list[int] = []
        """A prompt that is answered when it is let go."""
        self.let_go = threading.Event()
        self.leave_out: str | None = None
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if body["prompt"] == server.hangs:
                    server.let_go.wait(60)
                with server.lock:
                    status, answer = server.answer(self.path, self.headers.get("authorization"), body)
                data = json.dumps(answer).encode()
                with suppress(OSError):  # who asked has gone
                    self.send_response(status)
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, path: str, key: str | None, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path != "/v1/completions" or body["model"] != "tiny":
            return 404, {"error": f"no model {body['model']} at {path}"}
        if self.busy:
            self.busy -= 1
            return 503, {"error": "busy"}
        self.bodies.append(body)
        self.keys.append(key)
        sampling = Sampling(
            **{name: body[name] for name in ("max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p")},
            stop_token_ids=tuple(body["stop_token_ids"]),
        )
        (response,) = self.engine.generate([Request(tuple(body["prompt"]), sampling, 1, body["seed"])])[0]
        choice = {
            "index": 0,
            "text": "",
            "token_ids": list(response.token_ids),
            "logprobs": {"token_logprobs": list(response.log_probs)},
            "finish_reason": response.finish_reason,
            "stop_reason": None,
        }
        choice.pop(self.leave_out or "", None)
        return 200, {"object": "text_completion", "choices": [choice]}


@pytest.fixture(scope="module")
def server(make_model: MakeModel) -> Iterator[Server]:
    made = Server(str(make_model()))
    yield made
    made.http.shutdown()


def engine(server: Server, **more: Any) -> ExternalEngine:
    return ExternalEngine(server.url, "tiny", api_key="abc", **more)


def test_responses_come_back_in_order_and_the_same_each_time(server: Server) -> None:
    asked = engine(server)
    found = asked.generate(REQUESTS)
    assert [len(group) for group in found] == [3] * 4
    assert found == engine(server, max_concurrent=1).generate(REQUESTS)
    assert len({response.token_ids for group in found for response in group}) > 4
    for group in found:
        for response in group:
            assert 2 < len(response.token_ids) <= 6
            assert len(response.log_probs) == len(response.token_ids)
            assert (response.finish_reason == "stop") is (response.token_ids[-1] in (3, 9))
    assert set(server.keys) == {"Bearer abc"}
    assert asked.tokens_computed.prompt == 3 * 4 * 3


def test_what_is_asked_is_what_the_request_says(server: Server) -> None:
    server.bodies.clear()
    engine(server, arguments={"user": "me"}).generate(REQUESTS[:1])
    seeds = {body.pop("seed") for body in server.bodies}
    assert len(seeds) == 3
    assert server.bodies[0] == {
        "model": "tiny", "prompt": [1, 2, 3], "n": 1, "max_tokens": 6, "min_tokens": 2, "temperature": 0.9, "top_p": 0.9,
        "top_k": 30, "min_p": 0.01, "repetition_penalty": 1.0, "stop": [], "stop_token_ids": [3, 9], "ignore_eos": False,
        "logprobs": 0, "return_token_ids": True, "user": "me",
    }  # fmt: skip


def test_what_is_submitted_is_answered_by_ticket(server: Server) -> None:
    asked = engine(server, max_concurrent=4)
    whole = asked.generate(REQUESTS)
    asked.submit(dict(enumerate(REQUESTS)))
    asked.abort([2])
    found: list[Finished] = []
    while len(found) < 9:
        found += asked.poll(0.1)
    assert asked.poll(60) == []
    assert {(each.ticket, each.index): each.response for each in found} == {
        (ticket, index): whole[ticket][index] for ticket in (0, 1, 3) for index in range(3)
    }


def test_a_response_that_takes_long_holds_back_nobody_and_is_given_up(server: Server) -> None:
    """As with the other engines: what is late is whoever's who submitted it, and ends no run."""
    whole = engine(server).generate(REQUESTS)
    server.hangs, server.let_go = [1, 2, 4], threading.Event()
    asked = engine(server, timeout=0.3, patient=True, retries=0)
    asked.submit(dict(enumerate(REQUESTS)))
    found: list[Finished] = []
    began = time.monotonic()
    while len(found) < 9:
        found += asked.poll(0.1)
    assert asked.poll(0.5) == []
    assert {(each.ticket, each.index): each.response for each in found} == {
        (ticket, index): whole[ticket][index] for ticket in (0, 2, 3) for index in range(3)
    }
    asked.abort([1])
    assert asked.poll(60) == []
    asked.close()
    asked.close()
    assert time.monotonic() - began < 30
    server.let_go.set()
    server.hangs = []
    assert not [thread for thread in threading.enumerate() if thread.name == "external" and thread is asked._thread]


def test_log_probs_that_are_no_numbers_are_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = server.answer

    def without_one(*asked: Any) -> tuple[int, dict[str, Any]]:
        status, found = answer(*asked)
        found["choices"][0]["logprobs"]["token_logprobs"][0] = None
        return status, found

    monkeypatch.setattr(server, "answer", without_one)
    with pytest.raises(RunError, match="log-probs that are not finite"):
        engine(server, retries=0).generate(REQUESTS[:1])


def test_a_busy_endpoint_is_asked_again_and_one_that_is_not_there_is_an_error(server: Server) -> None:
    server.busy = 1
    assert engine(server).generate(REQUESTS[:1])
    gone = ExternalEngine("http://127.0.0.1:9/v1", "tiny", retries=0, timeout=0.2)
    with pytest.raises(RunError, match=r"127\.0\.0\.1:9/v1/completions"):
        gone.generate(REQUESTS[:1])
    with pytest.raises(RunError, match="no model other"):
        ExternalEngine(server.url, "other", retries=0).generate(REQUESTS[:1])


@pytest.mark.parametrize("name", ["token_ids", "logprobs"])
def test_an_endpoint_that_tells_too_little_is_refused(server: Server, name: str) -> None:
    server.leave_out = name
    with pytest.raises(RunError, match=f"answered without '{name}'.*as vLLM's server gives them"):
        engine(server).generate(REQUESTS[:1])
    server.leave_out = None


def test_no_weights_can_be_sent(server: Server) -> None:
    with pytest.raises(RunError, match="serves its own weights"):
        engine(server).load_weights([], version=1)


def test_a_run_that_only_evaluates_asks_it(task: Any, tmp_path: Path) -> None:
    asked = Server(str(task.folder / "model"))
    url = {"type": "external", "base_url": asked.url, "model": "tiny"}
    config = task.config(tmp_path, run={"mode": "evaluate_only"}, rollout={"engine": url, "max_response_tokens": 4})
    role = make_plan(config).stages[0].role("rollout")
    assert role is not None
    assert (role.engine, role.devices) == ("external", ())
    (told,) = [event for event in run_here(config, tmp_path / "demo") if event["kind"] == "evaluation"]
    asked.http.shutdown()
    assert len(asked.bodies) == 16
    assert told["metrics"]["evaluation/addition/length_mean"] <= 4
