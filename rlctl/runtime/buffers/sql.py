"""The buffer in a database: many processes write and read it at once, today or another day.

    writer: put    one row a group, by its number: put again after a resume, in whatever order, it is there once
    reader: take   claims rows that nobody has claimed (FOR UPDATE SKIP LOCKED, on SQLite BEGIN IMMEDIATE)
    checkpoint     the number of takes and of groups put; restored, later claims are given back
    acknowledge    claims that a checkpoint remembers are final; those of a reader that died before are given back by others

A member is alive as long as it renews its lease. Rows stay in the database; a buffer of another run has another label.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count as counting
from json import loads
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sa
from sqlalchemy import exc

from rlctl.common.errors import RlctlError
from rlctl.common.messages.reasons import COMMAS, said, together
from rlctl.runtime.buffers.interface import (
    POLL_SECONDS,
    BufferTimeout,
    Statistics,
    never,
    number_of,
    responses_in,
    version_of,
)
from rlctl.runtime.buffers.record import group_of, text_of
from rlctl.runtime.buffers.replay import Reuse
from rlctl.runtime.buffers.tables import ATTEMPTS, BUFFERS, CLAIMS, GROUPS, MEMBERS, PAUSE, WEIGHTS, Database, unusable
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.processes.calls import StopRequested

LEASE_SECONDS = 120.0
"""A member that has not been heard of for so long is dead."""
_RESULT = TypeVar("_RESULT")


class SqlBuffer:
    """A buffer in a database, as one of its members sees it.

    Args:
        url: of SQLAlchemy.
        label: name of the buffer in the database.
        member: name of this process in it, the same after a resume and no one else's.
        capacity: responses that may wait; None is any number.
        read_timeout: seconds that a reader waits at most.
        reuse: order and replay; None is first in, first out, each once.
        seed: of the rules that draw lots.
        stopped: tells that the run is asked to end.
        lease: seconds after which a silent member is dead.

    Raises:
        RunError: the database cannot be used.
    """

    def __init__(
        self,
        url: str,
        label: str,
        member: str,
        *,
        capacity: int | None = None,
        read_timeout: float = 1800.0,
        reuse: Reuse | None = None,
        seed: int = 0,
        stopped: Callable[[], bool] = never,
        lease: float = LEASE_SECONDS,
    ) -> None:
        self._database = Database(url, label)
        self._label, self._member = label, member
        self._capacity, self._timeout, self._lease = capacity, read_timeout, lease
        self._reuse = reuse
        self._seed = seed
        self._stopped = stopped
        self._lock = threading.Lock()
        self._written = self._takes = 0
        self._counted = True
        """Whether the groups that this member puts are numbered by their count."""
        self._taken = self._dropped = self._reused = 0
        self._too_old = 0
        """Groups that the take under way leaves out."""
        self._left = threading.Event()
        self._heart: threading.Thread | None = None

    # writing

    def put(self, groups: Sequence[RolloutGroup]) -> None:
        self._join(writes=True)
        for group in groups:
            while (dropped := self._try(partial(self._insert, group=group))) is None:
                self._pause(POLL_SECONDS)
            self._dropped += dropped
            self._written += 1
            self._counted &= group.draw is None

    def _insert(self, connection: sa.Connection, *, group: RolloutGroup) -> int | None:
        """Put a group that is not there yet; how many had to give way, it may be itself, or None where there is no room."""
        number = number_of(group, self._written)
        mine = self._of(GROUPS, GROUPS.c.writer == self._member, GROUPS.c.number == number)
        if connection.scalar(sa.select(GROUPS.c.id).where(*mine)) is not None:
            return 0
        version, size = version_of(group), responses_in(group)
        priority, kept = self._priority(version, number, 0)
        dropped = int(not kept)
        now = self._database.now(connection)
        if self._capacity is not None and kept:
            connection.execute(sa.select(BUFFERS).where(BUFFERS.c.label == self._label).with_for_update())
            if self._reuse is not None:
                kept, gone = self._made_room(connection, size, priority, self._capacity, now)
                dropped = gone + (not kept)
            elif not self._has_room(connection, size, self._capacity, now):
                return None
        connection.execute(
            sa.insert(GROUPS).values(
                label=self._label,
                writer=self._member,
                number=number,
                responses=size,
                version=version,
                priority=priority,
                uses=0,
                available_at=now if kept else None,
                content=zlib.compress(text_of(group).encode(), 1),
            )
        )
        return dropped

    def _has_room(self, connection: sa.Connection, size: int, capacity: int, now: float) -> bool:
        groups, responses = self._waiting(connection)
        wanted = connection.scalar(
            sa.select(sa.func.max(MEMBERS.c.wanted)).where(*self._of(MEMBERS, MEMBERS.c.alive_until > now))
        )
        return groups < (wanted or 0) or not groups or responses + size <= capacity

    def _made_room(
        self, connection: sa.Connection, size: int, priority: float, capacity: int, now: float
    ) -> tuple[bool, int]:
        """Let groups of lower or equal priority give way if that makes room: whether it does, and how many did."""
        missing, giving = self._waiting(connection)[1] + size - capacity, []
        free = sa.select(GROUPS.c.id, GROUPS.c.priority, GROUPS.c.responses).where(
            *self._of(GROUPS, GROUPS.c.available_at <= now)
        )
        for row in connection.execute(free.order_by(GROUPS.c.priority, GROUPS.c.id)) if missing > 0 else ():
            if missing <= 0:
                break
            if row.priority > priority:
                return False, 0
            missing -= row.responses
            giving.append(row.id)
        if giving:
            connection.execute(sa.update(GROUPS).where(GROUPS.c.id.in_(giving)).values(available_at=None))
        return True, len(giving)

    def end_writing(self) -> None:
        self._join(writes=True)
        self._try(lambda connection: self._tell(connection, ended=True))

    # reading

    def take(self, count: int, *, oldest_version: int = 0) -> list[RolloutGroup]:
        self._join(writes=False)
        began = time.monotonic()
        try:
            while True:
                rows, self._too_old = self._try(partial(self._claim, count=count, oldest_version=oldest_version))
                if rows is not None:
                    self._takes += 1
                    self._dropped, self._too_old = self._dropped + self._too_old, 0
                    self._taken += len(rows)
                    self._reused += sum(row.uses > 0 for row in rows)
                    return [group_of(loads(zlib.decompress(row.content))) for row in rows]
                if time.monotonic() - began > self._timeout:
                    raise self._overdue(count)
                self._pause(POLL_SECONDS)
        finally:
            with suppress(RlctlError):
                self._try(lambda connection: self._tell(connection, wanted=0))

    def _claim(self, connection: sa.Connection, *, count: int, oldest_version: int) -> tuple[list[Any] | None, int]:
        """Claim the rows of ``count`` groups, or of what is left where no more will come; None where more are to come.

        Those that are too old are claimed in any case, as writers wait for their room; how many this take has claimed so.
        """
        now = self._database.now(connection)
        mine = (CLAIMS.c.reader == self._member, CLAIMS.c.number >= self._takes)
        of_old = sa.exists().where(GROUPS.c.id == CLAIMS.c.group_id, GROUPS.c.version < oldest_version)
        self._give_back(connection, *mine, ~of_old)
        self._give_back_of_dead(connection, now)
        over = self._writing_is_over(connection)
        free = self._of(GROUPS, GROUPS.c.available_at <= now)
        order = [GROUPS.c.priority.desc(), GROUPS.c.id]
        old = sa.select(GROUPS.c.id, GROUPS.c.number, GROUPS.c.version, GROUPS.c.uses).where(
            *free, GROUPS.c.version < oldest_version
        )
        for row in connection.execute(old.with_for_update(skip_locked=True)).all() if oldest_version else ():
            self._mark(connection, row, now, again=False)
        left_out = connection.scalar(sa.select(sa.func.count()).where(*self._of(CLAIMS, *mine, of_old))) or 0
        chosen = sa.select(GROUPS).where(*free, GROUPS.c.version >= oldest_version).order_by(*order)
        rows = connection.execute(chosen.limit(count).with_for_update(skip_locked=True)).all()
        if len(rows) < count:
            cooling = sa.select(GROUPS.c.id).where(*self._of(GROUPS, GROUPS.c.available_at > now)).limit(1)
            if not over or connection.scalar(cooling) is not None:
                self._tell(connection, wanted=count)
                return None, left_out
        for row in rows:
            self._mark(connection, row, now, again=True)
        return list(rows), left_out

    def _mark(self, connection: sa.Connection, row: Any, now: float, *, again: bool) -> None:
        """A row is this reader's; it may be drawn again after its cool-down."""
        priority, kept = self._priority(row.version, row.number, row.uses + 1)
        cooldown = self._reuse.cooldown if self._reuse is not None else None
        later = now + cooldown if cooldown is not None and kept and again else None
        values = {"uses": row.uses + 1, "priority": priority, "available_at": later}
        connection.execute(sa.update(GROUPS).where(GROUPS.c.id == row.id).values(**values))
        claim = {"label": self._label, "reader": self._member, "number": self._takes, "group_id": row.id}
        connection.execute(sa.insert(CLAIMS).values(**claim, acknowledged=False))

    def _writing_is_over(self, connection: sa.Connection) -> bool:
        """Whether there have been writers and all of them have ended."""
        ended = connection.scalars(sa.select(MEMBERS.c.ended).where(*self._of(MEMBERS, MEMBERS.c.writes))).all()
        return bool(ended) and all(ended)

    def _overdue(self, count: int) -> BufferTimeout:
        groups, _ = self._try(self._waiting)
        writers = self._try(self._silences)
        return BufferTimeout(
            said(
                "waited {seconds:g} s for {count} groups of responses in the buffer {path}; {there}; {writers}",
                seconds=self._timeout,
                count=count,
                path=said("{label} of {database}", label=self._label, database=self._database.shown),
                there=said("it has {count}", count=groups),
                writers=writers,
            ),
            hint="start or resume the run that fills it (run.mode: rollout_only), or raise buffer.read_timeout",
        )

    def _silences(self, connection: sa.Connection) -> str:
        """What is known of the writers."""
        now = self._database.now(connection)
        rows = connection.execute(sa.select(MEMBERS).where(*self._of(MEMBERS, MEMBERS.c.writes))).all()
        seen = []
        for row in rows:
            silent = max(0.0, now - row.alive_until + self._lease)
            state = "has ended" if row.ended else said("last responded {seconds:.0f} s ago", seconds=silent)
            seen.append(said("{name} {state}", name=row.name, state=state))
        return said("its writers: {names}", names=together(seen, COMMAS)) if seen else "no run has written to it"

    # weights

    def listened(self) -> bool:
        def listening(connection: sa.Connection) -> bool:
            now = self._database.now(connection)
            alive = (MEMBERS.c.writes, MEMBERS.c.ended.is_(False), MEMBERS.c.alive_until > now)
            return connection.scalar(sa.select(MEMBERS.c.name).where(*self._of(MEMBERS, *alive)).limit(1)) is not None

        return self._try(listening)

    def announce(self, version: int, folder: Path) -> None:
        def write(connection: sa.Connection) -> None:
            connection.execute(sa.delete(WEIGHTS).where(*self._of(WEIGHTS)))
            connection.execute(sa.insert(WEIGHTS).values(label=self._label, version=version, folder=str(folder)))

        self._try(write)

    def announced(self) -> tuple[int, Path] | None:
        chosen = sa.select(WEIGHTS).where(*self._of(WEIGHTS))
        row = self._try(lambda connection: connection.execute(chosen).first())
        return None if row is None else (row.version, Path(row.folder))

    # positions

    def state(self) -> dict[str, Any]:
        return {"written": self._written, "takes": self._takes, "counted": self._counted}

    def restore(self, state: dict[str, Any]) -> None:
        self._written, self._takes = state.get("written", 0), state.get("takes", 0)
        self._counted = state.get("counted", True)
        self._try(
            lambda connection: self._give_back(
                connection, CLAIMS.c.reader == self._member, CLAIMS.c.number >= self._takes
            )
        )

    def acknowledge(self, state: dict[str, Any]) -> None:
        mine = self._of(CLAIMS, CLAIMS.c.reader == self._member, CLAIMS.c.number < state["takes"])
        self._try(lambda connection: connection.execute(sa.update(CLAIMS).where(*mine).values(acknowledged=True)))

    def _give_back_of_dead(self, connection: sa.Connection, now: float) -> None:
        dead = sa.select(MEMBERS.c.name).where(
            *self._of(MEMBERS, MEMBERS.c.alive_until < now, MEMBERS.c.name != self._member)
        )
        self._give_back(connection, CLAIMS.c.reader.in_(dead), CLAIMS.c.acknowledged.is_(False))

    def _give_back(self, connection: sa.Connection, *which: Any) -> None:
        """Undo claims: their groups can be taken as before."""
        chosen = sa.select(CLAIMS).where(*self._of(CLAIMS, *which)).with_for_update(skip_locked=True)
        for claim in connection.execute(chosen).all():
            told = sa.select(GROUPS.c.version, GROUPS.c.number, GROUPS.c.uses).where(GROUPS.c.id == claim.group_id)
            row = connection.execute(told.with_for_update()).one()
            priority, _ = self._priority(row.version, row.number, row.uses - 1)
            values = {"uses": row.uses - 1, "priority": priority, "available_at": 0.0}
            connection.execute(sa.update(GROUPS).where(GROUPS.c.id == claim.group_id).values(**values))
            connection.execute(sa.delete(CLAIMS).where(CLAIMS.c.id == claim.id))

    def statistics(self) -> Statistics:
        dropped = self._dropped + self._too_old
        return Statistics(self._try(self._waiting)[1], self._written, self._taken, dropped, self._reused)

    def close(self) -> None:
        self._left.set()
        if self._heart is not None:
            self._heart.join(5)
            with suppress(RlctlError):
                self._try(lambda connection: self._tell(connection, alive_until=0.0))
        self._database.close()

    # members

    def _join(self, *, writes: bool) -> None:
        """Be known to others, as a writer or a reader, and renew the lease from time to time."""
        with self._lock:
            if self._heart is None:
                self._try(self._enter)
                self._heart = threading.Thread(target=self._beat, name=f"buffer-{self._label}", daemon=True)
                self._heart.start()
        if writes:
            self._try(lambda connection: self._tell(connection, writes=True, ended=False))

    def _enter(self, connection: sa.Connection) -> None:
        until = self._database.now(connection) + self._lease
        mine = self._of(MEMBERS, MEMBERS.c.name == self._member)
        if connection.scalar(sa.select(MEMBERS.c.name).where(*mine)) is None:
            row = {"writes": False, "ended": False, "wanted": 0, "alive_until": until}
            connection.execute(sa.insert(MEMBERS).values(label=self._label, name=self._member, **row))
        else:
            self._tell(connection, alive_until=until)
        if self._reuse is not None and self._counted:
            self._forget_later(connection)

    def _forget_later(self, connection: sa.Connection) -> None:
        """Delete the groups that this member put after its checkpoint, and nobody took: it puts them again.

        Where groups are drawn by priority, those would come before their time.
        """
        self._give_back(connection, CLAIMS.c.reader == self._member, CLAIMS.c.number >= self._takes)
        claimed = sa.exists().where(CLAIMS.c.group_id == GROUPS.c.id)
        mine = self._of(GROUPS, GROUPS.c.writer == self._member, GROUPS.c.number >= self._written)
        connection.execute(sa.delete(GROUPS).where(*mine, ~claimed))

    def _tell(self, connection: sa.Connection, **values: Any) -> None:
        mine = self._of(MEMBERS, MEMBERS.c.name == self._member)
        connection.execute(sa.update(MEMBERS).where(*mine).values(**values))

    def _beat(self) -> None:
        def renew(connection: sa.Connection) -> None:
            self._tell(connection, alive_until=self._database.now(connection) + self._lease)

        while not self._left.wait(self._lease / 4):
            with suppress(RlctlError):  # the next use of the database tells what is wrong with it
                self._try(renew)

    # the database

    def _of(self, table: sa.Table, *conditions: Any) -> tuple[Any, ...]:
        return (table.c.label == self._label, *conditions)

    def _waiting(self, connection: sa.Connection) -> tuple[int, int]:
        """Groups and responses that can be taken."""
        total = sa.func.coalesce(sa.func.sum(GROUPS.c.responses), 0)
        now = self._database.now(connection)
        found = sa.select(sa.func.count(), total).where(*self._of(GROUPS, GROUPS.c.available_at <= now))
        groups, responses = connection.execute(found).one()
        return int(groups), int(responses)

    def _priority(self, version: int, number: int, uses: int) -> tuple[float, bool]:
        """Of a group that was used so often: the lot that it draws then is the same whenever it is computed."""
        if self._reuse is None:
            return 0.0, True
        lot = np.random.default_rng((self._seed, number, uses)).standard_normal()
        return self._reuse.priority(version, uses, float(lot))

    def _pause(self, seconds: float) -> None:
        if self._stopped():
            raise StopRequested
        time.sleep(seconds)

    def _try(self, work: Callable[[sa.Connection], _RESULT]) -> _RESULT:
        """Do something in a transaction, again where others or a lost connection broke it.

        Raises:
            RunError: the database cannot be used.
        """
        for attempt in counting(1):
            try:
                with self._database.begin() as connection:
                    return work(connection)
            except (exc.OperationalError, exc.InterfaceError, exc.IntegrityError) as error:
                if attempt == ATTEMPTS:
                    raise unusable(self._database.shown, error) from error
                time.sleep(PAUSE * attempt)
            except exc.SQLAlchemyError as error:
                raise unusable(self._database.shown, error) from error
        raise AssertionError("counting never ends")
