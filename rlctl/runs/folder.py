"""Making and filling a run folder, for its owner's eyes only and without secrets; reading its config back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.filenames import fit, unfit
from rlctl.common.messages.reasons import said
from rlctl.common.quoting import word
from rlctl.common.secrets import redacted
from rlctl.common.whole_files import write_whole
from rlctl.config import Config, Loaded, live_expressions, load, put_at, to_file
from rlctl.config.inspect import marked_secrets, secrets
from rlctl.config.reveal import at_home
from rlctl.documents import read_text, read_yaml, write_yaml
from rlctl.planning.plan import Plan


def folder_of(config: Config) -> Path:
    """The run folder that a config names.

    Raises:
        RunError: it would be another place.
    """
    if why := unfit(config.run.name):
        raise RunError(
            said("run.name is {name}: {why}", name=word(config.run.name), why=why),
            hint=said("pass --name {name}", name=word(fit(config.run.name))),
        )
    return Path(at_home(config.run.folder)) / config.run.name


def make_folder(folder: Path) -> None:
    """Make the run folder, for its owner's eyes only.

    Raises:
        RunError: it cannot be made.
    """
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        (folder / "logs").mkdir(exist_ok=True)
        (folder / "lock").touch(mode=0o600)


def write_folder(folder: Path, loaded: Loaded, plan: Plan) -> None:
    """Put into the run folder what the run is.

    Raises:
        RunError: it cannot be written.
    """
    with _writing(folder):
        write_whole(folder / "config.yaml", write_yaml(symbolic(loaded)))
        write_whole(folder / "plan.json", json.dumps(plan.as_data(), indent=1))
        for index, name in enumerate(loaded.files):
            source = Path(name)
            if source.is_file():
                text = redacted(source.read_text(errors="replace"))
                write_whole(folder / f"source{index or ''}{source.suffix}", text)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(
            said("the run folder {folder} cannot be written: {reason}", folder=folder, reason=error.strerror),
            hint="choose another run.folder",
        ) from error


def symbolic(loaded: Loaded) -> dict[str, Any]:
    """The config as a file, where values that came from the environment stay ``${oc.env:...}``.

    An expression stays only where it gives the value that the config holds: reading the file again gives the same config. A
    secret that was written out becomes the name of a variable, to be set where the run is to be resumed with it.
    """
    plain = to_file(loaded.config)
    nullable = marked_secrets(loaded.config)
    hidden = dict(secrets(loaded.config))
    for path, value in hidden.items():
        if value is not None:
            is_variable = path[-3:-1] == ("runtime", "env_vars")
            name = re.sub(r"\W", "_", "_".join(str(part) for part in ("rlctl", *path))).upper()
            otherwise = ",null" if path in nullable else ""
            put_at(plain, path, f"${{oc.env:{path[-1] if is_variable else f'{name}{otherwise}'}}}")
    live = live_expressions(loaded)
    for path, text in loaded.expressions.items():
        if path in live or path in hidden:
            put_at(plain, path, text)
    return plain


def read_config(folder: Path) -> Config:
    """The config of a run.

    Raises:
        RunError: it cannot be read any more, for example for a variable that is no longer set.
    """
    path = folder / "config.yaml"
    loaded, report = load(read_yaml(read_text(path), str(path)))
    if loaded is None:
        raise RunError("\n".join(f"{finding.at}: {finding.message}" for finding in report.errors))
    return loaded.config
