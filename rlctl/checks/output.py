"""Rules on what a run leaves behind: checkpoints, trackers, and secrets that must not be in files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rlctl.checks.problem import CheckContext, Problem
from rlctl.common.filenames import expanded, is_there
from rlctl.config import Config
from rlctl.config.inspect import secrets
from rlctl.documents.paths import dotted
from rlctl.planning import arithmetic


def checkpoints(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """A checkpoint to resume from is named exactly when it is asked for, and the run leaves weights behind."""
    checkpoint = config.checkpoint
    key = ("checkpoint", "resume_path")
    if checkpoint.resume == "path" and not checkpoint.resume_path:
        yield Problem(
            "resume-path",
            key,
            "checkpoint.resume is path, and checkpoint.resume_path is not set",
            "set checkpoint.resume_path",
        )
    elif (
        checkpoint.resume == "path"
        and checkpoint.resume_path
        and "://" not in checkpoint.resume_path
        and not is_there(expanded(checkpoint.resume_path))
    ):
        yield Problem(
            "path-missing", key, f"the checkpoint {checkpoint.resume_path} does not exist here", "correct the path"
        )
    elif checkpoint.resume != "path" and checkpoint.resume_path:
        yield Problem(
            "resume-path",
            key,
            f"checkpoint.resume_path is set, and checkpoint.resume is {checkpoint.resume}: it is not read",
            "{fix}",
            ((("checkpoint", "resume"), "path"), (("checkpoint", "resume_path"), None)),
        )
    if checkpoint.remote is not None and "://" not in checkpoint.remote and not checkpoint.remote.startswith("/"):
        message = (
            f"checkpoint.remote is {checkpoint.remote!r}; expected a URL that fsspec knows, or the path of a folder"
        )
        yield Problem(
            "remote-path",
            ("checkpoint", "remote"),
            message,
            "set checkpoint.remote to a URL, such as s3://bucket/folder",
        )
    if checkpoint.folder is not None and "://" in checkpoint.folder:
        message = (
            f"checkpoint.folder is {checkpoint.folder!r}; checkpoints are written to a folder of this machine first"
        )
        yield Problem("remote-path", ("checkpoint", "folder"), message, "set checkpoint.remote to the URL instead")
    trains = arithmetic.trains(config)
    if trains and checkpoint.every is None and not checkpoint.at_end and checkpoint.export == "never":
        yield Problem(
            "never-saved",
            ("checkpoint",),
            "every is null, last is false and export is never: nothing is saved",
            "{fix}",
            ((("checkpoint", "at_end"), True), (("checkpoint", "every"), 100)),
        )


def trackers(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Trackers can start where the run does."""
    for index, tracker in enumerate(config.tracking):
        mode = getattr(tracker, "mode", "")
        if mode in ("cloud", "online", "local"):
            yield Problem(
                "tracker",
                ("tracking", index, "mode"),
                f"{tracker.choice} in mode {mode} needs {'a server' if mode == 'local' else 'an account and the network'}",
                "mode offline keeps files that can be sent later",
            )
    for name, count in Counter(tracker.choice for tracker in config.tracking).items():
        if count > 1 and name != "other":
            yield Problem("tracker-twice", ("tracking",), f"{name} is listed {count} times", "keep one")


def literal_secrets(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """Keys, tokens and passwords come from the environment."""
    if surroundings.symbolic is None:
        return
    named = [path for path, value in secrets(config) if value]
    for path in named:
        if path not in surroundings.symbolic:
            yield Problem(
                "literal-secret",
                path,
                f"'{dotted(path)}' holds a secret in plain text",
                "write ${oc.env:NAME}, and set NAME in the environment",
            )


NAMES = (("run", "name"), ("run", "folder"), ("checkpoint", "folder"), ("runtime", "log_folder"))
"""Keys that become names of files, which anyone on the machine can list."""


def secret_names(config: Config, surroundings: CheckContext) -> Iterator[Problem]:
    """No file or folder is named after a secret."""
    for path in NAMES:
        value = getattr(getattr(config, path[0]), path[1])
        if value and "${oc.env:" in value:
            message = f"{dotted(path)} is {value}, which holds a secret: names of folders are no place for one"
            yield Problem("secret-in-name", path, message, f"set {dotted(path)} to a name without it")


RULES = (checkpoints, trackers, literal_secrets, secret_names)
