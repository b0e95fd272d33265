"""What was there before is not searched for garbage; what is made within is."""

from __future__ import annotations

import gc
import weakref

from rlctl.runtime.garbage import loaded_set_aside


class Ring:
    def __init__(self) -> None:
        self.own = self


def test_only_what_is_made_within_is_searched() -> None:
    before = Ring()
    old = weakref.ref(before)
    with loaded_set_aside():
        del before
        new = weakref.ref(Ring())
        gc.collect()
        assert new() is None
        assert old() is not None
    gc.collect()
    assert old() is None
