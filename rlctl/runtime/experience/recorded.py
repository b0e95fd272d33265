"""Responses kept on disk and read back instead of generated (``run.skip``), for work on what comes after rollout.

    <stage's folder>/rollout/<digest>.pt    the responses to one list of requests; under run.skip.folder by stage

The digest is of the requests: their tokens, seeds and sampling. So a replayed run takes the responses that the same prompts got
with the same seeds, whatever the weights are by then, and what was never asked for is told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError
from typing import Protocol

import torch

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.common.whole_files import replacing
from rlctl.config.sections.run import Skip
from rlctl.runtime import unwritten
from rlctl.runtime.pickles import load_objects, reason_of
from rlctl.runtime.types import Request, Response


class Generates(Protocol):
    """Rollout engines, as a round of prompts needs them."""

    def generate(self, requests: Sequence[Request]) -> list[list[Response]]: ...

    def sleep(self) -> None: ...


class Dumped:
    """Engines whose responses are kept."""

    def __init__(self, engines: Generates, folder: Path) -> None:
        self._engines, self._folder = engines, folder

    def generate(self, requests: Sequence[Request]) -> list[list[Response]]:
        """Answer requests, and keep the answers.

        Raises:
            RunError: they cannot be kept.
        """
        answers, path = self._engines.generate(requests), self._folder / name_of(requests)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as partial:
                torch.save([[asdict(response) for response in group] for group in answers], partial)
        except (OSError, RuntimeError) as error:
            raise RunError(
                said(
                    "responses cannot be saved in {folder}: {error}",
                    folder=self._folder,
                    error=unwritten.cause(str(error)) or error,
                ),
                hint="set run.skip.folder to a folder with free space that this user can write to",
            ) from error
        return answers

    def sleep(self) -> None:
        """As the engines do."""
        self._engines.sleep()


class Replayed:
    """Answers from disk; the engines are left for evaluation."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def generate(self, requests: Sequence[Request]) -> list[list[Response]]:
        """The answers that these requests got.

        Raises:
            RunError: there are none.
        """
        path = self._folder / name_of(requests)
        try:
            kept = load_objects(path)
        except FileNotFoundError as error:
            raise RunError(
                said(
                    "{folder} has no responses to these {count} prompts with these seeds",
                    folder=self._folder,
                    count=len(requests),
                ),
                hint="save them first with the same data, batch, sampling and run.seed: run.skip.rollout=dump",
            ) from error
        except (OSError, RuntimeError, UnpicklingError, EOFError) as error:
            raise RunError(
                said("{path} cannot be read: {reason_of}", path=path, reason_of=reason_of(error)),
                hint="dump the responses again",
            ) from error
        return [[Response(**response) for response in group] for group in kept]

    def sleep(self) -> None:
        """There is nothing that sleeps."""


def name_of(requests: Sequence[Request]) -> str:
    """The file of the responses to some requests."""
    asked = [(r.token_ids, r.n, r.first, r.seed, sorted(asdict(r.sampling).items())) for r in requests]
    return hashlib.sha256(repr(asked).encode()).hexdigest()[:32] + ".pt"


def with_skips(skip: Skip, engines: Generates, place: Path) -> Generates:
    """Rollout engines as ``run.skip`` has them; ``place`` is the stage's folder."""
    mode, chosen = skip.rollout, skip.folder
    folder = place / "rollout" if chosen is None else Path(chosen).expanduser() / place.name
    if mode == "dump":
        return Dumped(engines, folder)
    return Replayed(folder) if mode == "replay" else engines
