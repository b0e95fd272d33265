"""What is begun, given up, asked again and handed on, and when."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from rlctl.common.errors import RunError
from rlctl.runtime.schedules.draws import Draws
from rlctl.runtime.schedules.scheduler import _Load

from .simulated import Engines, Simulation, configured, stream

SLOW = {1: 50.0}
"""The response to row 1 takes this long."""


def slow(row: int, place: int) -> float:
    return SLOW.get(row, 1.0)


def simulation(engines: Engines | None = None, **sections: Any) -> Simulation:
    return Simulation(configured(**sections), engines or Engines(slow))


def test_a_long_response_holds_back_nobody_but_itself() -> None:
    here = simulation(weight_sync={"in_flight_requests": "continue", "max_steps_ahead": 3})
    here.until(5, horizon=6)
    assert here.rows == [0, 2, 3, 4, 5]
    assert here.engines.now < 10
    here.until(7, horizon=8)
    assert here.engines.begun == [0, 1, 2, 3, 4, 5, 6, 7], "its place counts, and no more than that is begun"


def test_in_order_groups_wait_for_their_turn() -> None:
    here = simulation(weight_sync={"in_flight_requests": "wait", "max_steps_ahead": 3})
    here.until(3, horizon=4)
    assert (here.rows, here.scheduler.there) == ([0], 3)
    here.until(4)
    assert here.rows == [0, 1, 2, 3]
    assert here.engines.now >= 50


def test_groups_are_whole_and_each_response_is_a_request_of_its_own_where_they_are_split() -> None:
    for split, requests in ((True, 4), (False, 2)):
        here = simulation(rollout={"split_groups": split})
        here.until(2)
        assert here.engines.requests == requests
        assert [len(group.responses) for group in here.groups] == [2, 2]


def test_responses_are_spread_over_engines() -> None:
    here = simulation(Engines(count=3))
    here.scheduler.begin(6)
    here.scheduler.pump(0.0)
    assert [len(each) for each in here.engines._under_way] == [4, 4, 4]


def test_no_more_prompts_run_than_may() -> None:
    here = simulation(Engines(), rollout={"max_running_prompts": 3})
    here.until(9)
    assert here.engines.most == 6


def test_a_prompt_that_takes_too_long_is_given_up_and_replaced() -> None:
    here = simulation(rollout={"timeouts": {"response": 5.0}})
    here.until(3)
    assert here.rows == [0, 2, 3]
    assert here.told == ["dropped prompt 1: it took more than 5 s"]
    assert here.engines.given_up == [1, 1]
    assert here.scheduler.counts["abandoned"] == 1


@pytest.mark.parametrize("timeouts", [{"response": 5.0}, {"dynamic": {"ratio": 4.0}}])
def test_time_in_which_rollout_rests_is_nobodys_delay(timeouts: dict[str, Any]) -> None:
    """Devices that are shared are trained on for minutes, with responses under way that nobody works on."""
    here = simulation(
        Engines(lambda row, place: 2.0),
        rollout={"timeouts": timeouts},
        weight_sync={"in_flight_requests": "continue", "max_steps_ahead": 2},
    )
    here.until(4)
    here.scheduler.begin(2)
    here.scheduler.pump(0.5)
    here.scheduler._clock = lambda: here.engines.now + 600.0
    here.until(6)
    assert (here.rows, here.told) == ([0, 1, 2, 3, 4, 5], [])


def test_the_time_limit_follows_what_responses_take() -> None:
    here = simulation(rollout={"timeouts": {"dynamic": {"ratio": 4.0}}}, weight_sync={"in_flight_requests": "continue"})
    here.until(4)
    here.until(8)
    assert here.told == [f"dropped prompt 1: it took more than {4 * 1.0:.3g} s"]
    assert here.engines.now < 20


def test_stragglers_of_a_round_are_not_waited_for_for_ever() -> None:
    over = {"ratio": 0.25, "wait_after_minimum": 3.0}
    here = simulation(batch={"prompts_per_step": 4, "responses_per_prompt": 2}, rollout={"oversampling": over})
    here.until(4)
    assert here.rows == [0, 2, 3, 4], "one of the next round takes the place of row 1"
    assert 4 <= here.engines.now <= 7
    assert here.scheduler.counts["abandoned"] == 1


def test_further_prompts_run_beside_the_steps_own() -> None:
    here = simulation(
        rollout={"oversampling": {"additional_prompts": 5}}, algorithm={"filters": ["zero_variance_groups"]}
    )
    here.until(2)
    assert here.engines.begun[:5] == [0, 1, 2, 3, 4]
    assert here.rows == [2, 4], "of rows 0 and 3 all responses are right, row 1 is slow"


def test_groups_that_a_filter_leaves_out_are_made_up_for() -> None:
    here = simulation(Engines(), algorithm={"filters": ["zero_variance_groups"]})
    here.until(4)
    assert here.rows == [1, 2, 4, 5]
    assert [group.prompt.index for group in here.scheduler.left_out] == [0, 3]


def test_filters_that_leave_nothing_end_the_run() -> None:
    here = simulation(
        Engines(),
        algorithm={"filters": [{"type": "zero_variance_groups", "threshold": 9.0}]},
        rollout={"oversampling": {"max_generation_batches": 3}},
    )
    with pytest.raises(RunError, match=r"dropped 6 groups in a row, which is 3 rounds of 2 prompts"):
        here.until(1)


def test_what_a_lost_engine_had_is_asked_again_until_it_is_too_often() -> None:
    here = simulation(Engines(count=2), rollout={"timeouts": {"retries": 1, "response": 99.0}})
    here.scheduler.begin(2)
    here.scheduler.pump(0.1)
    here.engines.lose = {0}
    here.until(2)
    assert sorted(here.rows) == [0, 1]
    assert here.scheduler.counts["again"] == 2
    here.scheduler.begin(2)
    for _ in range(2):
        here.scheduler.pump(0.0)
        here.engines.lose = {0, 1}
        here.scheduler.pump(0.1)
    assert len(here.told) == 2
    assert "its engine was lost 2 times" in here.told[0]
    here.until(4)
    assert sorted(here.rows) == [0, 1, 4, 5]


def test_what_is_given_back_is_begun_anew_before_others_with_the_same_seeds() -> None:
    here = simulation(weight_sync={"in_flight_requests": "abort", "max_steps_ahead": 1})
    here.until(3, horizon=4)
    assert here.rows == [0, 2, 3]
    seeds = {asked.request.seed for asked in here.scheduler._asked.values()}
    here.scheduler.give_back()
    here.scheduler.begin(2)
    assert seeds <= {asked.request.seed for asked in here.scheduler._asked.values()}
    assert [flight.number for flight in here.scheduler._flights.values()] == [1, 4]


def test_a_position_loses_and_doubles_no_prompt() -> None:
    draws = Draws(stream(3))
    drawn = [draws.next()[0] for _ in range(8)]
    for number in (0, 2, 3, 4, 5, 7):
        draws.over(number)
    state = json.loads(json.dumps(draws.state()))
    assert (drawn, state["open"]) == ([0, 1, 2, 3, 4, 5, 6, 7], [1, 6, 8])
    again = Draws(stream(3))
    again.restore(state)
    found = [again.next() for _ in range(5)]
    assert [(number, prompt.index) for number, prompt in found] == [(1, 1), (6, 6), (8, 8), (9, 9), (10, 10)]
    assert draws.next() == (8, found[2][1])
    for number in (1, 6, 8):
        draws.over(number)
        again.over(number)
    for number in (9, 10):
        again.over(number)
    assert again.first_open == 11
    assert again.state()["first"] == 9


def test_scoring_goes_on_beside_rollout_and_no_further_than_it_may() -> None:
    import threading

    release, scored = threading.Event(), []

    here = simulation(
        Engines(),
        weight_sync={"in_flight_requests": "continue"},
        reward_loop={"overlap_with_rollout": True, "max_queued": 3},
    )

    def slowly(prompts: Any, answers: Any) -> Any:
        from .simulated import score

        scored.append(len(prompts))
        release.wait(20)
        return score(prompts, answers)

    here.scheduler._scoring._score = slowly
    here.scheduler.begin(1)
    here.scheduler.pump(2.0)
    here.scheduler.begin(2)
    here.scheduler.pump(2.0)
    assert scored == [1], "engines went on while the first group was scored"
    here.scheduler.begin(3)
    threading.Timer(0.2, release.set).start()
    here.scheduler.pump(2.0)
    assert here.groups, "four responses wait to be scored: rollout waits for that"


def test_many_open_prompts_cost_no_more_each_than_few() -> None:
    """Prompts that settle behind one that does not: work is counted, not timed."""
    looked_at: list[int] = []
    for count in (64, 1024):
        draws = Draws(stream(count))
        for _ in range(count):
            draws.next()
        draws._open = Counting(draws._open)  # type: ignore[assignment]
        for number in range(1, count):
            draws.over(number)
            assert draws.first_open == 0
        draws.over(0)
        assert draws.first_open == count
        looked_at.append(draws._open.looks // count)  # type: ignore[attr-defined]
    assert looked_at[1] <= looked_at[0]


class Counting(dict[int, Any]):
    """Counts the numbers that are looked up or walked over."""

    looks = 0

    def __contains__(self, key: object) -> bool:
        self.looks += 1
        return super().__contains__(key)

    def __iter__(self) -> Any:
        self.looks += len(self)
        return super().__iter__()


def test_what_is_known_of_the_engines_does_not_grow_with_the_responses() -> None:
    load, lots = _Load(3), random.Random(1)
    under_way = [0, 0, 0]
    for _ in range(2000):
        assert load.least() == under_way.index(min(under_way)), "of several, the first"
        engine = lots.choice([load.least(), lots.randrange(3)])
        change = 1 if not under_way[engine] or lots.random() < 0.5 else -1
        under_way[engine] += change
        load.add(engine, change)
    assert len(load._heap) < 30
    for _ in range(2000):  # an engine that stays at the front hides what is behind it
        load.add(2, 1)
        load.add(2, -1)
    assert len(load._heap) < 30
