"""What a rule reports, and how bad each code is; the texts are messages of ``rlctl/common/messages/checks.*.ftl``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from rlctl.common.messages import catalogue, code_of, optional, text
from rlctl.common.report import Fix, Level
from rlctl.documents.paths import KeyPath, dotted
from rlctl.planning.arithmetic import Cluster
from rlctl.planning.memory_terms import OWN, MemoryTerms
from rlctl.planning.support import RLCTL

RUNNERS = (RLCTL, "verl", "trinity", "roll")
"""The frameworks that may run a config."""


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

    def message_for(self, runner: str) -> str:
        """What a framework does, if the catalogue says it of that one (``context-too-short.verl``); else what rlctl does."""
        return optional(f"{self.id}.{runner}", **self._values) or self.message

    @property
    def hint(self) -> str:
        """What to do; ``{fix}`` in it stands for the fixes in words, ``{first}`` for the nearest; if none is left, what else."""
        if self.fixes or not _names_fixes(self.id):
            return optional(f"{self.id}.hint", **self._values)
        return optional(f"{self.id}.otherwise", **self._values) or text("no-single-fix", **self._values)

    @property
    def _values(self) -> dict[str, Any]:
        return {"key": dotted(self.key), "fix": "{fix}", "first": "{first}", **self.params}


@cache
def _names_fixes(id_: str) -> bool:
    """Whether the hint of a message shows the values of its fixes."""
    entry = catalogue("en")[id_]
    return "$fix }" in entry or "$first }" in entry


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
    runner: str = RLCTL
    """The framework that is to run the config."""
    terms: MemoryTerms = OWN
    """What it holds in memory."""

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
    "domain-weights": _E,
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
    "heads-undivided": _E,
    "engine-over-node": _E,
    "tensor-over-node": _W,
    "megatron-layout": _E,
    "context-parallel": _E,
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
    "kl-twice": _W,
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
    "code-returns": _W,
    "code-import": _W,
    "data-unreadable": _E,
    "data-empty": _E,
    "data-column": _E,
    "data-images": _E,
    "data-split": _E,
    "data-rows": _E,
    "data-overlong": _W,
    "data-lengths": _N,
    "data-unanswered": _W,
    "data-blank": _W,
    "data-repeated": _W,
    "data-overlap": _W,
    "model-files": _E,
    "model-tokenizer": _E,
    "hub-name": _N,
    "resume-path": _E,
    "remote-path": _E,
    "never-saved": _W,
    "tracker": _N,
    "tracker-twice": _W,
    "literal-secret": _E,
    "secret-in-name": _E,
    "folder-name": _E,
    "not-applied": _N,
    "not-used": _W,
    "runner-refuses": _E,
    "runner-ignores": _W,
    "runner-release": _N,
    "not-supported": _E,
    "here-late": _W,
    "here-gpus": _E,
    "here-busy": _W,
    "here-shm": _W,
    "here-folder": _E,
    "here-disk": _E,
    "here-port": _E,
    "here-sandbox": _E,
    "here-ray": _E,
    "here-hub": _E,
    "here-tracker": _E,
    "here-endpoint": _E,
}
"""How bad each code is if rlctl runs the config, in the order of the page; the catalogue of messages says what it means."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What a finding is worth if another framework runs the config."""

    why: str
    """What those frameworks do instead."""
    levels: Mapping[str, Level] = field(default_factory=dict)
    """By framework, how bad it is there; a framework that is missing has no such problem, or says it by its own requirements."""


def _as_warning(why: str) -> Elsewhere:
    return Elsewhere(why, dict.fromkeys(RUNNERS[1:], _W))


_OWN_RULES = "the frameworks' own arithmetic stops the run; their requirements have it"
_OURS = "a limit of rlctl's runtime"

ELSEWHERE: Mapping[str, Elsewhere] = {
    "reward-names": Elsewhere("the frameworks do not name rewards"),
    "auxiliary-models": Elsewhere("Trinity-RFT tells auxiliary models apart by their place, not by name", {"roll": _E}),
    "idle-replicas": Elsewhere(_OWN_RULES),
    "replicas-uneven": Elsewhere(_OWN_RULES),
    "sequence-over-micro": Elsewhere(
        "the frameworks stop with an assertion; verl and Trinity-RFT have it among their requirements", {"roll": _W}
    ),
    "context-too-short": Elsewhere(
        "verl and ROLL cut responses short; Trinity-RFT refuses the config, which its requirements have",
        {"verl": _W, "roll": _W},
    ),
    "engine-over-node": Elsewhere("their engines may span nodes"),
    "resume-path_unread": _as_warning("they ignore it, too; verl and ROLL always have the key"),
    "evaluation-without-data": Elsewhere(
        "files of Trinity-RFT and ROLL usually set the interval, and evaluate nothing without data",
        {"verl": _W, "trinity": _N, "roll": _N},
    ),
    "role-devices_policy": Elsewhere(
        "a file of ROLL without actor_train only generates", {"verl": _E, "trinity": _E, "roll": _N}
    ),
    "role-variables": Elsewhere("roles have other names"),
    "remote-path": Elsewhere("paths on other machines are read in other ways"),
    "heads-undivided": Elsewhere("what each engine can split is among their requirements"),
    "code-returns": Elsewhere("what they take of a reward is among their requirements"),
    "staleness": Elsewhere("they count staleness otherwise"),
    "buffer-too-small": Elsewhere("their buffers grow"),
    "difficulty-ahead": Elsewhere("their samplers update when rewards arrive"),
    "context-parallel": Elsewhere(_OURS),
    "old-pass-left-out": Elsewhere(_OURS),
    "warmup": _as_warning("they use one of the two, or decay from the first step"),
    "tracker-twice": Elsewhere("they start each tracker once"),
    "not-applied": Elsewhere(_OURS),
    "not-used": Elsewhere(_OURS),
    "not-supported": Elsewhere(_OURS),
}
"""Codes, or messages of a code, that mean something else in other frameworks. All others hold for all, at the same level."""


def level_for(id_: str, runner: str) -> Level | None:
    """How bad a message is if a framework runs the config; None if it says nothing of that framework."""
    other = ELSEWHERE.get(id_, ELSEWHERE.get(code_of(id_)))
    return LEVELS[code_of(id_)] if runner == RLCTL or other is None else other.levels.get(runner)


def runners_of(id_: str) -> tuple[str, ...]:
    """The frameworks that a message holds for."""
    return tuple(runner for runner in RUNNERS if level_for(id_, runner) is not None)
