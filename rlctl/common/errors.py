"""The exceptions rlctl raises on purpose, and the exit codes of its commands.

    RlctlError              anything a user can act on; shown without a traceback, exit code 1
    ├── UsageError          the command line is wrong; exit code 2
    ├── DocumentError       text that cannot be read as YAML, overrides or a script
    ├── ConfigError         a key, type or value the canonical config does not allow
    ├── TranslationError    a config that cannot be read from, or written to, a dialect
    ├── PlanError           a config that cannot be placed or divided as it asks
    ├── RunError            a run that cannot start, go on or be resumed
    ├── SandboxUnavailable  untrusted code cannot be isolated on this machine; nothing was run
    └── MissingDependency   a package that is not installed; the hint says what to install

To add one: subclass the nearest, keep the message complete without the class name (what was got, what was
expected), and put what to do in ``hint``. They cross process boundaries, so they must stay picklable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from rlctl.common.messages import text
from rlctl.common.messages.reasons import sequence, together, translated
from rlctl.common.secrets import without_secrets


class ExitCode(IntEnum):
    """Exit statuses, the same for every command."""

    OK = 0
    """Clean."""
    FAILED = 1
    """Nothing was done, or what was started failed."""
    USAGE = 2
    """The command line itself is wrong."""
    FINDINGS = 3
    """Done, with findings worth reading."""


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a user's text; ``line`` and ``column`` count from 1, 0 means unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class RlctlError(Exception):
    """Something the user can act on: what is wrong, where, and what to do. URLs in it lose their passwords."""

    exit_code = ExitCode.FAILED

    def __init__(self, message: str, *, at: Location | None = None, hint: str = "") -> None:
        self.message = without_secrets(message)
        super().__init__(self.message)
        self.at = at
        self.hint = without_secrets(hint)

    @property
    def account(self) -> str:
        """The place and the message, without the hint."""
        return sequence(f"{self.at}: ", self.message) if self.at else self.message

    def __str__(self) -> str:
        return sequence(self.account, "\n  ", self.hint) if self.hint else self.account

    @property
    def shown_account(self) -> str:
        """``account`` in the reader's language."""
        return translated(self.account)

    @property
    def shown(self) -> str:
        """Where, what, and what to do, in the reader's language."""
        return translated(str(self))

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.at, self.hint))


def _rebuild(kind: type[RlctlError], message: str, at: Location | None, hint: str) -> RlctlError:
    return kind(message, at=at, hint=hint)


class UsageError(RlctlError):
    """The command line is wrong."""

    exit_code = ExitCode.USAGE


class DocumentError(RlctlError):
    """Text that cannot be read as YAML, overrides or a script."""


class ConfigError(RlctlError):
    """A key, type or value the canonical config does not allow."""


class TranslationError(RlctlError):
    """A config that cannot be read from, or written to, a dialect."""


class PlanError(RlctlError):
    """A config that cannot be placed or divided as it asks."""


class RunError(RlctlError):
    """A run that cannot start, go on or be resumed."""


class SandboxUnavailable(RlctlError):
    """Untrusted code cannot be isolated on this machine; nothing was run."""


class MissingDependency(RlctlError):
    """A package that is not installed; the hint says what to install."""


def shown(error: Exception) -> str:
    """An exception in the reader's language, if it is one of rlctl's."""
    return error.shown if isinstance(error, RlctlError) else str(error)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for the known name closest to ``name``, or an empty string."""
    found = closest(name, known)
    return text("did-you-mean", name=found) if found else ""


def nearest_and(name: str, known: Iterable[str], advice: str) -> str:
    """``did you mean 'x'?`` if a known name is close to ``name``, then what to do."""
    return together([nearest(name, known), advice], {"en": " ", "zh": ""})


def closest(name: str, known: Iterable[str]) -> str:
    """The known name closest to ``name``; empty if none is close."""
    import difflib  # only once something is misspelled

    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), "")
