"""Results that show themselves in a notebook, in the words and the HTML of the command line."""

from __future__ import annotations

from importlib import import_module

PAGES = "rlctl.cli.pages"
"""The module of the front end that writes them: loaded by name, because what is below a front end does not import it."""


class InNotebook:
    """A result of the Python API."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """The result as a part of a notebook."""
        return str(import_module(PAGES).notebook(self))
