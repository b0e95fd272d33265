"""What a secret looks like: names of keys and variables that hold one, and passwords in URLs (``postgresql://user:password@host/name``).

Standard library only. What else is a secret is said by the schema (``rlctl.config.inspect.secrets``).
"""

from __future__ import annotations

import re
from typing import Any

NO_SECRET = ("", "EMPTY", "none", "None", "null")
"""Values of such keys that are no secret."""
_NAME = re.compile(
    r"(^|[_-])(api[_-]?key|secret(_?key)?|access_?key(_?id)?|token|password|passwd|credentials?)$", re.IGNORECASE
)
_VARIABLE = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")
_OF_TEXT = frozenset({"pad_token", "eos_token", "bos_token", "image_token", "stop_token"})
"""Names of tokens that a model reads."""
_BEARER = re.compile(r"[\w.~+/=-]{8,}", re.ASCII)
"""A token that opens something (RFC 6750, section 2.1), unlike ``<answer>``."""
_PASSWORD = re.compile(r"(://[^/@\s:]*:)[^/@\s]+@")


def is_secret_name(name: str) -> bool:
    """Whether a key or a variable of a script may hold a secret, by its name alone; of ``a.b.name`` the last part counts."""
    last = name.rpartition(".")[2]
    return _NAME.search(last) is not None and last.lower() not in _OF_TEXT


def is_secret(name: str, value: Any) -> bool:
    """Whether a value is a secret, by its look and the name that it has. Names of environment variables are in capitals."""
    if has_password(value):
        return True
    if not isinstance(value, str) or value in NO_SECRET:
        return False
    if name.isupper():
        return _VARIABLE.search(name) is not None
    return is_secret_name(name) and (not name.lower().endswith("token") or _BEARER.fullmatch(value) is not None)


def has_password(value: Any) -> bool:
    """Whether a value is a URL with a password in it."""
    return isinstance(value, str) and _PASSWORD.search(value) is not None


def without_passwords(text: str) -> str:
    """Text for people to read: ``***`` in the place of every password of a URL."""
    return _PASSWORD.sub(r"\1***@", text) if "://" in text else text
