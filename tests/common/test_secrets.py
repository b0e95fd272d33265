"""What a secret looks like, and that messages which people read hold no password of a URL."""

from __future__ import annotations

import json
import pickle
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rlctl.common.errors import RunError
from rlctl.common.report import Finding, Level
from rlctl.common.secrets import has_password, is_secret, redacted, without_secrets
from rlctl.config.sections.rewards import JudgeReward
from rlctl.runtime.remote import files as remote
from rlctl.runtime.reporting.events import Events
from rlctl.runtime.rewards import service
from rlctl.runtime.types import Prompt
from rlctl.runtime.workers.reward import RewardItem, RewardWorker


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:xyz@host:5432/name", "postgresql://me:***@host:5432/name"),
        ("redis://:xyz@host", "redis://:***@host"),
        ("from https://a:xyz@b/c to s3://a:xyz@b", "from https://a:***@b/c to s3://a:***@b"),
        ("http://127.0.0.1:8000/v1/a@b", "http://127.0.0.1:8000/v1/a@b"),
        ("https://me@host/name", "https://me@host/name"),
        ("grpo: mail me@host", "grpo: mail me@host"),
    ],
)
def test_what_is_shown_of_it(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    assert has_password(text) is (text != shown)


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("api_key", "sk-1", True),
        ("judge-api-key", "sk-1", True),
        ("api_key", "EMPTY", False),
        ("aws_secret_access_key", "a/b+c", True),
        ("password", "x", True),
        ("url", "redis://:xyz@host", True),
        ("hf_token", "hf_abcdefgh", True),
        ("token", "abcd.efgh-ijkl", True),
        ("answer_token", "<answer>", False),
        ("think_token", "think:", False),
        ("eos_token", "endoftext", False),
        ("prompt_key", "question", False),
        ("OPENAI_KEY", "sk-1", True),
        ("WANDB_API_KEY", "x", True),
        ("VLLM_LOGGING_LEVEL", "INFO", False),
        ("max_token", 12345678, False),
    ],
)
def test_what_a_secret_looks_like(name: str, value: object, secret: bool) -> None:
    assert is_secret(name, value) is secret


@pytest.mark.parametrize("text", ["a" * 100_000, "a-" * 50_000, "-" * 100_000], ids=["a word", "a name", "dashes"])
def test_what_is_redacted_takes_no_time_however_long_a_word_is(text: str) -> None:
    began = time.process_time()
    assert redacted(f"{text} {text}_TOKEN=5ecretValue0 --{'x' * 80}-api-key 5ecret").count("5ecret") == 0
    assert time.process_time() - began < 10  # 60 and more where time grows with the square


def test_errors_and_events_show_none(tmp_path: Path) -> None:
    error = RunError("http://me:xyz@host is away", hint="see ftp://me:xyz@host")
    assert "xyz" not in f"{error} {error.args} {pickle.loads(pickle.dumps(error))}"
    events = Events(tmp_path / "events.jsonl", lambda event: None)
    events.advise("http://me:xyz@host is away")
    assert json.loads((tmp_path / "events.jsonl").read_text())["message"] == "http://me:***@host is away"


def test_neither_do_remote_folders_and_services_that_are_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST_PAUSE_SECONDS", 0.02)
    with pytest.raises(RunError) as raised:
        remote.bring("nosuch://me:xyz@host/model", key="model.path")
    assert "me:***@host" in str(raised.value)
    judge = JudgeReward(base_url="http://me:xyz@127.0.0.1:9/v1", model="m", on_error="zero", timeout=0.2)
    prompt = Prompt(0, "", (1,), text="1+1", answer="2")
    with RewardWorker([judge]) as worker:
        (found,) = worker.score([RewardItem(prompt, "2", (1,))])
    assert "me:***@127.0.0.1:9" in (found.error or "")
    assert "xyz" not in (found.error or "")


def test_a_finding_shows_no_secret() -> None:
    found = Finding("data-files", Level.ERROR, "https://user:hunter2@host cannot be read")
    assert "hunter2" not in found.message
    changed = replace(found, message="ftp://user:hunter2@host cannot be read")
    assert "hunter2" not in changed.message


URLS = [
    "https://b.s3.amazonaws.com/t.parquet?X-Amz-Credential=A&X-Amz-Signature=deadbeefcafe01234",
    "https://a.blob.core.windows.net/c/t.parquet?sv=2022&sig=abcDEF123%2Bxyz%3D",
    "https://storage.googleapis.com/b/t?X-Goog-Signature=abcdef0123",
    "https://h/x?access_token=abcdefgh12",
]


@pytest.mark.parametrize("url", URLS)
def test_a_url_that_opens_something_is_a_secret(url: str) -> None:
    assert is_secret("path", url)
    shown = without_secrets(f"cannot read {url} (401)")
    assert shown == f"cannot read {url.partition('?')[0]}?*** (401)"
    assert url.rpartition("=")[2] not in redacted(f"data: {url}\n")
    assert not is_secret("path", url.partition("?")[0] + "?${oc.env:SIGNED}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cookie", "session=abc"), ("MYSQL_PWD", "hunter2"), ("DB_PASS", "hunter-2"), ("REDISCLI_AUTH", "s3cret-x"),
        ("headers.Authorization", "Basic dXNlcjpwYXNz"), ("x", "Bearer abcdefghijklmnop123456"), ("account_key", "abc123=="),
        ("x", "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=abcdefghijklmnopqrstuvwx=="),
    ],
)  # fmt: skip
def test_further_secrets(name: str, value: str) -> None:
    assert is_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("api_key", value) for value in ("<your-api-key>", "YOUR_API_KEY", "xxx", "${oc.env:KEY}", "***", "insert-your-key-here")),
        ("PWD", "/root/x"), ("OLD_PWD", "/root"), ("u", "https://h/x?sig=${oc.env:S}"), ("u", "https://h/x?key=answer_column"),
        ("u", "https://h/x?page_token=3"), ("u", "https://h/x?revision=main"), ("old_pass", "yes"), ("max_token", "1024"),
    ],
)  # fmt: skip
def test_what_only_looks_like_a_secret(name: str, value: str) -> None:
    assert not is_secret(name, value)


def test_headers_of_a_script_are_redacted() -> None:
    text = redacted(
        """curl -H "Cookie: a=b; c=d" -H 'Authorization: Basic dXNlcg' http://x\\nexport MYSQL_PWD=hunter2\\n"""
    )
    assert not any(secret in text for secret in ("a=b", "c=d", "dXNlcg", "hunter2"))
    assert "http://x" in text


def test_a_secret_that_the_environment_gets_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_secrets("the key sesame-open-12") == "the key sesame-open-12"
    monkeypatch.setenv("LATE_API_KEY", "sesame-open-12")
    assert without_secrets("the key sesame-open-12") == "the key ${oc.env:LATE_API_KEY}"
    monkeypatch.delenv("LATE_API_KEY")
    assert without_secrets("the key sesame-open-12") == "the key sesame-open-12"
