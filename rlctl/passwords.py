"""Passwords in URLs (``postgresql://user:password@host/name``): whether there is one, and text without them.

Standard library only. What else is a secret is said by the schema (``rlctl.config.inspect.secrets``).
"""

from __future__ import annotations

import re
from typing import Any

_PASSWORD = re.compile(r"(://[^/@\s:]*:)[^/@\s]+@")


def has_password(value: Any) -> bool:
    """Whether a value is a URL with a password in it."""
    return isinstance(value, str) and _PASSWORD.search(value) is not None


def without_passwords(text: str) -> str:
    """Text for people to read: ``***`` in the place of every password of a URL."""
    return _PASSWORD.sub(r"\1***@", text) if "://" in text else text
