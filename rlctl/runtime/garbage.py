"""Python's search for garbage, in a run: what was loaded before its steps begin is not searched in every one of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loaded_set_aside() -> Iterator[None]:
    """Within, only what is made within is searched. All that the libraries hold takes a third of a second each time."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
