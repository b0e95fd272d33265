"""The buffer in files: JSONL, Parquet and folders; writers that are killed, readers that go on."""

from __future__ import annotations

import json
import multiprocessing
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from rlctl.common.errors import RunError
from rlctl.runtime.buffers.files import FileBuffer
from rlctl.runtime.buffers.interface import BufferTimeout
from rlctl.runtime.buffers.record import plain_of
from rlctl.runtime.processes.calls import StopRequested

from .made import group, indices, put_in_order

KINDS = ["groups.jsonl", "groups.parquet", "groups"]


@pytest.mark.parametrize("name", KINDS)
def test_groups_come_out_whole_and_in_order(name: str, tmp_path: Path) -> None:
    writer, reader = FileBuffer(tmp_path / name, "w"), FileBuffer(tmp_path / name, "r", read_timeout=0.05)
    groups = [group(index, n=index + 1) for index in range(5)]
    writer.put(groups[:3])
    assert reader.take(2) == groups[:2]
    with pytest.raises(BufferTimeout, match="it has 1; 1 of its writers still run"):
        reader.take(2)
    writer.put(groups[3:])
    writer.end_writing()
    assert reader.take(9) == groups[2:]
    assert reader.take(9) == []


@pytest.mark.parametrize("name", KINDS)
def test_a_resumed_reader_and_a_resumed_writer_repeat_nothing(name: str, tmp_path: Path) -> None:
    writer, reader = FileBuffer(tmp_path / name, "w"), FileBuffer(tmp_path / name, "r")
    writer.put([group(0), group(1)])
    written = writer.state()
    writer.put([group(2), group(3)])
    reader.take(1)
    read = json.loads(json.dumps(reader.state()))
    reader.take(2)
    writer, reader = FileBuffer(tmp_path / name, "w"), FileBuffer(tmp_path / name, "r")
    writer.restore(written)
    reader.restore(read)
    assert indices(reader.take(1)) == [1]
    writer.put([group(2), group(3)])
    writer.put([group(4)])
    writer.end_writing()
    assert indices(reader.take(9)) == [2, 3, 4]


@pytest.mark.parametrize("name", KINDS)
def test_groups_that_are_put_again_in_another_order_are_there_once(name: str, tmp_path: Path) -> None:
    """A writer that rolls out ahead is resumed: what it draws again finishes in another order."""
    writer, reader = FileBuffer(tmp_path / name, "w"), FileBuffer(tmp_path / name, "r")
    put_in_order(writer, (0, 1))
    written = writer.state()
    put_in_order(writer, (3, 2))
    assert indices(reader.take(3)) == [0, 1, 3]
    read = json.loads(json.dumps(reader.state()))
    writer, reader = FileBuffer(tmp_path / name, "w"), FileBuffer(tmp_path / name, "r")
    writer.restore(written)
    reader.restore(read)
    put_in_order(writer, (4, 3, 5, 2))
    writer.end_writing()
    assert sorted(indices(reader.take(9))) == [2, 4, 5]


def test_a_line_that_a_killed_writer_left_is_cut_off_and_written_again(tmp_path: Path) -> None:
    path = tmp_path / "groups.jsonl"
    writer, reader = FileBuffer(path, "w"), FileBuffer(path, "r", read_timeout=0.05)
    writer.put([group(0)])
    state, whole = writer.state(), path.read_bytes()
    writer.put([group(1)])
    path.write_bytes(path.read_bytes()[: len(whole) + 40])
    with pytest.raises(BufferTimeout, match="it has 1"):
        reader.take(2)
    again = FileBuffer(path, "w")
    again.restore(state)
    again.put([group(1)])
    assert indices(reader.take(2)) == [0, 1]
    assert len(path.read_text().splitlines()) == 2


def write(path: Path, name: str, first: int) -> None:
    writer = FileBuffer(path, name)
    for index in range(first, first + 40):
        writer.put([group(index)])
    writer.end_writing()


@pytest.mark.parametrize("name", KINDS[::2])
def test_many_writers_at_once_lose_and_double_nothing(name: str, tmp_path: Path) -> None:
    many = multiprocessing.get_context("fork")
    writers = [many.Process(target=write, args=(tmp_path / name, f"w{number}", 100 * number)) for number in range(3)]
    for each in writers:
        each.start()
    for each in writers:
        each.join(60)
    assert sorted(indices(FileBuffer(tmp_path / name, "r").take(999))) == [
        100 * w + i for w in range(3) for i in range(40)
    ]


def test_files_that_nobody_signed_are_over_at_their_end(tmp_path: Path) -> None:
    plain = [plain_of(group(index)) for index in range(3)]
    (tmp_path / "own.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in plain))
    reader = FileBuffer(tmp_path / "own.jsonl", "r")
    assert reader.take(2) == [group(0), group(1)]
    later = FileBuffer(tmp_path / "own.jsonl", "r")
    later.restore(reader.state())
    assert later.take(2) == [group(2)]
    rows = [{"rewards": each["rewards"], "record": json.dumps(each)} for each in plain]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "own.parquet")
    assert FileBuffer(tmp_path / "own.parquet", "r").take(9) == [group(0), group(1), group(2)]


def test_old_groups_are_left_out_and_who_waits_ends_when_asked(tmp_path: Path) -> None:
    writer = FileBuffer(tmp_path / "groups", "w")
    writer.put([group(0, version=1), group(1, version=2)])
    asked = threading.Event()
    reader = FileBuffer(tmp_path / "groups", "r", stopped=asked.is_set)
    assert indices(reader.take(1, oldest_version=2)) == [1]
    assert reader.statistics().dropped == 1
    asked.set()
    with pytest.raises(StopRequested):
        reader.take(1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"own.jsonl, line 1 is not JSON"),
        ("[1]", r"own.jsonl, line 1 is list; expected an object"),
        ('{"responses": ["4"]}', r"own.jsonl, line 1: a group of responses cannot be read: KeyError: 'prompt'"),
    ],
)
def test_a_file_of_something_else_is_refused_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(f"{text}\n")
    with pytest.raises(RunError, match=message):
        FileBuffer(tmp_path / "own.jsonl", "r").take(1)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        FileBuffer(tmp_path / "file" / "groups", "w").put([group(0)])


@pytest.mark.parametrize("name", KINDS)
def test_a_buffer_that_a_writer_is_about_to_fill_is_not_over(name: str, tmp_path: Path) -> None:
    """It makes the file, or the folder, before it writes into it; a reader that looked then ended its run."""
    path = tmp_path / name
    if name.endswith(".jsonl"):
        path.touch()
    else:
        path.mkdir()
    writer, reader = FileBuffer(path, "w"), FileBuffer(path, "r", read_timeout=0.05)
    with pytest.raises(BufferTimeout, match="it has 0; no run has written to it"):
        reader.take(1)
    writer.end_writing()
    assert reader.take(1) == [], "it had nothing to write"
