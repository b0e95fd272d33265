"""Lists of overrides as files: one a line, as ``.hydra/overrides.yaml``, or pasted from a command line without the command."""

from __future__ import annotations

import re

from rlctl.common.errors import DocumentError, Location
from rlctl.common.messages.reasons import said
from rlctl.documents.overrides import Override, read_overrides
from rlctl.documents.yaml_read import read_yaml

_KEY = r"(?:\+{1,2})?[A-Za-z_][\w./@:-]*(?:\[\d+\])*"
_LINE = re.compile(rf"(?:{_KEY}=.*|~[A-Za-z_][\w./@-]*|--config-(?:name|path|dir)=.*)", re.DOTALL)
_DOTTED = re.compile(r"--config|(?:\+{1,2})?[A-Za-z_]\w*[./@][\w./@:-]*=|[+~]")
_ITEM = re.compile(r"- ")
_HOME = re.compile(r"(?<=[=\[,])\s*(~/[^,\]\[{}'\"]*|<[\w-]+>/[^,\]\[{}'\"]*)(?=$|[,\]])")


def looks_like_overrides(text: str, *, yaml: bool) -> bool:
    """Whether a text is a list of overrides and nothing else.

    Args:
        text: the text.
        yaml: whether its name says that it is YAML, where a list has ``- `` before each item.
    """
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#") and line != "---"]
    if not lines:
        return False
    if _ITEM.match(lines[0]):
        return _is_list_of_overrides(text)
    if yaml:
        return False
    return all(_LINE.match(line) for line in lines) and any(_DOTTED.match(line) for line in lines)


def _is_list_of_overrides(text: str) -> bool:
    try:
        items = _of_yaml(text, "")
    except DocumentError:
        return False
    return all(_LINE.fullmatch(item) for item, _ in items)


def with_quoted_home(text: str) -> str:
    """An override in which a path that starts with ``~/``, which a shell would expand, needs no quotes."""
    return _HOME.sub(lambda match: f"'{match[1]}'", text) if "~/" in text or "<" in text else text


def read_override_list(text: str, name: str) -> list[Override]:
    """Read a list of overrides.

    Raises:
        DocumentError: one of them is no override.
    """
    return read_overrides([(with_quoted_home(item), at) for item, at in list_items(text, name)], name)


def list_items(text: str, name: str) -> list[tuple[str, Location]]:
    """The items of a list of overrides as they are written; options such as ``--config-name=x`` may be among them.

    Raises:
        DocumentError: an item is no text.
    """
    if looks_like_overrides(text, yaml=True):
        return _of_yaml(text, name)
    lines = [(line.strip(), number) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(line, number) for line, number in lines if line and not line.startswith("#")]
    if any(line.endswith("\\") for line, _ in lines) or any(
        len(line.split()) > 1 and _several(line) for line, _ in lines
    ):
        return _of_shell(text, name)
    return [(line, Location(name, number)) for line, number in lines]


def _of_yaml(text: str, name: str) -> list[tuple[str, Location]]:
    document = read_yaml("overrides:\n" + text.removeprefix("---").lstrip("\n"), name)
    items = document.values["overrides"]
    skipped = len(text) - len(text.removeprefix("---").lstrip("\n"))
    before = text[:skipped].count("\n") - 1
    found = []
    for index, item in enumerate(items):
        at = Location(name, document.at(("overrides", index)).line + before)
        if not isinstance(item, str):
            raise DocumentError(
                said("item {value} is no override", value=index + 1), at=at, hint="put it in quotes: - 'key=value'"
            )
        found.append((item, at))
    return found


def _several(line: str) -> bool:
    """Whether a line holds several overrides, as a command line does."""
    return len(re.findall(rf"(?:^|\s){_KEY}=", line)) > 1


def _of_shell(text: str, name: str) -> list[tuple[str, Location]]:
    """The words of a command line whose command was not copied."""
    from rlctl.shell.run import read_script
    from rlctl.shell.text import plain

    lines = re.sub(r"[ \t]*\\?\n", " \\\\\n", text.rstrip().removesuffix("\\"))
    reading = read_script(f"overrides {lines}", name, environment={})
    return [(plain(word), word[0].at) for command in reading.commands for word in command.words[1:] if word]
