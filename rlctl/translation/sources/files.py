"""YAML files with what their defaults lists name, and the folder ``.hydra`` that a run of Hydra leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlctl.adapters import dialect as dialect_called
from rlctl.adapters import names
from rlctl.common.errors import DocumentError, Location
from rlctl.common.filenames import is_file
from rlctl.common.messages.reasons import said
from rlctl.common.numbers import natural
from rlctl.common.report import Level, finding
from rlctl.documents import Document, Override, read_overrides, read_text, read_yaml
from rlctl.documents.composition import Choice, Composition, compose, has_defaults
from rlctl.shell.override_lists import list_items, read_override_list, with_quoted_home
from rlctl.translation.sources.inputs import Input


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
    reason = said("its defaults list names {listed}, which is part of {name}", listed=listed, name=name)
    note = finding("shipped-config", Level.NOTE, at=configs[0].at, config=listed, framework=name)
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
        said("the defaults list includes '{what}', but there is no file {what}.yaml", what=what),
        at=missing.at,
        hint=said(
            "looked in {searched}; put the file there, or add its folder to hydra.searchpath",
            searched=", ".join(made.searched),
        ),
    )


def _group(choice: Choice) -> tuple[str, tuple[str, ...], str, str, Location, str | None]:
    """A choice from a config group, as the fields of the override that says the same."""
    group, _, package = choice.group.partition("@")
    return group, (group,), choice.name, f"{choice.group}={choice.name}", choice.at, package or None


def listed(text: str, name: str) -> Input:
    """A list of overrides, with the config that a ``--config-name`` among them starts from.

    Raises:
        DocumentError: there is neither such a file nor such a config.
    """
    items = list_items(text, name)
    options = [(item, at) for item, at in items if item.startswith("--")]
    written = read_overrides([(with_quoted_home(item), at) for item, at in items if not item.startswith("--")], name)
    named = {item.partition("=")[0]: (item.partition("=")[2].strip("'\""), at) for item, at in options}
    if "--config-name" not in named:
        return Input(Document(name, {}), written)
    config, at = named["--config-name"]
    stem = config.removesuffix(".yaml")
    folder = named.get("--config-path", named.get("--config-dir", ("", at)))[0]
    file = Path(name).parent / folder / f"{stem}.yaml"
    if folder and is_file(file):
        given = composed(read_yaml(read_text(file), str(file)))
        return replace(given, overrides=[*given.overrides, *written])
    for dialect in names():
        if (shipped := dialect_called(dialect).configs.get(stem)) is not None:
            note = finding("shipped-config", Level.NOTE, at=at, config=stem, framework=dialect)
            first = read_overrides([(override, at) for override in shipped.overrides], name)
            reason = said("it starts from {stem}, which is part of {framework}", stem=stem, framework=dialect)
            return Input(Document(name, {}), [*first, *written], dialect, shipped.kind, reason, [note])
    raise DocumentError(
        said("starts from the config '{stem}', but there is no file {file}", stem=stem, file=file), at=at
    )


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
    note = finding("composed-config", Level.NOTE, file=beside, count=len(paths))
    return Input(replace(document, marks=marks, explicit=paths), findings=[note])


def _step(document: Document, path: Sequence[str | int]) -> list[str | int]:
    """A path of an override as the document has it: numbers where it has a list or a key that is a number."""
    found: list[str | int] = []
    value: object = document.values
    for part in path:
        number = natural(str(part))
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
