"""Response-level scheduling: prompts are begun while there is room, and each group goes on its own way when it is complete.

    draws ──▶ begin ──▶ engines ──▶ complete groups ──▶ scored ──▶ filtered ──▶ handed on
                ▲          │
                └── again ─┴── given up: too slow, an engine lost

One pump drives it all: ``pump`` does what there is to do, lets the engines work for a moment, and returns. A long response
holds back nobody but itself.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config.sections.rewards import RewardLoop
from rlctl.config.sections.rollout import RolloutTimeouts
from rlctl.runtime.experience.explore import GenerationSpec
from rlctl.runtime.experience.failures import Failures
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.experience.shaping import Shaping
from rlctl.runtime.rollout.interface import Finished
from rlctl.runtime.schedules.draws import Draws
from rlctl.runtime.schedules.scoring import Flight, Score, Scoring
from rlctl.runtime.types import Prompt, Request, Response


class Engines(Protocol):
    """Rollout engines that work on what is submitted to them (``roles.RolloutEngines``)."""

    def __len__(self) -> int: ...

    def stream(
        self, requests: Sequence[dict[int, Request]], aborted: Sequence[int], seconds: float
    ) -> Sequence[Sequence[Finished] | None]:
        """Give each engine its requests, give up others, let all work for a while; None is an engine that lost its work."""
        ...

    def sleep(self) -> None:
        """Leave the devices' memory to training, where they are shared, until the next call."""
        ...


@dataclass(slots=True)
class _Asked:
    """A request in an engine."""

    flight: Flight
    request: Request
    engine: int
    missing: int
    """Responses that are still to come."""
    greedy: bool
    attempts: int = 1


_MOST_ENTRIES = 8
"""An engine's entries in the heap, on average, before those that no longer hold are dropped."""


class _Load:
    """Responses under way in each engine, and which engine has the fewest: of several, the first."""

    def __init__(self, engines: int) -> None:
        self._of = [0] * engines
        self._heap = [(0, engine) for engine in range(engines)]
        """What each engine had at some time; its last entry is what it has."""

    def add(self, engine: int, responses: int) -> None:
        self._of[engine] += responses
        heapq.heappush(self._heap, (self._of[engine], engine))
        if len(self._heap) > _MOST_ENTRIES * len(self._of):
            self._heap = [(load, number) for number, load in enumerate(self._of)]
            heapq.heapify(self._heap)

    def least(self) -> int:
        """The engine with the fewest."""
        while self._heap[0][0] != self._of[self._heap[0][1]]:
            heapq.heappop(self._heap)
        return self._heap[0][1]


@dataclass(frozen=True, slots=True)
class SchedulerSpec:
    """How many prompts are under way, how long they may take, and how they are scored."""

    generation: GenerationSpec
    in_order: bool
    """Whether groups are handed on in the order of their prompts."""
    split_groups: bool
    """Whether the responses of a group may be in several engines."""
    max_running_prompts: int | None
    timeouts: RolloutTimeouts
    reward_loop: RewardLoop


class Scheduler:
    """What is under way, from the prompt to the group. Not safe for threads: one pump at a time."""

    def __init__(
        self,
        spec: SchedulerSpec,
        draws: Draws,
        engines: Engines,
        score: Score,
        shaping: Shaping,
        failures: Failures,
        hand_on: Callable[[RolloutGroup], None],
        *,
        tell: Callable[[str], None] = lambda message: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``hand_on`` gets each group to train on; ``tell`` gets what went wrong, for people; ``clock`` gives seconds."""
        self.spec, self.draws = spec, draws
        self.handed_on = 0
        """Groups, since the start of the stage."""
        self.left_out: list[RolloutGroup] = []
        """Groups that filters left out, for whoever takes them away."""
        self.counts: Counter[str] = Counter()
        """Prompts given up (``abandoned``), drawn again (``again``), since the stage began here."""
        self._generation, self._engines, self._shaping = spec.generation, engines, shaping
        self._hand_on, self._tell, self._clock = hand_on, tell, clock
        self._scoring = Scoring(score, in_thread=spec.reward_loop.overlap_with_rollout)
        self.failures = failures
        self._flights: dict[int, Flight] = {}
        self._asked: dict[int, _Asked] = {}
        self._complete: list[Flight] = []
        """Groups to be scored."""
        self._settled: dict[int, RolloutGroup | None] = {}
        """By number, groups that wait for their turn; None was left out or given up."""
        self._kept = 0
        """How many of them are groups."""
        self._turn = draws.first_open
        self._tickets = 0
        self._outbox: list[dict[int, Request]] = [{} for _ in range(len(engines))]
        self._aborted: list[int] = []
        self._load = _Load(len(engines))
        self._worked = 0.0
        """Seconds that engines have been at work: by them time is limited, as nobody is late for what is done in between."""
        self._durations = [0, 0.0]
        """Responses that finished here, and the seconds that they took together."""
        self._rounds: dict[int, float] = {}
        """When enough prompts of a round were over (``_worked``), of rounds whose stragglers are not waited for for ever."""
        self._round_over: Counter[int] = Counter()
        self._fruitless = 0
        """Groups left out since one was kept."""

    @property
    def under_way(self) -> int:
        """Prompts that are begun and not settled."""
        return len(self._flights)

    @property
    def there(self) -> int:
        """Groups to train on that are handed on, or only wait for their turn."""
        return self.handed_on + self._kept

    @property
    def busy(self) -> bool:
        """Whether engines or rewards have something to do."""
        return bool(self._asked or any(self._outbox) or self._aborted or self._complete or self._scoring.busy)

    def start_from(self, handed_on: int) -> None:
        """Go on from a checkpoint, in which ``handed_on`` groups were."""
        self.handed_on = handed_on
        self._turn = self.draws.first_open

    def begin(self, room: float, *, extra: bool = True, most: float = math.inf) -> None:
        """Begin prompts, where there is room.

        Args:
            room: how many further groups to train on there may be, those under way counted.
            extra: whether further prompts may run beside them (``additional_prompts``), which are there for a later step where
                filters leave out none.
            most: how many may be under way at most, whatever for.
        """
        additional = self._generation.oversampling.additional_prompts if extra and room > 0 else 0
        limit = min(max(room, additional), most, self.spec.max_running_prompts or math.inf)
        while len(self._flights) < limit:
            self._begin(*self.draws.next())

    def _begin(self, number: int, prompt: Prompt) -> None:
        generation, each = self._generation, self._generation.prompts_per_step
        flight = Flight(number, prompt, self._worked)
        self._flights[number] = flight
        place, purpose = number % each, f"{generation.stage}:{number // each + 1}"
        further = generation.oversampling.additional_responses
        (whole,) = generation.requests([prompt], purpose, further=further, first=place)
        parts = (
            [dataclasses.replace(whole, n=1, first=j) for j in range(whole.n)] if self.spec.split_groups else [whole]
        )
        for request in parts:
            self._submit(flight, request)
        if generation.greedy:
            (best,) = generation.greedy_requests([prompt], purpose, first=place)
            self._submit(flight, best, greedy=True)

    def _submit(self, flight: Flight, request: Request, *, greedy: bool = False) -> None:
        """Give a request to the engine with the least to do."""
        engine = self._load.least()
        self._tickets += 1
        flight.tickets.add(self._tickets)
        self._asked[self._tickets] = _Asked(flight, request, engine, request.n, greedy)
        self._outbox[engine][self._tickets] = request
        self._load.add(engine, request.n)

    def pump(self, seconds: float) -> None:
        """Let the engines work for about ``seconds``, and take every group as far as it goes.

        Raises:
            RunError: a reward that must not fail fails, or filters leave too few groups in as many rounds as the config allows.
        """
        if not self._scores_too_slowly():
            outbox, self._outbox = self._outbox, [{} for _ in self._outbox]
            aborted, self._aborted = self._aborted, []
            began = self._clock()
            finished = self._engines.stream(outbox, aborted, seconds)
            self._worked += self._clock() - began
            for engine, found in enumerate(finished):
                if found is None:
                    self._lost(engine)
                else:
                    self._take(found)
        self._give_up_late()
        self._score(wait=self._scores_too_slowly())

    def _scores_too_slowly(self) -> bool:
        limit = self.spec.reward_loop.max_queued
        return bool(limit) and sum(len(flight.responses) for flight in self._complete) > limit

    def _take(self, finished: Sequence[Finished]) -> None:
        for each in finished:
            asked = self._asked.get(each.ticket)
            if asked is None:
                continue  # it was given up while it was on its way
            flight = asked.flight
            self._durations[0] += 1
            self._durations[1] += self._worked - flight.began
            self._load.add(asked.engine, -1)
            asked.missing -= 1
            if asked.greedy:
                flight.best = each.response
            else:
                flight.responses[each.index] = each.response
            if not asked.missing:
                del self._asked[each.ticket]
                flight.tickets.discard(each.ticket)
            if not flight.tickets or self._has_enough(flight):
                self._finish(flight)

    def _has_enough(self, flight: Flight) -> bool:
        """Whether a group that has further responses under way needs none of them."""
        if not self._generation.oversampling.additional_responses or (self._generation.greedy and flight.best is None):
            return False
        return len(_good(flight)) >= self._generation.responses_per_prompt

    def _finish(self, flight: Flight) -> None:
        """A group is complete: it is scored, unless trajectories failed and it is dropped for that."""
        self._end(flight)
        group = self.failures.kept(flight.prompt, flight.group)
        group = _good(flight) if self._has_enough(flight) else group
        if group is None:
            self._abandon(flight, "")
            return
        most = self._generation.responses_per_prompt
        flight.responses = dict(enumerate(group[:most]))
        self._complete.append(flight)

    def _lost(self, engine: int) -> None:
        """An engine lost its work: what it was asked is asked again."""
        retries = self.spec.timeouts.retries
        for ticket in [ticket for ticket, asked in self._asked.items() if asked.engine == engine]:
            asked = self._asked.get(ticket)
            if asked is None:
                continue  # another request of its prompt was asked for too often
            if asked.attempts > retries:
                self._abandon(asked.flight, f"its engine was lost {asked.attempts} times")
                continue
            del self._asked[ticket]
            asked.flight.tickets.discard(ticket)
            self._load.add(engine, -asked.missing)
            self.counts["again"] += 1
            self._submit(asked.flight, asked.request, greedy=asked.greedy)
            self._asked[self._tickets].attempts = asked.attempts + 1

    def _give_up_late(self) -> None:
        """Give up prompts that take too long, and the stragglers of rounds that have waited for them."""
        now, limit = self._worked, self._time_limit()
        for flight in self._late(now - limit):
            self._abandon(flight, f"it took more than {limit:.3g} s")
        over = self._generation.oversampling
        if not over.ratio:
            return
        each = self._generation.prompts_per_step
        enough = math.ceil(each * (1 - over.ratio))
        for number in [number for number, count in self._round_over.items() if count >= enough]:
            since = self._rounds.setdefault(number, now)
            if self._round_over[number] == each:
                del self._round_over[number], self._rounds[number]
            elif now - since >= over.wait_after_minimum:
                late = [one for one in self._flights.values() if one.number // each == number and one.tickets]
                for flight in late:
                    self._abandon(flight, "")

    def _late(self, before: float) -> list[Flight]:
        """The flights that engines work on since before that time; flights are in the order in which they were started."""
        early = itertools.takewhile(lambda flight: flight.began < before, self._flights.values())
        return [flight for flight in early if flight.tickets]

    def _time_limit(self) -> float:
        """Seconds that a prompt may take."""
        timeouts, (count, seconds) = self.spec.timeouts, self._durations
        most = math.inf if timeouts.response is None else timeouts.response
        known = self._generation.prompts_per_step * self._generation.responses_per_prompt
        if timeouts.dynamic is None or count < known:
            return most
        return min(most, timeouts.dynamic.ratio * seconds / count)

    def _abandon(self, flight: Flight, why: str) -> None:
        """Give a prompt up; another is drawn in its place."""
        self._end(flight)
        self.counts["abandoned"] += 1
        if why:
            self._tell(said("dropped prompt {index}: {why}", index=flight.prompt.index, why=why))
        self._settle(flight.number, None)

    def _end(self, flight: Flight) -> None:
        """Let the engines give a prompt up."""
        for ticket in flight.tickets:
            asked = self._asked.pop(ticket)
            if self._outbox[asked.engine].pop(ticket, None) is None:
                self._aborted.append(ticket)
            self._load.add(asked.engine, -asked.missing)
        flight.tickets.clear()

    def give_back(self) -> None:
        """Give up all that engines work on; those prompts are begun anew when there is room."""
        for flight in [flight for flight in self._flights.values() if flight.tickets]:
            self._end(flight)
            del self._flights[flight.number]
            self.draws.give_back(flight.number)
            self.counts["again"] += 1

    def _score(self, *, wait: bool) -> None:
        """Score complete groups, beside rollout or now, and settle those that are scored."""
        if self._complete and not self._scoring.busy:
            flights, self._complete = self._complete, []
            self._scoring.start(flights)
        for flight, group in self._scoring.finished(wait=wait):
            self.settle(flight, group)

    def sleep(self) -> None:
        """Let the engines leave the devices to training; what is under way stays."""
        self._engines.sleep()

    def finish_scoring(self) -> None:
        """Wait for what is being scored."""
        while self._scoring.busy or self._complete:
            self._score(wait=True)

    def settle(self, flight: Flight, group: RolloutGroup) -> None:
        """A group is scored: where left-out groups are made up for, operators and filters say what of it is trained on."""
        kept = next(iter(self._shaping.kept_groups([group])), None) if self._shaping.refills else group
        if kept is not None:
            self._fruitless = 0
        else:
            self.left_out.append(group)
            self._fruitless += 1
            self._check_fruitful()
        self._settle(flight.number, kept)

    def _check_fruitful(self) -> None:
        """End a run whose filters leave nothing: as many groups in a row as the rounds of a step."""
        limits, wanted = self._generation.oversampling, self._generation.prompts_per_step
        rounds = limits.max_generation_batches
        size = limits.generation_batch_prompts or wanted
        if rounds is not None and self._fruitless >= rounds * size:
            raise RunError(
                said(
                    "filters dropped {fruitless} groups in a row, which is {rounds} rounds of {size} prompts",
                    fruitless=self._fruitless,
                    rounds=rounds,
                    size=size,
                ),
                hint="raise rollout.oversampling.max_generation_batches, or use prompts that are neither too easy nor too hard",
            )

    def _settle(self, number: int, group: RolloutGroup | None) -> None:
        """A prompt is over; its group is handed on, in its turn where order is kept."""
        self._flights.pop(number, None)
        if self._generation.oversampling.ratio:
            self._round_over[number // self._generation.prompts_per_step] += 1
        self._settled[number] = group
        self._kept += group is not None
        if not self.spec.in_order:
            self._release(number)
        while self._turn in self._settled:
            self._release(self._turn)
            self._turn += 1

    def _release(self, number: int) -> None:
        group = self._settled.pop(number)
        if group is not None:
            self._kept -= 1
            self._hand_on(dataclasses.replace(group, draw=number))
            self.handed_on += 1
        self.draws.over(number)


def _good(flight: Flight) -> list[Response]:
    """The responses of a prompt that did not fail."""
    return [response for response in flight.group if not response.failure]
