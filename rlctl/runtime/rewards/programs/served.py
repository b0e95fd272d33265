"""The process of a program that tests reach from another process: runs the program as ``__main__``, then serves its names.

    python -I -c TEXT-OF-THIS-FILE JOB SOCKET      two file descriptors

The tests are not here: a program neither sees them nor can it report in their place.
"""

from __future__ import annotations

import json
import os
import sys
import types
from typing import Any


def main() -> None:
    """Run the program of the job that a descriptor holds, and serve a socket."""
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        job = json.loads(file.read())
    peer: Any = types.ModuleType("peer")
    sys.modules["peer"] = peer
    exec(compile(job["peer"], "peer.py", "exec"), peer.__dict__)
    socket = int(sys.argv[2])
    os.set_inheritable(socket, False)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.set_int_max_str_digits(0)
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv[:] = ["program.py"]
    exec(compile(job["prelude"], "program.py", "exec"), module.__dict__)
    before = dict(module.__dict__)
    missing = object()

    def names(wanted: list[str]) -> dict[str, Any]:
        found = {name: module.__dict__.get(name, missing) for name in wanted}
        return {
            name: value
            for name, value in found.items()
            if value is not missing and value is not before.get(name, missing)
        }

    side = peer.Peer(socket)

    def run(wanted: list[str]) -> dict[str, Any]:
        exec(compile(job["code"], "program.py", "exec"), module.__dict__)
        sys.stdout.flush()
        return names(wanted)

    side.names = run
    side.serve()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
