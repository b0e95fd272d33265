"""What travels with a run to machines that do not see this one's files: its config, and the code that the config names.

Three kinds of key hold a path. Code and templates (``SHIPPED``) go with the run: a Python file with the modules next to
it that it imports. Data, models and folders (``PLACES``) are expected where the run goes, by an absolute path, a URL or
a name on a hub. All others are no paths. Values that come from the environment stay ``${oc.env:...}``; so do secrets.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from rlctl.checks.sources import looks_local
from rlctl.cluster.modules import needed
from rlctl.common.errors import RunError
from rlctl.common.filenames import expanded, is_there
from rlctl.common.messages.reasons import lines_of, said
from rlctl.config import Config, Loaded, config_from, put_at, stages_of, to_plain
from rlctl.config.inspect import secrets, settings
from rlctl.documents import KeyPath, dotted, write_yaml
from rlctl.runs import symbolic

CONFIG = "run.yaml"
FILES = "files"
"""Name of the folder that holds the user's files."""
SIZE_LIMIT = 20 * 2**20
"""Bytes of code that a run may bring; more is data, or the wrong folder."""

SHIPPED = (
    "algorithm.experience_operators[]<function>.path",
    "data.custom.path",
    "data.operators[]<function>.path",
    "runtime.plugins",
    "model.chat_template",
    "rewards[]<function>.path",
    "rewards[]<model>.chat_template",
    "rollout.agents[]<function>.path",
    "rollout.agents[]<environment>.environment<python>.path",
    "rollout.agents[]<program>.program<python>.path",
    "rollout.agents[]<tools>.tools[]<python>.path",
    "rollout.agents[]<tools>.tools[]<file>.path",
)
PLACES = (
    "buffer<file>.path",
    "buffer<memory>.log_path",
    "checkpoint.folder",
    "checkpoint.resume_path",
    "data.eval[].path",
    "data.operators_input",
    "data.operators_output",
    "data.train[].path",
    "runtime.log_folder",
    "profiling.folder",
    "profiling.ray_timeline",
    "rewards[]<model>.path",
    "rewards[]<model>.tokenizer",
    "rollout.agents[]<program>.program<command>.folder",
    "rollout.auxiliary_models[].path",
    "rollout.evaluation_folder",
    "rollout.responses_folder",
    "run.folder",
    "run.skip.folder",
    "tracking[]<swanlab>.folder",
    "tracking[]<tensorboard>.folder",
)
PLACE = re.compile(
    r"((critic|reference)\.)?model\.(path|tokenizer|lora\.(adapter_path|base_model))"
    r"|buffer<\w+>\.auxiliary\{\}\.path|(train|critic|reference)\.engine<megatron>\.checkpoint_path"
)
"""Further ones, that several sections have."""
ALWAYS_A_PATH = ("run.folder", "checkpoint.folder", "runtime.log_folder", "profiling.folder", "run.skip.folder")
_VARIABLE = re.compile(r"\$\{oc\.env:\s*([A-Za-z_]\w*)\s*(,?)")


@dataclass(frozen=True)
class Package:
    """A config as it travels, and the files that go with it."""

    config: str
    """YAML, with the paths that the files will have."""
    home: str
    """The folder that the files will be in, on the machines of the run."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """By their name in that folder."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The local file that each of them is."""
    places: tuple[str, ...] = ()
    """``key: path`` of what must be there already."""
    variables: tuple[str, ...] = ()
    """Variables that must be set there."""


def pack(loaded: Loaded, *, home: str | None = None) -> Package:
    """Put together what travels.

    Args:
        loaded: the config as it was read here.
        home: where its files will be; None is a folder beside the run folders, named by what is in it, so that a run that
            is resumed finds what it began with.

    Raises:
        RunError: a path means nothing on other machines, or the code is too large.
    """
    wrong, changed, shipped = list(_misplaced(loaded.config)), {}, _Shipped()
    for path, value in _paths(loaded.config, SHIPPED.__contains__):
        if name := shipped.add(value):
            changed[path] = name
        elif looks_local(value) and not (_is_path(value) or "{" in value or "://" in value.removeprefix("file://")):
            wrong.append(said("{key} is {value!r}, but there is no such local file", key=dotted(path), value=value))
    if wrong:
        raise RunError(
            lines_of(("  " + each for each in wrong), "local paths, which do not exist on the cluster:"),
            hint="change these paths in the config, or with --set",
        )
    literal = [
        dotted(path)
        for path, value in secrets(loaded.config)
        if value and path not in loaded.expressions and path[-3:-1] != ("runtime", "env_vars")
    ]
    if literal:
        raise RunError(
            said(
                "{names} contains a secret in plain text, which rlctl does not send to a cluster",
                names=", ".join(literal),
            ),
            hint="write ${oc.env:NAME}, and set NAME on the cluster",
        )
    plain: dict[str, Any] = to_plain(loaded.config)
    digest = hashlib.sha256(repr(sorted(shipped.files.items())).encode()).hexdigest()[:12]
    home = home or str(PurePosixPath(loaded.config.run.folder) / ".files" / digest)
    for path, name in changed.items():
        put_at(plain, path, f"{home}/{name}")
    plain["runtime"]["ray"]["address"] = None
    text = write_yaml(symbolic(_with(loaded, config_from(plain), changed)))
    variables = sorted({name for name, default in _VARIABLE.findall(text) if not default})
    places = tuple(f"{dotted(path)}: {value}" for path, value in _paths(loaded.config, _is_place) if _is_path(value))
    return Package(text, home, shipped.files, shipped.sources, places, tuple(variables))


def _with(loaded: Loaded, config: Config, changed: Mapping[KeyPath, str]) -> Loaded:
    dropped = {*changed, ("runtime", "ray", "address")}
    kept = {path: text for path, text in loaded.expressions.items() if path not in dropped}
    return replace(loaded, config=config, expressions=kept)


def _is_place(pattern: str) -> bool:
    return pattern in PLACES or PLACE.fullmatch(pattern) is not None


def _paths(config: Config, wanted: Callable[[str], bool]) -> Iterator[tuple[KeyPath, str]]:
    """Every value of such keys, with its path in the config, or in the change of a stage that holds it."""
    parts: list[tuple[KeyPath, Config, Any]] = [((), replace(config, stages=()), to_plain(config))]
    if config.stages:
        parts += [
            (("stages", index), stage.config, config.stages[index]) for index, stage in enumerate(stages_of(config))
        ]
    for prefix, part, written in parts:
        for setting in settings(part):
            if wanted(setting.pattern) and setting.value and _holds(written, setting.path):
                if isinstance(setting.value, str):
                    yield (*prefix, *setting.path), setting.value
                elif isinstance(setting.value, tuple):
                    yield from (((*prefix, *setting.path, i), item) for i, item in enumerate(setting.value))


def _holds(written: Any, path: KeyPath) -> bool:
    for name in path:
        try:
            written = written[name]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _is_path(value: str) -> bool:
    return value.startswith(("/", "~"))


def _misplaced(config: Config) -> Iterator[str]:
    """Paths that start at this machine's working folder."""
    for path, value in _paths(config, _is_place):
        if "://" in value or _is_path(value):
            continue
        if dotted(path) in ALWAYS_A_PATH:
            key = dotted(path)
            yield said(
                "{key} is {value!r}; name a folder on a disk that all nodes share: --set {key}=/shared/{value}",
                key=key,
                value=value,
            )
        elif looks_local(value) or is_there(value):
            yield said(
                "{key} is {value!r}; use a path that the cluster has: an absolute path, a URL or a hub name",
                key=dotted(path),
                value=value,
            )


class _Shipped:
    """Files that go with a run, by their name in its folder; those of one folder stay together."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.sources: dict[str, str] = {}
        self._folders: dict[Path, int] = {}
        self._size = 0

    def add(self, value: str) -> str:
        """The name of what a value names, brought along; empty where it names nothing on this machine."""
        source = expanded(value.removeprefix("file://")).absolute()
        try:
            found = list(needed(source))
        except (OSError, ValueError):
            return ""
        number = self._folders.setdefault(source.parent, len(self._folders))
        for file in found:
            name = f"{number}/{file.relative_to(source.parent).as_posix()}"
            if name not in self.files:
                self._size += file.stat().st_size
                if self._size > SIZE_LIMIT:
                    raise RunError(
                        said(
                            "the code next to {source} is over {limit} MiB",
                            source=source,
                            limit=SIZE_LIMIT // 2**20,
                        ),
                        hint="move the file into a folder with only the modules that it imports",
                    )
                self.files[name] = file.read_bytes()
                self.sources[name] = str(file)
        return f"{number}/{source.name}" if found else ""
