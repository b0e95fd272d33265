"""Post a review as the one comment of a pull request on GitHub, or of a merge request on GitLab; an earlier one is updated.

It needs only the standard library and no other module of rlctl, because the workflow that may write comments runs it alone, as
``python3 posting.py FILE``. A job that a fork controls wrote the file, so its text is taken as text: it is bounded, mentions and
images in it lose their effect, and nothing else is read from it. Which pull request it belongs to, GitHub's event says.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

MARKER = "<!-- rlctl-review -->"
"""The first line of every comment of a review, by which it is found again."""
NOTHING = "<!-- rlctl-review -->\n<!-- nothing -->"
"""The first lines of a review of nothing, which is posted only over an earlier comment."""
MOST = 65_000
"""Characters of a comment; GitHub accepts 65,536."""
PAGES = 30
"""Pages of 100 comments that are looked through."""
SECONDS = 30
GITHUB_AUTHOR = "github-actions[bot]"


class NotPosted(Exception):
    """The comment was not posted; the text says why and what to do."""


class _NoRedirects(HTTPRedirectHandler):
    """A redirect could carry the token to another host."""

    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


class Api:
    """A REST API of JSON."""

    def __init__(self, root: str, headers: Mapping[str, str]) -> None:
        if urlsplit(root).scheme not in ("http", "https"):
            raise NotPosted(f"{root} is not the URL of an API")
        self._root, self._headers = root.rstrip("/"), {**headers, "Content-Type": "application/json"}
        self._opener = build_opener(_NoRedirects)

    def call(self, method: str, path: str, data: Any = None) -> Any:
        """Call it.

        Raises:
            NotPosted: it refuses, or cannot be reached.
        """
        body = None if data is None else json.dumps(data).encode()
        request = Request(f"{self._root}{path}", data=body, method=method, headers=dict(self._headers))
        try:
            with self._opener.open(request, timeout=SECONDS) as answer:
                return json.loads(answer.read() or b"null")
        except HTTPError as error:
            told = error.read(500).decode("utf-8", "replace")
            more = ""
            if error.code in (401, 403, 404):
                more = "; the token may not write this comment: give the job pull-requests: write, or the token the scope api"
            raise NotPosted(f"{method} {path} answered {error.code}: {told}{more}") from None
        except (URLError, OSError, ValueError) as error:
            raise NotPosted(f"{method} {self._root}{path} failed: {error}") from None

    def pages(self, path: str) -> Iterator[Any]:
        """The items of a list that comes in pages."""
        for page in range(1, PAGES + 1):
            found = self.call("GET", f"{path}?{urlencode({'per_page': 100, 'page': page})}")
            yield from found
            if len(found) < 100:
                return


def text_of(file: Path) -> str:
    """The text of a review, made harmless.

    Raises:
        NotPosted: the file is none.
    """
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise NotPosted(f"{file} is not a regular file")
            content = opened.read(4 * MOST + 1).decode("utf-8", "replace")
    except OSError as error:
        raise NotPosted(f"{file} cannot be read: {error.strerror}; write it with rlctl review -o") from None
    if not content.startswith(MARKER):
        raise NotPosted(f"{file} is not a review of rlctl; write it with rlctl review -o")
    return harmless(content)


def harmless(content: str) -> str:
    """A text without mentions and images, of a length that the services accept.

    What rlctl writes has neither outside of code, so its own reviews stay as they are.
    """
    parts = re.split(r"(`[^`\n]+`)", content[:MOST])
    for place in range(0, len(parts), 2):
        told = re.sub(r"@(?=\w)", "@\u200b", parts[place])
        told = re.sub(r"!(?=\[)", "&#33;", told)
        parts[place] = re.sub(r"<(?=/?(?!details|summary|sub|code|br|!--)\w)", "&lt;", told)
    told = re.sub(r"^/(?=\w)", "&#47;", "".join(parts), flags=re.MULTILINE)  # a line of GitLab's quick actions
    return told[:MOST]


# GitHub


def post_to_github(content: str, around: Mapping[str, str]) -> str:
    """Create or update the comment of the pull request that this job is for.

    Args:
        content: the comment.
        around: the variables of a GitHub job, and ``GITHUB_TOKEN``.

    Returns:
        what was done.
    """
    name = around["GITHUB_REPOSITORY"]
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name, re.ASCII):
        raise NotPosted(f"GITHUB_REPOSITORY is {name!r}; expected OWNER/NAME")
    headers = {
        "Authorization": f"Bearer {_token(around, 'GITHUB_TOKEN')}",
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
        "User-Agent": "rlctl",
    }
    api = Api(around.get("GITHUB_API_URL", "https://api.github.com"), headers)
    event = json.loads(Path(around["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    number = pull_request(api, name, event)
    if number is None:
        return "this commit is the head of no open pull request; nothing to comment on"
    author = around.get("COMMENT_AUTHOR") or GITHUB_AUTHOR
    comments = api.pages(f"/repos/{name}/issues/{number}/comments")
    ours = [each for each in comments if each["user"]["login"] == author and each["body"].startswith(MARKER)]
    return _post(
        api, content, ours, f"/repos/{name}/issues/comments", f"/repos/{name}/issues/{number}/comments", "PATCH"
    )


def pull_request(api: Api, name: str, event: Mapping[str, Any]) -> int | None:
    """The number of the pull request that an event is for; None if it is no longer open, or has a newer commit.

    A ``workflow_run`` of a fork names no pull request. Its repository, branch and commit are GitHub's words, so the open pull
    request with this very head is the one; a number that the fork's job wrote down could name any other.
    """
    if "pull_request" in event:
        return int(event["pull_request"]["number"])
    if "workflow_run" not in event:
        raise NotPosted("this job is for no pull request; run it on pull_request or workflow_run")
    run = event["workflow_run"]
    head = f"{run['head_repository']['owner']['login']}:{run['head_branch']}"
    query = urlencode({"state": "open", "head": head, "per_page": 100})
    found = api.call("GET", f"/repos/{name}/pulls?{query}")
    numbers = [
        int(each["number"])
        for each in found
        if each["head"]["sha"] == run["head_sha"]
        and (each["head"]["repo"] or {}).get("full_name") == run["head_repository"]["full_name"]
    ]
    return numbers[0] if numbers else None


# GitLab


def post_to_gitlab(content: str, around: Mapping[str, str]) -> str:
    """Create or update the note of the merge request that this job is for, as the user of ``GITLAB_TOKEN``.

    Args:
        content: the note.
        around: the variables of a GitLab job, and ``GITLAB_TOKEN``.

    Returns:
        what was done.
    """
    number = around.get("CI_MERGE_REQUEST_IID", "")
    if not number.isdigit():
        raise NotPosted(
            "this job is for no merge request; add a rule: if: $CI_PIPELINE_SOURCE == 'merge_request_event'"
        )
    api = Api(around["CI_API_V4_URL"], {"PRIVATE-TOKEN": _token(around, "GITLAB_TOKEN"), "User-Agent": "rlctl"})
    notes = f"/projects/{quote(around['CI_PROJECT_ID'], safe='')}/merge_requests/{number}/notes"
    author = api.call("GET", "/user")["id"]
    ours = [each for each in api.pages(notes) if each["author"]["id"] == author and each["body"].startswith(MARKER)]
    return _post(api, content, ours, notes, notes, "PUT")


def _post(api: Api, content: str, ours: list[Any], known: str, new: str, method: str) -> str:
    """Update the first comment of ours, or create one unless there is nothing to tell."""
    if ours:
        if ours[0]["body"].strip() == content.strip():
            return "the comment says this already"
        api.call(method, f"{known}/{int(ours[0]['id'])}", {"body": content})
        return "updated the comment"
    if content.startswith(NOTHING):
        return "nothing to tell; no comment"
    api.call("POST", new, {"body": content})
    return "wrote the comment"


def _token(around: Mapping[str, str], name: str) -> str:
    if not around.get(name):
        raise NotPosted(f"{name} is not set; it must hold a token that may write comments")
    return around[name]


def post(file: Path, around: Mapping[str, str] = os.environ) -> str:
    """Post the review in a file from a job of GitHub or GitLab.

    Raises:
        NotPosted: it was not posted.
    """
    content = text_of(file)
    if around.get("GITHUB_ACTIONS") == "true":
        return post_to_github(content, around)
    if around.get("GITLAB_CI") == "true":
        return post_to_gitlab(content, around)
    raise NotPosted("this is no job of GitHub Actions or GitLab CI; print the review without --post")


def main() -> int:
    """Post the file that is named on the command line."""
    if len(sys.argv) != 2:
        print("usage: posting.py FILE", file=sys.stderr)
        return 2
    try:
        print(post(Path(sys.argv[1])))
    except NotPosted as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
