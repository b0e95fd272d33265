"""What a rule reports, and the codes there are: the table that ``docs/reference/checks.md`` is printed from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rlctl.common.report import Fix, Level
from rlctl.documents.paths import KeyPath
from rlctl.planning.arithmetic import Cluster


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing a rule found: a code of ``CODES``, the key, what was got and what was expected, what to do."""

    code: str
    key: KeyPath
    message: str
    hint: str = ""
    """What to do; ``{fix}`` in it stands for the fixes in words, ``{first}`` for the nearest."""
    fixes: tuple[Fix, ...] = ()
    """What would mend it, nearest first, where that can be said in a value."""
    otherwise: str = ""
    """The hint where there are no fixes, or a file cannot express them in a few keys."""


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


class Code(NamedTuple):
    """How bad a code is, and what it means."""

    level: Level
    meaning: str


_E, _W, _N = Level.ERROR, Level.WARNING, Level.NOTE

CODES: Mapping[str, Code] = {
    "mistyped-key": Code(_E, "A key that the framework does not have is a near miss of one that it has."),
    "stage": Code(_E, "A stage has a key or a value that the schema does not allow."),
    "no-model": Code(_E, "No model is named."),
    "no-data": Code(_E, "There is nothing to train on, or nothing to evaluate on in a run that only evaluates."),
    "no-reward": Code(_E, "Reinforcement learning without a reward."),
    "reward-names": Code(_E, "Two rewards have the same name, so that their metrics cannot be told apart."),
    "judge-model": Code(_E, "A judge without a model, or whose engines do not fit their devices."),
    "no-end": Code(_E, "The schedule has neither steps, epochs nor optimizer steps."),
    "mini-batch-too-large": Code(_W, "A mini-batch is larger than the responses of a step, so it is never full."),
    "mini-batch-uneven": Code(
        _W, "A step's responses do not divide into mini-batches; the last one is smaller and noisier."
    ),
    "idle-replicas": Code(_W, "A mini-batch has fewer responses than there are replicas; some compute nothing."),
    "replicas-uneven": Code(_N, "A mini-batch does not divide by the replicas; some compute one response more."),
    "sequence-over-micro": Code(
        _W, "A sequence may be longer than a micro-batch; it is computed alone and takes more memory."
    ),
    "context-too-short": Code(_E, "Prompt and response do not fit into the context."),
    "model-positions": Code(_W, "Sequences may be longer than the model was made for."),
    "response-bounds": Code(_E, "The shortest response is longer than the longest."),
    "devices-not-divisible": Code(_E, "Devices do not divide into replicas or engines."),
    "engine-over-node": Code(_E, "A rollout engine would span nodes."),
    "tensor-over-node": Code(_W, "Tensor parallelism of training spans nodes, which is slow."),
    "megatron-layout": Code(_E, "Something that Megatron shares between devices does not divide by them."),
    "pipeline-idle": Code(_W, "A mini-batch has fewer micro-batches than there are pipeline stages; stages wait."),
    "role-devices": Code(_E, "A role is given devices that do not exist, or none."),
    "role-variables": Code(_E, "Environment variables are set for a role that there is not."),
    "staleness": Code(_E, "Responses that the schedule draws ahead are older than what is trained on."),
    "buffer-too-small": Code(_E, "The responses of a step do not fit into the buffer."),
    "over-rollout": Code(_E, "No prompt of a step is waited for."),
    "difficulty-ahead": Code(_E, "Prompts are ordered by answers that are not there yet when they are begun."),
    "cluster-too-small": Code(_E, "The cluster has fewer devices than the config asks for."),
    "memory": Code(_W, "The estimate of memory is above what a device has."),
    "group-of-one": Code(_W, "A baseline of the group, in groups of one response."),
    "old-pass-left-out": Code(_E, "The advantage reads what the pass for old log-probs measures, which is left out."),
    "gae-without-critic": Code(_E, "gae needs a critic, and there is none."),
    "critic-unused": Code(_W, "There is a critic that nothing asks."),
    "warmup-without-critic": Code(_W, "Steps in which only the critic is trained, and there is none."),
    "kl-off": Code(_W, "A KL with coefficient 0 measures nothing, and no reference is made."),
    "kl-without-pull": Code(
        _W, "The KL in the loss is an estimate whose gradient is 0 on average: it holds nothing back."
    ),
    "reference-unused": Code(_W, "A reference model is configured that nothing is measured against."),
    "greedy-training": Code(
        _E, "Training responses are drawn at temperature 0: all responses of a group are the same."
    ),
    "sampling-cut": Code(
        _N, "Training responses are drawn from a part of the policy (top_p, top_k); the loss takes all of it."
    ),
    "learning-rate": Code(_W, "The learning rate is 0 or above 1e-3."),
    "updates-rounded-away": Code(_W, "Weights are kept in bfloat16, and the learning rate is too small to move them."),
    "warmup": Code(_E, "The warm-up is given twice, or never ends within the run."),
    "clip-range": Code(_W, "Bounds of the policy loss that never act, or act against each other."),
    "evaluation-never": Code(_W, "There are held-out sources, and they are never evaluated."),
    "evaluation-without-data": Code(_W, "An interval of evaluation without held-out sources."),
    "path-missing": Code(_E, "A local file or folder does not exist."),
    "code-syntax": Code(_E, "A Python file that the config names is not valid Python."),
    "code-name": Code(_E, "A Python file has no function or class of the name that the config gives."),
    "code-signature": Code(_E, "A reward function does not take what it is called with."),
    "code-import": Code(_W, "A Python file imports a module that is not installed in rlctl's Python."),
    "data-unreadable": Code(_E, "A data file is not what its ending says, or its rows cannot be read."),
    "data-empty": Code(_E, "A data file has no rows."),
    "data-column": Code(_E, "A data file has no column of the name that the config gives."),
    "data-rows": Code(_E, "The training data has fewer rows than one step takes."),
    "data-overlong": Code(_W, "Some of the rows that were measured are longer than their limit."),
    "data-lengths": Code(_N, "The token counts of some rows."),
    "hub-name": Code(_N, "A name on a hub: it is downloaded when the run starts."),
    "resume-path": Code(_E, "A checkpoint to resume from is asked for and not named, or named and not asked for."),
    "remote-path": Code(_E, "A URL where a folder of this machine is expected, or the other way."),
    "never-saved": Code(_W, "The run leaves no weights behind."),
    "tracker": Code(_N, "A tracker needs an account or a server."),
    "tracker-twice": Code(_W, "The same tracker twice."),
    "literal-secret": Code(_E, "A key, token or password is written in the file itself."),
    "secret-in-name": Code(_E, "A folder of the run would be named after a secret of the environment."),
    "not-applied": Code(
        _N, "A default of the source's dialect is not applied here; it changes speed or memory, and no number."
    ),
    "not-used": Code(
        _W,
        "A key that is written is not used here: it changes speed, memory or what is kept beside the numbers, or has nothing to "
        "act on in this config.",
    ),
    "runner-refuses": Code(
        _E, "The framework that --runner names refuses the config; the message says where in its source."
    ),
    "runner-release": Code(_N, "The file is of another release than the one whose requirements are checked."),
    "not-supported": Code(_E, "The runtime does not do this; the message says what is missing."),
}
"""Every code, in the order of the page."""


def codes_page() -> str:
    """The reference page of all codes, as Markdown."""
    lines = [
        "# Checks",
        "",
        "What `rlctl check` looks for. An error stops `rlctl launch`; a warning deserves a second look; a note is worth knowing.",
        "Printed from `rlctl/checks/problem.py`.",
        "",
        "| code | level | meaning |",
        "| --- | --- | --- |",
        *(f'| <a id="{code}"></a>`{code}` | {entry.level} | {entry.meaning} |' for code, entry in CODES.items()),
    ]
    return "\n".join(lines) + "\n"
