"""Reaching the Hugging Face hub, or finding out in seconds that it cannot be reached.

Without a network the hub's clients retry for half a minute before they look into their cache. Inside ``hub_access`` they
go to the cache at once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies

CONNECT_SECONDS = 3.0
"""Longest wait for the hub to accept a connection."""


@contextmanager
def hub_access(*, needed: bool = True) -> Iterator[bool]:
    """Let hub clients go online inside the block if the hub answers, else make them use what is on disk.

    Args:
        needed: where false, the hub is neither asked nor used.

    Yields:
        Whether the hub may be reached.
    """
    import datasets
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    online = needed and not any(before) and hub_answers(constants.ENDPOINT)
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = not online
    try:
        yield online
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def hub_answers(endpoint: str) -> bool:
    """Return whether the hub accepts connections; behind a proxy, which may answer for it, True."""
    address = urlsplit(endpoint)
    if getproxies().get(address.scheme) or os.environ.get("ALL_PROXY"):
        return True
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((address.hostname or "", port), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
