"""What people give: a YAML file and what it includes, a launch script, a list of overrides, a folder that Hydra left.

``gather`` takes any of them to an ``Input``: one document, the changes that belong to it, and what is known about both before any
dialect reads them. Nothing here knows what a key means.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from rlctl.common.errors import DocumentError, UsageError
from rlctl.common.filenames import SCRIPT_ENDINGS, YAML_ENDINGS
from rlctl.common.messages.reasons import said
from rlctl.documents import read_text, read_yaml
from rlctl.documents.files import STDIN, shown_name
from rlctl.shell.override_lists import looks_like_overrides
from rlctl.translation.sources.files import composed, hydra_left, listed
from rlctl.translation.sources.inputs import Input, Script
from rlctl.translation.sources.other_tools import refuse_keys, refuse_other_language, refuse_text

_HEAD = 64 * 1024
_DOCUMENT_ENDINGS = (*YAML_ENDINGS, ".json")
_YAML_LINE = re.compile(r"""---|\{|"[^"]*"\s*:|'[^']*'\s*:|[\w.@/<$-][^=\s]*\s*:(?:\s|$)""")


def gather(source: str | Path, script: Script | None = None) -> Input:
    """Read a source (``-`` is standard input) with everything it includes.

    Raises:
        DocumentError: it, or something that it includes, is missing or cannot be read.
        UsageError: there is something on the command line that only a launch script takes.
    """
    how = script or Script(environment=os.environ)
    path = Path(source)
    if str(source) != STDIN and path.name == ".hydra" and path.is_dir():
        path = path / "config.yaml"
        source = path
    given = gather_text(read_text(source), shown_name(source), how)
    if path.name == "config.yaml" and path.parent.name == ".hydra":
        return hydra_left(given.document, path.parent)
    return given


def gather_text(text: str, name: str, script: Script | None = None) -> Input:
    """As ``gather``, for a text; its name is what messages call it, and where it includes from.

    Raises:
        DocumentError: it, or something that it includes, cannot be read.
        UsageError: there is something that only a launch script takes.
    """
    how = script or Script(environment=os.environ)
    refuse_other_language(text, name)
    if is_script(text, name):
        from rlctl.translation.sources.scripts import read_launch

        try:
            return read_launch(text, name, how)
        except DocumentError as error:
            refuse_text(text, name, error)
            raise
    _refuse_script_options(how, name)
    if looks_like_overrides(text, yaml=name.endswith(_DOCUMENT_ENDINGS)):
        return listed(text, name)
    document = read_yaml(text, name)
    refuse_keys(document)
    return composed(document)


def is_script(text: str, name: str) -> bool:
    """Whether a text is a launch script: by its ending or first line, or because it is neither YAML nor a list of overrides."""
    if name.endswith(SCRIPT_ENDINGS) or re.match(r"#!.*\b(?:ba|z|da)?sh\b", text):
        return True
    if name.endswith(_DOCUMENT_ENDINGS) or looks_like_overrides(text, yaml=False):
        return False
    first = next((line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    return bool(first) and not _YAML_LINE.match(first) and not first.startswith(("- ", "%"))


def is_script_file(source: str | Path) -> bool:
    """Whether a file is a launch script, by its ending or its first line; of standard input nothing is read."""
    if str(source).endswith(SCRIPT_ENDINGS):
        return True
    try:
        with Path(source).open("rb") as file:
            return is_script(file.read(_HEAD).decode("utf-8", "replace"), str(source))
    except (OSError, ValueError):
        return False


def _refuse_script_options(how: Script, name: str) -> None:
    if how.traced:
        raise UsageError(said("--trace runs a launch script, but {name} is not one", name=name))
    if how.variables:
        raise UsageError(
            said("--env sets a variable of a launch script, but {name} is not one", name=name),
            hint="set it before rlctl",
        )


__all__ = ["Input", "Script", "gather", "gather_text", "is_script", "is_script_file"]
