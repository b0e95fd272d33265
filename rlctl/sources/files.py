"""YAML files with what their defaults lists name, and the folder ``.hydra`` that a run of Hydra leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlctl.adapters import dialect as dialect_called
from rlctl.adapters import names
from rlctl.documents import Document, Override, read_overrides, read_text
from rlctl.documents.composition import Choice, Composition, compose, has_defaults
from rlctl.documents.override_lists import read_override_list
from rlctl.errors import DocumentError, Location
from rlctl.report import Finding, Level
from rlctl.sources.given import Input


def composed(document: Document) -> Input:
    """A YAML file with what its defaults list names.

    Raises:
        DocumentError: the list names what is neither a file nor a config that a framework ships.
    """
    if not has_defaults(document):
        return Input(document)
    made = compose(document)
    if not made.choices:
        return Input(made.document)
    name = _shipper(made)
    configs = [choice for choice in made.choices if not choice.group]
    shipped = [dialect_called(name).configs[choice.name] for choice in configs]
    lines = [(text, choice.at) for choice, config in zip(configs, shipped, strict=True) for text in config.overrides]
    groups = [Override("set", *_group(choice)) for choice in made.choices if choice.group]
    listed = ", ".join(choice.name for choice in configs)
    reason = f"its defaults list names {listed}, which comes with {name}"
    message = f"{reason}: nothing is included, those are {name}'s defaults"
    note = Finding("shipped-config", Level.NOTE, message, at=configs[0].at)
    kind = next((config.kind for config in shipped if config.kind), "")
    return Input(made.document, [*read_overrides(lines, document.name), *groups], name, kind, reason, [note])


def _shipper(made: Composition) -> str:
    """The dialect that has every config for which there is no file.

    Raises:
        DocumentError: none has.
    """
    named = [choice for choice in made.choices if not choice.group]
    known = {name: dialect_called(name).configs for name in names()}
    for name, configs in known.items():
        if named and all(choice.name in configs for choice in named):
            return name
    missing = next((choice for choice in named if not any(choice.name in configs for configs in known.values())), None)
    missing = missing or made.choices[0]
    what = f"{missing.group.partition('@')[0]}/{missing.name}" if missing.group else missing.name
    raise DocumentError(
        f"the defaults list includes '{what}', and there is no file {what}.yaml",
        at=missing.at,
        hint=f"looked in {', '.join(made.searched)}; put the file there, or add its folder to hydra.searchpath",
    )


def _group(choice: Choice) -> tuple[str, tuple[str, ...], str, str, Location, str | None]:
    """A choice from a config group, as the fields of the override that says the same."""
    group, _, package = choice.group.partition("@")
    return group, (group,), choice.name, f"{choice.group}={choice.name}", choice.at, package or None


def hydra_left(document: Document, folder: Path) -> Input:
    """The config that Hydra composed for a run; the overrides beside it say what of it a person wrote."""
    beside = folder / "overrides.yaml"
    if not beside.is_file():
        return Input(document)
    written = read_override_list(read_text(beside), str(beside))
    paths = frozenset(tuple(_step(document, override.path)) for override in written if override.kind != "delete")
    marks = document.marks | {
        path: override.at
        for override in written
        for path in [tuple(_step(document, override.path))]
        if path in document.marks
    }
    message = (
        f"a config that Hydra composed; {beside} says which {len(paths)} keys of it were written, the rest are defaults"
    )
    note = Finding("composed-config", Level.NOTE, message)
    return Input(replace(document, marks=marks, explicit=paths), findings=[note])


def _step(document: Document, path: Sequence[str | int]) -> list[str | int]:
    """A path of an override as the document has it: numbers where it has a list or a key that is a number."""
    found: list[str | int] = []
    value: object = document.values
    for part in path:
        number = int(part) if str(part).isdecimal() else None
        if isinstance(value, list) and number is not None and number < len(value):
            found.append(number)
            value = value[number]
        elif isinstance(value, dict):
            key = number if number is not None and part not in value and number in value else part
            found.append(key)
            value = value.get(key)
        else:
            found.append(part)
            value = None
    return found
