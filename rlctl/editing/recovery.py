"""What was changed and not saved, kept in a file, so that a crash or a lost connection loses nothing."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlctl.common.errors import RlctlError
from rlctl.common.secrets import redacted
from rlctl.config.inspect import secrets
from rlctl.documents import write_atomic
from rlctl.editing.session import Change, Session
from rlctl.runs.launching import state_folder
from rlctl.runs.record import began


def folder() -> Path:
    """The folder of recovery files: ``recovery`` in rlctl's state folder."""
    return state_folder() / "recovery"


@dataclass(frozen=True, slots=True)
class Kept:
    """The changes of an editor that did not end as it should."""

    place: Path
    """The file that they are kept in."""
    file: Path | None
    """The config that was edited; None for one that was never saved."""
    dialect: str
    digest: str
    """Of the config's text as it was opened."""
    changes: tuple[Change, ...]
    """What was not saved, without secrets: these are typed anew."""
    text: str
    """The text that the changes are made to, if that is not the file: a whole text that was written, or what a save
    replaced."""
    time: float
    pid: int
    process_began: str | float | None
    """When the editor's process began, as its number may be another's by now."""
    facts: dict[str, str] = field(default_factory=dict)
    """What the person said of the run that no config says."""

    @property
    def is_of_a_dead_editor(self) -> bool:
        """Whether nobody edits it any more."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return self.pid == os.getpid() or began(self.pid) != self.process_began


def keep(session: Session) -> None:
    """Keep what is not saved; nothing where all is. What cannot be kept (a full disk) never stops a person from editing."""
    write(*contents(session))


def contents(session: Session) -> tuple[Path, str]:
    """Where, and what is to be kept, nothing where all is saved: for ``write``, which another thread may do."""
    stated = session.file is not None and session.facts
    return place_of(session), json.dumps(_content(session)) if stated or is_at_stake(session) else ""


def is_at_stake(session: Session) -> bool:
    """Whether a person would lose something: nothing is lost with a preset that was only looked at."""
    return session.is_changed and (session.file is not None or bool(session.changes))


def write(place: Path, text: str) -> None:
    """Keep what ``contents`` said."""
    with suppress(OSError, RlctlError):
        if not text:
            place.unlink(missing_ok=True)
            return
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(place, text, force=True)
        place.chmod(0o600)


def forget(session: Session) -> None:
    """Keep nothing any more: it was saved, or given up on purpose."""
    with suppress(OSError):
        place_of(session).unlink(missing_ok=True)


def kept(file: Path | None = None) -> Iterator[Kept]:
    """Unsaved work of editors that have ended, newest first; for one file, or for all."""
    found = [item for place in folder().glob("*.json") if (item := _read(place)) is not None]
    wanted = None if file is None else file.resolve()
    for item in sorted(found, key=lambda item: -item.time):
        if item.is_of_a_dead_editor and (wanted is None or item.file == wanted):
            yield item


def never_saved() -> Iterator[Kept]:
    """Unsaved work of editors that have ended, for configs without a file."""
    return (item for item in kept() if item.file is None and (item.changes or item.text))


def recover(session: Session, item: Kept) -> bool:
    """Take up what was kept, as one change that can be undone; whether the file is still the one that was edited.

    Where it is not, the changes are made to it all the same, and a person should look at the differences.

    Raises:
        RlctlError: a value does not fit any more.
    """
    same = item.digest == _digest(session)
    if session.file is None:
        session.become(item.dialect)
    if item.text:
        session.take_text(item.text)
    session.apply(item.changes)
    session.assume({**session.facts, **item.facts})
    forget_kept(item)
    return same


def forget_kept(item: Kept) -> None:
    """Give up on purpose what an editor left."""
    with suppress(OSError):
        item.place.unlink(missing_ok=True)


def _content(session: Session) -> dict[str, Any]:
    base = session.base
    hidden = {value for _, value in secrets(session.config) if value is not None}
    return {
        "file": None if session.file is None else str(session.file.path.resolve()),
        "dialect": session.dialect,
        "digest": _digest(session),
        "changes": [[change.path, change.value] for change in session.unsaved if not _tells(change.value, hidden)],
        "text": redacted(base.text) if base is not None and base is not session.file else "",
        "time": time.time(),
        "pid": os.getpid(),
        "process_began": began(os.getpid()),
        "facts": session.facts,
    }


def _tells(value: Any, hidden: set[Any]) -> bool:
    """Whether one of the hidden values is in a plain value."""
    if isinstance(value, dict):
        return any(_tells(item, hidden) for item in value.values())
    if isinstance(value, list):
        return any(_tells(item, hidden) for item in value)
    return value in hidden


def _digest(session: Session) -> str:
    text = "" if session.file is None else session.file.text
    return hashlib.sha256(text.encode()).hexdigest()


def place_of(session: Session) -> Path:
    """The file that a session's changes are kept in: each has its own."""
    return folder() / f"{session.identity}.json"


def _read(place: Path) -> Kept | None:
    """None for what is damaged: it was being written when the machine went away, and the one before it is gone."""
    try:
        data = json.loads(place.read_text())
        file = None if data["file"] is None else Path(data["file"])
        changes = tuple(Change(tuple(path), value) for path, value in data["changes"])
        return Kept(place, **{**data, "file": file, "changes": changes})
    except (OSError, ValueError, KeyError, TypeError):
        return None
