"""The process of one program: runs it as ``__main__``, calls its function, and reports how it ended.

    python -I -c TEXT-OF-THIS-FILE JOB      a file descriptor; the report goes to stderr

The report comes from the process of the program itself, so the program can forge it. Nothing that a program must not decide
may depend on it: output and results are compared outside, with values that this process never sees, and tests run in a
process of their own (``tester.py``).
"""

from __future__ import annotations

import ast
import json
import os
import sys
import types
from typing import Any


def _call(module: Any, job: dict[str, Any]) -> str:
    name = job["function"]
    owner = module.Solution() if "class Solution" in job["code"] else module
    result = getattr(owner, name)(*ast.literal_eval(job["arguments"]))
    json.dumps(result)  # plain data only
    return repr(result)


def main() -> None:
    """Run the program of the job that a descriptor holds."""
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        job = json.loads(file.read())
    report = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    outcome: dict[str, Any] = {"how": "ended"}
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv[:] = ["program.py"]
    try:
        for part in ("prelude", "code", "tests"):
            exec(compile(job[part], "program.py", "exec"), module.__dict__)
        if job["function"]:
            outcome["result"] = _call(module, job)
    except SystemExit as error:
        status = 0 if error.code is None else error.code if isinstance(error.code, int) else 1
        outcome.update(how="exited", status=status)
    except BaseException as error:  # noqa: BLE001 - a program may raise anything
        outcome.update(how="raised", error=f"{type(error).__name__}: {error}"[:300])
    try:
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - a program may raise anything
        outcome.update(how="raised", error=f"{type(error).__name__}: {error}"[:300])
    data = json.dumps(outcome).encode()
    while data:
        data = data[os.write(report, data) :]
    os._exit(0)


if __name__ == "__main__":
    main()
