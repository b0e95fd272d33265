"""What verl refuses of videos, audio and supervised images in rows: places against columns, kinds of values; teachers of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rlctl.adapters.engine.requirements import Requirement, Values
from rlctl.adapters.engine.values import files_of
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.planning.column_types import column_types
from rlctl.planning.row_sample import row_sample

MOST = 200
"""Rows that are read: what an image holds is left in the file."""
SOURCE = "verl/utils/dataset/rl_dataset.py, RLHFDataset._build_messages"
SUPERVISED = "verl/utils/dataset/multiturn_sft_dataset.py, MultiTurnSFTDataset._build_messages"


@record
class Medium:
    """A kind of media in rows."""

    key: str
    """The key of ``data`` that names its column."""
    usual: str
    """The column, if the key is not set."""
    mark: str
    """Its place in a prompt."""
    kinds: tuple[type, ...]
    """The kinds of values that verl takes; none for any."""
    words: str
    """The same in words."""


MEDIA = (
    Medium("data.image_key", "images", "<image>", (Mapping, str), "a mapping or a path"),
    Medium("data.video_key", "videos", "<video>", (Mapping, str, list), "a mapping, a path or a list of frames"),
    Medium("data.audio_key", "audios", "<audio>", (), ""),
)
SUPERVISED_MEDIA = MEDIA[:2]


def _rows(values: Values, columns: Sequence[str]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """The first rows of local data that has one of some columns, with the file and the number of the row, from 1."""
    if values["data.custom_cls.path"]:
        return
    for name in (*files_of(values["data.train_files"]), *files_of(values["data.val_files"])):
        path = expanded(str(name).removeprefix("file://"))
        if path.is_file() and set(columns) & set(column_types(path)):
            sample = row_sample(path, without=("*.bytes",), most=MOST)
            for number, row in enumerate(sample.rows if sample is not None else (), 1):
                yield str(name), number, row


def _column(values: Values, medium: Medium) -> str:
    return str(values[medium.key] or medium.usual)


def _held(row: Mapping[str, Any], column: str) -> Sequence[Any]:
    found = row.get(column)
    return found if isinstance(found, list | tuple) else ()


def _marks(messages: Any, mark: str) -> int:
    """Places of a medium in the plain texts of a conversation."""
    contents = (each.get("content") for each in messages or () if isinstance(each, Mapping))
    return sum(text.count(mark) for text in contents if isinstance(text, str))


def _uneven(values: Values, messages: str, media: Sequence[Medium]) -> tuple[str, int, Medium, int, int] | None:
    """A row with another number of places than of media: its file and number, the medium, places and media."""
    for name, number, row in _rows(values, [_column(values, medium) for medium in media]):
        held = {medium: _held(row, _column(values, medium)) for medium in media}
        given = row.get(messages)
        if not any(held.values()) or not isinstance(given, list | tuple):
            continue
        for medium in media:
            places = _marks(given, medium.mark)
            is_whole = all(isinstance(each, Mapping) and isinstance(each.get("content"), str) for each in given)
            if places > len(held[medium]) or (is_whole and places < len(held[medium])):
                return name, number, medium, places, len(held[medium])
    return None


def _messages_of(values: Values, kind: str) -> str:
    key, usual = ("data.prompt_key", "prompt") if kind == "ppo" else ("data.messages_key", "messages")
    return str(values[key] or usual)


def _uneven_row(kind: str, media: Sequence[Medium], source: str) -> Requirement:
    def found(values: Values) -> tuple[str, int, Medium, int, int] | None:
        return _uneven(values, _messages_of(values, kind), media)

    def part(index: int) -> Callable[[Values], object]:
        return lambda values: (found(values) or ("",) * 5)[index]

    def mark(values: Values) -> str:
        pair = found(values)
        return pair[2].mark if pair is not None else ""

    return Requirement(
        "data.train_files",
        found,
        "row {row} of {file} has {mark} {places} times, and {held} of these in its column: verl stops at the row",
        source,
        "correct the prompts, or the columns of images, videos and audio",
        numbers={"file": part(0), "row": part(1), "mark": mark, "places": part(3), "held": part(4)},
        kinds=(kind,),
        when="generation" if kind == "ppo" else "update",
    )


def _of_other_kind(values: Values, medium: Medium) -> tuple[str, int, str] | None:
    """A row with a value that verl does not take: its file and number, and what the value is."""
    for name, number, row in _rows(values, [_column(values, medium)]):
        for value in _held(row, _column(values, medium)):
            if value is not None and not isinstance(value, medium.kinds):
                return name, number, type(value).__name__
    return None


def _kind_row(medium: Medium) -> Requirement:
    def part(index: int) -> Callable[[Values], object]:
        return lambda values: (_of_other_kind(values, medium) or ("", 0, ""))[index]

    return Requirement(
        medium.key,
        lambda v: _of_other_kind(v, medium),
        said(
            "row {{row}} of {{file}} has {{kind}} in the column that {key} names; expected {words}",
            key=medium.key,
            words=medium.words,
        ),
        SOURCE,
        said("write each value as {words}", words=medium.words),
        numbers={"file": part(0), "row": part(1), "kind": part(2)},
        when="generation",
    )


def _bare_video(values: Values) -> str:
    """A row of SFT whose video is no mapping with the key ``video``."""
    for name, number, row in _rows(values, [_column(values, MEDIA[1])]):
        for video in _held(row, _column(values, MEDIA[1])):
            if not isinstance(video, Mapping) or "video" not in video:
                return said("row {row} of {file}", row=number, file=name)
    return ""


TEACHERS = "distillation.teacher_models"


def _teachers(values: Values) -> set[str]:
    """The names by which rows choose one of several teachers."""
    models = values[TEACHERS] or {}
    own = {str(model["key"]) for name, model in models.items() if name != "teacher_model" and (model or {}).get("key")}
    return own if values["distillation.enabled"] and len(own) > 1 else set()


def _unrouted(values: Values) -> str:
    """A row that names none of several teachers."""
    teachers, column = _teachers(values), str(values["distillation.teacher_key"] or "data_source")
    for name, number, row in _rows(values, [column]) if teachers else ():
        if str(row.get(column)) not in teachers:
            return said("row {row} of {file}", row=number, file=name)
    return ""


ROWS: tuple[Requirement, ...] = (
    _uneven_row("ppo", MEDIA[1:], SOURCE),
    _uneven_row("sft_engine", SUPERVISED_MEDIA, SUPERVISED),
    *(_kind_row(medium) for medium in SUPERVISED_MEDIA),
    Requirement(
        "data.video_key",
        _bare_video,
        "a video of {row} is not a mapping with the key video",
        "verl/utils/dataset/vision_utils.py, process_video",
        "write each video as a mapping with the key video",
        numbers={"row": _bare_video},
        kinds=("sft_engine",),
        when="update",
    ),
    Requirement(
        "distillation.teacher_key",
        _unrouted,
        "{row} names none of the teachers {teachers} in the column that distillation.teacher_key names",
        "verl/experimental/teacher_loop/teacher_manager.py, AsyncTeacherLLMServerManager._resolve_teacher_key",
        "correct the column, or distillation.teacher_key",
        numbers={"row": _unrouted, "teachers": lambda v: ", ".join(sorted(_teachers(v)))},
        when="rollout",
    ),
)
