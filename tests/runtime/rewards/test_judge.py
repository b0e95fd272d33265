"""A judge is asked over HTTP at a real server; what it says is read, and what goes wrong costs the response alone."""

from __future__ import annotations

import itertools
import re
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from rlctl.common.errors import RunError
from rlctl.config.sections.rewards import JudgeReward
from rlctl.runtime.rewards import service
from rlctl.runtime.rewards.interface import Call
from rlctl.runtime.rewards.judge import READERS, ServiceError, fill
from rlctl.runtime.rewards.routing import Score
from rlctl.runtime.types import Prompt
from rlctl.runtime.workers.reward import RewardItem, RewardWorker
from tests.runtime.rewards.servers import Answer, Served, completion, meeting, serve

KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "FIRST_PAUSE_SECONDS", 0.02)


def item(response: str, group: int = 0, **extra: Any) -> RewardItem:
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2+2?"})
    return RewardItem(Prompt(group, "s", (1,), "<user>What is 2+2?", "4", extra, messages), response, 5, group=group)


def judged(answer: Answer, *items: RewardItem, **settings: Any) -> tuple[list[Score], Served]:
    with serve(answer) as served:
        reward = JudgeReward(name="judge", base_url=f"{served.url}/v1", model="big", api_key=KEY, **settings)
        with RewardWorker([reward]) as worker:
            return list(worker.score(items)), served


def test_a_number_from_0_to_10() -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        asked = body["messages"][0]["content"]
        return 200, completion(f"Fine.\nScore: {9 if 'It is 4' in asked else 2.5}")

    found, served = judged(answer, item("It is 4"), item("5"), sampling={"temperature": 0.0, "max_tokens": 64})
    assert found == [Score(0.9, {"judge": 0.9}), Score(0.25, {"judge": 0.25})]
    body = served.bodies[0]
    assert (body["path"], body["model"], body["temperature"], body["max_tokens"]) == (
        "/v1/chat/completions",
        "big",
        0,
        64,
    )
    asked = body["messages"][0]["content"]
    assert all(part in asked for part in ("What is 2+2?", "Reference answer:\n4"))
    assert "Be brief." not in asked
    assert served.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_yes_or_no_says_who_is_right() -> None:
    found, _ = judged(lambda body: (200, completion("YES")), item("4"), scoring="yes_no")
    assert found == [Score(1.0, {"judge": 1.0}, correct=True)]
    found, _ = judged(lambda body: (200, completion("No.")), item("4"), scoring="yes_no")
    assert found == [Score(0.0, {"judge": 0.0}, correct=False)]


@pytest.mark.parametrize("place", ["extra_info", "columns"])
def test_a_rating_by_the_rows_rubric(place: str) -> None:
    rubric = [{"weight": 2, "description": "says 4"}, {"weight": 1, "description": "is brief"}]
    found, served = judged(
        lambda body: (200, completion('```json\n{"rating": 7}\n```')),
        item("4", **{place: {"rubric": rubric}}),
        scoring="rubric",
    )
    assert found[0].total == pytest.approx(0.7)
    assert "Rubric 0 (weight: 2): says 4\nRubric 1 (weight: 1): is brief" in served.bodies[0]["messages"][0]["content"]


def test_ruler_compares_the_responses_of_a_prompt() -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        asked = body["messages"][0]["content"]
        values = [len(text) / 10 for text in re.findall(r"Response \d:\n(\w+)", asked)]
        return 200, completion(f"The second is longer. {values}")

    items = [item("a"), item("bb", 1), item("ccc"), item("d" * 20, 1)]
    found, served = judged(answer, *items, scoring="ruler")
    assert [one.total for one in found] == pytest.approx([0.1, 0.2, 0.3, 1.0])
    assert len(served.bodies) == 2


def test_a_template_of_ones_own_in_rolls_words() -> None:
    template = "{question} | {response} | {reference} | {other}"
    call = Call("s", "{answer}", "4", messages=[{"role": "user", "content": "2+2?"}])
    assert fill(template, [call]) == "2+2? | {answer} | 4 | {other}"


@pytest.mark.parametrize(
    ("scoring", "answer"),
    [
        *(("number", text) for text in ("", "Great!", "Score: 11", "Score: -1")),
        ("yes_no", "perhaps"),
        *(("rubric", text) for text in ("7", '{"rating": 0}', '{"rating": true}', '{"rating": "7"}')),
        *(("ruler", text) for text in ("[0.5]", "[0.5, x]", "0.5, 0.5", "][", "[nan, 1]")),
    ],
)
def test_an_answer_without_a_score(scoring: Any, answer: str) -> None:
    with pytest.raises(ServiceError, match="contains no score"):
        READERS[scoring](answer, 2)


def test_an_unreadable_answer_costs_its_own_response() -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        return 200, completion("Hm." if "bad" in body["messages"][0]["content"] else "Score: 5")

    (good, bad), _ = judged(answer, item("good"), item("bad"))
    assert (good.total, good.error) == (0.5, None)
    assert (bad.total, bad.components) == (0.0, {"judge": 0.0})
    assert "contains no score" in (bad.error or "")


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_endpoint_is_asked_again(status: int) -> None:
    times = []

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        times.append(time.monotonic())
        return (status, "busy") if len(times) < 4 else (200, completion("Score: 8"))

    found, _ = judged(answer, item("4"))
    assert found[0].total == 0.8
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses[0] >= 0.02
    assert pauses[2] >= 0.08


def test_an_endpoint_that_refuses_is_not_asked_again_and_never_shows_the_key() -> None:
    (found,), served = judged(lambda body: (401, f"bad key {KEY}"), item("4"))
    assert len(served.bodies) == 1
    assert "answered 401: bad key ***" in (found.error or "")
    assert KEY not in str(found)


def test_a_slow_answer_and_a_dead_endpoint_cost_their_responses() -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        if "slow" in body["messages"][0]["content"]:
            time.sleep(20)
        return 200, completion("Score: 5")

    began = time.monotonic()
    (fast, slow), _ = judged(answer, item("fast"), item("slow"), timeout=0.5)
    assert time.monotonic() - began < 10
    assert (fast.total, slow.total) == (0.5, 0.0)
    assert "took longer than 0.5 s" in (slow.error or "")
    with RewardWorker([JudgeReward(base_url="http://127.0.0.1:9", model="m", timeout=0.2)]) as worker:
        (dead,) = worker.score([item("4")])
    assert "cannot be reached" in (dead.error or "")
    assert "unresponsive for 0.2 s" in (dead.error or "")


@pytest.mark.parametrize("away", [(503, "busy"), (200, '{"choices": [{"mes')])
def test_an_endpoint_that_is_away_is_waited_for_while_it_answers_others(away: tuple[int, str]) -> None:
    """For as long as an answer may take, since it last gave one."""
    began, asked = time.monotonic(), itertools.count()

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        text = body["messages"][0]["content"]
        if "late" in text and time.monotonic() - began < 1.0:
            return away
        if "steady" in text and next(asked) % 2:
            return away
        time.sleep(0.02)
        return 200, completion("Score: 5")

    items = [item("late"), *(item(f"steady {i}", i) for i in range(60))]
    found, _ = judged(answer, *items, timeout=0.8, max_concurrent=1)
    assert [score.total for score in found] == [0.5] * 61
    (given_up,), served = judged(lambda body: away, item("4"), timeout=0.3)
    assert "unresponsive for 0.3 s" in (given_up.error or "")
    assert len(served.bodies) > 3


def test_an_endpoint_says_how_long_to_leave_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    in_an_hour = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    asked = [
        service._asked_pause(httpx.Response(429, headers={"Retry-After": text})) for text in ("7", in_an_hour, "?")
    ]
    assert asked == [7.0, pytest.approx(3600, abs=10), 0.0]


def test_what_is_no_completion() -> None:
    for body in ("<html>", [1], {"choices": []}, completion("")):
        (found,), _ = judged(lambda asked, body=body: (200, body), item("4"), timeout=0.2)
        assert found.total == 0.0
        assert found.error


def test_concurrency_is_bounded() -> None:
    found, served = judged(meeting(4, completion("Score: 5")), *(item(str(i), i) for i in range(20)), max_concurrent=4)
    assert len(found) == 20
    assert served.most_at_once == 4


def test_an_endpoint_that_fails_on_everything_ends_the_run() -> None:
    with pytest.raises(RunError, match=r"(?s)the reward 'judge' failed .*answered 404: no such model") as caught:
        judged(lambda body: (404, "no such model"), *(item(str(i), i) for i in range(8)))
    assert "it fails on every response" in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_judge_needs_a_model() -> None:
    with pytest.raises(RunError, match="the judge 'j' has no model"):
        RewardWorker([JudgeReward(name="j", base_url="http://a/v1")])
