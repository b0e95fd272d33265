"""The process of tests: runs them against a program in another process, and reports how they ended.

    python -I -c TEXT-OF-THIS-FILE JOB SOCKET      two file descriptors; the report goes to stderr

The program cannot reach this process: it answers requests (``peer.py``), and what it answers is data.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import sys
import types
from typing import Any


def names_in(tree: ast.AST) -> set[str]:
    """The names that tests look up and do not define."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    defined = {name.id for name in names if not isinstance(name.ctx, ast.Load)}
    defined |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {name.id for name in names} - defined


def chosen(found: dict[str, Any], known: dict[str, Any], entry: str) -> dict[str, Any]:
    """The names of a program that tests see.

    If a program defines a name that is also a builtin or a module of the prelude, such as ``abs`` or ``math``, its definition
    counts only if the tests use nothing else of the program: then it is what they test. Otherwise it could decide how they
    compare.
    """
    taken = {name for name in found if hasattr(builtins, name) or isinstance(known.get(name), types.ModuleType)}
    hidden = taken - {entry}
    return found if hidden == set(found) else {name: value for name, value in found.items() if name not in hidden}


def main() -> None:
    """Run the tests of the job that a descriptor holds, with the program at the other end of a socket."""
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        job = json.loads(file.read())
    peer: Any = types.ModuleType("peer")
    sys.modules["peer"] = peer
    exec(compile(job["peer"], "peer.py", "exec"), peer.__dict__)
    report = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.set_int_max_str_digits(0)
    outcome: dict[str, Any] = {"how": "ended"}
    try:
        tree = ast.parse(job["tests"], "tests.py")
        tests = compile(tree, "tests.py", "exec")
        wanted = sorted(names_in(tree))
        found = peer.Peer(int(sys.argv[2])).request("names", wanted)
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        if len(found) > 1 or any(name not in found and not hasattr(builtins, name) for name in wanted):
            exec(compile(job["prelude"], "tests.py", "exec"), module.__dict__)
        module.__dict__.update(chosen(found, module.__dict__, job["entry"]))
        exec(tests, module.__dict__)
    except peer.Closed:
        outcome.update(how="killed", error="the program exited before its tests finished")
    except SystemExit as error:
        status = 0 if error.code is None else error.code if isinstance(error.code, int) else 1
        outcome.update(how="exited", status=status)
    except BaseException as error:  # noqa: BLE001 - tests may raise anything
        outcome.update(how="raised", error=f"{type(error).__name__}: {error}"[:300])
    os.write(report, json.dumps(outcome).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
