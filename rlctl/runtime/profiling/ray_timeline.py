"""Ray's own timeline of a run: when each call ran in which process, as a Chrome trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rlctl.common.messages.reasons import said

NAME = "ray_timeline.json"


@contextmanager
def ray_timeline(wanted: str | bool | None, folder: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Write the timeline when the run is over, however it ended, before Ray is left.

    Args:
        wanted: the file; true is one in the run folder, null and false write none.
        folder: of the run.
        tell: is told where it is, or why it is not; a run does not fail of it.
    """
    try:
        yield
    finally:
        if wanted:
            _write(folder / NAME if wanted is True else Path(wanted).expanduser(), tell)


def _write(file: Path, tell: Callable[[str], None]) -> None:
    import ray

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        ray.timeline(filename=str(file))
    except Exception as error:  # noqa: BLE001 - observing never ends a run
        tell(
            said(
                "Ray's timeline was not written to {file}: {kind}: {error}",
                file=file,
                kind=type(error).__name__,
                error=error,
            )
        )
    else:
        tell(said("Ray's timeline is in {file}; chrome://tracing and ui.perfetto.dev show it", file=file))
