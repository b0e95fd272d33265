"""Posting a review, over HTTP, to a server that answers the calls of GitHub and GitLab for comments as their references say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from rlctl.cli.review import posting
from rlctl.cli.review.posting import MARKER, NOTHING, NotPosted, harmless, post

BOT = "github-actions[bot]"
TOKEN = "t0ken"


class Forge(ThreadingHTTPServer):
    """A server with one repository of each kind; comments are kept in ``comments``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.comments: list[dict[str, Any]] = []
        self.pulls: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.root = f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, body: str, login: str = BOT) -> None:
        number = len(self.comments) + 1
        self.comments.append({"id": number, "body": body, "user": {"login": login}, "author": {"id": login}})


class Handler(BaseHTTPRequestHandler):
    server: Forge

    def _answer(self, data: Any, code: int = 200) -> None:
        body = json.dumps(data).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _call(self) -> None:
        forge, url = self.server, urlsplit(self.path)
        forge.calls.append(f"{self.command} {url.path}")
        sent = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
        if TOKEN not in (self.headers["Authorization"] or self.headers["PRIVATE-TOKEN"] or ""):
            return self._answer({"message": "Bad credentials"}, 401)
        lists = ("/repos/o/n/issues/7/comments", "/projects/3/merge_requests/7/notes")
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        if self.command == "GET" and url.path in lists:
            first = (int(asked["page"]) - 1) * int(asked["per_page"])
            return self._answer(forge.comments[first : first + int(asked["per_page"])])
        if self.command == "GET" and url.path == "/user":
            return self._answer({"id": BOT})
        if self.command == "GET" and url.path == "/repos/o/n/pulls":
            login, _, branch = asked["head"].partition(":")
            return self._answer(
                [pull for pull in forge.pulls if (pull["head"]["user"], pull["head"]["ref"]) == (login, branch)]
            )
        if self.command == "POST" and url.path in lists:
            forge.add(sent["body"])
            return self._answer(forge.comments[-1], 201)
        known = re.fullmatch(r"/repos/o/n/issues/comments/(\d+)|/projects/3/merge_requests/7/notes/(\d+)", url.path)
        if known and self.command == ("PATCH" if known[1] else "PUT"):
            forge.comments[int(known[1] or known[2]) - 1]["body"] = sent["body"]
            return self._answer({})
        return self._answer({"message": "Not Found"}, 404)

    do_GET = do_POST = do_PATCH = do_PUT = _call  # noqa: N815 - names of the standard library

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def forge() -> Iterator[Forge]:
    server = Forge()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def review(tmp_path: Path) -> Path:
    file = tmp_path / "review.md"
    file.write_text(f"{MARKER}\nfirst\n")
    return file


def _github(forge: Forge, tmp_path: Path, event: dict[str, Any] | None = None) -> dict[str, str]:
    file = tmp_path / "event.json"
    file.write_text(json.dumps(event or {"pull_request": {"number": 7}}))
    return {
        "GITHUB_ACTIONS": "true", "GITHUB_API_URL": forge.root, "GITHUB_REPOSITORY": "o/n", "GITHUB_TOKEN": TOKEN,
        "GITHUB_EVENT_PATH": str(file),
    }  # fmt: skip


def _gitlab(forge: Forge) -> dict[str, str]:
    return {
        "GITLAB_CI": "true", "CI_API_V4_URL": forge.root, "CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "7",
        "GITLAB_TOKEN": TOKEN,
    }  # fmt: skip


@pytest.mark.parametrize("where", ["github", "gitlab"])
def test_there_is_one_comment_however_often_it_is_posted(
    forge: Forge, review: Path, tmp_path: Path, where: str
) -> None:
    around = _github(forge, tmp_path) if where == "github" else _gitlab(forge)
    for number in range(150):
        forge.add(f"comment {number}", "someone")
    forge.add(f"{MARKER}\nby someone else", "someone")
    assert post(review, around) == "wrote the comment"
    review.write_text(f"{MARKER}\nsecond\n")
    assert post(review, around) == "updated the comment"
    assert post(review, around) == "the comment says this already"
    review.write_text(f"{NOTHING}\nNo config changed.\n")
    assert post(review, around) == "updated the comment"
    ours = [comment for comment in forge.comments if comment["user"]["login"] == BOT]
    assert [comment["body"] for comment in ours] == [f"{NOTHING}\nNo config changed.\n"]
    assert forge.comments[150]["body"].endswith("by someone else")


def test_nothing_is_posted_where_nothing_was_and_nothing_is(forge: Forge, review: Path, tmp_path: Path) -> None:
    review.write_text(f"{NOTHING}\nNo config changed.\n")
    assert post(review, _github(forge, tmp_path)) == "nothing to tell; no comment"
    assert not forge.comments


def _run_of(owner: str, branch: str, sha: str) -> dict[str, Any]:
    repository = {"owner": {"login": owner}, "full_name": f"{owner}/n"}
    return {
        "workflow_run": {"head_repository": repository, "head_branch": branch, "head_sha": sha, "pull_requests": []}
    }


def _pull(number: int, owner: str, branch: str, sha: str) -> dict[str, Any]:
    return {"number": number, "head": {"user": owner, "ref": branch, "sha": sha, "repo": {"full_name": f"{owner}/n"}}}


def test_a_run_for_a_fork_comments_on_the_pull_request_with_its_head(
    forge: Forge, review: Path, tmp_path: Path
) -> None:
    branch = "a b&state=all#x"
    forge.pulls = [_pull(5, "other", branch, "abc"), _pull(6, "fork", branch, "old"), _pull(7, "fork", branch, "abc")]
    assert post(review, _github(forge, tmp_path, _run_of("fork", branch, "abc"))) == "wrote the comment"
    assert "POST /repos/o/n/issues/7/comments" in forge.calls
    told = post(review, _github(forge, tmp_path, _run_of("fork", branch, "older")))
    assert "no open pull request" in told


def test_the_text_of_a_fork_is_bounded_and_mentions_no_user(forge: Forge, review: Path, tmp_path: Path) -> None:
    review.write_text(f"{MARKER}\n@team `@code` ![x](http://e/x.png) <img src=x> <details>\n/close\n" + "x" * 300_000)
    post(review, _github(forge, tmp_path))
    [body] = [comment["body"] for comment in forge.comments]
    assert len(body) < 65_536
    assert not re.search(r"(?<!`)@\w|!\[|<img|^/", body, re.MULTILINE)
    assert "`@code`" in body
    assert "<details>" in body
    assert harmless(harmless(body)) == body


@pytest.mark.parametrize("content", ["", "hello", "@all", f"x{MARKER}"])
def test_what_is_no_review_is_not_posted(forge: Forge, review: Path, tmp_path: Path, content: str) -> None:
    review.write_text(content)
    with pytest.raises(NotPosted, match="not a review"):
        post(review, _github(forge, tmp_path))
    assert not forge.calls


def test_a_link_or_a_pipe_is_not_read(tmp_path: Path, review: Path) -> None:
    (tmp_path / "link").symlink_to(review)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "missing", "."):
        with pytest.raises(NotPosted, match=r"cannot be read|not a regular file"):
            posting.text_of(tmp_path / name)


def test_a_token_that_may_not_write_is_told_what_it_needs(forge: Forge, review: Path, tmp_path: Path) -> None:
    with pytest.raises(NotPosted, match="pull-requests: write"):
        post(review, {**_github(forge, tmp_path), "GITHUB_TOKEN": "other"})
    with pytest.raises(NotPosted, match="GITHUB_TOKEN is not set"):
        post(review, {**_github(forge, tmp_path), "GITHUB_TOKEN": ""})
    with pytest.raises(NotPosted, match="no merge request"):
        post(review, {**_gitlab(forge), "CI_MERGE_REQUEST_IID": ""})
    with pytest.raises(NotPosted, match="no job"):
        post(review, {})


def test_the_file_alone_posts(forge: Forge, review: Path, tmp_path: Path) -> None:
    around = _github(forge, tmp_path)
    command = [sys.executable, "-I", "-S", posting.__file__, str(review)]
    done = subprocess.run(command, env=around, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "wrote the comment\n"), done.stderr
    refused = subprocess.run(
        command, env=around | {"GITHUB_TOKEN": ""}, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: GITHUB_TOKEN")
