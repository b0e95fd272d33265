"""Completes a path while it is typed; imports no widget, because the start page has it in its first frame."""

from __future__ import annotations

from textual.suggester import Suggester

from rlctl.common.filenames import expanded, is_folder


class PathSuggester(Suggester):
    """Completes the name of a file or folder."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        return completed(value)


def completed(value: str) -> str | None:
    """The first path that begins with what was typed; a folder ends in ``/``."""
    folder, _, start = value.rpartition("/")
    place = expanded(f"{folder}/" if "/" in value else ".")
    if not value or "://" in value or "${" in value:
        return None
    try:
        found = min((entry for entry in place.iterdir() if entry.name.startswith(start)), default=None)
    except (OSError, ValueError):
        return None
    if found is None:
        return None
    return value[: len(value) - len(start)] + found.name + ("/" if is_folder(found) else "")
