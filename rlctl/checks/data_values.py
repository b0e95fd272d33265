"""Values of the data: prompts that are empty or repeat, answers that are missing, evaluation prompts that are trained on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common.filenames import expanded
from rlctl.config import Config
from rlctl.config.sections.data import DataSource
from rlctl.documents.paths import KeyPath
from rlctl.planning import arithmetic
from rlctl.planning.row_sample import READERS, RowSample, row_sample, value_at

NUMBERING = frozenset({"id", "idx", "index", "uid", "uuid"})
"""Columns, and fields of columns, that tell rows apart which ask the same."""
REPEATED, SHARED, LEFT_OUT = 0.1, 0.05, 0.05
"""The shares of rows that repeat others, of evaluation rows that are trained on, and of rows that are too long and left out,
from which on a warning is worth it."""
FEWEST = 10
"""Rows that repeat others, below which none is worth a warning."""


def values(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """The rows of local data files have prompts and answers, and differ."""
    if config.data.custom is not None or not arithmetic.trains(config):
        return
    trained: dict[str, int] = {}
    for index, source in enumerate(config.data.train):
        sample = _sample(source)
        if sample is None or not sample.rows:
            continue
        key: KeyPath = ("data", "train", index, "path")
        yield from _answers(config, source, sample, key)
        yield from _prompts(config, source, sample, key)
        for row in sample.rows:
            asked = _asked(config, source, row)
            trained[asked] = trained.get(asked, 0) + 1
    if len(trained) * 2 > sum(trained.values()):  # else prompts are templates, which say nothing of a row
        yield from _shared(config, trained)


def _sample(source: DataSource) -> RowSample | None:
    local = source.path.removeprefix("file://")
    if not local or source.format in ("hub", "sql") or "://" in local:
        return None
    media = tuple(name for name in (source.image_key, source.video_key, source.audio_key) if name)
    path = Path(expanded(local))
    return row_sample(_of_split(path, source) if path.is_dir() else path, source.format, (*media, "images", "videos"))


def is_read(source: DataSource) -> bool:
    """Whether rows of a dataset are read here."""
    return _sample(source) is not None


def _of_split(folder: Path, source: DataSource) -> Path:
    """The file of a folder whose name has the split; the first one if no name has it."""
    files = [file for file in sorted(folder.rglob("*")) if file.suffix.lower().removeprefix(".") in READERS]
    return next((file for file in files if (source.split or "train") in file.name), files[0] if files else folder)


def _answers(config: Config, source: DataSource, sample: RowSample, key: KeyPath) -> Iterator[Problem]:
    """Rows of JSON and CSV files have answers; the footer says it of Parquet files."""
    named = source.answer_key
    if not named or config.algorithm.objective.choice != "rl" or source.path.endswith(".parquet"):
        return
    if all(named.split(".", 1)[0] not in row for row in sample.rows):
        return  # which is another finding
    missing = sum(value_at(row, named) in (None, "") for row in sample.rows)
    if missing:
        yield problem(
            "data-unanswered", (*key[:3], "answer_key"), rows=missing, count=len(sample.rows), file=source.path
        )


def _prompts(config: Config, source: DataSource, sample: RowSample, key: KeyPath) -> Iterator[Problem]:
    count = len(sample.rows)
    column = _column(config, source)
    if all(column.split(".", 1)[0] not in row for row in sample.rows):
        return
    empty = sum(_is_empty(value_at(row, column)) for row in sample.rows)
    if empty:
        yield problem("data-blank", key, rows=empty, count=count, file=source.path)
    yield from _wordy(config, source, [value_at(row, column) for row in sample.rows], key)
    distinct = len({_plain(_unnumbered(row)) for row in sample.rows})
    repeated = count - distinct
    if repeated >= FEWEST and repeated >= REPEATED * count and not source.path.endswith((".csv", ".tsv")):
        yield problem("data-repeated", key, repeated=repeated, count=count, file=source.path, distinct=distinct)


def _wordy(config: Config, source: DataSource, prompts: list[Any], key: KeyPath) -> Iterator[Problem]:
    """Prompts that surely exceed their limit, without a tokenizer: no token of the usual ones spans two words."""
    limit = config.data.max_prompt_tokens
    if config.algorithm.objective.choice != "rl":
        return
    counts = [_words(prompt, limit) for prompt in prompts]
    over = [count for count in counts if count > limit]
    drops = config.data.overlong_prompts == "drop"
    if len(over) > (LEFT_OUT * len(counts) if drops else 0):
        yield problem(
            "data-overlong_dropped" if drops else "data-overlong_words",
            key,
            over=len(over),
            count=len(counts),
            file=source.path,
            limit=limit,
            longest=max(over),
        )


def _words(prompt: Any, limit: int) -> int:
    """Words of a prompt; 0 for one that is too short to have more than a limit."""
    if isinstance(prompt, str) and prompt.startswith("[{"):
        try:
            prompt = json.loads(prompt)
        except ValueError:
            return 0
    if isinstance(prompt, str):
        return len(prompt.split()) if len(prompt) > 2 * limit else 0
    if isinstance(prompt, list):
        return sum(_words(each.get("content"), 0) for each in prompt if isinstance(each, Mapping))
    return 0


def _shared(config: Config, trained: Mapping[str, int]) -> Iterator[Problem]:
    """Evaluation rows are not training rows; a file that both name is another finding."""
    paths = {source.path for source in config.data.train}
    for index, source in enumerate(config.data.eval):
        sample = _sample(source) if source.path not in paths else None
        if sample is None or not sample.rows:
            continue
        shared = sum(_asked(config, source, row) in trained for row in sample.rows)
        if shared and shared >= SHARED * len(sample.rows):
            key: KeyPath = ("data", "eval", index, "path")
            yield problem("data-overlap_rows", key, shared=shared, count=len(sample.rows), path=source.path)


def _column(config: Config, source: DataSource) -> str:
    if config.algorithm.objective.choice == "sft" and source.messages_key is not None:
        return source.messages_key
    return source.prompt_key


def _asked(config: Config, source: DataSource, row: Mapping[str, Any]) -> str:
    return _plain([value_at(row, _column(config, source)), value_at(row, source.answer_key or "")])


def _unnumbered(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without what numbers it."""
    return {
        name: _unnumbered(value) if isinstance(value, Mapping) else value
        for name, value in row.items()
        if name not in NUMBERING
    }


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, list):
        return not value or all(isinstance(each, Mapping) and _is_empty(each.get("content")) for each in value)
    return value is None


RULES = (values,)
