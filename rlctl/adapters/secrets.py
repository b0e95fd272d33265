"""Which keys hold secrets, and how a literal one is replaced before anything else sees it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlctl.documents import Document, KeyPath, dotted
from rlctl.documents.paths import copied
from rlctl.report import Finding, Level
from rlctl.secrets import is_secret as looks_secret
from rlctl.secrets import is_secret_name


def is_secret(path: Sequence[Any]) -> bool:
    """Whether the last part of a key names a secret."""
    return is_secret_name(_name(path))


def is_literal_secret(path: Sequence[Any], value: Any) -> bool:
    """Whether a key holds a secret in the open."""
    return is_secret(path) and looks_secret(_name(path), value) and "${" not in value


def _name(path: Sequence[Any]) -> str:
    return next((str(part) for part in reversed(path) if not isinstance(part, int)), "")


def variable_for(path: Sequence[Any]) -> str:
    """The environment variable that stands for a secret at a place."""
    return "RLCTL_" + re.sub(r"\W+", "_", "_".join(str(part) for part in path[-2:])).upper()


def without_literals(document: Document) -> tuple[Document, list[Finding]]:
    """The document with every literal secret replaced by ``${oc.env:RLCTL_...}``, and a finding for each."""
    found = [(path, value) for path, value in document.leaves() if is_literal_secret(path, value)]
    if not found:
        return document, []
    values = copied(document.values)
    findings = []
    for path, _ in found:
        name = variable_for(path)
        _set(values, path, "${oc.env:" + name + "}")
        hint = f"export {name} before the run, and take the value out of the file"
        message = f"'{dotted(path)}' holds a secret in the open; it is replaced by ${{oc.env:{name}}}"
        findings.append(Finding("secret", Level.WARNING, message, dotted(path), document.at(path), hint))
    return replace(document, values=values, text=""), findings


def _set(values: Any, path: KeyPath, value: Any) -> None:
    for part in path[:-1]:
        values = values[part]
    values[path[-1]] = value
