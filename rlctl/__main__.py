"""The ``rlctl`` command, and ``python -m rlctl``; with ``--job`` first, what a job of ``rlctl launch`` runs on a cluster.

A job brings rlctl's code, but not what it imports. So this file imports nothing else before it knows that the packages are there.
"""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the command; neither Ctrl-C nor a missing package while it is loaded shows a traceback."""
    try:
        if sys.argv[1:2] == ["--job"]:
            from rlctl.cli.job_entrypoint import main as command
        else:
            from rlctl.cli import main as command
    except KeyboardInterrupt:
        return 130
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.partition(".")[0] == "rlctl":
            raise
        sys.stderr.write(
            f"error: {sys.executable} cannot import {missing}, which rlctl needs\n"
            "  hint: install the packages of rlctl[runtime] in that Python; on a cluster, on each node\n"
        )
        return 1
    try:
        return command()
    finally:
        gc.freeze()  # as Python ends, it would search all that was loaded for garbage, which takes a tenth of a conversion


if __name__ == "__main__":
    sys.exit(main())
