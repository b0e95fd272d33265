"""What a rule reports, and how bad each code is; the texts are messages of ``rlctl/common/messages/checks.*.ftl``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rlctl.common.messages import code_of, optional, text
from rlctl.common.report import Fix, Level
from rlctl.documents.paths import KeyPath, dotted
from rlctl.planning.arithmetic import Cluster


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that a rule found: a message of the catalogue, the key that it is about, and values that would solve it."""

    id: str
    """Of the message: a code of ``LEVELS``, or one of its variants, as ``no-data_path``."""
    key: KeyPath
    params: Mapping[str, Any]
    """The variables of the message."""
    fixes: tuple[Fix, ...] = ()
    """Nearest first."""

    @property
    def code(self) -> str:
        return code_of(self.id)

    @property
    def message(self) -> str:
        return text(self.id, **self._values)

    @property
    def hint(self) -> str:
        """What to do; ``{fix}`` in it stands for the fixes in words, ``{first}`` for the nearest."""
        return optional(f"{self.id}.hint", **self._values)

    @property
    def _values(self) -> dict[str, Any]:
        return {"key": dotted(self.key), "fix": "{fix}", "first": "{first}", **self.params}


def problem(id_: str, key: KeyPath, fixes: Iterable[Fix] = (), /, **params: Any) -> Problem:
    """A problem; the variables of its message are given by name."""
    return Problem(id_, key, params, tuple(fixes))


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What is known beside the config."""

    cluster: Cluster | None = None
    """The machines it is checked for, None while unknown."""
    symbolic: Collection[KeyPath] | None = None
    """Keys written as ``${...}``; None where that is not known."""
    silent: Collection[KeyPath] = ()
    """Keys that hold what a dialect's silence means: nobody wrote them."""

    def is_silent(self, path: KeyPath) -> bool:
        """Whether nobody wrote a key: it, or everything below it, holds a dialect's default."""
        return any(known[: len(path)] == path for known in self.silent)


_E, _W, _N = Level.ERROR, Level.WARNING, Level.NOTE

LEVELS: Mapping[str, Level] = {
    "mistyped-key": _E,
    "stage": _E,
    "no-model": _E,
    "no-data": _E,
    "no-reward": _E,
    "reward-names": _E,
    "auxiliary-models": _E,
    "judge-model": _E,
    "no-end": _E,
    "mini-batch-too-large": _W,
    "mini-batch-uneven": _W,
    "idle-replicas": _W,
    "replicas-uneven": _N,
    "sequence-over-micro": _W,
    "context-too-short": _E,
    "model-positions": _W,
    "response-bounds": _E,
    "devices-not-divisible": _E,
    "engine-over-node": _E,
    "tensor-over-node": _W,
    "megatron-layout": _E,
    "pipeline-idle": _W,
    "role-devices": _E,
    "role-variables": _E,
    "staleness": _E,
    "buffer-too-small": _E,
    "over-rollout": _E,
    "difficulty-ahead": _E,
    "cluster-too-small": _E,
    "memory": _W,
    "group-of-one": _W,
    "old-pass-left-out": _E,
    "gae-without-critic": _E,
    "critic-unused": _W,
    "warmup-without-critic": _W,
    "kl-off": _W,
    "kl-without-pull": _W,
    "reference-unused": _W,
    "greedy-training": _E,
    "sampling-cut": _N,
    "learning-rate": _W,
    "updates-rounded-away": _W,
    "warmup": _E,
    "clip-range": _W,
    "evaluation-never": _W,
    "evaluation-without-data": _W,
    "path-missing": _E,
    "no-data-juicer": _E,
    "code-syntax": _E,
    "code-name": _E,
    "code-signature": _E,
    "code-import": _W,
    "data-unreadable": _E,
    "data-empty": _E,
    "data-column": _E,
    "data-rows": _E,
    "data-overlong": _W,
    "data-lengths": _N,
    "hub-name": _N,
    "resume-path": _E,
    "remote-path": _E,
    "never-saved": _W,
    "tracker": _N,
    "tracker-twice": _W,
    "literal-secret": _E,
    "secret-in-name": _E,
    "not-applied": _N,
    "not-used": _W,
    "runner-refuses": _E,
    "runner-release": _N,
    "not-supported": _E,
}
"""How bad each code is, in the order of the page; the catalogue of messages says what it means."""
