"""Rows by what a judge at an endpoint says of them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.config import Config, config_from
from rlctl.runtime.data.operators import prepare
from rlctl.runtime.data.sources import load_source
from rlctl.runtime.specs.data import operator_spec

TEXTS = {"good": 9, "fair": 5, "bad": 1}


class Judge(BaseHTTPRequestHandler):
    """Rates the last word of a question; 'slow' takes long, and of 'odd' it says nothing that can be read."""

    seen: list[dict[str, Any]]
    under_way: list[int]
    """Requests at the same time, whenever one came."""
    working: list[int]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(body)
        self.working.append(1)
        self.under_way.append(len(self.working))
        word = body["messages"][0]["content"].split()[-1]
        time.sleep(1.0 if word == "slow" else 0.05)
        self.working.pop()
        self.send_response(200)
        self.end_headers()
        said = f"It is {word}.\nScore: {TEXTS[word]}" if word in TEXTS else "no idea"
        self.wfile.write(json.dumps({"choices": [{"message": {"role": "assistant", "content": said}}]}).encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def judge() -> Iterator[Any]:
    handler = type("Handler", (Judge,), {"seen": [], "under_way": [], "working": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    handler.url = f"http://127.0.0.1:{server.server_port}/v1"  # type: ignore[attr-defined]
    yield handler
    server.shutdown()


def config(folder: Path, url: str | None, *words: str, **operator: Any) -> Config:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"p{i}", "note": word}) + "\n" for i, word in enumerate(words)))
    model = {"name": "grader", "path": "org/big", "api_key": "k"} | ({"base_url": url} if url else {})
    quality = {"type": "quality", "auxiliary_model": "grader", "column": "note", **operator}
    return config_from(
        {
            "model": {"path": "m"},
            "data": {"train": [{"path": str(file)}], "operators": [quality], "priority": {"keep": 2}},
            "rollout": {"auxiliary_models": [model]},
        }
    )


def kept(made: Config) -> list[str]:
    changed, _ = prepare(operator_spec(made), len)
    return [row["note"] for row in load_source(changed.train[0], key="data.train[0]")]


def test_rows_are_kept_by_what_a_judge_says_of_them(judge: Any, tmp_path: Path) -> None:
    ask = {"prompt": "How good is {text}", "min": 0.3, "max": 0.95, "sampling": {"max_tokens": 9}, "max_concurrent": 1}
    made = config(tmp_path, judge.url, "bad", "fair", "good", **ask)
    assert kept(made) == ["good", "fair"], "sorted by priority, to which the rating belongs"
    assert kept(made) == ["good", "fair"]
    assert len(judge.seen) == 3, "what was rated once is in the cache"
    assert max(judge.under_way) == 1
    assert judge.seen[0] == {
        "model": "org/big",
        "messages": [{"role": "user", "content": "How good is bad"}],
        "temperature": 0.0,
        "max_tokens": 9,
    }
    assert kept(config(tmp_path, judge.url, "bad", "fair", "good", **{**ask, "min": 0.6, "max_concurrent": 3})) == [
        "good"
    ]
    assert max(judge.under_way) > 1


def test_a_judge_that_fails_ends_the_run_before_it_begins(judge: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the judge 'grader' fails: the judge's answer contains no score"):
        kept(config(tmp_path, judge.url, "odd", prompt="{text}"))
    with pytest.raises(RunError, match=r"took longer than 0.2 s"):
        kept(config(tmp_path, judge.url, "slow", prompt="{text}", timeout=0.2))
    with pytest.raises(RunError, match="which the run starts only after the data operators"):
        kept(config(tmp_path, None, "good"))
    with pytest.raises(RunError, match="there is no auxiliary model 'other'"):
        kept(config(tmp_path, judge.url, "good", auxiliary_model="other"))
    with pytest.raises(RunError, match=r"prompt has no {text}"):
        kept(config(tmp_path, judge.url, "good", prompt="how good?"))
