"""The buffer in files: written by runs that explore, read in order by runs that train, at once or another day.

    PATH.jsonl      (or .json) one line a group, appended under a lock; a line that a killed writer left unfinished is cut off
    PATH.parquet    a folder of that name with one file a put (``000000040-<writer>.parquet``); to read, one file as well
    PATH            a folder of JSONL files, one a put

Each group carries its writer and its number there, so one that is put again after a resume is there once. Every run
that reads gets all groups: nothing is claimed in files (a database does that). A writer that ends says so; files in which
nobody has signed, such as those a person made, are over at their end.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.common.whole_files import replacing, write_whole
from rlctl.runtime.buffers.interface import (
    POLL_SECONDS,
    BufferTimeout,
    Statistics,
    never,
    number_of,
    responses_in,
    version_of,
)
from rlctl.runtime.buffers.record import group_of, plain_of
from rlctl.runtime.experience.samples import RolloutGroup
from rlctl.runtime.processes.calls import StopRequested

LINES = (".jsonl", ".json")
"""Endings of one file of lines."""
END = "end"
"""Key of the line, or ending of the file, by which a writer says that it has ended."""


class FileBuffer:
    """A buffer in files, as one of its members sees it.

    Args:
        path: a JSONL or Parquet file, or a folder.
        member: name of this writer, the same after a resume and no one else's.
        read_timeout: seconds that a reader waits at most.
        stopped: tells that the run is asked to end.
    """

    def __init__(
        self, path: Path, member: str, *, read_timeout: float = 1800.0, stopped: Callable[[], bool] = never
    ) -> None:
        self._path, self._member = path, member
        self._timeout, self._stopped = read_timeout, stopped
        self._written = self._dropped = self._taken = 0
        self._done: dict[str, set[int]] = {}
        """The numbers that were taken, by writer."""
        self._own: set[int] | None = None
        """The numbers of the groups that this writer has written; None where they are not known yet."""
        self._open: dict[str, bool] = {}
        """Writers seen, and whether each has yet to end."""
        self._start_reading()

    def _start_reading(self) -> None:
        self._found: list[tuple[str, int, RolloutGroup]] = []
        """Read, and not taken yet, in order."""
        self._seen = {writer: set(numbers) for writer, numbers in self._done.items()}
        """The numbers that were read, by writer; "" is nobody, whose records are counted."""
        self._unsigned = 0
        self._offset = 0
        self._files: set[str] = set()
        """Files of the folder that were read."""

    # writing

    def put(self, groups: Sequence[RolloutGroup]) -> None:
        there = self._numbers_there()
        numbered = [(number_of(group, self._written + place), group) for place, group in enumerate(groups)]
        place, self._written = self._written, self._written + len(groups)
        records = [
            {**plain_of(group), "writer": self._member, "number": number}
            for number, group in numbered
            if number not in there
        ]
        if records:
            first = records[0]["number"]
            self._append(records, name=f"{place:09d}-{self._member if first == place else f'{first}-{self._member}'}")
        there |= {number for number, _ in numbered}

    def _numbers_there(self) -> set[int]:
        """The numbers of this writer's groups that are in the files, some of them from before a resume."""
        if self._own is None:
            found = FileBuffer(self._path, self._member)._records()
            mine = (each for _, each in found if each.get("writer") == self._member)
            self._own = {int(record["number"]) for record in mine if END not in record}
        return self._own

    def end_writing(self) -> None:
        self._append([{"writer": self._member, END: True}], name=f"{END}-{self._member}")

    def _append(self, records: Sequence[dict[str, Any]], *, name: str) -> None:
        try:
            if self._path.suffix in LINES:
                _append_lines(self._path, [_line(record) for record in records])
            else:
                self._path.mkdir(parents=True, exist_ok=True)
                write = _write_parquet if self._path.suffix == ".parquet" else _write_lines
                with replacing(self._path / f"{name}{self._path.suffix or '.jsonl'}") as partial:
                    write(partial, records)
        except OSError as error:
            raise RunError(
                said("the buffer {path} cannot be written: {value}", path=self._path, value=error.strerror or error),
                hint="set buffer.path to a folder that this user can write to",
            ) from error

    # reading

    def take(self, count: int, *, oldest_version: int = 0) -> list[RolloutGroup]:
        began = time.monotonic()
        while True:
            self._read()
            fresh = [each for each in self._found if version_of(each[2]) >= oldest_version]
            self._dropped += len(self._found) - len(fresh)
            self._found = fresh
            if len(fresh) >= count or self._writing_is_over():
                taken, self._found = fresh[:count], fresh[count:]
                for writer, number, _ in taken:
                    self._done.setdefault(writer, set()).add(number)
                self._taken += len(taken)
                return [group for _, _, group in taken]
            if time.monotonic() - began > self._timeout:
                raise self._overdue(count)
            if self._stopped():
                raise StopRequested
            time.sleep(POLL_SECONDS)

    def _writing_is_over(self) -> bool:
        """Whether no more will come: all who signed have ended, or nobody signs what is there; where nothing is, somebody may be
        beginning."""
        return bool(self._seen or self._open) and not any(self._open.values())

    def _overdue(self, count: int) -> BufferTimeout:
        there = said("it has {count}", count=len(self._found)) if self._path.exists() else "it does not exist"
        writing = [writer for writer, is_open in self._open.items() if is_open]
        writers = (
            said("{count} of its writers still run", count=len(writing)) if writing else "no run has written to it"
        )
        return BufferTimeout(
            said(
                "waited {seconds:g} s for {count} groups of responses in the buffer {path}; {there}; {writers}",
                seconds=self._timeout,
                count=count,
                path=self._path,
                there=there,
                writers=writers,
            ),
            hint="start or resume the run that fills it (run.mode: rollout_only), or raise buffer.read_timeout",
        )

    def _read(self) -> None:
        """Read what was added since."""
        for where, record in self._records():
            writer = str(record.get("writer", ""))
            if writer:
                self._open[writer] = END not in record
            if END in record:
                continue
            number = int(record.get("number", self._unsigned))
            self._unsigned += not writer
            seen = self._seen.setdefault(writer, set())
            if number not in seen:
                seen.add(number)
                try:
                    self._found.append((writer, number, group_of(record)))
                except RunError as error:
                    raise RunError(
                        said("{where}: {message}", where=where, message=error.message), hint=error.hint
                    ) from error

    def _records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """New records, and where each stands."""
        if self._path.is_file() and self._path.suffix == ".parquet":
            if not self._files:
                self._files.add(self._path.name)
                yield from _parquet_records(self._path)
        elif self._path.is_dir():
            for file in sorted(self._path.iterdir()):
                if file.name in self._files or file.suffix not in (".jsonl", ".parquet"):
                    continue
                self._files.add(file.name)
                yield from _parquet_records(file) if file.suffix == ".parquet" else _lines(file, 0)[0]
        elif self._path.exists():
            records, self._offset = _lines(self._path, self._offset)
            yield from records

    # weights

    def listened(self) -> bool:
        self._read()
        return any(self._open.values())

    def announce(self, version: int, folder: Path) -> None:
        file = self._announcement
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps({"version": version, "folder": str(folder)}))
        except OSError as error:
            raise RunError(
                said("{file} cannot be written: {value}", file=file, value=error.strerror or error),
                hint="set buffer.path to a folder that this user can write to",
            ) from error

    def announced(self) -> tuple[int, Path] | None:
        try:
            found = json.loads(self._announcement.read_text())
        except (OSError, ValueError):
            return None
        return int(found["version"]), Path(found["folder"])

    @property
    def _announcement(self) -> Path:
        if self._path.suffix in (*LINES, ".parquet"):
            return self._path.with_name(f"{self._path.name}.weights.json")
        return self._path / "weights.json"

    # positions

    def state(self) -> dict[str, Any]:
        return {"written": self._written, "taken": {writer: _spans(each) for writer, each in self._done.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        self._written, self._own = state.get("written", 0), None
        spans: dict[str, list[list[int]]] = state.get("taken", {})
        self._done = {writer: {n for first, end in each for n in range(first, end)} for writer, each in spans.items()}
        self._start_reading()

    def acknowledge(self, state: dict[str, Any]) -> None:
        """Nothing is claimed."""

    def statistics(self) -> Statistics:
        waiting = sum(responses_in(group) for _, _, group in self._found)
        return Statistics(waiting, self._written, self._taken, self._dropped, 0)

    def close(self) -> None:
        """Nothing is held open."""


def _spans(numbers: set[int]) -> list[list[int]]:
    """Numbers as few spans, each its first and the one after its last."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number:
            found[-1][1] += 1
        else:
            found.append([number, number + 1])
    return found


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, default=str, separators=(",", ":")).encode() + b"\n"


def _append_lines(path: Path, lines: Sequence[bytes]) -> None:
    """Append whole lines, after the last whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        end = file.seek(0, os.SEEK_END)
        whole = _end_of_last_line(file, end)
        if whole != end:
            file.truncate(whole)
        file.write(b"".join(lines))
        file.flush()
        os.fsync(file.fileno())


def _end_of_last_line(file: Any, end: int) -> int:
    """Where the last whole line of a file ends; ``end`` is the file's."""
    position, block = end, 1 << 16
    while position > 0:
        start = max(0, position - block)
        file.seek(start)
        found = file.read(position - start).rfind(b"\n")
        if found >= 0:
            return start + int(found) + 1
        position = start
    return 0


def _write_lines(path: Path, records: Sequence[dict[str, Any]]) -> None:
    with path.open("wb") as file:
        file.writelines(map(_line, records))
        file.flush()
        os.fsync(file.fileno())


def _write_parquet(path: Path, records: Sequence[dict[str, Any]]) -> None:
    """One row a record: who wrote it, a few columns for people, and the whole as JSON."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    rows = {
        "writer": [record["writer"] for record in records],
        "number": [record.get("number") for record in records],
        "prompt": [record["prompt"]["text"] if "prompt" in record else None for record in records],
        "rewards": [record.get("rewards") for record in records],
        "record": [_line(record).decode() for record in records],
    }
    kinds = [pa.string(), pa.int64(), pa.string(), pa.list_(pa.float64()), pa.string()]
    schema = pa.schema(list(zip(rows, kinds, strict=True)))
    parquet.write_table(pa.table(rows, schema=schema), path)


def _lines(path: Path, offset: int) -> tuple[list[tuple[str, dict[str, Any]]], int]:
    """The whole lines of a file from an offset, and where they end."""
    with path.open("rb") as file:
        file.seek(offset)
        text = file.read()
    text = text[: text.rfind(b"\n") + 1]
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        where = said("{path}, line {number}", path=path, number=number) + (
            said(" after byte {offset}", offset=offset) if offset else ""
        )
        if line.strip():
            found.append((where, _record(line, where)))
    return found, offset + len(text)


def _parquet_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        table = parquet.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise RunError(
            said("{path} cannot be read as Parquet: {error}", path=path, error=error),
            hint="remove the file, or set buffer.path to another folder",
        ) from error
    for number, row in enumerate(table.to_pylist(), 1):
        where = said("{path}, row {number}", path=path, number=number)
        yield where, _record(row["record"], where) if "record" in row else row


def _record(line: bytes | str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise RunError(
            said("{where} is not JSON: {error}", where=where, error=error),
            hint="remove the file, or set buffer.path to another folder",
        ) from error
    if not isinstance(record, dict):
        raise RunError(
            said("{where} is {kind}; expected an object", where=where, kind=type(record).__name__),
            hint="remove the file, or set buffer.path to another folder",
        )
    return record
