"""The files of the responses that people are shown, in the run folder; written by the run, read by whoever watches it.

    samples/<stage>/step-000012.jsonl         some groups of the step that was trained on them
    samples/<stage>/evaluation-000010.jsonl   the same of the evaluation after a step

The first line of a file says which prompts it has and their rewards, each further line is a group, whole. There are never many:
of a long run the last steps stay, and of those before them every so many.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from rlctl.common.messages.reasons import said
from rlctl.common.whole_files import replacing

FOLDER = "samples"
STEP, EVALUATION = "step", "evaluation"
RECENT, OLDER = 128, 128
"""Files of a kind that stay: the last ones, and about so many of those before."""
_NAME = re.compile(rf"({STEP}|{EVALUATION})-(\d{{6,}})\.jsonl")


def path_of(run: Path, stage: str, kind: str, step: int) -> Path:
    """The file of a step of a stage."""
    return run / FOLDER / stage / f"{kind}-{step:06d}.jsonl"


def files_of(run: Path, stage: str) -> list[tuple[str, int]]:
    """Kind and step of every file of a stage, in order."""
    try:
        names = [path.name for path in (run / FOLDER / stage).iterdir()]
    except OSError:
        return []
    return sorted((found[1], int(found[2])) for name in names if (found := _NAME.fullmatch(name)))


@dataclass
class SampleFiles:
    """Writes those of one stage. It never stops training: what goes wrong is told once."""

    run: Path
    stage: str
    tell: Callable[[str], None]
    _broken: bool = field(default=False, init=False)

    def begin(self, step: int) -> None:
        """Forget what was shown after a step: it is taken again."""
        for kind, known in files_of(self.run, self.stage):
            if known > step:
                path_of(self.run, self.stage, kind, known).unlink(missing_ok=True)

    def write(self, kind: str, step: int, groups: Sequence[dict[str, Any]]) -> None:
        """Write the groups of a step, whole or not at all, and delete what is too old."""
        told = [{name: group[name] for name in TOLD_FIRST if name in group} for group in groups]
        lines = [{"step": step, "groups": told}, *groups]
        path = path_of(self.run, self.stage, kind, step)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with replacing(path) as partial, partial.open("wb") as file:
                file.writelines(orjson.dumps(line, default=str, option=WRITTEN) for line in lines)
            for old in too_many([known for each, known in files_of(self.run, self.stage) if each == kind]):
                path_of(self.run, self.stage, kind, old).unlink(missing_ok=True)
        except (OSError, TypeError) as error:
            if not self._broken:
                self._broken = True
                self.tell(said("responses cannot be written to {parent}: {error}", parent=path.parent, error=error))


TOLD_FIRST = ("prompt_id", "source", "rewards")
"""Of each group, in the first line of a file."""
WRITTEN = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS


def too_many(steps: Sequence[int]) -> list[int]:
    """The steps, of these in order, whose files go: all but the first, the last ``RECENT``, and multiples of a power of two
    that leaves about ``OLDER``."""
    stride = 1
    while steps and steps[-1] // stride > OLDER:
        stride *= 2
    return [step for step in steps[1:-RECENT] if step % stride]
