"""``rlctl version``, and the version of any package without importing it."""

from __future__ import annotations

from importlib import metadata

from rlctl import __version__
from rlctl.cli import output


def version() -> None:
    """Print the version of rlctl.

    [bold]Examples[/bold]

    [cyan]rlctl version[/cyan]

    [cyan]rlctl --version[/cyan]
    """
    output.text(f"rlctl {__version__}")


def installed(package: str) -> str | None:
    """The version of an installed package; None where it is not."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
