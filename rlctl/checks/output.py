"""Rules on what a run leaves behind: checkpoints, trackers, and secrets that must not be in files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from rlctl.checks.problem import CheckContext, Problem, problem
from rlctl.common.filenames import expanded, fit, is_there, unfit
from rlctl.common.quoting import word
from rlctl.common.secrets import is_secret_name
from rlctl.config import Config
from rlctl.config.inspect import secrets
from rlctl.planning import arithmetic


def checkpoints(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A checkpoint to resume from is named exactly when it is asked for, and the run leaves weights behind."""
    checkpoint = config.checkpoint
    key = ("checkpoint", "resume_path")
    if checkpoint.resume == "path" and not checkpoint.resume_path:
        yield problem("resume-path", key)
    elif (
        checkpoint.resume == "path"
        and checkpoint.resume_path
        and "://" not in checkpoint.resume_path
        and not is_there(expanded(checkpoint.resume_path))
    ):
        yield problem("path-missing", key, path=checkpoint.resume_path)
    elif checkpoint.resume != "path" and checkpoint.resume_path:
        yield problem(
            "resume-path_unread", key, [(("checkpoint", "resume"), "path"), (key, None)], resume=checkpoint.resume
        )
    if checkpoint.remote is not None and "://" not in checkpoint.remote and not checkpoint.remote.startswith("/"):
        yield problem("remote-path", ("checkpoint", "remote"), path=checkpoint.remote)
    if checkpoint.folder is not None and "://" in checkpoint.folder:
        yield problem("remote-path_folder", ("checkpoint", "folder"), path=checkpoint.folder)
    trains = arithmetic.trains(config)
    if trains and checkpoint.every is None and not checkpoint.at_end and checkpoint.export == "never":
        yield problem(
            "never-saved", ("checkpoint",), [(("checkpoint", "at_end"), True), (("checkpoint", "every"), 100)]
        )


def trackers(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Trackers can start where the run does."""
    for index, tracker in enumerate(config.tracking):
        mode = getattr(tracker, "mode", "")
        if mode in ("cloud", "online", "local"):
            yield problem("tracker", ("tracking", index, "mode"), tracker=tracker.choice, mode=mode)
    for name, count in Counter(tracker.type_name for tracker in config.tracking).items():
        if count > 1:
            yield problem("tracker-twice", ("tracking",), tracker=name, count=count)


def literal_secrets(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Keys, tokens and passwords come from the environment."""
    if surroundings.symbolic is None:
        return
    named = [path for path, value in secrets(config) if value]
    for path in named:
        if path not in surroundings.symbolic:
            yield problem("literal-secret", path, expression="${oc.env:NAME}")


_VARIABLE = re.compile(r"\$\{oc\.env:\s*([^,}\s]+)")
NAMES = (("run", "name"), ("run", "folder"), ("checkpoint", "folder"), ("runtime", "log_folder"))
"""Keys that become names of files, which anyone on the machine can list."""


def secret_names(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """No file or folder is named after a secret."""
    for path in NAMES:
        value = getattr(getattr(config, path[0]), path[1])
        if value and any(is_secret_name(name) for name in _VARIABLE.findall(value)):
            yield problem("secret-in-name", path, value=value)


def run_names(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """The run's name can be that of its folder, and of a job."""
    name = config.run.name
    if why := unfit(name):
        yield problem("folder-name", ("run", "name"), [(("run", "name"), fit(name))], value=word(name), reason=why)


RULES = (checkpoints, trackers, literal_secrets, secret_names, run_names)
