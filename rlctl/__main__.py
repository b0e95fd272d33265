"""``python -m rlctl``: the same as the ``rlctl`` command."""

from __future__ import annotations

import sys

from rlctl.cli import main

if __name__ == "__main__":
    sys.exit(main())
