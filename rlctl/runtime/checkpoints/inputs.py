"""What a stage is made from, which its checkpoints keep, so that a resumed run is the same run or says what differs.

    data        rows to train on, expert responses    changed: the run stops, unless changes are accepted
    evaluation  held-out rows                         changed: the run warns, as for all that follows
    code        reward functions, agents, custom classes, plug-ins, templates, with the modules beside them that they import
    models      base, reference, critic, reward and teacher models, tokenizers, adapters
    settings    values of the config, which an edit or a variable of the environment may change
    packages    versions of what computes

A file has a digest of its content, or where it is large its size, the time of its last change and a digest of its ends, where
Parquet and safetensors keep their index. What is on a hub has its revision, what is at a URL the state that the server tells.
Nothing here holds a value of the config that could be secret.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.filenames import is_there
from rlctl.common.messages.reasons import said, sequence
from rlctl.common.secrets import without_secrets
from rlctl.common.whole_files import write_whole
from rlctl.config import Config, to_plain
from rlctl.config.inspect import secrets, settings
from rlctl.config.sections.data import DataSource
from rlctl.planning import arithmetic
from rlctl.runtime.checkpoints.checkpoint import Saved
from rlctl.runtime.data.experts import expert_source
from rlctl.runtime.remote.files import bring, is_remote
from rlctl.runtime.rewards.function import PACKAGE
from rlctl.runtime.specs.data import expert_spec

Part = dict[str, Any]
"""Of a file ``size`` and ``sha256``, or ``size``, ``modified`` and ``ends``; of what is elsewhere ``revision`` or ``state``."""
Inputs = dict[str, dict[str, dict[str, Part]]]
"""Parts by kind, by key of the config and by name of the file below it."""

REFUSED = "data"
"""The kind whose change ends a run."""
WHOLE = {"dataset": (1 << 30, 1 << 21), "model": (1 << 24, 1 << 24)}
"""Bytes of all files up to which all are read as a whole, and of each up to which it always is."""
END = 1 << 20
"""Bytes that are read at each end of a larger file."""
MOST_FILES = 2000
"""Files of a folder that are listed one by one."""
ACCEPTED = "accepted-changes.json"
"""Beside the checkpoints of a stage: what was accepted, and when."""
_CODE = re.compile(
    r"rewards\[\]<function>\.path|algorithm\.experience_operators\[\]<function>\.path"
    r"|data\.operators\[\]<function>\.path|rollout\.agents\[\].+\.path|data\.custom\.path|environment\.plugins|(.+\.)?import_modules|.+\.chat_template"
)
_MODEL = re.compile(
    r"((critic|reference)\.)?model\.(path|tokenizer|lora\.adapter_path)|.+\.engine<megatron>\.checkpoint_path|rewards\[\]<model>\.(path|tokenizer)"
    r"|rewards\[\]<judge>\.model|rollout\.auxiliary_models\[\]\.path|algorithm\.distillation\..*(model|path)"
)
_SECTIONS = (
    *("model", "critic", "reference", "data", "batch", "schedule", "algorithm", "train", "rollout", "weight_sync"),
    *("rewards", "buffer", "run.seed", "run.deterministic", "run.mode"),
)
"""How keys begin whose values a run depends on."""
_PACKAGES = (
    "rlctl",
    "torch",
    "transformers",
    "vllm",
    "sglang",
    "megatron-core",
    "peft",
    "flash-attn",
    "ray",
    "datasets",
)


@dataclass(frozen=True, slots=True)
class Change:
    """What is not as it was."""

    kind: str
    key: str
    what: str

    def __str__(self) -> str:
        return sequence(f"{self.key}: ", self.what)


def inputs_of(config: Config) -> Inputs:
    """What a stage is made from, now; its files were read before.

    Args:
        config: of the stage.

    Raises:
        RunError: a file cannot be read.
    """
    found: Inputs = {kind: {} for kind in (REFUSED, "evaluation", "code", "models", "settings", "packages")}
    for kind, key, source in _sources(config):
        found[kind][key] = _rows(source, key)
    for setting in settings(config):
        key, values = _key(setting.path), _texts(setting.value)
        if _CODE.fullmatch(setting.pattern):
            found["code"][key] = {name: part for value in values for name, part in _code(value)}
        elif _MODEL.fullmatch(setting.pattern):
            found["models"][key] = {name: part for value in values for name, part in _model(value, key)}
    found["settings"] = {"": _settings(config)}
    found["packages"] = {"": {name: {"version": version} for name, version in _versions()}}
    return found


def changes(before: Mapping[str, Any], now: Inputs, config: Config) -> list[Change]:
    """What differs, of the keys that both have.

    Args:
        before: as a checkpoint holds it.
        now: of this run.
        config: of this run, for the names of files.
    """
    paths = {key: source.path for _, key, source in _sources(config)}
    paths |= {_key(setting.path): ", ".join(_texts(setting.value)) for setting in settings(config)}
    found: list[Change] = []
    for kind, keys in now.items():
        for key, parts in keys.items():
            earlier = before.get(kind, {}).get(key)
            if not isinstance(earlier, Mapping) or earlier == parts:
                continue
            differing = [name for name in sorted({*earlier, *parts}) if earlier.get(name) != parts.get(name)]
            if not key:
                found += [Change(kind, name, _differs(earlier.get(name), parts.get(name))) for name in differing]
                continue
            told = [f"{name or 'it'} {_differs(earlier.get(name), parts.get(name))}" for name in differing]
            more = f" and {len(told) - 3} further files" if len(told) > 3 else ""
            shown = without_secrets(paths.get(key, ""))
            found.append(Change(kind, f"{key} ({shown})" if shown else key, "; ".join(told[:3]) + more))
    return found


def same_data(before: Mapping[str, Any], now: Inputs, config: Config) -> None:
    """Refuse training data that was changed while the run trained on it.

    Raises:
        RunError: it was.
    """
    refused = [each for each in changes(before, now, config) if each.kind == REFUSED]
    if refused:
        raise _refusal("while the run was running", refused)


def check_data(saved: Saved, now: Inputs, config: Config, *, accept: bool) -> list[Change]:
    """Refuse training data that was changed since a checkpoint of the run.

    Args:
        saved: the checkpoint.
        now: what the stage is made from.
        config: of the stage.
        accept: continue all the same.

    Returns:
        The changes that are accepted now; none that were accepted before.

    Raises:
        RunError: it was changed, and is not accepted.
    """
    refused = [each for each in changes(saved.controller.get("inputs", {}), now, config) if each.kind == REFUSED]
    if not refused or any(each["data"] == digest(now[REFUSED]) for each in _accepted(saved.folder.parent)):
        return []
    if not accept:
        raise _refusal(f"since the checkpoint of step {saved.step}", refused)
    return refused


def accept(saved: Saved, now: Inputs, accepted: Sequence[Change]) -> None:
    """Keep, beside the checkpoints of a stage, that changes were accepted: they are not asked about again.

    Raises:
        RunError: it cannot be written.
    """
    place = saved.folder.parent
    entry = {
        "time": time.time(),
        "step": saved.step,
        "changes": [str(each) for each in accepted],
        "data": digest(now[REFUSED]),
    }
    try:
        write_whole(place / ACCEPTED, json.dumps([*_accepted(place), entry], indent=1, ensure_ascii=False))
    except OSError as error:
        raise RunError(
            said("{value} cannot be written: {strerror}", value=place / ACCEPTED, strerror=error.strerror)
        ) from error


def _accepted(place: Path) -> list[dict[str, Any]]:
    try:
        return list(json.loads((place / ACCEPTED).read_text()))
    except (OSError, ValueError, TypeError):
        return []


def _refusal(when: str, refused: Sequence[Change]) -> RunError:
    listed = "".join(f"\n  {each}" for each in refused)
    return RunError(
        said("the training data changed {when}:{listed}", when=when, listed=listed),
        hint="put the data back to continue the same run, continue with --accept-changes, or launch with --new",
    )


def digest(parts: Any) -> str:
    """One digest of plain values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _differs(before: Part | None, now: Part | None) -> str:
    """How a part differs, in words that follow its name."""
    if before is None or now is None:
        return "is new" if before is None else "is gone"
    for name, how in (("version", "{} -> {}"), ("value", "{!r} -> {!r}"), ("revision", "revision {} -> {}")):
        if name in before and name in now:
            return how.format(before[name], now[name])
    if before.get("size") != now.get("size"):
        return f"changed: {before.get('size')} -> {now.get('size')} bytes"
    if "modified" in before and {**before, "modified": now.get("modified")} == now:
        return "was written again, with the same size and the same ends"
    return "has other content"


# Data


def _sources(config: Config) -> Iterator[tuple[str, str, DataSource]]:
    """Kind, key and source of everything that rows are read from."""
    reads = not (
        config.run.mode == "evaluate_only" or arithmetic.writes_responses(config) or arithmetic.drains_buffer(config)
    )
    for index, source in enumerate(config.data.train if reads else ()):
        yield REFUSED, f"data.train[{index}].path", source
    mixed = expert_spec(config) if reads else None
    if mixed is not None:
        experts, key = expert_source(mixed)
        yield REFUSED, f"{key}.path", experts
    for index, held_out in enumerate(config.data.eval):
        yield "evaluation", f"data.eval[{index}].path", held_out


def _rows(source: DataSource, key: str) -> dict[str, Part]:
    if source.format == "episodes":  # no file: an empty path would be the folder that the run was started in
        return {}
    if source.format == "sql":
        from rlctl.runtime.data.sources import load_source

        rows = load_source(source, key=key.removesuffix(".path"))
        return {"": {"rows": rows.num_rows, "sha256": digest([rows[number] for number in range(rows.num_rows)])}}
    return dict(_files(source.path, key, "dataset"))


def _files(path: str, key: str, kind: str) -> Iterator[tuple[str, Part]]:
    """The files at a path, a URL or a name on a hub."""
    here, state = path.removeprefix("file://"), ""
    if is_remote(path):
        brought = bring(path, key=key)
        here, state = str(brought), brought.parent.name
    place = Path(here).expanduser()
    if place.is_file():
        yield "", _file(place, WHOLE[kind][0], state)
    elif place.is_dir():
        yield from _folder(place, *WHOLE[kind], state)
    elif revision := _revision(path, kind):
        yield "", {"revision": revision}


def _folder(place: Path, whole: int, each: int, state: str) -> Iterator[tuple[str, Part]]:
    """The files of a folder; all of them as one where they are too many to list in a checkpoint."""
    files = {
        file.relative_to(place).as_posix(): file
        for file in sorted(place.rglob("*"))
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(place).parts)
    }
    sizes = {name: file.stat().st_size for name, file in files.items()}
    if len(files) > MOST_FILES:
        known = [[name, sizes[name], 0 if state else file.stat().st_mtime_ns] for name, file in files.items()]
        yield "", {"files": len(files), "size": sum(sizes.values()), "state": state, "sha256": digest(known)}
        return
    whole = whole if sum(sizes.values()) <= whole else each
    for name, file in files.items():
        yield name, _file(file, whole, state)


def _file(path: Path, whole: int, state: str = "") -> Part:
    """A file as it is now.

    Args:
        path: of it.
        whole: bytes up to which all of it is read.
        state: of the one at a URL that it is a copy of: the time of the copy tells nothing.
    """
    status = path.stat()
    with path.open("rb") as file:
        if status.st_size <= whole:
            return {"size": status.st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
        ends = hashlib.sha256(file.read(END))
        file.seek(-min(END, status.st_size), 2)
        ends.update(file.read(END))
    when = {"state": state} if state else {"modified": status.st_mtime_ns}
    return {"size": status.st_size, **when, "ends": ends.hexdigest()}


def _revision(name: str, kind: str) -> str:
    """The commit of a repository of the Hugging Face hub that was used last on this machine; empty where none was."""
    from huggingface_hub import constants

    folder = f"{kind}s--{name.replace('/', '--')}"
    try:
        return (Path(constants.HF_HUB_CACHE) / folder / "refs" / "main").read_text().strip()
    except (OSError, ValueError):
        return ""


# Models and code


def _model(path: str, key: str) -> Iterator[tuple[str, Part]]:
    """The files of a model; code in its folder too, which runs with trust_remote_code."""
    yield from _files(path, key, "model")


def _code(value: str) -> Iterator[tuple[str, Part]]:
    """A file, a folder of Python files, or a module by its name, and the modules that they import from beside them."""
    place = Path(value.removeprefix("file://")).expanduser()
    starts: Iterable[Path]
    if value.startswith(PACKAGE) or not is_there(place):
        starts = filter(None, [_module_file(value.removeprefix(PACKAGE).strip("/").replace("/", "."))])
    else:
        starts = sorted(place.glob("*.py")) if place.is_dir() else [place]
    seen: dict[Path, None] = {}
    waiting = [path.resolve() for path in starts]
    while waiting:
        file = waiting.pop(0)
        if file not in seen:
            seen[file] = None
            waiting += _imported_by(file) if file.suffix == ".py" else []
    folder = next(iter(seen)).parent if seen else Path()
    for file in seen:
        yield (
            (file.relative_to(folder).as_posix() if file.is_relative_to(folder) else file.name),
            _file(file, WHOLE["dataset"][0]),
        )


def _module_file(name: str) -> Path | None:
    """The file of an installed module, which is not imported."""
    if not re.fullmatch(r"[A-Za-z_][\w.]*", name):
        return None
    top, *rest = name.split(".")
    with suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(top)
        if spec is None:
            return None
        if not rest:
            return Path(spec.origin) if spec.origin and Path(spec.origin).is_file() else None
        for folder in spec.submodule_search_locations or ():
            if found := _python_file(Path(folder).joinpath(*rest)):
                return found
    return None


def _python_file(place: Path) -> Path | None:
    """The file of a module or package that would be at a place."""
    return next((file for file in (place.with_name(f"{place.name}.py"), place / "__init__.py") if file.is_file()), None)


def _imported_by(file: Path) -> list[Path]:
    """The files beside a Python file that it imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return []
    names: list[tuple[Path, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [(file.parent, each.name) for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            folder = file.parents[max(0, node.level - 1)] if node.level <= len(file.parents) else file.parent
            below = f"{node.module}." if node.module else ""
            names += [(folder, node.module)] if node.module else []
            names += [(folder, f"{below}{each.name}") for each in node.names if each.name != "*"]
    places = [
        folder.joinpath(*parts[:length])
        for folder, name in names
        for parts in [name.split(".")]
        for length in range(1, len(parts) + 1)  # a package is imported before what is in it
    ]
    return [path.resolve() for path in map(_python_file, places) if path is not None]


# Settings and packages


def _settings(config: Config) -> dict[str, Part]:
    """Numbers and switches as they are; of text a digest, which tells that it changed and not what it was."""
    hidden = {path for path, _ in secrets(config)}
    files = {s.path for s in settings(config) if _CODE.fullmatch(s.pattern) or _MODEL.fullmatch(s.pattern)}
    found: dict[str, Part] = {}
    for path, value in _leaves(to_plain(config), ()):
        key = _key(path)
        is_file = (
            path in files or path[:-1] in files or re.fullmatch(r"data\.(train|eval)\[\d+\]\.path|buffer\..*path", key)
        )
        if key.startswith(_SECTIONS) and path not in hidden and not is_file:
            found[key] = {"text": digest(value)[:16]} if isinstance(value, str) else {"value": value}
    return found


def _leaves(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    if isinstance(value, Mapping | list | tuple) and len(value):
        for name, item in items:
            yield from _leaves(item, (*path, name))
    else:
        yield path, list(value) if isinstance(value, tuple) else value


def _versions() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            yield name, metadata.version(name)


def _key(path: Sequence[str | int]) -> str:
    """A path in the config as messages have it: ``data.train[0].path``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def _texts(value: Any) -> list[str]:
    return [each for each in (value if isinstance(value, list | tuple) else [value]) if isinstance(each, str) and each]
