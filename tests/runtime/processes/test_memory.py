"""Freed memory stays in the process between tensors, and most of it goes back between steps."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys

import pytest

LATER = hasattr(ctypes.CDLL(None), "mallinfo2") if sys.platform == "linux" else False
PROGRAM = """
import ctypes, json, resource
from rlctl.runtime.processes.memory import MIB, give_back, keep_freed_memory
library = ctypes.CDLL(None)
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def blocks(count, mib):
    held = [library.malloc(mib * MIB) for _ in range(count)]
    for block in held:
        ctypes.memset(block, 1, mib * MIB)
    for block in held:
        library.free(block)

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        blocks(2, 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 // MIB

plain = faults()
keep_freed_memory()
blocks(2, 20)
kept = faults()
held = [library.malloc(20 * MIB) for _ in range(40)]
for block in held:
    ctypes.memset(block, 1, 20 * MIB)
last = library.malloc(MIB)
for block in held:
    library.free(block)
before = resident()
give_back()
print(json.dumps([plain, kept, before, resident()]))
"""


@pytest.mark.skipif(not LATER, reason="malloc of glibc 2.33 or later")
def test_pages_are_kept_between_tensors_and_given_back_between_steps() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    plain, kept, before, after = json.loads(done.stdout)
    assert kept < plain / 10
    assert before > 700
    assert after < before - 600
