"""Where the shape of a model comes from: a local folder, or the table of well-known hub names. Nothing is downloaded."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rlctl.common.errors import UsageError
from rlctl.common.filenames import expanded
from rlctl.common.messages.reasons import said
from rlctl.config.sections.model import Model
from rlctl.planning.models.build import built_shape, can_build
from rlctl.planning.models.families import FAMILIES, shape_of
from rlctl.planning.models.shape import ModelShape

_BRACES = re.compile(r"\{([^{}]*)\}")
_QUANTIZED = re.compile(r"-(FP8|AWQ|GPTQ-Int[48]|AWQ-INT4|bnb-4bit|NVFP4|MXFP4|BF16)(-[0-9]+)?$", re.IGNORECASE)
"""Ends of names of copies in another type, which have the shape of the model that they are made from."""


_GIVEN: ContextVar[Mapping[str, Path]] = ContextVar("_GIVEN", default=MappingProxyType({}))
"""Files that give the shape of models, by the path of the model."""


@contextmanager
def shape_given(path: str, file: Path) -> Iterator[None]:
    """The shape of a model is that of a ``config.json`` elsewhere, inside of the block.

    Args:
        path: of the model, as a config says it.
        file: a ``config.json``.

    Raises:
        UsageError: the file is no JSON object, or rlctl cannot compute the size of its family.
    """
    token = _GIVEN.set({**_GIVEN.get(), path: file})
    try:
        if model_config(path) is None:
            raise UsageError(
                said("{file} is not the config.json of a model", file=str(file)),
                hint="pass the config.json of the model's folder",
            )
        if read_shape(path) is None:
            raise UsageError(why_unknown(path), hint="pass the config.json of a model with the same layers")
        yield
    finally:
        _GIVEN.reset(token)


def _file_of(path: str) -> Path:
    """The ``config.json`` that tells the shape of a model."""
    return _GIVEN.get().get(path) or expanded(path) / "config.json"


def read_shape(path: str) -> ModelShape | None:
    """The shape of a model: of the ``config.json`` in a local folder, else of a known hub name; None if neither gives one.

    A path that cannot be read has the shape of the model that its last part names.
    A folder of a family that ``families`` lacks is counted with Transformers, if it is installed.
    """
    data = model_config(path)
    if data is None:
        return known_shape(path) or known_shape(_by_folder(path))
    if data.get("model_type") in FAMILIES:
        return shape_of(data)
    file = _file_of(path)
    return built_shape(str(file.parent), file.stat().st_mtime) if file.name == "config.json" else None


def context_limit(model: Model) -> int | None:
    """The tokens that fit into a model; None if that is not known, or its positions are scaled, as engines do differently."""
    if model.max_context_tokens is not None:
        return model.max_context_tokens
    data, shape = model_config(model.path) or {}, read_shape(model.path)
    kinds = [model.rope.scaling, data.get("rope_scaling"), data.get("rope_parameters")]
    scaled = any(kind and kind.get("rope_type", kind.get("type", "default")) != "default" for kind in kinds)
    return None if shape is None or scaled else shape.max_positions


def why_unknown(path: str) -> str:
    """Why ``read_shape`` gives None, and what to do, as a sentence."""
    file = _file_of(path)
    data = model_config(path)
    if data is None:
        return said(
            "rlctl does not know {path!r} and found no {file}; pass a local folder with the model's config.json, or rlctl plan "
            "--model-shape config.json",
            path=path,
            file=file,
        )
    family = data.get("model_type")
    if family not in FAMILIES:
        missing = "" if can_build() else "; install rlctl[runtime], so that Transformers can count it"
        return said(
            "{file} is of the family {family!r}, whose size rlctl cannot compute{missing}",
            file=file,
            family=family,
            missing=missing,
        )
    return said("{file} lacks a key that the size of {family} models depends on", file=file, family=family)


def model_config(path: str) -> dict[str, Any] | None:
    """The contents of a local ``config.json``; None if there is none that can be read."""
    file = _file_of(path)
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _by_folder(path: str) -> str:
    """The hub name of a folder that is called as a well-known model, as ``/models/Qwen3-8B``; empty if there is none.

    ``org/name`` is a name of a hub, where another organization's model of the same name may be another one.
    """
    if path.count("/") == 1 and not path.startswith(("/", ".", "~", "$")):
        return ""
    name = path.rstrip("/}").rpartition("/")[2].lower()
    names = {known.rpartition("/")[2]: known for known in known_configs()}
    found = names.get(name) or names.get(_QUANTIZED.sub("", name).lower())
    return found or ""


@lru_cache(maxsize=256)
def known_shape(name: str) -> ModelShape | None:
    """The shape of a hub name in the table, or of the model that a quantized copy is made from."""
    config = known_configs().get(name.lower()) or known_configs().get(_QUANTIZED.sub("", name).lower())
    return None if config is None else shape_of(config)


@cache
def known_configs() -> Mapping[str, Mapping[str, Any]]:
    """The table: contents of a ``config.json`` by hub name in lower case, as hubs compare names."""
    table = tomllib.loads(Path(__file__).with_name("known_models.toml").read_text(encoding="utf-8"))
    return {
        name.lower(): config
        for family, section in table.items()
        if family != "sources"
        for names, config, _ in rows_of(section)
        for name in names
    }


def rows_of(section: Mapping[str, Any]) -> Iterator[tuple[list[str], dict[str, Any], list[str]]]:
    """The rows of one family of the table: names, the contents of their ``config.json``, names of sources."""
    for names, *values, sources in section["rows"]:
        own = {key: value for key, value in zip(section["columns"], values, strict=True) if _is_stated(key, value)}
        config = {**section["shared"], **dict.fromkeys(section.get("null", ())), **own}
        if "nested" in section:
            config = _nested(section, own)
        yield list(_expanded(names)), config, sources.split()


def _nested(section: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A config with parts: a column is of the text, unless it begins with ``whole.`` or the name of another part."""
    config = {**section["shared"], section["nested"]: {**section["nested_shared"]}}
    for key, value in own.items():
        part, dot, name = key.partition(".")
        if not dot:
            config[section["nested"]] |= {key: value}
        elif part == "whole":
            config[name] = value
        else:
            config[part] = {**config[part], name: value}
    return config


def _is_stated(key: str, value: object) -> bool:
    return not (key == "max_position_embeddings" and value == 0)


def _expanded(names: str) -> Iterator[str]:
    """``a{b,c}`` as ``ab`` and ``ac``."""
    match = _BRACES.search(names)
    if match is None:
        yield names
        return
    for part in match[1].split(","):
        yield from _expanded(names[: match.start()] + part + names[match.end() :])
