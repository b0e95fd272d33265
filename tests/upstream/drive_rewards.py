"""Runs in a framework's environment: a function of its own on arguments that the test sends, a line of JSON for each."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any


def answer(ask: dict[str, Any]) -> Any:
    """What a function returns; of a class, what an object of it does."""
    function = getattr(importlib.import_module(ask["module"]), ask["function"])
    if isinstance(function, type):
        function = function(**ask.get("made_with", {}))
    return function(**ask["arguments"])


def main() -> None:
    """Answer until standard input ends. What the functions print goes to standard error."""
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            found = {"value": answer(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - told to the test
            found = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(found, default=float), file=out, flush=True)


if __name__ == "__main__":
    main()
