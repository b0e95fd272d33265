"""What a secret looks like, how one of the environment is written, and text without any.

A variable of the environment that holds a secret is never read as its value: it stays ``${oc.env:NAME}`` in configs, plans
and messages, and only a run's own processes put the value in (``rlctl.config.secrets.revealed``). Standard library only.
What else is a secret is said by the schema (``rlctl.config.inspect.secrets``).
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Any

WITHHELD = "\0withheld"
"""The value of a variable that stands for a secret of the file, whatever the environment has."""
NO_SECRET = ("", "EMPTY", "none", "None", "null")
"""Values of such keys that are no secret."""
_NAME = re.compile(
    r"(^|[_-])(api[_-]?key|secret(_?key)?|(access|private|auth|account|subscription|signing)[_-]?key(_?id)?|token|password|passwd|passphrase|credentials?|pat|(set-)?cookies?|authorization)$|[_-]pwd$",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|_PAT|_?PASS|_AUTH|COOKIES?)$")
_OF_TEXT = frozenset({"pad_token", "eos_token", "bos_token", "image_token", "stop_token"})
"""Names of tokens that a model reads."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BEARER = re.compile(r"(?=.*[^\d.,])[\w.~+/=-]{8,}", re.ASCII)
"""A token that opens something (RFC 6750, section 2.1), unlike ``<answer>`` and unlike a number of tokens."""
_NUMBER = re.compile(r"[\d_.,]+")
_WORD = re.compile(r"[a-z]+(?:_[a-z]+)*|\d+")
"""The value of a variable such as ``PROMPT_KEY``, which names a column."""
_REFERENCE = re.compile(r"\$\{oc\.env:\w+(?:,(?:null|'')?)?\}", re.ASCII)
_PLACEHOLDER = re.compile(
    r"<[^<>]*>|\{\{?[^{}]*\}?\}|\[[^\[\]]*\]|x{3,}|\*{3,}|\.{3}|…"
    r"|(?:your|insert|enter|replace)[ _-]?[\w -]*(?:key|token|secret|password|here)",
    re.IGNORECASE,
)
"""What files have in place of a secret."""
_PASSWORD = re.compile(r"(://[^/@\s:]*:)(?!\*\*\*@|\$\{)[^/@\s]+@")
_QUERY = re.compile(r"""(://[^\s?#'"]*\?)([^\s#'"]+)""")
_SIGNED = re.compile(r"(^|[_-])(sig|signature|security-token|jwt)$", re.IGNORECASE)
"""Further names of parameters of an URL: of presigned ones (S3, GCS), of shared access signatures (Azure)."""
_KNOWN_TOKENS = (
    r"hf_[A-Za-z0-9]{20,}",  # Hugging Face
    r"sk-[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic, DeepSeek
    r"gh[pousr]_[A-Za-z0-9]{20,}",
    r"github_pat_\w{20,}",
    r"glpat-[\w-]{16,}",
    r"xox[abeprs]-[\w-]{10,}",  # Slack
    r"(?:AKIA|ASIA)[0-9A-Z]{16}",  # AWS
    r"AIza[\w-]{35}",  # Google
    r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}",  # a JSON Web Token
    r"[Bb]earer [\w.~+/-]{16,}",
    r"AccountKey=[\w+/]{20,}",  # a connection string of Azure
)
_TOKEN = re.compile(rf"(?<![\w-])(?:{'|'.join(_KNOWN_TOKENS)})(?![\w-])", re.ASCII)
_PRIVATE_KEY = "-----BEGIN "
_SHORTEST = 8
"""Characters that a secret of the environment has at least, to be looked for in other text."""


def is_secret_name(name: str) -> bool:
    """Whether a key or a variable of a script may hold a secret, by its name alone; of ``a.b.name`` the last part counts."""
    last = _CAMEL.sub("_", name.rpartition(".")[2])
    return _NAME.search(last) is not None and last.lower() not in _OF_TEXT


def is_secret(name: str, value: Any) -> bool:
    """Whether a key, or a variable of the environment or of a script, holds a secret, by its name and the look of its value."""
    if has_password(value) or is_token(value):
        return True
    if not isinstance(value, str) or value in NO_SECRET or is_reference(value) or _PLACEHOLDER.fullmatch(value):
        return False
    if name.lower().endswith("pwd") and value.startswith(("/", ".", "~")):  # a folder, as in $PWD
        return False
    if name.isupper():
        named = is_secret_name(name) or (_VARIABLE.search(name) is not None and not _WORD.fullmatch(value))
        return named and not (name.endswith("TOKEN") and (_NUMBER.fullmatch(value) or "<" in value))
    return is_secret_name(name) and (not name.lower().endswith("token") or _BEARER.fullmatch(value) is not None)


def is_reference(value: Any) -> bool:
    """Whether a value only names where the environment holds it, as ``${oc.env:NAME}``."""
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def has_password(value: Any) -> bool:
    """Whether a value is a URL with a password in it, or with a signature or a key in its query."""
    if not isinstance(value, str) or "://" not in value:
        return False
    return _PASSWORD.search(value) is not None or any(_opens(match[2]) for match in _QUERY.finditer(value))


def _opens(query: str) -> bool:
    """Whether a parameter of a query opens something."""
    pairs = (pair.partition("=") for pair in re.split("[&;]", query))
    return any(
        len(value) >= _SHORTEST
        and not value.startswith(("$", "*", "<"))
        and not _NUMBER.fullmatch(value)
        and (is_secret_name(name) or _SIGNED.search(name) is not None)
        for name, _, value in pairs
    )


def is_token(value: Any) -> bool:
    """Whether a value holds a token in a format of a well-known service, or a private key."""
    return isinstance(value, str) and (_TOKEN.search(value) is not None or value.lstrip().startswith(_PRIVATE_KEY))


def replace_passwords(text: str, by: str) -> str:
    """Text with something else in place of every password of a URL, and of every query that opens something."""
    text = _PASSWORD.sub(lambda match: f"{match[1]}{by}@", text)
    return _QUERY.sub(lambda match: f"{match[1]}{by}" if _opens(match[2]) else match[0], text)


def replace_tokens(text: str, by: str) -> str:
    """Text with something else in place of every token of a well-known service, and of a private key as a whole."""
    return by if text.lstrip().startswith(_PRIVATE_KEY) else _TOKEN.sub(lambda match: by, text)


def expression(name: str) -> str:
    """How a variable of the environment is written in a config."""
    return f"${{oc.env:{name}}}"


def concealed(name: str, value: str) -> str:
    """The value of a variable of the environment as rlctl reads it: the expression itself for a secret."""
    return expression(name) if value == WITHHELD or is_secret(name, value) else value


def without_secrets(text: str) -> str:
    """Text for people to read: without passwords of URLs, tokens of well-known services, and secrets of the environment.

    A text that has none is returned as it is, so a reason stays one.
    """
    if len(text) < _SHORTEST:
        return text
    found, names = _of_now()
    safe = found.sub(lambda match: expression(names[match[0]]), text) if found else text
    safe = replace_tokens(replace_passwords(safe, "***") if "://" in safe else safe, "***")
    return text if safe == text else safe


def _of_now() -> tuple[re.Pattern[str] | None, dict[str, str]]:
    """The pattern that matches the secrets of the current environment, and their names by value.

    Cached: a report asks tens of thousands of times.
    """
    held: dict[bytes, bytes] = getattr(
        os.environ, "_data", {}
    )  # plain, where ``items`` decodes every variable at each call
    if held != _known.environment or not held:
        _known.environment, _known.found = dict(held), _of_environment(frozenset(os.environ.items()))
    return _known.found


class _Known:
    """The secrets of the environment as it was when they were looked for."""

    environment: dict[bytes, bytes]
    found: tuple[re.Pattern[str] | None, dict[str, str]]


_known = _Known()
_known.environment, _known.found = {}, (None, {})


@lru_cache(maxsize=4)
def _of_environment(variables: frozenset[tuple[str, str]]) -> tuple[re.Pattern[str] | None, dict[str, str]]:
    """A pattern that matches the secrets among variables, the longest first, and their names by value."""
    names = {
        value: name
        for name, value in sorted(variables, reverse=True)
        if len(value) >= _SHORTEST and is_secret(name, value)
    }
    longest = sorted(names, key=len, reverse=True)
    return (re.compile("|".join(map(re.escape, longest))), names) if longest else (None, names)


_ASSIGNMENT = re.compile(  # names have an end: else a long word would take the square of its length
    r"""(?P<name>[A-Za-z_][\w.-]{0,99})(?P<sign>['"]?\s*(?::-|:=|[:=])\s*)(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s'"#,;&|(){}[\]$][^\s'"#,;&|})]*)"""
)
_LOGIN = re.compile(r"\b((?:wandb|swanlab|huggingface-cli|hf)\s+(?:auth\s+)?login\b)[^\n;&|]+")
_IN_URL = re.compile(r"(://[^/@\s:$]*:)(?!\$)[^/@\s]+@")
_HEADER = re.compile(r"""\b((?:Set-)?Cookie|Authorization|X-Api-Key)(\s*:\s*)(?![$<])[^\n'"]+""", re.IGNORECASE)
_OPTION = re.compile(r"(--[\w-]{0,99}(?:token|api[_-]?key|password|secret)(?:\s+|=))(?!\$)[^\s;&|]+", re.IGNORECASE)


def redacted(text: str) -> str:
    """Text, YAML or a script, with literal keys, tokens and passwords replaced."""
    text = replace_tokens(replace_passwords(_IN_URL.sub(r"\1<redacted>@", text), "<redacted>"), "<redacted>")
    text = _HEADER.sub(r"\1\2<redacted>", text)
    text = _LOGIN.sub(r"\1 <redacted>", text)
    text = _OPTION.sub(r"\1<redacted>", text)
    return _ASSIGNMENT.sub(_without_value, text)


def _without_value(match: re.Match[str]) -> str:
    value = match["value"].strip("'\"")
    if not is_secret_name(match["name"]) or value.startswith("$") or value in NO_SECRET:
        return match[0]
    return f"{match['name']}{match['sign']}<redacted>"
