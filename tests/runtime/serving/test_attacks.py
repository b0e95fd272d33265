"""What one client can do to a server of the API: no request, and no half of one, may hold up another."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlctl.common.errors import RunError
from rlctl.config import config_from
from rlctl.runtime.serving import connections, http
from rlctl.runtime.serving.connections import bound
from rlctl.runtime.serving.generator import Generator
from rlctl.runtime.serving.http import ApiServer
from rlctl.runtime.serving.protocol import ApiError, read_chat, read_completion
from rlctl.runtime.serving.serve import Policy, Service
from rlctl.runtime.specs.served import rollout_spec
from rlctl.runtime.workers.rollout import make_engine
from tests.runtime.agents import made
from tests.waiting import until

TOKEN = "t0ken"
LONGEST = 4096
HELLO = [{"role": "user", "content": "12*34="}]


class Here:
    """A server in a thread of this process."""

    def __init__(self, model: Path) -> None:
        reads = {"path": str(model), "max_context_tokens": LONGEST}
        config = config_from({"model": reads, "rollout": {"precision": "float32", "max_response_tokens": LONGEST}})
        service = Service(rollout_spec(config, "transformers", str(model), "cpu"), "tiny", TOKEN, "127.0.0.1", 0)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.generator, self.server = self.run(self._started(service))

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    async def _started(self, service: Service) -> tuple[Generator, ApiServer]:
        engine = make_engine(service.engine)
        generator = Generator(engine)
        server = ApiServer(Policy(service, generator, engine.limits), by_path=False)
        await server.start(bound(service.host, service.port))
        return generator, server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def connection(self, *parts: bytes) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.server.port), timeout=30)
        for part in parts:
            made.sendall(part)
        return made

    def answer(self, *parts: bytes) -> bytes:
        with closing(self.connection(*parts)) as connection:
            return whole(connection)

    def post(self, body: Any, path: str = "chat/completions", **more: Any) -> httpx.Response:
        content = body if isinstance(body, str | bytes) else json.dumps(body)
        headers = {"Authorization": f"Bearer {TOKEN}", **more.pop("headers", {})}
        return httpx.post(f"{self.url}/v1/{path}", content=content, headers=headers, timeout=60, **more)

    def seconds(self, **request: Any) -> float:
        """How long another client waits meanwhile."""
        began = time.monotonic()
        assert self.post({"messages": HELLO, "max_tokens": 1}).status_code == 200
        return time.monotonic() - began


def whole(connection: socket.socket) -> bytes:
    """Everything that comes until the server closes."""
    found = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            found += part
    return found


def request_of(body: str, *headers: str, path: str = "/v1/chat/completions") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {TOKEN}", "Connection: close", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", body]).encode("utf-8", "surrogateescape")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    model = tmp_path_factory.mktemp("attacked") / "tiny"
    made.task().make_model(model, seed=1)
    shape = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**shape, "max_position_embeddings": LONGEST}))
    served = Here(model)
    yield served
    served.run(served.server.close())
    served.generator.close()
    served.loop.call_soon_threadsafe(served.loop.stop)


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": HELLO, "n": 129}, "n is 129; expected at most 128"),
        ({"messages": HELLO, "n": 1000000}, "expected at most 128"),
        ({"messages": HELLO, "n": -1}, "above 0"),
        ({"messages": HELLO, "n": True}, "above 0"),
        ({"messages": HELLO, "max_tokens": -5}, "above 0"),
        ({"messages": HELLO, "temperature": -1}, "temperature is -1"),
        ('{"messages": [{"role": "user", "content": "a"}], "temperature": NaN}', "NaN is not a number"),
        ('{"messages": [{"role": "user", "content": "a"}], "temperature": 1e999}', "temperature is inf"),
        ({"messages": HELLO, "temperature": 10**400}, "expected a number"),
        ({"messages": HELLO, "seed": 1 << 64}, "whole number of 64 bits"),
        ({"messages": HELLO, "top_k": 1.5}, "whole number"),
        ({"messages": HELLO, "stop": ["x"] * 17}, "at most 16 strings"),
        ({"messages": HELLO, "stop": "x" * 257}, "at most 256 characters"),
        ({"messages": HELLO, "logit_bias": {"5": 100}}, "not supported"),
        ({"messages": HELLO, "tools": 5}, "tools is 5"),
        ({"messages": [{"role": ["user"], "content": "a"}]}, "expected system, user"),
        ({"messages": [{"role": "assistant", "tool_calls": 5}]}, "expected a list"),
        ({"messages": HELLO, "model": {"a": 1}}, "model is {'a': 1}"),
        ('{"messages": [{"role": "user", "content": "\\ud800"}]}', "half of a surrogate pair"),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', "not JSON"),
        (DEEP, "nested too deeply"),
        ('{"messages": [{"role": "user", "content": "a"}], "metadata": ' + DEEP + "}", "nested too deeply"),
        ({"messages": [{"role": "user", "content": "1" * (LONGEST * 64 + 1)}]}, "at most 262144 characters"),
        ({"messages": [{"role": "user", "content": "1" * LONGEST}]}, "the model reads 4096"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_400(here: Here, body: Any, message: str) -> None:
    answer = here.post(body)
    assert answer.status_code == 400, answer.text
    assert message in answer.json()["error"]["message"]


def test_an_unknown_model_is_not_found_and_what_is_ignored_is_named(
    here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    answer = here.post({"model": "gpt-5", "messages": HELLO})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    assert "there is tiny" in answer.json()["error"]["message"]
    said = [{"role": "user", "content": "1", "mood": "good"}]
    asked = {"model": "tiny", "messages": said, "max_tokens": 1, "user": "me", "metadata": {}, "x\r\nSet-Cookie: y": 1}
    for _ in range(2):
        answer = here.post(asked)
        assert answer.headers[http.IGNORED] == "user, x%0D%0ASet-Cookie%3A y, messages[].mood"
    assert http.IGNORED not in here.post({"messages": HELLO, "max_tokens": 1}).headers
    assert [record.message.count("user") for record in caplog.records if "no effect" in record.message] == [1]


def test_headers_that_are_not_text_or_too_long_are_refused(here: Here) -> None:
    plain = request_of("{}", path="/v1/models").replace(b"Bearer t0ken", b"Bearer \xff\xfe")
    assert here.answer(plain.replace(b"POST", b"GET")).startswith(b"HTTP/1.1 400")
    assert here.answer(request_of("{}", "X: " + "a" * 100_000)).startswith(b"HTTP/1.0 400")
    assert here.answer(request_of("{}", *[f"X{i}: a" for i in range(10_000)])).startswith(b"HTTP/1.0 400")
    assert here.answer(request_of("{}", path="/v1/" + "a" * 100_000)).startswith(b"HTTP/1.0 400")
    assert here.answer(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" * 9 + b"\r\n\r\n").startswith(b"HTTP/1.0 400")
    assert here.answer(request_of("{}", "Content-Type: application/json; charset=klingon")).startswith(b"HTTP/1.1 400")


def test_chunks_and_pipelined_requests_are_read(here: Here) -> None:
    body = json.dumps({"messages": HELLO, "max_tokens": 1})
    head = request_of("", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
    chunks = b"".join(b"1\r\n%c\r\n" % each for each in body.encode()) + b"0\r\n\r\n"
    assert here.answer(head + chunks).startswith(b"HTTP/1.1 200")
    assert here.answer(head + b"zz\r\n{}\r\n0\r\n\r\n").startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
    many = request_of(body).replace(b"Connection: close\r\n", b"") * 20
    assert here.answer(many + request_of(body)).count(b"HTTP/1.1 200") == 21


def test_a_large_request_holds_up_nobody(here: Here) -> None:
    """What takes long is done beside the loop; what is too long is not begun."""
    asked = {"messages": [{"role": "user", "content": "12"}] * 20_000, "max_tokens": 1}
    large = threading.Thread(target=here.post, args=(asked,))
    large.start()
    longest = 0.0
    while large.is_alive():
        longest = max(longest, here.seconds())
    assert longest < 5
    assert here.post("[" + "1," * (9 << 20) + "1]").status_code == 413


def test_an_answer_of_many_tokens_with_their_log_probs_takes_no_time_of_the_loop(here: Here) -> None:
    asked = {"prompt": "1*", "logprobs": 1, "n": 4, "max_tokens": 400, "temperature": 1.0}
    answer = here.post(asked, "completions").json()
    for choice in answer["choices"]:
        logged = choice["logprobs"]
        assert len(logged["tokens"]) == len(logged["text_offset"])
        assert logged["text_offset"][-1] == len("".join(logged["tokens"][:-1]))
    assert answer["usage"]["completion_tokens"] == sum(len(c["logprobs"]["tokens"]) for c in answer["choices"])


def test_half_a_head_and_a_slow_body_are_given_up(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(http, "BODY_SECONDS", 0.5)
    silent, half = here.connection(), here.connection(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n")
    body = json.dumps({"messages": HELLO, "max_tokens": 1})
    resting = here.connection(request_of(body).replace(b"Connection: close\r\n", b""))
    began = time.monotonic()
    assert here.answer(request_of(body)[:-5]).startswith(b"HTTP/1.1 408")
    with pytest.raises(OSError, match=r"(?i)broken pipe|reset"):  # noqa: PT012 - a trickle does not extend it
        for _ in range(100):
            half.sendall(b"X: y\r\n")
            time.sleep(0.05)
    assert whole(silent) == b""
    assert time.monotonic() - began < 8
    resting.sendall(request_of(body))
    assert whole(resting).count(b"HTTP/1.1 200") == 2, "between two requests there is more time"
    until(lambda: not here.server._runner.server.connections, "none is left")


def test_of_too_many_connections_those_that_ask_nothing_make_room(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = here.server._connections
    monkeypatch.setattr(taken, "most", 8)
    body = json.dumps({"messages": HELLO, "max_tokens": 1})
    idle = [here.connection(b"POST /v1/chat/completions HTTP/1.1\r\n") for _ in range(30)]
    assert here.answer(request_of(body)).startswith(b"HTTP/1.1 200")
    assert len(taken.open) <= 8
    for each in idle:
        each.close()
    until(lambda: not taken.open, "all are closed")
    busy = [here.connection(request_of(body)[:-5]) for _ in range(8)]
    until(lambda: len(taken.open) == 8 and not taken.waiting, "they are heard")
    with closing(here.connection()) as refused:
        assert whole(refused).startswith(b"HTTP/1.1 503")
    for each in busy:
        each.close()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_generation(here: Here, stream: bool) -> None:
    body = json.dumps({"messages": HELLO, "max_tokens": 4000, "n": 4, "temperature": 1.0, "stream": stream})
    connection = here.connection(request_of(body))
    until(lambda: len(here.generator._waiting) == 4, "it generates")
    connection.close()
    until(lambda: not here.generator._waiting, "it is given up", seconds=3)
    until(lambda: not here.generator._engine.tokens_so_far({*range(1, 10_000)}), "by the engine too")


def test_a_client_that_does_not_read_its_stream_costs_no_memory(here: Here) -> None:
    body = json.dumps({"messages": HELLO, "max_tokens": 1500, "temperature": 1.0, "stream": True, "n": 8})
    with closing(here.connection(request_of(body))) as connection:
        until(lambda: len(here.generator._waiting) == 8, "it generates")
        for _ in range(20):
            queued = [each.tokens.qsize() for each in here.generator._waiting.values() if each.tokens is not None]
            assert max(queued, default=0) <= 1
            time.sleep(0.05)
        assert here.seconds() < 5
        connection.close()
    until(lambda: not here.generator._waiting, "it is given up")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [
    *("model", "messages", "prompt", "n", "max_tokens", "max_completion_tokens", "stop", "stream_options", "tools"),
    *("tool_choice", "temperature", "top_p", "top_k", "seed", "logprobs", "logit_bias", "response_format", "echo"),
]
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system"]) | JSON},
        optional={"content": JSON, "tool_calls": JSON, "tool_call_id": JSON, "name": JSON},
    ),
    max_size=3,
)


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4), MESSAGES | JSON, JSON)
@settings(max_examples=300, deadline=None)
def test_no_field_of_a_request_makes_another_error(fields: dict[str, Any], messages: Any, prompt: Any) -> None:
    for read, body in ((read_chat, {**fields, "messages": messages}), (read_completion, {**fields, "prompt": prompt})):
        try:
            read(body)
        except ApiError as error:
            refused = error.body()["error"]
            assert refused["type"] == "invalid_request_error", refused


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.floats(0, allow_nan=False, allow_infinity=False),
            "top_p": st.floats(0, 1),
            "top_k": st.integers(-2, 1 << 62),
            "min_p": st.floats(0, 1),
            "repetition_penalty": st.floats(0, allow_nan=False, allow_infinity=False),
            "seed": st.integers(-(1 << 63), (1 << 63) - 1),
            "stop": st.lists(st.text(min_size=1, max_size=4), max_size=3),
        },
    )
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_sampling_breaks_the_engine(here: Here, sampling: dict[str, Any]) -> None:
    answer = here.post({"messages": HELLO, "max_tokens": 2, **sampling})
    assert answer.status_code in (200, 400), answer.text


def test_an_engine_that_fails_answers_again(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, asked = here.generator._engine, {"messages": HELLO, "max_tokens": 200}
    found: list[httpx.Response] = []
    under_way = threading.Thread(target=lambda: found.append(here.post(asked)))
    with monkeypatch.context() as broken:
        broken.setattr(engine, "poll", lambda seconds: 1 / 0)
        under_way.start()
        under_way.join()
    assert [each.status_code for each in found] == [500]
    assert "ZeroDivisionError" in found[0].json()["error"]["message"]
    assert here.seconds() < 5
    assert not engine.tokens_so_far({*range(1, 10_000)}), "what failed is out of it"


def test_an_address_is_held_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    held = bound("127.0.0.1", 0)
    port = held[0].getsockname()[1]
    with pytest.raises(RunError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
        bound("127.0.0.1", port)
    held[0].close()
    bound("127.0.0.1", port)[0].close()
    with pytest.raises(RunError, match=r"cannot listen on no\.such\.host"):
        bound("no.such.host", 0)
