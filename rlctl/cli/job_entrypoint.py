"""What a job does first on the cluster: put the user's files where its config says they are, then be ``rlctl``.

Run as ``python -m rlctl --job HOME launch run.yaml ...``, in the folder that Ray unpacked. That folder is Ray's to
delete, and a run that is resumed later needs the files too; so the run works in a folder on the disk that all nodes share.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rlctl.cluster.package import FILES


def place(files: Path, home: Path) -> None:
    """Put files into a folder of their own, each whole or not at all; the folder is named by what is in it."""
    home.parent.mkdir(parents=True, exist_ok=True)
    for source in sorted(path for path in files.rglob("*") if path.is_file()):
        target = home / source.relative_to(files)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            partial = target.with_name(f".{target.name}.{os.getpid()}")
            partial.write_bytes(source.read_bytes())
            partial.replace(target)


def main() -> int:
    """Place the files and run the command after them."""
    from rlctl import cli
    from rlctl.cli import diagnostics
    from rlctl.common.errors import RunError
    from rlctl.common.messages.reasons import said

    home, *words = sys.argv[2:]
    command = [str(Path(word).absolute()) if Path(word).is_file() else word for word in words]
    try:
        place(Path(FILES), Path(home))
        os.chdir(Path(home).parent)
    except OSError as error:
        problem = said("the run's files cannot be written to {home}: {reason}", home=home, reason=error.strerror)
        diagnostics.error(RunError(problem, hint="run.folder must be on a disk that the cluster can write to"))
        return 1
    sys.argv = ["rlctl", *command]
    return cli.main()
