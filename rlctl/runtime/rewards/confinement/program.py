"""The process of one program: runs it as ``__main__``, calls its function, and says how it ended.

    python -I -c TEXT-OF-THIS-FILE JOB REPORT      two file descriptors

What it says holds a word that only this process was told, so that a program that ends the process early is not taken for one
that ran to its end.
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


def _main() -> None:
    with os.fdopen(int(sys.argv[1]), "rb") as asked:
        job = json.loads(asked.read())
    report = int(sys.argv[2])
    said = {"nonce": job["nonce"], "how": "ended"}
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv[:] = ["program.py"]
    try:
        exec(compile(job["code"], "program.py", "exec"), module.__dict__)
        if job["function"]:
            said["result"] = _call(module, job)
    except SystemExit as error:
        status = 0 if error.code is None else error.code if isinstance(error.code, int) else 1
        said.update(how="exited", status=status)
    except BaseException as error:  # noqa: BLE001 - a program may raise anything
        said.update(how="raised", error=f"{type(error).__name__}: {error}"[:300])
    try:
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - a program may raise anything
        said.update(how="raised", error=f"{type(error).__name__}: {error}"[:300])
    os.write(report, json.dumps(said).encode())
    os._exit(0)


_main()
