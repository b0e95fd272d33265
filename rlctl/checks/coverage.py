"""What a check looked at, and what it could not look at and why: "no problems found" is said of the first only."""

from __future__ import annotations

from collections.abc import Iterator

from rlctl.checks.data_files import ENDINGS, fields_of
from rlctl.checks.problem import CheckContext
from rlctl.common.filenames import expanded
from rlctl.common.messages import text
from rlctl.common.records import record
from rlctl.config import Config, resolve_stages
from rlctl.config.sections.data import DataSource
from rlctl.config.sections.rewards import FunctionReward
from rlctl.planning import arithmetic
from rlctl.planning.memory import known_gpu
from rlctl.planning.models import read_shape


@record
class Subject:
    """Something that a check looks at."""

    name: str
    """The id of its message, without ``scope-``."""
    reason: str = ""
    """The id of why it was not looked at, without ``unchecked-``; empty if it was."""
    value: str = ""
    """The release that the reason is about. Paths are not named: one may come from the environment."""

    def __str__(self) -> str:
        name = text(f"scope-{self.name}")
        if not self.reason:
            return name
        return text("scope-unchecked", name=name, reason=text(f"unchecked-{self.reason}", value=self.value))


def coverage(
    config: Config, surroundings: CheckContext, *, data: bool, here: bool = False, unread_release: str = ""
) -> list[Subject]:
    """The subjects of a check of a config.

    Args:
        config: that was checked.
        surroundings: with which.
        data: whether rows were tokenized.
        here: whether this machine and its services were asked.
        unread_release: the framework's release, if rlctl has not read what that one refuses.
    """
    stages, broken = resolve_stages(config) if config.stages else ([], [])
    found = [Subject("config"), *([Subject("here")] if here else [])]
    found += [Subject("requirements", "release", unread_release)] if unread_release else []
    for each in [stage.config for stage in stages] if stages and not broken else [config]:
        found += [*_rewards(each), *_columns(each)]
        found += [] if data or not each.data.train else [Subject("lengths", "lengths")]
        found += _memory(each, surroundings)
    skipped = {subject.name for subject in found if subject.reason}
    return list(dict.fromkeys(subject for subject in found if subject.reason or subject.name not in skipped))


def _rewards(config: Config) -> Iterator[Subject]:
    paths = [reward.path for reward in config.rewards if isinstance(reward, FunctionReward)]
    absent = any(not expanded(path.removeprefix("file://")).is_file() for path in paths)
    if paths:
        yield Subject("rewards", "absent") if absent else Subject("rewards")


def _columns(config: Config) -> Iterator[Subject]:
    reasons = [_unread(source) for source in (*config.data.train, *config.data.eval) if source.path]
    if config.data.custom is not None:
        yield Subject("columns", "custom")
    elif reasons:
        yield next((reason for reason in reasons if reason is not None), Subject("columns"))


def _unread(source: DataSource) -> Subject | None:
    """Why the columns of a dataset are not known; None if they are."""
    local = source.path.removeprefix("file://")
    if source.format in ("hub", "sql") or "://" in local:
        return Subject("columns", "remote")
    path = expanded(local)
    if not path.exists():
        return Subject("columns", "absent")
    if path.is_dir():
        found = any(file.suffix.lower().removeprefix(".") in ENDINGS for file in path.rglob("*"))
    else:
        try:
            found = fields_of(path, source.format) is not None
        except ValueError:
            found = True  # which is a finding
    return None if found else Subject("columns", "format")


def _memory(config: Config, surroundings: CheckContext) -> Iterator[Subject]:
    known = surroundings.cluster
    if not (arithmetic.trains(config) or arithmetic.needs_rollout(config)):
        return
    if config.placement.device == "cpu" or (known is not None and known.device == "cpu"):
        return
    if known is None or (known.gib_per_device is None and known_gpu(known.gpu) is None):
        yield Subject("memory", "cluster")
    elif read_shape(config.model.path) is None:
        yield Subject("memory", "shape")
    else:
        yield Subject("memory")
