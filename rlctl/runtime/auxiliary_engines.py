"""The engines of auxiliary models as the controller sees them."""

from __future__ import annotations

import threading

from rlctl.runtime.processes.group import Group, RetryPolicy
from rlctl.runtime.workers.auxiliary import AuxiliaryWorker

WATCH_SECONDS = 2.0
"""How often the run looks whether they are there."""


class Watched:
    """The engines of the auxiliary models of a run: one that is lost is replaced, at the same address."""

    def __init__(self, group: Group, again: RetryPolicy, *, sleeps: bool) -> None:
        """``sleeps``: they leave their memory to training while that runs."""
        self._group, self._again, self._sleeps = group, again, sleeps
        self._failure: Exception | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="auxiliary-models", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(WATCH_SECONDS):
            try:
                self._group.each(AuxiliaryWorker.beat, [()] * len(self._group), again=self._again)
            except Exception as error:  # noqa: BLE001 - raised where the next step asks
                self._failure = error
                return

    def rest(self) -> None:
        """Leave the devices to training until the next request.

        Raises:
            Exception: an engine was lost and cannot be replaced.
        """
        if self._failure is not None:
            raise self._failure
        if self._sleeps:
            self._group.all(AuxiliaryWorker.sleep)

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        self._thread.join()
