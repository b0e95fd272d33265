"""Arrays that a worker leaves in Ray's object store, and the handle that this process has on them."""

from __future__ import annotations

from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said

Arrays = tuple[Any, ...]
"""NumPy's."""


class StoredArrays:
    """Arrays that a worker left in the object store."""

    __slots__ = ("_arrays", "handle")

    def __init__(self, handle: Any) -> None:
        """``handle``: Ray's, which keeps the arrays until it is dropped; a worker that it is an argument of gets the arrays."""
        self.handle = handle
        self._arrays: Arrays | None = None

    @property
    def arrays(self) -> Arrays:
        """The arrays, read-only, fetched when they are first asked for.

        Raises:
            RunError: they are lost, because the machine that had them is.
        """
        if self._arrays is None:
            import ray

            try:
                self._arrays = ray.get(self.handle)
            except ray.exceptions.RayError as error:
                raise RunError(
                    said("responses of this step are lost: {error}", error=str(error).partition("\n")[0]),
                    hint="resume the run: it continues from its last checkpoint",
                ) from error
        return self._arrays


def copy_here(handle: Any) -> None:
    """Have Ray copy arrays to this machine, so that they outlive the machine that has them. Does not wait for it."""
    import ray

    ray.wait([handle], timeout=0)
