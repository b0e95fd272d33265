"""The ``rlctl`` command, and ``python -m rlctl``."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the command; Ctrl-C while it is loaded ends it as later, without a traceback."""
    try:
        from rlctl.cli import main as command
    except KeyboardInterrupt:
        return 130
    try:
        return command()
    finally:
        gc.freeze()  # as Python ends, it would search all that was loaded for garbage, which takes a tenth of a conversion


if __name__ == "__main__":
    sys.exit(main())
