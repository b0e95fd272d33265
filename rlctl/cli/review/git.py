"""Two commits of a git repository: what differs between them, and their text files in folders of their own.

Git's own objects are read, so nothing that the commits contain is executed: no hook, no filter, no external diff.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from rlctl.common.errors import RunError, UsageError
from rlctl.common.filenames import SCRIPT_ENDINGS, YAML_ENDINGS
from rlctl.common.messages.reasons import said
from rlctl.common.records import record
from rlctl.common.terminal import safe

LARGEST_FILE = 1 << 20
"""Bytes of a file that is read; configs are far smaller."""
LARGEST_TREE = 200 << 20
"""Bytes of all files of one commit."""
ENDINGS = (*YAML_ENDINGS, *SCRIPT_ENDINGS, ".py", ".json", ".jinja", ".env", ".txt")
"""Endings of what a config may be read from."""
_SETTINGS = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.quotePath=false", "diff.renameLimit=2000")
_HUNK = re.compile(rb"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


@record
class Change:
    """A file that differs between two commits."""

    file: str
    """Its name after the change, or before it if it is deleted."""
    before: str
    """Its name before the change; empty if it is new."""
    status: str
    """``added``, ``deleted``, ``modified`` or ``renamed``."""


class Repository:
    """The git repository around a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _git(self, *words: str, given: bytes | None = None) -> bytes:
        """What a git command prints.

        Raises:
            UsageError: git is not installed.
            RunError: it fails.
        """
        around = {
            **os.environ,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "LC_ALL": "C.UTF-8",
        }
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        try:
            done = subprocess.run(
                ["git", *settings, *words], cwd=self.folder, input=given, capture_output=True, env=around, check=False
            )
        except FileNotFoundError:
            raise UsageError("git is not installed", hint="install git; rlctl review reads commits with it") from None
        if done.returncode:
            told = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
            raise RunError(said("git {command} failed: {reason}", command=words[0], reason=safe(told)))
        return done.stdout

    def commit(self, revision: str) -> str:
        """The commit that a revision names.

        Raises:
            UsageError: there is none, or the folder is in no repository.
        """
        try:
            return self._git("rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").decode().strip()
        except RunError as error:
            inside = self._answers("rev-parse", "--git-dir")
            if not inside:
                raise UsageError(error.message, hint="run it in a git repository") from None
            hint = self._deepen if self._is_shallow() else "name a branch, a tag or a commit"
            raise UsageError(said("there is no commit {revision!r} here", revision=revision), hint=hint) from None

    _deepen = (
        "this clone is shallow; fetch the whole history: git fetch --unshallow, fetch-depth: 0 for actions/checkout, "
        "GIT_DEPTH: 0 in GitLab CI"
    )

    def merge_base(self, base: str, head: str) -> str:
        """The last commit that two commits have in common.

        Raises:
            UsageError: there is none.
        """
        try:
            return self._git("merge-base", base, head).decode().split()[0]
        except RunError:
            hint = self._deepen if self._is_shallow() else "compare branches that have a commit in common"
            raise UsageError(
                said("{base} and {head} have no commit in common", base=base[:12], head=head[:12]), hint=hint
            ) from None

    def _answers(self, *words: str) -> bytes:
        try:
            return self._git(*words)
        except RunError:
            return b""

    def _is_shallow(self) -> bool:
        return self._answers("rev-parse", "--is-shallow-repository").strip() == b"true"

    def changes(self, base: str, head: str) -> list[Change]:
        """The files that differ, a moved one as renamed."""
        told = self._diff("--name-status", "-z", base, head).split(b"\0")
        found, place = [], 0
        while place + 1 < len(told):
            kind, names = told[place][:1], [os.fsdecode(name) for name in told[place + 1 : place + 3]]
            if kind in b"RC":
                found.append(Change(names[1], names[0], "renamed" if kind == b"R" else "added"))
                place += 3
                continue
            status = {b"A": "added", b"D": "deleted"}.get(kind, "modified")
            found.append(Change(names[0], "" if status == "added" else names[0], status))
            place += 2
        return found

    def changed_lines(self, base: str, head: str, changes: Sequence[Change]) -> Mapping[str, frozenset[int]]:
        """The lines of each file that are new or changed."""
        found: dict[str, frozenset[int]] = defaultdict(frozenset)
        for change in changes:
            if change.status == "deleted":
                continue
            names = dict.fromkeys((change.before or change.file, change.file))
            lines: set[int] = set()
            for first, count in _HUNK.findall(self._diff("-U0", base, head, "--", *names)):
                lines.update(range(int(first), int(first) + int(count or 1)))
            found[change.file] = frozenset(lines)
        return found

    def _diff(self, *words: str) -> bytes:
        options = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all", "--find-renames")
        return self._git("--literal-pathspecs", "diff", *options, *words)

    def write_tree(self, commit: str, folder: Path) -> list[str]:
        """Write the text files of a commit below a folder, without links, submodules and large files.

        Returns:
            The names that are too large to be read.
        """
        wanted: list[tuple[str, str]] = []
        large, total = [], 0
        for entry in self._git("ls-tree", "-r", "-z", "--long", "--full-tree", commit).split(b"\0"):
            facts, _, raw = entry.partition(b"\t")
            name = os.fsdecode(raw)
            if not facts.startswith(b"100") or not name.endswith(ENDINGS) or not is_inside(name):
                continue
            _, _, identity, size = facts.split()
            if int(size) > LARGEST_FILE or total + int(size) > LARGEST_TREE:
                large.append(name)
                continue
            total += int(size)
            wanted.append((name, identity.decode()))
        told = self._git("cat-file", "--batch", given="".join(f"{identity}\n" for _, identity in wanted).encode())
        place = 0
        for name, _ in wanted:
            head, _, _ = told[place : place + 200].partition(b"\n")
            place += len(head) + 1
            if head.endswith(b" missing"):  # of a partial clone
                large.append(name)
                continue
            length = int(head.split()[2])
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(told[place : place + length])
            place += length + 1
        return large


def is_inside(name: str) -> bool:
    """Whether a name of a file in a commit stays below the folder that it is written to."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and not {"..", ".", ".git"} & set(parts)
