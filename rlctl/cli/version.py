"""``rlctl version``."""

from __future__ import annotations

from rlctl import __version__
from rlctl.cli import output


def version() -> None:
    """Print the version of rlctl.

    [bold]Examples[/bold]

    [cyan]rlctl version[/cyan]

    [cyan]rlctl --version[/cyan]
    """
    output.text(f"rlctl {__version__}")
