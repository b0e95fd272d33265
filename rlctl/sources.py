"""What people give: a YAML file and what it includes, as one document, with what is known about it before any dialect reads it.

``gather`` takes a path to an ``Input``; nothing here knows what a key means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlctl.adapters import dialect as dialect_called
from rlctl.adapters import names
from rlctl.documents import Document, Override, read_overrides, read_text, read_yaml
from rlctl.documents.composition import Choice, Composition, compose, has_defaults
from rlctl.documents.files import shown_name
from rlctl.errors import DocumentError, Location
from rlctl.report import Finding, Level


@dataclass(frozen=True)
class Input:
    """A document and the changes that belong to it."""

    document: Document
    overrides: Sequence[Override] = ()
    """In order, before those of the command line."""
    dialect: str = ""
    """The dialect, where something other than the keys says it."""
    kind: str = ""
    """The dialect's kind of file, where something other than the keys says it."""
    reason: str = ""
    """What says so."""
    findings: Sequence[Finding] = field(default=())


def gather(source: str | Path) -> Input:
    """Read a file (``-`` is standard input) with everything it includes.

    Raises:
        DocumentError: it, or something that it includes, is missing or cannot be read.
    """
    return _composed(read_yaml(read_text(source), shown_name(source)))


def _composed(document: Document) -> Input:
    """A YAML file with what its defaults list names."""
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
    note = Finding(
        "shipped-config", Level.NOTE, f"{reason}: nothing is included, those are {name}'s defaults", at=configs[0].at
    )
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
