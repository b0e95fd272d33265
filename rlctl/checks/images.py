"""What rlctl refuses of images in rows, when it runs the config; what other frameworks refuse is in their requirements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common.filenames import expanded
from rlctl.config import Config
from rlctl.config.sections.data import DataSource
from rlctl.documents.paths import KeyPath
from rlctl.planning.column_types import column_types
from rlctl.planning.row_sample import row_sample, value_at
from rlctl.planning.support import RLCTL

PLACE = "<image>"
"""The placeholder of an image in a message's text."""
ROWS = 32
"""Rows whose images are counted."""


def images(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Rows have as many places for images as images, and a model that is shown them."""
    if surroundings.runner != RLCTL or config.data.custom is not None:
        return
    for index, source in enumerate(config.data.train):
        path, column = Path(expanded(source.path.removeprefix("file://"))), source.image_key
        if not source.path or column is None or not path.is_file() or column not in column_types(path):
            continue
        key: KeyPath = ("data", "train", index, "image_key")
        if config.model.modality == "text":
            fixes = [(("model", "modality"), "vision"), (key, None)]
            yield problem("data-images_text", key, fixes, file=source.path, column=column)
        elif (found := _uneven(path, source, column)) is not None:
            row, places, count = found
            yield problem("data-images", key, row=row, places=places, count=count, file=source.path)


def _uneven(path: Path, source: DataSource, column: str) -> tuple[int, int, int] | None:
    """The first row, from 0, with places for images of another number than its images: both numbers; rows without places are
    fine, as all their images go to the front."""
    sample = row_sample(path, source.format, ("*.bytes",), ROWS)
    for number, row in enumerate(sample.rows if sample is not None else ()):
        found = row.get(column)
        count = len(found) if isinstance(found, list) else int(found is not None)
        places = _places(value_at(row, source.prompt_key))
        if count and places not in (0, count):
            return number, places, count
    return None


def _places(prompt: Any) -> int:
    if isinstance(prompt, str):
        return prompt.count(PLACE)
    messages = [each for each in prompt if isinstance(each, Mapping)] if isinstance(prompt, list) else []
    return sum(each["content"].count(PLACE) for each in messages if isinstance(each.get("content"), str))


RULES = (images,)
