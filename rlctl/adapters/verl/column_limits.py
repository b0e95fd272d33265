"""What verl refuses of the types of data columns: prompts, rewards and conversations of another form, files that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rlctl.adapters.engine.requirements import NEAREST, Remedy, Requirement, Values
from rlctl.adapters.engine.values import files_of
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.common.report import Level
from rlctl.planning.column_types import LIST, NULL, STRUCT, ColumnType, column_types
from rlctl.planning.parquet_footer import parquet_fields, parquet_nulls, parquet_rows

DATASET = "verl/utils/dataset/rl_dataset.py, RLHFDataset"
MAIN = "verl.trainer.main_ppo"
FILES = ("data.train_files", "data.val_files")


def _columns(values: Values, key: str) -> Iterator[tuple[str, dict[str, ColumnType]]]:
    """The local files of a key, each with the types of its columns."""
    if values["data.custom_cls.path"]:
        return
    for name in files_of(values[key]):
        path = expanded(str(name).removeprefix("file://"))
        if path.is_file() and (types := column_types(path)):
            yield str(name), types


def _wrong(
    key: str, column: Callable[[Values], str], is_right: Callable[[ColumnType], bool]
) -> Callable[[Values], str]:
    """The first file whose column has a type that is not right."""

    def found(values: Values) -> str:
        for file, types in _columns(values, key):
            known = types.get(column(values))
            if known is not None and known.kind != NULL and not is_right(known):
                return file
        return ""

    return found


def _type_of(found: Callable[[Values], str], column: Callable[[Values], str]) -> Callable[[Values], str]:
    return lambda values: str(column_types(expanded(found(values).removeprefix("file://")))[column(values)])


def _typed(
    key: str,
    column: Callable[[Values], str],
    is_right: Callable[[ColumnType], bool],
    message: str,
    hint: str,
    **others: Any,
) -> Requirement:
    found = _wrong(key, column, is_right)
    numbers = {"file": found, "column": column, "type": _type_of(found, column)}
    return Requirement(key, found, message, DATASET, hint, numbers=numbers, **others)


def _prompt(values: Values) -> str:
    return str(values["data.prompt_key"] or "prompt")


def _is_messages(known: ColumnType) -> bool:
    """Whether values are lists of messages; text is another requirement's."""
    if known.kind != LIST or known.item is None or known.item.kind in (STRUCT, NULL):
        return known.kind == LIST and (known.item is None or not known.item.fields or _is_message(known.item))
    return False


def _is_message(item: ColumnType) -> bool:
    return {"role", "content"} <= set(item.fields)


def _prompts(key: str) -> Requirement:
    return _typed(
        key,
        _prompt,
        lambda known: known.kind == "text" or _is_messages(known),
        said(
            "the prompts of {{file}} (column '{{column}}') are {{type}}; verl takes lists of messages with role and content, "
            "and stops before the first step"
        ),
        """write each prompt as [{"role": "user", "content": TEXT}]""",
        since="0.3",
    )


def _rewards(key: str) -> Requirement:
    return _typed(
        key,
        lambda values: "reward_model",
        lambda known: known.kind == STRUCT and "ground_truth" in known.fields,
        said(
            "the column 'reward_model' of {{file}} is {{type}}; verl reads reward_model['ground_truth'] of each row, and stops "
            "at "
            "the first reward"
        ),
        """write it as {"style": "rule", "ground_truth": ANSWER}""",
        since="0.3",
        when="rollout",
    )


def _extra(key: str) -> Requirement:
    return _typed(
        key,
        lambda values: "extra_info",
        lambda known: known.kind == STRUCT,
        said(
            "the column 'extra_info' of {{file}} is {{type}}; verl reads it as a mapping, and stops before the first step"
        ),
        """write it as {"index": NUMBER}, or leave the column out""",
        since="0.3",
    )


def _rows_without_extra(values: Values) -> int:
    """Rows of the training files whose extra_info is null, so that each field of it is, too."""
    count = 0
    for file, types in _columns(values, "data.train_files"):
        fields = types["extra_info"].fields if "extra_info" in types else {}
        path = expanded(file.removeprefix("file://"))
        if fields and path.suffix == ".parquet":
            inside = [names for names in parquet_fields(path) if names[0] == "extra_info" and len(names) == 2]
            count += min((parquet_nulls(path, names) for names in inside), default=0)
    return count


def _steps(values: Values) -> int:
    """Steps that the local training files have rows for, before prompts are filtered; 0 if that is not known."""
    rows = 0
    for name in files_of(values["data.train_files"]):
        path = expanded(str(name).removeprefix("file://"))
        if path.suffix != ".parquet" or not path.is_file() or values["data.custom_cls.path"]:
            return 0
        rows += parquet_rows(path)
    limit = values.number("data.train_max_samples", -1)
    rows = min(rows, limit) if limit > 0 else rows
    return rows // values.number("data.train_batch_size", 1) * values.number("trainer.total_epochs")


def _unlike(values: Values) -> tuple[str, str, str, str, str] | None:
    """Two training files, a column that they have with other types, and the types."""
    files = list(_columns(values, "data.train_files"))
    for name, types in files[1:]:
        first, known = files[0]
        for column, kind in types.items():
            if column in known and not known[column].joins(kind):
                return first, name, column, str(known[column]), str(kind)
    return None


def _part(index: int) -> Callable[[Values], str]:
    def found(values: Values) -> str:
        unlike = _unlike(values)
        return unlike[index] if unlike is not None else ""

    return found


ROWS: tuple[Requirement, ...] = (
    *map(_prompts, FILES),
    *map(_rewards, FILES),
    *map(_extra, FILES),
    Requirement(
        "data.train_files",
        _rows_without_extra,
        "{rows} rows of data.train_files have no extra_info (null), which verl reads as a mapping: it stops before the first "
        "step",
        f"{DATASET}.__getitem__",
        """write extra_info of each row, such as {"index": NUMBER}, or leave the column out""",
        numbers={"rows": _rows_without_extra},
        since="0.3",
        until="0.5",
    ),
    Requirement(
        "trainer.total_training_steps",
        lambda v: 0 < _steps(v) < v.number("trainer.total_training_steps", 0) and v.program in ("", MAIN),
        "trainer.total_training_steps is {trainer.total_training_steps}, but the rows of data.train_files last for {steps} "
        "steps in "
        "trainer.total_epochs ({trainer.total_epochs}): the run ends there, without the last save and validation, and the "
        "learning "
        "rate is scheduled for more",
        "verl/trainer/ppo/ray_trainer.py, RayPPOTrainer.fit",
        Remedy("trainer.total_epochs", NEAREST),
        numbers={"steps": _steps},
        since="0.3",
        level=Level.WARNING,
    ),
    Requirement(
        "trainer.total_training_steps",
        lambda v: 0 < _steps(v) < v.number("trainer.total_training_steps", 0) and "one_step_off" in v.program,
        "trainer.total_training_steps is {trainer.total_training_steps}, but the rows of data.train_files last for {steps} "
        "steps in "
        "trainer.total_epochs ({trainer.total_epochs}): the trainer stops with an error after them",
        "verl/experimental/one_step_off_policy/ray_trainer.py, OneStepOffRayTrainer.fit",
        Remedy("trainer.total_epochs", NEAREST),
        numbers={"steps": _steps},
        since="0.5",
        when="update",
    ),
    Requirement(
        "data.train_files",
        _unlike,
        "column '{column}' is {first_type} in {first} and {other_type} in {other}: verl cannot join the files, and stops when it "
        "reads them",
        f"{DATASET}._read_files_and_tokenize",
        "write the column with one type in all files",
        numbers={
            name: _part(index) for index, name in enumerate(("first", "other", "column", "first_type", "other_type"))
        },
        since="0.4",
    ),
)
"""For the PPO trainer."""


def _conversations(values: Values) -> str:
    key = str(values["data.multiturn.messages_key"] or values["data.messages_key"] or "messages")
    is_multiturn = bool(values["data.multiturn.enable"]) or values["data.multiturn.enable"] is None
    return key if is_multiturn else ""


SUPERVISED_ROWS: tuple[Requirement, ...] = tuple(
    _typed(
        key,
        _conversations,
        lambda known: known.kind == "text" or _is_messages(known),
        said(
            "the conversations of {{file}} (column '{{column}}') are {{type}}; verl takes lists of messages with role and "
            "content, "
            "and stops before the first step"
        ),
        """write each message as {"role": "user" or "assistant", "content": TEXT}""",
        since="0.3",
        kinds=("sft", "sft_engine"),
    )
    for key in FILES
)
"""For the trainers of supervised fine-tuning."""
