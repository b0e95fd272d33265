"""The files of a run as its target reads them where they are: columns are named, and no row is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlctl.common.errors import UsageError
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.common.report_lines import framework
from rlctl.porting.columns import raw_text
from rlctl.porting.reading import BATCH, DataFile, rows_of
from rlctl.porting.rewards import Ported
from rlctl.porting.rows import Names, Row, row_of
from rlctl.porting.writing import FileCount, Moved

WHOLE = ("trinity",)
"""Targets whose adapters get each row whole, and make its messages."""
OF_VERL = {"data_source": "data_source", "reward_model.ground_truth": "ground_truth", "extra_info": "extra_info"}
"""Columns that verl reads by these names only, and the arguments by which it passes them to a reward."""


@record
class Mapped:
    """How an adapter gets a row of the source from what the target tells it."""

    names: Names
    given: Mapping[str, str]
    """By column of the source, the argument that has its value; empty for targets of ``WHOLE``."""

    @property
    def row(self) -> str:
        """The row, as Python."""
        nested: dict[str, Any] = {}
        for column, argument in self.given.items():
            *above, last = column.split(".")
            if above and above[0] in self.given:  # it comes with the whole column
                continue
            place = nested
            for part in above:
                place = place.setdefault(part, {})
            place[last] = argument
        return _as_python(nested)


def _as_python(nested: Mapping[str, Any]) -> str:
    items = (
        f"{name!r}: {_as_python(value) if isinstance(value, Mapping) else value}" for name, value in nested.items()
    )
    return "{" + ", ".join(items) + "}"


def link_rows(
    files: Sequence[tuple[DataFile, Names]],
    target: str,
    folder: Path,
    *,
    seen: Callable[[int], None] = lambda rows: None,
    taken: Callable[[str, int, Row], None] = lambda split, place, row: None,
) -> tuple[Moved, Mapped]:
    """Link the files of a run into a folder, one file a split, after a look at every row.

    Args:
        files: files of rows with their columns.
        target: the framework.
        folder: an empty folder.
        seen: called with the number of rows that were read since the last call.
        taken: called for each row, with its split and its place in the file.

    Raises:
        UsageError: the target cannot read the files as they are.
    """
    _check_files(files, target)
    moved, found = Moved(), set()
    for file, names in files:
        count = FileCount(str(file.path), file.split)
        moved.files.append(count)
        for placed in rows_of(file.path):
            row = row_of(placed.row, names) if placed.row is not None else placed.reason
            reason = row if isinstance(row, str) else _problem(row, names, target)
            if reason is None and isinstance(row, Row):
                found.add(_mapped(row.raw, names, target))
            if len(found) > 1:
                reason = "it has its answer in another column than rows before"
            if reason is not None or not isinstance(row, Row):
                raise _refusal(said("row {number} of {file}: {reason}", number=placed.number, file=file.path,
                                    reason=reason), target)  # fmt: skip
            taken(file.split, count.rows, row)
            count.rows = count.written = count.rows + 1
            moved.without_answer += row.answer is None
            if not count.rows % BATCH:
                seen(BATCH)
        seen(count.rows % BATCH)
        moved.splits[file.split] = count.rows
        (folder / f"{file.split}.parquet").symlink_to(file.path.resolve())
    if not found:
        raise _refusal("the files have no rows", target)
    return moved, Mapped(files[0][1], dict(found.pop()))


def _check_files(files: Sequence[tuple[DataFile, Names]], target: str) -> None:
    """Refuse a target or a set of files of which no row can be read in place."""
    if target == "roll":
        raise _refusal(
            "ROLL routes rows by the column tag, and reads answers from the column ground_truth only", target
        )
    splits = [file.split for file, _ in files]
    for split in splits:
        if splits.count(split) > 1:
            raise _refusal(said("the split {split} has several files", split=split), target)
    for file, _ in files:
        if file.path.suffix.lower() != ".parquet":
            raise _refusal(
                said("{file} is no Parquet file: readers of JSON and CSV change texts that look like dates or numbers",
                     file=file.path), target,
            )  # fmt: skip


def _problem(row: Row, names: Names, target: str) -> str | None:
    """Why a target cannot read a row as it is."""
    if row.images is not None:
        return "the row has images"
    _, binary, _ = raw_text(row.raw, ())
    if binary and target in WHOLE:
        return said("the reward gets no value of {names}, which are bytes", names=", ".join(sorted(binary)))
    if target in WHOLE:
        return None
    prompt = row.raw.get(names.prompt)
    if isinstance(prompt, str) and target == "rlctl":
        return None if row.messages[-1]["content"] == prompt else "its messages are JSON text"
    if names.system_prompt or names.system_key:
        return "the config puts a system message first"
    if prompt != list(row.messages):
        return said("the column {column} is no list of messages with role and content", column=names.prompt)
    missing = [column for column in OF_VERL if target == "verl" and _lacks(row.raw, column)]
    return said("there is no column {names}", names=", ".join(missing)) if missing else None


def _mapped(raw: Mapping[str, Any], names: Names, target: str) -> tuple[tuple[str, str], ...]:
    """The columns that a row has of those whose values the target passes to a reward, with their arguments."""
    if target in WHOLE:
        return ()
    if target == "verl":
        return tuple(OF_VERL.items())
    answers = [names.answer] if names.answer else names.answers
    answer = next((column for column in answers if not _lacks(raw, column)), None)
    given = {names.source: "source", answer: "answer", names.tag: "tag", names.extra: "extra"}
    return tuple((column, argument) for column, argument in given.items() if column and not _lacks(raw, column))


def _lacks(raw: Mapping[str, Any], column: str) -> bool:
    """Whether a row has no such column, or one inside it."""
    if column in raw:
        return False
    value: Any = raw
    for part in column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return True
        value = value[part]
    return False


def check_reward(reward: Ported, mapped: Mapped, target: str) -> None:
    """Refuse a reward that asks for more of a row than the target passes to it.

    Raises:
        UsageError: it does.
    """
    if target in WHOLE:
        return
    for part in reward.parts:
        if part.module == "roll_reward":
            raise _refusal("a worker of ROLL reads rows whole", target)
        given = part.settings
        wanted = [given.get("answer"), given.get("source"), given.get("tag"), given.get("extra"), *reward.labels]
        wanted += ["reward_model.ground_truth", "extra_info"] if part.module == "verl_reward" else []
        wanted += [given.get("source_column")]
        there = [column for column in given.get("answers", ()) if column in mapped.given]
        wanted += [] if there else given.get("answers", ())[:1]
        lacking = dict.fromkeys(column for column in wanted if column and column not in mapped.given)
        optional = {"data_source", "extra_info"} if part.module != "verl_reward" else {"extra_info"}
        if names := ", ".join(column for column in lacking if column not in optional):
            raise _refusal(said("the reward reads {names}, which {target} does not pass to it", names=names,
                                target=framework(target)), target)  # fmt: skip


def _refusal(reason: str, target: str) -> UsageError:
    return UsageError(
        said("{target} cannot read the rows where they are: {reason}", target=framework(target), reason=reason),
        hint="use --data copy",
    )
