"""SwanLab, in the cloud or as files that are sent later."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO
from uuid import uuid4

from rlctl.common import packages
from rlctl.common.errors import MissingDependency
from rlctl.config.sections.output import SwanlabTracker as Settings
from rlctl.runtime.tracking.interface import COLUMNS, RunInfo, ShownResponse, kept_id, rows

MODES = {"cloud": "online", "local": "local", "offline": "offline", "disabled": "disabled"}
"""The config's modes in SwanLab's words."""


class SwanlabTracker:
    """One SwanLab run. It prints on stderr, asks nothing, and collects nothing of the machine or the command line.

    Raises:
        MissingDependency: swanlab is not installed, or its local dashboard where the mode is local.
    """

    def __init__(self, settings: Settings, info: RunInfo) -> None:
        try:
            import swanlab
        except ImportError as error:
            raise MissingDependency(
                "tracking with swanlab needs the package swanlab, which is not installed",
                hint=packages.install("swanlab"),
            ) from error
        if settings.mode == "local" and importlib.util.find_spec("swanboard") is None:
            raise MissingDependency(
                "the tracker swanlab in mode local needs its dashboard", hint="pip install 'swanlab[dashboard]'"
            )
        info.folder.mkdir(parents=True, exist_ok=True)
        resume = {"id": kept_id(info.folder, uuid4().hex), "resume": "allow"} if settings.mode == "cloud" else {}
        with _telling_on_stderr():
            self._run = swanlab.init(
                project=info.project,
                name=info.name,
                group=info.group,
                log_dir=str(info.folder),
                mode=MODES[settings.mode],
                reinit=True,
                settings=_quiet(swanlab.Settings, settings.api_key),
                **resume,
            )

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Send the metrics of a step."""
        self._run.log(dict(metrics), step=step)

    def log_responses(self, name: str, responses: Sequence[ShownResponse], *, step: int) -> None:
        """Send a table."""
        from swanlab import echarts

        table = echarts.Table()
        table.add(headers=list(COLUMNS), rows=rows(responses, step))
        self._run.log({name: table}, step=step)

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Send the settings."""
        self._run.config.update(dict(config))

    def close(self) -> None:
        """Finish the run."""
        with _telling_on_stderr():
            self._run.finish()


class _Shared:
    """Standard output, but for one thread, which writes to standard error."""

    def __init__(self, shown: TextIO, thread: int) -> None:
        self._shown = shown
        self._thread = thread

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if threading.get_ident() == self._thread else self._shown, name)


@contextmanager
def _telling_on_stderr() -> Iterator[None]:
    """Send what this thread prints to standard error; other threads go on printing where they did."""
    before = sys.stdout
    mine: Any = _Shared(before, threading.get_ident())
    sys.stdout = mine
    try:
        yield
    finally:
        if sys.stdout is mine:
            sys.stdout = before


def _quiet(settings: Any, api_key: str | None) -> Any:
    """The command line and the console may hold secrets, so neither is collected."""
    nothing = dict.fromkeys(("hardware", "runtime", "requirements", "conda", "git", "monitor"), False)
    key = {"api_key": api_key} if api_key else {}
    return settings(
        interactive=False,
        terminal=settings.Terminal(proxy_type="none"),
        probe=settings.Probe(**nothing),
        **key,
    )
