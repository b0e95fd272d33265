"""What ``--address`` means: a cluster that this machine belongs to, or the job server of one that it does not.

auto, HOST:PORT         attached: the controller runs here, on a node of the cluster
http://HOST:8265        a Ray Job: the controller runs on the cluster's head
ray://HOST:10001        the same: a controller is no client that drives a cluster from outside
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from rlctl.common.errors import UsageError
from rlctl.common.messages.reasons import said

DASHBOARD_PORT = 8265
"""Where Ray's job server listens unless it was told otherwise."""
_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:]+\]|[\w.-]+):\d+")


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a cluster, as ``--cluster`` gives it."""

    text: str
    """As it was given."""
    jobs: str | None = None
    """URL of the job server; None where the controller runs here."""
    note: str = ""
    """What was made of it, where that is not what it says."""


def address_of(text: str) -> Address:
    """Read an address.

    Raises:
        UsageError: it is none.
    """
    if text == "auto" or _HOST_AND_PORT.fullmatch(text):
        return Address(text)
    scheme, host = _parts(text)
    if scheme in ("http", "https") and host:
        return Address(text, text.rstrip("/"))
    if scheme == "ray" and host:
        jobs = f"http://{f'[{host}]' if ':' in host else host}:{DASHBOARD_PORT}"
        return Address(
            text,
            jobs,
            said(
                "{text} is a Ray Client address, which would tie the run to your connection. rlctl submits a job to {jobs} "
                "instead (another port: --address http://{host}:PORT)",
                text=text,
                jobs=jobs,
                host=host,
            ),
        )
    raise UsageError(
        said("{text!r} is not the address of a Ray cluster (--address, runtime.ray.address)", text=text),
        hint="write auto or HOST:PORT on a node of the cluster, http://HOST:8265 from anywhere else",
    )


def _parts(text: str) -> tuple[str, str]:
    try:
        url = urlsplit(text)
        return url.scheme, url.hostname or ""
    except ValueError:
        return "", ""
