"""Which keys hold secrets, and how a literal one is replaced before anything else sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rlctl.common.report import Finding, Level, finding
from rlctl.common.secrets import expression, has_password, is_secret_name, is_token, replace_passwords, replace_tokens
from rlctl.common.secrets import is_secret as looks_secret
from rlctl.documents import Document, KeyPath, dotted
from rlctl.documents.paths import copied

_DEFAULT = re.compile(r"\$\{oc\.env:(?P<name>\w+),(?P<quote>['\"]?)(?P<default>[^{}'\"]*)(?P=quote)\}", re.ASCII)
_ASSIGNED = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>[^\s$]+)", re.ASCII)


def is_secret(path: Sequence[Any]) -> bool:
    """Whether the last part of a key names a secret."""
    return is_secret_name(_name(path))


def without_literal(path: Sequence[Any], value: Any) -> tuple[str, str] | None:
    """A text without the secret that it holds in the open, and the variable that stands for the secret; None without one.

    Only the secret itself is replaced: a password in a URL, a token in a command, the value of ``NAME=VALUE``, the default
    of ``${oc.env:NAME,default}``.
    """
    if not isinstance(value, str):
        return None
    name = variable_for(path)
    for match in _DEFAULT.finditer(value):
        if any(looks_secret(holder, match["default"]) for holder in (match["name"], _name(path))):
            text = value.replace(match[0], expression(match["name"]))
            return (without_literal(path, text) or (text,))[0], match["name"]
    if has_password(value):
        return replace_passwords(value, expression(f"{name}_PASSWORD")), f"{name}_PASSWORD"
    if "${" not in value and is_secret(path) and looks_secret(_name(path), value):
        return expression(name), name
    if (assigned := _ASSIGNED.fullmatch(value)) and looks_secret(assigned["name"], assigned["value"]):
        return f"{assigned['name']}={expression(assigned['name'])}", assigned["name"]
    return (replace_tokens(value, expression(name)), name) if is_token(value) else None


def _name(path: Sequence[Any]) -> str:
    return next((str(part) for part in reversed(path) if not isinstance(part, int)), "")


def variable_for(path: Sequence[Any]) -> str:
    """The environment variable that stands for a secret at a place."""
    return "RLCTL_" + re.sub(r"\W+", "_", "_".join(str(part) for part in path[-2:])).upper()


def without_literals(document: Document) -> tuple[Document, list[Finding]]:
    """The document with every literal secret replaced by ``${oc.env:RLCTL_...}``, and a finding for each."""
    found = [(path, made) for path, value in _texts(document) if (made := without_literal(path, value))]
    if not found:
        return document, []
    values = copied(document.values)
    findings = []
    for path, (text, name) in found:
        _set(values, path, text)
        findings.append(
            finding(
                "secret", Level.WARNING, dotted(path), document.at(path), expression=expression(name), variable=name
            )
        )
    return replace(document, values=values, text=""), findings


def _texts(document: Document) -> Iterator[tuple[KeyPath, str]]:
    """Every text of a document, those in lists too."""
    for path, value in document.leaves():
        for place, item in _items(path, value):
            if isinstance(item, str):
                yield place, item


def _items(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    if not isinstance(value, list):
        yield path, value
        return
    for index, item in enumerate(value):
        yield from _items((*path, index), item)


def _set(values: Any, path: KeyPath, value: Any) -> None:
    for part in path[:-1]:
        values = values[part]
    values[path[-1]] = value
