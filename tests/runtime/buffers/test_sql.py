"""The buffer in a database, SQLite and PostgreSQL: order, claims, resume, and processes that are killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from rlctl.common.errors import RunError
from rlctl.runtime.buffers.interface import BufferTimeout
from rlctl.runtime.buffers.replay import RULES, Reuse
from rlctl.runtime.buffers.sql import SqlBuffer
from rlctl.runtime.buffers.tables import BUFFERS, GROUPS, connect
from rlctl.runtime.processes.calls import StopRequested
from tests.waiting import until

from .made import group, indices, put_in_order


@pytest.fixture
def label() -> str:
    return f"buffer-{uuid.uuid4().hex[:8]}"


def member(url: str, label: str, name: str, **settings: Any) -> SqlBuffer:
    return SqlBuffer(url, label, name, **{"read_timeout": 20.0, **settings})


def test_groups_come_out_whole_in_order_and_once(database: str, label: str) -> None:
    writer, reader = member(database, label, "writer"), member(database, label, "reader")
    groups = [group(index, n=index + 1, version=index) for index in range(5)]
    writer.put(groups)
    assert reader.take(2) == groups[:2]
    writer.end_writing()
    assert reader.take(9) == groups[2:]
    assert reader.take(9) == []
    assert reader.statistics().waiting == 0


def test_groups_of_old_weights_are_left_out(database: str, label: str) -> None:
    buffer = member(database, label, "both")
    buffer.put([group(index, version=index) for index in range(4)])
    assert indices(buffer.take(1, oldest_version=2)) == [2]
    assert buffer.statistics().dropped == 2
    assert indices(buffer.take(1)) == [3]


def test_a_writer_waits_for_room(database: str, label: str) -> None:
    writer, reader = member(database, label, "writer", capacity=4), member(database, label, "reader")
    thread = threading.Thread(target=writer.put, args=([group(index) for index in range(5)],), daemon=True)
    thread.start()
    until(lambda: reader.statistics().waiting == 4, "what there is room for was not written")
    time.sleep(0.2)
    assert reader.statistics().waiting == 4
    assert indices(reader.take(1)) == [0]
    assert indices(reader.take(4)) == [1, 2, 3, 4], "more than the capacity holds"
    thread.join(10)
    assert not thread.is_alive()


def test_who_waits_in_vain_is_told_of_whom(database: str, label: str) -> None:
    buffer = member(database, label, "reader", read_timeout=0.1)
    with pytest.raises(BufferTimeout, match=r"waited 0.1 s for 2 groups .* it has 0; no run has written"):
        buffer.take(2)
    member(database, label, "some-writer").put([group(0)])
    with pytest.raises(BufferTimeout, match=r"it has 1; its writers: some-writer last responded \d s ago"):
        buffer.take(2)
    assert "rlctl:" not in str(database)


def test_who_waits_ends_when_the_run_is_asked_to(database: str, label: str) -> None:
    buffer = member(database, label, "reader", stopped=lambda: True)
    with pytest.raises(StopRequested):
        buffer.take(1)


def test_a_resumed_reader_takes_again_what_no_checkpoint_remembers(database: str, label: str) -> None:
    member(database, label, "writer").put([group(index) for index in range(6)])
    lost = member(database, label, "reader")
    assert indices(lost.take(2)) == [0, 1]
    reader = member(database, label, "reader")
    assert indices(reader.take(2)) == [0, 1]
    saved = reader.state()
    assert indices(reader.take(2)) == [2, 3]
    again = member(database, label, "reader")
    again.restore(saved)
    assert indices(again.take(2)) == [2, 3]
    later = again.state()
    again.acknowledge(later)
    assert indices(again.take(2)) == [4, 5]
    first = member(database, label, "reader")
    first.restore(saved)
    assert indices(first.take(4)) == [2, 3, 4, 5], "the newest checkpoint was damaged, and the one before it is used"


def test_a_resumed_writer_writes_nothing_twice(database: str, label: str) -> None:
    writer = member(database, label, "writer")
    writer.put([group(0), group(1)])
    saved = writer.state()
    writer.put([group(2), group(3)])
    again = member(database, label, "writer")
    again.restore(saved)
    again.put([group(2), group(3), group(4)])
    again.end_writing()
    assert indices(member(database, label, "reader").take(9)) == [0, 1, 2, 3, 4]


def test_groups_that_are_put_again_in_another_order_are_there_once(database: str, label: str) -> None:
    """A writer that rolls out ahead is resumed: what it draws again finishes in another order."""
    writer, reader = member(database, label, "writer"), member(database, label, "reader")
    put_in_order(writer, (0, 1))
    saved = writer.state()
    put_in_order(writer, (3, 2))
    assert indices(reader.take(3)) == [0, 1, 3]
    again = member(database, label, "writer")
    again.restore(saved)
    put_in_order(again, (4, 3, 5, 2))
    again.end_writing()
    assert indices(reader.take(9)) == [2, 4, 5]


def test_labels_keep_buffers_apart(database: str, label: str) -> None:
    member(database, label, "writer").put([group(0)])
    other = member(database, f"{label}-other", "reader", read_timeout=0.05)
    with pytest.raises(BufferTimeout):
        other.take(1)


def test_replay_by_priority_with_a_cooldown(database: str, label: str) -> None:
    reuse = Reuse(RULES["linear_decay"], {"decay": 2.0}, 1.0)
    buffer = member(database, label, "both", reuse=reuse)
    buffer.put([group(0, version=2), group(1, version=5), group(2, version=4)])
    assert indices(buffer.take(2)) == [1, 2]
    buffer.end_writing()
    time.sleep(1.1)
    assert indices(buffer.take(3)) == [1, 0, 2], "5 - 2, then 2 before 4 - 2 as it came first"
    assert buffer.statistics().reused == 2


def test_a_resumed_replay_draws_the_lots_of_one_that_was_not(database: str, label: str) -> None:
    reuse = Reuse(RULES["decay_limit_randomization"], {"sigma": 1.0, "use_count_limit": 0}, 0.0)
    groups = [group(index) for index in range(6)]
    whole = member(database, f"{label}-whole", "both", reuse=reuse, seed=3)
    whole.put(groups)
    expected = [indices(whole.take(2)) for _ in range(6)]
    assert len({tuple(sorted(each)) for each in expected}) > 1
    first = member(database, label, "both", reuse=reuse, seed=3)
    first.put(groups[:4])
    killed = member(database, label, "both", reuse=reuse, seed=3)
    killed.put(groups)
    taken = [indices(killed.take(2)) for _ in range(2)]
    saved = killed.state()
    killed.take(2)
    again = member(database, label, "both", reuse=reuse, seed=3)
    again.restore(saved)
    assert taken + [indices(again.take(2)) for _ in range(4)] == expected


def test_a_resumed_replay_takes_no_group_before_its_time(database: str, label: str) -> None:
    reuse = Reuse(RULES["linear_decay"], {}, 0.0)

    def begun() -> SqlBuffer:
        return member(database, label, "both", reuse=reuse)

    def steps(buffer: SqlBuffer, *numbers: int) -> list[int]:
        taken = []
        for number in numbers:
            buffer.put([group(number, version=number)])
            taken += indices(buffer.take(1))
        return taken

    assert steps(begun(), 0, 1) == [0, 1]
    again = begun()
    assert steps(again, 0, 1) == [0, 1], "it was killed before its first checkpoint"
    saved = again.state()
    assert steps(again, 2, 3) == [2, 3]
    resumed = begun()
    resumed.restore(saved)
    assert steps(resumed, 2, 3) == [2, 3]
    assert sorted(indices(resumed.take(4))) == [0, 1, 2, 3], "each is there once"


def test_a_replay_that_is_full_gives_up_its_lowest(database: str, label: str) -> None:
    reuse = Reuse(RULES["decay_limit_randomization"], {"use_count_limit": 1}, 0.0)
    buffer = member(database, label, "both", reuse=reuse, capacity=4)
    buffer.put([group(0, version=3), group(1, version=1), group(2, version=1), group(3, version=0)])
    buffer.end_writing()
    assert indices(buffer.take(9)) == [0, 2]
    assert buffer.take(9) == [], "one use is the limit"


def test_no_group_gives_way_to_one_that_does_not_fit_even_then(database: str, label: str) -> None:
    reuse = Reuse(RULES["decay_limit_randomization"], {"use_count_limit": 1}, 0.0)
    buffer = member(database, label, "both", reuse=reuse, capacity=6)
    buffer.put([group(0, version=5), group(1, version=1), group(2, version=1)])
    buffer.put([group(3, version=2, n=5)])
    assert buffer.statistics().waiting == 6
    assert buffer.statistics().dropped == 1, "the new one"
    buffer.put([group(4, version=2, n=4)])
    buffer.end_writing()
    assert indices(buffer.take(9)) == [0, 4]


def process(url: str, label: str, name: str, does: str, size: int, told: Path) -> None:
    """What one process does: write so many groups, or take so many at a time; hold them, or acknowledge until the end."""
    buffer = SqlBuffer(url, label, name, lease=1.0 if does == "hold" else 60.0, read_timeout=60)
    if does == "write":
        first = 1000 * int(name.removeprefix("writer"))
        for index in range(first, first + size):
            buffer.put([group(index)])
        buffer.end_writing()
    while does != "write" and (taken := buffer.take(size)):
        with told.open("a") as file:
            file.writelines(f"{index}\n" for index in indices(taken))
        if does == "hold":
            time.sleep(600)
        buffer.acknowledge(buffer.state())
    buffer.close()


def test_many_processes_at_once_lose_and_double_nothing_though_one_is_killed(
    database: str, label: str, tmp_path: Path
) -> None:
    many = multiprocessing.get_context("fork")

    def start(name: str, does: str, size: int) -> Any:
        started = many.Process(target=process, args=(database, label, name, does, size, tmp_path / name))
        started.start()
        return started

    def told(name: str) -> list[int]:
        return [int(line) for line in (tmp_path / name).read_text().split()] if (tmp_path / name).exists() else []

    holder = start("holder", "hold", 3)
    writers = [start(f"writer{number}", "write", 40) for number in range(2)]
    until(lambda: len(told("holder")) == 3, "the holder took nothing")
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    readers = [start(f"reader{number}", "read", 4) for number in range(2)]
    time.sleep(1.2)  # the lease of the killed one ends
    last = start("last", "read", 1)
    for each in (*writers, *readers, last):
        each.join(60)
    assert [each.exitcode for each in (*writers, *readers, last)] == [0] * 5
    found = [index for name in ("reader0", "reader1", "last") for index in told(name)]
    assert sorted(found) == [*range(40), *range(1000, 1040)]
    assert len(told("holder")) == 3


def test_tables_of_another_release_are_refused(tmp_path: Path, label: str) -> None:
    url = f"sqlite:///{tmp_path}/buffer.db"
    member(url, label, "one").close()
    with connect(url).begin() as connection:
        connection.execute(sa.update(BUFFERS).values(version=99))
    with pytest.raises(RunError, match="has tables of version 99; this release has 1"):
        member(url, label, "two")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "this is not a database URL"),
        ("nosuch://user:secret@host/name", "this is not a database URL"),
        (
            "postgresql://user:secret@localhost:1/name",
            r"postgresql\+psycopg://user:\*\*\*@localhost:1/name cannot be used",
        ),
        ("sqlite:////proc/nothing/buffer.db", "cannot be used"),
    ],
)
def test_a_database_that_cannot_be_used_is_refused_without_its_password(url: str, message: str) -> None:
    with pytest.raises(RunError, match=message) as refused:
        member(url, "some", "one")
    assert "secret" not in str(refused.value)


def test_room_that_old_groups_take_is_there_for_the_new_ones_that_a_reader_waits_for(database: str, label: str) -> None:
    """Else the reader waited for the writer, and the writer for room."""
    writer = member(database, label, "writer", capacity=8)
    reader = member(database, label, "reader", capacity=8)
    writer.put([group(index, version=0) for index in range(4)])
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(reader.take(2, oldest_version=1)), daemon=True)
    thread.start()
    until(lambda: reader.statistics().dropped == 4, "old groups are left out while new ones are waited for")
    writer.put([group(index, version=1) for index in range(4, 8)])
    thread.join(20)
    assert indices(found) == [4, 5]
    assert (reader.statistics().dropped, reader.statistics().taken) == (4, 2)
    resumed = member(database, label, "reader")
    resumed.restore({})
    assert indices(resumed.take(8)) == list(range(8)), "they are there for a reader that goes back to before"
    assert indices(reader.take(0)) == []


def test_what_is_tried_again_is_counted_once(tmp_path: Path, label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks at the end of a transaction, which is made again."""
    reuse = Reuse(RULES["linear_decay"])
    buffer = member(f"sqlite:///{tmp_path}/buffer.db", label, "both", capacity=2, reuse=reuse)
    buffer.put([group(0)])
    begin, broken = buffer._database.begin, [True]

    @contextmanager
    def breaks() -> Iterator[sa.Connection]:
        with begin() as connection:
            yield connection
            if broken and connection.scalar(sa.select(sa.func.count()).select_from(GROUPS)) == 2:
                broken.clear()
                raise sa.exc.OperationalError("commit", None, Exception("gone"))

    monkeypatch.setattr(buffer._database, "begin", breaks)
    buffer.put([group(1)])
    assert broken == []
    assert buffer.statistics().dropped == 1
